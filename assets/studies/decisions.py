"""Measure what a forecast is worth: each method feeds the same planner, and each plan is replayed.

The error of a forecast does not show its cost: too low a forecast misses SLOs, too high a forecast wastes
GPUs. So each method plans the day with the corrected planner at several capacity shares, and each plan is
replayed. The larger the share of an instance's capacity that the plan uses, the less it costs and the more
requests miss. A search finds the share at which the day just attains the SLO target; the mart
decision_leaderboard compares the methods there.
"""

from collections.abc import Callable
from datetime import date

import numpy as np
import pyarrow as pa

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans import measured_capacity
from fleetcast.assets.plans.plan_loads import PlanLoad, day_loads, read_forecast_windows
from fleetcast.assets.plans.plans import checked_solver, plan_open_loop
from fleetcast.assets.plans.problems import hour_problems, problem_template, with_size_shares
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
from fleetcast.models.trials.target_search import TargetTrial

DECISION_LEADERBOARD_SQL = "queries/which_forecast_pays.sql"
TRUTH = "truth"  # the clairvoyant forecast: the day's actual demand


def try_forecasts(settings: RunSettings, day: date, progress: Progress) -> pa.Table:
    """Plan and replay a planned day by each forecast method, and write and return the trials.

    LakeError without forecasts or plans of the day, ValueError without an interactive request on it.
    """
    for table in ("forecasts", "plans"):
        settings.require_day(table, day)
    tier = compared_tier(settings, day)
    target = settings.catalogue.tiers[tier].attainment_target_share
    plan_trial = make_trial_planner(settings, day, tier, progress)
    workload, tables = read_workload(settings, day), list[pa.Table]()
    search = KnobSearch((*settings.config.forecast.methods, TRUTH), target)
    while shares := search.points(search.knob_trials):
        trials = (plan_trial(method, share) for method, share in shares.items())
        replayed = replay_trials(trials, len(shares), workload, "plan and replay", progress)
        for (method, share), rows in zip(shares.items(), replayed, strict=True):
            search.knob_trials[method].append(knob_trial_point(rows, share, tier))
            tables.append(rows)
    write_trials(settings, "decide", day, pa.concat_tables(tables))
    return settings.day_rows("decisions", day)


def knob_trial_point(rows: pa.Table, share: float, tier: str) -> TargetTrial:
    """Return a trial as a point of the search: its share, GPU-hours, and the attainment of the tier."""
    values = {
        (row["metric"], row["tier"]): row["value"] for row in rows.to_pylist() if row["llm"] == ALL_GROUPS
    }
    return TargetTrial(share, values["gpu_hours", ALL_GROUPS], values["attainment_share", tier])


def compared_tier(settings: RunSettings, day: date) -> str:
    """Return the day's strictest tier, at whose attainment methods are compared; ValueError if none."""
    query = "select distinct tier from demand where trace = $trace and day = $day"
    tiers = settings.lake.sql(query, trace=settings.trace, day=day)["tier"].to_pylist()
    tier = settings.catalogue.strictest_tier(tiers)
    if tier is None:
        raise ValueError(
            f"{settings.trace} has no interactive request on {day}, so no SLO to compare forecasts by."
        )
    return tier


def make_trial_planner(
    settings: RunSettings, day: date, tier: str, progress: Progress
) -> Callable[[str, float], ReplayTrial]:
    """Return a function that plans the day by a method at a capacity share, from the day's first fleet."""
    loads = day_loads(settings, day)
    capacities = measured_capacity.measure_capacities(settings, day, progress)
    planned = problem_template(settings.grid, settings.config, capacities, "corrected")
    planned = with_size_shares(planned, settings, day, "corrected")
    measured_tokens_per_s = planned.tokens_per_s / settings.config.plan.corrected_capacity_share
    rows = read_day_plans(settings, day)
    start = settings.grid.hourly_cells(rows[rows["policy"] == "lt_i"], "instances")[0].astype(np.int64)

    def trial(method: str, share: float) -> ReplayTrial:
        load = loads["truth"]
        if method != TRUTH:
            load = PlanLoad(read_forecast_windows(settings, day, method)[1], loads["corrected"].buffer)
        template = planned._replace(tokens_per_s=measured_tokens_per_s * share)
        spot = np.maximum(template.instances_now - start, 0)
        hours = plan_open_loop(
            hour_problems(template, load), start, spot, checked_solver(settings, "corrected")
        )
        variant = Variant(
            method, settings, day, FOLLOW_POLICY, {"capacity_share": share}, {"tier": tier}, purpose=TUNED
        )
        found = build_plan_trial(variant, hours, settings.grid.by_pool(start))
        target = settings.catalogue.tiers[tier].attainment_target_share
        return found._replace(figures={**found.figures, "matched_share": target})

    return trial
