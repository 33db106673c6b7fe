"""Calibration: an engine is recovered from the log of its requests; a wrong profile does not pass."""

import dataclasses
import json
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fleetcast.assets.studies.profile_toml
from fleetcast.assets.studies.engine_logs import read_engine_limits, read_log
from fleetcast.assets.studies.log_rows import CalibrationError
from fleetcast.assets.studies.profile_toml import profile_identity, write_profile
from fleetcast.models.latency.composed_profiles import compose_profile
from fleetcast.models.latency.latency_errors import catalogue_errors
from fleetcast.models.latency.profile_order import compute_profile, context_step_s, correction_factors
from fleetcast.models.latency.profile_tables import ProfileFit, least_kv_token_s
from fleetcast.models.latency.roofline import roofline_profile
from fleetcast.models.trials import engine_fit
from fleetcast.models.trials.engine_calibration import (
    Hypothesis,
    calibrate_profile,
    complete_profile,
    max_concurrency,
    validate_profile,
)
from fleetcast.models.trials.engine_fit import LoggedRequests
from fleetcast.models.trials.log_replay import MeasuredEngine, make_log_player
from fleetcast.models.world.catalogue import CATALOGUE_DIR, Catalogue, load_catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.pipelines.cli import cli_app

CATALOGUE = load_catalogue().of_era("2023", "here")
OFFICE = load_config("sageserve", CATALOGUE)
LLM, GPU, GPUS = "llama2-70b", "h100-80gb", 2
WHOLE = Deployment(GPU, GPUS, batching="whole", max_batch=64, max_prefill_tokens=8192, async_scheduling=False)
CHUNKED = dataclasses.replace(WHOLE, batching="chunked", max_prefill_tokens=2048, async_scheduling=True)
TRUTH = ProfileFit(
    (16, 8016),
    (0.0216, 0.8216),  # 20 ms and 0.1 ms per token
    (1, 65),
    (0.0254, 0.0510),  # 25 ms and 0.4 ms per request
    1.5 * least_kv_token_s(CATALOGUE.llms[LLM], CATALOGUE.gpus[GPU], GPUS),
)
TRUE = LatencyProfile(LLM, GPU, GPUS, *TRUTH, source="made up")
ENGINES = Path(__file__).parents[2] / "shared" / "data" / "engines"


def measured_engine(
    deployment: Deployment, llm: str = LLM, config: RunConfig = OFFICE, instances: int = 1
) -> MeasuredEngine:
    return MeasuredEngine(llm, deployment, CATALOGUE, config, "log.csv", instances)


def make_log(
    requests_per_s: float, deployment: Deployment, count: int = 400, instances: int = 1, noise: float = 0.0
) -> LoggedRequests:
    """Log what the made-up engine does to Poisson arrivals, with some noise on every time."""
    rng = np.random.default_rng(17)
    arrival_s = 1.7e9 + np.cumsum(rng.exponential(1 / requests_per_s, count))
    inputs = np.clip(rng.lognormal(6.8, 0.8, count), 16, 8000).astype(np.int32)
    outputs = np.clip(rng.lognormal(5.0, 0.8, count), 1, 1500).astype(np.int32)
    log = LoggedRequests(arrival_s, inputs, outputs, np.ones(count), np.full(count, 36_000.0))
    ttft_s, e2e_s = make_log_player(log, measured_engine(deployment, instances=instances))(TRUTH)
    factors = np.exp(noise * rng.normal(size=(2, count)))
    return log._replace(ttft_s=ttft_s * factors[0], e2e_s=ttft_s * factors[0] + (e2e_s - ttft_s) * factors[1])


