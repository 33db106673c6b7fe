"""Pipeline parallelism: the profile of pp stages, each of so many layers, from that of all layers on one.

With pp micro-batches under way a prompt's pass fills and drains the pipeline, 2 pp - 1 turns of a stage that
does 1/pp of the layers for 1/pp of the tokens; a decode step does all layers for each micro-batch of B/pp
requests, which reads 1/pp of the cache. Between two stages a token's hidden state crosses a link:

    prefill_pp(n) = prefill(n) (2 pp - 1) / pp^2 + (pp - 1) hop(n / pp)
    step_pp(B, kv) = f[B / pp] + g kv / pp + (pp - 1) hop(B / pp)        hop(n) = n * hidden * 2 bytes / link

The step is affine in kv, as that of one stage is. Estimated: no public measurement is known to us.
"""

import dataclasses

import numpy as np

from fleetcast.models.latency.roofline import ACTIVATION_BYTES, roofline_context_token_s
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile
from fleetcast.models.world.toml_dataclasses import ConfigError


def deployment_profile(
    catalogue: Catalogue, llm: str, gpu: str, tensor_parallel: int, pipeline_parallel: int
) -> LatencyProfile:
    """The profile of a deployment of so many stages; ConfigError where nobody measured one stage.

    What context costs is estimated where the profile does not say.
    """
    whole = catalogue.profile(llm, gpu, tensor_parallel)
    if whole.prefill_per_context_token_s is None:
        estimated_s = roofline_context_token_s(
            catalogue.llms[llm], catalogue.gpus[gpu], tensor_parallel, catalogue.efficiency
        )
        whole = dataclasses.replace(whole, prefill_per_context_token_s=estimated_s)
    if pipeline_parallel == 1:
        return whole
    return split_into_stages(whole, pipeline_parallel, hop_token_s(catalogue, llm, gpu, tensor_parallel))


def hop_token_s(catalogue: Catalogue, llm: str, gpu: str, tensor_parallel: int) -> float:
    """Seconds in which a token's hidden state goes from stage to stage, over the links of all its GPUs."""
    hidden, link = catalogue.llms[llm].hidden, catalogue.gpus[gpu].link_gbit_per_s
    if hidden is None or link is None:
        lacks = "llms.toml has no hidden" if hidden is None else f"gpus.toml has no link_gbit_per_s of {gpu}"
        raise ConfigError(
            f"[fleet.deployments] {llm}: {lacks}, which pipeline_parallel above 1 needs. Add it."
        )
    return 8e-9 * ACTIVATION_BYTES * hidden / (link * tensor_parallel)


def split_into_stages(whole: LatencyProfile, stages: int, hop_s: float) -> LatencyProfile:
    """A profile with so many stages instead of one."""
    hops_s = (stages - 1) * hop_s / stages
    tokens, batch = np.array(whole.prefill_tokens), np.array(whole.decode_batch)
    prefill_s = np.array(whole.prefill_s) * (2 * stages - 1) / stages**2 + hops_s * tokens
    decode_s = np.array(whole.decode_s) + hops_s * stages * batch
    return dataclasses.replace(
        whole,
        prefill_s=tuple(prefill_s.tolist()),
        decode_batch=(1, *(stages * batch).tolist()),  # up to a request a stage no step is quicker
        decode_s=(float(decode_s[0]), *decode_s.tolist()),
        decode_per_kv_token_s=whole.decode_per_kv_token_s / stages,
        prefill_per_context_token_s=(whole.prefill_per_context_token_s or 0.0) * (2 * stages - 1) / stages**2,
        source=f"estimated: {stages} stages of {whole.source}",
    )
