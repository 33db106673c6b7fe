"""Counters that a vLLM process exports for given requests, and query_range's answers over many of them."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)
SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 40.0, 160.0)
# As vLLM has them (vllm/v1/metrics/loggers.py): first token, whole request.
TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0),
    *(80.0, 160.0, 640.0, 2560.0),
)
E2E_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0),
    *(960.0, 1920.0, 7680.0),
)


class Served(NamedTuple):
    """Requests that one process served; instants in seconds since 1970."""

    arrived: Floats
    input_tokens: Floats
    output_tokens: Floats
    ttft_s: Floats
    e2e_s: Floats


def counters(
    served: Served,
    t: Floats,
    bucket_t: Floats,
    ttft_bounds: tuple[float, ...] = SECONDS,
    e2e_bounds: tuple[float, ...] = SECONDS,
) -> Iterator[tuple[str, str | None, Floats, Floats]]:
    """Name, le, instants and values of every counter."""
    first, last = served.arrived + served.ttft_s, served.arrived + served.e2e_s
    histograms = (
        ("vllm:time_to_first_token_seconds", first, served.ttft_s, ttft_bounds),
        ("vllm:e2e_request_latency_seconds", last, served.e2e_s, e2e_bounds),
        ("vllm:request_prompt_tokens", last, served.input_tokens, TOKENS),
        ("vllm:request_generation_tokens", last, served.output_tokens, TOKENS),
    )
    for name, at, value, bounds in histograms:
        yield f"{name}_count", None, t, _grown(at, np.ones(at.size), t)
        yield f"{name}_sum", None, t, _grown(at, value, t)
        for bound in (*bounds, np.inf):
            le = "+Inf" if bound == np.inf else str(float(bound))
            yield f"{name}_bucket", le, bucket_t, _grown(at, (value <= bound).astype(float), bucket_t)
    yield "vllm:prompt_tokens_total", None, t, _grown(first, served.input_tokens, t)
    yield "vllm:request_success_total", None, t, _grown(last, np.ones(last.size), t)


def _grown(at: Floats, by: Floats, t: Floats) -> Floats:
    order = np.argsort(at)
    return np.concatenate([[0.0], np.cumsum(by[order])])[np.searchsorted(at[order], t, side="right")]


def results(labels: Mapping[str, str], name: str, le: str | None, t: Floats, value: Floats) -> dict[str, Any]:
    """One series as query_range writes it."""
    metric = {"__name__": name, **labels, **({} if le is None else {"le": le})}
    return {
        "metric": metric,
        "values": [
            [at, f"{v:g}" if v % 1 else str(int(v))] for at, v in zip(t.tolist(), value.tolist(), strict=True)
        ],
    }


def answer(found: list[dict[str, Any]]) -> dict[str, Any]:
    """An answer of query_range."""
    return {"status": "success", "data": {"resultType": "matrix", "result": found}}
