"""Inter-arrival gaps: their coefficient of variation by window, and tests of renewal processes.

Each window is analysed separately, so that the daily pattern does not look like burstiness (ServeGen, also
with windows of ten minutes). The p-values are from a parametric bootstrap: the usual Kolmogorov-Smirnov table
is far too lenient for parameters fitted to the same gaps (Stute, Gonzalez Manteiga and Presedo 1993).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.characterise.gap_families import GAP_FAMILIES

WINDOW_US = 600_000_000  # ten minutes, the slot of ServeGen
LEAST_GAPS = 30  # gaps that an analysed window needs
MOST_GAPS = 128  # first gaps of a window that a fit uses: with more, every simple model would be rejected
BOOTSTRAPS = 99  # p-values in steps of 0.01


class GapWindows(NamedTuple):
    """The windows of streams with at least LEAST_GAPS gaps; all of shape (windows,)."""

    stream: Ints
    window: Ints  # number of the window since time 0
    gaps: Ints  # number of gaps
    cv: Floats  # standard deviation of the gaps over their mean; 1 for a Poisson process


class GapFit(NamedTuple):
    """Goodness of fit of a distribution to gaps."""

    distance: float  # Kolmogorov-Smirnov: the largest distance between the two distribution functions
    p_value: float  # share of samples of the fitted distribution with at least this distance


def window_cvs(arrived_us: Ints, stream: Ints, window_us: int = WINDOW_US) -> GapWindows:
    """Return the coefficient of variation of the gaps within each stream and window.

    arrived_us : microseconds, in order of time, shape (requests,)
    stream : stream of each request, from 0, shape (requests,); 16 bits sort fastest
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
    """Return the first MOST_GAPS gaps of one window of one stream, seconds, shape (gaps,).

    A gap of 0, from a clock that is too coarse, is replaced by half the smallest positive gap: continuous
    distributions have no gap of 0. `arrived_us`, shape (requests,), ascends.
    """
    first, last = np.searchsorted(arrived_us, (window * window_us, (window + 1) * window_us))
    gaps = np.diff(arrived_us[first:last][: MOST_GAPS + 1]) / 1e6
    positive = gaps[gaps > 0]
    return np.maximum(gaps, positive.min() / 2) if positive.size else gaps[:0]


def fit_gaps(gaps: Floats, family: str, rng: np.random.Generator) -> GapFit:
    """Fit a family of GAP_FAMILIES to positive gaps, shape (gaps,), and test the fit.

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
    samples = np.maximum(draw(rng, float(shape[0]), (BOOTSTRAPS, gaps.size)), np.finfo(float).tiny)
    as_far = _distance(samples, shape_of(samples), share_below) >= distance
    return GapFit(float(distance), (1 + int(as_far.sum())) / (BOOTSTRAPS + 1))


def ks_distance(gaps: Floats, family: str) -> float:
    """Return the Kolmogorov-Smirnov distance of positive gaps, (gaps,), from the family fitted to them."""
    fitted = GAP_FAMILIES[family]
    return float(_distance(gaps[None], fitted.shape_of(gaps[None]), fitted.share_below)[0])


def _distance(gaps: Floats, shape: Floats, share_below: Callable[[Floats, Floats], Floats]) -> Floats:
    """Return the Kolmogorov-Smirnov distance, (samples,), of gaps (samples, gaps) from fits of `shape`."""
    size = gaps.shape[1]
    below = share_below(np.sort(gaps / gaps.mean(axis=1, keepdims=True), axis=1), shape)
    rank = np.arange(size)
    return np.maximum((rank + 1) / size - below, below - rank / size).max(axis=1)


def _gaps(arrived_us: Ints, stream: Ints, window_us: int) -> tuple[Ints, Floats]:
    """Return gaps within a stream and window.

    Returns
    -------
    key : stream x windows + window, ascending, shape (gaps,)
    gap : in seconds, shape (gaps,)
    """
    order = np.argsort(stream, kind="stable")
    arrived = arrived_us[order]
    key = stream[order].astype(np.int64) * _windows(arrived_us, window_us) + arrived // window_us
    inside = key[1:] == key[:-1]
    return key[1:][inside], np.diff(arrived)[inside] / 1e6


def _windows(arrived_us: Ints, window_us: int) -> int:
    """Return the number of windows up to the last arrival."""
    return int(arrived_us[-1]) // window_us + 1 if arrived_us.size else 1
