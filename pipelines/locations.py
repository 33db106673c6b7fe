"""What Dagster loads of a deployment: the definitions of a location, as the attribute of that name.

    dagster code-server start -m fleetcast.pipelines.locations -a NAME

A run and its steps find their definitions by module and attribute, so that they know their location too.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """The definitions of the location of that name, with its environment."""
    if name.startswith("_"):
        raise AttributeError(name)
    from fleetcast.pipelines.deployment import enter_location

    enter_location(name)
    from fleetcast.pipelines.definitions import defs

    return defs
