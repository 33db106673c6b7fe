"""Hypothesis strategies: small fleets and traces on a binary time grid, so that ties really happen."""

import numpy as np
from hypothesis import strategies as st

from models.latency import LatencyTables
from models.replay.pools import POOLINGS
from models.replay.scale import SCALINGS
from models.replay.state import ALL_STEPS, Fleet, Rules, Trace
from models.world.config import BATCHINGS, ORDERS, ROUTINGS

GRID_S = 0.25
LLMS, REGIONS, HOURS, HOUR_S = 2, 2, 2, 64.0
ENDPOINTS = LLMS * REGIONS
POOLED = ("reactive", "chiron", "hpa")  # rules that need no plan, so that they run on any pools


def binary_latency(max_batch: int) -> LatencyTables:
    """Two llms whose every latency is a multiple of 1/1024 s, so that sums are exact in any order.

    The second one's steps and prefills last whole grid cells: its instances keep meeting at one instant.
    """
    knots = np.array([[0.0, 8.0, 16.0, 32.0], [0.0, 8.0, 16.0, 32.0]])
    seconds = np.array([[0.5, 0.5, 1.0, 2.5], [0.25, 0.25, 0.25, 0.25]])
    slope = np.hstack([np.diff(seconds) / np.diff(knots), [[3 / 32], [0.0]]])
    batch = np.arange(max_batch + 1)
    decode = np.vstack([0.25 + batch / 8, 0 * batch + GRID_S])
    return LatencyTables(knots, seconds, slope, decode, np.vstack([batch / 1024, 0 * batch / 1.0]))


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """Two llms in two regions, with little memory and few GPUs, so that every limit is met."""
    pooling = draw(st.sampled_from(["unified", "unified", "siloed", "chiron"]))
    pools, shares = (np.array(column) for column in zip(*POOLINGS[pooling], strict=True))
    endpoints = pools.size * ENDPOINTS
    most = draw(st.integers(2, 4))
    least = draw(st.integers(0, 1))
    at_start = draw(st.integers(1, most))
    block_tokens = draw(st.sampled_from([1, 4, 8]))
    preference = draw(st.sampled_from([[[0, 1], [1, 0]], [[0, 1], [0, 1]], [[0, -1], [1, 0]]]))
    gpus = draw(st.sampled_from([[1, 1], [2, 1], [1, 2]]))
    tight = pools.size * at_start * sum(gpus) + draw(st.integers(0, 3))
    max_batch = 4
    return Fleet(
        slots=np.arange(endpoints + 1) * most,
        endpoint=np.repeat(np.arange(endpoints), most),
        llm=np.repeat(np.tile(np.arange(LLMS), pools.size), most * REGIONS),
        pools=pools,
        pool_share=shares,
        kv_block_tokens=block_tokens,
        kv_capacity=np.array(draw(st.sampled_from([[32, 40], [48, 64], [64, 1000]]))),
        gpu=np.zeros(LLMS, np.int64),
        gpus=np.array(gpus),
        cap_gpus=np.full((REGIONS, 1), tight),
        instances_at_start=np.full(endpoints, at_start),
        min_instances=np.full(endpoints, least),
        batching=draw(st.integers(0, len(BATCHINGS) - 1)),
        max_batch=max_batch,
        max_prefill_tokens=draw(st.sampled_from([8, 24])),
        preference=np.array(preference),
        network_s=np.array([[0.0, 0.5], [0.5, 0.0]]),
        boot_cold_s=np.tile([8.0, 8.0, 6.0, 60.0], pools.size),
        boot_spot_s=np.array([1.0, 2.5, 0.75]),
        latency=binary_latency(max_batch),
    )


@st.composite
def rules(draw: st.DrawFn, pools: int) -> Rules:
    """Thresholds that are met often, clocks that tick often."""
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    failures = draw(st.sampled_from([0, 0, 6]))
    scalings = [n for n, name in enumerate(SCALINGS) if pools == 1 or name in POOLED]
    return Rules(
        scaling=draw(st.sampled_from(scalings)),
        routing=draw(st.integers(0, len(ROUTINGS) - 1)),
        order=draw(st.integers(0, len(ORDERS) - 1)),
        allowance_s=np.array([2.0, 5.0, 50.0]),
        tau_p_s=1.0,
        tau_n_s=4.0,
        route_utilisation_share=draw(st.sampled_from([0.25, 0.5, 0.75])),
        scale_out_share=draw(st.sampled_from([0.25, 0.5, 0.75])),
        scale_in_share=draw(st.sampled_from([0.125, 0.25])),
        cooldown_s=draw(st.sampled_from([1.0, 8.0])),
        monitor_s=draw(st.sampled_from([2.0, 16.0])),
        niw_pull_one_share=draw(st.sampled_from([0.5, 0.875])),
        niw_pull_two_share=draw(st.sampled_from([0.25, 0.75])),
        niw_priority_age_s=draw(st.sampled_from([4.0, 1000.0])),
        surge_ratio=2.0,
        slump_ratio=0.5,
        pressure_share=draw(st.sampled_from([0.25, 0.6])),
        correction_s=32.0,
        failure_s=np.sort(rng.integers(0, 400, failures) * GRID_S),
        failure_slot=rng.integers(0, 2 * ENDPOINTS, failures),
        steps_per_event=ALL_STEPS,
    )


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Some dozens of requests in clusters: at the start, in the last part of the hour, about its end.

    The rows come from a drawn seed: lists drawn one by one are mostly too short for anything to queue.
    """
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    size = draw(st.integers(1, 80))
    busy_s = draw(st.sampled_from([4, 16, 30]))
    arrival_s = rng.choice([0.0, 32.0, 60.0], size) + rng.integers(0, busy_s / GRID_S, size) * GRID_S
    return Trace(
        np.sort(arrival_s),
        rng.integers(0, REGIONS, size).astype(np.int16),
        rng.integers(0, LLMS, size).astype(np.int16),
        rng.choice([0, 1, 2, 2], size).astype(np.int16),
        rng.integers(1, 24, size).astype(np.int32),
        rng.integers(1, 16, size).astype(np.int32),
    )


def plans() -> st.SearchStrategy[tuple[list[list[int]], list[list[float]], list[int]]]:
    """(targets, forecasts, start) of HOURS hours."""
    counts = st.lists(st.integers(0, 4), min_size=ENDPOINTS, max_size=ENDPOINTS)
    loads = st.lists(st.sampled_from([0.0, 0.0625, 8.0]), min_size=ENDPOINTS, max_size=ENDPOINTS)
    hours = {"min_size": HOURS, "max_size": HOURS}
    return st.tuples(st.lists(counts, **hours), st.lists(loads, **hours), counts)
