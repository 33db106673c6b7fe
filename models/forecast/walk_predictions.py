"""Turn walks into predictions for a plan: means, quantiles, quantiles of each hour's maximum, and reasons.

    walks = {
        method: walk_forward(demand, method, warm_up_clock(clock, method))
        for method in methods_to_walk(names)
    }
    predict_from_walks(demand, walks, clock, names)["weighted"].peak_quantiles

Every walk begins before the first requested cutoff, so that there are errors to learn from by then.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats
from fleetcast.models.forecast import (
    ENSEMBLE_MEMBERS,
    FAR_RIVALS,
    FORECAST_METHODS,
    INTERMITTENT_MEMBERS,
    YOUNG_DAYS,
    YOUNG_MEMBERS,
    is_slow,
)
from fleetcast.models.forecast.backtest import SERIES_PER_BATCH, BacktestClock, Walk, actual_demand
from fleetcast.models.forecast.conformal import BASE_SHARE, RESIDUAL_WINDOW, calibrate_quantiles
from fleetcast.models.forecast.ensemble import (
    SeriesKinds,
    choose_member,
    describe_members,
    ensemble_weights,
    hourly_errors,
    weight_by_loss,
)
from fleetcast.models.forecast.intermittent import is_intermittent
from fleetcast.models.world.option_names import ENSEMBLES
from fleetcast.models.world.own_forecasts import installed_forecasts
from fleetcast.models.world.toml_dataclasses import require_known

SLOW_CUTOFFS = 23  # warm-up cutoffs of a slow method: with the lag of an hour, the fits of one more day
ENSEMBLE_RULES = dict(zip(ENSEMBLES, (weight_by_loss, choose_member), strict=True))


class Prediction(NamedTuple):
    """The predictions of one method at every requested cutoff, in the unit of the demand."""

    mean: Floats  # (series, cutoffs, horizon)
    quantiles: Floats  # at QUANTILE_LEVELS, (series, cutoffs, horizon, levels)
    peak_quantiles: Floats  # of the maximum of each whole hour ahead, (series, cutoffs, hours, levels)
    fallbacks: NDArray[np.str_]  # the method used instead and why, (series, cutoffs); "" where none
    reasons: NDArray[np.str_]  # members of an ensemble and their weights, (series, cutoffs); else ""


def methods_to_walk(names: Iterable[str]) -> list[str]:
    """Return the single methods that must be walked for these names; ValueError for an unknown name."""
    needed: dict[str, None] = {}
    for name in names:
        if name not in (*FORECAST_METHODS, *ENSEMBLES):
            require_known(
                name, (*FORECAST_METHODS, *ENSEMBLES, *installed_forecasts()), "forecast method", "forecast"
            )
        needed |= dict.fromkeys(ENSEMBLE_MEMBERS if name in ENSEMBLES else (name,))
    return list(needed)


def warm_up_clock(clock: BacktestClock, method: str) -> BacktestClock:
    """Return the clock of a method's walk, which begins earlier by the cutoffs whose errors are used."""
    return clock.earlier((SLOW_CUTOFFS if is_slow(method) else RESIDUAL_WINDOW) + clock.lag)


def predict_from_walks(
    demand: Floats, walks: Mapping[str, Walk], clock: BacktestClock, names: Iterable[str]
) -> dict[str, Prediction]:
    """Calibrate and combine walks.

    Parameters
    ----------
    demand
        Rate per bucket as given to the walks, shape (series, buckets), nan where unknown.
    walks
        By method, each made with the clock of `warm_up_clock`.
    clock
        The requested cutoffs.
    names
        Methods, and ensembles whose members are among the walks.
    """
    names, predictions = list(names), {}
    if len(demand) > SERIES_PER_BATCH:
        return _predict_in_batches(demand, walks, clock, names)
    requested = len(clock.cutoffs(demand.shape[1]))
    for name in names:
        members = ENSEMBLE_MEMBERS if name in ENSEMBLES else (name,)
        earlier = warm_up_clock(clock, members[0])
        actual = actual_demand(demand, earlier)
        level, highest = _known_rates(demand, earlier)
        mean, fallbacks = walks[members[0]]
        late = slice(mean.shape[1] - requested, None)
        reasons = np.full((len(mean), requested), "")
        if name in ENSEMBLES:
            means = np.array([walks[member].mean for member in members])
            weights = _weights(name, demand, earlier, means, actual, level)
            each_bucket = np.repeat(weights, clock.hour, axis=-1)[..., : clock.horizon]
            mean = np.einsum("msch,msch->sch", each_bucket, means)
            reasons, fallbacks = describe_members(weights[:, :, late], members), np.full(fallbacks.shape, "")
            # Errors before the weights had any loss to learn from are not typical of the ensemble.
            for ahead, lag in enumerate(clock.lags):
                actual[:, :lag, ahead * clock.hour : (ahead + 1) * clock.hour] = np.nan
        of_buckets, of_peaks = calibrate_quantiles(mean, actual, level, highest, clock.lags, clock.hour)
        predictions[name] = Prediction(
            mean[:, late], of_buckets[:, late], of_peaks[:, late], fallbacks[:, late], reasons
        )
    return predictions


