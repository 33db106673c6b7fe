"""What a replay reads and what it changes: named arrays, with shape, type and unit of each.

R requests, N instance slots, L llms, G regions, P GPU types, T tiers, B requests in the largest batch. A
kind (J of them) is a deployment: an llm on so many GPUs of a type, one row of latency, memory and price. A
pool (E of them) is a row of like instances: one kind in one region, in one role. All pools of an llm in a
region are an endpoint (L*G of them, llm*G + region). Slots `slots[e]` to `slots[e+1]-1` belong to pool e.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from models.latency import LatencyTables
from models.replay.by_address import by_address

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

# NumPy's integers, because Numba compiles a function anew for each literal that it is called with.
NOBODY: Any = np.int64(-1)
NEVER = np.inf

# The life of an instance. GPU time is counted by these, less GONE.
GONE, SERVING, BOOTING, DRAINING, DONATED = np.arange(5)
STATES = ("serving", "booting", "draining", "donated")

# What a pool's instances do for a request: all of it, its prompt, or its answer.
WHOLE, PREFILL_ONLY, DECODE_ONLY = np.arange(3)
ROLES = ("whole", "prefill", "decode")

# What an instance is doing between two of its events.
IDLE, PREFILL, DECODE = range(3)

# Fields of State.clock (float64) and State.counts (int64): scalars that change live in arrays.
NOW, MONITOR, HOUR, SINCE, BEFORE, BALANCE = range(6)
MOVED_QUEUED, MOVED_LIVE, GIVEN_UP = range(3)  # columns of State.moved
ARRIVED, ENDED, ADMITTED, RUNNING, EVENTS, FAILED = range(6)
IDLING, CACHED, LOST, MOVING, REUSED, STALE = range(6, 12)


NO_LEGS: Any = (np.zeros(0, np.int32), np.zeros(0, np.int8), np.zeros(0, np.float32))
NO_LEVELS: Any = np.zeros(0, np.int16)
NO_PREFIXES: Any = (np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64))


@by_address
class Trace(NamedTuple):
    """The requests, sorted by arrival; ties in this order.

    A request may be a chain of legs, one row each, of which the first arrives; the others stand behind it
    with the same arrival, and each begins when the one before it has ended with a score that is too low.
    Where nobody has a second leg the last three columns are empty.
    """

    arrival_s: Floats  # (R,)
    region: npt.NDArray[np.int16]  # (R,) origin
    llm: npt.NDArray[np.int16]  # (R,)
    tier: npt.NDArray[np.int16]  # (R,) position in the catalogue's tiers
    input_tokens: npt.NDArray[np.int32]  # (R,)
    output_tokens: npt.NDArray[np.int32]  # (R,)
    then: npt.NDArray[np.int32] = NO_LEGS[0]  # (R,) row of the next leg; NOBODY: this is the last
    leg: npt.NDArray[np.int8] = NO_LEGS[1]  # (R,) 0 is the first
    score: npt.NDArray[np.float32] = NO_LEGS[2]  # (R,) what the judge says of the answer
    level: npt.NDArray[np.int16] = NO_LEVELS  # (R,) of priority, 0 the highest; empty: all are of level 0
    lane: npt.NDArray[np.int16] = NO_LEVELS  # (R,) of its instance, where it waits; set when it is fed
    # what prompts share; empty where the fleet's prefix does not need it
    cached_tokens: npt.NDArray[np.int32] = NO_PREFIXES[0]  # (R,) of the prompt, found in a cache
    first_hash: Ints = NO_PREFIXES[1]  # (R+1,) the prompt's blocks are hashes[first_hash[r]:first_hash[r+1]]
    hashes: Ints = NO_PREFIXES[2]  # (blocks of all prompts,) each of a block and all before it; below 2^31


@by_address
class Fleet(NamedTuple):
    """What does not change while a replay runs."""

    pools_of: Ints  # (L*G, W) pools of each endpoint, in the order in which they are asked; NOBODY ends a row
    llm: Ints  # (E,) what each pool serves
    region: Ints  # (E,) where it stands
    kind: Ints  # (E,) on what
    takes: Bools  # (E, T) the tiers whose requests it takes
    role: Ints  # (E,) WHOLE, PREFILL_ONLY or DECODE_ONLY
    then: Ints  # (E,) the pool that a request goes on to with its first token; NOBODY: it stays
    hands_over: bool  # whether some pool does, or requests are judged between two legs
    team: Ints  # (E,) instances of the pool in a team with some of the other that it hands on to; 0: no teams
    weight: Floats  # (E,) of a pool, where requests are spread by weight
    by_freeness: bool  # instances stand in line by their freeness, else by their load
    tokens_per_s: Floats  # (E,) of prompts, that an instance sustains within its targets; inf: not known
    longest: Ints  # (E,) tokens of the largest request that it can hold
    roomiest: Ints  # (L,) the same of the roomiest pool of each llm
    share: Floats  # (E,) of its endpoint's instances at the start
    slots: Ints  # (E+1,) first slot of each pool
    pool: Ints  # (N,) pool of each slot
    slot_kind: Ints  # (N,) kind of each slot
    kv_capacity: Ints  # (J,) KV tokens that fit beside the weights, in whole blocks
    kv_block_tokens: int  # memory is held in blocks of so many tokens
    link_token_s: Floats  # (J,) seconds in which an instance's link carries one token's KV cache
    link_layers: Ints  # (J,) parts in which a prompt's cache is sent while the rest is computed; 1: in bulk
    gpu: Ints  # (J,) GPU type of an instance
    gpus: Ints  # (J,) GPUs of an instance
    cap_gpus: Ints  # (G, P) GPUs that the region may hold
    instances_at_start: Ints  # (E,) those that do not serve at the start are donated
    min_instances: Ints  # (E,)
    is_interactive: Bools  # (T,) the other tiers' requests are what the queue manager may hold
    holds: Bools  # (L,) it does, since some instances of the llm serve both sorts
    batching: Ints  # (J,) position in models.world.mechanisms.BATCHINGS
    max_batch: Ints  # (J,) requests in a batch
    max_prefill_tokens: Ints  # (J,) prompt tokens in a step
    is_async: Bools  # (J,) the engine composes a step while the one before it runs (queue.py)
    prefix: int  # position in models.world.mechanisms.PREFIXES
    prefix_block_tokens: int  # of a block that the trace has a hash of; in whole KV blocks
    preference: Ints  # (G, G) regions that may serve a region's requests, best first; NOBODY ends a row
    network_s: Floats  # (G, G) added when a request of the first is served in the second; the median
    network_factor: Floats  # (W,) draws of it, in that delay; a request's by the microsecond it arrives in
    boot_cold_s: Floats  # (E,)
    boot_spot_s: Floats  # (D,) draws, used in turn by each pool
    boot_factor: Floats  # (J,) on these
    donate_s: float  # in which an instance that has finished its work is donated
    latency: LatencyTables  # rows are kinds


@by_address
class Rules(NamedTuple):
    """Thresholds, clocks and codes of the policies."""

    scaling: int  # position in models.world.mechanisms.SCALINGS
    signal: int  # position in models.world.mechanisms.SIGNALS
    routing: int  # position in models.world.mechanisms.ROUTINGS
    order: int  # position in models.world.mechanisms.ORDERS
    spread: int  # position in models.world.mechanisms.SPREADS
    headroom_share: Floats  # (K,) of its memory that an instance keeps free for a level that is there
    is_adaptive: bool  # it changes with what the level meets (freeness.py)
    counts_above: bool  # for a request only the headroom of levels above its own counts
    opportunism: int  # position in models.world.mechanisms.OPPORTUNISMS
    keep_weight: float  # of tokens left at an instance that prefills, against those at one that decodes
    holds_back: bool  # requests wait in a central queue (holdback.py)
    ceiling_share: Floats  # (K,) of a pool's saturation, below which a level may leave that queue
    demand: int  # position in models.world.mechanisms.DEMANDS
    promote_s: float  # a request that has waited so long goes one lane up; inf: never
    balance_s: float  # between two looks of the balancer; inf: it never looks
    gap_blocks: float  # of freeness, between the two of a pair at least
    from_blocks: float  # of freeness, that a source has at most
    is_guarded: bool  # nobody moves where the other one would be less free than the source is
    lowest_first: bool  # of those that wait the lowest lane moves first, else the highest
    freeness_out: float  # of the mean, below which a pool grows
    freeness_in: float  # above which it shrinks
    go_on_below: Floats  # (L,) at first: an answer of this llm with a lower score is followed by the next leg
    gears_by: int  # position in models.world.mechanisms.GEARS_BY
    gear_llm: Ints  # (L,) at whose requests it looks to choose the threshold of this llm; NOBODY: it stays
    gear_from: Floats  # (L, K) rising; the last of K gears that is not above what it sees holds
    gear_below: Floats  # (L, K) the threshold then
    judge_s: Floats  # (L,) seconds that judging an answer takes
    allowance_s: Floats  # (T,) from arrival to when the first token is due (where none is: the end)
    urgency: Ints  # (T,) 0 for the interactive tier with the shortest allowance; others with the last of them
    tau_p_s: float  # DPA: urgent when less than this is left
    tau_n_s: float  # DPA: severely expired when later than this
    route_utilisation_share: float
    scale_out_share: float
    scale_in_share: float
    cooldown_s: float
    monitor_s: float
    niw_pull_one_share: float
    niw_pull_two_share: float
    niw_priority_age_s: float
    surge_ratio: float
    slump_ratio: float
    pressure_share: float  # Chiron's theta
    catch_up_s: float  # in which what waits is to be worked off
    reflex_share: float  # of what the instances sustain, above which a reflex passes its plan
    correction_s: float  # LT-UA: from this many seconds into the hour
    last_copy_tokens: int  # a live move is in its last copy when no more than this is left
    max_copies: int  # or after so many copies
    move_s: float  # seconds from the end of the last copy until the request has landed
    failure_s: Floats  # (F,) when an instance dies, sorted
    failure_slot: Ints  # (F,) which, if it serves then
    steps_per_event: int  # 1 plays every decode step (the check on leaping); ALL_STEPS leaps


ALL_STEPS = 1 << 60
REQUEST_BITS = (1 << 32) - 1  # of a State.finish_key


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
    cache: npt.NDArray[np.int32]  # (N, blocks, 5) of prompts, held or not; columns in prefix.py; (N, 0, 5)
    bucket: npt.NDArray[np.int32]  # (N, power of two) first of each chain of these; (N, 0)
    idle: npt.NDArray[np.int32]  # (N, 4) those that nobody holds, and the free rows; columns in prefix.py
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
