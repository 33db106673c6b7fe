"""What is exported to a cluster: valid by its schemas, on time, linked to its decision, within its mode."""

import json
import re
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from cluster_schemas import faults
from handed import plan_rows, write_plan
from small import small_config
from typer.testing import CliRunner

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import RunSettings, load_settings, midnight
from fleetcast.assets.plans import cluster_formats
from fleetcast.assets.plans.cluster_workloads import early_boots
from fleetcast.assets.plans.cron_triggers import cron_schedule
from fleetcast.assets.plans.export_options import (
    ExportOptions,
    parse_custom_triggers,
    parse_kubernetes_version,
    parse_scale_target,
)
from fleetcast.assets.plans.held_plan import (
    drop_idle_workloads,
    fill_hours,
    hold_from,
    read_held_plan,
)
from fleetcast.assets.plans.plan_export import read_plan_rows
from fleetcast.assets.plans.plan_flows import describe_region_exports
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
    text = cluster_formats.CLUSTER_FORMATS[format_](settings, rows, ExportOptions(**options))
    assert not re.search(r"[&*]id\d", text), "each object can be read alone"
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize("format_", ["k8s", "keda-scaler", "hpa", "capacity-buffer"])
@pytest.mark.parametrize("mode", ["advisory", "floor", "active"])
def test_exports_are_valid_by_the_cluster_schemas(planned: RunSettings, format_: str, mode: str) -> None:
    objects = export_documents(
        planned, format_, mode=mode, target=parse_scale_target(LWS), triggers=OWN, scaler="s:1"
    )
    by_workload = [one for one in objects if not one["metadata"]["name"].endswith("-steps")]
    assert len(by_workload) == 4
    has_job = format_ in ("hpa", "capacity-buffer") and mode != "advisory"
    assert len(objects) - 4 == (5 if has_job else 0)
    for one in objects:
        assert faults(one) == []
    for one in by_workload:
        assert one["metadata"]["labels"]["fleetcast/mode"] == mode
        spec = one.get("spec", {})
        assert (one["kind"] == "ConfigMap") == (mode == "advisory") == (not spec)
        if "scaleTargetRef" in spec:
            group, _, kind = LWS.rpartition("/")
            assert (spec["scaleTargetRef"]["apiVersion"], spec["scaleTargetRef"]["kind"]) == (group, kind)
        own = [trigger for trigger in spec.get("triggers", ()) if trigger["type"] == "prometheus"]
        assert bool(own) == (mode == "floor" and "triggers" in spec)


def test_schemas_refuse_invalid_objects(planned: RunSettings) -> None:
    [one, *_] = export_documents(planned, "k8s", kubernetes=(1, 35))
    one["spec"]["triggers"][0]["metadata"]["timezone"] = 3
    one["spec"]["replicas"] = 3
    one["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleUp"]["tolerance"] = "none"
    del one["spec"]["scaleTargetRef"]["name"]
    assert len(faults(one)) == 4
    [buffer, *_] = export_documents(planned, "capacity-buffer")
    buffer["spec"]["podTemplateRef"] = {"name": "two"}
    assert faults(buffer) == ["needs one of podTemplateRef and scalableRef"]


