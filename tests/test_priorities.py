"""Levels of priority: how they are drawn, and the laws of queueing that they keep."""

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_endpoint import DECODE_S, a_fleet, a_trace, run, some_rules

from fleetcast.models.replay.kernel_inputs import FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.traffic.priority_levels import assign_levels_by_tier, draw_levels, level_shares
from fleetcast.models.world.mechanisms import Ending, QueueOrder, Routing


@pytest.mark.parametrize("by", ["uniform", "gaussian", "enterprise"])
@pytest.mark.parametrize("count", range(1, 11))
def test_shares_sum_to_one_and_are_drawn(by: str, count: int) -> None:
    share = level_shares(by, count)
    assert share.sum() == pytest.approx(1.0)
    drawn = draw_levels(200_000, by, count, seed=3)
    np.testing.assert_allclose(np.bincount(drawn, minlength=count) / drawn.size, share, atol=0.005)


def test_enterprise_has_few_at_the_top_and_gaussian_most_in_the_middle() -> None:
    np.testing.assert_allclose(level_shares("enterprise", 4), [0.10, 0.35, 0.35, 0.20])
    np.testing.assert_allclose(level_shares("enterprise", 2), [0.25, 0.75])
    outer, middle = np.exp(-(1.5**2) / 2), np.exp(-(0.5**2) / 2)
    weight = np.array([outer, middle, middle, outer])
    np.testing.assert_allclose(level_shares("gaussian", 4), weight / weight.sum())


@given(
    st.lists(st.sampled_from([0.5, 1.0, 60.0, 86_400.0]), min_size=1, max_size=6),
    st.lists(st.integers(0, 5), min_size=1, max_size=20),
    st.integers(1, 10),
    st.randoms(use_true_random=False),
)
def test_levels_by_tier_are_those_of_urgency_in_any_order_of_the_catalogue(
    need_s: list[float], drawn: list[int], count: int, random: Random
) -> None:
    """The most urgent tier with requests is level 0; two tiers share a level only from the last one on."""
    tier = np.array(drawn) % len(need_s)
    level = assign_levels_by_tier(tier, np.array(need_s), count)
    present = sorted(set(tier.tolist()), key=lambda code: need_s[code])  # stable, as equals are
    assert level.tolist() == [min(present.index(code), count - 1) for code in tier]
    others = random.sample(range(len(need_s)), len(need_s))
    moved = assign_levels_by_tier(np.argsort(others)[tier], np.array(need_s)[others], count)
    if len(set(need_s)) == len(need_s):
        assert moved.tolist() == level.tolist()


# --- one server: M/D/1 -----------------------------------------------------------------------------------

LOAD, SERVICE_S, REQUESTS = 0.8, 0.125 + 3 * DECODE_S, 300_000


def queue(count: int, order: int = QueueOrder.PRIORITY) -> tuple[TraceArrays, Outcome]:
    """One request at a time, each of like length, at 80 % load; levels uniform."""
    rng = np.random.default_rng(5)
    arrival_s = np.cumsum(rng.exponential(SERVICE_S / LOAD, REQUESTS))
    level = draw_levels(REQUESTS, "uniform", count, 1)
    trace = a_trace(arrival_s, 128, 4)._replace(level=level)
    rules = some_rules(order=order, headroom_share=np.zeros(count), monitor_s=1e12)
    still = a_fleet(1)
    flat = still._replace(latency=still.latency._replace(decode_kv_s=0 * still.latency.decode_kv_s))
    return trace, run(trace, flat, rules, horizon_s=float(arrival_s[-1]) + 1, start=[[1]])


def waits(count: int) -> tuple[TraceArrays, np.ndarray]:
    trace, outcome = queue(count)
    assert (outcome.status == Ending.FINISHED).all()
    return trace, outcome.admitted_s - trace.arrival_s


