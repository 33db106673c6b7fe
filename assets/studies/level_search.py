"""Search how many priority levels and how much headroom an endpoint needs, and whether moves pay.

Each request has a need: its TTFT target. Levels order requests by classes of needs. A trial replays the
endpoint's busiest hours on a fixed number of instances, without deferred requests, and meets the needs if the
required share of each need's requests is served in time. Trials differ in stack (models/world/stacks.py),
number of levels, headroom, load and instances; batching, memory, latency and requests are the same for all.

For each number of levels a search finds the fewest instances that meet all needs; the mart level_value shows
them. Only the table level_trials is written to the lake.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.studies.level_answer import describe_level_trials
from fleetcast.assets.studies.level_endpoint import read_endpoint
from fleetcast.assets.studies.level_trials import LIMIT_STACK, LevelBench, LevelTrialKey
from fleetcast.models.traffic.request_needs import NEED_STEPS
from fleetcast.models.trials.target_search import find_least_sufficient
from fleetcast.models.world.mechanisms import LEVELS_BY
from fleetcast.models.world.option_names import LEVELS_BY_SHARES, LEVELS_BY_TIER
from fleetcast.models.world.stacks import REPLAY_STACKS
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known

NEED_WAYS = tuple(by for by in LEVELS_BY if by != LEVELS_BY_SHARES)
BLIND = ("fcfs", "edf")  # queue orders that ignore levels
COMPARED = tuple(stack for stack in REPLAY_STACKS if stack not in ("config", LIMIT_STACK))
MAX_SEARCH_FACTOR, MIN_SEARCH_LIMIT = 4, 16  # up to this multiple of today's instances, at least to this many


class LevelsQuery(NamedTuple):
    """The endpoint to test, and the values to test on it."""

    llm: str | None = None  # None: of the endpoint with most tokens; likewise region
    region: str | None = None
    levels: Sequence[int] = (1, 2, 3, 4, 6, 10)
    by: str = "enterprise"  # source of needs and levels; the trace's own tiers are always tested too
    stacks: Sequence[str] = COMPARED
    loads: Sequence[float] = (1.0,)  # replayed requests per request of the day
    headrooms: Sequence[float] = ()  # shares of memory kept for level 0; (): the stack's own
    ends_s: tuple[float, float] | None = None  # strictest and loosest need; None: those of the tiers
    hours: int = 4  # the busiest consecutive hours


def try_levels(settings: RunSettings, day: date, query: LevelsQuery, progress: Progress) -> pa.Table:
    """Replay an endpoint of a day under each stack and number of levels, and write its level_trials.

    ConfigError for an unknown name, a number out of range, or an llm with several pools; LakeError without
    the day.
    """
    require_valid_levels(query)
    endpoint = read_endpoint(settings, day, query.llm, query.region, query.hours)
    bench = LevelBench(endpoint, day, query.ends_s)
    searches = [
        (by, load, stack)
        for by in dict.fromkeys((query.by, LEVELS_BY_TIER))
        for load in query.loads
        for stack in dict.fromkeys((*query.stacks, LIMIT_STACK))
    ]
    for by, load, stack in progress.each(f"try levels of {endpoint.llm} in {endpoint.region}", searches):
        try_stack(bench, by, load, stack, query)
    table = pa.Table.from_pandas(bench.rows(), SCHEMAS["level_trials"], preserve_index=False)
    file = re.sub(r"[^\w.-]", "_", f"{endpoint.llm}@{endpoint.region}")
    settings.lake.write("level_trials", table, file, trace=settings.trace, day=day)
    return table


def require_valid_levels(query: LevelsQuery) -> None:
    """Raise ConfigError for an unknown name or a number out of range."""
    rules: Sequence[tuple[str, Sequence[float], str, Callable[[float], bool]]] = (
        (
            "--levels",
            query.levels,
            f"whole numbers from 1 to {NEED_STEPS}",
            lambda n: 1 <= n <= NEED_STEPS and n % 1 == 0,
        ),
        ("--load", query.loads, "numbers above 0 and up to 100", lambda n: 0 < n <= 100),
        ("--headroom", query.headrooms, "shares from 0 to 1", lambda n: 0 <= n <= 1),
        ("--hours", [query.hours], "whole numbers from 1 to 24", lambda n: 1 <= n <= 24 and n % 1 == 0),
    )
    for option, values, needed, holds in rules:
        for value in values:
            if not holds(value):
                raise ConfigError(f"{option}: got {value:g}, needed {needed}.")
    require_known(query.by, NEED_WAYS, "source of needs", "--by")
    for stack in query.stacks:
        require_known(stack, REPLAY_STACKS, "stack", "--stack")


def try_stack(bench: LevelBench, by: str, load: float, stack: str, query: LevelsQuery) -> None:
    """Replay today's instances at each headroom, and search the fewest, for each number of levels."""
    endpoint, headroom = bench.endpoint, REPLAY_STACKS[stack].headroom_share
    if headroom is None:
        headroom = endpoint.settings.config.replay.levels.headroom_share
    shares = query.headrooms if headroom and query.headrooms else [headroom]
    guess = math.ceil(max(1.0, load) * endpoint.instances)
    limit = max(MAX_SEARCH_FACTOR * guess, MIN_SEARCH_LIMIT)
    steps = len(bench.request_needs(by).needs.tiers)
    counts = sorted({min(count, steps) for count in (1, *query.levels)})
    if REPLAY_STACKS[stack].order in BLIND:  # these ignore levels; edf orders by each step of the needs
        counts = [steps] if stack == LIMIT_STACK else [1]
    for levels in counts:
        for share in shares if levels > 1 else shares[:1]:  # headroom needs two levels or more
            today = LevelTrialKey(stack, levels, share, load, endpoint.instances)
            bench.is_met(by, today)

            def is_met(instances: int, today: LevelTrialKey = today) -> bool:
                return bench.is_met(by, today._replace(instances=instances))

            found = find_least_sufficient(is_met, guess, limit)
            guess = guess if found is None else found


def level_trials_scope(day: date, table: pa.Table) -> dict[str, Any]:
    """Return the endpoint of rows of level_trials, and the source of needs and load that its figures show."""
    first = table.slice(0, 1).to_pylist()[0]
    names = ("llm", "region", "needs_by")
    return {"day": day, **{name: first[name] for name in names}, "load": first["load_factor"]}


LEVEL_VALUES_SQL = """
from level_value
where trace = $trace and day = $day and llm = coalesce($llm, llm) and region = coalesce($region, region)
order by llm, region, needs_by = 'tier', needs_by, load_factor, stack, headroom_share, levels
"""


def read_level_values(
    settings: RunSettings, day: date, llm: str | None = None, region: str | None = None
) -> list[list[Mapping[str, Any]]]:
    """Return the rows of level_value of an endpoint, or of all: a group for each source of needs and load."""
    rows = settings.lake.sql(
        LEVEL_VALUES_SQL, trace=settings.trace, day=day, llm=llm, region=region
    ).to_pylist()
    way = itemgetter("llm", "region", "needs_by", "load_factor")
    return [list(group) for _, group in groupby(rows, way)]


def describe_endpoint_levels(
    settings: RunSettings, day: date, llm: str | None = None, region: str | None = None
) -> list[str]:
    """Return a sentence about the trials of an endpoint, or of each, by source of needs and load."""
    return [describe_level_trials(rows) for rows in read_level_values(settings, day, llm, region)]
