"""Latency profiles as arrays for the replay, and the rules for a profile.

A profile has knots. It is linear between them, and continues with the last slope beyond:

    prefill_s(tokens)           tokens = prompt tokens of all requests in the prefill batch
    step_s(B, kv) = f[B] + g*kv  B = requests in the decode batch, kv = tokens in the KV cache
    h*c*x                       added for c prompt tokens after a context of x cached tokens
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Floats
from fleetcast.models.world.catalogue_entries import Gpu, LatencyProfile, Llm

BATCH_REACH = 2  # largest decode batch of a replay, as a multiple of the largest batch of the profile
SLOWEST_STEP_S = 1.0  # of one request without cache; a larger number is not in seconds
SLOWEST_KV_TOKEN_S = 1e-3  # likewise for one cached token


class LatencyTables(NamedTuple):
    """Latency profiles of L deployments as arrays for the replay kernel."""

    prefill_tokens: Floats  # (L, K) knots, ascending; the first is 0
    prefill_s: Floats  # (L, K) seconds at the knots
    prefill_slope: Floats  # (L, K) seconds per token from each knot on
    decode_s: Floats  # (L, max_batch + 1) f[B] by requests; column 0 is unused
    decode_kv_s: Floats  # (L, max_batch + 1) g[B], seconds per cached token
    prefill_context_s: Floats  # (L,) h, seconds per prompt token and token of the context before its chunk
    expert_s: Floats  # (L, K) of prefill_s, in experts that ranks share; its tokens: the mean of ranks
    expert_slope: Floats  # (L, K) of prefill_slope, likewise


def build_latency_tables(profiles: Sequence[LatencyProfile], max_batch: Sequence[int]) -> LatencyTables:
    """Return the profiles as arrays, one row each, for batches up to the `max_batch` of each profile.

    Raises ValueError where a profile breaks a rule, or its largest batch is too small for its `max_batch`.
    """
    knots = 1 + max(len(p.prefill_tokens) for p in profiles)
    rows = len(profiles)
    x, y, slope, expert_s, expert_slope = (np.zeros((rows, knots)) for _ in range(5))
    batch = np.arange(max(max_batch) + 1)
    decode_s, decode_kv_s = np.zeros((rows, batch.size)), np.zeros((rows, batch.size))
    for row, profile in enumerate(profiles):
        check_latency_profile(profile)
        check_batch_reach(profile, max_batch[row])
        n = len(profile.prefill_tokens)
        x[row, 1 : n + 1] = profile.prefill_tokens
        for values, seconds, per_token in (
            (profile.prefill_s, y, slope),
            (profile.expert_s or (0.0,) * n, expert_s, expert_slope),
        ):
            # A tiny prompt costs as much as the smallest one measured.
            seconds[row, : n + 1] = values[0], *values
            per_token[row, :n] = np.diff(seconds[row, : n + 1]) / np.diff(x[row, : n + 1])
            per_token[row, n] = per_token[row, n - 1]
        x[row, n + 1 :] = np.inf  # a shorter profile's unused knots are never reached
        decode_s[row] = interpolate_knots(batch, profile.decode_batch, profile.decode_s)
        decode_kv_s[row] = profile.decode_per_kv_token_s
    context_s = np.array([profile.prefill_per_context_token_s or 0.0 for profile in profiles])
    return LatencyTables(x, y, slope, decode_s, decode_kv_s, context_s, expert_s, expert_slope)


def check_latency_profile(profile: LatencyProfile) -> None:
    """Raise ValueError for a profile with incomplete knots, or with numbers that cannot be seconds."""
    name = profile_name(profile)
    for what, x, y in (
        ("prefill", profile.prefill_tokens, profile.prefill_s),
        ("decode", profile.decode_batch, profile.decode_s),
    ):
        if len(x) != len(y) or len(x) < 2:
            raise ValueError(
                f"{name}: {len(x)} {what} knots but {len(y)} seconds; give as many of each, at least two."
            )
        if list(x) != sorted(set(x)) or x[0] < 1:
            raise ValueError(f"{name}: {what} knots {list(x)} must rise from 1 or more. Sort them.")
        if not all(np.isfinite(y)) or min(y) <= 0:
            raise ValueError(
                f"{name}: {what} seconds {list(y)} must be positive numbers. Measure them again."
            )
    if profile.decode_batch[0] != 1:
        raise ValueError(
            f"{name}: decode knots {list(profile.decode_batch)} lack a batch of 1, with which they must "
            "begin. Measure a request alone."
        )
    g = profile.decode_per_kv_token_s
    if not g >= 0:
        raise ValueError(f"{name}: decode_per_kv_token_s is {g}, must be >= 0. Fit it with that bound.")
    for what, seconds, limit in (
        ("a decode step of one request", profile.decode_s[0], SLOWEST_STEP_S),
        ("decode_per_kv_token_s", g, SLOWEST_KV_TOKEN_S),
        ("prefill_per_context_token_s", profile.prefill_per_context_token_s or 0.0, SLOWEST_KV_TOKEN_S),
    ):
        if seconds > limit:
            raise ValueError(
                f"{name}: {what} is {seconds}, must be at most {limit:g} s. Are these milliseconds? Divide."
            )


def check_batch_reach(profile: LatencyProfile, max_batch: int) -> None:
    """Raise ValueError for a `max_batch` above BATCH_REACH times the largest batch of the profile."""
    largest = profile.decode_batch[-1]
    if max_batch > BATCH_REACH * largest:
        raise ValueError(
            f"{profile_name(profile)}: decode steps are known up to a batch of {largest}, max_batch is "
            f"{max_batch}, must be at most {BATCH_REACH} times that. Lower [fleet] max_batch, or measure "
            f"more."
        )


def profile_name(profile: LatencyProfile) -> str:
    """Return the name of the profile's deployment for messages."""
    return f"Latency profile of {profile.llm} on {profile.tensor_parallel} x {profile.gpu}"


