"""What a person sees in the terminal: bars, tables, one-line errors."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import typer
from rich import box, progress
from rich.console import Console
from rich.table import Table

from assets.settings import Progress, Step

if TYPE_CHECKING:
    import pandas as pd

OUT, ERR = Console(highlight=False), Console(stderr=True, highlight=False)
HERE = Path.cwd()  # before anything changes it
INTERRUPTED = 130
SHOWN_ROWS = 100


class Bars(Progress):
    """Progress as a bar with the time that is left, on stderr; gone when it is done."""

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[Step]:
        """Draw one bar."""
        columns = ("  {task.description:<20}", progress.BarColumn(40), progress.TaskProgressColumn())
        with progress.Progress(*columns, progress.TimeRemainingColumn(), console=ERR, transient=True) as bars:
            task = bars.add_task(label, total=total)
            yield lambda done: bars.update(task, completed=done)


@contextmanager
def spoken() -> Iterator[None]:
    """Say a mistake in one red line (exit 2), an interruption in one (exit 130), never with a traceback."""
    import dagster as dg

    try:
        yield
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError):
        ERR.print(
            "Interrupted. Nothing half-written was kept; the same command goes on from here.", style="yellow"
        )
        raise typer.Exit(INTERRUPTED) from None
    except dg.Failure as failure:
        refuse(failure.description or "The run failed.")
    except ValueError as error:
        refuse(str(error))


def refuse(line: str) -> None:
    """One red line on stderr, exit code 2."""
    ERR.print(f"Error: {line}", style="red", soft_wrap=True, markup=False)
    raise typer.Exit(2)


def show_scoreboard(board: pa.Table, trace: str, day: date) -> None:
    """The scoreboard of a day: what each policy cost and what it missed."""
    title = f"{trace}, {day}   (attainment and distance in %, TTFT in s)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("\n\npolicy", no_wrap=True)
    heads = ("SLA\nattainment\niw_fast", "\n\niw_normal", "\n\nniw", "TTFT\np95\niw_fast", "\nGPU-\nhours",
             "wasted\nGPU-\nhours", "\n\nUSD", "over\nclair-\nvoyant")  # fmt: skip
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for row in board.to_pylist():
        table.add_row(
            row["policy"],
            *(_percent(row[f"{tier}_attainment_share"], ".2f") for tier in ("iw_fast", "iw_normal", "niw")),
            _figure(row["ttft_p95_s"], ".2f"),
            *(_figure(row[name], ",.0f") for name in ("gpu_hours", "wasted_gpu_hours", "usd")),
            _percent(row["over_clairvoyant_share"], "+.1f"),
        )
    OUT.print(table)


def show_whatifs(cases: "pd.DataFrame", trace: str, day: date) -> None:
    """What each case of a what-if costs and attains."""
    title = f"what if, {trace}, {day}   (attainment in %)"
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False
    )
    table.add_column("case", no_wrap=True)
    for head in ("USD", "GPU-hours", "iw_fast", "iw_normal", "niw", "short hours"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in cases.to_dict("records"):
        shares = (
            _percent(row[f"{tier}_attainment_share"], ".2f") for tier in ("iw_fast", "iw_normal", "niw")
        )
        figures = (_figure(row[name], ",.0f") for name in ("usd", "gpu_hours"))
        table.add_row(row["case"], *figures, *shares, str(row["short_hours"]))
    OUT.print(table)
    for row in cases.to_dict("records"):
        OUT.print(f"{row['case']}: {row['what']}", soft_wrap=True)


def show_explanation(told: pa.Table) -> None:
    """One request under each policy: what the time to its first token was made of."""
    rows = told.to_pylist()
    OUT.print(
        "request {request_id}: {tier} for {llm} from {region}, {arrived_at:%Y-%m-%d %H:%M:%S} UTC, "
        "{input_tokens:,} tokens in, {output_tokens:,} out".format(**rows[0])
    )
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("policy", no_wrap=True)
    for head in ("TTFT s", "held s", "queued s", "prefill s", "net s", "ahead (tokens)", "served by"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        times = (row[name] for name in ("ttft_s", "held_s", "waited_s", "prefill_s", "network_s"))
        ahead = f"{row['ahead']} ({row['ahead_input_tokens']:,})"
        where = f"{row['served_region']} #{row['instance']}" if row["served_region"] else row["status"]
        table.add_row(row["policy"], *(_figure(seconds, ",.2f") for seconds in times), ahead, where)
    OUT.print(table)
    for row in rows:
        if row["preemptions"]:
            OUT.print(f"{row['policy']}: its memory was taken {row['preemptions']} times and it began anew.")
        if row["booting"] and row["booting"] > 0.01:
            OUT.print(
                f"{row['policy']}: {row['booting']:.2f} instances of its llm were booting in that hour."
            )


def show_landed(files: Sequence[Mapping[str, Any]]) -> None:
    """What became of each landed file, two lines each."""
    for file in files:
        OUT.print(
            f"{file['file']}   {file['format']} -> trace {file['trace']}, {file['days']}", soft_wrap=True
        )
        counts = (
            f"{file['rows_in']} rows in = {file['rows_kept']} kept + {file['rows_quarantined']} quarantined"
        )
        OUT.print(f"  {counts}   {file['note']}", soft_wrap=True)


def show_short(plans: Sequence[Mapping[str, Any]]) -> None:
    """Which plans the fleet cannot carry, and how many instances are missing in their worst hour."""
    for plan in plans:
        line = (
            "{policy}: the fleet is too small in {short_hours} of 24 hours; at {hour_start:%H:%M} {llm} in "
            "{region} is short of {short_tokens_per_s:,.0f} input tokens/s, {missing_instances} instances. "
            "Raise max_instances or cap_gpus."
        ).format(**plan)
        ERR.print(line, style="yellow", markup=False, soft_wrap=True)


def show_refused(reasons: Sequence[str]) -> None:
    """The files of data/landing that were not taken, a line each."""
    for reason in reasons:
        ERR.print(f"Not landed: {reason}", style="yellow", markup=False, soft_wrap=True)


def show_checks(checks: int, broken: Sequence[str]) -> None:
    """How many checks hold, and which do not."""
    for check in broken:
        OUT.print(f"check failed  {check}", style="red")
    OUT.print(f"checks   {checks - len(broken)} of {checks} hold")


def show_table(table: pa.Table) -> None:
    """A query's answer: a table for a person, CSV for a pipe."""
    if not sys.stdout.isatty():
        import pyarrow.csv

        pyarrow.csv.write_csv(table, sys.stdout.buffer)
        return
    shown = Table(*table.column_names)
    for row in table.slice(0, SHOWN_ROWS).to_pylist():
        shown.add_row(*(_figure(v, ",.4g") if isinstance(v, float) else str(v) for v in row.values()))
    OUT.print(shown)
    if table.num_rows > SHOWN_ROWS:
        OUT.print(f"{SHOWN_ROWS} of {table.num_rows:,} rows; pipe it into a file for all of them.")


def near(path: Path) -> str:
    """A path as short as it can be said from here."""
    return str(path.relative_to(HERE)) if path.is_relative_to(HERE) else str(path)


def _percent(share: float | None, spec: str) -> str:
    return _figure(None if share is None else 100 * share, spec)


def _figure(value: float | None, spec: str) -> str:
    return "–" if value is None else f"{value:{spec}}"
