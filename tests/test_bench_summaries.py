"""Summaries of benchmarks: two factors of a profile come back from means; a load without them is refused."""

import dataclasses
import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wall_points
from typer.testing import CliRunner

import fleetcast.assets.studies.profile_toml
from fleetcast.assets.studies.bench_summaries import read_load_points
from fleetcast.assets.studies.log_rows import CalibrationError
from fleetcast.models.latency.latency_errors import scale_profile
from fleetcast.models.latency.profile_order import find_profile
from fleetcast.models.trials.capacity import trial_fleet, trial_rules
from fleetcast.models.trials.client_load import replay_client_loop, replay_poisson_load
from fleetcast.models.trials.engine_calibration import LIMITS
from fleetcast.models.trials.factor_search import search_factors
from fleetcast.models.trials.log_replay import MeasuredEngine
from fleetcast.models.trials.point_fit import (
    LoadPoint,
    calibrate_to_points,
    check_points,
    make_point_player,
    mean_times,
    replayed_requests,
)
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.pipelines.cli import cli_app

CATALOGUE = load_catalogue()
OFFICE = load_config("office", CATALOGUE)
LLM, GPU = "llama3.1-8b", "h100-80gb"
ENGINE = Deployment(GPU, 1, batching="chunked", max_batch=256, max_prefill_tokens=2048, async_scheduling=True)
BASE = find_profile(CATALOGUE, LLM, GPU, 1)
PREFILL, DECODE = 1.3, 0.8  # of the made-up engine, times the profile
INPUT, OUTPUT, REQUESTS = 1000, 250, 400
OPTIONS = ["--llm", LLM, "--gpu", GPU, "--tensor-parallel", "1", "--max-batch", "256",
           "--max-prefill-tokens", "2048"]  # fmt: skip


