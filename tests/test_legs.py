"""Stages of a request: KV transfers, judges between two answers, requests spread over pools."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from one_endpoint import KV_S, PREFILL_S_PER_TOKEN, a_fleet, a_pair, a_trace, run, some_rules

from fleetcast.models.replay.fleet import teams
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.run import Schedule, Session, replay_trace
from fleetcast.models.replay.session.initial_state import count_gpus
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.trace_rows import fill_leg_columns
from fleetcast.models.world.mechanisms import Ending, GearTrigger, Opportunism, PoolSpread, Routing, Status

TOKEN_S = 1 / 4096  # of a link
TEAMS = 3  # of a paired pool
PROMPT = 1024
X = PROMPT * TOKEN_S  # seconds that a prompt's cache takes


def with_second_stage(trace: TraceArrays, score: float | np.ndarray) -> TraceArrays:
    """Return the trace with a second stage after each request, on the second llm."""
    rows = 2 * trace.arrival_s.size
    leg = np.arange(rows) % 2
    twice = TraceArrays(*(np.repeat(column, 2) for column in trace[:6]))
    return twice._replace(
        llm=leg.astype(np.int16),
        then=np.where(leg == 0, np.arange(rows) + 1, NO_INDEX).astype(np.int32),
        leg=leg.astype(np.int8),
        score=np.broadcast_to(np.repeat(score, 2) if np.ndim(score) else score, rows).astype(np.float32),
    )


def two_llms(instances: int, **changes: object) -> FleetArrays:
    """Return two llms with the same number of identical instances each."""
    two = dict.fromkeys(("region", "kind"), np.zeros(2, np.int64))
    return a_fleet(
        2 * instances,
        8,
        pools_of=np.array([[0], [1]]),
        llm=np.array([0, 1]),
        takes=np.ones((2, 3), bool),
        role=np.zeros(2, np.int64),
        then=np.full(2, NO_INDEX),
        has_transfers=True,
        max_request_tokens=np.full(2, 1_000_000),
        llm_max_request_tokens=np.full(2, 1_000_000),
        share=np.ones(2),
        weight=np.ones(2),
        team=np.zeros(2, np.int64),
        tokens_per_s=np.full(2, np.inf),
        slots=np.array([0, instances, 2 * instances]),
        pool=np.repeat([0, 1], instances),
        instances_at_start=np.full(2, instances),
        min_instances=np.full(2, instances),
        boot_cold_s=np.full(2, 512.0),
        defers_batch_tier=np.ones(2, bool),
        **two,
        **changes,
    )


def judge_rules(below: float, judge_s: float = 0.0) -> Rules:
    return some_rules(go_on_below=np.array([below, below]), judge_s=np.array([judge_s, judge_s]))


def busy_trace(requests: int = 2000, rate_per_s: float = 6.0) -> TraceArrays:
    rng = np.random.default_rng(3)
    arrival_s = np.cumsum(rng.exponential(1 / rate_per_s, requests))
    return a_trace(arrival_s, rng.integers(1, 400, requests), rng.integers(1, 60, requests))


# --- paired pools


def paired_pools(of_prefill: int, of_decode: int, count: int = 2, **changes: object) -> FleetArrays:
    """Return `count` paired pools of so many instances each, of which at least one pair is running."""
    sizes = np.array([of_prefill, of_decode])
    return a_pair(*(sizes * count).tolist(), TOKEN_S, team=sizes, min_instances=sizes, **changes)


def test_a_request_stays_within_the_least_loaded_pair() -> None:
    """Both prefill instances are idle, and the first pair's decode instance is not the least busy one."""
    trace = a_trace([0.0, 4.0, 8.0], PROMPT, [400, 200, 400])
    apart, any_pairing = (run(trace, one) for one in (paired_pools(1, 1), a_pair(2, 2, TOKEN_S)))
    assert (apart.sent_from.tolist(), apart.slot.tolist()) == ([0, 1, 1], [2, 3, 3])
    assert (any_pairing.sent_from.tolist(), any_pairing.slot.tolist()) == ([0, 0, 0], [2, 3, 3])
    paired = run(a_trace([0.0, 0.0], PROMPT, 400), paired_pools(1, 2, 1))
    assert paired.slot.tolist() == [1, 2], "within a team the one with least to do"


