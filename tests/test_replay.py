"""The replay: leaping = stepping = the naive twin, and the invariants of models/replay/kernel.py by number.

2, 3 and 5 are asserted inside the twin as well, token by token and VM by VM.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import naive
import numpy as np
import pytest
import strategies
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from one_endpoint import a_fleet, a_trace, some_rules
from one_endpoint import run as run_one

from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.run import TAIL_PERIODS, Schedule, Session, replay_trace
from fleetcast.models.replay.session.initial_state import is_unfinished
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.trace_rows import fill_leg_columns, select_requests
from fleetcast.models.replay.state import MOVE_ABORTED, REQUEST_BITS, State
from fleetcast.models.world.mechanisms import (
    BATCH_PULLS,
    BATCHINGS,
    ORDERS,
    POOL_SPREADS,
    PREFIXES,
    ROUTINGS,
    SCALINGS,
    SIGNALS,
    Ending,
    Prefix,
)

HOUR_S = strategies.HOUR_S
HORIZON_S = strategies.HOURS * HOUR_S
settings.register_profile("replay", deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("replay")


@st.composite
def cases(draw: st.DrawFn) -> tuple[TraceArrays, FleetArrays, Rules, Any]:
    fleet = draw(strategies.fleets())
    targets, forecasts, start = draw(strategies.plans(fleet.kind.size))
    start = [int(np.clip(n, fleet.min_instances[0], fleet.instances_at_start[0])) for n in start]
    rules = draw(strategies.rules(fleet))
    trace = draw(strategies.traces(fleet.is_interactive.size, rules.headroom_share.size))
    return trace, strategies.by_rules(fleet, rules), rules, (targets, forecasts, start)


def run(trace: TraceArrays, fleet: FleetArrays, rules: Rules, plan: Any) -> Outcome:
    targets, forecasts, start = plan
    return replay_trace(trace, fleet, Schedule(targets, forecasts, start, HOUR_S), rules, HORIZON_S)


def part_of(trace: TraceArrays, chosen: np.ndarray) -> TraceArrays:
    """Some of the requests, each with all its legs."""
    place = np.append(np.cumsum(chosen) - 1, NO_INDEX)
    part = select_requests(trace, np.flatnonzero(chosen))
    return part._replace(then=place[part.then].astype(np.int32))


def prompts_of(trace: TraceArrays) -> list[list[int]]:
    """The hashes of each prompt's blocks."""
    return [trace.hashes[a:b].tolist() for a, b in pairwise(trace.first_hash)]


def joining(state: State) -> list[int]:
    """The requests with pending prompts."""
    found = []
    for head, count in zip(state.instance["joining_head"], state.instance["joining"], strict=True):
        for _ in range(count):
            found.append(int(head))
            head = state.request["next"][head]
    return found


def assert_same(a: Outcome, b: Outcome) -> None:
    """A stretch that runs at the end counts its tokens in neither, but its length differs."""
    left_out = {"events"} | ({"cached_tokens"} if (a.status == Ending.QUEUED).any() else set())
    for name in Outcome._fields:
        if name not in left_out:
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


@settings(max_examples=300)
@given(cases())
def test_leaping_equals_stepping_equals_the_naive_twin(
    case: tuple[TraceArrays, FleetArrays, Rules, Any],
) -> None:
    """Invariant 7, and with it every mechanism: same events, same order, same numbers."""
    trace, fleet, rules, plan = case
    leapt = run(trace, fleet, rules, plan)
    assert_invariants(leapt, case)
    assert_same(leapt, run(trace, fleet, rules._replace(steps_per_event=1), plan))
    _, spent = assert_twin_agrees(leapt, case, plan, HOUR_S, ())
    np.testing.assert_array_equal(leapt.instance_s.sum(axis=0), spent)


@pytest.mark.parametrize("order", ["edf", "pf", "dpa", "priority"])
def test_a_chunked_engine_admits_nothing_where_it_has_preempted(order: str) -> None:
    """As in vLLM. Steps take 1/32 s; after 12 of them the second request is preempted for the first one.

    The third has more urgency than the second. It has waited for a place, and its prompt would fit now.
    """
    fleet = a_fleet(1, 2, kv_capacity=np.array([32]), batching=np.array([BATCHINGS.index("chunked")]))
    fleet = fleet._replace(latency=fleet.latency._replace(decode_kv_s=np.zeros((1, 3))))
    trace = a_trace([0.25, 0.25, 0.375], [4, 4, 1], [20, 20, 1])
    trace = trace._replace(
        tier=np.array([0, 1, 0], np.int16), level=np.array([0, 1, 0], np.int16),
        cached_tokens=np.zeros(3, np.int32), first_hash=np.zeros(4, np.int64),
    )  # fmt: skip
    rules = some_rules(order=ORDERS.index(order), headroom_share=np.zeros(2))
    plan = ([[1]] * strategies.HOURS, [[0.0]] * strategies.HOURS, [1])
    outcome = run(trace, fleet, rules, plan)
    assert outcome.preemptions.tolist() == [0, 1, 0]
    assert outcome.first_token_s[2] == 0.25 + 8 / 1024 + 14 / 32
    assert_twin_agrees(outcome, (trace, fleet, rules, plan), plan, HOUR_S, ())


