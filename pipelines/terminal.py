"""Terminal output that commands share: progress bars, one-line errors, notes, results of checks."""

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer
from rich import progress

from fleetcast.assets.lake.settings import Progress, Step
from fleetcast.assets.lake.store import LakePath
from fleetcast.models.world.toml_dataclasses import ConfigWarning
from fleetcast.pipelines import shutdown
from fleetcast.pipelines.terminal_tables import OUT, LiteralConsole

ERR = LiteralConsole(stderr=True)
START_DIR = Path.cwd()  # before anything changes it
SHOWN_WARNINGS = set[str]()  # a run reads its config several times


QUIET_LINE_S = 60.0
MOST_LINE_CHARACTERS = 1600  # of an error; its remedy stands at the end


class ProgressBars(Progress):
    """Progress on stderr: a bar that disappears at the end; without a terminal one line per stage."""

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[Step]:
        """Draw one bar with the remaining time; without a terminal print the label, then the elapsed time."""
        if not ERR.is_terminal:
            with _line(label):
                yield lambda done: None
            return
        left = progress.TimeRemainingColumn() if total else progress.TimeElapsedColumn()
        label_column = progress.TextColumn("  {task.description:<20}", markup=False)
        columns = (label_column, progress.BarColumn(40), progress.TaskProgressColumn(), left)
        with progress.Progress(*columns, console=ERR, transient=True) as bars:
            task = bars.add_task(label, total=total or None)
            yield lambda done: bars.update(task, completed=done)

    def say(self, line: str) -> None:
        """Print a line that stays."""
        ERR.print(line)


class MinuteLines(Progress):
    """Progress of --quiet: nothing in the first minute of a stage, then a line a minute on stderr."""

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[Step]:
        """Print the label, the share that is done and the minutes, once a minute."""
        begun_s = time.monotonic()
        printed_minute = 0

        def step(done: int) -> None:
            nonlocal printed_minute
            minute = int((time.monotonic() - begun_s) // QUIET_LINE_S)
            if minute > printed_minute:
                printed_minute = minute
                share = f", {min(done / total, 1.0):.0%}" if total else ""
                ERR.print(f"{label}{share} after {minute} min")

        yield step


@contextmanager
def _line(label: str) -> Iterator[None]:
    """Print the label, and at the end the elapsed seconds on the same line."""
    begun_s = time.monotonic()
    ERR.print(f"{label} ...", end="")
    ERR.file.flush()
    took = " stopped after"
    try:
        yield
        took = ""
    finally:
        ERR.print(f"{took} {time.monotonic() - begun_s:.1f} s")


def show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Print a warning on a config as one line on stderr, once; ignore the warnings of libraries."""
    if issubclass(category, ConfigWarning) and str(message) not in SHOWN_WARNINGS:
        SHOWN_WARNINGS.add(str(message))
        show_note(str(message))


@contextmanager
def cli_errors() -> Iterator[None]:
    """Print a user error (exit 2) or an interruption (130, SIGTERM 143) in one line, without a traceback."""
    try:
        yield
    except typer.Exit:  # a RuntimeError, so it comes before that case
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
    """Return that error class of Dagster, or nothing if Dagster is not imported, which takes a second."""
    dagster = sys.modules.get("dagster")
    return () if dagster is None else (getattr(dagster, name),)


def exit_with_error(error: BaseException) -> NoReturn:
    """Print a wrong input or an error of the machine in one line and exit with code 2.

    Any other error is raised again: a defect, or a closed pipe (`| head`).
    """
    if isinstance(error, dagster_error_types("Failure")):
        exit_with_message(getattr(error, "description", None) or "The run failed.")
    if isinstance(error, (ValueError, RuntimeError)):  # a wrong input; a defect that fleetcast detected
        exit_with_message(str(error))
    # For example a folder without write permission, or a full disk.
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
        exit_with_message(f"{error.filename or 'The machine'}: {error.strerror or error}.")
    raise error


def show_interrupted() -> None:
    """Print that the command was interrupted, and how to continue."""
    ERR.print("Interrupted. The lake has no partial files; run the same command to continue.", style="yellow")


def exit_with_message(line: str) -> NoReturn:
    """Print one red line on stderr and exit with code 2."""
    ERR.print(f"Error: {_one_line(line)}", style="red")
    raise typer.Exit(2)


def _one_line(text: str) -> str:
    """Return a message without the line ends that a name in it may have; of a long one its begin and end."""
    line = text.strip().replace("\n", "\\n")
    if len(line) <= MOST_LINE_CHARACTERS:
        return line
    return f"{line[: MOST_LINE_CHARACTERS // 2]} ... {line[-MOST_LINE_CHARACTERS // 2 :]}"


def show_note(line: str) -> None:
    """Print a note on a result to stderr, so that it does not enter a pipe; nothing for ""."""
    if line:
        ERR.print(line, style="yellow")


def show_refused(reasons: Sequence[str]) -> None:
    """Print the files of data/landing that were not imported, with the reason, a line each."""
    for reason in reasons:
        ERR.print(f"Not landed: {_one_line(reason)}", style="yellow")


def show_mends(lines: Sequence[str]) -> None:
    """Print what mends files whose rows are in quarantine in bulk, a line each."""
    for line in lines:
        OUT.print(f"mend  {line}", style="yellow")


def show_checks(checks: int, broken: Sequence[str], alarms: Sequence[str] = ()) -> None:
    """Print how many checks hold, which failed, and which only warn."""
    for alarm in alarms:
        OUT.print(f"alarm    {alarm}   (rows and explanation: its page in the UI)", style="yellow")
    for check in broken:
        OUT.print(f"check failed  {check}", style="red")
    OUT.print(f"checks   {checks - len(broken) - len(alarms)} of {checks} hold")


def short_path(path: LakePath) -> str:
    """Return the path relative to the start folder if it is below, else the path."""
    is_below = isinstance(path, Path) and path.is_relative_to(START_DIR)
    return str(path.relative_to(str(START_DIR)) if is_below else path)
