"""Read TOML into frozen dataclasses; unknown, missing, mistyped and out-of-range keys are errors with names.

The type of a field holds the rule of its value: `share: Annotated[float, Range(0, 1)]`.
"""

import dataclasses
import difflib
import functools
import math
import re
import tomllib
import types
import typing
import warnings
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

MERGED_BY_NAME = {"merged_by_name": True}  # metadata of a field: dataclasses by name
MAX_BYTES = 1 << 20  # of a TOML file
MAX_LINE = 5000  # characters; the parser's time grows with the square of a key's dots
MAX_DEPTH = 20
MOST_QUOTED_CHARACTERS = 200
RENAMED_KEYS = {  # accepted until 0.2
    "go_on_shares": "escalation_shares",
    "hand_over": "kv_transfer",
    "holds_current": "keeps_current_load",
    "keep_weight": "opportunism_weight",
    "reflex_share": "reactive_share",
}
RENAMED_VALUES = {"ours": "fleetcast"}  # of PLANNER_KEYS, accepted until 0.2
PLANNER_KEYS = ("like", "policies")  # keys whose values name planners


class ConfigError(ValueError):
    """Error for a catalogue or config file that breaks a rule; it names file, key, rule and remedy."""


class ConfigWarning(UserWarning):
    """One line on a config that is read otherwise than it is written; a command shows it once."""


class Range(NamedTuple):
    """Rule for a number: from `least` to `most`."""

    least: float
    most: float
    is_above: bool = False  # the number must be above `least`

    def check(self, value: float, where: str) -> None:
        """Raise ConfigError for a number outside the range, and for nan."""
        if not self.least <= value <= self.most or (self.is_above and value == self.least):
            ends = f"above {self.least:,} and up to" if self.is_above else f"from {self.least:,} to"
            raise ConfigError(f"{where}: got {value:,}, needed a number {ends} {self.most:,}.")


class OneOf(NamedTuple):
    """Rule for a number: one of a few."""

    figures: tuple[float, ...]

    def check(self, value: float, where: str) -> None:
        """Raise ConfigError for any other number."""
        if value not in self.figures:
            raise ConfigError(f"{where}: got {value}, needed one of {', '.join(map(str, self.figures))}.")


class KnownName(NamedTuple):
    """Rule for a text: one of the known names."""

    what: str
    names: tuple[str, ...]

    def check(self, value: str, where: str) -> None:
        """Raise ConfigError for an unknown name, and suggest the nearest known one."""
        require_known(value, self.names, self.what, where)


class TextPattern(NamedTuple):
    """Rule for a text: it matches a pattern."""

    pattern: str
    rule: str  # the pattern in words

    def check(self, value: str, where: str) -> None:
        """Raise ConfigError for a text that does not match."""
        if not re.fullmatch(self.pattern, value):
            raise ConfigError(f"{where}: got {shorten_text(repr(value))}, needed {self.rule}.")