def test_an_engine_is_recovered_from_its_log_and_differs_from_others() -> None:
    unknown = dataclasses.replace(CHUNKED, batching=None, async_scheduling=None)
    found = calibrate_profile(make_log(2.0, CHUNKED), measured_engine(unknown))
    assert next(iter(found.hypotheses)) == Hypothesis("chunked", True, 1)
    assert found.deployment == CHUNKED
    off = {(line.metric, line.of): abs(line.signed_error_share) for line in found.verdict}
    assert off["E2E", "a request"] < 0.02
    assert off["TTFT", "a request"] < 0.10  # whether a step has just begun at an arrival is chance
    assert all(line.passes for line in found.verdict if line.metric != "TTFT")
    assert found.profile.median_error_share == round(off["E2E", "a request"], 4)
    assert 100 < found.held_out < 140
    assert found.fitted + found.held_out == 390


@pytest.mark.parametrize("seen_batch", [1, 2, 15, 16, 100, 255, 256])
def test_batches_that_no_log_has_are_computed_and_change_no_factor(seen_batch: int) -> None:
    """Fitted knots are off by chance above the largest batch of the log."""
    computed = compute_profile(CATALOGUE, LLM, GPU, GPUS)
    batch = tuple(sorted({1, 2, 9, seen_batch, 256}))
    by = {b: (1.1 + 0.2 / b if b <= seen_batch else 9.0) for b in batch}
    steps_s = tuple(float(by[b] * context_step_s(computed, np.array(b))) for b in batch)
    fitted = dataclasses.replace(
        computed, decode_batch=batch, decode_s=steps_s, decode_per_kv_token_s=0.0, median_error_share=None
    )
    found = complete_profile(CATALOGUE, fitted, seen_batch, 256)
    seen = tuple(b for b in batch if b <= seen_batch)
    assert found.decode_s[: len(seen)] == steps_s[: len(seen)]
    factor = np.median([by[b] for b in seen])
    assert correction_factors(found, computed) == pytest.approx((1.0, factor), rel=1e-3)
    assert found.decode_batch[-1] == 256
    assert (found.median_error_share is not None) == (seen_batch < 16), "half of the doublings"


def test_a_log_without_batches_is_no_measurement_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GENERATIONS", "SIMPLEX_TRIES"):  # a coarse fit will do
        monkeypatch.setattr(engine_fit, name, 2)
    alone = make_log(0.0003, WHOLE, 120)
    assert max_concurrency(alone) == 1
    limits = ["--max-batch", "64", "--max-prefill-tokens", "20000", "--kv-tokens", "100000"]
    arguments = ["calibrate", str(as_csv(alone, tmp_path / "log.csv")), *options(*limits)]
    done = CliRunner().invoke(cli_app, arguments)
    assert done.exit_code == 0, done.stderr
    longest = alone.input_tokens.max()
    assert f"The log has batches up to 1 and prompts up to {longest:,} tokens; limits" in done.stderr
    assert f"batches above 1, computed and times the median factor, prefill above {longest:,}" in done.stderr
    assert "No prompt met a running request" in done.stderr
    (printed,) = tomllib.loads(done.stdout)["profile"]
    assert printed["prefill_tokens"][-1] == longest
    computed = compute_profile(load_catalogue(), LLM, GPU, GPUS)
    first_s = printed["decode_s"][0] + 1024 * printed["decode_per_kv_token_s"]
    factor = first_s / float(context_step_s(computed, np.array(1)))
    assert f"decode {factor:.3g} times" in done.stderr
    error_share = printed["median_error_share"]
    assert error_share >= round(catalogue_errors(of_one(computed))[0].decode_share, 4)
    assert f"TPOT is then taken to be {error_share:.0%} off" in done.stderr


def of_one(profile: LatencyProfile) -> Catalogue:
    return dataclasses.replace(load_catalogue(), latency=(profile,))


def test_the_log_of_two_instances_differs_from_that_of_one() -> None:
    found = calibrate_profile(make_log(6.0, CHUNKED, 300, instances=2), measured_engine(CHUNKED))
    best, other = found.hypotheses.items()
    assert (best[0].instances, other[0].instances) == (2, 1)
    assert best[1] < 0.5 * other[1]


OFF = [(1.3, 1, 1), (0.7, 1, 1), (1, 1.3, 1), (1, 0.8, 1), (1, 1, 8)]


