"""The external scaler called as KEDA calls it: the plan, what stands in for it, and what is refused."""

import asyncio
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import hypothesis
import pyarrow as pa
import pytest
import yaml
from handed import write_plan
from hypothesis import given
from hypothesis import strategies as st
from small import small_config
from typer.testing import CliRunner

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import RunSettings, load_settings, midnight
from fleetcast.assets.plans import cluster_formats, keda_scaler
from fleetcast.assets.plans.cluster_workloads import limit_to_config
from fleetcast.assets.plans.current_plan import CurrentPlan
from fleetcast.assets.plans.export_options import ExportOptions
from fleetcast.assets.plans.keda_messages import CALLS, MESSAGE_CLASSES, SERVICE
from fleetcast.assets.plans.keda_scaler import TRIGGER_KEYS, KedaScaler, run_scaler_server
from fleetcast.assets.plans.plan_export import read_plan_rows
from fleetcast.pipelines.cli import cli_app

DAY = date(2025, 7, 3)
COUNTS = [3, 3, 5, 5, 5, 2, *([2] * 17), 4]
METHODS = {"method": '"seasonal_naive"', "methods": '["seasonal_naive", "last_value"]'}
SOON_S = 20.0


def stub(channel: grpc.Channel, call: str) -> Any:
    """A call as a client makes it, as KEDA does."""
    takes, gives, is_stream = CALLS[call]
    make = channel.unary_stream if is_stream else channel.unary_unary
    return make(
        f"/{SERVICE}/{call}",
        request_serializer=MESSAGE_CLASSES[takes].SerializeToString,
        response_deserializer=MESSAGE_CLASSES[gives].FromString,
    )


