"""Write a plan as manifests or API calls for KEDA, llm-d, node autoscalers and Ray Serve."""

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

SCALER_FAILURES = 3  # failed calls in a row after which KEDA falls back to the floor
Manifest = dict[str, Any]


# --- the formats ---------------------------------------------------------------------------------------


def render_cron_scaled_objects(settings: RunSettings, rows: Sequence[Row], options: ExportOptions) -> str:
    """KEDA ScaledObjects with a cron trigger per interval of the plan, as YAML documents."""
    return _render_documents(settings, rows, options, _cron_scaled_object)


def render_scaler_scaled_objects(settings: RunSettings, rows: Sequence[Row], options: ExportOptions) -> str:
    """Return YAML documents of KEDA ScaledObjects that query `fleetcast serve scaler`; valid on every day."""
    return _render_documents(settings, rows, options, _external_scaled_object)


def render_hpas(settings: RunSettings, rows: Sequence[Row], options: ExportOptions) -> str:
    """Return YAML documents of HorizontalPodAutoscalers for llm-d, with the plan of one hour as bounds."""
    return _render_documents(settings, rows, options, _hpa)


def render_capacity_buffers(settings: RunSettings, rows: Sequence[Row], options: ExportOptions) -> str:
    """Return YAML documents of CapacityBuffers (Karpenter, GKE) that start nodes ahead of the next boots."""
    return _render_documents(settings, rows, options, _capacity_buffer)


def render_ray_serve_calls(settings: RunSettings, rows: Sequence[Row], options: ExportOptions) -> str:
    """Return calls of Ray Serve's scaling API in order of time, one JSON object a line.

    The application and its deployment have the workload's name; the application needs
    external_scaler_enabled. With it, Ray does not scale by itself: ValueError for mode floor.
    """
    if options.mode == "floor":
        raise ValueError(
            "Ray Serve has no floor: with external_scaler_enabled it scales nothing by itself. "
            "Take --mode active or advisory."
        )
    calls = [
        {
            "at": interval.start.isoformat(),
            "mode": options.mode,
            "decision_id": interval.decision_id,
            "method": "POST",
            "path": f"/api/v1/applications/{workload.name}/deployments/{workload.name}/scale",
            "body": {"target_num_replicas": interval.replicas},
        }
        for workload in build_workloads(settings, rows)
        for interval in _replica_intervals(workload)
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
    settings: RunSettings, rows: Sequence[Row], options: ExportOptions, make: ManifestBuilder
) -> str:
    workloads = build_workloads(settings, rows)
    if (
        options.mode == "floor"
        and make in (_cron_scaled_object, _external_scaled_object)
        and not options.triggers
    ):
        raise ValueError(
            "--mode floor: got no custom triggers. The plan is a minimum only where another trigger can "
            "request more. Give --triggers FILE, a YAML list as under spec.triggers, or --mode active."
        )
    build = _advice_config_map if options.mode == "advisory" else make
    return yaml.safe_dump_all(
        [build(workload, options) for workload in workloads], sort_keys=False, width=110
    )


def require_plan_running(rows: Sequence[Row], options: ExportOptions, now: datetime) -> None:
    """Raise ValueError where cron triggers would be exported of a plan that does not run at `now`.

    Outside the hours of its plan, a ScaledObject with cron triggers scales to the minimum of these hours,
    whatever the current plan is. A ConfigMap (mode advisory) has no effect, so it is always allowed.
    """
    begins = min(row["hour_start"] for row in rows)
    ends = max(row["hour_start"] for row in rows) + timedelta(hours=1)
    if options.mode != "advisory" and not begins <= now < ends:
        raise ValueError(
            f"--format k8s: got a plan of {begins:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M} UTC, and it is "
            f"{now:%Y-%m-%d %H:%M}. Outside these hours its cron triggers would scale the fleet in to the "
            "minimum of the plan. Take --format keda-scaler, which follows the current plan, or "
            "--mode advisory, or export the plan after it has begun."
        )


# --- one manifest of a workload ------------------------------------------------------------------------


def _advice_config_map(workload: ClusterWorkload, options: ExportOptions) -> Manifest:
    """Return a ConfigMap with the planned changes and their reasons; it has no effect in a cluster."""
    fields = ("decision_id", "instances_before", "instances", "why")
    changes = [
        {"hour_start": row["hour_start"].isoformat(), **{name: row[name] for name in fields}}
        for row in ordered_plan_steps(workload.rows)
    ]
    data = {"plan.json": json.dumps(changes, indent=2)}
    return {**_head("v1", "ConfigMap", workload, options), "data": data}


def _cron_scaled_object(workload: ClusterWorkload, options: ExportOptions) -> Manifest:
    intervals = _replica_intervals(workload)
    counts = [interval.replicas for interval in intervals]
    max_replicas = workload.max_replicas if options.mode == "floor" else max(counts)
    triggers = [
        {
            "type": "cron",
            "name": f"fleetcast-{interval.decision_id}",
            "metadata": {
                "timezone": "Etc/UTC",
                "start": _cron(interval.start),
                "end": _cron(interval.end),
                "desiredReplicas": str(interval.replicas),
            },
        }
        for interval in intervals
    ]
    return _scaled_object(workload, options, min(counts), max_replicas, triggers)


