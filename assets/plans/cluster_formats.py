"""A plan as the objects and calls of what scales a cluster: KEDA, llm-d, node autoscalers, Ray Serve."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import yaml

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.plans.cluster_workloads import (
    ClusterWorkload,
    ReplicaInterval,
    build_workloads,
    dns_label,
)
from fleetcast.assets.plans.export_options import ExportOptions
from fleetcast.assets.plans.plan_export import ordered_plan_steps
from fleetcast.models.aliases import Row

SCALER_FAILURES = 3  # answers in a row that the scaler owes before KEDA holds the floor by itself
Manifest = dict[str, Any]


# --- the formats ---------------------------------------------------------------------------------------


def render_cron_scaled_objects(settings: RunSettings, rows: Sequence[Row], asked: ExportOptions) -> str:
    """KEDA ScaledObjects with a cron trigger per stretch of the plan, as YAML documents."""
    return _render_documents(settings, rows, asked, _cron_scaled_object)


def render_scaler_scaled_objects(settings: RunSettings, rows: Sequence[Row], asked: ExportOptions) -> str:
    """KEDA ScaledObjects that ask `fleetcast serve scaler`, once for all days to come."""
    return _render_documents(settings, rows, asked, _external_scaled_object)


def render_hpas(settings: RunSettings, rows: Sequence[Row], asked: ExportOptions) -> str:
    """HorizontalPodAutoscalers that llm-d manages, bounded by the plan of one hour."""
    return _render_documents(settings, rows, asked, _hpa)


def render_capacity_buffers(settings: RunSettings, rows: Sequence[Row], asked: ExportOptions) -> str:
    """CapacityBuffers of Karpenter or GKE: the nodes of what boots next, as long before as nodes take."""
    return _render_documents(settings, rows, asked, _capacity_buffer)


def render_ray_serve_calls(settings: RunSettings, rows: Sequence[Row], asked: ExportOptions) -> str:
    """Calls of Ray Serve's scaling API in order of time, one JSON object a line.

    An application and its deployment are called like the workload; the application needs
    external_scaler_enabled. Then Ray scales nothing by itself, so there is no mode floor.
    """
    if asked.mode == "floor":
        raise ValueError(
            "Ray Serve has no floor: with external_scaler_enabled it scales nothing by itself. "
            "Take --mode active or advisory."
        )
    calls = [
        {
            "at": stretch.start.isoformat(),
            "mode": asked.mode,
            "decision_id": stretch.decision_id,
            "method": "POST",
            "path": f"/api/v1/applications/{one.name}/deployments/{one.name}/scale",
            "body": {"target_num_replicas": stretch.replicas},
        }
        for one in build_workloads(settings, rows)
        for stretch in _replica_intervals(one)
    ]
    return "\n".join(json.dumps(call) for call in sorted(calls, key=lambda call: str(call["at"])))


ManifestBuilder = Callable[[ClusterWorkload, ExportOptions], Manifest]
CLUSTER_FORMATS: Mapping[str, Callable[[RunSettings, Sequence[Row], ExportOptions], str]] = {
    "k8s": render_cron_scaled_objects,
    "keda-scaler": render_scaler_scaled_objects,
    "hpa": render_hpas,
    "capacity-buffer": render_capacity_buffers,
    "ray-serve": render_ray_serve_calls,
}


def _render_documents(
    settings: RunSettings, rows: Sequence[Row], asked: ExportOptions, make: ManifestBuilder
) -> str:
    found = build_workloads(settings, rows)
    if (
        asked.mode == "floor"
        and make in (_cron_scaled_object, _external_scaled_object)
        and not asked.triggers
    ):
        raise ValueError(
            "--mode floor: the plan is the least only where something else may ask for more, got no "
            "triggers of your own. Give --triggers FILE, a YAML list as under spec.triggers, or "
            "--mode active."
        )
    made = _advice_config_map if asked.mode == "advisory" else make
    return yaml.safe_dump_all([made(one, asked) for one in found], sort_keys=False, width=110)


def require_plan_running(rows: Sequence[Row], asked: ExportOptions, now: datetime) -> None:
    """Refuse to hand over cron triggers of a plan that does not run now; ValueError.

    Outside the hours of its plan a ScaledObject with cron triggers holds the least of these hours, whatever
    the plan in force holds. A ConfigMap (mode advisory) does nothing.
    """
    begins = min(row["hour_start"] for row in rows)
    ends = max(row["hour_start"] for row in rows) + timedelta(hours=1)
    if asked.mode != "advisory" and not begins <= now < ends:
        raise ValueError(
            f"--format k8s: got a plan of {begins:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M} UTC, and it is "
            f"{now:%Y-%m-%d %H:%M}. Outside these hours its cron triggers would scale the fleet in to the "
            "least of the plan. Take --format keda-scaler, which follows the plan in force, --mode advisory, "
            "or export it once it has begun."
        )


# --- one object of a workload --------------------------------------------------------------------------


def _advice_config_map(one: ClusterWorkload, asked: ExportOptions) -> Manifest:
    """What would be done, and why; nothing in a cluster acts on a ConfigMap."""
    told = ("decision_id", "instances_before", "instances", "why")
    changes = [
        {"hour_start": row["hour_start"].isoformat(), **{name: row[name] for name in told}}
        for row in ordered_plan_steps(one.rows)
    ]
    data = {"plan.json": json.dumps(changes, indent=2)}
    return {**_head("v1", "ConfigMap", one, asked), "data": data}


def _cron_scaled_object(one: ClusterWorkload, asked: ExportOptions) -> Manifest:
    stretches = _replica_intervals(one)
    counts = [stretch.replicas for stretch in stretches]
    most = one.most if asked.mode == "floor" else max(counts)
    triggers = [
        {
            "type": "cron",
            "name": f"fleetcast-{stretch.decision_id}",
            "metadata": {
                "timezone": "Etc/UTC",
                "start": _cron(stretch.start),
                "end": _cron(stretch.end),
                "desiredReplicas": str(stretch.replicas),
            },
        }
        for stretch in stretches
    ]
    return _scaled_object(one, asked, min(counts), most, triggers)


def _external_scaled_object(one: ClusterWorkload, asked: ExportOptions) -> Manifest:
    row, floor = one.rows[0], replica_floor(one, asked)
    trigger = {
        "type": "external",
        "name": "fleetcast",
        "metricType": "AverageValue",
        "metadata": {
            "scalerAddress": asked.scaler,
            **{name: str(row[name]) for name in ("trace", "policy", "region", "llm", "role", "gpu")},
            "gpusPerInstance": str(row["gpus_per_instance"]),
            "floor": str(floor),
        },
    }
    made = _scaled_object(one, asked, one.least, one.most, [trigger])
    made["spec"]["fallback"] = {"failureThreshold": SCALER_FAILURES, "replicas": floor}
    return made


def replica_floor(one: ClusterWorkload, asked: ExportOptions) -> int:
    """What is held while the plan is not trusted: the config's minimum where others may hold more.

    Where the plan decides alone nobody else would hold more, so it is the most that the plan ever holds.
    """
    return one.least if asked.mode == "floor" else max(row["instances"] for row in one.rows)


def _hpa(one: ClusterWorkload, asked: ExportOptions) -> Manifest:
    row = one.at(one.rows[0]["hour_start"] + timedelta(hours=asked.hour))
    count = max(row["instances"], 1)  # an HPA has no zero
    made = _head("autoscaling/v2", "HorizontalPodAutoscaler", one, asked)
    made["metadata"]["annotations"] = {
        "llm-d.ai/managed": "true",
        "llm-d.ai/model-id": row["llm"],
        "llm-d.ai/variant-cost": f"{one.usd_per_hour:.4f}",
        "fleetcast/decision": row["decision_id"],
    }
    labels = {"variant_name": one.name, "exported_namespace": asked.namespace}
    metric = {"name": "wva_desired_replicas", "selector": {"matchLabels": labels}}
    wanted = {"metric": metric, "target": {"type": "AverageValue", "averageValue": "1"}}
    made["spec"] = {
        "scaleTargetRef": _reference(one, asked),
        "minReplicas": count,
        "maxReplicas": max(one.most, count) if asked.mode == "floor" else count,
        "metrics": [{"type": "External", "external": wanted}],
    }
    return made


def _capacity_buffer(one: ClusterWorkload, asked: ExportOptions) -> Manifest:
    """Room for the replicas that will boot within a node's lead time, beside those that boot already."""
    now = one.rows[0]["hour_start"] + timedelta(hours=asked.hour)
    boots, node = timedelta(seconds=one.boot_s), timedelta(seconds=asked.node_lead_s)
    there = one.largest_row_within(now, now + boots)
    then = one.largest_row_within(now, now + boots + node)
    made = _head("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer", one, asked)
    made["metadata"]["annotations"] = {"fleetcast/decision": then["decision_id"]}
    made["spec"] = {
        "provisioningStrategy": "buffer.x-k8s.io/active-capacity",
        "scalableRef": {"apiGroup": asked.target.api_group, "kind": asked.target.kind, "name": one.name},
        "replicas": then["instances"] - there["instances"],
    }
    return made


