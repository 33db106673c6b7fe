"""Lengths that are known by histograms and by their sums, drawn one by one.

A histogram tells how many lengths lie between two bounds, the sums how many tokens a minute has. Within
bounds lengths are spread smoothly; the mean of a minute is met by weighting the shape of its hour with a
power of the length, as lengths of a known mean are distributed, and the sum by stretching what was drawn.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.stats import norm

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.traffic.random_streams import pick_columns

CELLS_PER_BUCKET = 8  # into which a bucket is cut, by ratio
LENGTH_NEWTON_STEPS = 12
MOST_POWER = 30.0
MEAN_HALVINGS = 25


class LengthHistogram(NamedTuple):
    """How many lengths lie in each cell (bound, next bound], by row: hours, minutes."""

    bounds: Floats  # (cells + 1,)
    counts: Floats  # (rows, cells)


def length_cells(bounds: Iterable[float]) -> Floats:
    """The cells of buckets that end at `bounds`; above the last one lengths are at most twice as long."""
    inner = np.unique([bound for bound in bounds if 0 < bound < np.inf])
    edges = np.concatenate([[0.5], inner[inner > 0.5], [2 * inner[-1]]])
    parts = [np.geomspace(low, high, CELLS_PER_BUCKET, endpoint=False) for low, high in pairwise(edges)]
    return np.unique(np.append(np.concatenate(parts), edges[-1]))


def spread_histogram(bounds: Floats, cumulative: Floats, cells: Floats) -> Floats:
    """The counts of one histogram in `cells`: each bucket has its own, spread as its neighbours let expect.

    Lengths are nearly lognormal, so that the normal quantile of their rank is smooth over their logarithm and
    is what is interpolated; beyond the buckets that have some of them it goes on as it does there.

    Parameters
    ----------
    bounds, cumulative : ndarray of shape (buckets,)
        Upper bounds, the last one infinite, and how many lengths are at most so long.

    Returns
    -------
    ndarray of shape (cells,)
    """
    rising = np.maximum.accumulate(cumulative)
    rank = rising / max(rising[-1], 1e-300)
    inner = np.isfinite(bounds) & (bounds > 0.5) & (rank > 0) & (rank < 1)
    density = np.diff(np.log(cells))
    if inner.sum() > 1:
        x, z = np.log(bounds[inner]), norm.ppf(rank[inner])
        x, z = x[np.append(True, np.diff(z) > 0)], z[np.append(True, np.diff(z) > 0)]
        if x.size > 1:
            smooth = PchipInterpolator(x, z, extrapolate=False)
            at = np.log(cells)
            slopes = smooth.derivative()(x[[0, -1]])
            below, above = z[0] + slopes[0] * (at - x[0]), z[-1] + slopes[1] * (at - x[-1])
            density = np.diff(norm.cdf(np.where(at < x[0], below, np.where(at > x[-1], above, smooth(at)))))
    bucket = np.searchsorted(bounds, cells[:-1], side="right")
    density = density + 1e-12 * np.diff(np.log(cells))
    return np.asarray(np.diff(rising, prepend=0.0)[bucket] * density / np.bincount(bucket, density)[bucket])


def shift_means(shape: LengthHistogram, bounds: Floats, mean: Floats) -> LengthHistogram:
    """The shape with the given mean of each row, as far as it goes without moving a length over a bound.

    Parameters
    ----------
    bounds : ndarray of shape (buckets,)
        Those of the histograms; each bounds a cell too.
    mean : ndarray of shape (rows,)
    """
    low, high = shape.bounds[:-1], shape.bounds[1:]
    bucket = np.searchsorted(bounds, low, side="right")
    length, inside = (low + high) / 2, (bucket[:, None] == np.arange(bounds.size + 1)).astype(np.float64)
    whole = np.maximum(shape.counts.sum(axis=1), 1e-300)
    in_bucket = shape.counts @ inside
    least, most = np.full(mean.size, -MOST_POWER), np.full(mean.size, MOST_POWER)
    counts = shape.counts
    for _ in range(MEAN_HALVINGS):
        power = (least + most) / 2
        weight = shape.counts * np.exp(power[:, None] * (np.log(length) - np.log(length).mean()))
        share = np.divide(in_bucket, weight @ inside, out=np.zeros_like(in_bucket), where=in_bucket > 0)
        counts = weight * (share @ inside.T)
        is_low = counts @ length / whole < mean
        least, most = np.where(is_low, power, least), np.where(is_low, most, power)
    return LengthHistogram(shape.bounds, counts)


def draw_lengths(rng: np.random.Generator, shape: LengthHistogram, requests: Ints, tokens: Ints) -> Ints:
    """The lengths of every row's requests, one row after the other: whole, at least 1, with the row's sum.

    Parameters
    ----------
    requests, tokens : ndarray of shape (rows,)
        How many and their sum; tokens >= requests.

    Returns
    -------
    ndarray of shape (sum of requests,)
        In any order within a row.
    """
    row = np.repeat(np.arange(requests.size), requests)
    if not row.size:
        return np.zeros(0, np.int64)
    low, high = shape.bounds[:-1], shape.bounds[1:]
    mean = np.divide(tokens, requests, out=np.ones(requests.size), where=requests > 0)
    shares = shares_with_mean(shape.counts, (low + high) / 2, mean)
    first = np.cumsum(requests) - requests
    place = np.arange(row.size) - first[row]
    dice = (place + rng.random(row.size)) / requests[row]
    cell = pick_columns(shares, row, dice)
    length = np.maximum(low[cell] + rng.random(row.size) * (high[cell] - low[cell]), 1.0)
    length = length[np.argsort(row + rng.random(row.size))]  # they rise within a row
    return _with_sums(length, row, requests, tokens)


def shares_with_mean(counts: Floats, length: Floats, mean: Floats) -> Floats:
    """Shares of the cells so that each row has its mean length, as far as the cells reach; (rows, cells)."""
    log_length = np.log(length)
    is_known = counts.sum(axis=1, keepdims=True) > 0
    with np.errstate(divide="ignore"):
        log_count = np.log(np.where(is_known, counts, 1.0))
    power, target = np.zeros(len(counts)), np.log(np.maximum(mean, 1.0))
    shares = _softmax(log_count)
    for _ in range(LENGTH_NEWTON_STEPS):
        found = shares @ length
        slope = (shares * length) @ log_length / found - shares @ log_length
        step = (target - np.log(found)) / np.maximum(slope, 1e-3)
        power = np.clip(power + np.clip(step, -2.0, 2.0), -MOST_POWER, MOST_POWER)
        shares = _softmax(log_count + power[:, None] * log_length)
    return shares


def _softmax(logs: Floats) -> Floats:
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _with_sums(length: Floats, row: Ints, requests: Ints, tokens: Ints) -> Ints:
    """Stretch what is above 1 of each row to the row's sum, and round so that it stays."""
    rows = requests.size
    above = np.bincount(row, length - 1.0, rows)
    wanted = np.maximum(tokens - requests, 0).astype(np.float64)
    factor = np.divide(wanted, above, out=np.zeros(rows), where=above > 0)
    even = np.where((above == 0) & (requests > 0), wanted / np.maximum(requests, 1), 0.0)
    exact = 1.0 + (length - 1.0) * factor[row] + even[row]
    return np.diff(np.floor(np.cumsum(exact) + 0.5), prepend=0.0).astype(np.int64)
