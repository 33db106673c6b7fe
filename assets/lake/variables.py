"""The environment variables that say for what a process works; machine.py has those of its size."""

CONFIG = "FLEETCAST_CONFIG"  # a name in data/config, or a path
CONFIG_TEXT = "FLEETCAST_CONFIG_TEXT"  # of that path, for a process on a machine without the file
LAKE_AT = "FLEETCAST_LAKE"
EXECUTOR = "FLEETCAST_EXECUTOR"
DEPLOYMENT = "FLEETCAST_DEPLOYMENT"  # a file that names the code locations of one Dagster instance
LOCATION_AS = "FLEETCAST_LOCATION"  # the one that this process is
LANDS = "FLEETCAST_LANDS"  # whether the sensor of a location runs from the beginning
EXECUTORS = ("in_process", "multiprocess", "ray", "k8s")
