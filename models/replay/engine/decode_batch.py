"""The decode batch of an instance: requests enter it with their cache, and leave it.

Its requests are a min-heap by the token at which each ends (State.finish_key), so that a stretch of steps
ends with the first of them.
"""

from fleetcast.models.replay.compiled import njit_call, njit_inline
from fleetcast.models.replay.engine.draft_tokens import draft_blocks
from fleetcast.models.replay.engine.kv_memory import note_block_crossing, prompt_tokens
from fleetcast.models.replay.event_queue import drop_key, push_key
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, TraceArrays
from fleetcast.models.replay.state import REQUEST_BITS, State


@njit_inline
def start_decoding(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int) -> None:
    """Add a request whose cache is here to the decode batch; its latest token is not cached yet."""
    instance = state.instance[slot]
    left = trace.output_tokens[request] - state.request[request].generated
    cached = prompt_tokens(trace, state, request) - 1
    instance.kv += cached
    instance.blocks += draft_blocks(fleet, slot, cached, 0)
    note_block_crossing(fleet, state, slot, cached, 1)
    push_key(state.finish_key[slot], instance.batch, (instance.steps + left) << 32 | request)
    instance.batch += 1


@njit_call
def take_from_batch(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, at: int) -> int:
    """Take the request at position `at` of the heap out of the decode batch; return it.

    It keeps the blocks of its cache, and the tokens that it has generated are recorded.
    """
    instance, keys = state.instance[slot], state.finish_key[slot]
    request = keys[at] & REQUEST_BITS
    state.request[request].generated = trace.output_tokens[request] - ((keys[at] >> 32) - instance.steps)
    drop_key(keys, instance.batch, at)
    cached = prompt_tokens(trace, state, request) - 1  # the last token was never cached
    note_block_crossing(fleet, state, slot, cached, -1)
    instance.blocks -= draft_blocks(fleet, slot, cached, 0)
    instance.kv -= cached
    instance.batch -= 1
    return request


@njit_call
def place_in_batch(state: State, slot: int, request: int) -> int:
    """Return the request's position in the heap; NO_INDEX if it does not decode there."""
    for at in range(state.instance[slot].batch):
        if state.finish_key[slot, at] & REQUEST_BITS == request:
            return at
    return NO_INDEX


@njit_inline
def cached_tokens(trace: TraceArrays, state: State, slot: int, at: int) -> int:
    """Return the cached tokens of the request at position `at`, at the start of the step or stretch."""
    request = state.finish_key[slot, at] & REQUEST_BITS
    left = (state.finish_key[slot, at] >> 32) - state.instance[slot].steps
    return trace.input_tokens[request] + trace.output_tokens[request] - left - 1
