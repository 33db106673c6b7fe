"""What a replay changes: named arrays, with shape, type and unit of each.

Sizes are those of inputs.py, and B requests in the largest batch.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.replay.by_address import by_address
from fleetcast.models.replay.inputs import Bools, Floats, Ints

# The life of an instance. GPU time is counted by these, less GONE.
GONE, SERVING, BOOTING, DRAINING, DONATED = np.arange(5)
STATES = ("serving", "booting", "draining", "donated")

# What an instance is doing between two of its events.
IDLE, PREFILL, DECODE = range(3)

# Fields of State.clock (float64) and State.counts (int64): scalars that change live in arrays.
NOW, MONITOR, HOUR, SINCE, BEFORE, BALANCE = range(6)
MOVED_QUEUED, MOVED_LIVE, GIVEN_UP = range(3)  # columns of State.moved
ARRIVED, ENDED, ADMITTED, RUNNING, EVENTS, FAILED = range(6)
IDLING, CACHED, LOST, MOVING, REUSED, STALE = range(6, 12)
REQUEST_BITS = (1 << 32) - 1  # of State.finish_key


@by_address
class State(NamedTuple):
    """Everything that changes. Saving these arrays saves the replay."""

    # clock: NOW, MONITOR: next monitor tick, HOUR: start of the hour, SINCE when seen_tokens counts, BEFORE
    # when seen_before began, BALANCE: next tick of the balancer
    clock: Floats  # (6,)
    # counts: ARRIVED, ENDED and ADMITTED requests, the last clock RUNNING at this instant, EVENTS, FAILED:
    # failures passed, IDLING: events since the clock last moved, tokens CACHED by prefill and decode, tokens
    # LOST by preemption, which are computed again, requests MOVING between two instances, tokens REUSED,
    # STALE instances
    counts: Ints  # (12,)
    # requests
    next: npt.NDArray[np.int32]  # (R,) the one behind it in whatever list it stands in
    generated: npt.NDArray[np.int32]  # (R,) output tokens made before the last preemption
    admitted: Ints  # (R,) turn of its latest admission
    served_by: npt.NDArray[np.int32]  # (R,) slot
    preemptions: npt.NDArray[np.int32]  # (R,)
    refused: Bools  # (R,) larger than the memory of any instance
    spared: Bools  # (R,) a leg that is not needed, since the answer before it was good enough
    dispatched_s: Floats  # (R,) when the instance that made its first token got it; NaN until then
    queued_s: Floats  # (R,) when it came into the queue of an async engine; of length 0 where there is none
    admitted_s: Floats  # (R,) when its first prefill began or was queued; NaN until then
    first_token_s: Floats  # (R,) NaN until then; without network
    finish_s: Floats  # (R,) NaN until then; without network
    # what prompts share; of length 0 where the fleet reuses nothing
    reused: npt.NDArray[np.int32]  # (R,) tokens of the prompt that were cached at its latest admission
    saved: npt.NDArray[np.int32]  # (R,) those that were when it was sent to its instance: less to do there
    held_hashes: npt.NDArray[np.int32]  # (R,) hashed blocks of its prompt that it holds at its instance
    # requests that are handed over; of length 0 where no pool hands over
    carried: npt.NDArray[np.int32]  # (R,) tokens of the cache that comes along; 0: none
    holder: npt.NDArray[np.int32]  # (R,) slot that it is sent from; NOBODY
    held: npt.NDArray[np.int32]  # (R,) tokens of it that fill that slot's memory until it has come
    stays: Bools  # (R,) all of it is its instance's to process, whatever that one's role
    copying_to: npt.NDArray[np.int32]  # (R,) slot that a request which decodes is being moved to; NOBODY
    copied: npt.NDArray[np.int32]  # (R,) tokens of its cache that are there, or on their way
    stage: npt.NDArray[np.int8]  # (R,) copies made, or LEAVING
    ready_s: Floats  # (R,) when it has come
    sent_from: npt.NDArray[np.int32]  # (R,) slot that had it before the one that has it; NOBODY
    sent_s: Floats  # (R,) when it left that one; NaN until then, like the next two
    came_s: Floats  # (R,) when its cache had come
    joined_s: Floats  # (R,) when it entered the batch with that
    moving: Ints  # (R,) requests on their way, a binary heap by (ready_s, request)
    moving_place: Ints  # (R,) where a request stands in it
    # instances
    status: Ints  # (N,) GONE ... DONATED
    since_s: Floats  # (N,) GPU time is accounted up to here
    leaves_s: Floats  # (N,) when it is donated, once it has finished its work; NEVER until then
    event_s: Floats  # (N+1,) its next event, NEVER if none; the last clock is that of the hand-overs
    heap: Ints  # (N+1,) clocks, a binary heap by (event_s, clock)
    place: Ints  # (N+1,) where a clock stands in the heap
    phase: Ints  # (N,) IDLE, PREFILL, DECODE
    base_s: Floats  # (N,) when its decode stretch, or its step over prompts, began
    step_s: Floats  # (N,) when the step began that ended last
    steps: Ints  # (N,) decode steps made before base_s
    stretch: Ints  # (N,) decode steps that it will have made at event_s
    batch: Ints  # (N,) requests in the decode batch
    kv: Ints  # (N,) KV tokens of the decode batch at base_s: what a decode step reads
    blocks: Ints  # (N,) KV blocks held at base_s
    crossing: Ints  # (N, block tokens) the decode batch by (cached tokens - steps) mod block tokens
    brimful: Ints  # (N,) admitted requests with pending prompts that fill their blocks exactly
    kv_seen: Ints  # (N,) tokens of the blocks as of its last batch change: what the utilisation counts
    finish_key: Ints  # (N, B) heap of (finish step << 32 | request) of the decode batch
    joining_head: Ints  # (N,) admitted requests with pending prompts, linked in turn of admission
    joining_tail: Ints  # (N,)
    joining: Ints  # (N,) how many
    pending: Ints  # (N,) prompt tokens not yet prefilled
    prefilled: Ints  # (N,) tokens of the first one's prompt that are
    chunk: Ints  # (N,) prompt tokens in the step under way
    reserved: Ints  # (N,) KV blocks of the admitted requests at their longest (Orca)
    leavers: Ints  # (N,) requests that leave at its next step boundary
    sending: Ints  # (N,) caches that are being sent from here and still fill its memory
    coming: Ints  # (N,) requests on their way here
    giving: Ints  # (N,) requests that are copied from here, and decode here still
    getting: Ints  # (N,) requests that are copied to here, and decode there still
    is_stale: Bools  # (N+1,) something of it has changed since the two below were looked up
    stale: Ints  # (N,) those, in turn
    highest: Floats  # (N,) its freeness until something changes, at most; -inf: it takes nobody
    lowest: Floats  # (N,) at least; inf: nobody goes
    looked_up_s: Floats  # (N,) when the two above were
    freeness: Floats  # (N,) as of this tick; -inf of one that drains; NaN: in no pair, or in one already
    present: Ints  # (N, K) requests of each level, assigned and not finished
    service_s: Floats  # (N,) from dispatch to end, smoothed (INFaaS); 0: nobody has ended here
    waiting_blocks: Ints  # (N,) KV blocks that those who wait would take
    cache: npt.NDArray[np.int32]  # (N, blocks, 5) of prompts, held or not (block_cache.py); or (N, 0, 5)
    bucket: npt.NDArray[np.int32]  # (N, power of two) first of each chain of these; (N, 0)
    idle: npt.NDArray[np.int32]  # (N, 4) those that nobody holds, and the free rows (block_cache.py)
    out_free_s: Floats  # (N,) when its link has sent all that it was given
    in_free_s: Floats  # (N,) when its link has received all
    look: Bools  # (N,) whether its queue is worth a look at the next step boundary
    head: Ints  # (N, lanes + 1) waiting requests, a linked list per lane (see queue.py)
    tail: Ints  # (N, lanes + 1)
    interactive: Ints  # (N,) interactive requests assigned and not finished
    load: Ints  # (N,) input + output tokens of the requests assigned and not finished
    is_changed: Bools  # (N,) its freeness may have risen since it got its place in line
    next_changed: Ints  # (N,) of its pool; NOBODY ends the list
    queue: Floats  # (N,) what a serving instance stands in line by; NEVER: it does not serve
    shortest: Ints  # (N,) slots, for each pool a binary heap of its own by (queue, slot)
    shortest_place: Ints  # (N,) where a slot stands in its pool's
    # pools
    instances: Ints  # (E, 5) instances by status
    busy: Ints  # (E,) serving instances that have interactive requests
    booted: Ints  # (E,) which draw of boot_spot_s is the next
    used_gpus: Ints  # (G, P) GPUs of all instances that are not GONE
    kv_used: Ints  # (E,) kv_seen over the serving instances
    kv_room: Ints  # (E,) KV capacity over the serving instances
    kv_since_s: Floats  # (E,) the two areas are integrated up to here
    kv_used_area: Floats  # (E,) token-seconds
    kv_room_area: Floats  # (E,) token-seconds
    came_tokens: Ints  # (E,) of interactive prompts, sent here since the last monitor tick
    rate_tokens_per_s: Floats  # (E,) the same per second, smoothed
    waiting_tokens: Ints  # (E,) of interactive prompts that are here and have no token yet
    past_plan: Ints  # (E,) instances that the reflex wants, if more than the plan
    cooldown_s: Floats  # (E,) no scaling before this time
    turn: Ints  # (E,) slot that was given a request last (round robin)
    target: Ints  # (E,) instances that the plan wants, or Kubernetes' rule
    credit: Floats  # (E,) what a pool is owed where requests are spread by weight
    highest_wish: Ints  # (E,) at most wanted by it since it began to want fewer; NOBODY: it does not
    first_changed: Ints  # (E,) instances whose freeness may have risen
    least_free: Floats  # (E,) the lowest of the bounds of freeness
    most_free: Floats  # (E,) the highest
    instance_s: Floats  # (E, 4) instance-seconds in STATES
    headroom_share: Floats  # (E, K) of its memory that an instance keeps free for a level that is there
    late: Ints  # (E, K) first tokens of the level after they were due, since the last adaption
    moved: Ints  # (E, 3) moves from here: MOVED_QUEUED and MOVED_LIVE by the balancer, live ones GIVEN_UP
    # endpoints
    forecast_tokens_per_s: Floats  # (L*G,) interactive input tokens of this hour
    seen_tokens: Ints  # (L*G,) interactive input tokens that arrived from the region in the last minutes
    seen_before: Ints  # (L*G,) in those before them
    # llms
    go_on_below: Floats  # (L,) thresholds now: those of the rules, of a row of the plan, or of a gear
    came: Ints  # (L,) requests and later legs that came since the last monitor tick
    came_per_s: Floats  # (L,) the same per second, smoothed
    # held requests, per llm
    manager_head: Ints  # (L,) those at the queue manager
    manager_tail: Ints  # (L,)
    manager_output_tokens: Ints  # (L,) of these
    manager_input_tokens: Ints  # (L,) of these
    kept_head: Ints  # (L*K,) those of the central queue, by level
    kept_tail: Ints  # (L*K,)
    stranded_head: Ints  # (L,) those that found no serving instance anywhere
    stranded_tail: Ints  # (L,)
