"""Plan and replay policies on a day, in a scratch lake, each with its own knobs."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

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
from fleetcast.assets.replays.replays import replay_days
from fleetcast.assets.studies.experiment import ALL_GROUPS, EMPTY_MAPPING, policy_metrics
from fleetcast.assets.studies.latency_error import usd_error_share
from fleetcast.models.world.config import CustomPolicy

ALWAYS = ("lt_i", "clairvoyant")  # the initial fleet of all, and the reference of regret
ATTAINED = "attained_ratio"  # metric of a tier: its attainment over its target
BACKLOG = "backlog_usd"  # metric: what the deferred requests that wait at midnight would cost
MetricRow = dict[str, Any]
Knobs = Mapping[str, Any]  # settings of a policy by field of CustomPolicy


def with_policies(settings: RunSettings, names: Mapping[str, Any] | Sequence[str]) -> RunSettings:
    """Return the settings with these policies on the leaderboard."""
    replay_config = replace(settings.config.replay, policies=tuple(names))
    return settings.with_config(replay=replay_config)


def with_knobs(settings: RunSettings, knobs: Mapping[str, Knobs]) -> RunSettings:
    """Return the settings with these policies on the leaderboard, each with its knobs."""
    policies = dict(settings.config.policies)
    for name, values in knobs.items():
        policies[name] = replace(policies.get(name) or CustomPolicy(name), **values)
    return with_policies(settings.with_config(policies=policies), knobs)


class BoardDay:
    """A day in a scratch lake with its requests and forecasts; its policies are those of `settings`."""

    def __init__(
        self,
        settings: RunSettings,
        day: date,
        progress: Progress,
        quality_margin: Mapping[str, float] = EMPTY_MAPPING,
    ) -> None:
        """Plan the model routings; `quality_margin`: required above the quality of [quality], by routing."""
        self.settings, self.day, self.progress = settings, day, progress
        self.quality_margin = defaultdict[str, float](float, quality_margin)
        self.solved: dict[PlanRequest, PlannedHours] = {}
        self.plan_inputs: dict[str | None, PlanInputs] = {}
        self.answers: dict[str, QualityPlan] = {}
        kinds = planned_answer_kinds(settings)
        self.market = build_nightly_market(settings, day, progress) if kinds else None
        self.plan_answers(kinds)
        inputs = self.plan_inputs[None]
        write_plan_bounds(settings, day, inputs.capacities, true_load(inputs))

    def plan_answers(self, kinds: Collection[str]) -> None:
        """Plan these model routings, and drop the fleet plans that used earlier ones."""
        if self.market is not None:
            for kind in kinds:
                margin = self.quality_margin[kind]
                self.answers[kind] = make_quality_plan(self.market, kind, self.progress, margin)
            write_nightly_plans(self.settings, self.day, self.answers)
        every = self._plan_requests(self.settings)
        affected = {name: request for name, request in every.items() if request.routing in (*kinds, None)}
        self.plan_inputs |= gather_plan_inputs(self.settings, self.day, affected, self.progress)
        self.solved = {request: plan for request, plan in self.solved.items() if request.routing not in kinds}

    @staticmethod
    def _plan_requests(settings: RunSettings) -> dict[str, PlanRequest]:
        rules = settings.config.rules
        planned = (name for name in settings.config.replay.policies if rules[name].programme is not None)
        return {name: plan_request_of_policy(settings, name) for name in (*ALWAYS, *planned)}

    def replay(self, knobs: Mapping[str, Knobs]) -> dict[str, list[MetricRow]]:
        """Plan and replay each policy with its knobs; return the figures of each."""
        return replay_board_days([self], knobs)[0]

    def plan(self, settings: RunSettings) -> None:
        """Plan the policies of the leaderboard, and drop the results of others."""
        requests = self._plan_requests(settings)
        plans = plan_policies(settings, self.day, requests, self.plan_inputs, self.progress, self.solved)
        kept = WHOLE_UNIT._replace(policies=settings.config.replay.policies)
        delete_other_outputs(settings, self.day, [kept])
        write_plans(settings, self.day, plans)


def replay_board_days(
    boards: Sequence[BoardDay], knobs: Mapping[str, Knobs]
) -> list[dict[str, list[MetricRow]]]:
    """Plan and replay policies on consecutive days of one lake; return the figures of each day by policy.

    Queues and fleets go on overnight, as in production. So deferred work that a day leaves costs what the
    next day pays for it, and only the last day has a backlog to be priced.
    """
    chosen = with_knobs(boards[0].settings, knobs)
    for board in boards:
        board.plan(chosen)
    replay_days(chosen, [board.day for board in boards], list(knobs), boards[0].progress)
    found = read_figures(chosen, [board.day for board in boards], list(knobs))
    for row in (row for of_day in found[:-1] for rows in of_day.values() for row in rows):
        if row["metric"] == BACKLOG:
            row["value"] = 0.0
    return found


def read_figures(
    settings: RunSettings, days: Sequence[date], policies: Sequence[str]
) -> list[dict[str, list[MetricRow]]]:
    """Return metrics, parts of cost and each tier's attainment over its target, of each day by policy."""
    lake, scope = settings.lake, {"trace": settings.trace}
    by_policy = {name: policy_metrics(lake, name, **scope, by_day=True) for name in policies}
    parts = lake.sql("reads/parts_of_cost.sql", **scope).to_pylist()
    targets = {name: tier.attainment_target_share for name, tier in settings.catalogue.tiers.items()}

    def figures(day: date, name: str) -> list[MetricRow]:
        metrics = [strip_row(row) for row in by_policy[name] if row["of_day"] == day]
        spent = [
            {"llm": row["llm"], "usd": row["value"]}
            for row in metrics
            if row["metric"] == "usd" and row.get("llm", ALL_GROUPS) != ALL_GROUPS
        ]
        metrics.append({"metric": "usd_error_share", "value": usd_error_share(settings, spent)})
        metrics += [strip_row(row) for row in parts if (row["day"], row["policy"]) == (day, name)]
        return metrics + [
            {"metric": ATTAINED, "tier": row["tier"], "value": row["value"] / targets[row["tier"]]}
            for row in metrics
            if (row["metric"], row.get("llm")) == ("attainment_share", ALL_GROUPS)
            and row["value"] is not None
        ]

    return [{name: figures(day, name) for name in policies} for day in days]


def strip_row(row: MetricRow) -> MetricRow:
    """Return a figure without its policy and day."""
    return {name: value for name, value in row.items() if name not in ("policy", "day", "of_day")}


def total_usd(figures: Sequence[MetricRow]) -> float:
    """Return the cost of a replay and of the work that it left."""
    totals = totals_by_metric(figures)
    return float(totals["usd"] + totals[BACKLOG])


def totals_by_metric(figures: Sequence[MetricRow]) -> dict[str, float]:
    """Return the figures that cover all tiers and all llms."""
    return {
        figure["metric"]: figure["value"]
        for figure in figures
        if figure.get("tier", ALL_GROUPS) == figure.get("llm", ALL_GROUPS) == ALL_GROUPS
    }


def worst_attained_ratio(figures: Sequence[MetricRow]) -> float:
    """Return the attainment over its target of the tier that is furthest below it."""
    return float(min(figure["value"] for figure in figures if figure["metric"] == ATTAINED))