TRACE_NAME = TextPattern(  # it names folders of the lake
    r"\w[\w.-]{0,59}", "up to 60 letters, digits, '_', '.' and '-', of which the first is no '.' or '-'"
)
TraceName = Annotated[str, TRACE_NAME]
Share = Annotated[float, Range(0, 1)]
PositiveShare = Annotated[float, Range(0, 1, is_above=True)]


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file; ConfigError where it is missing or not TOML, or exceeds the limits of this file."""
    try:
        if not path.is_file() and path.exists():
            raise ConfigError(f"{path} cannot be read: it is not a file. Name a TOML file.")
        if (size := path.stat().st_size) > MAX_BYTES:
            raise ConfigError(f"{path.name} has {size:,} bytes, at most {MAX_BYTES:,} are read. Shorten it.")
        return parse_toml(path.read_text(encoding="utf-8"), path)
    except FileNotFoundError as error:
        found = ", ".join(sorted(p.stem for p in path.parent.glob("*.toml"))) or "none"
        raise ConfigError(f"There is no file {path.name} in {path.parent}; there is: {found}.") from error
    except OSError as error:
        raise ConfigError(
            f"{shorten_text(str(path))} cannot be read: {error.strerror}. Name a TOML file."
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path.name} is not valid TOML: {shorten_text(str(error))}. Correct that line."
        ) from error


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Parse the text of a file; ConfigError where it is not TOML, or exceeds the limits of this file."""
    text = text.removeprefix("\ufeff")  # the byte order mark that some editors write
    try:
        if (longest := max(map(len, text.split("\n")))) > MAX_LINE:
            raise ConfigError(
                f"{path.name} has a line of {longest:,} characters, at most {MAX_LINE:,} are read."
            )
        parsed = tomllib.loads(text)
    except RecursionError as error:
        raise ConfigError(_too_deep(path)) from error
    except ConfigError:
        raise
    except ValueError as error:  # from the parser, or from a number with 5,000 digits
        raise ConfigError(
            f"{path.name} is not valid TOML: {shorten_text(str(error))}. Correct that line."
        ) from error
    _require_bounded(parsed, path)
    if renamed := sorted(_rename_old_keys(parsed)):
        warnings.warn(
            f"{path.name}: {'; '.join(renamed)}. Rename that: the old name is refused from 0.2 on.",
            ConfigWarning,
            stacklevel=2,
        )
    return parsed


def _rename_old_keys(table: dict[str, Any]) -> set[str]:
    """Rename old keys and planners of a parsed table in place; return one line for each change."""
    changes: set[str] = set()
    for key in list(table):
        value = table[key]
        if (new := RENAMED_KEYS.get(key)) is not None and new not in table:
            table[new] = table.pop(key)
            changes.add(f"{key} is called {new} now")
        if key in PLANNER_KEYS and isinstance(value, str | list):
            names = [value] if isinstance(value, str) else value
            current = [RENAMED_VALUES.get(name, name) if isinstance(name, str) else name for name in names]
            changes |= {
                f"{old} is called {new} now" for old, new in zip(names, current, strict=True) if old != new
            }
            table[key] = current[0] if isinstance(value, str) else current
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, dict):
                changes |= _rename_old_keys(inner)
    return changes


def _require_bounded(parsed: Mapping[str, Any], path: Path) -> None:
    """Raise ConfigError for tables nested too deep, integers beyond 64 bits, years outside 1970 to 2099."""
    stack: list[tuple[str, Any, int]] = [("", parsed, 0)]
    while stack:
        key, value, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise ConfigError(_too_deep(path))
        if isinstance(value, dict):
            stack += [(str(name), inner, depth + 1) for name, inner in value.items()]
        elif isinstance(value, list):
            stack += [(key, inner, depth + 1) for inner in value]
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ConfigError(
                f"{path.name} {shorten_text(key)}: got an integer of more than 64 bits. Shorten it."
            )
        elif isinstance(value, date) and not 1970 <= value.year < 2100:
            raise ConfigError(
                f"{path.name} {shorten_text(key)}: got {value}, needed a year from 1970 to 2099."
            )


def _too_deep(path: Path) -> str:
    return f"{path.name} nests its tables and lists more than {MAX_DEPTH} deep. Flatten it."


def shorten_text(text: str) -> str:
    """Return a text, cut after MOST_QUOTED_CHARACTERS."""
    return text if len(text) <= MOST_QUOTED_CHARACTERS else f"{text[:MOST_QUOTED_CHARACTERS]} ..."


def require_known(name: str, known: Mapping[str, Any] | typing.Iterable[str], what: str, where: str) -> None:
    """Raise ConfigError for a name that is not known, and suggest the nearest known one."""
    if name not in (names := list(known)):
        raise ConfigError(f"{where}: unknown {what} {shorten_text(repr(name))}. {suggest_name(name, names)}")


