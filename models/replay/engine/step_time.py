"""Step times: seconds of a step, and of a stretch of decode steps in closed form.

Between two changes of a decode batch of B requests, each step takes f[B] + g[B]*kv seconds and adds B cached
tokens. So k steps from kv cached tokens take

    T(k) = k*(f[B] + g[B]*kv) + g[B]*B*k*(k-1)/2     seconds

and the first step boundary at or after an instant follows from the root of a quadratic. Where steps make more
than one token of a request (draft_tokens.py), the sum of the tokens made before each step is in place of
k*(k-1)/2, and the root is where the search begins.
"""

import math

from fleetcast.models.aliases import Floats
from fleetcast.models.replay.compiled import njit_inline
from fleetcast.models.replay.engine.draft_tokens import mean_tokens_of_step, tokens_before_steps
from fleetcast.models.replay.engine.ranks import ranks_steps_until, ranks_stretch_s
from fleetcast.models.replay.kernel_inputs import FleetArrays
from fleetcast.models.replay.state import State


@njit_inline
def prefill_step_s(fleet: FleetArrays, kind: int, tokens: int) -> float:
    """Return the seconds to prefill `tokens` prompt tokens: linear between the knots of the profile."""
    return seconds_at_knots(fleet, fleet.latency.prefill_s, fleet.latency.prefill_slope, kind, tokens)


@njit_inline
def expert_step_s(fleet: FleetArrays, kind: int, tokens: float) -> float:
    """Return the seconds that a prefill step spends in shared experts; `tokens`: the mean of the ranks."""
    return seconds_at_knots(fleet, fleet.latency.expert_s, fleet.latency.expert_slope, kind, tokens)


@njit_inline
def seconds_at_knots(fleet: FleetArrays, seconds: Floats, slope: Floats, kind: int, tokens: float) -> float:
    """Return the seconds of so many tokens: those of the last knot below, and the slope from there on.

    `seconds`, `slope`: shape (J, K), of each knot of the deployments.
    """
    knots = fleet.latency.prefill_tokens[kind]
    at = 0
    while at + 1 < knots.size and knots[at + 1] <= tokens:
        at += 1
    return seconds[kind, at] + (tokens - knots[at]) * slope[kind, at]


@njit_inline
def stretch_s(fleet: FleetArrays, state: State, slot: int, steps: int) -> float:
    """Return T(steps), in seconds, of the slot's present batch, and of those of its other ranks."""
    instance = state.instance[slot]
    kind, batch = fleet.slot_kind[slot], instance.batch
    if fleet.ranks[kind] > 1:
        return ranks_stretch_s(fleet, state, slot, steps)
    g = fleet.latency.decode_kv_s[kind, batch]
    first = fleet.latency.decode_s[kind, batch] + g * instance.kv
    return steps * first + g * batch * tokens_before_steps(fleet, state, slot, steps)


@njit_inline
def steps_until(fleet: FleetArrays, state: State, slot: int, now: float) -> int:
    """Return the number of steps, at least 1, whose boundary is the first at or after now."""
    instance = state.instance[slot]
    kind, batch = fleet.slot_kind[slot], instance.batch
    if fleet.ranks[kind] > 1:
        return ranks_steps_until(fleet, state, slot, now)
    g = fleet.latency.decode_kv_s[kind, batch]
    half = g * batch * mean_tokens_of_step(fleet, kind) / 2
    b = fleet.latency.decode_s[kind, batch] + g * instance.kv - half
    elapsed = now - instance.base_s
    steps = max(1, math.ceil(2 * elapsed / (b + math.sqrt(b * b + 4 * half * elapsed))))
    while steps > 1 and instance.base_s + stretch_s(fleet, state, slot, steps - 1) >= now:
        steps -= 1
    while instance.base_s + stretch_s(fleet, state, slot, steps) < now:
        steps += 1
    return steps
