"""Before the kernel runs: a trace is checked, a fleet is set up, or what is unfinished is carried over."""

from typing import Any

import numpy as np

from models.replay.prefix import BLOCKS, GIVEN, NEXT, NONE
from models.replay.queue import PRIORITY, lanes
from models.replay.state import (
    ARRIVED,
    DONATED,
    ENDED,
    GONE,
    MOVING,
    NEVER,
    NOBODY,
    REQUEST_BITS,
    RUNNING,
    SERVING,
    STALE,
    STATES,
    Fleet,
    Ints,
    Rules,
    State,
    Trace,
)

SHORTS, WHOLES = np.zeros(0, np.int16), np.zeros(0, np.int32)
EMPTY = Trace(np.zeros(0), SHORTS, SHORTS, SHORTS, WHOLES, WHOLES)


def in_lanes(trace: Trace, rules: Rules) -> Trace:
    """The trace with levels, where it says none, and with the lane in which each request waits."""
    level = trace.level if trace.level.size else np.zeros(trace.arrival_s.size, np.int16)
    if level.size != trace.arrival_s.size:
        raise ValueError(f"level has {level.size} rows; the trace has {trace.arrival_s.size} requests.")
    return trace._replace(level=level, lane=level if rules.order >= PRIORITY else trace.tier)


def check_trace(trace: Trace, fleet: Fleet, rules: Rules) -> None:
    """Refuse a trace that the kernel must not see; the message names the first bad request."""
    regions, tiers = fleet.network_s.shape[0], fleet.is_interactive.size
    llms, levels = fleet.holds.size, rules.headroom_share.size
    laws = (
        ("arrival_s must be finite and not negative", ~(trace.arrival_s >= 0) | np.isinf(trace.arrival_s)),
        ("arrivals must be sorted", np.diff(trace.arrival_s, prepend=trace.arrival_s[:1]) < 0),
        ("input_tokens must be at least 1", trace.input_tokens < 1),
        ("output_tokens must be at least 1", trace.output_tokens < 1),
        (f"llm must be below {llms}", (trace.llm < 0) | (trace.llm >= llms)),
        (f"region must be below {regions}", (trace.region < 0) | (trace.region >= regions)),
        (f"tier must be below {tiers}", (trace.tier < 0) | (trace.tier >= tiers)),
        (
            f"level must be from 0 to {levels - 1}, a whole number",
            (trace.level < 0) | (trace.level >= levels),
        ),
    )
    for rule, bad in (*laws, *leg_rules(trace, fleet), *prefix_rules(trace, fleet)):
        if bad.any():
            at = int(np.argmax(bad))
            columns = trace._asdict().items()
            row = ", ".join(f"{name}={column[at]}" for name, column in columns if column.size == bad.size)
            raise ValueError(f"Request {at} of the trace ({row}): {rule}. Mend or drop it.")


def leg_rules(trace: Trace, fleet: Fleet) -> list[tuple[str, np.ndarray]]:
    """What chains of legs must be: each rule, and the rows that break it."""
    if not trace.then.size:
        return []
    rows = np.arange(trace.arrival_s.size)
    has_next = trace.then != NOBODY
    is_inside = has_next & (trace.then > rows) & (trace.then < rows.size)
    behind = np.where(is_inside, trace.then, rows)
    same = (trace.arrival_s[behind] == trace.arrival_s) & (trace.region[behind] == trace.region)
    begun = np.bincount(behind[is_inside], minlength=rows.size)
    return [
        ("a chain of legs needs a fleet whose hands_over is set", np.full(rows.size, not fleet.hands_over)),
        ("then must name a later row of the trace, or nobody", has_next & ~is_inside),
        ("the next leg must have the same arrival and region", ~same),
        ("the next leg must be one further", is_inside & (trace.leg[behind] != trace.leg + 1)),
        ("a leg must follow exactly one other, the first none", begun != (trace.leg > 0)),
    ]


