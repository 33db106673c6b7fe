"""Profiles continued to the batches that a config asks for: an estimate, and called one.

A profile's decode steps go on with their last slope up to REACH times the largest batch that it knows.
Beyond, nobody measured whether a GPU still reads weights or already computes. There a step grows as the
roofline's does, and at least by the last slope:

    f[B] = max(line(B), f[n] * roofline[B] / roofline[n])        n = REACH * the largest batch known

Memory is the end: a request takes a block of KV cache at least, so that no batch has more requests than an
instance has blocks.
"""

from dataclasses import replace

import numpy as np

from fleetcast.models.latency.profile_tables import BATCH_REACH, interpolate_knots, profile_name
from fleetcast.models.latency.roofline import deployment_work, roofline_decode_s
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile
from fleetcast.models.world.fleet_config import Deployment, FleetConfig
from fleetcast.models.world.instance_kv_memory import kv_capacity_tokens
from fleetcast.models.world.toml_dataclasses import ConfigError


def extend_catalogue(catalogue: Catalogue, fleet: FleetConfig, file: str) -> Catalogue:
    """The catalogue whose profiles know every batch that this fleet may have.

    ConfigError, which names the file, where memory has no room for such a batch.
    """
    for llm, pools in fleet.deployments.items():
        for pool in pools:
            check_batch_memory(catalogue, fleet, llm, pool, file)
    most = {
        llm: max(fleet.engine(pool).max_batch for pool in pools) for llm, pools in fleet.deployments.items()
    }
    return replace(
        catalogue,
        latency=tuple(
            extend_profile(catalogue, p, most.get(p.llm, fleet.max_batch)) for p in catalogue.latency
        ),
    )


def extend_profile(catalogue: Catalogue, profile: LatencyProfile, max_batch: int) -> LatencyProfile:
    """The profile up to a batch of so many requests; itself where it reaches so far."""
    known = BATCH_REACH * profile.decode_batch[-1]
    if max_batch <= known:
        return profile
    llm, gpu = catalogue.llms[profile.llm], catalogue.gpus[profile.gpu]
    more = [known * 2**n for n in range((max_batch - 1) // known + 1) if known * 2**n < max_batch]
    batch = np.array([*more, max_batch])
    line_s = interpolate_knots(batch, profile.decode_batch, profile.decode_s)
    roofline_s = roofline_decode_s(
        deployment_work(llm, gpu, profile.tensor_parallel), batch, catalogue.efficiency
    )
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
    """Refuse a batch beyond what is known for which an instance has too few blocks of memory."""
    engine, profile = fleet.engine(pool), catalogue.profile(llm, pool.gpu, pool.tensor_parallel)
    if engine.max_batch <= BATCH_REACH * profile.decode_batch[-1] * pool.pipeline_parallel:
        return
    tokens = engine.kv_tokens or kv_capacity_tokens(catalogue, fleet, llm, pool.gpu, pool.gpus)
    if engine.max_batch > (blocks := tokens // fleet.kv_block_tokens):
        raise ConfigError(
            f"{file}: {profile_name(profile)}: max_batch is {engine.max_batch}, but an instance has room for "
            f"{blocks:,} blocks of KV cache, and a request takes one at least. Lower max_batch."
        )