@pytest.mark.parametrize("times", [(1, 1, 1), *OFF])
def test_a_wrong_profile_does_not_pass(times: tuple[float, ...]) -> None:
    """Prefill, decode and cache reads, each this many times as slow as the engine."""
    log = make_log(2.0, WHOLE)
    off = dataclasses.replace(
        TRUE,
        prefill_s=tuple(times[0] * s for s in TRUE.prefill_s),
        decode_s=tuple(times[1] * s for s in TRUE.decode_s),
        decode_per_kv_token_s=times[2] * TRUE.decode_per_kv_token_s,
    )
    verdict = validate_profile(log, off, measured_engine(WHOLE))
    assert all(line.passes for line in verdict) == (times not in OFF)
    assert {line.metric for line in verdict} == {"TTFT", "TPOT", "E2E"}


def test_right_percentiles_of_the_wrong_requests_do_not_pass() -> None:
    log = make_log(2.0, WHOLE)
    order = np.random.default_rng(0).permutation(log.e2e_s.size)
    verdict = validate_profile(
        log._replace(ttft_s=log.ttft_s[order], e2e_s=log.e2e_s[order]), TRUE, measured_engine(WHOLE)
    )
    assert not next(line for line in verdict if (line.metric, line.of) == ("E2E", "a request")).passes


def test_a_log_that_the_deployment_cannot_have_served_is_refused() -> None:
    log = make_log(1.0, WHOLE, 120)
    huge = np.where(np.arange(120) == 9, 2_000_000, log.input_tokens).astype(np.int32)
    with pytest.raises(ValueError, match=r"one has 2000000 input .*Name the deployment that was measured"):
        calibrate_profile(log._replace(input_tokens=huge), measured_engine(WHOLE))
    short = LoggedRequests._make(column[:50] for column in log)
    with pytest.raises(ValueError, match=r"log\.csv has 50 requests, needs at least 100.*Measure for longer"):
        calibrate_profile(short, measured_engine(WHOLE))


HEADER = "arrival_s,input_tokens,output_tokens,ttft_s,e2e_s"


def as_csv(log: LoggedRequests, path: Path) -> Path:
    rows = [",".join(map(repr, map(float, row))) for row in zip(*log, strict=True)]
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def test_a_log_is_read_in_order_of_arrival_whatever_the_order_of_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("e2e_s,host,ttft_s,output_tokens,input_tokens,arrival_s\n9,a,1,5,70,20\n8,b,2,6,80,10\n")
    log = read_log(path).requests
    assert [column.tolist() for column in log] == [[10, 20], [80, 70], [6, 5], [2, 1], [8, 9]]
    assert log.input_tokens.dtype == np.int32


LINE = {"input_toks": 7, "output_toks": 3, "arrival_time": 100.5, "queued_ts": 5.0, "first_token_ts": 6.0,
        "last_token_ts": 8.0}  # fmt: skip


