"""What comes out of a replay of a day, as tables: requests, legs, hours of the fleet."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date, timedelta
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from assets.lake.settings import HOURS, Settings, midnight
from assets.replays.drives import DAY_S, HOUR_S
from assets.replays.workloads import KEPT, NO_SHADOWS, Workload
from models.metrics import tpot_s
from models.replay.legs import answers, begun_s, first_legs, requests_of, summed
from models.replay.requests import rows_of
from models.replay.run import FINISHED, QUEUED, STATUSES, TAIL_PERIODS, Outcome, share_of
from models.replay.state import NOBODY, ROLES, STATES, Bools, Fleet, Floats, Ints, Rules, Trace

ENDED_S = DAY_S + TAIL_PERIODS * HOUR_S  # when a replay stops watching, on the day's clock
CLOCKS = ("first_token_s", "finish_s", "dispatched_s", "admitted_s", "sent_s", "came_s", "joined_s")
MOVES = ("moved_queued", "moved_live", "moves_given_up")  # of Outcome.moved


def waited_for(workload: Workload, outcome: Outcome) -> tuple[Workload, Outcome]:
    """The rows that somebody waits for, without shadows, and what became of them."""
    if not workload.is_shadow.any():
        return workload, outcome
    rows = np.flatnonzero(~workload.is_shadow)
    own = {name: getattr(outcome, name)[rows] for name in per_row(outcome)}
    trace, answerer = rows_of(workload.trace, rows), workload.answerer[rows]
    return workload._replace(trace=trace, answerer=answerer, is_shadow=NO_SHADOWS), outcome._replace(**own)


def by_day(outcomes: Iterable[Outcome], sizes: Sequence[int]) -> Iterator[tuple[int, Outcome]]:
    """The outcomes of a session that was fed day after day, so many rows each: each day by its number.

    Times are on the day's own clock then. What had not ended at midnight is told as it ended later, so a day
    comes when nothing of it is open any more: memory holds two or three of many.
    """
    firsts = np.cumsum(sizes) - sizes
    waiting: dict[int, Outcome] = {}
    for at, outcome in enumerate(outcomes):
        names, own = per_row(outcome), outcome.row >= firsts[at]
        for day, told in waiting.items():
            here = (outcome.row >= firsts[day]) & (outcome.row < firsts[day + 1])
            rows = outcome.row[here] - firsts[day]
            for name in names:
                getattr(told, name)[rows] = getattr(outcome, name)[here]
        waiting[at] = outcome._replace(**{name: getattr(outcome, name)[own] for name in names})
        for day in list(waiting):
            if at == len(sizes) - 1 or not (waiting[day].status == QUEUED).any():
                told = waiting.pop(day)
                clock = {name: getattr(told, name) - day * DAY_S for name in names if name in CLOCKS}
                yield day, told._replace(**clock, row=told.row - firsts[day])


def per_row(outcome: Outcome) -> list[str]:
    """The columns that have an entry for each of its rows."""
    return [
        name
        for name, column in outcome._asdict().items()
        if isinstance(column, np.ndarray) and column.shape == outcome.row.shape
    ]


class Piece(NamedTuple):
    """Of a policy's day what is written at once: the requests of some llms, in files of their own."""

    policy: str
    llms: Collection[str] = ()  # none: all of them
    file: str = "part"
    made_from: str = ""  # the content of all that the replay was made from, which `outcomes` tells


def write_outcome(
    settings: Settings,
    day: date,
    piece: Piece,
    workload: Workload,
    setting: tuple[Fleet, Rules],
    outcome: Outcome,
) -> None:
    """Write the requests of a piece, their legs where some have several, and fleet hours."""
    with written(settings, day, piece, setting) as (append, spent):
        append(workload, outcome)
        spent(outcome)


