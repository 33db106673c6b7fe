"""Layers of an llm by its config.json: how its tokens meet, its matrices, and what it keeps of a request.

    attention         hidden (heads + 2 kv_heads) head_dim + heads head_dim hidden; twice the heads of queries
                      where its output has a gate; no values where they are the keys
    latent attention  hidden q + q heads (nope + rope) + hidden (c + rope) + c heads (nope + v)
                      + heads v hidden, with the ranks q and c; with an index also q n d + hidden d + hidden n
    linear attention  hidden (2 keys + 2 values + 2 heads) + values hidden          (gated delta rule)
    Mamba 2           hidden (2 inner + 2 groups state + heads) + inner hidden
    network           3 hidden width, 2 without a gate, of a dense layer, of each expert, and of the experts
                      that tokens share; experts of a latent width, and the two matrices to it and back
    router            hidden experts

What a layer keeps of a request, in numbers:

    attention         kv_heads (key + value) of each token; of a window only its tokens
    latent attention  c + rope of each token, and 132 bytes of the index
    linear attention  (2 keys + values) (kernel - 1) and heads key value, whatever the request's length
    Mamba 2           (inner + 2 groups state) (kernel - 1) and inner state, likewise

Where an llm has states, vLLM makes the blocks of layers that keep all tokens as large as a state, and of a
request's last block half is empty in the mean: half a state for each of these layers.

Source: the layers of these architectures in Hugging Face transformers and in vLLM (Apache-2.0).
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fleetcast.models.world.toml_dataclasses import ConfigError, shorten_text

MOST = 1_000_000
MOST_LAYERS = 1000
FULL, WINDOW, STATE, NO_MIXER = "full", "window", "state", ""  # how the tokens of a layer meet
LATENT_KINDS = ("deepseek_v3", "kimi_k2", "deepseek_v32", "glm_moe_dsa")
INDEXED = ("deepseek_v32", "glm_moe_dsa")  # their attention looks at the tokens that an index finds
INDEX_SCALE_BYTES = 4  # of the numbers of 8 bits that a token has in the index
LINEAR_KINDS = ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")
WINDOW_KINDS = ("gemma3_text", "gemma4_text", "mimo_v2_flash")  # windows of at most some 1,000 tokens
GEMMA_3_INTERVAL = 6  # its config.json may leave it out
GEMMA_KINDS = ("gemma2", "gemma3_text", "gemma4_text")  # the output is the table of tokens, if not otherwise
# How tokens meet in a layer, by its name in layer_types, and in the lists of Nemotron-H and MiMo.
MIXERS: dict[str | int, str] = {
    **{"full_attention": FULL, "attention": FULL, "*": FULL, 0: FULL},
    **{"sliding_attention": WINDOW, 1: WINDOW},
    **{"linear_attention": STATE, "mamba": STATE, "M": STATE},
    **{"moe": NO_MIXER, "E": NO_MIXER, "mlp": NO_MIXER, "-": NO_MIXER},
}
EXPERT_BLOCKS, DENSE_BLOCKS = ("moe", "E"), ("mlp", "-")  # of Nemotron-H, whose layers have one part each
NUMBER_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
CONV_BYTES = 2  # of a number of the last tokens that a convolution keeps
WINDOW_BLOCK = 16  # tokens: a window begins inside a block of the cache


class Part(NamedTuple):
    """A matrix of a layer, or all of its kind, by the name of a module in the checkpoint."""

    module: str
    parameters: int
    is_matrix: bool = True  # one that quantisation covers
    is_routed: bool = False  # of experts that only some tokens use


class Layer(NamedTuple):
    """A layer: how its tokens meet, and whether it has a dense network and experts."""

    mixer: str
    has_dense: bool
    has_experts: bool


class Heads(NamedTuple):
    """Heads of a layer's attention, of queries and of keys; numbers of a key and of a value."""

    queries: int
    keys: int
    key: int
    value: int

    @property
    def cached_numbers(self) -> int:
        """Numbers that the layer keeps of a token."""
        return self.keys * (self.key + self.value)


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

    def flag(self, name: str, default: bool = False) -> bool:
        """Return whether a key is true, there or at the top of the file."""
        return self.keys.get(name, self.whole.get(name, default)) is True

    def list_of_layers(self, *names: str) -> list[Any] | None:
        """Return the first of these keys that is a list or a text; ConfigError for too many layers."""
        found = (self.keys.get(name) for name in names)
        listed = next((list(one) for one in found if isinstance(one, list | str)), None)
        if listed is not None and not 1 <= len(listed) <= MOST_LAYERS:
            raise ConfigError(
                f"{self.where}: {names[0]} in its config.json has {len(listed):,} layers, needed 1 to "
                f"{MOST_LAYERS:,}. Correct it."
            )
        return listed


