"""Laws of every programme that spends money: its plan is the cheapest at its own prices.

So no plan of other prices is cheaper there, dearer GPUs never make a plan cheaper, and of an option whose
price alone rises no more is rented.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_quality_plans import some_demand, some_offer

from fleetcast.models.plan import boute
from fleetcast.models.plan.combo_lp import combo_lp_weights, solve_combo_lp
from fleetcast.models.plan.commitments import CommitmentPrices, commitment_costs
from fleetcast.models.plan.melange import solve_melange
from fleetcast.models.plan.quality_milp import cheapest_point_plan
from fleetcast.models.plan.rental import EXACT_SOLVER, NO_GPU_CAP, RentalOffer
from fleetcast.models.plan.share_program import solve_shares

SEEDS = st.integers(0, 10_000)
FEW = settings(max_examples=15)
Plan = tuple[np.ndarray, np.ndarray]  # what is chosen of each option, and what one costs
Programme = Callable[[np.ndarray], Plan]


def rental(solve: str, seed: int) -> tuple[np.ndarray, Programme]:
    """Prices of three GPU types without caps, and the programme as a function of them."""
    rng = np.random.default_rng(seed)
    prices, rates = rng.uniform(0.5, 9, 3), rng.uniform(1, 20, 2)
    goodput, efficiency = rng.uniform(0.3, 9, (2, 3)), rng.uniform(0.5, 2, (2, 3))
    offer = RentalOffer(("a",) * 3, ("a",) * 3, prices, np.eye(3, dtype=np.int64), np.full(3, NO_GPU_CAP))

    def plan(usd: np.ndarray) -> Plan:
        priced = offer._replace(usd_per_hour=usd)
        if solve in ("mc_lp", "co_lp"):
            found = solve_combo_lp(solve, priced, rates, goodput, efficiency)
            weights = combo_lp_weights(solve, priced, efficiency)
            assert found.usd_per_hour == pytest.approx(found.counts.sum(axis=0) @ usd)
            return found.counts.ravel(), weights.ravel()
        solver = {"shares": partial(solve_shares, options=EXACT_SOLVER), "melange": solve_melange}[solve]
        found = solver(priced, rates, goodput)
        assert found.usd_per_hour == pytest.approx(found.counts @ usd)
        return found.counts, usd

    return prices, plan


def quality(seed: int) -> tuple[np.ndarray, Programme]:
    """Prices of the shapes of two llms, and the replicas of the cheapest plan of a point."""
    offer = some_offer(seed)
    demand = some_demand(offer, cap=30)

    def plan(usd: np.ndarray) -> Plan:
        found = cheapest_point_plan(offer._replace(usd_per_hour=usd), demand, 2, 30.0)
        assert found is not None
        return found.instances, usd

    return offer.usd_per_hour, plan


PROGRAMMES = {
    **{name: partial(rental, name) for name in ("mc_lp", "co_lp", "shares", "melange")},
    "quality_milp": quality,
}


@pytest.mark.parametrize("name", PROGRAMMES)
@FEW
@given(SEEDS, st.integers(0, 2), st.floats(1.05, 4.0))
def test_a_plan_is_the_cheapest_at_its_own_prices(name: str, seed: int, option: int, factor: float) -> None:
    prices, plan = PROGRAMMES[name](seed)
    dearer = np.where(np.arange(prices.size) == option, factor * prices, prices)
    (before, weights), (after, raised) = plan(prices), plan(dearer)
    assert (raised >= weights - 1e-12).all()
    least = weights @ before
    assert least <= weights @ after + 1e-6 * abs(least)
    assert raised @ after <= raised @ before + 1e-6 * abs(least)
    assert least <= raised @ after + 1e-6 * abs(least)  # no cheaper plan of dearer GPUs
    is_raised = raised > weights
    assert before[is_raised] @ weights[is_raised] >= after[is_raised] @ weights[is_raised] * (1 - 1e-6) - 1e-6
    assert 3 * least == pytest.approx(np.dot(*plan(3 * prices)), rel=1e-6)


@FEW
@given(SEEDS)
def test_the_plans_of_boute_cost_twice_at_twice_the_price(seed: int) -> None:
    """Its budgets are a grid over the prices, so that a single price moves the grid too."""
    offer = some_offer(seed)
    demand = some_demand(offer)
    once = [plan.usd_per_hour for plan in boute.boute_plans(offer, demand, 0.45, 20.0)]
    double = offer._replace(usd_per_hour=2 * offer.usd_per_hour)
    twice = [plan.usd_per_hour for plan in boute.boute_plans(double, demand, 0.45, 20.0)]
    np.testing.assert_allclose(twice, 2 * np.array(once))


@given(SEEDS, st.sampled_from(CommitmentPrices._fields), st.floats(1.0, 3.0))
def test_commitments_follow_their_prices(seed: int, field: str, factor: float) -> None:
    rng = np.random.default_rng(seed)
    need, deferred = rng.integers(0, 9, (2, 3, 24)).astype(float)
    prices = CommitmentPrices(*np.sort(rng.uniform(1, 9, 3)))
    dearer = prices._replace(**{field: factor * getattr(prices, field)})
    before, after = (commitment_costs(need, deferred, of).usd.sum(axis=1) for of in (prices, dearer))
    assert (after >= before - 1e-9).all()
    fewer = {"reserved": after.argmin() <= before.argmin(), "on_demand": after.argmin() >= before.argmin()}
    assert fewer.get(field, True)
