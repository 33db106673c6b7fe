"""The coefficients of a GPU type's kernels, fitted to times of single kernels.

A GPU keeps what it read last. Kernels were timed again and again with the same weights, so that small ones
read from that cache what an llm's layers read from memory: only those are fitted that do not fit into it. The
launch of attention is at least the median of what hardly reads anything; a large cache is read by two kernels
instead of one, so it may be more. Least squares of relative errors, nothing negative.

In 8 bits kernels were timed together with the quantisation of what goes in, a kernel of its own, which
engines fuse with the one before. So a product of 8 bits has the launch of one of 16, and what remains per
column is dropped.
"""

from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.world.kernel_times import MatrixProductTimes

KNOTS = tuple(2**n for n in range(14))  # 1 to 8,192 tokens
FULL_BITS = 16
SMALL_BYTES = 4e6  # of a cache that is read in no time
FROM_MEMORY = 4  # times what the GPU keeps: of so much hardly a part is still there


class Timed(NamedTuple):
    """Times of matrix products, each of shape (kernels,)."""

    tokens: Floats
    columns: Floats  # of the weights: numbers that come out per token
    rows: Floats  # numbers that go in per token
    seconds: Floats


def fit_products(
    full: Timed, timed: Timed, bits: int, cached_bytes: float, knots: tuple[int, ...] = KNOTS
) -> MatrixProductTimes:
    """Products of so many bits; `full` are those of 16 bits, whose launches all have."""
    launch = [_coefficients(full, m, FULL_BITS, cached_bytes)[0] for m in knots]
    weight = [_coefficients(timed, m, bits, cached_bytes)[1] for m in knots]
    return MatrixProductTimes(knots, tuple(map(short, launch)), tuple(map(short, weight)))


def _coefficients(timed: Timed, tokens: int, bits: int, cached_bytes: float) -> Floats:
    """Seconds of launch, per weight and, below 16 bits, per number that goes in."""
    weights = timed.columns * timed.rows
    kept = (timed.tokens == tokens) & (weights * bits / 8 > cached_bytes)
    terms = [np.ones_like(weights), weights, timed.rows][: 2 if bits == FULL_BITS else 3]
    return relative_fit([term[kept] for term in terms], timed.seconds[kept])


class TimedDecode(NamedTuple):
    """Times of attention in decode, each of shape (kernels,)."""

    requests: Floats
    read_bytes: Floats  # of the cache
    seconds: Floats


def fit_decode(timed: TimedDecode, cached_bytes: float) -> tuple[float, float, float]:
    """Seconds of attention in decode: whatever is cached, per request, per byte."""
    least_s = float(np.median(timed.seconds[timed.read_bytes < SMALL_BYTES]))
    kept = timed.read_bytes > FROM_MEMORY * cached_bytes
    requests, read, seconds = (column[kept] for column in timed)
    more_s, per_request, per_byte = relative_fit([np.ones_like(read), requests, read], seconds, least_s)
    return short(least_s + more_s), short(per_request), short(per_byte)


def fit_prefill(values: Floats, pairs: Floats, seconds: Floats) -> tuple[float, float, float]:
    """Seconds of attention in prefill: at all, per token's value, per pair's value; each (kernels,)."""
    launch, per_value, per_pair = relative_fit([np.ones_like(values), values, pairs], seconds)
    return short(launch), short(per_value), short(per_pair)


def relative_fit(terms: list[Floats], seconds: Floats, fixed_s: float = 0.0) -> Floats:
    """Non-negative coefficients of the terms, least squares of relative errors; `fixed_s` comes on top."""
    from scipy.optimize import nnls

    matrix = np.stack(terms, axis=1) / seconds[:, None]
    scale = matrix.max(axis=0)
    found, _ = nnls(matrix / scale, 1 - fixed_s / seconds)
    return np.asarray(found / scale, dtype=np.float64)


def short(value: float) -> float:
    """Four digits: more would say that it is known so well."""
    return float(f"{value:.3e}")
