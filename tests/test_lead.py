"""The load until a new instance could serve: a naive twin, and what may not leak."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcast.assets.replays.minute_targets import comparable_days
from fleetcast.models.forecast.lead_load import (
    LEVEL_MINUTES,
    SHAPE_MINUTES,
    STEADYING_SHARE,
    lead_load_tokens_per_s,
)

MINUTES, HALF = 48, SHAPE_MINUTES // 2


def naive_lead_load(past, evening, today, lead):
    """Minute by minute, from the formulas of the module."""
    _, llms, regions, minutes = past.shape
    mean = past.mean(axis=0)
    shape = np.empty_like(mean)
    for t in range(minutes):
        shape[..., t] = np.mean([mean[..., (t + k) % minutes] for k in range(-HALF, HALF + 1)], axis=0)
    raw = np.empty_like(shape)
    for llm in range(llms):
        usual_day = [*shape[llm, :, -LEVEL_MINUTES:].sum(axis=0), *shape[llm].sum(axis=0)]
        observed = [*evening[llm].sum(axis=0), *today[llm].sum(axis=0)]
        little = STEADYING_SHARE * np.mean(usual_day)
        for t in range(minutes):
            level = (np.mean(observed[t : t + LEVEL_MINUTES]) + little) / (
                np.mean(usual_day[t : t + LEVEL_MINUTES]) + little
            )
            for region in range(regions):
                ahead = [shape[llm, region, (t + h) % minutes] for h in range(lead + 1)]
                raw[llm, region, t] = level * max(ahead)
    return np.stack([raw[..., max(0, t - lead) : t + 1].max(axis=-1) for t in range(minutes)], axis=-1)


def random_days(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.random((3, 2, 3, MINUTES)), rng.random((2, 3, LEVEL_MINUTES)), rng.random((2, 3, MINUTES))


@given(seed=st.integers(0, 2**32 - 1), lead=st.integers(0, 20))
def test_the_lead_load_is_that_of_its_naive_twin(seed: int, lead: int) -> None:
    past, evening, today = random_days(seed)
    found = lead_load_tokens_per_s(past, evening, today, lead)
    np.testing.assert_allclose(found, naive_lead_load(past, evening, today, lead), rtol=1e-12)
    longer = lead_load_tokens_per_s(past, evening, today, lead + 1)
    assert (longer >= found - 1e-12).all()  # a longer boot never needs fewer instances


@given(seed=st.integers(0, 2**32 - 1), minute=st.integers(0, MINUTES - 1))
def test_no_minute_sees_itself_or_what_comes_after(seed: int, minute: int) -> None:
    past, evening, today = random_days(seed)
    changed = today.copy()
    changed[..., minute:] *= 7.0
    first, second = (lead_load_tokens_per_s(past, evening, day, 5) for day in (today, changed))
    np.testing.assert_array_equal(first[..., : minute + 1], second[..., : minute + 1])
    assert minute == MINUTES - 1 or (second[..., minute + 1 :] != first[..., minute + 1 :]).any()


def test_a_day_like_the_past_needs_its_own_load_and_twice_the_load_needs_twice_as_much() -> None:
    past = np.full((2, 1, 1, MINUTES), 100.0)
    evening, today = np.full((1, 1, LEVEL_MINUTES), 100.0), np.full((1, 1, MINUTES), 100.0)
    np.testing.assert_allclose(lead_load_tokens_per_s(past, evening, today, 3), 100.0)
    doubled = lead_load_tokens_per_s(past, 2 * evening, 2 * today, 3)
    np.testing.assert_allclose(doubled, 100.0 * (2 + STEADYING_SHARE) / (1 + STEADYING_SHARE))


def test_gaps_of_the_past_are_left_out_and_an_empty_past_is_an_error() -> None:
    past, evening, today = random_days(1)
    gap = np.concatenate([past, np.full_like(past[:1], np.nan)])
    np.testing.assert_allclose(
        lead_load_tokens_per_s(gap, evening, today, 4), lead_load_tokens_per_s(past, evening, today, 4)
    )
    with pytest.raises(ValueError, match="got no comparable past day"):
        lead_load_tokens_per_s(past[:0], evening, today, 4)


def test_a_weekend_is_compared_with_weekends() -> None:
    days = [np.datetime64("2025-07-01") + n for n in range(14)]
    past = [day.astype(object) for day in days]
    assert [day.day for day in comparable_days(past, past[-1])] == [8, 9, 10, 11, 14]
    assert [day.day for day in comparable_days(past[:-2], past[-2])] == [5, 6, 12]
    assert comparable_days(past[:3], past[4]) == past[:3]  # no weekend yet
