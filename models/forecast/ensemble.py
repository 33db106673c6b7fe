"""Combine methods by how they have done lately; an aperiodic series ends up with a robust one.

Per series and per hour ahead: who is best for the next hour is seldom best for the same hour tomorrow.

weighted  the mean of all members, each with the weight (least loss / its loss) ** SHARPNESS
choice    the one member of the least loss; another one takes over only when it is clearly better

When a level breaks, what was learnt of the members is forgotten: when the next hour has been off by far twice
running while a member was near. A week from then on the series counts as young.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats

HALF_LIFE = 48  # cutoffs after which a loss counts half
SHARPNESS = 8.0
HYSTERESIS = 0.05  # a newcomer's loss must be lower by this share
BREAK_RATIO = 2.5  # an error above this multiple of the usual one is off by far
NEAR_RATIO = 0.6  # a member whose error is below this share of the ensemble's was near
SETTLING = 24  # cutoffs after a break before there can be another
TINY_LOSS = 1e-12  # next to any loss
NAMED_SHARE = 0.10  # smaller weights are not told

WeightRule = Callable[
    [Floats, Floats], Floats
]  # (losses, weights before) -> weights, all (members, series, hours)


class SeriesKinds(NamedTuple):
    """Which members count in some series only, and which series those are."""

    young_members: NDArray[np.bool_]  # shape (members,)
    is_young: NDArray[np.bool_]  # as they began not long ago, shape (series, cutoffs)
    young_cutoffs: int  # that a series stays young after a break
    intermittent_members: NDArray[np.bool_]  # the only ones that count there, shape (members,)
    is_intermittent: NDArray[np.bool_]  # shape (series, cutoffs)


def hourly_errors(mean: Floats, actual: Floats, hour: int) -> Floats:
    """Mean absolute error of each hour ahead, shape (series, cutoffs, hours); nan where nothing is known.

    That is twice the pinball loss of the forecast as a median: what calibration repairs does not count.
    `mean` and `actual` (nan where unknown) have the shape (series, cutoffs, horizon).
    """
    first = np.arange(0, mean.shape[2], hour)
    known = ~np.isnan(actual)
    total = np.add.reduceat(np.where(known, np.abs(actual - mean), 0.0), first, axis=2)
    count = np.add.reduceat(known.astype(np.float64), first, axis=2)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def ensemble_weights(
    error: Floats, unit: Floats, lags: Sequence[int], rule: WeightRule, kinds: SeriesKinds
) -> Floats:
    """The weights of the members at each cutoff, from the errors that are known by then.

    Parameters
    ----------
    error
        Of `hourly_errors`, shape (members, series, cutoffs, hours); the weights have the same shape.
    unit
        By which an error of the first hour ahead is compared with another, shape (series, cutoffs).
    lags
        For each hour ahead, how many cutoffs later it can be judged.
    """
    members, series, cutoffs, hours = error.shape
    memory = _Memory(members, series, hours)
    weights = np.zeros(error.shape)
    before = np.zeros((members, series, hours))
    before[0] = 1.0
    for now in range(cutoffs):
        for ahead, lag in enumerate(lags):
            if now >= lag:
                memory.add(error[:, :, now - lag, ahead], ahead, now - lag)
        if now >= lags[0]:
            judged = now - lags[0]
            is_young = kinds.is_young[:, judged]
            memory.watch(error[:, :, judged, 0], weights[:, :, judged, 0], unit[:, judged], is_young, judged)
        recent = memory.losses()
        is_old = ~kinds.is_young[:, now] & (now - memory.broken_at > kinds.young_cutoffs)
        recent[kinds.young_members[:, None] & is_old] = np.inf
        recent[kinds.intermittent_members[:, None] != kinds.is_intermittent[:, now]] = np.inf
        weights[:, :, now] = before = rule(recent, before)
    return weights


class _Memory:
    """Discounted losses of each member, series and hour ahead, and what is usual for the ensemble."""

    def __init__(self, members: int, series: int, hours: int) -> None:
        self.total, self.count = np.zeros((members, series, hours)), np.zeros((series, hours))
        self.until_break = np.full((members, series, hours), np.nan)
        self.broken_at = np.full(series, -np.inf)  # the cutoff of the first forecast that counts since then
        self.usual_total, self.usual_count = np.zeros((members, series)), np.zeros(series)
        self.was_far = np.zeros(series, np.bool_)

    def add(self, error: Floats, ahead: int, cutoff: int) -> None:
        """Count the errors (members, series) that the forecasts of a cutoff made so many hours ahead."""
        is_new = ~np.isnan(error[0]) & (cutoff >= self.broken_at)
        keep = np.where(is_new, 0.5 ** (1 / HALF_LIFE), 1.0)
        self.total[:, :, ahead] = keep * self.total[:, :, ahead] + np.where(is_new, error, 0.0)
        self.count[:, ahead] = keep * self.count[:, ahead] + is_new

    def watch(
        self, error: Floats, weights: Floats, unit: Floats, is_young: NDArray[np.bool_], cutoff: int
    ) -> None:
        """Forget the losses of series that are not young and whose level broke at this cutoff.

        `error` and `weights` (members, series) of its first hour ahead; errors are compared in the `unit`. A
        member begins anew with the error that it has just made, or its usual one where that is larger.
        """
        known, far = ~np.isnan(error[0]), error / unit
        usual = self.usual_total / np.maximum(self.usual_count, TINY_LOSS)
        own, own_usual = (weights * far).sum(axis=0), (weights * usual).sum(axis=0)
        is_far = (self.usual_count > 1) & (own > BREAK_RATIO * own_usual)
        is_settled = ~is_young & (cutoff - self.broken_at > SETTLING)
        has_broken = is_settled & is_far & self.was_far & (far.min(axis=0) < NEAR_RATIO * own)
        self.was_far = np.where(known, is_far, self.was_far)
        if has_broken.any():
            self.until_break[:, has_broken] = self.losses()[:, has_broken]
            self.total[:, has_broken], self.count[has_broken] = 0.0, 0.0
            self.total[:, has_broken, 0] = (unit * np.maximum(far, usual))[:, has_broken]
            self.count[has_broken, 0] = 1.0
            self.broken_at[has_broken] = cutoff
        keep = np.where(known, 0.5 ** (1 / HALF_LIFE), 1.0)
        self.usual_total = keep * self.usual_total + np.where(known, far, 0.0)
        self.usual_count = keep * self.usual_count + known

    def losses(self) -> Floats:
        """Discounted mean errors, nan where none is known.

        An hour that nobody could judge yet has the loss of the hour before it. One that was judged before a
        break has what it had then, times by how much the hour before it got worse.
        """
        found = np.where(self.count > 0, self.total / np.maximum(self.count, TINY_LOSS), np.nan)
        for ahead in range(1, found.shape[2]):
            nearer, then = found[:, :, ahead - 1], self.until_break
            worse = (nearer + TINY_LOSS) / (then[:, :, ahead - 1] + TINY_LOSS)
            guess = np.where(np.isnan(then[:, :, ahead] * worse), nearer, then[:, :, ahead] * worse)
            found[:, :, ahead] = np.where(self.count[:, ahead] > 0, found[:, :, ahead], guess)
        return found


def weight_by_loss(recent: Floats, before: Floats) -> Floats:
    """Weights by recent loss; without any, the first member's."""
    least = recent.min(axis=0) + TINY_LOSS
    weights = (least / (recent + TINY_LOSS)) ** SHARPNESS
    first = np.zeros_like(weights)
    first[0] = 1.0
    weights = np.where(np.isnan(least), first, weights)
    return weights / weights.sum(axis=0)


