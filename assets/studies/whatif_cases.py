"""Read and check the cases of data/whatif.toml, and apply to a run what each case changes."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.plans.problems import option_usd_per_hour
from fleetcast.models.latency.profile_order import complete_catalogue
from fleetcast.models.plan.problem import Problem
from fleetcast.models.world.config import FORECAST_QUANTILES, PAPER_PLAN_KINDS, replace_given
from fleetcast.models.world.config_checks import check_config
from fleetcast.models.world.fleet_config import FleetConfig, Instances, SurvivalName
from fleetcast.models.world.instance_kv_memory import kv_capacity_tokens
from fleetcast.models.world.project_paths import ROOT
from fleetcast.models.world.toml_dataclasses import (
    ConfigError,
    ConfigWarning,
    OneOf,
    PositiveShare,
    Range,
    build_dataclass,
    read_toml,
    require_known,
)

WHATIF_CASES = ROOT / "data" / "whatif.toml"


@dataclass(frozen=True)
class WhatIfCase:
    """Overrides of the config; data/whatif.toml documents each key."""

    what: str
    usd_per_gpu_hour: Mapping[str, Annotated[float, Range(0, 10_000)]] | None = None
    gpu: str | None = None
    tensor_parallel: Mapping[str, Annotated[int, Range(1, 1024)]] | None = None
    down: tuple[str, ...] = ()
    demand_factor: Annotated[float, Range(0, 1000, is_above=True)] = 1.0
    quantile: Annotated[float, OneOf(FORECAST_QUANTILES)] | None = None
    epsilon: PositiveShare | None = None
    min_instances: Instances | None = None
    survive: SurvivalName | None = None
    instances_at_start: Instances | None = None
    budget_usd_per_hour: float | None = None


def load_whatif_cases(names: Sequence[str] = (), path: Path = WHATIF_CASES) -> dict[str, WhatIfCase]:
    """Read the named cases, else all; ConfigError for an unknown name or a mistake in the table of one."""
    tables = read_toml(path)
    for name in names:
        require_known(name, tables, "case", path.name)
    return {
        name: build_dataclass(WhatIfCase, tables[name], f"{path.name} [{name}]") for name in names or tables
    }


def resolve_cases(
    settings: RunSettings, names: Sequence[str], policy: str = "corrected", path: Path = WHATIF_CASES
) -> dict[str, tuple[WhatIfCase, RunSettings]]:
    """Return the named cases, each with its settings; ConfigError for one that the config cannot have.

    Without names: all that the config can have under the policy. One warning names the others with the
    reason of each; ConfigError if no case is left.
    """
    found, refused = dict[str, tuple[WhatIfCase, RunSettings]](), list[str]()
    for name, case in load_whatif_cases(names, path).items():
        try:
            found[name] = case, resolve_case(settings, case, f"{path.name} [{name}]", policy)
        except ConfigError as error:
            if names:
                raise
            refused.append(str(error))
    if refused and not found:
        raise ConfigError(refused[0])
    if refused:
        line = f"{settings.config.file.name} cannot have {len(refused)} of the cases, which are left out:"
        warnings.warn(f"{line} {' '.join(refused)}", ConfigWarning, stacklevel=2)
    return found


def resolve_case(
    settings: RunSettings, case: WhatIfCase, where: str, policy: str = "corrected"
) -> RunSettings:
    """Return a case's settings; ConfigError, starting with `where`, if the config cannot have the case."""
    require_known_names(settings, case, where)
    case_settings = apply_case(settings, case)
    fleet = case_settings.config.fleet
    try:
        check_config(case_settings.config, case_settings.catalogue)
        catalogue = complete_catalogue(case_settings.catalogue, case_settings.config)
        case_settings = replace(case_settings, catalogue=catalogue)
        for llm, pools in fleet.deployments.items():
            for pool in pools:
                served = catalogue.as_served(llm, pool.llm_changes)
                kv_capacity_tokens(served, fleet, llm, pool.gpu, pool.rank_gpus, pool.pipeline_parallel)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    one_of_each = sum(
        min(
            option_usd_per_hour(catalogue, option.option)
            for option in case_settings.grid.service_options
            if option.service == service
        )
        for service in case_settings.grid.services
    )
    budget = np.inf if case.budget_usd_per_hour is None else case.budget_usd_per_hour
    has_budgets = settings.config.rules[policy].plan not in (None, *PAPER_PLAN_KINDS)
    rules = (
        (not set(catalogue.regions) <= set(case.down), "down names every region; leave one up"),
        (
            budget >= one_of_each,
            f"budget_usd_per_hour is {budget:,.0f}, but one instance of each llm costs {one_of_each:,.0f}",
        ),
        (
            case.budget_usd_per_hour is None or has_budgets,
            f"budget_usd_per_hour needs a policy with a corrected plan, and {policy} has none",
        ),
    )
    for holds, rule in rules:
        if not holds:
            raise ConfigError(f"{where}: {rule}. Change it.")
    return case_settings


