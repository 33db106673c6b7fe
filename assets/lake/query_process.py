"""Run a query in a process of its own, which is ended when it exceeds its memory or its time.

DuckDB's memory limit covers its buffers, and its interrupt takes effect between two vectors of rows. A scalar
function obeys neither: `repeat('x', 3000000000)` takes 3 GB. So the parent watches the process and kills it.
The result comes through a pipe as an Arrow stream, batch by batch.
"""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing.connection import Connection as PipeEnd
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, cast

import pyarrow as pa

from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.query_limits import QueryLimits, QueryTimer

MEMORY_POLL_S = 0.01  # a thread fills some 30 MB in this time
BROKEN_STREAM = (OSError, EOFError, pa.ArrowException)
OpenResult = Callable[[], AbstractContextManager[pa.RecordBatchReader]]


class QueryProcess:
    """A forked process that computes the result of `open_result`, within limits of memory and time."""

    def __init__(self, open_result: OpenResult, limits: QueryLimits) -> None:
        self.open_result, self.limits, self.is_too_large = open_result, limits, False
        context = multiprocessing.get_context("fork")
        (self.rows, self._rows_end), (self.verdict, self._verdict_end) = (
            context.Pipe(duplex=False) for _ in range(2)
        )
        self.process = context.Process(target=self._send_result, daemon=True)
        self.timer = QueryTimer(self.process.kill, limits.time_limit_s)

    @contextmanager
    def result(self) -> Iterator[pa.RecordBatchReader]:
        """Start the process and yield its result; end it when the block ends.

        LakeError, also while the result is read, for an error of the query, a limit, or a crash.
        """
        self.process.start()
        self._rows_end.close()
        self._verdict_end.close()
        with self._watched(), self.rows, self.verdict, _open_end(self.rows, "rb") as stream:
            try:
                with self.timer.working():
                    reader = pa.ipc.open_stream(stream)
            except BROKEN_STREAM:
                raise self._error() or LakeError("The query ended without a result.") from None
            yield pa.RecordBatchReader.from_batches(reader.schema, self._checked_batches(reader))

    def _checked_batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a stream. LakeError if it broke: a stream that is cut looks like its end."""
        with suppress(*BROKEN_STREAM):
            yield from self.timer.iterate_timed(reader)
        if error := self._error():
            raise error

    def _error(self) -> LakeError | None:
        """Return why the stream ended; None if the whole result was sent."""
        with suppress(EOFError, OSError):
            message = self.verdict.recv_bytes().decode()
            return LakeError(message) if message else None
        self.process.join()
        if self.is_too_large:
            return LakeError(self.limits.too_large())
        if self.timer.is_over:
            return LakeError(self.limits.too_long())
        code = self.process.exitcode or 0
        reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return LakeError(f"The query's process crashed ({reason}). Simplify the query.")

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Kill the process above its memory limit while the block runs, and in any case at the end."""
        done = threading.Event()
        most_bytes = own_memory_bytes(self.process.pid) + self.limits.process_bytes()

        def watch() -> None:
            while not done.wait(MEMORY_POLL_S):
                if own_memory_bytes(self.process.pid) > most_bytes:
                    self.is_too_large = True
                    self.process.kill()
                    return

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
            self.process.kill()
            self.process.join()

    def _send_result(self) -> None:
        """Send the result, then an empty verdict or the message of an error; runs in the child."""
        gc.freeze()  # threads of the parent's objects do not exist here: collect none of them
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        message = ""
        try:
            with (
                self.open_result() as reader,
                _open_end(self._rows_end, "wb") as stream,
                pa.ipc.new_stream(stream, reader.schema) as writer,
            ):
                for batch in reader:
                    writer.write_batch(batch)
        except ValueError as error:
            message = str(error)
        except (Exception, KeyboardInterrupt) as error:
            message = f"The query failed: {type(error).__name__}: {error}"
        self._rows_end.close()
        with suppress(OSError):
            self._verdict_end.send_bytes(message.encode())


def own_memory_bytes(pid: int | None) -> int:
    """Return the resident memory of a process without shared pages of files; 0 if it is unknown."""
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except (OSError, ValueError):  # the process ended, or this is no Linux
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def _open_end(end: PipeEnd, mode: str) -> IO[bytes]:
    return cast(IO[bytes], os.fdopen(os.dup(end.fileno()), mode))


def _end_with_parent() -> None:
    """End this process when its parent is gone: nothing would watch it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
