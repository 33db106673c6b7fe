"""Read the requests of a benchmark's result, for `fleetcast calibrate`.

Each format has the fields that its tool writes, found in the tool's own source:

- `vllm bench serve --save-result --save-detailed`: vllm/benchmarks/serve.py and
  vllm/benchmarks/lib/endpoint_request_func.py of vllm-project/vllm. One JSON object for each run, in seconds;
  `--append-result` puts several into one file, a line each.
- `aiperf profile`, profile_export.jsonl: src/aiperf/common/metric_records_wire.py,
  src/aiperf/common/models/record_export_models.py and docs/tutorials/working-with-profile-exports.md of
  ai-dynamo/aiperf. One line for each request, in ns since 1970 and in ms.
- `guidellm benchmark`, benchmarks.json: src/guidellm/benchmark/schemas/generative/report.py,
  src/guidellm/schemas/base/request_stats.py and info.py of vllm-project/guidellm. A list of benchmarks, one
  for each rate, in seconds since 1970.
- inference-perf, per_request_lifecycle_metrics.json: inference_perf/reportgen/base.py and
  inference_perf/apis/base.py of kubernetes-sigs/inference-perf. A list of requests, in seconds.

A summary of such a tool has means alone: bench_summaries.py reads it.

Times are those of the client, so TTFT has the way there and back, and the front end.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fleetcast.assets.studies.bench_summaries import MS_PER_S, dig, find_summary
from fleetcast.assets.studies.log_rows import PLACE, CalibrationError, numeric_column, refuse_bad_rows

NS_PER_S = 1e9
GUIDELLM_ENDINGS = {"successful": "", "incomplete": "incomplete", "errored": "errored"}  # and the error
VLLM_LISTS = ("start_times", "input_lens", "output_lens", "ttfts", "itls", "errors")


def read_bench_runs(documents: list[Any], path: Path, notes: list[str]) -> list[pd.DataFrame] | None:
    """Return a table for each run of a benchmark's result; None if it is the result of no known tool.

    A table has arrival_s, input_tokens, output_tokens, ttft_s and e2e_s, a row for each request. `notes` gets
    what was left out. CalibrationError for a summary, a list of another length, and a failed request.
    """
    first = documents[0] if documents and isinstance(documents[0], dict) else {}
    if summary := find_summary(first):
        raise CalibrationError(
            f"{path.name} is a summary of {summary.tool}, without its requests. {summary.remedy}."
        )
    if "ttfts" in first:
        runs = [vllm_requests(document, path) for document in documents]
    elif dig(first, "metadata", "request_start_ns") is not None and "metrics" in first:
        runs = [aiperf_requests(documents)]
    elif isinstance(first.get("benchmarks"), list):
        runs = [guidellm_requests(run, path, notes) for run in first["benchmarks"]]
    elif {"start_time", "end_time", "info"} <= first.keys():
        runs = [with_durations(inference_perf_row(record) for record in documents)]
    else:
        return None
    for number, run in enumerate(runs, start=1):
        of_run = f" of run {number}" if len(runs) > 1 else ""
        run[PLACE] = [f"request {request}{of_run}" for request in range(1, len(run) + 1)]
        refuse_failures(run, path)
    return runs


def refuse_failures(run: pd.DataFrame, path: Path) -> None:
    """Raise CalibrationError if a request of a run failed, or has no time of its first token."""
    failed = run["error"].fillna("").map(bool).to_numpy(bool)
    message = " ".join(str(run["error"].iloc[int(np.argmax(failed))]).split())[:80] if failed.any() else ""
    refuse_bad_rows(
        failed,
        f"it failed ({message}), so its tokens, for which others waited, are not known. Measure until none "
        "fails",
        path,
        run,
    )
    refuse_bad_rows(
        run["ttft_s"].isna().to_numpy(),
        "it has no time of its first token. Let the benchmark stream its answers",
        path,
        run,
    )


def vllm_requests(document: Any, path: Path) -> pd.DataFrame:
    """Return the requests of one run of `vllm bench serve`."""
    lists = {name: dig(document, name) for name in VLLM_LISTS}
    missing = [name for name, values in lists.items() if not isinstance(values, list)]
    if missing:
        raise CalibrationError(
            f"{path.name} lacks the lists {', '.join(missing)} of vllm bench serve. Run it again with "
            "--save-result --save-detailed, in a version of vLLM that writes them."
        )
    sizes = {name: len(values) for name, values in lists.items()}
    if len(set(sizes.values())) > 1:
        counts = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise CalibrationError(
            f"{path.name}: lists of unequal length ({counts}); each must have one value for each request. "
            "The file is damaged: run the benchmark again."
        )
    run = pd.DataFrame(
        {
            "arrival_s": lists["start_times"],
            "input_tokens": lists["input_lens"],
            "output_tokens": lists["output_lens"],
            "ttft_s": lists["ttfts"],
            "error": lists["errors"],
        }
    )
    # A chunk may have several tokens; the gaps between chunks add up to the last one all the same.
    run["e2e_s"] = numeric_column(run, "ttft_s") + [sum_gaps(gaps) for gaps in lists["itls"]]
    return run


def sum_gaps(gaps: Any) -> float:
    """Return the sum of the seconds between a request's chunks; NaN where one is not a number."""
    if not isinstance(gaps, list) or not all(isinstance(gap, int | float) for gap in gaps):
        return float("nan")
    return float(sum(gaps))


