"""The replay: requests per second, leaping against stepping, start-up, and a week of the whole fleet."""

import dataclasses
import sys
import tempfile
from functools import partial

import numpy as np
from measure import Figures, Target, cpu_seconds, cpu_seconds_of, peak_gb
from workloads import (
    DAY_S,
    HOUR_S,
    INSTANCES,
    endpoint_fleet,
    endpoint_trace,
    office_week,
    play_endpoint,
    setting,
    to_trace,
)

from fleetcast.models.aliases import Floats
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.fleet_arrays import make_fleet
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.trials.capacity import measure_capacity_tokens_per_s
from fleetcast.models.world.mechanisms import Ending

REQUESTS_PER_S = 50.0  # to 60 instances: a third of their KV memory is in use, TTFT p95 is half a second
LIGHT_PER_S, HEAVY_PER_S = 10.0, 70.0  # a twentieth and half of it
CHUNK_TOKENS = 2048  # the budget of a step
REQUESTS, LEAPT, WEEK_REQUESTS = 1_000_000, 100_000, 10_000_000
ENDLESS_GPUS = 1_000_000  # so that no region is too small for the requested instances
WINDOW_S = 900.0  # a plan's load is the largest quarter of an hour
TARGETS = {
    "replay_endpoint_requests_per_s": Target(
        "requests/s",
        "1 million requests, 60 instances, one endpoint, prefill first; CPU, best of 3",
        at_least=1e6,
    ),
    "replay_chunked_slowdown": Target(
        "x", "the same with chunked prefill, 2,048 tokens a step, over it; CPU, best of 3", at_most=3.0
    ),
    "replay_leap_over_step": Target(
        "x", "the same kernel playing every decode step, 50 requests/s; CPU, best of 3", at_least=3.0
    ),
    "replay_leap_over_step_light": Target("x", "the same at 10 requests/s: small batches, many steps"),
    "replay_leap_over_step_heavy": Target("x", "the same at 70 requests/s: large batches share their steps"),
    "replay_leap_step_difference": Target("", "largest relative difference of any time", at_most=1e-9),
    "replay_cold_compile_seconds": Target(
        "s", "a process to the end of a first replay, nothing compiled; CPU", at_most=60.0
    ),
    "replay_warm_start_seconds": Target("s", "the same once more; CPU, best of 3", at_most=2.0),
    "replay_week_seconds": Target(
        "s", "10 million office requests, 3 regions x 4 llms, 3 tiers, LT-UA; CPU", at_most=60.0
    ),
    "replay_week_peak_gb": Target("GB", "the same, with making the trace", at_most=4.0),
    "replay_week_finished_share": Target("", "the same: requests that finished", at_least=0.999),
    "replay_instances_ratio": Target(
        "x", "the same with 200 instances per endpoint over 20, serving as planned", at_most=2.0
    ),
    "replay_serving_instances_ratio": Target(
        "x", "the same with all 200 serving all the time over all 20", at_most=2.0
    ),
}


def endpoint() -> Figures:
    """1 million requests at one endpoint of 60 instances, with whole prompts and with chunked ones."""
    trace, fleet = endpoint_trace(REQUESTS, REQUESTS_PER_S), endpoint_fleet(INSTANCES)
    catalogue, config = setting()
    rules = make_rules(catalogue, config.replay, "follow")
    chunking = endpoint_fleet(INSTANCES, batching="chunked", max_prefill_tokens=CHUNK_TOKENS)
    play_endpoint(endpoint_trace(10, REQUESTS_PER_S), fleet, rules)  # compiles
    whole_s, chunked_s = (
        cpu_seconds(partial(play_endpoint, trace, one, rules), repeats=3) for one in (fleet, chunking)
    )
    return {
        "replay_endpoint_requests_per_s": trace.arrival_s.size / whole_s,
        "replay_chunked_slowdown": chunked_s / whole_s,
    }


def leap_over_step() -> Figures:
    """Leaping over decode stretches against playing every step, on the same requests."""
    catalogue, config = setting()
    rules = [make_rules(catalogue, config.replay, "follow", leap=leap) for leap in (True, False)]
    fleet, figures, difference = endpoint_fleet(INSTANCES), {}, 0.0
    for load, requests_per_s in (("", REQUESTS_PER_S), ("_light", LIGHT_PER_S), ("_heavy", HEAVY_PER_S)):
        trace = endpoint_trace(LEAPT, requests_per_s)
        difference = max(difference, largest_difference(*(play_endpoint(trace, fleet, r) for r in rules)))
        leapt_s, stepped_s = (cpu_seconds(partial(play_endpoint, trace, fleet, r), 3) for r in rules)
        figures[f"replay_leap_over_step{load}"] = stepped_s / leapt_s
    return {**figures, "replay_leap_step_difference": difference}


def largest_difference(a: Outcome, b: Outcome) -> float:
    """The largest relative difference of any request's first token or finish."""
    pairs = ((a.first_token_s, b.first_token_s), (a.finish_s, b.finish_s))
    return max(float(np.max(np.abs(x - y) / y)) for x, y in pairs)


