"""The scaler as a process of its own: killed and started again, with its lake away and back."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import grpc
import pytest
from cluster_parts import free_port
from handed import write_plan
from small import small_config

from fleetcast.assets.lake.settings import load_settings
from fleetcast.assets.plans.keda_messages import CALLS, MESSAGE_CLASSES, SERVICE

DAY, SOON_S = date(2025, 7, 3), 60.0
SERVER = """
import asyncio, sys
from datetime import UTC, datetime
from fleetcast.assets.lake.settings import load_settings
from fleetcast.assets.plans import keda_scaler
from fleetcast.assets.plans.current_plan import CurrentPlan
keda_scaler.REFRESH_S = 0.05
now = datetime(2025, 7, 3, 3, tzinfo=UTC)
plan = CurrentPlan(load_settings(sys.argv[1], sys.argv[2]), "day_ahead", lambda: now)
scaler = keda_scaler.KedaScaler(plan, lambda line: print(line, flush=True))
asyncio.run(keda_scaler.run_scaler_server(scaler, sys.argv[3], lambda port: print("serving", flush=True)))
"""


class ScalerProcess:
    """A scaler that is started and killed; `lines` is what it has printed."""

    def __init__(self, config: str, lake: Path, address: str, log: Path) -> None:
        self.command = [sys.executable, "-c", SERVER, config, str(lake), address]
        self.log = log

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
    write_plan(load_settings(config, lake), DAY, [7] * 24)
    (tmp_path / "log").touch()
    process = ScalerProcess(config, lake, f"127.0.0.1:{free_port()}", tmp_path / "log")
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
    metadata |= {"role": "whole", "floor": "9"}
    reference = MESSAGE_CLASSES["ScaledObjectRef"](name="n", namespace="d", scalerMetadata=metadata)
    request: Any = MESSAGE_CLASSES[takes](scaledObjectRef=reference, metricName="fleetcast")
    return lambda: int(call(request, timeout=SOON_S, wait_for_ready=True).metricValues[0].metricValue)


def test_a_scaler_survives_a_lake_that_is_away_and_its_own_restart(
    scaler: ScalerProcess, tmp_path: Path
) -> None:
    replicas = caller(scaler.command[-1])
    assert replicas() == 7
    (tmp_path / "lake").rename(tmp_path / "away")
    (tmp_path / "lake").mkdir()  # as an empty mount point
    scaler.wait_for("The lake cannot be read; the last plan stays in use: ", 1)
    time.sleep(0.2)  # four more reads
    assert replicas() == 7
    scaler.kill()
    scaler.start()
    scaler.wait_for("serving", 2)
    assert replicas() == 9  # the plan is not known: the floor of the trigger
    scaler.wait_for("The lake cannot be read", 2)
    (tmp_path / "lake").rmdir()
    (tmp_path / "away").rename(tmp_path / "lake")
    scaler.wait_for("The lake can be read again.", 1)
    assert [replicas(), caller(scaler.command[-1])()] == [7, 7]  # also to a KEDA that has restarted
