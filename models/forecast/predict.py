"""From walks to what a plan needs: means, quantiles, those of each hour's maximum, and who made them.

    walks = {method: walk(demand, method, warm(clock, method)) for method in walked(names)}
    predictions(demand, walks, clock, names)["weighted"].peak_quantiles

Every walk begins before the first cutoff that is asked for, so that there are errors to learn from by then.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.forecast import ENSEMBLES, MEMBERS, METHODS, SLOW
from models.forecast.backtest import CEILING, Clock, Walk, actuals
from models.forecast.conformal import WINDOW, quantiles
from models.forecast.ensemble import choice, recent_loss, told, weighted
from models.forecast.method import Floats, highest_of, level_of
from models.world.reading import require_known

SLOW_CUTOFFS = 24  # of which the errors of a slow method are known: another day of fits
WEIGHTS = dict(zip(ENSEMBLES, (weighted, choice), strict=True))


class Prediction(NamedTuple):
    """What one method predicts at every cutoff asked for, in the unit of the demand."""

    mean: Floats  # (series, cutoffs, horizon)
    quantiles: Floats  # at conformal.LEVELS, (series, cutoffs, horizon, levels)
    peak_quantiles: Floats  # of the maximum of each whole hour ahead, (series, cutoffs, hours, levels)
    fallbacks: NDArray[np.str_]  # which method answered instead and why, (series, cutoffs); "" if none
    reasons: NDArray[np.str_]  # whom an ensemble listened to, (series, cutoffs); "" for single methods


def walked(names: Iterable[str]) -> list[str]:
    """The single methods that have to be walked for these names; ValueError for an unknown one."""
    needed: dict[str, None] = {}
    for name in names:
        require_known(name, (*METHODS, *ENSEMBLES), "forecast method", "forecast")
        needed |= dict.fromkeys(MEMBERS if name in ENSEMBLES else (name,))
    return list(needed)


def warm(clock: Clock, method: str) -> Clock:
    """The clock of a method's walk, which begins as much earlier as its errors are counted back."""
    return clock.earlier((SLOW_CUTOFFS if method in SLOW else WINDOW) + clock.lag)


def predictions(
    demand: Floats, walks: Mapping[str, Walk], clock: Clock, names: Iterable[str]
) -> dict[str, Prediction]:
    """Calibrate and combine walks that were made with the clocks of `warm`.

    `demand` and `clock` are those of the walks, `names` may have ensembles whose members are among them.
    """
    found = {}
    for name in names:
        members = MEMBERS if name in ENSEMBLES else (name,)
        begun = warm(clock, members[0])
        actual = actuals(demand, begun)
        mean, fallbacks = walks[members[0]]
        reasons = np.full(fallbacks.shape, "")
        if name in ENSEMBLES:
            means = np.array([walks[member].mean for member in members])
            recent = np.array([recent_loss(each, actual, clock.lag) for each in means])
            weights = WEIGHTS[name](recent)
            mean = np.einsum("msc,msch->sch", weights, means)
            reasons, fallbacks = told(weights, members), reasons
            actual[:, : clock.lag] = np.nan  # no member had been judged by then: not errors of the ensemble
        level, highest = _seen(demand, begun)
        of_buckets, of_peaks = quantiles(mean, actual, level, CEILING * highest, clock.lag, clock.hour)
        late = slice(mean.shape[1] - len(clock.cutoffs(demand.shape[1])), None)
        found[name] = Prediction(
            mean[:, late], of_buckets[:, late], of_peaks[:, late], fallbacks[:, late], reasons[:, late]
        )
    return found


def _seen(demand: Floats, clock: Clock) -> tuple[Floats, Floats]:
    """The mean and the highest of what each cutoff knows, both of shape (series, cutoffs)."""
    level, highest = np.empty((2, len(demand), len(clock.cutoffs(demand.shape[1]))))
    for now, end in enumerate(clock.cutoffs(demand.shape[1])):
        level[:, now], highest[:, now] = level_of(demand[:, :end])[:, 0], highest_of(demand[:, :end])
    return level, highest