@contextmanager
def written(
    settings: Settings, day: date, piece: Piece, setting: tuple[Fleet, Rules]
) -> Iterator[tuple[Callable[[Workload, Outcome], None], Callable[[Outcome], None]]]:
    """What takes requests that have ended, some at a time, and what takes the hours of the fleet, once.

    The outcomes are there last, when the block has ended well.
    """
    fleet, _ = setting
    where: dict[str, Any] = {"trace": settings.trace, "day": day, "policy": piece.policy, "file": piece.file}
    with ExitStack() as stack:
        outcomes = stack.enter_context(settings.lake.writing("outcomes", made_from=piece.made_from, **where))
        legs = stack.enter_context(settings.lake.writing("legs", **where)) if fleet.hands_over else None

        def append(workload: Workload, outcome: Outcome) -> None:
            workload, outcome = waited_for(workload, outcome)
            outcomes(outcomes_table(settings, workload, setting, outcome))
            if legs is not None:
                legs(legs_table(settings, workload, setting, outcome))

        def spent(outcome: Outcome) -> None:
            hours = fleet_hours_table(settings, day, fleet, outcome)
            if piece.llms:
                hours = hours.filter(pc.is_in(hours["llm"], pa.array(piece.llms)))
            settings.lake.write("fleet_hours", hours, made_from=piece.made_from, **where)

        yield append, spent


def visits(trace: Trace, fleet: Fleet, rules: Rules, outcome: Outcome) -> pd.DataFrame:
    """What instances did, one after the other: a row each, seconds on the day's clock, without network.

    request        position among the requests, in their order
    row            of the trace
    slot           the instance
    hand_over_s    what lay before it, a judge or a transfer; NaN before the first
    link_s         in which both links carried the prompt's cache from prefill to decode; NaN where none went
    came_s         into the instance's queue
    began_s        in its batch
    first_token_s  made there; NaN if it was not
    ended_s        there
    """
    rows = np.flatnonzero(outcome.slot != NOBODY)
    is_first = trace.leg[rows] == 0 if trace.leg.size else np.ones(rows.size, bool)
    network_s = outcome.network_s[rows]
    whole = pd.DataFrame(
        {
            "request": requests_of(trace)[rows],
            "row": rows,
            "slot": outcome.slot[rows],
            "hand_over_s": np.where(is_first, np.nan, rules.judge_s[trace.llm[rows - 1]]),
            "link_s": np.nan,
            "came_s": outcome.dispatched_s[rows],
            "began_s": outcome.admitted_s[rows],
            "first_token_s": outcome.first_token_s[rows] - network_s,
            "ended_s": outcome.finish_s[rows] - network_s,
        }
    )
    handed = outcome.sent_from[rows] != NOBODY
    at = rows[handed]
    sent_s, came_s = outcome.sent_s[at], outcome.came_s[at]
    sender, receiver = outcome.sent_from[at], outcome.slot[at]
    begun = whole[handed].assign(slot=sender, ended_s=sent_s)
    token_s = fleet.link_token_s[fleet.slot_kind]
    carried_s = trace.input_tokens[at] * np.maximum(token_s[sender], token_s[receiver])
    role = fleet.role[fleet.pool]
    ended = whole[handed].assign(
        hand_over_s=came_s - sent_s,
        link_s=np.where(role[sender] == role[receiver], np.nan, carried_s),
        came_s=came_s,
        began_s=outcome.joined_s[at],
        first_token_s=np.nan,
    )
    return pd.concat([whole[~handed], begun, ended]).sort_values(["row"], kind="stable", ignore_index=True)


