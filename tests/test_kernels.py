"""Latency profiles composed from kernels: coefficients, the sum of the parts, the error on whole runs."""

import dataclasses

import measurements
import numpy as np
import pytest
from grid_fit import step_s
from kernel_fit import relative_fit

from fleetcast.models.latency.composed_profiles import PASS_S, compose_profile
from fleetcast.models.latency.latency_errors import catalogue_errors
from fleetcast.models.latency.profile_order import comparable_profiles
from fleetcast.models.latency.profile_tables import check_latency_profile, profile_prefill_s
from fleetcast.models.latency.roofline import deployment_work, roofline_profile
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.kernel_times import KernelTimes, MatrixProductTimes
from fleetcast.models.world.toml_dataclasses import ConfigError

CATALOGUE = load_catalogue()
PAST = CATALOGUE.of_era("2023", "here")
H100 = "h100-80gb"
needs_kernels = pytest.mark.skipif(
    not measurements.KERNELS.exists(), reason="the measured kernels are not available"
)


@needs_kernels
@pytest.mark.parametrize("name", measurements.KERNEL_GPUS)
def test_the_catalogue_equals_the_kernel_fit(name: str) -> None:
    assert_same_kernels(measurements.kernels_of(name), CATALOGUE.kernels[measurements.KERNEL_GPUS[name][0]])


def assert_same_kernels(fitted: KernelTimes, stored: KernelTimes) -> None:
    assert (fitted.source, fitted.lacks) == (stored.source, stored.lacks)
    for field in dataclasses.fields(fitted)[1:-2]:
        assert getattr(fitted, field.name) == pytest.approx(getattr(stored, field.name), rel=2e-3), field.name
    for bits, products in fitted.products.items():
        for column, known in zip(vars(products).values(), vars(stored.products[bits]).values(), strict=True):
            np.testing.assert_allclose(column, known, rtol=2e-3, atol=1e-8)


@needs_kernels
def test_partly_timed_kernels_equal_their_fit() -> None:
    found = measurements.kernels_in_part()
    for gpu, fitted in found.items():
        assert_same_kernels(fitted, CATALOGUE.kernels[gpu])
    assert [gpu for gpu, of in CATALOGUE.kernels.items() if of.lacks is not None] == list(found)


def test_partly_timed_kernels_publish_no_error() -> None:
    """It counts as a roofline and keeps its name; its products reach the shares that InferSim reports."""
    for gpu in (gpu for gpu, of in CATALOGUE.kernels.items() if of.lacks is not None):
        profile = compose_profile(CATALOGUE, "llama3.1-8b", gpu, 1)
        check_latency_profile(profile)
        assert (profile.source.partition(":")[0], profile.median_error_share) == ("composed in part", None)
        [error] = catalogue_errors(dataclasses.replace(CATALOGUE, latency=(profile,)))
        laws = CATALOGUE.engine.roofline_dense
        assert error[1:] == ("composed in part", laws.prefill, laws.decode)
    h20, h800, h100 = (CATALOGUE.kernels[gpu] for gpu in ("h20-96gb", "h800-80gb", H100))
    reached = [2 * 8192 / h20.products[bits].weight_s[-1] for bits in ("8", "16")]
    assert reached == pytest.approx([0.94 * 296e12, 0.94 * 148e12], rel=0.01)  # FLOP/s, of the peak
    assert 1 / h20.decode_byte_s == pytest.approx(0.79 * 4.0e12, rel=0.01)  # bytes/s, without launches
    assert h800.decode_byte_s < h100.decode_byte_s
    assert h800.products == h100.products


@needs_kernels
def test_composed_profiles_predict_the_tpot_of_whole_runs() -> None:
    """872 runs of three llms, in 16 and 8 bits on up to eight GPUs, on three engines."""
    runs = measurements.tpot_runs(CATALOGUE)
    error = np.abs(runs["predicted_s"] / runs["tpot_s"] - 1)
    assert len(runs) == 872
    assert error.median() == pytest.approx(0.07, abs=0.005)
    assert error[runs["gpu"].isin([H100, "h200-141gb"])].median() < 0.08
    alone = (runs["llm"] == "Llama-3.1-8B") & (runs["gpu"] == H100) & (runs["tp_size"] == 1)
    assert error[alone].median() < 0.05
    assert alone.sum() == 42


