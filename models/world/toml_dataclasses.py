"""TOML in, frozen dataclasses out: what is unknown, missing, mistyped or out of range is refused by name.

What a value may be stands in the type of its field: `share: Annotated[float, Range(0, 1)]`.
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
RENAMED_VALUES = {"ours": "fleetcast"}  # of the keys that name a planner, likewise
PLANNER_KEYS = ("like", "policies")


class ConfigError(ValueError):
    """A catalogue or config file that breaks a rule; the message names file, key, rule and remedy."""


class Range(NamedTuple):
    """A figure between two others, both included unless the least one is refused."""

    least: float
    most: float
    is_above: bool = False  # the least one is refused

    def check(self, value: float, where: str) -> None:
        """Refuse a figure outside; nan is outside."""
        if not self.least <= value <= self.most or (self.is_above and value == self.least):
            ends = f"above {self.least:,} and up to" if self.is_above else f"from {self.least:,} to"
            raise ConfigError(f"{where}: got {value:,}, needed a number {ends} {self.most:,}.")


class OneOf(NamedTuple):
    """One of a few figures."""

    figures: tuple[float, ...]

    def check(self, value: float, where: str) -> None:
        """Refuse another one."""
        if value not in self.figures:
            raise ConfigError(f"{where}: got {value}, needed one of {', '.join(map(str, self.figures))}.")


class KnownName(NamedTuple):
    """A name among others."""

    what: str
    names: tuple[str, ...]

    def check(self, value: str, where: str) -> None:
        """Refuse another name, with the nearest one."""
        require_known(value, self.names, self.what, where)


class TextPattern(NamedTuple):
    """A text that a pattern describes."""

    pattern: str
    said: str

    def check(self, value: str, where: str) -> None:
        """Refuse a text of another shape."""
        if not re.fullmatch(self.pattern, value):
            raise ConfigError(f"{where}: got {shorten_text(repr(value))}, needed {self.said}.")


TRACE_NAME = TextPattern(  # it names folders of the lake
    r"\w[\w.-]{0,59}", "up to 60 letters, digits, '_', '.' and '-', of which the first is no '.' or '-'"
)
TraceName = Annotated[str, TRACE_NAME]
Share = Annotated[float, Range(0, 1)]
PositiveShare = Annotated[float, Range(0, 1, is_above=True)]


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file; ConfigError where it is absent, is not TOML, or holds what no file of ours needs."""
    try:
        if not path.is_file() and path.exists():
            raise ConfigError(f"{path} cannot be read: it is no file. Name a TOML file.")
        if (size := path.stat().st_size) > MAX_BYTES:
            raise ConfigError(f"{path.name} has {size:,} bytes, at most {MAX_BYTES:,} are read. Shorten it.")
        return parse_toml(path.read_text(encoding="utf-8"), path)
    except FileNotFoundError as error:
        there = ", ".join(sorted(p.stem for p in path.parent.glob("*.toml"))) or "none"
        raise ConfigError(f"There is no file {path.name} in {path.parent}; there is: {there}.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}. Name a TOML file.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path.name} is not valid TOML: {shorten_text(str(error))}. Mend that line."
        ) from error


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Parse the text of that file; ConfigError where it is not TOML, or holds what no file of ours needs."""
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
    except ValueError as error:  # of the parser; of a number with 5,000 digits
        raise ConfigError(
            f"{path.name} is not valid TOML: {shorten_text(str(error))}. Mend that line."
        ) from error
    _require_bounded(parsed, path)
    if renamed := sorted(_rename_old_keys(parsed)):
        warnings.warn(
            f"{path.name}: {'; '.join(renamed)}. Rename that: the old name is refused from 0.2 on.",
            FutureWarning,
            stacklevel=2,
        )
    return parsed


def _rename_old_keys(table: dict[str, Any]) -> set[str]:
    """Give keys and planners in a parsed table their names of today, in place; each change in words."""
    changes: set[str] = set()
    for key in list(table):
        value = table[key]
        if (new := RENAMED_KEYS.get(key)) is not None and new not in table:
            table[new] = table.pop(key)
            changes.add(f"{key} is called {new} now")
        if key in PLANNER_KEYS and isinstance(value, str | list):
            names = [value] if isinstance(value, str) else value
            today = [RENAMED_VALUES.get(name, name) if isinstance(name, str) else name for name in names]
            changes |= {
                f"{old} is called {new} now" for old, new in zip(names, today, strict=True) if old != new
            }
            table[key] = today[0] if isinstance(value, str) else today
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, dict):
                changes |= _rename_old_keys(inner)
    return changes


def _require_bounded(parsed: Mapping[str, Any], path: Path) -> None:
    """Refuse tables within tables within tables, integers beyond TOML's, and days off the calendar."""
    waiting: list[tuple[str, Any, int]] = [("", parsed, 0)]
    while waiting:
        key, value, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise ConfigError(_too_deep(path))
        if isinstance(value, dict):
            waiting += [(str(name), inner, depth + 1) for name, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(key, inner, depth + 1) for inner in value]
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
    """A text as short as a line can take it."""
    return text if len(text) <= MOST_QUOTED_CHARACTERS else f"{text[:MOST_QUOTED_CHARACTERS]} ..."


