"""Profiles composed from measured kernels: any dense llm, on any GPU type whose kernels were timed.

A matrix product of n tokens and w weights takes launch[n] + weight[n] * w, both linear between their knots.
An llm has l layers of width h, a query heads and k KV heads of s numbers each, an inner width i and a
vocabulary v, and runs on tp GPUs:

    layer(n)   = product(n, h (a + 2k) s / tp) + product(n, a s h / tp)
                 + product(n, 2 h i / tp) + product(n, h i / tp) + n * memory
    head(n)    = product(n, h v / tp)
    f[B]       = pass + l (layer(B) + decode + decode_request B) + head(B) + between(B)
    g          = l * decode_byte * KV cache bytes of a token in a layer of one GPU
    prefill(n) = pass + l (layer(n) + prefill + a s / tp (prefill_value n + prefill_pair n m / 2))
                 + head(1) + between(n)                   m = min(n, PASS_PROMPT_TOKENS), length of a prompt
    h          = l * prefill_pair * a s / tp

A token attends to the tokens before it: half of all pairs. `memory` is the time of norms, rotary embedding
and gate to read and write at the peak bandwidth, and at 8 bits also the quantisation of the products' inputs.
`between` is the roofline's: the all-reduces over the GPUs of an instance. `pass` = PASS_S is the rest of a
pass: sampling and the work of the host. No coefficient was fitted to whole passes.

The coefficients are in data/catalogue/kernels.toml (tests/kernel_fit.py). Whole runs were measured on H100,
H200 and B200 only; on the other GPU types a composed profile has kernel measurements alone. Where a GPU type
lacks some kernels, other kernels replace them: such a profile is "composed in part".
"""

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.profile_tables import interpolate_knots
from fleetcast.models.latency.roofline import (
    ACTIVATION_BYTES,
    DECODE_KNOTS,
    PREFILL_KNOTS,
    between_gpus_s,
    deployment_work,
)
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile, Llm
from fleetcast.models.world.kernel_times import MatrixProductTimes
from fleetcast.models.world.model_quantisation import FULL_BITS
from fleetcast.models.world.toml_dataclasses import ConfigError

PASS_S = 1e-3  # seconds of a pass outside of layers and head
PASS_PROMPT_TOKENS = 2048  # assumed length of the prompts of a prefill pass
CACHE_BYTES = 2  # of a number in the KV cache
PARTLY_COMPOSED = "composed in part"


def product_s(products: MatrixProductTimes, tokens: Floats, weights: float) -> Floats:
    """Return seconds of a product of `tokens` (n,) with a number of weights, (n,).

    Beyond the knots the last slope continues.
    """
    seconds = np.array(products.launch_s) + np.array(products.weight_s) * weights
    return interpolate_knots(tokens, products.tokens, seconds)


def compose_profile(catalogue: Catalogue, llm: str, gpu: str, tensor_parallel: int) -> LatencyProfile:
    """Return the profile of a dense llm, composed from the kernels of a GPU type.

    ConfigError for a mixture of experts, layers that do not look back at every token, an llm without
    published widths, and a GPU type or number of weight bits without kernel times.
    """
    arch, kernels = catalogue.llms[llm], catalogue.kernels.get(gpu)
    bits = str(arch.weight_bits)
    is_even = not arch.experts and not arch.cache_layers
    if not is_even or kernels is None or bits not in kernels.products or arch.kv_bits != FULL_BITS:
        lacks = f"no kernels of {bits} bits on {gpu}, or none of a cache of {arch.kv_bits} bits"
        lacks = lacks if is_even else "a mixture of experts, or layers that do not look back at every token"
        raise ConfigError(f"{llm} on {gpu} cannot be composed: {lacks}. The roofline estimates it.")
    hidden, _, vocabulary = arch.widths(llm)
    tp, values = tensor_parallel, arch.heads * arch.head_dim / tensor_parallel
    batch, prompt = np.array(DECODE_KNOTS, float), np.array(PREFILL_KNOTS, float)

    def layers_s(tokens: Floats, attention_s: Floats) -> Floats:
        """Return seconds of a pass without the head; all arrays of shape (knots,)."""
        work = deployment_work(arch, catalogue.gpus[gpu], tp)
        local_s = arch.layers * (layer_s(catalogue, llm, gpu, tp, tokens) + attention_s)
        return PASS_S + local_s + between_gpus_s(work, tokens, catalogue.efficiency)

    pairs = prompt * np.minimum(prompt, PASS_PROMPT_TOKENS) / 2
    prefill_attention_s = kernels.prefill_s + values * (
        kernels.prefill_value_s * prompt + kernels.prefill_pair_s * pairs
    )
    decode_attention_s = kernels.decode_s + kernels.decode_request_s * batch
    head, head_weights = kernels.products[str(FULL_BITS)], hidden * vocabulary / tp
    prefill_s = layers_s(prompt, prefill_attention_s) + product_s(head, np.ones(1), head_weights)
    decode_s = layers_s(batch, decode_attention_s) + product_s(head, batch, head_weights)
    kv_bytes = 2 * CACHE_BYTES * kv_values_per_token(arch, tp)
    return LatencyProfile(
        llm,
        gpu,
        tp,
        PREFILL_KNOTS,
        tuple(np.maximum.accumulate(prefill_s).round(6).tolist()),
        DECODE_KNOTS,
        tuple(np.maximum.accumulate(decode_s).round(6).tolist()),
        float(f"{arch.layers * kernels.decode_byte_s * kv_bytes:.3e}"),
        source=f"{'composed' if kernels.lacks is None else PARTLY_COMPOSED}: {kernels.source}",
        prefill_per_context_token_s=float(f"{arch.layers * kernels.prefill_pair_s * values:.3e}"),
    )


def layer_s(catalogue: Catalogue, llm: str, gpu: str, tp: int, tokens: Floats) -> Floats:
    """Return seconds of a layer without attention for `tokens` (n,): products, norms and gate; shape (n,)."""
    arch = catalogue.llms[llm]
    products = catalogue.kernels[gpu].products[str(arch.weight_bits)]
    hidden, inner = arch.widths(llm)[0], arch.widths(llm)[1] / tp
    values, kv_values = arch.heads * arch.head_dim / tp, kv_values_per_token(arch, tp)
    sizes = hidden * (values + 2 * kv_values), values * hidden, 2 * hidden * inner, hidden * inner
    touched_bytes = ACTIVATION_BYTES * (2 * 4 * hidden + 2 * (values + kv_values) + 3 * inner)
    if arch.weight_bits < FULL_BITS:  # quantisation reads a product's input and writes it in 8 bits
        touched_bytes += (ACTIVATION_BYTES + 1) * (2 * hidden + values + inner)
    memory_s = touched_bytes / (catalogue.gpus[gpu].bandwidth_tb_per_s * 1e12)
    return np.sum([product_s(products, tokens, size) for size in sizes], axis=0) + tokens * memory_s


def kv_values_per_token(llm: Llm, tp: int) -> float:
    """Return how many numbers a token's keys have in a layer of one GPU (at least one head); values alike."""
    return max(llm.kv_heads / tp, 1.0) * llm.head_dim
