"""The plan of a day to come, as it can be made when the day begins, or a day before: nothing of it is there.

The policy `day_ahead` of the scoreboard follows the same forecast and programme on days that have been, from
the fleet that all policies start with. Here the plan starts from what the plan of the day before leaves.
"""

from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa

from fleetcast.assets.demand.demand_history import (
    claim_trace_name,
    is_generated_trace,
    make_demand,
    missing_days,
    require_day_demand,
    require_history,
)
from fleetcast.assets.forecasts.forecasts import forecast_day_ahead
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.settings import HOURS_OF_DAY, Progress, RunSettings, midnight
from fleetcast.assets.plans.plan_loads import day_ahead_load
from fleetcast.assets.plans.plan_tables import plan_table
from fleetcast.assets.plans.plans import checked_solver, measure_capacities, plan_open_loop
from fleetcast.assets.plans.problems import hour_problems, problem_template
from fleetcast.models.aliases import Ints
from fleetcast.models.plan.day_plans import spot_that_fits
from fleetcast.models.plan.problem import Problem

DAY_AHEAD_POLICY = "day_ahead"


def next_plan_day(settings: RunSettings) -> date:
    """The day after the last one that has landed, or of a made trace has demand; LakeError where none has."""
    days = settings.lake.days("demand" if is_generated_trace(settings) else "requests", settings.trace)
    if not days:
        raise LakeError(
            f"The trace {settings.trace!r} has no day to forecast from. {_next_command(settings)}"
        )
    return days[-1] + timedelta(days=1)


def _next_command(settings: RunSettings) -> str:
    """What to run where the configured trace has no day: name a trace that has landed, or make or land it."""
    landed = {path.parent.name.removeprefix("trace=") for path in settings.lake.files("ingests")}
    if landed - {settings.trace}:
        return (
            f"Landed is {', '.join(sorted(landed))}: write it as [trace] name into a config and run "
            "fleetcast plan ahead --config FILE."
        )
    make = (
        "fleetcast nightly" if is_generated_trace(settings) else "fleetcast ingest, its file in data/landing"
    )
    return f"Run {make}, then fleetcast plan ahead again."


def plan_ahead(settings: RunSettings, day: date, progress: Progress) -> pa.Table:
    """Forecast and plan the hours of `day` from what is known when it begins; write day_ahead_plans.

    Where the day before is to come as well, what is known when that one begins has to do. Of a landed trace
    the demand of the days before is built where it is missing: it may have landed just now.

    ValueError for a day that the nightly job has planned, LakeError without demand of the two days before.
    """
    claim_trace_name(settings)
    if day in settings.lake.days("plans", settings.trace):
        raise ValueError(
            f"{day} has been planned for every policy already. "
            f"See it: fleetcast plan show --policy {DAY_AHEAD_POLICY} --date {day}."
        )
    begins = forecast_plan_day(settings, day, progress)
    sustained = measure_capacities(settings, day, progress)
    template = problem_template(settings.grid, settings.config, sustained, DAY_AHEAD_POLICY)
    hours = hour_problems(template, day_ahead_load(settings, day, begins))
    start, spot = fleet_before(settings, midnight(day), template)
    with progress.bar(f"plan {day}", HOURS_OF_DAY) as done:
        planned = plan_open_loop(hours, start, spot, checked_solver(settings, DAY_AHEAD_POLICY, done))
    table = plan_table(day, {DAY_AHEAD_POLICY: planned})
    settings.lake.write("day_ahead_plans", table, trace=settings.trace, day=day)
    return table


def forecast_plan_day(settings: RunSettings, day: date, progress: Progress) -> date:
    """Forecast the hours of `day` from what is known when it begins; the day at whose midnight that is.

    Of a landed trace the demand of the days before is built where it is missing. LakeError without history.
    """
    require_history(settings, day)
    if not is_generated_trace(settings) and (missing := missing_days(settings, day)):
        for _ in make_demand(settings, missing, progress):
            pass
    begins = forecast_origin_day(settings, day)
    forecast_day_ahead(settings, day, progress, begins)
    return begins


def forecast_origin_day(settings: RunSettings, day: date) -> date:
    """The day at whose midnight `day` is foreseen: itself, or the one before where that is to come as well.

    LakeError where even that is not known: how good a forecast is has been judged up to two days ahead.
    """
    try:
        require_day_demand(settings, day - timedelta(days=1))
    except LakeError:
        require_day_demand(settings, day - timedelta(days=2))
        require_history(settings, day - timedelta(days=1))
        return day - timedelta(days=1)
    return day


def fleet_before(
    settings: RunSettings, moment: datetime, template: Problem, policy: str = DAY_AHEAD_POLICY
) -> tuple[Ints, Ints]:
    """What serves and what is donated at an instant, each of shape (services, regions, options).

    What the policy's plan of the hour up to it holds, the rest of the fleet donated; without such a plan the
    whole fleet serves.
    """
    last_hour = settings.lake.sql(
        "select *, 0 as hour from all_plans where trace = $trace and policy = $policy "
        "and hour_start < $moment and hour_start >= $moment - interval 1 hour",
        trace=settings.trace,
        policy=policy,
        moment=moment,
    ).to_pandas()
    whole = template.instances_now
    if last_hour.empty:
        return whole, np.zeros_like(whole)
    held = settings.grid.hourly_cells(last_hour, "instances")[0].astype(np.int64)
    return held, spot_that_fits(template, held, np.maximum(whole - held, 0))
