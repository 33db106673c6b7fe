"""One endpoint whose latencies are round numbers: what the laws of a replay are tested on."""

from enum import IntEnum
from typing import Any, TypeVar

import numpy as np

from fleetcast.models.latency import LatencyTables
from fleetcast.models.replay.kernel_inputs import ALL_STEPS, NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.draft_tables import make_draft_tables
from fleetcast.models.replay.session.fleet_arrays import place_ranks
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.world.mechanisms import (
    Batching,
    BatchPull,
    PoolSpread,
    Prefix,
    QueueDemand,
    QueueOrder,
    Role,
    Routing,
    Scaling,
    Signal,
)

Arrays = TypeVar("Arrays", FleetArrays, Rules)
PREFILL_S_PER_TOKEN = 1 / 1024
DECODE_S, KV_S = 1 / 32, 1 / 65536


def a_fleet(instances: int, max_batch: int = 1, **changes: Any) -> FleetArrays:
    """One endpoint of `instances`; prefill is linear in tokens from 0 on."""
    latency = LatencyTables(
        np.array([[0.0, 1024.0]]),
        np.array([[0.0, 1.0]]),
        np.full((1, 2), PREFILL_S_PER_TOKEN),
        np.full((1, max_batch + 1), DECODE_S),
        np.full((1, max_batch + 1), KV_S),
        np.zeros(1),
        *np.zeros((2, 1, 2)),
    )
    fleet = FleetArrays(
        pools_of=np.zeros((1, 1), np.int64),
        llm=np.zeros(1, np.int64),
        region=np.zeros(1, np.int64),
        kind=np.zeros(1, np.int64),
        takes=np.ones((1, 3), bool),
        role=np.array([Role.WHOLE]),
        then=np.array([NO_INDEX]),
        has_transfers=False,
        max_request_tokens=np.array([1_000_000]),
        llm_max_request_tokens=np.array([1_000_000]),
        share=np.ones(1),
        slots=np.array([0, instances]),
        pool=np.zeros(instances, np.int64),
        slot_kind=np.zeros(instances, np.int64),
        ranks=np.ones(1, np.int64),
        instance_slot=np.arange(instances),
        second_rank=np.full(instances, NO_INDEX),
        kv_capacity=np.array([1_000_000]),
        kv_block_tokens=1,
        request_blocks=np.zeros(1, np.int64),
        link_token_s=np.zeros(1),
        link_layers=np.ones(1, np.int64),
        gpu=np.zeros(1, np.int64),
        gpus=np.ones(1, np.int64),
        cap_gpus=np.full((1, 1), instances),
        instances_at_start=np.full(1, instances),
        min_instances=np.ones(1, np.int64),
        is_interactive=np.array([True, True, False]),
        defers_batch_tier=np.array([True]),
        weight=np.ones(1),
        team=np.zeros(1, np.int64),
        by_freeness=False,
        tokens_per_s=np.full(1, np.inf),
        batching=np.array([Batching.WHOLE]),
        max_batch=np.array([max_batch]),
        max_prefill_tokens=np.array([8192]),
        long_prefill_token_threshold=np.array([0]),
        watermark_blocks=np.array([0]),
        is_async=np.array([False]),
        prefix=Prefix.NONE,
        prefix_block_tokens=1,
        preference=np.zeros((1, 1), np.int64),
        network_s=np.zeros((1, 1)),
        boot_cold_s=np.full(1, 512.0),
        boot_spot_s=np.array([64.0]),
        boot_factor=np.ones(1),
        donate_s=0.0,
        network_factor=np.ones(1),
        latency=latency,
        drafts=make_draft_tables([()], [0.0]),
    )
    capacity = changes.get("kv_capacity", fleet.kv_capacity)
    limits = {"max_request_tokens": capacity, "llm_max_request_tokens": capacity}
    limits["request_blocks"] = np.zeros_like(capacity)  # of each kind
    return with_plain_codes(fleet._replace(**limits | changes))