def prefix_rules(trace: Trace, fleet: Fleet) -> list[tuple[str, np.ndarray]]:
    """What a trace must say of its prompts for the fleet's prefix: each rule, and the rows that break it."""
    rows = trace.arrival_s.size
    if fleet.prefix == GIVEN:
        if trace.cached_tokens.size != rows:
            return [('prefix = "given" needs cached_tokens of all requests', np.ones(rows, bool))]
        bad = (trace.cached_tokens < 0) | (trace.cached_tokens > trace.input_tokens)
        return [("cached_tokens must be at most input_tokens", bad)]
    if fleet.prefix == BLOCKS:
        if trace.first_hash.size != rows + 1:
            return [('prefix = "blocks" needs the hashes of all prompts', np.ones(rows, bool))]
        counts = np.diff(trace.first_hash)
        is_inside = (trace.first_hash[0] >= 0) & (trace.first_hash[-1] <= trace.hashes.size)
        too_large = trace.hashes.size > 0 and (trace.hashes.min() < 0 or trace.hashes.max() >= 1 << 31)
        return [
            ("first_hash must rise within hashes", (counts < 0) | ~is_inside),
            ("hashes must be numbers from 0 to 2^31", np.full(rows, too_large)),
        ]
    return []


def initial_state(fleet: Fleet, rules: Rules, start: Ints) -> State:
    """The fleet at time 0: `start` instances of each pool serve, the others it has are donated."""
    levels, lists = rules.headroom_share.size, lanes(rules) + 1  # the last for those that are not known yet
    slots, pools = fleet.pool.size, fleet.kind.size
    endpoints, llms = fleet.pools_of.shape[0], fleet.holds.size
    rank = np.arange(slots) - fleet.slots[fleet.pool]
    status = np.where(rank < fleet.instances_at_start[fleet.pool], DONATED, GONE)
    status[rank < start[fleet.pool]] = SERVING
    instances = np.zeros((pools, 5), np.int64)
    np.add.at(instances, (fleet.pool, status), 1)
    used_gpus = np.zeros_like(fleet.cap_gpus)
    held = status != GONE
    kind = fleet.slot_kind[held]
    np.add.at(used_gpus, (fleet.region[fleet.pool[held]], fleet.gpu[kind]), fleet.gpus[kind])
    if (used_gpus > fleet.cap_gpus).any():
        region, gpu = np.argwhere(used_gpus > fleet.cap_gpus)[0]
        raise ValueError(
            f"Region {region} holds {used_gpus[region, gpu]} GPUs of type {gpu} at the start, its cap is "
            f"{fleet.cap_gpus[region, gpu]}. Raise cap_gpus or lower instances_at_start."
        )

    counts = np.zeros(12, np.int64)
    counts[RUNNING], counts[STALE] = NOBODY, slots

    def nobody(*shape: int) -> Ints:
        return np.full(shape, NOBODY, np.int64)

    return State(
        clock=np.zeros(6),
        counts=counts,
        **untouched(0, fleet),
        status=status,
        since_s=np.zeros(slots),
        leaves_s=np.full(slots, NEVER),
        event_s=np.full(slots + 1, NEVER),
        heap=np.arange(slots + 1),
        place=np.arange(slots + 1),
        phase=np.zeros(slots, np.int64),
        base_s=np.zeros(slots),
        step_s=np.zeros(slots),
        steps=np.zeros(slots, np.int64),
        stretch=np.zeros(slots, np.int64),
        batch=np.zeros(slots, np.int64),
        kv=np.zeros(slots, np.int64),
        blocks=np.zeros(slots, np.int64),
        crossing=np.zeros((slots, fleet.kv_block_tokens), np.int64),
        brimful=np.zeros(slots, np.int64),
        kv_seen=np.zeros(slots, np.int64),
        finish_key=np.zeros((slots, fleet.max_batch.max()), np.int64),
        joining_head=nobody(slots),
        joining_tail=nobody(slots),
        joining=np.zeros(slots, np.int64),
        pending=np.zeros(slots, np.int64),
        prefilled=np.zeros(slots, np.int64),
        chunk=np.zeros(slots, np.int64),
        reserved=np.zeros(slots, np.int64),
        leavers=np.zeros(slots, np.int64),
        sending=np.zeros(slots, np.int64),
        coming=np.zeros(slots, np.int64),
        giving=np.zeros(slots, np.int64),
        getting=np.zeros(slots, np.int64),
        is_stale=np.ones(slots + 1, np.bool_),
        stale=np.arange(slots),
        highest=np.zeros(slots),
        lowest=np.zeros(slots),
        freeness=np.zeros(slots),
        looked_up_s=np.full(slots, -NEVER),
        present=np.zeros((slots, levels), np.int64),
        service_s=np.zeros(slots),
        waiting_blocks=np.zeros(slots, np.int64),
        **empty_caches(fleet),
        out_free_s=np.zeros(slots),
        in_free_s=np.zeros(slots),
        look=np.zeros(slots, np.bool_),
        head=nobody(slots, lists),
        tail=nobody(slots, lists),
        interactive=np.zeros(slots, np.int64),
        load=np.zeros(slots, np.int64),
        is_changed=np.full(slots, fleet.by_freeness),
        next_changed=np.where(rank > 0, np.arange(slots) - 1, NOBODY),
        queue=np.where(status == SERVING, 0.0, NEVER),
        shortest=np.arange(slots),  # in order: those that serve are the first of their pool
        shortest_place=rank,
        instances=instances,
        busy=np.zeros(pools, np.int64),
        booted=np.arange(pools) * fleet.boot_spot_s.size // pools,  # each begins elsewhere in the draws
        used_gpus=used_gpus,
        kv_used=np.zeros(pools, np.int64),
        kv_room=instances[:, SERVING] * fleet.kv_capacity[fleet.kind],
        kv_since_s=np.zeros(pools),
        kv_used_area=np.zeros(pools),
        kv_room_area=np.zeros(pools),
        came_tokens=np.zeros(pools, np.int64),
        rate_tokens_per_s=np.zeros(pools),
        waiting_tokens=np.zeros(pools, np.int64),
        past_plan=np.zeros(pools, np.int64),
        cooldown_s=np.zeros(pools),
        turn=fleet.slots[1:] - 1,
        target=np.zeros(pools, np.int64),
        first_changed=fleet.slots[1:] - 1,
        least_free=np.zeros(pools),
        most_free=np.zeros(pools),
        headroom_share=np.tile(rules.headroom_share, (pools, 1)),
        late=np.zeros((pools, levels), np.int64),
        moved=np.zeros((pools, 3), np.int64),
        credit=np.zeros(pools),
        highest_wish=nobody(pools),
        instance_s=np.zeros((pools, len(STATES))),
        forecast_tokens_per_s=np.zeros(endpoints),
        seen_tokens=np.zeros(endpoints, np.int64),
        seen_before=np.zeros(endpoints, np.int64),
        go_on_below=rules.go_on_below.copy(),
        came=np.zeros(llms, np.int64),
        came_per_s=np.zeros(llms),
        manager_head=nobody(llms),
        manager_tail=nobody(llms),
        manager_output_tokens=np.zeros(llms, np.int64),
        manager_input_tokens=np.zeros(llms, np.int64),
        kept_head=nobody(llms * levels),
        kept_tail=nobody(llms * levels),
        stranded_head=nobody(llms),
        stranded_tail=nobody(llms),
    )


