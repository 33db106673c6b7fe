"""The profile of a deployment, from the best source that has one; and a catalogue completed with it.

The order of sources, best first:

    latency.toml          calibrated from the user's log, measured, or estimated there
    aiconfigurator-core   measured kernels of current engines (aiconfigurator_profiles.py)
    roofline              an estimate, where neither has data
"""

from collections.abc import Iterable
from dataclasses import replace

from fleetcast.models.latency.aiconfigurator_package import PackageLacksData
from fleetcast.models.latency.aiconfigurator_profiles import aiconfigurator_profile
from fleetcast.models.latency.batch_extension import extend_catalogue
from fleetcast.models.latency.roofline import roofline_profile
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.config_checks import check_balancer_interval
from fleetcast.models.world.toml_dataclasses import ConfigError


def find_profile(catalogue: Catalogue, llm: str, gpu: str, tensor_parallel: int) -> LatencyProfile:
    """Return the profile of a deployment from the best source; ConfigError where none can be made.

    An llm that the GPUs cannot divide, or whose config.json contradicts llms.toml, is an error: an estimate
    would hide it.
    """
    for profile in catalogue.latency:
        if (profile.llm, profile.gpu, profile.tensor_parallel) == (llm, gpu, tensor_parallel):
            return profile
    return compute_profile(catalogue, llm, gpu, tensor_parallel)


def compute_profile(catalogue: Catalogue, llm: str, gpu: str, tensor_parallel: int) -> LatencyProfile:
    """Return the profile from aiconfigurator-core, else from the roofline, whatever latency.toml has."""
    try:
        return aiconfigurator_profile(catalogue, llm, gpu, tensor_parallel)
    except PackageLacksData as reason:
        estimate = roofline_profile(catalogue, llm, gpu, tensor_parallel)
        return replace(estimate, source=f"{estimate.source}, because {reason}")


def add_profiles(catalogue: Catalogue, deployments: Iterable[tuple[str, str, int]]) -> Catalogue:
    """Return the catalogue with a profile of each deployment (llm, GPU type, tensor-parallel degree)."""
    known = {(p.llm, p.gpu, p.tensor_parallel) for p in catalogue.latency}
    missing = sorted(set(deployments) - known)
    return replace(
        catalogue, latency=(*catalogue.latency, *(compute_profile(catalogue, *each) for each in missing))
    )


def profiled_gpus(catalogue: Catalogue, llm: str) -> list[str]:
    """Return the GPU types with a profile of the llm in latency.toml; if it has none, those with kernels."""
    rows = list(dict.fromkeys(profile.gpu for profile in catalogue.latency if profile.llm == llm))
    return rows or [gpu for gpu, entry in catalogue.gpus.items() if entry.system is not None]


def complete_catalogue(catalogue: Catalogue, config: RunConfig, where: str | None = None) -> Catalogue:
    """Return the catalogue with a profile of each deployment of a config, up to its largest batch.

    ConfigError, which names the config's file or `where`, for a deployment without any profile, a batch that
    does not fit into memory, and a balancer that runs more often than any step ends.
    """
    file, fleet = where or config.file.name, config.fleet
    deployments = {
        (llm, pool.gpu, pool.tensor_parallel) for llm, pools in fleet.deployments.items() for pool in pools
    }
    try:
        whole = add_profiles(catalogue, deployments)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    check_balancer_interval(config, whole)
    return extend_catalogue(whole, fleet, file)
