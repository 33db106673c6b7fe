"""Whole process against whole process: `fleetcast try` compared with NVIDIA's ai-dynamo 1.3.1, on the same
file.

What a user waits for: start-up, reading the file, the replay, percentiles; fleetcast's draws a figure too.
The file
is the Mooncake trace so many times, one copy after the other. Both replay it on 8 instances by round robin
with blocks of 512 tokens, and keep the prefixes that they have seen. dynamo.py has our kernel alone.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from dynamo import LLM, MOONCAKE, PREFIX_WORKERS, dynamo_file_cpu_seconds, mooncake_rows, require_dynamo
from measure import Figures, Skipped, Target, cpu_seconds_of

COPIES = {"4k": 1, "12k": 3, "240k": 60}  # of the 3,993 requests
LONGEST = "240k"
LONGEST_GB = 17.0  # what ai-dynamo holds of it
RATIO = {length: f"engines_process_ratio_{length}" for length in COPIES} | {LONGEST: "engines_process_ratio"}
TARGETS = {
    f"engines_process_{key}_{length}": Target("s", f"{whose}, the whole process, {length} requests; CPU")
    for length in COPIES
    for key, whose in (("seconds", "fleetcast try"), ("dynamo_seconds", "ai-dynamo 1.3.1"))
} | {
    key: Target("x", f"ai-dynamo's over ours, whole processes, {length} requests; CPU", at_least=least)
    for (length, key), least in zip(RATIO.items(), (None, None, 100.0), strict=True)
}


def processes() -> Figures:
    """Whole processes: files of 4 and of 12 thousand requests through both."""
    require_dynamo()
    return {key: value for length in COPIES if length != LONGEST for key, value in raced(length).items()}


def longest_processes() -> Figures:
    """The same with 240 thousand requests: ten minutes and 17 GB, nearly all of it ai-dynamo's."""
    require_dynamo()
    free_gb = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    if free_gb < LONGEST_GB:
        raise Skipped(f"ai-dynamo holds {LONGEST_GB:g} GB of 240k requests; {free_gb:.0f} GB are free here")
    return raced(LONGEST)


def raced(length: str) -> Figures:
    """CPU seconds of both processes on one file, and their ratio."""
    if not MOONCAKE.exists():
        raise Skipped("no Mooncake trace in ../shared/data/traces")
    rows, copies = mooncake_rows(), COPIES[length]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"mooncake_{length}.jsonl"
        write_copies(path, rows, copies)
        fleetcast_s = min(try_cpu_seconds(path) for _ in range(3))  # the first may compile the kernel
        theirs_s = dynamo_file_cpu_seconds(path, copies * len(rows), PREFIX_WORKERS)
    return {
        f"engines_process_seconds_{length}": fleetcast_s,
        f"engines_process_dynamo_seconds_{length}": theirs_s,
        RATIO[length]: theirs_s / fleetcast_s,
    }


def try_cpu_seconds(path: Path) -> float:
    """CPU seconds of `fleetcast try`, on as many instances and with the routing that ai-dynamo is given."""
    program = str(Path(sys.executable).with_name("fleetcast"))
    options = ("--prefix", "blocks", "--routing", "round_robin", "--quiet")
    return cpu_seconds_of(program, "try", str(path), "--on", f"{PREFIX_WORKERS} x {LLM}@h100-80gb", *options)


def write_copies(path: Path, rows: list[dict[str, Any]], copies: int) -> None:
    """Write the requests so many times, one copy after the other, each with prompts of its own."""
    span_ms = rows[-1]["timestamp"] + 1000
    used = 1 + max(max(row["hash_ids"]) for row in rows)
    with path.open("w") as lines:
        for copy in range(copies):
            for row in rows:
                hashes = [copy * used + one for one in row["hash_ids"]]
                moved = {**row, "timestamp": copy * span_ms + row["timestamp"], "hash_ids": hashes}
                lines.write(json.dumps(moved) + "\n")


FUNCTIONS = (processes, longest_processes)
SMOKE = {"processes": {"COPIES": {"4k": 1}}}
