"""Chains of legs: prefill and decode apart, cascades, many pools; and what they cost a replay without any."""

import io
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from measure import ROOT, Figures, Skipped, Target, cpu_seconds, run_fresh
from replay import REQUESTS_PER_S, largest_difference
from workloads import INSTANCES, LLM, endpoint_trace, setting

from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.run import Schedule
from fleetcast.models.replay.run import replay_trace as play
from fleetcast.models.replay.session.fleet_arrays import make_fleet
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.world.catalogue_entries import Region
from fleetcast.models.world.fleet_config import Deployment

BEFORE = "5f1a6f4"  # the last commit whose requests had one leg each
REQUESTS, LEAPT = 1_000_000, 100_000
LINK_GBIT_PER_S = 25.0
PREFILLING, DECODING = 20, 40
APART_PER_S = REQUESTS_PER_S * DECODING / INSTANCES  # an instance that decodes has as many as in `replay`
GPU, GPUS = "h100-80gb", 2
SECOND_LLM, GO_ON_SHARE, JUDGE_S = "llama3.1-8b", 0.3, 0.05
TARGETS = {
    "legs_mixed_speed_ratio": Target(
        "x",
        f"1 million whole requests at 60 instances: speed over that of {BEFORE}; CPU, best of 3 each",
        at_least=0.95,
    ),
    "legs_mixed_same_bits": Target("", "the same: 1 if every time is the same to the last bit", at_least=1.0),
    "legs_disaggregated_requests_per_s": Target(
        "requests/s",
        "1 million requests at 33/s, 20 prefill and 40 decode instances, 25 Gb/s; CPU",
        at_least=0.7e6,
    ),
    "legs_disaggregated_events": Target("", "the same: events a request", at_most=7.5),
    "legs_leap_over_step": Target(
        "x", "the same, 100,000 requests, playing every step over leaping; CPU", at_least=3.0
    ),
    "legs_leap_step_difference": Target(
        "", "the same: largest relative difference of any time", at_most=1e-9
    ),
    "legs_cascade_requests_per_s": Target(
        "requests/s", "1 million requests, 30 % of which go on to a second llm; CPU", at_least=0.5e6
    ),
    "legs_pools_growth": Target("x", "24 pools of 5 instances over 2 of 60; CPU, best of 3", at_most=1.5),
}


def fleet_of(pools: dict[str, tuple[Deployment, ...]]) -> FleetArrays:
    """One region with room for all these pools, each as large as it says, always serving."""
    catalogue, config = setting()
    here = Region(("here",), {}, {GPU: 100_000}, tuple(pools), "the one region of a benchmark")
    alone = replace(catalogue, llms={name: catalogue.llms[name] for name in pools}, regions={"here": here})
    fleet = replace(config.fleet, deployments=pools, link_gbit_per_s=LINK_GBIT_PER_S)
    return make_fleet(alone, fleet, config.replay, seed=0)


def pool(instances: int, role: str = "whole", gpus: int = GPUS) -> Deployment:
    """So many instances that always serve."""
    sizes = dict.fromkeys(("instances_at_start", "min_instances", "max_instances"), instances)
    return Deployment(GPU, gpus, role, **sizes)


def rules_of(llms: int = 1, leap: bool = True) -> Rules:
    """The shipped rules without scaling, and thresholds of a judge that lets some requests go on."""
    catalogue, config = setting()
    rules = make_rules(catalogue, config.replay, "follow", leap=leap)
    return rules._replace(go_on_below=np.full(llms, GO_ON_SHARE), judge_s=np.full(llms, JUDGE_S))


def play_all(trace: TraceArrays, fleet: FleetArrays, rules: Rules) -> Outcome:
    """Replay on a fleet that does not scale."""
    until_s = float(trace.arrival_s[-1]) + 1.0
    drive = Schedule(np.diff(fleet.slots)[None], start=np.diff(fleet.slots), hour_s=until_s)
    return play(trace, fleet, drive, rules, until_s)


