"""The search of a day's planners, in a lake that is thrown away: where each attains what is asked of all."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from typing import Any, NamedTuple

from fleetcast.assets.forecasts.forecasts import forecast_day
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import Progress, Settings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.plans.plan_tables import Day, write_bounds, write_plans
from fleetcast.assets.plans.plans import Asked, World, asked_by, followed_plans, truth_of, worlds_of
from fleetcast.assets.plans.quality_asked import Plan
from fleetcast.assets.plans.quality_nights import answers_asked, night_market, planned, write_night
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.replays.scorecards import BY_TIER, SCOREBOARD, score_day
from fleetcast.assets.replays.units import WHOLE, forget_others
from fleetcast.assets.studies.latency_error import usd_error_share
from fleetcast.assets.studies.redraws import redraw_day
from fleetcast.assets.studies.study import KNOWN, share
from fleetcast.models.plan.crossing import FIRST, STEP, Tried, next_point
from fleetcast.models.world.config import OwnPolicy
from fleetcast.models.world.planners import steps

ALWAYS = ("lt_i", "clairvoyant")  # where all start, and whom regret is measured against
NEAR_SHARE = 0.005  # costs on both sides of the targets that differ by no more are near enough
CLOSE_STEP = 1.02  # of the search on another draw of the day, from where it ended on the day itself
RAISES, RAISED_BY = 3, 1.5  # how often who answers is planned anew, for so much of what quality lacked
SHARED = (*KNOWN, "answers")
WHERE = "where trace = $trace and day = $day"


def naming(settings: Settings, names: Mapping[str, Any] | Sequence[str]) -> Settings:
    """The settings whose board has these policies."""
    replay_config = replace(settings.config.replay, policies=tuple(names))
    return replace(settings, config=replace(settings.config, replay=replay_config))


class Start(NamedTuple):
    """Where a search begins."""

    asked_ratio: float = 1.0  # of every tier's target
    more: Mapping[str, float] = {}  # quality asked above that of [quality], by who answers
    first: Mapping[str, float] = {}  # what planners count on at first, where it is not the same for all
    step: float = STEP
    draw: int = 0  # of the day's requests; 0: as they came


NEW = Start()


@contextmanager
def thrown_away(settings: Settings, names: Sequence[str]) -> Iterator[Settings]:
    """The settings with these policies, over a lake that has what is known of the trace and then is gone."""
    with settings.lake.scratch() as folder:
        own = naming(replace(settings, lake=Lake(folder)), names)
        share(settings.lake, own.lake, SHARED)
        yield own


class Board:
    """The trials of a day, in a lake that is thrown away."""

    def __init__(self, settings: Settings, day: date, progress: Progress, start: Start = NEW) -> None:
        """`settings` with every planner among the policies, over a lake that has the day's forecasts."""
        self.settings, self.day, self.progress, self.start = settings, day, progress, start
        self.more = defaultdict[str, float](float, start.more)
        self.raises = Counter[str]()
        self.asked_ratio = start.asked_ratio
        self.tried: dict[str, list[Tried]] = {name: [] for name in settings.config.replay.policies}
        self.found: dict[str, list[dict[str, Any]]] = {name: [] for name in self.tried}
        self.days: dict[Asked, Day] = {}
        self.worlds: dict[str | None, World] = {}
        self.answers: dict[str, Plan] = {}
        kinds = answers_asked(settings)
        self.market = night_market(settings, day, progress) if kinds else None
        self._plan_answers(kinds)
        world = self.worlds[None]
        write_bounds(settings, day, world.sustained, truth_of(world))

    @classmethod
    def searched(cls, settings: Settings, day: date, names: list[str], progress: Progress) -> "Board":
        """The trials of these planners until each has found where it attains what is asked."""
        with thrown_away(settings, names) as own:
            if day not in own.lake.days("day_ahead_forecasts", own.trace):  # the last written of a day
                forecast_day(own, day, progress)
            board = cls(own, day, progress)
            board.search(names)
            board.asked_ratio = common_ratio(board.tried.values())
            board.search(names)
        return board

    def redrawn(self, settings: Settings, first: Mapping[str, float], draw: int) -> "Board":
        """The trials of these planners on another draw of the day's requests, forecast and planned anew.

        Each is searched to what was asked on the day, from what it is to count on at first.
        """
        with thrown_away(settings, list(first)) as own:
            redraw_day(own, self.day, draw)
            forecast_day(own, self.day, self.progress)
            start = Start(self.asked_ratio, self.more, first, CLOSE_STEP, draw)
            board = Board(own, self.day, self.progress, start)
            board.search(list(first))
        return board

    def attaining(self, name: str) -> float | None:
        """The most that a planner may count on and attain what is asked; None where it never does."""
        found = [one.counted_on for one in self.tried[name] if one.attained >= self.asked_ratio]
        return max(found, default=None)

    def _plan_answers(self, kinds: Collection[str]) -> None:
        """Plan who answers; what was planned by the answers of before is forgotten."""
        if self.market is not None:
            for kind in kinds:
                self.answers[kind] = planned(self.market, kind, self.progress, self.more[kind])
            write_night(self.settings, self.day, self.answers)
        every = {name: asked_by(self.settings, name) for name in (*ALWAYS, *self._planned(self.settings))}
        asked = {name: one for name, one in every.items() if one.answers in (*kinds, None)}
        self.worlds |= worlds_of(self.settings, self.day, asked, self.progress)
        self.days = {one: plan for one, plan in self.days.items() if one.answers not in kinds}

    @staticmethod
    def _planned(settings: Settings) -> list[str]:
        rules = settings.config.rules
        return [name for name in settings.config.replay.policies if rules[name].programme is not None]

    def search(self, names: Sequence[str]) -> None:
        """Plan and replay until every planner has found where it attains what is asked, or cannot."""
        while asked := self.asked(names):
            self.play(asked)

    def asked(self, names: Sequence[str]) -> dict[str, float]:
        """What each planner that is not found yet is to count on next."""
        start = self.start
        points = {
            name: next_point(
                self.tried[name], self.asked_ratio, NEAR_SHARE, start.first.get(name, FIRST), start.step
            )
            for name in names
        }
        return {name: share for name, share in points.items() if share is not None}

    def play(self, asked: Mapping[str, float]) -> None:
        """Plan and replay each planner that counts on so much of an instance."""
        own = naming(self.settings, asked)
        known = own.config.policies
        counting = {
            name: replace(known.get(name) or OwnPolicy(name), capacity_share=share)
            for name, share in asked.items()
        }
        own = replace(own, config=replace(own.config, policies={**known, **counting}))
        plans = {name: asked_by(own, name) for name in (*ALWAYS, *self._planned(own))}
        followed = followed_plans(own, self.day, plans, self.worlds, self.progress, self.days)
        forget_others(own, self.day, [WHOLE._replace(policies=tuple(asked))])
        write_plans(own, self.day, followed)
        replay_day(own, self.day, list(asked), self.progress)
        score_day(own, self.day, self.progress)
        rows = self._scored(own)
        for row in rows:
            name = row["policy"]
            self.found[name].append(row | {"capacity_share": asked[name]})
            self.tried[name].append(Tried(asked[name], row["usd"] + row["left_usd"], row["attained_ratio"]))
        self._raise_quality(rows)

    def _raise_quality(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Who answers less well than is asked is planned anew for more, and searched from the beginning."""
        said, rules, lacking = self.settings.config.quality, self.settings.config.rules, dict[str, float]()
        for row in rows:
            answers, quality = rules[row["policy"]].answers, row["quality"]
            if said and said.quality and answers and quality is not None and quality < said.quality:
                lacking[answers] = max(lacking.get(answers, 0.0), said.quality - quality)
        lacking = {answers: lack for answers, lack in lacking.items() if self.raises[answers] < RAISES}
        if not lacking:
            return
        for answers, lack in lacking.items():
            self.more[answers] += RAISED_BY * lack
            self.raises[answers] += 1
        for name in self.tried:
            if rules[name].answers in lacking:
                self.tried[name], self.found[name] = [], []
        self._plan_answers(lacking)

    def _scored(self, own: Settings) -> list[dict[str, Any]]:
        """What became of each planner, with the tier that is furthest below its target."""
        of_day = {"trace": own.trace, "day": self.day}
        tiers = own.lake.sql(BY_TIER, policy=None, **of_day).to_pylist()
        planned = "select policy, llm, sum(usd) as usd from plans " + WHERE + " group by all"
        spent = own.lake.sql(planned, **of_day).to_pylist()
        parts = {row["policy"]: row for row in own.lake.sql(f"from regret {WHERE}", **of_day).to_pylist()}
        rows = []
        for row in own.lake.sql(SCOREBOARD, **of_day).to_pylist():
            name = row["policy"]
            ratios = {
                one["tier"]: one["attainment_share"]
                / own.catalogue.tiers[one["tier"]].attainment_target_share
                for one in tiers
                if one["policy"] == name and one["attainment_share"] is not None
            }
            worst = min(ratios, key=lambda tier: ratios[tier])
            by_llm = [one for one in spent if one["policy"] == name]
            error = usd_error_share(own, by_llm) if by_llm else None
            said = {"attained_ratio": ratios[worst], "worst_tier": worst, "usd_error_share": error}
            rows.append(parts[name] | row | said)
        return rows

    def rows(self, name: str, twin: str) -> list[dict[str, Any]]:
        """The trials of a planner as rows of planner_trials, under its own name or that of one alike."""
        quality = self.settings.config.quality
        asked = {"asked_quality": quality.quality if quality else None, "asked_ratio": self.asked_ratio}
        ideas = steps().get(twin)
        said = {
            "planner": twin,
            "what": self.settings.config.rules[twin].what,
            "ideas": None if ideas is None else ", ".join(ideas),
            "draw": self.start.draw,
        }
        names = set(SCHEMAS["planner_trials"].names)
        kept = ({key: value for key, value in row.items() if key in names} for row in self.found[name])
        return [said | asked | row for row in kept]


def common_ratio(tried: Iterable[Sequence[Tried]]) -> float:
    """The share of every tier's target that is asked of all: 1 where any planner attains that.

    Else what the least able of them attains at best.
    """
    best = [max(one.attained for one in trials) for trials in tried if trials]
    return min(best) if best and max(best) < 1 else 1.0
