"""Profiles fitted to a grid of measured points, and their errors on points left out of the fit.

The seconds that a cached token adds to a decode step (g) are measured at batch 1 only, over the length of
one context. Where the llm is split over many GPUs that slope is the time to read one context, not the
cost of many contexts at once; noise of a step adds to it. Reading the cache has
a floor, its bytes over the peak bandwidth, and g may be up to KV_CEILING times that.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.profile_tables import ProfileFit, interpolate_knots
from fleetcast.models.world.catalogue_entries import LatencyProfile

KV_CEILING = 2.0  # attention kernels that fill the GPU read at half its peak bandwidth or better


class Measured(NamedTuple):
    """Measured points of one deployment, each shape (points,)."""

    prompt_tokens: Floats  # per request
    output_tokens: Floats  # per request
    batch: Floats
    prompt_s: Floats  # prefill of the whole batch
    token_s: Floats  # mean decode step


def fit(measured: Measured, floor_s: float) -> ProfileFit:
    """Knots at the measured sizes: the median where a size was measured more than once.

    g is the least-squares slope of the decode step over the cache at batch 1, within floor_s and
    KV_CEILING * floor_s; f[B] is what the decode step at batch B leaves after its cache is paid, never
    falling with B.

    Raises ValueError where a column lacks measurements, or no request was measured alone.
    """
    require_measured(measured)
    tokens = measured.prompt_tokens * measured.batch
    prefill_knots = np.unique(tokens)
    prefill = np.array([np.median(measured.prompt_s[tokens == t]) for t in prefill_knots])
    cache = cached_tokens(measured)
    alone = measured.batch == 1
    slope = np.polyfit(cache[alone], measured.token_s[alone], 1)[0] if np.ptp(cache[alone]) > 0 else floor_s
    g = float(np.clip(slope, floor_s, KV_CEILING * floor_s))
    decode_knots = np.unique(measured.batch)
    f = np.array([np.median((measured.token_s - g * cache)[measured.batch == b]) for b in decode_knots])
    return ProfileFit(
        tuple(int(t) for t in prefill_knots),
        tuple(float(s) for s in np.maximum.accumulate(prefill).round(6)),
        tuple(int(b) for b in decode_knots),
        tuple(float(s) for s in np.maximum.accumulate(f).round(6)),
        float(f"{g:.3e}"),
    )


def require_measured(measured: Measured) -> None:
    """Refuse points that cannot be fitted; the message names the first bad one."""
    for name, column in measured._asdict().items():
        bad = ~(np.isfinite(column) & (column > 0))
        if bad.any():
            at = int(np.argmax(bad))
            raise ValueError(
                f"Measured point {at}: {name} is {column[at]}, must be a positive number. Measure it again, "
                "or leave the point out."
            )
    if not (measured.batch == 1).any():
        batches = sorted({int(b) for b in measured.batch})
        raise ValueError(f"Measured batches {batches} lack 1: measure a request alone, decode begins there.")


def cached_tokens(measured: Measured) -> Floats:
    """KV tokens in the mean over the decode steps of each point, shape (points,)."""
    return measured.batch * (measured.prompt_tokens + measured.output_tokens / 2)


def relative_errors(fitted: ProfileFit, measured: Measured) -> Floats:
    """|predicted - measured| / measured, shape (3, points): prefill, decode step, end to end."""
    prompt_s = interpolate_knots(
        measured.prompt_tokens * measured.batch, fitted.prefill_tokens, fitted.prefill_s
    )
    token_s = interpolate_knots(measured.batch, fitted.decode_batch, fitted.decode_s)
    token_s = token_s + fitted.decode_per_kv_token_s * cached_tokens(measured)
    steps = measured.output_tokens - 1
    predicted = np.array([prompt_s, token_s, prompt_s + steps * token_s])
    actual = np.array([measured.prompt_s, measured.token_s, measured.prompt_s + steps * measured.token_s])
    return np.abs(predicted - actual) / actual


def held_out_errors(measured: Measured, floor_s: float) -> Floats:
    """`relative_errors` of every setting when all its repetitions are left out of the fit, shape (3, points).

    A setting is a (prompt_tokens, batch) pair. The smallest and the largest of either kind are always
    kept: knots are linear between measurements, and there is no claim beyond them.
    """
    settings = np.stack([measured.prompt_tokens, measured.batch], axis=1)
    errors = []
    for prompt, batch in np.unique(settings, axis=0):
        left_out = (settings == (prompt, batch)).all(axis=1)
        kept = Measured(*(column[~left_out] for column in measured))
        if is_between(prompt * batch, kept.prompt_tokens * kept.batch) and is_between(batch, kept.batch):
            points = Measured(*(column[left_out] for column in measured))
            errors.append(relative_errors(fit(kept, floor_s), points))
    return np.concatenate(errors, axis=1)


def is_between(value: float, known: Floats) -> bool:
    """Whether `known` reaches from `value` or below to `value` or above."""
    return bool(known.min() <= value <= known.max())


def step_s(profile: LatencyProfile, batch: npt.ArrayLike, kv_tokens: npt.ArrayLike) -> Floats:
    """Seconds of one decode step of `batch` requests that hold `kv_tokens` of cache together."""
    without_kv = interpolate_knots(batch, profile.decode_batch, profile.decode_s)
    return without_kv + profile.decode_per_kv_token_s * np.asarray(kv_tokens, dtype=np.float64)
