"""How a plan is handed to a cluster.

Three modes. `advisory`: the plan lies in the cluster as a ConfigMap and nothing acts on it. `floor`: it is
the least that is held, and the cluster's own autoscaling may hold more. `active`: the plan alone decides.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml


class ScaleTarget(NamedTuple):
    """What runs an llm in the cluster: anything with a scale subresource."""

    api_version: str
    kind: str

    @property
    def api_group(self) -> str:
        """The API group, "" for the core one."""
        group, slash, _ = self.api_version.partition("/")
        return group if slash else ""


def parse_scale_target(text: str) -> ScaleTarget:
    """The target of GROUP/VERSION/KIND; ValueError for anything else."""
    parts = text.split("/")
    if len(parts) not in (2, 3) or not all(parts) or not parts[-1][0].isupper():
        raise ValueError(
            f"--target: got {text!r}, needed GROUP/VERSION/KIND, like apps/v1/Deployment or "
            "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet."
        )
    return ScaleTarget("/".join(parts[:-1]), parts[-1])


class ExportOptions(NamedTuple):
    """How a plan is handed over: the mode, and what the cluster calls things.

    `triggers` are the team's own of a ScaledObject, which in mode floor may hold more than the plan;
    `hour` is the hour of the plan for what knows no timetable; `node_lead_s` is what a node takes to come,
    before a replica boots on it.
    """

    mode: str = "active"
    target: ScaleTarget = ScaleTarget("apps/v1", "Deployment")
    namespace: str = "default"
    triggers: tuple[Mapping[str, Any], ...] = ()
    scaler: str = ""
    hour: int = 0
    node_lead_s: float = 300.0


def parse_custom_triggers(text: str, file: str) -> tuple[Mapping[str, Any], ...]:
    """The triggers of a YAML file, as they stand under spec.triggers; ValueError where they are none."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"--triggers: {file} is no YAML: {' '.join(str(error).split())}.") from error
    listed = found if isinstance(found, list) else []
    for n, one in enumerate(listed):
        values = one.get("metadata") if isinstance(one, dict) else None
        texts = isinstance(values, dict) and all(isinstance(value, str) for value in values.values())
        if not texts or not isinstance(one.get("type"), str):
            raise ValueError(
                f"--triggers: entry {n + 1} of {file} needs a type and a metadata table of texts, as under "
                f"spec.triggers of a ScaledObject; got {one!r}. Quote its numbers."
            )
    if not listed:
        raise ValueError(f"--triggers: {file} has no list of triggers, as under spec.triggers.")
    return tuple(listed)