def aiperf_requests(documents: list[Any]) -> pd.DataFrame:
    """Return the requests of one run of aiperf, from its records."""
    run = pd.DataFrame(
        {
            "arrival_s": dig(record, "metadata", "request_start_ns"),
            "input_tokens": dig(record, "metrics", "input_sequence_length", "value"),
            "output_tokens": dig(record, "metrics", "output_sequence_length", "value"),
            "ttft_s": dig(record, "metrics", "time_to_first_token", "value"),
            "e2e_s": dig(record, "metrics", "request_latency", "value"),
            "error": dig(record, "error", "message") or dig(record, "error"),
        }
        for record in documents
    )
    run["arrival_s"] = numeric_column(run, "arrival_s") / NS_PER_S
    for name in ("ttft_s", "e2e_s"):
        run[name] = numeric_column(run, name) / MS_PER_S
    return run


def guidellm_requests(benchmark: Any, path: Path, notes: list[str]) -> pd.DataFrame:
    """Return the requests of one benchmark of guidellm.

    One that guidellm stopped at its end counts with the tokens that it got: the engine made no more.
    """
    for status in GUIDELLM_ENDINGS:
        saved = dig(benchmark, "requests", status)
        made = dig(benchmark, "scheduler_metrics", "requests_made", status)
        if not isinstance(saved, list):
            raise CalibrationError(f"{path.name} lacks the requests of a guidellm benchmark. Run it again.")
        # Those that were stopped in guidellm's own queue are made, but not saved.
        if status != "incomplete" and isinstance(made, int) and made != len(saved):
            raise CalibrationError(
                f"{path.name} has {len(saved)} of {made} {status} requests of a guidellm benchmark; all are "
                "needed. Run it again without --sample-requests."
            )
    run = with_durations(guidellm_rows(benchmark))
    is_left_out = (run["error"] == "incomplete") & run["ttft_s"].isna()
    if is_left_out.any():
        notes.append(f"{is_left_out.sum()} requests had no token when guidellm stopped: left out.")
    run["error"] = run["error"].where(run["error"] != "incomplete", "")
    return run[~is_left_out].reset_index(drop=True)


def guidellm_rows(benchmark: Any) -> Iterator[dict[str, Any]]:
    """Yield the requests of one benchmark of guidellm, with the times of its client's clock."""
    for status in GUIDELLM_ENDINGS:
        for request in dig(benchmark, "requests", status):
            yield {
                "arrival_s": dig(request, "info", "timings", "request_start"),
                "input_tokens": dig(request, "prompt_tokens"),
                "output_tokens": dig(request, "output_tokens"),
                "first_s": dig(request, "info", "timings", "first_token_iteration"),
                "last_s": dig(request, "info", "timings", "last_token_iteration"),
                "error": (status == "errored" and dig(request, "info", "error")) or GUIDELLM_ENDINGS[status],
            }


def inference_perf_row(record: Any) -> dict[str, Any]:
    """Return one request of inference-perf, with the times of its client's clock.

    Older versions have the response's fields in info.
    """
    response = dig(record, "info", "response_metrics") or dig(record, "info")
    served = dig(response, "server_usage", "completion_tokens")
    times = dig(response, "output_token_times")
    has_times = isinstance(times, list) and len(times) > 0
    return {
        "arrival_s": dig(record, "start_time"),
        "input_tokens": dig(record, "info", "input_tokens"),
        # The client counts anew, from the text; the engine's own count is exact.
        "output_tokens": dig(response, "output_tokens") if served is None else served,
        "first_s": times[0] if has_times else None,
        "last_s": times[-1] if has_times else None,
        "error": dig(record, "error", "error_msg") or dig(record, "error"),
    }


def with_durations(rows: Iterator[dict[str, Any]]) -> pd.DataFrame:
    """Return rows as a table, with TTFT and E2E from the times of arrival, first and last token."""
    names = ("arrival_s", "input_tokens", "output_tokens", "first_s", "last_s", "error")
    run = pd.DataFrame(list(rows), columns=names)
    for name, source in (("ttft_s", "first_s"), ("e2e_s", "last_s")):
        run[name] = numeric_column(run, source) - numeric_column(run, "arrival_s")
    return run
