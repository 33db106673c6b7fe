"""Requests and engine settings that both vLLM's scheduler and our kernel play, and what the kernel makes of
them.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from one_endpoint import with_ranks

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.profile_tables import LatencyTables
from fleetcast.models.replay.kernel_inputs import FleetArrays, TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.trials.capacity import trial_fleet, trial_rules
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.mechanisms import QueueOrder

LLM, GPU = "llama3.1-8b", "h100-80gb"  # a profile to tell time by; both sides use the same one
BUDGETS, SEQUENCES, BLOCKS = (256, 512, 1024, 2048, 4096, 8192), (16, 64, 128, 256), (16, 32)
ENGINES = (1, 1, 2, 4, 8)
LONGEST_TURN_TOKENS = 5_000  # a conversation ends that is longer
LEVELS = 4  # of priority
CROWDED_SEED, CROWDED_BUDGETS = 8_000, (256, 512, 2048)
ROOM_TOKENS = 4_000_000  # of KV cache: nothing is preempted


class EngineCase(NamedTuple):
    """Requests at some like engines, and the engines' settings by vLLM's names."""

    name: str
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    async_scheduling: bool
    kv_tokens: int
    engines: int
    arrival_s: Floats  # (R,) ascending
    input_tokens: Any  # (R,) integers
    output_tokens: Any  # (R,)
    previous: Any = None  # (R,) row of the turn before in a conversation, or -1; None: prompts share nothing
    long_prefill_token_threshold: int = 0
    watermark: float = 0.0
    priority: Any = None  # (R,) 0 goes first; None: scheduling_policy = "fcfs"
    acceptance: tuple[float, ...] = ()  # of draft tokens
    draft_s: float = 0.0
    ranks: int = 1  # data-parallel ones of each engine, which step together


class Played(NamedTuple):
    """What each request met, shape (R,)."""

    engine: Any
    rank: Any  # of the engine
    first_token_s: Floats
    finish_s: Floats
    reused_tokens: Any


def case_setting() -> tuple[Catalogue, RunConfig]:
    """The catalogue with the profile that both sides tell time by, and a config to start from."""
    catalogue = load_catalogue().of_era("2023", "here")
    return catalogue, load_config("sageserve", catalogue)


def draw_limits(rng: np.random.Generator) -> tuple[int, int, int, bool]:
    """Random max_num_seqs, max_num_batched_tokens, block_size and async_scheduling."""
    sequences, budget, block = (int(rng.choice(sizes)) for sizes in (SEQUENCES, BUDGETS, BLOCKS))
    return sequences, budget, block, bool(rng.integers(2))


def sample_case(name: str, seed: int, requests: int, kv_tokens: int = ROOM_TOKENS) -> EngineCase:
    """Random settings, lognormal lengths, and Poisson arrivals at 0.2 to 1.3 of what such engines carry."""
    rng = np.random.default_rng(seed)
    engines = int(rng.choice(ENGINES))
    prompts = np.clip(rng.lognormal(rng.uniform(4.5, 7.5), 0.9, requests), 1, 30_000).astype(np.int32)
    answers = np.clip(rng.lognormal(rng.uniform(3.0, 5.5), 0.8, requests), 1, 4_000).astype(np.int32)
    second_s = prompts.mean() / 25_000 + answers.mean() / 4_000  # of one engine, about
    rate = rng.uniform(0.2, 1.3) * engines / second_s
    limits = draw_limits(rng)
    arrival_s = np.cumsum(rng.exponential(1 / rate, requests))
    return EngineCase(name, *limits, kv_tokens, engines, arrival_s, prompts, answers)


def sample_conversations(name: str, seed: int, requests: int, kv_tokens: int) -> EngineCase:
    """Random settings, and conversations of some eight turns on one engine.

    Each prompt holds the prompt and the answer of the turn before, and 16 to 400 tokens more.
    """
    rng = np.random.default_rng(seed)
    begins = rng.integers(0, 8, requests) == 0
    answers = np.clip(rng.lognormal(4.0, 0.8, requests), 1, 1_000).astype(np.int32)
    prompts, arrival_s = rng.integers(16, 400, requests).astype(np.int32), rng.uniform(0, requests, requests)
    previous = np.full(requests, -1)
    for row in np.flatnonzero(~begins)[1:]:
        before = prompts[row - 1] + answers[row - 1]
        if before < LONGEST_TURN_TOKENS:
            previous[row], prompts[row] = row - 1, prompts[row] + before
            arrival_s[row] = arrival_s[row - 1] + rng.uniform(60, 120)
    order = np.argsort(arrival_s)
    place = np.empty(requests, int)
    place[order] = np.arange(requests)
    limits = draw_limits(rng)
    arrival_s = arrival_s[order] / rng.uniform(4, 12)
    previous = np.where(previous[order] >= 0, place[previous[order]], -1)
    return EngineCase(name, *limits, kv_tokens, 1, arrival_s, prompts[order], answers[order], previous)


def crowded_case(seed: int, requests: int) -> EngineCase:
    """Requests of up to 3,100 tokens, seven a second, at one engine with memory for 5,000."""
    case, rng = sample_case(f"crowded {seed}", CROWDED_SEED + seed, requests), np.random.default_rng(seed)
    return case._replace(
        engines=1,
        max_num_seqs=64,
        max_num_batched_tokens=CROWDED_BUDGETS[seed % 3],
        async_scheduling=seed % 2 == 0,
        kv_tokens=5_000,
        arrival_s=np.cumsum(rng.exponential(0.15, requests)),
        input_tokens=np.minimum(case.input_tokens, 2_500),
        output_tokens=np.minimum(case.output_tokens, 600),
    )


def with_priorities(case: EngineCase, seed: int) -> EngineCase:
    """The same requests, each of one of four priorities."""
    rng = np.random.default_rng([seed, 4])
    return case._replace(priority=rng.integers(0, LEVELS, case.arrival_s.size).astype(np.int16))


def prompt_runs(case: EngineCase) -> list[list[tuple[int, int]]]:
    """The prompt of each request as pairs of a token and how often it follows itself.

    Row r writes the token 2 r, and is answered by the token 2 r + 1.
    """
    runs: list[list[tuple[int, int]]] = []
    for row, before in enumerate(case.previous.tolist()):
        known = [] if before < 0 else [*runs[before], (2 * before + 1, int(case.output_tokens[before]))]
        more = int(case.input_tokens[row]) - sum(count for _, count in known)
        runs.append([*known, (2 * row, more)])
    return runs


def block_hashes(case: EngineCase) -> dict[str, Any]:
    """The hashes of each request's whole blocks, answer included: columns of TraceArrays."""
    known: dict[tuple[int, ...], int] = {}
    chains = []
    for row, runs in enumerate(prompt_runs(case)):
        whole = [*runs, (2 * row + 1, int(case.output_tokens[row]))]
        tokens = np.repeat([token for token, _ in whole], [count for _, count in whole])
        chain = [-1]
        for at in range(0, tokens.size - case.block_size + 1, case.block_size):
            key = (chain[-1], *tokens[at : at + case.block_size].tolist())
            chain.append(known.setdefault(key, len(known)))
        chains.append(chain[1:])
    hashes = np.array([one for chain in chains for one in chain], np.int64)
    return {"first_hash": np.cumsum([0, *map(len, chains)]), "hashes": hashes}


