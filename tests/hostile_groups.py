"""Groups of hostile inputs over all readers and entry points: `hostile_groups.py SEED GROUP=COUNT ...`.

It tries so many inputs of each group, drawn by the seed, and prints the verdicts by group as JSON.
FLEETCAST_HOME and FLEETCAST_LAKE must name folders that may be filled.
"""

import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hostile_entries
import hostile_files
import hostile_services
from hostile_verdict import Verdict, verdict_on

GROUPS: dict[str, Callable[[Path, random.Random], Iterator[tuple[str, Callable[[], str]]]]] = {
    "trace_files": hostile_files.trace_files,
    "metrics_folders": hostile_files.metrics_folders,
    "toml_files": hostile_entries.toml_files,
    "statements": hostile_entries.statements,
    "environment": hostile_entries.environment,
    "servers": hostile_services.servers,
    "scaler_requests": hostile_services.scaler_requests,
    "command_line": hostile_entries.command_line,
}


def try_group(group: str, count: int, seed: int) -> list[Verdict]:
    """Try at most so many inputs of a group."""
    draw = random.Random(f"{group} {seed}")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # some values name files
        inputs = list(GROUPS[group](Path(folder), draw))
        if not inputs:
            raise RuntimeError(f"The group {group} has no input.")
        chosen = draw.sample(inputs, min(count, len(inputs)))
        return [verdict_on(name, work) for name, work in chosen]


if __name__ == "__main__":
    counts = dict(one.split("=") for one in sys.argv[2:])
    kept, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)  # what the product prints is no verdict
    os.dup2(null, 1)
    found = {group: try_group(group, int(count), int(sys.argv[1])) for group, count in counts.items()}
    with os.fdopen(kept, "w") as verdicts:
        verdicts.write(json.dumps(found))