def _external_scaled_object(workload: ClusterWorkload, options: ExportOptions) -> Manifest:
    row, floor = workload.rows[0], replica_floor(workload, options)
    trigger = {
        "type": "external",
        "name": "fleetcast",
        "metricType": "AverageValue",
        "metadata": {
            "scalerAddress": options.scaler,
            **{name: str(row[name]) for name in ("trace", "policy", "region", "llm", "role", "gpu")},
            "gpusPerInstance": str(row["gpus_per_instance"]),
            "floor": str(floor),
        },
    }
    manifest = _scaled_object(workload, options, workload.min_replicas, workload.max_replicas, [trigger])
    manifest["spec"]["fallback"] = {"failureThreshold": SCALER_FAILURES, "replicas": floor}
    return manifest


def replica_floor(workload: ClusterWorkload, options: ExportOptions) -> int:
    """Return the replicas to run while the plan is not trusted.

    In mode floor, other triggers can request more, so it is the config's minimum. Otherwise only the plan
    scales the workload, so it is the plan's maximum.
    """
    return (
        workload.min_replicas if options.mode == "floor" else max(row["instances"] for row in workload.rows)
    )


def _hpa(workload: ClusterWorkload, options: ExportOptions) -> Manifest:
    row = workload.row_at(workload.rows[0]["hour_start"] + timedelta(hours=options.hour))
    count = max(row["instances"], 1)  # an HPA cannot scale to zero
    manifest = _head("autoscaling/v2", "HorizontalPodAutoscaler", workload, options)
    manifest["metadata"]["annotations"] = {
        "llm-d.ai/managed": "true",
        "llm-d.ai/model-id": row["llm"],
        "llm-d.ai/variant-cost": f"{workload.usd_per_hour:.4f}",
        "fleetcast/decision": row["decision_id"],
    }
    labels = {"variant_name": workload.name, "exported_namespace": options.namespace}
    metric = {"name": "wva_desired_replicas", "selector": {"matchLabels": labels}}
    wanted = {"metric": metric, "target": {"type": "AverageValue", "averageValue": "1"}}
    manifest["spec"] = {
        "scaleTargetRef": _reference(workload, options),
        "minReplicas": count,
        "maxReplicas": max(workload.max_replicas, count) if options.mode == "floor" else count,
        "metrics": [{"type": "External", "external": wanted}],
    }
    return manifest


def _capacity_buffer(workload: ClusterWorkload, options: ExportOptions) -> Manifest:
    """Return a buffer for replicas that begin to boot within a node's lead time, without those booting."""
    now = workload.rows[0]["hour_start"] + timedelta(hours=options.hour)
    boot_lead, node_lead = timedelta(seconds=workload.boot_s), timedelta(seconds=options.node_lead_s)
    booting = workload.largest_row_within(now, now + boot_lead)
    then = workload.largest_row_within(now, now + boot_lead + node_lead)
    manifest = _head("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer", workload, options)
    manifest["metadata"]["annotations"] = {"fleetcast/decision": then["decision_id"]}
    manifest["spec"] = {
        "provisioningStrategy": "buffer.x-k8s.io/active-capacity",
        "scalableRef": {
            "apiGroup": options.target.api_group,
            "kind": options.target.kind,
            "name": workload.name,
        },
        "replicas": then["instances"] - booting["instances"],
    }
    return manifest


# --- shared parts --------------------------------------------------------------------------------------


def _head(api_version: str, kind: str, workload: ClusterWorkload, options: ExportOptions) -> Manifest:
    row = workload.rows[0]
    labels = {
        "fleetcast/region": dns_label(row["region"]),
        "fleetcast/policy": dns_label(row["policy"]),
        "fleetcast/day": row["day"].isoformat(),
        "fleetcast/mode": options.mode,
    }
    name = f"{workload.name}-plan" if kind == "ConfigMap" else workload.name
    metadata = {"name": name, "namespace": options.namespace, "labels": labels}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _reference(workload: ClusterWorkload, options: ExportOptions) -> Manifest:
    return {"apiVersion": options.target.api_version, "kind": options.target.kind, "name": workload.name}


def _scaled_object(
    workload: ClusterWorkload,
    options: ExportOptions,
    min_replicas: int,
    max_replicas: int,
    triggers: list[dict[str, Any]],
) -> Manifest:
    manifest = _head("keda.sh/v1alpha1", "ScaledObject", workload, options)
    custom = [dict(trigger) for trigger in options.triggers] if options.mode == "floor" else []
    manifest["spec"] = {
        "scaleTargetRef": _reference(workload, options),
        "minReplicaCount": min_replicas,
        "maxReplicaCount": max(max_replicas, 1),
        "triggers": [*triggers, *custom],
    }
    return manifest


def _replica_intervals(workload: ClusterWorkload) -> list[ReplicaInterval]:
    return workload.intervals(timedelta(seconds=workload.boot_s))


def _cron(moment: datetime) -> str:
    return f"{moment.minute} {moment.hour} {moment.day} {moment.month} *"
