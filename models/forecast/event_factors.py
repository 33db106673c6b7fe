"""What known events multiply demand by: as the calendar says, and from their first occurrence on as they did.

The factor f of an occurrence that covers the share s of a bucket makes its demand usual * (1 + (f - 1) * s).
It is learnt from all earlier occurrences of the same name, each of which ended a lead before this one begins:
whatever forecasts this one has seen those. The usual is the mean of the same time of the week so far, else of
the day, without any event.
"""

from collections.abc import Sequence

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.world.calendar import Occurrence

MOST_FACTOR = 20.0  # learnt, and one over it: an hour that nobody asked in says nothing


def event_demand_factors(
    occurrences: Sequence[Occurrence], demand: Floats, phase: Ints, season: int, lead: int
) -> Floats:
    """The factor of each bucket of one series, shape (buckets + horizon,), as `phase`.

    Parameters
    ----------
    occurrences
        In order of time.
    demand
        Rate per bucket, nan where it is not known, shape (buckets,).
    lead
        Buckets that the farthest forecast lies ahead.
    """
    found, is_plain = np.ones(phase.size), np.ones(demand.size, np.bool_)
    for one in occurrences:
        is_plain[one.first : one.first + one.share.size] = False
    for one in occurrences:
        end = one.first - lead
        before = [other for other in occurrences if other.name == one.name and _end(other) <= end]
        learnt = _learnt(before, demand, np.where(is_plain, demand, np.nan), phase, season)
        factor = one.factor if learnt is None else learnt
        found[one.first : _end(one)] *= 1 + (factor - 1) * one.share
    return found


def _end(one: Occurrence) -> int:
    return one.first + one.share.size


def _learnt(
    before: Sequence[Occurrence], demand: Floats, plain: Floats, phase: Ints, season: int
) -> float | None:
    """The factor that these had together; None where nothing tells."""
    more = usual_within = 0.0
    for one in before:
        own = slice(one.first, _end(one))
        usual = np.array([_usual(plain[: one.first], phase, at, season) for at in range(own.start, own.stop)])
        known = ~np.isnan(demand[own] + usual)
        more += float((demand[own] - usual)[known].sum())
        usual_within += float((usual * one.share)[known].sum())
    return (
        None if usual_within <= 0 else float(np.clip(1 + more / usual_within, 1 / MOST_FACTOR, MOST_FACTOR))
    )


def _usual(plain: Floats, phase: Ints, at: int, season: int) -> float:
    """The mean of what is known of the same time of the week, else of the day; nan where nothing is."""
    behind = phase[: plain.size]
    for is_same in (behind == phase[at], behind % season == phase[at] % season):
        known = plain[is_same & ~np.isnan(plain)]
        if known.size:
            return float(known.mean())
    return float("nan")
