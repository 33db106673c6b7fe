"""The search for the capacity share of a plan: accurate wherever the curve crosses, in few steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcast.models.trials.target_search import (
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
    trials = []
    while (point := next_point(trials, target)) is not None:
        trials.append(TargetTrial(point, cost(point), attained(point)))
        assert len(trials) < 25
    return trials


@given(
    crossing=st.integers(3, 149).map(lambda n: n / 25),
    steepness=st.sampled_from([0.02, 1.0, 50.0]),
    dearer=st.sampled_from([1.0, 2.0]),
)
def test_both_sides_of_the_crossing_are_close(crossing, steepness, dearer):
    """Also where a fleet that is late starts so many instances that it costs more."""
    trials = searched(
        lambda share: 0.95 + steepness * (crossing - share),
        lambda share: 1000 / share * (dearer if share > crossing else 1),
        0.95,
    )
    assert len({one.attained >= 0.95 for one in trials[:8]}) == 2  # a board has nine trials
    low = max(one for one in trials if one.attained >= 0.95)
    high = min(one for one in trials if one.attained < 0.95)
    assert low.capacity_share <= crossing < high.capacity_share
    is_near = abs(low.cost / high.cost - 1) <= NEAR_COST_SHARE + 1e-9
    assert is_near or high.capacity_share / low.capacity_share <= NEAR_POINT_RATIO


@pytest.mark.parametrize(("attained", "end"), [(0.99, MOST_POINT), (0.9, LEAST_POINT)])
def test_a_curve_that_never_crosses_is_followed_to_its_end(attained, end):
    trials = searched(lambda share: attained, lambda share: 1000 / share, 0.95)
    assert trials[0].capacity_share == 1.0  # as planned
    assert trials[-1].capacity_share == end


@given(
    st.integers(1, 400),
    st.integers(1, 600),
    st.integers(1, 500),
    st.integers(1, 60),
    st.sampled_from([RESOLUTION, 16, None]),
)
def test_the_smallest_sufficient_number_is_found_from_any_guess(
    enough: int, guess: int, most: int, least: int, resolution: int | None
) -> None:
    """To one part in the resolution, or exactly; no number is evaluated twice, and few are."""
    evaluated: list[int] = []
    most = max(least, most)

    def does(number: int) -> bool:
        evaluated.append(number)
        return number >= enough

    found = find_least_sufficient(does, guess, most, least, resolution)
    assert (found is None) == (enough > most)
    assert len(evaluated) == len(set(evaluated)) <= 22
    assert all(least <= number <= most for number in evaluated)
    if found is not None:
        assert max(enough, least) <= found
        too_few = max((number for number in evaluated if number < enough), default=least - 1)
        assert found - too_few <= (max(1, found // resolution) if resolution else 1)
