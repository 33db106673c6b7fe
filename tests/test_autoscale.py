"""Cauchy's autoscaler: no action in balance, an action within a window, starts before stops."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import a_problem

from fleetcast.assets.replays.cauchy_autoscaler import limit_to_caps, make_co_lp_chooser
from fleetcast.models.aliases import Ints
from fleetcast.models.plan import combo_lp
from fleetcast.models.plan.cauchy_scaling import (
    DEFAULT_CAUCHY_SETTINGS,
    CauchySettings,
    add_grace_period,
    cauchy_targets,
    combos_to_release,
)
from fleetcast.models.plan.rental import RentalOffer, unserved_penalty_usd

GOODPUT = np.array([2.0, 5.0])
OFFER = RentalOffer(
    ("small", "large"), ("a", "b"), np.array([1.0, 2.2]), np.eye(2, dtype=np.int64), np.array([40, 40])
)
START = np.array([5, 2])  # sustains 20 requests/s
MINUTE = 6  # samples


def best(rate: float, held: Ints) -> Ints:
    """The cheapest combos that sustain the rate, within the remaining GPUs."""
    left = OFFER._replace(cap_gpus=OFFER.cap_gpus - held @ OFFER.uses)
    goodput = GOODPUT[None]
    return combo_lp.solve_combo_lp("mc_lp", left, np.array([rate]), goodput, np.ones((1, 2))).counts[0]


@pytest.mark.parametrize("seed", range(8))
def test_what_is_added_is_cheap_and_efficient_as_no_other_combos(seed: int) -> None:
    """Brute force over all counts: price times relative price of a request, within GPUs and maxima."""
    rng = np.random.default_rng(seed)
    usd = rng.uniform(1, 9, 3)
    goodput = usd * rng.uniform(0.8, 1.25, 3)  # else price and efficiency choose the same
    problem = a_problem(1, 1, 3)._replace(usd_per_hour=usd[None], max_option_instances=np.full((1, 1, 3), 4))
    running = rng.integers(0, 3, 3)
    counts = np.array(list(product(range(5), repeat=3)))
    counts = counts[(counts + running <= 4).all(axis=1)]
    weights = usd * (goodput / usd).max() / (goodput / usd)
    for per_s in rng.uniform(1, 30, 4):
        short = np.maximum(per_s - counts @ goodput, 0)
        cost = counts @ weights + short * unserved_penalty_usd(weights[None], goodput[None])[0]
        added = make_co_lp_chooser(problem, 0, 0, goodput)(per_s, running)
        assert cost[(counts == added).all(axis=1)] == pytest.approx(cost.min())


def after(step: float, minutes: int = 25) -> Ints:
    """Targets where, after ten minutes, 20 requests/s are multiplied by `step`."""
    arrivals = np.full(minutes * MINUTE, 20.0)
    arrivals[10 * MINUTE :] *= step
    return cauchy_targets(arrivals, GOODPUT, best, START)


@pytest.mark.parametrize("step", [1.0, 0.85, 1.15])
def test_in_balance_and_near_it_nothing_is_done(step: float) -> None:
    assert (after(step) == START).all()


def test_a_step_is_followed_within_a_window() -> None:
    grown = after(1.25)
    acted = int(np.argmax((grown != START).any(axis=1)))
    assert 10 * MINUTE < acted <= 12 * MINUTE
    assert (grown[acted] >= START).all()
    assert 25.0 <= GOODPUT @ grown[-1] < 30.0
    shrunk = after(0.5)
    down = int(np.argmax((shrunk != START).any(axis=1)))
    assert 10 * MINUTE < down <= 12 * MINUTE + 3
    assert GOODPUT @ shrunk[-1] >= 10.0
    assert GOODPUT @ shrunk[-1] < 12.0 + 5.0


def test_it_decides_again_after_every_window() -> None:
    """A load that keeps growing is followed once in each window."""
    table = cauchy_targets(20.0 * 2 ** (np.arange(60) / 12), GOODPUT, best, START)
    changes = 1 + np.flatnonzero((np.diff(table, axis=0) != 0).any(axis=1))
    assert changes.tolist() == [12, 24, 36, 48]


def test_released_combos_serve_for_the_grace_and_windows_do_not_overlap() -> None:
    shrunk = after(0.5)
    decided = 10 * MINUTE + 6  # the mean of the window falls below 16 with the fifth of twelve samples
    first = int(np.argmax((shrunk != START).any(axis=1)))
    assert first - decided in range(-1, 4)
    changes = np.flatnonzero((np.diff(shrunk, axis=0) != 0).any(axis=1))
    assert (np.diff(changes) >= 12).all()
    longer = cauchy_targets(
        np.where(np.arange(25 * MINUTE) < 10 * MINUTE, 20.0, 10.0),
        GOODPUT,
        best,
        START,
        CauchySettings(grace_s=60.0),
    )
    assert int(np.argmax((longer != START).any(axis=1))) == first + 3


def test_every_refinement_starts_before_it_stops() -> None:
    """Small combos become large ones after half an hour: for 90 seconds both stand."""
    arrivals = np.full(45 * MINUTE, 20.0)
    table = cauchy_targets(arrivals, GOODPUT, best, np.array([10, 0]))
    wanted = best(20.0, np.zeros(2, np.int64))
    assert wanted.tolist() == [0, 4]
    refined = 30 * MINUTE
    assert (table[:refined] == [10, 0]).all()
    assert (table[refined : refined + 9] == [10, 4]).all()
    assert (table[refined + 9 :] == wanted).all()


def test_a_fleet_without_gpus_left_stays_as_it_is() -> None:
    full = np.array([40, 40])
    assert (cauchy_targets(np.full(300, 900.0), GOODPUT, best, full) == full).all()


def naive(arrivals: np.ndarray, start: Ints, scaler: CauchySettings = DEFAULT_CAUCHY_SETTINGS) -> Ints:
    """The twin: sample by sample, each mean by itself."""
    held, acted = start.copy(), 0
    window, refine = int(scaler.window_s // scaler.sample_s), int(scaler.refine_s // scaler.sample_s)
    table, lingering = np.zeros((2, arrivals.size, held.size), np.int64)
    for now in range(arrivals.size):
        if now - acted >= window:
            lacking = arrivals[now - window : now].mean() - GOODPUT @ held
            if abs(lacking) > scaler.ratio * (GOODPUT @ held):
                change = best(lacking, held) if lacking > 0 else -combos_to_release(held, GOODPUT, -lacking)
                add_grace_period(lingering, now, -np.minimum(change, 0), scaler.grace_s / scaler.sample_s)
                held, acted = held + change, now
            elif now - acted >= refine and arrivals[now - refine : now].any():
                wanted = best(arrivals[now - refine : now].mean(), np.zeros_like(held))
                add_grace_period(
                    lingering, now, np.maximum(held - wanted, 0), scaler.boot_s / scaler.sample_s
                )
                held, acted = wanted, now
        table[now] = held
    return table + lingering


@pytest.mark.parametrize("seed", range(6))
def test_it_equals_its_naive_twin(seed: int) -> None:
    """Over busy hours, even ones, and ones without requests."""
    rng = np.random.default_rng(seed)
    level = np.repeat(rng.choice([0.0, 0.0, 8.0, 20.0, 60.0], 40), 45)[: rng.integers(0, 1800)]
    arrivals = rng.poisson(level) / 10.0 if seed % 2 else level
    start = rng.integers(0, 9, 2)
    assert (cauchy_targets(arrivals, GOODPUT, best, start) == naive(arrivals, start)).all()


@given(st.lists(st.floats(0, 200), min_size=30, max_size=300), st.integers(0, 9), st.integers(0, 9))
def test_no_target_is_negative_or_above_the_caps_but_for_the_grace(arrivals, small, large) -> None:
    def larger(rate: float, held: Ints) -> Ints:
        return np.array([0, min(int(np.ceil(rate / 5.0)), 40 - int(held[1]))])

    start = np.array([small, large + 1])
    table = cauchy_targets(np.array(arrivals), GOODPUT, larger, start)
    assert (table >= 0).all()
    now = cauchy_targets(np.array(arrivals), GOODPUT, larger, start, CauchySettings(grace_s=0.0, boot_s=0.0))
    assert (now <= table).all()
    assert (now <= 40).all()


@given(st.integers(0, 9), st.integers(0, 9), st.floats(0, 100))
def test_release_never_exceeds_the_excess(small, large, excess) -> None:
    held = np.array([small, large])
    gone = combos_to_release(held, GOODPUT, excess)
    assert ((gone >= 0) & (gone <= held)).all()
    assert GOODPUT @ gone <= excess * (1 + 1e-9)
    rest = held - gone
    assert not ((rest > 0) & (excess - GOODPUT @ gone >= GOODPUT)).any()  # nothing more would fit


@settings(max_examples=60)
@given(st.integers(0, 10_000))
def test_a_start_holds_what_the_regions_hold(seed: int) -> None:
    """No more than wanted, nothing above a cap, all of it where it fits, and no room for one more."""
    rng = np.random.default_rng(seed)
    wanted = rng.integers(0, 6, (3, 2, 2)).astype(float)
    uses, caps = rng.integers(0, 5, (3, 2, 2)), rng.integers(0, 40, (2, 2))
    found = limit_to_caps(wanted, uses, caps)
    held = np.einsum("ijn,ing->jg", found, uses)
    assert (found <= wanted).all()
    assert (held <= caps).all()
    for i, j, n in np.argwhere(found < wanted):
        assert (held[j] + uses[i, n] > caps[j]).any()
    np.testing.assert_array_equal(limit_to_caps(wanted, uses, 1000 + caps), wanted)
