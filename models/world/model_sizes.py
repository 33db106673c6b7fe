"""Sizes of an llm from its config.json, in the keys of llms.toml, with the number of its parameters.

    attention         hidden (heads + 2 kv_heads) head_dim + heads head_dim hidden
    latent attention  hidden q + q heads (nope + rope) + hidden (c + rope) + c heads (nope + v)
                      + heads v hidden, with the ranks q and c; its cache has c + rope numbers, written as one
                      head of half as many that has keys and values
    network           3 hidden width, of a dense layer, of each expert, and of the experts that tokens share
    router            hidden experts
    tables            vocabulary hidden, for tokens and again for the output, unless both are one table
    images            layers (4 h^2 + 2 h width) of the tower, and the projectors of its output

Norms and biases are left out: less than 0.1 %. Layers that predict further tokens are left out: engines load
them only to draft (DeepSeek-V3 has 14 of its 685 billion parameters there). Active parameters are all but the
experts that a token does not use, with both tables. A layer that looks back a window only is counted as one
without: the cache holds fewer requests here than in an engine that frees what is outside the window.

Source: the layers of these architectures in Hugging Face transformers (Apache-2.0).
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fleetcast.models.world.model_quantisation import Quantisation
from fleetcast.models.world.toml_dataclasses import ConfigError, shorten_text

HEADS_KINDS = (  # by model_type: attention with heads of keys and values
    *("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text"),
    *("phi3", "mimo", "gpt_oss", "llama4_text", "minimax_m2", "glm4_moe"),
)
LATENT_KINDS = ("deepseek_v3", "kimi_k2")
WINDOWED = ("gpt_oss", "llama4_text")  # a part of the layers looks back a window only
LINEAR = "some of its layers keep a state of each request instead of keys and values"
INDEXED = "its attention keeps an index, or compresses its cache"
UNEVEN = "its layers keep caches of different sizes"
REFUSED = {
    **dict.fromkeys(("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "kimi_linear", "nemotron_h"), LINEAR),
    **dict.fromkeys(("deepseek_v32", "deepseek_v4", "deepseek_ref", "glm_moe_dsa", "minimax_m3"), INDEXED),
    **dict.fromkeys(("gemma2", "gemma3_text", "gemma4_text", "mimo_v2_flash", "step3p7"), UNEVEN),
    "nemotron-nas": UNEVEN,
}
MOST = 1_000_000
MOST_LAYERS = 1000
TOLERANCE_SHARE = 0.02  # of parameters in llms.toml, which model cards round


class UnknownArchitecture(ConfigError):
    """The sizes of an architecture cannot be read from its config.json; the message says why."""


class Part(NamedTuple):
    """A matrix of a layer, or all of its kind, by the name of a module in the checkpoint."""

    module: str
    parameters: int
    is_matrix: bool = True  # one that quantisation covers
    is_routed: bool = False  # of experts that only some tokens use


class ConfigShape:
    """The keys of a config.json that describe the llm, without those of images and sound."""

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        inner = config.get("text_config")
        self.keys: Mapping[str, Any] = inner if isinstance(inner, dict) else config
        self.whole, self.where = config, where
        kind = self.keys.get("model_type")
        self.kind = kind if isinstance(kind, str) else ""

    def count(self, *names: str, default: int | None = None, most: int = MOST) -> int:
        """Return the first of these keys that is there, a whole number from 1; ConfigError otherwise."""
        for name in names:
            value = self.keys.get(name)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
                raise ConfigError(
                    f"{self.where}: {name} in its config.json is {shorten_text(repr(value))}, needed a whole "
                    f"number up to {most:,}. Correct it."
                )
            if value or default == 0:
                return value
        if default is None:
            raise ConfigError(f"{self.where}: its config.json has no {names[0]}. Add it there.")
        return default

    def flag(self, name: str) -> bool:
        """Return whether a key is true, there or at the top of the file."""
        return self.keys.get(name, self.whole.get(name)) is True


def read_model_sizes(
    config: Mapping[str, Any], quantisation: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """Return the keys of Llm that a config.json and an hf_quant_config.json ({}: none) hold.

    UnknownArchitecture where the cache or the parameters cannot be computed; ConfigError for a key that is
    missing or no number. `where` begins these messages.
    """
    shape = ConfigShape(config, where)
    require_known_architecture(shape)
    parts = list(list_parts(shape))
    total = sum(part.parameters for part in parts)
    kv_heads, head_dim = cache_heads(shape)
    sizes: dict[str, Any] = {
        "layers": shape.count("num_hidden_layers", most=MOST_LAYERS),
        "heads": shape.count("num_attention_heads"),
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "hidden": shape.count("hidden_size"),
        "intermediate": expert_width(shape) if count_experts(shape) else shape.count("intermediate_size"),
        "vocabulary": shape.count("vocab_size"),
        "parameters_b": round(total / 1e9, 4),
    }
    if experts := count_experts(shape):
        used = shape.count("num_experts_per_tok", "experts_per_token")
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
    return sizes


def require_known_architecture(shape: ConfigShape) -> None:
    """Raise UnknownArchitecture unless cache and parameters of the architecture can be computed."""
    reason = REFUSED.get(shape.kind)
    kinds = shape.keys.get("layer_types")
    odd = sorted({str(kind) for kind in kinds} - {"full_attention"}) if isinstance(kinds, list) else []
    if reason is None and shape.kind not in (*HEADS_KINDS, *LATENT_KINDS):
        reason = "its layers are not known here"
    if reason is None and odd and shape.kind not in WINDOWED:
        reason = f"it has layers of {', '.join(odd)[:60]}"
    if reason is not None:
        raise UnknownArchitecture(
            f"{shape.where}: its sizes cannot be computed from its config.json: it is of the architecture "
            f"{shorten_text(shape.kind) or 'without a model_type'}, and {reason}. Write all its sizes as a "
            "row of llms.toml, or name another llm."
        )


def cache_heads(shape: ConfigShape) -> tuple[int, int]:
    """Return kv_heads and head_dim: of keys and of values, as many numbers as the cache has of a token."""
    if shape.kind not in LATENT_KINDS:
        heads = shape.count("num_attention_heads")
        hidden = shape.count("hidden_size")
        return shape.count("num_key_value_heads", default=heads), shape.count(
            "head_dim", default=hidden // heads
        )
    return 1, -(-(shape.count("kv_lora_rank") + shape.count("qk_rope_head_dim")) // 2)


def count_experts(shape: ConfigShape) -> int:
    """Return the experts of a layer; 0 for a dense llm."""
    return shape.count("num_experts", "num_local_experts", "n_routed_experts", default=0)


def expert_width(shape: ConfigShape) -> int:
    """Return the inner width of one expert."""
    return shape.count("moe_intermediate_size", "intermediate_size")


def shared_width(shape: ConfigShape) -> int:
    """Return the inner width of the experts that all tokens share; 0 without any."""
    if shape.kind == "llama4_text":
        return shape.count("intermediate_size")
    own = shape.count("shared_intermediate_size", "shared_expert_intermediate_size", default=0)
    return own or shape.count("n_shared_experts", default=0) * expert_width(shape)


def expert_layers(shape: ConfigShape) -> list[bool]:
    """Return for each layer whether it has experts, shape (layers,)."""
    layers = shape.count("num_hidden_layers", most=MOST_LAYERS)
    if not count_experts(shape):
        return [False] * layers
    every = shape.count("interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq", default=1)
    dense = shape.keys.get("mlp_only_layers") or ()
    first = shape.count("first_k_dense_replace", default=0)
    return [n >= first and (n + 1) % every == 0 and n not in dense for n in range(layers)]


def list_parts(shape: ConfigShape) -> Iterator[Part]:
    """Yield the matrices of the llm."""
    hidden, vocabulary = shape.count("hidden_size"), shape.count("vocab_size")
    experts, shared = count_experts(shape), shared_width(shape) if count_experts(shape) else 0
    for number, has_experts in enumerate(expert_layers(shape)):
        layer = f"layers.{number}"
        for name, parameters in attention_matrices(shape).items():
            yield Part(f"{layer}.self_attn.{name}", parameters)
        if not has_experts:
            width = shape.count("intermediate_size_mlp", "intermediate_size")
            yield Part(f"{layer}.mlp.gate_proj", 3 * hidden * width)
            continue
        each = 3 * hidden * expert_width(shape)
        block = "block_sparse_moe" if shape.kind in ("mixtral", "minimax_m2") else "mlp"
        yield Part(f"{layer}.{block}.experts.0.gate_proj", experts * each, is_routed=True)
        yield Part(f"{layer}.{block}.shared_experts.gate_proj", 3 * hidden * shared)
        yield Part(f"{layer}.{block}.gate", hidden * experts, is_matrix=False)
    tables = 1 if shape.flag("tie_word_embeddings") else 2
    yield Part("tables", tables * vocabulary * hidden, is_matrix=False)
    yield Part("visual", vision_parameters(shape, hidden), is_matrix=False)


def attention_matrices(shape: ConfigShape) -> dict[str, int]:
    """Return the parameters of the matrices of a layer's attention, by name."""
    hidden, heads = shape.count("hidden_size"), shape.count("num_attention_heads")
    if shape.kind not in LATENT_KINDS:
        kv_heads, head_dim = cache_heads(shape)
        return {
            "q_proj": hidden * (heads + 2 * kv_heads) * head_dim,
            "o_proj": heads * head_dim * hidden,
        }
    rope, nope = shape.count("qk_rope_head_dim"), shape.count("qk_nope_head_dim")
    values, rank = shape.count("v_head_dim"), shape.count("kv_lora_rank")
    queries = shape.count("q_lora_rank", default=0)
    return {
        "q_a_proj": hidden * queries,
        "q_b_proj": (queries or hidden) * heads * (nope + rope),
        "kv_a_proj_with_mqa": hidden * (rank + rope),
        "kv_b_proj": rank * heads * (nope + values),
        "o_proj": heads * values * hidden,
    }


def vision_parameters(shape: ConfigShape, hidden: int) -> int:
    """Return the parameters of the part that reads images; 0 without one."""
    tower = shape.whole.get("vision_config")
    if not isinstance(tower, dict) or not tower:
        return 0
    vision = ConfigShape(tower, f"{shape.where}, its vision_config")
    layers = vision.count("depth", "num_hidden_layers", "vt_num_hidden_layers", most=MOST_LAYERS)
    width = vision.count("hidden_size", "vt_hidden_size")
    inner = vision.count("intermediate_size", "vt_intermediate_size")
    merged = tower.get("spatial_merge_size", tower.get("merge_kernel_size"))
    side = merged[0] if isinstance(merged, list) and merged else merged
    joined = width * (side if isinstance(side, int) and 1 <= side <= 16 else 1) ** 2
    deep = tower.get("deepstack_visual_indexes")
    projectors = 1 + (len(deep) if isinstance(deep, list) else 0)
    return layers * (4 * width**2 + 2 * width * inner) + projectors * joined * (joined + hidden)


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
