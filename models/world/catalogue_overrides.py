"""Changes of the catalogue by a config for its run: [catalogue.gpus.NAME] and the like, key by key.

An existing entry is changed only in the given keys; a new entry needs all its keys. Both are checked like the
files of data/catalogue. `latency_era` takes the profiles of engines of a past year, which nothing else does.
`latency_source` takes all profiles from aiconfigurator-core, so that deployments differ by one source only.
"""

import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from typing import Any

from fleetcast.models.world.catalogue import Catalogue, check_regions, check_tiers
from fleetcast.models.world.catalogue_entries import Gpu, Llm, Region, Tier
from fleetcast.models.world.model_rows import complete_llm_row
from fleetcast.models.world.toml_dataclasses import (
    ConfigError,
    build_dataclass,
    convert_value,
    require_known,
    shorten_text,
    suggest_name,
)

LATENCY_ERA, LATENCY_SOURCE = "latency_era", "latency_source"  # the keys of [catalogue] that are no tables
PACKAGE_SOURCE = "aiconfigurator-core"  # the one value of the latter
CATALOGUE_KINDS: Mapping[str, type] = {"gpus": Gpu, "llms": Llm, "regions": Region, "tiers": Tier}
OVERRIDE_DEPTH = 3  # kind, name, key; deeper tables are replaced as a whole


def override_catalogue(catalogue: Catalogue, changes: Mapping[str, Any], file: str) -> Catalogue:
    """Return the catalogue with the changes of a config's [catalogue]; ConfigError names an error in them."""
    tables: dict[str, Any] = {}
    for kind, entries in changes.items():
        if kind == LATENCY_ERA:
            catalogue = catalogue.of_era(entries, f"{file} [catalogue] {LATENCY_ERA}")
            continue
        if kind == LATENCY_SOURCE:
            require_known(str(entries), (PACKAGE_SOURCE,), kind, f"{file} [catalogue]")
            catalogue = replace(catalogue, latency=(), kernels={})
            continue
        known = (*CATALOGUE_KINDS, LATENCY_ERA, LATENCY_SOURCE)
        require_known(kind, known, "table", f"{file} [catalogue]")
        tables[kind] = dict(getattr(catalogue, kind))
        for name, entry in _require_table(entries, f"{file} [catalogue.{kind}]").items():
            where = f"{file} [catalogue.{kind}.{name}]"
            tables[kind][name] = _build_entry(kind, name, tables[kind], _require_table(entry, where), where)
    changed = replace(catalogue, **tables)
    if tables:
        check_regions(changed, f"{file} [catalogue.regions.{{}}]")
        check_tiers(changed, f"{file} [catalogue.tiers]")
    return changed


def merge_layers(
    below: Mapping[str, Any], above: Mapping[str, Any], depth: int = OVERRIDE_DEPTH
) -> dict[str, Any]:
    """Merge two nested tables key by key down to a depth; deeper tables of `above` replace the others."""
    both = {**below, **above}
    for key in below.keys() & above.keys():
        if depth > 1 and isinstance(below[key], dict) and isinstance(above[key], dict):
            both[key] = merge_layers(below[key], above[key], depth - 1)
    return both


def _require_table(value: Any, where: str) -> Mapping[str, Any]:
    """Return the value; ConfigError if it is not a table."""
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: got {shorten_text(repr(value))}, needed a table.")
    return value


def _build_entry(kind: str, name: str, known: Mapping[str, Any], entry: Mapping[str, Any], where: str) -> Any:
    """Return a known entry with the given values, or a new entry; ConfigError if a new one lacks keys."""
    cls = CATALOGUE_KINDS[kind]
    needed = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
    if name in known:
        hints = typing.get_type_hints(cls, include_extras=True)
        for key in entry:
            require_known(key, hints, "key", where)
        values = {key: convert_value(hints[key], value, f"{where} {key}") for key, value in entry.items()}
        return replace(known[name], **values)
    if cls is Llm:
        entry = complete_llm_row(entry, where, name)
    if missing := [key for key in needed if key not in entry]:
        raise ConfigError(
            f"{where}: unknown {kind[:-1]} {name!r}. {suggest_name(name, known)} A new one needs all its "
            f"keys; {', '.join(missing)} are missing."
        )
    return build_dataclass(cls, entry, where)
