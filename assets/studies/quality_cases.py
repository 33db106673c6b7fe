"""What if something were different in a question of quality: the cases of data/quality_cases.toml."""

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
    """What differs; data/quality_cases.toml says what each key means."""

    what: str
    judge: str | None = None
    without: tuple[str, ...] = ()
    budget_usd_per_hour: Annotated[float, Range(0, 1e9, is_above=True)] = np.inf


def load_quality_cases(market: Market, path: Path = QUALITY_CASES) -> dict[str, QualityCase]:
    """The cases; ConfigError names a judge or a GPU type that nobody knows."""
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
    market_of: Callable[[str], Market], market: Market, question: QualityRequirement, progress: Progress
) -> tuple[list[QualityPlan], Mapping[str, str]]:
    """The plan of each case, of kind whatif and named like it; why a case has none, by its name.

    `market_of` gives what there is to choose from with another judge.
    """
    found, lacking = [], dict[str, str]()
    for name, case in load_quality_cases(market).items():
        own = market if case.judge is None else market_of(case.judge)
        gone = np.isin(list(own.catalogue.gpus), case.without)
        own = own._replace(demand=own.demand._replace(cap_gpus=np.where(gone, 0, own.demand.cap_gpus)))
        budget = min(question.budget_usd_per_hour, case.budget_usd_per_hour)
        try:
            plan = choose_quality_plan(own, question._replace(budget_usd_per_hour=budget), progress)
        except ConfigError as error:
            lacking[name] = str(error)
        else:
            found.append(plan._replace(name=name, kind="whatif"))
    return found, lacking
