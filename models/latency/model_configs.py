"""The config.json of an llm, for packages that read architectures in the form of Hugging Face.

An llm's `model` in llms.toml is a name on Hugging Face whose config a package ships, or a folder with a
config.json. Without it the config of a dense llm is written from its row. Nothing is downloaded.
"""

import json
import os
from pathlib import Path

from fleetcast.models.latency.aiconfigurator_package import PackageLacksData, installed_package
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


def read_model_config(model: str, shipped: Path, name: str) -> tuple[str, str]:
    """Return the texts of config.json and hf_quant_config.json (empty if absent) of an llm's `model`.

    `shipped` is a folder with files OWNER--NAME_config.json. ConfigError for an unknown name, and for files
    that cannot be read or are no JSON tables.
    """
    folder, stem = Path(os.path.expanduser(model)), ""
    if not folder.is_dir():
        folder, stem = shipped, model.replace("/", "--") + "_"
    config, quantisation = folder / f"{stem}config.json", folder / f"{stem}hf_quant_config.json"
    if not config.is_file():
        names = [path.name.removesuffix("_config.json") for path in shipped.glob("*_config.json")]
        known = [name.replace("--", "/") for name in names]
        raise ConfigError(
            f"llms.toml [{name}] model: there is no config.json of {model!r}. "
            f"{suggest_name(model, known)} Name a folder with a config.json; nothing is downloaded."
        )
    text = read_json_table(config, name)
    return text, read_json_table(quantisation, name) if quantisation.is_file() else ""


def read_json_table(path: Path, name: str) -> str:
    """Return a file's JSON table as text; ConfigError where it is none."""
    where = f"llms.toml [{name}] model: {path.name}"
    try:
        is_large = path.stat().st_size > MOST_CONFIG_BYTES
        table = None if is_large else json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not JSON: {error}. Correct it.") from error
    if is_large:
        raise ConfigError(f"{where} is larger than 1 MiB. Name another.")
    if not isinstance(table, dict):
        raise ConfigError(f"{where} has no JSON table. Correct it.")
    return json.dumps(table)


def check_llm_config(arch: Llm, name: str) -> None:
    """Raise ConfigError for a config.json of an llm that cannot be read or contradicts llms.toml."""
    if arch.model is None:
        return
    try:
        config = json.loads(read_model_config(arch.model, installed_package()[1], name)[0])
    except PackageLacksData:  # its copies cannot be read
        return
    inner = config.get("text_config")
    shape = inner if isinstance(inner, dict) else config
    for key, name_here in CONFIG_KEYS.items():
        if "kv_lora_rank" in shape and key.endswith("heads"):
            continue  # latent attention: llms.toml writes its cache as heads that it has not
        expected, got = getattr(arch, name_here), shape.get(key)
        if expected is not None and got is not None and got != expected:
            raise ConfigError(
                f"llms.toml [{name}]: {name_here} is {expected}, but {key} in the config.json of its model "
                f"is {str(got)[:40]}. Correct one of them."
            )
