"""Calibration: known coefficients come back from replayed logs; a bad log is refused by line and rule."""

import dataclasses
import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import assets.studies.calibration
from assets.studies.calibration import CalibrationError, deployment_of, read_requests, write_profile
from models.latency.measured import kv_floor_s
from models.latency.requests import Requests, hats
from models.latency.tables import interpolate, prefill_s, step_s
from models.replay.calibration import Calibration, calibrate, estimate, replayed_s
from models.world.catalogue import CATALOGUE_DIR, LatencyProfile, load_catalogue
from models.world.config import Config, Deployment
from models.world.loading import load_config
from pipelines.cli import app

CATALOGUE = load_catalogue()
OFFICE = load_config("office", CATALOGUE)
LLM, GPU, GPUS = "llama2-70b", "h100-80gb", 2
HERE = Deployment(GPU, GPUS)
TRUTH = LatencyProfile(
    LLM,
    GPU,
    GPUS,
    (16, 8016),
    (0.0216, 0.8216),  # 20 ms and 0.1 ms per token
    (1, 65),
    (0.0254, 0.0510),  # 25 ms and 0.4 ms per request
    1.5 * kv_floor_s(CATALOGUE.llms[LLM], CATALOGUE.gpus[GPU], GPUS),
    None,
    "made up",
)


def office(batching: str = "whole") -> Config:
    return dataclasses.replace(OFFICE, fleet=dataclasses.replace(OFFICE.fleet, batching=batching))


def a_log(requests_per_s: float, noise: float, batching: str = "whole", count: int = 1000) -> Requests:
    """What one instance of the made-up engine does to Poisson arrivals, with every time off by some noise."""
    rng = np.random.default_rng(17)
    arrival_s = 1.7e9 + np.cumsum(rng.exponential(1 / requests_per_s, count))
    inputs = np.clip(rng.lognormal(6.8, 0.8, count), 16, 8000).astype(np.int32)
    outputs = np.clip(rng.lognormal(5.0, 0.8, count), 1, 1500).astype(np.int32)
    log = Requests(arrival_s, inputs, outputs, np.ones(count), np.ones(count))
    ttft_s, e2e_s = replayed_s(log, TRUTH, CATALOGUE, office(batching))
    factors = np.exp(noise * rng.normal(size=(2, count)))
    return log._replace(ttft_s=ttft_s * factors[0], e2e_s=ttft_s * factors[0] + (e2e_s - ttft_s) * factors[1])


def calibrated(log: Requests, batching: str = "whole") -> Calibration:
    return calibrate(log, LLM, HERE, CATALOGUE, office(batching), "log.csv")


def assert_close(found: LatencyProfile, share: float, batches: list[int]) -> None:
    tokens = np.array([300, 1000, 4000])
    np.testing.assert_allclose(prefill_s(found, tokens), prefill_s(TRUTH, tokens), rtol=share)
    batch = np.array(batches)
    for context in (500, 3000):
        np.testing.assert_allclose(
            step_s(found, batch, batch * context), step_s(TRUTH, batch, batch * context), rtol=share
        )


@pytest.mark.parametrize("batching", ["whole", "chunked", "orca"])
def test_known_coefficients_come_back_from_a_busy_noisy_instance(batching: str) -> None:
    log = a_log(1.0, 0.03, batching)
    found = calibrated(log, batching)
    assert_close(found.profile, 0.08, [2, 4, 8, 12])
    assert (found.fitted, found.held_out) == (700, 300)
    assert found.e2e_error_share < 0.04  # most of it is the noise
    assert found.ttft_error_share < 0.2  # whether a step has just begun at an arrival is chance
    assert abs(found.mean_ttft_error_share) < 0.06
    assert abs(found.mean_e2e_error_share) < 0.03


def test_requests_that_never_meet_give_the_coefficients_exactly() -> None:
    found = calibrated(a_log(0.005, 0.0))
    assert_close(found.profile, 0.01, [1])
    assert max(found.ttft_error_share, found.e2e_error_share) < 0.01


def test_the_error_told_is_that_of_the_part_left_out() -> None:
    """An engine that is twice as slow from its 701st request on fits the first 700, not the last 300."""
    log = a_log(0.05, 0.0)
    slower = np.where(np.arange(1000) < 700, 1.0, 2.0)
    found = calibrated(log._replace(ttft_s=log.ttft_s * slower, e2e_s=log.e2e_s * slower))
    assert_close(found.profile, 0.05, [1])
    assert found.ttft_error_share == pytest.approx(0.5, abs=0.03)
    assert found.e2e_error_share == pytest.approx(0.5, abs=0.03)


def test_the_weights_of_the_knots_are_those_of_the_interpolation() -> None:
    rng = np.random.default_rng(1)
    knots, y = np.array([3, 7, 20, 90]), rng.normal(size=4)
    at = rng.uniform(0, 200, 50)
    np.testing.assert_allclose(hats(at, knots) @ y, interpolate(at, knots, y))