def empty_caches(fleet: Fleet) -> dict[str, Any]:
    """The fields of State for the prompts that instances have cached: a place for all that fit."""
    slots = fleet.pool.size
    rows = 0
    if fleet.prefix == BLOCKS:
        rows = int(fleet.kv_capacity.max()) // fleet.prefix_block_tokens + 1
    cache = np.zeros((slots, rows, 5), np.int32)
    cache[:, :, NEXT] = np.where(np.arange(rows) + 1 < rows, np.arange(rows) + 1, NOBODY)
    chains = 1 << rows.bit_length() if rows else 0
    idle = np.tile(np.array([NOBODY, NOBODY, 0, 0], np.int32), (slots, 1))
    return {"cache": cache, "bucket": np.full((slots, chains), NOBODY, np.int32), "idle": idle}


def untouched(requests: int, fleet: Fleet) -> dict[str, Any]:
    """The fields of State that have one entry per request, for requests that nothing has happened to."""
    travelling = requests if fleet.hands_over else 0
    sharing = requests if fleet.prefix != NONE else 0
    return {
        "next": np.full(requests, NOBODY, np.int32),
        "generated": np.zeros(requests, np.int32),
        "admitted": np.zeros(requests, np.int64),
        "served_by": np.full(requests, NOBODY, np.int32),
        "preemptions": np.zeros(requests, np.int32),
        "refused": np.zeros(requests, np.bool_),
        "spared": np.zeros(requests, np.bool_),
        "dispatched_s": np.full(requests, np.nan),
        "queued_s": np.zeros(requests if fleet.is_async.any() else 0),
        "admitted_s": np.full(requests, np.nan),
        "first_token_s": np.full(requests, np.nan),
        "finish_s": np.full(requests, np.nan),
        "reused": np.zeros(sharing, np.int32),
        "saved": np.zeros(sharing, np.int32),
        "held_hashes": np.zeros(sharing, np.int32),
        "carried": np.zeros(travelling, np.int32),
        "holder": np.full(travelling, NOBODY, np.int32),
        "held": np.zeros(travelling, np.int32),
        "stays": np.zeros(travelling, np.bool_),
        "copying_to": np.full(travelling, NOBODY, np.int32),
        "copied": np.zeros(travelling, np.int32),
        "stage": np.zeros(travelling, np.int8),
        "ready_s": np.zeros(travelling),
        "sent_from": np.full(travelling, NOBODY, np.int32),
        "sent_s": np.full(travelling, np.nan),
        "came_s": np.full(travelling, np.nan),
        "joined_s": np.full(travelling, np.nan),
        "moving": np.full(travelling, NOBODY),
        "moving_place": np.full(travelling, NOBODY),
    }


