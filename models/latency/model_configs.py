"""The config.json of an llm, for packages that read architectures in the form of Hugging Face.

An llm's `model` in llms.toml names one (models/world/shipped_models.py), which must agree with its row.
Without it the config of a dense llm is written from its row.
"""

import json
from collections.abc import Mapping
from typing import Any

from fleetcast.models.latency.aiconfigurator_package import PackageLacksData
from fleetcast.models.world.catalogue_entries import Llm
from fleetcast.models.world.model_rows import sizes_of_model
from fleetcast.models.world.model_sizes import UnknownArchitecture, find_contradiction
from fleetcast.models.world.shipped_models import config_paths, read_model_config, shipped_configs
from fleetcast.models.world.toml_dataclasses import ConfigError

POSITIONS = 131_072  # the longest prompt; no kernel depends on it
CONFIG_KEYS = {  # of config.json, and its meaning in llms.toml
    "num_hidden_layers": "layers",
    "hidden_size": "hidden",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
}


def written_config(arch: Llm, name: str) -> str:
    """Return the config.json of a dense llm from its row in llms.toml; PackageLacksData if it lacks some."""
    if arch.experts is not None:
        raise PackageLacksData(
            f"{name} is a mixture of experts, and llms.toml has no model to read its config.json of"
        )
    try:
        _, intermediate, vocabulary = arch.widths(name)
    except ConfigError as error:
        raise PackageLacksData(f"llms.toml has neither the model of {name} nor all its widths") from error
    return json.dumps(
        {
            **{key: getattr(arch, field) for key, field in CONFIG_KEYS.items()},
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "intermediate_size": intermediate,
            "head_dim": arch.head_dim,
            "vocab_size": vocabulary,
            "max_position_embeddings": POSITIONS,
            "torch_dtype": "bfloat16",
        }
    )


def check_llm_config(arch: Llm, name: str) -> None:
    """Raise ConfigError for a config.json of an llm that cannot be read or contradicts llms.toml."""
    if arch.model is None or (shipped_configs() is None and config_paths(arch.model) is None):
        return  # without the package its copies cannot be read
    config = json.loads(read_model_config(arch.model, name)[0])
    inner = config.get("text_config")
    shape = inner if isinstance(inner, dict) else config
    try:
        sizes = sizes_of_model(arch.model, f"llms.toml [{name}]", name)
    except UnknownArchitecture:
        check_config_keys(arch, name, shape)  # no others can be compared
        return
    if wrong := find_contradiction(vars(arch), sizes):
        raise ConfigError(f"llms.toml [{name}]: {wrong}. Correct one of them.")


def check_config_keys(arch: Llm, name: str, shape: Mapping[str, Any]) -> None:
    """Raise ConfigError if one of CONFIG_KEYS in a config.json contradicts llms.toml."""
    for key, name_here in CONFIG_KEYS.items():
        expected, got = getattr(arch, name_here), shape.get(key)
        if expected is not None and got is not None and got != expected:
            raise ConfigError(
                f"llms.toml [{name}]: {name_here} is {expected}, but {key} in the config.json of its model "
                f"is {str(got)[:40]}. Correct one of them."
            )
