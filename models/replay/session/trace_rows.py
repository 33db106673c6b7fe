"""Rows of a trace: check them, select some, concatenate two traces. R requests."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Ints
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.world.mechanisms import Prefix, QueueOrder

SHORTS, WHOLES = np.zeros(0, np.int16), np.zeros(0, np.int32)
EMPTY_TRACE = TraceArrays(np.zeros(0), SHORTS, SHORTS, SHORTS, WHOLES, WHOLES)


def single_tier_trace(
    arrival_s: npt.ArrayLike,
    input_tokens: npt.ArrayLike,
    output_tokens: npt.ArrayLike,
    cached_tokens: npt.ArrayLike = (),
) -> TraceArrays:
    """Return requests of one llm, one region and the first tier; all of shape (R,).

    The arrays are copies: the kernel is compiled for writeable ones, and those of a frame are read-only.
    """
    arrivals = np.array(arrival_s, float)
    zeros = np.zeros(arrivals.size, np.int16)
    inputs, outputs, cached = (np.array(t, np.int32) for t in (input_tokens, output_tokens, cached_tokens))
    return TraceArrays(arrivals, zeros, zeros, zeros, inputs, outputs, cached_tokens=cached)


def assign_lanes(trace: TraceArrays, rules: Rules) -> TraceArrays:
    """Return the trace with levels (0 where it has none), and with the lane in which each request waits."""
    level = trace.level if trace.level.size else np.zeros(trace.arrival_s.size, np.int16)
    if level.size != trace.arrival_s.size:
        raise ValueError(f"level has {level.size} rows; the trace has {trace.arrival_s.size} requests.")
    return trace._replace(level=level, lane=level if rules.order >= QueueOrder.PRIORITY else trace.tier)


def check_trace(trace: TraceArrays, fleet: FleetArrays, rules: Rules) -> None:
    """Raise ValueError for a trace that the kernel cannot play; the message names the first bad request."""
    regions, tiers = fleet.network_s.shape[0], fleet.is_interactive.size
    llms, levels = fleet.defers_batch_tier.size, rules.headroom_share.size
    rules_of_columns = (
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
    for rule, bad in (*rules_of_columns, *leg_rules(trace, fleet), *prefix_rules(trace, fleet)):
        if bad.any():
            at = int(np.argmax(bad))
            columns = trace._asdict().items()
            row = ", ".join(f"{name}={column[at]}" for name, column in columns if column.size == bad.size)
            raise ValueError(f"Request {at} of the trace ({row}): {rule}. Mend or drop it.")


def leg_rules(trace: TraceArrays, fleet: FleetArrays) -> list[tuple[str, np.ndarray]]:
    """Return the rules for chains of legs, each with the rows that break it, shape (R,)."""
    if not trace.then.size:
        return []
    rows = np.arange(trace.arrival_s.size)
    has_next = trace.then != NO_INDEX
    is_inside = has_next & (trace.then > rows) & (trace.then < rows.size)
    behind = np.where(is_inside, trace.then, rows)
    same = (trace.arrival_s[behind] == trace.arrival_s) & (trace.region[behind] == trace.region)
    begun = np.bincount(behind[is_inside], minlength=rows.size)
    return [
        (
            "a chain of legs needs a fleet whose has_transfers is set",
            np.full(rows.size, not fleet.has_transfers),
        ),
        ("then must be a later row of the trace, or -1 for none", has_next & ~is_inside),
        ("the next leg must have the same arrival and region", ~same),
        ("the next leg must be one further", is_inside & (trace.leg[behind] != trace.leg + 1)),
        ("a leg must follow exactly one other, the first none", begun != (trace.leg > 0)),
    ]


def prefix_rules(trace: TraceArrays, fleet: FleetArrays) -> list[tuple[str, np.ndarray]]:
    """Return the rules for prefix columns under the fleet's mode, each with the rows that break it, (R,)."""
    rows = trace.arrival_s.size
    if fleet.prefix == Prefix.GIVEN:
        if trace.cached_tokens.size != rows:
            return [('prefix = "given" needs cached_tokens of all requests', np.ones(rows, bool))]
        bad = (trace.cached_tokens < 0) | (trace.cached_tokens > trace.input_tokens)
        return [("cached_tokens must be at most input_tokens", bad)]
    if fleet.prefix == Prefix.BLOCKS:
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


def select_requests(trace: TraceArrays, rows: Ints) -> TraceArrays:
    """Return these rows of a trace, shape (n,), in this order; `then` keeps rows of the whole trace."""
    columns: dict[str, Any] = {
        name: column[rows] if column.size else column
        for name, column in trace._asdict().items()
        if name not in ("first_hash", "hashes")
    }
    if trace.first_hash.size:
        counts = np.diff(trace.first_hash)[rows]
        first = np.concatenate([[0], np.cumsum(counts)])
        at = np.arange(first[-1]) + np.repeat(trace.first_hash[rows] - first[:-1], counts)
        columns |= {"first_hash": first, "hashes": trace.hashes[at]}
    return TraceArrays(**columns)


def concat_traces(trace: TraceArrays, more: TraceArrays) -> TraceArrays:
    """Return the rows of both traces, those of `more` last."""
    if not trace.arrival_s.size:
        return more
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(trace, name), getattr(more, name)]) for name in TraceArrays._fields
    }
    if more.first_hash.size:
        columns["first_hash"] = np.concatenate(
            [trace.first_hash, trace.first_hash[-1] + more.first_hash[1:] - more.first_hash[0]]
        )
        columns["hashes"] = np.concatenate([trace.hashes, more.hashes[more.first_hash[0] :]])
    return TraceArrays(**columns)


def fill_leg_columns(trace: TraceArrays) -> TraceArrays:
    """Return the trace with leg columns; where it has none, each request has one leg."""
    if trace.then.size:
        return trace
    size = trace.arrival_s.size
    return trace._replace(
        then=np.full(size, NO_INDEX, np.int32), leg=np.zeros(size, np.int8), score=np.zeros(size, np.float32)
    )
