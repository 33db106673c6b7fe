"""Columns of any log: found by their names, or named by the user; and the units of its times.

data/catalogue/log_columns.toml has the names. The first rows of the file show how times are read: as text, or
as numbers of s, ms, us or ns, since 1970 or relative.
"""

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from fleetcast.assets.lake.sql_files import read_sql
from fleetcast.assets.traces.file_content import ColumnPath, FileContent, sample_values
from fleetcast.assets.traces.text_times import DAY_ALONE, find_patterns, is_time_pattern, written_zone
from fleetcast.models.world.catalogue import CATALOGUE_DIR
from fleetcast.models.world.toml_dataclasses import ConfigError, read_toml, require_known

LOG_COLUMNS_FILE = CATALOGUE_DIR / "log_columns.toml"
LOG_FORMAT = "log"  # the format of a log that is no known gateway's
TOKENS = ("input_tokens", "output_tokens")
TOTAL = "total_tokens"  # read where one of TOKENS is absent
NEEDED = ("arrived_at", *TOKENS)
TIMES = ("arrived_at", "ended_at", "first_token_at")
DURATIONS = ("source_ttft_s", "source_e2e_s")
PER_S = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
UNIT_WORDS = {
    "s": "s", "sec": "s", "secs": "s", "seconds": "s", "ms": "ms", "millis": "ms", "msec": "ms",
    "milliseconds": "ms", "us": "us", "micros": "us", "microseconds": "us", "ns": "ns", "nano": "ns",
    "nanos": "ns", "nanoseconds": "ns",
}  # fmt: skip
FIRST_EPOCH_S, LAST_EPOCH_S = 1_262_304_000, 4_102_444_800  # 2010 to 2099: a number of s since 1970
OUTLIERS = 100  # one number in so many may be a placeholder, like 0
TIMES_OF_FORMAT = re.compile(r'(instant|at_start)\((?:try_cast\()?"?([\w ]+?)"?[ )]')


class TimeReading(NamedTuple):
    """How the values of a column of times are read."""

    per_s: int | None  # units in a second; None: the values are text
    is_relative: bool = False
    patterns: tuple[str, ...] = ()  # of strptime, for texts that are not ISO 8601

    def describe(self, zone: str | None) -> str:
        """Return the clock of the file, in words."""
        if self.per_s is None:
            if self.patterns:
                return f"written as {self.patterns[0]}, in {written_zone(self.patterns) or zone or 'UTC'}"
            return f"as given, {zone or 'UTC'} where the text has no zone"
        unit = next(name for name, per_s in PER_S.items() if per_s == self.per_s)
        if self.is_relative:
            return f"relative, {unit} from the start that the mapping names"
        return f"UTC, {unit} since 1970"


class LogColumns(NamedTuple):
    """The columns of a log: what each is in the file, and how its times and durations are read."""

    format: str  # LOG_FORMAT or a gateway of data/catalogue/log_columns.toml
    paths: Mapping[str, ColumnPath]
    times: Mapping[str, TimeReading]
    duration_units: Mapping[str, str]
    kinds: tuple[str, ...]

    def variables(self) -> dict[str, Any]:
        """Return the DuckDB variables that sql/sources/log.sql and its macros read."""
        values: dict[str, Any] = {f"{name}_per_s": reading.per_s for name, reading in self.times.items()}
        values |= {f"{name}_is_relative": reading.is_relative for name, reading in self.times.items()}
        for name, reading in self.times.items():
            values[f"{name}_patterns"] = list(reading.patterns) or None
            values[f"{name}_zone"] = written_zone(reading.patterns)
        values |= {f"{name}_per_s": PER_S[unit] for name, unit in self.duration_units.items()}
        named = {f"{name}_column": ".".join(self.paths.get(name, (name,))) for name in ("kind", "status")}
        return {**values, **named, "kinds": list(self.kinds) or None}

    def describe(self, separator: str, zone: str | None) -> str:
        """Return what was read from which columns, as a line; `zone`: of texts without one, None for UTC."""
        parts = []
        for name, path in self.paths.items():
            note = ""
            if name in self.times:
                reading = self.times[name]
                note = f" ({reading.describe(zone)})" if name == "arrived_at" else ""
            elif name in self.duration_units:
                note = f" ({self.duration_units[name]})"
            parts.append(f"{name} = {'.'.join(path)}{note}")
        shown = {"\t": "tabs", ";": "semicolons", "|": "bars"}.get(separator)
        return "read " + ", ".join(parts) + (f"; fields separated by {shown}" if shown else "")


