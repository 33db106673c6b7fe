"""Demand factors of known events: from the calendar at first, learnt once an event has occurred.

An occurrence of factor f that covers the share s of a bucket makes its demand usual * (1 + (f - 1) * s).
The factor is learnt from all earlier occurrences of the same name that ended at least `lead` buckets before
this one begins, so that every forecast of this one has seen them. The usual demand is the mean of the same
time of the week so far, else of the same time of the day, over buckets without events.
"""

from collections.abc import Sequence

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.world.calendar import Occurrence

MOST_FACTOR = 20.0  # learnt factors are 1 / MOST_FACTOR .. MOST_FACTOR: one empty hour proves little


def event_demand_factors(
    occurrences: Sequence[Occurrence], demand: Floats, phase: Ints, season: int, lead: int
) -> Floats:
    """Return the demand factor of each bucket of one series, shape (buckets + horizon,).

    occurrences : in order of time
    demand : rate per bucket, nan where unknown, shape (buckets,)
    phase : bucket of the week of each bucket, shape (buckets + horizon,)
    season : buckets of a day
    lead : number of buckets from a cutoff to the end of its horizon
    """
    factors, is_plain = np.ones(phase.size), np.ones(demand.size, np.bool_)
    for event in occurrences:
        is_plain[event.first : _end(event)] = False
    plain = np.where(is_plain, demand, np.nan)
    for event in occurrences:
        end = event.first - lead
        before = [other for other in occurrences if other.name == event.name and _end(other) <= end]
        learnt = _learnt_factor(before, demand, plain, phase, season)
        factor = event.factor if learnt is None else learnt
        factors[event.first : _end(event)] *= 1 + (factor - 1) * event.share
    return factors


def _end(event: Occurrence) -> int:
    return event.first + event.share.size


def _learnt_factor(
    before: Sequence[Occurrence], demand: Floats, plain: Floats, phase: Ints, season: int
) -> float | None:
    """Return the common factor of these occurrences; None where their usual demand is unknown or zero.

    `demand` and `plain`, the demand without events, are rates, nan where unknown, both (buckets,).
    """
    more = usual_within = 0.0
    for event in before:
        within = slice(event.first, _end(event))
        usual = np.array([
            _usual(plain[: event.first], phase, at, season) for at in range(within.start, within.stop)
        ])  # fmt: skip
        known = ~np.isnan(demand[within] + usual)
        more += float((demand[within] - usual)[known].sum())
        usual_within += float((usual * event.share)[known].sum())
    if usual_within <= 0:
        return None
    return float(np.clip(1 + more / usual_within, 1 / MOST_FACTOR, MOST_FACTOR))


def _usual(plain: Floats, phase: Ints, at: int, season: int) -> float:
    """Return the mean rate at the phase of bucket `at`: of the week, else of the day; nan where unknown.

    `plain` is the rate without events, shape (buckets,).
    """
    behind = phase[: plain.size]
    for is_same in (behind == phase[at], behind % season == phase[at] % season):
        known = plain[is_same & ~np.isnan(plain)]
        if known.size:
            return float(known.mean())
    return float("nan")
