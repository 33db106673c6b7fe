"""Build the trial of a plan: the inputs of its replay, and the load that the plan could not serve."""

import numpy as np

from fleetcast.assets.lake.settings import HOURS_OF_DAY
from fleetcast.assets.plans.plan_tables import PlannedHours
from fleetcast.assets.replays.policy_inputs import fleet_and_rules, with_measured_capacity
from fleetcast.assets.studies.experiment import ReplayTrial, Variant
from fleetcast.models.aliases import Floats
from fleetcast.models.replay.run import Schedule
from fleetcast.models.world.calendar import HOUR_S

FOLLOW_POLICY = "lt_i"  # follows a plan at once, so that trials differ in their plan alone


def build_plan_trial(
    variant: Variant, hours: PlannedHours, start: Floats, factor: float = 1.0, sustained: Floats | None = None
) -> ReplayTrial:
    """Return the trial of a plan of the variant's day.

    start : instances that serve when the day starts, shape (pools,)
    factor : replayed requests per request of the day
    sustained : tokens/s of an instance, shape (services, options); None: the capacity in the plan
    """
    settings, policy = variant.settings, variant.policy
    fleet, rules = fleet_and_rules(settings, policy)
    tokens_per_s = hours[0][0].tokens_per_s if sustained is None else sustained
    by_region = np.repeat(tokens_per_s[:, None], len(settings.catalogue.regions), axis=1)
    fleet = with_measured_capacity(settings.under(policy), fleet, by_region)
    schedule = Schedule(start=start, hour_s=HOUR_S)
    if settings.config.rules[policy].plan is not None:
        targets = settings.grid.by_pool(np.array([plan.instances for _, plan in hours]))
        load = np.array([problem.demand_tokens_per_s.max(axis=2) for problem, _ in hours])
        schedule = Schedule(
            targets, settings.grid.services_to_llms(load, axis=1), start, HOUR_S, len(hours) // HOURS_OF_DAY
        )
        # A plan may go below the minimum because of a budget or a full region: the replay follows it.
        minimum = np.minimum(fleet.min_instances, targets.min(axis=0))
        fleet = fleet._replace(min_instances=minimum.astype(np.int64))
    return ReplayTrial(variant, fleet, rules, schedule, factor, measure_plan_shortage(hours))


def measure_plan_shortage(hours: PlannedHours) -> dict[str, float]:
    """Return the load that the corrected plan of a day could not serve, worst first.

    short_hours          hours in which some load of an llm is not served in any region
    remote_share         share of the demand served in other regions beyond what epsilon allows
    buffer_short_share   share of the buffer for deferrable requests that is missing
    below_minimum_hours  hours in which an endpoint has fewer instances than its minimum
    """
    demand = sum(float(problem.demand_tokens_per_s.sum()) for problem, _ in hours)
    buffer = sum(float(problem.buffer_tokens_per_s.sum()) * problem.windows for problem, _ in hours)
    flows = [plan.windows for _, plan in hours if plan.windows is not None]
    remote, missing_buffer = (
        sum(float(getattr(flow, name).sum()) for flow in flows) for name in ("remote", "buffer_short")
    )
    return {
        "short_hours": sum(bool(plan.short_llm_tokens_per_s.any()) for _, plan in hours),
        "remote_share": remote / demand if demand else 0.0,
        "buffer_short_share": missing_buffer / buffer if buffer else 0.0,
        "below_minimum_hours": sum(bool(plan.missing_instances.any()) for _, plan in hours),
    }
