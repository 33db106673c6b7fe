"""Objects of installed packages, found by an entry point: policies and forecast methods."""

from collections.abc import Container
from importlib.metadata import EntryPoint
from typing import Any

from fleetcast.models.world.toml_dataclasses import TRACE_NAME, ConfigError


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
        raise ConfigError(f"{place}: it cannot be imported ({error}). Install its package again.") from error
