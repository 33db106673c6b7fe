"""What is exported to a cluster: valid by its schemas, on time, linked to its decision, within its mode."""

import json
from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_schemas import faults
from handed import write_plan
from small import small_config
from typer.testing import CliRunner

from fleetcast.assets.lake.settings import RunSettings, load_settings, midnight
from fleetcast.assets.plans import cluster_formats, cluster_workloads
from fleetcast.assets.plans.export_options import ExportOptions, parse_custom_triggers, parse_scale_target
from fleetcast.assets.plans.plan_export import read_plan_rows
from fleetcast.pipelines.cli import cli_app

DAY = date(2025, 7, 3)
COUNTS = [3, 3, 5, 5, 5, 2, *([2] * 17), 4]
LWS = "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet"
OWN = ({"type": "prometheus", "metadata": {"serverAddress": "http://p", "query": "q", "threshold": "0.7"}},)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    folder = tmp_path_factory.mktemp("handed")
    settings = load_settings(small_config(folder, boot_local_s="600.0"), folder / "lake")
    write_plan(settings, DAY, COUNTS)
    return settings


def export_documents(settings: RunSettings, format_: str, **options: Any) -> list[dict[str, Any]]:
    rows = read_plan_rows(settings, DAY, "day_ahead", "east")
    return list(
        yaml.safe_load_all(cluster_formats.CLUSTER_FORMATS[format_](settings, rows, ExportOptions(**options)))
    )


@pytest.mark.parametrize("format_", ["k8s", "keda-scaler", "hpa", "capacity-buffer"])
@pytest.mark.parametrize("mode", ["advisory", "floor", "active"])
def test_exports_are_valid_by_the_cluster_schemas(planned: RunSettings, format_: str, mode: str) -> None:
    objects = export_documents(
        planned, format_, mode=mode, target=parse_scale_target(LWS), triggers=OWN, scaler="s:1"
    )
    assert len(objects) == 4
    for one in objects:
        assert faults(one) == []
        assert one["metadata"]["labels"]["fleetcast/mode"] == mode
        spec = one.get("spec", {})
        assert (one["kind"] == "ConfigMap") == (mode == "advisory") == (not spec)
        if "scaleTargetRef" in spec:
            group, _, kind = LWS.rpartition("/")
            assert (spec["scaleTargetRef"]["apiVersion"], spec["scaleTargetRef"]["kind"]) == (group, kind)
        own = [trigger for trigger in spec.get("triggers", ()) if trigger["type"] == "prometheus"]
        assert bool(own) == (mode == "floor" and "triggers" in spec)


def test_schemas_refuse_invalid_objects(planned: RunSettings) -> None:
    [one, *_] = export_documents(planned, "k8s")
    one["spec"]["triggers"][0]["metadata"]["desiredReplicas"] = 3
    one["spec"]["replicas"] = 3
    del one["spec"]["scaleTargetRef"]["name"]
    assert len(faults(one)) == 3
    [buffer, *_] = export_documents(planned, "capacity-buffer")
    buffer["spec"]["podTemplateRef"] = {"name": "two"}
    assert faults(buffer) == ["needs one of podTemplateRef and scalableRef"]


