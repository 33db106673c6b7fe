"""Write the config under which a custom trace is planned, next to the page: office with these overrides.

All instances that the peak of the history needs exist at the start. Those that the plan does not use are
donated to spot and return within a minute ([replay] boot_spot_s); instances beyond them boot cold.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fleetcast.assets.advice.imported_trace import ImportedTrace
from fleetcast.assets.lake.settings import RunSettings, load_settings
from fleetcast.assets.pages.templates import fill_template
from fleetcast.assets.studies.try_fleet import DEFAULT_DEGREES, TryPool, min_tensor_parallel
from fleetcast.models.latency.profile_order import profiled_gpus
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.engine_answers import read_engine_answer
from fleetcast.models.world.fleet_config import SURVIVAL_FLOORS, Deployment
from fleetcast.models.world.model_rows import render_model_key
from fleetcast.models.world.toml_dataclasses import ConfigError

ADVICE_POLICIES = ("static", "reactive", "lt_ua", "corrected", "day_ahead", "clairvoyant")
GROWTH_FACTOR = 4  # the fleet may grow to this multiple of the peak's instances
MIN_INSTANCE_LIMIT = 16  # instances
WEEK_DAYS = 7
UNCAPPED_GPUS = 1_000_000  # cap of GPUs per type and region, as no cap is known
CONFIG_HEADER = "# Written by fleetcast advise; every command on the page reads it.\n"


class EngineFiles(NamedTuple):
    """Answers of `fleetcast configure` to plan with, and the least bits that the user allows."""

    paths: Sequence[Path] = ()
    quality_floor: str | None = None


NO_ENGINES = EngineFiles()


class SizedDeployment(NamedTuple):
    """The deployment of an llm's instances, and about how many its peak needs."""

    deployment: Deployment
    peak_instances: int


def current_deployments(pools: Sequence[TryPool]) -> dict[str, SizedDeployment]:
    """Return the deployments of the current fleet."""
    return {pool.llm: SizedDeployment(pool.deployment, pool.instances) for pool in pools}


def default_deployments(
    llms: Sequence[str], catalogue: Catalogue, config: RunConfig
) -> dict[str, SizedDeployment]:
    """Return the cheapest profiled and priced deployment that holds each llm, with a count of 1."""
    return {llm: SizedDeployment(cheapest_deployment(llm, catalogue, config), 1) for llm in llms}


def cheapest_deployment(llm: str, catalogue: Catalogue, config: RunConfig) -> Deployment:
    """Return the cheapest deployment that holds an llm, of the GPU types with a profile and a price."""
    found = []
    for gpu in profiled_gpus(catalogue, llm):
        if catalogue.gpus[gpu].usd_per_hour <= 0:
            continue
        try:
            degree = min_tensor_parallel(llm, gpu, catalogue, config)
        except ConfigError:
            continue
        found.append((degree * catalogue.gpus[gpu].usd_per_hour, gpu, degree))
    if not found:
        raise ConfigError(f"No GPU type of the catalogue has a profile that holds {llm}.")
    _, gpu, degree = min(found)
    return Deployment(gpu, degree)


def small_deployments(llm: str, gpu: str, catalogue: Catalogue, config: RunConfig) -> list[Deployment]:
    """Return the smallest deployment of a GPU type that holds an llm, and one of twice as many GPUs.

    The larger one only where the heads of the llm can be divided so. ConfigError if none holds it.
    """
    degree = min_tensor_parallel(llm, gpu, catalogue, config)
    has_twice = 2 * degree <= max(DEFAULT_DEGREES) and catalogue.llms[llm].heads % (2 * degree) == 0
    return [Deployment(gpu, degree) for degree in ([degree, 2 * degree] if has_twice else [degree])]


def write_advice_config(
    imported: ImportedTrace,
    deployments: Mapping[str, SizedDeployment],
    catalogue: Catalogue,
    survive: str,
    path: Path,
    engines: EngineFiles = NO_ENGINES,
) -> RunSettings:
    """Write the config with the prices of the catalogue, and read it back as settings."""
    text = advice_config_text(imported, deployments, catalogue, survive, engines)
    path.write_text(text, encoding="utf-8")
    return load_settings(str(path), str(imported.lake.root))


def surviving_regions(imported: ImportedTrace, catalogue: Catalogue, survive: str) -> tuple[str, ...]:
    """Return the regions of the fleet: those of the trace, and a second one if one may be lost."""
    regions = imported.regions
    if len(regions) < SURVIVAL_FLOORS[survive].regions:
        regions = (*regions, *[name for name in catalogue.regions if name not in regions][:1])
    return regions


def advice_config_text(
    imported: ImportedTrace,
    deployments: Mapping[str, SizedDeployment],
    catalogue: Catalogue,
    survive: str = "none",
    engines: EngineFiles = NO_ENGINES,
) -> str:
    """Return the config as TOML: regions have the GPU types of the deployments and of the engines."""
    places = surviving_regions(imported, catalogue, survive)
    least = math.ceil(SURVIVAL_FLOORS[survive].instances / len(places))
    days = (imported.last_at.date() - imported.first_day).days
    limit = max(
        MIN_INSTANCE_LIMIT,
        *(math.ceil(GROWTH_FACTOR * sized.peak_instances) for sized in deployments.values()),
    )
    gpus = [sized.deployment.gpu for sized in deployments.values()]
    for file in engines.paths:
        gpus += [pool.gpu for engine in read_engine_answer(file, "--engines")[1] for pool in engine.pools]
    return fill_template(
        Path(__file__).with_name("advice.toml.j2"),
        {"toml": json.dumps},
        header=CONFIG_HEADER,
        imported=imported,
        days=max(2, days + 1),
        least=least,
        limit=limit,
        engines=[str(path.absolute()) for path in engines.paths],
        quality_floor=engines.quality_floor,
        deployments=deployments,
        regions=places,
        season="seasonal_naive" if days > WEEK_DAYS else "seasonal_naive_day",
        policies=ADVICE_POLICIES,
        llm_tables=named_llm_tables(deployments, catalogue),
        catalogue=catalogue,
        caps=", ".join(f'"{gpu}" = {UNCAPPED_GPUS}' for gpu in dict.fromkeys(gpus)),
    )


def named_llm_tables(llms: Iterable[str], catalogue: Catalogue) -> list[str]:
    """Return a table of [catalogue.llms] for each llm that is named by its model."""
    shipped = load_catalogue().llms
    rows = {llm: render_model_key(llm, catalogue.llms[llm], shipped) for llm in llms}
    return ["\n".join([f'[catalogue.llms."{llm}"]', *row]) for llm, row in rows.items() if row]
