"""The load until a new instance could serve: a nowcast of the level times the shape of past days.

    level(t)   = load of the last minutes / load of the same minutes of the mean past day
    forecast   = level(t) x mean past day(t + h)           h = 0 .. lead
    lead load  = the largest forecast of the lead, held as long as an instance takes to boot

The level is that of an llm over all regions, because single regions have few requests a minute. The shape has
the regions' shares. An unused instance is held for the time that another one would take to boot: then it has
cost as much as a boot, the break-even of ski rental.
"""

import numpy as np
from scipy.ndimage import maximum_filter1d, uniform_filter1d

from fleetcast.models.aliases import Floats

LEVEL_MINUTES = 10  # over which the level is measured
SHAPE_MINUTES = 15  # over which the mean past day is smoothed
STEADYING_SHARE = 0.02  # of the day's mean, added to both sides of the level, so that it is stable at night


def lead_load_tokens_per_s(past: Floats, evening: Floats, today: Floats, lead_minutes: int) -> Floats:
    """Return the load that needs instances at each minute; minute t uses only data from before it.

    Parameters
    ----------
    past : (days, llms, regions, minutes) tokens/s of comparable days, nan where nothing was collected
    evening : (llms, regions, LEVEL_MINUTES) tokens/s before the day
    today : (llms, regions, minutes) tokens/s
    lead_minutes : minutes in which an instance boots, 0 or more

    Returns
    -------
    (llms, regions, minutes) tokens/s

    Raises
    ------
    ValueError
        No past day.
    """
    if not len(past):
        raise ValueError("got no comparable past day, needed one or more. Lengthen the history.")
    is_known = ~np.isnan(past)
    shape = np.where(is_known, past, 0.0).sum(axis=0) / np.maximum(is_known.sum(axis=0), 1)
    shape = uniform_filter1d(shape, SHAPE_MINUTES, axis=-1, mode="wrap")
    forecast = nowcast_level(shape, evening, today)[:, None] * leading_maximum(shape, lead_minutes)
    return trailing_maximum(forecast, lead_minutes)


def nowcast_level(shape: Floats, evening: Floats, today: Floats) -> Floats:
    """Return the load of the last LEVEL_MINUTES before each minute over that of `shape`, (llms, minutes)."""
    observed = np.concatenate([evening, today], axis=-1).sum(axis=1)
    usual = np.concatenate([shape[..., -LEVEL_MINUTES:], shape], axis=-1).sum(axis=1)
    little = STEADYING_SHARE * usual.mean(axis=-1, keepdims=True)
    windows = (
        np.lib.stride_tricks.sliding_window_view(series, LEVEL_MINUTES, axis=-1)[..., :-1, :].mean(axis=-1)
        for series in (observed, usual)
    )
    loads, shapes = (window + little for window in windows)
    return np.divide(loads, shapes, out=np.ones_like(loads), where=shapes > 0)


def leading_maximum(series: Floats, minutes: int) -> Floats:
    """Return the maximum from each minute to `minutes` after it, (..., minutes); the day wraps around."""
    size = minutes + 1
    return maximum_filter1d(series, size, axis=-1, mode="wrap", origin=-(size // 2))


def trailing_maximum(series: Floats, minutes: int) -> Floats:
    """Return the maximum from `minutes` before each minute to that minute, shape (..., minutes)."""
    size = minutes + 1
    return maximum_filter1d(series, size, axis=-1, mode="nearest", origin=(size - 1) // 2)
