"""Environment variables that set what a process works on; process_resources.py has those of its size."""

DEFAULT_CONFIG = "office"
CONFIG_VARIABLE = "FLEETCAST_CONFIG"  # a name in data/config, or a path
CONFIG_TEXT_VARIABLE = "FLEETCAST_CONFIG_TEXT"  # content of that path, for a machine without the file
LAKE_VARIABLE = "FLEETCAST_LAKE"
EXECUTOR_VARIABLE = "FLEETCAST_EXECUTOR"
DEPLOYMENT_VARIABLE = "FLEETCAST_DEPLOYMENT"  # a file that names the code locations of one Dagster instance
LOCATION_VARIABLE = "FLEETCAST_LOCATION"  # the code location of this process
LANDS_VARIABLE = "FLEETCAST_LANDS"  # whether the landing sensor of a location is on by default
UI_VARIABLE = "FLEETCAST_UI"  # set by `fleetcast ui` for the processes of Dagster that it starts
EXECUTORS = ("in_process", "multiprocess", "ray", "k8s")
