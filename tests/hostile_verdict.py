"""One hostile input against the product: how it ended, and what it and the processes that it started took."""

import contextlib
import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.testing import CliRunner

from fleetcast.pipelines import cli, terminal

CODE = Path(__file__).resolve().parent.parent
MOST_CPU_S, MOST_WALL_S, MOST_GB = 20.0, 60.0, 1.0
MOST_CHARACTERS = 2000


class Verdict(NamedTuple):
    """How an input ended."""

    name: str
    line: str  # the error, empty: the input was accepted
    trouble: str  # a traceback, or no clear line; empty: none
    is_over: bool
    cpu_s: float
    gb: float


class OverTime(BaseException):
    """An input ran longer than MOST_WALL_S; no handler of the product takes it for its own error."""


def verdict_on(name: str, work: Callable[[], str]) -> Verdict:
    """Run the work, which returns its trouble or raises; measure its CPU seconds and the memory it adds.

    Both include the processes that it started and waited for. Their memory counts whole, where it is above
    that of this process and of all processes before.
    """
    begun_gb, begun_s, begun_child_gb = reset_peak_gb(), cpu_s_with_children(), children_peak_gb()
    line = trouble = ""
    is_over = False
    try:
        with alarm():
            trouble = work()
    except OverTime:
        is_over, line = True, f"not ended after {MOST_WALL_S:.0f} s"
    except Exception as error:
        line, trouble = str(error), trouble_of(error) or trouble_of_line(str(error))
    cpu_s, peak_gb, child_gb = cpu_s_with_children() - begun_s, status_gb("VmHWM"), children_peak_gb()
    # Linux gives a new process the peak of the one that started it.
    is_child_larger = child_gb > max(begun_child_gb, begun_gb, peak_gb) + 0.01
    gb = child_gb if is_child_larger else peak_gb - begun_gb
    return Verdict(name, line, trouble, is_over or cpu_s > MOST_CPU_S or gb > MOST_GB, cpu_s, gb)


def trouble_of(error: BaseException) -> str:
    """What is wrong with an error as a command prints it; empty for one clear line of the product itself."""
    if not isinstance(error, (ValueError, RuntimeError, OSError)):
        return "".join(traceback.format_exception(error))[-1500:]
    frames = traceback.extract_tb(error.__traceback__)
    is_own = bool(frames) and "/.venv/" not in frames[-1].filename and str(CODE) in frames[-1].filename
    if not is_own and not (isinstance(error, OSError) and error.strerror):
        return f"no line of the product: {type(error).__name__}: {error} ({frames[-1] if frames else ''})"
    return ""


def trouble_of_line(line: str) -> str:
    """What is wrong with a text as one line; empty for nothing."""
    is_clear = line.strip() and "\n" not in line.strip() and len(line) <= MOST_CHARACTERS
    return "" if is_clear else f"no clear line: {line[:500]!r}"


def trouble_of_error_output(text: str) -> str:
    """What is wrong with the errors that a command printed: it must be one line."""
    errors = [line for line in text.splitlines() if line.startswith("Error: ")]
    return trouble_of_line(errors[0]) if len(errors) == 1 else f"{len(errors)} lines of error: {text[-500:]}"


@contextlib.contextmanager
def alarm() -> Iterator[None]:
    """Raise OverTime in the main thread when MOST_WALL_S are over."""

    def ring(*_: object) -> None:
        raise OverTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, MOST_WALL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def cpu_s_with_children() -> float:
    """CPU seconds of this process, and of those that it started and waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def children_peak_gb() -> float:
    """The most memory of any one process that this process started and waited for, GB."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9


def status_gb(key: str) -> float:
    """A figure of this process in GB: VmRSS, VmHWM (the most since reset_peak_gb)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e9 for line in lines if line.startswith(f"{key}:"))


def reset_peak_gb() -> float:
    """Let VmHWM begin at the memory of now; return it, GB."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return status_gb("VmHWM")


def run_command(arguments: list[str], **environment: str) -> str:
    """Run a command in this process; return its trouble: a traceback, or not exactly one line of error."""
    raised = list[BaseException]()
    printed = terminal.exit_with_error

    def keep(error: BaseException) -> Any:
        raised.append(error)
        return printed(error)

    terminal.exit_with_error = keep
    try:
        result = CliRunner().invoke(cli.cli_app, arguments, env=environment)
    finally:
        terminal.exit_with_error = printed
    ended = result.exception
    if ended is not None and not isinstance(ended, (SystemExit, typer.Exit)):
        if isinstance(ended, OverTime):
            raise ended
        return "".join(traceback.format_exception(ended))[-1500:]
    is_error = bool(raised) and not isinstance(raised[-1], (SystemExit, typer.Exit))
    if is_error and (trouble := trouble_of(raised[-1])):
        return trouble
    if result.exit_code == 2 and "Usage:" not in result.stderr:
        return trouble_of_error_output(result.stderr)
    if result.exit_code not in (0, 1, 2):
        return f"exit code {result.exit_code}: {result.output[-500:]}"
    return ""
