"""Flows, shortages and cost of a plan of the corrected model, from its integer decisions.

Given the instances, the best flows have a closed form, because the costs are ordered: serving in another
region (kappa) is cheaper than not keeping buffer (y), which is cheaper than serving too far from home (v),
which is cheaper than leaving requests unserved (z). So `plan_from_changes` works for any allocation.
"""

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.problem import (
    BELOW_MINIMUM_PENALTY,
    BUFFER_PENALTY,
    REMOTE_PENALTY,
    TOLERANCE,
    UNSERVED_PENALTY,
    HourPlan,
    Problem,
    WindowFlows,
)


def plan_from_changes(p: Problem, reclaimed: Ints, started: Ints, donated: Ints) -> HourPlan:
    """Return the plan of these integer decisions, with its flows, shortages and cost.

    Parameters
    ----------
    reclaimed, started, donated : shape (i, j, k), instances; likewise below
    """
    flows = cheapest_flows(p, window_capacity_tokens_per_s(p, reclaimed, started, donated))
    instances = p.instances_now + reclaimed + started - donated
    missing = p.missing_instances(instances)
    latency_usd = float(p.export_usd @ flows.exports.sum(axis=(1, 2)))
    usd = instance_cost_usd(p, reclaimed, started, donated) + latency_usd
    per_token, per_instance = p.penalty_usd
    penalties = (
        per_token @ (UNSERVED_PENALTY * flows.unserved + REMOTE_PENALTY * flows.remote).sum(axis=(1, 2))
        + per_token @ (BUFFER_PENALTY * flows.buffer_short).sum(axis=(1, 2))
        + BELOW_MINIMUM_PENALTY * per_instance @ missing.sum(axis=1)
    )
    return HourPlan(
        programme="corrected",
        instances=instances,
        reclaimed=reclaimed,
        started=started,
        donated=donated,
        windows=flows,
        short_tokens_per_s=_without_rounding(flows.unserved.max(axis=2), p.need_tokens_per_s.max(axis=2)),
        short_llm_tokens_per_s=_without_rounding(
            flows.unserved.sum(axis=1).max(axis=1), p.need_tokens_per_s.sum(axis=1).max(axis=1)
        ),
        missing_instances=missing,
        objective_usd=usd,
        full_usd=usd + float(penalties),
    )


def instance_cost_usd(p: Problem, reclaimed: Ints, started: Ints, donated: Ints) -> float:
    """Return the cost (hold, start, release) of the integers (i, j, k), without flows and penalties."""
    alpha = np.where(p.runs, p.usd_per_hour, 0.0)[:, None, :]
    pi, eta = p.spot_earning_share, p.hysteresis_share
    instances = p.instances_now + reclaimed + started - donated
    spot = p.spot + donated - reclaimed
    usd = alpha * (p.hours * (instances + (1 - pi) * spot) + eta * donated)
    return float((usd + p.reclaim_usd[:, None, :] * reclaimed + p.cold_usd * started).sum())


def window_capacity_tokens_per_s(p: Problem, reclaimed: Ints, started: Ints, donated: Ints) -> Floats:
    """Return C[i,j,w], tokens/s of the instances (i, j, k) that are up in each window, shape (i, j, w)."""
    kept, capacity = p.instances_now - donated, []
    for w in range(p.windows):
        is_back, is_booted = w >= p.reclaim_window[:, None, :], w >= p.cold_window
        capacity.append(p.sustained_tokens_per_s(kept + reclaimed * is_back + started * is_booted))
    return np.stack(capacity, axis=2)


def cheapest_flows(p: Problem, capacity: Floats) -> WindowFlows:
    """Return the cheapest e, m, z, v and y for a capacity in tokens/s of shape (i, j, w)."""
    need, far = p.need_tokens_per_s, (1 - p.epsilon) * p.demand_tokens_per_s
    buffer = np.broadcast_to(p.buffer_tokens_per_s[:, :, None], need.shape)
    missing, spare = np.maximum(need - capacity, 0.0), np.maximum(capacity - need, 0.0)
    y = np.minimum(buffer, np.maximum(missing - far, 0.0))  # cheaper than serving too far from home
    e = missing - y
    # Where the exports exceed the spare capacity, first buffer is not kept: that of the exporting regions,
    # then that of the others. Then requests stay unserved, first those served too far from home.
    exporters = _fill(_excess(e, spare), np.minimum(buffer - y, e))
    y, e = y + exporters, e - exporters
    others = _fill(_excess(e, spare), buffer - y)
    y, spare = y + others, spare + others
    z = _fill(_excess(e, spare), np.maximum(e - far, 0.0))
    e = e - z
    rest = _fill(_excess(e, spare), e)
    z, e = z + rest, e - rest
    total = spare.sum(axis=1)
    used = np.divide(e.sum(axis=1), total, out=np.zeros_like(total), where=total > 0)
    return WindowFlows(capacity, e, spare * used[:, None, :], z, np.maximum(e - far, 0.0), y)


def _excess(exports: Floats, spare: Floats) -> Floats:
    """Return the exports that exceed the spare capacity of all regions, (i, w); both inputs (i, j, w)."""
    return np.maximum(exports.sum(axis=1) - spare.sum(axis=1), 0.0)


def _fill(amount: Floats, room: Floats) -> Floats:
    """Distribute an amount (i, w) over the room of the regions (i, j, w), in their order; shape (i, j, w)."""
    before = np.cumsum(room, axis=1) - room
    return np.clip(amount[:, None, :] - before, 0.0, room)


def _without_rounding(short: Floats, needed: Floats) -> Floats:
    """Return a shortage, 0 where it is only a rounding error of what is needed; shapes alike."""
    return np.where(short > TOLERANCE * needed, short, 0.0)
