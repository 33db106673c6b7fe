"""Objects of installed packages, found by an entry point: policies and forecast methods."""

import sys
import traceback
import warnings
from collections.abc import Callable, Container
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.world.toml_dataclasses import TRACE_NAME, ConfigError, ConfigWarning

Loaded = TypeVar("Loaded")


def load_group(group: str, load: Callable[[EntryPoint], Loaded]) -> dict[str, Loaded]:
    """Return the objects of a group's entry points by name.

    One that cannot be used is left out with a warning: it must not stop what does not name it.
    """
    found = {}
    for point in entry_points(group=group):
        try:
            found[point.name] = load(point)
        except ConfigError as error:
            warnings.warn(f"{error} It is left out.", ConfigWarning, stacklevel=2)
    return found


def load_installed(point: EntryPoint, shipped: Container[str], what: str) -> tuple[Any, str]:
    """Return the object of an entry point, and its place for messages.

    ConfigError for an invalid name, one of the `shipped` names of a `what`, and a package that cannot be
    imported.
    """
    place = f"entry point {point.group}: {point.name} = {point.value}"
    TRACE_NAME.check(point.name, place)  # it names folders of the lake
    if point.name in shipped:
        raise ConfigError(f"{place}: a shipped {what} has this name. Choose another.")
    try:
        return point.load(), place
    except Exception as error:  # whatever the package raises when it is imported
        raise ConfigError(f"{place}: it cannot be imported ({error}). Correct or uninstall it.") from error


def to_numbers(found: Any) -> Floats:
    """Return what an installed function returned as an array of its shape; shape (0,) if it is no numbers."""
    try:
        return np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError):
        return np.zeros(0)


def describe_own_error(error: Exception) -> str:
    """Return what an installed function raised, and where, as the end of a sentence."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"raised {type(error).__name__} ({error}) at {last.filename}:{last.lineno}. Correct it."


def installed_sources(group: str, name: str) -> bytes:
    """Return what changes with the code of an installed object: its module's file, and those of its wheel.

    Empty for a name that is not installed.
    """
    found = b""
    for point in entry_points(group=group, name=name):
        module = sys.modules.get(point.module)
        if module is not None and getattr(module, "__file__", None):
            found += Path(str(module.__file__)).read_bytes()
        if point.dist is not None:
            found += (point.dist.read_text("RECORD") or "").encode()
    return found
