"""Search the knobs of a day's planners, in a scratch lake, until all attain the same targets."""

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

ALWAYS = ("lt_i", "clairvoyant")  # the initial fleet of all, and the reference of regret
BOARD_NEAR_SHARE = 0.005  # the search ends when costs on both sides of the target differ by less
CLOSE_STEP = 1.02  # step of the search on a resample, from the result on the day itself
MAX_QUALITY_RAISES = 3  # times that a model routing is planned again for more quality
QUALITY_RAISE_FACTOR = 1.5  # of the missing quality, added to the required one
SHARED = (*INPUT_TABLES, "answers")
WHERE = "where trace = $trace and day = $day"
ATTAINED = "attained_ratio"  # metric of a tier: its attainment over its target
SPENT_SQL = f"select llm, sum(usd) as usd from plans {WHERE} and policy = $policy group by all"
MetricRow = dict[str, Any]


def with_policies(settings: RunSettings, names: Mapping[str, Any] | Sequence[str]) -> RunSettings:
    """Return the settings with these policies on the leaderboard."""
    replay_config = replace(settings.config.replay, policies=tuple(names))
    return replace(settings, config=replace(settings.config, replay=replay_config))


class SearchStart(NamedTuple):
    """Start values of a search."""

    target: float = 1.0  # required fraction of each tier's target
    quality_margin: Mapping[str, float] = {}  # quality required above that of [quality], by model routing
    first: Mapping[str, float] = {}  # first capacity share by planner; default: the same for all
    step: float = POINT_STEP
    draw: int = 0  # number of the resample of the day's requests; 0: the recorded requests


FRESH_START = SearchStart()


