"""Latency profiles estimated without measurements: FLOPs, bytes and architecture, with fitted efficiencies.

    prefill(t) = layers*layer_s + max(read(t)/bandwidth, t*flops/compute) + between(t)
    f[B]       = prefill(B) + B*(request_s + kept/bandwidth), kept: bytes of a request in states and windows
    g          = KV bytes per token / bandwidth
    h          = 4*layers*heads*head_dim / (tp * peak * attention_flops_share), layers that look back at all

    bandwidth  = tp * peak * bandwidth_share
    compute    = tp * peak * flops_share, twice that at 8 or 4 bits
    between(n) = layers * (allreduce_s*log2(tp) + n * sent / (link * link_share))
    sent       = 2 * 2*(tp - 1)/tp * hidden * 2 bytes
    read(n)    = bytes of the weights that n tokens touch. Dense llm: all weights. Mixture of experts: the
                 weights that every token uses, and the experts that n tokens choose, in the mean
                 experts*(1 - (1 - k/experts)^n), read at expert_bandwidth_share of the bandwidth

The GPUs of an instance all-reduce a token's hidden state twice a layer, after attention and after the
feed-forward network (Megatron-LM, section 3). In a ring each GPU sends 2*(tp - 1)/tp of it (Patarasuk and
Yuan, Bandwidth optimal all-reduce algorithms, section 4) over its link to its peers, NVLink or PCIe.

h is the time of a prompt token for each token of context before its pass: two products per query head.
Attention kernels reach nearly the same share of the peak on every measured GPU.

The eight coefficients are in data/catalogue/roofline.toml with their source (tests/roofline_fit.py).
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.profile_tables import ProfileFit, least_kv_token_s
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import Efficiency, Gpu, LatencyProfile, Llm
from fleetcast.models.world.model_quantisation import FULL_BITS
from fleetcast.models.world.toml_dataclasses import ConfigError

PREFILL_KNOTS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
ACTIVATION_BYTES = 2  # of a number of the hidden state
SUMS_PER_LAYER = 2  # all-reduces
DECODE_KNOTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class RooflineWork(NamedTuple):
    """Work and peak speeds: numbers of one deployment, or arrays of shape (deployments,)."""

    common_bytes: Floats | float  # weights that every token uses
    expert_bytes: Floats | float  # weights of all experts
    expert_share: Floats | float  # of the experts that one token uses; 1 for a dense llm
    flops: Floats | float  # per token
    kv_floor_s: Floats | float  # per cached token at peak bandwidth
    kept_floor_s: Floats | float  # per request: states and windows at peak bandwidth
    between_floor_s: Floats | float  # per token, of all-reduces at the peak bandwidth of the links
    layers: Floats | float
    tensor_parallel: Floats | float
    peak_flops: Floats | float  # of one GPU, per second
    peak_bytes: Floats | float  # of one GPU, per second


def deployment_work(llm: Llm, gpu: Gpu, tensor_parallel: int) -> RooflineWork:
    """Return the work of one deployment; ConfigError for several GPUs without a known link."""
    active_b = llm.active_parameters_b or llm.parameters_b
    share = llm.experts_per_token / llm.experts if llm.experts and llm.experts_per_token else 1.0
    expert_b = llm.expert_parameters_b
    byte_count = 1e9 * llm.weight_bits / 8
    return RooflineWork(
        common_bytes=(llm.parameters_b - expert_b) * byte_count,
        expert_bytes=expert_b * byte_count,
        expert_share=share,
        flops=2 * active_b * 1e9,
        kv_floor_s=least_kv_token_s(llm, gpu, tensor_parallel),
        kept_floor_s=llm.request_cache_mb * 1e6 / (tensor_parallel * gpu.bandwidth_tb_per_s * 1e12),
        between_floor_s=least_between_gpus_s(llm, gpu, tensor_parallel),
        layers=llm.layers,
        tensor_parallel=tensor_parallel,
        peak_flops=gpu.peak_tflops
        * 1e12
        * (1 if llm.weight_bits >= FULL_BITS else 2),  # fewer: twice as fast
        peak_bytes=gpu.bandwidth_tb_per_s * 1e12,
    )


def least_between_gpus_s(llm: Llm, gpu: Gpu, tensor_parallel: int) -> float:
    """Return seconds of the all-reduces of one token in all layers at the peak of the links.

    Raises ConfigError for several GPUs if the llm's width or the link is not known.
    """
    if tensor_parallel == 1:
        return 0.0
    if llm.hidden is None or gpu.peer_gb_per_s is None:
        raise ConfigError(
            f"An estimate for {tensor_parallel} GPUs needs the llm's hidden (llms.toml) and the GPU's "
            f"peer_gb_per_s (gpus.toml); got {llm.hidden} and {gpu.peer_gb_per_s}. Add what is missing."
        )
    sent = 2 * (tensor_parallel - 1) / tensor_parallel * llm.hidden * ACTIVATION_BYTES
    return llm.layers * SUMS_PER_LAYER * sent / (gpu.peer_gb_per_s * 1e9)


def roofline_prefill_s(work: RooflineWork, tokens: npt.ArrayLike, efficiency: Efficiency) -> Floats:
    """Return seconds of a prefill of `tokens` prompt tokens.

    `tokens` have any shape that broadcasts with the fields of `work`; the result has the common shape.
    """
    local_s = work.layers * efficiency.layer_s + pass_s(work, tokens, efficiency)
    return local_s + between_gpus_s(work, tokens, efficiency)


def roofline_decode_s(work: RooflineWork, batch: npt.ArrayLike, efficiency: Efficiency) -> Floats:
    """Return f[B], seconds of a decode step of `batch` requests without cache, shape of `batch`."""
    request_s = efficiency.request_s + work.kept_floor_s / efficiency.bandwidth_share
    return roofline_prefill_s(work, batch, efficiency) + np.asarray(batch) * request_s


def roofline_kv_token_s(work: RooflineWork, efficiency: Efficiency) -> Floats | float:
    """Return g, seconds of one cached token in a decode step, in the shape of the fields of `work`."""
    return work.kv_floor_s / efficiency.bandwidth_share


def roofline_context_token_s(llm: Llm, gpu: Gpu, tensor_parallel: int, efficiency: Efficiency) -> float:
    """Return h, seconds of a prompt token for each token of its prompt that was cached before its pass."""
    flops = 4 * llm.attention_layers * llm.heads * llm.head_dim
    return flops / (tensor_parallel * gpu.peak_tflops * 1e12 * efficiency.attention_flops_share)


def context_token_s(catalogue: Catalogue, profile: LatencyProfile) -> float:
    """Return h of a profile, seconds per prompt token and context token; the roofline's where it has none."""
    if profile.prefill_per_context_token_s is not None:
        return profile.prefill_per_context_token_s
    llm, gpu = catalogue.llms[profile.llm], catalogue.gpus[profile.gpu]
    return roofline_context_token_s(llm, gpu, profile.tensor_parallel, catalogue.efficiency)


