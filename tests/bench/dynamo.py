"""Side by side with NVIDIA's ai-dynamo: its offline replay (mocker) and fleetcast's, on the same requests.

It runs where DYNAMO_PYTHON names a Python that can import it. Both replays get the requests of the Mooncake
trace where it lies in ../shared/data/traces, else those that the other figures are measured on, with chunked
prefill of 8,192 tokens a step, ai-dynamo's default. For speed neither reuses prefixes: every request gets
hash ids of its own. For prefixes both have the trace's hashes, 8 workers with its memory and its latencies:
what its mocker takes for a prompt alone is a polynomial that a profile holds too. processes.py compares whole
processes.
"""

import dataclasses
import gzip
import json
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measure import SHARED, Figures, Skipped, Target, cpu_seconds, cpu_seconds_of
from workloads import endpoint_fleet, endpoint_trace, play_endpoint, setting

from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.trials.capacity import trial_fleet
from fleetcast.models.world.catalogue_entries import LatencyProfile
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.mechanisms import Ending

MOONCAKE = SHARED / "traces" / "mooncake_synthetic_trace.jsonl.gz"
BLOCK_TOKENS = 512  # of the Mooncake format
WORKERS = (8, 32)
LLM = "llama3.1-8b"
PREFIX_WORKERS = 8
MOCK_KV_TOKENS = 1 << 20  # 16,384 blocks of 64
MOCK_BLOCK_TOKENS = 64
COPIES = 20  # of the Mooncake trace, one after the other, for speed
ROUTERS = {"round_robin": "round_robin", "kv_router": "least_work"}  # its router, and fleetcast's
PERCENTILES = (50, 75, 90, 95, 99)
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
        (
            "replay_over_dynamo",
            "x",
            "our kernel alone over that, the same requests and {} instances; CPU",
            10.0,
        ),
    )
} | {
    "engines_prefix_reuse_gap": Target(
        "share", "prompt tokens reused, ours less ai-dynamo's, the worse of two routers", at_most=0.02
    ),
    "engines_prefix_ttft_gap": Target(
        "share", "TTFT at P50 to P99 over ai-dynamo's, less one, the worst of two routers", at_most=0.10
    ),
    "engines_prefix_requests_per_s": Target(
        "requests/s",
        f"the Mooncake trace {COPIES} times, caches kept, 8 instances, the router that weighs overlap; CPU",
        at_least=100_000.0,
    ),
}


def side_by_side() -> Figures:
    """The same requests through ai-dynamo's offline replay and fleetcast's, with 8 and 32 workers."""
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
        if (play_endpoint(trace, fleet, rules).status != Ending.FINISHED).any():
            raise RuntimeError(f"{workers} instances do not finish the trace: the comparison is not fair.")
        fleetcast_s = cpu_seconds(partial(play_endpoint, trace, fleet, rules), repeats=3)
        theirs_s = dynamo_replay_cpu_seconds(trace, workers) - idle_s
        figures[f"dynamo_requests_per_s_{workers}"] = trace.arrival_s.size / theirs_s
        figures[f"replay_over_dynamo_{workers}"] = theirs_s / fleetcast_s
    return figures


def prefixes() -> Figures:
    """Prefix reuse: the trace's hashes through both, by round robin and by the router that weighs overlap."""
    require_dynamo()
    trace = hashed_requests(1)
    figures: Figures = {"engines_prefix_reuse_gap": 0.0, "engines_prefix_ttft_gap": 0.0}
    for its_router, our_router in ROUTERS.items():
        report = dynamo_report(mooncake_rows(), PREFIX_WORKERS, its_router)
        outcome, _ = play_hashed(trace, our_router)
        reuse = outcome.reused.sum() / trace.input_tokens.sum()
        ttft_ms = 1e3 * (outcome.first_token_s - trace.arrival_s)
        theirs = [
            report["median_ttft_ms" if percent == 50 else f"p{percent}_ttft_ms"] for percent in PERCENTILES
        ]
        gaps = np.abs(np.percentile(ttft_ms, PERCENTILES) / theirs - 1)
        figures[f"engines_prefix_reuse_{our_router}"] = reuse
        figures[f"engines_prefix_reuse_dynamo_{its_router}"] = report["prefix_cache_reused_ratio"]
        figures["engines_prefix_reuse_gap"] = max(
            figures["engines_prefix_reuse_gap"], abs(reuse - report["prefix_cache_reused_ratio"])
        )
        figures["engines_prefix_ttft_gap"] = max(figures["engines_prefix_ttft_gap"], float(gaps.max()))
    return figures


def prefix_speed() -> Figures:
    """The Mooncake trace, one copy after the other, with every instance's cache kept."""
    if not MOONCAKE.exists():
        raise Skipped("no Mooncake trace in ../shared/data/traces")
    trace = hashed_requests(COPIES)
    seconds = min(play_hashed(trace, "least_work")[1] for _ in range(3))
    return {"engines_prefix_requests_per_s": trace.arrival_s.size / seconds}


