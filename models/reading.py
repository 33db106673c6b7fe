"""TOML in, frozen dataclasses out: what is unknown, missing or of the wrong type is refused by name."""

import dataclasses
import difflib
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class ConfigError(ValueError):
    """A catalogue or config file that breaks a rule; the message names file, key, rule and remedy."""


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file; ConfigError where it is absent or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        there = ", ".join(sorted(p.stem for p in path.parent.glob("*.toml"))) or "none"
        raise ConfigError(f"There is no file {path.name} in {path.parent}; there is: {there}.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}. Name a TOML file.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path.name} is not valid TOML: {error}. Mend that line.") from error


def read_config(path: Path, folder: Path) -> dict[str, Any]:
    """The tables of a config; those that it leaves out are of the shipped config that it is `based_on`."""
    tables = read_toml(path)
    base = tables.pop("based_on", None)
    return tables if base is None else {**read_config(folder / f"{base}.toml", folder), **tables}


def require_known(name: str, known: Mapping[str, Any] | typing.Iterable[str], what: str, where: str) -> None:
    """Refuse a name that the catalogue does not have, with the nearest one that it has."""
    if name not in (names := list(known)):
        raise ConfigError(f"{where}: unknown {what} {name!r}. {nearest(name, names)}")


def nearest(name: str, known: typing.Iterable[str]) -> str:
    """What may have been meant by a name that is not known, or all that are, as a sentence."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(names) or 'none'}."


def build(cls: type, values: Any, where: str) -> Any:
    """Build the frozen dataclass `cls` from a parsed table, refusing unknown, missing and mistyped keys."""
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: got {values!r}, needed a table of {cls.__name__}.")
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for key in values:
        require_known(key, fields, "key", where)
    hints = typing.get_type_hints(cls)
    built = {}
    for name, spec in fields.items():
        optional = types.NoneType in typing.get_args(hints[name])
        if name in values:
            built[name] = convert(hints[name], values[name], f"{where} {name}")
        elif optional:
            built[name] = None
        elif spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING:
            raise ConfigError(f"{where}: the key {name!r} is missing. Add it.")
    return cls(**built)


def convert(hint: Any, value: Any, where: str) -> Any:
    """Check `value` against a type hint of the catalogue; tables and lists are converted all the way down."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if types.NoneType in args:
        return convert(next(a for a in args if a is not types.NoneType), value, where)
    if dataclasses.is_dataclass(hint):
        return build(typing.cast(type, hint), value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(convert(args[0], item, where) for item in value)
    if origin is not None and issubclass(origin, Mapping) and isinstance(value, dict):
        return {key: convert(args[1], item, f"{where}.{key}") for key, item in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is Any or (
        isinstance(hint, type) and isinstance(value, hint) and isinstance(value, bool) == (hint is bool)
    ):
        return value
    wanted = getattr(hint, "__name__", str(hint))
    raise ConfigError(f"{where}: got {value!r}, needed {wanted}.")