def suggest_name(name: str, known: typing.Iterable[str]) -> str:
    """Return a sentence with the known name nearest to an unknown one, or with all known names."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(names) or 'none'}."


def build_dataclass(cls: type, values: Any, where: str) -> Any:
    """Build the dataclass `cls` from a parsed table; ConfigError for unknown, missing and mistyped keys."""
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: got {shorten_text(repr(values))}, needed a table of {cls.__name__}.")
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for key in values:
        require_known(key, fields, "key", where)
    hints = _hints(cls)
    built = {}
    for name, spec in fields.items():
        optional = types.NoneType in typing.get_args(hints[name])
        if name in values:
            built[name] = convert_value(hints[name], values[name], f"{where} {name}")
        elif optional:
            built[name] = None
        elif spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING:
            raise ConfigError(f"{where}: the key {name!r} is missing. Add it.")
    try:
        return cls(**built)
    except ConfigError:
        raise
    except ValueError as error:  # of a rule between fields
        raise ConfigError(f"{where}: {error}") from error


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields with their rules; cached, because it is slow."""
    return typing.get_type_hints(cls, include_extras=True)


def convert_value(hint: Any, value: Any, where: str) -> Any:
    """Check a value against the type of its field and convert it, with all tables and lists inside it."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        converted = convert_value(args[0], value, where)
        for rule in args[1:]:
            rule.check(converted, where)
        return converted
    if types.NoneType in args:
        return convert_value(next(a for a in args if a is not types.NoneType), value, where)
    if dataclasses.is_dataclass(hint):
        return build_dataclass(typing.cast(type, hint), value, where)
    if origin is tuple and isinstance(value, dict) and dataclasses.is_dataclass(args[0]):
        value = [value]  # a lone table stands for a list of one
    if origin is tuple and isinstance(value, list):
        return tuple(convert_value(args[0], item, where) for item in value)
    if origin is not None and issubclass(origin, Mapping) and isinstance(value, dict):
        return {key: convert_value(args[1], item, f"{where}.{key}") for key, item in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is Any or (isinstance(hint, type) and _is_plain(value, hint)):
        return value
    is_number = hint is float and isinstance(value, float)  # nan or infinite
    needed = "a finite number" if is_number else getattr(hint, "__name__", str(hint))
    raise ConfigError(f"{where}: got {shorten_text(repr(value))}, needed {needed}.")


def _is_plain(value: Any, kind: type) -> bool:
    """Return whether a value is of a type, and is no bool for an int, no datetime for a date, and finite."""
    is_special = any(isinstance(value, case) and kind is not case for case in (bool, datetime))
    is_finite = not isinstance(value, float) or math.isfinite(value)
    return isinstance(value, kind) and not is_special and is_finite


def merge_dataclass_tables(cls: type, base: Any, above: Any) -> Any:
    """Merge two tables of the dataclass `cls` key by key, also tables inside them that are dataclasses.

    Lists, and tables whose keys are names (llms, apps), are not merged: those of `above` replace the others.
    But in a field with MERGED_BY_NAME the dataclasses of a name are merged.
    """
    if not (isinstance(base, dict) and isinstance(above, dict)):
        return above
    both, hints = base | above, typing.get_type_hints(cls)
    for spec in dataclasses.fields(cls):
        if not (spec.name in base and spec.name in above):
            continue
        below, over = base[spec.name], above[spec.name]
        if (inner := _dataclass_of(hints[spec.name])) is not None:
            both[spec.name] = merge_dataclass_tables(inner, below, over)
        elif spec.metadata == MERGED_BY_NAME and isinstance(below, dict) and isinstance(over, dict):
            _, entry = typing.get_args(hints[spec.name])
            shared = below.keys() & over.keys()
            merged = {name: merge_dataclass_tables(entry, below[name], over[name]) for name in shared}
            both[spec.name] = below | over | merged
    return both


def _dataclass_of(hint: Any) -> type | None:
    """Return the dataclass of a field's type, which may be optional; None for other types."""
    choices = typing.get_args(hint) if types.NoneType in typing.get_args(hint) else (hint,)
    return next((kind for kind in choices if isinstance(kind, type) and dataclasses.is_dataclass(kind)), None)
