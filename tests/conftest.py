"""Session-wide: one thread per library, as in a run; SIGTERM ends it; its last line stays pytest's own."""

import atexit
import os
import signal

import pipelines  # noqa: F401  it speaks to libraries before they load
from pipelines.stopping import Ear

EAR = Ear({signal.SIGTERM}, lambda: None)  # Dagster and Typer swallow it, test by test


def pytest_configure() -> None:
    """Listen before anything replaces the handlers."""
    EAR.listen()


def pytest_unconfigure() -> None:
    """Quieten what nanobind (DuckDB's bindings) prints of objects that live until the interpreter's end."""
    EAR.rest()
    atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))
