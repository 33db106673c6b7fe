"""Sizes of an llm from its config.json, in the keys of llms.toml, with the number of its parameters.

    parameters   the matrices of all layers (model_layers.py)
    tables       vocabulary hidden, for tokens and again for the output, unless both are one table
    images       layers (4 h^2 + 2 h width) of the tower, and the projectors of its output

Norms and biases are left out: less than 0.1 %. Layers that predict further tokens are left out: engines load
them only to draft (DeepSeek-V3 has 14 of its 685 billion parameters there). Active parameters are all but the
experts that a token does not use, with both tables.

The cache of latent attention is written as one head of half as many numbers that has keys and values. Layers
that look back a window only, or keep a state, count in `request_cache_mb`: what they keep of a request that
has filled its window. In gpt-oss, Gemma 2 and Llama 4 layers with a window are counted as ones without: the
cache holds fewer requests here than in an engine that frees what is outside the window.
"""

from collections.abc import Mapping
from typing import Any

from fleetcast.models.world.model_layers import (
    FULL,
    GEMMA_KINDS,
    INDEXED,
    LATENT_KINDS,
    LINEAR_KINDS,
    WINDOW_KINDS,
    ConfigShape,
    Part,
    cache_heads,
    count_experts,
    expert_width,
    list_layers,
    list_parts,
    request_cache_bytes,
)
from fleetcast.models.world.model_quantisation import FULL_BITS, Quantisation
from fleetcast.models.world.toml_dataclasses import ConfigError, shorten_text

HEADS_KINDS = (  # by model_type: attention with heads of keys and values
    *("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text"),
    *("phi3", "mimo", "gpt_oss", "llama4_text", "minimax_m2", "glm4_moe", "gemma2"),
)
WINDOWED = ("gpt_oss", "llama4_text", "gemma2")  # windows that are counted as none
MIXED_KINDS = (*LINEAR_KINDS, *WINDOW_KINDS, "nemotron_h")  # layers of several kinds
COMPRESSED = "its attention compresses its cache, or keeps an index next to keys and values"
UNEVEN = "its layers keep caches of different sizes"
REFUSED = {
    **dict.fromkeys(("deepseek_v4", "deepseek_ref", "minimax_m3"), COMPRESSED),
    **dict.fromkeys(("step3p7", "nemotron-nas"), UNEVEN),
    "kimi_linear": "some of its layers keep a state, and its experts are not known here",
}
MOST_IMAGE_LAYERS = 1000
TOLERANCE_SHARE = 0.02  # of parameters in llms.toml, which model cards round


class UnknownArchitecture(ConfigError):
    """The sizes of an architecture cannot be read from its config.json; the message says why."""


