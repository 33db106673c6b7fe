"""What this process may use of the machine: by FLEETCAST_CORES and FLEETCAST_MEMORY_GIB, or its cgroup."""

import math
import os
from collections.abc import Mapping
from pathlib import Path

from fleetcast.models.world.toml_dataclasses import ConfigError

CGROUP = Path("/sys/fs/cgroup")
CORES_VARIABLE, MEMORY_VARIABLE = "FLEETCAST_CORES", "FLEETCAST_MEMORY_GIB"
CPU_QUOTA_FILES = (
    ("cpu.max",),
    ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"),
)  # of version 2, and of version 1
MEMORY_LIMIT_FILES = ("memory.max", "memory/memory.limit_in_bytes")


def usable_cores(environ: Mapping[str, str] = os.environ, cgroup: Path = CGROUP) -> int:
    """How many threads or processes may work at once, at least 1: a pod of two cores on a node of 64 has two.

    ConfigError for a setting that is no number from 1.
    """
    if CORES_VARIABLE in environ:
        return int(_numeric_variable(environ, CORES_VARIABLE))
    may_use = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for files in CPU_QUOTA_FILES:
        words = " ".join(_read(cgroup / file) for file in files).split()
        if len(words) == 2 and all(word.isdecimal() for word in words):
            may_use = min(may_use, math.ceil(int(words[0]) / int(words[1])))
    return max(may_use, 1)


def usable_memory_bytes(environ: Mapping[str, str] = os.environ, cgroup: Path = CGROUP) -> int:
    """The memory that there is for this process. ConfigError for a setting that is no number from 1."""
    if MEMORY_VARIABLE in environ:
        return int(_numeric_variable(environ, MEMORY_VARIABLE) * 2**30)
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [word for word in (_read(cgroup / file) for file in MEMORY_LIMIT_FILES) if word.isdecimal()]
    return min([whole, *map(int, limits)])


def _read(path: Path) -> str:
    return path.read_text().strip() if path.is_file() else ""


def _numeric_variable(environ: Mapping[str, str], name: str) -> float:
    try:
        value = float(environ[name])
    except ValueError:
        value = math.nan
    if not 1 <= value < math.inf:
        raise ConfigError(f"{name} is {environ[name]!r}, needed a number from 1. Set another, or unset it.")
    return value