def start_up() -> Figures:
    """A first replay with nothing compiled, then the same in a new process."""
    with tempfile.TemporaryDirectory() as cache:
        command = (sys.executable, "-c", FIRST_REPLAY, cache)
        cold_s = cpu_seconds_of(*command)
        warm_s = min(cpu_seconds_of(*command) for _ in range(3))
    return {"replay_cold_compile_seconds": cold_s, "replay_warm_start_seconds": warm_s}


# compiled.py names the cache folder when it is imported: only then can another one be put in its place.
FIRST_REPLAY = """
import sys, numba, fleetcast.models.replay.compiled
numba.config.CACHE_DIR = sys.argv[1]
sys.path.insert(0, "tests/bench")
from workloads import endpoint_fleet, endpoint_trace, play_endpoint, setting
from fleetcast.models.replay.session.rules import make_rules
catalogue, config = setting()
play_endpoint(endpoint_trace(10, 1.0), endpoint_fleet(2), make_rules(catalogue, config.replay, "follow"))
"""


def week() -> Figures:
    """10 million office requests in a week under LT-UA, with 20 and with 200 instances per endpoint."""
    trace = to_trace(list(office_week(WEEK_REQUESTS)))
    load = hourly_load(trace)
    needed = np.ceil(load / capacities(trace)[:, None])
    planned_s, outcome = week_cpu_seconds(trace, load, needed, instances=20)
    peak = peak_gb()
    more_s, _ = week_cpu_seconds(trace, load, needed, instances=200)
    all_20_s, all_200_s = (
        week_cpu_seconds(trace, load, np.full_like(load, instances), instances)[0] for instances in (20, 200)
    )
    return {
        "replay_week_seconds": planned_s,
        "replay_week_peak_gb": peak,
        "replay_week_finished_share": float(np.mean(outcome.status == Ending.FINISHED)),
        "replay_instances_ratio": more_s / planned_s,
        "replay_serving_instances_ratio": all_200_s / all_20_s,
    }


def week_cpu_seconds(
    trace: TraceArrays, load: Floats, wanted: Floats, instances: int
) -> tuple[float, Outcome]:
    """CPU seconds of the week at endpoints of up to so many instances, and what came of it."""
    catalogue, config = setting()
    regions = {
        name: dataclasses.replace(region, cap_gpus=dict.fromkeys(region.cap_gpus, ENDLESS_GPUS))
        for name, region in catalogue.regions.items()
    }
    sized = dataclasses.replace(config.fleet, instances_at_start=instances, max_instances=instances)
    catalogue = dataclasses.replace(catalogue, regions=regions)
    fleet = make_fleet(catalogue, sized, config.replay, config.trace.seed)
    rules = make_rules(catalogue, config.replay, "lt_ua")
    drive = Schedule(np.clip(wanted, sized.min_instances, instances), load)
    outcomes: list[Outcome] = []
    spent = cpu_seconds(lambda: outcomes.append(replay_trace(trace, fleet, drive, rules, 7 * DAY_S)))
    return spent, outcomes[0]


def is_interactive() -> np.ndarray:
    """Of each tier, shape (tiers,)."""
    return np.array([not tier.is_held for tier in setting()[0].tiers.values()])


def hourly_load(trace: TraceArrays) -> Floats:
    """Interactive input tokens/s in the largest quarter of each hour, shape (hours, llms, regions)."""
    catalogue, _ = setting()
    shape = (int(7 * DAY_S / WINDOW_S), len(catalogue.llms), len(catalogue.regions))
    cell = ((trace.arrival_s // WINDOW_S).astype(np.int64), trace.llm, trace.region)
    weights = np.where(is_interactive()[trace.tier], trace.input_tokens, 0)
    tokens = np.bincount(np.ravel_multi_index(cell, shape), weights, int(np.prod(shape))).reshape(shape)
    return tokens.reshape(-1, int(HOUR_S / WINDOW_S), *shape[1:]).max(axis=1) / WINDOW_S


def capacities(trace: TraceArrays) -> Floats:
    """Input tokens/s that an instance of each llm sustains, shape (llms,), from the first of its requests."""
    catalogue, config = setting()
    sustained = []
    for code, llm in enumerate(catalogue.llms):
        own = np.flatnonzero((trace.llm == code) & is_interactive()[trace.tier])[:20_000]
        mix = trace.input_tokens[own], trace.output_tokens[own]
        sustained.append(
            measure_capacity_tokens_per_s(llm, *config.fleet.deployments[llm], catalogue, config, *mix)
        )
    return np.array(sustained)


FUNCTIONS = (endpoint, leap_over_step, start_up, week)
SMOKE = {"endpoint": {"REQUESTS": 2000}, "leap_over_step": {"LEAPT": 500}, "week": {"WEEK_REQUESTS": 3000}}
