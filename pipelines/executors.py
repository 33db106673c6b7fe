"""Where the steps of a run are computed: FLEETCAST_EXECUTOR names one of Dagster's executors."""

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


def build_executor() -> dg.ExecutorDefinition:
    """The executor that the environment names; ConfigError for one that cannot be."""
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
    # Ray keeps what asks for no core on its head.
    return delegating.configured({"ray": {"env_vars": step_environment(), "num_cpus": step_cores()}}, name)


def step_environment() -> Sequence[str]:
    """What a step on another machine is told, as NAME=VALUE: the config with its text, the lake, the rest."""
    config, text = read_process_config()
    told = {CONFIG_VARIABLE: config, CONFIG_TEXT_VARIABLE: text, LAKE_VARIABLE: LAKE}
    own = {name for name in os.environ if name.startswith("FLEETCAST_")} - OF_THIS_MACHINE
    told |= {name: os.environ[name] for name in own - told.keys()}
    return [f"{name}={value}" for name, value in sorted(told.items()) if value]


def step_cores() -> int:
    """What a step asks of the machine that it runs on."""
    return usable_cores() if CORES_VARIABLE in os.environ else 1
