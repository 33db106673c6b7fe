"""Latency profiles: the catalogue equals the fit to the measurements; invalid profiles are refused."""

import dataclasses

import measurements
import numpy as np
import pytest
from grid_fit import KV_CEILING, Measured, fit, held_out_errors, relative_errors, step_s
from roofline_fit import (
    ATTENTION_FLOPS_SHARE,
    COEFFICIENTS,
    OF_SEVERAL_GPUS,
    Closed,
    fit_efficiency,
    log_errors,
    predicted_e2e_s,
    take,
    works_of,
)

from fleetcast.assets.lake.settings import load_settings
from fleetcast.models.latency.batch_extension import extend_catalogue, extend_profile
from fleetcast.models.latency.latency_errors import errors_in_use
from fleetcast.models.latency.pipeline_stages import deployment_profile, hop_token_s, split_into_stages
from fleetcast.models.latency.profile_tables import (
    BATCH_REACH,
    ProfileFit,
    build_latency_tables,
    check_latency_profile,
    least_kv_token_s,
    profile_prefill_s,
)
from fleetcast.models.latency.roofline import (
    deployment_work,
    roofline_context_token_s,
    roofline_decode_s,
    roofline_knots,
    roofline_prefill_s,
)
from fleetcast.models.replay.session.fleet_arrays import make_fleet
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.catalogue_entries import Efficiency, LatencyProfile, Llm
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment, FleetConfig
from fleetcast.models.world.toml_dataclasses import ConfigError

catalogue = load_catalogue().of_era("2023", "here")
OFFICE = load_config("sageserve", catalogue).fleet
MEASURED = [p for p in catalogue.latency if p.source.startswith("measured")]
ESTIMATED = [p for p in catalogue.latency if p.source.startswith("estimated")]
MIXTURE = measurements.llms()["Qwen3-235B-A22B"]
needs_profiles = pytest.mark.skipif(
    not measurements.PROFILES.exists(), reason="the measured profiles are not available"
)


def floor_s(profile: LatencyProfile) -> float:
    return least_kv_token_s(catalogue.llms[profile.llm], catalogue.gpus[profile.gpu], profile.tensor_parallel)


@needs_profiles
@pytest.mark.parametrize("profile", MEASURED, ids=lambda p: f"{p.llm}-{p.gpu}-{p.tensor_parallel}")
def test_the_catalogue_equals_the_fit_to_the_measurements(profile: LatencyProfile) -> None:
    points = measurements.splitwise_points(profile)
    fitted = fit(points, floor_s(profile))
    for name in ProfileFit._fields:
        np.testing.assert_allclose(getattr(fitted, name), getattr(profile, name), err_msg=name)
    prefill, _, end_to_end = np.median(held_out_errors(points, floor_s(profile)), axis=1)
    assert prefill == pytest.approx(profile.prefill_median_error_share, abs=1e-4)
    assert end_to_end == pytest.approx(profile.median_error_share, abs=1e-4)
    assert end_to_end < 0.05


def test_unmeasured_profiles_are_the_roofline() -> None:
    assert len(MEASURED) + len(ESTIMATED) == len(catalogue.latency)
    for profile in ESTIMATED:
        llm, gpu = catalogue.llms[profile.llm], catalogue.gpus[profile.gpu]
        expected = roofline_knots(llm, gpu, profile.tensor_parallel, catalogue.efficiency)
        for name in ProfileFit._fields:
            np.testing.assert_allclose(getattr(expected, name), getattr(profile, name), err_msg=name)


@pytest.mark.parametrize("profile", catalogue.latency, ids=lambda p: f"{p.llm}-{p.gpu}-{p.tensor_parallel}")
def test_cache_reads_lie_between_memory_bandwidth_and_a_limit(profile: LatencyProfile) -> None:
    assert 0.999 <= profile.decode_per_kv_token_s / floor_s(profile) <= KV_CEILING * 1.001