def read_model_sizes(
    config: Mapping[str, Any], quantisation: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """Return the keys of Llm that a config.json and an hf_quant_config.json ({}: none) hold.

    UnknownArchitecture where the cache or the parameters cannot be computed; ConfigError for a key that is
    missing or no number. `where` begins these messages.
    """
    shape = ConfigShape(config, where)
    require_known_architecture(shape)
    parts = [*list_parts(shape), Part("visual", vision_parameters(shape), is_matrix=False)]
    total = sum(part.parameters for part in parts)
    kv_heads, head_dim = cache_heads(shape)
    mixers = [layer.mixer for layer in list_layers(shape)]
    sizes: dict[str, Any] = {
        "layers": len(mixers),
        "heads": shape.count("num_attention_heads"),
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "hidden": shape.count("hidden_size"),
        "intermediate": expert_width(shape) if count_experts(shape) else shape.count("intermediate_size"),
        "vocabulary": shape.count("vocab_size"),
        "parameters_b": round(total / 1e9, 4),
    }
    if experts := count_experts(shape):
        used = shape.count("num_experts_per_tok", "experts_per_token", "top_k_experts")
        if used > experts:
            raise ConfigError(
                f"{where}: its config.json has {used} experts per token of {experts}. Correct it."
            )
        idle = sum(part.parameters for part in parts if part.is_routed) * (1 - used / experts)
        sizes |= {
            "experts": experts,
            "experts_per_token": used,
            "active_parameters_b": round((total - idle) / 1e9, 4),
        }
    kind = Quantisation.read(config, quantisation, where)
    if kind is not None:
        covered = sum(part.parameters for part in parts if part.is_matrix and kind.covers(part.module))
        sizes |= {
            "weight_bits": kind.bits,
            "kv_bits": kind.cache_bits,
            "extra_weight_gb": round(kind.extra_bytes(total, covered) / 1e9, 3),
        }
    if (full := mixers.count(FULL)) < len(mixers):
        kept_bytes = request_cache_bytes(shape, mixers, FULL_BITS if kind is None else kind.cache_bits)
        sizes |= {"cache_layers": full, "request_cache_mb": round(kept_bytes / 1e6, 3)}
    return sizes


def require_known_architecture(shape: ConfigShape) -> None:
    """Raise UnknownArchitecture unless cache and parameters of the architecture can be computed."""
    reason = REFUSED.get(shape.kind)
    kinds = shape.keys.get("layer_types")
    odd = sorted({str(kind) for kind in kinds} - {"full_attention"}) if isinstance(kinds, list) else []
    if reason is None and shape.kind not in (*HEADS_KINDS, *LATENT_KINDS, *MIXED_KINDS):
        reason = "its layers are not known here"
    if reason is None and odd and shape.kind not in (*WINDOWED, *MIXED_KINDS, *INDEXED):
        reason = f"it has layers of {', '.join(odd)[:60]}"
    if reason is None and shape.kind in GEMMA_KINDS and (shape.keys.get("num_kv_shared_layers") or 0) != 0:
        reason = "some of its layers share a cache"
    if reason is not None:
        raise UnknownArchitecture(
            f"{shape.where}: its sizes cannot be computed from its config.json: it is of the architecture "
            f"{shorten_text(shape.kind) or 'without a model_type'}, and {reason}. Write all its sizes as a "
            "row of llms.toml, or name another llm."
        )


def vision_parameters(shape: ConfigShape) -> int:
    """Return the parameters of the part that reads images; 0 without one."""
    tower = shape.whole.get("vision_config")
    if not isinstance(tower, dict) or not tower:
        return 0
    vision = ConfigShape(tower, f"{shape.where}, its vision_config")
    layers = vision.count("depth", "num_hidden_layers", "vt_num_hidden_layers", most=MOST_IMAGE_LAYERS)
    width = vision.count("hidden_size", "vt_hidden_size")
    inner = vision.count("intermediate_size", "vt_intermediate_size")
    merged = tower.get("spatial_merge_size", tower.get("merge_kernel_size"))
    side = merged[0] if isinstance(merged, list) and merged else merged
    joined = width * (side if isinstance(side, int) and 1 <= side <= 16 else 1) ** 2
    deep = tower.get("deepstack_visual_indexes")
    projectors = 1 + (len(deep) if isinstance(deep, list) else 0)
    return layers * (4 * width**2 + 2 * width * inner) + projectors * joined * (
        joined + shape.count("hidden_size")
    )


def find_contradiction(row: Mapping[str, Any], sizes: Mapping[str, Any]) -> str:
    """Return how a row of llms.toml contradicts the sizes of its config.json, in words; "" where it does not.

    Active parameters may leave out the tables of tokens, as some model cards do.
    """
    for key, computed in sizes.items():
        typed = row.get(key)
        if typed is None or key in ("kv_bits", "extra_weight_gb"):
            continue
        if key == "active_parameters_b":
            least = computed - 2 * sizes["vocabulary"] * sizes["hidden"] / 1e9
            is_equal = least * (1 - TOLERANCE_SHARE) <= typed <= computed * (1 + TOLERANCE_SHARE)
        else:
            tolerance = TOLERANCE_SHARE * computed if key == "parameters_b" else 0.0
            is_equal = abs(typed - computed) <= tolerance
        if not is_equal:
            return f"{key} is {typed:g}, but that of the config.json of its model is {computed:g}"
    return ""
