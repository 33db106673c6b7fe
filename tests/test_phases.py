"""Cost by phase: Cauchy's numbers are reproduced as printed, and their corrections hold."""

import itertools

import phases_as_printed as as_printed
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcast.models.plan import phase_costs
from fleetcast.models.plan.phase_costs import MeanRequest, PhasePrice
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.catalogue_entries import Gpu, LatencyProfile
from fleetcast.models.world.toml_dataclasses import ConfigError

CATALOGUE = load_catalogue().of_era("2023", "here")
TABLE_1 = {  # TFLOP/s, GB/s, USD/h -> 1,000 TFLOP and 1,000,000 GB for a USD
    "H800-SXM": (989.0, 3350.0, 2.69, 1324, 4.48),
    "A10": (125.0, 600.0, 0.75, 600, 2.88),
    "RTX4090": (165.0, 1008.0, 0.69, 861, 5.26),
    "A800-PCIe": (312.0, 1935.0, 1.19, 944, 5.85),
    "MI210": (181.0, 1638.0, 1.40, 465, 4.21),
    "H20-NVL": (148.0, 4000.0, 1.50, 355, 9.60),
}
WORKLOADS = {
    "dailymail": MeanRequest(702, 42),
    "sharegpt": MeanRequest(290, 207),
    "longwriter": MeanRequest(337, 1330),
}
LLAMA_8B = as_printed.coefficients(as_printed.shape_of("llama3.1-8b", CATALOGUE.llms["llama3.1-8b"]))
LLAMA_70B = as_printed.coefficients(as_printed.shape_of("llama3.1-70b", CATALOGUE.llms["llama3.1-70b"]))


def gpu(name: str) -> Gpu:
    tflops, gb_per_s, usd, *_ = TABLE_1[name]
    return Gpu(80.0, tflops, gb_per_s / 1e3, usd, "Table 1")


def test_the_paper_s_coefficients_and_table_are_met() -> None:
    assert LLAMA_8B.c1 == 524_288
    assert LLAMA_8B.c2 == pytest.approx(1.557e10, rel=1e-3)
    assert LLAMA_8B.c3 == pytest.approx(1.768e10, rel=1e-3)
    assert (LLAMA_8B.c4, LLAMA_70B.c4) == (131_072, 327_680)
    load, batch = WORKLOADS["sharegpt"], 16
    a1, a2 = as_printed.patterns(LLAMA_8B, load, batch)
    for name, (*_, flop_per_usd, bytes_per_usd) in TABLE_1.items():
        one = gpu(name)
        prefill_per_usd = load.input_tokens * batch / as_printed.peak_prefill_s(LLAMA_8B, load, batch, one)
        decode_per_usd = load.output_tokens * batch / as_printed.peak_decode_s(LLAMA_8B, load, batch, one)
        scale = 3600 / one.usd_per_hour  # (5) and (11) are A1 and A2 times the table's columns
        assert prefill_per_usd * scale / a1 == pytest.approx(flop_per_usd * 1e15, rel=1e-3)
        assert decode_per_usd * scale / a2 == pytest.approx(bytes_per_usd * 1e15, rel=2e-3)


def test_the_bytes_of_a_decode_are_the_sum_over_its_steps() -> None:
    load, batch = MeanRequest(290, 207), 16
    steps = (LLAMA_8B.c3 + batch * LLAMA_8B.c4 * (load.input_tokens + j) for j in range(207))
    assert as_printed.summed_decode_bytes(LLAMA_8B, load, batch) == pytest.approx(sum(steps), rel=1e-12)
    printed = as_printed.decode_bytes(LLAMA_8B, load, batch)
    assert printed > (1 + 5e-5) * as_printed.summed_decode_bytes(LLAMA_8B, load, batch)


def test_the_paper_s_efficiency_ranks_one_pair_first_for_every_load() -> None:
    """(15) adds what two USD do: a request's share of either phase does not enter."""
    pairs = list(itertools.product(("H800-SXM", "A800-PCIe", "H20-NVL"), repeat=2))
    for load in WORKLOADS.values():
        of = {p: as_printed.paper_tokens_per_usd(LLAMA_8B, load, 16, *map(gpu, p)) for p in pairs}
        assert max(of, key=lambda pair: of[pair]) == ("H800-SXM", "H20-NVL")
        assert 40e6 < of["H800-SXM", "H20-NVL"] < 250e6  # where 1.0 to 1.6 million were measured


def test_a_link_hides_a_hand_over_whatever_the_batch() -> None:
    a100 = CATALOGUE.gpus["a100-80gb"]
    assert as_printed.hiding_bytes_per_s(LLAMA_8B, 2048, a100) / 1e9 == pytest.approx(2.46, abs=0.01)
    assert as_printed.hiding_bytes_per_s(LLAMA_70B, 2048, a100) / 1e9 == pytest.approx(0.635, abs=0.01)


def test_an_llm_without_its_widths_is_named() -> None:
    with pytest.raises(ConfigError, match=r"llms.toml \[bloom-176b\] has no intermediate, vocabulary"):
        as_printed.shape_of("bloom-176b", CATALOGUE.llms["bloom-176b"])


def profile(prefill_s: float, decode_s: float, kv_token_s: float = 1e-7) -> LatencyProfile:
    seconds = (prefill_s, 8 * prefill_s), (decode_s, 1.01 * decode_s)
    return LatencyProfile(
        "llm", "gpu", 1, (1000, 8000), seconds[0], (1, 64), seconds[1], kv_token_s, None, ""
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