@needs_profiles
def test_the_efficiencies_equal_the_fit_to_the_measurements() -> None:
    rows, closed = measurements.silicon(catalogue)
    groups, stored = (rows["llm"] + rows["gpu"]).tolist(), catalogue.efficiency
    of_one_gpu = {name: getattr(stored, name) for name in COEFFICIENTS if name not in OF_SEVERAL_GPUS}
    fitted = fit_efficiency(closed, groups, stored.source, of_one_gpu)
    for name in COEFFICIENTS:
        assert getattr(fitted, name) == pytest.approx(getattr(stored, name), rel=0.01), name
    together = fit_efficiency(closed, groups, stored.source)
    for name in set(COEFFICIENTS) - {"request_s"}:  # its value is documented on the page
        assert getattr(together, name) == pytest.approx(getattr(stored, name), rel=0.05), name
    errors = np.abs(np.expm1(log_errors(closed, catalogue.efficiency)))
    assert fitted.median_error_share == catalogue.efficiency.median_error_share < 0.13
    bf16_8b = ((rows["llm"] == "Llama-3.1-8B") & (rows["gpu"] == "h100-80gb")).to_numpy()
    assert np.median(errors[bf16_8b]) < 0.08
    assert take(closed, bf16_8b).e2e_s.size == 177


@needs_profiles
def test_attention_reaches_the_same_share_of_peak_on_every_gpu() -> None:
    shares = measurements.attention_flops_shares()
    assert np.median(np.concatenate(list(shares.values()))) == pytest.approx(ATTENTION_FLOPS_SHARE, abs=0.01)
    medians = {gpu: float(np.median(of_gpu)) for gpu, of_gpu in shares.items()}
    assert 0.43 < medians.pop("l40s") < 0.46  # lower: prompts cost a quarter more there
    assert all(0.53 < median < 0.60 for median in medians.values())


@needs_profiles
def test_llama_8b_is_predicted_on_engines_outside_the_fit() -> None:
    rows, closed = measurements.static_batches(catalogue)
    predicted = measurements.static_e2e_s(closed, catalogue.efficiency)
    rows["error"] = np.abs(predicted / closed.e2e_s - 1)
    alone = rows[(rows["llm"] == "Meta-Llama-3-8B") & (rows["tp_size"] == 1)]
    medians = alone.groupby(["gpu", "Framework"])["error"].median()
    assert medians.loc[:, "TensorRT-LLM"].max() < 0.10
    assert medians.loc[:, "vLLM"].max() < 0.16


def test_the_kernel_tables_agree_with_the_profiles() -> None:
    profiles = list(catalogue.latency[:3])
    laid_out = build_latency_tables(profiles, [48] * len(profiles))
    for row, profile in enumerate(profiles):
        for tokens in (1, 128, 700, 8192, 50_000):
            knot = np.searchsorted(laid_out.prefill_tokens[row], tokens, side="right") - 1
            seconds = laid_out.prefill_s[row, knot]
            seconds += (tokens - laid_out.prefill_tokens[row, knot]) * laid_out.prefill_slope[row, knot]
            assert seconds == pytest.approx(float(profile_prefill_s(profile, tokens)))
        batch = np.arange(1, 49)
        kernel_s = laid_out.decode_s[row, 1:] + laid_out.decode_kv_s[row, 1:] * 1000
        np.testing.assert_allclose(kernel_s, step_s(profile, batch, 1000))


def estimate(llm: Llm, gpu: str = "h100-80gb", tensor_parallel: int = 4) -> ProfileFit:
    return roofline_knots(llm, catalogue.gpus[gpu], tensor_parallel, catalogue.efficiency)


