"""Cores and memory that this process may use, from FLEETCAST_CORES, FLEETCAST_MEMORY_GIB or its cgroup."""

import math
import os
from collections.abc import Mapping
from pathlib import Path

from fleetcast.models.world.toml_dataclasses import ConfigError, shorten_text

CGROUP = Path("/sys/fs/cgroup")
CORES_VARIABLE, MEMORY_VARIABLE = "FLEETCAST_CORES", "FLEETCAST_MEMORY_GIB"
# Files of cgroup version 2, then of version 1.
CPU_QUOTA_FILES = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))
MOST_CORES, MOST_MEMORY_GIB = 4096, 1e6  # a thread, or a process, is started for each core
MEMORY_LIMIT_FILES = ("memory.max", "memory/memory.limit_in_bytes")


def usable_cores(environ: Mapping[str, str] = os.environ, cgroup: Path = CGROUP) -> int:
    """Return how many threads or processes may work at once, at least 1.

    A pod with two cores on a node with 64 has two. ConfigError if the variable is not a number from 1.
    """
    if CORES_VARIABLE in environ:
        return int(_numeric_variable(environ, CORES_VARIABLE, MOST_CORES))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for files in CPU_QUOTA_FILES:
        words = " ".join(_read(cgroup / file) for file in files).split()
        if len(words) == 2 and all(word.isdecimal() for word in words):
            cores = min(cores, math.ceil(int(words[0]) / int(words[1])))
    return max(cores, 1)


def usable_memory_bytes(environ: Mapping[str, str] = os.environ, cgroup: Path = CGROUP) -> int:
    """Return the memory of this process in bytes. ConfigError if the variable is not a number from 1."""
    if MEMORY_VARIABLE in environ:
        return int(_numeric_variable(environ, MEMORY_VARIABLE, MOST_MEMORY_GIB) * 2**30)
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [word for word in (_read(cgroup / file) for file in MEMORY_LIMIT_FILES) if word.isdecimal()]
    return min([physical, *map(int, limits)])


def _read(path: Path) -> str:
    return path.read_text().strip() if path.is_file() else ""


def _numeric_variable(environ: Mapping[str, str], name: str, most: float) -> float:
    try:
        value = float(environ[name])
    except ValueError:
        value = math.nan
    if not 1 <= value <= most:
        given = shorten_text(repr(environ[name]))
        raise ConfigError(
            f"{name} is {given}, needed a number from 1 to {most:,.0f}. Set another, or unset it."
        )
    return value
