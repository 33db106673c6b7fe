"""The module that Dagster loads for a deployment. Attribute NAME has the definitions of the location NAME.

    dagster code-server start -m fleetcast.pipelines.locations -a NAME

A run and its steps find their definitions by module and attribute, so they know their location too.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """Enter the location of that name, and return its definitions."""
    if name.startswith("_"):
        raise AttributeError(name)
    from fleetcast.pipelines.deployment import enter_location

    enter_location(name)
    from fleetcast.pipelines.definitions import defs

    return defs
