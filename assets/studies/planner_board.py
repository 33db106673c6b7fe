"""Compare planners on one leaderboard: each plans a day and is replayed, until all attain the same.

Costs compare only at equal attainment. The larger the capacity share of a plan, the less a day costs and the
more requests miss. So it is with the thresholds of a rule without a plan (models/world/knobs.py). For each
planner a search finds the knob at which every tier attains its target, on the same requests, GPUs and prices.
If no planner attains all targets, the required fraction of each target is the best value of the weakest
planner. The quality that [quality] requires must be kept as well. The mart planner_board compares the
planners there; idea_worth shows what each idea of fleetcast's planner saves. Resamples of the day's requests,
each searched likewise, show how much of a difference is chance.
"""

from collections.abc import Sequence
from datetime import date, timedelta

import pyarrow as pa

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.studies.experiment import scratch_lake, write_trials
from fleetcast.assets.studies.planner_search import PlannerSearch
from fleetcast.models.world.config import CustomPolicy
from fleetcast.models.world.planners import BOARD_PLANNERS, ablation_steps, candidate_ideas, own_candidates
from fleetcast.models.world.policies import PolicySpec
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known

FLEETCAST_PLANNER = "fleetcast"
MAX_DRAWS = 100
BOARD_ORDER = "total_usd nulls last, planner"
BOARD_QUERY = f"from planner_board where trace = $trace and day = $day order by {BOARD_ORDER}"


def try_planners(
    settings: RunSettings, day: date, names: Sequence[str], ideas: bool, progress: Progress, draws: int = 0
) -> pa.Table:
    """Search the knob of each planner (default: all) and return its rows of planner_trials.

    The planner `fleetcast` is what cost least on the day before, of `own_candidates`. `ideas` adds the
    policies that use some of the ideas. `draws`: resamples of the day's requests, on which the planners that
    attain the targets are searched again, without the policies of `ideas`.

    LakeError without plans of the day, ConfigError for an unknown planner or one without a knob, ValueError
    for fewer draws than 0 or more than MAX_DRAWS.
    """
    if not 0 <= draws <= MAX_DRAWS:
        raise ValueError(f"{draws} draws of a day's requests: take 0 to {MAX_DRAWS}; each takes minutes.")
    settings.require_day("plans", day)
    for name in names:
        require_known(name, settings.config.rules, "planner", "fleetcast board")
        if settings.config.rules[name].plan == "standing":
            raise ConfigError(
                f"{name}: it holds the instances of its plan of model routing all day, so it has no knob to "
                "search. Leave it out. boute_hourly and cascadia_hourly plan by the hour."
            )
    planners = list(names or BOARD_PLANNERS)
    if FLEETCAST_PLANNER in planners:
        settings = with_own_planner(settings, best_candidate_before(settings, day, progress))
    groups = group_equal_policies(settings, planners + (list(ablation_steps()) if ideas else []))
    search = PlannerSearch.search_day(settings, day, list(groups), progress)
    rows = [table for name, twins in groups.items() for twin in twins for table in search.rows(name, twin)]
    first = {
        name: share
        for name, twins in groups.items()
        if {*twins} & {*planners} and (share := search.highest_attaining_knob(name)) is not None
    }
    chosen = [(name, twin) for name in first for twin in groups[name] if twin in planners]
    for draw in range(1, draws + 1 if first else 1):
        progress.say(f"resample {draw} of {draws} of the requests of {day}")
        resample = search.search_resample(settings, first, draw)
        rows += [table for name, twin in chosen for table in resample.rows(name, twin)]
    write_trials(settings, "board", day, pa.concat_tables(rows))
    return settings.day_rows("planner_trials", day)


def best_candidate_before(settings: RunSettings, day: date, progress: Progress) -> str:
    """Return the candidate that cost least on the day before, at equal attainment.

    The corrected plan with all ideas if that day has no history, or no candidate attained the targets.
    """
    before, last = day - timedelta(days=1), list(candidate_ideas())[-1]
    if not settings.history(before):
        return last
    groups = group_equal_policies(settings, candidates_of_fleet(settings))
    progress.say(f"choose fleetcast's planner by {before}")
    search = PlannerSearch.search_day(settings, before, list(groups), progress)
    with scratch_lake(settings) as scratch:
        rows = [table for name in groups for table in search.rows(name, name)]
        write_trials(scratch, "board", before, pa.concat_tables(rows))
        costs = {row["planner"]: row["total_usd"] for row in read_planner_board(scratch, before).to_pylist()}
    attained = [name for name in groups if costs.get(name) is not None]
    best = min(attained, key=costs.__getitem__, default=last)
    progress.say(f"fleetcast's planner is {best}: {settings.config.rules[best].what}")
    return best


def candidates_of_fleet(settings: RunSettings) -> list[str]:
    """Return fleetcast's candidates for a fleet; compact is none where instances only decode, unpaired."""
    has_decode = any(role == "decode" for _, role in settings.grid.services)
    rules = settings.config.rules
    return [name for name in own_candidates() if not (has_decode and rules[name].plan == "compact")]


def with_own_planner(settings: RunSettings, candidate: str) -> RunSettings:
    """Return the settings with this candidate as the planner `fleetcast`."""
    policies = {**settings.config.policies, FLEETCAST_PLANNER: CustomPolicy(candidate)}
    return settings.with_config(policies=policies)


def group_equal_policies(settings: RunSettings, names: Sequence[str]) -> dict[str, list[str]]:
    """Group planners that are equal under this config, by the first of each group: it alone is replayed."""
    groups: dict[PolicySpec, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(settings.config.rules[name]._replace(what="", colour=""), []).append(name)
    return {group[0]: group for group in groups.values()}


def read_planner_board(settings: RunSettings, day: date) -> pa.Table:
    """Return the cost of each planner at equal attainment, the cheapest first."""
    return settings.day_rows("planner_board", day, BOARD_ORDER)


def read_idea_worth(settings: RunSettings, day: date) -> pa.Table:
    """Return the saving of each idea, added in order and in reverse order."""
    return settings.day_rows("idea_worth", day, "way, ideas_so_far")
