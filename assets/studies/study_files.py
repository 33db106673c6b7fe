"""Read the studies of data/studies/*.toml: a config and variants that override some of its keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Annotated, Any, NamedTuple

from fleetcast.assets.lake.settings import RunSettings, build_settings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.catalogue_overrides import merge_layers
from fleetcast.models.world.config_loading import (
    CONFIG_DIR,
    CONFIG_TABLES,
    SYNTHETIC_SOURCES,
    build_config,
    config_path,
    read_tables,
)
from fleetcast.models.world.project_paths import ROOT
from fleetcast.models.world.toml_dataclasses import (
    ConfigError,
    Range,
    build_dataclass,
    convert_value,
    read_toml,
    require_known,
)

STUDIES_DIR = ROOT / "data" / "studies"
ALL_DEPTHS = 20  # levels of nested tables that a layer may override: all
ONLY_VARIANT = "as_is"  # variant of a study without [variants]
MADE_NAME = "study"  # name of every synthetic trace of a study; its prepared lake has no other


@dataclass(frozen=True)
class StudyHeader:
    """Keys of a study file besides the tables of a config; data/studies/README.md documents each."""

    what: str
    based_on: str
    section: str | None = None
    replayed_days: Annotated[int, Range(1, 366)] = 1
    in_one_go: bool = False  # whether fleet and queues carry over midnight
    tiers: tuple[str, ...] = ()
    variants: Mapping[str, Any] = field(default_factory=dict)


class StudyVariant(NamedTuple):
    """One config of a study, with settings over the user's lake."""

    study: str
    name: str
    what: str
    settings: RunSettings
    days: tuple[date, ...]  # days to replay, in order
    in_one_go: bool  # whether each day starts with the fleet and queues of the day before


def study_names() -> list[str]:
    """Return the names of all studies, sorted."""
    return sorted(path.stem for path in STUDIES_DIR.glob("*.toml"))


def read_study_header(name: str) -> tuple[StudyHeader, dict[str, Any]]:
    """Read a study's own keys and its config tables; ConfigError names an invalid key."""
    require_known(name, study_names(), "study", "data/studies")
    fields = read_toml(STUDIES_DIR / f"{name}.toml")
    tables = {key: fields.pop(key) for key in CONFIG_TABLES if key in fields}
    head: StudyHeader = build_dataclass(StudyHeader, fields, f"{name}.toml")
    return head, tables


def load_study(name: str, lake: Lake, base: str | None = None) -> list[StudyVariant]:
    """Load and check all variants of a study, on the config `base` or the study's own one."""
    head, tables = read_study_header(name)
    base_path = config_path(base or head.based_on)
    base_tables = read_tables(base_path, CONFIG_DIR)
    require_generated_trace(base_tables, tables, f"{name}.toml")
    base_tables = overlay_tables(base_tables, tables)
    variant_tables: Mapping[str, Any] = head.variants or {ONLY_VARIANT: {}}
    catalogue, variants = load_catalogue(), []
    for variant, overrides in variant_tables.items():
        where = f"{name}.toml [variants.{variant}]"
        if not isinstance(overrides, dict):
            raise ConfigError(f"{where}: got {overrides!r}, needed a table.")
        variant_overrides = dict(overrides)
        what = variant_overrides.pop("what", head.what)
        in_one_go = convert_value(
            bool, variant_overrides.pop("in_one_go", head.in_one_go), f"{where} in_one_go"
        )
        for key in variant_overrides:
            require_known(key, (*CONFIG_TABLES, "what", "in_one_go"), "key", where)
        require_generated_trace(base_tables, variant_overrides, where)
        config = build_config(overlay_tables(base_tables, variant_overrides), STUDIES_DIR / where, catalogue)
        last = config.trace.replay_day
        days = tuple(last - timedelta(days=back) for back in reversed(range(head.replayed_days)))
        settings = build_settings(lake, catalogue, config)
        require_tiers(settings, head.tiers, where)
        variants.append(StudyVariant(name, variant, str(what), settings, days, in_one_go))
    return variants


def overlay_tables(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge `above` over `below`, key by key at all depths; a named trace replaces [trace] as a whole.

    A synthetic trace is renamed MADE_NAME, so that variants with the same requests share them.
    """
    if isinstance(trace := above.get("trace"), dict) and "name" in trace:
        below = {**below, "trace": {}}
    merged = merge_layers(below, above, ALL_DEPTHS)
    if isinstance(trace := merged.get("trace"), dict) and SYNTHETIC_SOURCES & trace.keys():
        merged["trace"] = {**trace, "name": MADE_NAME}
    return merged


def require_generated_trace(below: dict[str, Any], above: dict[str, Any], where: str) -> None:
    """Raise ConfigError if `above` changes a synthetic source that the trace of `below` does not use."""
    trace = above.get("trace")
    if not isinstance(trace, dict) or "name" in trace:
        return
    for source in sorted(SYNTHETIC_SOURCES & trace.keys() - below.get("trace", {}).keys()):
        raise ConfigError(
            f"{where} changes [trace.{source}], but the requests of this config do not come from it. "
            "Run the study on another config: --config NAME."
        )


def require_tiers(settings: RunSettings, tiers: tuple[str, ...], where: str) -> None:
    """Raise ConfigError if the trace has no request of a tier that the study needs."""
    trace = settings.config.trace
    if trace.office is not None:
        present = {name for name, traffic in trace.office.tiers.items() if traffic.share > 0}
    else:
        landed = trace.tiled.template if trace.tiled is not None else trace.name
        query = "select distinct tier from requests where trace = $trace"
        present = set(settings.lake.sql(query, trace=landed)["tier"].to_pylist())
    for tier in tiers:
        require_known(tier, settings.catalogue.tiers, "tier", f"{where} tiers")
        if tier not in present:
            raise ConfigError(
                f"{where}: its trace has no request of {tier}, which this study needs; it has "
                f"{', '.join(sorted(present)) or 'none'}. Run it on another config: --config NAME."
            )
