"""What theory says of a replay: queueing laws, closed forms, scaling of time, conservation, clear errors."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import theory
from one_endpoint import DECODE_S, KV_S, PREFILL_S_PER_TOKEN, a_fleet, a_trace, run, some_rules

from fleetcast.models.replay.kernel_inputs import NO_INDEX
from fleetcast.models.replay.run import Schedule, Session, replay_trace
from fleetcast.models.replay.session.rules import add_failures
from fleetcast.models.world.mechanisms import ORDERS, SCALINGS, Batching, Ending, Routing, Scaling, Status


@pytest.mark.parametrize("is_memoryless", [False, True], ids=["M/D/1", "M/M/1"])
def test_mean_wait_is_that_of_queueing_theory(is_memoryless: bool) -> None:
    """Invariant 8: one request at a time, service = its prefill; within 2 % of the formula."""
    rng = np.random.default_rng(3)
    rate, requests = 2.0, 400_000
    tokens = rng.exponential(300, requests).astype(int) + 1 if is_memoryless else np.full(requests, 300)
    trace = a_trace(np.cumsum(rng.exponential(1 / rate, requests)), tokens, 1)
    outcome = run(trace, a_fleet(1))
    service_s = tokens * PREFILL_S_PER_TOKEN
    wait_s = outcome.first_token_s - trace.arrival_s - service_s
    expected_s = theory.mean_wait_s(rate, service_s.mean(), np.square(service_s).mean())
    assert wait_s.mean() == pytest.approx(expected_s, rel=0.02)


def test_an_isolated_request_takes_its_prefill_and_its_steps() -> None:
    outcome = run(a_trace([0.0, 1000.0], [100, 7], [50, 1]), a_fleet(1, max_batch=8))
    steps = np.arange(49)
    prefill_s = 100 * PREFILL_S_PER_TOKEN
    assert outcome.first_token_s[0] == prefill_s
    assert outcome.finish_s[0] == prefill_s + np.sum(DECODE_S + KV_S * (100 + steps))
    assert outcome.first_token_s[1] == outcome.finish_s[1] == 1000.0 + 7 * PREFILL_S_PER_TOKEN


def test_a_prompt_in_chunks_pays_for_the_context_before_each() -> None:
    """k chunks of c tokens, alone: k prefills of c, and h*c*c for each pair of an earlier and a later."""
    context_s = 2.0**-24
    fleet = a_fleet(1, batching=np.array([Batching.CHUNKED]), max_prefill_tokens=np.array([128]))
    fleet = fleet._replace(latency=fleet.latency._replace(prefill_context_s=np.array([context_s])))
    outcome = run(a_trace([0.0], [1000], [1]), fleet)
    passes, last = divmod(1000, 128)
    pairs = 128 * 128 * passes * (passes - 1) // 2 + last * 128 * passes
    assert outcome.first_token_s[0] == 1000 * PREFILL_S_PER_TOKEN + context_s * pairs
    assert outcome.first_token_s[0] > 1.02 * 1000 * PREFILL_S_PER_TOKEN


@pytest.mark.parametrize("is_async", [False, True])
def test_an_async_engine_takes_a_request_one_step_later_unless_it_is_idle(is_async: bool) -> None:
    """Steps of 1/32 s from 1/8 s on: the second request comes in the middle of one."""
    arrival_s = 0.125 + 2.5 * DECODE_S
    fleet = a_fleet(1, max_batch=8, is_async=np.array([is_async]))
    free = np.zeros_like(fleet.latency.decode_kv_s)
    fleet = fleet._replace(latency=fleet.latency._replace(decode_kv_s=free))
    outcome = run(a_trace([0.0, arrival_s], [128, 64], [40, 2]), fleet)
    assert outcome.first_token_s[0] == 0.125
    begun_s = 0.125 + (4 if is_async else 3) * DECODE_S
    assert outcome.first_token_s[1] == begun_s + 64 * PREFILL_S_PER_TOKEN


def test_more_instances_never_raise_the_mean_wait() -> None:
    rng = np.random.default_rng(5)
    trace = a_trace(np.cumsum(rng.exponential(0.2, 20_000)), rng.integers(1, 900, 20_000), 20)
    waits = [np.mean(run(trace, a_fleet(n, 8)).first_token_s - trace.arrival_s) for n in range(1, 9)]
    assert all(more <= fewer for fewer, more in pairwise(waits))


@pytest.mark.parametrize("scaling", [Scaling.FOLLOW, Scaling.REACTIVE])
def test_scaling_all_times_scales_all_results(scaling: int) -> None:
    rng = np.random.default_rng(7)
    trace = a_trace(
        np.cumsum(rng.exponential(0.1, 3000)), rng.integers(1, 900, 3000), rng.integers(1, 90, 3000)
    )
    fleet, rules = a_fleet(6, 8, kv_capacity=np.array([3000])), some_rules(scaling=scaling)
    once = run(trace, fleet, rules, horizon_s=512.0, start=[[2]])
    c = 4.0
    slow = fleet.latency._replace(
        **{
            name: getattr(fleet.latency, name) * c
            for name in fleet.latency._fields
            if name != "prefill_tokens"
        }
    )
    fleet = fleet._replace(latency=slow, boot_cold_s=fleet.boot_cold_s * c, boot_spot_s=fleet.boot_spot_s * c)
    rules = rules._replace(cooldown_s=16 * c, monitor_s=16 * c, niw_priority_age_s=36_000 * c)
    scaled = run(
        trace._replace(arrival_s=trace.arrival_s * c), fleet, rules, horizon_s=512.0 * c, start=[[2]]
    )
    np.testing.assert_array_equal(scaled.finish_s, once.finish_s * c)
    np.testing.assert_allclose(scaled.instance_s, once.instance_s * c)
    assert once.preemptions.sum() > 0


def test_without_instances_requests_are_queued_and_counted() -> None:
    outcome = run(a_trace([0.0, 1.0], 10, 2), a_fleet(2, min_instances=np.zeros(1, int)), targets=[[[0]]])
    assert outcome.status.tolist() == [Ending.QUEUED, Ending.QUEUED]
    assert np.isnan(outcome.dispatched_s).all()
    assert outcome.instance_s[0, 0, Status.SERVING - 1] == 0


def test_five_thousand_requests_at_one_instant_all_end_in_turn() -> None:
    outcome = run(a_trace(np.zeros(5000), 100, 8), a_fleet(4, 16), horizon_s=4096.0)
    assert (outcome.status == Ending.FINISHED).all()
    assert np.array_equal(np.sort(outcome.first_token_s[::4]), outcome.first_token_s[::4])


def test_memory_is_held_in_blocks() -> None:
    """Two prompts of 17 tokens take two blocks of 16 each: three blocks hold one of them at a time."""
    trace = a_trace([0, 0], 17, 8)
    fits = run(trace, a_fleet(1, 8, kv_capacity=np.array([48])))
    waits = run(trace, a_fleet(1, 8, kv_capacity=np.array([48]), kv_block_tokens=16))
    assert fits.first_token_s[1] == fits.first_token_s[0]
    assert waits.first_token_s[1] == waits.finish_s[0] + 17 * PREFILL_S_PER_TOKEN


def test_pools_serve_their_own_tiers() -> None:
    """Siloed: a batch request waits for the batch pool's only instance while there is an idle interactive
    one.
    """
    trace = a_trace([0, 0, 0], [1024, 1024, 8], 1)._replace(tier=np.array([2, 2, 0], np.int16))
    pools = {
        "pools_of": np.array([[0, 1]]),
        "takes": np.array([[True, True, False], [False, False, True]]),
        "defers_batch_tier": np.array([False]),
        "slots": np.array([0, 1, 2]),
        "pool": np.array([0, 1]),
        "max_request_tokens": np.full(2, 1_000_000),
        "share": np.full(2, 0.5),
        "boot_cold_s": np.full(2, 512.0),
        "tokens_per_s": np.full(2, np.inf),
        "weight": np.ones(2),
        "then": np.full(2, NO_INDEX),
        **dict.fromkeys(("llm", "region", "kind", "role", "team"), np.zeros(2, np.int64)),
        **dict.fromkeys(("instances_at_start", "min_instances"), np.ones(2, np.int64)),
    }
    siloed = a_fleet(2, **pools)
    outcome = replay_trace(
        trace, siloed, Schedule(start=[[2]], hour_s=64.0), some_rules(scaling=Scaling.REACTIVE), 64.0
    )
    assert outcome.first_token_s.tolist() == [1.0, 2.0, 8 * PREFILL_S_PER_TOKEN]
    assert outcome.slot.tolist() == [1, 1, 0]


def test_kv_memory_holds_one_long_request_at_a_time_and_refuses_what_never_fits() -> None:
    """Invariant 3: two prompts of 600 do not fit in 1,000 tokens, so the second waits for the first."""
    outcome = run(a_trace([0, 0, 0], [600, 600, 990], 11), a_fleet(1, 8, kv_capacity=np.array([1000])))
    assert outcome.status.tolist() == [Ending.FINISHED, Ending.FINISHED, Ending.REFUSED]
    assert outcome.first_token_s[1] == outcome.finish_s[0] + 600 * PREFILL_S_PER_TOKEN


def test_scaling_in_donates_and_scaling_out_reclaims_after_the_boot_delay() -> None:
    fleet = a_fleet(4, 8)
    hours = replay_trace(
        a_trace([10.0], 100, 5),
        fleet,
        Schedule([[[3]], [[1]], [[3]]], hour_s=1024.0),
        some_rules(),
        3 * 1024.0,
    )
    serving, booting, draining, donated = hours.instance_s[:, 0, :].T
    assert serving.tolist() == [3 * 1024, 1024, 1024 + 2 * (1024 - 64)]
    assert booting.tolist() == [0, 0, 2 * 64]
    assert donated.tolist() == [1024, 3 * 1024, 1024]
    assert draining.sum() == 0


def test_a_plan_by_the_quarter_is_accounted_by_the_hour() -> None:
    """The same plan written by the hour and by quarters: the same hours, bit by bit."""
    trace = a_trace(np.arange(0, 2048.0, 8.0), 600, 30)
    by_hour = Schedule([[[3]], [[1]]], hour_s=1024.0)
    by_quarter = Schedule([[[3]]] * 4 + [[[1]]] * 4, hour_s=1024.0, rows_per_hour=4)
    one, other = (replay_trace(trace, a_fleet(4, 8), d, some_rules(), 2048.0) for d in (by_hour, by_quarter))
    np.testing.assert_array_equal(one.instance_s, other.instance_s)
    np.testing.assert_array_equal(one.kv_share, other.kv_share)
    np.testing.assert_array_equal(one.finish_s, other.finish_s)


def test_a_dead_instance_s_requests_are_recomputed_elsewhere() -> None:
    """The second request loses its cache at 2 s; the survivor prefills it anew with what it had made."""
    trace = a_trace([0.0, 0.0], [1024, 512], [100, 100])
    rules = some_rules(failure_s=np.array([2.0]), failure_slot=np.array([1]))
    healthy, hurt = (
        run(trace, a_fleet(2, 8), horizon_s=64.0),
        run(trace, a_fleet(2, 8), rules, horizon_s=64.0),
    )
    assert hurt.preemptions.tolist() == [0, 1]
    assert hurt.status.tolist() == [Ending.FINISHED, Ending.FINISHED]
    assert hurt.first_token_s[1] == healthy.first_token_s[1]
    assert hurt.finish_s[1] > healthy.finish_s[1] + 512 * PREFILL_S_PER_TOKEN
    assert hurt.instance_s[0, 0, Status.SERVING - 1] == 64.0 + 2.0


@pytest.mark.parametrize("scaling", SCALINGS)
def test_every_rule_replaces_the_dead_up_to_the_minimum(scaling: str) -> None:
    """Both instances die at 2 s without a rule that needs for anything: only the minimum brings them back."""
    rules = some_rules(
        scaling=SCALINGS.index(scaling), failure_s=np.array([2.0, 2.0]), failure_slot=np.array([0, 1])
    )
    session = Session(a_fleet(4, 8, min_instances=np.full(1, 2)), rules, np.full((1, 1), 2))
    session.play(Schedule(np.full((1, 1), 0), hour_s=1024.0), 1024.0)
    assert session.instances()[0, Status.SERVING - 1] == 2


def test_lt_ua_goes_past_its_plan_when_a_burst_comes_late_in_the_hour() -> None:
    """Ten times the forecast from minute 38 on: in the mean of the hour it never is five times."""
    calm, burst = np.arange(0, 2280, 8.0), np.arange(2280, 3600, 0.4)
    trace = a_trace(np.concatenate([calm, burst]), 64, 512)
    held = {}
    for scaling in (Scaling.LT_U, Scaling.LT_UA):
        rules, drive = some_rules(scaling=scaling), Schedule([[2]], [[16.0]], [[2]], hour_s=3600.0)
        outcome = replay_trace(trace, a_fleet(8, 64, kv_capacity=np.array([16_384])), drive, rules, 3600.0)
        held[scaling] = outcome.instance_s[0, 0, :2].sum() / 3600
    assert trace.input_tokens.sum() < 5 * 16.0 * 3600
    assert held[Scaling.LT_U] == pytest.approx(2.0, abs=0.01)
    assert held[Scaling.LT_UA] > 2.5


@pytest.mark.parametrize(("age_s", "instances"), [(1000.0, 7), (1e9, 1)])
def test_a_reflex_boots_what_held_work_needs_before_it_ages(age_s: float, instances: int) -> None:
    """100 prompts of 4,096 tokens in what is left of 1,000 s are 416 tokens/s: seven of 64."""
    rules = some_rules(
        scaling=Scaling.REFLEX, niw_priority_age_s=age_s, niw_pull_one_share=-1.0, niw_pull_two_share=-1.0
    )
    fleet = a_fleet(16, boot_spot_s=np.zeros(1), tokens_per_s=np.full(1, 64.0))
    session = Session(fleet, rules, np.full((1, 1), 1))
    session.append_trace(a_trace(np.zeros(100), 4096, 1, tier=2))
    session.play(Schedule(np.full((1, 1), 1), hour_s=1024.0), 64.0)
    assert session.instances()[0, Status.SERVING - 1] == instances


def test_failures_come_at_the_configured_rate() -> None:
    """Poisson clocks: 0.5 per slot and day on 400 slots over two days are about 400; at rate 0 none."""
    fleet = a_fleet(400)
    assert add_failures(some_rules(), fleet, 0.0, 172_800.0, seed=1).failure_s.size == 0
    drawn = add_failures(some_rules(), fleet, 0.5, 172_800.0, seed=1)
    assert drawn.failure_s.size == pytest.approx(400, abs=80)
    assert (np.diff(drawn.failure_s) >= 0).all()
    assert set(drawn.failure_slot) <= set(range(400))


def test_round_robin_takes_turns_where_shortest_queue_avoids_the_long_one() -> None:
    trace = a_trace([0.0, 1.0, 2.0], [8192, 8, 8], 1)
    turns = run(trace, a_fleet(2), some_rules(routing=Routing.ROUND_ROBIN))
    shortest = run(trace, a_fleet(2))
    assert turns.first_token_s[2] == 8.0 + 8 * PREFILL_S_PER_TOKEN
    assert shortest.first_token_s[2] == 2.0 + 8 * PREFILL_S_PER_TOKEN


def test_silence_scales_in_too() -> None:
    """Decisions are made at monitor ticks, not only when a request arrives."""
    outcome = run(
        a_trace([0.0], 10, 2), a_fleet(4), some_rules(scaling=Scaling.REACTIVE), horizon_s=1024.0, start=[[4]]
    )
    assert outcome.instance_s[0, 0, Status.SERVING - 1] < 1.1 * 1024
    assert outcome.instance_s[0, 0, Status.DONATED - 1] > 2.9 * 1024


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        # request: 0 a prompt of 8 s that blocks; 1 normal; 2 fast; 3 fast (later); 4 niw; 5 fast, due last
        ("fcfs", [0, 1, 2, 3, 5, 4]),
        ("edf", [0, 2, 3, 5, 1, 4]),
        ("pf", [0, 2, 3, 5, 1, 4]),
        # at 8 s: 2 is severely expired, 5 is urgent, 1 is neither, 3 is recently expired
        ("dpa", [0, 2, 5, 1, 3, 4]),
    ],
)
def test_each_queue_order_serves_in_its_own_order(order: str, expected: list[int]) -> None:
    """SageServe 6.5, one request at a time behind one long prompt."""
    trace = a_trace([0.0, 0.25, 0.5, 5.5, 6.0, 6.5], [8192, 64, 64, 64, 64, 64], 1)
    trace = trace._replace(tier=np.array([0, 1, 0, 0, 2, 0], np.int16))
    rules = some_rules(order=ORDERS.index(order), allowance_s=np.array([2.0, 60.0, 86_400.0]), tau_n_s=4.0)
    outcome = run(trace, a_fleet(1), rules)
    assert np.argsort(outcome.first_token_s).tolist() == expected


def test_a_request_pulled_at_an_instant_waits_for_the_next_boundary_of_a_lower_slot() -> None:
    """The declared order of events: at 27/32 s slot 0 passes a boundary, then slot 1 frees memory.

    Slot 1's finish pulls request 3 to slot 0, whose boundary at this very instant is over: leaping must
    not use it.
    """
    trace = a_trace([0, 0, 0, 0.125], [32, 512, 64, 32], [568, 10, 600, 2])
    trace = trace._replace(tier=np.array([0, 0, 0, 2], np.int16))
    fleet = a_fleet(2, 4, kv_capacity=np.array([700]))
    fleet = fleet._replace(latency=fleet.latency._replace(decode_kv_s=np.zeros((1, 5))))
    rules = some_rules(niw_pull_one_share=0.3, niw_pull_two_share=0.2)
    leapt, stepped = run(trace, fleet, rules), run(trace, fleet, rules._replace(steps_per_event=1))
    assert leapt.finish_s[1] == 27 / 32
    assert leapt.first_token_s[3] == 28 / 32 + 32 * PREFILL_S_PER_TOKEN
    np.testing.assert_array_equal(leapt.finish_s, stepped.finish_s)


def test_non_interactive_requests_wait_for_spare_memory() -> None:
    """SageServe 6.2: above 60 % utilisation nothing is pulled; the same requests as iw_fast go at once."""
    arrival_s = [0.0, 1.0]
    fleet = a_fleet(1, 8, kv_capacity=np.array([1000]))
    busy, late = a_trace(arrival_s, [700, 50], [200, 2]), np.array([0, 2], np.int16)
    held = run(busy._replace(tier=late), fleet)
    assert held.first_token_s[1] > held.finish_s[0]
    assert run(busy, fleet).first_token_s[1] < held.finish_s[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arrival_s": np.array([5.0, 1.0])}, "Request 1 of the trace .*arrivals must be sorted"),
        ({"arrival_s": np.array([0.0, np.nan])}, "arrival_s must be finite"),
        ({"output_tokens": np.array([1, 0], np.int32)}, "Request 1 .*output_tokens must be at least 1"),
        ({"llm": np.array([0, 7], np.int16)}, "Request 1 .*llm must be below 1"),
    ],
)
def test_a_bad_trace_is_refused_with_its_row(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(a_trace([0.0, 1.0], 1, 1)._replace(**change), a_fleet(1), horizon_s=10.0)


def test_a_plan_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"targets has shape \(2, 3\)"):
        run(a_trace([0.0], 1, 1), a_fleet(1), targets=np.ones((2, 3)))


def test_rules_that_move_requests_need_a_fleet_with_transfers() -> None:
    """Without them the kernel would write where no memory is."""
    with pytest.raises(ValueError, match="this fleet has no KV transfers"):
        Session(a_fleet(2), some_rules(balance_s=0.5), np.array([2.0]))


def test_an_endpoint_that_owns_nothing_at_the_start_may_still_be_given_instances() -> None:
    fleet = a_fleet(4, instances_at_start=np.zeros(1, int))
    assert Session(fleet, some_rules(), [[3]]).instances()[0].tolist() == [3, 0, 0, 0]
