"""What a replay changes: one record for each request, instance, pool, endpoint and llm.

Each field is declared once, here: name, type, unit, first value and meaning. `state.instance[slot].load` is a
field of one record; in Python `state.instance["load"]` is that field of all records. Sizes are those of
kernel_inputs.py. B is the number of requests in the largest batch, C the number of clocks: one for each
instance and one for all transfers.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Ints
from fleetcast.models.replay.by_address import pass_by_address
from fleetcast.models.replay.kernel_inputs import ALL_TOKENS, ALL_TURNS, NEVER, NO_INDEX
from fleetcast.models.world.mechanisms import Phase

MOVED_QUEUED, MOVED_LIVE, MOVE_ABORTED = range(3)  # columns of State.moved
REQUEST_BITS = (1 << 32) - 1  # the part of a finish_key that is the request

COPY_BLOCK = 4096  # records copied at a time
BOOL, I8, I32, I64, F64 = np.bool_, np.int8, np.int32, np.int64, np.float64


class Field(NamedTuple):
    """One field of a record; with the unit "request" it holds the row of a request, or NO_INDEX."""

    name: str
    dtype: Any
    unit: str
    first: Any
    meaning: str


class Records:
    """A record type: its fields, and how to make arrays of it."""

    def __init__(self, *fields: tuple[str, Any, str, Any, str]) -> None:
        self.fields = [Field(*field) for field in fields]
        dtype = np.dtype([(field.name, field.dtype) for field in self.fields], align=True)
        # np.record makes the fields attributes in Python too.
        self.dtype = np.dtype((np.record, dtype))

    def make(self, *shape: int) -> npt.NDArray[Any]:
        """Return records of this shape with their first values."""
        first = np.zeros((), self.dtype)
        for field in self.fields:
            first[field.name] = field.first
        # One pass through memory, not one per field.
        array = np.empty(shape, self.dtype)
        array[...] = first
        return array

    def fields_of_unit(self, unit: str) -> Iterable[str]:
        """Return the names of the fields with this unit."""
        return [field.name for field in self.fields if field.unit == unit]


def copy_columns(records: npt.NDArray[Any], *names: str) -> list[npt.NDArray[Any]]:
    """Return a copy of each named field of all records: shape (R,) in, shape (R,) each out.

    It copies block by block, so that a block stays in the CPU cache: a pass per field would read all records
    once for each field.
    """
    copies = [np.empty(records.size, records.dtype[name]) for name in names]
    for begin in range(0, records.size, COPY_BLOCK):
        part = slice(begin, begin + COPY_BLOCK)
        for name, column in zip(names, copies, strict=True):
            column[part] = records[part][name]
    return copies


# Fields that the same events use are next to each other, the busiest first: they share a CPU cache line.
# fmt: off
PROGRESS_RECORDS = Records(
    ("now_s", F64, "s", 0, "time of the current event"),
    ("monitor_s", F64, "s", 0, "next tick of the monitor"),
    ("hour_s", F64, "s", 0, "start of this control interval"),
    ("window_since_s", F64, "s", 0, "start of the window of endpoint.window_tokens"),
    ("prior_window_since_s", F64, "s", 0, "start of the window of endpoint.prior_window_tokens"),
    ("balance_s", F64, "s", 0, "next tick of the balancer"),
    ("arrived", I64, "requests", 0, "that have arrived"),
    ("ended", I64, "requests", 0, "that have finished, or were refused or spared (skipped)"),
    ("admission_turn", I64, "requests", 0, "admissions so far: the turn of the latest one"),
    ("last_clock", I64, "clock", NO_INDEX, "the highest clock that ran at this instant"),
    ("events", I64, "events", 0, "so far"),
    ("failed", I64, "failures", 0, "of the rules' list, so far"),
    ("stalled_events", I64, "events", 0, "since time last advanced: what the watchdog counts"),
    ("cached_tokens", I64, "tokens", 0, "computed by prefill and decode"),
    ("lost_tokens", I64, "tokens", 0, "lost by preemption or failure: they are computed again"),
    ("in_flight", I64, "requests", 0, "in the heap transfer.in_flight"),
    ("reused_tokens", I64, "tokens", 0, "of prompts, found in a cache"),
    ("stale", I64, "instances", 0, "in the list instance.stale"),
)
REQUEST_RECORDS = Records(  # (R,)
    ("next", I32, "request", NO_INDEX, "the one behind it in the list that it is in"),
    ("generated", I32, "tokens", 0, "output tokens made before it last entered a decode batch"),
    ("admission_turn", I32, "", 0, "turn of its latest admission"),
    ("prefilled", I32, "tokens", 0, "of its pending prompt, computed since that admission"),
    ("granted_tokens", I32, "tokens", 0, "of its pending prompt that have KV blocks"),
    ("served_by", I32, "slot", NO_INDEX, "the instance that it is assigned to"),
    ("preemptions", I32, "", 0, "how often it lost its cache"),
    ("refused", BOOL, "", False, "larger than the memory of any instance"),
    ("spared", BOOL, "", False, "a leg that is skipped, as the answer before it was good enough"),
    ("dispatched_s", F64, "s", np.nan, "when the instance of its first token received it; NaN: not yet"),
    ("queued_s", F64, "s", 0, "when it entered the queue of an async engine"),
    ("admitted_s", F64, "s", np.nan, "when it entered a batch for its first prefill; NaN: not yet"),
    ("first_token_s", F64, "s", np.nan, "without network delay; NaN: not yet"),
    ("finish_s", F64, "s", np.nan, "without network delay; NaN: not yet"),
)
SHARING_RECORDS = Records(  # (R,), or (0,) where the fleet reuses no prompts
    ("reused", I32, "tokens", 0, "of the prompt, found in the cache at its latest admission"),
    ("hit_tokens_at_dispatch", I32, "tokens", 0, "found in the cache at dispatch; not in its load"),
    ("held_hashes", I32, "blocks", 0, "hashed blocks of its prompt that it holds at its instance"),
)
TRANSFER_RECORDS = Records(  # (R,), or (0,) where the fleet has no transfers
    ("transferred_tokens", I32, "tokens", 0, "of the cache that is sent with it; 0: none"),
    ("source_slot", I32, "slot", NO_INDEX, "that the cache is sent from"),
    ("sender_tokens", I32, "tokens", 0, "of the cache that fill the sender's memory until it has arrived"),
    ("runs_both_phases", BOOL, "", False, "its instance does prefill and decode, whatever the role"),
    ("migrating_to", I32, "slot", NO_INDEX, "that the decoding request is being moved to"),
    ("migrated_tokens", I32, "tokens", 0, "of its cache that were sent there so far"),
    ("migration_stage", I8, "copies", 0, "made, or LEAVING"),
    ("ready_s", F64, "s", 0, "when the transfer ends"),
    ("sent_from", I32, "slot", NO_INDEX, "that had it before its present instance"),
    ("sent_s", F64, "s", np.nan, "when it left that slot; NaN: not yet"),
    ("came_s", F64, "s", np.nan, "when its cache arrived; NaN: not yet"),
    ("joined_s", F64, "s", np.nan, "when it entered the batch with that cache; NaN: not yet"),
    ("in_flight", I64, "request", NO_INDEX, "entry of the heap of transfers, by (ready_s, request)"),
    ("in_flight_position", I64, "", NO_INDEX, "position of this request in that heap"),
)
CLOCK_RECORDS = Records(  # (C,) = (N + 1,)
    ("event_s", F64, "s", NEVER, "the next event of this clock"),
    ("heap", I64, "clock", 0, "entry of the binary heap of clocks, by (event_s, clock)"),
    ("place", I64, "", 0, "position of this clock in that heap"),
    ("is_stale", BOOL, "", True, "the instance has changed since its freeness bounds were computed"),
)
INSTANCE_RECORDS = Records(  # (N,)
    ("status", I64, "", 0, "Status"),
    ("phase", I64, "", Phase.IDLE, "Phase"),
    ("ended", I64, "requests", 0, "at this boundary; an async engine composed its next step with them"),
    ("ended_blocks", I64, "KV blocks", 0, "of these requests"),
    ("ended_uncached_blocks", I64, "KV blocks", 0, "of these, that did not stay cached"),
    ("has_preempted", BOOL, "", False, "at this boundary: CHUNKED then admits nothing"),
    ("queue_dirty", BOOL, "", False, "it checks its queue at the next step boundary"),
    ("is_changed", BOOL, "", False, "its freeness may have risen since its sort_key was set"),
    ("base_s", F64, "s", 0, "start of the decode stretch, or of the prefill step"),
    ("step_s", F64, "s", 0, "start of the step that ended last"),
    ("steps", I64, "tokens", 0, "of each decoding request, made before base_s; steps where none are drafted"),
    ("cycle_steps", I64, "steps", 0, "of the cycle of accepted drafts, made before base_s"),
    ("stretch", I64, "steps", 0, "decode steps from base_s to its next event"),
    ("batch", I64, "requests", 0, "in the decode batch"),
    ("kv", I64, "tokens", 0, "of the decode batch's cache at base_s: what a decode step reads"),
    ("blocks", I64, "KV blocks", 0, "held at base_s"),
    ("full_block_prompts", I64, "requests", 0, "joining ones whose prompt fills its last block"),
    ("counted_kv_tokens", I64, "tokens", 0, "of the blocks at its last batch change, for utilisation"),
    ("pending_prompt_tokens", I64, "tokens", 0, "of the joining requests, not yet prefilled"),
    ("prefilled", I64, "tokens", 0, "of the joining requests, already prefilled"),
    ("chunk_limit", I64, "tokens", ALL_TOKENS, "most prompt tokens of one request in this step"),
    ("last_turn", I64, "", ALL_TURNS, "turn of the last request in this step; those behind it pause"),
    ("chunk", I64, "tokens", 0, "of prompts in the current step"),
    ("joining", I64, "requests", 0, "admitted, with prompts pending"),
    ("joining_head", I64, "request", NO_INDEX, "first of these, by turn of admission"),
    ("joining_tail", I64, "request", NO_INDEX, "last of these; undefined where there are none"),
    ("load", I64, "tokens", 0, "to process of the requests assigned and not finished, by its role"),
    ("waiting_tokens", I64, "tokens", 0, "of assigned prompts without a first token, of all tiers"),
    ("interactive", I64, "requests", 0, "interactive ones assigned and not finished"),
    ("waiting_blocks", I64, "KV blocks", 0, "that the waiting requests would take"),
    ("leaving", I64, "requests", 0, "that leave at its next step boundary"),
    ("accounted_until_s", F64, "s", 0, "instance time is accounted up to here"),
    ("reserved_blocks", I64, "KV blocks", 0, "of the admitted requests with all their tokens (Orca)"),
    ("next_changed", I64, "slot", NO_INDEX, "the next changed one of its pool; NO_INDEX ends the list"),
    ("donation_due_s", F64, "s", NEVER, "when it is donated, once it has finished its work"),
    ("outbound", I64, "caches", 0, "that are being sent from here and still fill its memory"),
    ("inbound", I64, "requests", 0, "in flight to this instance"),
    ("migrating_out", I64, "requests", 0, "that are being copied from here and still decode here"),
    ("migrating_in", I64, "requests", 0, "that are being copied to here and still decode elsewhere"),
    ("stale", I64, "slot", 0, "entry of the list of instances whose freeness bounds are stale"),
    ("freeness_upper", F64, "KV blocks", 0, "freeness at most, until a change; -inf: takes no request"),
    ("freeness_lower", F64, "KV blocks", 0, "freeness at least, until a change; inf: gives no request"),
    ("bounds_updated_s", F64, "s", -NEVER, "when these two bounds were computed"),
    ("freeness", F64, "KV blocks", 0, "at this tick; -inf: it drains; NaN: in no pair, or already paired"),
    ("service_s", F64, "s", 0, "from dispatch to end, smoothed (INFaaS); 0: no request has ended here"),
    ("out_free_s", F64, "s", 0, "when its link has sent all that is queued on it"),
    ("in_free_s", F64, "s", 0, "when its link has received all that is queued on it"),
)
LINE_RECORDS = Records(  # (N,) the order in which a pool's instances get requests
    ("sort_key", F64, "", NEVER, "load, or minus freeness, of a serving instance; NEVER: it does not serve"),
    ("slot_heap", I64, "slot", 0, "entry of the binary heap of its pool, by (sort_key, slot)"),
    ("slot_heap_position", I64, "", 0, "position of this slot in that heap"),
)
POOL_RECORDS = Records(  # (E,)
    ("busy_instances", I64, "instances", 0, "serving ones that have interactive requests"),
    ("next_boot_sample", I64, "", 0, "index of the next sample of boot_spot_s"),
    ("kv_used", I64, "tokens", 0, "sum of counted_kv_tokens over the serving instances"),
    ("kv_room", I64, "tokens", 0, "KV capacity over the serving instances"),
    ("kv_since_s", F64, "s", 0, "the two areas are integrated up to here"),
    ("kv_used_area", F64, "token-seconds", 0, "of kv_used"),
    ("kv_room_area", F64, "token-seconds", 0, "of kv_room"),
    ("routed_tokens", I64, "tokens", 0, "of interactive prompts, sent here since the last monitor tick"),
    ("rate_tokens_per_s", F64, "tokens/s", 0, "the same per second, smoothed"),
    ("waiting_tokens", I64, "tokens", 0, "of interactive prompts that are here and have no token yet"),
    ("reactive_target", I64, "instances", 0, "that the reactive correction wants, if more than the plan"),
    ("cooldown_s", F64, "s", 0, "no scaling before this time"),
    ("last_chosen_slot", I64, "slot", 0, "that received a request last (round robin)"),
    ("target", I64, "instances", 0, "that the plan wants, or Kubernetes' rule"),
    ("credit", F64, "", 0, "of smooth weighted round robin (spread.py); or unused KV tokens (most_unused)"),
    ("highest_recommendation", I64, "instances", NO_INDEX, "the highest since it wants fewer; or none"),
    ("first_changed", I64, "slot", NO_INDEX, "first of the instances whose freeness may have risen"),
    ("min_freeness", F64, "KV blocks", 0, "the least freeness_lower of its instances"),
    ("max_freeness", F64, "KV blocks", 0, "the largest freeness_upper of its instances"),
)
ENDPOINT_RECORDS = Records(  # (L*G,)
    ("forecast_tokens_per_s", F64, "tokens/s", 0, "interactive input of this control interval"),
    ("window_tokens", I64, "tokens", 0, "interactive input that arrived from the region in this window"),
    ("prior_window_tokens", I64, "tokens", 0, "the same in the window before it"),
)
LLM_RECORDS = Records(  # (L,)
    ("go_on_below", F64, "score", 0, "threshold now: of the rules, of a row of the plan, or of a gear"),
    ("arrived_legs", I64, "legs", 0, "first and later ones, since the last monitor tick"),
    ("arrived_legs_per_s", F64, "legs/s", 0, "the same per second, smoothed"),
    ("manager_head", I64, "request", NO_INDEX, "first request at the queue manager"),
    ("manager_tail", I64, "request", NO_INDEX, "last one there"),
    ("manager_output_tokens", I64, "tokens", 0, "of the requests there"),
    ("manager_input_tokens", I64, "tokens", 0, "of the requests there"),
    ("stranded_head", I64, "request", NO_INDEX, "first of those that found no serving instance anywhere"),
    ("stranded_tail", I64, "request", NO_INDEX, "last of these"),
)
CENTRAL_RECORDS = Records(  # (L*K,) the central queue, a list per llm and level
    ("central_head", I64, "request", NO_INDEX, "first request of the list"),
    ("central_tail", I64, "request", NO_INDEX, "last request of the list"),
)
# (N, lanes + 1) the waiting requests, a list per lane (queue.py); the last: not known to the engine yet
LANE_RECORDS = Records(
    ("head", I64, "request", NO_INDEX, "first request of the list"),
    ("tail", I64, "request", NO_INDEX, "last request of the list"),
)
# fmt: on


@pass_by_address
class State(NamedTuple):
    """Everything that changes. Saving these arrays saves the replay.

    The first fields, up to `lane`, are arrays of the records above, with their shapes.

    Attributes
    ----------
    progress : one record, no array
    block_crossings : shape (N, block tokens), decoding requests by (cached tokens - steps) mod block tokens
    finish_key : shape (N, B), min-heap of (finish step << 32 | request) of the decode batch
    ended_request : shape (N, B), the first instance.ended are those; NO_INDEX: its memory was taken
    ended_blocks : shape (N, B, 2), KV blocks of these, and of them those that did not stay cached
    requests_by_level : shape (N, K), requests of each level assigned and not finished
    cache : shape (N, blocks, 5) or (N, 0, 5), hashed prompt blocks, in use or free (block_cache.py)
    bucket : shape (N, power of two) or (N, 0), first block of each hash chain
    idle : shape (N, 4), list of blocks that no request holds, and of free rows (block_cache.py)
    instances : shape (E, 5), instances by status
    instance_s : shape (E, 4), instance-seconds in STATES
    moved : shape (E, 3), moves from the pool: by the balancer MOVED_QUEUED and MOVED_LIVE; MOVE_ABORTED
    used_gpus : shape (G, P), GPUs of all instances that are not GONE
    """

    progress: Any
    request: npt.NDArray[Any]
    sharing: npt.NDArray[Any]
    transfer: npt.NDArray[Any]
    clock: npt.NDArray[Any]
    instance: npt.NDArray[Any]
    line: npt.NDArray[Any]
    pool: npt.NDArray[Any]
    endpoint: npt.NDArray[Any]
    llm: npt.NDArray[Any]
    central: npt.NDArray[Any]
    lane: npt.NDArray[Any]
    block_crossings: Ints
    finish_key: Ints
    ended_request: Ints
    ended_blocks: Ints
    requests_by_level: Ints
    cache: npt.NDArray[np.int32]
    bucket: npt.NDArray[np.int32]
    idle: npt.NDArray[np.int32]
    instances: Ints
    instance_s: npt.NDArray[np.float64]
    moved: Ints
    used_gpus: Ints
