"""Read the loads of a benchmark's summary, which has means and no requests, for calibration.

- `vllm bench serve --save-result`: vllm/benchmarks/serve.py of vllm-project/vllm. Requests sent at a rate
  come at random (burstiness 1); with a concurrency and no rate, a client sends its next request when its last
  one has ended; with neither, all are sent at once.
- `aiperf profile`, profile_export_aiperf.json: docs/tutorials/working-with-profile-exports.md and
  docs/reference of ai-dynamo/aiperf. Its concurrency or its rate is in `input_config`.
- inference-perf, stage_N_lifecycle_metrics.json: inference_perf/reportgen/base.py and
  inference_perf/loadgen/load_timer.py of kubernetes-sigs/inference-perf. Requests come at random at a rate.

What cannot be replayed from means: a rate and a concurrency together, requests at equal distances, and a
client that could not send as fast as it was to.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fleetcast.assets.studies.log_rows import CalibrationError, read_json_documents
from fleetcast.models.trials.point_fit import LoadPoint

MS_PER_S = 1e3
LEAST_OUTPUT = 2  # tokens of a request: one alone has no TPOT
LEAST_SENT_SHARE = 0.9  # of the rate: below, the client was too slow


class Summary(NamedTuple):
    """The summaries of a tool: how they are known and read, and how requests are saved with it."""

    tool: str
    is_one: Callable[[dict[str, Any]], bool]
    read: Callable[[Any, Path], LoadPoint]
    remedy: str


def dig(document: Any, *keys: str) -> Any:
    """Return the value under the keys, one in the other; None where one is absent."""
    for key in keys:
        if not isinstance(document, dict):
            return None
        document = document.get(key)
    return document


def find_summary(document: Any) -> Summary | None:
    """Return the kind of summary that a document is; None for any other document."""
    if not isinstance(document, dict):
        return None
    return next((kind for kind in SUMMARIES if kind.is_one(document)), None)


def read_load_points(paths: list[Path]) -> list[LoadPoint]:
    """Return the loads of files that are all summaries of benchmarks; [] if one is not.

    CalibrationError for a summary that cannot be replayed, or whose figures are no numbers.
    """
    if not all(path.suffix in (".json", ".jsonl") for path in paths):
        return []
    documents = [(path, document) for path in paths for document in read_json_documents(path)]
    kinds = [find_summary(document) for _, document in documents]
    return [
        kind.read(document, path)
        for kind, (path, document) in zip(kinds, documents, strict=True)
        if kind is not None and None not in kinds
    ]


def vllm_load_point(document: dict[str, Any], path: Path) -> LoadPoint:
    """Return the load of a summary of `vllm bench serve`: its lengths and times are means."""
    rate, clients, bursts = (
        document.get(name, default)
        for name, default in (("request_rate", "inf"), ("max_concurrency", None), ("burstiness", 1.0))
    )
    is_rate = is_positive(rate) and clients is None
    is_loop = rate == "inf" and (clients is None or is_positive(clients))
    if bursts != 1.0 or "ramp_up_strategy" in document or not (is_rate or is_loop):
        raise CalibrationError(
            f"{path.name}: request_rate is {rate}, max_concurrency {clients}, burstiness {bursts}; a summary "
            "needs a constant rate with burstiness 1, or a concurrency without a rate. Run it so, or with "
            "--save-detailed."
        )
    refuse_failed(document.get("failed"), path)
    count, inputs, outputs = (
        positive_figure(document, path, name)
        for name in ("completed", "total_input_tokens", "total_output_tokens")
    )
    times_s = [positive_figure(document, path, f"mean_{name}_ms") / MS_PER_S for name in ("ttft", "tpot")]
    clients = None if is_rate else min(clients or count, count)
    per_s = float(rate) if is_rate else 0.0  # type: ignore[arg-type]
    return load_point(clients, per_s, count, inputs / count, outputs / count, times_s)


def aiperf_load_point(document: dict[str, Any], path: Path) -> LoadPoint:
    """Return the load of a summary of aiperf: its lengths and times are means."""
    phases = dig(document, "input_config", "phases")
    phases = phases if isinstance(phases, list) else []
    measured = (phase for phase in phases if dig(phase, "name") == "profiling")
    loadgen = next(measured, dig(document, "input_config", "loadgen"))
    clients, rate, mode = (
        dig(loadgen, name) for name in ("concurrency", "request_rate", "request_rate_mode")
    )
    is_rate = is_positive(rate) and clients is None and mode in (None, "poisson")
    if not is_rate and not (is_positive(clients) and rate is None):
        raise CalibrationError(
            f"{path.name}: concurrency is {clients}, request_rate {rate}, request_rate_mode {mode}; a "
            "summary of aiperf needs a concurrency, or a rate of mode poisson. Run it so, or give "
            "profile_export.jsonl."
        )
    refuse_failed(dig(document, "error_request_count", "avg"), path)
    count, inputs, outputs, ttft_ms, tpot_ms = (
        positive_figure(document, path, name, "avg")
        for name in (
            *("request_count", "input_sequence_length", "output_sequence_length"),
            *("time_to_first_token", "inter_token_latency"),
        )
    )
    times_s = ttft_ms / MS_PER_S, tpot_ms / MS_PER_S
    return load_point(clients, rate if is_rate else 0.0, count, inputs, outputs, times_s)


def inference_perf_load_point(document: dict[str, Any], path: Path) -> LoadPoint:
    """Return the load of a stage of inference-perf: its lengths and times are means."""
    if dig(document, "load_summary", "requested_rate") is None:
        raise CalibrationError(
            f"{path.name} is the summary of all stages of inference-perf, without their rates. Give its "
            "files stage_*_lifecycle_metrics.json."
        )
    planned, sent = (
        positive_figure(document, path, "load_summary", name) for name in ("requested_rate", "achieved_rate")
    )
    if sent < LEAST_SENT_SHARE * planned:
        raise CalibrationError(
            f"{path.name}: the client sent {sent:.1f} of {planned:.1f} requests a second, so it was the "
            "client that was measured. Give it more workers, or a lower rate."
        )
    refuse_failed(dig(document, "failures", "count"), path)
    count, inputs, outputs = (
        positive_figure(document, path, "successes", *names)
        for names in (("count",), ("prompt_len", "mean"), ("output_len", "mean"))
    )
    times_s = [
        positive_figure(document, path, "successes", "latency", name, "mean")
        for name in ("time_to_first_token", "time_per_output_token")
    ]
    return load_point(None, sent, count, inputs, outputs, times_s)


def load_point(
    clients: float | None,
    requests_per_s: float,
    requests: float,
    input_tokens: float,
    output_tokens: float,
    times_s: Sequence[float],
) -> LoadPoint:
    """Return a load with whole numbers of clients, requests and tokens; `times_s`: mean TTFT and TPOT."""
    return LoadPoint(
        None if clients is None else int(clients),
        float(requests_per_s),
        int(requests),
        max(1, round(input_tokens)),
        max(LEAST_OUTPUT, round(output_tokens)),
        *times_s,
    )


def is_positive(value: Any) -> bool:
    """Return whether a value of JSON is a finite number above 0."""
    return isinstance(value, int | float) and 0 < value < np.inf


def positive_figure(document: dict[str, Any], path: Path, *names: str) -> float:
    """Return a figure of a summary; CalibrationError if it is not a number above 0."""
    value = dig(document, *names)
    if not is_positive(value):
        raise CalibrationError(
            f"{path.name}: {'.'.join(names)} is {value!r}, must be a number above 0. Run the benchmark again."
        )
    return float(value)


def refuse_failed(failed: Any, path: Path) -> None:
    """Raise CalibrationError if requests of a load failed."""
    if failed:
        raise CalibrationError(
            f"{path.name}: {failed} requests failed, so their tokens, for which others waited, are not "
            "known. Measure until none fails."
        )


SUMMARIES = (
    Summary(
        "vllm bench serve",
        lambda found: {"completed", "total_input_tokens"} <= found.keys() and "ttfts" not in found,
        vllm_load_point,
        "Give such summaries alone, or run it again with --save-result --save-detailed",
    ),
    Summary(
        "aiperf",
        lambda found: isinstance(dig(found, "request_latency", "unit"), str),
        aiperf_load_point,
        "Give such summaries alone, or profile_export.jsonl of the same folder; aiperf writes it with "
        "--export-level records",
    ),
    Summary(
        "inference-perf",
        lambda found: {"successes", "failures"} <= found.keys(),
        inference_perf_load_point,
        "Give such summaries alone, or per_request_lifecycle_metrics.json; "
        "report.request_lifecycle.per_request: true of its config writes it",
    ),
)
