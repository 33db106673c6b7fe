"""Read a day's requests for a replay: the kernel's arrays, with priority levels, prompts and stages."""

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
from fleetcast.models.traffic.answer_blocks import RequestBlocks, append_answer_blocks
from fleetcast.models.traffic.priority_levels import (
    LevelCodes,
    assign_levels_by_app,
    assign_levels_by_tier,
    draw_levels,
)
from fleetcast.models.world.calendar import DAY_S
from fleetcast.models.world.fleet_config import FleetConfig
from fleetcast.models.world.option_names import LEVELS_BY_APP, LEVELS_BY_TIER
from fleetcast.models.world.toml_dataclasses import ConfigError

OUTCOME_REQUEST_COLUMNS = (
    "request_id", "region", "llm", "tier", "app", "arrived_at", "input_tokens", "output_tokens", "deadline_s",
)  # fmt: skip
PROMPT_COLUMNS = {
    "given": ["cached_tokens"],
    "blocks": ["prefix_hashes", "session_id"],
}  # by [fleet] prefix, the column of the prompts that it needs, and what it also reads


CACHED_DAYS = 3  # days of requests in memory during the replay of several days
NO_ANSWERERS, NO_SHADOWS = np.zeros(0, np.int64), np.zeros(0, np.bool_)


class ReplayWorkload(NamedTuple):
    """A day of requests: their table and the arrays that the kernel reads."""

    requests: pa.Table  # OUTCOME_REQUEST_COLUMNS, and columns of prompts and queries
    trace: TraceArrays  # a row per request, or per stage (`expand_request_stages`)
    answerer: Ints = NO_ANSWERERS  # (rows,) llm whose answer a row makes or judges; empty: the row's own llm
    is_shadow: Bools = NO_SHADOWS  # (rows,) a shadow, which no user waits for; empty: there is none
    known: KnownAnswers | None = None  # known answers to these requests


# The workload of the unit that this process replayed last.
WORKLOAD_CACHE: dict[tuple[Any, ...], ReplayWorkload] = {}


def read_workload(
    settings: RunSettings, day: date, llms: Collection[str] = (), hours: tuple[int, int] = (0, HOURS_OF_DAY)
) -> ReplayWorkload:
    """Read a day's requests as the kernel's arrays; codes are positions in the catalogue.

    `llms` limits the requests to some llms (empty: all), `hours` to hours from the first to before the other.
    """
    of_day = {"trace": settings.trace, "day": day}
    begin, end = (midnight(day) + timedelta(hours=hour) for hour in hours)
    prefix = settings.config.fleet.prefix
    more = PROMPT_COLUMNS.get(prefix, [])
    columns = [*OUTCOME_REQUEST_COLUMNS, *more, *(["query_id"] if settings.config.quality else [])]
    table = settings.lake.sql(
        f"select {', '.join(columns)} from requests where trace = $trace and day = $day::date "
        "and arrived_at >= $begin and arrived_at < $end and ($llms is null or list_contains($llms, llm))",
        **of_day, begin=begin, end=end, llms=list(llms) or None,
    )  # fmt: skip
    if len(settings.lake.files("requests", **of_day)) > 1:  # each source is in order, all together are not
        table = table.sort_by([("arrived_at", "ascending"), ("request_id", "ascending")])
    trace = build_trace_arrays(settings, day, table)
    return ReplayWorkload(table, trace._replace(level=request_levels(settings, day, table, trace.tier)))


def build_trace_arrays(settings: RunSettings, day: date, requests: pa.Table) -> TraceArrays:
    """Return requests as the kernel's arrays (requests,), arrivals in s since midnight, all of one level.

    ConfigError where the fleet's prefix needs a column that no request has.
    """
    catalogue, fleet = settings.catalogue, settings.config.fleet
    since = pc.subtract(requests["arrived_at"], pa.scalar(midnight(day), pa.timestamp("us", "UTC")))
    setting = f"{settings.config.file.name} [fleet] prefix"
    return TraceArrays(
        arrival_s=since.cast(pa.int64()).to_numpy() / 1e6,
        region=column_codes(requests, "region", catalogue.regions),
        llm=column_codes(requests, "llm", catalogue.llms),
        tier=column_codes(requests, "tier", catalogue.tiers),
        input_tokens=requests["input_tokens"].to_numpy(),
        output_tokens=requests["output_tokens"].to_numpy(),
        **prompt_arrays(requests, fleet, setting, settings.trace),
    )


def request_levels(settings: RunSettings, day: date, table: pa.Table, tier: LevelCodes) -> LevelCodes:
    """Return each request's priority level, (requests,), by [replay.levels]; `tier` has (requests,) codes."""
    levels = settings.config.replay.levels
    need_s = np.array([known.allowance_s for known in settings.catalogue.tiers.values()])
    if levels.by == LEVELS_BY_TIER:
        return assign_levels_by_tier(tier, need_s, levels.count)
    if levels.by == LEVELS_BY_APP and levels.count > 1:
        return assign_levels_by_app(app_codes(table, settings.trace), need_s[tier], levels.count)
    seed = settings.config.trace.seed + day.toordinal()
    return draw_levels(tier.size, levels.by, levels.count, seed, levels.shares)


