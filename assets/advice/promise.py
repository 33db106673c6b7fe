"""Size scaling rules until they keep a promise, and choose the leanest one that does.

A sized rule keeps its promise if every tier attains its target on at least PROMISE_SHARE of the versions of
tomorrow, and on the past days, of which one of LENIENT_DAYS or more may miss. Headroom grows until that is
so. The cheapest rule on the past days is advised; of rules that cost nearly the same, the simplest. If none
keeps its promise, nothing is advised, and the size that attains the targets on most versions is shown.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from fleetcast.assets.advice.rule_replays import (
    ADVISED_RULES,
    DayDraw,
    DayFigures,
    MidnightPlan,
    SizedRule,
    replay_rule,
)
from fleetcast.assets.lake.settings import RunSettings, run_parallel
from fleetcast.models.aliases import Floats
from fleetcast.models.trials.target_search import find_least_sufficient

PROMISE_SHARE = 0.9
LENIENT_DAYS = 5
RULE_HEADROOMS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0)
NEAR_SHARE = 0.02  # costs that differ by less are the same
SLOW_RULES = ("compact",)  # decided in Python every 15 s: fewer draws
SLOW_DRAWS = 8
VERSIONS_AT_ONCE = 4  # until it is known whether a size keeps its promise
OUTSIDE_SHARE = 0.025  # of versions beyond each end of an interval: two intervals hold nine times in ten
SHARE_STEP = 1000  # ends of a share are rounded outwards to one in so many, the lower by half a step more


class PastDay(NamedTuple):
    """A past day as it came, with the plan of its midnight."""

    plan: MidnightPlan
    draw: DayDraw


class Evidence(NamedTuple):
    """A sized rule on the past days and on the versions of tomorrow; both in their order."""

    sized: SizedRule
    past: list[DayFigures]
    future: list[DayFigures]

    @property
    def past_usd(self) -> float:
        """Mean cost of a past day."""
        return float(np.mean([figures.usd for figures in self.past or self.future]))


class Promise(NamedTuple):
    """The advised rule, and every rule that keeps its promise at some headroom."""

    advised: Evidence  # without a rule that keeps its promise: the one that comes closest, not advised
    is_kept: bool  # whether a rule keeps its promise
    sized: dict[str, Evidence]


class RentedPromise(NamedTuple):
    """The rule that keeps its promise on GPUs that could be rented instead of today's."""

    fleet: str  # its largest hour
    advised: Evidence


