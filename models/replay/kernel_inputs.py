"""The inputs of a replay: requests, fleet and rules, as named arrays with shape, type and unit.

R requests, N slots, L llms, G regions, P GPU types, T tiers, K priority levels. A kind (J of them) is a
deployment: an llm on a number of GPUs of one type, one row of latency, memory and price. A pool (E of them)
is a group of equal instances: one kind, one region, one role. All pools of an llm in a region are an endpoint
(L*G of them, index llm*G + region). Slots `slots[e]` to `slots[e+1]-1` are the instances of pool e. Behind
the slots of all instances are those of their further data-parallel ranks (engine/ranks.py).
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Bools, Floats, Ints
from fleetcast.models.latency import LatencyTables
from fleetcast.models.replay.by_address import pass_by_address

# NumPy integers, because Numba compiles a function again for each literal that it is called with.
NO_INDEX: Any = np.int64(-1)
NEVER = np.inf
ALL_STEPS = 1 << 60  # Rules.steps_per_event without a limit
ALL_TOKENS = 1 << 60  # of a prompt in a step without a limit
ALL_TURNS = 1 << 60  # no turn of admission is later
DRAFT_CYCLE = 1024  # steps after which the numbers of accepted draft tokens repeat

NO_LEGS: Any = (np.zeros(0, np.int32), np.zeros(0, np.int8), np.zeros(0, np.float32))
NO_LEVELS: Any = np.zeros(0, np.int16)
NO_PREFIXES: Any = (np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64))


@pass_by_address
class TraceArrays(NamedTuple):
    """The requests, sorted by arrival; the order of rows breaks ties.

    A request may be a chain of legs (stages), one row each. The first leg arrives. The others follow it in
    the table with the same arrival, and each begins when the leg before it ended with a score that is too
    low. Where no request has a second leg, `then`, `leg` and `score` are empty.
    """

    arrival_s: Floats  # (R,) seconds
    region: npt.NDArray[np.int16]  # (R,) region that the request comes from
    llm: npt.NDArray[np.int16]  # (R,)
    tier: npt.NDArray[np.int16]  # (R,) index in the catalogue's tiers
    input_tokens: npt.NDArray[np.int32]  # (R,)
    output_tokens: npt.NDArray[np.int32]  # (R,)
    then: npt.NDArray[np.int32] = NO_LEGS[0]  # (R,) row of the next leg; NO_INDEX: this is the last
    leg: npt.NDArray[np.int8] = NO_LEGS[1]  # (R,) 0 is the first
    score: npt.NDArray[np.float32] = NO_LEGS[2]  # (R,) the judge's score of the answer
    level: npt.NDArray[np.int16] = NO_LEVELS  # (R,) priority, 0 the highest; empty: all have level 0
    lane: npt.NDArray[np.int16] = NO_LEVELS  # (R,) queue of its instance; set when the trace is appended
    # prompt caching; empty where the fleet's prefix mode does not need it
    cached_tokens: npt.NDArray[np.int32] = NO_PREFIXES[0]  # (R,) prompt tokens found in a cache
    first_hash: Ints = NO_PREFIXES[
        1
    ]  # (R+1,) blocks of prompt and answer: hashes[first_hash[r]:first_hash[r+1]]
    hashes: Ints = NO_PREFIXES[2]  # (blocks of all requests,) hash of a block and all before it; below 2^31


class DraftTables(NamedTuple):
    """Speculative decoding: tokens of a decoding request, by steps of a cycle (engine/draft_tokens.py)."""

    tokens: Ints  # (J,) draft tokens that a step computes of each decoding request; 0: no speculation
    made: Ints  # (J, DRAFT_CYCLE + 1) tokens made by the first n steps
    summed: Ints  # (J, DRAFT_CYCLE + 1) sum of `made` before each of them
    steps: Ints  # (J, M) fewest steps of the cycle that make so many tokens
    draft_s: Floats  # (J,) seconds of drafting in a step


@pass_by_address
class FleetArrays(NamedTuple):
    """The fleet: what does not change while a replay runs."""

    pools_of: Ints  # (L*G, W) pools of each endpoint, in the order of routing; NO_INDEX ends a row
    llm: Ints  # (E,) llm that the pool serves
    region: Ints  # (E,)
    kind: Ints  # (E,)
    takes: Bools  # (E, T) whether the pool takes requests of the tier
    role: Ints  # (E,) Role
    then: Ints  # (E,) pool that decodes what this pool prefills; NO_INDEX: the same one
    has_transfers: bool  # some pool sends requests on, or requests move, or are judged between two legs
    team: Ints  # (E,) paired pools: instances of this pool in one prefill + decode group; 0: not paired
    weight: Floats  # (E,) share of requests, where requests are spread by weight
    by_freeness: bool  # instances are ordered by freeness, else by load
    tokens_per_s: Floats  # (E,) prompt tokens/s that an instance sustains within its SLO; inf: not known
    max_request_tokens: Ints  # (E,) tokens of the largest request that an instance can hold
    llm_max_request_tokens: Ints  # (L,) the largest of these over the llm's pools
    share: Floats  # (E,) fraction of its endpoint's instances at the start
    slots: Ints  # (E+1,) first slot of each pool
    pool: Ints  # (N,) pool of each slot
    slot_kind: Ints  # (N,) kind of each slot
    ranks: Ints  # (J,) data-parallel ranks of an instance
    instance_slot: Ints  # (N,) slot of the instance that the slot belongs to: of its first rank
    second_rank: Ints  # (N,) slot of the second rank of an instance; those of the others follow it
    kv_capacity: Ints  # (J,) KV tokens that fit in memory with the weights, in whole blocks; of one rank
    kv_block_tokens: int  # tokens of a KV block
    request_blocks: Ints  # (J,) KV blocks that a request takes whatever its length
    link_token_s: Floats  # (J,) seconds in which an instance's link carries one token's KV cache
    link_layers: Ints  # (J,) parts in which a prompt's cache is sent during prefill; 1: in bulk, after it
    gpu: Ints  # (J,) GPU type of an instance
    gpus: Ints  # (J,) GPUs of an instance
    cap_gpus: Ints  # (G, P) most GPUs in the region
    instances_at_start: Ints  # (E,) those of them that do not serve at the start are donated
    min_instances: Ints  # (E,)
    is_interactive: Bools  # (T,) the queue manager may defer requests of the other tiers
    defers_batch_tier: Bools  # (L,) it does: some instances of the llm serve both sorts of tiers
    batching: Ints  # (J,) Batching
    max_batch: Ints  # (J,) requests in a batch
    max_prefill_tokens: Ints  # (J,) prompt tokens in a step
    long_prefill_token_threshold: Ints  # (J,) most prompt tokens of one request in a step; 0: no limit
    watermark_blocks: Ints  # (J,) KV blocks that an admission leaves free at a busy instance
    is_async: Bools  # (J,) the engine composes a step while the one before it runs (queue.py)
    prefix: int  # Prefix
    prefix_block_tokens: int  # tokens of a hashed block of the trace; a multiple of kv_block_tokens
    preference: Ints  # (G, G) regions that may serve a region's requests, best first; NO_INDEX ends a row
    network_s: Floats  # (G, G) median seconds added when a request of the first is served in the second
    network_factor: Floats  # (W,) samples of delay / median; the microsecond of arrival picks one
    boot_cold_s: Floats  # (E,) seconds of a cold start
    boot_spot_s: Floats  # (D,) samples of seconds to reclaim a donated instance, used in turn by each pool
    boot_factor: Floats  # (J,) times boot_spot_s
    donate_s: float  # seconds from the end of an instance's work until it is donated
    latency: LatencyTables  # rows are kinds; decode_s: with drafts, and the tokens that check them
    drafts: DraftTables  # rows are kinds


@pass_by_address
class Rules(NamedTuple):
    """The rules of a policy: thresholds, intervals and codes."""

    scaling: int  # Scaling
    signal: int  # Signal
    routing: int  # Routing
    order: int  # QueueOrder
    spread: int  # PoolSpread
    headroom_share: Floats  # (K,) memory that an instance keeps free while a request of the level is there
    opportunism: int  # Opportunism
    opportunism_weight: float  # weight of tokens left at a prefill instance; those at a decode one weigh 1
    uses_central_queue: bool  # requests wait in a central queue (holdback.py)
    ceiling_share: Floats  # (K,) saturation of a pool below which a level may leave that queue
    demand: int  # QueueDemand
    promote_s: float  # a request counts as one level higher for each such wait; inf: never
    balance_s: float  # interval of the balancer; inf: it never runs
    gap_blocks: float  # least difference of freeness in a pair, KV blocks
    from_blocks: float  # most freeness of a source, KV blocks
    is_guarded: bool  # no request moves where the receiver would be less free than the source is
    lowest_first: bool  # the lowest lane moves first, else the highest
    freeness_out: float  # mean freeness below which a pool grows, KV blocks
    freeness_in: float  # mean freeness above which it shrinks, KV blocks
    go_on_below: Floats  # (L,) first threshold: an answer with a lower score goes on to the next leg
    gears_by: int  # GearTrigger
    gear_llm: Ints  # (L,) llm whose rate or load chooses the threshold of this one; NO_INDEX: it is fixed
    gear_from: Floats  # (L, K) rising; the last of K gears that is not above the observed value is in force
    gear_below: Floats  # (L, K) the threshold then
    judge_s: Floats  # (L,) seconds that judging an answer takes
    allowance_s: Floats  # (T,) seconds from arrival until the first token is due (the end, if it has no TTFT)
    urgency: Ints  # (T,) 0 for the interactive tier with the shortest allowance; batch tiers have the last
    tau_p_s: float  # DPA: urgent when less time than this is left
    tau_n_s: float  # DPA: severely expired when later than this
    route_utilisation_share: float
    scale_out_share: float
    scale_in_share: float
    cooldown_s: float
    monitor_s: float
    batch_pull: int  # BatchPull
    niw_pull_one_share: float
    niw_pull_two_share: float
    pull_step_s: float  # GAPS: longest decode step into which a deferred request is pulled; inf: no limit
    niw_priority_age_s: float
    surge_ratio: float
    slump_ratio: float
    pressure_share: float  # Chiron's theta
    catch_up_s: float  # seconds in which the backlog is to be worked off
    reactive_share: float  # work / capacity above which the reactive correction goes beyond the plan
    correction_s: float  # LT-UA corrects from this many seconds into the control interval
    last_copy_tokens: int  # a live move makes its last copy when no more than this is left
    max_copies: int  # or after this many copies
    move_s: float  # seconds from the end of the last copy until the request can join the other batch
    failure_s: Floats  # (F,) when an instance fails, sorted
    failure_slot: Ints  # (F,) which one, if it serves then
    steps_per_event: int  # 1 plays every decode step (to check the closed form); ALL_STEPS: no limit
