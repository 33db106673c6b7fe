"""Load a run's config by name or path, merge it with the config that it is based on, and check it."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetcast.models.world.calendar import Calendar
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_overrides import merge_layers, override_catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.config_checks import check_config
from fleetcast.models.world.engine_answers import add_answered_engines
from fleetcast.models.world.named_llms import with_deployed_models
from fleetcast.models.world.project_paths import ROOT
from fleetcast.models.world.toml_dataclasses import (
    ConfigError,
    build_dataclass,
    merge_dataclass_tables,
    parse_toml,
    read_toml,
    require_known,
    shorten_text,
)

CONFIG_DIR = ROOT / "data" / "config"
CALENDAR_DIR = ROOT / "data" / "calendar"
CONFIG_TABLES = ("trace", "fleet", "forecast", "plan", "replay", "policies", "catalogue", "quality")
# Tables of [trace] that generate its requests; without one of them the trace has been landed.
SYNTHETIC_SOURCES = {"office", "tiled"}


def load_config(name: str, catalogue: Catalogue, folder: Path = CONFIG_DIR, text: str = "") -> RunConfig:
    """Load a run's config by name ("office") or by path ("my/run.toml"); ConfigError names an error in it.

    With `text`, the content that a run carries along, the file of that path need not exist.
    """
    path = Path(name) if text else config_path(name, folder)
    return build_config(read_tables(path, folder, text=text), path, catalogue)


def build_config(tables: dict[str, Any], path: Path, catalogue: Catalogue) -> RunConfig:
    """Build the config of these tables and check it; ConfigError names the file and the error."""
    tables = with_deployed_models(tables, catalogue)
    _check_office_tiers(tables, catalogue, path.name)
    config: RunConfig = build_dataclass(RunConfig, {**tables, "file": path.resolve()}, path.name)
    changed = override_catalogue(catalogue, config.catalogue, path.name)
    config = add_answered_engines(config, changed)
    check_config(config, changed)
    if config.forecast.calendar is not None:
        config = replace(config, calendar=load_calendar(config.forecast.calendar))
    return config


def _check_office_tiers(tables: dict[str, Any], catalogue: Catalogue, where: str) -> None:
    """Raise ConfigError for an unknown tier of [trace.office.tiers], before its missing keys are noticed."""
    own = _inner_table(tables, "catalogue", "tiers")
    for tier in _inner_table(tables, "trace", "office", "tiers"):
        require_known(tier, {**catalogue.tiers, **own}, "tier", f"{where} [trace.office.tiers]")


def _inner_table(tables: Any, *keys: str) -> dict[str, Any]:
    """Return the table under these keys; an empty one where it is missing or no table."""
    for key in keys:
        tables = tables.get(key) if isinstance(tables, dict) else None
    return tables if isinstance(tables, dict) else {}


def config_path(name: str, folder: Path = CONFIG_DIR) -> Path:
    """Return the path of a config by name (with or without .toml) or path; ConfigError if it is missing."""
    shipped, path = folder / f"{name.removesuffix('.toml')}.toml", Path(os.path.expanduser(name))
    is_path = name.endswith(".toml") or len(path.parts) > 1
    if is_path and path.exists():
        return path
    if len(path.parts) == 1 and shipped.is_file():
        return shipped
    where = (
        f"There is no file {shorten_text(str(path))}"
        if is_path
        else f"There is no config {shorten_text(repr(name))}"
    )
    names = ", ".join(sorted(p.stem for p in folder.glob("*.toml")))
    raise ConfigError(f"{where}; in data/config there is: {names}. Name one, or a TOML file by its path.")


def read_tables(path: Path, folder: Path, above: tuple[Path, ...] = (), text: str = "") -> dict[str, Any]:
    """Return the tables of a config merged key by key over the shipped config that it is `based_on`.

    Its [trace] is merged only if both generate their requests by the same table; the trace's name is never
    inherited. `above` are the configs that are based on this one.
    """
    tables = parse_toml(text, path) if text else read_toml(path)
    for key in tables:
        require_known(key, (*CONFIG_TABLES, "based_on"), "key", path.name)
    base = tables.pop("based_on", None)
    if base is None:
        return tables
    if not isinstance(base, str) or path in above:
        raise ConfigError(
            f"{path.name} based_on: got {shorten_text(repr(base))}, needed the name of a config that is not "
            "based on this one."
        )
    inherited = read_tables(folder / f"{base.removesuffix('.toml')}.toml", folder, (*above, path))
    return merge_config_tables(inherited, tables)


def merge_config_tables(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge the tables of a config over those of the config that it is based on."""
    if isinstance(trace := above.get("trace"), dict):
        is_alike = SYNTHETIC_SOURCES & trace.keys() & below["trace"].keys()
        below = {**below, "trace": {k: v for k, v in below["trace"].items() if is_alike and k != "name"}}
    both = merge_dataclass_tables(RunConfig, below, above)
    changes = [tables["catalogue"] for tables in (below, above) if isinstance(tables.get("catalogue"), dict)]
    return {**both, "catalogue": merge_layers(*changes)} if len(changes) == 2 else both


def load_calendar(name: str, folder: Path = CALENDAR_DIR) -> Calendar:
    """Load a calendar by name; ConfigError names an error in it."""
    calendar: Calendar = build_dataclass(Calendar, read_toml(folder / f"{name}.toml"), f"{name}.toml")
    calendar.check(f"{name}.toml")
    return calendar
