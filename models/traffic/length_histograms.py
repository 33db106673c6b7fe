"""Sample single lengths from histograms of lengths and from sums of tokens.

A histogram gives the number of lengths between two bounds, the sums give the tokens of a minute. Lengths are
spread smoothly within bounds. The mean of a minute is met by weighting the distribution of its hour with a
power of the length (exponential tilting), the sum by stretching the sampled lengths.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.traffic.random_streams import pick_columns

CELLS_PER_BUCKET = 8  # of equal ratio
LENGTH_NEWTON_STEPS = 12
MOST_POWER = 30.0
MEAN_HALVINGS = 25


class LengthHistogram(NamedTuple):
    """Number of lengths in each cell (bound, next bound], by row: an hour, a minute."""

    bounds: Floats  # (cells + 1,) tokens
    counts: Floats  # (rows, cells)


def length_cells(bounds: Iterable[float]) -> Floats:
    """Return the bounds of the cells, shape (cells + 1,), of buckets that end at `bounds`, in tokens.

    Above the last finite bound, lengths are at most twice as long.
    """
    inner = np.unique([bound for bound in bounds if 0 < bound < np.inf])
    edges = np.concatenate([[0.5], inner[inner > 0.5], [2 * inner[-1]]])
    parts = [np.geomspace(low, high, CELLS_PER_BUCKET, endpoint=False) for low, high in pairwise(edges)]
    return np.unique(np.append(np.concatenate(parts), edges[-1]))


def spread_histogram(bounds: Floats, cumulative: Floats, cells: Floats) -> Floats:
    """Spread the counts of one histogram over cells; each bucket keeps its count.

    Lengths are nearly lognormal, so the normal quantile of their rank is smooth over the logarithm of the
    length. This quantile is interpolated, and extrapolated linearly beyond the buckets that have lengths.

    bounds, cumulative : ndarray of shape (buckets,)
        Upper bounds in tokens, the last one infinite, and the number of lengths up to each.
    cells : ndarray of shape (cells + 1,)
        Bounds of the cells in tokens.

    Returns
    -------
    ndarray of shape (cells,)
        Number of lengths in each cell.
    """
    from scipy.interpolate import PchipInterpolator

    rising = np.maximum.accumulate(cumulative)
    rank = rising / max(rising[-1], 1e-300)
    inner = np.isfinite(bounds) & (bounds > 0.5) & (rank > 0) & (rank < 1)
    density = np.diff(np.log(cells))
    if inner.sum() > 1:
        x, z = np.log(bounds[inner]), ndtri(rank[inner])
        x, z = x[np.append(True, np.diff(z) > 0)], z[np.append(True, np.diff(z) > 0)]
        if x.size > 1:
            smooth = PchipInterpolator(x, z, extrapolate=False)
            at = np.log(cells)
            slopes = smooth.derivative()(x[[0, -1]])
            below, above = z[0] + slopes[0] * (at - x[0]), z[-1] + slopes[1] * (at - x[-1])
            density = np.diff(ndtr(np.where(at < x[0], below, np.where(at > x[-1], above, smooth(at)))))
    bucket = np.searchsorted(bounds, cells[:-1], side="right")
    density = density + 1e-12 * np.diff(np.log(cells))
    return np.asarray(np.diff(rising, prepend=0.0)[bucket] * density / np.bincount(bucket, density)[bucket])


def shift_means(shape: LengthHistogram, bounds: Floats, mean: Floats) -> LengthHistogram:
    """Shift each row to the given mean, as far as possible without moving a length over a bucket's bound.

    bounds : ndarray of shape (buckets,)
        Bounds of the buckets in tokens; each is also a bound of cells.
    mean : ndarray of shape (rows,)
        In tokens.
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
    """Sample the lengths of every row's requests: whole numbers, at least 1, with the row's sum.

    requests, tokens : ndarray of shape (rows,)
        Number of requests and the sum of their tokens; tokens >= requests.

    Returns
    -------
    ndarray of shape (sum of requests,)
        In tokens, row after row, in random order within a row.
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
    length = length[np.argsort(row + rng.random(row.size))]  # shuffle: lengths rise within a row
    return _with_sums(length, row, requests, tokens)


def shares_with_mean(counts: Floats, length: Floats, mean: Floats) -> Floats:
    """Return the shares of the cells, (rows, cells), at which each row has its mean, as far as cells reach.

    counts : shape (rows, cells)
    length : tokens of each cell, shape (cells,)
    mean : tokens, shape (rows,)
    """
    log_length = np.log(length)
    is_known = counts.sum(axis=1, keepdims=True) > 0
    with np.errstate(divide="ignore"):
        log_count = np.log(np.where(is_known, counts, 1.0))
    power, target = np.zeros(len(counts)), np.log(np.maximum(mean, 1.0))
    shares = _softmax(log_count)
    for _ in range(LENGTH_NEWTON_STEPS):
        current = shares @ length
        slope = (shares * length) @ log_length / current - shares @ log_length
        step = (target - np.log(current)) / np.maximum(slope, 1e-3)
        power = np.clip(power + np.clip(step, -2.0, 2.0), -MOST_POWER, MOST_POWER)
        shares = _softmax(log_count + power[:, None] * log_length)
    return shares


def _softmax(logs: Floats) -> Floats:
    """Return shares, (rows, cells), proportional to exp(logs) within each row."""
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _with_sums(length: Floats, row: Ints, requests: Ints, tokens: Ints) -> Ints:
    """Stretch the parts of lengths above 1 to the sum of their row, and round so that the sum stays.

    `length`, `row` and the result have the shape (lengths,), `requests` and `tokens` (rows,).
    """
    rows = requests.size
    above = np.bincount(row, length - 1.0, rows)
    wanted = np.maximum(tokens - requests, 0).astype(np.float64)
    factor = np.divide(wanted, above, out=np.zeros(rows), where=above > 0)
    even = np.where((above == 0) & (requests > 0), wanted / np.maximum(requests, 1), 0.0)
    exact = 1.0 + (length - 1.0) * factor[row] + even[row]
    return np.diff(np.floor(np.cumsum(exact) + 0.5), prepend=0.0).astype(np.int64)