def outcomes_table(
    settings: Settings, workload: Workload, setting: tuple[Fleet, Rules], outcome: Outcome
) -> pa.Table:
    """One row per request: who it was, the targets it had, and what it met (seconds from its arrival)."""
    fleet, rules = setting
    table, trace = workload.requests, workload.trace
    first, kept = first_legs(trace), answers(trace, outcome)
    arrival_s, tier, begun = trace.arrival_s[first], trace.tier[first], begun_s(trace, rules, outcome)[kept]
    tiers = settings.catalogue.tiers.values()
    ttft_s, e2e_s = outcome.first_token_s[kept] - arrival_s, outcome.finish_s[kept] - arrival_s
    llms, regions = pa.array(settings.catalogue.llms), pa.array([*settings.catalogue.regions, None])
    status, slot = outcome.status[kept], outcome.slot[kept]
    answerer = (workload.answerer if workload.answerer.size else trace.llm)[kept]
    known = workload.known
    score = (
        np.full(status.size, np.nan) if known is None else known.score_of(settings.catalogue.llms, answerer)
    )
    queued_s = np.where(status == STATUSES.index("queued"), ENDED_S - arrival_s, np.nan)
    return pa.table(
        {
            **{name: table[name] for name in KEPT},
            "is_held": np.array([known.is_held for known in tiers])[tier],
            "ttft_slo_s": _or_null(np.array([known.ttft_slo_s or np.nan for known in tiers])[tier]),
            "tpot_slo_s": _or_null(np.array([known.tpot_slo_s or np.nan for known in tiers])[tier]),
            "served_llm": llms.take(pa.array(answerer)),
            "served_region": regions.take(pa.array(outcome.served_region[kept] % len(regions))),
            "status": pa.array(STATUSES).take(pa.array(status)),
            "score": _or_null(np.where(status == FINISHED, score, np.nan)),
            "ttft_s": _or_null(ttft_s),
            "tpot_s": _or_null(tpot_s(ttft_s, e2e_s, trace.output_tokens[kept])),
            "e2e_s": _or_null(e2e_s),
            "queued_s": _or_null(queued_s),
            "preemptions": summed(trace, outcome.preemptions),
            "level": trace.level[first],
            "moves": summed(trace, moved_live(trace, fleet, outcome).astype(np.int64)),
            "stopped_s": _or_null(stopped_s(trace, fleet, outcome)[kept]),
            "reused_tokens": outcome.reused[kept],
            "legs": instances_each(workload, outcome),
            "instance": pa.array(slot, mask=slot < 0),
            "earlier_s": begun - arrival_s,
            "held_s": _or_null(outcome.dispatched_s[kept] - begun),
            "waited_s": _or_null((outcome.admitted_s - outcome.dispatched_s)[kept]),
            "prefill_s": _or_null((outcome.first_token_s - outcome.network_s - outcome.admitted_s)[kept]),
            "network_s": outcome.network_s[kept],
        }
    )


def moved_live(trace: Trace, fleet: Fleet, outcome: Outcome) -> Bools:
    """Whether the last hand-over of each row was a live move, between instances in one role; shape (R,)."""
    if not outcome.sent_from.size:
        return np.zeros(trace.arrival_s.size, bool)
    role = fleet.role[fleet.pool]
    return (outcome.sent_from != NOBODY) & (role[outcome.sent_from] == role[outcome.slot])


def stopped_s(trace: Trace, fleet: Fleet, outcome: Outcome) -> Floats:
    """From when a request left an instance in its last live move until it went on; NaN if never."""
    moved = moved_live(trace, fleet, outcome)
    if not moved.any():
        return np.full(moved.size, np.nan)
    return np.where(moved, outcome.joined_s - outcome.sent_s, np.nan)


def instances_each(workload: Workload, outcome: Outcome) -> Ints:
    """How many instances had a request one after the other, shape (requests,); 1 where none has yet."""
    had = (outcome.slot != NOBODY).astype(np.int64)
    if outcome.sent_from.size:
        had += outcome.sent_from != NOBODY
    return np.maximum(summed(workload.trace, had), 1)


