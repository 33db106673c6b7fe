"""How the kernel is compiled: Numba, without the GIL, cached on disk under a name that knows the sources.

Numba's own cache does not see an edit in a kernel that is imported from another file, so the cache
folder carries a hash of all files that the kernel is made of.

No function of the kernel allocates, so reference counting is off: every use of an array would count it up and
down. What happens at every step of an instance is inlined; all else is called, and compiled once.
"""

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

from fleetcast.models.world import mechanisms
from fleetcast.models.world.project_paths import CODE, IS_CHECKOUT

REPLAY_FOLDER = Path(__file__).resolve().parent


def cache_root() -> Path:
    """NUMBA_CACHE_DIR, or a folder of the checkout; where that is read-only, the user's caches."""
    if own := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(own).expanduser()
    if IS_CHECKOUT and os.access(CODE / "data", os.W_OK):
        return CODE / "data" / ".numba"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fleetcast"


def kernel_sources() -> dict[str, bytes]:
    """The files that are compiled, by name: kernel.py, all of this package that it imports, and the codes."""
    found: dict[str, bytes] = {"mechanisms": Path(mechanisms.__file__).read_bytes()}
    waiting = ["kernel"]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = (REPLAY_FOLDER / f"{name.replace('.', '/')}.py").read_bytes()
            imports = re.findall(
                rb"^from fleetcast\.models\.replay\.([\w.]+) import", found[name], re.MULTILINE
            )
            waiting += [module.decode() for module in imports]
    return found


def cache_folder() -> Path:
    """The folder for this version of the kernel's sources, on this version of Numba."""
    digest = hashlib.sha256(numba.__version__.encode())
    for _, text in sorted(kernel_sources().items()):
        digest.update(text)
    return cache_root() / digest.hexdigest()[:16]


def is_kernel_cached() -> bool:
    """Whether the kernel has been compiled before, so that it starts in a second instead of half a minute."""
    return any(cache_folder().rglob("kernel.advance*.nbc"))


numba.config.CACHE_DIR = str(cache_folder())  # type: ignore[attr-defined]


def njit_inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """`numba.njit` for what is needed at every step: called by compiled code only, and inlined there."""
    return njit_entry(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)


def njit_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """`numba.njit` for a mechanism that is needed less often: compiled once, and not into every caller."""
    return njit_entry(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def njit_entry(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`numba.njit` for a function that Python calls."""
    options |= {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}
    return numba.njit(**options)(function)