def interpolate_knots(at: npt.ArrayLike, x: npt.ArrayLike, y: npt.ArrayLike) -> Floats:
    """Interpolate knots: linear between them, constant before the first, with the last slope beyond.

    at : any shape, which the result has
    x, y : shape (knots,), `x` ascending
    """
    at, x, y = (np.asarray(values, dtype=np.float64) for values in (at, x, y))
    last_slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
    return np.interp(at, x, y) + np.maximum(at - x[-1], 0.0) * last_slope


def profile_prefill_s(profile: LatencyProfile, tokens: npt.ArrayLike) -> Floats:
    """Return seconds of a prefill of `tokens` prompt tokens, in the shape of `tokens`."""
    return interpolate_knots(tokens, profile.prefill_tokens, profile.prefill_s)


def drafted_step_s(profile: LatencyProfile, batch: npt.ArrayLike, drafts: int, draft_s: float) -> Floats:
    """Return f of steps with `drafts` draft tokens of each of `batch` requests, in the shape of `batch`.

    A step that checks drafts takes what one without them takes for a batch of as many tokens: the same
    matrices are multiplied. Above the largest batch of the profile it is at least the prefill of as many
    tokens. `draft_s`: seconds of the drafter in a step.
    """
    tokens = np.asarray(batch) * (1 + drafts)
    seconds = interpolate_knots(tokens, profile.decode_batch, profile.decode_s)
    if drafts == 0:
        return seconds
    prefill_s = profile_prefill_s(profile, tokens)
    is_known = tokens <= profile.decode_batch[-1]
    return draft_s + np.where(is_known, seconds, np.maximum(seconds, prefill_s))


class ProfileFit(NamedTuple):
    """Knots fitted to measured points: the measured fields of a LatencyProfile."""

    prefill_tokens: tuple[int, ...]
    prefill_s: tuple[float, ...]
    decode_batch: tuple[int, ...]
    decode_s: tuple[float, ...]
    decode_per_kv_token_s: float


def least_kv_token_s(llm: Llm, gpu: Gpu, tensor_parallel: int) -> float:
    """Return the least seconds of one cached token in a decode step: its bytes over the peak bandwidth."""
    return llm.kv_bytes_per_token / (tensor_parallel * gpu.bandwidth_tb_per_s * 1e12)
