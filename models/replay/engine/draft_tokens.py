"""Speculative decoding: a step makes one token of each decoding request, and the drafts that are accepted.

A drafter proposes k tokens of each decoding request. The step computes 1 + k tokens of it, and keeps 1 to
1 + k. How many is drawn for the step, the same for all its requests, from a cycle of DRAFT_CYCLE steps that
has exactly the given rates of acceptance (draft_tables.py). So the requests of a batch still advance
together, and a stretch of steps has a closed form: where the first n steps of the cycle make c(n) tokens and
m steps of it are past, j steps make c(m + j) - c(m) tokens of each request.

A request that needs fewer tokens than its last step makes ends with that step. Memory is taken for all tokens
that a step computes, as in vLLM: a decoding request has blocks for its cached tokens and k more.

Without drafts a step makes one token, and c(n) = n.
"""

from fleetcast.models.replay.compiled import njit_call, njit_inline
from fleetcast.models.replay.engine.kv_memory import kv_blocks
from fleetcast.models.replay.kernel_inputs import DRAFT_CYCLE, FleetArrays
from fleetcast.models.replay.state import State


@njit_inline
def tokens_of_steps(fleet: FleetArrays, state: State, slot: int, steps: int) -> int:
    """Return how many tokens of each decoding request the slot's next `steps` steps make."""
    kind = fleet.slot_kind[slot]
    if fleet.drafts.tokens[kind] == 0:
        return steps
    begun = state.instance[slot].cycle_steps
    return tokens_made(fleet, kind, begun + steps) - tokens_made(fleet, kind, begun)


@njit_inline
def steps_for_tokens(fleet: FleetArrays, state: State, slot: int, tokens: int) -> int:
    """Return the fewest steps that make at least so many tokens of each decoding request."""
    kind = fleet.slot_kind[slot]
    if fleet.drafts.tokens[kind] == 0:
        return tokens
    begun = state.instance[slot].cycle_steps
    until, cycle = tokens_made(fleet, kind, begun) + tokens, fleet.drafts.made[kind, DRAFT_CYCLE]
    return until // cycle * DRAFT_CYCLE + fleet.drafts.steps[kind, until % cycle] - begun


@njit_inline
def tokens_before_steps(fleet: FleetArrays, state: State, slot: int, steps: int) -> int:
    """Return the sum, over the next `steps` steps, of the tokens made of a request before each of them."""
    if fleet.drafts.tokens[fleet.slot_kind[slot]] == 0:
        return steps * (steps - 1) // 2
    return drafted_before_steps(fleet, state, slot, steps)


@njit_call
def drafted_before_steps(fleet: FleetArrays, state: State, slot: int, steps: int) -> int:
    """Return the same where steps make different numbers of tokens."""
    kind, begun = fleet.slot_kind[slot], state.instance[slot].cycle_steps
    before = summed_tokens(fleet, kind, begun + steps) - summed_tokens(fleet, kind, begun)
    return before - steps * tokens_made(fleet, kind, begun)


@njit_inline
def mean_tokens_of_step(fleet: FleetArrays, kind: int) -> float:
    """Return how many tokens of each decoding request a step makes on average."""
    return fleet.drafts.made[kind, DRAFT_CYCLE] / DRAFT_CYCLE


@njit_inline
def tokens_of_last_step(fleet: FleetArrays, state: State, slot: int) -> int:
    """Return how many tokens of each decoding request the slot's last step made."""
    made = fleet.drafts.made[fleet.slot_kind[slot]]
    last = (state.instance[slot].cycle_steps - 1) % DRAFT_CYCLE
    return made[last + 1] - made[last]


@njit_inline
def tokens_made(fleet: FleetArrays, kind: int, steps: int) -> int:
    """Return c(steps), over any number of cycles."""
    made = fleet.drafts.made[kind]
    return steps // DRAFT_CYCLE * made[DRAFT_CYCLE] + made[steps % DRAFT_CYCLE]


@njit_inline
def summed_tokens(fleet: FleetArrays, kind: int, steps: int) -> int:
    """Return c(0) + ... + c(steps - 1), over any number of cycles."""
    cycles, rest = steps // DRAFT_CYCLE, steps % DRAFT_CYCLE
    summed, tokens = fleet.drafts.summed[kind], fleet.drafts.made[kind, DRAFT_CYCLE]
    whole = cycles * summed[DRAFT_CYCLE] + DRAFT_CYCLE * tokens * (cycles * (cycles - 1) // 2)
    return whole + summed[rest] + rest * cycles * tokens


@njit_inline
def draft_blocks(fleet: FleetArrays, slot: int, cached: int, surplus: int) -> int:
    """Return the KV blocks that a decoding request has beyond those of its `cached` tokens.

    `surplus`: tokens that its last step made beyond the end of its answer.
    """
    drafts = fleet.drafts.tokens[fleet.slot_kind[slot]]
    return kv_blocks(fleet, slot, cached + surplus + drafts) - kv_blocks(fleet, slot, cached)
