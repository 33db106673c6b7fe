"""Answers of aiconfigurator-core on disk: compiling an engine takes seconds, reading its tables none.

The name of a file is a hash of the query and TABLES_VERSION, so a changed package, config or formula never
gets an old answer. A cache that cannot be read or written is no error: the package computes it.
"""

import functools
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from fleetcast.models.latency.aiconfigurator_package import TABLES_VERSION, EngineQuery, ask_package
from fleetcast.models.world.project_paths import CODE, IS_CHECKOUT


def profile_cache_folder() -> Path:
    """Return FLEETCAST_PROFILE_CACHE, else a folder of the checkout, else the user's cache."""
    if configured := os.environ.get("FLEETCAST_PROFILE_CACHE"):
        return Path(os.path.expanduser(configured))
    if IS_CHECKOUT and os.access(CODE / "data", os.W_OK):
        return CODE / "data" / ".profiles"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fleetcast" / "profiles"


@functools.lru_cache(maxsize=512)
def answer_query(query: EngineQuery) -> dict[str, Any]:
    """Return the answer to a query: from memory, else from disk, else from the package."""
    digest = hashlib.sha256(json.dumps([TABLES_VERSION, query]).encode()).hexdigest()[:32]
    path = profile_cache_folder() / f"{digest}.json"
    answer = read_answer(path)
    if answer is None:
        answer = ask_package(query)
        write_answer(path, answer)
    return answer


def read_answer(path: Path) -> dict[str, Any] | None:
    """Return a stored answer; None where there is none, or the file is damaged."""
    try:
        answer = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    is_whole = isinstance(answer, dict) and ("refusal" in answer or "tables" in answer)
    return answer if is_whole else None


def write_answer(path: Path, answer: dict[str, Any]) -> None:
    """Store an answer in one step, so that other processes never read half of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False) as part:
            json.dump(answer, part)
        os.replace(part.name, path)
    except OSError:
        return