def test_a_roofline_by_hand() -> None:
    """An llm of 1e9 parameters on one GPU of 1e12 FLOP/s and 1e12 B/s, whose peaks are fully reached.

    The link to its peers has 1e9 B/s, of which half is reached: a token's 10 layers send twice 100 bytes each
    from one of two GPUs, one and a half times as much from one of four.
    """
    llm = Llm(parameters_b=1.0, layers=10, heads=5, kv_heads=5, head_dim=10, hidden=50, source="made up")
    gpu = dataclasses.replace(
        catalogue.gpus["h100-80gb"], peak_tflops=1.0, bandwidth_tb_per_s=1.0, peer_gb_per_s=1.0
    )
    all_of_it = Efficiency(
        1.0,
        1.0,
        1.0,
        link_share=0.5,
        layer_s=1e-3,
        allreduce_s=1e-4,
        request_s=1e-6,
        attention_flops_share=0.5,
        median_error_share=0.0,
        source="",
    )
    alone, two, four = (roofline_knots(llm, gpu, tensor_parallel, all_of_it) for tensor_parallel in (1, 2, 4))
    assert roofline_context_token_s(llm, gpu, 2, all_of_it) == pytest.approx(
        4 * 10 * 5 * 10 / (2 * 1e12 * 0.5)
    )
    assert alone.prefill_s[0] == pytest.approx(10e-3 + 128 * 2e9 / 1e12)
    assert alone.decode_s[0] == pytest.approx(10e-3 + 1e-6 + 2e9 / 1e12)
    assert alone.decode_per_kv_token_s == pytest.approx(2 * 10 * 5 * 10 * 2 / 1e12)
    between_s = 10 * 2 * 100 / 0.5e9
    assert two.decode_s[0] == pytest.approx(10 * 1.1e-3 + 1e-6 + 1e9 / 1e12 + between_s)
    assert two.prefill_s[-1] == pytest.approx(10 * 1.1e-3 + 32768 * (2e9 / 2e12 + between_s))
    assert four.prefill_s[-1] == pytest.approx(10 * 1.2e-3 + 32768 * (2e9 / 4e12 + 1.5 * between_s))
    for lacking in (
        (dataclasses.replace(llm, hidden=None), gpu),
        (llm, dataclasses.replace(gpu, peer_gb_per_s=None)),
    ):
        assert roofline_knots(*lacking, 1, all_of_it) == alone
        with pytest.raises(
            ConfigError, match=r"^An estimate for 2 GPUs needs .*; got (None and 1.0|50 and None)\. Add"
        ):
            roofline_knots(*lacking, 2, all_of_it)


def test_a_roofline_rises_with_work_and_falls_with_gpus_and_bits() -> None:
    llama = catalogue.llms["llama2-70b"]
    two, four = estimate(llama, tensor_parallel=2), estimate(llama, tensor_parallel=4)
    assert list(two.prefill_s) == sorted(two.prefill_s)
    assert all(fast < slow for fast, slow in zip(four.decode_s, two.decode_s, strict=True))
    one = estimate(llama, tensor_parallel=1)
    half = estimate(dataclasses.replace(llama, weight_bits=8), tensor_parallel=1)
    assert half.prefill_s[-1] == pytest.approx(one.prefill_s[-1] / 2, rel=0.01)
    assert half.decode_s[0] < 0.7 * one.decode_s[0]
    assert estimate(llama, "h200-141gb").decode_s[0] < four.decode_s[0]


def test_a_mixture_reads_more_experts_per_token_up_to_all() -> None:
    dense = Llm(
        235.1,
        MIXTURE.layers,
        MIXTURE.heads,
        MIXTURE.kv_heads,
        MIXTURE.head_dim,
        "made up",
        hidden=MIXTURE.hidden,
    )
    sparse = estimate(MIXTURE)
    rise = np.diff(sparse.decode_s) / np.diff(sparse.decode_batch)
    assert (np.diff(rise) < 0).all()  # every further token finds fewer experts unread
    assert sparse.decode_s[0] < 0.3 * estimate(dense).decode_s[0]
    work = deployment_work(MIXTURE, catalogue.gpus["h100-80gb"], 1)
    assert work.flops == 2 * 22.2e9
    assert work.common_bytes + work.expert_bytes == pytest.approx(2 * 235.1e9)
    assert work.common_bytes + work.expert_bytes * 8 / 128 == pytest.approx(2 * 22.2e9)
    even = dataclasses.replace(catalogue.efficiency, expert_bandwidth_share=1.0)
    all_read = roofline_prefill_s(work, 1000, even)
    assert all_read == pytest.approx(
        roofline_prefill_s(deployment_work(dense, catalogue.gpus["h100-80gb"], 1), 1, even)
    )


