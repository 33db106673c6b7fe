"""Trials of plans: what the replay is given of each, and what the plan could not carry."""

import numpy as np

from fleetcast.assets.lake.settings import HOURS
from fleetcast.assets.plans.plan_tables import Day
from fleetcast.assets.replays.drives import measured, setting
from fleetcast.assets.studies.experiment import Trial, Variant
from fleetcast.models.aliases import Floats
from fleetcast.models.replay.run import Drive
from fleetcast.models.world.calendar import HOUR_S

FOLLOWS = "lt_i"  # its rule follows a plan at once, so that the plan is all that differs


def trial_of_plan(
    variant: Variant, hours: Day, start: Floats, factor: float = 1.0, sustained: Floats | None = None
) -> Trial:
    """The trial of a plan of the variant's day, from `start`: instances that serve, shape (pools,).

    `factor`: requests for each one of the day. `sustained`: tokens/s of an instance, shape (services,
    options); None: what the plan counts on.
    """
    settings, policy = variant.settings, variant.policy
    fleet, rules = setting(settings, policy)
    theta = hours[0][0].tokens_per_s if sustained is None else sustained
    of_cells = np.repeat(theta[:, None], len(settings.catalogue.regions), axis=1)
    fleet = measured(settings.under(policy), fleet, of_cells)
    drive = Drive(start=start, hour_s=HOUR_S)
    if settings.config.rules[policy].plan is not None:
        targets = settings.grid.by_pool(np.array([plan.instances for _, plan in hours]))
        load = np.array([problem.demand_tokens_per_s.max(axis=2) for problem, _ in hours])
        drive = Drive(targets, settings.grid.by_llm(load, axis=1), start, HOUR_S, len(hours) // HOURS)
        # A plan may go below the minimum (a budget, a region that is full): the replay follows it there.
        fewest = np.minimum(fleet.min_instances, targets.min(axis=0))
        fleet = fleet._replace(min_instances=fewest.astype(np.int64))
    return Trial(variant, fleet, rules, drive, factor, shortage(hours))


def shortage(hours: Day) -> dict[str, float]:
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
