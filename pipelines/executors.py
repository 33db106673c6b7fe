"""The executor that computes the steps of a run. FLEETCAST_EXECUTOR names one of Dagster's executors."""

import importlib
import os
from collections.abc import Sequence

import dagster as dg

from fleetcast.assets.lake.environment import LAKE, read_process_config
from fleetcast.assets.lake.environment_variables import (
    CONFIG_TEXT_VARIABLE,
    CONFIG_VARIABLE,
    DEPLOYMENT_VARIABLE,
    EXECUTOR_VARIABLE,
    LAKE_VARIABLE,
    LANDS_VARIABLE,
)
from fleetcast.assets.lake.process_resources import CORES_VARIABLE, usable_cores
from fleetcast.pipelines.deployment import IN_ONE_PROCESS, require_executor

# Variables that hold for this machine only: a step on another machine does not inherit them.
OF_THIS_MACHINE = {
    DEPLOYMENT_VARIABLE,
    LANDS_VARIABLE,
    "FLEETCAST_HOME",
    "FLEETCAST_SCRATCH",
    "FLEETCAST_POSTGRES_URL",
}
DELEGATING = {
    "ray": ("dagster_ray.core.executor", "ray_executor"),
    "k8s": ("dagster_k8s", "k8s_job_executor"),
}


def describe_unused_executor() -> str:
    """Return a line for a command that runs jobs in its own process, though FLEETCAST_EXECUTOR names another.

    Empty without such a name. Raises ConfigError for an executor that is unknown or not installed.
    """
    name = os.environ.get(EXECUTOR_VARIABLE) or IN_ONE_PROCESS
    require_executor(name)
    if name == IN_ONE_PROCESS:
        return ""
    return (
        f"{EXECUTOR_VARIABLE}={name} applies to runs that Dagster starts (fleetcast ui, schedules). "
        "This command computes in its own process."
    )


def build_executor() -> dg.ExecutorDefinition:
    """Return the executor that the environment names. Raises ConfigError for one that cannot run here."""
    name = os.environ.get(EXECUTOR_VARIABLE) or IN_ONE_PROCESS
    require_executor(name)
    if name == IN_ONE_PROCESS:
        return dg.in_process_executor
    if name == "multiprocess":
        return dg.multiprocess_executor.configured({"max_concurrent": usable_cores()}, name)
    module, attribute = DELEGATING[name]
    delegating: dg.ExecutorDefinition = getattr(importlib.import_module(module), attribute)
    if name == "k8s":
        return delegating.configured({"env_vars": step_environment()}, name)
    # Ray would run steps that request no core on its head node.
    return delegating.configured({"ray": {"env_vars": step_environment(), "num_cpus": step_cores()}}, name)


def step_environment() -> Sequence[str]:
    """Return the environment of a step on another machine, as NAME=VALUE texts.

    It has the config with its text, the lake, and the other variables of fleetcast.
    """
    config, text = read_process_config()
    environment = {name: value for name, value in os.environ.items() if name.startswith("FLEETCAST_")}
    environment |= {CONFIG_VARIABLE: config, CONFIG_TEXT_VARIABLE: text, LAKE_VARIABLE: LAKE}
    return [
        f"{name}={value}"
        for name, value in sorted(environment.items())
        if value and name not in OF_THIS_MACHINE
    ]


def step_cores() -> int:
    """Return the number of cores that a step requests."""
    return usable_cores() if CORES_VARIABLE in os.environ else 1