def mixed() -> Figures:
    """The same million requests before legs and now: the same bits, and how fast."""
    try:
        packed = subprocess.run(["git", "archive", BEFORE], cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise Skipped(f"commit {BEFORE} is not at hand; clone the whole history") from error
    by_tree: dict[Path, tuple[list[float], str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as tree:
            tree.extractall(folder, filter="data")
        for _ in range(3):  # in turns, so that a slow minute hits both
            for tree in (Path(folder), ROOT):
                seconds, digest = run_fresh(
                    sys.executable, "-c", MILLION if tree == ROOT else OLD, cwd=tree
                ).split()
                by_tree.setdefault(tree, ([], digest))[0].append(float(seconds))
    (before, old), (now, new) = by_tree.values()
    return {"legs_mixed_speed_ratio": min(before) / min(now), "legs_mixed_same_bits": float(old == new)}


MILLION = """
import hashlib, sys
sys.path[:0] = ["", "tests/bench"]
from measure import cpu_seconds
from replay import REQUESTS_PER_S
from workloads import INSTANCES, endpoint_fleet, endpoint_trace, play_endpoint, setting
from fleetcast.models.replay.session.rules import make_rules
trace, fleet = endpoint_trace(1_000_000, REQUESTS_PER_S), endpoint_fleet(INSTANCES)
catalogue, config = setting()
rules, outcomes = make_rules(catalogue, config.replay, "follow"), []
play_endpoint(endpoint_trace(10, REQUESTS_PER_S), fleet, rules)
seconds = cpu_seconds(lambda: outcomes.append(play_endpoint(trace, fleet, rules)), 2)
times = outcomes[0].first_token_s.tobytes() + outcomes[0].finish_s.tobytes()
print(seconds, hashlib.sha256(times).hexdigest())
"""
NOW, THEN = "fleetcast.models.replay.session.rules", "models.replay.fleet"  # THEN: at BEFORE
OLD = MILLION.replace(NOW, THEN)


def apart() -> Figures:
    """Prefill and decode on instances of their own, leapt and stepped."""
    fleet = fleet_of({LLM: (pool(PREFILLING, "prefill"), pool(DECODING, "decode"))})
    trace, fewer = (endpoint_trace(size, APART_PER_S) for size in (REQUESTS, LEAPT))
    leap, step = rules_of(), rules_of(leap=False)
    leapt, stepped = (play_all(fewer, fleet, rules) for rules in (leap, step))  # compiles
    leapt_s, stepped_s = (cpu_seconds(partial(play_all, fewer, fleet, rules), 2) for rules in (leap, step))
    outcomes: list[Outcome] = []
    spent = cpu_seconds(lambda: outcomes.append(play_all(trace, fleet, leap)), 2)
    return {
        "legs_disaggregated_requests_per_s": REQUESTS / spent,
        "legs_disaggregated_events": outcomes[0].events / REQUESTS,
        "legs_leap_over_step": stepped_s / leapt_s,
        "legs_leap_step_difference": largest_difference(leapt, stepped),
    }


def cascade() -> Figures:
    """Requests that a small llm answers first; those that are judged too poor go on to a larger one."""
    fleet = fleet_of({SECOND_LLM: (pool(30, gpus=1),), LLM: (pool(INSTANCES),)})._replace(has_transfers=True)
    trace, rules = chained(endpoint_trace(REQUESTS, REQUESTS_PER_S)), rules_of(llms=2)
    play_all(chained(endpoint_trace(10, 1.0)), fleet, rules)  # compiles
    spent = cpu_seconds(lambda: play_all(trace, fleet, rules), 2)
    return {"legs_cascade_requests_per_s": REQUESTS / spent}


def chained(trace: TraceArrays) -> TraceArrays:
    """Each request with a second leg on the other llm, behind the first, and a score uniform in 0 to 1."""
    rows = 2 * trace.arrival_s.size
    leg = np.arange(rows) % 2
    twice = TraceArrays(*(np.repeat(column, 2) for column in trace[:6]))
    return twice._replace(
        llm=leg.astype(np.int16),
        then=np.where(leg == 0, np.arange(rows) + 1, NO_INDEX).astype(np.int32),
        leg=leg.astype(np.int8),
        score=np.random.default_rng(2).uniform(size=rows).astype(np.float32),
    )


def pools() -> Figures:
    """The same 120 instances as 2 pools and as 24, at the same load."""
    trace, rules = endpoint_trace(REQUESTS, 2 * REQUESTS_PER_S), rules_of()
    fleets = [fleet_of({LLM: (pool(120 // count),) * count}) for count in (2, 24)]
    play_all(endpoint_trace(10, 1.0), fleets[0], rules)  # compiles
    few_s, many_s = (cpu_seconds(partial(play_all, trace, fleet, rules), repeats=3) for fleet in fleets)
    return {"legs_pools_growth": many_s / few_s}


FUNCTIONS = (mixed, apart, cascade, pools)
SMOKE = {name: {"REQUESTS": 1000, "LEAPT": 300} for name in ("apart", "cascade", "pools")}
