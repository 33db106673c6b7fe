"""What the environment tells a process: its config, its lake, its name among Dagster's locations."""

import os

from fleetcast.assets.lake.variables import CONFIG, CONFIG_TEXT, LAKE_AT, LOCATION_AS
from fleetcast.models.world.loading import CONFIG_DIR, config_path
from fleetcast.models.world.places import HOME

LAKE = os.environ.get(LAKE_AT) or str(HOME / "data" / "lake")
LOCATION = os.environ.get(LOCATION_AS, "")  # with it the asset keys begin; empty where it is the only one


def told_config() -> tuple[str, str]:
    """The config that runs by themselves read: its name or path, and its text unless it comes with the code.

    The text goes with the run, so that no other machine needs the file. What this process starts works with
    the same text, whatever becomes of the file. ConfigError where there is none.
    """
    name = os.environ.get(CONFIG) or "office"
    if text := os.environ.get(CONFIG_TEXT):
        return name, text
    path = config_path(name)
    if path == CONFIG_DIR / f"{name}.toml":
        return name, ""
    told = str(path.resolve()), path.read_text(encoding="utf-8", errors="replace")
    os.environ[CONFIG], os.environ[CONFIG_TEXT] = told
    return told
