"""Cauchy's autoscaler of combos (Algorithm 1): from arrivals and its last allocation to a table of targets.

It counts arrivals every `sample_s`. When `window_s` have passed since its last change, it compares the mean
arrivals of the window with the capacity of its combos. If they differ by more than `ratio` of the capacity,
it adds the best combos for the missing capacity, or releases combos. If it has changed nothing for
`refine_s`, it computes the whole allocation again, for the mean arrivals of that time.

Released combos serve for `grace_s` more, so that they can finish their requests. A new allocation starts
before the old one stops: for `boot_s` both are deployed. Booting combos count as capacity at once, otherwise
every window would order them again.

The autoscaler observes the arrivals alone, not the fleet. Its table is a function of the arrivals, and a
replay follows it as it follows any plan.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints

ComboChooser = Callable[[float, Ints], Ints]  # requests/s, deployed combos (n,) -> combos to add, (n,)


class CauchySettings(NamedTuple):
    """Parameters of Cauchy's autoscaler, section 3.5."""

    sample_s: float = 10.0  # between two counts of arrivals
    window_s: float = 120.0  # least time between two changes, and window of the mean arrivals
    ratio: float = 0.2  # difference of arrivals and capacity above which it acts, of the capacity
    grace_s: float = 30.0  # in which released combos serve on
    refine_s: float = 1800.0  # without a change, after which it computes a new allocation
    boot_s: float = 90.0  # in which the old and the new allocation are both deployed


DEFAULT_CAUCHY_SETTINGS = CauchySettings()


def cauchy_targets(
    arrivals_per_s: Floats,
    goodput: Floats,
    best: ComboChooser,
    start: Ints,
    scaler: CauchySettings = DEFAULT_CAUCHY_SETTINGS,
) -> Ints:
    """Return the number of each combo to deploy in each sample, shape (samples, n).

    Parameters
    ----------
    arrivals_per_s : shape (samples,), requests/s; a value is known when its sample begins
    goodput : shape (n,), requests/s of one combo of each kind
    best : solves the optimisation model: combos to add to the deployed ones for so many requests/s more
    start : shape (n,), combos deployed at first
    """
    deployed, capacity = start.astype(np.int64), float(goodput @ start)
    window, refine = (round(seconds / scaler.sample_s) for seconds in (scaler.window_s, scaler.refine_s))
    samples = arrivals_per_s.size
    table = np.tile(deployed, (samples, 1))
    draining = np.zeros_like(table)
    latest_arrival = np.maximum.accumulate(np.where(arrivals_per_s != 0, np.arange(samples), -1)).tolist()
    changed = 0
    for now, mean in enumerate(window_means(arrivals_per_s, window), start=window):
        if now - changed < window:
            continue
        if abs(mean - capacity) > scaler.ratio * capacity:
            missing = mean - capacity
            change = (
                best(missing, deployed) if missing > 0 else -combos_to_release(deployed, goodput, -missing)
            )
            add_grace_period(draining, now, -np.minimum(change, 0), scaler.grace_s / scaler.sample_s)
            deployed = deployed + change
        elif now - changed >= refine and latest_arrival[now - 1] >= now - refine:
            target = best(float(arrivals_per_s[now - refine : now].mean()), np.zeros_like(deployed))
            add_grace_period(draining, now, np.maximum(deployed - target, 0), scaler.boot_s / scaler.sample_s)
            deployed = target
        else:
            continue
        changed, table[now:], capacity = now, deployed, float(goodput @ deployed)
    return table + draining


def window_means(arrivals_per_s: Floats, window: int) -> list[float]:
    """Return the mean of each window of samples that ends before the last sample, in order of time.

    `arrivals_per_s` (samples,).
    """
    if arrivals_per_s.size <= window:
        return []
    # Contiguous rows are summed in the same order as separate arrays, so the means are equal bit by bit.
    windows = np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(arrivals_per_s[:-1], window))
    return [float(mean) for mean in windows.mean(axis=1)]


def add_grace_period(draining: Ints, now: int, released: Ints, samples: float) -> None:
    """Add released combos (n,) to the draining ones (samples, n) for some samples from `now`, in place."""
    draining[now : now + round(samples)] += released


def combos_to_release(deployed: Ints, goodput: Floats, excess_per_s: float) -> Ints:
    """Return the deployed combos to release, shape (n,), largest goodput first, up to the excess capacity.

    Parameters
    ----------
    deployed : shape (n,), number of each combo
    goodput : shape (n,), requests/s of one combo
    """
    released = np.zeros_like(deployed)
    for n in np.argsort(-goodput, kind="stable"):
        if goodput[n] > 0:
            released[n] = min(int(deployed[n]), int(excess_per_s / goodput[n] * (1 + 1e-12)))
            excess_per_s -= released[n] * goodput[n]
    return released
