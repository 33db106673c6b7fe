"""Levels of priority: freeness, moves and ticks of the balancer in the kernel, and `fleetcast levels`."""

import tempfile
from datetime import date
from functools import partial
from pathlib import Path

import numpy as np
from llumnix import LLM as PAPER_LLM
from llumnix import REPLICAS, paper_deployment, paper_trace, play, under
from llumnix import REQUESTS_PER_S as PAPER_PER_S
from measure import Figures, Target, cpu_seconds
from replay import largest_difference
from workloads import INSTANCES, LLM, endpoint_trace, setting

from fleetcast.assets.lake.settings import Progress, build_settings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.studies.level_search import LevelsQuery, try_levels
from fleetcast.assets.traces.request_days import canonical_requests
from fleetcast.models.replay.kernel_inputs import FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import MOVE_ABORTED
from fleetcast.models.traffic.priority_levels import draw_levels
from fleetcast.models.traffic.synthetic_days import office_day
from fleetcast.models.traffic.trace_columns import TraceNames
from fleetcast.models.world.mechanisms import Ending
from fleetcast.models.world.stacks import REPLAY_STACKS, Stack

LEVELS = 4
REQUESTS_PER_S = 50.0
MANY_INSTANCES = 1200
TARGETS = {
    "levels_paper_seconds": Target(
        "s",
        "multi-tier Llumnix's 10,000 requests on 4 replicas, all of it, moves each 50 ms; CPU, best of 5",
        at_most=0.05,
    ),
    "levels_requests_per_s": Target(
        "requests/s",
        "1 million requests, 60 instances, dispatch by freeness, guarded moves each 500 ms; CPU, best of 2",
        at_least=0.5e6,
    ),
    "levels_moves_per_request": Target("", "the same: moves of waiting and decoding requests"),
    "levels_off_slowdown": Target(
        "x", "the same by shortest queue with 4 levels, moves switched off, over plain fcfs", at_most=1.05
    ),
    "levels_links_slowdown": Target("x", "the same with links, over which no request moves"),
    "levels_tick_growth": Target(
        "x", "a balancer that finds no pair, each 10 ms over each 1 s, 200,000 requests", at_most=1.3
    ),
    "levels_instances_growth": Target(
        "x", "dispatch by freeness over 1,200 instances over 60, the same requests", at_most=2.0
    ),
    "levels_freeness_over_jsq": Target("x", "dispatch by freeness over the shortest queue, 60 instances"),
    "levels_leap_over_step": Target(
        "x", "playing every step over leaping, 60 instances, moves each 500 ms, 50,000 requests", at_least=2.5
    ),
    "levels_leap_step_difference": Target(
        "", "the same: largest relative difference of any time", at_most=1e-9
    ),
    "levels_command_seconds": Target(
        "s", "fleetcast levels on the busiest endpoint of the office day, all stacks; CPU", at_most=180.0
    ),
}

REQUESTS, FEWER, LEAPT = 1_000_000, 200_000, 50_000


def trace_of(requests: int) -> TraceArrays:
    """Requests to one endpoint, on four levels."""
    trace = endpoint_trace(requests, REQUESTS_PER_S)
    return trace._replace(level=draw_levels(trace.tier.size, "enterprise", LEVELS, 1))


def endpoint(
    stack: Stack | str, levels: int = LEVELS, instances: int = INSTANCES
) -> tuple[FleetArrays, Rules]:
    """Instances of the replay's endpoint under a stack, compiled."""
    _, config = setting()
    fleet, rules = under(stack, levels, LLM, *config.fleet.deployments[LLM], instances)
    few = trace_of(10)
    play(few._replace(level=np.minimum(few.level, levels - 1)), fleet, rules)
    return fleet, rules


def paper() -> Figures:
    """The paper's main experiment under the stack as printed."""
    fleet, rules = under("llumnix", LEVELS, PAPER_LLM, paper_deployment(), REPLICAS)
    trace = paper_trace(10_000, PAPER_PER_S, LEVELS, "uniform", seed=42)
    assert (play(trace, fleet, rules).status == Ending.FINISHED).all()  # compiles too
    return {"levels_paper_seconds": cpu_seconds(partial(play, trace, fleet, rules), 5)}


