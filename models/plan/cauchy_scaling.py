"""Cauchy's autoscaler of combos (Algorithm 1): requests/s and its own plan in, a table of targets out.

Every `sample_s` it notes how many requests came. Once `window_s` are over since it acted last, it holds the
mean of the window against what its combos sustain: off by more than `ratio` of that, it adds the best combos
for what is lacking, or gives combos up. Where it has not acted for `refine_s`, the whole allocation is made
anew for the mean of that time.

What is given up serves on for `grace_s`, so that it can end its work. A new allocation starts first and stops
afterwards: for `boot_s` both stand. What boots counts as capacity at once, or every window would order it
anew.

It sees arrivals alone, not the fleet, so that it is a function of the arrivals: a replay follows its table as
it follows any plan.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints

ComboChooser = Callable[[float, Ints], Ints]  # requests/s and what is held already -> combos to add, (n,)


class CauchySettings(NamedTuple):
    """Cauchy's figures, section 3.5."""

    sample_s: float = 10.0
    window_s: float = 120.0
    ratio: float = 0.2
    grace_s: float = 30.0
    refine_s: float = 1800.0
    boot_s: float = 90.0


DEFAULT_CAUCHY_SETTINGS = CauchySettings()


def cauchy_targets(
    came: Floats,
    goodput: Floats,
    best: ComboChooser,
    start: Ints,
    scaler: CauchySettings = DEFAULT_CAUCHY_SETTINGS,
) -> Ints:
    """How many of each combo are to stand in each sample, shape (samples, n).

    Parameters
    ----------
    came : shape (samples,), requests/s that came in each; what a row says is known when its sample begins
    goodput : shape (n,), requests/s of one combo of each kind
    best : the programme: what to add to what is held, so that it sustains so many requests/s more
    start : shape (n,), what stands at first
    """
    held, sustained = start.astype(np.int64), float(goodput @ start)
    window, refine = (round(seconds / scaler.sample_s) for seconds in (scaler.window_s, scaler.refine_s))
    table = np.tile(held, (came.size, 1))
    lingering = np.zeros_like(table)
    latest = np.maximum.accumulate(np.where(came != 0, np.arange(came.size), -1)).tolist()  # that came
    acted = 0
    for now, mean in enumerate(window_means(came, window), start=window):
        if now - acted < window:
            continue
        if abs(mean - sustained) > scaler.ratio * sustained:
            lacking = mean - sustained
            change = best(lacking, held) if lacking > 0 else -combos_to_release(held, goodput, -lacking)
            add_grace_period(lingering, now, -np.minimum(change, 0), scaler.grace_s / scaler.sample_s)
            held = held + change
        elif now - acted >= refine and latest[now - 1] >= now - refine:
            wanted = best(float(came[now - refine : now].mean()), np.zeros_like(held))
            add_grace_period(lingering, now, np.maximum(held - wanted, 0), scaler.boot_s / scaler.sample_s)
            held = wanted
        else:
            continue
        acted, table[now:], sustained = now, held, float(goodput @ held)
    return table + lingering


def window_means(came: Floats, window: int) -> list[float]:
    """The mean of each window that ends before the last sample, the first one first."""
    if came.size <= window:
        return []
    # Row by row in memory, so that each is summed in the order in which it would be alone.
    windows = np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(came[:-1], window))
    return [float(mean) for mean in windows.mean(axis=1)]


def add_grace_period(lingering: Ints, now: int, gone: Ints, samples: float) -> None:
    """Let combos that are given up stand for some samples more."""
    lingering[now : now + round(samples)] += gone


def combos_to_release(held: Ints, goodput: Floats, excess_per_s: float) -> Ints:
    """What can be given up of what is held, and sustains no more than the excess: the largest first."""
    gone = np.zeros_like(held)
    for n in np.argsort(-goodput, kind="stable"):
        if goodput[n] > 0:
            gone[n] = min(int(held[n]), int(excess_per_s / goodput[n] * (1 + 1e-12)))
            excess_per_s -= gone[n] * goodput[n]
    return gone
