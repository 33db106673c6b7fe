"""Results of benchmark tools: the same requests come out of each, and a bad file is one line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fleetcast.assets.studies.bench_results import VLLM_LISTS
from fleetcast.assets.studies.engine_logs import read_engine_limits, read_log, read_logs
from fleetcast.assets.studies.log_rows import CalibrationError
from fleetcast.models.trials import engine_calibration, engine_fit
from fleetcast.models.trials.engine_calibration import calibrate_profile, requests_to_fit, split_log
from fleetcast.models.trials.engine_fit import LoggedRequests
from fleetcast.models.trials.log_replay import MeasuredEngine
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.pipelines.cli import cli_app

ENGINES = Path(__file__).parents[2] / "shared" / "data" / "engines"
CATALOGUE = load_catalogue()
OFFICE = load_config("sageserve", CATALOGUE)
TWO = LoggedRequests(
    np.array([1.7e9, 1.7e9 + 2.5]),
    np.array([700, 80], np.int32),
    np.array([5, 1], np.int32),
    np.array([0.25, 0.125]),
    np.array([0.75, 0.125]),
)


def gaps(tokens: int, seconds: float) -> list[float]:
    """The seconds between the chunks of an answer whose first two tokens after the first came together."""
    count = tokens - 2 if tokens > 2 else tokens - 1
    return [seconds / count for _ in range(count)]


def vllm_result(log: LoggedRequests) -> dict[str, Any]:
    """What `vllm bench serve --save-detailed` writes: the fields that are read, and some more."""
    arrival_s, inputs, outputs, ttft_s, e2e_s = (column.tolist() for column in log)
    return {
        "backend": "vllm", "request_rate": 10.0, "burstiness": 1.0, "max_concurrency": None, "duration": 60.0,
        "completed": len(inputs), "failed": 0, "total_input_tokens": sum(inputs), "input_lens": inputs,
        "output_lens": outputs, "ttfts": ttft_s, "start_times": arrival_s, "errors": [""] * len(inputs),
        "itls": [gaps(n, e - t) for n, t, e in zip(outputs, ttft_s, e2e_s, strict=True)],
        "generated_texts": ["word"] * len(inputs), "mean_ttft_ms": 1e3 * float(log.ttft_s.mean()),
    }  # fmt: skip


def aiperf_lines(log: LoggedRequests) -> list[dict[str, Any]]:
    """The lines of aiperf's profile_export.jsonl."""
    return [
        {
            "metadata": {
                "request_start_ns": round(1e9 * arrival_s),
                "benchmark_phase": "profiling", "was_cancelled": False,
            },
            "metrics": {
                "input_sequence_length": {"value": int(inputs), "unit": "tokens"},
                "output_sequence_length": {"value": int(outputs), "unit": "tokens"},
                "time_to_first_token": {"value": 1e3 * ttft_s, "unit": "ms"},
                "request_latency": {"value": 1e3 * e2e_s, "unit": "ms"},
            },
            "error": None,
        }
        for arrival_s, inputs, outputs, ttft_s, e2e_s in zip(*log, strict=True)
    ]  # fmt: skip


def guidellm_request(arrival_s: float, inputs: int, outputs: int, ttft_s: Any, e2e_s: Any) -> dict[str, Any]:
    """One request of guidellm's benchmarks.json; no TTFT where it was stopped before its first token."""
    times = {
        "request_start": arrival_s,
        "first_token_iteration": None if ttft_s is None else arrival_s + ttft_s,
        "last_token_iteration": None if e2e_s is None else arrival_s + e2e_s,
    }
    return {
        "prompt_tokens": int(inputs),
        "output_tokens": None if ttft_s is None else int(outputs),
        "info": {"timings": times, "error": None},
    }


def guidellm_report(*logs: LoggedRequests) -> dict[str, Any]:
    """The benchmarks.json of guidellm with a benchmark for each log; its last request was stopped."""
    benchmarks = []
    for log in logs:
        *ended, stopped = (guidellm_request(*row) for row in zip(*log, strict=True))
        benchmarks.append(
            {
                "requests": {"successful": ended, "incomplete": [stopped], "errored": [], "total": None},
                "scheduler_metrics": {
                    "requests_made": {"successful": len(ended), "incomplete": 9, "errored": 0}
                },
            }
        )
    return {"args": {}, "benchmarks": benchmarks}


