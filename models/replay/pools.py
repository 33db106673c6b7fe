"""Pools: which instances of an llm in a region serve which tiers, and which of them has least to do.

unified  one pool for all tiers; non-interactive requests wait at the queue manager (SageServe 4, 6.2)
siloed   one for interactive requests and one for the others, which go to theirs at once (SageServe 4)
chiron   interactive, mixed and batch; what the first cannot take spills into the second (SageServe 7.1)

An endpoint, everywhere in this package, is one pool of one llm in one region.
"""

from models.replay.compiled import compiled
from models.replay.events import settle
from models.replay.state import BATCH, INTERACTIVE, MIXED, NIW, SERVING, Fleet, State, Trace

# The pools of each kind, with their shares of the instances: 16 and 4 of 20 (SageServe 4); 10, 5 and 5 (7.1).
POOLINGS = {
    "unified": ((MIXED, 1.0),),
    "siloed": ((INTERACTIVE, 0.8), (BATCH, 0.2)),
    "chiron": ((INTERACTIVE, 0.5), (MIXED, 0.25), (BATCH, 0.25)),
}
LAST = 1 << 62  # more than any load


@compiled
def llm_of(fleet: Fleet, endpoint: int) -> int:
    """The llm of an endpoint."""
    return endpoint // fleet.preference.shape[0] % fleet.gpus.size


@compiled
def endpoint_of(fleet: Fleet, pool: int, llm: int, region: int) -> int:
    """The endpoint of an llm in a region: its `pool`-th."""
    return (pool * fleet.gpus.size + llm) * fleet.preference.shape[0] + region


@compiled
def kind_of(fleet: Fleet, endpoint: int) -> int:
    """INTERACTIVE, MIXED or BATCH."""
    return fleet.pools[endpoint // (fleet.preference.shape[0] * fleet.gpus.size)]


@compiled
def takes(fleet: Fleet, endpoint: int, tier: int) -> bool:
    """Whether the endpoint serves the tier."""
    return kind_of(fleet, endpoint) != (INTERACTIVE if tier == NIW else BATCH)


@compiled
def is_shared(fleet: Fleet) -> bool:
    """Whether some instances serve both, so that non-interactive requests have to wait for spare memory."""
    for pool in range(fleet.pools.size):  # noqa: SIM110 (compiled code has no any)
        if fleet.pools[pool] == MIXED:
            return True
    return False


@compiled
def assign(trace: Trace, fleet: Fleet, state: State, slot: int, request: int, change: int) -> None:
    """The request is the instance's from now on (change = 1), or no more (-1)."""
    state.load[slot] += change * (trace.input_tokens[request] + trace.output_tokens[request])
    if trace.tier[request] != NIW:
        was_busy = state.interactive[slot] > 0
        state.interactive[slot] += change
        if state.status[slot] == SERVING:
            state.busy[fleet.endpoint[slot]] += (state.interactive[slot] > 0) - was_busy
    stand_in_line(fleet, state, slot)


@compiled
def stand_in_line(fleet: Fleet, state: State, slot: int) -> None:
    """Put the slot where its load belongs among those of its endpoint; those that do not serve go last."""
    state.queue[slot] = state.load[slot] if state.status[slot] == SERVING else LAST
    endpoint = fleet.endpoint[slot]
    first = fleet.slots[endpoint]
    size = fleet.slots[endpoint + 1] - first
    settle(state.queue, state.shortest, state.shortest_place, first, size, slot)
