"""The search of a day's planners, in a lake that is thrown away: where each attains what is asked of all."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, NamedTuple

import pyarrow as pa

from fleetcast.assets.forecasts.forecasts import forecast_day
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans.nightly_quality import (
    build_nightly_market,
    make_quality_plan,
    planned_answer_kinds,
    write_nightly_plans,
)
from fleetcast.assets.plans.plan_tables import PlannedHours, write_plan_bounds, write_plans
from fleetcast.assets.plans.plans import (
    PlanInputs,
    PlanRequest,
    gather_plan_inputs,
    plan_policies,
    plan_request_of_policy,
    true_load,
)
from fleetcast.assets.plans.quality_requirements import QualityPlan
from fleetcast.assets.replays.replay_units import WHOLE_UNIT, delete_other_outputs
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.studies.experiment import (
    ALL_GROUPS,
    INPUT_TABLES,
    TUNED,
    KnobSearch,
    Variant,
    policy_metrics,
    scratch_lake,
)
from fleetcast.assets.studies.latency_error import usd_error_share
from fleetcast.assets.studies.resamples import write_resampled_day
from fleetcast.models.plan.target_search import POINT_STEP, TargetTrial
from fleetcast.models.world.config import CustomPolicy
from fleetcast.models.world.planners import ablation_steps

ALWAYS = ("lt_i", "clairvoyant")  # where all start, and whom regret is measured against
BOARD_NEAR_SHARE = 0.005  # costs on both sides of the targets that differ by no more are near enough
CLOSE_STEP = 1.02  # of the search on another draw of the day, from where it ended on the day itself
RAISES, RAISED_BY = 3, 1.5  # how often who answers is planned anew, for so much of what quality lacked
SHARED = (*INPUT_TABLES, "answers")
WHERE = "where trace = $trace and day = $day"
ATTAINED = "attained_ratio"  # of a tier: its attainment over its target
SPENT_SQL = f"select llm, sum(usd) as usd from plans {WHERE} and policy = $policy group by all"
MetricRow = dict[str, Any]


def with_policies(settings: RunSettings, names: Mapping[str, Any] | Sequence[str]) -> RunSettings:
    """The settings whose board has these policies."""
    replay_config = replace(settings.config.replay, policies=tuple(names))
    return replace(settings, config=replace(settings.config, replay=replay_config))


class SearchStart(NamedTuple):
    """Where a search begins."""

    target: float = 1.0  # of every tier's target
    more: Mapping[str, float] = {}  # quality asked above that of [quality], by who answers
    first: Mapping[str, float] = {}  # what planners count on at first, where it is not the same for all
    step: float = POINT_STEP
    draw: int = 0  # of the day's requests; 0: as they came


FRESH_START = SearchStart()


class PlannerSearch(KnobSearch):
    """The search of a day, in a lake that is thrown away: a share of every tier's target is asked of all."""

    def __init__(
        self, settings: RunSettings, day: date, progress: Progress, start: SearchStart = FRESH_START
    ) -> None:
        """`settings` with every planner among the policies, over a lake that has the day's forecasts."""
        super().__init__(
            settings.config.replay.policies, start.target, BOARD_NEAR_SHARE, start.first, start.step
        )
        self.settings, self.day, self.progress, self.draw = settings, day, progress, start.draw
        self.more = defaultdict[str, float](float, start.more)
        self.raises = Counter[str]()
        self.found: dict[str, list[tuple[float, list[MetricRow]]]] = {name: [] for name in self.knob_trials}
        self.days: dict[PlanRequest, PlannedHours] = {}
        self.worlds: dict[str | None, PlanInputs] = {}
        self.answers: dict[str, QualityPlan] = {}
        kinds = planned_answer_kinds(settings)
        self.market = build_nightly_market(settings, day, progress) if kinds else None
        self._plan_answers(kinds)
        world = self.worlds[None]
        write_plan_bounds(settings, day, world.capacities, true_load(world))

    @classmethod
    def search_day(
        cls, settings: RunSettings, day: date, names: list[str], progress: Progress
    ) -> "PlannerSearch":
        """The trials of these planners until each has found where it attains what is asked."""
        with scratch_lake(with_policies(settings, names), settings.lake, SHARED) as own:
            if day not in own.lake.days("day_ahead_forecasts", own.trace):  # the last written of a day
                forecast_day(own, day, progress)
            board = cls(own, day, progress)
            board.search(names)
            board.target = required_attainment_ratio(board.knob_trials.values())
            board.search(names)
        return board

    def search_resample(
        self, settings: RunSettings, first: Mapping[str, float], draw: int
    ) -> "PlannerSearch":
        """The trials of these planners on another draw of the day's requests, forecast and planned anew.

        Each is searched to what was asked on the day, from what it is to count on at first.
        """
        with scratch_lake(with_policies(settings, list(first)), settings.lake, SHARED) as own:
            write_resampled_day(own, self.day, draw)
            forecast_day(own, self.day, self.progress)
            start = SearchStart(self.target, self.more, first, CLOSE_STEP, draw)
            board = PlannerSearch(own, self.day, self.progress, start)
            board.search(list(first))
        return board

    def _plan_answers(self, kinds: Collection[str]) -> None:
        """Plan who answers; what was planned by the answers of before is forgotten."""
        if self.market is not None:
            for kind in kinds:
                self.answers[kind] = make_quality_plan(self.market, kind, self.progress, self.more[kind])
            write_nightly_plans(self.settings, self.day, self.answers)
        every = {
            name: plan_request_of_policy(self.settings, name)
            for name in (*ALWAYS, *self._planned(self.settings))
        }
        asked = {name: one for name, one in every.items() if one.routing in (*kinds, None)}
        self.worlds |= gather_plan_inputs(self.settings, self.day, asked, self.progress)
        self.days = {one: plan for one, plan in self.days.items() if one.routing not in kinds}

    @staticmethod
    def _planned(settings: RunSettings) -> list[str]:
        rules = settings.config.rules
        return [name for name in settings.config.replay.policies if rules[name].programme is not None]

    def search(self, names: Sequence[str]) -> None:
        """Plan and replay until every planner has found where it attains what is asked, or cannot."""
        while asked := self.points(names):
            self.play(asked)

    def play(self, asked: Mapping[str, float]) -> None:
        """Plan and replay each planner that counts on so much of an instance."""
        own = with_policies(self.settings, asked)
        known = own.config.policies
        counting = {
            name: replace(known.get(name) or CustomPolicy(name), capacity_share=share)
            for name, share in asked.items()
        }
        own = replace(own, config=replace(own.config, policies={**known, **counting}))
        plans = {name: plan_request_of_policy(own, name) for name in (*ALWAYS, *self._planned(own))}
        followed = plan_policies(own, self.day, plans, self.worlds, self.progress, self.days)
        delete_other_outputs(own, self.day, [WHOLE_UNIT._replace(policies=tuple(asked))])
        write_plans(own, self.day, followed)
        replay_day(own, self.day, list(asked), self.progress)
        quality = dict[str, float | None]()
        for name, counted_on in asked.items():
            figures = self._figures(own, name)
            of_all = {one["metric"]: one["value"] for one in figures if is_total(one)}
            attained = min(one["value"] for one in figures if one["metric"] == ATTAINED)
            self.found[name].append((counted_on, figures))
            self.knob_trials[name].append(
                TargetTrial(counted_on, of_all["usd"] + of_all["backlog_usd"], attained)
            )
            quality[name] = of_all.get("quality")
        self._raise_quality(quality)

    def _raise_quality(self, found: Mapping[str, float | None]) -> None:
        """Who answers less well than is asked is planned anew for more, and searched from the beginning."""
        said, rules, lacking = self.settings.config.quality, self.settings.config.rules, dict[str, float]()
        for name, quality in found.items():
            answers = rules[name].answers
            if said and said.quality and answers and quality is not None and quality < said.quality:
                lacking[answers] = max(lacking.get(answers, 0.0), said.quality - quality)
        lacking = {answers: lack for answers, lack in lacking.items() if self.raises[answers] < RAISES}
        if not lacking:
            return
        for answers, lack in lacking.items():
            self.more[answers] += RAISED_BY * lack
            self.raises[answers] += 1
        for name in self.knob_trials:
            if rules[name].answers in lacking:
                self.knob_trials[name], self.found[name] = [], []
        self._plan_answers(lacking)

    def _figures(self, own: RunSettings, name: str) -> list[MetricRow]:
        """What became of a planner, with the parts of its cost, and of each tier attainment over target."""
        of_day: dict[str, Any] = {"trace": own.trace, "day": self.day, "policy": name}
        found = policy_metrics(own.lake, **of_day)
        ratios = [
            {
                "metric": ATTAINED,
                "tier": one["tier"],
                "value": one["value"] / own.catalogue.tiers[one["tier"]].attainment_target_share,
            }
            for one in found
            if (one["metric"], one["llm"]) == ("attainment_share", ALL_GROUPS) and one["value"] is not None
        ]
        spent = own.lake.sql(SPENT_SQL, **of_day).to_pylist()
        error = [{"metric": "usd_error_share", "value": usd_error_share(own, spent)}] if spent else []
        return [*found, *own.lake.sql("reads/parts_of_cost.sql", **of_day).to_pylist(), *ratios, *error]

    def rows(self, name: str, twin: str) -> list[pa.Table]:
        """The trials of a planner, under its own name or that of one alike."""
        rules, quality, ideas = (
            self.settings.config.rules,
            self.settings.config.quality,
            ablation_steps().get(twin),
        )
        asked: list[MetricRow] = [
            {"metric": "required_ratio", "value": self.target},
            {"metric": "required_quality", "value": quality.quality if quality else None},
        ]
        labels = {"what": rules[twin].what} | ({} if ideas is None else {"ideas": ", ".join(ideas)})
        tables = []
        for counted_on, figures in self.found[name]:
            tiers = [one["tier"] for one in figures if one["metric"] == ATTAINED]
            strictest = self.settings.catalogue.strictest_tier(tiers) or ""
            variant = Variant(
                *(twin, self.settings, self.day, twin, {"capacity_share": counted_on}),
                labels={**labels, "tier": strictest},
                resample=self.draw,
                purpose=TUNED,
            )
            tables.append(variant.rows([*figures, *asked]))
        return tables


def is_total(figure: MetricRow) -> bool:
    """Whether a figure is neither of a tier nor of an llm."""
    return figure.get("tier", ALL_GROUPS) == figure.get("llm", ALL_GROUPS) == ALL_GROUPS


def required_attainment_ratio(tried: Iterable[Sequence[TargetTrial]]) -> float:
    """The share of every tier's target that is asked of all: 1 where any planner attains that.

    Else what the least able of them attains at best.
    """
    best = [max(one.attained for one in trials) for trials in tried if trials]
    return min(best) if best and max(best) < 1 else 1.0