@pytest.mark.parametrize("tp", [1, 2, 16])
@pytest.mark.parametrize("bits", [8, 16])
def test_a_profile_is_the_sum_of_its_kernels(tp: int, bits: int) -> None:
    """Computed by hand for one pass at a knot: every product once per layer, the last one once."""
    llm = dataclasses.replace(CATALOGUE.llms["qwen3-32b"], weight_bits=bits)
    catalogue = dataclasses.replace(CATALOGUE, llms={"qwen3-32b": llm})
    own, of = compose_profile(catalogue, "qwen3-32b", H100, tp), CATALOGUE.kernels[H100]
    check_latency_profile(own)

    def product(tokens: int, weights: float, width: str = str(bits)) -> float:
        known = of.products[width]
        return known.launch_s[(n := known.tokens.index(tokens))] + known.weight_s[n] * weights

    heads, kept = 64 * 128 / tp, max(8 / tp, 1) * 128
    sizes = (5120 * (heads + 2 * kept), heads * 5120, 5120 * 2 * 25600 / tp, 25600 / tp * 5120)
    elementwise_bytes = 2 * (8 * 5120 + 2 * heads + 2 * kept + 3 * 25600 / tp)
    elementwise_bytes += 3 * (5120 + heads + 5120 + 25600 / tp) if bits == 8 else 0
    work, efficiency = deployment_work(llm, CATALOGUE.gpus[H100], tp), CATALOGUE.efficiency
    for tokens, is_decode in ((16, True), (4096, False)):
        attention = (
            of.decode_s + tokens * of.decode_request_s
            if is_decode
            else of.prefill_s + heads * (4096 * of.prefill_value_s + 4096 * 2048 / 2 * of.prefill_pair_s)
        )
        layer = (
            sum(product(tokens, size) for size in sizes) + tokens * elementwise_bytes / 3.35e12 + attention
        )
        head = product(tokens if is_decode else 1, 5120 * 151936 / tp, "16")
        hops = (
            64 * efficiency.allreduce_s * np.log2(tp) + tokens * work.between_floor_s / efficiency.link_share
        )
        found = step_s(own, tokens, 0) if is_decode else profile_prefill_s(own, tokens)
        assert float(found) == pytest.approx(PASS_S + 64 * layer + head + hops, abs=1e-6)
    assert own.decode_per_kv_token_s == pytest.approx(64 * of.decode_byte_s * 4 * kept, rel=1e-3)
    assert own.prefill_per_context_token_s == pytest.approx(64 * of.prefill_pair_s * heads, rel=1e-3)


def test_gpu_types_are_compared_by_the_same_sort_of_profile() -> None:
    """Measured profiles only with measured ones; if one GPU type has none, none of latency.toml counts."""

    def tiers(llm: str, *pairs: tuple[str, int]) -> dict[tuple[str, int], str]:
        return {pair: p.source.partition(":")[0] for pair, p in comparable_profiles(PAST, llm, pairs).items()}

    both = ((H100, 1), (H100, 2), ("a100-80gb", 4))
    assert tiers("llama2-70b", *both) == {(H100, 2): "measured", ("a100-80gb", 4): "measured"}
    assert tiers("llama2-70b", *both, ("l4-24gb", 8)) == {
        **dict.fromkeys(both, "composed"),
        ("l4-24gb", 8): "estimated",
    }
    assert tiers("deepseek-v3", ("a100-80gb", 8)) == {("a100-80gb", 8): "estimated"}


def test_every_dense_llm_is_composed_and_near_its_roofline() -> None:
    """Both ways of estimating agree within a factor of two wherever kernels were timed."""
    for llm, one in CATALOGUE.llms.items():
        if one.experts or one.vocabulary is None:
            continue
        for gpu, of in CATALOGUE.kernels.items():
            if str(one.weight_bits) in of.products:
                own, other = (way(CATALOGUE, llm, gpu, 4) for way in (compose_profile, roofline_profile))
                for tokens in (512, 8192):
                    assert 0.5 < profile_prefill_s(own, tokens) / profile_prefill_s(other, tokens) < 2, (
                        llm,
                        gpu,
                    )
                for batch in (1, 64):
                    assert 0.5 < step_s(own, batch, 1000) / step_s(other, batch, 1000) < 2, (llm, gpu)


@pytest.mark.parametrize(
    ("llm", "gpu", "expected"),
    [
        ("deepseek-v3", H100, "deepseek-v3 on h100-80gb cannot be composed: a mixture of experts"),
        ("qwen3-8b", "l4-24gb", "no kernels of 16 bits on l4-24gb"),
        ("llama3.1-70b-fp8", "a100-80gb", "no kernels of 8 bits on a100-80gb"),
        ("bloom-176b", H100, r"llms.toml \[bloom-176b\] has no intermediate, vocabulary"),
    ],
)
def test_impossible_compositions_are_refused(llm: str, gpu: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        compose_profile(CATALOGUE, llm, gpu, 1)


def test_invalid_knots_are_refused_and_fits_are_never_negative() -> None:
    with pytest.raises(ConfigError, match=r"have \(2, 1, 2\) knots"):
        MatrixProductTimes((1, 2), (0.0,), (0.0, 0.0))
    x = np.array([1.0, 2.0, 4.0, 8.0])
    np.testing.assert_allclose(relative_fit([np.ones(4), x], 3 + 2 * x, 1.0), [2, 2])
    np.testing.assert_allclose(relative_fit([np.ones(4), x], 2 * x - 0.1)[0], 0, atol=1e-12)
