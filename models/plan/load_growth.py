"""How much a load grows until a new instance could serve, from the shape of past days.

    growth(t) = max over h = 0 .. lead of shape(t + h) / shape(t)        shape: the mean past day, smoothed

With a boot of a minute it is nearly 1, so a rule that multiplies the load by it only reacts. With a boot of
ten minutes it is the ramp of the morning.
"""

import numpy as np
from scipy.ndimage import maximum_filter1d, uniform_filter1d

from fleetcast.models.aliases import Floats

SHAPE_MINUTES = 15  # over which the mean past day is smoothed
STEADYING_SHARE = 0.02  # of the day's mean, added to both sides of the ratio, so that it is stable at night


def load_growth(past: Floats, lead_minutes: int) -> Floats:
    """Return the growth of each llm's load in the `lead_minutes` after each minute, 1 or more.

    Parameters
    ----------
    past : (days, llms, minutes) tokens/s of comparable days, nan where nothing was collected
    lead_minutes : minutes until a new instance serves, 0 or more

    Returns
    -------
    (llms, minutes); 1 for an llm without load, and without past days. After the last minute of the day
    follows its first one.
    """
    is_known = ~np.isnan(past)
    mean = np.where(is_known, past, 0.0).sum(axis=0) / np.maximum(is_known.sum(axis=0), 1)
    shape = uniform_filter1d(mean, SHAPE_MINUTES, axis=-1, mode="wrap")
    shape = shape + STEADYING_SHARE * shape.mean(axis=-1, keepdims=True)
    size = lead_minutes + 1
    largest = maximum_filter1d(shape, size, axis=-1, mode="wrap", origin=-(size // 2))
    return np.divide(largest, shape, out=np.ones_like(shape), where=shape > 0)
