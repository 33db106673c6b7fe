"""Sample equally likely versions of a coming day: blocks of past days, at a forecast with its error.

    level of the day   mu + s t,        t: Student with K - 1 + 3 degrees of freedom
    hour of a series   forecast x exp(level + shape of a past day, in either direction)

K past days were forecast at their midnight. mu and s come from their errors and, as 3 more days, from the
quantiles of the forecast. Blocks of five minutes keep their bursts; the order of blocks in an hour, and the
past day that each comes from, do not stay (as in day_resample.py, but over several days).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.traffic.day_resample import BLOCK_US, PER_HOUR, RESAMPLE_HOURS
from fleetcast.models.traffic.random_streams import MINUTE_US

PRIOR_DAYS = 3  # days that the quantiles of the forecast count as
LEVEL_PART = 0.5  # of the sigma of an hour's peak that all hours of a day share
LEAST_SIGMA, MOST_SIGMA = 0.05, 0.25  # of the level that the quantiles of the forecast give
MOST_SHAPE = 1.5  # of the logarithm of an hour's error
MOST_LOAD_FACTOR = 8.0  # requests of the new day for each of a past hour


class ForecastErrors(NamedTuple):
    """Logarithms of real over forecast load, of days that were forecast at their midnight."""

    levels: Floats  # (K,) of the day
    shapes: Floats  # (K, 24, series) of the hour, above that of the day
    prior_sigma: float  # of the level, from the quantiles of the forecast


def measure_errors(actual: Floats, forecast: Floats, peak_p50: Floats, peak_p90: Floats) -> ForecastErrors:
    """Return the errors of past forecasts; arrays (K, 24, series) in tokens/s, NaN where nothing is known.

    The last two are quantiles of the hour's peak; their ratio gives the sigma that a forecast has by itself.
    """
    known = ~np.isnan(actual)
    came, expected = np.where(known, actual, 0.0), np.where(known, forecast, 0.0)
    sums = came.sum(axis=(1, 2)), expected.sum(axis=(1, 2))
    is_used = (sums[0] > 0) & (sums[1] > 0)
    levels = np.log(sums[0][is_used] / sums[1][is_used])
    floor = 0.02 * expected.mean(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        shapes = np.log((came + floor) / (expected + floor))[is_used] - levels[:, None, None]
        ratio = np.log(peak_p90 / peak_p50) / 1.2816
    sigmas = ratio[np.isfinite(ratio) & (ratio > 0)]
    sigma = LEVEL_PART * float(np.median(sigmas)) if sigmas.size else LEAST_SIGMA
    shapes = np.clip(np.nan_to_num(shapes), -MOST_SHAPE, MOST_SHAPE)
    return ForecastErrors(levels, shapes, float(np.clip(sigma, LEAST_SIGMA, MOST_SIGMA)))


def sample_load_factors(errors: ForecastErrors, series: int, draws: int, rng: np.random.Generator) -> Floats:
    """Return factors of the forecast of each hour, shape (draws, 24, series).

    Levels are quantiles of their law at the middles of equal parts, shuffled: so few draws have its spread.
    """
    days = errors.levels.size
    mean = errors.levels.sum() / (days + PRIOR_DAYS)
    squares = ((errors.levels - mean) ** 2).sum() + PRIOR_DAYS * errors.prior_sigma**2
    sigma = np.sqrt(squares / (days + PRIOR_DAYS) * (1 + 1 / (days + PRIOR_DAYS)))
    large = np.sort(rng.standard_t(days + PRIOR_DAYS - 1, 200 * draws)).reshape(draws, 200).mean(axis=1)
    levels = mean + sigma * rng.permutation(large)
    paths = np.zeros((draws, RESAMPLE_HOURS, series))
    if days:
        signs = rng.choice([-1.0, 1.0], draws)
        paths = signs[:, None, None] * errors.shapes[rng.integers(0, days, draws)]
    return np.exp(np.clip(levels[:, None, None] + paths, -np.log(MOST_LOAD_FACTOR), np.log(MOST_LOAD_FACTOR)))


class PastRequests(NamedTuple):
    """Requests of several past days, one after the other, each in order of arrival."""

    arrived_us: Ints  # (R,) microseconds since the midnight of its day
    series: Ints  # (R,) llm and region
    tokens: Floats  # (R,) of the load that is forecast: 0 for other requests
    edges: Ints  # (days, 24 * 12 + 1) first row of each block
    levels: Floats  # (days, 24, series) tokens of the hour


def gather_past_requests(
    arrived_us: Sequence[Ints], series: Sequence[Ints], tokens: Sequence[Floats], count: int
) -> PastRequests:
    """Return the requests of past days, given day by day, each column (R,); `count`: number of series."""
    edges, levels, before = [], [], 0
    for at, codes, of_day in zip(arrived_us, series, tokens, strict=True):
        inner = np.searchsorted(at, BLOCK_US * np.arange(RESAMPLE_HOURS * PER_HOUR + 1))
        edges.append(before + inner)
        hour = np.minimum(at // (BLOCK_US * PER_HOUR), RESAMPLE_HOURS - 1)
        cell = np.bincount(hour * count + codes, weights=of_day, minlength=RESAMPLE_HOURS * count)
        levels.append(cell.reshape(RESAMPLE_HOURS, count))
        before += at.size
    return PastRequests(
        np.concatenate(arrived_us),
        np.concatenate(series),
        np.concatenate(tokens),
        np.array(edges),
        np.array(levels),
    )


def sample_future_day(past: PastRequests, target: Floats, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Sample a day whose hours have these tokens, up to the variation of their blocks.

    target : (24, series) tokens of the hour

    Returns
    -------
    rows : (D,) of the past requests; one can occur several times or never
    arrived_us : (D,) their new arrivals since midnight, ascending
    """
    days, blocks = len(past.edges), RESAMPLE_HOURS * PER_HOUR
    hour_of_block = np.repeat(np.arange(RESAMPLE_HOURS), PER_HOUR)
    first = past.edges[:, 0:blocks:PER_HOUR]
    last = past.edges[:, PER_HOUR : blocks + 1 : PER_HOUR]
    has_any = (last > first).T  # (24, days)
    has_any[~has_any.any(axis=1)] = True
    chance = rng.random((blocks, days)) * has_any[hour_of_block]
    day = chance.argmax(axis=1)
    block = hour_of_block * PER_HOUR + rng.integers(0, PER_HOUR, blocks)
    begin, end = past.edges[day, block], past.edges[day, block + 1]
    count = end - begin
    rows = np.repeat(begin - np.concatenate([[0], np.cumsum(count)[:-1]]), count) + np.arange(count.sum())
    of_block = np.repeat(np.arange(blocks), count)
    hour, series = hour_of_block[of_block], past.series[rows]
    level = past.levels[day[of_block], hour, series]
    factor = np.divide(target[hour, series], level, out=np.ones(rows.size), where=level > 0)
    times = np.floor(np.clip(factor, 0.0, MOST_LOAD_FACTOR) + rng.random(rows.size)).astype(np.int64)
    at_us = past.arrived_us[rows] + BLOCK_US * (of_block - block[of_block])
    at_us, source, of_block = (np.repeat(column, times) for column in (at_us, rows, of_block))
    is_copy = np.diff(np.repeat(np.arange(rows.size), times), prepend=-1) == 0
    at_us = at_us + np.where(is_copy, rng.integers(-MINUTE_US // 2, MINUTE_US // 2, at_us.size), 0)
    at_us = np.clip(at_us, 0, blocks * BLOCK_US - 1)
    order = np.argsort(at_us, kind="stable")
    return source[order], at_us[order]