def lengths(kind: str, count: int) -> list[np.ndarray]:
    """Input and output tokens, whose mean is INPUT and OUTPUT: all equal, uniform, or lognormal."""
    rng = np.random.default_rng(4)
    if kind == "equal":
        return [np.full(count, mean) for mean in (INPUT, OUTPUT)]
    if kind == "uniform":  # from half to three halves
        return [rng.integers(mean // 2, 3 * mean // 2, count) for mean in (INPUT, OUTPUT)]
    drawn = [rng.lognormal(np.log(mean) - 0.32, 0.8, count) for mean in (INPUT, OUTPUT)]
    return [np.clip(tokens, 2, 8 * INPUT).astype(int) for tokens in drawn]


def measure(
    clients: int | None,
    rate: float = 0.0,
    kind: str = "equal",
    factors: tuple[float, float] = (PREFILL, DECODE),
) -> LoadPoint:
    """Measure the made-up engine."""
    truth = scale_profile(CATALOGUE, BASE, *factors)
    only = dataclasses.replace(CATALOGUE, latency=(truth,))
    fleet, rules = trial_fleet(LLM, ENGINE, only, OFFICE, instances=1), trial_rules(LLM, only, OFFICE)
    count = REQUESTS if clients is None else max(8 * clients, 100)
    inputs, outputs = lengths(kind, count)
    sent = (
        replay_poisson_load(rate, inputs, outputs, fleet, rules)
        if clients is None
        else replay_client_loop(clients, inputs, outputs, fleet, rules)
    )
    sizes = round(float(inputs.mean())), round(float(outputs.mean()))
    return LoadPoint(clients, rate, count, *sizes, *mean_times(sent))


def summary(point: LoadPoint) -> dict[str, Any]:
    """What `vllm bench serve --save-result` writes without --save-detailed, and some more."""
    return {
        "backend": "vllm", "num_prompts": point.requests, "burstiness": 1.0, "duration": 100.0, "failed": 0,
        "request_rate": "inf" if point.clients else point.requests_per_s, "max_concurrency": point.clients,
        "completed": point.requests, "total_input_tokens": point.requests * point.input_tokens,
        "total_output_tokens": point.requests * point.output_tokens, "request_goodput": None,
        "mean_ttft_ms": 1e3 * point.ttft_s, "median_ttft_ms": 1.0, "mean_tpot_ms": 1e3 * point.tpot_s,
    }  # fmt: skip


def write_summaries(folder: Path, points: Sequence[LoadPoint]) -> list[str]:
    paths = [folder / f"{number}.json" for number in range(len(points))]
    for path, point in zip(paths, points, strict=True):
        path.write_text(json.dumps(summary(point)))
    return list(map(str, paths))


def calibrate(points: Sequence[LoadPoint]) -> Any:
    return calibrate_to_points(points, BASE, MeasuredEngine(LLM, ENGINE, CATALOGUE, OFFICE, "x"))


def test_a_summary_is_the_load_that_was_measured(tmp_path: Path) -> None:
    points = [
        LoadPoint(None, 2.0, 300, 900, 200, 0.25, 0.0625),
        LoadPoint(8, 0.0, 300, 900, 200, 0.25, 0.0625),
    ]
    files = list(map(Path, write_summaries(tmp_path, points)))
    assert read_load_points(files) == points
    appended = tmp_path / "appended.json"
    appended.write_text("\n".join(path.read_text() for path in files))
    assert read_load_points([appended]) == points
    assert list(map(str, points)) == ["2/s", "8 at once"]
    flood = tmp_path / "flood.json"
    flood.write_text(json.dumps(summary(points[1]) | {"max_concurrency": None}))
    assert read_load_points([flood]) == [points[1]._replace(clients=300)]
    (tmp_path / "log.csv").write_text("a\n")
    assert read_load_points([files[0], tmp_path / "log.csv"]) == []


@pytest.mark.parametrize(("kind", "prefill_error"), [("equal", 0.02), ("uniform", 0.02), ("lognormal", 0.11)])
def test_the_factors_of_an_engine_come_back_from_rates(kind: str, prefill_error: float) -> None:
    """Though all requests are replayed with the mean length."""
    found = calibrate([measure(None, rate, kind) for rate in (0.5, 2.0, 4.0)])
    assert found.prefill_factor == pytest.approx(PREFILL, rel=prefill_error)
    assert found.decode_factor == pytest.approx(DECODE, rel=0.02)
    assert found.is_validated
    assert all(check.passes for check in found.checks)
    assert [check.metric for check in found.checks] == ["TTFT", "TPOT"]
    assert found.profile.prefill_s == pytest.approx(
        [found.prefill_factor * seconds for seconds in BASE.prefill_s], rel=1e-3
    )
    assert found.profile.decode_per_kv_token_s == found.decode_factor * BASE.decode_per_kv_token_s
    assert found.profile.median_error_share == round(found.checks[1].signed_error_share, 4)


@pytest.mark.parametrize("rates", [(6.0, 12.0), (2.0, 12.0), (20.0,)])
@pytest.mark.parametrize("factors", [(3.0, 1.7), (2.0, 1.3)])
def test_the_factors_come_back_from_loads_near_saturation(
    rates: tuple[float, ...], factors: tuple[float, float]
) -> None:
    """Full steps swing between an idle engine and a flooded one. Each fit without a load must end too."""
    found = calibrate([measure(None, rate, factors=factors) for rate in rates])
    assert found.fit.factors == pytest.approx(factors, rel=0.01)
    for fit in found.held_out_fits:
        assert fit.factors == pytest.approx(factors, rel=0.03)
        assert fit.is_near


def test_a_search_that_ends_nowhere_has_its_nearest_round() -> None:
    """The seconds jump at a factor of 2: no factor has those between, and the lower side is nearer."""
    rounds = list[float]()

    def log_misses(factors: np.ndarray) -> np.ndarray:
        rounds.append(float(factors[0]))
        return np.log([4.0 / (3.0 if factors[0] < 2 else 7.0)])

    fit = search_factors(log_misses, np.ones(1))
    assert fit.miss_share == pytest.approx(1 / 3)
    assert fit.factors[0] == rounds[0] == 1
    assert not fit.is_near
    assert len(rounds) == 40
    assert rounds[-1] == pytest.approx(2, rel=0.2), "the swing dies down"
    falling = search_factors(lambda factors: np.log([0.5]) * (1 + factors), np.ones(1))
    assert falling.factors[0] == pytest.approx(0.01), "a profile keeps its seconds above 0"


def test_several_clients_say_nothing_of_prefill_and_one_does() -> None:
    """Clients with equal requests stay in step in the replay: their TTFT is that of prompts that meet."""
    points = [measure(clients, kind="uniform") for clients in (1, 8, 32)]
    found = calibrate(points)
    assert found.prefill_factor == pytest.approx(PREFILL, rel=0.03)
    assert found.decode_factor == pytest.approx(DECODE, rel=0.03)
    assert not found.is_validated  # one load shows prefill: it is fitted, and nothing checks it
    found = calibrate(points[1:])
    assert found.prefill_factor == 1
    assert found.profile.prefill_s == BASE.prefill_s
    assert found.is_validated
    assert [check.metric for check in found.checks] == ["TPOT"]


def test_each_load_is_checked_by_the_fit_of_the_others() -> None:
    """Of two loads with other factors each is predicted with the factor of the other one."""
    points = [measure(None, rate) for rate in (0.5, 1.0)]
    slow = points[1]._replace(tpot_s=1.5 * points[1].tpot_s)
    predicted_s = calibrate([points[0], slow]).predicted_s
    assert predicted_s[0, 1] == pytest.approx(1.5 * points[0].tpot_s, rel=0.02)
    assert predicted_s[1, 1] == pytest.approx(points[1].tpot_s, rel=0.02)


def test_a_replay_has_no_more_requests_than_were_measured() -> None:
    point = LoadPoint(2, 0.0, 60, 10, 10, 1.0, 1.0)
    assert replayed_requests(point) == 60
    assert replayed_requests(point._replace(requests=9_000)) == 254  # of two clients
    assert replayed_requests(point._replace(clients=500, requests=9_000)) == 2_000
    assert replayed_requests(point._replace(clients=None, requests=9_000)) == 1_000


def test_the_command_scales_the_profile_and_says_how_far_off_it_is(tmp_path: Path) -> None:
    files = write_summaries(tmp_path, [measure(None, rate) for rate in (0.5, 2.0)])
    done = CliRunner().invoke(cli_app, ["calibrate", *files, *OPTIONS])
    assert done.exit_code == 0, done.stderr
    factors = re.search(r"times: prefill ([\d.]+), decode ([\d.]+)\.", done.stderr)
    assert factors is not None
    assert list(map(float, factors.groups())) == pytest.approx([PREFILL, DECODE], rel=0.02)
    assert re.search(r"0\.5/s: TTFT [\d.]+ s [+-]\d+\.\d%, TPOT", done.stderr)
    assert re.search(r"TPOT: a load \d\.\d%; limit 7%: pass", done.stderr)
    reach = re.search(r"prefill takes ([\d.]+), decode ([\d.]+) times as long as computed", done.stderr)
    assert reach is not None
    assert list(map(float, reach.groups())) == pytest.approx([PREFILL, DECODE], rel=0.02)
    (printed,) = tomllib.loads(done.stdout)["profile"]
    assert printed["source"] == "calibrated: 2 loads of 0.json and 1 more"
    assert printed["decode_s"] == pytest.approx([DECODE * seconds for seconds in BASE.decode_s], rel=0.02)


def test_loads_that_no_factors_give_are_named_and_do_not_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TTFT below the front end's: no prefill is short enough."""
    catalogue = tmp_path / "latency.toml"
    catalogue.write_text("# none\n")
    monkeypatch.setattr(fleetcast.assets.studies.profile_toml, "LATENCY_TOML", catalogue)
    loads = [measure(None, rate)._replace(ttft_s=0.001) for rate in (0.5, 2.0)]
    limits = ["--ttft-limit", "99", "--e2e-limit", "99", "--write"]
    files = write_summaries(tmp_path, loads)
    done = CliRunner().invoke(cli_app, ["calibrate", *files, *OPTIONS, *limits])
    missed = re.search(
        r"No factors were found .* TTFT or TPOT is (\d+)% off in the median load, must be at most 2%\. "
        r"Near saturation .*: add a result at a low rate\.\n",
        done.stderr,
    )
    assert missed is not None
    assert int(missed[1]) > 100 * (OFFICE.fleet.frontend_s / 0.001 - 1)
    assert "limit 9900%: pass" in done.stderr
    assert done.exit_code == 2
    assert catalogue.read_text() == "# none\n"
    # The mean of both can be had, the second load alone cannot.
    files = write_summaries(tmp_path, [loads[0]._replace(ttft_s=0.2), loads[1]._replace(ttft_s=0.003)])
    done = CliRunner().invoke(cli_app, ["calibrate", *files, *OPTIONS, *limits[:4]])
    assert re.search(
        r"Without one of the loads no factors were found \(\d+% off\), so the error", done.stderr
    )
    assert "No factors" not in done.stderr


def test_one_load_validates_nothing_and_the_catalogue_can_be_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue = tmp_path / "latency.toml"
    catalogue.write_text("# none\n")
    monkeypatch.setattr(fleetcast.assets.studies.profile_toml, "LATENCY_TOML", catalogue)
    files = write_summaries(tmp_path, [measure(4)])
    done = CliRunner().invoke(cli_app, ["calibrate", *files, *OPTIONS, "--write"])
    assert done.exit_code == 2
    assert "the profile does not pass and was not written" in done.stderr
    assert catalogue.read_text() == "# none\n"
    assert "No load shows prefill: add one at a rate, or of one client" in done.stderr
    assert "One load validates nothing: add a result at another rate or concurrency." in done.stderr
    checked = CliRunner().invoke(cli_app, ["calibrate", *files, *OPTIONS, "--check"])
    assert checked.exit_code == 1
    assert re.search(r"TPOT: a load 2[345]\.\d%; limit 7%: FAIL", checked.stderr)  # 1 / DECODE - 1
    assert checked.stdout == ""


def metric(average: float, unit: str = "ms") -> dict[str, Any]:
    return {"unit": unit, "avg": average, "p50": 1.0}


def aiperf_summary(**loadgen: Any) -> dict[str, Any]:
    """The keys of profile_export_aiperf.json that matter, and some more."""
    return {
        "request_count": metric(300.0, "requests"), "input_sequence_length": metric(900.4, "tokens"),
        "output_sequence_length": metric(199.6, "tokens"), "time_to_first_token": metric(250.0),
        "inter_token_latency": metric(62.5), "request_latency": metric(12_750.0), "error_request_count": None,
        "input_config": {"loadgen": loadgen, "endpoint": {"streaming": True}}, "was_cancelled": False,
    }  # fmt: skip


def inference_perf_stage(achieved_per_s: float = 1.96, **changes: Any) -> dict[str, Any]:
    """A stage_N_lifecycle_metrics.json."""
    return {
        "load_summary": {"count": 300, "requested_rate": 2.0, "achieved_rate": achieved_per_s},
        "successes": {
            "count": 300, "prompt_len": {"mean": 900.4}, "output_len": {"mean": 199.6},
            "latency": {"time_to_first_token": {"mean": 0.25}, "time_per_output_token": {"mean": 0.0625}},
        },
        "failures": {"count": 0},
    } | changes  # fmt: skip


def read_one(folder: Path, document: dict[str, Any]) -> LoadPoint:
    path = folder / "summary.json"
    path.write_text(json.dumps(document))
    [point] = read_load_points([path])
    return point


def test_a_summary_of_another_tool_is_its_load(tmp_path: Path) -> None:
    loop, open_loop = (
        LoadPoint(8, 0.0, 300, 900, 200, 0.25, 0.0625),
        LoadPoint(None, 2.0, 300, 900, 200, 0.25, 0.0625),
    )
    burst = {"concurrency": 8, "request_rate_mode": "concurrency_burst"}
    assert read_one(tmp_path, aiperf_summary(**burst)) == loop
    phases = {"phases": [{"name": "warmup", "concurrency": 1}, {"name": "profiling", "concurrency": 8}]}
    assert read_one(tmp_path, aiperf_summary() | {"input_config": phases}) == loop
    poisson = aiperf_summary(request_rate=2.0, request_rate_mode="poisson")
    assert read_one(tmp_path, poisson) == open_loop
    assert read_one(tmp_path, inference_perf_stage()) == open_loop._replace(requests_per_s=1.96)
    paths = [tmp_path / f"{number}.json" for number in range(2)]
    for path, document in zip(paths, (aiperf_summary(**burst), inference_perf_stage()), strict=True):
        path.write_text(json.dumps(document))
    assert len(read_load_points(paths)) == 2
    paths[1].write_text(json.dumps({"a": 1}))
    assert read_load_points(paths) == []


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (aiperf_summary(), r"concurrency is None, request_rate None.*needs a concurrency, or a rate"),
        (aiperf_summary(concurrency=8, request_rate=2.0), r"concurrency is 8, request_rate 2\.0"),
        (
            aiperf_summary(request_rate=2.0, request_rate_mode="constant"),
            r"request_rate_mode constant; .*or give profile_export\.jsonl",
        ),
        (
            aiperf_summary(concurrency=8) | {"error_request_count": metric(5.0)},
            r"5\.0 requests failed, so their tokens",
        ),
        (
            aiperf_summary(concurrency=8) | {"time_to_first_token": None},
            r"time_to_first_token\.avg is None, must be a number above 0",
        ),
        (aiperf_summary(concurrency=8) | {"input_config": 7}, r"concurrency is None"),
        (aiperf_summary() | {"input_config": {"phases": 7}}, r"concurrency is None"),
        (inference_perf_stage(1.7), r"the client sent 1\.7 of 2\.0 requests a second, so it was the client"),
        (inference_perf_stage(failures={"count": 3}), r"3 requests failed"),
        (inference_perf_stage(load_summary={"count": 9}), r"without their rates\. Give its files stage_"),
        (inference_perf_stage(successes={"count": 300}), r"successes\.prompt_len\.mean is None"),
    ],
)
def test_a_bad_summary_of_another_tool_is_one_line(
    tmp_path: Path, document: dict[str, Any], message: str
) -> None:
    with pytest.raises(CalibrationError, match=message) as refused:
        read_one(tmp_path, document)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean_ttft_ms": None}, r"mean_ttft_ms is None, must be a number above 0\. Run the benchmark again"),
        ({"mean_tpot_ms": float("nan")}, r"mean_tpot_ms is nan, must be a number above 0"),
        ({"mean_tpot_ms": "13.5"}, r"mean_tpot_ms is '13\.5', must be a number above 0"),
        ({"completed": 0}, r"completed is 0, must be a number above 0"),
        ({"total_output_tokens": -3}, r"total_output_tokens is -3, must be a number above 0"),
        ({"failed": 3}, r"3 requests failed, so their tokens.*Measure until none fails"),
        (
            {"max_concurrency": 8},
            r"request_rate is 2\.0, max_concurrency 8, burstiness 1\.0; a summary needs",
        ),
        ({"burstiness": 0.5}, r"burstiness 0\.5; a summary needs a constant rate with burstiness 1"),
        ({"request_rate": "fast"}, r"request_rate is fast"),
        ({"request_rate": "inf", "max_concurrency": "8"}, r"max_concurrency 8"),
        ({"ramp_up_strategy": "linear"}, r"a summary needs a constant rate .*--save-detailed"),
    ],
)
def test_a_bad_summary_is_one_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(summary(LoadPoint(None, 2.0, 300, 900, 200, 0.25, 0.0625)) | change))
    with pytest.raises(CalibrationError, match=message) as refused:
        read_load_points([path])
    assert "\n" not in str(refused.value)