def case_fleet(case: EngineCase, catalogue: Catalogue, config: RunConfig) -> FleetArrays:
    """The engines of a case: as many instances of one llm, always serving."""
    pool = Deployment(
        GPU, 1, batching="chunked", max_batch=case.max_num_seqs,
        max_prefill_tokens=case.max_num_batched_tokens,
        async_scheduling=case.async_scheduling, kv_tokens=case.kv_tokens,
        long_prefill_token_threshold=case.long_prefill_token_threshold, watermark=case.watermark,
        speculative_acceptance=tuple(case.acceptance), speculative_draft_s=case.draft_s,
    )  # fmt: skip
    fleet = dataclasses.replace(
        config.fleet,
        kv_block_tokens=case.block_size,
        prefix="none" if case.previous is None else "blocks",
        prefix_block_tokens=case.block_size,
    )
    alone = trial_fleet(LLM, pool, catalogue, dataclasses.replace(config, fleet=fleet), case.engines)
    return with_ranks(alone, case.ranks, expert_share=0.5)  # as if the llm were a mixture


def play_kernel(case: EngineCase, fleet: FleetArrays, catalogue: Catalogue, config: RunConfig) -> Played:
    """What the requests meet in the replay, distributed by its router."""
    all_zero = np.zeros(case.arrival_s.size, np.int16)
    trace = TraceArrays(case.arrival_s, all_zero, all_zero, all_zero, case.input_tokens, case.output_tokens)
    if case.previous is not None:
        trace = trace._replace(**block_hashes(case))
    rules = trial_rules(LLM, catalogue, config)
    if case.priority is not None:
        trace = trace._replace(level=case.priority.astype(np.int16))  # as all, or it compiles anew
        rules = rules._replace(order=int(QueueOrder.PRIORITY), headroom_share=np.zeros(LEVELS))
    until_s = float(case.arrival_s[-1]) + 1e5
    drive = Schedule([[case.engines]], hour_s=until_s)
    outcome = replay_trace(trace, fleet, drive, rules, until_s)
    engine = fleet.instance_slot[outcome.slot]
    rank = np.where(outcome.slot == engine, 0, outcome.slot - fleet.second_rank[engine] + 1)
    return Played(engine, rank, outcome.first_token_s, outcome.finish_s, outcome.reused)


