"""Learn the utilisation target of a policy from the days that were scored: one step of a loop over days.

    attainment over target of a day = level + slope * log(share) + a day's own deviation
    margin = t * s * sqrt(1 + 1 / n)                      Student's bound of one more day, one-sided
    log(share) += (level - 1 - margin) / -slope           within the largest steps

Level and slope are of a straight line through past days, of which each day back counts less. A day that was
short of its target lowers the share at once; upward it moves in small steps, because the curve falls steeply
where a fleet is nearly full. Before there are enough days, the line and the spread have the values below.
"""

from collections.abc import Sequence
from math import exp, log, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

KEPT_PER_DAY = 0.8  # weight of a day over that of the day after it
USUAL_SLOPE = -0.1  # attainment over target, per unit of log(share): a share 10 % larger attains 1 % less
USUAL_SLOPE_WEIGHT = 0.02  # of it, in squared log(share): two days that differ by 15 % weigh as much
LEAST_SLOPE = USUAL_SLOPE / 3  # flatter lines are taken to be as steep as this one
USUAL_SPREAD, USUAL_SPREAD_DAYS = 0.01, 3  # of the deviations; it counts like so many days
CHANCE = 0.95  # with which the next day attains its target
LARGEST_RISE, LARGEST_FALL = 0.05, 0.5  # of log(share) in a day
LARGEST_SHARE = 2.0  # a fleet at its minimum attains its target at any share; a busier day would then miss
STEP_SHARE = 0.7  # of the way to the target in a day: single days are noisy


class ScoredDay(NamedTuple):
    """A day: the share that was used, and the attainment over target of its worst tier."""

    capacity_share: float
    attained_ratio: float


class LearnedShare(NamedTuple):
    """The share of the next day, and the margin above the target that it should leave."""

    capacity_share: float
    margin_share: float


def learn_share(days: Sequence[ScoredDay]) -> LearnedShare:
    """Return the capacity share of the day after these; one or more, the oldest first."""
    log_shares = np.log([day.capacity_share for day in days])
    ratios = np.array([day.attained_ratio for day in days])
    weights = KEPT_PER_DAY ** np.arange(len(days) - 1, -1, -1.0)
    total = weights.sum()
    mean_log, mean_ratio = weights @ log_shares / total, weights @ ratios / total
    squares = weights @ (log_shares - mean_log) ** 2
    products = weights @ ((log_shares - mean_log) * (ratios - mean_ratio))
    slope = min((products + USUAL_SLOPE_WEIGHT * USUAL_SLOPE) / (squares + USUAL_SLOPE_WEIGHT), LEAST_SLOPE)
    deviations = ratios - mean_ratio - slope * (log_shares - mean_log)
    variance = (weights @ deviations**2 + USUAL_SPREAD_DAYS * USUAL_SPREAD**2) / (total + USUAL_SPREAD_DAYS)
    count = total**2 / (weights @ weights)  # of equal days that say as much
    quantile = stdtrit(count + USUAL_SPREAD_DAYS - 1, CHANCE)
    margin = float(quantile * sqrt(variance * (1 + 1 / count)))
    level = mean_ratio + slope * (log_shares[-1] - mean_log)
    step = float(np.clip(STEP_SHARE * (level - 1 - margin) / -slope, -LARGEST_FALL, LARGEST_RISE))
    share = exp(log(days[-1].capacity_share) + step)
    return LearnedShare(min(share, LARGEST_SHARE), margin)
