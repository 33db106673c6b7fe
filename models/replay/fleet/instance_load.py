"""Load of instances: assign requests, and keep the instances of a pool ordered by load.

models/world/pool_rows.py makes the pools of a fleet.
"""

from fleetcast.models.replay.compiled import njit_inline
from fleetcast.models.replay.engine.kv_memory import is_ranked_by_freeness, note_freeness_change
from fleetcast.models.replay.event_queue import sift_line
from fleetcast.models.replay.kernel_inputs import NEVER, FleetArrays, TraceArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Prefix, Role, Status


@njit_inline
def endpoint_index(fleet: FleetArrays, llm: int, region: int) -> int:
    """Return the index of the endpoint, which is all pools of an llm in a region."""
    return llm * fleet.preference.shape[0] + region


@njit_inline
def is_batch_pool(fleet: FleetArrays, pool: int) -> bool:
    """Return whether the pool takes requests, and none of an interactive tier."""
    takes_others = False
    for tier in range(fleet.is_interactive.size):
        if fleet.takes[pool, tier]:
            if fleet.is_interactive[tier]:
                return False
            takes_others = True
    return takes_others


@njit_inline
def work_tokens(trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int) -> int:
    """Return the tokens of the request that the slot processes: the prompt, the answer, or both.

    The role decides, unless the slot runs both phases. Prompt tokens cached at dispatch do not count.
    """
    prompt, answer = trace.input_tokens[request], trace.output_tokens[request]
    if fleet.prefix != Prefix.NONE:
        prompt -= state.sharing[request].hit_tokens_at_dispatch
    is_by_role = fleet.has_transfers and not state.transfer[request].runs_both_phases
    role = fleet.role[fleet.pool[slot]] if is_by_role else Role.WHOLE
    if role == Role.PREFILL:
        return prompt
    return answer if role == Role.DECODE else prompt + answer


@njit_inline
def assign_request(
    trace: TraceArrays, fleet: FleetArrays, state: State, slot: int, request: int, change: int
) -> None:
    """Add the request to the load of the slot's instance (change = 1), or remove it (-1)."""
    state.requests_by_level[slot, trace.level[request]] += change
    slot = fleet.instance_slot[slot]
    instance = state.instance[slot]
    instance.load += change * work_tokens(trace, fleet, state, slot, request)
    if state.request[request].generated == 0:
        instance.waiting_tokens += change * trace.input_tokens[request]
    if fleet.is_interactive[trace.tier[request]]:
        was_busy = int(instance.interactive > 0)
        instance.interactive += change
        if instance.status == Status.SERVING:
            state.pool[fleet.pool[slot]].busy_instances += int(instance.interactive > 0) - was_busy
    update_line_position(fleet, state, slot)


@njit_inline
def update_line_position(fleet: FleetArrays, state: State, slot: int) -> None:
    """Restore the slot's position in its pool by load or freeness; slots that do not serve go last."""
    instance = state.instance[slot]
    pool = fleet.pool[slot]
    note_freeness_change(fleet, state, slot)
    # By freeness, the next dispatch restores its position.
    if is_ranked_by_freeness(fleet, pool) and instance.status == Status.SERVING:
        return
    state.line[slot].sort_key = instance.load if instance.status == Status.SERVING else NEVER
    sift_line(fleet, state, pool, slot)
