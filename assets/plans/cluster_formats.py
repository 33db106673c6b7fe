"""Write a plan as manifests or API calls for KEDA, llm-d, node autoscalers and Ray Serve."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.plans.cluster_workloads import ClusterWorkload, build_workloads
from fleetcast.assets.plans.export_options import ExportOptions, Manifest, manifest_head
from fleetcast.assets.plans.hourly_objects import build_buffers, build_hpas
from fleetcast.assets.plans.manifest_yaml import LiteralText, manifests_to_yaml
from fleetcast.assets.plans.plan_export import ordered_plan_steps
from fleetcast.assets.plans.scaled_objects import build_cron_object, build_scaler_object
from fleetcast.models.aliases import Row

ManifestsBuilder = Callable[[Sequence[ClusterWorkload], ExportOptions], list[Manifest]]


def render_cron_scaled_objects(settings: RunSettings, rows: Sequence[Row], options: ExportOptions) -> str:
    """KEDA ScaledObjects with a cron trigger per interval of the plan, as YAML documents."""
    _require_custom_triggers(options)
    return _render(settings, rows, options, _one_each(build_cron_object))


def render_scaler_scaled_objects(settings: RunSettings, rows: Sequence[Row], options: ExportOptions) -> str:
    """Return YAML documents of KEDA ScaledObjects that query `fleetcast serve scaler`; valid on every day."""
    _require_custom_triggers(options)
    return _render(settings, rows, options, _one_each(build_scaler_object))


def render_hpas(settings: RunSettings, rows: Sequence[Row], options: ExportOptions) -> str:
    """Return YAML documents of HorizontalPodAutoscalers for llm-d, bounded by the plan."""
    return _render(settings, rows, options, build_hpas)


def render_capacity_buffers(settings: RunSettings, rows: Sequence[Row], options: ExportOptions) -> str:
    """Return YAML documents of CapacityBuffers (Karpenter, GKE) that start nodes ahead of the next boots."""
    return _render(settings, rows, options, build_buffers)


def render_ray_serve_calls(settings: RunSettings, rows: Sequence[Row], options: ExportOptions) -> str:
    """Return calls of Ray Serve's scaling API in order of time, one JSON object a line.

    The application needs external_scaler_enabled. With it, Ray does not scale by itself: ValueError for mode
    floor.
    """
    if options.mode == "floor":
        raise ValueError(
            "Ray Serve has no floor: with external_scaler_enabled it scales nothing by itself. "
            "Take --mode active or advisory."
        )
    workloads = build_workloads(settings, rows)
    calls = [call for workload in workloads for call in build_ray_serve_calls(workload, options)]
    return "\n".join(json.dumps(call) for call in sorted(calls, key=lambda call: str(call["at"])))


def build_ray_serve_calls(workload: ClusterWorkload, options: ExportOptions) -> list[dict[str, Any]]:
    """Return the calls of a workload in order of time; application and deployment have its name.

    Ray starts a replica when it is called, so each call is a boot time early, without an autoscaler's delay.
    """
    return [
        {
            "at": interval.start.isoformat(),
            "mode": options.mode,
            "decision_id": interval.decision_id,
            "method": "POST",
            "path": f"/api/v1/applications/{workload.name}/deployments/{workload.name}/scale",
            "body": {"target_num_replicas": interval.replicas},
        }
        for interval in workload.intervals_to_safe_level(timedelta(seconds=workload.boot_s))
    ]


CLUSTER_FORMATS: Mapping[str, Callable[[RunSettings, Sequence[Row], ExportOptions], str]] = {
    "k8s": render_cron_scaled_objects,
    "keda-scaler": render_scaler_scaled_objects,
    "hpa": render_hpas,
    "capacity-buffer": render_capacity_buffers,
    "ray-serve": render_ray_serve_calls,
}


def describe_empty_export(rows: Sequence[Row], options: ExportOptions) -> str:
    """Return one line: why an export of these rows has no object. If an instance runs, it is of buffers."""
    if not any(row["instances"] for row in rows):
        return "Nothing to export: the plan runs no instance."
    when = "in the whole plan" if options.hour is None else f"after {options.hour:02}:00"
    minutes = options.node_lead_s / 60
    return (
        f"Nothing to export: {when} no replica begins to boot within the {minutes:g} minutes that a node "
        "takes (--node-lead-minutes), so no CapacityBuffer is needed."
    )


def _one_each(build: Callable[[ClusterWorkload, ExportOptions], Manifest]) -> ManifestsBuilder:
    return lambda workloads, options: [build(workload, options) for workload in workloads]


def _render(
    settings: RunSettings, rows: Sequence[Row], options: ExportOptions, build: ManifestsBuilder
) -> str:
    workloads = build_workloads(settings, rows)
    chosen = _one_each(_advice_config_map) if options.mode == "advisory" else build
    return manifests_to_yaml(chosen(workloads, options))


def _require_custom_triggers(options: ExportOptions) -> None:
    if options.mode == "floor" and not options.triggers:
        raise ValueError(
            "--mode floor: got no custom triggers. The plan is a minimum only where another trigger can "
            "request more. Give --triggers FILE, a YAML list as under spec.triggers, or --mode active."
        )


def _advice_config_map(workload: ClusterWorkload, options: ExportOptions) -> Manifest:
    """Return a ConfigMap with the planned changes and their reasons; it has no effect in a cluster."""
    fields = ("decision_id", "instances_before", "instances", "why")
    steps = ordered_plan_steps(workload.rows)
    changes = [
        {"hour_start": row["hour_start"].isoformat(), **{name: row[name] for name in fields}} for row in steps
    ]
    data = {
        "plan.txt": LiteralText(_change_table(steps)),
        "plan.json": LiteralText(json.dumps(changes, indent=2) + "\n"),
    }
    return {**manifest_head("v1", "ConfigMap", workload, options), "data": data}


def _change_table(steps: Sequence[Row]) -> str:
    """Return the changes of a plan as lines of a table with aligned columns."""
    lines: list[tuple[str, ...]] = [("from (UTC)", "before", "replicas", "decision", "why")]
    lines += [
        (
            f"{row['hour_start']:%Y-%m-%d %H:%M}",
            *(str(row[name]) for name in ("instances_before", "instances", "decision_id")),
            row["why"] or "",
        )
        for row in steps
    ]
    widths = [max(map(len, column)) for column in list(zip(*lines, strict=True))[:-1]]
    return "".join(
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]
        ).rstrip()
        + "\n"
        for line in lines
    )
