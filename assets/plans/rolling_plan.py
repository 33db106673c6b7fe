"""Make rolling plans: 48 hours ahead, from what is known now; every plan is kept.

The hours are clock hours. The first one has begun: its load until now is known, the rest is forecast. A plan
starts from the instances of the rolling plan before it. For every hour, the latest plan applies (the mart
all_plans).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from fleetcast.assets.demand.demand_history import (
    claim_trace_name,
    make_missing_demand,
    require_history,
)
from fleetcast.assets.forecasts.rolling_forecast import (
    RollingForecast,
    forecast_hours_from,
    last_known_instant,
)
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import HOURS_OF_DAY, Progress, RunSettings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.plans import measured_capacity
from fleetcast.assets.plans.day_ahead import DAY_AHEAD_POLICY, fleet_before
from fleetcast.assets.plans.plan_export import ROLLING_POLICY
from fleetcast.assets.plans.plan_loads import PlanLoad, latest_batch_buffer, quantile_path
from fleetcast.assets.plans.plan_tables import plan_table_rows
from fleetcast.assets.plans.plans import checked_solver, plan_open_loop
from fleetcast.assets.plans.problems import hour_problems, problem_template, with_size_shares
from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.day_plans import HourSolver
from fleetcast.models.plan.problem import HourPlan, Problem

HORIZON_HOURS = 48
_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)


def plan_rolling(settings: RunSettings, at: datetime | None, progress: Progress) -> pa.Table:
    """Plan the hours from `at` on, by default from the end of the known demand; add them to rolling_plans.

    ValueError for an instant that is not the beginning of a bucket, or after the end of the known demand.
    """
    claim_trace_name(settings)
    now = planning_instant(settings, at)
    require_history(settings, now.date())
    make_missing_demand(settings, now.date() + _DAY, progress)
    begins = now.replace(minute=0)
    forecast = forecast_hours_from(settings, now, HORIZON_HOURS, progress)
    capacities = measured_capacity.measure_capacities(settings, now.date(), progress)
    template = problem_template(settings.grid, settings.config, capacities, DAY_AHEAD_POLICY)
    template = with_size_shares(template, settings, now.date(), DAY_AHEAD_POLICY)
    hours = hour_problems(template, rolling_load(settings, now, forecast))
    start, spot = fleet_before(settings, now, template, ROLLING_POLICY)
    max_changes = settings.config.plan.rolling.max_changes
    if max_changes is not None and now > begins:  # earlier plans of the hour have changed it too
        for before in (instances_in_force(settings, begins, hour) for hour in (begins - _HOUR, begins)):
            if before is not None:
                hours[0] = limit_changes(hours[0], before, max_changes)
    with progress.bar(f"plan from {now:%Y-%m-%d %H:%M}", HORIZON_HOURS) as done:
        solve = limit_hourly_changes(checked_solver(settings, DAY_AHEAD_POLICY, done), max_changes)
        planned = plan_open_loop(hours, start, spot, solve)
    rows = [
        {"made_at": now, "day": row["hour_start"].date(), **row}
        for row in plan_table_rows(begins, ROLLING_POLICY, planned)
    ]
    plan = pa.Table.from_pylist(rows, schema=SCHEMAS["rolling_plans"])
    _append_rolling_plan(settings, now, plan)
    return plan


def planning_instant(settings: RunSettings, at: datetime | None) -> datetime:
    """Return when a plan is made: at `at`, by default at the end of the known demand; else ValueError."""
    known, minutes = last_known_instant(settings), settings.config.forecast.bucket_minutes
    if at is None:
        return known
    at = at.replace(tzinfo=UTC)
    if at.second or at.minute % minutes:
        raise ValueError(f"--at: got {at:%H:%M}, needed a whole number of {minutes} minutes ([forecast]).")
    if at > known:
        raise ValueError(
            f"--at: got {at:%Y-%m-%d %H:%M}, but demand is known until {known:%Y-%m-%d %H:%M} only. "
            "Ingest the requests since then, or plan from then."
        )
    return at


def rolling_load(settings: RunSettings, now: datetime, forecast: RollingForecast) -> PlanLoad:
    """Return the load of each clock hour: the known load, then the quantile of the forecast.

    With [plan.rolling] keeps_current_load, it is at least the current load until the next plan is due.
    """
    config, minutes = settings.config.plan, settings.config.forecast.bucket_minutes
    per_hour, elapsed = 60 // minutes, now.minute // minutes
    path = quantile_path(
        forecast.mean, np.broadcast_to(forecast.peak, forecast.mean.shape), config.most_headroom_share
    )
    path = path.reshape(*path.shape[:2], -1)
    latest = forecast.known[..., -1:]
    if config.rolling.keeps_current_load:
        until = -(-config.rolling.every_minutes // minutes)
        path[..., :until] = np.fmax(path[..., :until], latest)
    known = forecast.known[..., forecast.known.shape[-1] - elapsed :]
    known = np.where(np.isnan(known), path[..., :1], known)  # a gap in the data gets the forecast's beginning
    whole = np.concatenate([known, path], axis=-1)[..., : HORIZON_HOURS * per_hour]
    windows = np.moveaxis(whole.reshape(*whole.shape[:2], HORIZON_HOURS, per_hour), 2, 0)
    buffer: Floats = latest_batch_buffer(settings, now.date())
    hours = [(now.hour + hour) % HOURS_OF_DAY for hour in range(HORIZON_HOURS)]
    return PlanLoad(settings.serving_load(windows, axis=1), buffer[hours])


def limit_hourly_changes(solve: HourSolver, max_changes: int | None) -> HourSolver:
    """Return a solver that changes no option in a region by more than `max_changes` instances an hour."""
    if max_changes is None:
        return solve

    def solve_limited(problem: Problem) -> HourPlan:
        return solve(limit_changes(problem, problem.instances_now, max_changes))

    return solve_limited


def limit_changes(problem: Problem, before: Ints, max_changes: int) -> Problem:
    """Return the problem with at most `max_changes` instances more or less than before.

    `before` has the shape (services, regions, options).
    """
    upper = np.minimum(problem.max_option_instances, before + max_changes)
    lower = np.minimum(np.maximum(problem.min_option_instances, before - max_changes), upper)
    return problem._replace(min_option_instances=lower, max_option_instances=upper)


def instances_in_force(settings: RunSettings, at: datetime, hour: datetime) -> Ints | None:
    """Return the instances of an hour by the last plan made until `at`; None where there is no such plan.

    Shape (services, regions, options).
    """
    rows = settings.lake.sql(
        "select *, 0 as hour from rolling_plans where trace = $trace and hour_start = $hour "
        "and made_at <= $at qualify made_at = max(made_at) over ()",
        trace=settings.trace,
        hour=hour,
        at=at,
    ).to_pandas()
    return None if rows.empty else settings.grid.hourly_cells(rows, "instances")[0].astype(np.int64)


@contextmanager
def only_this_plan(settings: RunSettings, plan: pa.Table) -> Iterator[RunSettings]:
    """Yield settings with a lake that has one rolling plan alone, until the block ends."""
    with settings.lake.scratch() as folder:
        alone = replace(settings, lake=Lake(folder / "lake"))
        _append_rolling_plan(alone, plan["made_at"][0].as_py(), plan)
        yield alone


def _append_rolling_plan(settings: RunSettings, now: datetime, plan: pa.Table) -> None:
    """Add a plan to those of its day; it replaces one that was made at the same instant."""
    where = {"trace": settings.trace, "made_day": now.date().isoformat()}
    if settings.lake.files("rolling_plans", **where):
        before = settings.lake.part("rolling_plans", **where)
        made_at = np.datetime64(now.replace(tzinfo=None), "us")
        keep = before["made_at"].to_numpy() != made_at
        plan = pa.concat_tables([before.filter(pa.array(keep)), plan], promote_options="default")
    settings.lake.write("rolling_plans", plan, **where)
