"""The cases of data/whatif.toml: what each changes in a run, refused before anything is computed from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np

from fleetcast.assets.lake.settings import Settings
from fleetcast.assets.plans.inputs import Load
from fleetcast.assets.plans.problems import usd_per_hour
from fleetcast.models.plan.problem import Problem
from fleetcast.models.world.config import QUANTILES, replaced
from fleetcast.models.world.consistency import check
from fleetcast.models.world.fleet_config import Instances
from fleetcast.models.world.memory import kv_capacity_tokens
from fleetcast.models.world.places import ROOT
from fleetcast.models.world.reading import (
    Among,
    ConfigError,
    PositiveShare,
    Range,
    build,
    read_toml,
    require_known,
)

CASES = ROOT / "data" / "whatif.toml"


@dataclass(frozen=True)
class Case:
    """What differs from the config; data/whatif.toml says what each key means."""

    what: str
    usd_per_gpu_hour: Mapping[str, Annotated[float, Range(0, 10_000)]] | None = None
    gpu: str | None = None
    tensor_parallel: Mapping[str, Annotated[int, Range(1, 1024)]] | None = None
    down: tuple[str, ...] = ()
    demand_factor: Annotated[float, Range(0, 1000, is_above=True)] = 1.0
    quantile: Annotated[float, Among(QUANTILES)] | None = None
    epsilon: PositiveShare | None = None
    min_instances: Instances | None = None
    instances_at_start: Instances | None = None
    budget_usd_per_hour: float | None = None


def case_names() -> list[str]:
    """The cases there are."""
    return list(read_toml(CASES))


def load_cases(settings: Settings, path: Path = CASES) -> dict[str, Case]:
    """Read the cases; ConfigError names a GPU type, an llm or a region that the catalogue does not have."""
    catalogue = settings.catalogue
    cases: dict[str, Case] = {
        name: build(Case, value, f"{path.name} [{name}]") for name, value in read_toml(path).items()
    }
    for name, case in cases.items():
        where = f"{path.name} [{name}]"
        for gpu in (*(case.usd_per_gpu_hour or {}), *([case.gpu] if case.gpu else [])):
            require_known(gpu, catalogue.gpus, "gpu", where)
        for llm in case.tensor_parallel or {}:
            require_known(llm, catalogue.llms, "llm", where)
        for region in case.down:
            require_known(region, catalogue.regions, "region", where)
    return cases


def possible_cases(
    settings: Settings, names: Sequence[str], path: Path = CASES
) -> dict[str, tuple[Case, Settings]]:
    """The named cases, else all, each with its settings; ConfigError names one that cannot be."""
    cases = load_cases(settings, path)
    for name in names:
        require_known(name, cases, "case", path.name)
    return {
        name: (cases[name], possible(settings, cases[name], f"{path.name} [{name}]"))
        for name in names or cases
    }


def possible(settings: Settings, case: Case, where: str) -> Settings:
    """The settings of a case; ConfigError, beginning with `where`, if no fleet can be like that."""
    own = changed(settings, case)
    catalogue, fleet = own.catalogue, own.config.fleet
    try:
        check(own.config, catalogue)
        for llm, pools in fleet.deployments.items():
            for pool in pools:
                catalogue.profile(llm, pool.gpu, pool.tensor_parallel)
                kv_capacity_tokens(catalogue, fleet, llm, pool.gpu, pool.gpus)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    one_of_each = sum(
        min(usd_per_hour(catalogue, k.option) for k in own.grid.service_options if k.service == service)
        for service in own.grid.services
    )
    budget = np.inf if case.budget_usd_per_hour is None else case.budget_usd_per_hour
    rules = (
        (not set(catalogue.regions) <= set(case.down), "down names every region; leave one up"),
        (
            budget >= one_of_each,
            f"budget_usd_per_hour is {budget:,.0f}, but one instance of each llm costs {one_of_each:,.0f}",
        ),
    )
    for holds, rule in rules:
        if not holds:
            raise ConfigError(f"{where}: {rule}. Change it.")
    return own


def changed(settings: Settings, case: Case) -> Settings:
    """The settings of a case; demand, budget and regions that are down change its load and its hours."""
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
    degrees = case.tensor_parallel or {}
    deployments = {
        llm: tuple(replaced(pool, gpu=case.gpu, tensor_parallel=degrees.get(llm)) for pool in pools)
        for llm, pools in config.fleet.deployments.items()
    }
    fleet = replaced(
        config.fleet,
        deployments=deployments,
        min_instances=case.min_instances,
        instances_at_start=case.instances_at_start,
    )
    plan = replaced(config.plan, epsilon=case.epsilon, quantile=case.quantile)
    return replace(
        settings,
        catalogue=replace(catalogue, gpus=gpus, regions=regions),
        config=replace(config, fleet=fleet, plan=plan),
    )


def without(settings: Settings, down: Sequence[str]) -> Settings:
    """The settings for the replay: no GPU in the regions that are down, so no instance at all."""
    regions = {
        name: replace(region, cap_gpus={}) if name in down else region
        for name, region in settings.catalogue.regions.items()
    }
    return replace(settings, catalogue=replace(settings.catalogue, regions=regions))


def multiplied_load(load: Load, factor: float) -> Load:
    """The load of a case: the forecast grows with the demand."""
    return Load(load.demand * factor, load.buffer * factor)


def limited(problem: Problem, case: Case) -> Problem:
    """An hour of a case: nothing may run in the regions that are down, and the budget holds."""
    is_down = np.isin(problem.regions, case.down)
    return problem._replace(
        min_instances=np.where(is_down, 0, problem.min_instances),
        max_instances=np.where(is_down, 0, problem.max_instances),
        min_option_instances=np.where(is_down[:, None], 0, problem.min_option_instances),
        instances_now=np.where(is_down[:, None], 0, problem.instances_now),
        budget_usd=np.inf if case.budget_usd_per_hour is None else case.budget_usd_per_hour,
    )