def test_a_pair_fails_and_boots_as_one() -> None:
    """Half of the first pair fails; all of it is booted again and serves from one instant on."""
    fleet = paired_pools(1, 2, 2, boot_cold_s=np.array([16.0, 64.0]))
    rules = some_rules(failure_s=np.array([8.0]), failure_slot=np.array([2]), monitor_s=1.0)
    session = Session(fleet, rules, [[2]])
    session.append_trace(a_trace([0.5], PROMPT, 400))
    for until_s, target, serving in (
        (7.5, [2, 4], [2, 4]),
        (8.5, [2, 4], [1, 2]),
        (40.0, [2, 4], [1, 2]),  # the prefill instance waits for the others
        (80.0, [2, 4], [2, 4]),
        (300.0, [1, 0], [1, 2]),  # the decode instances follow, whatever their target
    ):
        session.play(Schedule([target], hour_s=256.0), until_s)
        assert session.instances()[:, 0].tolist() == serving


def test_no_request_goes_to_the_booting_part_of_a_pair() -> None:
    """A released pair drains. Recalled, its busy instance serves at once, its idle one later."""
    session = Session(paired_pools(2, 1, 2), some_rules(monitor_s=1.0), [[4, 2]])
    session.append_trace(a_trace([0.0, 0.0, 3.0], [8 * PROMPT, 16 * PROMPT, PROMPT], 4))
    for until_s, target, serving in ((1.0, [4, 2], [4, 2]), (2.0, [2, 1], [2, 1]), (3.5, [4, 2], [3, 1])):
        spent = session.play(Schedule([target], hour_s=256.0), until_s)
        assert session.instances()[:, 0].tolist() == serving
    session.finish(300.0)
    assert session.outcome(*spent).slot.tolist() == [0, 5, 0]


def test_a_team_has_room_where_all_that_it_lacks_fits_under_the_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    """By counting GPUs of each type: donated instances of others give way, its own come back."""
    for function in (teams.has_same_gpus, teams.first_team_slot):  # compiled, only the kernel can call them
        monkeypatch.setattr(teams, function.py_func.__name__, function.py_func)
    rng, found = np.random.default_rng(6), list[bool]()
    for _ in range(300):
        sizes, team = rng.integers(1, 4, 2), rng.integers(TEAMS)
        fleet = paired_pools(*sizes, TEAMS, cap_gpus=np.full((1, 2), 99))
        state = Session(fleet, some_rules(), [sizes]).state
        fleet = fleet._replace(
            kind=np.arange(2), slot_kind=fleet.pool, gpu=rng.integers(0, 2, 2), gpus=rng.integers(1, 4, 2)
        )
        status = rng.choice([Status.SERVING, Status.DONATED, Status.GONE], fleet.pool.size)
        state.instance["status"] = status
        state.instances[:] = 0
        np.add.at(state.instances, (fleet.pool, status), 1)
        state.used_gpus[:] = count_gpus(fleet, status)
        fleet = fleet._replace(cap_gpus=state.used_gpus + rng.integers(-2, 5))
        is_own = (np.arange(status.size) - fleet.slots[fleet.pool]) // sizes[fleet.pool] == team
        fits = True
        for gpu in range(2):
            gpus = np.where(fleet.gpu[fleet.pool] == gpu, fleet.gpus[fleet.pool], 0)
            lacks, gives = gpus[is_own & (status == Status.GONE)], gpus[~is_own & (status == Status.DONATED)]
            held = state.used_gpus[0, gpu] - gives.sum() + lacks.sum()
            fits &= bool(lacks.sum() == 0 or held <= fleet.cap_gpus[0, gpu])
        assert teams.has_team_room.py_func(fleet, state, 0, team) == fits
        found.append(fits)
    assert 0.2 < np.mean(found) < 0.8