# --- what they share -----------------------------------------------------------------------------------


def _head(api_version: str, kind: str, one: ClusterWorkload, asked: ExportOptions) -> Manifest:
    row = one.rows[0]
    labels = {
        "fleetcast/region": dns_label(row["region"]),
        "fleetcast/policy": dns_label(row["policy"]),
        "fleetcast/day": row["day"].isoformat(),
        "fleetcast/mode": asked.mode,
    }
    name = f"{one.name}-plan" if kind == "ConfigMap" else one.name
    metadata = {"name": name, "namespace": asked.namespace, "labels": labels}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _reference(one: ClusterWorkload, asked: ExportOptions) -> Manifest:
    return {"apiVersion": asked.target.api_version, "kind": asked.target.kind, "name": one.name}


def _scaled_object(
    one: ClusterWorkload, asked: ExportOptions, least: int, most: int, triggers: list[dict[str, Any]]
) -> Manifest:
    made = _head("keda.sh/v1alpha1", "ScaledObject", one, asked)
    own = [dict(trigger) for trigger in asked.triggers] if asked.mode == "floor" else []
    made["spec"] = {
        "scaleTargetRef": _reference(one, asked),
        "minReplicaCount": least,
        "maxReplicaCount": max(most, 1),
        "triggers": [*triggers, *own],
    }
    return made


def _replica_intervals(one: ClusterWorkload) -> list[ReplicaInterval]:
    return one.stretches(timedelta(seconds=one.boot_s))


def _cron(moment: datetime) -> str:
    return f"{moment.minute} {moment.hour} {moment.day} {moment.month} *"
