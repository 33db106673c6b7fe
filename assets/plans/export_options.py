"""Options for the export of a plan to a cluster.

Three modes. `advisory`: the plan is a ConfigMap in the cluster and has no effect. `floor`: the plan is a
minimum, and the cluster's own autoscaling may scale above it. `active`: only the plan scales.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml


class ScaleTarget(NamedTuple):
    """The kind of object that runs an llm in the cluster; it has a scale subresource."""

    api_version: str
    kind: str

    @property
    def api_group(self) -> str:
        """Return the API group, "" for the core group."""
        group, slash, _ = self.api_version.partition("/")
        return group if slash else ""


def parse_scale_target(text: str) -> ScaleTarget:
    """Return the target of GROUP/VERSION/KIND; ValueError for anything else."""
    parts = text.split("/")
    if len(parts) not in (2, 3) or not all(parts) or not parts[-1][0].isupper():
        raise ValueError(
            f"--target: got {text!r}, needed GROUP/VERSION/KIND, like apps/v1/Deployment or "
            "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet."
        )
    return ScaleTarget("/".join(parts[:-1]), parts[-1])


class ExportOptions(NamedTuple):
    """Export options: the mode, and the names in the cluster."""

    mode: str = "active"
    target: ScaleTarget = ScaleTarget("apps/v1", "Deployment")
    namespace: str = "default"
    triggers: tuple[Mapping[str, Any], ...] = ()  # custom triggers, which in mode floor can exceed the plan
    scaler: str = ""  # address of `fleetcast serve scaler`
    hour: int = 0  # the plan's hour for formats without a timetable
    node_lead_s: float = 300.0  # seconds until a new node is ready, before a replica boots on it


def parse_custom_triggers(text: str, file: str) -> tuple[Mapping[str, Any], ...]:
    """Return the triggers of a YAML file, a list as under spec.triggers; ValueError where it is not one."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"--triggers: {file} is no YAML: {' '.join(str(error).split())}.") from error
    triggers = found if isinstance(found, list) else []
    for n, trigger in enumerate(triggers):
        values = trigger.get("metadata") if isinstance(trigger, dict) else None
        are_texts = isinstance(values, dict) and all(isinstance(value, str) for value in values.values())
        if not are_texts or not isinstance(trigger.get("type"), str):
            raise ValueError(
                f"--triggers: entry {n + 1} of {file} needs a type and a metadata table of texts, as under "
                f"spec.triggers of a ScaledObject; got {trigger!r}. Quote its numbers."
            )
    if not triggers:
        raise ValueError(f"--triggers: {file} has no list of triggers, as under spec.triggers.")
    return tuple(triggers)
