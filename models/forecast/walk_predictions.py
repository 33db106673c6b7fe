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

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.forecast import (
    ENSEMBLE_MEMBERS,
    FAR_RIVALS,
    FORECAST_METHODS,
    INTERMITTENT_MEMBERS,
    YOUNG_DAYS,
    YOUNG_MEMBERS,
    is_slow,
)
from fleetcast.models.forecast.backtest import (
    SERIES_PER_BATCH,
    BacktestClock,
    Walk,
    actual_demand,
    walk_forward,
)
from fleetcast.models.forecast.conformal import BASE_SHARE, RESIDUAL_WINDOW, calibrate_quantiles
from fleetcast.models.forecast.ensemble import (
    SeriesKinds,
    choose_member,
    describe_members,
    describe_parts,
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


class Parts(NamedTuple):
    """Series that add up to other series, such as the apps of an endpoint."""

    demand: Floats  # rate, shape (parts, buckets), nan where unknown
    of_sum: Ints  # index of the sum of each part, shape (parts,)


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
    demand: Floats,
    walks: Mapping[str, Walk],
    clock: BacktestClock,
    names: Iterable[str],
    by_parts: Mapping[str, Floats] | None = None,
) -> dict[str, Prediction]:
    """Calibrate and combine walks.

    demand : rate per bucket as given to the walks, shape (series, buckets), nan where unknown
    walks : by method, each made with the clock of `warm_up_clock`
    clock : the requested cutoffs
    names : methods, and ensembles whose members are among the walks
    by_parts : by ensemble, a second forecast of each series: the sum of its parts (`sum_part_forecasts`)
    """
    names, predictions, by_parts = list(names), {}, by_parts or {}
    if len(demand) > SERIES_PER_BATCH:
        return _predict_in_batches(demand, walks, clock, names, by_parts)
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
            mean, weights = _combine_members(name, demand, walks, earlier)
            reasons, fallbacks = describe_members(weights[:, :, late], members), np.full(fallbacks.shape, "")
            if name in by_parts:
                mean, share = _weigh_parts(mean, by_parts[name], actual, clock)
                reasons = describe_parts(reasons, share[:, late])
            # Errors before the weights had any loss to learn from are not typical of the ensemble.
            for ahead, lag in enumerate(clock.lags):
                actual[:, :lag, ahead * clock.hour : (ahead + 1) * clock.hour] = np.nan
        of_buckets, of_peaks = calibrate_quantiles(mean, actual, level, highest, clock.lags, clock.hour)
        predictions[name] = Prediction(
            mean[:, late], of_buckets[:, late], of_peaks[:, late], fallbacks[:, late], reasons
        )
    return predictions


def sum_part_forecasts(
    parts: Parts, phase: Ints, factor: Floats, clock: BacktestClock, names: Iterable[str]
) -> dict[str, Floats]:
    """Forecast the parts of sums by ensembles, and add them up; rates by ensemble.

    phase, factor : of the sums, as in `walk_forward`; a part has those of its sum
    clock : the requested cutoffs. The results begin at those of `warm_up_clock`.

    Returns: shape (sums, cutoffs, horizon) each; nan for a sum without parts.
    """
    earlier = warm_up_clock(clock, ENSEMBLE_MEMBERS[0])
    shape = len(phase), len(earlier.cutoffs(parts.demand.shape[1])), clock.horizon
    found = {name: np.full(shape, np.nan) for name in names if name in ENSEMBLES}
    for start in range(0, len(parts.demand) if found else 0, SERIES_PER_BATCH):
        of_sum = parts.of_sum[start : start + SERIES_PER_BATCH]
        demand = parts.demand[start : start + SERIES_PER_BATCH]
        walks = {m: walk_forward(demand, m, earlier, phase[of_sum], factor[of_sum]) for m in ENSEMBLE_MEMBERS}
        for name, total in found.items():
            mean, _ = _combine_members(name, demand, walks, earlier)
            total[of_sum] = np.nan_to_num(total[of_sum])
            np.add.at(total, of_sum, mean)
    return found


def _combine_members(
    name: str, demand: Floats, walks: Mapping[str, Walk], clock: BacktestClock
) -> tuple[Floats, Floats]:
    """Return an ensemble's mean, shape (series, cutoffs, horizon), and the weights of its members.

    `clock` is that of the walks.
    """
    means = np.array([walks[member].mean for member in ENSEMBLE_MEMBERS])
    level, _ = _known_rates(demand, clock)
    weights = _weights(name, demand, clock, means, actual_demand(demand, clock), level)
    return np.einsum("msch,msch->sch", _of_buckets(weights, clock), means), weights


def _weigh_parts(
    mean: Floats, by_parts: Floats, actual: Floats, clock: BacktestClock
) -> tuple[Floats, Floats]:
    """Return the mean of two forecasts, weighted by their recent errors, and the weight of the second.

    Forecasts and `actual` are rates, shape (series, cutoffs, horizon); the weight has the shape (series,
    cutoffs, hours). It is 0 where `by_parts` is nan.
    """
    has_parts = ~np.isnan(by_parts[:, 0, 0])
    both = np.array([mean, by_parts])[:, has_parts]
    error = np.array([hourly_errors(each, actual[has_parts], clock.hour) for each in both])
    never, always = np.zeros(2, np.bool_), np.ones(error.shape[1:3], np.bool_)
    equal = SeriesKinds(never, always, 0, never, ~always, np.full(2, -1))
    weights = ensemble_weights(error, np.ones(always.shape), clock.lags, weight_by_loss, equal)
    mean, share = mean.copy(), np.zeros((*mean.shape[:2], len(clock.lags)))
    mean[has_parts] = np.einsum("msch,msch->sch", _of_buckets(weights, clock), both)
    share[has_parts] = weights[1]
    return mean, share


def _of_buckets(weights: Floats, clock: BacktestClock) -> Floats:
    """Return weights of hours ahead, on the last axis, as weights of buckets."""
    return np.repeat(weights, clock.hour, axis=-1)[..., : clock.horizon]


def _predict_in_batches(
    demand: Floats,
    walks: Mapping[str, Walk],
    clock: BacktestClock,
    names: list[str],
    by_parts: Mapping[str, Floats],
) -> dict[str, Prediction]:
    """Predict in batches of SERIES_PER_BATCH series, which bounds the memory, and concatenate them."""
    parts = []
    for start in range(0, len(demand), SERIES_PER_BATCH):
        batch = slice(start, start + SERIES_PER_BATCH)
        walked = {method: Walk(mean[batch], reason[batch]) for method, (mean, reason) in walks.items()}
        summed = {name: mean[batch] for name, mean in by_parts.items()}
        parts.append(predict_from_walks(demand[batch], walked, clock, names, summed))
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