def app_codes(table: pa.Table, trace: str) -> Ints:
    """Return a code for each request's app, (requests,), 0 to apps - 1; ConfigError for fewer than two."""
    apps = table["app"].combine_chunks().dictionary_encode()
    if len(apps.dictionary) < 2:
        names = ", ".join(map(repr, apps.dictionary.to_pylist())) or "none"
        raise ConfigError(
            f'Levels by "{LEVELS_BY_APP}": all requests of {trace} have one app ({names}), so one level. '
            "Set by to another value, or map the apps in the trace's mapping file (data/landing/README.md)."
        )
    return apps.indices.to_numpy().astype(np.int64)


def prompt_arrays(table: pa.Table, fleet: FleetConfig, setting: str, trace: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of TraceArrays on prompts that the fleet's prefix needs.

    With "given": cached_tokens, (requests,) tokens. With "blocks": hashes, (blocks,) codes of the blocks of
    prompts and answers, and first_hash, (requests + 1,) the first block of each request. ConfigError where no
    request has the column.
    """
    prefix = fleet.prefix
    if prefix not in PROMPT_COLUMNS:
        return {}
    column = PROMPT_COLUMNS[prefix][0]
    if len(table) and table[column].null_count == len(table):
        raise ConfigError(
            f'{setting} = "{prefix}" needs {column}, which no request of {trace} has. Set it to none, '
            "or use a trace that has them."
        )
    if prefix == "given":
        cached = pc.min_element_wise(pc.fill_null(table[column], 0), table["input_tokens"])
        return {"cached_tokens": cached.to_numpy().astype(np.int32)}
    hashes = table[column].combine_chunks()
    counts = pc.fill_null(pc.list_value_length(hashes), 0).to_numpy()
    codes, _ = pd.factorize(pc.list_flatten(hashes).to_numpy())  # half the time of Arrow's dictionary
    prompts = RequestBlocks(np.concatenate([[0], np.cumsum(counts)]), codes.astype(np.int64))
    session, _ = pd.factorize(table["session_id"].to_pandas())  # -1 where it is null
    prompt, answer = table["input_tokens"].to_numpy(), table["output_tokens"].to_numpy()
    return append_answer_blocks(prompts, session, prompt, answer, fleet.prefix_block_tokens)._asdict()


def has_legs(settings: RunSettings, policy: str) -> bool:
    """Return whether, under the policy, requests can have several stages or known answers."""
    config = settings.config
    return bool(config.replay.cascades or config.quality) or config.rules[policy].answers is not None


def expand_request_stages(settings: RunSettings, day: date, workload: ReplayWorkload) -> ReplayWorkload:
    """Return the workload with a row for each stage of requests for a cascade, and with known answers."""
    known = find_known_answers(settings, day, workload.requests)
    cascades, trace = settings.config.replay.cascades, workload.trace
    if not cascades:
        return workload._replace(known=known)
    sampler = AnswerSampler(settings, day, known, trace.input_tokens, trace.output_tokens)
    stages = expand_cascades(trace, settings.catalogue, cascades, sampler.answers)
    return workload._replace(**stages._asdict(), known=known)


def count_requests(settings: RunSettings, day: date, llms: Collection[str]) -> int:
    """Return the number of requests of a day, of all llms or of `llms`."""
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
    """Return a function that reads the workload of a day and policy, with a cache of a few days.

    Policies replayed in parallel share it, and so does the next unit in this process if its `made_from` is
    the same. Policies with a quality plan have their own stages.
    """
    lock = Lock()
    rules = settings.config.rules
    kinds = 1 + sum(rules[name].answers is not None for name in settings.config.replay.policies)

    @lru_cache(CACHED_DAYS)
    def read(day: date) -> ReplayWorkload:
        key = (made_from, day, *llms)
        if key not in WORKLOAD_CACHE:
            workload = read_workload(settings, day, llms)
            if not made_from:
                return workload
            WORKLOAD_CACHE.clear()
            WORKLOAD_CACHE[key] = workload
        return WORKLOAD_CACHE[key]

    @lru_cache(CACHED_DAYS * kinds)
    def read_stages(day: date, policy: str | None) -> ReplayWorkload:
        routed = settings if policy is None else apply_quality_plan(settings, day, policy)
        return expand_request_stages(routed, day, read(day))

    def read_for_policy(day: date, policy: str) -> ReplayWorkload:
        with lock:
            return read_stages(day, policy if rules[policy].answers else None)

    return read_for_policy


def shift_to_one_clock(workloads: Iterable[ReplayWorkload]) -> Iterator[TraceArrays]:
    """Yield the traces of consecutive days on one clock; prompt blocks are not shared over midnight."""
    first_code = 0
    for at, workload in enumerate(workloads):
        trace = workload.trace
        yield trace._replace(arrival_s=trace.arrival_s + at * DAY_S, hashes=trace.hashes + first_code)
        first_code += int(trace.hashes.max(initial=-1)) + 1
