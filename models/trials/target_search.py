"""Find where a curve crosses a target, with few evaluations, because each is expensive."""

from collections.abc import Callable, Sequence
from math import sqrt
from typing import NamedTuple

FIRST_POINT, LEAST_POINT, MOST_POINT = 1.0, 0.1, 6.0  # start of the search, and its range
POINT_STEP = 1.25  # ratio of two points until both sides of the target are known
SMALL_STEPS = 4  # points after which the step is twice as long, in logarithms
NEAR_COST_SHARE = 0.002  # the search ends when the costs on both sides of the target differ by no more
NEAR_POINT_RATIO = 1.005  # it also ends when the ratio of the points is no larger


class TargetTrial(NamedTuple):
    """One evaluation: a larger `capacity_share` lowers the cost and the attainment."""

    capacity_share: float
    cost: float
    attained: float


def next_point(
    trials: Sequence[TargetTrial],
    target: float,
    near_share: float = NEAR_COST_SHARE,
    first: float = FIRST_POINT,
    step: float = POINT_STEP,
) -> float | None:
    """Return the capacity share of the next trial; None where the crossing is found or out of range.

    The search goes from `first` by steps until both sides of the target are known, then bisects. It does not
    interpolate, because the curve may have jumps, and goes on where the trial that fails costs more.
    """
    meeting = [trial for trial in trials if trial.attained >= target]
    failing = [trial for trial in trials if trial.attained < target]
    if len(trials) >= SMALL_STEPS:
        step *= step
    if not trials:
        return first
    if not failing:
        last = max(trial.capacity_share for trial in meeting)
        return min(MOST_POINT, last * step) if last < MOST_POINT else None
    if not meeting:
        last = min(trial.capacity_share for trial in failing)
        return max(LEAST_POINT, last / step) if last > LEAST_POINT else None
    low, high = max(meeting), min(failing)
    if (
        high.capacity_share <= NEAR_POINT_RATIO * low.capacity_share
        or abs(low.cost - high.cost) <= near_share * high.cost  # a miss that costs more may be a jump
    ):
        return None
    return sqrt(low.capacity_share * high.capacity_share)


RESOLUTION = 50  # numbers from here on are found to one part in so many, smaller ones exactly


def find_least_sufficient(
    is_sufficient: Callable[[int], bool],
    guess: int,
    most: int,
    least: int = 1,
    resolution: int | None = RESOLUTION,
) -> int | None:
    """Return the least sufficient number from `least` to `most`; None where `most` is not sufficient.

    The search goes from the guess in steps that double until a sufficient and an insufficient number are
    known, then bisects, to one part in `resolution` or exactly. It assumes that every number above a
    sufficient one is sufficient.
    """
    low, high, step = least - 1, most + 1, 1  # `low` is insufficient; `high` sufficient unless most + 1
    at = min(max(guess, least), most)
    while (low < least or high > most) and low < most and high > least:
        if is_sufficient(at):
            high, at = at, max(least, at - step)
        else:
            low, at = at, min(most, at + step)
        step *= 2
    while high - low > max(1, high // resolution if resolution else 1):
        middle = (low + high) // 2
        low, high = (low, middle) if is_sufficient(middle) else (middle, high)
    return high if high <= most else None
