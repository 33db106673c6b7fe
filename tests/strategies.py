"""Hypothesis strategies: small fleets and traces on a binary time grid, so that ties really happen."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from one_endpoint import with_plain_codes

from fleetcast.models.latency import LatencyTables
from fleetcast.models.replay.kernel_inputs import ALL_STEPS, NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.session.draft_tables import make_draft_tables
from fleetcast.models.replay.session.fleet_arrays import place_ranks, pools_by_endpoint
from fleetcast.models.replay.session.rules import knows_ranks, urgencies
from fleetcast.models.world.mechanisms import (
    BATCH_PULLS,
    BATCHINGS,
    DEMANDS,
    OPPORTUNISMS,
    POOL_SPREADS,
    PREFIXES,
    ROUTINGS,
    SCALINGS,
    SIGNALS,
    Batching,
    QueueOrder,
    Role,
    Routing,
    Scaling,
)
from fleetcast.models.world.pool_rows import POOLINGS

GRID_S = 0.25
LLMS, REGIONS, HOURS, HOUR_S = 2, 2, 2, 64.0
ENDPOINTS = LLMS * REGIONS


# (role, takes interactive requests, takes others, share of the endpoint's instances) by pool.
POOLED = [
    *([(Role.WHOLE, *row) for row in POOLINGS[name]] for name in ("unified", "unified", "siloed", "chiron")),
    [(Role.PREFILL, True, True, 1.0), (Role.DECODE, False, False, 1.0)],
    [(Role.WHOLE, True, True, 0.5), (Role.PREFILL, True, True, 0.5), (Role.DECODE, False, False, 0.5)],
]


def binary_latency(max_batch: int) -> LatencyTables:
    """Four kinds whose every latency is a multiple of 1/1024 s, so that sums are exact in any order.

    The second one's steps and prefills last whole grid cells: its instances keep meeting at one instant.
    """
    knots = np.tile([0.0, 8.0, 16.0, 32.0], (4, 1))
    seconds = np.array([[0.5, 0.5, 1.0, 2.5], [0.25] * 4, [0.25, 0.25, 0.5, 1.0], [0.5] * 4])
    slope = np.hstack([np.diff(seconds) / np.diff(knots), [[3 / 32], [0.0], [1 / 32], [0.0]]])
    batch = np.arange(max_batch + 1)
    decode = np.vstack([0.25 + batch / 8, 0 * batch + GRID_S, 0.125 + batch / 16, 0 * batch + 2 * GRID_S])
    per_kv, per_pair = np.array([1 / 1024, 0.0, 1 / 512, 0.0]), np.array([1, 0, 4, 1]) / 1024
    experts = (seconds / 2, slope / 2)  # half of every pass
    return LatencyTables(knots, seconds, slope, decode, np.outer(per_kv, batch), per_pair, *experts)


@st.composite
def fleets(draw: st.DrawFn) -> FleetArrays:
    """Two llms in two regions, with little memory and few GPUs, so that every limit is met.

    An llm runs on one kind or on two of unlike size and speed; three or four tiers, of which the last one or
    two are held.
    """
    ranks = np.array(draw(st.sampled_from([[1] * 4, [1] * 4, [1] * 4, [2, 1, 3, 2], [3, 2, 2, 1]])))
    has_ranks = ranks.max() > 1  # of chunked engines for whole requests, without drafts
    pooling = draw(st.sampled_from(POOLED[:4] if has_ranks else POOLED))
    kinds_of = draw(st.sampled_from([[[0], [1]], [[0], [1]], [[0, 2], [1]], [[2, 0], [1, 3]]]))
    is_interactive = np.array(draw(st.sampled_from([[1, 1, 0], [1, 1, 0], [1, 1, 1, 0], [1, 1, 0, 0]])), bool)
    most = draw(st.integers(2, 4))
    rows = [
        (llm, region, kind, rank, role, interactive, others, share)
        for role, interactive, others, share in pooling
        for llm, region in np.ndindex(LLMS, REGIONS)
        for rank, kind in enumerate(kinds_of[llm] if role != Role.DECODE else kinds_of[llm][::-1])
    ]
    llm, region, kind, rank, role, interactive, others, share = map(np.array, zip(*rows, strict=True))
    peers = (llm == llm[:, None]) & (region == region[:, None]) & (rank == rank[:, None])
    decoders = peers & (role == Role.DECODE) & (role == Role.PREFILL)[:, None]
    then = np.where(decoders.any(axis=1), decoders.argmax(axis=1), NO_INDEX)
    least = draw(st.integers(0, 1))
    at_start = draw(st.integers(1, most))
    # a team of one that prefills, or two, with one or two that decode
    of_prefill, of_decode = draw(st.sampled_from([(0, 0), (1, 1), (1, 2), (2, 1)]))
    team = np.where(role == Role.DECODE, of_decode, np.where(role == Role.PREFILL, of_prefill, 0))
    times = np.maximum(team, 1)
    block_tokens = draw(st.sampled_from([1, 4, 8]))
    preference = draw(st.sampled_from([[[0, 1], [1, 0]], [[0, 1], [0, 1]], [[0, -1], [1, 0]]]))
    gpus = np.array(draw(st.sampled_from([[1, 1, 1, 1], [2, 1, 1, 2], [1, 2, 2, 1]])))
    held_gpus = max((at_start * times * gpus[kind])[region == at].sum() for at in range(REGIONS))
    max_batch = 4
    batching = np.array(draw(st.lists(st.integers(0, len(BATCHINGS) - 1), min_size=4, max_size=4)))
    batching = np.where(ranks > 1, Batching.CHUNKED, batching)
    is_chunked = batching == Batching.CHUNKED
    capacity = np.array(draw(st.sampled_from([[32, 40, 24, 64], [48, 64, 64, 32], [64, 1000, 32, 64]])))
    rates = draw(st.sampled_from([[()] * 4, [()] * 4, [(0.75,), (0.875, 0.5, 0.25), (1.0, 1.0), (0.5, 0.0)]]))
    drafts = make_draft_tables(
        [own if may_draft else () for own, may_draft in zip(rates, is_chunked & (ranks == 1), strict=True)],
        [0.125, 0.0, 0.25, 0.5],
    )
    pool, instance_slot, second_rank = place_ranks(most * times, ranks[kind])
    request_blocks = np.array(draw(st.sampled_from([[0] * 4, [0] * 4, [1, 0, 1, 2], [2, 1, 1, 0]])))
    room = capacity - request_blocks * block_tokens - drafts.tokens
    longest = np.minimum(room[kind], np.where(then == NO_INDEX, room[kind], room[kind[then]]))
    return FleetArrays(
        pools_of=pools_by_endpoint(llm * REGIONS + region, LLMS * REGIONS),
        llm=llm,
        region=region,
        kind=kind,
        takes=np.where(is_interactive, interactive[:, None], others[:, None]),
        role=role,
        then=then,
        has_transfers=True,
        team=team,
        weight=np.array([1.0, 2.0, 0.5, 0.25])[kind],
        by_freeness=False,  # as the rules say: by_rules
        tokens_per_s=np.array(draw(st.sampled_from([[1.0, 2.0, 0.5, 0.25], [8.0, 0.25, 2.0, 4.0]])))[kind],
        max_request_tokens=longest,
        llm_max_request_tokens=np.array(
            [longest[(llm == code) & (role != Role.DECODE)].max() for code in range(LLMS)]
        ),
        share=share,
        slots=np.concatenate([[0], np.cumsum(most * times)]),
        pool=pool,
        slot_kind=kind[pool],
        ranks=ranks,
        instance_slot=instance_slot,
        second_rank=second_rank,
        kv_block_tokens=block_tokens,
        kv_capacity=capacity,
        request_blocks=request_blocks,
        link_token_s=np.array(draw(st.sampled_from([[0.0] * 4, [1 / 64, 1 / 32, 0, 1 / 16], [0.25] * 4]))),
        link_layers=np.array(draw(st.sampled_from([[1, 1, 1, 1], [4, 1, 2, 4]]))),
        gpu=np.zeros(4, np.int64),
        gpus=gpus,
        cap_gpus=np.full((REGIONS, 1), held_gpus + draw(st.integers(0, 3))),
        instances_at_start=at_start * times,
        min_instances=least * times,
        is_interactive=is_interactive,
        defers_batch_tier=np.full(LLMS, any(one and other for _, one, other, _ in pooling)),
        batching=batching,
        max_batch=np.array(draw(st.sampled_from([[max_batch] * 4, [max_batch, 2, 3, max_batch]]))),
        max_prefill_tokens=np.array(draw(st.sampled_from([[8] * 4, [24] * 4, [8, 24, 16, 6]]))),
        long_prefill_token_threshold=is_chunked * draw(st.sampled_from([[0] * 4, [5] * 4, [3, 0, 12, 1]])),
        watermark_blocks=is_chunked * draw(st.sampled_from([[0] * 4, [0] * 4, [2, 0, 1, 4]])),
        is_async=np.array(draw(st.sampled_from([[False] * 4, [False] * 4, [True] * 4, [True, False] * 2]))),
        prefix=draw(st.integers(0, len(PREFIXES) - 1)),
        prefix_block_tokens=8,
        preference=np.array(preference),
        network_s=np.array([[0.0, 0.5], [0.5, 0.0]]),
        network_factor=np.array(draw(st.sampled_from([[1.0], [0.5, 4.0, 1.0]]))),
        boot_cold_s=np.array([8.0, 8.0, 6.0, 60.0])[llm * REGIONS + region],
        boot_spot_s=np.array([1.0, 2.5, 0.75]),
        boot_factor=np.array([1.0, 2.0, 0.5, 1.0]),
        donate_s=draw(st.sampled_from([0.0, 1.0, 8.0])),
        latency=binary_latency(max_batch),
        drafts=drafts,
    )


@st.composite
def rules(draw: st.DrawFn, fleet: FleetArrays) -> Rules:
    """Thresholds that are met often, clocks that tick often."""
    is_held = ~fleet.is_interactive
    allowance_s = np.where(is_held, 50.0, np.array([2.0, 5.0, 3.0, 50.0])[: is_held.size])
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    failures = draw(st.sampled_from([0, 0, 6]))
    headroom = np.array(draw(st.sampled_from([[0.0], [0.25, 0.125, 0.0625], [0.5, 0.25]])))
    drawn = Rules(
        scaling=draw(st.integers(0, len(SCALINGS) - 1)),
        signal=draw(st.integers(0, len(SIGNALS) - 1)),
        routing=draw(st.integers(0, len(ROUTINGS) - 1)),
        order=draw(st.integers(0, len(QueueOrder) - 1)),
        spread=draw(st.sampled_from([0, *range(len(POOL_SPREADS))])),
        headroom_share=headroom,
        opportunism=draw(st.integers(0, len(OPPORTUNISMS) - 1)),
        opportunism_weight=draw(st.sampled_from([0.5, 1.0, 4.0])),
        uses_central_queue=draw(st.sampled_from([False, False, True])),
        ceiling_share=np.linspace(1.0, draw(st.sampled_from([1.0, 0.25])), headroom.size),
        demand=draw(st.integers(0, len(DEMANDS) - 1)),
        promote_s=draw(st.sampled_from([np.inf, np.inf, 4.0])),
        balance_s=draw(st.sampled_from([np.inf, np.inf, 2.0, 4.0])),
        gap_blocks=draw(st.sampled_from([0.0, 0.5, 2.0])),
        from_blocks=draw(st.sampled_from([np.inf, 1.0, 0.0])),
        is_guarded=draw(st.booleans()),
        lowest_first=draw(st.booleans()),
        freeness_out=draw(st.sampled_from([-0.5, 1.0])),
        freeness_in=draw(st.sampled_from([1.5, 4.0])),
        go_on_below=np.array(draw(st.sampled_from([[0.5, 0.5], [1.0, 0.25], [0.0, 1.0]]))),
        judge_s=np.array(draw(st.sampled_from([[0.0, 0.0], [0.5, 1.25]]))),
        **gears(draw),
        allowance_s=allowance_s,
        urgency=urgencies(allowance_s, is_held),
        tau_p_s=1.0,
        tau_n_s=4.0,
        route_utilisation_share=draw(st.sampled_from([0.25, 0.5, 0.75])),
        scale_out_share=draw(st.sampled_from([0.25, 0.5, 0.75])),
        scale_in_share=draw(st.sampled_from([0.125, 0.25])),
        cooldown_s=draw(st.sampled_from([1.0, 8.0])),
        monitor_s=draw(st.sampled_from([4.0, 16.0])),
        batch_pull=draw(st.integers(0, len(BATCH_PULLS) - 1)),
        niw_pull_one_share=draw(st.sampled_from([0.5, 0.875])),
        niw_pull_two_share=draw(st.sampled_from([0.25, 0.75])),
        pull_step_s=draw(st.sampled_from([np.inf, 0.25, 0.5])),
        niw_priority_age_s=draw(st.sampled_from([4.0, 1000.0])),
        surge_ratio=2.0,
        slump_ratio=0.5,
        pressure_share=draw(st.sampled_from([0.25, 0.6])),
        catch_up_s=draw(st.sampled_from([2.0, 16.0])),
        reactive_share=draw(st.sampled_from([1.0, 1.5])),
        correction_s=32.0,
        last_copy_tokens=draw(st.sampled_from([0, 2, 16])),
        max_copies=draw(st.sampled_from([1, 3])),
        move_s=draw(st.sampled_from([0.0, 0.25])),
        failure_s=np.sort(rng.integers(0, 400, failures) * GRID_S),
        failure_slot=rng.integers(0, fleet.slots[-1], failures),
        steps_per_event=ALL_STEPS,
    )
    if fleet.ranks.max() > 1 and not knows_ranks(drawn):
        routing = draw(st.sampled_from([Routing.SHORTEST_QUEUE, Routing.LEAST_PREFILL, Routing.LEAST_WORK]))
        return with_plain_codes(drawn._replace(routing=routing, scaling=Scaling.REACTIVE, balance_s=np.inf))
    return drawn


def gears(draw: st.DrawFn) -> dict[str, Any]:
    """Fields of Rules: none, or three for the first llm and two for the other, by rate or by load."""
    seen = np.array(draw(st.sampled_from([[1, NO_INDEX], [0, 0], [1, 1]])))
    if draw(st.booleans()):
        none = np.zeros((LLMS, 0))
        return {"gears_by": 0, "gear_llm": seen, "gear_from": none, "gear_below": none}
    below = draw(st.sampled_from([[[0.75, 0.5, 0.0], [0.25, 1.0, 0.0]], [[0.0, 0.25, 1.0], [1.0, 0.0, 0.0]]]))
    return {
        "gears_by": draw(st.integers(0, 1)),
        "gear_llm": seen,
        "gear_from": np.array([[0.0, 0.125, 0.5], [0.0625, 0.25, np.inf]]),
        "gear_below": np.array(below),
    }


def by_rules(fleet: FleetArrays, rules: Rules) -> FleetArrays:
    """The fleet whose instances stand in line as the rules' routing needs it."""
    return fleet._replace(by_freeness=rules.routing == Routing.FREENESS)