def list_layers(shape: ConfigShape) -> list[Layer]:
    """Return the layers; ConfigError for lists of them that cannot be read or contradict their number."""
    if shape.kind == "nemotron_h":
        blocks = shape.list_of_layers("hybrid_override_pattern", "layers_block_type")
        if blocks is None:
            raise ConfigError(f"{shape.where}: its config.json has no hybrid_override_pattern. Add it there.")
        mixers = [read_mixer(shape, block) for block in blocks]
        return [
            Layer(mixer, block in DENSE_BLOCKS, block in EXPERT_BLOCKS)
            for mixer, block in zip(mixers, blocks, strict=True)
        ]
    experts = expert_layers(shape)
    mixers = token_mixers(shape, len(experts))
    has_both = shape.kind == "gemma4_text"
    return [
        Layer(mixer, has_both or not is_mixture, is_mixture)
        for mixer, is_mixture in zip(mixers, experts, strict=True)
    ]


def token_mixers(shape: ConfigShape, layers: int) -> list[str]:
    """Return how the tokens of each layer meet; a window that is counted as none is FULL."""
    if shape.kind not in (*LINEAR_KINDS, *WINDOW_KINDS):
        return [FULL] * layers
    listed = shape.list_of_layers("layer_types", "hybrid_layer_pattern")
    if listed is None:
        default = GEMMA_3_INTERVAL if shape.kind == "gemma3_text" else None
        interval = shape.count("full_attention_interval", "sliding_window_pattern", default=default)
        other = STATE if shape.kind in LINEAR_KINDS else WINDOW
        return [FULL if (n + 1) % interval == 0 else other for n in range(layers)]
    if len(listed) != layers:
        raise ConfigError(
            f"{shape.where}: its config.json lists {len(listed):,} layers, but num_hidden_layers is "
            f"{layers:,}. Correct one of them."
        )
    return [read_mixer(shape, name) for name in listed]


def read_mixer(shape: ConfigShape, name: Any) -> str:
    """Return how tokens meet in a layer of this name; ConfigError for an unknown one."""
    if not isinstance(name, str | int) or name not in MIXERS:
        raise ConfigError(
            f"{shape.where}: its config.json has a layer {shorten_text(repr(name))}, known are "
            f"{', '.join(map(str, MIXERS))}. Name another llm."
        )
    return MIXERS[name]


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
    own = shape.count(
        "shared_intermediate_size", "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
        default=0,
    )  # fmt: skip
    return own or shape.count("n_shared_experts", default=0) * expert_width(shape)


def expert_layers(shape: ConfigShape) -> list[bool]:
    """Return for each layer whether it has experts, shape (layers,)."""
    layers = shape.count("num_hidden_layers", most=MOST_LAYERS)
    if not count_experts(shape):
        return [False] * layers
    if (listed := shape.list_of_layers("moe_layer_freq")) is not None and len(listed) == layers:
        return [flag == 1 for flag in listed]
    every = shape.count("interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq", default=1)
    dense = shape.keys.get("mlp_only_layers") or ()
    first = shape.count("first_k_dense_replace", default=0)
    return [n >= first and (n + 1) % every == 0 and n not in dense for n in range(layers)]


def list_parts(shape: ConfigShape) -> Iterator[Part]:
    """Yield the matrices of the llm's layers and its tables."""
    hidden, vocabulary = shape.count("hidden_size"), shape.count("vocab_size")
    for number, layer in enumerate(list_layers(shape)):
        yield from list_mixer_parts(shape, layer.mixer, f"layers.{number}")
        yield from list_network_parts(shape, layer, f"layers.{number}")
    tables = 1 if shape.flag("tie_word_embeddings", default=shape.kind in GEMMA_KINDS) else 2
    yield Part("tables", tables * vocabulary * hidden, is_matrix=False)


