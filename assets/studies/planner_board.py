"""Planners on one board: each plans a day and is replayed, until all attain the same.

What a planner saves says little while it misses more. The more of an instance's capacity its plan counts on,
the less a day costs and the more it misses: how much makes every tier attain its target is searched, planner
by planner, on the same requests, GPUs and prices. On a day on which nobody can, all are searched to the share
of every target that the least able of them attains at best. The quality that [quality] asks must be kept as
well. The mart planner_board compares them there; idea_worth tells what each idea on the way to ours was
worth. How much of a difference is the day's luck, other draws of its requests tell, each searched likewise.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta

import pyarrow as pa

from fleetcast.assets.lake.lake_preconditions import require_day
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.studies.experiment import scratch_lake, write_trials
from fleetcast.assets.studies.planner_search import WHERE, PlannerSearch
from fleetcast.models.world.config import CustomPolicy
from fleetcast.models.world.planners import BOARD_PLANNERS, ablation_steps, candidate_ideas
from fleetcast.models.world.policies import PolicySpec
from fleetcast.models.world.toml_dataclasses import require_known

FLEETCAST_PLANNER = "fleetcast"
MOST_DRAWS = 100
BOARD_QUERY = f"select * from planner_board {WHERE} order by total_usd nulls last, planner"


def try_planners(
    settings: RunSettings, day: date, names: Sequence[str], ideas: bool, progress: Progress, draws: int = 0
) -> pa.Table:
    """Search where each of these planners, else all, attains what is asked; its planner_trials.

    Ours has those of the ideas that paid on the day before. With `ideas` also the policies between none of
    them and all; and those of the planners that attain it, not those between, on so many other draws of the
    day's requests.

    Raises
    ------
    LakeError
        The day was not planned.
    ConfigError
        There is no planner of that name.
    ValueError
        More draws than MOST_DRAWS, or fewer than none.
    """
    if not 0 <= draws <= MOST_DRAWS:
        raise ValueError(f"{draws} draws of a day's requests: take 0 to {MOST_DRAWS}; each takes minutes.")
    require_day(settings.lake, "plans", settings.trace, day)
    for name in names:
        require_known(name, settings.config.rules, "planner", "fleetcast board")
    asked = list(names or BOARD_PLANNERS)
    if FLEETCAST_PLANNER in asked:
        settings = with_own_planner(settings, best_candidate_before(settings, day, progress))
    alike = group_equal_policies(settings, asked + (list(ablation_steps()) if ideas else []))
    searched = PlannerSearch.search_day(settings, day, list(alike), progress)
    rows = [table for name, twins in alike.items() for twin in twins for table in searched.rows(name, twin)]
    first = {
        name: share
        for name, twins in alike.items()
        if {*twins} & {*asked} and (share := searched.highest_attaining_knob(name)) is not None
    }
    for draw in range(1, draws + 1 if first else 1):
        progress.say(f"draw {draw} of {draws} of the requests of {day}")
        again = searched.search_resample(settings, first, draw)
        chosen = [(name, twin) for name in first for twin in alike[name] if twin in asked]
        rows += [table for name, twin in chosen for table in again.rows(name, twin)]
    write_trials(settings, "board", day, pa.concat_tables(rows))
    return settings.lake.sql(f"select * from planner_trials {WHERE}", trace=settings.trace, day=day)


def best_candidate_before(settings: RunSettings, day: date, progress: Progress) -> str:
    """The candidate that cost least on the day before, where all of them attained what was asked.

    The corrected plan with all ideas where that day has no history, or none attained it.
    """
    before, last = day - timedelta(days=1), list(candidate_ideas())[-1]
    if not settings.history(before):
        return last
    alike = group_equal_policies(settings, list(candidate_ideas()))
    progress.say(f"what of ours pays, by {before}")
    searched = PlannerSearch.search_day(settings, before, list(alike), progress)
    with scratch_lake(settings) as own:
        rows = [table for name in alike for table in searched.rows(name, name)]
        write_trials(own, "board", before, pa.concat_tables(rows))
        costs = {row["planner"]: row["total_usd"] for row in read_planner_board(own, before).to_pylist()}
    attained = [name for name in alike if costs.get(name) is not None]
    return min(attained, key=costs.__getitem__, default=last)


def with_own_planner(settings: RunSettings, candidate: str) -> RunSettings:
    """The settings whose planner `fleetcast` is one of the candidates."""
    policies = {**settings.config.policies, FLEETCAST_PLANNER: CustomPolicy(candidate)}
    return replace(settings, config=replace(settings.config, policies=policies))


def group_equal_policies(settings: RunSettings, names: Sequence[str]) -> dict[str, list[str]]:
    """Planners that come to the same on this config, by the first of them: they are replayed once."""
    found: dict[PolicySpec, list[str]] = {}
    for name in dict.fromkeys(names):
        found.setdefault(settings.config.rules[name]._replace(what="", colour=""), []).append(name)
    return {alike[0]: alike for alike in found.values()}


def read_planner_board(settings: RunSettings, day: date) -> pa.Table:
    """What each planner costs where all attain the same, the cheapest first."""
    return settings.lake.sql(BOARD_QUERY, trace=settings.trace, day=day)


def read_idea_worth(settings: RunSettings, day: date) -> pa.Table:
    """What each idea is worth, added in our order and in the reverse one."""
    query = f"select * from idea_worth {WHERE} order by way, place"
    return settings.lake.sql(query, trace=settings.trace, day=day)
