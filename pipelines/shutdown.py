"""End a command on Ctrl-C, or on the SIGTERM of systemd, Kubernetes and `timeout`.

Signal handlers are not enough. Dagster replaces both handlers and can lose a signal that arrives between two
of its checks. DuckDB turns a signal into an error of its own. Python runs no handler during compiled code.
But Python also writes each signal to the wake-up descriptor, at once and whatever runs: a thread reads it
there. The command has GRACE_S to end by itself, then the thread ends the process. The lake stays complete:
files move into it only when they are whole.
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
SIGNAL_WAIT_S = 2.0  # the listener's thread gets a signal a moment after the handlers
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}  # exit code 128 + signal, as in shells
CLOSED_PIPE_CODE = 128 + signal.SIGPIPE
STOP_BYTE = b"\0"  # ends the listener's thread; no signal has this number


class SignalListener:
    """A thread that receives the signals which end this process, and ends it after GRACE_S at the latest."""

    def __init__(self, end_with: Iterable[signal.Signals], last_words: Callable[[], None]) -> None:
        self.end_with, self.last_words = frozenset(end_with), last_words
        self.signal: signal.Signals | None = None
        self.is_signalled = threading.Event()
        self._read, self._write = socket.socketpair()
        self._write.setblocking(False)

    def listen(self) -> None:
        """Start to listen, from the main thread. SIGTERM then acts like Ctrl-C, as in Dagster's runs."""
        if signal.SIGTERM in self.end_with:
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        sys.unraisablehook = self._raise_again
        sys.warnoptions.append("ignore:resource_tracker")  # it would warn of what a forced end leaves
        signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, name="signal-listener", daemon=True)
        self._thread.start()

    def rest(self) -> None:
        """Stop to listen: a thread that lives while the interpreter ends makes libraries warn of leaks."""
        signal.set_wakeup_fd(-1)
        sys.unraisablehook = sys.__unraisablehook__
        if self.signal is None:
            self._write.send(STOP_BYTE)
            self._thread.join()

    def received(self) -> signal.Signals | None:
        """Return the signal that arrived, if any."""
        if select.select([self._read], [], [], 0)[0]:
            self.is_signalled.wait(SIGNAL_WAIT_S)
        return self.signal

    def _raise_again(self, lost: "sys.UnraisableHookArgs") -> None:
        """Raise the interrupt again that a handler raised inside a callback of compiled code."""
        if issubclass(lost.exc_type, Exception):
            sys.__unraisablehook__(lost)
        else:
            threading.Timer(0.1, signal.raise_signal, (signal.SIGINT,)).start()

    def _listen(self) -> None:
        while not self.end_with.intersection(received := self._read.recv(1, socket.MSG_PEEK)):
            if self._read.recv(1) == STOP_BYTE:  # any other byte is a signal that does not end this process
                return
        self.signal = signal.Signals(received[0])
        self.is_signalled.set()
        threading.Event().wait(GRACE_S)
        end_process(CODES[self.signal], self.last_words)


def end_process(code: int, last_words: Callable[[], None]) -> None:
    """End this process and its children now. The lake has no partial files at any time."""
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
def handle_signals(last_words: Callable[[], None]) -> Iterator[None]:
    """Within this context, end the process within seconds of the signals of CODES.

    `last_words` is called if the process has to be ended by force. A command that does not complete after a
    signal ends with the exit code of the signal.
    """
    global _listener
    listener = _listener = SignalListener(CODES, last_words)
    listener.listen()
    try:
        yield
    except SystemExit as left:
        if left.code and (received := received_signal()) is not None:
            # End at once: libraries would print what they were doing.
            end_process(CODES[received], lambda: None)
        raise
    finally:
        listener.rest()
        _listener = None


@contextmanager
def exit_on_closed_pipe() -> Iterator[None]:
    """Within this context, end with CLOSED_PIPE_CODE when nothing reads the output any more (`| head`).

    Typer and rich end with 1 then, which is the code of a check that does not hold.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as left:
        if not isinstance(left, BrokenPipeError) and not isinstance(left.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter writes what is left at its end
        raise SystemExit(CLOSED_PIPE_CODE) from None


def received_signal() -> signal.Signals | None:
    """Return the signal that ends this process, if one arrived.

    It waits up to SIGNAL_WAIT_S: an exception may be raised a moment before the listener has the signal.
    """
    return _listener.received() if _listener else None


def raise_if_signalled() -> None:
    """Raise KeyboardInterrupt if a signal arrived, even if a library has caught it."""
    if received_signal() is not None:
        raise KeyboardInterrupt