def is_open(state: State) -> np.ndarray:
    """Which requests have not ended, shape (R,)."""
    return np.isnan(state.finish_s) & ~state.refused & ~state.spared


def carry_over(trace: Trace, state: State, more: Trace, fleet: Fleet) -> tuple[Trace, State]:
    """Forget the requests that have ended and append `more`; whatever names a request follows its move."""
    kept = is_open(state)
    place = np.full(kept.size + 1, NOBODY)  # the last entry is where NOBODY goes: to NOBODY
    place[:-1][kept] = np.arange(kept.sum())
    fresh = untouched(more.arrival_s.size, fleet)
    old = {name: getattr(state, name) for name in fresh}
    stay = {name: column[kept] if column.size else column for name, column in old.items()}
    requests = {name: np.concatenate([stay[name], fresh[name]]) for name in fresh}
    requests["next"][: kept.sum()] = place[state.next[kept]]
    travelling = state.counts[MOVING]
    requests["moving"][:travelling] = place[state.moving[:travelling]]
    lists: tuple[str, ...] = ("head", "tail", "joining_head", "joining_tail")
    lists += ("manager_head", "manager_tail", "kept_head", "kept_tail", "stranded_head", "stranded_tail")
    keys = state.finish_key.copy()
    for slot, batch in enumerate(state.batch):
        own = keys[slot, :batch]
        keys[slot, :batch] = (own >> 32 << 32) | place[own & REQUEST_BITS]
    counts = state.counts.copy()
    counts[ARRIVED], counts[ENDED] = kept[: counts[ARRIVED]].sum(), 0
    moved = {name: place[getattr(state, name)] for name in lists}
    state = state._replace(**requests, **moved, finish_key=keys, counts=counts)
    if trace.then.size or more.then.size:
        trace, more = with_legs(trace), with_legs(more)
        trace = trace._replace(then=place[trace.then].astype(np.int32))
        more = more._replace(
            then=np.where(more.then == NOBODY, NOBODY, more.then + kept.sum()).astype(np.int32)
        )
    return joined(rows_of(trace, np.flatnonzero(kept)), more), state


def rows_of(trace: Trace, rows: Ints) -> Trace:
    """Some rows of a trace, in this order; `then` names those of the whole trace still."""
    own = {name: column for name, column in trace._asdict().items() if name not in ("first_hash", "hashes")}
    columns: dict[str, Any] = {name: column[rows] if column.size else column for name, column in own.items()}
    if trace.first_hash.size:
        counts = np.diff(trace.first_hash)[rows]
        first = np.concatenate([[0], np.cumsum(counts)])
        at = np.arange(first[-1]) + np.repeat(trace.first_hash[rows] - first[:-1], counts)
        columns |= {"first_hash": first, "hashes": trace.hashes[at]}
    return Trace(**columns)


def joined(trace: Trace, more: Trace) -> Trace:
    """The rows of both, one behind the other."""
    if not trace.arrival_s.size:
        return more
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(trace, name), getattr(more, name)]) for name in Trace._fields
    }
    if more.first_hash.size:
        columns["first_hash"] = np.concatenate(
            [trace.first_hash, trace.first_hash[-1] + more.first_hash[1:] - more.first_hash[0]]
        )
        columns["hashes"] = np.concatenate([trace.hashes, more.hashes[more.first_hash[0] :]])
    return Trace(**columns)


def with_legs(trace: Trace) -> Trace:
    """The same requests, where nobody has a second leg with columns that say so."""
    if trace.then.size:
        return trace
    size = trace.arrival_s.size
    return trace._replace(
        then=np.full(size, NOBODY, np.int32), leg=np.zeros(size, np.int8), score=np.zeros(size, np.float32)
    )
