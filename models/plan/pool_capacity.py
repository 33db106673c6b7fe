"""How much work a pool sustains, and how many instances it needs, where one does less than each of four.

    c(n) = what each of n instances sustains within the SLO, tokens/s
    needed(work) = the least n with n c(n) >= work

A request that finds its instance busy can go to another one only where there is one. So c(n) rises with n,
most of all from one to four instances.
"""

import numpy as np

from fleetcast.models.aliases import Floats, Ints

LARGE = 4  # instances; from here on c(n) is constant
ROUNDED_OFF = 1e-3  # instances, as a smoothed rate never falls to zero


def size_shares(of_one: Floats, of_two: Floats, of_four: Floats) -> Floats:
    """Return c(n) / c(4) for n = 1, 2, 3, 4, shape (4, pools): rising, at most 1; c(3) is a mean.

    The arguments have shape (pools,), tokens/s of one of so many instances, above 0.
    """
    one, two = np.minimum(of_one / of_four, 1.0), np.minimum(of_two / of_four, 1.0)
    two = np.maximum(one, two)
    return np.stack([one, two, (two + 1.0) / 2, np.ones_like(two)])


def sustained_work(instances: Floats | Ints, capacity: Floats, shares: Floats) -> Floats:
    """Return n c(n) of whole numbers of instances, shape (...), tokens/s.

    Parameters
    ----------
    instances : (...) of pools, of any number of axes
    capacity : (...) or a shape that broadcasts to it, tokens/s of one of four instances
    shares : (4, ...) likewise, of `size_shares`
    """
    row = np.clip(instances, 1, LARGE).astype(np.int64) - 1
    share = np.take_along_axis(shares, row[None], axis=0)[0]
    work: Floats = instances * capacity * share
    return work


def instances_for_work(work: Floats, capacity: Floats, shares: Floats) -> Floats:
    """Return the least number of instances that sustain the work of each pool, shape (pools,).

    Parameters
    ----------
    work : (pools,) tokens/s
    capacity : (pools,) tokens/s of one of four instances, above 0
    shares : (4, pools) of `size_shares`
    """
    load = work / capacity - ROUNDED_OFF
    least = (load > 0).astype(np.int64)
    for smaller in range(1, LARGE):
        least += smaller * shares[smaller - 1] < load
    return np.where(least < LARGE, least, np.ceil(np.maximum(load, LARGE)))
