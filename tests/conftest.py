"""Session-wide: one thread per library, as in a run; keep the last line of a test run pytest's own."""

import atexit
import os

import pipelines  # noqa: F401  it speaks to libraries before they load


def pytest_unconfigure() -> None:
    """Quieten what nanobind (DuckDB's bindings) prints of objects that live until the interpreter's end."""
    atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))