def test_a_fit_recovers_efficiencies_from_its_own_predictions() -> None:
    rng = np.random.default_rng(3)
    llms, gpus = list(measurements.llms().values()), list(catalogue.gpus.values())
    works = works_of([(llms[i % len(llms)], gpus[i % 3], 2 ** (i % 4)) for i in range(400)])
    requests, inputs, outputs = (2.0 ** rng.integers(*powers, 400) for powers in ((0, 8), (7, 14), (7, 11)))
    truth = dataclasses.replace(
        catalogue.efficiency, bandwidth_share=0.7, expert_bandwidth_share=0.8, link_share=0.6
    )
    nothing_yet = Closed(works, requests, inputs, outputs, np.ones(400))
    found = fit_efficiency(
        nothing_yet._replace(e2e_s=predicted_e2e_s(nothing_yet, truth)), ["all"] * 400, "made up"
    )
    for name in COEFFICIENTS:
        assert getattr(found, name) == pytest.approx(getattr(truth, name), rel=0.01), name


def test_a_mixture_without_expert_counts_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"experts_per_token; got .*Give all three or none"):
        dataclasses.replace(MIXTURE, experts=None)


def grid(noise: float = 0.0) -> Measured:
    """A synthetic engine: prefill 20 ms + 0.1 ms per token, f[B] = 30 ms + 0.5 ms B, g = 1e-7."""
    prompt = np.array([128, 512, 512, 512, 512, 2048, 8192], float)
    batch = np.array([1, 1, 2, 4, 8, 1, 1], float)
    prompt, batch = (np.repeat(column, 5) for column in (prompt, batch))
    output = np.full(prompt.size, 128.0)
    wobble = 1 + noise * np.random.default_rng(0).normal(size=(2, prompt.size))
    cache = batch * (prompt + output / 2)
    prefill_s, step_s = 0.02 + 1e-4 * prompt * batch, 0.03 + 5e-4 * batch + 1e-7 * cache
    return Measured(prompt, output, batch, prefill_s * wobble[0], step_s * wobble[1])


def test_a_fit_recovers_an_engine_and_its_held_out_error() -> None:
    exact = fit(grid(), floor_s=7e-8)
    assert exact.decode_per_kv_token_s == pytest.approx(1e-7)
    np.testing.assert_allclose(exact.decode_s, [0.0305, 0.031, 0.032, 0.034], rtol=1e-6)
    assert relative_errors(exact, grid()).max() < 1e-5
    assert held_out_errors(grid(), 7e-8).shape == (3, 20)  # of 7 settings the ends are kept
    assert held_out_errors(grid(), 7e-8)[1].max() < 1e-5  # between knots a line is right
    assert 0.001 < np.median(held_out_errors(grid(0.01), 7e-8)[2]) < 0.03