@st.composite
def traces(draw: st.DrawFn, tiers: int = 3, levels: int = 1) -> TraceArrays:
    """Some dozens of requests in clusters: at the start, in the last part of the hour, about its end.

    The rows come from a drawn seed: lists drawn one by one are mostly too short for anything to queue.
    """
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    size = draw(st.integers(1, 80))
    busy_s = draw(st.sampled_from([4, 16, 30]))
    arrival_s = rng.choice([0.0, 32.0, 60.0], size) + rng.integers(0, busy_s / GRID_S, size) * GRID_S
    trace = TraceArrays(
        np.sort(arrival_s),
        rng.integers(0, REGIONS, size).astype(np.int16),
        rng.integers(0, LLMS, size).astype(np.int16),
        rng.choice([*range(tiers), tiers - 1], size).astype(np.int16),
        rng.integers(1, 24, size).astype(np.int32),
        rng.integers(1, 16, size).astype(np.int32),
        level=rng.integers(0, levels, size).astype(np.int16),
    )
    legged = with_more_legs(trace, rng) if draw(st.sampled_from([False, False, True])) else trace
    return with_prefixes(legged, rng)


def with_prefixes(trace: TraceArrays, rng: np.random.Generator) -> TraceArrays:
    """The same requests, which begin like one of a few texts, for some blocks of 8 tokens, answers too."""
    size = trace.arrival_s.size
    whole = (trace.input_tokens + trace.output_tokens) // 8
    texts, alike = rng.integers(0, 3, size), rng.integers(0, 6, size)
    prompts = [
        [100 * text + at if at < same else 1000 + 10 * row + at for at in range(blocks)]
        for row, (text, same, blocks) in enumerate(zip(texts, alike, whole, strict=True))
    ]
    return trace._replace(
        cached_tokens=rng.integers(0, trace.input_tokens + 1).astype(np.int32),
        first_hash=np.concatenate([[0], np.cumsum(whole)]),
        hashes=np.array([one for prompt in prompts for one in prompt], np.int64),
    )


