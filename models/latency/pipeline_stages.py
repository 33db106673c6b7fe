"""Pipeline parallelism: the profile of pp stages, from the profile of one stage with all layers.

With pp micro-batches in flight a prompt's pass fills and drains the pipeline: 2 pp - 1 turns of a stage, each
with 1/pp of the layers for 1/pp of the tokens. A decode step runs all layers for each micro-batch of B/pp
requests, which reads 1/pp of the cache. Between two stages a token's hidden state crosses a link:

    prefill_pp(n) = prefill(n) (2 pp - 1) / pp^2 + (pp - 1) hop(n / pp)
    step_pp(B, kv) = f[B / pp] + g kv / pp + (pp - 1) hop(B / pp)        hop(n) = n * hidden * 2 bytes / link

The step is affine in kv, like that of one stage. It is an estimate: no public measurement was found.
"""

import dataclasses

import numpy as np

from fleetcast.models.latency.roofline import ACTIVATION_BYTES, context_token_s
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile
from fleetcast.models.world.toml_dataclasses import ConfigError


def deployment_profile(
    catalogue: Catalogue, llm: str, gpu: str, tensor_parallel: int, pipeline_parallel: int
) -> LatencyProfile:
    """Return the profile of a deployment with its stages; ConfigError without a profile of one stage.

    A profile without a time per context token gets the roofline's.
    """
    profile = catalogue.profile(llm, gpu, tensor_parallel)
    profile = dataclasses.replace(profile, prefill_per_context_token_s=context_token_s(catalogue, profile))
    if pipeline_parallel == 1:
        return profile
    return split_into_stages(profile, pipeline_parallel, hop_token_s(catalogue, llm, gpu, tensor_parallel))


def hop_token_s(catalogue: Catalogue, llm: str, gpu: str, tensor_parallel: int) -> float:
    """Return the seconds to send a token's hidden state to the next stage, over the links of all GPUs.

    ConfigError without the llm's hidden width or the GPU's link.
    """
    hidden, link = catalogue.llms[llm].hidden, catalogue.gpus[gpu].link_gbit_per_s
    if hidden is None or link is None:
        lacks = "llms.toml has no hidden" if hidden is None else f"gpus.toml has no link_gbit_per_s of {gpu}"
        raise ConfigError(
            f"[fleet.deployments] {llm}: {lacks}, which pipeline_parallel above 1 needs. Add it."
        )
    return 8e-9 * ACTIVATION_BYTES * hidden / (link * tensor_parallel)


def split_into_stages(profile: LatencyProfile, stages: int, hop_s: float) -> LatencyProfile:
    """Return a one-stage profile with several stages; `hop_s` is seconds of a token between two stages."""
    hops_s = (stages - 1) * hop_s / stages
    tokens, batch = np.array(profile.prefill_tokens), np.array(profile.decode_batch)
    passing_share = (2 * stages - 1) / stages**2
    prefill_s = np.array(profile.prefill_s) * passing_share + hops_s * tokens
    decode_s = np.array(profile.decode_s) + hops_s * stages * batch
    return dataclasses.replace(
        profile,
        prefill_s=tuple(prefill_s.tolist()),
        # With fewer requests than stages a step takes as long as with one request per stage.
        decode_batch=(1, *(stages * batch).tolist()),
        decode_s=(float(decode_s[0]), *decode_s.tolist()),
        decode_per_kv_token_s=profile.decode_per_kv_token_s / stages,
        prefill_per_context_token_s=(profile.prefill_per_context_token_s or 0.0) * passing_share,
        expert_s=tuple(passing_share * seconds for seconds in profile.expert_s),
        source=f"estimated: {stages} stages of {profile.source}",
    )
