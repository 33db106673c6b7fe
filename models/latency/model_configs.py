"""The config.json of an llm, for packages that read architectures in the form of Hugging Face.

An llm's `model` in llms.toml is a name on Hugging Face whose config a package ships, or a folder with a
config.json. Without it the config of a dense llm is written from its row. Nothing is downloaded.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleetcast.models.latency.aiconfigurator_package import PackageLacksData
from fleetcast.models.world.catalogue_entries import Llm
from fleetcast.models.world.toml_dataclasses import ConfigError, suggest_name

MOST_CONFIG_BYTES = 1 << 20
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
        hidden, intermediate, vocabulary = arch.widths(name)
    except ConfigError as error:
        raise PackageLacksData(f"llms.toml has neither the model of {name} nor all its widths") from error
    return json.dumps(
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": hidden,
            "intermediate_size": intermediate,
            "num_hidden_layers": arch.layers,
            "num_attention_heads": arch.heads,
            "num_key_value_heads": arch.kv_heads,
            "head_dim": arch.head_dim,
            "vocab_size": vocabulary,
            "max_position_embeddings": POSITIONS,
            "torch_dtype": "bfloat16",
        }
    )


def read_model_config(model: str, shipped: Path, name: str) -> tuple[str, str]:
    """Return the texts of config.json and hf_quant_config.json (empty if absent) of an llm's `model`.

    `shipped` is a folder with files OWNER--NAME_config.json. ConfigError for an unknown name, and for files
    that cannot be read or are no JSON tables.
    """
    folder, stem = Path(model).expanduser(), model.replace("/", "--")
    if folder.is_dir():
        paths = folder / "config.json", folder / "hf_quant_config.json"
    else:
        paths = shipped / f"{stem}_config.json", shipped / f"{stem}_hf_quant_config.json"
    if not paths[0].is_file():
        known = [
            path.name.removesuffix("_config.json").replace("--", "/")
            for path in shipped.glob("*_config.json")
        ]
        raise ConfigError(
            f"llms.toml [{name}] model: there is no config.json of {model!r}. "
            f"{suggest_name(model, known)} Name a folder with a config.json; nothing is downloaded."
        )
    texts = [read_json_table(path, name) if path.is_file() else "" for path in paths]
    return texts[0], texts[1]


def read_json_table(path: Path, name: str) -> str:
    """Return a file's JSON table as text; ConfigError where it is none."""
    try:
        if path.stat().st_size > MOST_CONFIG_BYTES:
            raise ConfigError(f"llms.toml [{name}] model: {path.name} is larger than 1 MiB. Name another.")
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"llms.toml [{name}] model: {path.name} is not JSON: {error}. Correct it."
        ) from error
    if not isinstance(table, dict):
        raise ConfigError(f"llms.toml [{name}] model: {path.name} has no JSON table. Correct it.")
    return json.dumps(table)


def check_model_config(config: Mapping[str, Any], arch: Llm, name: str) -> None:
    """Raise ConfigError where a config.json and the row in llms.toml contradict each other."""
    inner = config.get("text_config")
    shape = inner if isinstance(inner, dict) else config
    if "kv_lora_rank" in shape:  # latent attention: llms.toml writes its cache as heads that it has not
        known = {"num_hidden_layers": "layers", "hidden_size": "hidden"}
    else:
        known = CONFIG_KEYS
    for key, name_here in known.items():
        expected, got = getattr(arch, name_here), shape.get(key)
        if expected is not None and got is not None and got != expected:
            raise ConfigError(
                f"llms.toml [{name}]: {name_here} is {expected}, but {key} in the config.json of its model "
                f"is {str(got)[:40]}. Correct one of them."
            )
