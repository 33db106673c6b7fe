"""The scaler as a process of its own: killed and started again, with its lake away and back."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cluster_parts import free_port
from handed import write_plan
from small import small_config

from fleetcast.assets.lake.settings import load_settings, midnight
from fleetcast.assets.plans import current_plan
from fleetcast.assets.plans.current_plan import CurrentPlan
from fleetcast.assets.plans.keda_messages import CALLS, MESSAGE_CLASSES, SERVICE

DAY, SOON_S = date(2025, 7, 3), 60.0
FLOOR = 9  # as no hour of the plan
COUNTS = [*range(2, 9), *range(10, 27)]  # every hour has its own
SERVER = """
import asyncio, sys
from datetime import datetime
from pathlib import Path
from fleetcast.assets.lake.settings import load_settings, midnight
from fleetcast.assets.plans import keda_scaler
from fleetcast.assets.plans.current_plan import CurrentPlan
keda_scaler.REFRESH_S = 0.05
clock = lambda: datetime.fromisoformat(Path(sys.argv[4]).read_text())
plan = CurrentPlan(load_settings(sys.argv[1], sys.argv[2]), "day_ahead", clock)
scaler = keda_scaler.KedaScaler(plan, lambda line: print(line, flush=True))
asyncio.run(keda_scaler.run_scaler_server(scaler, sys.argv[3], lambda port: print("serving", flush=True)))
"""


class ScalerProcess:
    """A scaler that is started and killed, with a clock that the test sets; `log` is what it has printed."""

    def __init__(self, config: str, lake: Path, log: Path) -> None:
        self.address, self.clock, self.log = f"127.0.0.1:{free_port()}", log.with_name("clock"), log
        self.command = [sys.executable, "-c", SERVER, config, str(lake), self.address, str(self.clock)]
        log.touch()

    def set_clock(self, hour: int, minute: int) -> None:
        now = midnight(DAY) + timedelta(hours=hour, minutes=minute)
        written = self.clock.with_name("clock.new")
        written.write_text(now.isoformat())
        written.replace(self.clock)

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=self.log.open("a"), stderr=subprocess.STDOUT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def wait_for(self, text: str, times: int) -> None:
        until = time.monotonic() + SOON_S
        while self.log.read_text().count(text) < times and time.monotonic() < until:
            time.sleep(0.02)
        assert self.log.read_text().count(text) == times, self.log.read_text()


@pytest.fixture
def scaler(tmp_path: Path) -> Iterator[ScalerProcess]:
    config, lake = small_config(tmp_path), tmp_path / "lake"
    write_plan(load_settings(config, lake), DAY, COUNTS)
    process = ScalerProcess(config, lake, tmp_path / "log")
    process.set_clock(3, 0)
    process.start()
    yield process
    process.kill()


def caller(address: str) -> Callable[[], int]:
    """A client with one connection, as KEDA has; it waits until the server answers."""
    takes, gives, _ = CALLS["GetMetrics"]
    call = grpc.insecure_channel(address, options=(("grpc.max_reconnect_backoff_ms", 200),)).unary_unary(
        f"/{SERVICE}/GetMetrics",
        request_serializer=MESSAGE_CLASSES[takes].SerializeToString,
        response_deserializer=MESSAGE_CLASSES[gives].FromString,
    )
    metadata = {"region": "east", "llm": "bloom-176b", "gpu": "h100-80gb", "gpusPerInstance": "8"}
    metadata |= {"role": "whole", "floor": str(FLOOR)}
    reference = MESSAGE_CLASSES["ScaledObjectRef"](name="n", namespace="d", scalerMetadata=metadata)
    request: Any = MESSAGE_CLASSES[takes](scaledObjectRef=reference, metricName="fleetcast")
    return lambda: int(call(request, timeout=SOON_S, wait_for_ready=True).metricValues[0].metricValue)


def test_a_scaler_survives_a_lake_that_is_away_and_its_own_restart(
    scaler: ScalerProcess, tmp_path: Path
) -> None:
    """The clock goes on, also while the lake is away: each answer is the count of its own hour."""
    replicas = caller(scaler.address)
    for hour in (3, 4):
        scaler.set_clock(hour, 10)
        assert replicas() == COUNTS[hour]
    (tmp_path / "lake").rename(tmp_path / "away")
    (tmp_path / "lake").mkdir()  # as an empty mount point
    scaler.wait_for("The lake cannot be read; the last plan stays in use: ", 1)
    time.sleep(0.2)  # four more reads
    for hour, minute, counted in ((4, 48, 4), (4, 49, 5), (5, 10, 5)):  # 11 minutes ahead of the hour
        scaler.set_clock(hour, minute)
        assert replicas() == COUNTS[counted]
    scaler.kill()
    scaler.start()
    scaler.wait_for("serving", 2)
    assert replicas() == FLOOR  # the plan is not known
    scaler.wait_for("The lake cannot be read", 2)
    scaler.set_clock(6, 10)
    (tmp_path / "lake").rmdir()
    (tmp_path / "away").rename(tmp_path / "lake")
    scaler.wait_for("The lake can be read again.", 1)
    assert [replicas(), caller(scaler.address)()] == [COUNTS[6]] * 2  # also to a KEDA that has restarted
    scaler.set_clock(7, 10)
    assert replicas() == COUNTS[7]


def test_a_lake_that_goes_away_while_it_is_read_keeps_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(small_config(tmp_path), tmp_path / "lake")
    write_plan(settings, DAY, COUNTS)
    plan = CurrentPlan(settings, "day_ahead", lambda: midnight(DAY))
    assert plan.refresh()
    known = plan.workloads
    write_plan(settings, DAY, COUNTS[::-1])

    def go_away(*folders: Any) -> set[str]:
        found = current_plan_folders(*folders)
        (tmp_path / "lake").rename(tmp_path / "away")
        return found

    current_plan_folders = current_plan.folders_with_rows
    monkeypatch.setattr(current_plan, "folders_with_rows", go_away)
    assert not plan.refresh()
    assert known
    assert plan.workloads == known