def test_waits_by_level_are_cobhams() -> None:
    """W_p = W_0 / ((1 - s_{p-1}) (1 - s_p)), W_0 = rho S / 2 for like services (Cobham 1954)."""
    trace, wait_s = waits(4)
    cumulated = np.concatenate([[0.0], np.cumsum(np.full(4, LOAD / 4))])
    theory = LOAD * SERVICE_S / 2 / ((1 - cumulated[:-1]) * (1 - cumulated[1:]))
    found = [wait_s[trace.level == level].mean() for level in range(4)]
    np.testing.assert_allclose(found, theory, rtol=0.03)


def test_the_mean_wait_does_not_depend_on_how_many_levels_there_are() -> None:
    """Kleinrock's conservation: like services, no preemption. The variance grows instead."""
    means, variances = zip(*((w.mean(), w.var()) for _, w in map(waits, (1, 2, 4, 8))), strict=True)
    np.testing.assert_allclose(means, LOAD * SERVICE_S / 2 / (1 - LOAD), rtol=0.02)
    np.testing.assert_allclose(means, means[0], rtol=1e-9)
    assert (np.diff(variances) > 0).all()


def test_one_level_is_first_come_first_served() -> None:
    for order in (QueueOrder.PRIORITY, QueueOrder.PREEMPTIVE):
        np.testing.assert_array_equal(queue(1, order)[1].finish_s, queue(1, QueueOrder.FCFS)[1].finish_s)


@pytest.mark.parametrize(
    ("level", "message"),
    [
        ([0, 1, 0], r"level has 3 rows; the trace has 4 requests"),
        ([0, -1, 3, 0], r"Request 1 of the trace .*level must be from 0 to 1, a whole number"),
        ([0, 1, 2, 0], r"Request 2 of the trace .*level must be from 0 to 1, a whole number"),
    ],
)
def test_levels_with_a_hole_or_beyond_the_last_are_refused(level: list[int], message: str) -> None:
    trace = a_trace(np.arange(4.0), 10, 2)._replace(level=np.array(level, np.int16))
    with pytest.raises(ValueError, match=message):
        run(
            trace,
            a_fleet(1),
            some_rules(order=QueueOrder.PRIORITY, headroom_share=np.zeros(2)),
            horizon_s=9.0,
        )


def test_drawn_levels_have_the_configured_shares() -> None:
    drawn = draw_levels(100_000, "shares", 3, 4, (0.2, 0.7, 0.1))
    np.testing.assert_allclose(np.bincount(drawn) / drawn.size, [0.2, 0.7, 0.1], atol=0.005)


# --- several instances -----------------------------------------------------------------------------------


def busy(rules: Rules, seed: int = 0, **levels: Any) -> tuple[TraceArrays, Outcome]:
    """A thousand requests on four instances with little memory, more than they can take at once."""
    rng = np.random.default_rng(seed)
    arrival_s = np.sort(rng.uniform(0, 60, 1000))
    level = rng.integers(0, rules.headroom_share.size, 1000).astype(np.int16)
    trace = a_trace(arrival_s, rng.integers(50, 400, 1000), rng.integers(5, 60, 1000))
    trace = trace._replace(level=levels.get("level", level))
    return trace, run(trace, crowd(rules), rules, horizon_s=900.0, start=[[4]])


def crowd(rules: Rules) -> FleetArrays:
    capacity = np.array([2048])
    return a_fleet(
        4, 8, kv_capacity=capacity, kv_block_tokens=16, has_transfers=True, link_token_s=np.array([1e-6]),
        by_freeness=rules.routing == Routing.FREENESS,
    )  # fmt: skip


def test_without_headroom_dispatch_does_not_see_levels() -> None:
    rules = some_rules(routing=Routing.FREENESS, headroom_share=np.zeros(4))
    rng = np.random.default_rng(9)
    (_, one), (_, other) = busy(rules), busy(rules, level=rng.integers(0, 4, 1000).astype(np.int16))
    np.testing.assert_array_equal(one.slot, other.slot)
    with_headroom = busy(rules._replace(headroom_share=np.array([0.4, 0.2, 0.1, 0.05])))[1]
    assert (with_headroom.slot != one.slot).any()


