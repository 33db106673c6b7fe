"""Plan for quality: route requests to llms and choose GPUs; report the plan with baselines and cases."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans.quality_markets import Market, build_market
from fleetcast.assets.plans.quality_policies import plan_quality_policies
from fleetcast.assets.plans.quality_requirements import QualityPlan, QualityRequirement
from fleetcast.assets.plans.quality_search import choose_quality_plan
from fleetcast.assets.plans.quality_tables import write_quality_plans
from fleetcast.assets.studies.quality_baselines import plan_baselines, plan_fronts
from fleetcast.models.quality.judges import load_quality
from fleetcast.models.world.project_paths import ROOT
from fleetcast.models.world.toml_dataclasses import (
    ConfigError,
    Range,
    build_dataclass,
    read_toml,
    require_known,
)

QUALITY_CASES = ROOT / "data" / "quality_cases.toml"
RANDOM_JUDGE, ORACLE_JUDGE = "random", "oracle"  # the least and the most informed judge


@dataclass(frozen=True)
class QualityCase:
    """Overrides of a quality requirement; data/quality_cases.toml documents each key."""

    what: str
    judge: str | None = None
    without: tuple[str, ...] = ()
    budget_usd_per_hour: Annotated[float, Range(0, 1e9, is_above=True)] = np.inf


def load_quality_cases(market: Market) -> dict[str, QualityCase]:
    """Read the cases; ConfigError names an unknown judge or GPU type."""
    cases: dict[str, QualityCase] = {}
    for name, value in read_toml(QUALITY_CASES).items():
        where = f"{QUALITY_CASES.name} [{name}]"
        case = cases[name] = build_dataclass(QualityCase, value, where)
        for gpu in case.without:
            require_known(gpu, market.catalogue.gpus, "gpu", where)
        if case.judge is not None:
            require_known(case.judge, {**load_quality().judges, market.name: None}, "judge", where)
    return cases


def plan_quality_cases(
    market_of: Callable[[str], Market], market: Market, requirement: QualityRequirement, progress: Progress
) -> tuple[list[QualityPlan], Mapping[str, str]]:
    """Plan each case; return its plans, of kind whatif, and the reason of each case without a plan, by name.

    `market_of` returns the market with another judge.
    """
    plans, missing = [], dict[str, str]()
    for name, case in load_quality_cases(market).items():
        case_market = market if case.judge is None else market_of(case.judge)
        is_excluded = np.isin(list(case_market.catalogue.gpus), case.without)
        case_market = case_market._replace(
            demand=case_market.demand._replace(cap_gpus=np.where(is_excluded, 0, case_market.demand.cap_gpus))
        )
        budget = min(requirement.budget_usd_per_hour, case.budget_usd_per_hour)
        try:
            plan = choose_quality_plan(
                case_market, requirement._replace(budget_usd_per_hour=budget), progress
            )
        except ConfigError as error:
            missing[name] = str(error)
        else:
            plans.append(plan._replace(name=name, kind="whatif"))
    return plans, missing


def plan_quality(
    settings: RunSettings,
    requirement: QualityRequirement,
    with_front: bool,
    progress: Progress,
    with_cases: bool = False,
) -> tuple[list[QualityPlan], Mapping[str, str]]:
    """Choose the plan for the requirement, and plan baselines, cases, and with the front other policies.

    Returns all plans, the chosen one first, and why a case has no plan, by case.
    Where no plan meets all requirements, ConfigError names the binding one and the nearest plan.
    """
    requirement.check()
    market = build_market(settings, progress)
    markets = {market.name: market}

    def with_judge(judge: str) -> Market:
        if judge not in markets:
            markets[judge] = build_market(settings, progress, judge)
        return markets[judge]

    plans = [choose_quality_plan(market, requirement, progress), *plan_baselines(market, requirement)]
    missing: Mapping[str, str] = {}
    if with_cases:
        cases, missing = plan_quality_cases(with_judge, market, requirement, progress)
        plans += cases
    if with_front:
        plans += plan_quality_policies(plans[0], with_judge(ORACLE_JUDGE), requirement, progress)
        for judge in dict.fromkeys((market.name, RANDOM_JUDGE, ORACLE_JUDGE)):
            plans += plan_fronts(with_judge(judge), requirement)
    write_quality_plans(settings, requirement, plans)
    return plans, missing
