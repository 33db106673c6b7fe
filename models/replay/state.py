"""What a replay changes: one record for each request, instance, pool, endpoint and llm.

A field is declared once, here: its name, type, unit, first value and meaning. `state.instance[slot].load` is
a field of one record, and `state.instance["load"]`, in Python, that field of all records. Sizes are those of
inputs.py, and K levels of priority, B requests in the largest batch, C clocks: one of each instance and the
one of the transfers.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Ints
from fleetcast.models.replay.by_address import pass_by_address
from fleetcast.models.replay.kernel_inputs import NEVER, NO_INDEX
from fleetcast.models.world.mechanisms import Phase

MOVED_QUEUED, MOVED_LIVE, MOVE_ABORTED = range(3)  # columns of State.moved
REQUEST_BITS = (1 << 32) - 1  # of State.finish_key

COPY_BLOCK = 4096  # records
BOOL, I8, I32, I64, F64 = np.bool_, np.int8, np.int32, np.int64, np.float64


class Field(NamedTuple):
    """One field of a record; where `unit` is "request" it holds the row of one, or NOBODY."""

    name: str
    dtype: Any
    unit: str
    first: Any
    meaning: str


class Records:
    """A kind of record: what makes arrays of it."""

    def __init__(self, *fields: tuple[str, Any, str, Any, str]) -> None:
        self.fields = [Field(*field) for field in fields]
        dtype = np.dtype([(field.name, field.dtype) for field in self.fields], align=True)
        self.dtype = np.dtype((np.record, dtype))  # so that fields are attributes in Python too

    def make(self, *shape: int) -> npt.NDArray[Any]:
        """Records of this shape, with their first values."""
        first = np.zeros((), self.dtype)
        for field in self.fields:
            first[field.name] = field.first
        array = np.empty(shape, self.dtype)
        array[...] = first  # one pass through memory, not one per field
        return array

    def fields_of_unit(self, unit: str) -> Iterable[str]:
        """The names of the fields of this unit."""
        return [field.name for field in self.fields if field.unit == unit]


def copy_columns(records: npt.NDArray[Any], *names: str) -> list[npt.NDArray[Any]]:
    """Copies of these fields of all records, shape (R,) each.

    By blocks that fit a cache: records lie side by side, and a pass per field would read all of memory each.
    """
    found = [np.empty(records.size, records.dtype[name]) for name in names]
    for begin in range(0, records.size, COPY_BLOCK):
        part = slice(begin, begin + COPY_BLOCK)
        for name, column in zip(names, found, strict=True):
            column[part] = records[part][name]
    return found


# Fields that the same events touch stand side by side, the busiest first: they share a line of the cache.
# fmt: off
PROGRESS_RECORDS = Records(
    ("now_s", F64, "s", 0, "the time of the event under way"),
    ("monitor_s", F64, "s", 0, "next tick of the monitor"),
    ("hour_s", F64, "s", 0, "start of this control interval"),
    ("window_since_s", F64, "s", 0, "since when endpoint.seen_tokens counts"),
    ("prior_window_since_s", F64, "s", 0, "since when endpoint.seen_before counts"),
    ("balance_s", F64, "s", 0, "next tick of the balancer"),
    ("arrived", I64, "requests", 0, "that have arrived"),
    ("ended", I64, "requests", 0, "that have finished, or were refused or spared"),
    ("admission_turn", I64, "requests", 0, "admissions so far: the turn of the next one"),
    ("last_clock", I64, "clock", NO_INDEX, "the last clock that acted at this instant"),
    ("events", I64, "events", 0, "so far"),
    ("failed", I64, "failures", 0, "passed"),
    ("stalled_events", I64, "events", 0, "since time last moved on: what the watchdog counts"),
    ("cached_tokens", I64, "tokens", 0, "computed by prefill and decode"),
    ("lost_tokens", I64, "tokens", 0, "lost by preemption: they are computed again"),
    ("in_flight", I64, "requests", 0, "on their way between two instances"),
    ("reused_tokens", I64, "tokens", 0, "of prompts, found in a cache"),
    ("stale", I64, "instances", 0, "in the list instance.stale"),
)
REQUEST_RECORDS = Records(  # (R,)
    ("next", I32, "request", NO_INDEX, "the one behind it in whatever list it stands in"),
    ("generated", I32, "tokens", 0, "output tokens made before the last preemption"),
    ("admission_turn", I64, "", 0, "turn of its latest admission"),
    ("served_by", I32, "slot", NO_INDEX, "the instance that has it"),
    ("preemptions", I32, "", 0, "how often it lost its place in a batch"),
    ("refused", BOOL, "", False, "larger than the memory of any instance"),
    ("spared", BOOL, "", False, "a leg that is not needed, as the answer before it was good enough"),
    ("dispatched_s", F64, "s", np.nan, "when the instance that made its first token got it; NaN until then"),
    ("queued_s", F64, "s", 0, "when it came into the queue of an async engine"),
    ("admitted_s", F64, "s", np.nan, "when its first prefill began or was queued; NaN until then"),
    ("first_token_s", F64, "s", np.nan, "NaN until then; without network"),
    ("finish_s", F64, "s", np.nan, "NaN until then; without network"),
)
SHARING_RECORDS = Records(  # (R,), or (0,) where the fleet reuses no prompts
    ("reused", I32, "tokens", 0, "of the prompt that were cached at its latest admission"),
    ("hit_tokens_at_dispatch", I32, "tokens", 0, "those that were when it was sent to its instance: less to do there"),
    ("held_hashes", I32, "blocks", 0, "hashed blocks of its prompt that it holds at its instance"),
)
TRANSFER_RECORDS = Records(  # (R,), or (0,) where no pool hands requests over
    ("transferred_tokens", I32, "tokens", 0, "of the cache that comes along; 0: none"),
    ("source_slot", I32, "slot", NO_INDEX, "that it is sent from"),
    ("sender_tokens", I32, "tokens", 0, "of it that fill that slot's memory until it has come"),
    ("runs_both_phases", BOOL, "", False, "all of it is its instance's to process, whatever that one's role"),
    ("migrating_to", I32, "slot", NO_INDEX, "that a request which decodes is being moved to"),
    ("migrated_tokens", I32, "tokens", 0, "of its cache that are there, or on their way"),
    ("migration_stage", I8, "copies", 0, "made, or LEAVING"),
    ("ready_s", F64, "s", 0, "when it has come"),
    ("sent_from", I32, "slot", NO_INDEX, "that had it before the one that has it"),
    ("sent_s", F64, "s", np.nan, "when it left that one; NaN until then, like the next two"),
    ("came_s", F64, "s", np.nan, "when its cache had come"),
    ("joined_s", F64, "s", np.nan, "when it entered the batch with that"),
    ("in_flight", I64, "request", NO_INDEX, "a place in the heap of those on their way, by (ready_s, request)"),
    ("in_flight_position", I64, "", NO_INDEX, "where this request stands in that heap"),
)
CLOCK_RECORDS = Records(  # (C,) = (N + 1,)
    ("event_s", F64, "s", NEVER, "the next event of this clock"),
    ("heap", I64, "clock", 0, "a place in the binary heap of clocks, by (event_s, clock)"),
    ("place", I64, "", 0, "where this clock stands in that heap"),
    ("is_stale", BOOL, "", True, "the instance has changed since its bounds of freeness were set"),
)
INSTANCE_RECORDS = Records(  # (N,)
    ("status", I64, "", 0, "Status"),
    ("phase", I64, "", Phase.IDLE, "Phase"),
    ("queue_dirty", BOOL, "", False, "whether its queue is worth a look at the next step boundary"),
    ("is_changed", BOOL, "", False, "its freeness may have risen since it got its place in line"),
    ("base_s", F64, "s", 0, "when its decode stretch, or its step over prompts, began"),
    ("step_s", F64, "s", 0, "when the step began that ended last"),
    ("steps", I64, "steps", 0, "decode steps made before base_s"),
    ("stretch", I64, "steps", 0, "decode steps that it will have made at its next event"),
    ("batch", I64, "requests", 0, "in the decode batch"),
    ("kv", I64, "tokens", 0, "of the decode batch's cache at base_s: what a decode step reads"),
    ("blocks", I64, "KV blocks", 0, "held at base_s"),
    ("full_block_prompts", I64, "requests", 0, "admitted, with a pending prompt of full blocks"),
    ("counted_kv_tokens", I64, "tokens", 0, "of the blocks at its last batch change, for utilisation"),
    ("pending_prompt_tokens", I64, "tokens", 0, "of their prompts not yet prefilled"),
    ("prefilled", I64, "tokens", 0, "of the first one's prompt that are"),
    ("chunk", I64, "tokens", 0, "of prompts in the step under way"),
    ("joining", I64, "requests", 0, "how many these are"),
    ("joining_head", I64, "request", NO_INDEX, "first of those admitted, with prompts pending, in turn"),
    ("joining_tail", I64, "request", NO_INDEX, "last of these; not kept up where there are none"),
    ("load", I64, "tokens", 0, "input + output of the requests assigned and not finished"),
    ("interactive", I64, "requests", 0, "interactive ones assigned and not finished"),
    ("waiting_blocks", I64, "KV blocks", 0, "that the waiting requests would take"),
    ("leaving", I64, "requests", 0, "that leave at its next step boundary"),
    ("accounted_until_s", F64, "s", 0, "GPU time is accounted up to here"),
    ("reserved_blocks", I64, "KV blocks", 0, "of the admitted requests at their longest (Orca)"),
    ("next_changed", I64, "slot", NO_INDEX, "the next such one of its pool; NOBODY ends the list"),
    ("donation_due_s", F64, "s", NEVER, "when it is donated, once it has finished its work"),
    ("outbound", I64, "caches", 0, "that are being sent from here and still fill its memory"),
    ("inbound", I64, "requests", 0, "on their way here"),
    ("migrating_out", I64, "requests", 0, "that are copied from here, and decode here still"),
    ("migrating_in", I64, "requests", 0, "that are copied to here, and decode there still"),
    ("stale", I64, "slot", 0, "a place in the list of instances whose bounds of freeness are stale"),
    ("freeness_upper", F64, "KV blocks", 0, "freeness until something changes, at most; -inf: it takes no request"),
    ("freeness_lower", F64, "KV blocks", 0, "at least; inf: no request leaves"),
    ("bounds_updated_s", F64, "s", -NEVER, "when the two above were"),
    ("freeness", F64, "KV blocks", 0, "as of this tick; -inf: it drains; NaN: in no pair, or in one already"),
    ("service_s", F64, "s", 0, "from dispatch to end, smoothed (INFaaS); 0: no request has ended here"),
    ("out_free_s", F64, "s", 0, "when its link has sent all that it was given"),
    ("in_free_s", F64, "s", 0, "when its link has received all"),
)
LINE_RECORDS = Records(  # (N,) the instances of each pool in line for requests
    ("sort_key", F64, "", NEVER, "what a serving instance stands in line by; NEVER: it does not serve"),
    ("slot_heap", I64, "slot", 0, "a place in the binary heap of its pool, by (queue, slot)"),
    ("slot_heap_position", I64, "", 0, "where this slot stands in that heap"),
)
POOL_RECORDS = Records(  # (E,)
    ("busy_instances", I64, "instances", 0, "serving ones that have interactive requests"),
    ("next_boot_sample", I64, "", 0, "which draw of boot_spot_s is the next"),
    ("kv_used", I64, "tokens", 0, "kv_seen over the serving instances"),
    ("kv_room", I64, "tokens", 0, "KV capacity over the serving instances"),
    ("kv_since_s", F64, "s", 0, "the two areas are integrated up to here"),
    ("kv_used_area", F64, "token-seconds", 0, "of kv_used"),
    ("kv_room_area", F64, "token-seconds", 0, "of kv_room"),
    ("routed_tokens", I64, "tokens", 0, "of interactive prompts, sent here since the last monitor tick"),
    ("rate_tokens_per_s", F64, "tokens/s", 0, "the same per second, smoothed"),
    ("waiting_tokens", I64, "tokens", 0, "of interactive prompts that are here and have no token yet"),
    ("reactive_target", I64, "instances", 0, "that the reactive correction wants, if more than the plan"),
    ("cooldown_s", F64, "s", 0, "no scaling before this time"),
    ("last_chosen_slot", I64, "slot", 0, "that was given a request last (round robin)"),
    ("target", I64, "instances", 0, "that the plan wants, or Kubernetes' rule"),
    ("credit", F64, "", 0, "what a pool is owed where requests are spread by weight"),
    ("highest_recommendation", I64, "instances", NO_INDEX, "the highest since it wants fewer; or none"),
    ("first_changed", I64, "slot", NO_INDEX, "first of the instances whose freeness may have risen"),
    ("min_freeness", F64, "KV blocks", 0, "the lowest of the bounds of freeness"),
    ("max_freeness", F64, "KV blocks", 0, "the highest"),
)
ENDPOINT_RECORDS = Records(  # (L*G,)
    ("forecast_tokens_per_s", F64, "tokens/s", 0, "interactive input of this hour"),
    ("window_tokens", I64, "tokens", 0, "interactive input that arrived from the region in the last minutes"),
    ("prior_window_tokens", I64, "tokens", 0, "the same in the minutes before these"),
)
LLM_RECORDS = Records(  # (L,)
    ("go_on_below", F64, "score", 0, "threshold now: that of the rules, of a row of the plan, or of a gear"),
    ("arrived_legs", I64, "requests", 0, "and later legs, that came since the last monitor tick"),
    ("arrived_legs_per_s", F64, "requests/s", 0, "the same per second, smoothed"),
    ("manager_head", I64, "request", NO_INDEX, "first one at the queue manager"),
    ("manager_tail", I64, "request", NO_INDEX, "last one there"),
    ("manager_output_tokens", I64, "tokens", 0, "of these"),
    ("manager_input_tokens", I64, "tokens", 0, "of these"),
    ("stranded_head", I64, "request", NO_INDEX, "first of those that found no serving instance anywhere"),
    ("stranded_tail", I64, "request", NO_INDEX, "last of these"),
)
CENTRAL_RECORDS = Records(  # (L*K,) the central queue, a list per llm and level
    ("central_head", I64, "request", NO_INDEX, "first one there"),
    ("central_tail", I64, "request", NO_INDEX, "last one there"),
)
# (N, lanes + 1) the waiting requests, a list per lane (queue.py); the last: not known yet
LANE_RECORDS = Records(
    ("head", I64, "request", NO_INDEX, "first one"),
    ("tail", I64, "request", NO_INDEX, "last one"),
)
POOL_LEVEL_RECORDS = Records(  # (E, K)
    ("headroom_share", F64, "of memory", 0, "that an instance keeps free for a level that is there"),
    ("late_first_tokens", I64, "requests", 0, "first tokens after they were due, since the last adaption"),
)
# fmt: on


@pass_by_address
class ReplayState(NamedTuple):
    """Everything that changes. Saving these arrays saves the replay."""

    progress: Any  # one record
    request: npt.NDArray[Any]  # the records above, by name
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
    pool_level: npt.NDArray[Any]
    block_crossings: Ints  # (N, block tokens) the decode batch by (cached tokens - steps) mod block tokens
    finish_key: Ints  # (N, B) heap of (finish step << 32 | request) of the decode batch
    requests_by_level: Ints  # (N, K) requests of each level, assigned and not finished
    cache: npt.NDArray[np.int32]  # (N, blocks, 5) of prompts, held or not (block_cache.py); or (N, 0, 5)
    bucket: npt.NDArray[np.int32]  # (N, power of two) first of each chain of these; (N, 0)
    idle: npt.NDArray[np.int32]  # (N, 4) blocks held by no request, and the free rows (block_cache.py)
    instances: Ints  # (E, 5) instances by status
    instance_s: npt.NDArray[np.float64]  # (E, 4) instance-seconds in STATES
    moved: Ints  # (E, 3) moves from here: MOVED_QUEUED and MOVED_LIVE by the balancer, live ones GIVEN_UP
    used_gpus: Ints  # (G, P) GPUs of all instances that are not GONE
