"""Mapping of a trace file: trace, region, llm, tier, app and start if it lacks them, from a TOML file."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fleetcast.assets.traces.ingest_bounds import IngestBounds, Minutes, Ratio
from fleetcast.assets.traces.log_columns import PER_S
from fleetcast.assets.traces.text_times import is_time_pattern
from fleetcast.assets.traces.trace_formats import ReadingOptions
from fleetcast.models.world.catalogue import CATALOGUE_DIR, Catalogue
from fleetcast.models.world.model_rows import model_row, names_by_model
from fleetcast.models.world.named_llms import add_named_llms
from fleetcast.models.world.toml_dataclasses import (
    ConfigError,
    Range,
    TraceName,
    build_dataclass,
    convert_value,
    read_toml,
    require_known,
)

MAPPED_KEYS = ("region", "llm", "tier", "app")
MAPPING_DEFAULTS = CATALOGUE_DIR / "mapping.toml"
INFER = "infer"  # tier = "infer" is as no `tier`: the rules of sql/staging/tiers.sql apply
AssumedTokens = Annotated[int, Range(1, 2**31 - 1)]
COMPRESSED_SUFFIXES = (".gz", ".zst")


@dataclass(frozen=True)
class MappingFile:
    """The keys of NAME.toml for the trace file NAME.csv.gz, the defaults filled in."""

    region: Any  # one name, or a table of shares that sum to 1
    llm: Any
    tier: Any
    app: Any
    start: datetime  # instant of time 0 if timestamps are relative
    llm_names: Mapping[str, str]  # llm in the source -> llm in the catalogue
    rate_scale: float  # factor on the rates of a format with rates instead of requests
    unpack_ratio: Ratio  # bytes that may be unpacked per byte of the file
    ingest_minutes: Minutes
    labels: Mapping[str, str]  # region, tier, app -> the label of the metrics that has it
    label_names: Mapping[str, str]  # value of such a label -> name in the catalogue
    trace: TraceName | None = None
    output_tokens: AssumedTokens | None = None  # assumed for answers without a length in the file
    columns: Mapping[str, str] = field(default_factory=dict)  # column of a log -> column of the file
    clock: str | None = None  # s, ms, us or ns of numbers; of texts their time zone, or how they are written


@dataclass(frozen=True)
class TraceMapping:
    """A mapping that was checked: every name is known, every table of shares sums to 1."""

    trace: str
    start: datetime
    shares: Mapping[str, Mapping[str, float]]  # key -> name -> share
    llm_names: Mapping[str, str]
    rate_scale: float
    labels: Mapping[str, str]
    label_names: Mapping[str, str]
    output_tokens: int | None
    is_tier_mapped: bool  # False: the rules of sql/staging/tiers.sql apply before the shares
    zone: str | None  # of texts without a zone; None: UTC
    reading: tuple[tuple[str, str], ...] = ()  # columns and clock, which the digest of an ingest depends on

    def variables(self) -> dict[str, Any]:
        """Return the DuckDB variables that the macro `mapped` of sql/staging/mapping.sql reads."""
        values: dict[str, Any] = {
            "trace": self.trace,
            "start": self.start,
            "llms_there": list(self.llm_names),
            "llms_here": list(self.llm_names.values()),
            "names_there": list(self.label_names),
            "names_here": list(self.label_names.values()),
            "rate_scale": self.rate_scale,
            "output_tokens": self.output_tokens,
            "is_tier_mapped": self.is_tier_mapped,
            "zone": self.zone,
        }
        for n, (key, shares) in enumerate(self.shares.items()):
            values[f"{key}_names"] = list(shares)
            values[f"{key}_below"] = list(accumulate(shares.values()))[:-1]
            values[f"{key}_slice"] = 1 << (16 * n)
        return values


def mapping_file(path: Path) -> Path:
    """Return the path of a trace file's mapping file: NAME.toml next to NAME.csv.gz."""
    plain = path.with_suffix("") if path.suffix in COMPRESSED_SUFFIXES else path
    return plain.with_suffix(".toml")


def read_ingest_bounds(path: Path) -> IngestBounds:
    """Read the limits of a trace file from its mapping file, else the defaults."""
    file = mapping_file(path)
    values = read_toml(MAPPING_DEFAULTS) | _read_mapping_file(file)
    kinds = (("unpack_ratio", Ratio), ("ingest_minutes", Minutes))
    ratio, minutes = (convert_value(kind, values[key], f"{file.name} {key}") for key, kind in kinds)
    return IngestBounds(ratio, minutes, file.name)


