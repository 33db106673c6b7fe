"""The setup of multi-tier Llumnix (4.3, 4.4) and endpoints under a stack, for levels and levels_study."""

import dataclasses
from typing import Any

import numpy as np
from workloads import setting

from fleetcast.models.replay.kernel_inputs import FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.traffic.priority_levels import draw_levels
from fleetcast.models.trials.capacity import trial_fleet
from fleetcast.models.world.config import RunConfig, apply_stack
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.stacks import REPLAY_STACKS, Stack

LLM = "llama3.1-8b"  # the text does not name one; ratios are compared
REPLICAS, KV_TOKENS, MAX_BATCH = 4, 2048, 64  # memory and cap of the released simulator
REQUESTS_PER_S = 1250.0
# Table 1: the least length of each class and its share. The released sampler draws near the lower end: its
# mean is 106 tokens, half of them prompt by our reading.
LENGTHS, SHARES = np.array([64, 128, 256, 384]), np.array([0.65, 0.22, 0.10, 0.02]) / 0.99
ABOVE = 5  # tokens above the lower end, at most


def paper_trace(requests: int, requests_per_s: float, levels: int, by: str, seed: int) -> TraceArrays:
    """Poisson arrivals with the lengths of Table 1 and levels of a sampler."""
    rng = np.random.default_rng(seed)
    length = rng.choice(LENGTHS, requests, p=SHARES) + rng.integers(0, ABOVE, requests)
    zero_ids = np.zeros(requests, np.int16)
    prompts = (length // 2).astype(np.int32)
    arrival_s = np.cumsum(rng.exponential(1 / requests_per_s, requests))
    trace = TraceArrays(arrival_s, zero_ids, zero_ids, zero_ids, prompts, (length - prompts).astype(np.int32))
    return trace._replace(level=draw_levels(zero_ids.size, by, levels, seed))


def paper_deployment(kv_tokens: int = KV_TOKENS, batching: str = "whole") -> Deployment:
    """A replica of the paper's fleet."""
    return Deployment(
        "a100-80gb", 1, kv_tokens=kv_tokens, max_batch=MAX_BATCH, batching=batching,
        max_prefill_tokens=4096 if batching == "whole" else 512,
    )  # fmt: skip


def under(
    stack: Stack | str, levels: int, llm: str, deployment: Deployment, instances: int, **fleet: Any
) -> tuple[FleetArrays, Rules]:
    """An endpoint of so many instances that always serve, under a stack with so many levels."""
    catalogue, config = setting()
    config = with_stack(config, REPLAY_STACKS[stack] if isinstance(stack, str) else stack, levels)
    config = dataclasses.replace(config, fleet=dataclasses.replace(config.fleet, **fleet))
    made = trial_fleet(llm, deployment, catalogue, config, instances)
    return made, make_rules(catalogue.serving([llm]), config.replay, "follow")


def with_stack(config: RunConfig, stack: Stack, levels: int) -> RunConfig:
    """The config whose replay goes under a stack, with so many levels."""
    own = apply_stack(config.replay, stack)
    own = dataclasses.replace(own, levels=dataclasses.replace(own.levels, count=levels))
    return dataclasses.replace(config, replay=own)


def play(trace: TraceArrays, fleet: FleetArrays, rules: Rules) -> Outcome:
    """Replay at an endpoint that does not scale, until all is done: no request is cut."""
    until_s = float(trace.arrival_s[-1]) + 1.0
    return replay_trace(
        trace, fleet, Schedule(np.diff(fleet.slots), hour_s=max(until_s, 86_400.0)), rules, until_s
    )
