"""How a command ends when it is told to: by Ctrl-C, or by the SIGTERM of systemd, Kubernetes and `timeout`.

Dagster swaps the handlers of both and forgets a signal that comes between two of its looks; DuckDB turns one
into an error of its own; compiled code keeps Python from its handlers. But Python also writes each signal to
the wake-up descriptor, at once and whatever runs: a thread reads it there. The work has GRACE_S to leave by
itself, then the process ends where it stands: whatever is not in the lake by then was never moved there.
"""

import multiprocessing
import os
import select
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from fleetcast.assets.lake.store import OPEN_SCRATCH_FOLDERS

GRACE_S = 5.0
SIGNAL_WAIT_S = 2.0  # the ear has a signal a moment after the handlers
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}  # 128 + signal, as shells say it
STOP_BYTE = b"\0"  # no signal has this number


class SignalListener:
    """Hears of the signals that are to end this process, and sees to it that they do."""

    def __init__(self, end_with: Iterable[signal.Signals], last_words: Callable[[], None]) -> None:
        self.end_with, self.last_words = frozenset(end_with), last_words
        self.signal: signal.Signals | None = None
        self.is_signalled = threading.Event()
        self._read, self._write = socket.socketpair()
        self._write.setblocking(False)

    def listen(self) -> None:
        """Begin, from the main thread: SIGTERM means what Ctrl-C does, as in Dagster's runs."""
        if signal.SIGTERM in self.end_with:
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        sys.unraisablehook = self._once_more
        sys.warnoptions.append("ignore:resource_tracker")  # it cleans up after an end by force, aloud
        signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, name="ear", daemon=True)
        self._thread.start()

    def rest(self) -> None:
        """Hear no more: what holds on to the interpreter while it ends makes libraries complain of leaks."""
        signal.set_wakeup_fd(-1)
        sys.unraisablehook = sys.__unraisablehook__
        if self.signal is None:
            self._write.send(STOP_BYTE)
            self._thread.join()

    def told(self) -> signal.Signals | None:
        """The signal that came, if one did."""
        if select.select([self._read], [], [], 0)[0]:
            self.is_signalled.wait(SIGNAL_WAIT_S)
        return self.signal

    def _once_more(self, lost: "sys.UnraisableHookArgs") -> None:
        """A handler's exception that fell into a callback of compiled code is raised again, outside of it."""
        if issubclass(lost.exc_type, Exception):
            sys.__unraisablehook__(lost)
        else:
            threading.Timer(0.1, signal.raise_signal, (signal.SIGINT,)).start()

    def _listen(self) -> None:
        while not self.end_with.intersection(heard := self._read.recv(1, socket.MSG_PEEK)):
            if self._read.recv(1) == STOP_BYTE:  # else a signal that is not ours
                return
        self.signal = signal.Signals(heard[0])
        self.is_signalled.set()
        threading.Event().wait(GRACE_S)
        end_process(CODES[self.signal], self.last_words)


def end_process(code: int, last_words: Callable[[], None]) -> None:
    """End this process and its children now; nothing of the lake is half-written at any instant."""
    for child in multiprocessing.active_children():
        child.kill()
        child.join(1.0)
    for folder in list(OPEN_SCRATCH_FOLDERS):
        shutil.rmtree(folder, ignore_errors=True)
    last_words()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


_listener: SignalListener | None = None


@contextmanager
def handle_signals(
    last_words: Callable[[], None], end_with: Iterable[signal.Signals] = tuple(CODES)
) -> Iterator[None]:
    """In here these signals end the process in seconds; `last_words` are said if it is by force.

    A command that was told to end, and did not complete, ends with the code of the signal.
    """
    global _listener
    ear = _listener = SignalListener(end_with, last_words)
    ear.listen()
    try:
        yield
    except SystemExit as left:
        if left.code and (heard := received_signal()) is not None:
            end_process(CODES[heard], lambda: None)  # at once: libraries would speak of what they were doing
        raise
    finally:
        ear.rest()
        _listener = None


def received_signal() -> signal.Signals | None:
    """The signal that is to end this process, if one came; an exception may be a moment ahead of the ear."""
    return _listener.told() if _listener else None


def raise_if_signalled() -> None:
    """KeyboardInterrupt if a signal came, whatever became of it."""
    if received_signal() is not None:
        raise KeyboardInterrupt
