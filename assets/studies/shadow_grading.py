"""Grade past advice: replay the advised fleet and the fleet that ran, on the day's recorded requests.

Both fleets are replayed hour by hour. Boots take no time, because the counts are of replicas that serve. If
the trace records TTFT, the replay of the fleet that ran is compared with it. This error of the replay is
reported with every figure; a difference below it is not significant. Only requests of the graded hours
(graded_hours.py) are replayed and compared.
"""

from collections.abc import Collection
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.settings import HOURS_OF_DAY, Progress, RunSettings
from fleetcast.assets.plans.plan_export import require_planned_policy
from fleetcast.assets.replays.policy_inputs import (
    fleet_and_rules,
    planned_capacity,
    read_day_plans,
    with_measured_capacity,
)
from fleetcast.assets.replays.replay_workloads import read_workload
from fleetcast.assets.studies.experiment import ReplayTrial, Variant, replay_trials, write_trials
from fleetcast.assets.studies.graded_hours import (
    hours_of_rows,
    keep_requests_of_hours,
    read_planned_instances,
)
from fleetcast.assets.studies.past_limits import with_room_for
from fleetcast.assets.studies.planned_trials import FOLLOW_POLICY
from fleetcast.models.aliases import Floats
from fleetcast.models.replay.run import Schedule
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.plan_grid import Grid


def grade_shadow(settings: RunSettings, day: date, policy: str, progress: Progress) -> pa.Table:
    """Replay the fleet that ran and the fleet that a policy advised, and return rows of shadow_runs.

    LakeError without the fleet that ran or the day's plans, ValueError without advice of the policy, or
    without an hour that both have.
    """
    require_planned_policy(settings, policy, "grade")
    settings.require_day("plans", day)
    advised = read_planned_instances(settings, day, policy)
    if advised.empty:
        raise ValueError(
            f"The trace {settings.trace!r} has no advice of {policy} for {day}. Plan it first: "
            f"{settings.command('plan ahead')}, or {settings.command(f'nightly --date {day}')}"
        )
    fleets = {"ran": read_ran_targets(settings, day), "advised": _hourly_targets(settings.grid, advised)}
    hours = hours_of_rows(settings.day_rows("ran_fleets", day).to_pandas()) & hours_of_rows(advised)
    if not hours:
        raise ValueError(
            f"No hour of {day} has both instances planned by {policy} and samples of the fleet that ran. "
            f"Import the hours of the plan: {settings.command('plan ran FILE')}"
        )
    workload = keep_requests_of_hours(settings, day, read_workload(settings, day), hours)
    labels = {"advice": policy}
    trials = [
        fixed_fleet_trial(Variant(fleet, settings, day, FOLLOW_POLICY, labels=labels), targets)
        for fleet, targets in fleets.items()
    ]
    rows = list(replay_trials(trials, len(trials), workload, f"grade {day}", progress))
    rows.append(trials[0].variant.rows(_recorded_ttft(settings, day, hours)))
    write_trials(settings, "grade", day, pa.concat_tables(rows))
    return settings.day_rows("shadow_runs", day)


def read_ran_targets(settings: RunSettings, day: date) -> Floats:
    """Return the instances that ran by hour, shape (24, pools).

    LakeError if they were not imported.
    """
    if day not in settings.lake.days("ran_fleets", settings.trace):
        raise LakeError(
            f"The lake has no fleet that ran for {settings.trace!r} on {day}. "
            f"Import it: {settings.command('plan ran FILE')}, with ready replicas over time."
        )
    return _hourly_targets(settings.grid, settings.day_rows("ran_fleets", day).to_pandas())


def _hourly_targets(grid: Grid, rows: pd.DataFrame) -> Floats:
    """Return instances by hour, shape (24, pools); a missing hour copies the one before, else the next."""
    hour = rows["hour_start"].dt.hour
    by_hour = grid.hourly_cells(rows.assign(hour=hour), "instances")
    recorded = np.isin(np.arange(HOURS_OF_DAY), hour.unique())
    source_hour = np.maximum.accumulate(np.where(recorded, np.arange(HOURS_OF_DAY), -1))
    source_hour[source_hour < 0] = recorded.argmax()
    return np.round(grid.by_pool(by_hour[source_hour]))


def fixed_fleet_trial(variant: Variant, targets: Floats, has_plans: bool = True) -> ReplayTrial:
    """Return the trial of a fleet that follows `targets`, instances (24, pools), without boot time.

    Its limits are those of the config, or the targets where these are larger. `has_plans`: the day's plans
    have the capacity by which load may be spread over unequal pools.
    """
    settings = with_room_for(variant.settings, targets)
    variant = variant._replace(settings=settings)
    fleet, rules = fleet_and_rules(settings, variant.policy)
    if has_plans:
        plans = read_day_plans(settings, variant.day)
        capacity = planned_capacity(settings.grid, settings.config, plans)
        fleet = with_measured_capacity(settings, fleet, capacity)
    fleet = fleet._replace(
        min_instances=np.minimum(fleet.min_instances, targets.min(axis=0)).astype(np.int64),
        boot_cold_s=np.zeros_like(fleet.boot_cold_s),
        boot_spot_s=np.zeros_like(fleet.boot_spot_s),
    )
    return ReplayTrial(variant, fleet, rules, Schedule(targets, None, targets[0], HOUR_S))


def _recorded_ttft(settings: RunSettings, day: date, hours: Collection[int]) -> list[dict[str, Any]]:
    """Return TTFT metrics that the trace's source recorded in some hours, by tier, as figures of a trial."""
    timed = {name: tier.ttft_slo_s for name, tier in settings.catalogue.tiers.items() if tier.ttft_slo_s}
    tiers = {"tiers": list(timed), "slos_s": list(timed.values())}
    of_hours = {"trace": settings.trace, "day": day, "hours": sorted(hours)}
    return settings.lake.sql("reads/measured_ttft.sql", **of_hours, **tiers).to_pylist()
