"""Plan for quality: route requests to llms and choose GPUs; report the plan with baselines and cases."""

from collections.abc import Mapping

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans.quality_markets import Market, build_market
from fleetcast.assets.plans.quality_policies import plan_quality_policies
from fleetcast.assets.plans.quality_requirements import QualityPlan, QualityRequirement
from fleetcast.assets.plans.quality_search import choose_quality_plan
from fleetcast.assets.plans.quality_tables import write_quality_plans
from fleetcast.assets.studies.quality_baselines import plan_baselines, plan_fronts
from fleetcast.assets.studies.quality_cases import plan_quality_cases

RANDOM_JUDGE, ORACLE_JUDGE = "random", "oracle"  # the least and the most informed judge


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
