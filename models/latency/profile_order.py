"""The profile of a deployment, from the best source that has one; and a catalogue completed with it.

The order of sources, best first:

    latency.toml          calibrated from the user's log, measured, or estimated there
    kernels.toml          dense llms, composed of kernels timed on the GPU type (composed_profiles.py)
    aiconfigurator-core   measured kernels of current engines, mixtures too (aiconfigurator_profiles.py)
    kernels.toml in part  dense llms on GPU types for which other kernels stand in
    roofline              an estimate, where none of them has data

Composed profiles of dense llms are nearer to measured runs than the package (`python tests/bench wall`).

A calibrated profile also corrects the other tensor-parallel degrees of its llm on its GPU type, by a factor
of prefill and one of decode. It corrects no other llm: measured runs of other llms, or of the same one in
other bits, are then further off (tests/test_corrected_degrees.py).
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.latency.aiconfigurator_package import PackageLacksData
from fleetcast.models.latency.aiconfigurator_profiles import aiconfigurator_profile
from fleetcast.models.latency.batch_extension import extend_catalogue
from fleetcast.models.latency.composed_profiles import compose_profile
from fleetcast.models.latency.latency_errors import has_timed_kernels, scale_profile
from fleetcast.models.latency.model_configs import check_llm_config
from fleetcast.models.latency.profile_tables import interpolate_knots, profile_prefill_s
from fleetcast.models.latency.roofline import context_token_s, roofline_profile
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import VLLM, LatencyProfile
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.config_checks import check_balancer_interval
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.toml_dataclasses import ConfigError

CALIBRATED = "calibrated"
MEASURED = ("measured", CALIBRATED)  # how the source of a measured profile begins
FACTOR_CONTEXT = 1024  # cached tokens of a request, at which two decode curves are compared
# Median error of TPOT with the factor of another degree, by whether the llm is dense:
DEGREE_ERROR_SHARES = {True: 0.07, False: 0.08}  # tests/test_corrected_degrees.py

REASON = ", because "  # in the source of an estimate, before what the other sources lack


def find_profile(catalogue: Catalogue, llm: str, gpu: str, tensor_parallel: int) -> LatencyProfile:
    """Return the profile of a deployment from the best source; ConfigError where none can be made.

    An llm that the GPUs cannot divide, or whose config.json contradicts llms.toml, is an error: an estimate
    would hide it.
    """
    with suppress(ConfigError):
        return catalogue.profile(llm, gpu, tensor_parallel)
    return compute_missing_profile(catalogue, llm, gpu, tensor_parallel)


def compute_missing_profile(catalogue: Catalogue, llm: str, gpu: str, tensor_parallel: int) -> LatencyProfile:
    """Return the best profile of a deployment that latency.toml lacks.

    If the llm is calibrated at another degree on this GPU type, the seconds are times the factors of the
    nearest one. Only profiles of one source are compared: between two sources a factor has no meaning.
    """
    computed = compute_profile(catalogue, llm, gpu, tensor_parallel)
    rows = [
        row
        for row in catalogue.latency
        if (row.llm, row.gpu) == (llm, gpu) and row.source.startswith(CALIBRATED)
    ]
    if not rows:
        return computed
    near = min(rows, key=lambda row: abs(np.log2(row.tensor_parallel / tensor_parallel)))
    before = compute_profile(catalogue, llm, gpu, near.tensor_parallel)
    if before.source.partition(":")[0] != computed.source.partition(":")[0]:
        return computed
    prefill, decode = correction_factors(near, before)
    error_share = degree_error_share(catalogue, near)
    return replace(
        scale_profile(catalogue, computed, prefill, decode),
        # It was measured where kernels are timed; how near an estimate comes is not known.
        median_error_share=error_share if has_timed_kernels(computed) else None,
        prefill_median_error_share=catalogue.efficiency.median_error_share,
        source=f"corrected: times {prefill:.3g} in prefill and {decode:.3g} in decode, as measured on "
        f"{near.tensor_parallel} x {gpu}; {computed.source}",
    )


def degree_error_share(catalogue: Catalogue, near: LatencyProfile) -> float:
    """Return the median error of TPOT with the factors of `near`; none is surer than `near` itself."""
    return max(DEGREE_ERROR_SHARES[catalogue.llms[near.llm].experts is None], near.median_error_share or 0.0)


def correction_factors(measured: LatencyProfile, computed: LatencyProfile) -> tuple[float, float]:
    """Return how many times as long prefill and decode take, in the median over the measured knots.

    Knots of batches that were not measured have this median already (models/trials/engine_calibration.py).
    """
    batch = np.array(measured.decode_batch)
    steps_s = np.array(measured.decode_s) + measured.decode_per_kv_token_s * batch * FACTOR_CONTEXT
    prefill_s = np.array(measured.prefill_s) / profile_prefill_s(computed, measured.prefill_tokens)
    return float(np.median(prefill_s)), float(np.median(steps_s / context_step_s(computed, batch)))


def context_step_s(profile: LatencyProfile, batch: Ints) -> Floats:
    """Return the seconds of steps of requests with FACTOR_CONTEXT cached tokens each, (n,) by batch."""
    step_s = interpolate_knots(batch, profile.decode_batch, profile.decode_s)
    return step_s + profile.decode_per_kv_token_s * batch * FACTOR_CONTEXT


def require_degree(catalogue: Catalogue, llm: str, gpu: str, tensor_parallel: int) -> None:
    """Raise ConfigError for a tensor-parallel degree that does not divide the heads of an llm."""
    if (heads := catalogue.llms[llm].heads) % tensor_parallel:
        raise ConfigError(
            f"{llm} on {tensor_parallel} x {gpu}: tensor_parallel must divide the {heads} heads of {llm}. "
            "Choose another degree."
        )


def compute_profile(catalogue: Catalogue, llm: str, gpu: str, tensor_parallel: int) -> LatencyProfile:
    """Return the best profile that is not in latency.toml: the sources below it, in order."""
    require_degree(catalogue, llm, gpu, tensor_parallel)
    arch, kernels = catalogue.llms[llm], catalogue.kernels.get(gpu)
    check_llm_config(arch, llm)
    is_vllm = arch.backend == VLLM  # the kernels and the roofline are those of vLLM
    if is_vllm and kernels is not None and kernels.lacks is None:
        with suppress(ConfigError):
            return compose_profile(catalogue, llm, gpu, tensor_parallel)
    try:
        return aiconfigurator_profile(catalogue, llm, gpu, tensor_parallel)
    except PackageLacksData as reason:
        if not is_vllm:
            raise ConfigError(
                f"{llm} on {tensor_parallel} x {gpu} by {arch.backend}: {reason}, and nothing else times "
                f"{arch.backend}. Drop backend, or name another GPU."
            ) from reason
        with suppress(ConfigError):
            return compose_profile(catalogue, llm, gpu, tensor_parallel)
        if (ranks := arch.expert_ranks) > 1:
            raise ConfigError(
                f"{llm} on {ranks} ranks of {tensor_parallel} x {gpu}: {reason}, and nothing else times "
                "data-parallel ranks. Drop data_parallel_size, or name another GPU."
            ) from reason
        estimate = roofline_profile(catalogue, llm, gpu, tensor_parallel)
        return replace(estimate, source=f"{estimate.source}{REASON}{reason}")


def compute_changed_profile(catalogue: Catalogue, llm: str, pool: Deployment) -> LatencyProfile:
    """Return the profile of a deployment that serves the llm in other bits: never one of latency.toml.

    It has a time per context token: the roofline's would be that of the unchanged llm.
    """
    served = catalogue.as_served(llm, pool.llm_changes)
    profile = compute_profile(served, llm, pool.gpu, pool.tensor_parallel)
    return replace(profile, prefill_per_context_token_s=context_token_s(served, profile))


def comparable_profiles(
    catalogue: Catalogue, llm: str, deployments: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], LatencyProfile]:
    """Return profiles of an llm of one kind, by pair of GPU type and tensor-parallel degree.

    If every GPU type has a measured or calibrated profile, only these are used. Else none of latency.toml is:
    a measured engine on one GPU type compared with kernels on another would compare the years of the
    software. Pairs without any profile are left out.
    """
    pairs = list(deployments)
    measured = [p for p in catalogue.latency if p.llm == llm and p.source.startswith(MEASURED)]
    rows = {(p.gpu, p.tensor_parallel): p for p in measured}
    if {gpu for gpu, _ in pairs} <= {gpu for gpu, _ in rows}:
        return {pair: rows[pair] for pair in pairs if pair in rows}
    found = {}
    for gpu, tensor_parallel in pairs:
        with suppress(ConfigError):
            found[gpu, tensor_parallel] = compute_profile(catalogue, llm, gpu, tensor_parallel)
    return found


def profiled_gpus(catalogue: Catalogue, llm: str) -> list[str]:
    """Return the GPU types with a profile of the llm in latency.toml; if it has none, those with kernels."""
    rows = list(dict.fromkeys(profile.gpu for profile in catalogue.latency if profile.llm == llm))
    return rows or [gpu for gpu, entry in catalogue.gpus.items() if entry.system is not None]


def describe_estimates(catalogue: Catalogue) -> list[str]:
    """Return a line for each profile of the roofline that stands for data that no source has."""
    return [
        f"{profile.tensor_parallel} x {profile.gpu} for {profile.llm}: {profile.source}."
        for profile in catalogue.latency
        if REASON in profile.source
    ]


def complete_catalogue(catalogue: Catalogue, config: RunConfig, where: str | None = None) -> Catalogue:
    """Return the catalogue with a profile of each deployment of a config, up to its largest batch.

    ConfigError, which names the config's file or `where`, for a deployment without any profile, a batch that
    does not fit into memory, and a balancer that runs more often than any step ends.
    """
    file, deployments = where or config.file.name, config.fleet.deployments
    pools = [(llm, pool) for llm, of_llm in deployments.items() for pool in of_llm]
    needed = {(llm, pool.gpu, pool.tensor_parallel) for llm, pool in pools if not pool.llm_changes}
    missing = sorted(needed - {(p.llm, p.gpu, p.tensor_parallel) for p in catalogue.latency})
    changed = dict(catalogue.changed_latency)
    try:
        found = [compute_missing_profile(catalogue, *each) for each in missing]
        for llm, pool in pools:
            key = llm, pool.llm_changes
            known = changed.get(key, ())
            if pool.llm_changes and (pool.gpu, pool.tensor_parallel) not in {
                (p.gpu, p.tensor_parallel) for p in known
            }:
                changed[key] = (*known, compute_changed_profile(catalogue, llm, pool))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    whole = replace(catalogue, latency=(*catalogue.latency, *found), changed_latency=changed)
    check_balancer_interval(config, whole)
    return extend_catalogue(whole, config.fleet, file)
