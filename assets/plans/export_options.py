"""Options for the export of a plan to a cluster.

Three modes. `advisory`: the plan is a ConfigMap in the cluster and has no effect. `floor`: the plan is a
minimum, and the cluster's own autoscaling may scale above it. `active`: only the plan scales.
"""

import re
from collections.abc import Mapping
from datetime import date
from typing import Any, NamedTuple

import yaml

from fleetcast.assets.plans.cluster_workloads import ClusterWorkload, dns_label

TOLERANCE_SINCE = (1, 35)  # HPAConfigurableTolerance: alpha and off from 1.33, on by default from 1.35
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
Manifest = dict[str, Any]


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
    hour: int | None = None  # for formats without a timetable: one hour of the day, without a CronJob
    node_lead_s: float = 300.0  # seconds until a new node is ready, before a replica boots on it
    kubernetes: tuple[int, int] | None = None  # the cluster's version; None: any
    image: str = ""  # of the CronJob: it has sh, awk and kubectl
    day: date | None = None  # the exported day; None: that of the first row

    @property
    def sets_tolerance(self) -> bool:
        """Return whether the cluster knows `behavior.*.tolerance` of an HPA."""
        return self.kubernetes is not None and self.kubernetes >= TOLERANCE_SINCE


def parse_kubernetes_version(text: str) -> tuple[int, int]:
    """Return the two numbers of a version like 1.35; ValueError for anything else."""
    if not (match := re.fullmatch(r"v?(\d{1,3})\.(\d{1,3})(\.\d+)?", text)):
        raise ValueError(f"--kubernetes: got {text!r}, needed a version like 1.35.")
    return int(match[1]), int(match[2])


def manifest_head(api_version: str, kind: str, workload: ClusterWorkload, options: ExportOptions) -> Manifest:
    """Return the head of a workload's object: its name, and labels with region, policy, day and mode."""
    row = workload.rows[-1]
    labels = {
        "fleetcast/region": label_value(row["region"]),
        "fleetcast/policy": label_value(row["policy"]),
        "fleetcast/day": (options.day or row["day"]).isoformat(),
        "fleetcast/mode": options.mode,
    }
    name = f"{workload.name}-plan" if kind == "ConfigMap" else workload.name
    metadata = {"name": name, "namespace": options.namespace, "labels": labels}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def label_value(name: str) -> str:
    """Return a name as it is where Kubernetes accepts it as a label, else a similar one."""
    return name if _LABEL.fullmatch(name) else dns_label(name)


def target_reference(workload: ClusterWorkload, options: ExportOptions) -> Manifest:
    """Return the reference to the object that runs a workload."""
    return {"apiVersion": options.target.api_version, "kind": options.target.kind, "name": workload.name}


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
