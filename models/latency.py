"""Seconds from tokens and batch: what one prefill and one decode step take on an instance.

A profile holds knots, linear between them and continued with the last slope beyond:

    prefill_s(tokens)           tokens = prompt tokens of all requests in the prefill batch
    step_s(B, kv) = f[B] + g*kv  B = requests in the decode batch, kv = tokens in the KV cache

Two sources make profiles: `fit` from measured points, `roofline` from FLOPs and bandwidth for what
nobody measured. The replay reads them as `LatencyTables`.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from models.catalogue import Gpu, LatencyProfile, Llm

Floats = npt.NDArray[np.float64]

PREFILL_KNOTS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
DECODE_KNOTS = (1, 2, 4, 8, 16, 32, 64)
PREFILL_FLOPS_SHARE = 0.45  # of peak, H100 prefill: inference-sim hardware_config.json (Apache-2.0)
DECODE_BANDWIDTH_SHARE = 0.8  # of peak memory bandwidth that decode kernels reach
STEP_OVERHEAD_S = 0.003  # scheduling and launch of one engine step


class LatencyTables(NamedTuple):
    """Latency of L deployments, laid out for the replay kernel."""

    prefill_tokens: Floats  # (L, K) knots, ascending; the first is 0
    prefill_s: Floats  # (L, K) seconds at the knots
    prefill_slope: Floats  # (L, K) seconds per token from each knot on
    decode_s: Floats  # (L, max_batch + 1) f[B]; column 0 is unused
    decode_kv_s: Floats  # (L, max_batch + 1) g[B], seconds per cached token


def tables(profiles: list[LatencyProfile], max_batch: int) -> LatencyTables:
    """Lay `profiles` out as arrays, one row each, for batches of up to `max_batch` requests."""
    knots = 1 + max(len(p.prefill_tokens) for p in profiles)
    rows = len(profiles)
    x, y, slope = (np.zeros((rows, knots)) for _ in range(3))
    decode_s, decode_kv_s = np.zeros((rows, max_batch + 1)), np.zeros((rows, max_batch + 1))
    batch = np.arange(max_batch + 1)
    for row, profile in enumerate(profiles):
        check(profile)
        n = len(profile.prefill_tokens)
        x[row, 1 : n + 1], y[row, 1 : n + 1] = profile.prefill_tokens, profile.prefill_s
        y[row, 0] = profile.prefill_s[0]  # a tiny prompt costs as much as the smallest one measured
        slope[row, :n] = np.diff(y[row, : n + 1]) / np.diff(x[row, : n + 1])
        slope[row, n] = slope[row, n - 1]
        x[row, n + 1 :] = np.inf  # a shorter profile's unused knots are never reached
        decode_s[row] = interpolate(batch, profile.decode_batch, profile.decode_s)
        decode_kv_s[row] = profile.decode_per_kv_token_s
    return LatencyTables(x, y, slope, decode_s, decode_kv_s)


def check(profile: LatencyProfile) -> None:
    """Refuse a profile whose knots are torn: unequal lengths, unsorted, negative or NaN seconds."""
    name = f"Latency profile of {profile.llm} on {profile.tensor_parallel} x {profile.gpu}"
    for what, x, y in (
        ("prefill", profile.prefill_tokens, profile.prefill_s),
        ("decode", profile.decode_batch, profile.decode_s),
    ):
        if len(x) != len(y) or len(x) < 2:
            raise ValueError(
                f"{name}: {len(x)} {what} knots but {len(y)} seconds; give at least two of each."
            )
        if list(x) != sorted(set(x)) or x[0] < 1:
            raise ValueError(f"{name}: {what} knots {list(x)} must rise from 1 or more. Sort them.")
        if not all(np.isfinite(y)) or min(y) <= 0:
            raise ValueError(
                f"{name}: {what} seconds {list(y)} must be positive numbers. Measure them again."
            )
    if not profile.decode_per_kv_token_s >= 0:
        raise ValueError(f"{name}: decode_per_kv_token_s is {profile.decode_per_kv_token_s}, must be >= 0.")


def interpolate(at: npt.ArrayLike, x: npt.ArrayLike, y: npt.ArrayLike) -> Floats:
    """Linear between the knots (x, y), flat before the first, continued with the last slope beyond."""
    at, x, y = (np.asarray(values, dtype=np.float64) for values in (at, x, y))
    last_slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
    return np.interp(at, x, y) + np.maximum(at - x[-1], 0.0) * last_slope


def prefill_s(profile: LatencyProfile, tokens: npt.ArrayLike) -> Floats:
    """Seconds that a prefill of `tokens` prompt tokens takes."""
    return interpolate(tokens, profile.prefill_tokens, profile.prefill_s)


def step_s(profile: LatencyProfile, batch: npt.ArrayLike, kv_tokens: npt.ArrayLike) -> Floats:
    """Seconds of one decode step of `batch` requests that hold `kv_tokens` of cache together."""
    without_kv = interpolate(batch, profile.decode_batch, profile.decode_s)
    return without_kv + profile.decode_per_kv_token_s * np.asarray(kv_tokens, dtype=np.float64)


class Measured(NamedTuple):
    """Measured points of one deployment, each shape (points,)."""

    prompt_tokens: Floats  # per request
    output_tokens: Floats  # per request
    batch: Floats
    prompt_s: Floats  # prefill of the whole batch
    token_s: Floats  # mean decode step


class Fit(NamedTuple):
    """Knots fitted to measured points; the fields of a LatencyProfile that a measurement decides."""

    prefill_tokens: tuple[int, ...]
    prefill_s: tuple[float, ...]
    decode_batch: tuple[int, ...]
    decode_s: tuple[float, ...]
    decode_per_kv_token_s: float


def fit(measured: Measured) -> Fit:
    """Knots at the measured sizes: the median where a size was measured more than once.

    g is the least-squares slope of the decode step over the cache at batch 1, never negative; f[B] is
    what the decode step at batch B leaves after its cache is paid, never falling with B.
    """
    tokens = measured.prompt_tokens * measured.batch
    prefill_knots = np.unique(tokens)
    prefill = np.array([np.median(measured.prompt_s[tokens == t]) for t in prefill_knots])
    cache = measured.batch * (measured.prompt_tokens + measured.output_tokens / 2)  # mean over the steps
    alone = measured.batch == 1
    g = max(0.0, float(np.polyfit(cache[alone], measured.token_s[alone], 1)[0]))
    decode_knots = np.unique(measured.batch)
    f = np.array([np.median((measured.token_s - g * cache)[measured.batch == b]) for b in decode_knots])
    return Fit(
        tuple(int(t) for t in prefill_knots),
        tuple(float(s) for s in np.maximum.accumulate(prefill).round(6)),
        tuple(int(b) for b in decode_knots),
        tuple(float(s) for s in np.maximum.accumulate(f).round(6)),
        float(f"{g:.3e}"),
    )


def relative_errors(fitted: Fit, measured: Measured) -> Floats:
    """|predicted - measured| / measured end-to-end seconds of each point, shape (points,)."""
    cache = measured.batch * (measured.prompt_tokens + measured.output_tokens / 2)
    steps = measured.output_tokens - 1

    def e2e(prompt: Floats, token: Floats) -> Floats:
        return prompt + steps * token

    predicted = e2e(
        interpolate(measured.prompt_tokens * measured.batch, fitted.prefill_tokens, fitted.prefill_s),
        interpolate(measured.batch, fitted.decode_batch, fitted.decode_s)
        + fitted.decode_per_kv_token_s * cache,
    )
    actual = e2e(measured.prompt_s, measured.token_s)
    return np.abs(predicted - actual) / actual


def roofline(llm: Llm, gpu: Gpu, tensor_parallel: int) -> Fit:
    """An estimate where nothing was measured: compute-bound prefill, bandwidth-bound decode."""
    active = (llm.active_parameters_b or llm.parameters_b) * 1e9
    flops_per_s = tensor_parallel * gpu.peak_tflops * 1e12 * PREFILL_FLOPS_SHARE
    bytes_per_s = tensor_parallel * gpu.bandwidth_tb_per_s * 1e12 * DECODE_BANDWIDTH_SHARE
    weights_s = 2 * active / bytes_per_s
    prefill = [STEP_OVERHEAD_S + max(weights_s, 2 * active * t / flops_per_s) for t in PREFILL_KNOTS]
    decode = [STEP_OVERHEAD_S + max(weights_s, 2 * active * b / flops_per_s) for b in DECODE_KNOTS]
    return Fit(
        PREFILL_KNOTS,
        tuple(round(s, 6) for s in prefill),
        DECODE_KNOTS,
        tuple(round(s, 6) for s in decode),
        float(f"{llm.kv_bytes_per_token / bytes_per_s:.3e}"),
    )
