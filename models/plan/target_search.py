"""Where a curve crosses a target, found with few and dear evaluations."""

from collections.abc import Callable, Sequence
from math import sqrt
from typing import NamedTuple

FIRST_POINT, LEAST_POINT, MOST_POINT, POINT_STEP = (
    1.0,
    0.4,
    6.0,
    1.25,
)  # where the search begins, how far it goes, and how fast
NEAR_COST_SHARE = 0.002  # costs on both sides of the target that differ by no more are near enough
NEAR_POINT_RATIO = 1.005  # so are points whose ratio is no larger


class TargetTrial(NamedTuple):
    """One evaluation: the more is counted on, the less it costs, and the less is attained."""

    capacity_share: float
    cost: float
    attained: float


def next_point(
    tried: Sequence[TargetTrial],
    target: float,
    near_share: float = NEAR_COST_SHARE,
    first: float = FIRST_POINT,
    step: float = POINT_STEP,
) -> float | None:
    """What to count on in the next evaluation; None where the crossing is found, or lies too far out.

    From `first` by steps until both sides of the target are known, then by halves: where a curve jumps, a
    straight line would mislead.
    """
    meeting = [one for one in tried if one.attained >= target]
    failing = [one for one in tried if one.attained < target]
    if not tried:
        return first
    if not failing:
        last = max(one.capacity_share for one in meeting)
        return min(MOST_POINT, last * step) if last < MOST_POINT else None
    if not meeting:
        last = min(one.capacity_share for one in failing)
        return max(LEAST_POINT, last / step) if last > LEAST_POINT else None
    low, high = max(meeting), min(failing)
    if (
        high.capacity_share <= NEAR_POINT_RATIO * low.capacity_share
        or low.cost - high.cost <= near_share * high.cost
    ):
        return None
    return sqrt(low.capacity_share * high.capacity_share)


RESOLUTION = 50  # a whole number that is this large is found to one part in as many


class LeastSufficient(NamedTuple):
    """The least whole number that was found to do, and the largest below it that was found not to."""

    number: int
    too_few: int

    @property
    def resolution(self) -> int:
        """How far apart the two are: the answer lies between."""
        return self.number - self.too_few


def find_least_sufficient(does: Callable[[int], bool], guess: int, most: int) -> LeastSufficient | None:
    """The fewest that do, of whole numbers from 1 to `most`; None where not even the most do.

    From a guess in steps that double until one does and one does not, then by halves. More than enough is
    taken to be enough.
    """
    low, high, step = 0, most + 1, 1  # `low` is known not to do, `high` to do, unless it is above the most
    at = min(max(guess, 1), most)
    while (low == 0 or high > most) and low < most and high > 1:
        if does(at):
            high, at = at, max(1, at - step)
        else:
            low, at = at, min(most, at + step)
        step *= 2
    while high - low > max(1, high // RESOLUTION):
        middle = (low + high) // 2
        low, high = (low, middle) if does(middle) else (middle, high)
    return LeastSufficient(high, low) if high <= most else None