def oracle_case(case: EngineCase, fleet: FleetArrays, rows: Any, rank: Any) -> dict[str, Any]:
    """The requests `rows` of one engine, as vllm_oracle.py reads a case; `rank`: of every request."""
    latency, knots = fleet.latency, np.isfinite(fleet.latency.prefill_tokens[0])
    tables = {
        "tokens": latency.prefill_tokens[0][knots],
        "prefill_s": latency.prefill_s[0][knots],
        "prefill_slope": latency.prefill_slope[0][knots],
        "expert_s": latency.expert_s[0][knots],
        "expert_slope": latency.expert_slope[0][knots],
        "decode_s": latency.decode_s[0],
        "decode_kv_s": latency.decode_kv_s[0],
    }
    shared: list[dict[str, Any]] = [{} for _ in case.arrival_s]
    if case.previous is not None:
        shared = [
            {"answer": 2 * row + 1, "prompt": runs, "previous": int(case.previous[row])}
            for row, runs in enumerate(prompt_runs(case))
        ]
    columns = zip(case.arrival_s[rows], case.input_tokens[rows], case.output_tokens[rows], strict=True)
    for row in rows:
        shared[row]["rank"] = int(rank[row])
    if case.priority is not None:
        for row in rows:
            shared[row]["priority"] = int(case.priority[row])
    return {
        "engine": {
            "max_num_seqs": case.max_num_seqs,
            "max_num_batched_tokens": case.max_num_batched_tokens,
            "block_size": case.block_size,
            "async_scheduling": case.async_scheduling,
            "enable_prefix_caching": case.previous is not None,
            "long_prefill_token_threshold": case.long_prefill_token_threshold,
            "watermark": case.watermark,
            "scheduling_policy": "fcfs" if case.priority is None else "priority",
            "speculative_config": speculative_config(len(case.acceptance)),
        },
        "drafts": {
            "tokens": len(case.acceptance),
            "acceptance": list(case.acceptance),
            "draft_s": float(fleet.drafts.draft_s[0]),
            "made": np.diff(fleet.drafts.made[0]).tolist(),
        },
        "kv_tokens": case.kv_tokens,
        "ranks": case.ranks,
        "latency": {
            **{name: values.tolist() for name, values in tables.items()},
            "prefill_context_s": float(latency.prefill_context_s[0]),
        },
        "requests": [
            {"arrival_s": float(at), "input_tokens": int(prompt), "output_tokens": int(answer), **shared[row]}
            for row, (at, prompt, answer) in zip(rows, columns, strict=True)
        ],
    }


def speculative_config(tokens: int) -> dict[str, Any] | None:
    """vLLM's settings of a drafter that reserves no memory of its own."""
    settings = {"method": "ngram", "prompt_lookup_max": 2, "prompt_lookup_min": 1}
    return {**settings, "num_speculative_tokens": tokens} if tokens else None


def recorded_case(recorded: dict[str, Any]) -> EngineCase:
    """A case that was written by `oracle_case`."""
    engine, rows, drafts = recorded["engine"], recorded["requests"], recorded["drafts"]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0] if name != "prompt"}
    return EngineCase(
        "recorded",
        engine["max_num_seqs"],
        engine["max_num_batched_tokens"],
        engine["block_size"],
        engine["async_scheduling"],
        recorded["kv_tokens"],
        1,
        columns["arrival_s"],
        columns["input_tokens"].astype(np.int32),
        columns["output_tokens"].astype(np.int32),
        columns.get("previous"),
        engine.get("long_prefill_token_threshold", 0),
        engine.get("watermark", 0.0),
        columns.get("priority"),
        tuple(drafts["acceptance"]),
        drafts["draft_s"] / max(1, drafts["tokens"]),
        recorded.get("ranks", 1),
    )


def recorded_latency(recorded: dict[str, Any]) -> LatencyTables:
    """The tables that it was priced by: the catalogue's may have changed since."""
    given = recorded["latency"]
    names = ("tokens", "prefill_s", "prefill_slope", "decode_s", "decode_kv_s")
    tables, experts = (
        [np.array([given[name]]) for name in of] for of in (names, ("expert_s", "expert_slope"))
    )
    return LatencyTables(*tables, np.array([given["prefill_context_s"]]), *experts)


def worst_difference(played: Played, case: EngineCase, rows: Any, oracle: dict[str, Any]) -> float:
    """The largest relative difference of a TTFT or an E2E from the oracle's."""
    worst = 0.0
    for mine, its in ((played.first_token_s, "first_token_s"), (played.finish_s, "finish_s")):
        spent = mine[rows] - case.arrival_s[rows]
        truth = np.array(oracle[its], float) - case.arrival_s[rows]
        worst = max(worst, float(np.max(np.abs(spent / truth - 1))))
    return worst