def require_known(name: str, known: Mapping[str, Any] | typing.Iterable[str], what: str, where: str) -> None:
    """Refuse a name that the catalogue does not have, with the nearest one that it has."""
    if name not in (names := list(known)):
        raise ConfigError(f"{where}: unknown {what} {shorten_text(repr(name))}. {suggest_name(name, names)}")


def suggest_name(name: str, known: typing.Iterable[str]) -> str:
    """What may have been meant by a name that is not known, or all that are, as a sentence."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(names) or 'none'}."


def build_dataclass(cls: type, values: Any, where: str) -> Any:
    """Build the frozen dataclass `cls` from a parsed table, refusing unknown, missing and mistyped keys."""
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: got {values!r}, needed a table of {cls.__name__}.")
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
    return cls(**built)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    """The types of a dataclass's fields with their rules: found once, they take longer than the building."""
    return typing.get_type_hints(cls, include_extras=True)


def convert_value(hint: Any, value: Any, where: str) -> Any:
    """Check `value` against the type of its field; tables and lists are converted all the way down."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        found = convert_value(args[0], value, where)
        for rule in args[1:]:
            rule.check(found, where)
        return found
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
    wanted = "a finite number" if is_number else getattr(hint, "__name__", str(hint))
    raise ConfigError(f"{where}: got {shorten_text(repr(value))}, needed {wanted}.")


def _is_plain(value: Any, kind: type) -> bool:
    """Whether a value is of a type and not of a special case of it: True is no int, an instant no date."""
    is_special = any(isinstance(value, case) and kind is not case for case in (bool, datetime))
    is_finite = not isinstance(value, float) or math.isfinite(value)
    return isinstance(value, kind) and not is_special and is_finite


def merge_dataclass_tables(cls: type, base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Two tables of the dataclass `cls` as one: key by key, also in tables of it that are dataclasses.

    Lists, and tables whose keys are names (llms, tiers), are not mixed: those of `own` stand.
    """
    both, hints = {**base, **own}, typing.get_type_hints(cls)
    for key in base.keys() & own.keys():
        record = _record(hints.get(key))
        if record is not None and isinstance(base[key], dict) and isinstance(own[key], dict):
            both[key] = merge_dataclass_tables(record, base[key], own[key])
    return both


def _record(hint: Any) -> type | None:
    """The dataclass that a field holds, if it holds one; it may be optional."""
    choices = typing.get_args(hint) if types.NoneType in typing.get_args(hint) else (hint,)
    return next((kind for kind in choices if isinstance(kind, type) and dataclasses.is_dataclass(kind)), None)
