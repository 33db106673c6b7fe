"""What goes into a replay of a day: its requests as the kernel's arrays, with levels, prompts and legs."""

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import date, timedelta
from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fleetcast.assets.lake.lake_preconditions import column_codes
from fleetcast.assets.lake.settings import HOURS_OF_DAY, RunSettings, midnight
from fleetcast.assets.plans.nightly_quality import apply_quality_plan
from fleetcast.assets.plans.quality_answers import AnswerSampler, KnownAnswers, find_known_answers
from fleetcast.models.aliases import Bools, Ints
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.replay.session.legs import expand_cascades
from fleetcast.models.traffic.priority_levels import LevelCodes, assign_levels, assign_levels_by_app
from fleetcast.models.world.calendar import DAY_S
from fleetcast.models.world.option_names import LEVELS_BY_APP
from fleetcast.models.world.toml_dataclasses import ConfigError

OUTCOME_REQUEST_COLUMNS = (
    "request_id", "region", "llm", "tier", "app", "arrived_at", "input_tokens", "output_tokens", "deadline_s",
)  # fmt: skip
PROMPT_COLUMNS = {
    "given": "cached_tokens",
    "blocks": "prefix_hashes",
}  # what tells of them, by [fleet] prefix


CACHED_DAYS = 3  # of requests in memory, where days are played in one go
NO_ANSWERERS, NO_SHADOWS = np.zeros(0, np.int64), np.zeros(0, np.bool_)


class ReplayWorkload(NamedTuple):
    """A day of requests: the table they came from and the arrays that the kernel reads."""

    requests: pa.Table  # KEPT, and what tells of prompts and questions
    trace: TraceArrays  # a row per request, or per leg (`in_legs`)
    answerer: Ints = NO_ANSWERERS  # (R,) llm whose answer a row makes or judges; empty: the row's own
    is_shadow: Bools = NO_SHADOWS  # (R,) nobody waits for it; empty: somebody does for all
    known: KnownAnswers | None = None  # what is known of the answers to these requests


WORKLOAD_CACHE: dict[
    tuple[Any, ...], ReplayWorkload
] = {}  # what the unit that this process played last has read


def read_workload(
    settings: RunSettings, day: date, llms: Collection[str] = (), hours: tuple[int, int] = (0, HOURS_OF_DAY)
) -> ReplayWorkload:
    """Read a day's requests as the kernel's arrays; codes are positions in the catalogue.

    Of some llms and some hours, from one to before another, where not all are asked for.
    """
    of_day = {"trace": settings.trace, "day": day}
    begin, end = (midnight(day) + timedelta(hours=hour) for hour in hours)
    prefix = settings.config.fleet.prefix
    more = [PROMPT_COLUMNS[prefix]] if prefix in PROMPT_COLUMNS else []
    columns = [*OUTCOME_REQUEST_COLUMNS, *more, *(["query_id"] if settings.config.quality else [])]
    table = settings.lake.sql(
        f"select {', '.join(columns)} from requests where trace = $trace and day = $day::date "
        "and arrived_at >= $begin and arrived_at < $end and ($llms is null or list_contains($llms, llm))",
        **of_day, begin=begin, end=end, llms=list(llms) or None,
    )  # fmt: skip
    if len(settings.lake.files("requests", **of_day)) > 1:  # of several sources, each in order
        table = table.sort_by([("arrived_at", "ascending"), ("request_id", "ascending")])
    trace = build_trace_arrays(settings, day, table)
    return ReplayWorkload(table, trace._replace(level=request_levels(settings, day, table, trace.tier)))


def build_trace_arrays(settings: RunSettings, day: date, requests: pa.Table) -> TraceArrays:
    """Requests as the kernel's arrays, arrivals in s since the day began, all of one level.

    ConfigError where the fleet's prefix asks for what none of them says.
    """
    catalogue, fleet = settings.catalogue, settings.config.fleet
    since = pc.subtract(requests["arrived_at"], pa.scalar(midnight(day), pa.timestamp("us", "UTC")))
    said_in = f"{settings.config.file.name} [fleet] prefix"
    return TraceArrays(
        arrival_s=since.cast(pa.int64()).to_numpy() / 1e6,
        region=column_codes(requests, "region", catalogue.regions),
        llm=column_codes(requests, "llm", catalogue.llms),
        tier=column_codes(requests, "tier", catalogue.tiers),
        input_tokens=requests["input_tokens"].to_numpy(),
        output_tokens=requests["output_tokens"].to_numpy(),
        **prompt_arrays(requests, fleet.prefix, said_in, settings.trace),
    )


def request_levels(settings: RunSettings, day: date, table: pa.Table, tier: LevelCodes) -> LevelCodes:
    """The level of each request, as [replay.levels] says."""
    asked = settings.config.replay.levels
    if asked.by == LEVELS_BY_APP and asked.count > 1:
        need_s = np.array([known.allowance_s for known in settings.catalogue.tiers.values()])
        return assign_levels_by_app(app_codes(table, settings.trace), need_s[tier], asked.count)
    return assign_levels(
        tier, asked.by, asked.count, settings.config.trace.seed + day.toordinal(), asked.shares
    )


