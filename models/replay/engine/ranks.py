"""Data-parallel ranks: engines of one instance, which run every step together (vLLM's data_parallel_size).

The experts of a mixture are spread over the GPUs of all ranks, so a pass of one rank needs all of them. Each
rank has a batch, a queue and memory of its own, in a slot of its own. A rank without requests runs along with
an empty batch. Where some rank computes prompts, the step is a prefill step of all ranks. Otherwise all of
them decode, in a stretch up to the first change at any rank.

The profile's seconds P(T) are those of ranks with T tokens each, of which X(T) in the experts. vLLM replays
recorded graphs for passes up to some number of tokens, and then pads all ranks to the largest one: the step
takes as long as that of the slowest rank. Above, no rank is padded, and a step of the ranks r takes

    max(P(T_r) - X(T_r)) + X(mean of T_r)     seconds

A decode step j of the stretch takes a + s*j seconds at a rank, with a = f[B] + g*kv and s = g*B. So the
slowest rank changes at most once for each rank, always to a steeper one, and the seconds of a stretch are a
sum over pieces in closed form.

A request goes to the rank with the least 4 * waiting + running requests, as vLLM's balancer counts them. That
one hears of changes every 100 ms, the replay at once.
"""

from fleetcast.models.replay.compiled import njit_call, njit_inline
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays
from fleetcast.models.replay.state import State

WAITING_WEIGHT = 4  # of vLLM's balancer
GRAPH_TOKENS = 512  # vLLM's largest recorded pass, if twice max_num_seqs is not less


@njit_inline
def rank_slot(fleet: FleetArrays, slot: int, rank: int) -> int:
    """Return the slot of a rank of the instance at `slot`."""
    return slot if rank == 0 else fleet.second_rank[slot] + rank - 1


@njit_inline
def assigned_requests(state: State, slot: int) -> int:
    """Return the number of requests assigned to the slot and not finished."""
    count = 0
    for level in range(state.requests_by_level.shape[1]):
        count += state.requests_by_level[slot, level]
    return count


@njit_inline
def waiting_requests(state: State, slot: int) -> int:
    """Return the number of requests assigned to the slot that are not in its batch."""
    instance = state.instance[slot]
    return assigned_requests(state, slot) - instance.batch - instance.joining - instance.outbound


@njit_call
def choose_rank(fleet: FleetArrays, state: State, slot: int) -> int:
    """Return the slot of the rank of the instance that gets the next request; ties to the first."""
    best, least = NO_INDEX, 0
    for rank in range(fleet.ranks[fleet.slot_kind[slot]]):
        member = rank_slot(fleet, slot, rank)
        waiting = waiting_requests(state, member)
        running = state.instance[member].batch + state.instance[member].joining
        score = WAITING_WEIGHT * waiting + running
        if best == NO_INDEX or score < least:
            best, least = member, score
    return best


@njit_inline
def decode_line(fleet: FleetArrays, state: State, slot: int) -> tuple[float, float]:
    """Return a and s of the rank's decode steps, in seconds; zeros for an empty batch."""
    instance, kind = state.instance[slot], fleet.slot_kind[slot]
    if instance.batch == 0:
        return 0.0, 0.0
    g = fleet.latency.decode_kv_s[kind, instance.batch]
    return fleet.latency.decode_s[kind, instance.batch] + g * instance.kv, g * instance.batch


@njit_call
def slowest_rank(fleet: FleetArrays, state: State, slot: int, step: int) -> int:
    """Return the slot of the slowest rank in this step of the stretch; of equal ones, the steepest."""
    best, longest_s, steepest = NO_INDEX, 0.0, 0.0
    for rank in range(fleet.ranks[fleet.slot_kind[slot]]):
        member = rank_slot(fleet, slot, rank)
        a, s = decode_line(fleet, state, member)
        seconds = a + s * step
        if best == NO_INDEX or seconds > longest_s or (seconds == longest_s and s > steepest):
            best, longest_s, steepest = member, seconds, s
    return best


@njit_call
def steps_of_slowest(fleet: FleetArrays, state: State, slot: int, slowest: int, done: int, steps: int) -> int:
    """Return the first step after `done`, at most `steps`, in which another rank is slower."""
    a, s = decode_line(fleet, state, slowest)
    until = steps
    for rank in range(fleet.ranks[fleet.slot_kind[slot]]):
        other_a, other_s = decode_line(fleet, state, rank_slot(fleet, slot, rank))
        if other_s > s and other_a + other_s * until > a + s * until:
            until = max(done + 1, min(until, int((a - other_a) / (other_s - s)) + 1))
    return until


@njit_call
def ranks_stretch_s(fleet: FleetArrays, state: State, slot: int, steps: int) -> float:
    """Return the seconds of so many decode steps of all ranks of the slot's instance."""
    slot = fleet.instance_slot[slot]
    seconds, done = 0.0, 0
    while done < steps:
        slowest = slowest_rank(fleet, state, slot, done)
        until = steps_of_slowest(fleet, state, slot, slowest, done, steps)
        a, s = decode_line(fleet, state, slowest)
        seconds += (until - done) * a + s * (until * (until - 1) - done * (done - 1)) / 2
        done = until
    return seconds


@njit_call
def ranks_steps_until(fleet: FleetArrays, state: State, slot: int, now: float) -> int:
    """Return the number of steps, at least 1, whose boundary is the first at or after now.

    By bisection: it lies within the stretch.
    """
    instance = state.instance[slot]
    below, steps = 0, instance.stretch
    while steps - below > 1:
        middle = (below + steps) // 2
        if instance.base_s + ranks_stretch_s(fleet, state, slot, middle) < now:
            below = middle
        else:
            steps = middle
    return steps