def test_a_balancer_that_finds_no_pair_changes_nothing_and_one_that_does_moves() -> None:
    still = some_rules(routing=Routing.FREENESS, order=QueueOrder.PRIORITY, headroom_share=np.zeros(4))
    ticks = still._replace(balance_s=0.05, gap_blocks=np.inf)
    for name in ("slot", "first_token_s", "finish_s"):
        np.testing.assert_array_equal(getattr(busy(still)[1], name), getattr(busy(ticks)[1], name))
    moves = busy(ticks._replace(gap_blocks=0.3))[1]
    assert (moves.finish_s != busy(still)[1].finish_s).any()
    assert (moves.sent_from >= 0).sum() > 10, "some move live"
    assert (moves.status == Ending.FINISHED).all()


def test_infaas_goes_by_count_until_one_is_slower_than_its_target() -> None:
    """Until a request has ended the cost is the number of requests; an OVERLOADED instance gets none."""
    trace = a_trace(np.arange(8) * 0.01, [400, 10, 10, 10, 10, 10, 10, 10], 20)
    rules = some_rules(routing=Routing.INFAAS)
    first = run(trace, crowd(rules), rules, horizon_s=900.0, start=[[4]])
    assert first.slot.tolist() == [0, 1, 2, 3, 0, 1, 2, 3], "sizes are not seen"
    shortest = some_rules(routing=Routing.SHORTEST_QUEUE)
    assert (busy(rules)[1].slot != busy(shortest)[1].slot).any()


def test_who_is_kept_back_waits_in_the_middle_and_only_where_it_is_full() -> None:
    """Unreached ceilings change nothing; low ones make lower levels wait, and no request is lost."""
    plain = some_rules(order=QueueOrder.PRIORITY, headroom_share=np.zeros(4))
    held = plain._replace(uses_central_queue=True, ceiling_share=np.full(4, np.inf))
    for name in ("slot", "first_token_s", "finish_s"):
        np.testing.assert_array_equal(getattr(busy(plain)[1], name), getattr(busy(held)[1], name))
    trace, kept = busy(held._replace(ceiling_share=np.array([1.0, 0.75, 0.5, 0.25])))
    held_s = kept.dispatched_s - trace.arrival_s
    means = [held_s[trace.level == level].mean() for level in range(4)]
    assert (kept.status == Ending.FINISHED).all()
    assert (np.diff(means) > 0.5).all(), "the lower, the longer"


def test_times_scaled_by_c_scale_all_results_by_c() -> None:
    levels = {"order": QueueOrder.PRIORITY, "headroom_share": np.array([0.25, 0.125])}
    rules = some_rules(routing=Routing.FREENESS, balance_s=0.5, move_s=0.25, **levels)
    trace, once = busy(rules)
    fleet, c = crowd(rules), 4.0
    timed = [name for name in fleet.latency._fields if name != "prefill_tokens"]
    latency = fleet.latency._replace(**{name: getattr(fleet.latency, name) * c for name in timed})
    boots = {name: getattr(fleet, name) * c for name in ("link_token_s", "boot_spot_s", "boot_cold_s")}
    clocks = ("balance_s", "move_s", "monitor_s", "cooldown_s", "niw_priority_age_s")
    slower = rules._replace(**{name: getattr(rules, name) * c for name in clocks})
    later = trace._replace(arrival_s=trace.arrival_s * c)
    twice = run(later, fleet._replace(latency=latency, **boots), slower, horizon_s=900.0 * c, start=[[4]])
    np.testing.assert_array_equal(twice.slot, once.slot)
    np.testing.assert_allclose(twice.finish_s, once.finish_s * c, rtol=1e-9)


def test_who_is_above_pushes_others_out_and_waits_less() -> None:
    levels = {"headroom_share": np.zeros(4)}
    (trace, first), (_, pushed) = (
        busy(some_rules(order=n, **levels)) for n in (QueueOrder.PRIORITY, QueueOrder.PREEMPTIVE)
    )
    wait_s = [np.mean((out.first_token_s - trace.arrival_s)[trace.level == 0]) for out in (first, pushed)]
    assert pushed.preemptions.sum() > first.preemptions.sum() + 20
    assert wait_s[1] < 0.8 * wait_s[0]
