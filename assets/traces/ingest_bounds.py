"""Limits of the unpacked size and of the ingest time of a file: a small file can unpack to a terabyte.

The defaults are in data/catalogue/mapping.toml; the mapping file of a trace can raise them.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Annotated, NamedTuple

from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.warehouse import Connection
from fleetcast.models.world.toml_dataclasses import Range

UNCHECKED_BYTES = 1 << 28  # unpacked size up to which the ratio is not checked
POLL_S = 0.5
Ratio = Annotated[float, Range(1, 1_000_000)]
Minutes = Annotated[float, Range(0.001, 100_000)]


class IngestError(LakeError):
    """A file cannot be ingested; the message is one line with the remedy."""


class IngestBounds(NamedTuple):
    """Limits of one file."""

    unpack_ratio: float = 100.0  # bytes unpacked per byte of the file; traces have 4 to 40
    ingest_minutes: float = 60.0
    mapping_name: str = "its mapping file"


class IngestGuard:
    """Checks the limits of one file while it is ingested; raises an IngestError above a limit."""

    def __init__(
        self, path: Path, bounds: IngestBounds | None = None, progress: Progress | None = None
    ) -> None:
        self.path, self.bounds, self.progress = path, bounds or IngestBounds(), progress or Progress()
        files = path.rglob("*") if path.is_dir() else [path]
        self.packed_bytes = sum(file.stat().st_size for file in files if file.is_file())
        self.most_bytes = max(UNCHECKED_BYTES, int(self.bounds.unpack_ratio * self.packed_bytes))
        self.end_s = monotonic() + 60 * self.bounds.ingest_minutes
        self.is_over = False

    def passed(self, unpacked_bytes: int) -> None:
        """Check the number of bytes unpacked so far, and the time."""
        if unpacked_bytes > self.most_bytes:
            raise IngestError(
                f"{self.path.name} unpacks to more than {self.bounds.unpack_ratio:g} times its size "
                f"({self.packed_bytes:,} bytes to over {self.most_bytes:,}): is it a trace? If so, give it "
                f"a higher unpack_ratio in {self.bounds.mapping_name} next to it."
            )
        if monotonic() > self.end_s:
            raise self.too_long()

    def too_long(self) -> IngestError:
        """Return the error for a file that takes too long."""
        return IngestError(
            f"{self.path.name} was not ingested within {self.bounds.ingest_minutes:g} minutes. Split it, or "
            f"give it more ingest_minutes in {self.bounds.mapping_name} next to it."
        )

    @contextmanager
    def watch_query(self, con: Connection, what: str) -> Iterator[None]:
        """Show a progress bar while DuckDB works on the file, and interrupt it when the time is over."""
        done = threading.Event()
        con.execute("set enable_progress_bar = true; set enable_progress_bar_print = false")
        with self.progress.bar(f"{what} of {self.path.name}", 100) as step:

            def poll() -> None:
                while not done.wait(POLL_S):
                    step(max(0, int(con.query_progress())))
                    if monotonic() > self.end_s:
                        self.is_over = True
                        con.interrupt()

            poller = threading.Thread(target=poll, daemon=True)
            poller.start()
            try:
                yield
            except Exception as error:
                if self.is_over:
                    raise self.too_long() from error
                raise
            finally:
                done.set()
                poller.join()
