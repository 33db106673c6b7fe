"""What a config changes in the catalogue for its own run: [catalogue.gpus.NAME] and the like, key by key.

What is there is changed only where a key is said; what is new needs all its keys. Either is checked like the
files of data/catalogue.
"""

import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from typing import Any

from fleetcast.models.world.catalogue import Catalogue, check_regions, check_tiers
from fleetcast.models.world.catalogue_entries import Gpu, Llm, Region, Tier
from fleetcast.models.world.toml_dataclasses import (
    ConfigError,
    build_dataclass,
    convert_value,
    require_known,
    suggest_name,
)

CATALOGUE_KINDS: Mapping[str, type] = {"gpus": Gpu, "llms": Llm, "regions": Region, "tiers": Tier}
OVERRIDE_DEPTH = 3  # kind, name, key: what lies deeper is replaced whole


def override_catalogue(catalogue: Catalogue, changes: Mapping[str, Any], file: str) -> Catalogue:
    """The catalogue with a config's [catalogue]; ConfigError names what of it is wrong."""
    tables: dict[str, Any] = {}
    for kind, entries in changes.items():
        require_known(kind, CATALOGUE_KINDS, "table", f"{file} [catalogue]")
        tables[kind] = dict(getattr(catalogue, kind))
        for name, said in _table(entries, f"{file} [catalogue.{kind}]").items():
            where = f"{file} [catalogue.{kind}.{name}]"
            tables[kind][name] = _entry(kind, name, tables[kind], _table(said, where), where)
    world = replace(catalogue, **tables)
    if changes:
        check_regions(world, f"{file} [catalogue.regions.{{}}]")
        check_tiers(world, f"{file} [catalogue.tiers]")
    return world


def merge_layers(
    below: Mapping[str, Any], above: Mapping[str, Any], depth: int = OVERRIDE_DEPTH
) -> dict[str, Any]:
    """Two nested tables as one, key by key down to a depth; below that what lies above stands."""
    both = {**below, **above}
    for key in below.keys() & above.keys():
        if depth > 1 and isinstance(below[key], dict) and isinstance(above[key], dict):
            both[key] = merge_layers(below[key], above[key], depth - 1)
    return both


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: got {value!r}, needed a table.")
    return value


def _entry(kind: str, name: str, known: Mapping[str, Any], said: Mapping[str, Any], where: str) -> Any:
    """An entry as it is now said: one that is known with other values, or a new one that says everything."""
    cls = CATALOGUE_KINDS[kind]
    needed = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
    if name in known:
        hints = typing.get_type_hints(cls, include_extras=True)
        for key in said:
            require_known(key, hints, "key", where)
        values = {key: convert_value(hints[key], value, f"{where} {key}") for key, value in said.items()}
        return replace(known[name], **values)
    if missing := [key for key in needed if key not in said]:
        raise ConfigError(
            f"{where}: unknown {kind[:-1]} {name!r}. {suggest_name(name, known)} A new one needs all its "
            f"keys; "
            f"{', '.join(missing)} are not said."
        )
    return build_dataclass(cls, said, where)
