"""The SQLite databases of Dagster stay open while a job runs in this process.

Dagster opens and closes a database for each event. When the last connection to it is closed, SQLite copies
its log into the database and waits for the disk: 500 times a night.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import dagster as dg
import sqlalchemy as sa


@contextmanager
def open_dagster_instance() -> Iterator[dg.DagsterInstance]:
    """Open the embedded instance, and keep a connection to each database that it opens.

    A transaction then waits for the disk only when the log is copied. A process that is killed loses nothing;
    after a power failure the last events may be missing (SQLite's `synchronous = NORMAL` with such a log).
    """
    kept: dict[str, sqlite3.Connection] = {}

    def keep_open(opened: Any, _record: object) -> None:
        if not isinstance(opened, sqlite3.Connection):
            return  # Postgres, where several machines share an instance
        opened.execute("PRAGMA synchronous = NORMAL")
        path = opened.execute("PRAGMA database_list").fetchone()[2]
        if not path:
            return  # in memory
        if path not in kept:
            own = sqlite3.connect(path, timeout=30.0, check_same_thread=False)  # Dagster waits as long
            kept[path] = closing_at_end.enter_context(closing(own))
        kept[path].execute("SELECT 1 FROM sqlite_master").fetchone()  # a connection that reads has the log

    with ExitStack() as closing_at_end:
        sa.event.listen(sa.Engine, "connect", keep_open)
        closing_at_end.callback(sa.event.remove, sa.Engine, "connect", keep_open)
        yield closing_at_end.enter_context(dg.DagsterInstance.get())