def with_more_legs(trace: TraceArrays, rng: np.random.Generator) -> TraceArrays:
    """The same requests as chains of one to three legs, the next one on any llm, with scores of quarters."""
    legs = rng.integers(1, 4, trace.arrival_s.size)
    row = np.repeat(np.arange(legs.size), legs)
    leg = np.arange(row.size) - np.repeat(np.cumsum(legs) - legs, legs)
    is_last = np.append(leg[1:] == 0, True)
    columns = (column[row] for column in trace[:6])
    chained = TraceArrays(
        *columns,
        np.where(is_last, NO_INDEX, np.arange(row.size) + 1).astype(np.int32),
        leg.astype(np.int8),
        (rng.integers(0, 4, row.size) / 4).astype(np.float32),
        trace.level[row],
    )
    return chained._replace(
        llm=np.where(leg > 0, rng.integers(0, LLMS, row.size), chained.llm).astype(np.int16),
        output_tokens=np.where(leg > 0, rng.integers(1, 16, row.size), chained.output_tokens).astype(
            np.int32
        ),
    )


def plans(pools: int) -> st.SearchStrategy[tuple[list[list[int]], list[list[float]], list[int]]]:
    """(targets by pool, forecasts by endpoint, start by endpoint) of HOURS hours."""
    hours = {"min_size": HOURS, "max_size": HOURS}
    counts = st.lists(st.integers(0, 4), min_size=pools, max_size=pools)
    starts = st.lists(st.integers(0, 4), min_size=ENDPOINTS, max_size=ENDPOINTS)
    loads = st.lists(st.sampled_from([0.0, 0.0625, 8.0]), min_size=ENDPOINTS, max_size=ENDPOINTS)
    return st.tuples(st.lists(counts, **hours), st.lists(loads, **hours), starts)
