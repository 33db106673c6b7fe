"""Read the loads of `vllm bench serve --save-result`, which have means and no requests, for calibration.

The fields are those of vllm/benchmarks/serve.py of vllm-project/vllm. Where requests are sent at a rate, each
of them comes at random (burstiness 1); with a concurrency and no rate, a client sends its next request when
its last one has ended. With neither, all are sent at once. Both together, or another burstiness, cannot be
replayed from means.
"""

from pathlib import Path
from typing import Any

import numpy as np

from fleetcast.assets.studies.log_rows import CalibrationError, read_json_documents
from fleetcast.models.trials.point_fit import LoadPoint

MS_PER_S = 1e3
LEAST_OUTPUT = 2  # tokens of a request: one alone has no TPOT


def is_vllm_summary(document: Any) -> bool:
    """Return whether a document is a result of `vllm bench serve` without --save-detailed."""
    return (
        isinstance(document, dict)
        and {"completed", "total_input_tokens"} <= document.keys()
        and "ttfts" not in document
    )


def read_load_points(paths: list[Path]) -> list[LoadPoint]:
    """Return the loads of files that are all summaries of `vllm bench serve`; [] if one is not.

    CalibrationError for a summary that cannot be replayed, or whose figures are no numbers.
    """
    if not all(path.suffix in (".json", ".jsonl") for path in paths):
        return []
    documents = [(path, document) for path in paths for document in read_json_documents(path)]
    if not all(is_vllm_summary(document) for _, document in documents):
        return []
    return [vllm_load_point(document, path) for path, document in documents]


def vllm_load_point(document: dict[str, Any], path: Path) -> LoadPoint:
    """Return the load of a summary of `vllm bench serve`: its lengths and times are means."""
    check_replayable(document, path)
    count, inputs, outputs, ttft_ms, tpot_ms = (
        positive_figure(document, name, path)
        for name in ("completed", "total_input_tokens", "total_output_tokens", "mean_ttft_ms", "mean_tpot_ms")
    )
    rate, clients = document.get("request_rate"), document.get("max_concurrency")
    is_rate = is_positive(rate)
    return LoadPoint(
        None if is_rate else int(min(clients or count, count)),
        float(rate) if is_rate else 0.0,  # type: ignore[arg-type]
        int(count),
        max(1, round(inputs / count)),
        max(LEAST_OUTPUT, round(outputs / count)),
        ttft_ms / MS_PER_S,
        tpot_ms / MS_PER_S,
    )


def is_positive(value: Any) -> bool:
    """Return whether a value of JSON is a finite number above 0."""
    return isinstance(value, int | float) and 0 < value < np.inf


def positive_figure(document: dict[str, Any], name: str, path: Path) -> float:
    """Return a figure of a summary; CalibrationError if it is not a number above 0."""
    value = document.get(name)
    if not is_positive(value):
        raise CalibrationError(
            f"{path.name}: {name} is {value!r}, must be a number above 0. Run the benchmark again."
        )
    return float(value)  # type: ignore[arg-type]


def check_replayable(document: dict[str, Any], path: Path) -> None:
    """Raise CalibrationError for a load that means do not describe: failures, or another way of sending."""
    if failed := document.get("failed"):
        raise CalibrationError(
            f"{path.name}: {failed} requests failed, so their tokens, for which others waited, are not "
            "known. Measure until none fails."
        )
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
