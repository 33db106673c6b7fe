"""Search the cheapest settings of a policy that attain a target, with a fixed number of trials.

A policy has one knob (`factor`) and one to three readings. The first reading gets most of the trials, each
other reading a few, from the best factor of the first. What is left goes to readings that never failed, then
to the cheapest.

A trial is replayed on several days. It must attain the target with a margin that follows from how different
these days are: `lowest_next_ratio`.
"""

from collections.abc import Sequence
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from fleetcast.models.trials.target_search import TargetTrial, next_point

TARGET = 1.0  # attainment over the target
PROBES = 2  # trials of each reading but the first
PROBE_STEP = 1.1  # ratio of their factors
LARGEST_MISS_SHARE = 0.1  # of the target, below which a policy has fallen off a cliff
NEXT_DAY_CHANCE = 0.9  # with which the next day attains the target: nine days of ten


class ReadingTrial(NamedTuple):
    """A trial of a policy: a larger `factor` lowers the cost and the attainment."""

    reading: int
    factor: float
    cost: float
    attained: float


def lowest_next_ratio(ratios: Sequence[float]) -> float:
    """Return what the next day attains with NEXT_DAY_CHANCE, and at most what the worst of these days did.

    It is the one-sided prediction bound of Student for one more draw, mean - t s sqrt(1 + 1 / n) with the
    standard deviation s and n - 1 degrees of freedom. A single day has no spread, so it is its own bound.

    `ratios`: attainment over target of the worst tier, one per day.
    """
    worst, days = min(ratios), len(ratios)
    if days == 1:
        return worst
    quantile = float(stdtrit(days - 1, NEXT_DAY_CHANCE))
    bound = float(np.mean(ratios) - quantile * np.std(ratios, ddof=1) * sqrt(1 + 1 / days))
    return min(worst, bound)


def next_trial(trials: Sequence[ReadingTrial], readings: int, budget: int) -> tuple[int, float] | None:
    """Return reading and factor of the next trial; None at the end of the budget or of the search."""
    if len(trials) >= budget:
        return None
    first = trials_of_reading(trials, 0)
    of_first = max(1, budget - PROBES * (readings - 1))
    if len(first) < of_first and (factor := next_point(first, TARGET)) is not None:
        return 0, factor
    start = best_trial([trial for trial in trials if trial.reading == 0]).factor
    for reading in range(1, readings):
        own = trials_of_reading(trials, reading)
        if len(own) < PROBES:
            factor = next_point(own, TARGET, first=start, step=PROBE_STEP)
            if factor is not None:
                return reading, factor
    for reading in sorted(range(readings), key=lambda number: promise(trials, number)):
        factor = next_point(trials_of_reading(trials, reading), TARGET)
        if factor is not None:
            return reading, factor
    return None


def promise(trials: Sequence[ReadingTrial], reading: int) -> tuple[bool, float]:
    """Return the rank of a reading in the search: those that never failed first, then the cheapest."""
    own = [trial for trial in trials if trial.reading == reading]
    costs = [trial.cost for trial in own if trial.attained >= TARGET]
    return len(costs) < len(own), min(costs, default=inf)


def trials_of_reading(trials: Sequence[ReadingTrial], reading: int) -> list[TargetTrial]:
    """Return the trials of one reading."""
    return [TargetTrial(*trial[1:]) for trial in trials if trial.reading == reading]


def best_trial(trials: Sequence[ReadingTrial]) -> ReadingTrial:
    """Return the cheapest trial that attains the target, else the one that attains most."""
    meeting = [trial for trial in trials if trial.attained >= TARGET]
    if meeting:
        return min(meeting, key=lambda trial: trial.cost)
    return max(trials, key=lambda trial: trial.attained)


def distance_to_cliff(trials: Sequence[ReadingTrial], chosen: ReadingTrial) -> float | None:
    """Return how much larger the factor may be before a tenth of the target is missed; None if never seen.

    It is the share above the chosen factor of the least factor of the same reading that missed as much.
    """
    fallen = [
        trial.factor
        for trial in trials
        if trial.reading == chosen.reading
        and trial.factor > chosen.factor
        and trial.attained < 1 - LARGEST_MISS_SHARE
    ]
    return min(fallen) / chosen.factor - 1 if fallen else None
