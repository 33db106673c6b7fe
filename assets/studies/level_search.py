"""How many levels of priority, how much headroom, do moves pay? An endpoint's busiest hours on every stack.

Each request has a need, the time to the first token that it wants; levels see needs only as classes. What is
asked is the share of each need's requests that are served in time, whatever the levels. Instances are fixed
and serve all the time; nobody is held back. Trials differ in their stack (models/world/stacks.py), the
number of levels, headroom, load and instances; batching, memory, latency and requests are the same for all.

The fewest instances that meet every need are searched for each number of levels; the mart level_value reads
them. Of the trials nothing enters the lake but the table level_trials.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.studies.level_answer import describe_level_trials
from fleetcast.assets.studies.level_endpoint import read_endpoint
from fleetcast.assets.studies.level_trials import LIMIT_STACK, LevelBench, LevelTrialKey
from fleetcast.models.plan.target_search import find_least_sufficient
from fleetcast.models.traffic.request_needs import NEED_STEPS
from fleetcast.models.world.mechanisms import LEVELS_BY
from fleetcast.models.world.option_names import LEVELS_BY_SHARES, LEVELS_BY_TIER
from fleetcast.models.world.stacks import REPLAY_STACKS
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known

NEED_WAYS = tuple(by for by in LEVELS_BY if by != LEVELS_BY_SHARES)
BLIND = ("fcfs", "edf")  # queue orders that do not look at levels
COMPARED = tuple(stack for stack in REPLAY_STACKS if stack not in ("config", LIMIT_STACK))
MOST_TIMES, LEAST_MOST = (
    4,
    16,
)  # the search goes so many times as far as today's instances, or so far


class LevelsQuery(NamedTuple):
    """What is tried."""

    llm: str | None = None  # with its region; else the endpoint that has most to do
    region: str | None = None
    levels: Sequence[int] = (1, 2, 3, 4, 6, 10)
    by: str = "enterprise"  # how needs and levels are dealt; the trace's own tiers are tried beside it
    stacks: Sequence[str] = COMPARED
    loads: Sequence[float] = (1.0,)  # requests for each one of the day
    headrooms: Sequence[float] = ()  # of an instance's memory, for level 0; else as the stack has it
    ends_s: tuple[float, float] | None = None  # the strictest and the loosest need; else those of the tiers
    hours: int = 4  # the busiest on end


def try_levels(settings: RunSettings, day: date, asked: LevelsQuery, progress: Progress) -> pa.Table:
    """Try an endpoint of a day under every stack and number of levels, and write its level_trials.

    Raises
    ------
    ConfigError
        A name that nobody knows, a figure out of range, an llm of several pools.
    LakeError
        The lake does not have the day.
    """
    require_valid_levels(asked)
    endpoint = read_endpoint(settings, day, asked.llm, asked.region, asked.hours)
    bench = LevelBench(endpoint, day, asked.ends_s)
    searches = [
        (by, load, stack)
        for by in dict.fromkeys((asked.by, LEVELS_BY_TIER))
        for load in asked.loads
        for stack in dict.fromkeys((*asked.stacks, LIMIT_STACK))
    ]
    with progress.bar(f"try levels of {endpoint.llm} in {endpoint.region}", len(searches)) as done:
        for number, (by, load, stack) in enumerate(searches, start=1):
            try_stack(bench, by, load, stack, asked)
            done(number)
    table = pa.Table.from_pandas(bench.rows(), SCHEMAS["level_trials"], preserve_index=False)
    file = re.sub(r"[^\w.-]", "_", f"{endpoint.llm}@{endpoint.region}")
    settings.lake.write("level_trials", table, file, trace=settings.trace, day=day)
    return table


def require_valid_levels(asked: LevelsQuery) -> None:
    """ConfigError for what cannot be tried."""
    rules: Sequence[tuple[str, Sequence[float], str, Callable[[float], bool]]] = (
        (
            "--levels",
            asked.levels,
            f"whole numbers from 1 to {NEED_STEPS}",
            lambda n: 1 <= n <= NEED_STEPS and n % 1 == 0,
        ),
        ("--load", asked.loads, "numbers above 0 and up to 100", lambda n: 0 < n <= 100),
        ("--headroom", asked.headrooms, "shares from 0 to 1", lambda n: 0 <= n <= 1),
        ("--hours", [asked.hours], "whole numbers from 1 to 24", lambda n: 1 <= n <= 24 and n % 1 == 0),
    )
    for option, values, needed, holds in rules:
        for value in values:
            if not holds(value):
                raise ConfigError(f"{option}: got {value:g}, needed {needed}.")
    require_known(asked.by, NEED_WAYS, "way to deal levels", "--by")
    for stack in asked.stacks:
        require_known(stack, REPLAY_STACKS, "stack", "--stack")


def try_stack(bench: LevelBench, by: str, load: float, stack: str, asked: LevelsQuery) -> None:
    """Today's instances under each headroom, and the fewest instances, for each number of levels."""
    endpoint, own = bench.endpoint, REPLAY_STACKS[stack].headroom_share
    if own is None:
        own = endpoint.settings.config.replay.levels.headroom_share
    shares = asked.headrooms if own and asked.headrooms else [own]
    guess = math.ceil(max(1.0, load) * endpoint.instances)
    most = max(MOST_TIMES * guess, LEAST_MOST)
    steps = len(bench.request_needs(by).needs.tiers)
    counts = sorted({min(count, steps) for count in (1, *asked.levels)})
    if REPLAY_STACKS[stack].order in BLIND:  # levels change nothing; edf sees each step
        counts = [steps] if stack == LIMIT_STACK else [1]
    for levels in counts:
        for share in shares if levels > 1 else shares[:1]:  # one level has no headroom
            today = LevelTrialKey(stack, levels, share, load, endpoint.instances)
            bench.is_met(by, today)

            def does(instances: int, today: LevelTrialKey = today) -> bool:
                return bench.is_met(by, today._replace(instances=instances))

            found = find_least_sufficient(does, guess, most)
            guess = guess if found is None else found.number


def level_trials_scope(day: date, table: pa.Table) -> dict[str, Any]:
    """Which endpoint rows of level_trials are of, and the way to deal needs that its figures show."""
    first = table.slice(0, 1).to_pylist()[0]
    names = ("llm", "region", "needs_by")
    return {"day": day, **{name: first[name] for name in names}, "load": first["load_factor"]}


LEVEL_VALUES_SQL = """
from level_value
where trace = $trace and day = $day and llm = $llm and region = $region
order by needs_by = 'tier', needs_by, load_factor, stack, headroom_share, levels
"""


def read_level_values(
    settings: RunSettings, day: date, llm: str, region: str
) -> list[list[Mapping[str, Any]]]:
    """The rows of level_value of an endpoint, together those of one way to deal needs and one load."""
    rows = settings.lake.sql(
        LEVEL_VALUES_SQL, trace=settings.trace, day=day, llm=llm, region=region
    ).to_pylist()
    return [list(own) for _, own in groupby(rows, lambda row: (row["needs_by"], row["load_factor"]))]


def describe_endpoint_levels(settings: RunSettings, day: date, llm: str, region: str) -> list[str]:
    """What an endpoint's trials answer, a sentence for each way to deal needs and each load."""
    return [describe_level_trials(rows) for rows in read_level_values(settings, day, llm, region)]
