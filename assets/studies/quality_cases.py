"""Plan the what-if cases of data/quality_cases.toml for a quality requirement."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.plans.quality_markets import Market
from fleetcast.assets.plans.quality_requirements import QualityPlan, QualityRequirement
from fleetcast.assets.plans.quality_search import choose_quality_plan
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


@dataclass(frozen=True)
class QualityCase:
    """Overrides of a quality requirement; data/quality_cases.toml documents each key."""

    what: str
    judge: str | None = None
    without: tuple[str, ...] = ()
    budget_usd_per_hour: Annotated[float, Range(0, 1e9, is_above=True)] = np.inf


def load_quality_cases(market: Market, path: Path = QUALITY_CASES) -> dict[str, QualityCase]:
    """Read the cases; ConfigError names an unknown judge or GPU type."""
    cases: dict[str, QualityCase] = {
        name: build_dataclass(QualityCase, value, f"{path.name} [{name}]")
        for name, value in read_toml(path).items()
    }
    for name, case in cases.items():
        where = f"{path.name} [{name}]"
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
