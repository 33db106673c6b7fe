"""Extend latency profiles to the batches of a config; the extension is marked as estimated.

Up to BATCH_REACH times its largest batch, a profile's decode steps continue with their last slope. Above,
there is no measurement that shows whether a GPU is still limited by bandwidth or already by compute. There a
step grows like the roofline's, and at least with the last slope:

    f[B] = max(line(B), f[n] * roofline[B] / roofline[n])        n = BATCH_REACH * the largest batch

Memory limits the batch: a request takes at least one block of KV cache. So a batch has no more requests than
an instance has blocks.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from fleetcast.models.latency.profile_tables import BATCH_REACH, interpolate_knots, profile_name
from fleetcast.models.latency.roofline import deployment_work, roofline_decode_s
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile
from fleetcast.models.world.fleet_config import Deployment, FleetConfig
from fleetcast.models.world.instance_kv_memory import kv_capacity_tokens
from fleetcast.models.world.toml_dataclasses import ConfigError


def extend_catalogue(catalogue: Catalogue, fleet: FleetConfig, file: str) -> Catalogue:
    """Return the catalogue with profiles up to the largest batch of this fleet.

    ConfigError, which names the file, where the batch does not fit into memory.
    """
    for llm, pools in fleet.deployments.items():
        for pool in pools:
            check_batch_memory(catalogue.as_served(llm, pool.llm_changes), fleet, llm, pool, file)
    most = {
        llm: max(fleet.engine(pool).max_batch for pool in pools) for llm, pools in fleet.deployments.items()
    }
    limits = [most.get(p.llm, fleet.max_batch) for p in catalogue.latency]
    latency = map(partial(extend_profile, catalogue), catalogue.latency, limits)
    changed = {
        key: tuple(extend_profile(catalogue.as_served(*key), p, most[p.llm]) for p in profiles)
        for key, profiles in catalogue.changed_latency.items()
    }
    return replace(catalogue, latency=tuple(latency), changed_latency=changed)


def extend_profile(catalogue: Catalogue, profile: LatencyProfile, max_batch: int) -> LatencyProfile:
    """Return the profile extended to batches of `max_batch` requests; unchanged if it reaches as far."""
    known = BATCH_REACH * profile.decode_batch[-1]
    if max_batch <= known:
        return profile
    llm, gpu = catalogue.llms[profile.llm], catalogue.gpus[profile.gpu]
    more = [known * 2**n for n in range((max_batch - 1) // known + 1) if known * 2**n < max_batch]
    batch = np.array([*more, max_batch])
    line_s = interpolate_knots(batch, profile.decode_batch, profile.decode_s)
    work = deployment_work(llm, gpu, profile.tensor_parallel)
    roofline_s = roofline_decode_s(work, batch, catalogue.efficiency)
    beyond_s = np.maximum(line_s, line_s[0] * roofline_s / roofline_s[0])
    return replace(
        profile,
        decode_batch=(*profile.decode_batch, *(int(b) for b in batch)),
        decode_s=(*profile.decode_s, *beyond_s.tolist()),
        median_error_share=None,
        prefill_median_error_share=None,
        source=f"estimated beyond a batch of {known}, {profile.source}",
    )


def check_batch_memory(
    catalogue: Catalogue, fleet: FleetConfig, llm: str, pool: Deployment, file: str
) -> None:
    """Raise ConfigError for an extended batch with more requests than an instance has KV blocks."""
    engine, profile = fleet.engine(pool), catalogue.profile(llm, pool.gpu, pool.tensor_parallel)
    if engine.max_batch <= BATCH_REACH * profile.decode_batch[-1] * pool.pipeline_parallel:
        return
    tokens = engine.kv_tokens or kv_capacity_tokens(
        catalogue, fleet, llm, pool.gpu, pool.rank_gpus, pool.pipeline_parallel
    )
    if engine.max_batch > (blocks := tokens // fleet.kv_block_tokens):
        raise ConfigError(
            f"{file}: {profile_name(profile)}: max_batch is {engine.max_batch}, but an instance has room for "
            f"{blocks:,} blocks of KV cache, and a request takes at least one. Lower max_batch."
        )
