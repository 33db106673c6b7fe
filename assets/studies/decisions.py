"""What a forecast is worth: each method drives the same plan and the same replay.

How good a forecast looks says little about what it costs: an hour forecast too low misses SLOs, one too high
wastes GPUs. So every method plans the day by the corrected programme and is replayed, several times: the more
of an instance's capacity the plan counts on, the less it costs and the more it misses. How much makes the day
attain exactly the SLO's target is searched; the mart decision_leaderboard compares the methods there.
"""

from collections.abc import Callable, Mapping
from datetime import date

import numpy as np
import pyarrow as pa

from fleetcast.assets.lake.lake_preconditions import require_day
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans.plan_loads import PlanLoad, day_loads, read_forecast_windows
from fleetcast.assets.plans.plans import checked_solver, measure_capacities, plan_open_loop
from fleetcast.assets.plans.problems import hour_problems, problem_template
from fleetcast.assets.replays.policy_inputs import read_day_plans
from fleetcast.assets.replays.replay_workloads import read_workload
from fleetcast.assets.studies.experiment import (
    ALL_GROUPS,
    TUNED,
    KnobSearch,
    ReplayTrial,
    Variant,
    replay_trials,
    write_trials,
)
from fleetcast.assets.studies.planned_trials import FOLLOW_POLICY, build_plan_trial
from fleetcast.models.plan.target_search import TargetTrial

DECISION_LEADERBOARD_SQL = "queries/which_forecast_pays.sql"
TRUTH = "truth"  # the clairvoyant forecast: what came


def try_forecasts(settings: RunSettings, day: date, progress: Progress) -> pa.Table:
    """Plan and replay a day that has been planned by every forecast method, and write the curves.

    Raises
    ------
    LakeError
        The day has no forecasts or no plans.
    ValueError
        The day has no interactive request, so there is no SLO to attain.
    """
    for table in ("forecasts", "plans"):
        require_day(settings.lake, table, settings.trace, day)
    tier = compared_tier(settings, day)
    target = settings.catalogue.tiers[tier].attainment_target_share
    trial = make_trial_planner(settings, day, tier, progress)
    workload, tables = read_workload(settings, day), list[pa.Table]()

    def play(asked: Mapping[str, float]) -> list[TargetTrial]:
        trials = (trial(method, share) for method, share in asked.items())
        found = list(replay_trials(trials, len(asked), workload, "plan and replay", progress))
        tables.extend(found)
        return [
            knob_trial_point(rows, share, tier) for rows, share in zip(found, asked.values(), strict=True)
        ]

    search = KnobSearch((*settings.config.forecast.methods, TRUTH), target)
    search.run(list(search.knob_trials), play)
    write_trials(settings, "decide", day, pa.concat_tables(tables))
    query = "select * from decisions where trace = $trace and day = $day"
    return settings.lake.sql(query, trace=settings.trace, day=day)


def knob_trial_point(rows: pa.Table, share: float, tier: str) -> TargetTrial:
    """What a trial says of its knob: GPU-hours, and the attainment of the tier."""
    told = {
        (row["metric"], row["tier"]): row["value"] for row in rows.to_pylist() if row["llm"] == ALL_GROUPS
    }
    return TargetTrial(share, told["gpu_hours", ALL_GROUPS], told["attainment_share", tier])


def compared_tier(settings: RunSettings, day: date) -> str:
    """The day's tier with the strictest SLO, whose attainment all methods must share."""
    query = "select distinct tier from demand where trace = $trace and day = $day"
    there = settings.lake.sql(query, trace=settings.trace, day=day)["tier"].to_pylist()
    tier = settings.catalogue.strictest_tier(there)
    if tier is None:
        raise ValueError(
            f"{settings.trace} has no interactive request on {day}: no SLO to compare forecasts by."
        )
    return tier


def read_decision_board(settings: RunSettings, day: date) -> pa.Table:
    """What each method costs where all attain the same, the cheapest first."""
    return settings.lake.sql(DECISION_LEADERBOARD_SQL, trace=settings.trace, day=day)


def make_trial_planner(
    settings: RunSettings, day: date, tier: str, progress: Progress
) -> Callable[[str, float], ReplayTrial]:
    """The day's plan by a method that counts on a share of capacity, from the start of the other policies."""
    loads, theta = day_loads(settings, day), np.array(measure_capacities(settings, day, progress))
    rows = read_day_plans(settings, day)
    start = settings.grid.hourly_cells(rows[rows["policy"] == "lt_i"], "instances")[0].astype(np.int64)
    theta /= settings.config.plan.corrected_capacity_share  # which the template counts on

    def trial(method: str, share: float) -> ReplayTrial:
        load = loads["truth"]
        if method != TRUTH:
            load = PlanLoad(read_forecast_windows(settings, day, method)[1], loads["corrected"].buffer)
        template = problem_template(settings.grid, settings.config, (theta * share).tolist(), "corrected")
        spot = np.maximum(template.instances_now - start, 0)
        hours = plan_open_loop(
            hour_problems(template, load), start, spot, checked_solver(settings, "corrected")
        )
        variant = Variant(
            method, settings, day, FOLLOW_POLICY, {"capacity_share": share}, {"tier": tier}, purpose=TUNED
        )
        made = build_plan_trial(variant, hours, settings.grid.by_pool(start))
        target = settings.catalogue.tiers[tier].attainment_target_share
        return made._replace(figures={**made.figures, "matched_share": target})

    return trial