# --- prefill and decode apart


def test_a_lone_transfer_meets_the_closed_form_in_bulk_and_by_layer() -> None:
    trace = a_trace([0.0], PROMPT, 50)
    whole = run(trace, a_fleet(1))
    bulk = run(trace, a_pair(1, 1, TOKEN_S))
    layers = run(trace, a_pair(1, 1, TOKEN_S, layers=8))
    assert bulk.first_token_s[0] == layers.first_token_s[0] == whole.first_token_s[0] == 1.0
    assert bulk.finish_s[0] - whole.finish_s[0] == X
    # X is shorter than the pass: the last of eight parts leaves after its end
    assert layers.finish_s[0] - whole.finish_s[0] == X / 8
    slow = run(trace, a_pair(1, 1, 8 * TOKEN_S, layers=8))  # X is twice the pass: it begins after an eighth
    assert slow.finish_s[0] - whole.finish_s[0] == 1 / 8 + 8 * X - 1.0


def test_a_link_sends_one_cache_at_a_time() -> None:
    """Two prompts leave one pass together; the second cache waits for the first, also at the receiver."""
    trace = a_trace([0.0, 0.0], PROMPT // 2, 2)
    outcome = run(trace, a_pair(1, 2, TOKEN_S, max_batch=2))
    step_s = 1 / 32 + PROMPT // 2 * KV_S
    assert outcome.slot.tolist() == [1, 2]
    assert outcome.finish_s.tolist() == [1.0 + X / 2 + step_s, 1.0 + X + step_s]
    apart = run(trace, a_pair(2, 1, TOKEN_S))  # two senders, one receiver
    ends = [0.5 + X / 2 + step_s, 0.5 + X + step_s]
    assert apart.finish_s.tolist() == ends


def test_the_sender_keeps_its_blocks_until_the_transfer_ends() -> None:
    """A prompt that needs the whole memory waits at the sender for the previous transfer."""
    fleet = a_pair(
        1, 1, TOKEN_S, kv_capacity=np.array([PROMPT + 8]), max_request_tokens=np.full(2, PROMPT + 8)
    )
    outcome = run(
        a_trace([0.0, 0.0], PROMPT, 8), fleet._replace(llm_max_request_tokens=np.array([PROMPT + 8]))
    )
    assert outcome.first_token_s.tolist() == [1.0, 1.0 + X + 1.0]


def test_a_request_stays_where_no_decode_instance_runs() -> None:
    trace = a_trace([0.0], PROMPT, 50)
    fleet = a_pair(1, 1, TOKEN_S, min_instances=np.array([1, 0]))
    outcome = run(trace, fleet, targets=[[1, 0]])
    assert outcome.slot.tolist() == [0]
    assert outcome.finish_s[0] == run(trace, a_fleet(1)).finish_s[0]


@pytest.mark.parametrize(("way", "kept"), [(Opportunism.IDLE, 1), (Opportunism.UNQUEUED, 2)])
def test_an_instance_keeps_what_it_prefilled_if_it_runs_nothing_else(way: Opportunism, kept: int) -> None:
    """The first stays, the second begins at the empty one; the third ends its prompt next to the first."""
    long, pair = a_trace([0.0, 2.0, 4.0], PROMPT, 1000), a_pair(1, 1, TOKEN_S, max_batch=4)
    found = run(long, pair, some_rules(opportunism=way), horizon_s=3600.0)
    assert found.slot.tolist() == [0, 1, 2 - kept]


def test_opportunistic_transfers_depend_on_load() -> None:
    """No request waits for a link; a busy instance sends new requests to an idle one."""
    idle = some_rules(opportunism=Opportunism.IDLE)
    alone = run(a_trace([0.0], PROMPT, 50), a_pair(1, 1, TOKEN_S), idle)
    assert (alone.slot.tolist(), alone.sent_from.tolist()) == ([0], [NO_INDEX])
    assert alone.finish_s[0] == run(a_trace([0.0], PROMPT, 50), a_fleet(1)).finish_s[0]
    trace = a_trace([0.0, 0.25, 0.5], PROMPT, 50)
    three = run(trace, a_pair(1, 1, TOKEN_S), idle)
    assert three.dispatched_s.tolist() == [0.0, 0.25, 0.5]
    assert three.slot.tolist() == [1, 1, 0], "the first is sent on, the second begins there, the last stays"
    assert three.sent_from.tolist() == [0, NO_INDEX, NO_INDEX]


def test_the_backlog_weight_decides_where_a_request_decodes() -> None:
    """Weight 0 keeps all requests while the other instance is busy, an infinite weight keeps none."""
    trace, pair = busy_trace(400, 1.0), a_pair(1, 1, TOKEN_S)
    kept, sent, off = (
        run(trace, pair, some_rules(opportunism=how, opportunism_weight=weight))
        for how, weight in (
            (Opportunism.WEIGHTED, 0.0),
            (Opportunism.WEIGHTED, np.inf),
            (Opportunism.OFF, 1.0),
        )
    )
    share = [np.mean(out.sent_from != NO_INDEX) for out in (kept, sent, off)]
    assert share[0] < 0.4 < share[1] < share[2], "an idle one comes first, at the arrival"
    assert all((out.status == Ending.FINISHED).all() for out in (kept, sent, off))


@pytest.mark.parametrize("slot", [0, 1])
def test_a_cache_in_flight_is_lost_with_either_end(slot: int) -> None:
    """The request is routed and computed again, by the twin of the failed instance."""
    rules = some_rules(failure_s=np.array([1.0 + X / 2]), failure_slot=np.array([2 * slot]))
    outcome = run(a_trace([0.0], PROMPT, 50), a_pair(2, 2, TOKEN_S), rules)
    again_s = 1.0 + X / 2 + (PROMPT + 1) * PREFILL_S_PER_TOKEN
    assert outcome.status.tolist() == [Ending.FINISHED]
    assert outcome.preemptions.tolist() == [1]
    assert outcome.recomputed_tokens == PROMPT
    assert outcome.first_token_s[0] == 1.0
    assert outcome.finish_s[0] > again_s + (PROMPT + 1) * TOKEN_S


def test_a_session_saved_with_caches_in_flight_resumes_identically(tmp_path: Path) -> None:
    trace, fleet = busy_trace(400), a_pair(4, 4, 1 / 256, max_batch=8)
    drive, until_s = Schedule(np.array([[4, 4]]), hour_s=1e6), float(trace.arrival_s[-1]) + 1.0
    whole = Session(fleet, some_rules(), [4, 4])
    whole.append_trace(trace)
    whole.play(drive, until_s / 2)
    assert whole.state.instance["inbound"].sum() > 0
    whole.save(tmp_path / "saved.npz")
    loaded = Session.load(tmp_path / "saved.npz", fleet, some_rules())
    for session in (whole, loaded):
        session.play(drive, until_s)
        session.finish(2 * until_s)
    np.testing.assert_array_equal(whole.state.request["finish_s"], loaded.state.request["finish_s"])
    assert np.isfinite(whole.state.request["finish_s"]).all(), "none is lost"


@pytest.mark.parametrize("c", [2.0, 0.25])
@pytest.mark.parametrize("is_chain", [False, True])
def test_scaling_all_times_scales_all_results(is_chain: bool, c: float) -> None:
    def at(scale: float) -> np.ndarray:
        trace, fleet, rules = busy_trace(300), a_pair(3, 3, scale * TOKEN_S, max_batch=8), some_rules()
        if is_chain:
            trace = with_second_stage(trace, np.linspace(0, 1, 300))
            fleet, rules = two_llms(2), judge_rules(0.5, judge_s=0.75 * scale)
        tables = fleet.latency
        scaled = {name: scale * getattr(tables, name) for name in ("prefill_s", "prefill_slope", "decode_s")}
        latency = tables._replace(**scaled, decode_kv_s=scale * tables.decode_kv_s)
        rules = rules._replace(monitor_s=16.0 * scale, cooldown_s=16.0 * scale)
        trace = trace._replace(arrival_s=scale * trace.arrival_s)
        return run(trace, fleet._replace(latency=latency), rules).finish_s

    np.testing.assert_array_equal(at(c), c * at(1.0))
    assert np.isfinite(at(1.0)).any()


def test_a_draining_instance_is_released_after_its_last_transfer() -> None:
    fleet = a_pair(1, 1, TOKEN_S, min_instances=np.array([0, 1]))
    drive = Schedule([[1, 1], [0, 1]], hour_s=1.0 + X / 2)
    outcome = replay_trace(a_trace([0.0], PROMPT, 50), fleet, drive, some_rules(), 2 * (1.0 + X / 2))
    serving, _, draining, donated = outcome.instance_s[:, 0].sum(axis=0)
    assert (serving, draining, donated) == (1.0 + X / 2, X / 2, 1.0)


def test_a_request_is_preempted_by_an_outbound_cache_and_resumes() -> None:
    """The first prompt fills the memory until its slow transfer ends; the second decodes there too."""
    capacity = np.array([1100])
    fleet = a_pair(1, 1, 1 / 128, min_instances=np.array([1, 0]), kv_capacity=capacity)
    fleet = fleet._replace(max_request_tokens=np.array([1100, 1100]), llm_max_request_tokens=capacity)
    drive = Schedule(
        [[1, 1], [1, 0], [1, 0]], hour_s=2.0
    )  # the decoding one drains, so that the second stays
    outcome = replay_trace(a_trace([0.0, 2.5], [1000, 50], [4, 100]), fleet, drive, some_rules(), 6.0)
    assert outcome.status.tolist() == [Ending.FINISHED, Ending.FINISHED]
    assert outcome.slot.tolist() == [1, 0]
    assert outcome.preemptions.tolist() == [0, 1]


# --- live moves


def replay_move(ask_s: float, until_s: float = 64.0, **rules: Any) -> tuple[Session, bool]:
    """Replay one request on the first of two instances with constant steps, and request its live move."""
    fleet = a_fleet(2, has_transfers=True, link_token_s=np.array([TOKEN_S]))
    fleet = fleet._replace(latency=fleet.latency._replace(decode_kv_s=np.zeros((1, 2))))
    session = Session(fleet, some_rules(**rules), [2])
    session.append_trace(a_trace([0.0], PROMPT, 500))
    drive = Schedule([[2]], hour_s=1e6)
    session.play(drive, ask_s)
    begins = session.move(0, 1)
    session.play(drive, until_s)
    return session, begins


def test_a_live_move_meets_the_closed_form_of_its_copies() -> None:
    """First token at 1 s, a step each 1/32 s; the move is requested at 2 s, after 31 step boundaries."""
    end_s = 2.0 + (PROMPT + 31) * TOKEN_S  # of the first copy: the 40th boundary is over
    last = int((end_s - 1.0) * 32)
    assert last == 40
    session, begins = replay_move(2.0, last_copy_tokens=16, move_s=0.25)
    left_s, rest = 1.0 + (last + 1) / 32, last + 1 - 31
    assert begins
    assert session.state.request["served_by"].tolist() == [1]
    assert session.state.request["finish_s"][0] == left_s + rest * TOKEN_S + 0.25 + (499 - (last + 1)) / 32
    assert session.state.progress.lost_tokens == 0
    assert session.state.progress.cached_tokens == PROMPT + 499
    assert session.state.instance["out_free_s"].tolist() == [left_s + rest * TOKEN_S, 0.0]


def test_a_small_move_is_one_copy_and_an_impossible_move_is_none() -> None:
    several, _ = replay_move(2.0, last_copy_tokens=2, max_copies=8)
    one, _ = replay_move(2.0, last_copy_tokens=16)
    stopped = [session.state.request["finish_s"][0] - (1.0 + 499 / 32) for session in (several, one)]
    assert 0 < stopped[0] < stopped[1] <= 16 * TOKEN_S + 1 / 32
    for ask_s, why in ((0.5, "in prefill"), (32.0, "ended")):
        session, begins = replay_move(ask_s)
        assert not begins, why
        assert session.state.request["served_by"].tolist() == [0]


def test_where_a_request_leaves_the_next_one_begins() -> None:
    """One at a time: the prompt that waits for the place begins at the boundary where the other leaves."""
    fleet = a_fleet(2, 1, has_transfers=True, link_token_s=np.array([TOKEN_S]))
    session = Session(fleet, some_rules(), [2])
    session.append_trace(a_trace([0.0, 0.0, 0.25], [PROMPT, 2 * PROMPT, 64], [500, 2, 3]))
    drive = Schedule([[2]], hour_s=1e6)
    session.play(drive, 4.0)
    assert session.move(0, 1)
    session.play(drive, 64.0)
    assert session.state.request["served_by"].tolist() == [1, 1, 0]
    left_s = session.state.transfer["sent_s"][0]
    assert left_s > 4.0
    assert session.state.request["first_token_s"][2] == left_s + 64 * PREFILL_S_PER_TOKEN


def test_a_move_is_aborted_when_its_request_ends_or_its_target_fails() -> None:
    almost_s = 1.0 + 498 / 32
    session, begins = replay_move(almost_s)
    assert begins
    assert (session.state.request["served_by"][0], session.state.request["finish_s"][0]) == (
        0,
        1.0 + 499 / 32,
    )
    session, begins = replay_move(2.0, failure_s=np.array([2.125]), failure_slot=np.array([1]))
    assert begins
    assert (session.state.request["served_by"][0], session.state.request["finish_s"][0]) == (
        0,
        1.0 + 499 / 32,
    )
    assert not session.state.instance["leaving"].any()
    assert (session.state.transfer["migrating_to"] == NO_INDEX).all()


# --- cascades


def test_with_threshold_zero_a_cascade_is_its_first_llm() -> None:
    trace = busy_trace()
    alone = run(trace, a_fleet(6, 8))
    outcome = run(with_second_stage(trace, 0.5), two_llms(6), judge_rules(below=0.5))
    np.testing.assert_array_equal(outcome.finish_s[::2], alone.finish_s)
    assert (outcome.status[1::2] == Ending.SPARED).all()


def test_the_next_stage_begins_after_the_verdict() -> None:
    outcome = run(
        with_second_stage(a_trace([0.0], 32, 8), 0.0), two_llms(1), judge_rules(below=0.5, judge_s=0.25)
    )
    first, second = outcome.finish_s
    assert outcome.dispatched_s.tolist() == [0.0, first + 0.25]
    assert second == 2 * first + 0.25
    assert (outcome.status == Ending.FINISHED).all()


def test_the_escalated_share_never_falls_as_the_threshold_rises() -> None:
    trace = busy_trace()
    scores = np.random.default_rng(5).uniform(size=trace.arrival_s.size)
    shares = []
    for below in (0.0, 0.25, 0.5, 0.75, 2.0):
        outcome = run(with_second_stage(trace, scores), two_llms(8), judge_rules(below))
        shares.append(np.mean(outcome.status[1::2] != Ending.SPARED))
        assert shares[-1] == np.mean(scores < below)
    assert shares == sorted(shares)


def test_a_plan_row_can_override_thresholds() -> None:
    """All requests continue in the first hour, none in the second; the rules' thresholds never apply."""
    trace, hour_s = busy_trace(400, 4.0), 64.0
    drive = Schedule([[8, 8]] * 2, hour_s=hour_s, go_on_below=[[2.0, 2.0], [0.0, 0.0]])
    outcome = replay_trace(with_second_stage(trace, 0.5), two_llms(8), drive, judge_rules(0.5), 2 * hour_s)
    first_s = outcome.finish_s[::2]
    gone = outcome.status[1::2] != Ending.SPARED
    np.testing.assert_array_equal(gone, first_s < hour_s)
    assert 0.2 < gone.mean() < 0.8


def test_gears_follow_the_rate_and_the_load_of_the_next_llm() -> None:
    """No answer scores well enough; 4 requests a second arrive, and 40 during half a minute."""
    arrival_s = np.sort(np.concatenate([np.arange(0, 240, 0.25), np.arange(100, 130, 0.025)]))
    trace = with_second_stage(a_trace(arrival_s, 64, 16), 0.5)

    def gone_by(by: int, seen: int, least: float) -> np.ndarray:
        rules = judge_rules(1.0)._replace(
            monitor_s=4.0,
            gears_by=int(by),
            gear_llm=np.array([seen, NO_INDEX]),
            gear_from=np.array([[0.0, least], [0.0, np.inf]]),
            gear_below=np.array([[1.0, 0.0], [1.0, 1.0]]),
        )
        outcome = run(trace, two_llms(16, kv_capacity=np.array([1024])), rules, horizon_s=256.0)
        gone = outcome.status[1::2] != Ending.SPARED
        ended_s = outcome.finish_s[::2]
        return np.array(
            [gone[(ended_s >= a) & (ended_s < b)].mean() for a, b in ((0, 90), (110, 130), (220, 240))]
        )

    by_rate = gone_by(GearTrigger.RATE, 0, 8.0)
    by_load = gone_by(GearTrigger.LOAD, 1, 0.1)
    assert by_rate[0] == by_load[0] == 1.0
    assert by_rate[1] < 0.2, by_rate
    assert 0.0 < by_load[1] < 0.8, by_load
    assert by_rate[2] == by_load[2] == 1.0


def test_an_invalid_chain_is_refused_by_name() -> None:
    good = with_second_stage(busy_trace(3), 0.5)
    bad = {
        "must be a later row": good._replace(then=np.array([0, -1, 3, -1, 5, -1], np.int32)),
        "same arrival and region": good._replace(then=np.array([3, -1, -1, -1, 5, -1], np.int32)),
        "must be one further": good._replace(leg=np.array([0, 2, 0, 1, 0, 1], np.int8)),
        "follow exactly one other": good._replace(then=np.array([-1, -1, 3, -1, 5, -1], np.int32)),
    }
    for message, trace in bad.items():
        with pytest.raises(ValueError, match=message):
            replay_trace(trace, two_llms(1), Schedule([[1, 1]], hour_s=64.0), judge_rules(0.5), 64.0)
    with pytest.raises(ValueError, match="needs a fleet whose has_transfers is set"):
        run(good, two_llms(1)._replace(has_transfers=False), judge_rules(0.5))
    assert fill_leg_columns(busy_trace(3)).then.tolist() == [NO_INDEX] * 3


# --- between the pools of an endpoint


def three_pools(weight: list[float]) -> FleetArrays:
    return a_fleet(
        6,
        8,
        pools_of=np.array([[0, 1, 2]]),
        takes=np.ones((3, 3), bool),
        role=np.zeros(3, np.int64),
        then=np.full(3, NO_INDEX),
        max_request_tokens=np.full(3, 1_000_000),
        share=np.ones(3),
        weight=np.array(weight, float),
        team=np.zeros(len(weight), np.int64),
        tokens_per_s=np.full(len(weight), np.inf),
        slots=np.array([0, 1, 3, 6]),
        pool=np.array([0, 1, 1, 2, 2, 2]),
        instances_at_start=np.array([1, 2, 3]),
        min_instances=np.array([1, 2, 3]),
        boot_cold_s=np.full(3, 512.0),
        **dict.fromkeys(("llm", "region", "kind"), np.zeros(3, np.int64)),
    )


@pytest.mark.parametrize(
    ("spread", "shares"),
    [
        (PoolSpread.ROUND_ROBIN, [1, 1, 1]),
        (PoolSpread.WEIGHTS, [0.5, 0.25, 2.0]),
        (PoolSpread.GOODPUT, [0.5 * 1, 0.25 * 2, 2.0 * 3]),
    ],
)
def test_each_pool_gets_its_share_to_within_one_request(spread: int, shares: list[float]) -> None:
    fleet, trace = three_pools([0.5, 0.25, 2.0]), busy_trace(600)
    outcome = run(trace, fleet, some_rules(spread=spread, route_utilisation_share=1.0))
    pool = fleet.pool[outcome.slot]
    for n in (1, 10, 100, 600):
        counts = np.bincount(pool[:n], minlength=3)
        assert (np.abs(counts - n * np.array(shares) / sum(shares)) < 1).all()


def test_two_pools_of_one_equal_one_pool_of_two() -> None:
    """Distributed in turn over two pools of one instance each, or over both in one pool: identical bits."""
    two = {name: getattr(three_pools([1, 1, 1]), name)[:2] for name in (
        "takes", "role", "then", "max_request_tokens", "share", "weight", "team", "tokens_per_s",
        "boot_cold_s",
        "llm", "region", "kind",
    )}  # fmt: skip
    one_each = {"instances_at_start": np.ones(2, np.int64), "min_instances": np.ones(2, np.int64)}
    slots = {"slots": np.array([0, 1, 2]), "pool": np.array([0, 1])}
    twice = a_fleet(2, 8, pools_of=np.array([[0, 1]]), **two, **one_each, **slots)
    trace = busy_trace(600, rate_per_s=2.0)
    by_pools = run(trace, twice, some_rules(spread=PoolSpread.ROUND_ROBIN, route_utilisation_share=1.0))
    in_one = run(trace, a_fleet(2, 8), some_rules(routing=Routing.ROUND_ROBIN))
    np.testing.assert_array_equal(by_pools.finish_s, in_one.finish_s)
    assert set(by_pools.slot) == {0, 1}


def test_the_pool_with_most_free_memory_is_first() -> None:
    outcome = run(a_trace([0.0] * 3, 8, 4), three_pools([1, 1, 1]), some_rules(spread=PoolSpread.MOST_UNUSED))
    assert three_pools([1, 1, 1]).pool[outcome.slot].tolist() == [2, 2, 2]


# --- as plain Python


def test_the_compiled_kernel_equals_plain_python() -> None:
    """Without its compiler the kernel is a slow Python program with the same results."""
    command = (sys.executable, "-c", PLAIN)
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    output = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    assert json.loads(output) == small_replays()


def small_replays() -> list[list[float]]:
    """Return finish times of small replays of every mechanism of this file."""
    trace = busy_trace(60)
    failing = some_rules(scaling=1, failure_s=np.array([3.0]), failure_slot=np.array([0]))
    tight = a_fleet(2, 4, kv_capacity=np.array([900]))

    def play(*setting: Any) -> Outcome:
        return run(*setting, horizon_s=64.0)

    outcomes = (
        play(trace, tight, failing),
        play(trace, a_pair(2, 2, TOKEN_S, max_batch=4), failing),
        play(with_second_stage(trace, np.linspace(0, 1, 60)), two_llms(2), judge_rules(0.5, 0.25)),
        play(trace, three_pools([1, 1, 1]), some_rules(spread=PoolSpread.GOODPUT)),
    )
    assert all((outcome.status != Ending.QUEUED).all() for outcome in outcomes)
    return [np.nan_to_num(outcome.finish_s).tolist() for outcome in outcomes]


PLAIN = "import json, test_legs; print(json.dumps(test_legs.small_replays()))"
