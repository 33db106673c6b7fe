"""A calibrated profile corrects the other degrees of its llm on its GPU type, and no other llm."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import wall_points

from fleetcast.models.latency import profile_order
from fleetcast.models.latency.latency_errors import catalogue_errors, scale_profile
from fleetcast.models.latency.profile_order import (
    DEGREE_ERROR_SHARES,
    complete_catalogue,
    compute_profile,
    correction_factors,
    find_profile,
)
from fleetcast.models.latency.profile_tables import profile_prefill_s
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment

CATALOGUE = load_catalogue()
LLM, GPU = "llama3.1-8b", "h100-80gb"
PREFILL, DECODE = 1.3, 0.8
BEFORE = {gpus: compute_profile(CATALOGUE, LLM, GPU, gpus) for gpus in (1, 2, 4, 8)}


def calibrated(gpus: int, prefill: float = PREFILL, decode: float = DECODE) -> LatencyProfile:
    scaled = scale_profile(CATALOGUE, BEFORE[gpus], prefill, decode)
    return dataclasses.replace(scaled, source="calibrated: 300 requests of a log", median_error_share=0.01)


def with_rows(*rows: LatencyProfile) -> Catalogue:
    return dataclasses.replace(CATALOGUE, latency=(*CATALOGUE.latency, *rows))


def test_the_factors_of_a_calibrated_degree_scale_the_others() -> None:
    own = with_rows(calibrated(1))
    found = find_profile(own, LLM, GPU, 4)
    unsure = with_rows(dataclasses.replace(calibrated(1), median_error_share=0.12))
    assert find_profile(unsure, LLM, GPU, 4).median_error_share == 0.12, "no surer than where it was measured"
    assert found.prefill_s == pytest.approx([PREFILL * s for s in BEFORE[4].prefill_s])
    assert found.decode_s == pytest.approx([DECODE * s for s in BEFORE[4].decode_s])
    assert found.decode_per_kv_token_s == pytest.approx(DECODE * BEFORE[4].decode_per_kv_token_s)
    assert found.source == (
        f"corrected: times 1.3 in prefill and 0.8 in decode, as measured on 1 x {GPU}; {BEFORE[4].source}"
    )
    config = load_config("office", CATALOGUE)
    fleet = dataclasses.replace(config.fleet, deployments={LLM: (Deployment(GPU, 4),)})
    whole = complete_catalogue(own, dataclasses.replace(config, fleet=fleet))
    assert whole.profile(LLM, GPU, 4).decode_s[:3] == found.decode_s[:3]
    error = next(one for one in catalogue_errors(whole) if one.profile.tensor_parallel == 4)
    shares = DEGREE_ERROR_SHARES[True], CATALOGUE.efficiency.median_error_share
    assert error.kind == "corrected"
    assert (error.decode_share, error.prefill_share) == pytest.approx(shares)


def test_an_estimate_stays_one_though_it_is_corrected() -> None:
    """How near the factor of another degree comes was measured where kernels are timed."""
    before = compute_profile(CATALOGUE, LLM, "rtx4090-24gb", 1)
    assert before.median_error_share is None
    row = dataclasses.replace(before, source="calibrated: a log", median_error_share=0.01)
    found = find_profile(with_rows(row), LLM, "rtx4090-24gb", 2)
    assert found.source.startswith("corrected: times 1 in prefill and 1 in decode")
    assert found.median_error_share is None


def test_the_nearest_degree_counts_and_other_llms_and_gpus_do_not() -> None:
    own = with_rows(calibrated(1), calibrated(8, 2.0, 3.0))
    assert find_profile(own, LLM, GPU, 1).source.startswith("calibrated")
    assert find_profile(own, LLM, GPU, 2).decode_s == pytest.approx([DECODE * s for s in BEFORE[2].decode_s])
    assert find_profile(own, LLM, GPU, 4).decode_s == pytest.approx([3.0 * s for s in BEFORE[4].decode_s])
    for key in ((LLM, "h200-141gb", 2), ("qwen3-8b", GPU, 2)):
        assert find_profile(own, *key) == compute_profile(CATALOGUE, *key)


def test_profiles_of_two_sources_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A factor between a measurement and an estimate is none of another degree that kernels time."""
    estimate = dataclasses.replace(BEFORE[1], source="estimated: the roofline")
    monkeypatch.setattr(
        profile_order,
        "compute_profile",
        lambda _catalogue, _llm, _gpu, gpus: {1: estimate, 2: BEFORE[2]}[gpus],
    )
    assert find_profile(with_rows(calibrated(1)), LLM, GPU, 2) is BEFORE[2]


def test_the_factors_are_those_between_two_curves_with_other_knots() -> None:
    """Knots in other places, and seconds moved from the batch to the cache at a context of 1,024 tokens."""
    batch = np.array([1, 7, 33, 100])
    profile = BEFORE[1]
    moved_s = 0.1 * profile.decode_per_kv_token_s
    other = dataclasses.replace(
        profile,
        prefill_tokens=(300, 3_000),
        prefill_s=tuple((2.0 * profile_prefill_s(profile, (300, 3_000))).tolist()),
        decode_batch=tuple(batch.tolist()),
        decode_s=tuple(
            (np.interp(batch, profile.decode_batch, profile.decode_s) + moved_s * 1024 * batch).tolist()
        ),
        decode_per_kv_token_s=profile.decode_per_kv_token_s - moved_s,
    )
    assert correction_factors(other, profile) == pytest.approx((2.0, 1.0), rel=1e-3)


@pytest.mark.skipif(not wall_points.SILICON.exists(), reason="no measured runs next to the project")
@pytest.mark.parametrize(
    ("is_dense", "before", "after_other"), [(True, [0.12, 0.14], 0.29), (False, [0.17, 0.17], 0.44)]
)
def test_measured_runs_are_nearer_at_other_degrees_and_further_off_for_other_llms(
    is_dense: bool, before: list[float], after_other: float
) -> None:
    """The figures of data/docs/explanation/accuracy.md: TPOT on vLLM, of groups of three runs or more."""
    runs = wall_points.silicon_runs("vllm")
    runs = wall_points.replay_silicon(runs[runs["is_dense"] == is_dense])
    runs["log"] = np.log(runs["tpot_s"] / runs["tpot_replayed_s"])
    runs["model"] = runs["llm"] + " " + runs["precision"]
    groups = {
        key: of_key["log"] for key, of_key in runs.groupby(["system", "model", "tp", "ep"]) if len(of_key) > 2
    }
    rows = [
        {
            "is_same": there[1] == here[1],
            "before": np.median(np.abs(np.exp(-target) - 1)),
            "after": np.median(np.abs(np.exp(float(own.median()) - target) - 1)),
        }
        for here, own in groups.items()
        for there, target in groups.items()
        if there[0] == here[0] and there != here
    ]
    medians = pd.DataFrame(rows).groupby("is_same").median().round(2)
    assert medians.loc[True].tolist() == [before[0], DEGREE_ERROR_SHARES[is_dense]]
    assert medians.loc[False].tolist() == [before[1], after_other]