def test_a_log_that_no_single_instance_can_have_served_is_refused() -> None:
    log = a_log(0.05, 0.0, count=200)
    late = np.arange(200) >= 140
    tokens = np.where(late, 20_000, 50 + np.arange(200) % 50).astype(np.int32)
    ttft_s = np.where(late, 1.0, 0.1 * tokens)  # a tenth of a second per token, but the last ones took one
    crowd = Requests(20.0 * np.arange(200), tokens, np.full(200, 2, np.int32), ttft_s, ttft_s + 0.05)
    with pytest.raises(ValueError, match=r"never end.*Are they the requests of one instance"):
        calibrated(crowd)
    huge = log._replace(
        input_tokens=np.where(np.arange(200) == 9, 2_000_000, log.input_tokens).astype(np.int32)
    )
    with pytest.raises(ValueError, match=r"one has 2000000 input .*Name the deployment that was measured"):
        calibrated(huge)
    with pytest.raises(ValueError, match=r"log\.csv has 99 requests, needs at least 100.*Measure for longer"):
        calibrated(Requests._make(column[:99] for column in log))


HEADER = "arrival_s,input_tokens,output_tokens,ttft_s,e2e_s"


def as_csv(log: Requests, path: Path) -> Path:
    rows = [",".join(map(repr, map(float, row))) for row in zip(*log, strict=True)]
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def test_a_log_is_read_in_order_of_arrival_whatever_the_order_of_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("e2e_s,host,ttft_s,output_tokens,input_tokens,arrival_s\n9,a,1,5,70,20\n8,b,2,6,80,10\n")
    log = read_requests(path)
    assert [column.tolist() for column in log] == [[10, 20], [80, 70], [6, 5], [2, 1], [8, 9]]
    assert log.input_tokens.dtype == np.int32


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "arrival_s,ttft_s\n1,2\n",
            "lacks the columns input_tokens, output_tokens, e2e_s; it has arrival_s, ",
        ),
        ("", "is no CSV"),
        (f"{HEADER}\n0,9,9,1,2\n1,9,9,,2\n", r"line 3 \(arrival_s=1.*ttft_s must be a number\. 1 of 2 rows"),
        (f"{HEADER}\n0,9,9,soon,2\n", "line 2 .*ttft_s must be a number"),
        (f"{HEADER}\n0,9,9,nan,2\n", "line 2 .*ttft_s must be a number"),
        (f"{HEADER}\n0,9,9,3,2\n", "line 2 .*ttft_s must not exceed e2e_s"),
        (f"{HEADER}\n0,9,9,0,2\n", "line 2 .*ttft_s must be above 0"),
        (f"{HEADER}\n0,9,9,2,2\n", "with two tokens or more e2e_s must exceed ttft_s"),
        (f"{HEADER}\n0,0,9,1,2\n", "input_tokens must be a whole number from 1"),
        (f"{HEADER}\n0,9,1.5,1,2\n", "output_tokens must be a whole number from 1.*mend or drop them"),
        (f"{HEADER}\n0,9,9,200,400000\n", "e2e_s must be under a day; give seconds"),
        (f"{HEADER}\n0,9,9,200,900\n", r"87\.5 s in the median.*Are these milliseconds\? Divide by 1000"),
    ],
)
def test_a_bad_log_is_refused_with_line_rule_and_remedy(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(CalibrationError, match=message):
        read_requests(path)


def test_the_command_prints_a_profile_and_writes_it_where_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue = tmp_path / "latency.toml"
    catalogue.write_text((CATALOGUE_DIR / "latency.toml").read_text())
    monkeypatch.setattr(assets.studies.calibration, "LATENCY", catalogue)
    log = as_csv(a_log(0.5, 0.02, count=300), tmp_path / "my log.csv")
    options = ["--llm", LLM, "--gpu", GPU, "--tensor-parallel", str(GPUS), "--write"]
    told = CliRunner().invoke(app, ["calibrate", str(log), *options])
    assert told.exit_code == 0, told.stderr
    assert "210 requests fitted, 90 left out and replayed: mean error of TTFT " in told.stderr
    assert "the profile was replaced" in told.stderr
    (printed,) = tomllib.loads(told.stdout)["profile"]
    before = tomllib.loads((CATALOGUE_DIR / "latency.toml").read_text())["profile"]
    after = tomllib.loads(catalogue.read_text())["profile"]
    assert after[-1] == printed
    assert printed["source"] == "calibrated: 300 requests of my log.csv"
    assert after[:-1] == [p for p in before if deployment_of(p) != (LLM, GPU, GPUS)]
    assert catalogue.read_text().startswith("# Latency profiles")


def test_without_a_log_the_command_estimates(tmp_path: Path) -> None:
    told = CliRunner().invoke(
        app, ["calibrate", "--llm", LLM, "--gpu", "h200-141gb", "--tensor-parallel", "4"]
    )
    (printed,) = tomllib.loads(told.stdout)["profile"]
    profile = estimate(LLM, Deployment("h200-141gb", 4), CATALOGUE)
    assert printed["decode_s"] == list(profile.decode_s)
    path = tmp_path / "latency.toml"
    path.write_text((CATALOGUE_DIR / "latency.toml").read_text())
    assert not write_profile(profile, path)  # added
    assert write_profile(profile, path)  # in place of itself
    assert len(tomllib.loads(path.read_text())["profile"]) == len(CATALOGUE.latency) + 1


def test_a_mistake_at_the_command_is_one_line(tmp_path: Path) -> None:
    options = ["--gpu", GPU, "--tensor-parallel", "1"]
    for arguments, message in (
        ([str(tmp_path / "no.csv"), "--llm", LLM], "There is no file"),
        (["--llm", "llama3.1-9b"], "unknown llm 'llama3.1-9b'. Did you mean 'llama3.1-8b'?"),
    ):
        told = CliRunner().invoke(app, ["calibrate", *arguments, *options])
        assert told.exit_code == 2
        assert message in told.stderr
        assert len(told.stderr.strip().splitlines()) == 1