def test_k8s_objects_set_the_tolerance_or_pass_it_by_version(planned: RunSettings) -> None:
    """At 5 replicas nothing is within 10 %, so the counts are the same."""
    for version, is_exact in ((None, False), ((1, 34), False), ((1, 35), True), ((2, 0), True)):
        [one, *_] = export_documents(planned, "k8s", kubernetes=version)
        behavior = one["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        assert [rule.get("tolerance") for rule in behavior.values()] == ["0" if is_exact else None] * 2
        assert behavior["scaleDown"]["stabilizationWindowSeconds"] == 60
        counts = {trigger["metadata"]["desiredReplicas"] for trigger in one["spec"]["triggers"]}
        assert counts == {"2", "3", "4", "5"}
        assert (one["spec"]["minReplicaCount"], one["spec"]["maxReplicaCount"]) == (2, 5)
        [scaled, *_] = export_documents(planned, "keda-scaler", kubernetes=version, scaler="s:1")
        assert scaled["spec"]["triggers"][0]["metadata"]["tolerance"] == ("0" if is_exact else "0.1")
    [floor, *_] = export_documents(planned, "k8s", mode="floor", triggers=OWN)
    assert "scaleDown" not in floor["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    with pytest.raises(ValueError, match=r"^--kubernetes: got 'new', needed a version like 1\.35\.$"):
        parse_kubernetes_version("new")
    assert parse_kubernetes_version("v1.35.2") == (1, 35)


def test_early_boots_cost_their_gpu_hours(planned: RunSettings) -> None:
    """By hand: 11 minutes for +2 at 02:00 and for +2 at 23:00, for each workload in 3 regions."""
    rows = read_plan_rows(planned, DAY, "day_ahead")
    boots = early_boots(planned, rows)
    gpus = sum(kind.option.gpus for kind in planned.grid.service_options)
    assert boots.boot_gpu_hours == pytest.approx(11 / 60 * (2 + 2) * 3 * gpus)
    usd = planned.catalogue.gpus["h100-80gb"].usd_per_hour
    assert boots.boot_usd == pytest.approx(boots.boot_gpu_hours * usd)


def test_a_plan_that_relies_on_other_regions_says_so(planned: RunSettings) -> None:
    rows = read_plan_rows(planned, DAY, "day_ahead", "east")
    assert describe_region_exports(planned, rows) == ""
    sent = [{**row, "demand_tokens_per_s": 150.0 * row["instances"]} for row in rows if row["instances"] > 4]
    line = describe_region_exports(planned, [*sent, *(row for row in rows if row["instances"] <= 4)])
    assert line.startswith("flows    4 hours serve less than the demand of east: ")


def test_a_node_is_requested_before_its_replica(planned: RunSettings) -> None:
    """The load rises at 02:00. A node that boots 49 minutes longer is requested at 01:00."""
    # An autoscaler takes the sixtieth minute.
    assert export_documents(planned, "capacity-buffer", hour=1, node_lead_s=60.0 * 48) == []
    [one, *_] = export_documents(planned, "capacity-buffer", hour=1, node_lead_s=60.0 * 49)
    assert one["spec"]["replicas"] == 2
    assert one["spec"]["scalableRef"] == {
        "apiGroup": "apps",
        "kind": "Deployment",
        "name": "bloom-176b-h100-80gb",
    }


def test_a_workload_that_needs_no_node_has_no_buffer_and_no_step(planned: RunSettings) -> None:
    rows = read_plan_rows(planned, DAY, "day_ahead", "east")
    steady = [{**row, "instances": 4} if row["llm"] == "bloom-176b" else row for row in rows]
    render = cluster_formats.CLUSTER_FORMATS["capacity-buffer"]
    objects = list(yaml.safe_load_all(render(planned, steady, ExportOptions())))
    names = [one["metadata"]["name"] for one in objects if one["kind"] == "CapacityBuffer"]
    assert names == ["llama2-70b-h100-80gb", "llama3-1-8b-h100-80gb", "llama3-2-3b-h100-80gb"]
    [steps] = [one["data"]["steps"] for one in objects if one["kind"] == "ConfigMap"]
    patches = [line.split(" ")[1:] for line in steps.splitlines()]
    assert {path.split("/")[1] for path, *_ in patches} == set(names)
    for name in names:  # no step repeats the one before
        own = [patch for path, patch in patches if path.endswith(f"/{name}")]
        assert all(one != before for before, one in pairwise(own))
        assert len(own) > 1
    flat = [{**row, "instances": 4} for row in rows]
    assert render(planned, flat, ExportOptions()) == ""
    for counts, reason in ((4, "in the whole plan no replica begins to boot"), (0, "the plan runs no inst")):
        described = cluster_formats.describe_empty_export(
            [{**row, "instances": counts} for row in rows], ExportOptions()
        )
        assert described.startswith(f"Nothing to export: {reason}")


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


def test_an_untrusted_plan_keeps_the_safe_level(planned: RunSettings) -> None:
    for mode in ("floor", "active"):
        [one, *_] = export_documents(planned, "keda-scaler", mode=mode, triggers=OWN, scaler="s:1")
        assert one["spec"]["triggers"][0]["metadata"]["floor"] == "5"
        assert one["spec"]["fallback"] == {"failureThreshold": 3, "replicas": 5}
        assert (one["spec"]["minReplicaCount"], one["spec"]["maxReplicaCount"]) == (2, 40)


def test_the_held_plan_begins_today_and_ends_with_the_exported_day(planned: RunSettings) -> None:
    """Without a plan of today, the objects begin with the day, and hold its highest count until then."""
    noon = midnight(DAY) + timedelta(hours=12)
    rows = read_held_plan(planned, DAY, "day_ahead", "east", noon)
    assert rows == sorted(rows, key=lambda row: (row["llm"], row["hour_start"]))
    assert len(rows) == 4 * 24
    before = read_held_plan(planned, DAY, "day_ahead", "east", noon - timedelta(days=1))
    assert before == rows
    for day, now in ((DAY, noon + timedelta(days=1)), (DAY, noon - timedelta(days=5))):
        with pytest.raises(ValueError, match=r"^--date: got 2025-07-03, and it is .* or --mode advisory\.$"):
            read_held_plan(planned, day, "day_ahead", "east", now)


def test_a_gap_between_plans_is_held_at_the_highest_count(planned: RunSettings) -> None:
    rows = [row for row in read_plan_rows(planned, DAY, "day_ahead", "east") if row["llm"] == "bloom-176b"]
    gap = [row for row in rows if row["hour_start"].hour not in (6, 7, 8)]
    filled = fill_hours(gap)
    assert [(row["hour_start"].hour, row["instances"]) for row in filled if row not in gap] == [(6, 5)]
    assert fill_hours(rows) == rows


def test_a_workload_that_never_runs_has_no_object_and_one_that_ends_is_held_at_zero(
    planned: RunSettings,
) -> None:
    rows = read_plan_rows(planned, DAY, "day_ahead", "east")
    off = [
        {**row, "instances": 0, "instances_before": 0} if row["llm"] == "bloom-176b" else row for row in rows
    ]
    assert {row["llm"] for row in drop_idle_workloads(off)} == {row["llm"] for row in rows} - {"bloom-176b"}
    ran = [
        {**row, "day": DAY - timedelta(days=1), "hour_start": row["hour_start"] - timedelta(days=1)}
        for row in rows
    ]
    ends = hold_from(DAY, [*ran, *off])
    [one, *_] = yaml.safe_load_all(cluster_formats.render_cron_scaled_objects(planned, ends, ExportOptions()))
    assert faults(one) == []
    assert one["metadata"]["annotations"] == {"autoscaling.keda.sh/paused-replicas": "0"}


def test_the_advisory_config_map_reads_as_a_table(planned: RunSettings) -> None:
    text = cluster_formats.render_cron_scaled_objects(
        planned, read_plan_rows(planned, DAY, "day_ahead", "east"), ExportOptions(mode="advisory")
    )
    assert "  plan.txt: |\n    from (UTC)        before  replicas  decision" in text
    [table, *_] = [one["data"]["plan.txt"].splitlines() for one in yaml.safe_load_all(text)]
    assert [line.split()[1:4] for line in table[2:4]] == [["02:00", "3", "5"], ["05:00", "5", "2"]]
    assert {one["metadata"]["labels"]["fleetcast/policy"] for one in yaml.safe_load_all(text)} == {
        "day_ahead"
    }


def test_the_command_exports_only_safe_formats_of_a_past_day(
    planned: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetcast.assets.lake.settings.load_settings", lambda _: planned)
    arguments = ["plan", "export", "--policy", "day_ahead", "--date", str(DAY), "--region", "east"]
    for acts in ("k8s", "hpa", "capacity-buffer", "ray-serve"):
        refused = CliRunner().invoke(cli_app, [*arguments, "--format", acts])
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "--date: got 2025-07-03, and it is " in " ".join(refused.stderr.split())
    for safe in (["k8s", "--mode", "advisory"], ["keda-scaler"], ["hpa", "--hour", "3"], ["json"]):
        assert CliRunner().invoke(cli_app, [*arguments, "--format", *safe]).exit_code == 0, safe
    empty = CliRunner().invoke(cli_app, [*arguments, "--format", "capacity-buffer", "--hour", "3"])
    assert (empty.exit_code, empty.stdout) == (0, "")
    assert empty.stderr.startswith(
        "Nothing to export: after 03:00 no replica begins to boot within the 5 min"
    )


@pytest.mark.parametrize(
    "options", [["k8s"], ["k8s", "--mode", "advisory"], ["hpa"], ["ray-serve"], ["keda-scaler"], ["json"]]
)
def test_each_format_says_what_must_flow_where_a_region_serves_none(
    planned: RunSettings, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    """East ends one llm with the first hour, which is exported too, and never runs another."""
    today = datetime.now(UTC).date()
    rows = plan_rows(planned, today, "day_ahead", [2] * 24)
    for row in rows:
        if row["served_region"] == "east" and row["llm"] != "bloom-176b":
            has_run = row["llm"] == "llama2-70b" and row["hour_start"].hour == 0
            row["instances_before"] = 2 if has_run else 0
            row |= {"instances": 0, "demand_tokens_per_s": 100.0}
    table = pa.Table.from_pylist(rows, schema=SCHEMAS["plans"])
    planned.lake.write("day_ahead_plans", table, trace=planned.trace, day=today)
    monkeypatch.setattr("fleetcast.assets.lake.settings.load_settings", lambda _: planned)
    arguments = ["plan", "export", "--policy", "day_ahead", "--date", str(today), "--region", "east"]
    printed = CliRunner().invoke(cli_app, [*arguments, "--format", *options])
    assert printed.exit_code == 0, printed.stderr
    flows = describe_region_exports(planned, read_plan_rows(planned, today, "day_ahead", "east"))
    assert flows.startswith("flows    24 hours serve less than the demand of east: ")
    assert " ".join(printed.stderr.split()).startswith(" ".join(flows.split()))
    assert "llama2-70b" in printed.stdout.replace("_", "-")


def test_the_command_exports_tomorrow_over_today(
    planned: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the evening: tomorrow's file holds today's 7 replicas until midnight."""
    today = datetime.now(UTC).date()
    for day, counts in ((today, [7] * 24), (today + timedelta(days=1), [2] * 24)):
        write_plan(planned, day, counts)
    monkeypatch.setattr("fleetcast.assets.lake.settings.load_settings", lambda _: planned)
    arguments = ["plan", "export", "--policy", "day_ahead", "--date", str(day), "--region", "east"]
    printed = CliRunner().invoke(cli_app, [*arguments, "--format", "k8s", "--kubernetes", "1.35"])
    [one, *_] = yaml.safe_load_all(printed.stdout)
    held = [trigger["metadata"] for trigger in one["spec"]["triggers"]]
    midnight_text = f"0 0 {day.day} {day.month} *"
    assert [(each["desiredReplicas"], each["end"]) for each in held[:2]] == [
        ("7", midnight_text),
        (
            "2",
            cron_schedule(midnight(day) + timedelta(hours=23, minutes=50)),
        ),  # the safe level began at 23:49
    ]
    assert held[2]["desiredReplicas"] == "7"
    assert one["metadata"]["labels"]["fleetcast/day"] == str(day)


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
    for text, printed in (
        (number, "entry 1 of t.yaml .* Quote its numbers"),
        ("a: 1", "no list"),
        ("- [", "no YAML"),
    ):
        with pytest.raises(ValueError, match=rf"^--triggers: .*{printed}"):
            parse_custom_triggers(text, "t.yaml")
    printed = CliRunner().invoke(
        cli_app, ["plan", "export", "--format", "k8s", "--mode", "floor", "--triggers", "/no/such.yaml"]
    )
    assert printed.exit_code == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "k8s --hour 5",
            "--hour: --format k8s does not use it. Leave it out, or take hpa or capacity-buffer.",
        ),
        (
            "ray-serve --namespace a",
            "--namespace: --format ray-serve .* k8s, keda-scaler, hpa or capacity-buffer.",
        ),
        ("hpa --node-lead-minutes 7", "--node-lead-minutes: --format hpa .* or take capacity-buffer."),
        ("k8s --scaler a:1", "--scaler: --format k8s does not use it. Leave it out, or take keda-scaler."),
        ("json --mode active", "--mode: --format json does not use it"),
        ("json --question q --region east", "--region: a plan of --question has no day, region or cluster."),
    ],
)
def test_an_option_that_a_format_does_not_use_is_refused(options: str, message: str) -> None:
    done = CliRunner().invoke(cli_app, ["plan", "export", "--format", *options.split()])
    assert done.exit_code == 2
    assert re.search(message, " ".join(done.stderr.split()))