def test_replicas_are_requested_a_boot_time_ahead(planned: RunSettings) -> None:
    """In each minute the exported count is the plan's maximum from now until a new replica is up."""
    [own, *_] = cluster_workloads.build_workloads(planned, read_plan_rows(planned, DAY, "day_ahead", "east"))
    assert own.boot_s == 600.0
    [one, *_] = export_documents(planned, "k8s")
    held = {}
    for trigger in (each["metadata"] for each in one["spec"]["triggers"]):
        start, end = (
            datetime(2025, int(month), int(day), int(hour), int(minute), tzinfo=UTC)
            for minute, hour, day, month, _ in (trigger[key].split() for key in ("start", "end"))
        )
        while start < end:
            assert start not in held
            held[start] = int(trigger["desiredReplicas"])
            start += timedelta(minutes=1)
    wanted = [COUNTS[min(minute // 60, 23)] for minute in range(24 * 60 + 10)]
    assert list(held.values()) == [max(wanted[m : m + 11]) for m in range(24 * 60)]
    assert list(held) == [midnight(DAY) + timedelta(minutes=m) for m in range(24 * 60)]


def test_a_node_is_requested_before_its_replica(planned: RunSettings) -> None:
    """The load rises at 02:00. A node that boots 50 minutes longer is requested at 01:00."""
    for minutes, replicas in ((49, 0), (50, 2)):
        [one, *_] = export_documents(planned, "capacity-buffer", hour=1, node_lead_s=60.0 * minutes)
        assert one["spec"]["replicas"] == replicas
        assert one["spec"]["scalableRef"] == {
            "apiGroup": "apps",
            "kind": "Deployment",
            "name": "bloom-176b-h100-80gb",
        }


def test_hpa_bounds_are_the_plan_of_the_hour(planned: RunSettings) -> None:
    [active, *_] = export_documents(planned, "hpa", hour=4)
    [floor, *_] = export_documents(planned, "hpa", hour=4, mode="floor")
    assert [(one["spec"]["minReplicas"], one["spec"]["maxReplicas"]) for one in (active, floor)] == [
        (5, 5),
        (5, 40),
    ]
    annotations = active["metadata"]["annotations"]
    usd = planned.catalogue.gpus["h100-80gb"].usd_per_hour * 8
    assert annotations["llm-d.ai/variant-cost"] == f"{usd:.4f}"
    assert (annotations["llm-d.ai/managed"], annotations["llm-d.ai/model-id"]) == ("true", "bloom-176b")


def test_a_decision_has_the_same_id_in_every_export(planned: RunSettings) -> None:
    rows = read_plan_rows(planned, DAY, "day_ahead", "east")
    ids = [row["decision_id"] for row in read_plan_rows(planned, DAY, "day_ahead")]
    assert len(set(ids)) == len(ids)
    [row] = [r for r in rows if r["llm"] == "bloom-176b" and r["hour_start"].hour == 2]
    [one, *_] = export_documents(planned, "k8s")
    assert f"fleetcast-{row['decision_id']}" in [trigger["name"] for trigger in one["spec"]["triggers"]]
    [advice, *_] = export_documents(planned, "k8s", mode="advisory")
    assert row["decision_id"] in [each["decision_id"] for each in json.loads(advice["data"]["plan.json"])]
    calls = [
        json.loads(line)
        for line in cluster_formats.render_ray_serve_calls(planned, rows, ExportOptions()).splitlines()
    ]
    [call] = [call for call in calls if call["decision_id"] == row["decision_id"]]
    assert call["body"] == {"target_num_replicas": 5}
    assert call["at"] == "2025-07-03T01:50:00+00:00"
    name = "bloom-176b-h100-80gb"
    assert call["path"] == f"/api/v1/applications/{name}/deployments/{name}/scale"
    assert [call["at"] for call in calls] == sorted(call["at"] for call in calls)


def test_an_untrusted_plan_keeps_minimum_replicas(planned: RunSettings) -> None:
    for mode, floor in (("floor", 2), ("active", 5)):
        [one, *_] = export_documents(planned, "keda-scaler", mode=mode, triggers=OWN, scaler="s:1")
        assert one["spec"]["triggers"][0]["metadata"]["floor"] == str(floor)
        assert one["spec"]["fallback"] == {"failureThreshold": 3, "replicas": floor}
        assert (one["spec"]["minReplicaCount"], one["spec"]["maxReplicaCount"]) == (2, 40)


@pytest.mark.parametrize(("minutes", "runs"), [(-1, False), (0, True), (24 * 60 - 1, True), (24 * 60, False)])
def test_cron_triggers_are_exported_while_their_plan_runs(
    planned: RunSettings, minutes: int, runs: bool
) -> None:
    """A future day drains the fleet until it begins; a past day drains it until the next file."""
    rows, now = read_plan_rows(planned, DAY, "day_ahead", "east"), midnight(DAY) + timedelta(minutes=minutes)
    cluster_formats.require_plan_running(rows, ExportOptions(mode="advisory"), now)
    for mode in ("active", "floor"):
        with (
            nullcontext() if runs else pytest.raises(ValueError, match=r"^--format k8s: .* keda-scaler, .*$")
        ):
            cluster_formats.require_plan_running(rows, ExportOptions(mode=mode), now)


def test_the_command_exports_only_safe_formats_of_a_past_day(
    planned: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetcast.assets.lake.settings.load_settings", lambda _: planned)
    arguments = ["plan", "export", "--policy", "day_ahead", "--date", str(DAY), "--region", "east"]
    refused = CliRunner().invoke(cli_app, [*arguments, "--format", "k8s"])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "got a plan of 2025-07-03 00:00 to 2025-07-04 00:00 UTC" in " ".join(refused.stderr.split())
    for safe in (["k8s", "--mode", "advisory"], ["keda-scaler"], ["hpa"], ["capacity-buffer"], ["json"]):
        assert CliRunner().invoke(cli_app, [*arguments, "--format", *safe]).exit_code == 0, safe


def test_impossible_exports_are_refused_with_the_reason(planned: RunSettings, tmp_path: Path) -> None:
    rows = read_plan_rows(planned, DAY, "day_ahead", "east")
    with pytest.raises(ValueError, match=r"^--mode floor: got no custom triggers\. .* Give --triggers FILE"):
        cluster_formats.render_cron_scaled_objects(planned, rows, ExportOptions(mode="floor"))
    with pytest.raises(ValueError, match=r"^Ray Serve has no floor: .* Take --mode active"):
        cluster_formats.render_ray_serve_calls(planned, rows, ExportOptions(mode="floor"))
    for text in ("Deployment", "apps/v1/deployment", "a/b/c/D", "/v1/D"):
        with pytest.raises(ValueError, match=r"^--target: got .* needed GROUP/VERSION/KIND"):
            parse_scale_target(text)
    number = "- type: cron\n  metadata: {desiredReplicas: 3}"
    for text, said in (
        (number, "entry 1 of t.yaml .* Quote its numbers"),
        ("a: 1", "no list"),
        ("- [", "no YAML"),
    ):
        with pytest.raises(ValueError, match=rf"^--triggers: .*{said}"):
            parse_custom_triggers(text, "t.yaml")
    said = CliRunner().invoke(
        cli_app, ["plan", "export", "--format", "k8s", "--mode", "floor", "--triggers", "/no/such.yaml"]
    )
    assert said.exit_code == 2