def inference_perf_list(log: LoggedRequests) -> list[dict[str, Any]]:
    """The per_request_lifecycle_metrics.json of inference-perf; its client counts one token too few."""
    return [
        {
            "start_time": arrival_s,
            "end_time": arrival_s + e2e_s + 0.01,
            "request": "{}",
            "info": {
                "input_tokens": int(inputs),
                "response_metrics": {
                    "output_tokens": int(outputs) - 1,
                    "server_usage": {"completion_tokens": int(outputs)},
                    "output_token_times": [arrival_s + ttft_s, arrival_s + e2e_s],
                },
            },
            "error": None,
        }
        for arrival_s, inputs, outputs, ttft_s, e2e_s in zip(*log, strict=True)
    ]


def write_json(path: Path, *documents: Any, indent: int | None = None) -> Path:
    path.write_text("\n".join(json.dumps(document, indent=indent) for document in documents))
    return path


@pytest.mark.parametrize(
    ("name", "documents"),
    [
        ("openai-10.0qps.json", [vllm_result(TWO)]),
        ("profile_export.jsonl", aiperf_lines(TWO)),
        ("benchmarks.json", [guidellm_report(TWO)]),
        ("per_request_lifecycle_metrics.json", [inference_perf_list(TWO)]),
    ],
)
def test_each_tool_gives_the_requests_that_it_sent(tmp_path: Path, name: str, documents: list[Any]) -> None:
    log = read_log(write_json(tmp_path / name, *documents))
    for column, expected in zip(log.requests, TWO, strict=True):
        np.testing.assert_allclose(column, expected, atol=1e-6, rtol=1e-12)
    assert log.frontend_s is None
    assert log.run_starts == (0,)


def test_a_result_of_several_lines_is_read(tmp_path: Path) -> None:
    log = read_log(write_json(tmp_path / "result.json", vllm_result(TWO), indent=2))
    assert log.requests.input_tokens.tolist() == [700, 80]


def test_runs_follow_each_other_on_an_idle_engine(tmp_path: Path) -> None:
    """Two runs of one file, and two files: the clocks of the runs may be any."""
    early = TWO._replace(arrival_s=TWO.arrival_s - 1e6)
    appended = read_log(write_json(tmp_path / "appended.json", vllm_result(TWO), vllm_result(early)))
    rates = read_log(write_json(tmp_path / "benchmarks.json", guidellm_report(TWO, early)))
    files = [write_json(tmp_path / f"{n}.json", vllm_result(log)) for n, log in enumerate((TWO, early))]
    for log in (appended, rates, read_logs(files)):
        assert log.run_starts == (0, 2)
        # The last request of the first run ends at 2.625 s.
        np.testing.assert_allclose(log.requests.arrival_s - 1.7e9, [0, 2.5, 3.625, 6.125], atol=1e-5)
        assert log.requests.output_tokens.tolist() == [5, 1, 5, 1]


def test_the_fit_replays_the_beginning_of_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_calibration, "MAX_FIT_REQUESTS", 4)
    assert requests_to_fit(9, (0, 3)).tolist() == [True, True, False, True, True, *[False] * 4]
    assert requests_to_fit(5, (0,)).tolist() == [True] * 4 + [False]


