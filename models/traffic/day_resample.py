"""A day that might have come as well: its own requests, drawn anew within each hour.

In each hour, blocks of five minutes are drawn with replacement (a block bootstrap, Kuensch, Annals of
Statistics 1989, stratified by the hour). What comes together within a block (a burst, a job, the mix of llms,
tiers and regions) stays together; the order of blocks within an hour does not. What an hour brings differs as
its blocks do; how days differ from each other is not in it. A prompt that is drawn twice is known to a cache
the second time.
"""

import numpy as np
from numpy.typing import NDArray

BLOCK_US, RESAMPLE_HOUR_US, RESAMPLE_HOURS = 300_000_000, 3_600_000_000, 24
PER_HOUR = RESAMPLE_HOUR_US // BLOCK_US


def resample_arrivals(
    arrived_us: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which of a day's requests come, and when.

    Parameters
    ----------
    arrived_us : (R,) since midnight, ascending

    Returns
    -------
    rows : (D,) of the requests that come, some more than once, some not at all
    arrived_us : (D,) when they do, ascending
    """
    blocks = RESAMPLE_HOURS * PER_HOUR
    edges = np.searchsorted(arrived_us, BLOCK_US * np.arange(blocks + 1))
    drawn = np.repeat(np.arange(0, blocks, PER_HOUR), PER_HOUR) + rng.integers(0, PER_HOUR, blocks)
    rows = np.concatenate([np.arange(edges[block], edges[block + 1]) for block in drawn])
    later_us = BLOCK_US * (np.arange(blocks) - drawn)
    return rows, arrived_us[rows] + np.repeat(later_us, edges[drawn + 1] - edges[drawn])
