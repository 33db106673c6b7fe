"""Plan a future day from the data that is there when the day begins, or a day earlier.

The policy `day_ahead` of the scoreboard uses the same forecast and optimisation model on past days, from the
fleet that all policies start with. Here the plan starts from the last hour of the previous plan.
"""

from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa

from fleetcast.assets.demand.demand_history import (
    claim_trace_name,
    is_generated_trace,
    make_missing_demand,
    require_day_demand,
    require_history,
)
from fleetcast.assets.forecasts.forecasts import forecast_day_ahead
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.settings import HOURS_OF_DAY, Progress, RunSettings, midnight
from fleetcast.assets.plans import measured_capacity
from fleetcast.assets.plans.plan_loads import day_ahead_load
from fleetcast.assets.plans.plan_tables import plan_table
from fleetcast.assets.plans.plan_warnings import warn_before_plan
from fleetcast.assets.plans.plans import checked_solver, plan_open_loop
from fleetcast.assets.plans.problems import hour_problems, problem_template, with_size_shares
from fleetcast.models.aliases import Ints
from fleetcast.models.plan.day_plans import spot_that_fits
from fleetcast.models.plan.problem import Problem

DAY_AHEAD_POLICY = "day_ahead"


def next_plan_day(settings: RunSettings) -> date:
    """Return the day after the last one with requests (a generated trace: with demand); LakeError if none."""
    days = settings.lake.days("demand" if is_generated_trace(settings) else "requests", settings.trace)
    if not days:
        raise LakeError(
            f"The trace {settings.trace!r} has no day to forecast from. {_next_command(settings)}"
        )
    return days[-1] + timedelta(days=1)


def _next_command(settings: RunSettings) -> str:
    """Return the remedy where the configured trace has no day: name a landed one, generate or ingest it."""
    landed = settings.lake.traces("ingests")
    if {*landed} - {settings.trace}:
        return (
            f"Landed is {', '.join(landed)}: write it as [trace] name into a config and run "
            "fleetcast plan ahead --config FILE."
        )
    is_made = is_generated_trace(settings)
    make = settings.command("nightly") if is_made else "fleetcast ingest, its file in data/landing"
    return f"Run {make}, then {settings.command('plan ahead')} again."


def plan_ahead(settings: RunSettings, day: date, progress: Progress, is_local: bool = False) -> pa.Table:
    """Forecast and plan the hours of `day` from the data known when it begins; write day_ahead_plans.

    Where the day before is in the future as well, the data known when that one begins is used. For a landed
    trace, missing demand of the days before is built first, since the trace may have landed just now.
    `is_local`: each region serves its own demand where it has the GPUs (epsilon = 1); what that costs is
    reported.

    Raises ValueError for a day that the nightly job has planned, LakeError without demand of the two days
    before.
    """
    claim_trace_name(settings)
    if day in settings.lake.days("plans", settings.trace):
        raise ValueError(
            f"{day} has been planned for every policy already. "
            f"See it: {settings.command(f'plan show --policy {DAY_AHEAD_POLICY} --date {day}')}"
        )
    origin_day = forecast_plan_day(settings, day, progress)
    warn_before_plan(settings, day)
    capacities = measured_capacity.measure_capacities(settings, day, progress)
    template = problem_template(settings.grid, settings.config, capacities, DAY_AHEAD_POLICY)
    template = with_size_shares(template, settings, day, DAY_AHEAD_POLICY)
    load = day_ahead_load(settings, day, origin_day)
    start, spot = fleet_before(settings, midnight(day), template)
    templates = [template, template._replace(epsilon=1.0)] if is_local else [template]
    with progress.bar(f"plan {day}", HOURS_OF_DAY * len(templates)) as done:
        solve = checked_solver(settings, DAY_AHEAD_POLICY, done)
        tables = [
            plan_table(day, {DAY_AHEAD_POLICY: plan_open_loop(hour_problems(each, load), start, spot, solve)})
            for each in templates
        ]
    table = tables[-1]
    if is_local:
        usd, local_usd = (sum(each["usd"].to_pylist()) for each in tables)
        progress.say(f"{day}: {local_usd:,.0f} USD, and {usd:,.0f} USD if regions served each other")
    settings.lake.write("day_ahead_plans", table, trace=settings.trace, day=day)
    return table


def forecast_plan_day(settings: RunSettings, day: date, progress: Progress) -> date:
    """Forecast the hours of `day`; return the day at whose midnight the forecast is made.

    For a landed trace, missing demand of the days before is built first. LakeError without history.
    """
    require_history(settings, day)
    make_missing_demand(settings, day, progress)
    origin_day = forecast_origin_day(settings, day)
    forecast_day_ahead(settings, day, progress, origin_day)
    return origin_day


def forecast_origin_day(settings: RunSettings, day: date) -> date:
    """Return the day at whose midnight `day` is forecast: itself, or the day before where that is future too.

    LakeError where data of that is missing as well: forecasts have been evaluated up to two days ahead.
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
    """Return the serving and the donated instances at an instant, each of shape (services, regions, options).

    The serving instances are those of the policy's plan for the hour before; the rest of the fleet is
    donated. Without such a plan the whole fleet serves.
    """
    last_hour = settings.lake.sql(
        "select *, 0 as hour from all_plans "
        "where trace = $trace and policy = $policy and hour_start < $moment "
        "and hour_start >= $moment - interval 1 hour",
        trace=settings.trace,
        policy=policy,
        moment=moment,
    ).to_pandas()
    whole = template.instances_now
    if last_hour.empty:
        return whole, np.zeros_like(whole)
    serving = settings.grid.hourly_cells(last_hour, "instances")[0].astype(np.int64)
    return serving, spot_that_fits(template, serving, np.maximum(whole - serving, 0))
