"""Latency profiles: what the catalogue says is what the measurements give, and torn profiles are refused."""

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from models.catalogue import LatencyProfile, load_catalogue
from models.latency import Fit, Measured, fit, prefill_s, relative_errors, roofline, step_s, tables

MEASUREMENTS = Path(__file__).parents[2] / "shared/data/profiles/splitwise_perf_model.csv"
needs_measurements = pytest.mark.skipif(
    not MEASUREMENTS.exists(), reason="no measured profiles beside the project"
)
catalogue = load_catalogue()
measured_profiles = [p for p in catalogue.latency if p.median_error_share is not None]


def points(profile: LatencyProfile) -> Measured:
    rows = pd.read_csv(MEASUREMENTS).query(
        "model == @profile.llm and hardware == @profile.gpu and tensor_parallel == @profile.tensor_parallel"
        " and token_size == 128 and (tensor_parallel > 2 or batch_size < 64)"
    )
    return Measured(
        *(rows[name].to_numpy(float) for name in ("prompt_size", "token_size", "batch_size")),
        *(rows[name].to_numpy(float) / 1e3 for name in ("prompt_time", "token_time")),
    )


@needs_measurements
@pytest.mark.parametrize("profile", measured_profiles, ids=lambda p: f"{p.llm}-{p.gpu}-{p.tensor_parallel}")
def test_the_catalogue_is_what_the_measurements_give(profile: LatencyProfile) -> None:
    measured = points(profile)
    fitted = fit(measured)
    for name in Fit._fields:
        np.testing.assert_allclose(getattr(fitted, name), getattr(profile, name), err_msg=name)
    left_out = np.arange(measured.batch.size) % 5 == 4
    trained = fit(Measured(*(column[~left_out] for column in measured)))
    errors = relative_errors(trained, Measured(*(column[left_out] for column in measured)))
    assert np.median(errors) == pytest.approx(profile.median_error_share, abs=1e-4)
    assert np.median(errors) < 0.05


def test_what_nobody_measured_is_the_roofline() -> None:
    estimated = [p for p in catalogue.latency if p.median_error_share is None]
    assert estimated
    for profile in estimated:
        expected = roofline(catalogue.llms[profile.llm], catalogue.gpus[profile.gpu], profile.tensor_parallel)
        for name in Fit._fields:
            np.testing.assert_allclose(getattr(expected, name), getattr(profile, name), err_msg=name)


def test_the_kernel_tables_agree_with_the_profiles() -> None:
    profiles = list(catalogue.latency[:3])
    laid_out = tables(profiles, max_batch=48)
    for row, profile in enumerate(profiles):
        for tokens in (1, 128, 700, 8192, 50_000):
            knot = np.searchsorted(laid_out.prefill_tokens[row], tokens, side="right") - 1
            seconds = laid_out.prefill_s[row, knot]
            seconds += (tokens - laid_out.prefill_tokens[row, knot]) * laid_out.prefill_slope[row, knot]
            assert seconds == pytest.approx(float(prefill_s(profile, tokens)))
        batch = np.arange(1, 49)
        kernel_s = laid_out.decode_s[row, 1:] + laid_out.decode_kv_s[row, 1:] * 1000
        np.testing.assert_allclose(kernel_s, step_s(profile, batch, 1000))


def test_a_roofline_rises_with_work_and_falls_with_gpus() -> None:
    llm, gpu = catalogue.llms["llama2-70b"], catalogue.gpus["h100-80gb"]
    two, four = roofline(llm, gpu, 2), roofline(llm, gpu, 4)
    assert list(two.prefill_s) == sorted(two.prefill_s)
    assert all(fast < slow for fast, slow in zip(four.decode_s, two.decode_s, strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prefill_s": (0.1, 0.2)}, "9 prefill knots but 2 seconds"),
        ({"decode_batch": (4, 2, 1, 8, 16, 32, 64)}, "decode knots .* must rise"),
        ({"decode_s": (0.1, 0.1, 0.1, float("nan"), 0.1, 0.1, 0.1)}, "must be positive numbers"),
        ({"decode_per_kv_token_s": -1.0}, "must be >= 0"),
    ],
)
def test_a_torn_profile_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tables([dataclasses.replace(catalogue.latency[0], **change)], max_batch=8)
