"""The search for what a plan may count on: near enough wherever the curve lies, and soon."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcast.models.plan.target_search import (
    LEAST_POINT,
    MOST_POINT,
    NEAR_COST_SHARE,
    NEAR_POINT_RATIO,
    RESOLUTION,
    TargetTrial,
    find_least_sufficient,
    next_point,
)


def searched(attained, cost, target):
    """All evaluations of a search."""
    tried = []
    while (point := next_point(tried, target)) is not None:
        tried.append(TargetTrial(point, cost(point), attained(point)))
        assert len(tried) < 25
    return tried


@given(crossing=st.integers(11, 149).map(lambda n: n / 25), steepness=st.sampled_from([0.02, 1.0, 50.0]))
def test_both_sides_of_the_crossing_are_near(crossing, steepness):
    tried = searched(lambda share: 0.95 + steepness * (crossing - share), lambda share: 1000 / share, 0.95)
    low = max(one for one in tried if one.attained >= 0.95)
    high = min(one for one in tried if one.attained < 0.95)
    assert low.capacity_share <= crossing < high.capacity_share
    is_near = low.cost / high.cost - 1 <= NEAR_COST_SHARE + 1e-9
    assert is_near or high.capacity_share / low.capacity_share <= NEAR_POINT_RATIO


@pytest.mark.parametrize(("attained", "end"), [(0.99, MOST_POINT), (0.9, LEAST_POINT)])
def test_a_curve_that_never_crosses_is_followed_to_its_end(attained, end):
    tried = searched(lambda share: attained, lambda share: 1000 / share, 0.95)
    assert tried[0].capacity_share == 1.0  # as planned
    assert tried[-1].capacity_share == end


@given(st.integers(1, 400), st.integers(1, 600), st.integers(1, 500))
def test_the_fewest_that_do_are_found_from_any_guess(enough: int, guess: int, most: int) -> None:
    """To one part in RESOLUTION, no number is asked for twice, and few are."""
    asked: list[int] = []

    def does(number: int) -> bool:
        asked.append(number)
        return number >= enough

    found = find_least_sufficient(does, guess, most)
    assert (found is None) == (enough > most)
    assert len(asked) == len(set(asked)) <= 22
    assert all(1 <= number <= most for number in asked)
    if found is not None:
        assert found.too_few < enough <= found.number
        assert found.resolution <= max(1, found.number // RESOLUTION)
