"""Settings of a run (the lake, the catalogue and one config), progress of long work, and parallel work."""

import os
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from fleetcast.assets.lake.environment import LAKE
from fleetcast.assets.lake.environment_variables import CONFIG_VARIABLE, DEFAULT_CONFIG
from fleetcast.assets.lake.lake_preconditions import require_day
from fleetcast.assets.lake.process_resources import usable_cores
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.aliases import Floats, T
from fleetcast.models.latency.profile_order import complete_catalogue
from fleetcast.models.world.cascades import stages_per_request
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.catalogue_overrides import override_catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.config_loading import CONFIG_DIR, load_config
from fleetcast.models.world.plan_grid import Grid

R = TypeVar("R")
HOURS_OF_DAY = 24
Step = Callable[[int], None]  # takes the number of steps done


@dataclass(frozen=True)
class RunSettings:
    """A lake, one run configuration, and the catalogue limited to the llms that it deploys."""

    lake: Lake
    catalogue: Catalogue
    config: RunConfig

    @property
    def trace(self) -> str:
        """Name of the trace, as in the lake's folders."""
        return self.config.trace.name

    @property
    def config_name(self) -> str:
        """Name of a shipped config, else the path of its file, quoted for a shell."""
        file = self.config.file
        return file.stem if file.parent == CONFIG_DIR else shlex.quote(str(file.absolute()))

    def command(self, words: str) -> str:
        """Return the shell command `fleetcast WORDS`, with --config if the config is not the default."""
        name, default = self.config_name, os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG
        return f"fleetcast {words}" if name == default else f"fleetcast {words} --config {name}"

    @cached_property
    def grid(self) -> Grid:
        """Services, regions, options and pools of the fleet."""
        return Grid(self.catalogue, self.config.fleet)

    def serving_load(self, requested: Floats, axis: int) -> Floats:
        """Convert a load by requested llm into a load by serving llm, in the same unit and shape.

        `requested`: in any additive unit, shape (..., llms, ...); the llms of the catalogue are along `axis`.
        """
        cascades = self.config.replay.cascades
        if not cascades:
            return requested
        served = np.tensordot(stages_per_request(self.catalogue, cascades), requested, axes=(0, axis))
        return np.moveaxis(served, 0, axis)

    def under(self, policy: str) -> "RunSettings":
        """Return the settings with the parameters that the config overrides for a policy."""
        settings = replace(self, config=self.config.under(policy))
        vars(settings)["grid"] = self.grid  # the fleet is the same: keep the cached grid
        return settings

    def with_config(self, **tables: Any) -> "RunSettings":
        """Return the settings with these fields of the config replaced."""
        return replace(self, config=replace(self.config, **tables))

    def figures(self, day: date) -> LakePath:
        """Return the folder of a day's figures, next to the lake's folder, also in a bucket."""
        return self.lake.root.parent / "figures" / self.trace / day.isoformat()

    def day_rows(self, table: str, day: date, order: str = "all") -> pa.Table:
        """Return the rows of a table or mart of the trace on a day, ordered by these columns."""
        query = f"from {table} where trace = $trace and day = $day order by {order}"
        return self.lake.sql(query, trace=self.trace, day=day)

    def require_day(self, table: str, day: date) -> None:
        """Raise a LakeError if the lake does not have this day of a table of the trace."""
        require_day(self.lake, table, self.trace, day, self.command("nightly"))

    def history(self, day: date) -> list[date]:
        """Return the days before `day` that a forecast may use, oldest first; none is before the trace."""
        days = [day - timedelta(days=back) for back in range(self.config.forecast.history_days, 0, -1)]
        return [past for past in days if past >= self.config.trace.first_day]


def load_settings(config: str, lake: str | LakePath = LAKE, text: str = "") -> RunSettings:
    """Load the settings of a config by name, path or text; ConfigError names what is wrong with it."""
    catalogue = load_catalogue()
    return build_settings(Lake(lake), catalogue, load_config(config, catalogue, text=text))


def build_settings(lake: Lake, catalogue: Catalogue, config: RunConfig) -> RunSettings:
    """Build the settings of a config that was checked against this catalogue; apply its overrides to it."""
    world = override_catalogue(catalogue, config.catalogue, config.file.name)
    world = complete_catalogue(world.serving(config.fleet.deployments), config)
    return RunSettings(lake, world, config)


def midnight(day: date) -> datetime:
    """Return the first instant of a day, UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


class Progress:
    """Progress of long work. This class is silent; the terminal has a subclass that draws bars."""

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[Step]:
        """Open a bar of `total` steps; call the yielded function with the number of steps done.

        If the number of steps is unknown, `total` is 0 and a step is a second.
        """
        yield lambda done: None

    def each(self, label: str, items: Collection[T]) -> Iterator[T]:
        """Yield the items of a `for` statement, with a bar that has a step for each."""
        with self.bar(label, len(items)) as done:
            for number, item in enumerate(items, start=1):
                yield item
                done(number)

    def replay_bar(self, label: str, total: int) -> AbstractContextManager[Step]:
        """Open a bar of replays; its label says if the kernel must be compiled first, which takes minutes."""
        from fleetcast.models.replay.compiled import is_kernel_cached

        return self.bar(label if is_kernel_cached() else f"compile the replay, {label}", total)

    def say(self, line: str) -> None:
        """Report something that took no time."""


class StepCounter:
    """Counter of steps that several threads take."""

    def __init__(self, done: Step) -> None:
        self._done, self._lock, self._steps = done, Lock(), 0

    def count_step(self) -> None:
        """Count a step and report it."""
        with self._lock:
            self._steps += 1
            self._done(self._steps)


def run_parallel(
    work: Callable[[T], R], items: Sequence[T], stop: Callable[[], object] = lambda: None
) -> list[R]:
    """Apply `work`, which releases the interpreter lock, to items in threads; return results in their order.

    If an item fails or the work is interrupted, `stop` is called and no further item begins.
    """
    with ThreadPoolExecutor(usable_cores()) as threads:
        try:
            return list(threads.map(work, items))
        except BaseException:
            stop()
            raise
