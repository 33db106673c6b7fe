"""The programmes that pick GPUs for a standing load: the best of all fleets, and no line of theirs broken."""

import itertools

import numpy as np
import pytest
from rent_violations import combo_lp_violations, melange_violations, shares_violations

from fleetcast.models.plan import combo_lp
from fleetcast.models.plan.melange import solve_melange
from fleetcast.models.plan.problem import PlanError
from fleetcast.models.plan.rental import (
    EXACT_SOLVER,
    NO_GPU_CAP,
    RentalOffer,
    RentalPlan,
    describe_shortage,
    unserved_penalty_usd,
)
from fleetcast.models.plan.share_program import solve_shares

MOST = 8  # GPUs of a type
COUNTS = np.array(list(itertools.product(range(MOST + 1), repeat=3)))
PUBLISHED = RentalOffer(
    ("A10G", "A100"),
    ("A10G", "A100"),
    np.array([1.01, 3.67]),
    np.eye(2, dtype=np.int64),
    np.full(2, NO_GPU_CAP),
)
PUBLISHED_RATES = np.array([6.0, 3.0, 15.0, 6.0])
PUBLISHED_TPUT = np.array([[2.0, 20], [1, 20], [5, 40], [2, 20]])


def offers(seed: int, buckets: int) -> tuple[RentalOffer, np.ndarray, np.ndarray]:
    """Three GPU types of which each option is one, with caps of up to eight that may be too low."""
    rng = np.random.default_rng([seed, buckets])
    usd, cap = rng.uniform(0.5, 9.0, 3), rng.integers(1, MOST + 1, 3)
    goodput = usd * rng.uniform(0.3, 1.5, (buckets, 3))
    goodput[0, rng.integers(0, 3)] *= rng.integers(0, 2)  # one may not serve it
    rates = rng.uniform(0.1, 1.4, buckets) * (goodput @ cap) / buckets
    offer = RentalOffer(("a", "b", "c"), ("a", "b", "c"), usd, np.eye(3, dtype=np.int64), cap)
    return offer, goodput, rates


def least(offer: RentalOffer, usd: np.ndarray, goodput: np.ndarray, rate: float) -> float:
    """The least of usd x and penalty of one bucket over all counts within the caps."""
    counts = COUNTS[(offer.cap_gpus >= COUNTS).all(axis=1) & ((COUNTS == 0) | (goodput > 0)).all(axis=1)]
    short = np.maximum(rate - counts @ goodput, 0.0)
    return float((counts @ usd + short * unserved_penalty_usd(usd[None], goodput[None])[0]).min())


@pytest.mark.parametrize("programme", combo_lp.COMBO_LPS)
def test_one_workload_gets_the_best_of_all_fleets(programme: str) -> None:
    for seed in range(70):
        offer, goodput, rates = offers(seed, 1)
        efficiency = np.random.default_rng(seed).uniform(0.5, 2.0, (1, 3)) * (goodput > 0)
        found = combo_lp.solve_combo_lp(programme, offer, rates, goodput, efficiency)
        weight = combo_lp.combo_lp_weights(programme, offer, efficiency)[0]
        penalty = unserved_penalty_usd(weight[None], goodput)
        got = found.counts[0] @ weight + found.unserved_per_s @ penalty
        assert got == pytest.approx(least(offer, weight, goodput[0], rates[0]), rel=1e-6, abs=1e-6), seed
        assert combo_lp_violations(offer, rates, goodput, found) == []
        assert found.gap_share < 1e-6  # solved exactly: the better of its bounds is the optimum
        large = offer._replace(cap_gpus=50 * offer.cap_gpus)  # caps of hundreds bind as well
        found = combo_lp.solve_combo_lp(programme, large, 50 * rates, goodput, efficiency)
        assert combo_lp_violations(large, 50 * rates, goodput, found) == []


def test_each_optimisation_model_uses_its_own_weights() -> None:
    efficiency = np.array([[2.0, 4.0, 0.0], [1.0, 8.0, 3.0]])
    offer = offers(1, 2)[0]._replace(usd_per_hour=np.array([3.0, 5.0, 7.0]))
    of = {name: combo_lp.combo_lp_weights(name, offer, efficiency) for name in combo_lp.COMBO_LPS}
    is_able = efficiency > 0
    np.testing.assert_allclose(
        (of["co_lp"] * efficiency / offer.usd_per_hour)[is_able], of["co_lp"][0, 0] * 2.0 / 3.0
    )
    np.testing.assert_array_equal(of["mc_lp"], [[3, 5, 7], [3, 5, 7]])
    np.testing.assert_allclose(of["mce_lp"], -efficiency / 8)


