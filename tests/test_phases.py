"""Cost by phase: prices of the largest batch, what separate phases save, and at which prices that turns."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcast.models.plan import phase_costs
from fleetcast.models.plan.phase_costs import MeanRequest, PhasePrice
from fleetcast.models.world.catalogue_entries import LatencyProfile


def profile(prefill_s: float, decode_s: float, kv_token_s: float = 1e-7) -> LatencyProfile:
    seconds = (prefill_s, 8 * prefill_s), (decode_s, 1.01 * decode_s)
    return LatencyProfile(
        "llm", "gpu", 1, (1000, 8000), seconds[0], (1, 64), seconds[1], kv_token_s, source=""
    )


def test_prices_of_phases_are_those_of_the_largest_batch_within_memory_and_pace() -> None:
    load = MeanRequest(1000, 200)
    price = phase_costs.phase_price(profile(0.05, 0.01), 3.6, load, 11_000, None, 64, 8192)
    assert price is not None
    assert price.batch == 10  # eleven caches of 1,100 tokens would not fit
    assert price.usd_per_input_token == pytest.approx(1e-3 * 0.05 / 1000)
    assert price.usd_per_output_token == pytest.approx(1e-3 * price.tpot_s / 10)
    assert price.tpot_s == pytest.approx(0.01 * (1 + 0.01 * 9 / 63) + 1e-7 * 11_000)
    paced = phase_costs.phase_price(profile(0.05, 0.01), 3.6, load, 11_000, 0.0105, 64, 8192)
    assert paced is not None
    assert paced.batch == 4
    with_states = phase_costs.phase_price(profile(0.05, 0.01), 3.6, load, 11_000, None, 64, 8192, 1_100)
    assert with_states is not None
    assert with_states.batch == 5  # each takes as much again, whatever its length
    assert phase_costs.phase_price(profile(0.05, 0.01), 3.6, load, 11_000, 0.009, 64, 8192) is None
    assert phase_costs.phase_price(profile(0.05, 0.01), 3.6, load, 1_000, None, 64, 8192) is None


POSITIVE = st.floats(0.01, 100.0)
PRICES = st.lists(st.tuples(POSITIVE, POSITIVE, POSITIVE), min_size=1, max_size=5)
LOADS = st.builds(MeanRequest, st.floats(1, 8000), st.floats(1, 4000))


def of(figures: list[tuple[float, float, float]]) -> list[PhasePrice]:
    """Prices from USD per hour, and hours per token of either phase."""
    return [PhasePrice(f"g{n}", 1, usd, usd * p, usd * d, 1, 0.01) for n, (usd, p, d) in enumerate(figures)]


@given(PRICES, LOADS)
def test_no_pair_saves_more_than_the_bound_and_the_best_pair_saves_it(figures, load) -> None:
    prices = of(figures)
    bound = phase_costs.saving_bound(prices, load)
    together = min(price.usd_per_request(load) for price in prices)
    best = min(
        phase_costs.disaggregated_request_usd(p, d, load) for p, d in itertools.product(prices, repeat=2)
    )
    assert bound.saving_share == pytest.approx(1 - best / together, abs=1e-12)
    cheapest = {min(p.usd_per_input_token for p in prices), min(p.usd_per_output_token for p in prices)}
    if any({price.usd_per_input_token, price.usd_per_output_token} == cheapest for price in prices):
        assert bound.saving_share == pytest.approx(0.0, abs=1e-12)
    assert phase_costs.disaggregated_request_usd(bound.prefill, bound.decode, load) == pytest.approx(best)


@given(st.lists(st.tuples(POSITIVE, POSITIVE, POSITIVE), min_size=2, max_size=5), LOADS, st.data())
def test_a_gpu_type_is_cheapest_in_a_phase_below_the_price_at_which_it_turns(figures, load, data) -> None:
    """Between its two prices going apart pays; below both, and of two types above both, it does not."""
    one = data.draw(st.integers(0, len(figures) - 1))
    turn = phase_costs.price_crossovers(of(figures))[one]

    def at(usd: float) -> phase_costs.SavingBound:
        moved = [(usd, *rest) if n == one else (own, *rest) for n, (own, *rest) in enumerate(figures)]
        return phase_costs.saving_bound(of(moved), load)

    low, high = turn.between
    below = at(0.99 * low)
    assert (below.prefill.gpu, below.decode.gpu, below.saving_share) == (turn.gpu, turn.gpu, 0.0)
    if high > 1.02 * low:
        between = at((low * high) ** 0.5)
        assert (between.prefill.gpu == turn.gpu) != (between.decode.gpu == turn.gpu)
        assert between.saving_share > 0
    if len(figures) == 2:
        assert at(1.01 * high).saving_share == 0.0


def test_one_type_has_no_price_at_which_it_turns() -> None:
    assert phase_costs.price_crossovers(of([(1.0, 1.0, 1.0)])) == []
    assert phase_costs.cheapest_price_per_gpu(of([(1.0, 1.0, 1.0)]) * 2, MeanRequest(1, 1)) == of(
        [(1.0, 1.0, 1.0)]
    )
