"""From integers to the whole plan of the corrected programme: what each window serves, where, at what cost.

Given the instances, the best flows have a closed form, because the costs are ordered: serving elsewhere
(kappa) is cheaper than giving up buffer (y), that than serving too far from home (v), that than leaving
requests unserved (z). `planned` therefore answers for any allocation, whoever chose it.
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
    """The plan that these integers make, each of shape (i, j, k): flows, shortages, cost."""
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
    """(hold, start, give up): what the integers cost, without flows and penalties."""
    alpha = np.where(p.runs, p.usd_per_hour, 0.0)[:, None, :]
    pi, eta = p.spot_earning_share, p.hysteresis_share
    instances = p.instances_now + reclaimed + started - donated
    spot = p.spot + donated - reclaimed
    usd = alpha * (p.hours * (instances + (1 - pi) * spot) + eta * donated)
    return float((usd + p.reclaim_usd[:, None, :] * reclaimed + p.cold_usd * started).sum())


def window_capacity_tokens_per_s(p: Problem, reclaimed: Ints, started: Ints, donated: Ints) -> Floats:
    """C[i,j,w]: tokens/s of the instances that are up in each window."""
    w = np.arange(p.windows)
    is_back = w >= p.reclaim_window[:, None, :, None]
    is_booted = w >= p.cold_window[..., None]
    up = (p.instances_now - donated)[..., None]
    up = up + reclaimed[..., None] * is_back + started[..., None] * is_booted
    return np.einsum("ijkw,ik->ijw", up, np.where(p.runs, p.tokens_per_s, 0.0))


def cheapest_flows(p: Problem, capacity: Floats) -> WindowFlows:
    """The cheapest e, m, z, v and y under a capacity of shape (i, j, w)."""
    need, far = p.need_tokens_per_s, (1 - p.epsilon) * p.demand_tokens_per_s
    buffer = np.broadcast_to(p.buffer_tokens_per_s[:, :, None], need.shape)
    lacking, spare = np.maximum(need - capacity, 0.0), np.maximum(capacity - need, 0.0)
    y = np.minimum(buffer, np.maximum(lacking - far, 0.0))  # rather than too far from home
    e = lacking - y
    # Where less can be spared than is exported, buffer goes first, that of the exporters before that of the
    # others; then requests are left unserved, those before all that would be served too far from home.
    own = _fill(_beyond(e, spare), np.minimum(buffer - y, e))
    y, e = y + own, e - own
    freed = _fill(_beyond(e, spare), buffer - y)
    y, spare = y + freed, spare + freed
    z = _fill(_beyond(e, spare), np.maximum(e - far, 0.0))
    e = e - z
    rest = _fill(_beyond(e, spare), e)
    z, e = z + rest, e - rest
    total = spare.sum(axis=1)
    used = np.divide(e.sum(axis=1), total, out=np.zeros_like(total), where=total > 0)
    return WindowFlows(capacity, e, spare * used[:, None, :], z, np.maximum(e - far, 0.0), y)


def _beyond(exports: Floats, spare: Floats) -> Floats:
    """Exports that no region can take, shape (i, w)."""
    return np.maximum(exports.sum(axis=1) - spare.sum(axis=1), 0.0)


def _fill(amount: Floats, room: Floats) -> Floats:
    """Spread an amount of shape (i, w) over the room of the regions, shape (i, j, w), in their order."""
    before = np.cumsum(room, axis=1) - room
    return np.clip(amount[:, None, :] - before, 0.0, room)


def _without_rounding(short: Floats, needed: Floats) -> Floats:
    """A shortage without the arithmetic's dust."""
    return np.where(short > TOLERANCE * needed, short, 0.0)