class PlannerSearch(KnobSearch):
    """The search of a day, in a scratch lake: all planners must attain a fraction of each tier's target."""

    def __init__(
        self, settings: RunSettings, day: date, progress: Progress, start: SearchStart = FRESH_START
    ) -> None:
        """Set up the search; `settings`: planners as policies, over a lake with the day's forecasts."""
        super().__init__(
            settings.config.replay.policies, start.target, BOARD_NEAR_SHARE, start.first, start.step
        )
        self.settings, self.day, self.progress, self.draw = settings, day, progress, start.draw
        self.quality_margin = defaultdict[str, float](float, start.quality_margin)
        self.quality_raises = Counter[str]()
        self.found: dict[str, list[tuple[float, list[MetricRow]]]] = {name: [] for name in self.knob_trials}
        self.days: dict[PlanRequest, PlannedHours] = {}
        self.plan_inputs: dict[str | None, PlanInputs] = {}
        self.answers: dict[str, QualityPlan] = {}
        kinds = planned_answer_kinds(settings)
        self.market = build_nightly_market(settings, day, progress) if kinds else None
        self._plan_answers(kinds)
        inputs = self.plan_inputs[None]
        write_plan_bounds(settings, day, inputs.capacities, true_load(inputs))

    @classmethod
    def search_day(
        cls, settings: RunSettings, day: date, names: list[str], progress: Progress
    ) -> "PlannerSearch":
        """Search these planners on the day until each attains the required targets, or cannot."""
        with scratch_lake(with_policies(settings, names), settings.lake, SHARED) as scratch:
            # day_ahead_forecasts is the last table that forecast_day writes for a day.
            if day not in scratch.lake.days("day_ahead_forecasts", scratch.trace):
                forecast_day(scratch, day, progress)
            search = cls(scratch, day, progress)
            search.search(names)
            search.target = required_attainment_ratio(search.knob_trials.values())
            search.search(names)
        return search

    def search_resample(
        self, settings: RunSettings, first: Mapping[str, float], draw: int
    ) -> "PlannerSearch":
        """Search these planners on a resample of the day's requests, with new forecasts and plans.

        The required targets are those of the day itself; `first`: first capacity share by planner.
        """
        with scratch_lake(with_policies(settings, list(first)), settings.lake, SHARED) as scratch:
            write_resampled_day(scratch, self.day, draw)
            forecast_day(scratch, self.day, self.progress)
            start = SearchStart(self.target, self.quality_margin, first, CLOSE_STEP, draw)
            search = PlannerSearch(scratch, self.day, self.progress, start)
            search.search(list(first))
        return search

    def _plan_answers(self, kinds: Collection[str]) -> None:
        """Plan these model routings, and drop the fleet plans that used earlier ones."""
        if self.market is not None:
            for kind in kinds:
                margin = self.quality_margin[kind]
                self.answers[kind] = make_quality_plan(self.market, kind, self.progress, margin)
            write_nightly_plans(self.settings, self.day, self.answers)
        every = {
            name: plan_request_of_policy(self.settings, name)
            for name in (*ALWAYS, *self._planned(self.settings))
        }
        affected = {name: request for name, request in every.items() if request.routing in (*kinds, None)}
        self.plan_inputs |= gather_plan_inputs(self.settings, self.day, affected, self.progress)
        self.days = {request: plan for request, plan in self.days.items() if request.routing not in kinds}

    @staticmethod
    def _planned(settings: RunSettings) -> list[str]:
        rules = settings.config.rules
        return [name for name in settings.config.replay.policies if rules[name].programme is not None]

    def search(self, names: Sequence[str]) -> None:
        """Plan and replay until each planner attains the required targets, or cannot."""
        while points := self.points(names):
            self.replay_round(points)

    def replay_round(self, shares: Mapping[str, float]) -> None:
        """Plan and replay each planner at its capacity share."""
        round_settings = with_policies(self.settings, shares)
        policies = round_settings.config.policies
        with_shares = {
            name: replace(policies.get(name) or CustomPolicy(name), capacity_share=share)
            for name, share in shares.items()
        }
        round_settings = replace(
            round_settings, config=replace(round_settings.config, policies={**policies, **with_shares})
        )
        plans = {
            name: plan_request_of_policy(round_settings, name)
            for name in (*ALWAYS, *self._planned(round_settings))
        }
        plans_of_policies = plan_policies(
            round_settings, self.day, plans, self.plan_inputs, self.progress, self.days
        )
        delete_other_outputs(round_settings, self.day, [WHOLE_UNIT._replace(policies=tuple(shares))])
        write_plans(round_settings, self.day, plans_of_policies)
        replay_day(round_settings, self.day, list(shares), self.progress)
        quality = dict[str, float | None]()
        for name, share in shares.items():
            figures = self._figures(round_settings, name)
            totals = {figure["metric"]: figure["value"] for figure in figures if is_total(figure)}
            attained = min(figure["value"] for figure in figures if figure["metric"] == ATTAINED)
            self.found[name].append((share, figures))
            self.knob_trials[name].append(TargetTrial(share, totals["usd"] + totals["backlog_usd"], attained))
            quality[name] = totals.get("quality")
        self._raise_quality(quality)

    def _raise_quality(self, found: Mapping[str, float | None]) -> None:
        """Plan routings with too low a quality again for more, and restart the search of their planners."""
        config, missing = self.settings.config, dict[str, float]()
        required = config.quality.quality if config.quality else None
        for name, quality in found.items():
            kind = config.rules[name].answers
            if required and kind and quality is not None and quality < required:
                missing[kind] = max(missing.get(kind, 0.0), required - quality)
        missing = {
            kind: gap for kind, gap in missing.items() if self.quality_raises[kind] < MAX_QUALITY_RAISES
        }
        if not missing:
            return
        for kind, gap in missing.items():
            self.quality_margin[kind] += QUALITY_RAISE_FACTOR * gap
            self.quality_raises[kind] += 1
        for name in self.knob_trials:
            if config.rules[name].answers in missing:
                self.knob_trials[name], self.found[name] = [], []
        self._plan_answers(missing)

    def _figures(self, settings: RunSettings, name: str) -> list[MetricRow]:
        """Return a planner's metrics, the parts of its cost, and each tier's attainment over its target."""
        scope: dict[str, Any] = {"trace": settings.trace, "day": self.day, "policy": name}
        metrics = policy_metrics(settings.lake, **scope)
        ratios = [
            {
                "metric": ATTAINED,
                "tier": row["tier"],
                "value": row["value"] / settings.catalogue.tiers[row["tier"]].attainment_target_share,
            }
            for row in metrics
            if (row["metric"], row["llm"]) == ("attainment_share", ALL_GROUPS) and row["value"] is not None
        ]
        spent = settings.lake.sql(SPENT_SQL, **scope).to_pylist()
        error = [{"metric": "usd_error_share", "value": usd_error_share(settings, spent)}] if spent else []
        return [*metrics, *settings.lake.sql("reads/parts_of_cost.sql", **scope).to_pylist(), *ratios, *error]

    def rows(self, name: str, twin: str) -> list[pa.Table]:
        """Return the trials of a planner, under its own name or that of an equal one (`twin`)."""
        rules, quality, ideas = (
            self.settings.config.rules,
            self.settings.config.quality,
            ablation_steps().get(twin),
        )
        required: list[MetricRow] = [
            {"metric": "required_ratio", "value": self.target},
            {"metric": "required_quality", "value": quality.quality if quality else None},
        ]
        labels = {"what": rules[twin].what} | ({} if ideas is None else {"ideas": ", ".join(ideas)})
        tables = []
        for share, figures in self.found[name]:
            tiers = [figure["tier"] for figure in figures if figure["metric"] == ATTAINED]
            strictest = self.settings.catalogue.strictest_tier(tiers) or ""
            variant = Variant(
                *(twin, self.settings, self.day, twin, {"capacity_share": share}),
                labels={**labels, "tier": strictest},
                resample=self.draw,
                purpose=TUNED,
            )
            tables.append(variant.rows([*figures, *required]))
        return tables


def is_total(figure: MetricRow) -> bool:
    """Whether a figure covers all tiers and all llms."""
    return figure.get("tier", ALL_GROUPS) == figure.get("llm", ALL_GROUPS) == ALL_GROUPS


def required_attainment_ratio(planner_trials: Iterable[Sequence[TargetTrial]]) -> float:
    """Return the required fraction of each target: 1, or, where no planner reaches it, the weakest's best."""
    best = [max(trial.attained for trial in trials) for trials in planner_trials if trials]
    return min(best) if best and max(best) < 1 else 1.0
