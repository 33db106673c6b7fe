"""The config that a trace of one's own is planned by, written beside the page: office but for this.

Every instance that the peak of the history needs is there at the start; what the plan does not hold is
donated and comes back within a minute ([replay] boot_spot_s), more boots cold.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from fleetcast.assets.advice.imported_trace import ImportedTrace
from fleetcast.assets.lake.settings import RunSettings, load_settings
from fleetcast.assets.studies.try_fleet import TryPool, min_tensor_parallel
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.toml_dataclasses import ConfigError

ADVICE_POLICIES = ("static", "reactive", "lt_ua", "corrected", "day_ahead", "clairvoyant")
GROWTH_FACTOR = 4  # times what the peak needs: how far a fleet may grow
MIN_INSTANCE_LIMIT = 16  # instances
WEEK_DAYS = 7
UNCAPPED_GPUS = 1_000_000  # GPUs of a type that a region may hold: nobody has said a cap
CONFIG_HEADER = "# Written by fleetcast advise; every command on the page reads it.\n"


class SizedDeployment(NamedTuple):
    """What the instances of an llm stand on, and about how many its peak needs."""

    deployment: Deployment
    peak_instances: int


def current_deployments(pools: Sequence[TryPool]) -> dict[str, SizedDeployment]:
    """What runs today, as it was told."""
    return {pool.llm: SizedDeployment(pool.deployment, pool.instances) for pool in pools}


def default_deployments(
    llms: Sequence[str], catalogue: Catalogue, config: RunConfig
) -> dict[str, SizedDeployment]:
    """The cheapest instance with a profile that holds each llm; how many are needed nobody knows yet."""
    return {llm: SizedDeployment(cheapest_deployment(llm, catalogue, config), 1) for llm in llms}


def cheapest_deployment(
    llm: str, catalogue: Catalogue, config: RunConfig, gpus: Sequence[str] = ()
) -> Deployment:
    """The cheapest instance that holds an llm, of these GPU types or of all that have a profile."""
    found = []
    for gpu in gpus or dict.fromkeys(p.gpu for p in catalogue.latency if p.llm == llm):
        try:
            degree = min_tensor_parallel(llm, gpu, catalogue, config)
        except ConfigError:
            continue
        found.append((degree * catalogue.gpus[gpu].usd_per_hour, gpu, degree))
    if not found:
        raise ConfigError(
            f"No GPU type of {', '.join(gpus) or 'the catalogue'} has a profile that holds {llm}."
        )
    _, gpu, degree = min(found)
    return Deployment(gpu, degree)


def choose_forecast_methods(brought: ImportedTrace) -> tuple[str, tuple[str, ...]]:
    """The forecast that plans follow, and all that are made, by the length of the history."""
    days = (brought.last_at.date() - brought.first_day).days
    season = "seasonal_naive" if days > WEEK_DAYS else "seasonal_naive_day"
    return "weighted", ("last_value", season, "weighted")


def write_advice_config(
    brought: ImportedTrace, stands: Mapping[str, SizedDeployment], catalogue: Catalogue, path: Path
) -> RunSettings:
    """Write the config and read it back, as every command does."""
    path.write_text(advice_config_text(brought, stands, catalogue), encoding="utf-8")
    return load_settings(str(path), str(brought.lake.root))


def advice_config_text(
    brought: ImportedTrace, stands: Mapping[str, SizedDeployment], catalogue: Catalogue
) -> str:
    """The config as TOML."""
    method, methods = choose_forecast_methods(brought)
    days = max(2, (brought.last_at.date() - brought.first_day + timedelta(days=1)).days)
    most = max(
        MIN_INSTANCE_LIMIT, *(math.ceil(GROWTH_FACTOR * one.peak_instances) for one in stands.values())
    )
    regions = _toml_list(brought.regions)
    pools = []
    for llm, (pool, peak) in stands.items():
        degree = f'gpu = "{pool.gpu}", tensor_parallel = {pool.tensor_parallel}'
        pools.append(f'"{llm}" = {{ {degree}, regions = {regions}, instances_at_start = {max(1, peak)} }}')
    gpus = dict.fromkeys(one.deployment.gpu for one in stands.values())
    caps = ", ".join(f'"{gpu}" = {UNCAPPED_GPUS}' for gpu in gpus)
    tables = [
        CONFIG_HEADER + 'based_on = "office"',
        f'[trace]\nname = "{brought.trace}"\nfirst_day = {brought.first_day}\ndays = {days}\nseed = 7',
        f"[fleet]\ninstances_at_start = 1\nmin_instances = 1\nmax_instances = {most}",
        "\n".join(["[fleet.deployments]", *pools]),
        f'[forecast]\nmethod = "{method}"\npaper_method = "{method}"\nmethods = {_toml_list(methods)}',
        f"[replay]\npolicies = {_toml_list(ADVICE_POLICIES)}",
        *(
            f"[catalogue.regions.{region}]\ncap_gpus = {{ {caps} }}\nweights = {_toml_list(list(stands))}"
            for region in catalogue.regions
        ),
    ]
    return "\n\n".join(tables) + "\n"


def _toml_list(names: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"
