"""What the environment tells a process: its config, its lake, its name among Dagster's locations."""

import os

from fleetcast.assets.lake.environment_variables import (
    CONFIG_TEXT_VARIABLE,
    CONFIG_VARIABLE,
    LAKE_VARIABLE,
    LOCATION_VARIABLE,
)
from fleetcast.models.world.config_loading import CONFIG_DIR, config_path
from fleetcast.models.world.project_paths import HOME

LAKE = os.environ.get(LAKE_VARIABLE) or str(HOME / "data" / "lake")
LOCATION = os.environ.get(
    LOCATION_VARIABLE, ""
)  # with it the asset keys begin; empty where it is the only one


def read_process_config() -> tuple[str, str]:
    """The config that runs by themselves read: its name or path, and its text unless it comes with the code.

    The text goes with the run, so that no other machine needs the file. What this process starts works with
    the same text, whatever becomes of the file. ConfigError where there is none.
    """
    name = os.environ.get(CONFIG_VARIABLE) or "office"
    if text := os.environ.get(CONFIG_TEXT_VARIABLE):
        return name, text
    path = config_path(name)
    if path == CONFIG_DIR / f"{name}.toml":
        return name, ""
    told = str(path.resolve()), path.read_text(encoding="utf-8", errors="replace")
    os.environ[CONFIG_VARIABLE], os.environ[CONFIG_TEXT_VARIABLE] = told
    return told
