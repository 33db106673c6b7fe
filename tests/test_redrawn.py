"""Other draws of a day's requests: of the same hours, in order, whole blocks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleetcast.models.traffic.day_resample import BLOCK_US, RESAMPLE_HOUR_US, resample_arrivals


@given(
    st.lists(st.integers(0, 24 * 12 * 4 - 1).map(lambda n: n * (BLOCK_US // 4)), max_size=60),
    st.integers(0, 99),
)
def test_whole_blocks_come_again_within_their_hour(quarters: list[int], seed: int) -> None:
    """Against a twin that deals the blocks one by one."""
    arrived = np.sort(np.array(quarters, np.int64))
    rows, at = resample_arrivals(arrived, np.random.default_rng(seed))
    picks = np.random.default_rng(seed).integers(0, 12, 288)
    expected = []
    for place, pick in enumerate(picks):
        block = place // 12 * 12 + pick
        expected += [
            (n, us + (place - block) * BLOCK_US) for n, us in enumerate(arrived) if us // BLOCK_US == block
        ]
    assert list(zip(rows, at, strict=True)) == expected
    assert (np.diff(at) >= 0).all()
    assert (at // RESAMPLE_HOUR_US == arrived[rows] // RESAMPLE_HOUR_US).all()


def test_resampled_hour_keeps_mean_and_block_variance() -> None:
    """The variance of the hour's sum is that of twelve independent blocks."""
    per_block = np.random.default_rng(1).poisson(30, 288)
    starts = BLOCK_US * np.arange(288)
    arrived = np.repeat(starts, per_block)
    hours = np.array(
        [
            np.bincount(
                resample_arrivals(arrived, np.random.default_rng(seed))[1] // RESAMPLE_HOUR_US, minlength=24
            )
            for seed in range(400)
        ]
    )
    of_hour = per_block.reshape(24, 12)
    spread = np.sqrt(12 * of_hour.var(axis=1))
    assert (np.abs(hours.mean(axis=0) - of_hour.sum(axis=1)) < 4 * spread / np.sqrt(400)).all()
    assert np.allclose((hours.std(axis=0) / spread).mean(), 1.0, atol=0.03)
