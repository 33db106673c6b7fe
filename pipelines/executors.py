"""Where the steps of a run are computed: FLEETCAST_EXECUTOR names one of Dagster's executors."""

import importlib
import os
from collections.abc import Sequence

import dagster as dg

from fleetcast.assets.lake.environment import LAKE, told_config
from fleetcast.assets.lake.machine import CORES, cores
from fleetcast.assets.lake.variables import CONFIG, CONFIG_TEXT, DEPLOYMENT, EXECUTOR, LAKE_AT, LANDS
from fleetcast.pipelines.deployment import IN_ONE_PROCESS, require_executor

OF_THIS_MACHINE = {DEPLOYMENT, LANDS, "FLEETCAST_HOME", "FLEETCAST_SCRATCH", "FLEETCAST_POSTGRES_URL"}
DELEGATING = {
    "ray": ("dagster_ray.core.executor", "ray_executor"),
    "k8s": ("dagster_k8s", "k8s_job_executor"),
}


def executor() -> dg.ExecutorDefinition:
    """The executor that the environment names; ConfigError for one that cannot be."""
    name = os.environ.get(EXECUTOR) or IN_ONE_PROCESS
    require_executor(name)
    if name == IN_ONE_PROCESS:
        return dg.in_process_executor
    if name == "multiprocess":
        return dg.multiprocess_executor.configured({"max_concurrent": cores()}, name)
    module, attribute = DELEGATING[name]
    delegating: dg.ExecutorDefinition = getattr(importlib.import_module(module), attribute)
    if name == "k8s":
        return delegating.configured({"env_vars": handed_on()}, name)
    # Ray keeps what asks for no core on its head.
    return delegating.configured({"ray": {"env_vars": handed_on(), "num_cpus": cores_of_a_step()}}, name)


def handed_on() -> Sequence[str]:
    """What a step on another machine is told, as NAME=VALUE: the config with its text, the lake, the rest."""
    config, text = told_config()
    told = {CONFIG: config, CONFIG_TEXT: text, LAKE_AT: LAKE}
    own = {name for name in os.environ if name.startswith("FLEETCAST_")} - OF_THIS_MACHINE
    told |= {name: os.environ[name] for name in own - told.keys()}
    return [f"{name}={value}" for name, value in sorted(told.items()) if value]


def cores_of_a_step() -> int:
    """What a step asks of the machine that it runs on."""
    return cores() if CORES in os.environ else 1