def list_mixer_parts(shape: ConfigShape, mixer: str, layer: str) -> Iterator[Part]:
    """Yield the matrices through which the tokens of a layer meet."""
    if mixer == NO_MIXER:
        return
    module = "linear_attn" if mixer == STATE else "self_attn"
    matrices = state_matrices(shape) if mixer == STATE else attention_matrices(shape, mixer)
    for name, parameters in matrices.items():
        yield Part(f"{layer}.{'mixer' if shape.kind == 'nemotron_h' else module}.{name}", parameters)


def list_network_parts(shape: ConfigShape, layer: Layer, name: str) -> Iterator[Part]:
    """Yield the matrices of a layer's dense network, of its experts and of its router."""
    hidden, products = shape.count("hidden_size"), 2 if shape.kind == "nemotron_h" else 3
    if layer.has_dense:
        width = shape.count("intermediate_size_mlp", "intermediate_size")
        yield Part(f"{name}.mlp.gate_proj", products * hidden * width)
    if layer.has_experts:
        experts, inner = count_experts(shape), shape.count("moe_latent_size", default=0)
        each = products * (inner or hidden) * expert_width(shape)
        block = {"mixtral": "block_sparse_moe", "minimax_m2": "block_sparse_moe", "nemotron_h": "mixer"}
        module = f"{name}.{block.get(shape.kind, 'mlp')}"
        yield Part(f"{module}.experts.0.gate_proj", experts * each, is_routed=True)
        yield Part(f"{module}.shared_experts.gate_proj", products * hidden * shared_width(shape))
        yield Part(f"{module}.latent_proj", 2 * hidden * inner)
        yield Part(f"{module}.gate", hidden * experts, is_matrix=False)


