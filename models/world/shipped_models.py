"""The config.json of an llm: one that aiconfigurator-core ships, or one in a folder. Nothing is downloaded.

An llm's `model` in llms.toml is a name on Hugging Face, or a folder with a config.json. A model that differs
from a shipped one in its weights only has its name in same_models.toml.
"""

import difflib
import functools
import importlib.util
import json
import os
from collections.abc import Iterable
from pathlib import Path

from fleetcast.models.world.project_paths import ROOT
from fleetcast.models.world.toml_dataclasses import ConfigError, read_toml, shorten_text

CONFIG_PACKAGE = "aiconfigurator_core"
SAME_MODELS = ROOT / "data" / "catalogue" / "same_models.toml"
MOST_CONFIG_BYTES = 1 << 20
CONFIG, QUANTISATION = "config.json", "hf_quant_config.json"


def shipped_configs() -> Path | None:
    """Return the folder of the package's files OWNER--NAME_config.json; None where it is not installed.

    The package is not imported: that takes a second.
    """
    found = importlib.util.find_spec(CONFIG_PACKAGE)
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "model_configs"


@functools.cache
def same_models() -> dict[str, str]:
    """Return the names of same_models.toml, with the shipped name of the same sizes."""
    return {name: shipped for shipped, names in read_toml(SAME_MODELS)["same"].items() for name in names}


def shipped_models() -> list[str]:
    """Return the names whose config.json the package ships, and those of the same sizes."""
    folder = shipped_configs()
    paths = [] if folder is None else folder.glob(f"*_{CONFIG}")
    files = [path.name for path in paths if not path.name.endswith(f"_{QUANTISATION}")]
    stems = {name.removesuffix(f"_{CONFIG}").replace("--", "/") for name in files}
    return sorted(stems | {name for name, shipped in same_models().items() if shipped in stems})


def config_paths(model: str) -> tuple[Path, Path] | None:
    """Return the paths of config.json and hf_quant_config.json of a `model`; None without the first."""
    if not model:
        return None
    folder, shipped, stem = Path(os.path.expanduser(model)), shipped_configs(), ""
    if not os.path.isdir(folder):  # False for any text that is no path, too
        if shipped is None:
            return None
        folder, stem = shipped, same_models().get(model, model).replace("/", "--") + "_"
    config, quantisation = folder / f"{stem}{CONFIG}", folder / f"{stem}{QUANTISATION}"
    return (config, quantisation) if os.path.isfile(config) else None


def suggest_model(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the known name nearest to an unknown one, in any case, also without its owner.

    Where none is near: how many the package has.
    """
    models = list(known)
    short = {each.rpartition("/")[2].lower(): each for each in reversed(models)}
    keys = short | {each.lower(): each for each in models}
    for text in (name.lower(), name.rpartition("/")[2].lower()):
        if near := difflib.get_close_matches(text, keys, n=1):
            return f"Did you mean {keys[near[0]]!r}?"
    return f"The catalogue and aiconfigurator-core know {len(models)} llms, none of a name like this."


def read_model_config(model: str, name: str) -> tuple[str, str]:
    """Return the texts of config.json and hf_quant_config.json (empty if absent) of an llm's `model`.

    ConfigError for an unknown name, and for files that cannot be read or are no JSON tables.
    """
    paths = config_paths(model)
    if paths is None:
        where = f"llms.toml [{name}] model: there is no config.json of {shorten_text(repr(model))}."
        if shipped_configs() is None:
            where += " aiconfigurator-core, which ships some, is not installed."
        raise ConfigError(
            f"{where} {suggest_model(model, shipped_models())} Name a folder with a config.json; nothing is "
            "downloaded."
        )
    config, quantisation = paths
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
