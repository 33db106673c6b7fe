"""Inter-arrival gaps: their coefficient of variation by window, and which renewal process they could be.

A window is judged by itself, so that the day's rhythm does not pass for burstiness (as in ServeGen, with its
windows of ten minutes). The p-values come from a parametric bootstrap: for parameters that were fitted to the
same gaps the usual Kolmogorov-Smirnov table is far too kind (Stute, Gonzalez Manteiga and Presedo 1993).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.characterise.gap_families import GAP_FAMILIES

WINDOW_US = 600_000_000  # ten minutes, the slot of ServeGen
LEAST_GAPS = 30  # in a window whose variation is judged
MOST_GAPS = 128  # of a window that a fit reads, the first ones: more only reject what no model is exactly
BOOTSTRAPS = 99  # p-values in steps of a hundredth


class GapWindows(NamedTuple):
    """Streams by window, as far as they have LEAST_GAPS gaps there; all of shape (windows,)."""

    stream: Ints
    window: Ints  # number of the window since time 0
    gaps: Ints
    cv: Floats  # standard deviation of the gaps in their mean; 1 for a Poisson process


class GapFit(NamedTuple):
    """How well a distribution describes some gaps."""

    distance: float  # Kolmogorov-Smirnov: the largest distance between the two distribution functions
    p_value: float  # share of samples of the fitted distribution that lie as far from their own fit


def window_cvs(arrived_us: Ints, stream: Ints, window_us: int = WINDOW_US) -> GapWindows:
    """Variation of the gaps between arrivals of one stream that lie in one window.

    Parameters
    ----------
    arrived_us : Ints
        In order of time, shape (requests,).
    stream : Ints
        From 0, shape (requests,): which stream each request belongs to; 16 bits sort fastest.
    """
    key, gap = _gaps(arrived_us, stream, window_us)
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    count = np.diff(starts, append=key.size)
    if not key.size:
        return GapWindows(key, key, key, gap)
    mean = np.add.reduceat(gap, starts) / count
    squares = np.add.reduceat((gap - np.repeat(mean, count)) ** 2, starts)
    kept = (count >= LEAST_GAPS) & (mean > 0)
    cv = np.sqrt(squares[kept] / (count[kept] - 1)) / mean[kept]
    windows = _windows(arrived_us, window_us)
    return GapWindows(key[starts][kept] // windows, key[starts][kept] % windows, count[kept], cv)


def first_gaps(arrived_us: Ints, window: int, window_us: int = WINDOW_US) -> Floats:
    """The first MOST_GAPS gaps of one window of one stream, seconds; a gap of 0 counts as half the smallest.

    A clock that is too coarse makes gaps of 0, which no continuous distribution has.
    """
    first, last = np.searchsorted(arrived_us, (window * window_us, (window + 1) * window_us))
    gaps = np.diff(arrived_us[first:last][: MOST_GAPS + 1]) / 1e6
    positive = gaps[gaps > 0]
    return np.maximum(gaps, positive.min() / 2) if positive.size else gaps[:0]


def fit_gaps(gaps: Floats, family: str, rng: np.random.Generator) -> GapFit:
    """Fit a family of FAMILIES to positive gaps, shape (gaps,), and test it.

    Raises
    ------
    ValueError
        Fewer than LEAST_GAPS gaps, one that is not positive, or an unknown family.
    """
    if family not in GAP_FAMILIES:
        raise ValueError(f"Unknown family {family!r} of gaps. Known: {', '.join(GAP_FAMILIES)}.")
    if gaps.size < LEAST_GAPS or not gaps.min() > 0:
        raise ValueError(f"A fit needs {LEAST_GAPS} gaps above 0, got {gaps.size}. Take a longer window.")
    shape_of, draw, share_below = GAP_FAMILIES[family][:3]
    shape = shape_of(gaps[None])
    distance = _distance(gaps[None], shape, share_below)[0]
    drawn = np.maximum(draw(rng, float(shape[0]), (BOOTSTRAPS, gaps.size)), np.finfo(float).tiny)
    as_far = _distance(drawn, shape_of(drawn), share_below) >= distance
    return GapFit(float(distance), (1 + int(as_far.sum())) / (BOOTSTRAPS + 1))


def ks_distance(gaps: Floats, family: str) -> float:
    """Kolmogorov-Smirnov distance of positive gaps, shape (gaps,), from the family fitted to them."""
    of = GAP_FAMILIES[family]
    return float(_distance(gaps[None], of.shape_of(gaps[None]), of.share_below)[0])


def _distance(gaps: Floats, shape: Floats, share_below: Callable[[Floats, Floats], Floats]) -> Floats:
    """Kolmogorov-Smirnov distance of each sample (samples, gaps) from its own fit."""
    size = gaps.shape[1]
    below = share_below(np.sort(gaps / gaps.mean(axis=1, keepdims=True), axis=1), shape)
    rank = np.arange(size)
    return np.maximum((rank + 1) / size - below, below - rank / size).max(axis=1)


def _gaps(arrived_us: Ints, stream: Ints, window_us: int) -> tuple[Ints, Floats]:
    """Gaps (s) with both ends in one stream and window, and stream x windows + window, in order of it."""
    order = np.argsort(stream, kind="stable")
    arrived = arrived_us[order]
    key = stream[order].astype(np.int64) * _windows(arrived_us, window_us) + arrived // window_us
    inside = key[1:] == key[:-1]
    return key[1:][inside], np.diff(arrived)[inside] / 1e6


def _windows(arrived_us: Ints, window_us: int) -> int:
    return int(arrived_us[-1]) // window_us + 1 if arrived_us.size else 1