@cache
def read_log_columns() -> tuple[Mapping[str, Sequence[str]], Mapping[str, Mapping[str, Any]]]:
    """Read the names of columns of any log, and the gateways' own columns by format."""
    values = read_toml(LOG_COLUMNS_FILE)
    return values["columns"], values["log"]


def known_columns() -> tuple[str, ...]:
    """Return the columns that a log may have, in the order of sql/sources/log.sql."""
    source = read_sql("sources/log.sql")
    return (*source.listed("recognised by"), *source.listed("may have"))


def plain_name(path: str | Iterable[str]) -> str:
    """Return a name without case and separators: one for prompt_tokens, promptTokens and prompt.tokens."""
    return re.sub(r"[^a-z0-9]", "", (path if isinstance(path, str) else "".join(path)).casefold())


def unit_of_name(name: str) -> str | None:
    """Return the unit in which a name ends (latency_ms, startTimeUnixNano, "time [us]"); None without one."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return UNIT_WORDS.get(words[-1].casefold()) if len(words) > 1 else None


def find_log_columns(
    path: Path, content: FileContent, given: Mapping[str, str], clock: str | None
) -> LogColumns:
    """Find the columns of a log, as far as the file has them.

    `given` are columns that the user named, which come first; an empty name: the column is not read. `clock`:
    the unit of times that the user named, a time zone, or how texts are written. Raises ConfigError for a
    given column that the file does not have.
    """
    names, gateways = read_log_columns()
    found = _find_given(path, content, given)
    own = [
        name
        for name, log in gateways.items()
        if all(_find_field(content, column, None) for column in log["recognised_by"])
    ]
    form = max(own, key=lambda name: len(gateways[name]["recognised_by"])) if own else LOG_FORMAT
    log = gateways.get(form, {})
    wanted = log.get("columns") or names
    units: dict[str, str] = {}
    for name in known_columns():
        if name in given:
            chosen = found.get(name)
            units |= _unit(name, unit_of_name(chosen[-1]) if chosen else None)
            continue
        entries = wanted.get(name, ())
        for entry in [entries] if isinstance(entries, str) else entries:
            words, _, unit = entry.partition(":")
            match = _find_field(content, words, name if name in (*TIMES, *DURATIONS) else None)
            unit = unit or (unit_of_name(match[-1]) if match else None) or ""
            if match and match not in found.values() and (unit or name not in DURATIONS):
                found[name] = match
                units |= _unit(name, unit)
                break
    if {*TOKENS} <= found.keys() and TOTAL not in given:
        found.pop(TOTAL, None)
    ordered = {name: found[name] for name in known_columns() if name in found}
    readings = {
        name: read_times(sample_values(path, content, ordered[name]), units.get(name), clock, path.name)
        for name in TIMES
        if name in ordered
    }
    durations = {name: units.get(name, "s") for name in DURATIONS if name in ordered}
    return LogColumns(form, ordered, readings, durations, tuple(log.get("kinds", ())))


def missing_columns(columns: LogColumns, assumes_outputs: bool) -> list[str]:
    """Return the needed columns that were not found."""
    present = {*columns.paths, *(("output_tokens",) if assumes_outputs else ())}
    if {"ended_at", "source_e2e_s"} <= present:
        present.add("arrived_at")
    if TOTAL in present and present & {*TOKENS}:
        present |= {*TOKENS}
    return [name for name in NEEDED if name not in present]


def describe_missing(path: Path, content: FileContent, columns: LogColumns, missing: Sequence[str]) -> str:
    """Return what a file lacks to be a log, what was found, and the remedy, as the end of a line."""
    if len(content.sample) == 1:
        lists = [
            name
            for name, value in content.sample[0].items()
            if isinstance(value, list) and value and isinstance(value[0], Mapping)
        ]
        if lists:
            return (
                f"is one JSON object with a list in {lists[0]!r}. Write one object a line, for example: "
                f"jq -c '.{lists[0]}[]' {path.name}"
            )
    there = [f"{name} (as {'.'.join(columns.paths[name])})" for name in NEEDED if name in columns.paths]
    found = f"has {' and '.join(there)}, but no {' and no '.join(missing)}" if there else (
        f"has no column that is known as {', '.join(missing[:-1])} or {missing[-1]}"
    )  # fmt: skip
    example = ",".join(f"{name}=COLUMN" for name in missing)
    assume = (
        "; for outputs that were not recorded, set a mean (output_tokens = 200 in the mapping file, or "
        "advise --outputs 200)"
        if missing == ["output_tokens"]
        else ""
    )
    return (
        f"{found}; it is {content}. Name the columns: --columns {example} (or columns in its mapping file)"
        f"{assume}, or describe the format in sql/sources/NAME.sql (data/landing/README.md)."
    )


def read_times(
    values: Sequence[Any], unit: str | None, clock: str | None, where: str = "the file"
) -> TimeReading:
    """Find how times are read: as text, or as numbers of a unit, since 1970 or relative.

    ConfigError for texts without a time of the day, or whose day and month may be read either way.
    """
    if (numbers := read_numeric_times(values, unit, clock)) is not None:
        return numbers
    if clock is not None and is_time_pattern(clock):
        return TimeReading(None, patterns=(clock,))
    texts = [value for value in values if isinstance(value, str)]
    if texts and all(DAY_ALONE.fullmatch(text) for text in texts):
        raise ConfigError(
            f"{where} has days without a time of the day, like {texts[0]!r}: no request has an hour. "
            "Name the column of times: --columns arrived_at=COLUMN."
        )
    return TimeReading(None, patterns=find_patterns(texts, where))


def read_numeric_times(values: Sequence[Any], unit: str | None, clock: str | None) -> TimeReading | None:
    """Find the unit of times that are numbers, and whether they are since 1970; None if most are texts.

    They are since 1970 if the smallest of the first ones, but for one in a hundred that may be wrong, lies in
    2010 to 2099, in one of the units. Relative ones have the unit of `clock`, else of the column's name, else
    s.
    """
    numbers = [number for value in values if (number := _number(value)) is not None]
    if not numbers or 2 * len(numbers) < len(values):
        return None
    least = sorted(numbers)[len(numbers) // OUTLIERS]
    for name in (clock,) if clock in PER_S else PER_S:
        if FIRST_EPOCH_S <= least / PER_S[name] < LAST_EPOCH_S:
            return TimeReading(PER_S[name])
    return TimeReading(PER_S[clock if clock in PER_S else unit or "s"], is_relative=True)


def contradicts_format(path: Path, content: FileContent, text: str, actual: Mapping[str, str]) -> bool:
    """Return whether a file's times are of another kind than its format's: numbers for text, or the reverse.

    `text` is the SQL of the format, `actual` the name in the file of each of its columns.
    """
    match = TIMES_OF_FORMAT.search(text)
    if match is None or match[2] not in actual:
        return False
    values = sample_values(path, content, (actual[match[2]],))
    if not values:
        return False
    reading = read_numeric_times(values, None, None)
    return reading is not None and (match[1] == "instant" or not reading.is_relative)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _find_given(path: Path, content: FileContent, given: Mapping[str, str]) -> dict[str, ColumnPath]:
    """Return the columns that the user named; ConfigError for one that is unknown, or not in the file."""
    found = {}
    for name, words in given.items():
        require_known(name, known_columns(), "column", f"--columns of {path.name}")
        if not words:
            continue
        match = next((field for field in content.fields if ".".join(field) == words), None)
        match = match or _find_field(content, words, None)
        if match is None:
            there = [".".join(field) for field in content.fields]
            near = difflib.get_close_matches(words, there, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(there[:20])}."
            raise ConfigError(f"--columns {name}={words}: {path.name} has no column {words!r}. {hint}")
        found[name] = match
    return found


def _find_field(content: FileContent, words: str, timed: str | None) -> ColumnPath | None:
    """Return the field that a name means, the least deep first; with `timed`, it may end in a unit."""
    plain, depth = plain_name(words), words.count(".") + 1
    fields = sorted(content.fields, key=len)
    return next((field for field in fields if plain in _field_names(field, depth, timed is not None)), None)


@lru_cache(maxsize=20_000)  # a log is searched for each of some hundred names
def _field_names(field: ColumnPath, depth: int, is_timed: bool) -> frozenset[str]:
    """Return the plain names that mean a field; `depth`: the words of the name that is searched."""
    names = {plain_name(field)}
    if depth > 1 or len(field) == 1:
        names.add(plain_name(field[-depth:]))
    if is_timed and (unit := unit_of_name(field[-1])) is not None:
        words = "|".join(word for word, known in UNIT_WORDS.items() if known == unit)
        names |= {re.sub(rf"(unix|epoch)?({words})$", "", name) for name in names}
    return frozenset(names)


def _unit(name: str, unit: str | None) -> dict[str, str]:
    return {name: unit} if unit else {}
