"""Trials of plans: what the replay is given of each, and what the plan could not carry."""

import numpy as np

from fleetcast.assets.lake.settings import HOURS_OF_DAY
from fleetcast.assets.plans.plan_tables import PlannedHours
from fleetcast.assets.replays.policy_inputs import fleet_and_rules, with_measured_capacity
from fleetcast.assets.studies.experiment import ReplayTrial, Variant
from fleetcast.models.aliases import Floats
from fleetcast.models.replay.run import Schedule
from fleetcast.models.world.calendar import HOUR_S

FOLLOW_POLICY = "lt_i"  # its rule follows a plan at once, so that the plan is all that differs


def build_plan_trial(
    variant: Variant, hours: PlannedHours, start: Floats, factor: float = 1.0, sustained: Floats | None = None
) -> ReplayTrial:
    """The trial of a plan of the variant's day, from `start`: instances that serve, shape (pools,).

    `factor`: requests for each one of the day. `sustained`: tokens/s of an instance, shape (services,
    options); None: what the plan counts on.
    """
    settings, policy = variant.settings, variant.policy
    fleet, rules = fleet_and_rules(settings, policy)
    theta = hours[0][0].tokens_per_s if sustained is None else sustained
    of_cells = np.repeat(theta[:, None], len(settings.catalogue.regions), axis=1)
    fleet = with_measured_capacity(settings.under(policy), fleet, of_cells)
    drive = Schedule(start=start, hour_s=HOUR_S)
    if settings.config.rules[policy].plan is not None:
        targets = settings.grid.by_pool(np.array([plan.instances for _, plan in hours]))
        load = np.array([problem.demand_tokens_per_s.max(axis=2) for problem, _ in hours])
        drive = Schedule(
            targets, settings.grid.services_to_llms(load, axis=1), start, HOUR_S, len(hours) // HOURS_OF_DAY
        )
        # A plan may go below the minimum (a budget, a region that is full): the replay follows it there.
        fewest = np.minimum(fleet.min_instances, targets.min(axis=0))
        fleet = fleet._replace(min_instances=fewest.astype(np.int64))
    return ReplayTrial(variant, fleet, rules, drive, factor, measure_plan_shortage(hours))


def measure_plan_shortage(hours: PlannedHours) -> dict[str, float]:
    """What the corrected plan of a day could not carry, worst first.

    short_hours          hours in which some of an llm's load is served nowhere
    remote_share         of the demand, served elsewhere beyond what epsilon allows
    buffer_short_share   of the buffer for what may be held, given up
    below_minimum_hours  hours in which an endpoint holds fewer instances than its minimum
    """
    demand = sum(float(problem.demand_tokens_per_s.sum()) for problem, _ in hours)
    buffer = sum(float(problem.buffer_tokens_per_s.sum()) * problem.windows for problem, _ in hours)
    flows = [plan.windows for _, plan in hours if plan.windows is not None]
    remote, given_up = (
        sum(float(getattr(of_hour, name).sum()) for of_hour in flows) for name in ("remote", "buffer_short")
    )
    return {
        "short_hours": sum(bool(plan.short_llm_tokens_per_s.any()) for _, plan in hours),
        "remote_share": remote / demand if demand else 0.0,
        "buffer_short_share": given_up / buffer if buffer else 0.0,
        "below_minimum_hours": sum(bool(plan.missing_instances.any()) for _, plan in hours),
    }