@pytest.mark.parametrize(("floor", "g"), [(2e-7, 2e-7), (1e-8, KV_CEILING * 1e-8)])
def test_a_slope_above_memory_bandwidth_is_bounded(floor: float, g: float) -> None:
    bounded = fit(grid(), floor)
    assert bounded.decode_per_kv_token_s == pytest.approx(g)
    assert np.median(relative_errors(bounded, grid())[1]) < 0.01


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"token_s": np.where(np.arange(35) == 3, np.nan, 0.03)},
            "point 3: token_s is nan, must be a positi",
        ),
        (
            {"prompt_s": np.where(np.arange(35) == 7, -1.0, 0.1)},
            r"point 7: prompt_s is -1\.0.*Measure it aga",
        ),
        ({"batch": np.full(35, 2.0)}, r"batches \[2\] lack 1: measure a request alone"),
    ],
)
def test_measured_points_that_cannot_be_fitted_are_refused(
    change: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        fit(grid()._replace(**change), floor_s=1e-7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prefill_s": (0.1, 0.2)}, "9 prefill knots but 2 seconds"),
        ({"decode_batch": (4, 2, 1, 8, 16, 32, 64)}, "decode knots .* must rise"),
        ({"decode_batch": (2, 3, 4, 8, 16, 32, 64)}, "lack a batch of 1.*Measure a request alone"),
        ({"decode_s": (0.1, 0.1, 0.1, float("nan"), 0.1, 0.1, 0.1)}, "must be positive numbers"),
        ({"decode_per_kv_token_s": -1.0}, "must be >= 0"),
        ({"decode_per_kv_token_s": float("nan")}, "must be >= 0"),
        ({"decode_s": (48.4, 49.5, 50.1, 51.1, 53.6, 58.0, 81.8)}, r"at most 1 s\. Are these milliseconds"),
        ({"decode_per_kv_token_s": 0.4}, r"at most 0\.001 s"),
    ],
)
def test_an_invalid_profile_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_latency_tables([dataclasses.replace(catalogue.latency[0], **change)], [8])


def test_a_batch_far_above_the_profile_is_refused() -> None:
    profile = catalogue.latency[0]
    build_latency_tables([profile], [2 * profile.decode_batch[-1]])
    with pytest.raises(ValueError, match=r"up to a batch of 64, max_batch is 129.*Lower \[fleet\] max_batch"):
        build_latency_tables([profile], [129])


# --- beyond the largest batch


def roomy(max_batch: int, *pools: Deployment) -> FleetConfig:
    """Return the fleet of office with these pools of llama2-70b and room for such batches."""
    return dataclasses.replace(OFFICE, deployments={"llama2-70b": pools}, max_batch=max_batch)


@pytest.mark.parametrize("profile", catalogue.latency, ids=lambda p: f"{p.llm}-{p.gpu}-{p.tensor_parallel}")
def test_an_extrapolated_profile_grows_as_the_roofline_and_by_its_last_slope(profile: LatencyProfile) -> None:
    known = BATCH_REACH * profile.decode_batch[-1]
    assert extend_profile(catalogue, profile, known) is profile
    most = 5 * known + 3
    more = extend_profile(catalogue, profile, most)
    before, after = np.arange(1, known + 1), np.arange(known, most + 1)
    np.testing.assert_allclose(step_s(more, before, 0), step_s(profile, before, 0), rtol=1e-12)
    assert (step_s(more, after, 0) >= step_s(profile, after, 0) * (1 - 1e-12)).all()
    work = deployment_work(catalogue.llms[profile.llm], catalogue.gpus[profile.gpu], profile.tensor_parallel)
    grown = roofline_decode_s(work, after, catalogue.efficiency)
    least = step_s(profile, known, 0) * grown / grown[0]
    assert (step_s(more, after, 0) >= 0.995 * least).all()  # linear between knots that double
    at_most = np.maximum(step_s(profile, most, 0), least[-1])
    assert step_s(more, most, 0) == pytest.approx(float(at_most))
    assert build_latency_tables([more], [most]).decode_s[0, -1] == pytest.approx(float(at_most))
    assert (more.decode_per_kv_token_s, more.prefill_s) == (profile.decode_per_kv_token_s, profile.prefill_s)


