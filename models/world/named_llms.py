"""Llms by the name of their model, wherever a command or a config takes the name of an llm.

A name is one of the catalogue, that of a model (OWNER/NAME), or a folder with a config.json.
`add_named_llms` resolves those of a command, `with_deployed_models` those that a config deploys.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import Llm
from fleetcast.models.world.model_rows import build_llm, model_row
from fleetcast.models.world.shipped_models import shipped_models, suggest_model
from fleetcast.models.world.toml_dataclasses import ConfigError, shorten_text

FOLDER_NAME = re.compile(r'[^"\\\s@+]+')  # it is written into TOML, and into --fleet


def add_named_llms(catalogue: Catalogue, names: Iterable[str], where: str) -> Catalogue:
    """Return the catalogue with the llms of these names: those that it has, and models by their names.

    ConfigError for an unknown name, with the nearest known one, and for a model whose sizes cannot be read.
    """
    added = dict[str, Llm]()
    for name in names:
        if name in catalogue.llms or name in added:
            continue
        if (row := model_row(name)) is None:
            require_llm(name, catalogue, where)
            continue
        if not FOLDER_NAME.fullmatch(name):
            raise ConfigError(
                f'{where}: the folder {shorten_text(repr(name))} has a space or one of " \\ @ + in its '
                "path. Rename it, or link to it."
            )
        added[name] = build_llm(row, f"{where}: {name}", name)
    return replace(catalogue, llms={**catalogue.llms, **added}) if added else catalogue


def require_llm(name: str, catalogue: Catalogue, where: str) -> None:
    """Raise ConfigError for an llm that the catalogue lacks, with the nearest name or model."""
    if name not in catalogue.llms:
        if name.startswith((".", "/", "~")) or os.path.isdir(name):
            raise ConfigError(
                f"{where}: {shorten_text(repr(name))} is no folder with a config.json. Name one, or a model."
            )
        nearest = suggest_model(name, (*catalogue.llms, *shipped_models()))
        raise ConfigError(f"{where}: unknown llm {shorten_text(repr(name))}. {nearest}")


def with_deployed_models(tables: Mapping[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    """Return the tables of a config with a [catalogue.llms] row of each model that it deploys by its name."""
    fleet, changes = tables.get("fleet"), tables.get("catalogue", {})
    deployments = fleet.get("deployments") if isinstance(fleet, dict) else None
    rows = changes.get("llms", {}) if isinstance(changes, dict) else None
    if not isinstance(deployments, dict) or not isinstance(rows, dict):
        return dict(tables)
    unknown = [name for name in deployments if name not in catalogue.llms and name not in rows]
    found = {name: row for name in unknown if (row := model_row(name)) is not None}
    return {**tables, "catalogue": {**changes, "llms": {**rows, **found}}} if found else dict(tables)