def play_hashed(trace: TraceArrays, routing: str) -> tuple[Outcome, float]:
    """The trace on instances like ai-dynamo's workers; what came of it, and CPU seconds."""
    catalogue, config = setting()
    tokens = (1, *range(512, 8193, 512))
    decode_s = 5.743e-3
    profile = LatencyProfile(
        LLM,
        "h100-80gb",
        1,
        tokens,
        tuple(decode_s + (4.209989e-07 * n * n + 1.518344e-02 * n + 16.50142) / 1e3 for n in tokens),
        (1, 256),
        (decode_s, decode_s),
        54.01e-3 / MOCK_KV_TOKENS,
        source="ai-dynamo's mocker, alone",
        prefill_per_context_token_s=0.0,
    )
    fleet_config = dataclasses.replace(
        config.fleet, prefix="blocks", prefix_block_tokens=BLOCK_TOKENS, kv_block_tokens=MOCK_BLOCK_TOKENS
    )
    replay_config = dataclasses.replace(config.replay, routing=routing)
    changed = dataclasses.replace(config, fleet=fleet_config, replay=replay_config)
    worker = Deployment(
        "h100-80gb", 1, batching="chunked", max_batch=256, max_prefill_tokens=8192, kv_tokens=MOCK_KV_TOKENS
    )
    only = dataclasses.replace(catalogue, latency=(profile,))
    fleet = trial_fleet(LLM, worker, only, changed, instances=PREFIX_WORKERS)
    rules = make_rules(catalogue, replay_config, "follow")
    until_s = float(trace.arrival_s[-1]) + 1.0
    drive = Schedule([[PREFIX_WORKERS]], hour_s=until_s)
    replay_trace(hashed_requests(1), fleet, drive, rules, until_s)  # compiled by now
    before = time.process_time()
    outcome = replay_trace(trace, fleet, drive, rules, until_s)
    return outcome, time.process_time() - before


def mooncake_rows() -> list[dict[str, Any]]:
    """The requests of the Mooncake trace."""
    with gzip.open(MOONCAKE, "rt") as lines:
        return [json.loads(line) for line in lines]


def hashed_requests(copies: int) -> TraceArrays:
    """The Mooncake trace with its hashes, so many times one after the other, each time with other prompts."""
    rows = mooncake_rows()
    counts = [len(row["hash_ids"]) for row in rows]
    hashes = np.concatenate([row["hash_ids"] for row in rows])
    arrival_s = np.array([row["timestamp"] / 1e3 for row in rows])
    span_s, used = arrival_s[-1] + 1.0, int(hashes.max()) + 1
    copy = np.arange(copies)[:, None]
    zero_ids = np.zeros(copies * len(rows), np.int16)
    inputs, outputs = (
        np.tile(np.array([row[name] for row in rows], np.int32), copies)
        for name in ("input_length", "output_length")
    )
    return TraceArrays(
        (copy * span_s + arrival_s).ravel(),
        zero_ids,
        zero_ids,
        zero_ids,
        inputs,
        outputs,
        first_hash=np.cumsum([0, *counts * copies]),
        hashes=(copy * used + hashes).ravel(),
    )


def dynamo_report(rows: list[dict[str, Any]], workers: int, router: str) -> dict[str, float]:
    """What ai-dynamo's replay says of the requests."""
    with tempfile.TemporaryDirectory() as folder:
        path, report = Path(folder) / "trace.jsonl", Path(folder) / "report.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        dynamo_cpu_seconds(
            "-m", "dynamo.replay", "--replay-mode", "offline", "--router-mode", router,
            "--trace-format", "mooncake", "--trace-block-size", str(BLOCK_TOKENS),
            "--num-workers", str(workers), "--report-json", str(report), str(path),
        )  # fmt: skip
        found: dict[str, float] = json.loads(report.read_text())
    return found


def requests() -> TraceArrays:
    """The Mooncake trace, where it is there."""
    if not MOONCAKE.exists():
        return endpoint_trace(20_000, 20.0)
    rows = mooncake_rows()
    zero_ids = np.zeros(len(rows), np.int16)
    tokens = (np.array([row[name] for row in rows], np.int32) for name in ("input_length", "output_length"))
    return TraceArrays(
        np.array([row["timestamp"] / 1e3 for row in rows]), zero_ids, zero_ids, zero_ids, *tokens
    )


def dynamo_replay_cpu_seconds(trace: TraceArrays, workers: int) -> float:
    """CPU seconds of a process that replays the trace with ai-dynamo."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        path.write_text("".join(mooncake_lines(trace)))
        return dynamo_file_cpu_seconds(path, trace.arrival_s.size, workers)


def dynamo_file_cpu_seconds(path: Path, count: int, workers: int) -> float:
    """CPU seconds of a process that replays a file of so many requests with ai-dynamo, by round robin."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        spent = dynamo_cpu_seconds(
            "-m", "dynamo.replay", "--replay-mode", "offline", "--router-mode", "round_robin",
            "--trace-format", "mooncake", "--trace-block-size", str(BLOCK_TOKENS),
            "--num-workers", str(workers), "--report-json", str(report), str(path),
        )  # fmt: skip
        completed = json.loads(report.read_text())["completed_requests"]
    if completed != count:
        raise RuntimeError(f"ai-dynamo completed {completed} of {count} requests.")
    return spent


def mooncake_lines(trace: TraceArrays) -> list[str]:
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


def require_dynamo() -> None:
    """Skip where there is no ai-dynamo."""
    try:
        dynamo_cpu_seconds("-c", "import dynamo.replay")
    except (RuntimeError, OSError) as error:
        raise Skipped(INSTALL) from error


def dynamo_cpu_seconds(*arguments: str) -> float:
    """CPU seconds of a Python that runs ai-dynamo; elsewhere, as this folder has a dynamo.py of its own."""
    with tempfile.TemporaryDirectory() as elsewhere:
        return cpu_seconds_of(PYTHON, *arguments, cwd=Path(elsewhere))


FUNCTIONS = (side_by_side, prefixes, prefix_speed)
SMOKE = {"prefix_speed": {"COPIES": 1}, "side_by_side": {}, "prefixes": {}}  # of the last two: a package
