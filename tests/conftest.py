"""Session-wide: keep the last line of a test run pytest's own."""

import atexit
import os


def pytest_unconfigure() -> None:
    """Quieten what nanobind (DuckDB's bindings) prints of objects that live until the interpreter's end."""
    atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))