HANDED = ("sent_from", "sent_s", "came_s", "joined_s")
PART_S = 4.0  # between two looks at what may be moved
PARTS = int(HORIZON_S / PART_S)


@settings(max_examples=80)
@given(cases(), st.integers(0, 10_000))
def test_live_moves_are_the_same_leapt_stepped_and_in_the_naive_twin(
    case: tuple[TraceArrays, FleetArrays, Rules, Any], seed: int
) -> None:
    """Every few seconds some of the latest requests are requested to move, most of which cannot."""
    trace, fleet, rules, (targets, forecasts, start) = case
    rng, arrived = np.random.default_rng(seed), np.searchsorted(trace.arrival_s, PART_S * np.arange(PARTS))
    back, slot = rng.integers([1, 0], [9, fleet.pool.size], (6, PARTS, 2)).T
    move_requests = np.stack([np.maximum(0, arrived[:, None] - back), slot], axis=-1).tolist()
    plan = tuple([row for row in rows for _ in range(PARTS // 2)] for rows in (targets, forecasts))

    def play(its_rules: Rules) -> tuple[Outcome, int]:
        session = Session(fleet, its_rules, start)
        session.append_trace(trace)
        for part in range(PARTS):
            for request, slot in move_requests[part]:
                session.move(request, slot)
            row = Schedule(*(rows[part : part + 1] for rows in plan), hour_s=PART_S)
            spent = session.play(row, (part + 1) * PART_S)
        session.finish(HORIZON_S + TAIL_PERIODS * HOUR_S)
        return session.outcome(*spent), int(session.state.moved[:, MOVE_ABORTED].sum())

    leapt, given_up = play(rules)
    stepped, given_up_stepped = play(rules._replace(steps_per_event=1))
    assert_same(leapt, stepped)
    naively, _ = assert_twin_agrees(leapt, case, (*plan, start), PART_S, move_requests)
    assert given_up == given_up_stepped == sum(request.given_up for request in naively)
    done = leapt.status == Ending.FINISHED
    if (leapt.status != Ending.QUEUED).all():  # 11. a move computes nothing
        tokens = (trace.input_tokens + trace.output_tokens - 1)[done].sum()
        assert leapt.cached_tokens + leapt.reused_tokens == tokens + leapt.recomputed_tokens


def assert_twin_agrees(
    leapt: Outcome, case: tuple[TraceArrays, FleetArrays, Rules, Any], plan: Any, hour_s: float, moves: Any
) -> Any:
    """Every request meets the same in the naive twin; its instance time by pool and state."""
    trace, fleet, rules, _ = case
    legged = fill_leg_columns(trace)
    columns = (*legged[:9], legged.level, legged.cached_tokens)
    rows = zip(*(column.tolist() for column in columns), prompts_of(trace), strict=True)
    requests, spent = naive.replay(
        rows,
        fleet,
        rules,
        (
            SCALINGS[rules.scaling],
            ORDERS[rules.order],
            [BATCHINGS[code] for code in fleet.batching],
            ROUTINGS[rules.routing],
            POOL_SPREADS[rules.spread],
            PREFIXES[fleet.prefix],
            SIGNALS[rules.signal],
            BATCH_PULLS[rules.batch_pull],
        ),
        plan,
        HORIZON_S,
        TAIL_PERIODS * HOUR_S,
        hour_s,
        moves,
    )
    for n, request in enumerate(requests):
        slot = request.served_by
        region = -1 if slot is None else int(fleet.region[fleet.pool[slot]])
        drawn = fleet.network_factor[round(request.arrival_s * 1e6) % fleet.network_factor.size]
        network_s = 0.0 if slot is None else fleet.network_s[request.region, region] * drawn
        ends = (request.spared, request.refused, request.finish_s is None, True)
        status = (Ending.SPARED, Ending.REFUSED, Ending.QUEUED, Ending.FINISHED)[ends.index(True)]
        times = [np.nan if at is None else at + network_s for at in (request.first_token_s, request.finish_s)]
        got = (
            leapt.first_token_s[n],
            leapt.finish_s[n],
            leapt.slot[n],
            leapt.preemptions[n],
            leapt.status[n],
            *(getattr(leapt, name)[n] for name in HANDED if fleet.has_transfers),
        )
        handed = tuple(getattr(request, name) for name in HANDED if fleet.has_transfers)
        expected = (*times, -1 if slot is None else slot, request.preemptions, status, *handed)
        np.testing.assert_array_equal(got, list(expected), err_msg=f"request {n}: {request}")
    return requests, spent


def assert_invariants(outcome: Outcome, case: tuple[TraceArrays, FleetArrays, Rules, Any]) -> None:
    """The invariants 1 to 3 and 5, of any replay."""
    trace, fleet, rules, _ = case
    done = outcome.status == Ending.FINISHED
    # 1. every request ends exactly once, or is reported as queued still
    assert (np.isfinite(outcome.finish_s) == done).all()
    too_large = trace.input_tokens + trace.output_tokens > fleet.llm_max_request_tokens[trace.llm]
    began = outcome.status != Ending.SPARED
    assert ((outcome.status == Ending.REFUSED) == too_large)[began & (fill_leg_columns(trace).leg == 0)].all()
    # 2. arrival <= first token <= finish
    assert (outcome.first_token_s[done] >= trace.arrival_s[done]).all()
    assert (outcome.finish_s[done] >= outcome.first_token_s[done]).all()
    # what a wait is made of: held, queued, prefilled
    assert (outcome.dispatched_s[done] >= trace.arrival_s[done]).all()
    assert (outcome.admitted_s[done] >= outcome.dispatched_s[done]).all()
    assert (outcome.first_token_s[done] > outcome.admitted_s[done]).all()
    # a leg begins when the one before it has ended with a score that is too low, and was judged
    legs = fill_leg_columns(trace)
    later = np.flatnonzero((legs.leg > 0) & (outcome.slot != NO_INDEX))
    before = later - 1
    assert done[before].all()
    highest = np.maximum(rules.go_on_below, rules.gear_below.max(axis=1, initial=-np.inf))  # of all gears
    assert (legs.score[before] < highest[trace.llm[before]]).all()
    judged_s = outcome.finish_s[before] - outcome.network_s[before] + rules.judge_s[trace.llm[before]]
    assert (outcome.dispatched_s[later] >= judged_s).all()
    # 5. no time is negative, and no VM is in two states
    assert (outcome.instance_s >= 0).all()
    assert outcome.instance_s.sum() <= fleet.pool.size * HORIZON_S
    # 3. utilisation is a share
    assert ((outcome.kv_share >= 0) & (outcome.kv_share <= 1) | np.isnan(outcome.kv_share)).all()


@settings(max_examples=100)
@given(cases())
def test_tokens_and_memory_are_conserved(case: tuple[TraceArrays, FleetArrays, Rules, Any]) -> None:
    trace, fleet, rules, (targets, forecasts, start) = case
    session = Session(fleet, rules, start)
    session.append_trace(trace)
    outcome = session.outcome(*session.play(Schedule(targets, forecasts, hour_s=HOUR_S), HORIZON_S))
    session.finish(HORIZON_S * 8)
    ended, state = (
        session.outcome(outcome.instance_s, outcome.kv_used, outcome.kv_room, outcome.moved),
        session.state,
    )
    done = ended.status == Ending.FINISHED
    # 4. tokens cached are those of the finished requests, those lost, and those that are cached still
    finished = (trace.input_tokens + trace.output_tokens - 1)[done].sum()
    joining_still = (
        sum(state.sharing["reused"][joining(state)].tolist()) if fleet.prefix != Prefix.NONE else 0
    )
    instance, pool, carried = state.instance, state.pool, state.transfer["transferred_tokens"]
    cached_still = (instance["kv"] + instance["prefilled"]).sum() + carried.sum() + joining_still
    assert ended.cached_tokens + ended.reused_tokens == finished + ended.recomputed_tokens + cached_still
    # 3. memory returns to zero, and so does what was set aside, on both ends of a link too
    if (ended.status != Ending.QUEUED).all():
        held = [instance[name] for name in ("kv", "blocks", "reserved_blocks", "load", "outbound", "inbound")]
        for left in (*held, state.block_crossings, pool["kv_used"], pool["busy_instances"], carried):
            assert not left.any()


@settings(max_examples=100)
@given(cases(), st.sampled_from([16.0, 40.0, 64.0, 90.0]))
def test_a_request_stands_in_exactly_one_place(
    case: tuple[TraceArrays, FleetArrays, Rules, Any], at_s: float
) -> None:
    """9. Whenever one looks: to come, held, waiting, joining, decoding, under way, or ended."""
    trace, fleet, rules, (targets, forecasts, start) = case
    session = Session(fleet, rules, start)
    session.append_trace(trace)
    session.play(Schedule(targets[:1], forecasts[:1], hour_s=2 * HORIZON_S), at_s)
    state, legs = session.state, fill_leg_columns(trace)
    found = list(range(state.progress.arrived, legs.leg.size))
    lists = [state.llm["manager_head"], state.llm["stranded_head"], state.central["central_head"]]
    for heads in (*lists, state.lane["head"], state.instance["joining_head"]):
        for request in heads.ravel():
            while request != NO_INDEX:
                found.append(int(request))
                request = state.request["next"][request]
    for slot, batch in enumerate(state.instance["batch"]):
        found += (state.finish_key[slot, :batch] & REQUEST_BITS).tolist()
    moving = state.transfer["in_flight"][: state.progress.in_flight]
    found += moving[
        state.transfer["migrating_to"][moving] == NO_INDEX
    ].tolist()  # who is copied decodes still
    found += np.flatnonzero(~is_unfinished(state)).tolist()
    # a later leg is nowhere until the one before it has ended
    before = np.full(legs.leg.size, NO_INDEX)
    before[legs.then[legs.then != NO_INDEX]] = np.flatnonzero(legs.then != NO_INDEX)
    unborn = (legs.leg > 0) & is_unfinished(state) & (np.arange(legs.leg.size) < state.progress.arrived)
    found += np.flatnonzero(unborn & is_unfinished(state)[before]).tolist()
    assert sorted(found) == list(range(legs.leg.size))


def test_parallel_threads_give_identical_results() -> None:
    """Invariant 6: several policies on one trace in two threads, bit-identical to one by one."""
    rng, requests = np.random.default_rng(11), 30_000
    arrival_s = np.cumsum(rng.exponential(0.02, requests))
    trace = a_trace(arrival_s, rng.integers(1, 900, requests), rng.integers(1, 200, requests))
    fleet = a_fleet(40, 8, kv_capacity=np.array([8000]))
    rules = [some_rules(scaling=SCALINGS.index(name)) for name in ("follow", "reactive", "lt_ua", "hpa")]

    def one(its_rules: Rules) -> Outcome:
        return run_one(trace, fleet, its_rules, horizon_s=1024.0, start=[[20]])

    with ThreadPoolExecutor(2) as threads:
        for alone, threaded in zip(map(one, rules), threads.map(one, rules), strict=True):
            assert_same(alone, threaded)


@settings(max_examples=100)
@given(cases(), st.sampled_from([0.25, 16.0, 64.0, 90.0]))
def test_feeding_in_parts_and_saving_between_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[TraceArrays, FleetArrays, Rules, Any], cut_s: float
) -> None:
    """Part 1, saved and loaded, then part 2 = both at once: bit by bit, request by request."""
    trace, fleet, rules, (targets, forecasts, start) = case
    targets, forecasts = targets and targets[:1], forecasts and forecasts[:1]
    one_row = Schedule(targets, forecasts, hour_s=2 * HORIZON_S)
    whole = Session(fleet, rules, start)
    whole.append_trace(trace)
    whole.play(one_row, cut_s)
    whole.play(one_row, HORIZON_S)
    path = tmp_path_factory.mktemp("session") / "saved.npz"
    first = Session(fleet, rules, start)
    early = trace.arrival_s < cut_s
    first.append_trace(part_of(trace, early))
    spent = first.play(one_row, cut_s)
    ended = dict(zip(first.row, first.outcome(*spent).finish_s, strict=True))
    first.save(path)
    second = Session.load(path, fleet, rules)
    second.append_trace(part_of(trace, ~early))
    spent = second.play(one_row, HORIZON_S)
    ended |= dict(zip(second.row, second.outcome(*spent).finish_s, strict=True))
    expected = whole.outcome(*spent)
    np.testing.assert_array_equal([ended[row] for row in range(trace.arrival_s.size)], expected.finish_s)
    np.testing.assert_array_equal(whole.state.instance_s, second.state.instance_s)