def choose_member(recent: Floats, before: Floats) -> Floats:
    """Weights of 0 and 1: the member chosen, with hysteresis; the first one to begin with."""
    losses = np.where(np.isnan(recent), np.inf, recent)
    chosen = before.argmax(axis=0)[None]
    best = losses.argmin(axis=0)[None]
    lowest, own = (np.take_along_axis(losses, at, axis=0) + TINY_LOSS for at in (best, chosen))
    weights = np.zeros(recent.shape)
    np.put_along_axis(weights, np.where(lowest < (1 - HYSTERESIS) * own, best, chosen), 1.0, axis=0)
    return weights


def describe_members(weights: Floats, names: Sequence[str]) -> NDArray[np.str_]:
    """Who made each forecast, in words, the heaviest first; `weights` (members, series, cutoffs, hours)."""

    def words(shares: Floats) -> str:
        order = np.argsort(-shares, kind="stable")
        return ", ".join(f"{names[i]} {shares[i]:.0%}" for i in order if shares[i] >= NAMED_SHARE)

    _, series, cutoffs, _ = weights.shape
    of_all = weights.mean(axis=-1)
    said = [[words(of_all[:, i, k]) for k in range(cutoffs)] for i in range(series)]
    return np.array(said, dtype=np.str_).reshape(series, cutoffs)
