"""The config that a trace of one's own is planned by, written beside the page: office but for this.

Every instance that the peak of the history needs is there at the start; what the plan does not hold is
donated and comes back within a minute ([replay] boot_spot_s), more boots cold.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from fleetcast.assets.advice.brought import Brought
from fleetcast.assets.lake.settings import Settings, load_settings
from fleetcast.assets.studies.tried import Pool, smallest
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import Config
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.reading import ConfigError

POLICIES = ("static", "reactive", "lt_ua", "corrected", "day_ahead", "clairvoyant")
ROOM = 4  # times what the peak needs: how far a fleet may grow
LEAST_ROOM = 16  # instances
WEEK_DAYS = 7
CAP = 1_000_000  # GPUs of a type that a region may hold: nobody has said a cap
HEAD = "# Written by fleetcast advise; every command on the page reads it.\n"


class Stand(NamedTuple):
    """What the instances of an llm stand on, and about how many its peak needs."""

    deployment: Deployment
    peak_instances: int


def on_today(pools: Sequence[Pool]) -> dict[str, Stand]:
    """What runs today, as it was told."""
    return {pool.llm: Stand(pool.deployment, pool.instances) for pool in pools}


def plain(llms: Sequence[str], catalogue: Catalogue, config: Config) -> dict[str, Stand]:
    """The cheapest instance with a profile that holds each llm; how many are needed nobody knows yet."""
    return {llm: Stand(cheapest(llm, catalogue, config), 1) for llm in llms}


def cheapest(llm: str, catalogue: Catalogue, config: Config, gpus: Sequence[str] = ()) -> Deployment:
    """The cheapest instance that holds an llm, of these GPU types or of all that have a profile."""
    found = []
    for gpu in gpus or dict.fromkeys(p.gpu for p in catalogue.latency if p.llm == llm):
        try:
            degree = smallest(llm, gpu, catalogue, config)
        except ConfigError:
            continue
        found.append((degree * catalogue.gpus[gpu].usd_per_hour, gpu, degree))
    if not found:
        raise ConfigError(
            f"No GPU type of {', '.join(gpus) or 'the catalogue'} has a profile that holds {llm}."
        )
    _, gpu, degree = min(found)
    return Deployment(gpu, degree)


def method_of(brought: Brought) -> tuple[str, tuple[str, ...]]:
    """The forecast that plans follow, and all that are made, by the length of the history."""
    days = (brought.last_at.date() - brought.first_day).days
    season = "seasonal_naive" if days > WEEK_DAYS else "seasonal_naive_day"
    return "weighted", ("last_value", season, "weighted")


def write_config(brought: Brought, stands: Mapping[str, Stand], catalogue: Catalogue, path: Path) -> Settings:
    """Write the config and read it back, as every command does."""
    path.write_text(config_text(brought, stands, catalogue), encoding="utf-8")
    return load_settings(str(path), str(brought.lake.root))


def config_text(brought: Brought, stands: Mapping[str, Stand], catalogue: Catalogue) -> str:
    """The config as TOML."""
    method, methods = method_of(brought)
    days = max(2, (brought.last_at.date() - brought.first_day + timedelta(days=1)).days)
    most = max(LEAST_ROOM, *(math.ceil(ROOM * one.peak_instances) for one in stands.values()))
    regions = _list(brought.regions)
    pools = []
    for llm, (pool, peak) in stands.items():
        degree = f'gpu = "{pool.gpu}", tensor_parallel = {pool.tensor_parallel}'
        pools.append(f'"{llm}" = {{ {degree}, regions = {regions}, instances_at_start = {max(1, peak)} }}')
    gpus = dict.fromkeys(one.deployment.gpu for one in stands.values())
    caps = ", ".join(f'"{gpu}" = {CAP}' for gpu in gpus)
    tables = [
        HEAD + 'based_on = "office"',
        f'[trace]\nname = "{brought.trace}"\nfirst_day = {brought.first_day}\ndays = {days}\nseed = 7',
        f"[fleet]\ninstances_at_start = 1\nmin_instances = 1\nmax_instances = {most}",
        "\n".join(["[fleet.deployments]", *pools]),
        f'[forecast]\nmethod = "{method}"\npaper_method = "{method}"\nmethods = {_list(methods)}',
        f"[replay]\npolicies = {_list(POLICIES)}",
        *(
            f"[catalogue.regions.{region}]\ncap_gpus = {{ {caps} }}\nweights = {_list(list(stands))}"
            for region in catalogue.regions
        ),
    ]
    return "\n\n".join(tables) + "\n"


def _list(names: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"