def test_the_share_of_two_buckets_is_the_best_of_all_fleets() -> None:
    """Over given counts the best division of two buckets is known: each where it is relatively cheap."""
    for seed in range(60):
        offer, goodput, rates = offers(seed, 2)
        found = solve_shares(offer, rates, goodput, options=EXACT_SOLVER)
        assert shares_violations(offer, rates, goodput, found) == []
        assert found.gap_share < 1e-6
        counts = COUNTS[(offer.cap_gpus >= COUNTS).all(axis=1)]
        usd = np.where(serves_both(counts, goodput, rates), counts @ offer.usd_per_hour, np.inf).min()
        if np.isfinite(usd):
            assert found.usd_per_hour == pytest.approx(usd), seed
            assert not found.unserved_per_s.any()
        else:
            assert found.unserved_per_s.any()
            assert describe_shortage(offer, found, rates, ("one", "two")).startswith("The caps (")


def serves_both(counts: np.ndarray, goodput: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Whether these counts serve both buckets, shape (counts,)."""
    order = np.argsort(-goodput[0] / np.maximum(goodput[1], 1e-12))
    left, free = np.full(len(counts), rates[0]), counts.astype(float)
    for n in order:
        if goodput[0, n] > 0:
            used = np.minimum(free[:, n], left / goodput[0, n])
            free[:, n] -= used
            left = left - used * goodput[0, n]
    return (left <= 1e-9) & (free @ goodput[1] >= rates[1] * (1 - 1e-9))


def test_a_bucket_of_next_to_nothing_is_served() -> None:
    """An instance for a request a day costs more than what an unserved request/s does times its rate."""
    offer, goodput, _ = offers(3, 1)
    rates, efficiency = np.array([1e-8 * goodput.max()]), (goodput > 0).astype(float)
    plans = [solve_shares(offer, rates, goodput), solve_melange(offer, rates, goodput)]
    plans += [combo_lp.solve_combo_lp(name, offer, rates, goodput, efficiency) for name in combo_lp.COMBO_LPS]
    for plan in plans:
        assert not plan.unserved_per_s.any(), plan.programme
        assert plan.counts.sum() >= 1


def test_a_slice_is_served_by_one_option() -> None:
    """Two cheap ones would share the load; of each there is one, and neither can carry it alone."""
    names, uses = ("a", "b", "c"), np.eye(3, dtype=np.int64)
    offer = RentalOffer(names, names, np.array([1.0, 1.0, 3.0]), uses, np.ones(3, np.int64))
    rates, tput = np.array([1.0]), np.array([[0.6, 0.6, 1.0]])
    assert solve_melange(offer, rates, tput, slice_factor=1).counts.tolist() == [0, 0, 1]
    assert solve_melange(offer, rates, tput, slice_factor=2).counts.tolist() == [1, 1, 0]


def test_melange_s_published_example_is_met() -> None:
    whole = solve_melange(PUBLISHED, PUBLISHED_RATES, PUBLISHED_TPUT, slice_factor=1)
    assert whole.counts.tolist() == [3, 1]
    assert whole.usd_per_hour == pytest.approx(6.70)
    sliced = solve_melange(PUBLISHED, PUBLISHED_RATES, PUBLISHED_TPUT, slice_factor=4)
    assert sliced.usd_per_hour == pytest.approx(5.69)
    for found in (whole, sliced):
        assert melange_violations(PUBLISHED, PUBLISHED_RATES, PUBLISHED_TPUT, found) == []


@pytest.mark.parametrize("seed", range(25))
def test_shares_cost_no_more_than_slices_and_slices_no_more_than_one_type(seed: int) -> None:
    rng = np.random.default_rng(seed)
    usd, rates = rng.uniform(0.5, 9, 3), rng.uniform(1, 20, 4)
    goodput = usd * rng.uniform(0.3, 1.5, (4, 3))
    offer = RentalOffer(
        ("a", "b", "c"), ("a", "b", "c"), usd, np.eye(3, dtype=np.int64), np.full(3, NO_GPU_CAP)
    )
    found_rent, theirs = (
        solve_shares(offer, rates, goodput, options=EXACT_SOLVER),
        solve_melange(offer, rates, goodput),
    )
    alone = min(np.ceil((rates / goodput[:, n]).sum()) * usd[n] for n in range(3))
    assert found_rent.usd_per_hour <= theirs.usd_per_hour + 1e-9 <= alone + 2e-9
    one = solve_shares(offer, rates[:1], goodput[:1], options=EXACT_SOLVER)
    cheapest = combo_lp.solve_combo_lp("mc_lp", offer, rates[:1], goodput[:1], np.ones((1, 3)))
    assert one.usd_per_hour == pytest.approx(cheapest.usd_per_hour)


def test_what_is_not_counted_on_costs_more() -> None:
    offer, goodput, _ = offers(3, 2)
    roomy = offer._replace(cap_gpus=np.full(3, NO_GPU_CAP))
    rates = np.array([20.0, 30.0])
    whole, half = (solve_shares(roomy, rates, goodput, eta, EXACT_SOLVER) for eta in (1.0, 0.5))
    assert 1.6 * whole.usd_per_hour < half.usd_per_hour < 2.4 * whole.usd_per_hour
    assert shares_violations(roomy, rates, goodput, half, 0.5) == []
    assert shares_violations(roomy, rates, goodput, whole, 0.5)


def tampered(found: RentalPlan, **changes: object) -> RentalPlan:
    return found._replace(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("solve", "checked"),
    [(solve_melange, melange_violations), (solve_shares, shares_violations)],
    ids=["melange", "shares"],
)
def test_every_line_of_a_tampered_choice_is_found(solve, checked) -> None:
    offer = PUBLISHED._replace(cap_gpus=np.array([4, 2]))
    found = solve(offer, PUBLISHED_RATES, PUBLISHED_TPUT, options=EXACT_SOLVER)
    broken = {
        "sign": tampered(found, unserved_per_s=-np.ones(4)),
        "cap": tampered(found, counts=np.array([5, 1])),
        "cost": tampered(found, usd_per_hour=found.usd_per_hour + 1),
        "whole": tampered(found, shares=found.shares * 0.9),
        "load": tampered(found, counts=found.counts * 0),
    }
    for line, choice in broken.items():
        violations = checked(offer, PUBLISHED_RATES, PUBLISHED_TPUT, choice)
        assert any(one.startswith(f"{line}:") for one in violations), line
    unable = PUBLISHED_TPUT * np.array([[1.0, 0.0]])
    assert any(one.startswith("able:") for one in checked(offer, PUBLISHED_RATES, unable, found))
    short = combo_lp.solve_combo_lp("mc_lp", offer, PUBLISHED_RATES, PUBLISHED_TPUT, np.ones((4, 2)))
    served = tampered(short, counts=short.counts * 0, unserved_per_s=np.zeros(4))
    assert any(
        one.startswith("serve:")
        for one in combo_lp_violations(offer, PUBLISHED_RATES, PUBLISHED_TPUT, served)
    )


@pytest.mark.parametrize(
    ("usd", "rate", "goodput", "message"),
    [
        (float("nan"), 1.0, 1.0, "a: got a price of nan USD an hour, needed >= 0"),
        (-1.0, 1.0, 1.0, "a: got a price of -1.0 USD an hour"),
        (1.0, 0.0, 1.0, "Bucket 1: got 0 requests/s, needed more than 0"),
        (1.0, 1.0, 0.0, "Bucket 1: none of a serves it within its targets"),
    ],
)
def test_what_is_no_offer_is_refused(usd: float, rate: float, goodput: float, message: str) -> None:
    offer = RentalOffer(("a",), ("a",), np.array([usd]), np.ones((1, 1), np.int64), np.array([NO_GPU_CAP]))
    for ask in (solve_shares, solve_melange):
        with pytest.raises(PlanError, match=message):
            ask(offer, np.array([rate]), np.array([[goodput]]))


def test_filling_a_cluster_needs_its_size() -> None:
    rates, goodput = np.array([1.0]), np.ones((1, 2))
    with pytest.raises(PlanError, match="needs a cap on every GPU type"):
        combo_lp.solve_combo_lp("mce_lp", PUBLISHED, rates, goodput, goodput)
    with pytest.raises(PlanError, match=r"Unknown model 'co-lp'\. Known: co_lp, mc_lp, mce_lp"):
        combo_lp.solve_combo_lp("co-lp", PUBLISHED, rates, goodput, goodput)