def _predict_in_batches(
    demand: Floats, walks: Mapping[str, Walk], clock: BacktestClock, names: list[str]
) -> dict[str, Prediction]:
    """Predict in batches of SERIES_PER_BATCH series, which bounds the memory, and concatenate them."""
    parts = []
    for start in range(0, len(demand), SERIES_PER_BATCH):
        batch = slice(start, start + SERIES_PER_BATCH)
        walked = {method: Walk(mean[batch], reason[batch]) for method, (mean, reason) in walks.items()}
        parts.append(predict_from_walks(demand[batch], walked, clock, names))
    together = {name: zip(*(part[name] for part in parts), strict=True) for name in names}
    return {
        name: Prediction(*(np.concatenate(field) for field in fields)) for name, fields in together.items()
    }


def _weights(
    name: str, demand: Floats, clock: BacktestClock, means: Floats, actual: Floats, level: Floats
) -> Floats:
    """Return the weights of an ensemble's members, shape (members, series, cutoffs, hours ahead).

    `means`, rates, has the shape (members, series, cutoffs, horizon), `actual` the same without members, and
    `level` (series, cutoffs).
    """
    error = np.array([hourly_errors(each, actual, clock.hour) for each in means])
    unit = actual[:, :, : clock.hour].mean(axis=2) + BASE_SHARE * level
    return ensemble_weights(error, unit, clock.lags, ENSEMBLE_RULES[name], classify_series(demand, clock))


def classify_series(demand: Floats, clock: BacktestClock) -> SeriesKinds:
    """Classify each series of `demand` (series, buckets), nan where unknown, at each cutoff.

    A series is young in the first YOUNG_DAYS after its first known bucket.
    """
    ends = np.array(clock.cutoffs(demand.shape[1]), dtype=np.int64)
    known = ~np.isnan(demand)
    first = np.where(known.any(axis=1), known.argmax(axis=1), demand.shape[1])
    buckets = YOUNG_DAYS * clock.season
    of_young, of_intermittent = (
        np.array([member in special for member in ENSEMBLE_MEMBERS])
        for special in (YOUNG_MEMBERS, INTERMITTENT_MEMBERS)
    )
    is_young, is_empty = ends - first[:, None] < buckets, is_intermittent(demand, clock.season)[:, ends]
    rival = np.array(
        [ENSEMBLE_MEMBERS.index(FAR_RIVALS[m]) if m in FAR_RIVALS else -1 for m in ENSEMBLE_MEMBERS]
    )
    return SeriesKinds(of_young, is_young, buckets // clock.every, of_intermittent, is_empty, rival)


def _known_rates(demand: Floats, clock: BacktestClock) -> tuple[Floats, Floats]:
    """Return the mean (1 where it is 0) and the highest rate known at each cutoff, both (series, cutoffs)."""
    ends = np.array(clock.cutoffs(demand.shape[1]), dtype=np.int64)
    known, edge = ~np.isnan(demand), ((0, 0), (1, 0))
    rate = np.where(known, demand, 0.0)
    total, count = (np.pad(np.cumsum(value, axis=1), edge)[:, ends] for value in (rate, known))
    mean = total / np.maximum(count, 1)
    return np.where(mean > 0, mean, 1.0), np.pad(np.maximum.accumulate(rate, axis=1), edge)[:, ends]