def attention_heads(shape: ConfigShape, mixer: str) -> Heads:
    """Return the heads of the attention of a layer, FULL or WINDOW."""
    heads, hidden = shape.count("num_attention_heads"), shape.count("hidden_size")
    keys = shape.count("num_key_value_heads", default=heads)
    key = value = shape.count("head_dim", "attention_head_dim", default=hidden // heads)
    if shape.kind == "gemma4_text" and mixer == FULL:
        keys = shape.count("num_global_key_value_heads", default=keys)
        key = value = shape.count("global_head_dim", default=key)
    if shape.kind == "mimo_v2_flash":
        own = "swa_" if mixer == WINDOW else ""
        heads = shape.count(f"{own}num_attention_heads", default=heads)
        keys = shape.count(f"{own}num_key_value_heads", default=keys)
        key, value = shape.count(f"{own}head_dim", default=key), shape.count(f"{own}v_head_dim", "v_head_dim")
    return Heads(heads, keys, key, value)


def attention_matrices(shape: ConfigShape, mixer: str) -> dict[str, int]:
    """Return the parameters of the matrices of a layer's attention, by name."""
    hidden = shape.count("hidden_size")
    if shape.kind in LATENT_KINDS:
        return latent_matrices(shape, hidden)
    heads = attention_heads(shape, mixer)
    queries = heads.queries * (2 if shape.flag("attn_output_gate") else 1)
    has_values = not (mixer == FULL and shape.flag("attention_k_eq_v"))
    columns = (queries + heads.keys) * heads.key + has_values * heads.keys * heads.value
    return {"q_proj": hidden * columns, "o_proj": heads.queries * heads.value * hidden}


def latent_matrices(shape: ConfigShape, hidden: int) -> dict[str, int]:
    """Return the parameters of the matrices of latent attention, and of its index, by name."""
    heads = shape.count("num_attention_heads")
    rope, nope = shape.count("qk_rope_head_dim"), shape.count("qk_nope_head_dim")
    values, rank = shape.count("v_head_dim"), shape.count("kv_lora_rank")
    queries = shape.count("q_lora_rank", default=0)
    matrices = {
        "q_a_proj": hidden * queries,
        "q_b_proj": (queries or hidden) * heads * (nope + rope),
        "kv_a_proj_with_mqa": hidden * (rank + rope),
        "kv_b_proj": rank * heads * (nope + values),
        "o_proj": heads * values * hidden,
    }
    if shape.kind in INDEXED:
        lookups, numbers = shape.count("index_n_heads"), shape.count("index_head_dim")
        matrices["indexer.wq_b"] = (queries or hidden) * lookups * numbers
        matrices["indexer.wk"] = hidden * (numbers + lookups)
    return matrices


def state_matrices(shape: ConfigShape) -> dict[str, int]:
    """Return the parameters of the matrices of a layer that keeps a state, by name."""
    hidden = shape.count("hidden_size")
    if shape.kind == "nemotron_h":
        inner, mixed = mamba_widths(shape)
        heads = shape.count("mamba_num_heads")
        return {"in_proj": hidden * (inner + mixed + heads), "out_proj": inner * hidden}
    keys, values = linear_widths(shape)
    return {
        "in_proj_qkv": hidden * (2 * keys + values),
        "in_proj_z": hidden * values,
        "in_proj_b": hidden * 2 * shape.count("linear_num_value_heads"),
        "out_proj": values * hidden,
    }


def mamba_widths(shape: ConfigShape) -> tuple[int, int]:
    """Return the inner width of a Mamba 2 layer, and the width of its convolution."""
    inner = shape.count("mamba_num_heads") * shape.count("mamba_head_dim")
    return inner, inner + 2 * shape.count("n_groups") * shape.count("ssm_state_size")


def linear_widths(shape: ConfigShape) -> tuple[int, int]:
    """Return the widths of the keys and of the values of linear attention, over all heads."""
    keys = shape.count("linear_num_key_heads") * shape.count("linear_key_head_dim")
    return keys, shape.count("linear_num_value_heads") * shape.count("linear_value_head_dim")


def state_bytes(shape: ConfigShape) -> int:
    """Return the bytes of the state that one layer keeps of a request."""
    named = str(shape.keys.get("mamba_ssm_dtype") or shape.keys.get("mamba_ssm_cache_dtype"))
    number_bytes = NUMBER_BYTES.get(named, CONV_BYTES)
    if shape.kind == "nemotron_h":
        inner, mixed = mamba_widths(shape)
        kernel, numbers = shape.count("conv_kernel"), inner * shape.count("ssm_state_size")
    else:
        keys, values = linear_widths(shape)
        mixed, kernel = 2 * keys + values, shape.count("linear_conv_kernel_dim")
        numbers = values * shape.count("linear_key_head_dim")
    return mixed * (kernel - 1) * CONV_BYTES + numbers * number_bytes


def window_tokens(shape: ConfigShape) -> int:
    """Return the tokens of a window, in blocks of the cache."""
    return -(-shape.count("sliding_window") // WINDOW_BLOCK) * WINDOW_BLOCK + WINDOW_BLOCK


def cache_heads(shape: ConfigShape) -> tuple[int, int]:
    """Return kv_heads and head_dim of a layer that keeps all tokens: numbers of a key and, alike, a value."""
    if shape.kind in LATENT_KINDS:
        numbers = shape.count("kv_lora_rank") + shape.count("qk_rope_head_dim")
        if shape.kind in INDEXED:
            numbers += -(-(shape.count("index_head_dim") + INDEX_SCALE_BYTES) // 2)
        return 1, -(-numbers // 2)
    heads = attention_heads(shape, FULL)
    return heads.keys, -(-(heads.key + heads.value) // 2)


def request_cache_bytes(shape: ConfigShape, mixers: list[str], cache_bits: int) -> float:
    """Return the bytes of a request that do not depend on its length: states, windows, half blocks."""
    windows, states = mixers.count(WINDOW), mixers.count(STATE)
    kept = (states + mixers.count(FULL) / 2) * state_bytes(shape) if states else 0.0
    if windows:
        numbers = attention_heads(shape, WINDOW).cached_numbers * window_tokens(shape)
        kept += windows * numbers * cache_bits / 8
    return kept