def read_options(path: Path, columns: Mapping[str, str] | None = None) -> ReadingOptions:
    """Read from the mapping file of a trace how its file is read; ConfigError for an unknown clock.

    `columns` come before those of the mapping file.
    """
    file = mapping_file(path)
    values = _read_mapping_file(file)
    named = convert_value(Mapping[str, str], values.get("columns", {}), f"{file.name} columns")
    clock = values.get("clock")
    is_known = clock is None or clock in PER_S or _zone(clock) is not None
    if not is_known and not (isinstance(clock, str) and is_time_pattern(clock)):
        raise ConfigError(
            f"{file.name} clock: got {clock!r}, needed s, ms, us or ns for numbers, or the time zone of "
            "texts, like Europe/Berlin, or how they are written, like %d/%m/%Y %H:%M:%S."
        )
    return ReadingOptions({**named, **(columns or {})}, clock, "output_tokens" in values)


def _zone(clock: Any) -> str | None:
    """Return the name of a time zone; None if it is not one."""
    try:
        return ZoneInfo(clock).key
    except (ValueError, TypeError, OSError, ZoneInfoNotFoundError):
        return None


def _read_mapping_file(file: Path) -> dict[str, Any]:
    """Return the keys of a mapping file; none if there is no such file."""
    return read_toml(file) if file.is_file() else {}


def read_mapping(path: Path, default_trace: str, catalogue: Catalogue) -> TraceMapping:
    """Read the mapping of a trace file: NAME.toml over the defaults of data/catalogue/mapping.toml.

    ConfigError for a name in NAME.toml that the catalogue does not have, or shares that do not sum to 1. The
    defaults may name llms that the catalogue of a run does not have.
    """
    file = mapping_file(path)
    where = file.name if file.is_file() else MAPPING_DEFAULTS.name
    defaults, given = read_toml(MAPPING_DEFAULTS), _read_mapping_file(file)
    values = defaults | given
    is_tier_mapped = given.get("tier", INFER) != INFER
    if not is_tier_mapped:
        values["tier"] = defaults["tier"]
    mapping: MappingFile = build_dataclass(MappingFile, values, where)
    trace = mapping.trace or default_trace
    llm_names = names_by_model(catalogue.llms) | dict(mapping.llm_names)
    named = [*mapping.llm_names.values(), *(_names(mapping.llm) if "llm" in given else ())]
    catalogue = add_named_llms(catalogue, named, where)
    known = {"region": catalogue.regions, "llm": catalogue.llms, "tier": catalogue.tiers, "app": None}
    shares = {
        key: _shares(getattr(mapping, key), known[key] if key in given else None, key, where)
        for key in MAPPED_KEYS
    }
    if not 0 < mapping.rate_scale <= 1000:
        raise ConfigError(
            f"{where} rate_scale: got {mapping.rate_scale:g}, needed a number above 0, to 1000."
        )
    for name in mapping.labels:
        require_known(name, ("region", "tier", "app"), "key", f"{where} labels")
    start = mapping.start if mapping.start.tzinfo else mapping.start.replace(tzinfo=UTC)
    return TraceMapping(
        trace,
        start,
        shares,
        llm_names,
        mapping.rate_scale,
        mapping.labels,
        mapping.label_names,
        mapping.output_tokens,
        is_tier_mapped,
        _zone(mapping.clock),
        tuple(sorted({**mapping.columns, "clock": mapping.clock or ""}.items())),
    )


def add_mapped_llms(catalogue: Catalogue, mapping: TraceMapping) -> Catalogue:
    """Return the catalogue with the llms that a checked mapping names by their model."""
    names = [*mapping.llm_names.values(), *mapping.shares["llm"]]
    return add_named_llms(catalogue, [name for name in names if model_row(name)], "mapping")


def _names(value: Any) -> Iterable[str]:
    """Return the names of a name or a table of shares."""
    return [value] if isinstance(value, str) else value if isinstance(value, dict) else ()


def _shares(value: Any, known: Iterable[str] | None, key: str, where: str) -> dict[str, float]:
    """Return a name or a table of shares as shares by name; ConfigError if they are not valid."""
    shares = {value: 1.0} if isinstance(value, str) else value
    if not isinstance(shares, dict) or not shares:
        raise ConfigError(f"{where} {key}: got {value!r}, needed a name or a table of shares.")
    for name, share in shares.items():
        if known is not None:
            require_known(name, known, key, where)
        if not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ConfigError(f"{where} {key}.{name}: got the share {share!r}, needed a number from 0 to 1.")
    if not math.isclose(total := sum(shares.values()), 1.0, abs_tol=1e-6):
        raise ConfigError(f"{where} {key}: the shares sum to {total:g}. Make them sum to 1.")
    return shares