class PromiseSearch:
    """Replays of sized rules on the same past days and the same versions of tomorrow, each made once."""

    def __init__(
        self,
        settings: RunSettings,
        past: Sequence[PastDay],
        plan: MidnightPlan,
        draws: Sequence[DayDraw],
    ) -> None:
        self.settings, self.past, self.plan, self.draws = settings, past, plan, draws
        self._past: dict[SizedRule, list[DayFigures]] = {}
        self._future: dict[SizedRule, list[DayFigures]] = {}

    def with_draws(self, draws: Sequence[DayDraw]) -> "PromiseSearch":
        """Return a search on other versions of tomorrow; the past days are the same, replayed once."""
        search = PromiseSearch(self.settings, self.past, self.plan, draws)
        search._past = self._past
        return search

    def with_plans(self, change: Callable[[MidnightPlan], MidnightPlan]) -> "PromiseSearch":
        """Return a search with changed plans, on the same days and versions."""
        past = [day._replace(plan=change(day.plan)) for day in self.past]
        return PromiseSearch(self.settings, past, change(self.plan), self.draws)

    def past_days(self, sized: SizedRule) -> list[DayFigures]:
        """Return the figures of each past day."""
        if sized not in self._past:
            self._past[sized] = run_parallel(
                lambda day: replay_rule(self.settings, day.plan, sized, day.draw), self.past
            )
        return self._past[sized]

    def known_past_days(self, sized: SizedRule) -> list[DayFigures] | None:
        """Return the figures of each past day if they were replayed."""
        return self._past.get(sized)

    def future_days(self, sized: SizedRule) -> list[DayFigures]:
        """Return the figures of each version of tomorrow."""
        self.misses_more_than(sized, len(self.draws))
        return self._future[sized]

    def misses_more_than(self, sized: SizedRule, most: int) -> bool:
        """Whether more than `most` versions of tomorrow miss a target; replays no more than this needs."""
        known, count = self._future.setdefault(sized, []), self.count_versions(sized)
        while self.count_missed(known) <= most and len(known) < count:
            known += self.replay_versions(sized, range(len(known), min(count, len(known) + VERSIONS_AT_ONCE)))
        return self.count_missed(known) > most

    def count_versions(self, sized: SizedRule) -> int:
        """Return how many versions of tomorrow a rule is replayed on."""
        return min(len(self.draws), SLOW_DRAWS) if sized.rule in SLOW_RULES else len(self.draws)

    def replay_versions(self, sized: SizedRule, numbers: range) -> list[DayFigures]:
        """Replay a sized rule on these versions of tomorrow."""
        return run_parallel(
            lambda number: replay_rule(self.settings, self.plan, sized, self.draws[number]), numbers
        )

    def count_missed(self, days: Sequence[DayFigures]) -> int:
        """Return how many of these days miss a target."""
        return sum(not day.is_on_target(self.settings.catalogue) for day in days)

    def evidence(self, sized: SizedRule) -> Evidence:
        """Return what is known of a sized rule."""
        return Evidence(sized, self.past_days(sized), self.future_days(sized))

    def is_kept_before(self, sized: SizedRule) -> bool:
        """Whether the past days attain the targets."""
        days = self.past_days(sized)
        return self.count_missed(days) <= int(len(days) >= LENIENT_DAYS)

    def kept_share(self, sized: SizedRule) -> float:
        """Return the share of the versions of tomorrow that attain the targets."""
        days = self.future_days(sized)
        return (len(days) - self.count_missed(days)) / len(days)

    def is_promise(self, sized: SizedRule) -> bool:
        """Whether a sized rule keeps its promise; the past days come first, as they are few."""
        may_miss = int(self.count_versions(sized) * (1 - PROMISE_SHARE) + 1e-9)
        return self.is_kept_before(sized) and not self.misses_more_than(sized, may_miss)

    def size_rule(self, rule: str, most: float = RULE_HEADROOMS[-1]) -> SizedRule | None:
        """Return a rule with the least headroom at which it keeps its promise; None if not up to `most`."""
        headrooms = [headroom for headroom in RULE_HEADROOMS if headroom <= most]
        found = find_least_sufficient(
            lambda number: self.is_promise(SizedRule(rule, headrooms[number - 1])), 1, len(headrooms)
        )
        return None if found is None else SizedRule(rule, headrooms[found - 1])

    def least_size(self, sized: SizedRule) -> SizedRule:
        """Return a rule with its least headroom that keeps the promise, at most the present one."""
        return self.size_rule(sized.rule, sized.headroom_share) or sized

    def closest_size(self) -> SizedRule:
        """Return the replayed size with the largest `kept_share`; of equal ones the cheapest.

        Without SLOW_RULES: a share of their few draws compares with no other. More headroom keeps no fewer
        versions, so most sizes need no replay.
        """
        by_rule = dict[str, list[SizedRule]]()
        for sized in sorted(self._past):
            if sized.rule not in SLOW_RULES:
                by_rule.setdefault(sized.rule, []).append(sized)
        return max(
            map(self._least_size_as_good, by_rule.values()),
            key=lambda sized: (self.kept_share(sized), -self.evidence(sized).past_usd),
        )

    def _least_size_as_good(self, sizes: Sequence[SizedRule]) -> SizedRule:
        """Return the least of these sizes of a rule that misses no more versions than the largest."""
        missed = self.count_missed(self.future_days(sizes[-1]))
        if missed == self.count_versions(sizes[0]):
            return sizes[0]
        found = find_least_sufficient(
            lambda number: not self.misses_more_than(sizes[number - 1], missed), len(sizes), len(sizes)
        )
        return sizes[-1] if found is None else sizes[found - 1]

    def least_usd(self, rule: str) -> float:
        """Return the cost of a rule without headroom: with it, it costs no less."""
        return Evidence(SizedRule(rule), self.past_days(SizedRule(rule)), []).past_usd


def choose_rule(search: PromiseSearch, floor_usd: float, rules: Sequence[str] = ADVISED_RULES) -> Promise:
    """Return the leanest rule that keeps its promise, else the replayed size that comes closest.

    `floor_usd`: what no rule can cost less than.
    """
    sized, best = dict[str, Evidence](), None
    for rule in rules:
        if best is None and rule in SLOW_RULES:
            continue  # instances are not what the others lack: they had five times the plan's
        if best is not None and (
            best.past_usd <= floor_usd * (1 + NEAR_SHARE)
            or (search.past and search.least_usd(rule) >= best.past_usd * (1 - NEAR_SHARE))
        ):
            continue  # no headroom makes it cheaper
        found = search.size_rule(rule)
        if found is None:
            continue
        sized[rule] = search.evidence(found)
        if best is None or sized[rule].past_usd < best.past_usd * (1 - NEAR_SHARE):
            best = sized[rule]
    if best is not None:
        return Promise(best, True, sized)
    return Promise(search.evidence(search.closest_size()), False, {})


def share_interval(shares: Floats) -> tuple[float, float]:
    """Return `versions_interval` of shares, shape (draws,), rounded outwards."""
    low, high = np.clip(versions_interval(shares), 0.0, 1.0)
    return (
        float(max(0.0, np.floor(low * SHARE_STEP - 0.5) / SHARE_STEP)),
        float(np.ceil(high * SHARE_STEP - 1e-9) / SHARE_STEP),
    )


def versions_interval(values: Floats) -> tuple[float, float]:
    """Return Student's interval of one more value like these, shape (draws,), less OUTSIDE_SHARE at each end.

    So it leaves out a new day as often with 8 versions as with 40.
    """
    count, mean = len(values), float(np.mean(values))
    half = stdtrit(count - 1, 1 - OUTSIDE_SHARE) * np.std(values, ddof=1) * np.sqrt(1 + 1 / count)
    return mean - float(half), mean + float(half)