def test_only_extrapolated_profiles_count_as_estimated() -> None:
    eight = Deployment("h100-80gb", 8)
    (known,) = errors_in_use(extend_catalogue(catalogue, roomy(128, eight), "f"), [("llama2-70b", [eight])])
    (beyond,) = errors_in_use(extend_catalogue(catalogue, roomy(129, eight), "f"), [("llama2-70b", [eight])])
    assert (known.kind, beyond.kind) == ("measured", "estimated")
    assert known.decode_share == pytest.approx(0.0188, rel=1e-3)
    assert beyond.decode == catalogue.engine.roofline_dense.decode
    assert beyond.profile.source.startswith("estimated beyond a batch of 128, measured")
    other = extend_catalogue(catalogue, roomy(64, dataclasses.replace(eight, max_batch=500)), "f")
    assert [p.llm for p in other.latency if "beyond" in p.source] == ["llama2-70b"] * 6


def test_the_fleet_of_the_paper_can_fill_its_memory() -> None:
    settings = load_settings("paper")
    fleet = make_fleet(settings.catalogue, settings.config.fleet, settings.config.replay, seed=0)
    assert (fleet.max_batch == 4096).all()
    assert (fleet.gpus == 8).all()
    assert (fleet.instances_at_start == 20).all()
    assert (np.bincount(fleet.region, 8 * fleet.instances_at_start) == fleet.cap_gpus.max(axis=1)).all()
    slope = np.diff(fleet.latency.decode_s[:, 1:], axis=1)
    assert (slope[:, 4000] > 0.99 * slope[:, 200]).all()  # no step is quicker than the line


def test_batches_are_limited_by_memory_blocks() -> None:
    two = Deployment("h100-80gb", 2)
    extend_catalogue(catalogue, roomy(3169, two), "own.toml")
    message = (
        r"own.toml: Latency profile of llama2-70b on 2 x h100-80gb: max_batch is 3170, but .* 3,169 blocks"
    )
    with pytest.raises(ConfigError, match=message):
        extend_catalogue(catalogue, roomy(3170, two), "own.toml")
    with pytest.raises(ConfigError, match="room for 100 blocks"):
        extend_catalogue(catalogue, roomy(101, dataclasses.replace(two, kv_tokens=1600)), "own.toml")


# --- several stages


def test_pipeline_stages_share_layers_and_fill_and_drain() -> None:
    whole = catalogue.profile("llama2-70b", "h100-80gb", 4)
    for stages in (2, 4):
        many = split_into_stages(whole, stages, hop_s=0.0)
        check_latency_profile(many)
        for tokens in (100, 4000):
            share = (2 * stages - 1) / stages**2
            assert profile_prefill_s(many, tokens) == pytest.approx(share * profile_prefill_s(whole, tokens))
        for batch in (1, 8, 32):
            together = step_s(many, stages * batch, 1000 * stages)
            assert together == pytest.approx(step_s(whole, batch, 1000))
        assert step_s(many, 1, 0) == step_s(many, stages, 0) == step_s(whole, 1, 0)
        slower = split_into_stages(whole, stages, hop_s=1e-3)
        assert profile_prefill_s(slower, 1000) - profile_prefill_s(many, 1000) == pytest.approx(
            (stages - 1) * 1000 / stages * 1e-3
        )
        at = stages * whole.decode_batch[1]
        assert step_s(slower, at, 0) - step_s(many, at, 0) == pytest.approx((stages - 1) * at / stages * 1e-3)


def test_a_pipeline_hop_sends_a_hidden_state_over_the_links() -> None:
    hidden, link = catalogue.llms["llama2-70b"].hidden, catalogue.gpus["h100-80gb"].link_gbit_per_s
    assert (hidden, link is None) == (8192, False)
    seconds = hop_token_s(catalogue, "llama2-70b", "h100-80gb", 4)
    assert seconds == pytest.approx(8192 * 2 * 8 / (4 * link * 1e9))
    unknown = dataclasses.replace(catalogue.llms["llama2-70b"], hidden=None)
    lacking = dataclasses.replace(catalogue, llms={**catalogue.llms, "llama2-70b": unknown})
    with pytest.raises(ConfigError, match=r"llama2-70b: llms.toml has no hidden, which pipeline_parallel"):
        deployment_profile(lacking, "llama2-70b", "h100-80gb", 4, 2)
