"""Profiles composed from measured kernels: any dense llm, on any GPU type whose kernels were timed.

A matrix product of n tokens and w weights takes launch[n] + weight[n] * w, both linear between their knots.
An llm of l layers of width h has a heads that ask and k that keep, of s numbers each, an inner width i and a
vocabulary v, on tp GPUs:

    layer(n)   = product(n, h (a + 2k) s / tp) + product(n, a s h / tp)
                 + product(n, 2 h i / tp) + product(n, h i / tp) + n * beside
    head(n)    = product(n, h v / tp)
    f[B]       = pass + l (layer(B) + decode + decode_request B) + head(B) + between(B)
    g          = l * decode_byte * bytes that a token keeps in a layer of one GPU
    prefill(n) = pass + l (layer(n) + prefill + a s / tp (prefill_value n + prefill_pair n m / 2))
                 + head(1) + between(n)                   m = min(n, PROMPT): prompts of a pass are so long
    h          = l * prefill_pair * a s / tp

A token attends to those before it: half of all pairs. `beside` is what norms, rotation and gate read and
write at the peak bandwidth, and in 8 bits the rounding of what goes into products. `between` is the
roofline's: the sums over the GPUs of an instance. PASS_S is all else of a pass: sampling, what the host does.
No coefficient was fitted to whole passes.

The coefficients stand in data/catalogue/kernels.toml (tests/kernel_fit.py). Whole runs were measured
on H100, H200 and B200 only; on the other GPU types a composed profile rests on its kernels alone. Where a GPU
type lacks some kernels, others stand for them: such a profile is composed in part, and tells no error.
"""

from collections.abc import Iterable

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.profile_tables import interpolate_knots
from fleetcast.models.latency.roofline import (
    ACTIVATION_BYTES,
    DECODE_KNOTS,
    FULL_BITS,
    PREFILL_KNOTS,
    between_gpus_s,
    deployment_work,
    roofline_profile,
)
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile, Llm
from fleetcast.models.world.kernel_times import MatrixProductTimes
from fleetcast.models.world.toml_dataclasses import ConfigError

PASS_S = 1e-3
PASS_PROMPT_TOKENS = 2048
CACHE_BYTES = 2  # of a number in the cache
PARTLY_COMPOSED = "composed in part"
ERROR_SHARE = 0.07  # of TPOT, the median of 872 measured runs of three llms (tests/bench/gpus.py)


def product_s(products: MatrixProductTimes, tokens: Floats, weights: float) -> Floats:
    """Seconds of a product of so many tokens with so many weights; the last slope holds beyond the knots."""
    seconds = np.array(products.launch_s) + np.array(products.weight_s) * weights
    return interpolate_knots(tokens, products.tokens, seconds)


