"""What a replay is given: the requests, the fleet and the rules, as named arrays with shape, type and unit.

R requests, N instance slots, L llms, G regions, P GPU types, T tiers. A kind (J of them) is a deployment:
an llm on so many GPUs of a type, one row of latency, memory and price. A pool (E of them) is a row of like
instances: one kind in one region, in one role. All pools of an llm in a region are an endpoint (L*G of them,
llm*G + region). Slots `slots[e]` to `slots[e+1]-1` belong to pool e.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Bools, Floats, Ints
from fleetcast.models.latency import LatencyTables
from fleetcast.models.replay.by_address import pass_by_address

# NumPy's integers, because Numba compiles a function anew for each literal that it is called with.
NO_INDEX: Any = np.int64(-1)
NEVER = np.inf
ALL_STEPS = 1 << 60  # of Rules.steps_per_event

NO_LEGS: Any = (np.zeros(0, np.int32), np.zeros(0, np.int8), np.zeros(0, np.float32))
NO_LEVELS: Any = np.zeros(0, np.int16)
NO_PREFIXES: Any = (np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64))


@pass_by_address
class TraceArrays(NamedTuple):
    """The requests, sorted by arrival; ties in this order.

    A request may be a chain of legs, one row each, of which the first arrives; the others stand behind it
    with the same arrival, and each begins when the one before it has ended with a score that is too low.
    Where nobody has a second leg `then`, `leg` and `score` are empty.
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


@pass_by_address
class FleetArrays(NamedTuple):
    """What does not change while a replay runs."""

    pools_of: Ints  # (L*G, W) pools of each endpoint, in the order in which they are asked; NOBODY ends a row
    llm: Ints  # (E,) what each pool serves
    region: Ints  # (E,) where it stands
    kind: Ints  # (E,) on what
    takes: Bools  # (E, T) the tiers whose requests it takes
    role: Ints  # (E,) Role
    then: Ints  # (E,) the pool that a request goes on to with its first token; NOBODY: it stays
    has_transfers: bool  # whether some pool does, or requests are judged between two legs
    team: Ints  # (E,) instances of the pool in a team with some of the other that it hands on to; 0: no teams
    weight: Floats  # (E,) of a pool, where requests are spread by weight
    by_freeness: bool  # instances stand in line by their freeness, else by their load
    tokens_per_s: Floats  # (E,) of prompts, that an instance sustains within its targets; inf: not known
    max_request_tokens: Ints  # (E,) tokens of the largest request that it can hold
    llm_max_request_tokens: Ints  # (L,) the same of the roomiest pool of each llm
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
    defers_batch_tier: Bools  # (L,) it does, since some instances of the llm serve both sorts
    batching: Ints  # (J,) Batching
    max_batch: Ints  # (J,) requests in a batch
    max_prefill_tokens: Ints  # (J,) prompt tokens in a step
    is_async: Bools  # (J,) the engine composes a step while the one before it runs (queue.py)
    prefix: int  # Prefix
    prefix_block_tokens: int  # of a block that the trace has a hash of; in whole KV blocks
    preference: Ints  # (G, G) regions that may serve a region's requests, best first; NOBODY ends a row
    network_s: Floats  # (G, G) added when a request of the first is served in the second; the median
    network_factor: Floats  # (W,) draws of it, in that delay; a request's by the microsecond it arrives in
    boot_cold_s: Floats  # (E,)
    boot_spot_s: Floats  # (D,) draws, used in turn by each pool
    boot_factor: Floats  # (J,) on these
    donate_s: float  # in which an instance that has finished its work is donated
    latency: LatencyTables  # rows are kinds


@pass_by_address
class Rules(NamedTuple):
    """Thresholds, clocks and codes of the policies."""

    scaling: int  # Scaling
    signal: int  # Signal
    routing: int  # Routing
    order: int  # Order
    spread: int  # Spread
    headroom_share: Floats  # (K,) of its memory that an instance keeps free for a level that is there
    is_headroom_adaptive: bool  # it changes with what the level meets (freeness.py)
    headroom_above_only: bool  # for a request only the headroom of levels above its own counts
    opportunism: int  # Opportunism
    opportunism_weight: (
        float  # of tokens left at an instance that prefills, against those at one that decodes
    )
    uses_central_queue: bool  # requests wait in a central queue (holdback.py)
    ceiling_share: Floats  # (K,) of a pool's saturation, below which a level may leave that queue
    demand: int  # Demand
    promote_s: float  # a request that has waited so long goes one lane up; inf: never
    balance_s: float  # between two looks of the balancer; inf: it never looks
    gap_blocks: float  # of freeness, between the two of a pair at least
    from_blocks: float  # of freeness, that a source has at most
    is_guarded: bool  # nobody moves where the other one would be less free than the source is
    lowest_first: bool  # of those that wait the lowest lane moves first, else the highest
    freeness_out: float  # of the mean, below which a pool grows
    freeness_in: float  # above which it shrinks
    go_on_below: Floats  # (L,) at first: an answer of this llm with a lower score is followed by the next leg
    gears_by: int  # GearsBy
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
    reactive_share: float  # of what the instances sustain, above which a reflex passes its plan
    correction_s: float  # LT-UA: from this many seconds into the hour
    last_copy_tokens: int  # a live move is in its last copy when no more than this is left
    max_copies: int  # or after so many copies
    move_s: float  # seconds from the end of the last copy until the request has landed
    failure_s: Floats  # (F,) when an instance dies, sorted
    failure_slot: Ints  # (F,) which, if it serves then
    steps_per_event: int  # 1 plays every decode step (the check on leaping); ALL_STEPS leaps
