"""Rolling plans: 48 hours ahead, made again and again from what is known now, each beside those before it.

The hours are those of the clock, the first one that which has begun: of it, what has come so far is known
and the rest is foreseen. A plan starts from what the rolling plan before it holds now. Of every hour the plan
that was made last is the one to follow (the mart all_plans).
"""

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from fleetcast.assets.demand.demand_history import (
    claim_trace_name,
    is_generated_trace,
    make_demand,
    missing_days,
    require_history,
)
from fleetcast.assets.forecasts.rolling_forecast import (
    RollingForecast,
    forecast_hours_from,
    last_known_instant,
)
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import HOURS_OF_DAY, Progress, RunSettings
from fleetcast.assets.plans.day_ahead import DAY_AHEAD_POLICY as FOLLOWED
from fleetcast.assets.plans.day_ahead import fleet_before
from fleetcast.assets.plans.plan_export import ROLLING_POLICY
from fleetcast.assets.plans.plan_loads import PlanLoad, latest_batch_buffer, quantile_path
from fleetcast.assets.plans.plan_tables import plan_table_rows
from fleetcast.assets.plans.plans import checked_solver, measure_capacities, plan_open_loop
from fleetcast.assets.plans.problems import hour_problems, problem_template
from fleetcast.models.aliases import Floats
from fleetcast.models.plan.day_plans import HourSolver
from fleetcast.models.plan.problem import HourPlan, Problem

HORIZON_HOURS = 48
_DAY = timedelta(days=1)


def plan_rolling(settings: RunSettings, at: datetime | None, progress: Progress) -> pa.Table:
    """Plan the hours from `at` on, or from when demand is known to; add them to rolling_plans.

    ValueError for an instant that is not the beginning of a bucket, or until which demand is not known.
    """
    claim_trace_name(settings)
    now = planning_instant(settings, at)
    require_history(settings, now.date())
    if not is_generated_trace(settings) and (missing := missing_days(settings, now.date() + _DAY)):
        for _ in make_demand(settings, missing, progress):
            pass
    begins = now.replace(minute=0)
    foreseen = forecast_hours_from(settings, now, HORIZON_HOURS, progress)
    sustained = measure_capacities(settings, now.date(), progress)
    template = problem_template(settings.grid, settings.config, sustained, FOLLOWED)
    hours = hour_problems(template, rolling_load(settings, now, foreseen))
    start, spot = fleet_before(settings, now, template, ROLLING_POLICY)
    with progress.bar(f"plan from {now:%Y-%m-%d %H:%M}", HORIZON_HOURS) as done:
        solve = limit_hourly_changes(
            checked_solver(settings, FOLLOWED, done), settings.config.plan.rolling.max_changes
        )
        planned = plan_open_loop(hours, start, spot, solve)
    rows = [
        {"made_at": now, "day": row["hour_start"].date(), **row}
        for row in plan_table_rows(begins, ROLLING_POLICY, planned)
    ]
    made = pa.Table.from_pylist(rows, schema=SCHEMAS["rolling_plans"])
    _append_rolling_plan(settings, now, made)
    return made


def planning_instant(settings: RunSettings, at: datetime | None) -> datetime:
    """When a plan is made: as asked for, else when demand is known to."""
    known, minutes = last_known_instant(settings), settings.config.forecast.bucket_minutes
    if at is None:
        return known
    at = at.replace(tzinfo=UTC)
    if at.second or at.minute % minutes:
        raise ValueError(f"--at: got {at:%H:%M}, needed a whole number of {minutes} minutes ([forecast]).")
    if at > known:
        raise ValueError(
            f"--at: got {at:%Y-%m-%d %H:%M}, but demand is known until {known:%Y-%m-%d %H:%M} only. "
            "Ingest what came since, or plan from then."
        )
    return at


def rolling_load(settings: RunSettings, now: datetime, foreseen: RollingForecast) -> PlanLoad:
    """What each hour of the clock has to carry: what came, then the quantile of what is foreseen.

    With [plan.rolling] keeps_current_load at least the load of now until the next plan is due.
    """
    config, minutes = settings.config.plan, settings.config.forecast.bucket_minutes
    per_hour, elapsed = 60 // minutes, now.minute // minutes
    path = quantile_path(
        foreseen.mean,
        np.broadcast_to(foreseen.peak, foreseen.mean.shape),
        config.most_headroom_share,
    )
    path = path.reshape(*path.shape[:2], -1)
    latest = foreseen.known[..., -1:]
    if config.rolling.keeps_current_load:
        until = -(-config.rolling.every_minutes // minutes)
        path[..., :until] = np.fmax(path[..., :until], latest)
    came = foreseen.known[..., foreseen.known.shape[-1] - elapsed :]
    came = np.where(np.isnan(came), path[..., :1], came)  # nobody was collecting: as it will go on
    whole = np.concatenate([came, path], axis=-1)[..., : HORIZON_HOURS * per_hour]
    windows = np.moveaxis(whole.reshape(*whole.shape[:2], HORIZON_HOURS, per_hour), 2, 0)
    buffer: Floats = latest_batch_buffer(settings, now.date())
    of_hours = [(now.hour + hour) % HOURS_OF_DAY for hour in range(HORIZON_HOURS)]
    return PlanLoad(settings.serving_load(windows, axis=1), buffer[of_hours])


def limit_hourly_changes(solve: HourSolver, most: int | None) -> HourSolver:
    """The programme, but no kind in a region changes by more than `most` instances in an hour."""
    if most is None:
        return solve

    def within(problem: Problem) -> HourPlan:
        now = problem.instances_now
        own_most = np.minimum(problem.max_option_instances, now + most)
        own_least = np.minimum(np.maximum(problem.min_option_instances, now - most), own_most)
        return solve(problem._replace(min_option_instances=own_least, max_option_instances=own_most))

    return within


def _append_rolling_plan(settings: RunSettings, now: datetime, made: pa.Table) -> None:
    """Write a plan beside the others of its day, in the place of one that was made at the same instant."""
    where = {"trace": settings.trace, "made_day": now.date().isoformat()}
    if settings.lake.files("rolling_plans", **where):
        before = settings.lake.part("rolling_plans", **where)
        made_at = np.datetime64(now.replace(tzinfo=None), "us")
        keep = before["made_at"].to_numpy() != made_at
        made = pa.concat_tables([before.filter(pa.array(keep)), made])
    settings.lake.write("rolling_plans", made, **where)
