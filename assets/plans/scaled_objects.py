"""Write a workload as a KEDA ScaledObject: with cron triggers, or with fleetcast's external scaler.

KEDA turns triggers into metrics of a HorizontalPodAutoscaler (HPA). An HPA ignores a change within its
tolerance, 10 % by default: from ten replicas on, a step of one does not happen. From Kubernetes 1.35 on (KEDA
2.20 writes it) the objects set the tolerance to 0. Before, hpa_steps.py leads it through each step.
"""

from typing import Any

from fleetcast.assets.plans.cluster_workloads import ClusterWorkload
from fleetcast.assets.plans.cron_triggers import Trigger, cron_triggers
from fleetcast.assets.plans.export_options import ExportOptions, Manifest, manifest_head, target_reference
from fleetcast.assets.plans.hpa_steps import DEFAULT_TOLERANCE, steady_request

SCALER_FAILURES = 3  # failed calls in a row after which KEDA falls back to the safe level
KEDA_POLL_S = 15  # KEDA's default of 30 s would delay a start from zero replicas
STABLE_S = 60  # of scale-in; the triggers of a plan do not oscillate, and reads of them can straddle a minute
PAUSED_REPLICAS = "autoscaling.keda.sh/paused-replicas"


def build_cron_object(workload: ClusterWorkload, options: ExportOptions) -> Manifest:
    """Return a ScaledObject with a cron trigger per interval of the plan, and with one of its safe level."""
    least = min(row["instances"] for row in workload.rows)
    is_floor = options.mode == "floor"  # then others request more, and no step is exact
    triggers = cron_triggers(workload, tolerance_of(options), has_exact_steps=not is_floor)
    if triggers:
        requested = max(int(trigger["metadata"]["desiredReplicas"]) for trigger in triggers)
        safe, cap = workload.safe_replicas, workload.max_replicas
        most = cap if is_floor else max(min(requested, cap), safe)
        return _scaled_object(workload, options, least, most, triggers)
    # The plan ends this workload. A ScaledObject needs a trigger; while it is paused KEDA ignores it.
    idle = {"timezone": "Etc/UTC", "start": "0 0 * * *", "end": "1 0 * * *", "desiredReplicas": "1"}
    trigger = {"type": "cron", "name": "fleetcast-idle", "metadata": idle}
    manifest = _scaled_object(workload, options, 0, 1, [trigger])
    if options.mode == "active":
        manifest["metadata"]["annotations"] = {PAUSED_REPLICAS: "0"}
    return manifest


def build_scaler_object(workload: ClusterWorkload, options: ExportOptions) -> Manifest:
    """Return a ScaledObject that queries `fleetcast serve scaler`; valid on every day."""
    row, tolerance = workload.rows[0], tolerance_of(options)
    trigger = {
        "type": "external",
        "name": "fleetcast",
        "metricType": "AverageValue",
        "metadata": {
            "scalerAddress": options.scaler,
            **{name: str(row[name]) for name in ("trace", "policy", "region", "llm", "role", "gpu")},
            "gpusPerInstance": str(row["gpus_per_instance"]),
            "floor": str(workload.safe_replicas),
            "tolerance": f"{tolerance:g}",
            **({"exactSteps": "true"} if options.mode == "active" else {}),
        },
    }
    return _scaled_object(workload, options, workload.min_replicas, workload.max_replicas, [trigger])


def tolerance_of(options: ExportOptions) -> float:
    """Return the tolerance that the HPA of an exported object has."""
    return 0.0 if options.sets_tolerance else DEFAULT_TOLERANCE


def _scaled_object(
    workload: ClusterWorkload,
    options: ExportOptions,
    min_replicas: int,
    max_replicas: int,
    triggers: list[Trigger],
) -> Manifest:
    manifest = manifest_head("keda.sh/v1alpha1", "ScaledObject", workload, options)
    custom = [dict(trigger) for trigger in options.triggers] if options.mode == "floor" else []
    most = max(max_replicas, 1)
    manifest["spec"] = {
        "scaleTargetRef": target_reference(workload, options),
        "minReplicaCount": min_replicas,
        "maxReplicaCount": most,
        **({"pollingInterval": KEDA_POLL_S, "cooldownPeriod": STABLE_S} if min_replicas == 0 else {}),
        "fallback": {
            "failureThreshold": SCALER_FAILURES,
            "replicas": steady_request(workload.safe_replicas, tolerance_of(options)),
        },
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(options, most)}},
        "triggers": [*triggers, *custom],
    }
    return manifest


def _behavior(options: ExportOptions, most: int) -> dict[str, Any]:
    """Return the HPA's behavior: a step of the plan at once; custom triggers scale in as by default."""
    exact = {"tolerance": "0"} if options.sets_tolerance else {}
    up = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": most, "periodSeconds": 15}]}
    down = {} if options.mode == "floor" else {"stabilizationWindowSeconds": STABLE_S}
    return {"scaleUp": {**up, **exact}, **({"scaleDown": {**down, **exact}} if down or exact else {})}
