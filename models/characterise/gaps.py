"""Inter-arrival gaps: their coefficient of variation by window, and which renewal process they could be.

A window is judged by itself, so that the day's rhythm does not pass for burstiness (as in ServeGen, with its
windows of ten minutes). The p-values come from a parametric bootstrap: for parameters that were fitted to the
same gaps the usual Kolmogorov-Smirnov table is far too kind (Stute, Gonzalez Manteiga and Presedo 1993).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

WINDOW_US = 600_000_000  # ten minutes, the slot of ServeGen
LEAST_GAPS = 30  # in a window whose variation is judged
MOST_GAPS = 128  # of a window that a fit reads, the first ones: more only reject what no model is exactly
BOOTSTRAPS = 99  # p-values in steps of a hundredth
NEWTON_STEPS = 8


class Windows(NamedTuple):
    """Streams by window, as far as they have LEAST_GAPS gaps there; all of shape (windows,)."""

    stream: Integers
    window: Integers  # number of the window since time 0
    gaps: Integers
    cv: Floats  # standard deviation of the gaps in their mean; 1 for a Poisson process


class Fit(NamedTuple):
    """How well a distribution describes some gaps."""

    distance: float  # Kolmogorov-Smirnov: the largest distance between the two distribution functions
    p_value: float  # share of samples of the fitted distribution that lie as far from their own fit


def window_cvs(arrived_us: Integers, stream: Integers, window_us: int = WINDOW_US) -> Windows:
    """Variation of the gaps between arrivals of one stream that lie in one window.

    Parameters
    ----------
    arrived_us : Integers
        In order of time, shape (requests,).
    stream : Integers
        From 0, shape (requests,): which stream each request belongs to; 16 bits sort fastest.
    """
    key, gap = _gaps(arrived_us, stream, window_us)
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    count = np.diff(starts, append=key.size)
    if not key.size:
        return Windows(key, key, key, gap)
    mean = np.add.reduceat(gap, starts) / count
    squares = np.add.reduceat((gap - np.repeat(mean, count)) ** 2, starts)
    kept = (count >= LEAST_GAPS) & (mean > 0)
    cv = np.sqrt(squares[kept] / (count[kept] - 1)) / mean[kept]
    windows = _windows(arrived_us, window_us)
    return Windows(key[starts][kept] // windows, key[starts][kept] % windows, count[kept], cv)


def first_gaps(arrived_us: Integers, window: int, window_us: int = WINDOW_US) -> Floats:
    """The first MOST_GAPS gaps of one window of one stream, seconds; a gap of 0 counts as half the smallest.

    A clock that is too coarse makes gaps of 0, which no continuous distribution has.
    """
    first, last = np.searchsorted(arrived_us, (window * window_us, (window + 1) * window_us))
    gaps = np.diff(arrived_us[first:last][: MOST_GAPS + 1]) / 1e6
    positive = gaps[gaps > 0]
    return np.maximum(gaps, positive.min() / 2) if positive.size else gaps[:0]


def fit(gaps: Floats, family: str, rng: np.random.Generator) -> Fit:
    """Fit a family of FAMILIES to positive gaps, shape (gaps,), and test it.

    Raises
    ------
    ValueError
        Fewer than LEAST_GAPS gaps, one that is not positive, or an unknown family.
    """
    if family not in FAMILIES:
        raise ValueError(f"Unknown family {family!r} of gaps. Known: {', '.join(FAMILIES)}.")
    if gaps.size < LEAST_GAPS or not gaps.min() > 0:
        raise ValueError(f"A fit needs {LEAST_GAPS} gaps above 0, got {gaps.size}. Take a longer window.")
    shape_of, draw, share_below = FAMILIES[family]
    shape = shape_of(gaps[None])
    distance = _distance(gaps[None], shape, share_below)[0]
    drawn = np.maximum(draw(rng, float(shape[0]), (BOOTSTRAPS, gaps.size)), np.finfo(float).tiny)
    as_far = _distance(drawn, shape_of(drawn), share_below) >= distance
    return Fit(float(distance), (1 + int(as_far.sum())) / (BOOTSTRAPS + 1))


# --- the families: each has mean 1, its shape is fitted to samples of shape (samples, gaps) ---------------


def gamma_shape(gaps: Floats) -> Floats:
    """Shape of the gamma distribution, shape (samples,): the closed form of Ye and Chen (2017)."""
    log_gaps, gaps_sum = np.log(gaps), gaps.sum(axis=1)
    size = gaps.shape[1]
    return size * gaps_sum / (size * (gaps * log_gaps).sum(axis=1) - log_gaps.sum(axis=1) * gaps_sum)


def weibull_shape(gaps: Floats) -> Floats:
    """Shape of the likeliest Weibull distribution, shape (samples,): Newton, begun from the log-moments."""
    logs = np.log(gaps)
    logs = logs - logs.mean(axis=1, keepdims=True)
    shape = np.pi / np.sqrt(6) / logs.std(axis=1)
    for _ in range(NEWTON_STEPS):
        powers = np.exp(shape[:, None] * logs)
        total = powers.sum(axis=1)
        first, second = ((powers * logs**n).sum(axis=1) / total for n in (1, 2))
        step = (first - 1 / shape) / (second - first**2 + 1 / shape**2)
        shape = np.maximum(shape - step, shape / 2)
    return shape


def weibull_scale(shape: float) -> float:
    """Scale at which a Weibull distribution of that shape has mean 1."""
    from scipy.special import gamma

    return 1 / float(gamma(1 + 1 / shape))


def draw_gaps(rng: np.random.Generator, family: str, shape: float, size: tuple[int, ...]) -> Floats:
    """Gaps of mean 1 of a family of FAMILIES."""
    return FAMILIES[family][1](rng, shape, size)


def shape_of_cv(family: str, cv: float) -> float:
    """The shape at which gaps of that family have this coefficient of variation; 1 for exponential gaps."""
    if family == "gamma":
        return 1 / cv**2
    if family == "weibull":
        from scipy.optimize import brentq
        from scipy.special import gammaln

        def excess(log_shape: float) -> float:
            inverse = np.exp(-log_shape)
            return float(gammaln(1 + 2 * inverse) - 2 * gammaln(1 + inverse) - np.log1p(cv**2))

        return float(np.exp(brentq(excess, np.log(0.05), np.log(50.0))))
    return 1.0


def _share_exponential(gaps: Floats, shape: Floats) -> Floats:
    return -np.expm1(-gaps)


def _share_gamma(gaps: Floats, shape: Floats) -> Floats:
    from scipy.special import gammainc

    return gammainc(shape[:, None], shape[:, None] * gaps)


def _share_weibull(gaps: Floats, shape: Floats) -> Floats:
    """Its scale is the one of highest likelihood, not that of the mean."""
    power = gaps ** shape[:, None]
    return -np.expm1(-power / power.mean(axis=1, keepdims=True))


Family = tuple[
    Callable[[Floats], Floats],  # gaps (samples, gaps) -> shape (samples,)
    Callable[[np.random.Generator, float, tuple[int, ...]], Floats],  # gaps of mean 1
    Callable[[Floats, Floats], Floats],  # share of gaps of mean 1 below each, (samples, gaps)
]
FAMILIES: dict[str, Family] = {
    "exponential": (
        lambda gaps: np.ones(len(gaps)),
        lambda rng, shape, size: rng.standard_exponential(size),
        _share_exponential,
    ),
    "gamma": (gamma_shape, lambda rng, shape, size: rng.standard_gamma(shape, size) / shape, _share_gamma),
    "weibull": (
        weibull_shape,
        lambda rng, shape, size: weibull_scale(shape) * rng.weibull(shape, size),
        _share_weibull,
    ),
}


def _distance(gaps: Floats, shape: Floats, share_below: Callable[[Floats, Floats], Floats]) -> Floats:
    """Kolmogorov-Smirnov distance of each sample (samples, gaps) from its own fit."""
    size = gaps.shape[1]
    below = share_below(np.sort(gaps / gaps.mean(axis=1, keepdims=True), axis=1), shape)
    rank = np.arange(size)
    return np.maximum((rank + 1) / size - below, below - rank / size).max(axis=1)


def _gaps(arrived_us: Integers, stream: Integers, window_us: int) -> tuple[Integers, Floats]:
    """Gaps (s) with both ends in one stream and window, and stream x windows + window, in order of it."""
    order = np.argsort(stream, kind="stable")
    arrived = arrived_us[order]
    key = stream[order].astype(np.int64) * _windows(arrived_us, window_us) + arrived // window_us
    inside = key[1:] == key[:-1]
    return key[1:][inside], np.diff(arrived)[inside] / 1e6


def _windows(arrived_us: Integers, window_us: int) -> int:
    return int(arrived_us[-1]) // window_us + 1 if arrived_us.size else 1
