"""Resample a day: an equally likely day from the same requests, by a block bootstrap within each hour.

In each hour, blocks of five minutes are sampled with replacement (block bootstrap: Kuensch, Annals of
Statistics 1989; here stratified by the hour). Requests within a block (a burst, a job, the mix of llms, tiers
and regions) stay together; the order of blocks within an hour does not. The variation of an hour is that of
its blocks; the variation between days is not included. A prompt that is sampled twice hits a prefix cache the
second time.
"""

import numpy as np
from numpy.typing import NDArray

BLOCK_US, RESAMPLE_HOUR_US, RESAMPLE_HOURS = 300_000_000, 3_600_000_000, 24
PER_HOUR = RESAMPLE_HOUR_US // BLOCK_US


def resample_arrivals(
    arrived_us: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Resample the requests of a day and their arrivals.

    arrived_us : (R,) microseconds since midnight, ascending

    Returns
    -------
    rows : (D,) of the sampled requests; a request can occur several times or never
    arrived_us : (D,) their new arrivals, ascending
    """
    blocks = RESAMPLE_HOURS * PER_HOUR
    edges = np.searchsorted(arrived_us, BLOCK_US * np.arange(blocks + 1))
    sampled = np.repeat(np.arange(0, blocks, PER_HOUR), PER_HOUR) + rng.integers(0, PER_HOUR, blocks)
    rows = np.concatenate([np.arange(edges[block], edges[block + 1]) for block in sampled])
    later_us = BLOCK_US * (np.arange(blocks) - sampled)
    return rows, arrived_us[rows] + np.repeat(later_us, edges[sampled + 1] - edges[sampled])
