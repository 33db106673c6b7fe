"""Reading a run's config: by name or path, over the one that it is based on, checked as a whole."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetcast.models.world.calendar import Calendar
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_overrides import merge_layers, override_catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.config_checks import check_config
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
SYNTHETIC_SOURCES = {
    "office",
    "tiled",
}  # tables of [trace] that make its requests; without one they have been landed


def load_config(name: str, catalogue: Catalogue, folder: Path = CONFIG_DIR, text: str = "") -> RunConfig:
    """Read a run configuration by name ("office") or by path ("my/run.toml"); ConfigError says why not.

    Given its `text`, which a run brings along, the file of that path need not be there.
    """
    path = Path(name) if text else config_path(name, folder)
    return build_config(read_tables(path, folder, text=text), path, catalogue)


def build_config(tables: dict[str, Any], path: Path, catalogue: Catalogue) -> RunConfig:
    """The config of these tables, checked as a whole; ConfigError, which names the file, says why not."""
    config: RunConfig = build_dataclass(RunConfig, {**tables, "file": path.resolve()}, path.name)
    check_config(config, override_catalogue(catalogue, config.catalogue, path.name))
    if config.forecast.calendar is not None:
        config = replace(config, calendar=load_calendar(config.forecast.calendar))
    return config


def config_path(name: str, folder: Path = CONFIG_DIR) -> Path:
    """Where a config lies, by name (with its ending or without) or path; ConfigError where none does."""
    shipped, own = folder / f"{name.removesuffix('.toml')}.toml", Path(name).expanduser()
    is_path = name.endswith(".toml") or len(own.parts) > 1
    if is_path and own.exists():
        return own
    if len(own.parts) == 1 and shipped.is_file():
        return shipped
    where = (
        f"There is no file {shorten_text(str(own))}"
        if is_path
        else f"There is no config {shorten_text(repr(name))}"
    )
    names = ", ".join(sorted(p.stem for p in folder.glob("*.toml")))
    raise ConfigError(f"{where}; in data/config there is: {names}. Name one, or a TOML file by its path.")


def read_tables(path: Path, folder: Path, above: tuple[Path, ...] = (), text: str = "") -> dict[str, Any]:
    """The tables of a config over those of the shipped config that it is `based_on`, key by key.

    Its [trace] stands by itself unless it makes its requests as that of the other does; never is it given the
    other's name. `above` are the configs that are based on this one.
    """
    tables = parse_toml(text, path) if text else read_toml(path)
    for key in tables:
        require_known(key, (*CONFIG_TABLES, "based_on"), "key", path.name)
    base = tables.pop("based_on", None)
    if base is None:
        return tables
    if not isinstance(base, str) or path in above:
        raise ConfigError(
            f"{path.name} based_on: got {base!r}, needed the name of a config that is not based on this one."
        )
    inherited = read_tables(folder / f"{base.removesuffix('.toml')}.toml", folder, (*above, path))
    return merge_config_tables(inherited, tables)


def merge_config_tables(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """The tables of a config over those that it is based on."""
    if isinstance(trace := above.get("trace"), dict):
        is_alike = SYNTHETIC_SOURCES & trace.keys() & below["trace"].keys()
        below = {**below, "trace": {k: v for k, v in below["trace"].items() if is_alike and k != "name"}}
    both = merge_dataclass_tables(RunConfig, below, above)
    changes = [tables["catalogue"] for tables in (below, above) if isinstance(tables.get("catalogue"), dict)]
    return {**both, "catalogue": merge_layers(*changes)} if len(changes) == 2 else both


def load_calendar(name: str, folder: Path = CALENDAR_DIR) -> Calendar:
    """Read a calendar by name; ConfigError names what is wrong with it."""
    calendar: Calendar = build_dataclass(Calendar, read_toml(folder / f"{name}.toml"), f"{name}.toml")
    calendar.check(f"{name}.toml")
    return calendar
