"""The roofline's efficiencies, fitted to measurements of many llms and GPUs at a constant concurrency.

Such a benchmark keeps c requests of isl input and osl output tokens on an engine that computes prompts and
decode in one pass. A pass with a prompt takes what the prompt takes or what decode takes, whichever is
longer; so between its arrival and its last token a request sees

    e2e = prefill(isl) + (osl - 1)*(f[c] + g*c*(isl + osl/2)) + (c - 1)*max(0, prefill(isl) - f[c])

How the benchmark lets its requests in decides how that divides into TTFT and the rest, so only the sum is
fitted.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.roofline import (
    RooflineWork,
    deployment_work,
    roofline_decode_s,
    roofline_kv_token_s,
    roofline_prefill_s,
)
from fleetcast.models.world.catalogue_entries import Efficiency, Gpu, Llm

COEFFICIENTS = {  # where the search starts, and what is possible at all
    "flops_share": (0.5, 0.1, 0.95),
    "bandwidth_share": (0.8, 0.2, 0.95),
    "expert_bandwidth_share": (0.7, 0.1, 1.0),
    "link_share": (0.5, 0.1, 1.0),
    "layer_s": (3e-5, 1e-6, 1e-3),
    "allreduce_s": (1e-5, 1e-7, 1e-3),
    "request_s": (2e-5, 1e-7, 1e-3),
}
ATTENTION_FLOPS_SHARE = 0.55  # the median of prefill attention kernels, of 4,096 tokens or more, on six GPUs
OF_SEVERAL_GPUS = ("link_share", "allreduce_s")  # the other coefficients stand by what one GPU does
ROBUST_SHARE = 0.1  # errors above it count less than their square


class Closed(NamedTuple):
    """Measurements at a constant concurrency, each of shape (rows,)."""

    work: RooflineWork
    requests: Floats  # at any time
    input_tokens: Floats
    output_tokens: Floats
    e2e_s: Floats


def stack(works: Sequence[RooflineWork]) -> RooflineWork:
    """Works of single deployments as one of arrays."""
    return RooflineWork(*(np.array(column, dtype=np.float64) for column in zip(*works, strict=True)))


def works_of(deployments: Sequence[tuple[Llm, Gpu, int]]) -> RooflineWork:
    """The work of each row's (llm, gpu, tensor-parallel degree)."""
    return stack([deployment_work(*deployment) for deployment in deployments])


def take(closed: Closed, rows: npt.NDArray[np.bool_]) -> Closed:
    """Some of the rows."""
    work = RooflineWork(*(np.asarray(column)[rows] for column in closed.work))
    return Closed(work, *(column[rows] for column in closed[1:]))


def predicted_e2e_s(closed: Closed, efficiency: Efficiency) -> Floats:
    """End-to-end seconds of a request, shape (rows,)."""
    work, c = closed.work, closed.requests
    prefill = roofline_prefill_s(work, closed.input_tokens, efficiency)
    decode = roofline_decode_s(work, c, efficiency)
    cache_s = roofline_kv_token_s(work, efficiency) * c * (closed.input_tokens + closed.output_tokens / 2)
    others_s = (c - 1) * np.maximum(prefill - decode, 0.0)
    return prefill + (closed.output_tokens - 1) * (decode + cache_s) + others_s


def log_errors(closed: Closed, efficiency: Efficiency) -> Floats:
    """log(predicted / measured) end-to-end seconds, shape (rows,)."""
    return np.log(predicted_e2e_s(closed, efficiency) / closed.e2e_s)


def fit_efficiency(
    closed: Closed, groups: Sequence[str], source: str, held: Mapping[str, float] | None = None
) -> Efficiency:
    """Robust least squares of the logarithms; every group of rows weighs the same, whatever its size.

    Coefficients that are `held` stay as they are given; the others are searched.
    """
    from scipy.optimize import least_squares

    held = held or {}
    searched = [name for name in COEFFICIENTS if name not in held]
    start, low, high = np.log(np.array([COEFFICIENTS[name] for name in searched])).T
    _, group, sizes = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    weight = 1 / np.sqrt(sizes[group])
    weight /= weight.mean()

    def efficiency(coefficients: Floats, error_share: float = 0.0) -> Efficiency:
        return Efficiency(
            **held,
            **dict(zip(searched, coefficients.tolist(), strict=True)),
            attention_flops_share=ATTENTION_FLOPS_SHARE,
            median_error_share=error_share,
            source=source,
        )

    found = least_squares(
        lambda logs: weight * log_errors(closed, efficiency(np.exp(logs))),
        start,
        bounds=(low, high),
        loss="soft_l1",
        f_scale=ROBUST_SHARE,
    )
    coefficients = np.array([float(f"{value:.4g}") for value in np.exp(found.x)])
    error_share = float(np.median(np.abs(np.expm1(log_errors(closed, efficiency(coefficients))))))
    return efficiency(coefficients, round(error_share, 2))