def app_codes(table: pa.Table, trace: str) -> Ints:
    """A code for each request's application, without gaps; ConfigError where there is but one."""
    apps = table["app"].combine_chunks().dictionary_encode()
    if len(apps.dictionary) < 2:
        said = ", ".join(map(repr, apps.dictionary.to_pylist())) or "none"
        raise ConfigError(
            f'Levels by "{LEVELS_BY_APP}": all requests of {trace} have one app ({said}), so one level. Take '
            "another way, or map its apps in the file beside it (data/landing/README.md)."
        )
    return apps.indices.to_numpy().astype(np.int64)


def prompt_arrays(table: pa.Table, prefix: str, said_in: str, trace: str) -> dict[str, NDArray[Any]]:
    """What the requests say of their prompts, as far as the fleet's prefix asks: columns of a Trace.

    ConfigError where it asks for what none of them says.
    """
    if prefix not in PROMPT_COLUMNS:
        return {}
    column = PROMPT_COLUMNS[prefix]
    if len(table) and table[column].null_count == len(table):
        raise ConfigError(
            f'{said_in} = "{prefix}" needs {column}, which no request of {trace} has. Say none, or '
            "give a trace that has them."
        )
    if prefix == "given":
        cached = pc.min_element_wise(pc.fill_null(table[column], 0), table["input_tokens"])
        return {"cached_tokens": cached.to_numpy().astype(np.int32)}
    hashes = table[column].combine_chunks()
    counts = pc.fill_null(pc.list_value_length(hashes), 0).to_numpy()
    codes, _ = pd.factorize(pc.list_flatten(hashes).to_numpy())  # half the time of Arrow's dictionary
    return {"first_hash": np.concatenate([[0], np.cumsum(counts)]), "hashes": codes.astype(np.int64)}


def has_legs(settings: RunSettings, policy: str) -> bool:
    """Whether a request may be several rows of the trace under the policy, or has a known answer."""
    config = settings.config
    return bool(config.replay.cascades or config.quality) or config.rules[policy].answers is not None


def expand_request_stages(settings: RunSettings, day: date, workload: ReplayWorkload) -> ReplayWorkload:
    """The same requests, those for a cascade with a row for each leg, and with what is known of answers."""
    known = find_known_answers(settings, day, workload.requests)
    cascades, trace = settings.config.replay.cascades, workload.trace
    if not cascades:
        return workload._replace(known=known)
    drawer = AnswerSampler(settings, day, known, trace.input_tokens, trace.output_tokens)
    chained = expand_cascades(trace, settings.catalogue, cascades, drawer.answers)
    return workload._replace(**chained._asdict(), known=known)


def count_requests(settings: RunSettings, day: date, llms: Collection[str]) -> int:
    """The requests of a day, or those for some llms."""
    if not llms:
        return settings.lake.count("requests", trace=settings.trace, day=day)
    query = (
        "select count(*) as n from requests "
        "where trace = $trace and day = $day::date and list_contains($llms, llm)"
    )
    return int(settings.lake.sql(query, trace=settings.trace, day=day, llms=list(llms))["n"][0].as_py())


def make_workload_reader(
    settings: RunSettings, llms: Collection[str] = (), made_from: str = ""
) -> Callable[[date, str], ReplayWorkload]:
    """The requests of a day, read once for the policies that play it side by side; a few days are kept.

    Also for the next unit that this process plays, where it is `made_from` the same. Policies that have a
    plan of who answers have legs of their own.
    """
    lock = Lock()
    rules = settings.config.rules
    kinds = 1 + sum(rules[name].answers is not None for name in settings.config.replay.policies)

    @lru_cache(CACHED_DAYS)
    def read(day: date) -> ReplayWorkload:
        key = (made_from, day, *llms)
        if key not in WORKLOAD_CACHE:
            found = read_workload(settings, day, llms)
            if not made_from:
                return found
            WORKLOAD_CACHE.clear()
            WORKLOAD_CACHE[key] = found
        return WORKLOAD_CACHE[key]

    @lru_cache(CACHED_DAYS * kinds)
    def legs(day: date, policy: str | None) -> ReplayWorkload:
        own = settings if policy is None else apply_quality_plan(settings, day, policy)
        return expand_request_stages(own, day, read(day))

    def workload(day: date, policy: str) -> ReplayWorkload:
        with lock:
            return legs(day, policy if rules[policy].answers else None)

    return workload


def shift_to_one_clock(workloads: Iterable[ReplayWorkload]) -> Iterator[TraceArrays]:
    """The traces of days on end as one goes through them; blocks of prompts are not shared over midnight."""
    known = 0
    for at, workload in enumerate(workloads):
        trace = workload.trace
        yield trace._replace(arrival_s=trace.arrival_s + at * DAY_S, hashes=trace.hashes + known)
        known += int(trace.hashes.max(initial=-1)) + 1