def test_two_clocks_are_aligned_by_the_least_difference(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    late = {**LINE, "arrival_time": 101.0, "queued_ts": 6.5, "first_token_ts": 7.0}
    path.write_text("\n".join(json.dumps(row) for row in (LINE, late, LINE)))
    log = read_log(path)
    assert log.requests.ttft_s.tolist() == [1.0, 1.0, 1.5]
    assert log.requests.e2e_s.tolist() == [3.0, 3.0, 2.5]
    assert "differ by -95.500 s" in log.notes[0]
    path.write_text("\n".join(json.dumps(row) for row in (LINE, {**LINE, "last_token_ts": None})))
    with pytest.raises(CalibrationError, match=r"log\.jsonl line 2 .*never ended.*Measure until all end"):
        read_log(path)


def test_truncated_tokens_are_reported(tmp_path: Path) -> None:
    log = make_log(1.0, WHOLE, 120)
    cut = log._replace(output_tokens=np.minimum(log.output_tokens, 200).astype(np.int32))
    (note,) = read_log(as_csv(cut, tmp_path / "cut.csv")).notes
    assert "exactly 200 output tokens: they were cut there" in note


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        (
            "INFO 11-02 GPU KV cache size: 41,408 tokens\nnon-default args: {'max_num_seqs': 128, "
            "'max_num_batched_tokens': 4096}\nChunked prefill is enabled with max_num_batched_tokens=4096.\n"
            "Asynchronous scheduling is enabled.",
            {"kv_tokens": 41_408, "max_batch": 128, "max_prefill_tokens": 4096, "batching": "chunked",
             "async_scheduling": True, "has_prefix_cache": False},
        ),
        (
            "max_total_num_tokens=441520, chunked_prefill_size=8192, max_prefill_tokens=16384, "
            "max_running_requests=2048, context_len=131072 disable_overlap_schedule=False tp_size=2",
            {"kv_tokens": 441_520, "max_batch": 2048, "max_prefill_tokens": 8192, "async_scheduling": True,
             "tensor_parallel": 2, "has_prefix_cache": False},
        ),
        (
            '{"max_num_seqs": 64, "cache": {"num_gpu_blocks": 10, "block_size": 16, "num_cpu_blocks": null, '
            '"enable_prefix_caching": true}, "enable_chunked_prefill": false}',
            {"max_batch": 64, "kv_tokens": 160, "batching": "whole", "has_prefix_cache": True},
        ),
    ],
)  # fmt: skip
def test_limits_are_read_from_engine_output(tmp_path: Path, text: str, limits: dict[str, object]) -> None:
    path = tmp_path / "start.log"
    path.write_text(text)
    assert read_engine_limits(path) == limits
    path.write_text("nothing of the kind")
    with pytest.raises(CalibrationError, match=r"start\.log names none of max_num_seqs, .*SGLang"):
        read_engine_limits(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "arrival_s,ttft_s\n1,2\n",
            "lacks the columns input_tokens, output_tokens, e2e_s; it has arrival_s, ",
        ),
        ("", "is not a CSV"),
        (f"{HEADER}\n0,9,9,1,2\n1,9,9,,2\n", r"line 3 \(arrival_s=1.*ttft_s must be a number\. 1 of 2 rows"),
        (f"{HEADER}\n0,9,9,soon,2\n", "line 2 .*ttft_s must be a number"),
        (f"{HEADER}\n0,9,9,nan,2\n", "line 2 .*ttft_s must be a number"),
        (f"{HEADER}\n0,9,9,3,2\n", "line 2 .*ttft_s must not exceed e2e_s"),
        (f"{HEADER}\n0,9,9,0,2\n", "line 2 .*ttft_s must be above 0"),
        (f"{HEADER}\n0,9,9,2,2\n", "with two tokens or more e2e_s must exceed ttft_s"),
        (f"{HEADER}\n0,0,9,1,2\n", "input_tokens must be a whole number from 1"),
        (f"{HEADER}\n0,9,1.5,1,2\n", "output_tokens must be a whole number from 1.*correct or drop them"),
        (f"{HEADER}\n0,9,9,200,400000\n", "e2e_s must be under a day; give seconds"),
        (f"{HEADER}\n0,9,9,200,900\n", r"token is 87\.5 s.*Are these milliseconds\? Divide by 1000"),
    ],
)
def test_a_bad_log_is_refused_with_line_rule_and_remedy(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(CalibrationError, match=message):
        read_log(path)


def options(*more: str) -> list[str]:
    return ["--llm", LLM, "--gpu", GPU, "--tensor-parallel", str(GPUS), *more]


def test_the_command_prints_a_profile_and_writes_it_where_it_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue = tmp_path / "latency.toml"
    catalogue.write_text((CATALOGUE_DIR / "latency.toml").read_text())
    monkeypatch.setattr(fleetcast.assets.studies.profile_toml, "LATENCY_TOML", catalogue)
    for name in ("GENERATIONS", "SIMPLEX_TRIES"):  # a coarse fit will do
        monkeypatch.setattr(engine_fit, name, 2)
    log, engine = as_csv(make_log(4.0, WHOLE, 300), tmp_path / "my log.csv"), tmp_path / "meta.json"
    engine.write_text('{"max_num_seqs": 64, "enable_chunked_prefill": false, "async_scheduling": false}')
    limits = ["--engine", str(engine), "--max-prefill-tokens", "8192", "--write"]
    strict = CliRunner().invoke(cli_app, ["calibrate", str(log), *options(*limits, "--e2e-limit", "0")])
    assert strict.exit_code == 2
    assert "E2E: P50 " in strict.stderr
    assert "limit 0%: FAIL" in strict.stderr
    assert "the profile does not pass and was not written" in strict.stderr
    assert catalogue.read_text() == (CATALOGUE_DIR / "latency.toml").read_text()
    done = CliRunner().invoke(
        cli_app, ["calibrate", str(log), *options(*limits, "--e2e-limit", "0", "--force")]
    )
    assert done.exit_code == 0, done.stderr
    assert (
        "meta.json does not have kv_tokens: computed from a formula. Set it with --kv-tokens (its start-up "
        "log's GPU KV cache size).\n"
    ) in done.stderr
    assert "max_batch: taken" not in done.stderr
    assert 'batching = "whole", max_batch = 64, max_prefill_tokens = 8192' in done.stderr
    assert "the profile was added" in done.stderr
    (printed,) = tomllib.loads(done.stdout)["profile"]
    before = tomllib.loads((CATALOGUE_DIR / "latency.toml").read_text()).get("profile", [])
    after = tomllib.loads(catalogue.read_text())["profile"]
    assert after[-1] == printed
    assert printed["source"] == "calibrated: 300 requests of my log.csv"
    assert after[:-1] == [p for p in before if profile_identity(p) != (LLM, GPU, GPUS)]
    assert catalogue.read_text().startswith("# Latency profiles")


def test_the_existing_profile_can_be_checked(tmp_path: Path) -> None:
    log = as_csv(make_log(2.0, WHOLE, 300), tmp_path / "log.csv")  # of an engine slower than the catalogue's
    done = CliRunner().invoke(cli_app, ["calibrate", str(log), *options("--check")])
    assert done.exit_code == 1
    assert "E2E: P50 " in done.stderr
    assert "FAIL" in done.stderr
    assert done.stdout == ""


def test_a_log_and_limits_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    made = make_log(4.0, WHOLE, 200)
    log, engine = as_csv(made, tmp_path / "log.csv"), tmp_path / "meta.json"
    running = max_concurrency(made)
    done = CliRunner().invoke(cli_app, ["calibrate", str(log), *options("--max-batch", str(running - 1))])
    assert done.exit_code == 2
    assert f"{running} requests run at once, max_batch is {running - 1}. Is it the log of one" in done.stderr
    engine.write_text('{"tensor_parallel_size": 4}')
    done = CliRunner().invoke(cli_app, ["calibrate", str(log), *options("--engine", str(engine))])
    assert "tensor_parallel is 4, --tensor-parallel 2. Name the deployment that was measured" in done.stderr
    done = CliRunner().invoke(cli_app, ["calibrate", str(log), *options("--tensor-parallel", "3")])
    assert done.exit_code == 2
    assert "tensor_parallel must divide the" in done.stderr
    assert done.stderr.count("\n") == 1, "before anything is fitted"


def test_the_ranks_of_a_dense_llm_are_instances_that_share_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranks with half the batch each: the profile is that of one rank, at the rate of both."""
    for name in ("GENERATIONS", "SIMPLEX_TRIES"):  # a coarse fit will do
        monkeypatch.setattr(engine_fit, name, 4)
    made, engine = make_log(6.0, CHUNKED, 300, instances=2), tmp_path / "meta.json"
    log = as_csv(made, tmp_path / "log.csv")
    seats = max_concurrency(made) - 10
    engine.write_text(
        f'{{"tensor_parallel_size": 2, "data_parallel_size": 2, "data_parallel_size_local": 1, '
        f'"max_num_seqs": {seats}, "max_num_batched_tokens": 2048, "enable_chunked_prefill": true, '
        '"async_scheduling": true}'
    )
    arguments = ["calibrate", str(log), *options("--engine", str(engine))]
    done = CliRunner().invoke(cli_app, arguments)
    assert done.exit_code == 0, done.stderr
    assert "data_parallel_size is 2: each rank is an instance of its own, with these limits." in done.stderr
    assert "Best: chunked, one step behind, 2 instances (mean error " in done.stderr
    assert "chunked, one step behind, 4 instances: " in done.stderr
    engine.write_text(engine.read_text().replace('"data_parallel_size": 2', '"data_parallel_size": 1'))
    alone = CliRunner().invoke(cli_app, arguments)
    assert f"{max_concurrency(made)} requests run at once, max_batch is {seats}" in alone.stderr
    mixture = ["calibrate", str(log), "--llm", "qwen3-30b-a3b", "--gpu", GPU, "--tensor-parallel", "2"]
    engine.write_text('{"tensor_parallel_size": 2, "data_parallel_size": 4}')
    refused = CliRunner().invoke(cli_app, [*mixture, "--engine", str(engine)])
    assert refused.exit_code == 2
    assert "data_parallel_size is 4: the ranks of a mixture share its experts" in refused.stderr


@pytest.mark.skipif(not ENGINES.exists(), reason="no engine logs next to the project")
def test_the_roofline_of_gpus_without_nvlink_knows_their_link() -> None:
    """36 % too fast without the all-reduce time, 25 % with full PCIe bandwidth: the host limits it."""
    log = read_log(ENGINES / "rtxpro6000_qwen3-32b_tp2" / "requests.jsonl").requests
    engine = Deployment("rtxpro6000-96gb", 2, max_batch=128, max_prefill_tokens=2048, batching="chunked",
                        async_scheduling=False)  # fmt: skip
    estimated = roofline_profile(CATALOGUE, "qwen3-32b", engine.gpu, engine.tensor_parallel)
    verdict = validate_profile(log, estimated, measured_engine(engine, llm=estimated.llm))
    off = {line.metric: line.signed_error_share for line in verdict if line.of == "a request"}
    assert off["E2E"] < 0.10
    assert off["TTFT"] < 0.10


@pytest.mark.skipif(not ENGINES.exists(), reason="no engine logs next to the project")
def test_a_real_engine_is_predicted_within_a_few_percent() -> None:
    folder = ENGINES / "rtxpro6000_qwen3-32b_tp2"
    log, limits = read_log(folder / "requests.jsonl"), read_engine_limits(folder / "meta.json")
    assert limits == {
        "max_batch": 128,
        "max_prefill_tokens": 2048,
        "tensor_parallel": 2,
        "has_prefix_cache": False,
    }
    engine = Deployment("rtxpro6000-96gb", 2, max_batch=128, max_prefill_tokens=2048, batching="chunked",
                        async_scheduling=False)  # fmt: skip
    found = calibrate_profile(log.requests, measured_engine(engine, llm="qwen3-32b"))
    off = {line.metric: line.signed_error_share for line in found.verdict if line.of == "a request"}
    assert off["E2E"] < 0.02
    assert off["TTFT"] < 0.04
    assert all(line.passes for line in found.verdict)


def test_without_a_log_the_command_estimates(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        cli_app, ["calibrate", "--llm", LLM, "--gpu", "h200-141gb", "--tensor-parallel", "4"]
    )
    (printed,) = tomllib.loads(done.stdout)["profile"]
    profile = compose_profile(CATALOGUE, LLM, "h200-141gb", 4)
    assert printed["decode_s"] == list(profile.decode_s)
    path = tmp_path / "latency.toml"
    path.write_text((CATALOGUE_DIR / "latency.toml").read_text())
    assert not write_profile(profile, path)  # added
    assert write_profile(profile, path)  # in place of itself
    assert len(tomllib.loads(path.read_text())["profile"]) == len(load_catalogue().latency) + 1


def test_a_mistake_at_the_command_is_one_line(tmp_path: Path) -> None:
    options = ["--gpu", GPU, "--tensor-parallel", "1"]
    for arguments, message in (
        ([str(tmp_path / "no.csv"), "--llm", LLM], "There is no file"),
        (["--llm", "llama3.1-9b"], "unknown llm 'llama3.1-9b'. Did you mean 'llama3.1-8b'?"),
    ):
        done = CliRunner().invoke(cli_app, ["calibrate", *arguments, *options])
        assert done.exit_code == 2
        assert message in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


FRONTEND_S = 0.02


def log_with_front_end(count: int = 200) -> tuple[LoggedRequests, np.ndarray]:
    """Log what a made-up engine behind a front end does, and when the engine has each request."""
    fleet = dataclasses.replace(OFFICE.fleet, frontend_s=FRONTEND_S)
    behind = dataclasses.replace(OFFICE, fleet=fleet)
    log = make_log(3.0, WHOLE, count)
    ttft_s, e2e_s = make_log_player(log, measured_engine(WHOLE, config=behind))(TRUTH)
    np.testing.assert_allclose(ttft_s - log.ttft_s, FRONTEND_S, atol=1e-9)
    # A busy engine takes some in later.
    queued_s = log.arrival_s + FRONTEND_S + np.random.default_rng(6).exponential(0.05, count).round(2)
    return log._replace(ttft_s=ttft_s, e2e_s=e2e_s), queued_s


@pytest.mark.parametrize("is_jsonl", [False, True])
def test_the_front_end_of_a_log_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_jsonl: bool
) -> None:
    log, queued_s = log_with_front_end()
    path = tmp_path / ("log.jsonl" if is_jsonl else "log.csv")
    if is_jsonl:
        columns = (log.arrival_s, log.input_tokens, log.output_tokens, queued_s,
                   log.arrival_s + log.ttft_s, log.arrival_s + log.e2e_s)  # fmt: skip
        names = ("arrival_time", "input_toks", "output_toks", "queued_ts", "first_token_ts", "last_token_ts")
        rows = (dict(zip(names, map(float, row), strict=True)) for row in zip(*columns, strict=True))
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        pd.DataFrame({**log._asdict(), "queued_s": queued_s}).to_csv(path, index=False)
    read = read_log(path)
    assert read.frontend_s == pytest.approx(FRONTEND_S, abs=1e-6)
    np.testing.assert_allclose(read.requests.ttft_s, log.ttft_s, atol=1e-5)
    for name in ("GENERATIONS", "SIMPLEX_TRIES"):  # a coarse fit will do
        monkeypatch.setattr(engine_fit, name, 2)
    done = CliRunner().invoke(cli_app, ["calibrate", str(path), *options()])
    assert done.exit_code == 0, done.stderr
    assert "Front end: 20 ms from arrival to the engine's queue." in done.stderr
    assert done.stdout.splitlines()[-1] == "# without the front end: add [fleet] frontend_s = 0.02"


def test_the_replay_of_a_log_has_the_front_end_that_is_not_in_the_profile() -> None:
    log, _ = log_with_front_end()
    behind = dataclasses.replace(OFFICE, fleet=dataclasses.replace(OFFICE.fleet, frontend_s=FRONTEND_S))
    errors = [
        {
            (check.metric, check.of): check.signed_error_share
            for check in validate_profile(log, TRUE, measured_engine(WHOLE, config=config))
        }
        for config in (behind, OFFICE)
    ]
    assert errors[0]["TTFT", "P50"] == pytest.approx(0.0, abs=1e-9)
    assert errors[0]["E2E", "a request"] == pytest.approx(0.0, abs=1e-9)
    assert errors[1]["TTFT", "P50"] < -0.05
    assert errors[1]["TPOT", "P50"] == pytest.approx(0.0, abs=1e-9)


def test_a_queue_on_another_clock_than_the_arrivals_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"{HEADER},queued_s\n0,9,9,1,2,-5\n1,9,9,1,2,-4\n")
    with pytest.raises(
        CalibrationError, match=r"queued_s is at least -5\.000 s after arrival_s, must be 0 to 1"
    ):
        read_log(path)
