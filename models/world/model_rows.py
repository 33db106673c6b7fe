"""Rows of llms.toml whose sizes are read from the config.json of their `model`, and rows named by a model.

A row with `model` needs no sizes; those that it has must agree with the config.json.
"""

import functools
import json
from collections.abc import Container, Mapping
from typing import Any

from fleetcast.models.world.catalogue_entries import Llm
from fleetcast.models.world.model_sizes import find_contradiction, read_model_sizes
from fleetcast.models.world.shipped_models import config_paths, read_model_config, same_models
from fleetcast.models.world.toml_dataclasses import ConfigError, build_dataclass

SIZES = ("parameters_b", "layers", "heads", "kv_heads", "head_dim")  # keys that a row without a model needs


def sizes_of_model(model: str, where: str, name: str) -> dict[str, Any]:
    """Return the keys of Llm in the config.json of a `model`; errors as of `read_model_sizes`."""
    return _sizes_of_text(*read_model_config(model, name), where)


@functools.lru_cache(maxsize=256)
def _sizes_of_text(config: str, quantisation: str, where: str) -> dict[str, Any]:
    return read_model_sizes(json.loads(config), json.loads(quantisation) if quantisation else {}, where)


def complete_llm_row(row: Any, where: str, name: str) -> Any:
    """Return a row of llms.toml with the sizes of its `model`; unchanged if it has all, or no model.

    ConfigError for a size that contradicts the config.json, and where it is missing or not understood.
    """
    if not isinstance(row, dict) or not isinstance(model := row.get("model"), str):
        return row
    if all(key in row for key in SIZES):
        return row
    sizes = sizes_of_model(model, where, name)
    if wrong := find_contradiction({key: row[key] for key in row if is_number(row[key])}, sizes):
        raise ConfigError(f"{where}: {wrong}. Correct one of them, or leave it out of the row.")
    return {"source": describe_source(model), **sizes, **row}


def is_number(value: Any) -> bool:
    """Return whether a value of TOML is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def describe_source(model: str) -> str:
    """Return the source of a row whose sizes were read."""
    same = same_models().get(model)
    return f"config.json of {model}" + (f", that of {same}" if same else "")


def build_llm(row: Any, where: str, name: str) -> Llm:
    """Return the llm of a row of llms.toml; ConfigError names what is wrong with it."""
    llm: Llm = build_dataclass(Llm, complete_llm_row(row, where, name), where)
    return llm


def model_row(name: str) -> dict[str, str] | None:
    """Return the row of an llm that is named by its model; None if there is no such model.

    A folder is written with its whole path, so that the row means the same from any other folder.
    """
    if (paths := config_paths(name)) is None:
        return None
    is_folder = paths[0].name == "config.json"
    return {"model": str(paths[0].parent.resolve()) if is_folder else name}


def names_by_model(llms: Mapping[str, Llm]) -> dict[str, str]:
    """Return the name in the catalogue of each published name of a `model`, and of those of the same sizes.

    Of llms with one model, it is the one with most bits, and of these the first.
    """
    found = dict[str, str]()
    for name, llm in sorted(llms.items(), key=lambda row: -row[1].weight_bits):
        if llm.model is not None:
            found.setdefault(llm.model, name)
    same = {name: found[model] for name, model in same_models().items() if model in found}
    return same | found


def render_model_key(llm: str, arch: Llm, shipped: Container[str]) -> list[str]:
    """Return the line of a [catalogue.llms] row that a config needs for an llm named by its model.

    None for one of the llms of the catalogue that is `shipped`.
    """
    return [f"model = {json.dumps(arch.model)}"] if arch.model and llm not in shipped else []


def file_stem(llm: str) -> str:
    """Return the name of an llm as a part of a file's name: OWNER--NAME, as the package writes it."""
    return llm.strip("./~").replace("/", "--")
