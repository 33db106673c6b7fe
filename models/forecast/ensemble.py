"""Ensembles: combine forecast methods by their recent losses, for each series and each hour ahead.

Hours ahead are separate because the best method for the next hour is seldom the best one for tomorrow.

weighted  the mean of all members, each with the weight (least loss / member's loss) ** SHARPNESS
choice    the member of least loss; another member replaces it only when it is clearly better

A far member counts only from FAR_HOURS ahead on, and only where its recent errors there are at most those of
its rival: a series whose days repeat and whose weeks do not is drawn to the day before, and a series with a
week is forecast as if the member did not exist.

When the level of a series breaks, the losses of its members are reset and the series counts as young for a
week. A break is two consecutive large errors of the ensemble for the next hour while a member's error was
small.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.forecast.conformal import FAR_HOURS

HALF_LIFE = 48  # cutoffs after which a loss counts half
SHARPNESS = 8.0
HYSTERESIS = 0.05  # the loss of a new choice must be lower by this share
BREAK_RATIO = 2.5  # an error above this multiple of the usual is large
NEAR_RATIO = 0.6  # a member's error below this share of the ensemble's is small
SETTLING = 24  # cutoffs after a break before another can follow
TINY_LOSS = 1e-12  # avoids division by zero
NAMED_SHARE = 0.10  # smaller weights are left out of descriptions

# (losses, weights before) -> weights, all (members, series, hours)
WeightRule = Callable[[Floats, Floats], Floats]


class SeriesKinds(NamedTuple):
    """Members that count only in some series or hours ahead, and which series these are."""

    young_members: NDArray[np.bool_]  # count in young series only, shape (members,)
    is_young: NDArray[np.bool_]  # began recently, shape (series, cutoffs)
    young_cutoffs: int  # cutoffs that a series stays young after a break
    intermittent_members: NDArray[np.bool_]  # the only members of intermittent series, shape (members,)
    is_intermittent: NDArray[np.bool_]  # shape (series, cutoffs)
    rival: Ints  # of each far member the member it is compared with, -1 for other members, shape (members,)


def hourly_errors(mean: Floats, actual: Floats, hour: int) -> Floats:
    """Return the mean absolute error of each hour ahead, shape (series, cutoffs, hours); nan where unknown.

    `mean` and `actual` (nan where unknown) are rates, shape (series, cutoffs, horizon). The error is twice
    the pinball loss of the forecast as a median; spread, which calibration corrects, does not count.
    """
    first = np.arange(0, mean.shape[2], hour)
    known = ~np.isnan(actual)
    total = np.add.reduceat(np.where(known, np.abs(actual - mean), 0.0), first, axis=2)
    count = np.add.reduceat(known.astype(np.float64), first, axis=2)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def ensemble_weights(
    error: Floats, unit: Floats, lags: Sequence[int], rule: WeightRule, kinds: SeriesKinds
) -> Floats:
    """Return the weights of the members at each cutoff, from the errors known by then.

    error : from `hourly_errors`, shape (members, series, cutoffs, hours); the weights have the same shape
    unit : rate by which errors of the first hour ahead are divided to compare cutoffs, shape (series,
        cutoffs)
    lags : for each hour ahead, the number of cutoffs after which it is known
    """
    members, series, cutoffs, hours = error.shape
    memory = _Memory(members, series, hours, kinds.rival < 0)
    weights = np.zeros(error.shape)
    before = np.zeros((members, series, hours))
    before[0] = 1.0
    for now in range(cutoffs):
        for ahead, lag in enumerate(lags):
            if now >= lag:
                memory.add(error[:, :, now - lag, ahead], ahead, now - lag)
        if now >= lags[0]:
            scored = now - lags[0]
            is_young = kinds.is_young[:, scored]
            memory.watch(error[:, :, scored, 0], weights[:, :, scored, 0], unit[:, scored], is_young, scored)
        recent = memory.losses()
        is_old = ~kinds.is_young[:, now] & (now - memory.broken_at > kinds.young_cutoffs)
        recent[_idle_far_members(recent, kinds.rival)] = np.inf
        recent[kinds.young_members[:, None] & is_old] = np.inf
        recent[kinds.intermittent_members[:, None] != kinds.is_intermittent[:, now]] = np.inf
        weights[:, :, now] = before = rule(recent, before)
    return weights


def _idle_far_members(recent: Floats, rival: Ints) -> NDArray[np.bool_]:
    """Return which losses of far members do not count; both (members, series, hours), `rival` (members,)."""
    is_idle = np.zeros(recent.shape, np.bool_)
    for member in np.flatnonzero(rival >= 0):
        own, other = (recent[each, :, FAR_HOURS:].sum(axis=1) for each in (member, rival[member]))
        is_idle[member] = ~(own <= other)[:, None]
        is_idle[member, :, :FAR_HOURS] = True
    return is_idle


class _Memory:
    """Discounted losses of each member, series and hour ahead, and the usual errors of the next hour."""

    def __init__(self, members: int, series: int, hours: int, is_near: NDArray[np.bool_]) -> None:
        self.is_near = is_near  # members that count in the first hour ahead, shape (members,)
        self.total, self.count = np.zeros((members, series, hours)), np.zeros((series, hours))
        self.until_break = np.full((members, series, hours), np.nan)
        self.broken_at = np.full(series, -np.inf)  # first cutoff whose forecasts count after the latest break
        self.usual_total, self.usual_count = np.zeros((members, series)), np.zeros(series)
        self.was_far = np.zeros(series, np.bool_)

    def add(self, error: Floats, ahead: int, cutoff: int) -> None:
        """Add the errors, shape (members, series), of the forecasts at `cutoff` for this hour ahead."""
        is_new = ~np.isnan(error[0]) & (cutoff >= self.broken_at)
        keep = np.where(is_new, 0.5 ** (1 / HALF_LIFE), 1.0)
        self.total[:, :, ahead] = keep * self.total[:, :, ahead] + np.where(is_new, error, 0.0)
        self.count[:, ahead] = keep * self.count[:, ahead] + is_new

    def watch(
        self, error: Floats, weights: Floats, unit: Floats, is_young: NDArray[np.bool_], cutoff: int
    ) -> None:
        """Reset the losses of series that are not young and whose level broke at this cutoff.

        A member restarts with its latest error, or with its usual error where that is larger.

        error, weights : of the first hour ahead, shape (members, series)
        unit : rate by which errors are divided, shape (series,)
        is_young : shape (series,)
        """
        known, relative = ~np.isnan(error[0]), error / unit
        usual = self.usual_total / np.maximum(self.usual_count, TINY_LOSS)
        ensemble, ensemble_usual = (weights * relative).sum(axis=0), (weights * usual).sum(axis=0)
        is_far = (self.usual_count > 1) & (ensemble > BREAK_RATIO * ensemble_usual)
        can_break = ~is_young & (cutoff - self.broken_at > SETTLING)
        least = relative[self.is_near].min(axis=0)
        has_broken = can_break & is_far & self.was_far & (least < NEAR_RATIO * ensemble)
        self.was_far = np.where(known, is_far, self.was_far)
        if has_broken.any():
            self.until_break[:, has_broken] = self.losses()[:, has_broken]
            self.total[:, has_broken], self.count[has_broken] = 0.0, 0.0
            self.total[:, has_broken, 0] = (unit * np.maximum(relative, usual))[:, has_broken]
            self.count[has_broken, 0] = 1.0
            self.broken_at[has_broken] = cutoff
        keep = np.where(known, 0.5 ** (1 / HALF_LIFE), 1.0)
        self.usual_total = keep * self.usual_total + np.where(known, relative, 0.0)
        self.usual_count = keep * self.usual_count + known

    def losses(self) -> Floats:
        """Return discounted mean errors, shape (members, series, hours), nan where none is known.

        An hour ahead without errors has the loss of the hour before it. One that had errors before a break
        has its loss from then, scaled by how much the hour before it got worse.
        """
        losses = np.where(self.count > 0, self.total / np.maximum(self.count, TINY_LOSS), np.nan)
        for ahead in range(1, losses.shape[2]):
            nearer, then = losses[:, :, ahead - 1], self.until_break
            scaled = then[:, :, ahead] * ((nearer + TINY_LOSS) / (then[:, :, ahead - 1] + TINY_LOSS))
            guess = np.where(np.isnan(scaled), nearer, scaled)
            losses[:, :, ahead] = np.where(self.count[:, ahead] > 0, losses[:, :, ahead], guess)
        return losses


def weight_by_loss(recent: Floats, before: Floats) -> Floats:
    """Weight members by recent loss, all (members, series, hours); without losses, the first member alone."""
    least = recent.min(axis=0) + TINY_LOSS
    weights = (least / (recent + TINY_LOSS)) ** SHARPNESS
    first = np.zeros_like(weights)
    first[0] = 1.0
    weights = np.where(np.isnan(least), first, weights)
    return weights / weights.sum(axis=0)


def choose_member(recent: Floats, before: Floats) -> Floats:
    """Choose one member with weights 0 and 1, all (members, series, hours), with hysteresis.

    The first member is chosen at the start.
    """
    losses = np.where(np.isnan(recent), np.inf, recent)
    chosen = before.argmax(axis=0)[None]
    best = losses.argmin(axis=0)[None]
    lowest, current = (np.take_along_axis(losses, at, axis=0) + TINY_LOSS for at in (best, chosen))
    weights = np.zeros(recent.shape)
    np.put_along_axis(weights, np.where(lowest < (1 - HYSTERESIS) * current, best, chosen), 1.0, axis=0)
    return weights


def describe_members(weights: Floats, names: Sequence[str]) -> NDArray[np.str_]:
    """Describe the members of each forecast in words, the heaviest first, shape (series, cutoffs).

    `weights` has the shape (members, series, cutoffs, hours).
    """

    def words(shares: Floats) -> str:
        order = np.argsort(-shares, kind="stable")
        return ", ".join(f"{names[i]} {shares[i]:.0%}" for i in order if shares[i] >= NAMED_SHARE)

    _, series, cutoffs, _ = weights.shape
    mean = weights.mean(axis=-1)
    described = [[words(mean[:, i, k]) for k in range(cutoffs)] for i in range(series)]
    return np.array(described, dtype=np.str_).reshape(series, cutoffs)


def describe_parts(reasons: NDArray[np.str_], share: Floats) -> NDArray[np.str_]:
    """Add the weight of the sum of the parts, shape (series, cutoffs, hours), to the reasons of forecasts."""
    mean = share.mean(axis=-1)
    words = [
        f"{text}; {part:.0%} from its parts" if part >= NAMED_SHARE else text
        for text, part in zip(reasons.ravel().tolist(), mean.ravel().tolist(), strict=True)
    ]
    return np.array(words, dtype=np.str_).reshape(mean.shape)
