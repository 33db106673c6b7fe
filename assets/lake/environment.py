"""Config, lake and Dagster code location of this process, from environment variables."""

import os

from fleetcast.assets.lake.environment_variables import (
    CONFIG_TEXT_VARIABLE,
    CONFIG_VARIABLE,
    DEFAULT_CONFIG,
    LAKE_VARIABLE,
    LOCATION_VARIABLE,
)
from fleetcast.models.world.config_loading import CONFIG_DIR, config_path
from fleetcast.models.world.project_paths import HOME

LAKE = os.environ.get(LAKE_VARIABLE) or str(HOME / "data" / "lake")
LOCATION = os.environ.get(LOCATION_VARIABLE, "")  # prefix of the asset keys; empty if there is one location


def read_process_config() -> tuple[str, str]:
    """Return name or path of the config of scheduled runs, and its text unless it is one of data/config.

    The text travels with the run, so that other machines do not need the file. Child processes get the same
    text, even if the file changes. ConfigError if there is no such config.
    """
    name = os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG
    if text := os.environ.get(CONFIG_TEXT_VARIABLE):
        return name, text
    path = config_path(name)
    if path == CONFIG_DIR / f"{name}.toml":
        return name, ""
    name, text = str(path.resolve()), path.read_text(encoding="utf-8", errors="replace")
    os.environ[CONFIG_VARIABLE], os.environ[CONFIG_TEXT_VARIABLE] = name, text
    return name, text
