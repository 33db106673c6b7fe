"""The external scaler under load: a process of its own, called over gRPC; and its rule on metrics alone."""

import asyncio
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import grpc
import numpy as np
from handed import write_plan
from measure import ROOT, Figures, Target, cpu_seconds
from small import small_config

from fleetcast.assets.lake.settings import RunSettings, load_settings
from fleetcast.assets.plans.cluster_workloads import workload_names
from fleetcast.assets.plans.keda_messages import MESSAGE_CLASSES, SERVICE
from fleetcast.assets.plans.observed_load_metrics import ObservedLoad
from fleetcast.assets.replays.compact_schedule import CompactRule
from fleetcast.assets.replays.live_replicas import SHOWN_STEPS, live_replicas

DAY = date(2025, 7, 3)
LLMS, POOLS_OF_LLM = 100, 4  # of the rule on metrics
RATE, SECONDS = 200, 20  # calls per second
SERVED_WITHIN_S = 60.0  # the last plan
REWRITES_S = 4.0  # so often a new plan is written while it answers
TARGETS = {
    "live_scaler_p99_ms": Target(
        "ms",
        f"GetMetrics at {RATE} calls/s for {SECONDS} s, a new plan every {REWRITES_S:g} s; from when a call "
        "was due; wall",
        at_most=20.0,
    ),
    "live_scaler_stale_seconds": Target(
        "s", "the same: the longest from a new plan in the lake until it is what is served", at_most=60.0
    ),
    "live_rule_ms": Target(
        "ms", f"the rule compact on ten minutes of metrics of {LLMS * POOLS_OF_LLM} pools; CPU", at_most=50.0
    ),
}
SERVER = """
import asyncio, sys
from datetime import UTC, datetime
from fleetcast.assets.lake.settings import load_settings
from fleetcast.assets.plans.keda_scaler import KedaScaler, run_scaler_server
from fleetcast.assets.plans.current_plan import CurrentPlan
noon = datetime(2025, 7, 3, 12, tzinfo=UTC)
plan = CurrentPlan(load_settings(sys.argv[1], sys.argv[2]), "day_ahead", lambda: noon)
scaler = KedaScaler(plan, lambda line: None)
asyncio.run(run_scaler_server(scaler, "127.0.0.1:0", lambda port: print(port, flush=True)))
"""


def under_load() -> Figures:
    """Latency of an answer, and how old it may be."""
    with tempfile.TemporaryDirectory() as folder:
        config, lake = small_config(Path(folder)), Path(folder) / "lake"
        settings = load_settings(config, lake)
        write_plan(settings, DAY, [settings.config.fleet.min_instances] * 24)
        server = subprocess.Popen(
            [sys.executable, "-c", SERVER, config, str(lake)], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            late_s, stale_s = asyncio.run(measure_calls(settings, port))
        finally:
            server.terminate()
            server.wait(10)
    return {
        "live_scaler_p99_ms": 1e3 * float(np.quantile(late_s, 0.99)),
        "live_scaler_stale_seconds": max(stale_s),
    }


async def measure_calls(settings: RunSettings, port: int) -> tuple[list[float], list[float]]:
    """Seconds that each call took, from when it was due, and until each plan but the last was served."""
    kind = ("bloom-176b", "h100-80gb", 8, "whole")
    metadata = {"region": "east", "llm": kind[0], "gpu": kind[1], "gpusPerInstance": "8", "role": "whole"}
    ref = MESSAGE_CLASSES["ScaledObjectRef"](
        name=workload_names([kind])[0], namespace="default", scalerMetadata=metadata
    )
    request = MESSAGE_CLASSES["GetMetricsRequest"](scaledObjectRef=ref, metricName="fleetcast")
    late_s: list[float] = []
    least = settings.config.fleet.min_instances  # no plan is served below it
    written, seen = {least: time.perf_counter()}, dict[int, float]()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(
            f"/{SERVICE}/GetMetrics",
            request_serializer=MESSAGE_CLASSES["GetMetricsRequest"].SerializeToString,
            response_deserializer=MESSAGE_CLASSES["GetMetricsResponse"].FromString,
        )
        await call(request)  # the connection

        async def one(due: float) -> None:
            answer = await call(request)
            now = time.perf_counter()
            late_s.append(now - due)
            seen.setdefault(answer.metricValues[0].metricValue, now)

        async def rewrite() -> None:
            for count in range(least + 1, least + int(SECONDS / REWRITES_S)):
                await asyncio.sleep(REWRITES_S)
                await asyncio.to_thread(write_plan, settings, DAY, [count] * 24)
                written[count] = time.perf_counter()

        begun = time.perf_counter()
        calls = []
        rewriting = asyncio.create_task(rewrite())
        for n in range(RATE * SECONDS):
            due = begun + n / RATE
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            calls.append(asyncio.create_task(one(due)))
        await asyncio.gather(*calls, rewriting)
        last = max(written)
        until = time.perf_counter() + SERVED_WITHIN_S
        while last not in seen:
            if time.perf_counter() > until:
                raise TimeoutError(f"the plan of {last} replicas is not served; seen: {sorted(seen)}")
            await one(time.perf_counter())
            await asyncio.sleep(0.1)
    # a plan that was replaced before it was looked at is as old as the one that was seen after it
    stale_s = [min(at for later, at in seen.items() if later >= n) - written[n] for n in written]
    return late_s, stale_s


def on_metrics() -> Figures:
    """CPU time of the replicas of all pools from series of ten minutes; the least of five repeats."""
    rng, pools, instants = np.random.default_rng(7), LLMS * POOLS_OF_LLM, 40 + SHOWN_STEPS
    capacity, shares = np.full(pools, 1000.0), np.tile([[0.5], [0.75], [0.875], [1.0]], pools)
    limits, held = (np.zeros(pools, np.int64), np.full(pools, 40)), np.full(pools, 40)
    rule = CompactRule(np.repeat(np.arange(LLMS), POOLS_OF_LLM), shares, capacity, capacity, *limits, held)
    arriving = 30_000.0 * rng.random((LLMS, instants))
    waiting = rng.integers(0, 9, (LLMS, instants)).astype(float)
    load = ObservedLoad(arriving, waiting, np.full_like(waiting, 500.0), np.ones((pools, instants)))
    return {"live_rule_ms": 1e3 * cpu_seconds(lambda: live_replicas(load, rule, 60.0), repeats=5)}


FUNCTIONS = [under_load, on_metrics]
SMOKE = {"under_load": {"RATE": 20, "SECONDS": 2, "REWRITES_S": 1.0}, "on_metrics": {"LLMS": 3}}
