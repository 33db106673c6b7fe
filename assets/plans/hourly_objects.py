"""Write a plan as objects without a timetable: HorizontalPodAutoscalers for llm-d, and CapacityBuffers.

One object has the counts of one instant. With --hour it is that hour's. Without, each object begins at the
safe level, and a CronJob patches it through the plan and back to the safe level at its end.
"""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from fleetcast.assets.lake.settings import midnight
from fleetcast.assets.plans.cluster_workloads import ClusterWorkload
from fleetcast.assets.plans.export_options import ExportOptions, Manifest, manifest_head, target_reference
from fleetcast.assets.plans.step_job import PatchStep, build_step_job
from fleetcast.models.aliases import Row

HPA_RESOURCE = ("autoscaling", "horizontalpodautoscalers")
BUFFER_RESOURCE = ("autoscaling.x-k8s.io", "capacitybuffers")


def build_hpas(workloads: Sequence[ClusterWorkload], options: ExportOptions) -> list[Manifest]:
    """Return an HPA per workload; its bounds are the plan, so that no tolerance matters."""
    if options.hour is not None:
        return [
            _hpa(workload, options, workload.row_at(_instant(workload, options))) for workload in workloads
        ]
    hpas = [_hpa(workload, options, _safe_row(workload)) for workload in workloads]
    steps = [
        _patch(interval.start, HPA_RESOURCE, workload, _bounds(workload, options, interval.replicas))
        for workload in workloads
        for interval in workload.intervals_to_safe_level(workload.lead)
    ]
    return [*hpas, *build_step_job("fleetcast-hpa-steps", *HPA_RESOURCE, steps, options)]


def build_buffers(workloads: Sequence[ClusterWorkload], options: ExportOptions) -> list[Manifest]:
    """Return a CapacityBuffer per workload: nodes for what begins to boot within a node's lead time.

    A workload that needs none has no buffer: not in the hour of --hour, else not in the whole plan.
    """
    if options.hour is not None:
        buffers = [_buffer(workload, options, _instant(workload, options)) for workload in workloads]
        return [buffer for buffer in buffers if buffer["spec"]["replicas"]]
    buffers, steps = [], []
    for workload in workloads:
        replicas_by_moment = _buffer_steps(workload, options)
        if any(replicas_by_moment.values()):
            buffers.append(_buffer(workload, options, workload.rows[0]["hour_start"]))
            steps += [
                _patch(moment, BUFFER_RESOURCE, workload, {"replicas": replicas})
                for moment, replicas in replicas_by_moment.items()
            ]
    job = build_step_job("fleetcast-buffer-steps", *BUFFER_RESOURCE, steps, options) if steps else []
    return [*buffers, *job]


def _buffer_steps(workload: ClusterWorkload, options: ExportOptions) -> dict[datetime, int]:
    """Return the replicas of a workload's buffer by the instant from which on they are others than before."""
    starts = [row["hour_start"] for row in workload.rows]
    leads = (timedelta(0), workload.lead, workload.lead + timedelta(seconds=options.node_lead_s))
    moments = sorted({start - lead for start in starts for lead in leads if start - lead >= starts[0]})
    needed = [(moment, _next_boots(workload, options, moment)[0]) for moment in moments]
    runs = groupby([*needed, (workload.ends, 0)], key=lambda pair: pair[1])
    return dict(next(run) for _, run in runs)


def _hpa(workload: ClusterWorkload, options: ExportOptions, row: Row) -> Manifest:
    manifest = manifest_head("autoscaling/v2", "HorizontalPodAutoscaler", workload, options)
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
        "scaleTargetRef": target_reference(workload, options),
        **_bounds(workload, options, row["instances"]),
        "metrics": [{"type": "External", "external": wanted}],
    }
    return manifest


def _bounds(workload: ClusterWorkload, options: ExportOptions, replicas: int) -> dict[str, int]:
    least = max(replicas, 1)  # an HPA cannot scale to zero
    most = max(workload.max_replicas, least) if options.mode == "floor" else least
    return {"minReplicas": least, "maxReplicas": most}


def _buffer(workload: ClusterWorkload, options: ExportOptions, now: datetime) -> Manifest:
    replicas, row = _next_boots(workload, options, now)
    manifest = manifest_head("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer", workload, options)
    manifest["metadata"]["annotations"] = {"fleetcast/decision": row["decision_id"]}
    manifest["spec"] = {
        "provisioningStrategy": "buffer.x-k8s.io/active-capacity",
        "scalableRef": {
            "apiGroup": options.target.api_group,
            "kind": options.target.kind,
            "name": workload.name,
        },
        "replicas": replicas,
    }
    return manifest


def _next_boots(workload: ClusterWorkload, options: ExportOptions, now: datetime) -> tuple[int, Row]:
    """Return how many replicas are requested within a node's lead time beyond those booting, and the row."""
    node_lead = timedelta(seconds=options.node_lead_s)
    booting = workload.largest_row_within(now, now + workload.lead)
    then = workload.largest_row_within(now, now + workload.lead + node_lead)
    return then["instances"] - booting["instances"], then


def _patch(
    start: datetime, resource: tuple[str, str], workload: ClusterWorkload, spec: dict[str, Any]
) -> PatchStep:
    group, plural = resource
    patch = json.dumps({"spec": spec}, separators=(",", ":"))
    return PatchStep(start, f"{plural}.{group}/{workload.name}", patch)


def _instant(workload: ClusterWorkload, options: ExportOptions) -> datetime:
    day = options.day or workload.rows[0]["day"]
    return midnight(day) + timedelta(hours=options.hour or 0)


def _safe_row(workload: ClusterWorkload) -> Row:
    return max(workload.rows, key=lambda row: row["instances"])
