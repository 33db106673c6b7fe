"""Limits of memory, disk and time for a query that a user typed, each with the option that raises it."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import NamedTuple, TypeVar

SPILL_PER_MEMORY = 4  # disk for spilled data, as a multiple of memory
# Above DuckDB's limit a process holds batches of its result, compressed pages and free memory.
PROCESS_PER_MEMORY, PROCESS_GIB = 1.25, 0.25
Item = TypeVar("Item")


class QueryLimits(NamedTuple):
    """Limits of one query."""

    memory_gib: float = 1.5
    time_limit_s: float = 600.0

    def config(self) -> dict[str, str]:
        """Return the limits as DuckDB settings."""
        memory_mib = round(self.memory_gib * 1024)
        return {
            "memory_limit": f"{memory_mib}MiB",
            "max_temp_directory_size": f"{memory_mib * SPILL_PER_MEMORY}MiB",
        }

    def process_bytes(self) -> int:
        """Return the memory at which the process of the query is ended, in bytes."""
        return round((PROCESS_PER_MEMORY * self.memory_gib + PROCESS_GIB) * 2**30)

    def too_large(self) -> str:
        """Return the message for a query that needs more memory and disk."""
        return (
            f"The query needs more than {self.memory_gib:g} GiB of memory and "
            f"{self.memory_gib * SPILL_PER_MEMORY:g} GiB on disk. Query less (a filter, a sum) "
            f"or give it more: --memory-gib {4 * self.memory_gib:g}"
        )

    def too_long(self) -> str:
        """Return the message for a query that was stopped."""
        return (
            f"The query was stopped after {self.time_limit_s:g} s. Query less (a filter, a sum) "
            f"or give it longer: --time-limit-s {10 * self.time_limit_s:g}"
        )


class QueryTimer:
    """Stops a query when its time is over; only the time of the query counts, not that of its reader."""

    def __init__(self, stop: Callable[[], None], time_limit_s: float) -> None:
        self.stop, self.left_s, self.is_over = stop, time_limit_s, False

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count the time of the block and stop the query when its limit is reached."""
        timer, begun_s = threading.Timer(max(self.left_s, 0.0), self._end), monotonic()
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self.left_s -= monotonic() - begun_s

    def iterate_timed(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items of a query's result and count only the time to get them."""
        source = iter(items)
        while True:
            with self.working():
                item = next(source, None)
            if item is None:
                return
            yield item

    def _end(self) -> None:
        self.is_over = True
        self.stop()