class Running:
    """A scaler that answers in this process, and a client of it."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings, self.lines, self.moment = settings, list[str](), midnight(DAY)
        self.served = CurrentPlan(settings, "day_ahead", lambda: self.moment)
        self._loop, self._ports = asyncio.new_event_loop(), list[int]()
        is_ready = threading.Event()
        work = run_scaler_server(
            KedaScaler(self.served, self.lines.append),
            "127.0.0.1:0",
            lambda port: (self._ports.append(port), is_ready.set()),
        )
        self._task = self._loop.create_task(work)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert is_ready.wait(SOON_S)
        self.port = self._ports[0]
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        self.exported = self.reference()

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)

    def stop(self) -> None:
        self.channel.close()
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(SOON_S)

    def reference(self, **changed: str | None) -> Any:
        """What KEDA sends of the ScaledObject of bloom in east, which is the one that is exported."""
        rows = read_plan_rows(self.settings, DAY, "day_ahead", "east")
        options = ExportOptions(scaler="s:1")
        one = next(
            iter(
                yaml.safe_load_all(cluster_formats.render_scaler_scaled_objects(self.settings, rows, options))
            )
        )
        metadata = one["spec"]["triggers"][0]["metadata"] | changed
        kept = {name: value for name, value in metadata.items() if value is not None}
        return MESSAGE_CLASSES["ScaledObjectRef"](
            name=one["metadata"]["name"], namespace="default", scalerMetadata=kept
        )

    def ask(self, call: str, request: Any) -> tuple[Any, dict[str, str]]:
        """The answer, and what is reported next to it."""
        answer, made = stub(self.channel, call).with_call(request, timeout=SOON_S)
        return answer, {key.removeprefix("fleetcast-"): value for key, value in made.trailing_metadata()}

    def replicas(self, moment: datetime, **changed: str | None) -> tuple[int, dict[str, str]]:
        self.moment = moment
        request = MESSAGE_CLASSES["GetMetricsRequest"](
            scaledObjectRef=self.reference(**changed), metricName="s0-f"
        )
        answer, sent_metadata = self.ask("GetMetrics", request)
        [value] = answer.metricValues
        assert (value.metricName, value.metricValue) == ("s0-f", value.metricValueFloat)
        return value.metricValue, sent_metadata


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(keda_scaler, "REFRESH_S", 0.05)
    monkeypatch.setattr(keda_scaler, "STREAM_S", 0.05)
    settings = load_settings(small_config(tmp_path, **METHODS), tmp_path / "lake")
    write_plan(settings, DAY, COUNTS)
    found = Running(settings)
    yield found
    found.stop()


def test_the_plan_is_served_with_its_decision_and_a_new_one_soon_after(running: Running) -> None:
    rows = {
        row["hour_start"]: row
        for row in read_plan_rows(running.settings, DAY, "day_ahead", "east")
        if row["llm"] == "bloom-176b"
    }
    for hour, minute, row_of in ((0, 0, 0), (1, 48, 1), (1, 49, 2), (4, 59, 4), (5, 0, 5), (23, 59, 23)):
        wanted = rows[midnight(DAY) + timedelta(hours=row_of)]
        held, sent_metadata = running.replicas(midnight(DAY) + timedelta(hours=hour, minutes=minute))
        assert held == wanted["instances"]
        assert (sent_metadata["state"], sent_metadata["decision"]) == ("planned", wanted["decision_id"])
    spec, _ = running.ask("GetMetricSpec", running.reference())
    [metric] = spec.metricSpecs
    assert (metric.targetSize, metric.targetSizeFloat) == (1, 1.0)
    write_plan(running.settings, DAY, [7] * 24)
    until = time.monotonic() + SOON_S
    while running.replicas(midnight(DAY))[0] != 7 and time.monotonic() < until:
        time.sleep(0.02)
    assert running.replicas(midnight(DAY))[0] == 7


@pytest.mark.parametrize(("count", "limit", "of_day"), [(1, "most", max), (30, "least", min)])
def test_a_plan_of_an_earlier_config_is_served_within_the_limits_of_the_present_one(
    running: Running, count: int, limit: str, of_day: Callable[..., int]
) -> None:
    """Of the scaler and of an exported object; the line says which counts, and what to do."""
    at = midnight(DAY) + timedelta(hours=5)
    held, _ = running.replicas(at)
    assert 1 < held < 30
    fleet = replace(running.settings.config.fleet, max_instances=count, min_instances=count, deployments={
        llm: tuple(replace(pool, max_instances=None, min_instances=None) for pool in pools)
        for llm, pools in running.settings.config.fleet.deployments.items()
    })  # fmt: skip
    changed = replace(running.settings, config=replace(running.settings.config, fleet=fleet))
    rows = read_plan_rows(changed, DAY, "day_ahead", "east")
    limited, line = limit_to_config(changed, rows)
    assert [row["instances"] for row in limited] == [count if row["instances"] else 0 for row in rows]
    assert all(row["usd"] * old["instances"] == pytest.approx(old["usd"] * row["instances"])
               for row, old in zip(limited, rows, strict=True))  # fmt: skip
    planned = of_day(row["instances"] for row in rows if row["llm"] == "bloom-176b")
    assert f"made with another config (bloom-176b in east: {planned}, now at {limit} {count}" in line
    assert limit_to_config(running.settings, rows) == (rows, "")
    idle = [{**row, "instances": 0} for row in rows]
    assert limit_to_config(changed, idle) == (idle, ""), "the plan may use other kinds"
    served = CurrentPlan(changed, "day_ahead", lambda: at)
    served.refresh()
    [key] = [key for key in served.workloads if key[:2] == ("east", "bloom-176b")]
    target = served.replica_target(key, None)
    assert (target.replicas, target.state) == (count, "planned")
    assert target.why.endswith(f"and the config at {limit} {count} now: plan it again")
    west = {key[1]: tuple(replace(pool, regions=("west",)) for pool in fleet.deployments[key[1]])}
    gone = replace(fleet, deployments={**fleet.deployments, **west})
    without = replace(changed, config=replace(changed.config, fleet=gone))
    served = CurrentPlan(without, "day_ahead", lambda: at)
    served.refresh()
    with pytest.raises(ValueError, match="runs no whole instances of bloom-176b"):
        served.replica_target(key, None)


def test_a_step_is_lifted_out_of_the_dead_band_of_an_hpa_and_then_exact(running: Running) -> None:
    """By hand, for 20 to 21 at 02:00, that is at 01:49: 24 is 1.2 of 20, and 21 is 0.875 of it."""
    write_plan(running.settings, DAY, [20] * 2 + [21] * 22)
    running.served.refresh()
    begins = midnight(DAY) + timedelta(hours=1, minutes=49)
    for seconds, value in ((-1, 21), (0, 24), (59, 24), (60, 21), (239, 21), (240, 23), (3600, 23)):
        moment = begins + timedelta(seconds=seconds)
        assert running.replicas(moment, tolerance="0.1")[0] == value, seconds
        steady = 21 if seconds < 0 else 23
        assert running.replicas(moment, tolerance="0.1", exactSteps=None)[0] == steady, seconds
        assert running.replicas(moment, tolerance="0")[0] == (20 if seconds < 0 else 21), seconds


def test_stale_plan_is_followed_one_day_then_floor_is_reported(running: Running) -> None:
    noon = midnight(DAY) + timedelta(hours=3)
    ends = midnight(DAY) + timedelta(days=1)
    for hours, state in ((-0.1, "planned"), (0, "yesterday"), (23.9, "yesterday"), (24, "floor")):
        assert running.replicas(ends + timedelta(hours=hours))[1]["state"] == state
    assert running.replicas(noon + timedelta(days=1))[0] == 5
    assert running.lines[-1].endswith("yesterday 5: no plan has 2025-07-04 03:00: the same hour a day before")
    for floor, held in (("3", 3), (None, 2)):
        found, sent_metadata = running.replicas(noon + timedelta(days=2), floor=floor)
        assert found == held
        assert sent_metadata == {
            "state": "floor",
            "why": "no plan for now: the newest one ends at 2025-07-04 00:00",
            "decision": "",
        }
    assert "default/bloom-176b-h100-80gb  floor 3: no plan for now" in running.lines[-1]
    running.moment = noon + timedelta(days=30)
    running.served.refresh()
    assert running.replicas(running.moment)[1]["why"] == "there is no plan of day_ahead"
    is_active, _ = running.ask("IsActive", running.reference(floor="0"))
    assert not is_active.result


def test_where_the_last_value_was_better_the_floor_is_held(running: Running) -> None:
    """The alarm rings for bloom in east alone."""
    rows = []
    for region, forecast in (("east", 150.0), ("west", 100.0)):
        for method, per_s in (("seasonal_naive", forecast), ("last_value", 110.0)):
            row = dict.fromkeys(SCHEMAS["forecasts"].names)
            row |= {"measure": "input_tokens", "tier": "interactive", "method": method, "region": region}
            row |= {"llm": "bloom-176b", "cutoff": midnight(DAY), "bucket_start": midnight(DAY)}
            rows.append(row | {"bucket_minutes": 15, "forecast_per_s": per_s, "actual_per_s": 100.0})
    tiers = [row | {"tier": "iw_fast", "region": "west"} for row in rows if row["region"] == "east"]
    table = pa.Table.from_pylist([*rows, *tiers], SCHEMAS["forecasts"])  # a plan covers all tiers together
    running.settings.lake.write("forecasts", table, trace=running.settings.trace, day=DAY)
    now = midnight(DAY) + timedelta(hours=2)
    until = time.monotonic() + SOON_S
    while running.replicas(now, floor="2")[0] != 2 and time.monotonic() < until:
        time.sleep(0.02)
    assert running.replicas(now)[1]["why"].startswith("alarm forecasts_beat_last_value: ")
    assert running.replicas(now, region="west", floor="2")[0] == 5
    assert running.replicas(now + timedelta(days=1, hours=22))[1]["why"].startswith("alarm")
    running.moment = now + timedelta(days=3)
    running.served.refresh()
    forgotten = running.replicas(running.moment)[1]["why"]
    assert not forgotten.startswith("alarm")  # nothing is known of how good forecasts are now


def test_stream_reports_at_once_and_on_change(running: Running) -> None:
    write_plan(running.settings, DAY, [0] * 2 + [1] * 22)
    running.served.refresh()
    running.moment = midnight(DAY)
    stream = stub(running.channel, "StreamIsActive")(running.reference(), timeout=SOON_S)
    assert not next(stream).result
    running.moment += timedelta(hours=3)
    assert next(stream).result
    stream.cancel()


def test_a_trigger_that_means_nothing_is_refused_in_one_line(running: Running) -> None:
    for changed, message in (
        ({"llm": None, "role": ""}, "lacks llm, role. Write it by fleetcast plan export"),
        ({"policy": "corrected"}, "this scaler serves that of day_ahead. Start it with --policy corrected"),
        ({"trace": "other"}, "the trace 'other'; this scaler serves 'small'. Start it with the --config"),
        ({"floor": "many"}, "has floor 'many'; it must be a whole number from 0"),
        ({"gpu": "a100-80gb"}, "runs no whole instances of bloom-176b on 8 x a100-80gb in east"),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            running.ask("IsActive", running.reference(**changed))
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert message in refused.value.details()
    written_by_hand = running.reference(trace=None, policy=None, floor=None, tolerance=None)
    assert running.ask("IsActive", written_by_hand)[0].result
    unknown = running.channel.unary_unary("/externalscaler.ExternalScaler/StreamMetricSpec")
    with pytest.raises(grpc.RpcError) as refused:
        unknown(b"", timeout=SOON_S)
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


@given(data=st.data(), call=st.sampled_from([*CALLS]))
@hypothesis.settings(
    max_examples=60, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], deadline=None
)
def test_no_request_forges_a_line_or_an_internal_error(
    running: Running, call: str, data: st.DataObject
) -> None:
    """Bytes that are no message, and any text in any field: refused as wrong, a printable line at most."""
    if data.draw(st.integers(0, 3)) == 0:
        content = data.draw(st.binary(max_size=60))
    else:
        reference = MESSAGE_CLASSES["ScaledObjectRef"]()
        reference.CopyFrom(running.exported)
        names = ("name", "namespace", *TRIGGER_KEYS, "floor", "trace", "policy", "tolerance")
        field = data.draw(st.sampled_from(names))
        wild = st.one_of(
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40),
            st.sampled_from(
                [
                    "x" * 100_000,
                    "1" + "0" * 20,
                    "\u0663",
                    "a\n2025-07-03 00:00  default/x  planned 9",
                    "\x1b[2J",
                ]
            ),
        )
        text = data.draw(wild)
        if field in ("name", "namespace"):
            setattr(reference, field, text)
        else:
            reference.scalerMetadata[field] = text
        message = reference
        if CALLS[call][0] == "GetMetricsRequest":
            message = MESSAGE_CLASSES["GetMetricsRequest"](scaledObjectRef=reference, metricName="s0-f")
        content = message.SerializeToString()
    make = running.channel.unary_stream if CALLS[call][2] else running.channel.unary_unary
    refusal = None
    try:
        answer = make(f"/{SERVICE}/{call}")(content, timeout=SOON_S)
        if CALLS[call][2]:
            next(answer)
            answer.cancel()
    except grpc.RpcError as error:
        refusal = error
    assert refusal is None or refusal.code() == grpc.StatusCode.INVALID_ARGUMENT, refusal
    assert refusal is None or len(refusal.details()) < 1000
    assert all(line.isprintable() and len(line) < 1200 for line in running.lines)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"floor": "1" + "0" * 20}, r"has floor '1000.*; it must be a whole number from 0 to 100,000\."),
        (
            {"region": "r" * 100_000},
            r"region is 'r.* of 100,000 characters; needed at most 253, all printable",
        ),
        ({"llm": "a\nb"}, r"llm is 'a\\nb', of 3 characters"),
        (
            {"tolerance": "0." + "1" * 9000},
            r"tolerance '0\.1{197} \.\.\.; it must be from 0 to below 1, with",
        ),
    ],
)
def test_each_field_of_a_trigger_has_a_limit(running: Running, changed: dict[str, str], message: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        running.ask("IsActive", running.reference(**changed))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert re.search(message, refused.value.details())
    named = running.reference()
    named.name = "x\n2025-07-03 09:00  default/forged  planned 9"
    with pytest.raises(grpc.RpcError) as refused:
        running.ask("IsActive", named)
    assert "default/x\\n2025-07-03 09:00" in running.lines[-1]
    for call in CALLS:
        make = running.channel.unary_stream if CALLS[call][2] else running.channel.unary_unary
        with pytest.raises(grpc.RpcError) as refused:
            list(make(f"/{SERVICE}/{call}")(b"\xff\xff", timeout=SOON_S) or ())
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert f"The request is no {CALLS[call][0]} of KEDA's" in refused.value.details()


def test_messages_are_on_the_wire_what_keda_reads() -> None:
    """Tags and types by hand: number << 3 | wire type, 0 varint, 1 of 8 bytes, 2 with a length."""
    reference = MESSAGE_CLASSES["ScaledObjectRef"](name="a", namespace="b", scalerMetadata={"k": "v"})
    assert reference.SerializeToString().hex() == "0a0161" + "120162" + "1a06" + "0a016b" + "120176"
    spec = MESSAGE_CLASSES["MetricSpec"](metricName="m", targetSize=1, targetSizeFloat=1.0)
    assert spec.SerializeToString().hex() == "0a016d" + "1001" + "19000000000000f03f"
    several = MESSAGE_CLASSES["GetMetricSpecResponse"](metricSpecs=[spec])
    assert several.SerializeToString().hex() == "0a0e" + spec.SerializeToString().hex()
    value = MESSAGE_CLASSES["MetricValue"](metricName="m", metricValue=3, metricValueFloat=3.0)
    assert value.SerializeToString().hex() == "0a016d" + "1003" + "190000000000000840"
    options = MESSAGE_CLASSES["GetMetricsRequest"](scaledObjectRef=reference, metricName="m")
    assert options.SerializeToString().hex() == "0a0e" + reference.SerializeToString().hex() + "12016d"
    assert MESSAGE_CLASSES["IsActiveResponse"](result=True).SerializeToString().hex() == "0801"


def test_two_scalers_do_not_share_a_port(running: Running) -> None:
    """Half of the requests would reach the other one, which may follow another plan."""
    address = f"127.0.0.1:{running.port}"
    second = run_scaler_server(KedaScaler(running.served, running.lines.append), address, lambda port: None)
    with pytest.raises(ValueError, match=f"Cannot listen on {address}"):
        asyncio.run(asyncio.wait_for(second, SOON_S))


def test_invalid_scaler_address_is_refused(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for address, message in (("6000", "needed HOST:PORT"), (f"127.0.0.1:{port}", "Cannot listen on")):
            ended = CliRunner().invoke(cli_app, ["serve", "scaler", "--address", address, "--config", config])
            assert ended.exit_code == 2
            assert message in " ".join((ended.output + ended.stderr).split())
