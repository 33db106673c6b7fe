"""Plans for quality: which llm answers what, on which GPUs; the chosen one, and what stands beside it."""

from collections.abc import Mapping
from typing import NamedTuple

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans.quality_markets import Market, build_market
from fleetcast.assets.plans.quality_policies import plan_quality_policies
from fleetcast.assets.plans.quality_requirements import QualityPlan, QualityRequirement
from fleetcast.assets.plans.quality_search import choose_quality_plan
from fleetcast.assets.plans.quality_tables import write_quality_plans
from fleetcast.assets.studies.quality_baselines import plan_baselines, plan_fronts
from fleetcast.assets.studies.quality_cases import plan_quality_cases

LOTS, KNOWS = "random", "oracle"  # judges at the ends of the dial


class QualityReport(NamedTuple):
    """What becomes of a question: the chosen plan first, then what stands beside it; cases without one."""

    plans: list[QualityPlan]
    lacking: Mapping[str, str]  # why, by case


def plan_quality(
    settings: RunSettings,
    question: QualityRequirement,
    with_front: bool,
    progress: Progress,
    with_cases: bool = False,
) -> QualityReport:
    """The plan that is asked for, what stands beside it, the cases, and with the front other policies.

    ConfigError names the requirement that binds, and what is nearest, where no plan keeps all.
    """
    question.check()
    market = build_market(settings, progress)
    known = {market.name: market}

    def with_judge(judge: str) -> Market:
        if judge not in known:
            known[judge] = build_market(settings, progress, judge)
        return known[judge]

    plans = [choose_quality_plan(market, question, progress), *plan_baselines(market, question)]
    lacking: Mapping[str, str] = {}
    if with_cases:
        cases, lacking = plan_quality_cases(with_judge, market, question, progress)
        plans += cases
    if with_front:
        plans += plan_quality_policies(plans[0], with_judge(KNOWS), question, progress)
        for judge in dict.fromkeys((market.name, LOTS, KNOWS)):
            plans += plan_fronts(with_judge(judge), question)
    write_quality_plans(settings, question, plans)
    return QualityReport(plans, lacking)