def require_known_names(settings: RunSettings, case: WhatIfCase, where: str) -> None:
    """Raise ConfigError, starting with `where`, for a GPU type, llm or region that the config has not."""
    catalogue = settings.catalogue
    for gpu in (*(case.usd_per_gpu_hour or {}), *([case.gpu] if case.gpu else [])):
        require_known(gpu, catalogue.gpus, "gpu", where)
    for llm in case.tensor_parallel or {}:
        require_known(llm, catalogue.llms, "llm", where)
    for region in case.down:
        require_known(region, catalogue.regions, "region", where)


def apply_case(settings: RunSettings, case: WhatIfCase) -> RunSettings:
    """Return the settings of a case; its demand, budget and regions down are applied elsewhere."""
    catalogue, config = settings.catalogue, settings.config
    prices = case.usd_per_gpu_hour or {}
    gpus = {
        name: replace(gpu, usd_per_hour=prices.get(name, gpu.usd_per_hour))
        for name, gpu in catalogue.gpus.items()
    }
    regions = dict(catalogue.regions)
    if case.gpu is not None:
        regions = {
            name: replace(region, cap_gpus={case.gpu: sum(region.cap_gpus.values())})
            for name, region in regions.items()
        }
    degrees, floored = case.tensor_parallel or {}, with_floors(config.fleet, case)
    deployments = {
        llm: tuple(replace_given(pool, gpu=case.gpu, tensor_parallel=degrees.get(llm)) for pool in pools)
        for llm, pools in floored.deployments.items()
    }
    fleet = replace_given(floored, deployments=deployments, instances_at_start=case.instances_at_start)
    plan = replace_given(config.plan, epsilon=case.epsilon, quantile=case.quantile)
    return replace(
        settings,
        catalogue=replace(catalogue, gpus=gpus, regions=regions),
        config=replace(config, fleet=fleet, plan=plan),
    )


def with_floors(fleet: FleetConfig, case: WhatIfCase) -> FleetConfig:
    """Return the fleet with the minimum of a case, or with what it must survive; each replaces the other."""
    if case.survive is None:
        if case.min_instances is None:
            return fleet
        return replace(fleet, min_instances=case.min_instances, survive=None, survive_by_llm={})
    pools = {
        llm: tuple(replace(pool, min_instances=None) for pool in of_llm)
        for llm, of_llm in fleet.deployments.items()
    }
    least = case.min_instances or 0  # a case with both is refused by its check
    return replace(fleet, deployments=pools, min_instances=least, survive=case.survive, survive_by_llm={})


def without_regions(settings: RunSettings, down: Sequence[str]) -> RunSettings:
    """Return the settings of the replay: without GPUs, so without instances, in the regions that are down."""
    regions = {
        name: replace(region, cap_gpus={}) if name in down else region
        for name, region in settings.catalogue.regions.items()
    }
    return replace(settings, catalogue=replace(settings.catalogue, regions=regions))


def limit_problem(case: WhatIfCase, problem: Problem, kind: str) -> Problem:
    """Return an hour's problem under a case: no instances in regions that are down, and its budget.

    SageServe's kinds of plan have no budget.
    """
    is_down = np.isin(problem.regions, case.down)
    budget_usd = None if kind in PAPER_PLAN_KINDS else case.budget_usd_per_hour
    return problem._replace(
        min_instances=np.where(is_down, 0, problem.min_instances),
        max_instances=np.where(is_down, 0, problem.max_instances),
        min_option_instances=np.where(is_down[:, None], 0, problem.min_option_instances),
        instances_now=np.where(is_down[:, None], 0, problem.instances_now),
        budget_usd=np.inf if budget_usd is None else budget_usd,
    )