def moving() -> Figures:
    """One million requests by freeness, with a balancer that looks every half second."""
    trace = trace_of(REQUESTS)
    guarded = {**REPLAY_STACKS["llumnix"].moves, "interval_s": 0.5, "is_guarded": True}
    fleet, rules = endpoint(REPLAY_STACKS["llumnix"]._replace(moves=guarded))
    outcomes = [play(trace, fleet, rules)]
    spent = cpu_seconds(lambda: play(trace, fleet, rules), 2)
    return {
        "levels_requests_per_s": trace.arrival_s.size / spent,
        "levels_moves_per_request": float(outcomes[0].moved[..., :MOVE_ABORTED].sum()) / trace.arrival_s.size,
    }


def switched_off() -> Figures:
    """What the stack costs the requests that it does not serve: levels, and links, but no request moves."""
    trace = trace_of(REQUESTS)
    plain = endpoint(REPLAY_STACKS["jsq"]._replace(order="fcfs"), levels=1)
    fleet, rules = endpoint(REPLAY_STACKS["jsq"]._replace(order="fcfs"))
    linked = fleet._replace(has_transfers=True), rules
    one_level = trace._replace(level=np.zeros_like(trace.level))
    cases = ((one_level, plain), (trace, (fleet, rules)), (trace, linked))
    without_s, off_s, linked_s = (cpu_seconds(partial(play, workload, *one), 5) for workload, one in cases)
    return {"levels_off_slowdown": off_s / without_s, "levels_links_slowdown": linked_s / without_s}


def ticks() -> Figures:
    """A balancer that finds no request to move, looking a hundred times as often."""
    trace = trace_of(FEWER)
    fleet, rules = endpoint("jsq_moves")
    still = rules._replace(gap_blocks=1e12, from_blocks=np.inf)
    often_s, rarely_s = (
        cpu_seconds(partial(play, trace, fleet, still._replace(balance_s=each_s)), 3)
        for each_s in (0.01, 1.0)
    )
    return {"levels_tick_growth": often_s / rarely_s}


def many() -> Figures:
    """Dispatch by freeness where there are twenty times as many instances, and compared with the shortest
    queue.
    """
    trace = trace_of(FEWER)
    cases = (("freeness", INSTANCES), ("freeness", MANY_INSTANCES), ("jsq", INSTANCES))
    few_s, many_s, jsq_s = (
        cpu_seconds(partial(play, trace, *endpoint(stack, instances=count)), 3) for stack, count in cases
    )
    return {"levels_instances_growth": many_s / few_s, "levels_freeness_over_jsq": few_s / jsq_s}


def leaping() -> Figures:
    """Leaping over decode stretches against playing every step, where requests move."""
    trace = trace_of(LEAPT)
    fleet, rules = endpoint("jsq_moves")
    moving = rules._replace(from_blocks=np.inf)  # so that many do
    both = [moving, moving._replace(steps_per_event=1)]
    leapt, stepped = (play(trace, fleet, own) for own in both)
    leapt_s, stepped_s = (cpu_seconds(partial(play, trace, fleet, own), 2) for own in both)
    return {
        "levels_leap_over_step": stepped_s / leapt_s,
        "levels_leap_step_difference": largest_difference(leapt, stepped),
    }


def command() -> Figures:
    """The trials of `fleetcast levels` on the default day, in a lake of its own."""
    catalogue, config = setting()
    day, office = config.trace.replay_day, config.trace.office
    assert office is not None
    with tempfile.TemporaryDirectory() as folder:
        settings = build_settings(Lake(Path(folder)), catalogue, config)
        write_day(settings.lake, day)
        endpoint("llumnix")  # compiles
        spent = cpu_seconds(lambda: try_levels(settings, day, LevelsQuery(), Progress()))
    return {"levels_command_seconds": spent}


def write_day(lake: Lake, day: date) -> None:
    """The requests of a day of the default trace."""
    catalogue, config = setting()
    assert config.trace.office is not None
    columns = office_day(config.trace.office, day, config.trace.seed, TraceNames.of(catalogue))
    rows = canonical_requests(columns, day, "office", catalogue, list(config.trace.office.apps))
    lake.write("requests", rows, trace=config.trace.name, day=day)


FUNCTIONS = (paper, moving, switched_off, ticks, many, leaping, command)
SIZES = {"REQUESTS": 1000, "FEWER": 500, "LEAPT": 300, "MANY_INSTANCES": 120}
SMOKE = dict.fromkeys(("paper", "moving", "switched_off", "ticks", "many", "leaping"), SIZES)
