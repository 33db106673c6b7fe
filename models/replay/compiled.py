"""How the kernel is compiled: with Numba, without the GIL, and cached on disk.

Numba's own cache does not notice an edit in an imported file, so the name of the cache folder is a hash of
all source files of the kernel.

No function of the kernel allocates, so reference counting is off: it would change a counter at every use of
an array. What runs at every step of an instance is inlined. All else is compiled once and called.
"""

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

from fleetcast.models.replay.whole_program import EntryCompiler, InnerCompiler
from fleetcast.models.world import mechanisms
from fleetcast.models.world.project_paths import CODE, IS_CHECKOUT

INNER = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
REPLAY_FOLDER = Path(__file__).resolve().parent


def cache_root() -> Path:
    """Return NUMBA_CACHE_DIR, else a folder of the checkout, else (read-only checkout) the user's cache."""
    if configured := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(configured).expanduser()
    if IS_CHECKOUT and os.access(CODE / "data", os.W_OK):
        return CODE / "data" / ".numba"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fleetcast"


def kernel_sources() -> dict[str, bytes]:
    """Return the compiled files by name: kernel.py, all it imports from this package, and mechanisms.py."""
    sources: dict[str, bytes] = {"mechanisms": Path(mechanisms.__file__).read_bytes()}
    waiting = ["kernel"]
    while waiting:
        name = waiting.pop()
        if name not in sources:
            sources[name] = (REPLAY_FOLDER / f"{name.replace('.', '/')}.py").read_bytes()
            imports = re.findall(
                rb"^from fleetcast\.models\.replay\.([\w.]+) import", sources[name], re.MULTILINE
            )
            waiting += [module.decode() for module in imports]
    return sources


def cache_folder() -> Path:
    """Return the cache folder for these sources of the kernel, this version of Numba and its checks."""
    checks = numba.config.BOUNDSCHECK  # type: ignore[attr-defined]
    digest = hashlib.sha256(f"{numba.__version__} {checks}".encode())
    for _, text in sorted(kernel_sources().items()):
        digest.update(text)
    return cache_root() / digest.hexdigest()[:16]


def is_kernel_cached() -> bool:
    """Return whether the kernel is in the cache: it then starts in a second instead of half a minute."""
    return any(cache_folder().rglob("kernel.advance*.nbc"))


numba.config.CACHE_DIR = str(cache_folder())  # type: ignore[attr-defined]
# Higher levels compile a fifth longer, and the kernel, which has no loops over floats, is no faster.
numba.config.OPT = type(numba.config.OPT)(1)  # type: ignore[attr-defined]
numba.config.LOOP_VECTORIZE = 0  # type: ignore[attr-defined]


def njit_inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that runs at every step: it is inlined, and only compiled code can call it."""
    return _njit(function, InnerCompiler, **INNER, forceinline=True)


def njit_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that runs less often: once, not into each caller; only compiled code can call it."""
    return _njit(function, InnerCompiler, **INNER)


def njit_entry(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile a function that Python calls, with all that it reaches, and keep it on disk."""
    return _njit(function, EntryCompiler, cache=True, **options)


def _njit(function: Callable[..., Any], compiler: type, **options: Any) -> Callable[..., Any]:
    options |= {"nogil": True, "error_model": "numpy", "_nrt": False, "pipeline_class": compiler}
    return numba.njit(**options)(function)