def between_gpus_s(work: RooflineWork, tokens: npt.ArrayLike, efficiency: Efficiency) -> Floats:
    """Return seconds of the all-reduces in a pass over `tokens` tokens, shape of `tokens`."""
    latency_s = work.layers * efficiency.allreduce_s * np.log2(work.tensor_parallel)
    return latency_s + np.asarray(tokens) * work.between_floor_s / efficiency.link_share


def pass_s(work: RooflineWork, tokens: npt.ArrayLike, efficiency: Efficiency) -> Floats:
    """Return seconds of reading weights or computing, the longer one, shape of `tokens`."""
    tokens, gpus = np.asarray(tokens, dtype=np.float64), work.tensor_parallel
    touched_share = 1 - (1 - work.expert_share) ** tokens
    read_bytes = work.common_bytes + work.expert_bytes * touched_share / efficiency.expert_bandwidth_share
    read_s = read_bytes / (gpus * work.peak_bytes * efficiency.bandwidth_share)
    flops = tokens * work.flops
    return np.maximum(read_s, flops / (gpus * work.peak_flops * efficiency.flops_share))


def roofline_profile(catalogue: Catalogue, llm: str, gpu: str, tensor_parallel: int) -> LatencyProfile:
    """Return the roofline's profile of a deployment without measurements."""
    fit = roofline_knots(catalogue.llms[llm], catalogue.gpus[gpu], tensor_parallel, catalogue.efficiency)
    return LatencyProfile(llm, gpu, tensor_parallel, *fit, source="estimated: roofline.toml")


def roofline_knots(llm: Llm, gpu: Gpu, tensor_parallel: int, efficiency: Efficiency) -> ProfileFit:
    """Return the estimated knots of one deployment."""
    work = deployment_work(llm, gpu, tensor_parallel)
    return ProfileFit(
        PREFILL_KNOTS,
        tuple(float(s) for s in roofline_prefill_s(work, PREFILL_KNOTS, efficiency).round(6)),
        DECODE_KNOTS,
        tuple(float(s) for s in roofline_decode_s(work, DECODE_KNOTS, efficiency).round(6)),
        float(f"{roofline_kv_token_s(work, efficiency):.3e}"),
    )