def a_pair(prefill: int, decode: int, link_token_s: float, layers: int = 1, **changes: Any) -> FleetArrays:
    """As many instances that prefill, and behind them as many that decode."""
    sizes = np.array([prefill, decode])
    pair = {
        **dict.fromkeys(("llm", "region", "kind"), np.zeros(2, np.int64)),
        "pools_of": np.array([[0, 1]]),
        "takes": np.array([[True] * 3, [False] * 3]),
        "role": np.array([Role.PREFILL, Role.DECODE]),
        "then": np.array([1, NO_INDEX]),
        "has_transfers": True,
        "max_request_tokens": np.full(2, 1_000_000),
        "share": np.ones(2),
        "weight": np.ones(2),
        "team": np.zeros(2, np.int64),
        "tokens_per_s": np.full(2, np.inf),
        "slots": np.array([0, prefill, prefill + decode]),
        "pool": np.repeat([0, 1], sizes),
        "instance_slot": np.arange(prefill + decode),
        "second_rank": np.full(prefill + decode, NO_INDEX),
        "link_token_s": np.array([link_token_s]),
        "link_layers": np.array([layers]),
        "instances_at_start": sizes,
        "min_instances": sizes,
        "boot_cold_s": np.full(2, 512.0),
    }
    return a_fleet(prefill + decode, **{**pair, **changes})


def with_ranks(fleet: FleetArrays, ranks: int, expert_share: float = 0.0) -> FleetArrays:
    """The same fleet, with so many data-parallel ranks of each instance, which share a part of passes."""
    latency = fleet.latency._replace(
        expert_s=fleet.latency.prefill_s * expert_share,
        expert_slope=fleet.latency.prefill_slope * expert_share,
    )
    sizes = np.full(fleet.kind.size, ranks)
    pool, instance_slot, second_rank = place_ranks(np.diff(fleet.slots), sizes)
    return fleet._replace(
        ranks=np.full(fleet.ranks.size, ranks), pool=pool, slot_kind=fleet.kind[pool],
        instance_slot=instance_slot, second_rank=second_rank, latency=latency,
    )  # fmt: skip


def some_rules(**changes: Any) -> Rules:
    rules = Rules(
        scaling=Scaling.FOLLOW,
        signal=Signal.MEMORY,
        routing=Routing.SHORTEST_QUEUE,
        order=QueueOrder.FCFS,
        spread=PoolSpread.IN_ORDER,
        headroom_share=np.zeros(1),
        demand=QueueDemand.HEAD,
        promote_s=np.inf,
        opportunism=0,
        opportunism_weight=1.0,
        uses_central_queue=False,
        ceiling_share=np.ones(1),
        balance_s=np.inf,
        gap_blocks=0.3,
        from_blocks=np.inf,
        is_guarded=True,
        lowest_first=True,
        freeness_out=-0.5,
        freeness_in=1.5,
        go_on_below=np.zeros(1),
        judge_s=np.zeros(1),
        gears_by=0,
        gear_llm=np.full(1, -1),
        gear_from=np.zeros((1, 0)),
        gear_below=np.zeros((1, 0)),
        allowance_s=np.array([1.0, 60.0, 86_400.0]),
        urgency=np.array([0, 1, 1]),
        tau_p_s=0.5,
        tau_n_s=10.0,
        route_utilisation_share=0.7,
        scale_out_share=0.7,
        scale_in_share=0.3,
        cooldown_s=16.0,
        monitor_s=16.0,
        batch_pull=BatchPull.MEMORY,
        niw_pull_one_share=0.6,
        niw_pull_two_share=0.5,
        pull_step_s=np.inf,
        niw_priority_age_s=36_000.0,
        surge_ratio=5.0,
        slump_ratio=0.5,
        pressure_share=0.6,
        catch_up_s=60.0,
        reactive_share=1.3,
        correction_s=2400.0,
        last_copy_tokens=0,
        max_copies=8,
        move_s=0.0,
        failure_s=np.zeros(0),
        failure_slot=np.zeros(0, np.int64),
        steps_per_event=ALL_STEPS,
    )
    return with_plain_codes(rules._replace(**changes))


def with_plain_codes(arrays: Arrays) -> Arrays:
    """The same fields, as a config makes them: no code is a member of its enum."""
    return arrays._make(int(value) if isinstance(value, IntEnum) else value for value in arrays)


def a_trace(arrival_s: Any, input_tokens: Any, output_tokens: Any, tier: int = 0) -> TraceArrays:
    arrival_s = np.asarray(arrival_s, dtype=np.float64)
    zeros = np.zeros(arrival_s.size, np.int16)
    tokens = (np.broadcast_to(t, arrival_s.shape).astype(np.int32) for t in (input_tokens, output_tokens))
    return TraceArrays(arrival_s, zeros, zeros, zeros + np.int16(tier), *tokens)


def run(trace: TraceArrays, fleet: FleetArrays, rules: Rules | None = None, **drive: Any) -> Outcome:
    horizon_s = drive.pop("horizon_s", float(trace.arrival_s[-1]) + 1.0)
    drive.setdefault("targets", np.diff(fleet.slots)[None])
    return replay_trace(trace, fleet, Schedule(hour_s=horizon_s, **drive), rules or some_rules(), horizon_s)