def test_the_command_fits_some_requests_of_each_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The requests of two runs that are fitted are not those at the start of both runs together."""
    monkeypatch.setattr(engine_calibration, "MAX_FIT_REQUESTS", 60)
    for name in ("GENERATIONS", "SIMPLEX_TRIES"):  # a coarse fit will do
        monkeypatch.setattr(engine_fit, name, 2)
    count = 80
    tokens = (np.full(count, 900, np.int32), np.full(count, 5, np.int32))
    run = LoggedRequests(np.arange(0.0, count), *tokens, np.full(count, 0.2), np.full(count, 0.5))
    again = vllm_result(run) | {"request_rate": 2.0}
    files = [
        str(write_json(tmp_path / f"rate-{n}.json", result))
        for n, result in ((1, vllm_result(run)), (2, again))
    ]
    options = ["--llm", "llama3.1-8b", "--gpu", "h100-80gb", "--tensor-parallel", "1"]
    done = CliRunner().invoke(cli_app, ["calibrate", *files, *options])
    assert done.exit_code == 0, done.stderr
    scored, held_out = split_log(2 * count)
    fitted = scored[:30].sum() + scored[80:110].sum()
    assert fitted != scored[:60].sum()
    assert f"{fitted} requests fitted, {held_out.sum()} held out" in done.stderr
    assert 'source = "calibrated: 160 requests of rate-1.json and 1 more"' in done.stdout


def test_a_run_that_is_given_twice_is_one_line_of_the_command(tmp_path: Path) -> None:
    """By one path or as a copy; as requests or as a summary."""
    summary = {name: value for name, value in vllm_result(TWO).items() if name not in VLLM_LISTS}
    options = ["--llm", "llama3.1-8b", "--gpu", "h100-80gb", "--tensor-parallel", "1"]
    other = write_json(tmp_path / "other.json", summary | {"request_rate": 5.0})
    for result in (vllm_result(TWO), summary):
        path, copy = (write_json(tmp_path / name, result) for name in ("rate-1.json", "copy.json"))
        for twice in (path, copy):
            done = CliRunner().invoke(cli_app, ["calibrate", str(path), str(other), str(twice), *options])
            assert done.exit_code == 2
            assert f"{path} and {twice} have the same content, but each run counts once. Leave" in done.stderr
            assert len(done.stderr.strip().splitlines()) == 1


def test_a_request_that_guidellm_stopped_counts_with_its_tokens(tmp_path: Path) -> None:
    report = guidellm_report(TWO)
    report["benchmarks"][0]["requests"]["incomplete"].append(guidellm_request(1.7e9 + 9, 40, 3, None, None))
    log = read_log(write_json(tmp_path / "benchmarks.json", report))
    assert log.requests.input_tokens.tolist() == [700, 80]
    assert log.notes == ["1 requests had no token when guidellm stopped: left out."]


def changed(**columns: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda result: {**result, **columns}


def without(*names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda result: {name: value for name, value in result.items() if name not in names}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("input_lens", "output_lens", "start_times", "ttfts", "itls", "generated_texts", "errors"),
         r"is a summary of vllm bench serve, without its requests\. Give such summaries alone, or run it "
         r"again with --save-result --save-detailed\."),
        (without("start_times"), r"lacks the lists start_times of vllm bench serve\. Run it again"),
        (changed(itls=None), r"lacks the lists itls of vllm bench serve"),
        (changed(ttfts=[0.25]), r"lists of unequal length \(start_times 2, .*ttfts 1, .*run the bench"),
        (changed(errors=["", "Traceback\n  ConnectionResetError"], ttfts=[0.25, 0.0]),
         r"request 2 .*: it failed \(Traceback ConnectionResetError\), so its tokens.*1 of 2 rows"),
        (changed(ttfts=[0.25, float("nan")]), r"request 2 .*: it has no time of its first token"),
        (changed(ttfts=[0.25, "soon"]), r"request 2 .*ttft_s must be a number"),
        (changed(input_lens=[{}, 80]), r"request 1 .*input_tokens must be a number"),
        (changed(itls=[[0.1, "x"], []]), r"request 1 .*e2e_s must be a number"),
        (changed(itls=[[0.1, float("nan")], []]), r"request 1 .*e2e_s must be a number"),
        (changed(itls=[0.5, []]), r"request 1 .*e2e_s must be a number"),
        (changed(ttfts=[-0.1, 0.1]), r"request 1 .*ttft_s must be above 0"),
        (changed(output_lens=[0, 1]), r"request 1 .*output_tokens must be a whole number from 1"),
        (changed(**{name: [] for name in VLLM_LISTS}),
         r"result\.json has no requests"),
    ],
)  # fmt: skip
def test_a_bad_result_of_vllm_is_one_line(
    tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], message: str
) -> None:
    path = write_json(tmp_path / "result.json", change(vllm_result(TWO)))
    with pytest.raises(CalibrationError, match=message) as refused:
        read_log(path)
    assert "\n" not in str(refused.value)


def sampled_report() -> dict[str, Any]:
    report = guidellm_report(TWO)
    report["benchmarks"][0]["scheduler_metrics"]["requests_made"]["successful"] = 20
    return report


def failed(lines: list[dict[str, Any]], **error: str) -> list[dict[str, Any]]:
    return [lines[0], {**lines[1], "error": error}]


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([{"request_latency": {"unit": "ms", "avg": 9.0}, "request_count": {"unit": "requests", "avg": 100}}],
         r"is a summary of aiperf, without its requests\. Give such summaries alone, or profile_export"),
        (failed(aiperf_lines(TWO), message="cancelled"), r"request 2 .*it failed \(cancelled\)"),
        ([{**line, "metrics": without("time_to_first_token")(line["metrics"])} for line in aiperf_lines(TWO)],
         r"request 1 .*no time of its first token\. Let the benchmark stream its answers\. 2 of 2 rows"),
        ([*aiperf_lines(TWO), 7], r"request 3 .*it has no time of its first token"),
        ([{"successes": {"count": 480}, "failures": {"count": 3}, "load_summary": {}}],
         r"is a summary of inference-perf.*per_request_lifecycle_metrics\.json.*per_request: true"),
        ([failed(inference_perf_list(TWO), error_msg="504")], r"request 2 .*it failed \(504\)"),
        ([sampled_report()], r"has 1 of 20 successful requests.*Run it again without --sample-requests"),
        ([{"benchmarks": [{"requests": None}]}], r"lacks the requests of a guidellm benchmark"),
        ([{"benchmarks": [7]}], r"lacks the requests of a guidellm benchmark"),
        ([{"benchmarks": []}], r"result\.json has no requests"),
        ([{"hello": 1}], r"lacks the columns arrival_time"),
        ([[]], r"lacks the columns arrival_time"),
        (["text"], r"lacks the columns arrival_time"),
    ],
)  # fmt: skip
def test_a_bad_result_of_another_tool_is_one_line(tmp_path: Path, documents: list[Any], message: str) -> None:
    path = write_json(tmp_path / "result.json", *documents)
    with pytest.raises(CalibrationError, match=message) as refused:
        read_log(path)
    assert "\n" not in str(refused.value)


def test_a_truncated_result_is_one_line_of_the_command(tmp_path: Path) -> None:
    path = write_json(tmp_path / "result.json", vllm_result(TWO))
    path.write_text(path.read_text()[:-40])
    options = ["--llm", "llama3.1-8b", "--gpu", "h100-80gb", "--tensor-parallel", "1"]
    done = CliRunner().invoke(cli_app, ["calibrate", str(path), *options])
    assert done.exit_code == 2
    assert "result.json is neither JSON nor JSON lines" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.skipif(not ENGINES.exists(), reason="no engine logs next to the project")
@pytest.mark.parametrize("folder", ["rtx4090_llama-3.1-8b", "rtxpro6000_qwen3-32b_tp2"])
def test_a_benchmark_of_a_real_engine_has_the_requests_of_its_log(tmp_path: Path, folder: str) -> None:
    log = read_log(ENGINES / folder / "requests.jsonl").requests
    for name, documents in (
        ("vllm.json", [vllm_result(log)]),
        ("aiperf.jsonl", aiperf_lines(log)),
        ("inference-perf.json", [inference_perf_list(log)]),
        ("guidellm.json", [guidellm_report(log)]),
    ):
        read = read_log(write_json(tmp_path / name, *documents)).requests
        for column, expected in zip(read, log, strict=True):
            np.testing.assert_allclose(column, expected, atol=2e-6, rtol=0)


@pytest.mark.skipif(not ENGINES.exists(), reason="no engine logs next to the project")
def test_a_benchmark_of_a_real_engine_gives_the_profile_of_its_log(tmp_path: Path) -> None:
    folder = ENGINES / "rtxpro6000_qwen3-32b_tp2"
    log = read_log(folder / "requests.jsonl")
    result = read_log(write_json(tmp_path / "result.json", vllm_result(log.requests)))
    limits = read_engine_limits(folder / "meta.json")
    engine = Deployment("rtxpro6000-96gb", 2, max_batch=limits["max_batch"],
                        max_prefill_tokens=limits["max_prefill_tokens"], batching="chunked",
                        async_scheduling=False)  # fmt: skip
    measured = MeasuredEngine("qwen3-32b", engine, CATALOGUE, OFFICE, "x")
    of_log, of_result = (calibrate_profile(read.requests, measured).profile for read in (log, result))
    for name in ("prefill_tokens", "prefill_s", "decode_batch", "decode_s", "decode_per_kv_token_s"):
        np.testing.assert_allclose(getattr(of_result, name), getattr(of_log, name), rtol=1e-6)
