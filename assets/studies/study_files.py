"""The studies of data/studies/*.toml: a config, and its variants, which differ from it in a few keys each."""

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
ALL_DEPTHS = 20  # as deep as a TOML file may be
ONLY_VARIANT = "as_is"  # the one variant of a study that names none
MADE_NAME = "study"  # of a trace that a study makes: it stands alone in its lake


@dataclass(frozen=True)
class StudyHeader:
    """What a study says beside the tables of a config; data/studies/README.md tells every key."""

    what: str
    based_on: str
    section: str | None = None
    replayed_days: Annotated[int, Range(1, 366)] = 1
    in_one_go: bool = False  # fleet and queues are carried over midnight
    tiers: tuple[str, ...] = ()
    variants: Mapping[str, Any] = field(default_factory=dict)


class StudyVariant(NamedTuple):
    """One config of a study, over a lake that has nothing of it yet."""

    study: str
    name: str
    what: str
    settings: RunSettings
    days: tuple[date, ...]  # that are replayed, in order
    in_one_go: bool  # each from the fleet and the queues that the one before it left


def study_names() -> list[str]:
    """The studies there are."""
    return sorted(path.stem for path in STUDIES_DIR.glob("*.toml"))


def read_study_header(name: str) -> tuple[StudyHeader, dict[str, Any]]:
    """What a study says of itself, and its tables of a config; ConfigError names what is wrong."""
    require_known(name, study_names(), "study", "data/studies")
    said = read_toml(STUDIES_DIR / f"{name}.toml")
    tables = {key: said.pop(key) for key in CONFIG_TABLES if key in said}
    head: StudyHeader = build_dataclass(StudyHeader, said, f"{name}.toml")
    return head, tables


def load_study(name: str, lake: Lake, base: str | None = None) -> list[StudyVariant]:
    """The variants of a study, checked before anything is made; on the config `base` if one is named."""
    head, tables = read_study_header(name)
    above = config_path(base or head.based_on)
    below = read_tables(above, CONFIG_DIR)
    require_generated_trace(below, tables, f"{name}.toml")
    below = overlay_tables(below, tables)
    told: Mapping[str, Any] = head.variants or {ONLY_VARIANT: {}}
    catalogue, variants = load_catalogue(), []
    for variant, said in told.items():
        where = f"{name}.toml [variants.{variant}]"
        if not isinstance(said, dict):
            raise ConfigError(f"{where}: got {said!r}, needed a table.")
        own = dict(said)
        what = own.pop("what", head.what)
        in_one_go = convert_value(bool, own.pop("in_one_go", head.in_one_go), f"{where} in_one_go")
        for key in own:
            require_known(key, (*CONFIG_TABLES, "what", "in_one_go"), "key", where)
        require_generated_trace(below, own, where)
        config = build_config(overlay_tables(below, own), STUDIES_DIR / where, catalogue)
        last = config.trace.replay_day
        days = tuple(last - timedelta(days=back) for back in reversed(range(head.replayed_days)))
        settings = build_settings(lake, catalogue, config)
        require_tiers(settings, head.tiers, days, where)
        variants.append(StudyVariant(name, variant, str(what), settings, days, in_one_go))
    return variants


def overlay_tables(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Tables over others, key by key all the way down; a trace that is named anew stands by itself.

    One that is made is called MADE_NAME, so that variants which make the same requests share them.
    """
    if isinstance(trace := above.get("trace"), dict) and "name" in trace:
        below = {**below, "trace": {}}
    both = merge_layers(below, above, ALL_DEPTHS)
    if isinstance(trace := both.get("trace"), dict) and SYNTHETIC_SOURCES & trace.keys():
        both["trace"] = {**trace, "name": MADE_NAME}
    return both


def require_generated_trace(below: dict[str, Any], above: dict[str, Any], where: str) -> None:
    """Refuse a change to requests that are made otherwise, or are there already."""
    trace = above.get("trace")
    if not isinstance(trace, dict) or "name" in trace:
        return
    for source in sorted(SYNTHETIC_SOURCES & trace.keys() - below.get("trace", {}).keys()):
        raise ConfigError(
            f"{where} changes [trace.{source}], by which the requests of this config are not made. "
            "Ask it on another one: --config NAME."
        )


def require_tiers(settings: RunSettings, tiers: tuple[str, ...], days: tuple[date, ...], where: str) -> None:
    """Refuse a trace that has no request of a tier that the study is about."""
    trace = settings.config.trace
    if trace.office is not None:
        there = {name for name, traffic in trace.office.tiers.items() if traffic.share > 0}
    else:
        landed = trace.tiled.template if trace.tiled is not None else trace.name
        query = "select distinct tier from requests where trace = $trace"
        there = set(settings.lake.sql(query, trace=landed)["tier"].to_pylist())
    for tier in tiers:
        require_known(tier, settings.catalogue.tiers, "tier", f"{where} tiers")
        if tier not in there:
            raise ConfigError(
                f"{where}: its trace has no request of {tier}, which this study is about; it has "
                f"{', '.join(sorted(there)) or 'none'}. Ask it on another config: --config NAME."
            )