def silicon_points(llm: str, gpus: int) -> list[LoadPoint]:
    runs = wall_points.silicon_runs("vllm")
    runs = runs[(runs["system"] == "h100_sxm") & (runs["llm"] == llm) & (runs["tp"] == gpus)]
    return [
        LoadPoint(int(run.clients), 0.0, wall_points.WAVES * int(run.clients), int(run.isl), int(run.osl),
                  run.ttft_s, run.tpot_s)
        for run in runs[runs["precision"] == "bf16"].itertuples()
    ]  # fmt: skip


@pytest.mark.skipif(not wall_points.SILICON.exists(), reason="no measured runs next to the project")
@pytest.mark.parametrize(("gpus", "before", "after"), [(2, 0.16, 0.10), (4, 0.14, 0.09), (8, 0.11, 0.07)])
def test_real_closed_loops_are_nearer_with_the_factor_of_the_others(
    gpus: int, before: float, after: float
) -> None:
    """The figures of data/docs/explanation/accuracy.md: 30 loads of vLLM with Qwen3-32B on H100, TPOT."""
    points = silicon_points("Qwen3-32B", gpus)
    profile = find_profile(CATALOGUE, "qwen3-32b", GPU, gpus)
    engine = dataclasses.replace(ENGINE, tensor_parallel=gpus, max_prefill_tokens=wall_points.BUDGET)
    measured = MeasuredEngine(profile.llm, engine, CATALOGUE, OFFICE, "x")
    play = make_point_player(points, profile, measured)
    (raw,) = check_points(points, play(np.ones(2), np.arange(len(points))), LIMITS)
    (left_out,) = calibrate_to_points(points, profile, measured).checks
    assert len(points) == 30
    assert round(raw.signed_error_share, 2) == before
    assert round(left_out.signed_error_share, 2) == after