def compose_profile(catalogue: Catalogue, llm: str, gpu: str, tensor_parallel: int) -> LatencyProfile:
    """The profile of a dense llm from the kernels of a GPU type.

    Raises ConfigError for a mixture of experts, an llm whose widths are not told, and a GPU type or width of
    weights whose kernels nobody timed.
    """
    one, kernels = catalogue.llms[llm], catalogue.kernels.get(gpu)
    bits = str(one.weight_bits)
    if one.experts or kernels is None or bits not in kernels.products:
        lacks = "a mixture of experts" if one.experts else f"no kernels of {bits} bits on {gpu}"
        raise ConfigError(f"{llm} on {gpu} cannot be composed: {lacks}. The roofline estimates it.")
    hidden, _, vocabulary = one.widths(llm)
    tp, values = tensor_parallel, one.heads * one.head_dim / tensor_parallel
    batch, prompt = np.array(DECODE_KNOTS, float), np.array(PREFILL_KNOTS, float)

    def layers_s(tokens: Floats, attention_s: Floats) -> Floats:
        work = deployment_work(one, catalogue.gpus[gpu], tp)
        own_s = one.layers * (layer_s(catalogue, llm, gpu, tp, tokens) + attention_s)
        return PASS_S + own_s + between_gpus_s(work, tokens, catalogue.efficiency)

    pairs = prompt * np.minimum(prompt, PASS_PROMPT_TOKENS) / 2
    asked_s = kernels.prefill_s + values * (kernels.prefill_value_s * prompt + kernels.prefill_pair_s * pairs)
    kept_s = kernels.decode_s + kernels.decode_request_s * batch
    head = kernels.products[str(FULL_BITS)], hidden * vocabulary / tp
    prefill_s = layers_s(prompt, asked_s) + product_s(head[0], np.ones(1), head[1])
    decode_s = layers_s(batch, kept_s) + product_s(head[0], batch, head[1])
    kv_bytes = 2 * CACHE_BYTES * kv_values_per_token(one, tp)
    return LatencyProfile(
        llm,
        gpu,
        tp,
        PREFILL_KNOTS,
        tuple(np.maximum.accumulate(prefill_s).round(6).tolist()),
        DECODE_KNOTS,
        tuple(np.maximum.accumulate(decode_s).round(6).tolist()),
        float(f"{one.layers * kernels.decode_byte_s * kv_bytes:.3e}"),
        ERROR_SHARE if kernels.lacks is None else None,
        f"{'composed' if kernels.lacks is None else PARTLY_COMPOSED}: {kernels.source}",
        float(f"{one.layers * kernels.prefill_pair_s * values:.3e}"),
    )


def layer_s(catalogue: Catalogue, llm: str, gpu: str, tp: int, tokens: Floats) -> Floats:
    """Seconds of a layer's products, and of what stands beside them, for so many tokens."""
    one = catalogue.llms[llm]
    products = catalogue.kernels[gpu].products[str(one.weight_bits)]
    hidden, inner = one.widths(llm)[0], one.widths(llm)[1] / tp
    values, kept = one.heads * one.head_dim / tp, kv_values_per_token(one, tp)
    sizes = hidden * (values + 2 * kept), values * hidden, 2 * hidden * inner, hidden * inner
    touched_bytes = ACTIVATION_BYTES * (2 * 4 * hidden + 2 * (values + kept) + 3 * inner)
    if one.weight_bits < FULL_BITS:  # what goes into a product is read, and written in 8 bits
        touched_bytes += (ACTIVATION_BYTES + 1) * (2 * hidden + values + inner)
    beside_s = touched_bytes / (catalogue.gpus[gpu].bandwidth_tb_per_s * 1e12)
    return np.sum([product_s(products, tokens, size) for size in sizes], axis=0) + tokens * beside_s


def kv_values_per_token(llm: Llm, tp: int) -> float:
    """Numbers of a token's keys in a layer of one GPU, at least one head; of its values there are as many."""
    return max(llm.kv_heads / tp, 1.0) * llm.head_dim


def comparable_profiles(
    catalogue: Catalogue, llm: str, deployments: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], LatencyProfile]:
    """Profiles of an llm on (GPU type, tensor-parallel degree) pairs that may be held against each other.

    Measured or calibrated ones where every one of the GPU types has some, and then those alone; else each as
    it is composed, or estimated where it cannot be. An engine of one year on one GPU type beside kernels of
    another on the next would compare the years. Pairs of which nothing is known are left out.
    """
    asked = list(deployments)
    known = {
        (p.gpu, p.tensor_parallel): p for p in catalogue.latency if p.llm == llm and has_measured_error(p)
    }
    if {gpu for gpu, _ in asked} <= {gpu for gpu, _ in known}:
        return {pair: known[pair] for pair in asked if pair in known}
    found = {}
    for gpu, tensor_parallel in asked:
        for way in (compose_profile, roofline_profile):
            try:
                found[gpu, tensor_parallel] = way(catalogue, llm, gpu, tensor_parallel)
                break
            except ConfigError:
                continue
    return found


def has_measured_error(profile: LatencyProfile) -> bool:
    """Whether somebody measured how far off the profile is."""
    return profile.median_error_share is not None