def legs_table(
    settings: Settings, workload: Workload, setting: tuple[Fleet, Rules], outcome: Outcome
) -> pa.Table:
    """One row per instance that had a request, of those that several had (seconds from its arrival)."""
    fleet, rules = setting
    had = visits(workload.trace, fleet, rules, outcome)
    own = had[(instances_each(workload, outcome) > 1)[had["request"]]]
    pool, arrival_s = fleet.pool[own["slot"]], workload.trace.arrival_s[own["row"]]
    catalogue, trace = settings.catalogue, workload.trace
    judges = workload.answerer != trace.llm if workload.answerer.size else np.zeros(trace.llm.size, bool)
    times = ("came_s", "began_s", "first_token_s", "ended_s")
    return pa.table(
        {
            "request_id": workload.requests["request_id"].take(pa.array(own["request"])),
            "leg": own.groupby("request").cumcount() + 1,
            "llm": pa.array(catalogue.llms).take(pa.array(fleet.llm[pool])),
            "judges": judges[own["row"]],
            "role": pa.array(ROLES).take(pa.array(fleet.role[pool])),
            "region": pa.array(catalogue.regions).take(pa.array(fleet.region[pool])),
            "gpu": pa.array(catalogue.gpus).take(pa.array(fleet.gpu[fleet.kind[pool]])),
            "instance": own["slot"],
            **{name: own[name] for name in ("hand_over_s", "link_s")},
            **{name: own[name] - arrival_s for name in times},
        }
    )


def fleet_hours_table(settings: Settings, day: date, fleet: Fleet, outcome: Outcome) -> pa.Table:
    """One row per hour, llm, role, region and kind: instance-seconds by state, memory in use, GPU's price."""
    catalogue = settings.catalogue
    llms, regions, gpus = list(catalogue.llms), list(catalogue.regions), list(catalogue.gpus)
    usd = np.array([gpu.usd_per_hour for gpu in catalogue.gpus.values()])
    of_pools = np.stack([fleet.llm, fleet.region, fleet.kind, fleet.role])
    rows, of_row = np.unique(of_pools, axis=1, return_inverse=True)
    llm, region, kind, role = (np.tile(column, HOURS) for column in rows)

    def together(of_pools: np.ndarray) -> np.ndarray:
        """(hours, pools, ...) -> (hours * rows, ...): the pools of a kind are counted together."""
        total = np.zeros((len(of_pools), rows.shape[1], *of_pools.shape[2:]))
        for pool, row in enumerate(of_row.ravel()):
            total[:, row] += of_pools[:, pool]
        return total.reshape(-1, *of_pools.shape[2:])

    hour = np.repeat(np.arange(HOURS), rows.shape[1]) * np.timedelta64(timedelta(hours=1))
    start = np.datetime64(midnight(day).replace(tzinfo=None), "us") + hour
    states = together(outcome.instance_s).T
    gpu = fleet.gpu[kind]
    return pa.table(
        {
            "hour_start": pa.array(start).cast(pa.timestamp("us", "UTC")),
            "llm": pa.array(llms).take(pa.array(llm)),
            "role": pa.array(ROLES).take(pa.array(role)),
            "region": pa.array(regions).take(pa.array(region)),
            "gpu": pa.array(gpus).take(pa.array(gpu)),
            "gpus_per_instance": fleet.gpus[kind],
            **{f"{state}_s": pa.array(seconds) for state, seconds in zip(STATES, states, strict=True)},
            "kv_utilisation_share": _or_null(share_of(together(outcome.kv_used), together(outcome.kv_room))),
            "usd_per_gpu_hour": usd[gpu],
            "board_w": _or_null(_board_w(settings, zip(llm, gpu, fleet.gpus[kind], strict=True))),
            **dict(zip(MOVES, together(outcome.moved).astype(np.int64).T, strict=True)),
        }
    )


def _board_w(settings: Settings, kinds: Iterable[tuple[int, int, int]]) -> np.ndarray:
    """Measured W of a GPU's board at work, for (llm, GPU type, GPUs) as codes; nan where nobody measured."""
    catalogue = settings.catalogue
    llms, gpus = list(catalogue.llms), list(catalogue.gpus)
    known = {(p.llm, p.gpu, p.tensor_parallel): p.board_w for p in catalogue.latency if p.board_w}
    return np.array([known.get((llms[llm], gpus[gpu], int(n)), np.nan) for llm, gpu, n in kinds])


def _or_null(values: np.ndarray) -> pa.Array:
    return pa.array(values, from_pandas=True)  # nan becomes null
