"""Plans for quality: which llm answers what, on which GPUs; the chosen one, and what stands beside it."""

from collections.abc import Mapping
from typing import NamedTuple

from fleetcast.assets.lake.settings import Progress, Settings
from fleetcast.assets.plans.quality_asked import Plan, Question
from fleetcast.assets.plans.quality_markets import Market, market_of
from fleetcast.assets.plans.quality_policies import policies
from fleetcast.assets.plans.quality_search import chosen
from fleetcast.assets.plans.quality_tables import write
from fleetcast.assets.studies.quality_beside import baselines, fronts
from fleetcast.assets.studies.quality_cases import what_if

LOTS, KNOWS = "random", "oracle"  # judges at the ends of the dial


class Answered(NamedTuple):
    """What becomes of a question: the chosen plan first, then what stands beside it; cases without one."""

    plans: list[Plan]
    lacking: Mapping[str, str]  # why, by case


def plan_quality(
    settings: Settings,
    question: Question,
    with_front: bool,
    progress: Progress,
    with_cases: bool = False,
) -> Answered:
    """The plan that is asked for, what stands beside it, the cases, and with the front other policies.

    ConfigError names the requirement that binds, and what is nearest, where no plan keeps all.
    """
    question.check()
    market = market_of(settings, progress)
    known = {market.name: market}

    def with_judge(judge: str) -> Market:
        if judge not in known:
            known[judge] = market_of(settings, progress, judge)
        return known[judge]

    plans = [chosen(market, question, progress), *baselines(market, question)]
    lacking: Mapping[str, str] = {}
    if with_cases:
        cases, lacking = what_if(with_judge, market, question, progress)
        plans += cases
    if with_front:
        plans += policies(plans[0], with_judge(KNOWS), question, progress)
        for judge in dict.fromkeys((market.name, LOTS, KNOWS)):
            plans += fronts(with_judge(judge), question)
    write(settings, question, plans)
    return Answered(plans, lacking)
