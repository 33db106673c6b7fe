"""Side by side with NVIDIA's ai-dynamo: its offline replay (mocker) and ours, on the same requests.

It runs where DYNAMO_PYTHON names a Python that can import it. Both replays get the requests of the Mooncake
trace where it lies in ../shared/data/traces, else those that the other figures are measured on, with chunked
prefill of 8,192 tokens a step and round robin, ai-dynamo's defaults. Neither reuses prefixes: ours has no
prefix cache, so every request gets hash ids of its own.
"""

import dataclasses
import gzip
import json
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from measure import SHARED, Figures, Skipped, Target, cpu_seconds, cpu_seconds_of
from workloads import endpoint_fleet, endpoint_trace, play_endpoint, setting

from models.replay.fleet import make_rules
from models.replay.run import FINISHED
from models.replay.state import Trace

MOONCAKE = SHARED / "traces" / "mooncake_synthetic_trace.jsonl.gz"
BLOCK_TOKENS = 512  # of the Mooncake format
WORKERS = (8, 32)
LLM = "llama3.1-8b"
PYTHON = os.environ.get("DYNAMO_PYTHON", sys.executable)
INSTALL = (
    "ai-dynamo is not installed. To compare: python3 -m venv V && V/bin/pip install ai-dynamo==1.3.1, "
    "then DYNAMO_PYTHON=V/bin/python make bench"
)
TARGETS = {
    f"{key}_{workers}": Target(unit, how.format(workers), at_least=least)
    for workers in WORKERS
    for key, unit, how, least in (
        (
            "dynamo_requests_per_s",
            "requests/s",
            "ai-dynamo 1.3.1 mocker, {} workers, Mooncake trace; CPU less start-up",
            None,
        ),
        ("replay_over_dynamo", "x", "fleetcast over it, the same requests and {} instances; CPU", 10.0),
    )
}


def side_by_side() -> Figures:
    """The same requests through ai-dynamo's offline replay and ours, with 8 and 32 workers."""
    try:
        idle_s = dynamo_cpu_seconds("-c", "import dynamo.replay")
    except (RuntimeError, OSError) as error:
        raise Skipped(INSTALL) from error
    trace = requests()
    catalogue, config = setting()
    rules = make_rules(catalogue, dataclasses.replace(config.replay, routing="round_robin"), "follow")
    figures: Figures = {}
    for workers in WORKERS:
        fleet = endpoint_fleet(workers, LLM, batching="chunked", max_prefill_tokens=8192)
        if (play_endpoint(trace, fleet, rules).status != FINISHED).any():
            raise RuntimeError(f"{workers} instances do not finish the trace: the comparison is not fair.")
        ours_s = cpu_seconds(partial(play_endpoint, trace, fleet, rules), repeats=3)
        theirs_s = dynamo_replay_cpu_seconds(trace, workers) - idle_s
        figures[f"dynamo_requests_per_s_{workers}"] = trace.arrival_s.size / theirs_s
        figures[f"replay_over_dynamo_{workers}"] = theirs_s / ours_s
    return figures


def requests() -> Trace:
    """The Mooncake trace, where it is there."""
    if not MOONCAKE.exists():
        return endpoint_trace(20_000, 20.0)
    with gzip.open(MOONCAKE, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    nobody = np.zeros(len(rows), np.int16)
    tokens = (np.array([row[name] for row in rows], np.int32) for name in ("input_length", "output_length"))
    return Trace(np.array([row["timestamp"] / 1e3 for row in rows]), nobody, nobody, nobody, *tokens)


def dynamo_replay_cpu_seconds(trace: Trace, workers: int) -> float:
    """CPU seconds of a process that replays the trace with ai-dynamo."""
    with tempfile.TemporaryDirectory() as folder:
        path, report = Path(folder) / "trace.jsonl", Path(folder) / "report.json"
        path.write_text("".join(mooncake_lines(trace)))
        spent = dynamo_cpu_seconds(
            "-m", "dynamo.replay", "--replay-mode", "offline", "--router-mode", "round_robin",
            "--trace-format", "mooncake", "--trace-block-size", str(BLOCK_TOKENS),
            "--num-workers", str(workers), "--report-json", str(report), str(path),
        )  # fmt: skip
        completed = json.loads(report.read_text())["completed_requests"]
    if completed != trace.arrival_s.size:
        raise RuntimeError(f"ai-dynamo completed {completed} of {trace.arrival_s.size} requests.")
    return spent


def mooncake_lines(trace: Trace) -> list[str]:
    """The trace in Mooncake's format; no two requests share a prefix."""
    lines, used = [], 0
    for arrival_s, tokens, output in zip(
        trace.arrival_s, trace.input_tokens, trace.output_tokens, strict=True
    ):
        blocks = -(-int(tokens) // BLOCK_TOKENS)
        row = {
            "timestamp": round(arrival_s * 1e3),
            "input_length": int(tokens),
            "output_length": int(output),
            "hash_ids": list(range(used, used + blocks)),
        }
        lines.append(json.dumps(row) + "\n")
        used += blocks
    return lines


def dynamo_cpu_seconds(*arguments: str) -> float:
    """CPU seconds of a Python that runs ai-dynamo; elsewhere, as this folder has a dynamo.py of its own."""
    with tempfile.TemporaryDirectory() as elsewhere:
        return cpu_seconds_of(PYTHON, *arguments, cwd=Path(elsewhere))


FUNCTIONS = (side_by_side,)
