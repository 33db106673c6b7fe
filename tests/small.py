"""A small run for tests: the sageserve config with a trickle of requests on three days."""

import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TypeVar

import pytest

from fleetcast.assets.demand import demand_history
from fleetcast.assets.forecasts.forecasts import forecast_day
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans import measured_capacity, plans
from fleetcast.models.plan.problem import HourPlan, Problem
from fleetcast.models.plan.solver import SolverOptions
from fleetcast.models.world.config_loading import CONFIG_DIR

T = TypeVar("T")
DAGSTER = """
telemetry: {enabled: false}
nux: {enabled: false}
compute_logs: {module: dagster._core.storage.noop_compute_log_manager, class: NoOpComputeLogManager}
"""  # of a home of its own; the rest is said in the dagster.yaml of the root

# What an instance serves at all is measured in one trial, what it serves in time in some twenty.
ONE_TRIAL = {"capacity_share": '0.85\ncapacity = "throughput" '}


def shipped(config: str, /, **changes: str) -> str:
    """The text of a shipped config; `changes` replace the first line of that key, in TOML."""
    return change_lines((CONFIG_DIR / f"{config}.toml").read_text(encoding="utf-8"), config, changes)


def change_lines(text: str, config: str, changes: Mapping[str, str]) -> str:
    """Replace the first line of each key."""
    for key, value in changes.items():
        text, found = re.subn(rf"^{key} = [^#\n]*", f"{key} = {value}", text, count=1, flags=re.M)
        assert found == 1, f"{config}.toml has no key {key}"
    return text


def whole_text(config: str) -> str:
    """The text of a shipped config over that of office, as `based_on` merges them: line by line.

    A section whose keys are names is replaced.
    """
    whole = sections("office")
    for head, lines in sections(config).items():
        if head.endswith(("mix]", "deployments]", "heavier]")):
            whole[head] = lines
        else:
            whole[head] = whole.get(head, {}) | lines
    whole[""].pop("based_on", None)
    return "".join("\n".join([head, *lines.values(), ""]) for head, lines in whole.items())


def sections(config: str) -> dict[str, dict[str, str]]:
    """The lines of a shipped config by section and key; a value over several lines is one."""
    found: dict[str, dict[str, str]] = {"": {}}
    for line in (CONFIG_DIR / f"{config}.toml").read_text(encoding="utf-8").splitlines():
        key, equals, _ = line.partition(" = ")
        if line.startswith("["):
            head = line.partition("]")[0] + "]"
            found[head] = {}
        elif equals and not line.startswith((" ", "#")):
            found[head if len(found) > 1 else ""][key] = line
        elif line.startswith((" ", "]")):
            found[head][next(reversed(found[head]))] += "\n" + line
    return found


def in_hours(text: str, *hours: int) -> str:
    """A config whose requests all come within these hours of the day."""
    shares = ", ".join("1.0" if hour in hours else "0.0" for hour in range(24))
    text = re.sub(r"^by_hour = .*\n", "", text, flags=re.M)
    text, found = re.subn(
        r"^(\[trace\.office\.tiers\.\w+\]).*$", rf"\1\nby_hour = [{shares}]", text, flags=re.M
    )
    assert found
    return text


def small_config(folder: Path, base: str = "sageserve", /, **changes: str) -> str:
    """Write it to a file and return its path; `changes` replace the first line of that key, in TOML."""
    values = {
        "name": '"small"',
        "days": "3",
        "requests_per_day": "3000.0",
        "method": '"last_value"',
        "paper_method": '"last_value"',
        "methods": '["last_value"]',
    }
    path = folder / "small.toml"
    path.write_text(change_lines(whole_text(base), base, values | changes), encoding="utf-8")
    return str(path)


def make_plans(
    settings: RunSettings, day: date, sustained: Callable[..., Sequence[float]] | None = None
) -> None:
    """What a night makes up to its plans: requests and demand of the history and the day, then forecasts.

    `sustained`: what an instance of each kind does, instead of measuring it.
    """
    days = [*settings.history(day), day]
    demand_history.make_requests(settings, days, Progress())
    list(demand_history.make_demand(settings, days, Progress()))
    forecast_day(settings, day, Progress())
    with pytest.MonkeyPatch.context() as patch:
        if sustained is not None:
            patch.setattr(measured_capacity, "measure_capacities", sustained)
        plans.plan_day(settings, day, Progress())


def by_size(settings: RunSettings, _day: date, _progress: Progress, instances: int = 4) -> list[float]:
    """Measured capacities: half of that of one of four for an instance alone, three quarters of two."""
    return [30.0 * {1: 0.5, 2: 0.75, 4: 1.0}[instances]] * len(settings.grid.service_options)


def record_size_shares(patch: pytest.MonkeyPatch) -> set[tuple[float, ...]]:
    """Measure `by_size`; return the set to which each corrected plan adds what its small pools sustain."""
    found: set[tuple[float, ...]] = set()
    solve = plans.PLAN_SOLVERS["corrected"]

    def solve_recorded(problem: Problem, options: SolverOptions) -> HourPlan:
        found.update(tuple(shares) for shares in problem.size_shares[:, problem.runs].T.tolist())
        return solve(problem, options)

    patch.setattr(measured_capacity, "MEASURED_SIZES", {})
    patch.setattr(measured_capacity, "measure_capacities", by_size)
    for kind in ("corrected", "day_ahead", "truth"):
        patch.setitem(plans.PLAN_SOLVERS, kind, solve_recorded)
    return found


BY_SIZE = (0.5, 0.75, 0.875, 1.0)  # what record_size_shares finds


def call_once(function: Callable[..., T]) -> Callable[..., T]:
    """Call it once in a process with the same arguments: tests repeat trials, and the rest is repeatable."""
    results: dict[bytes, T] = {}

    def found(*args: object, **options: object) -> T:
        key = pickle.dumps((args, options))
        if key not in results:
            results[key] = function(*args, **options)
        return results[key]

    return found


SOLVED_ONCE = {kind: call_once(solve) for kind, solve in plans.PLAN_SOLVERS.items()}
