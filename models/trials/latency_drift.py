"""Compare measured latencies with their replay: by what factor did prefill and decode leave the profile?

Latencies do not scale with an engine: under load, slower decode lengthens queues, batches and so the first
token too. So the day is replayed three times: with the profile, with its prefill, and with its decode seconds
times PROBE_FACTOR. Each hour and measure gives one number, the factor between measured and replayed seconds
(`estimate_ratio`). The probes say how that number moves with either phase, and the two unknown factors of the
phases follow by weighted least squares (`hourly_speed_ratios`). An overloaded engine shows only one number:
all its measures move alike with both phases. So the factor that both phases share is estimated as well.
All ratios are natural logarithms.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints

PROBE_FACTOR = 1.25
PHASES = ("prefill", "decode")
SPEED_PARTS = (*PHASES, "engine")  # engine: both phases by one factor
TIMED_MEASURES = ("ttft_s", "tpot_s", "e2e_s")
HOURS = 24
LEAST_SAMPLES = 30  # of a measure in an hour
RATIO_GRID = np.linspace(-2.0, 2.0, 401)  # factors of 0.14 to 7.4
UNSEEN_SHARE = 0.02  # of the samples that the replay may place in wrong buckets: outliers do not decide
REPLAY_ERROR = 0.03  # error of the factor of an hour in an exact replay: arrivals within a minute are sampled
PRIOR_SIGMA = 1.0  # of a phase's log factor; it decides only where no measure depends on the phase
LEAST_LEVEL_HOURS = 3  # of a level on either side of a change
NIGHT_ERROR = 0.03  # log factor by which nights of an unchanged engine differ
USELESS_ERROR = 0.3  # an hour with a larger error of its log factor is left out


class MeasuredHours(NamedTuple):
    """Samples of one measure by hour of the day, in buckets; the last bound is infinite."""

    bounds: Floats  # (buckets,) upper bounds in seconds
    counts: Floats  # (24, buckets)


class ReplayedTimes(NamedTuple):
    """Replayed samples of one measure; an engine counts a sample when it ends, so does `hour`."""

    hour: Ints  # (samples,) hour of the day
    seconds: Floats  # (samples,)

    def of_hour(self, hour: int) -> Floats:
        """Return the samples of an hour in ascending order."""
        return np.sort(self.seconds[self.hour == hour])

    def counts(self, bounds: Floats) -> Floats:
        """Return the samples by hour and bucket, (24, buckets)."""
        counts = np.zeros((HOURS, bounds.size))
        inside = (self.hour >= 0) & (self.hour < HOURS)
        bucket = np.searchsorted(bounds, self.seconds[inside])
        np.add.at(counts, (self.hour[inside], bucket), 1.0)
        return counts


class HourlyRatios(NamedTuple):
    """Log factors of SPEED_PARTS by hour, and their standard errors; NaN where too little is known."""

    ratios: Floats  # (24, 3)
    errors: Floats  # (24, 3)


def estimate_ratio(bounds: Floats, counts: Floats, replayed_s: Floats) -> tuple[float, float]:
    """Return the log factor that takes replayed seconds to measured buckets, and its standard error.

    The likelihood of the counts has the replayed seconds times the factor as the probability of each bucket,
    but for UNSEEN_SHARE. So buckets need not be fine where seconds differ from
    request to request. The log likelihood is halved, because the replay is a sample too. Estimate and error
    are the mean and the standard deviation of the likelihood over RATIO_GRID. The error is infinite where the
    buckets tell nothing, as where all seconds are in one of them.

    bounds : (buckets,) upper bounds in seconds, the last one infinite
    counts : (buckets,) measured samples
    replayed_s : (samples,) replayed seconds in ascending order
    """
    below = np.searchsorted(replayed_s, bounds[None, :] * np.exp(-RATIO_GRID)[:, None], side="right")
    shares = np.diff(below / replayed_s.size, axis=1, prepend=0.0)
    shares = (1.0 - UNSEEN_SHARE) * shares + UNSEEN_SHARE / bounds.size
    likelihood = np.log(shares) @ counts / 2.0
    weight = np.exp(likelihood - likelihood.max())
    weight /= weight.sum()
    ratio = float(weight @ RATIO_GRID)
    spread = float(np.sqrt(weight @ (RATIO_GRID - ratio) ** 2))
    return ratio, spread if spread < USELESS_ERROR else np.inf


def hourly_speed_ratios(
    measured: Mapping[str, MeasuredHours], replays: Sequence[Mapping[str, ReplayedTimes]]
) -> HourlyRatios:
    """Return by hour the log factors of the engines that explain the measured latencies.

    measured : by measure (TIMED_MEASURES); TTFT alone says nothing about decode
    replays : three, by measure: of the profile, of slower prefill, of slower decode (PROBE_FACTOR)
    """
    ratios, errors = (np.full((HOURS, len(SPEED_PARTS)), np.nan) for _ in range(2))
    probed = [{name: replay[name].counts(measured[name].bounds) for name in measured} for replay in replays]
    for hour in range(HOURS):
        rows, values, sigmas = [], [], []
        for name, (bounds, counts) in measured.items():
            replayed_s = replays[0][name].of_hour(hour)
            if min(counts[hour].sum(), replayed_s.size) < LEAST_SAMPLES:
                continue
            ratio, error = estimate_ratio(bounds, counts[hour], replayed_s)
            moves = [estimate_ratio(bounds, probe[name][hour], replayed_s)[0] for probe in probed]
            if not np.isfinite(error):
                continue
            rows.append([(move - moves[0]) / np.log(PROBE_FACTOR) for move in moves[1:]])
            values.append(ratio - moves[0])
            sigmas.append(np.hypot(error, REPLAY_ERROR))
        if rows:
            ratios[hour], errors[hour] = _solve_speeds(np.array(rows), np.array(values), np.array(sigmas))
    is_useless = ~(errors < USELESS_ERROR)
    return HourlyRatios(np.where(is_useless, np.nan, ratios), np.where(is_useless, np.nan, errors))


def _solve_speeds(moves: Floats, values: Floats, sigmas: Floats) -> tuple[Floats, Floats]:
    """Return the factors of SPEED_PARTS and their errors, (3,) each, by least squares.

    `moves` (measures, 2): change of a measure per change of a phase; `values` and `sigmas` (measures,).
    """
    found = []
    for design in (moves, moves.sum(axis=1, keepdims=True)):
        weighted = design / sigmas[:, None]
        covariance = np.linalg.inv(weighted.T @ weighted + np.eye(design.shape[1]) / PRIOR_SIGMA**2)
        found.append((covariance @ (weighted.T @ (values / sigmas)), np.sqrt(np.diag(covariance))))
    ratios, errors = (np.concatenate(column) for column in zip(*found, strict=True))
    return ratios, errors


class LevelEstimate(NamedTuple):
    """A log factor of several hours, and its standard error."""

    ratio: float
    error: float


def estimate_level(ratios: Floats, errors: Floats) -> LevelEstimate:
    """Return the weighted median of hours, (hours,) each; NaN hours do not count.

    The error is that of a median, 1.25 times that of a mean (normal values), and larger where the hours
    differ by more than their errors say. Without an hour both are NaN.
    """
    known = np.isfinite(ratios)
    if not known.any():
        return LevelEstimate(np.nan, np.nan)
    weights = errors[known] ** -2.0
    level = float(np.quantile(ratios[known], 0.5, weights=weights, method="inverted_cdf"))
    scatter = 1.4826 * np.median(np.abs(ratios[known] - level) * np.sqrt(weights))
    return LevelEstimate(level, float(1.25 * max(1.0, scatter) / np.sqrt(weights.sum())))


def usual_ratios(past: Floats) -> Floats:
    """Return the usual log factor of each hour of the day, (24,), from those of past days, (days, 24).

    The usual level is the median of all hours. An hour of the day that always differs, as by its load, has
    half of the median of its own differences: with few days, the other half may be chance. Without any
    known hour all are NaN.
    """
    if not np.isfinite(past).any():
        return np.full(HOURS, np.nan)
    level = np.nanmedian(past)
    known = np.isfinite(past).sum(axis=0) >= 2
    by_hour = np.zeros(HOURS)
    by_hour[known] = np.nanmedian(past[:, known], axis=0) - level
    return np.asarray(level + by_hour / 2.0, np.float64)


def find_change(ratios: Floats, errors: Floats, usual: Floats) -> int | None:
    """Return the hour from which the day's log factors differ most from before; None with too few hours.

    It is the split that leaves the least weighted sum of absolute differences from the levels on both sides
    (`split_levels`). What the level before the split differs from the usual one counts as one more, so that a
    change at midnight is not taken for a strange day. All arrays have shape (24,).
    """
    costs = {}
    for hour in range(HOURS):
        levels = split_levels(ratios, errors, usual, hour)
        if levels is None:
            continue
        before, after, excess = levels
        is_after = np.arange(HOURS) >= hour
        residuals = np.abs(excess - np.where(is_after, after.ratio, before.ratio)) / errors
        costs[hour] = float(np.nansum(residuals))
        if has_values(usual):
            costs[hour] += abs(before.ratio) / NIGHT_ERROR
    return min(costs, key=lambda hour: costs[hour]) if costs else None


def split_levels(
    ratios: Floats, errors: Floats, usual: Floats, hour: int
) -> tuple[LevelEstimate, LevelEstimate, Floats] | None:
    """Return the levels before and from `hour` on, and the log factors (24,) that they are levels of.

    With past nights the log factors are less their `usual` value, and the level before is the mean of the
    usual level, 0 with the error NIGHT_ERROR, and of that of the day's own hours, weighted by their errors.
    Without, it is that of the day's own hours. None where there are fewer than LEAST_LEVEL_HOURS from `hour`
    on, or before it without past nights.
    """
    has_past = has_values(usual)
    excess = ratios - usual if has_past else ratios
    is_known, is_after = np.isfinite(excess), np.arange(HOURS) >= hour
    if (is_known & is_after).sum() < LEAST_LEVEL_HOURS:
        return None
    before, after = (estimate_level(excess[rows], errors[rows]) for rows in (~is_after, is_after))
    has_own = (is_known & ~is_after).sum() >= LEAST_LEVEL_HOURS
    if has_past:
        own, night = before.error**-2.0 if has_own else 0.0, NIGHT_ERROR**-2.0
        ratio = own * before.ratio / (own + night) if has_own else 0.0
        return LevelEstimate(ratio, (own + night) ** -0.5), after, excess
    return (before, after, excess) if has_own else None


def has_values(usual: Floats) -> bool:
    """Return whether past nights are known, from their usual log factors, (24,)."""
    return bool(np.isfinite(usual).all())


def change_at(ratios: Floats, errors: Floats, usual: Floats, hour: int) -> LevelEstimate:
    """Return the change of the log factors at `hour`, NaN where unknown; arrays (24,), as `split_levels`."""
    levels = split_levels(ratios, errors, usual, hour)
    if levels is None:
        return LevelEstimate(np.nan, np.nan)
    before, after, _ = levels
    return LevelEstimate(after.ratio - before.ratio, float(np.hypot(before.error, after.error)))
