"""A panel of StatsForecast's methods compared with the default forecast, on the shared series by the hour.

It runs where statsforecast can be imported: the group `panel`. Each method is fitted anew at every cutoff,
from the same past, and judged an hour and a day ahead; 11 hours lie between cutoffs, so that all hours come.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from forecast_scores import wape
from measure import Figures, Skipped, Target
from real_series import DEMAND, FRIDAY, Held, predicted, real_series

from fleetcast.models.aliases import Floats
from fleetcast.models.forecast.backtest import BacktestClock, actual_demand

DEFAULT = "weighted"
DAY, EVERY = 24, 11  # hours
SERIES = ("azure_code", "servegen", "burstgpt_conversation")
METHODS = ("ets", "ces", "theta", "mstl")
FLOOR_SHARE = 0.01  # of the mean, added before logarithms
INSTALL = "statsforecast is not installed. To compare: .venv/bin/uv sync --frozen --group panel"
LEADS = {"hour": slice(0, 1), "day": slice(0, DAY)}
RATIOS = {"best": "the best of the panel in hindsight", "median": "its median"}
TARGETS = {
    f"panel_{lead}_wape_{method}_{name}": Target("", f"{name}, the next {lead}: WAPE of {method}")
    for lead in LEADS
    for name in SERIES
    for method in (DEFAULT, *METHODS, "median")
}
TARGETS |= {
    f"panel_{lead}_ratio_to_{which}": Target(
        "", f"the default over {what}, the next {lead}: the most of them"
    )
    for lead in LEADS
    for which, what in RATIOS.items()
}
TARGETS |= {
    f"panel_milliseconds_{method}": Target("ms", f"one fit and forecast of a series by {method}; CPU")
    for method in METHODS
}


def panel() -> Figures:
    """StatsForecast's exponential smoothing, its complex form, Theta and MSTL, all on logarithms."""
    makers, fits = _makers(), 0
    figures, spent = Figures(), dict.fromkeys(METHODS, 0.0)
    for name, held in hourly_series().items():
        weekday = FRIDAY if name == "azure_code" else 0
        found = {DEFAULT: predicted(held, (DEFAULT,), weekday)[DEFAULT].mean[0, ::EVERY]}
        ends = held.clock.cutoffs(held.demand.shape[1])[::EVERY]
        for method, maker in makers.items():
            began = time.process_time()
            found[method] = np.array([forecast(maker, filled(held.demand[0, :end])) for end in ends])
            spent[method] += time.process_time() - began
        fits += len(ends)
        found["median"] = np.median([found[method] for method in METHODS], axis=0)
        came = actual_demand(*held)[0, ::EVERY]
        figures |= {
            f"panel_{lead}_wape_{method}_{name}": wape(came[:, hours], mean[:, hours])
            for lead, hours in LEADS.items()
            for method, mean in found.items()
        }
    for lead in LEADS:
        own, median, *others = (
            np.array([figures[f"panel_{lead}_wape_{method}_{name}"] for name in SERIES])
            for method in (DEFAULT, "median", *METHODS)
        )
        figures[f"panel_{lead}_ratio_to_best"] = float(np.max(own / np.min(others, axis=0)))
        figures[f"panel_{lead}_ratio_to_median"] = float(np.max(own / median))
    return figures | {f"panel_milliseconds_{method}": 1000 * spent[method] / fits for method in METHODS}


def _makers() -> dict[str, Callable[[], Any]]:
    try:
        from statsforecast.models import MSTL, AutoCES, AutoETS, DynamicOptimizedTheta
    except ImportError as error:
        raise Skipped(INSTALL) from error
    return {
        "ets": lambda: AutoETS(season_length=DAY),
        "ces": lambda: AutoCES(season_length=DAY),
        "theta": lambda: DynamicOptimizedTheta(season_length=DAY),
        "mstl": lambda: MSTL(season_length=DAY),
    }


def hourly_series() -> dict[str, Held]:
    """The shared series by the hour, a day ahead from every hour."""
    if not DEMAND.exists():
        raise Skipped(f"{DEMAND} is not here")
    every, found = real_series(), {}
    for name in SERIES:
        demand, clock = every["azure_code_tuesday" if name == "azure_code" else name]
        hourly = demand.reshape(1, -1, clock.hour).mean(axis=-1)  # an hour with a gap is one
        found[name] = Held(hourly, BacktestClock(clock.first_cutoff // clock.hour, 1, DAY, DAY))
    return found


def forecast(maker: Callable[[], Any], past: Floats) -> Floats:
    """A day ahead, shape (24,); in logarithms for all, or errors of busy hours would rule the fit."""
    floor = FLOOR_SHARE * past.mean()
    logs: Floats = maker().forecast(y=np.log(past + floor), h=DAY)["mean"]
    return np.maximum(np.exp(logs) - floor, 0.0)


def filled(past: Floats) -> Floats:
    """The past without gaps: in them it goes on in a straight line."""
    known = np.flatnonzero(~np.isnan(past))
    return np.interp(np.arange(past.size), known, past[known])


FUNCTIONS = (panel,)
SMOKE = {"panel": {"SERIES": SERIES[:1], "EVERY": 60}}
