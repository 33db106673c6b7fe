"""What a person sees in the terminal: bars, one-line errors, what several commands tell."""

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer
from rich import progress
from rich.console import Console

from fleetcast.assets.lake.settings import Progress, Step
from fleetcast.assets.lake.store import LakePath
from fleetcast.pipelines import shutdown
from fleetcast.pipelines.terminal_tables import OUT

ERR = Console(stderr=True, highlight=False)
START_DIR = Path.cwd()  # before anything changes it


class ProgressBars(Progress):
    """Progress on stderr: on a terminal a bar that is gone when it is done, elsewhere a line a stage."""

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[Step]:
        """Draw one bar with the time that is left, or say what is waited for and then how long it took."""
        if not ERR.is_terminal:
            with _line(label):
                yield lambda done: None
            return
        left = progress.TimeRemainingColumn() if total else progress.TimeElapsedColumn()
        columns = ("  {task.description:<20}", progress.BarColumn(40), progress.TaskProgressColumn(), left)
        with progress.Progress(*columns, console=ERR, transient=True) as bars:
            task = bars.add_task(label, total=total or None)
            yield lambda done: bars.update(task, completed=done)

    def say(self, line: str) -> None:
        """A line that stays."""
        ERR.print(line, markup=False, soft_wrap=True)


@contextmanager
def _line(label: str) -> Iterator[None]:
    """One plain line: what is done, and, when that has come to its end, the seconds that it took."""
    begun_s = time.monotonic()
    ERR.print(f"{label} ...", end="", markup=False, soft_wrap=True)
    ERR.file.flush()
    took = " stopped after"
    try:
        yield
        took = ""
    finally:
        ERR.print(f"{took} {time.monotonic() - begun_s:.1f} s", markup=False, soft_wrap=True)


def show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """A warning of fleetcast's as one line on stderr; those of libraries are for developers."""
    if category is FutureWarning and str(message).endswith("from 0.2 on."):
        ERR.print(str(message), style="yellow", markup=False, soft_wrap=True)


@contextmanager
def cli_errors() -> Iterator[None]:
    """Say a mistake in one line (exit 2), an interruption too (130, SIGTERM 143), never with a traceback."""
    try:
        yield
    except typer.Exit:  # a RuntimeError too
        raise
    except BaseException as error:
        is_interrupt = isinstance(
            error, (KeyboardInterrupt, *dagster_error_types("DagsterExecutionInterruptedError"))
        )
        signalled = shutdown.received_signal()
        if not is_interrupt and signalled is None:
            exit_with_error(error)
        show_interrupted()
        raise typer.Exit(shutdown.CODES[signalled or signal.SIGINT]) from None


def dagster_error_types(name: str) -> tuple[type[BaseException], ...]:
    """An error of Dagster's, where it has been imported: only then can it be met, and that takes a second."""
    dagster = sys.modules.get("dagster")
    return () if dagster is None else (getattr(dagster, name),)


def exit_with_error(error: BaseException) -> NoReturn:
    """Say what is wrong with the input, or what the machine refuses, in one line; a defect and
    a reader who has seen enough (`| head`) come out as they are.
    """
    if isinstance(error, dagster_error_types("Failure")):
        exit_with_message(getattr(error, "description", None) or "The run failed.")
    if isinstance(error, (ValueError, RuntimeError)):  # a mistake; a defect that was noticed
        exit_with_message(str(error))
    if isinstance(error, OSError) and not isinstance(
        error, BrokenPipeError
    ):  # a folder that cannot be written, a disk that is full
        exit_with_message(f"{error.filename or 'The machine'}: {error.strerror or error}.")
    raise error


def show_interrupted() -> None:
    """A line on what an interruption left."""
    ERR.print(
        "Interrupted. Nothing half-written was kept; the same command goes on from here.", style="yellow"
    )


def exit_with_message(line: str) -> NoReturn:
    """One red line on stderr, exit code 2."""
    ERR.print(f"Error: {line}", style="red", soft_wrap=True, markup=False)
    raise typer.Exit(2)


def show_note(line: str) -> None:
    """What is to be known of a result, if anything: beside it, so that a pipe does not have it."""
    if line:
        ERR.print(line, style="yellow", markup=False, soft_wrap=True)


def show_refused(reasons: Sequence[str]) -> None:
    """The files of data/landing that were not taken, a line each."""
    for reason in reasons:
        ERR.print(f"Not landed: {reason}", style="yellow", markup=False, soft_wrap=True)


def show_checks(checks: int, broken: Sequence[str], alarms: Sequence[str] = ()) -> None:
    """How many checks hold, which do not, and which only warn."""
    for alarm in alarms:
        OUT.print(f"alarm    {alarm}   (rows and meaning: its page in the UI)", style="yellow")
    for check in broken:
        OUT.print(f"check failed  {check}", style="red")
    OUT.print(f"checks   {checks - len(broken) - len(alarms)} of {checks} hold")


def short_path(path: LakePath) -> str:
    """A path as short as it can be said from here."""
    is_below = isinstance(path, Path) and path.is_relative_to(START_DIR)
    return str(path.relative_to(str(START_DIR)) if is_below else path)
