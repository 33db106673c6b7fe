"""The environment variables that say for what a process works; machine.py has those of its size."""

CONFIG_VARIABLE = "FLEETCAST_CONFIG"  # a name in data/config, or a path
CONFIG_TEXT_VARIABLE = "FLEETCAST_CONFIG_TEXT"  # of that path, for a process on a machine without the file
LAKE_VARIABLE = "FLEETCAST_LAKE"
EXECUTOR_VARIABLE = "FLEETCAST_EXECUTOR"
DEPLOYMENT_VARIABLE = "FLEETCAST_DEPLOYMENT"  # a file that names the code locations of one Dagster instance
LOCATION_VARIABLE = "FLEETCAST_LOCATION"  # the one that this process is
LANDS_VARIABLE = "FLEETCAST_LANDS"  # whether the sensor of a location runs from the beginning
EXECUTORS = ("in_process", "multiprocess", "ray", "k8s")
