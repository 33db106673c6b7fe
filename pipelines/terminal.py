"""What a person sees in the terminal: bars, tables, one-line errors."""

import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import typer
from rich import progress
from rich.console import Console

from assets.lake.settings import Progress, Step
from assets.lake.store import Place
from pipelines import stopping
from pipelines.tables import OUT, figure, percent, show_board

ERR = Console(stderr=True, highlight=False)
HERE = Path.cwd()  # before anything changes it
SHOWN_FINDINGS = 20


class Bars(Progress):
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


@contextmanager
def spoken() -> Iterator[None]:
    """Say a mistake in one line (exit 2), an interruption too (130, SIGTERM 143), never with a traceback."""
    try:
        yield
    except typer.Exit:  # a RuntimeError too
        raise
    except BaseException as error:
        is_interrupt = isinstance(error, (KeyboardInterrupt, *of_dagster("DagsterExecutionInterruptedError")))
        signalled = stopping.told()
        if not is_interrupt and signalled is None:
            explain(error)
        say_interrupted()
        raise typer.Exit(stopping.CODES[signalled or signal.SIGINT]) from None


def of_dagster(name: str) -> tuple[type[BaseException], ...]:
    """An error of Dagster's, where it has been imported: only then can it be met, and that takes a second."""
    dagster = sys.modules.get("dagster")
    return () if dagster is None else (getattr(dagster, name),)


def explain(error: BaseException) -> NoReturn:
    """Say what is wrong with the input, or what the machine refuses, in one line; a defect and
    a reader who has seen enough (`| head`) come out as they are.
    """
    if isinstance(error, of_dagster("Failure")):
        refuse(getattr(error, "description", None) or "The run failed.")
    if isinstance(error, (ValueError, RuntimeError)):  # a mistake; a defect that was noticed
        refuse(str(error))
    if isinstance(error, OSError) and not isinstance(
        error, BrokenPipeError
    ):  # a folder that cannot be written, a disk that is full
        refuse(f"{error.filename or 'The machine'}: {error.strerror or error}.")
    raise error


def say_interrupted() -> None:
    """A line on what an interruption left."""
    ERR.print(
        "Interrupted. Nothing half-written was kept; the same command goes on from here.", style="yellow"
    )


def refuse(line: str) -> NoReturn:
    """One red line on stderr, exit code 2."""
    ERR.print(f"Error: {line}", style="red", soft_wrap=True, markup=False)
    raise typer.Exit(2)


def show_scoreboard(board: pa.Table, trace: str, day: date) -> None:
    """The scoreboard of a day: what each policy cost and what it missed; quality, where it is known."""
    told = board.to_pylist()
    is_known = any(row["quality"] is not None for row in told)
    title = f"{trace}, {day}   (attainment and distance in %, TTFT in s)"
    heads = ("\n\npolicy", "SLA\nattained\niw_fast", "\nworst\nllm", "\n\niw_normal", "\n\nniw",
             "TTFT\np95\niw_fast", "\nGPU-\nhours", "\nleft\nto do", "\n\nUSD",
             "over\nclair-\nvoyant", *(["\n\nquality"] if is_known else []))  # fmt: skip
    parts = ("iw_fast", "worst_llm", "iw_normal", "niw")
    rows = [
        (
            row["policy"],
            *(percent(row[f"{of}_attainment_share"], ".1f") for of in parts),
            figure(row["ttft_p95_s"], ".2f"),
            *(figure(row[name], ",.0f") for name in ("gpu_hours", "left_gpu_hours", "usd")),
            percent(row["over_clairvoyant_share"], "+.1f"),
            *([figure(row["quality"], ".3f")] if is_known else []),
        )
        for row in told
    ]
    show_board(title, heads, rows)


def show_other_targets(found: pa.Table | None) -> None:
    """How tiers fared that the scoreboard has no column for, or by a target that it does not tell apart."""
    if found is None or found.num_rows == 0:
        return
    heads = ("\n\npolicy", "\n\ntier", "all\ntargets,\n%", "\nTTFT,\n%", "\nTPOT,\n%", "TTFT\np95,\ns",
             "TPOT\np95,\nms")  # fmt: skip
    rows = [
        (
            row["policy"],
            row["tier"],
            *(percent(row[f"{of}attainment_share"], ".1f") for of in ("", "ttft_", "tpot_")),
            figure(row["ttft_p95_s"], ".2f"),
            figure(None if row["tpot_p95_s"] is None else 1e3 * row["tpot_p95_s"], ".1f"),
        )
        for row in found.to_pylist()
    ]
    show_board("attainment by target   (TPOT: time per output token)", heads, rows)


def show_whatifs(cases: pa.Table, trace: str, day: date, policy: str) -> None:
    """What each case of a what-if costs and attains."""
    title = f"what if under {policy}, {trace}, {day}   (attainment in %)"
    heads = ("\n\ncase", "\n\nUSD", "USD,\ndear-\nest h", "\nGPU-\nhours", "SLA\nattained\niw_fast",
             "\niw_\nnormal", "\n\nniw", "plan\nshort,\nhours", "too\nfar,\n%", "buffer\nlost,\n%",
             "below\nmin,\nhours")  # fmt: skip
    rows = [
        (
            row["case_name"],
            *(figure(row[name], ",.0f") for name in ("usd", "dearest_hour_usd", "gpu_hours")),
            *(percent(row[f"{tier}_attainment_share"], ".2f") for tier in ("iw_fast", "iw_normal", "niw")),
            str(row["short_hours"]),
            *(percent(row[name], ".1f") for name in ("remote_share", "buffer_short_share")),
            str(row["below_minimum_hours"]),
        )
        for row in cases.to_pylist()
    ]
    show_board(title, heads, rows)
    for row in cases.to_pylist():
        OUT.print(f"{row['case_name']}: {row['what']}", soft_wrap=True)


def show_leaderboard(board: pa.Table) -> None:
    """The methods side by side an hour ahead, the best first."""
    rows = [row for row in board.to_pylist() if row["horizon_minutes"] == 60]
    title = f"{rows[0]['tier']}, an hour ahead, over all days backtested   (shares in %)"
    heads = ("\n\nmethod", "\n\nWAPE", "\npinball\nloss", "at or\nbelow\nP90", "hour's\npeak\nunder",
             "peak\nabove\nits P90", "series\nwith P90\noff", "saved by the\nplanned one\n(95 % interval)",
             "CPU ms\nper fore-\ncast")  # fmt: skip
    shares = ("wape_share", "pinball_share", "below_p90_share", "under_share", "above_peak_p90_share")
    told = []
    for row in rows:
        saved, low, high = (percent(row[f"saved{name}_share"], ".1f") for name in ("", "_low", "_high"))
        interval = "" if row["saved_share"] is None else saved if low == "–" else f"{saved} ({low} to {high})"
        figures = (percent(row[name], ".1f") for name in shares)
        off = f"{row['p90_off_endpoints']} of {row['endpoints']}"
        told.append((row["method"], *figures, off, interval, figure(row["cpu_ms"], ",.1f")))
    show_board(title, heads, told)


def show_decisions(board: pa.Table, trace: str, day: date) -> None:
    """What each forecast costs where all attain the same, the cheapest first."""
    rows = board.to_pylist()
    at = f"{percent(rows[0]['matched_share'], '.0f')} % attainment of {rows[0]['tier']}"
    title = f"what a forecast is worth, {trace}, {day}   (GPU-hours at {at})"
    heads = ("\nforecast", "GPU-\nhours", "\nUSD", "for the\nerror", "for\nboots", "over\ntruth, %",
             "saved on last\nvalue, %", "on seasonal\nnaive, %")  # fmt: skip
    shares = ("over_truth_share", "saved_on_last_value_share", "saved_on_seasonal_naive_share")
    told = []
    for row in rows:
        figures = (figure(row[name], ",.0f") for name in ("gpu_hours", "usd", "forecast_usd", "boot_usd"))
        told.append((row["method"], *figures, *(percent(row[name], "+.1f") for name in shares)))
    show_board(title, heads, told)
    apart = max((row["apart_share"] for row in rows if row["apart_share"] is not None), default=0.0)
    OUT.print(
        f"read between replays up to {percent(apart, '.1f')} % apart: differences below that say nothing"
    )
    for row in rows:
        if row["why_not"]:
            OUT.print(f"{row['method']}: {row['why_not']}", soft_wrap=True)


def show_explanation(told: pa.Table, legs: pa.Table) -> None:
    """One request under each policy: what the time to its first token was made of, and where it went."""
    rows = told.to_pylist()
    OUT.print(
        "request {request_id}: {tier} for {llm} from {region}, {arrived_at:%Y-%m-%d %H:%M:%S} UTC, "
        "{input_tokens:,} tokens in, {output_tokens:,} out".format(**rows[0])
    )
    waits = {"TTFT s": "ttft_s", "drafts s": "earlier_s", "held s": "held_s", "queued s": "waited_s",
             "prefill s": "prefill_s", "net s": "network_s"}  # fmt: skip
    if not any(row["earlier_s"] for row in rows):
        del waits["drafts s"]
    heads = ("policy", *waits, "ahead (tokens)", "prefilled by")
    explained = []
    for row in rows:
        times = (row[name] for name in waits.values())
        ahead = f"{row['ahead']} ({row['ahead_input_tokens']:,})"
        where = f"{row['served_region']} #{row['instance']}" if row["served_region"] else row["status"]
        explained.append((row["policy"], *(figure(seconds, ",.2f") for seconds in times), ahead, where))
    show_board("", heads, explained)
    show_legs(legs)
    for row in rows:
        if row["preemptions"]:
            OUT.print(f"{row['policy']}: its memory was taken {row['preemptions']} times and it began anew.")
        if row["booting"] and row["booting"] > 0.01:
            OUT.print(
                f"{row['policy']}: {row['booting']:.2f} instances of its llm were booting in that hour."
            )


def show_legs(legs: pa.Table) -> None:
    """Where a request went, leg by leg, under each policy under which several instances had it."""
    times = ("came_s", "began_s", "first_token_s", "ended_s")
    rows = [
        (
            row["policy"],
            f"{row['leg']} {row['role']}",
            figure(row["hand_over_s"], ",.3f"),
            *(figure(row[name], ",.2f") for name in times),
            f"{row['llm']} on {row['gpu']}, {row['region']} #{row['instance']}",
        )
        for row in legs.to_pylist()
    ]
    if rows:
        heads = ("policy", "leg", "hand-\nover s", "came s", "in batch s", "1st token s", "ended s", "where")
        show_board("its legs, seconds from its arrival", heads, rows)


def show_character(parts: pa.Table, trace: str) -> None:
    """What a trace and its parts are like, one line each."""
    heads = ("\npart", "requests\nper s", "tokens\nper s", "peak\nin mean", "dis-\npersion", "gap CV\npooled",
             "\nclient", "Poisson\n%", "strength\nday", "\nweek", "bursts\n%", "level\nchanges",
             "skill, %\n10 min", "\n60 min", "\n120 min")  # fmt: skip
    rows = [
        (
            " ".join(row[key] for key in ("tier", "region", "llm", "app") if row[key] != "all")
            or "everything",
            figure(row["requests_per_s"], ",.2f"),
            figure(row["tokens_per_s"], ",.0f"),
            figure(row["peak_requests_per_s"] / row["requests_per_s"], ".1f"),
            *(figure(row[name], ".2f") for name in ("dispersion", "gap_cv", "client_gap_cv")),
            percent(row["poisson_share"], ".0f"),
            *(figure(row[f"{season}_strength"], ".2f") for season in ("daily", "weekly")),
            percent(row["burst_share"], ".1f"),
            str(row["changes"]),
            *(percent(row[f"skill_{minutes}min"], ".0f") for minutes in (10, 60, 120)),
        )
        for row in parts.to_pylist()
    ]
    show_board(trace, heads, rows)


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


def show_findings(findings: Sequence[Mapping[str, Any]]) -> None:
    """What is to be known of the quality of the landed traces, a line each, warnings in yellow."""
    for finding in findings[:SHOWN_FINDINGS]:
        what = "{aspect}: {detail}".format(**finding)
        rows = " ({rows} rows, {share})".format(**finding) if finding["rows"] else ""
        where = "{trace} {file}".format(**finding) if finding["file"] != "all" else finding["trace"]
        style = "yellow" if finding["verdict"] == "warn" else None
        OUT.print(f"{finding['verdict']}  {where}  {what}{rows}", style=style, markup=False, soft_wrap=True)
    if len(findings) > SHOWN_FINDINGS:
        OUT.print(f'{len(findings) - SHOWN_FINDINGS} more findings: fleetcast sql "from quality"')


def show_short(plans: Sequence[Mapping[str, Any]]) -> None:
    """Which plans the fleet cannot carry, and how many instances are missing in their worst hour."""
    for plan in plans:
        line = (
            "{policy}: the fleet is too small in {short_hours} of 24 hours; at {hour_start:%H:%M} {llm} in "
            "{region} is short of {short_tokens_per_s:,.0f} input tokens/s, {missing_instances} instances. "
            "Raise max_instances or cap_gpus."
        ).format(**plan)
        ERR.print(line, style="yellow", markup=False, soft_wrap=True)


def show_note(line: str) -> None:
    """What is to be known of a result, if anything: beside it, so that a pipe does not have it."""
    if line:
        ERR.print(line, style="yellow", markup=False, soft_wrap=True)


def show_empty(reasons: Iterable[str]) -> None:
    """Why a query has no rows."""
    ERR.print(" ".join(["No rows.", *reasons]), style="yellow", markup=False, soft_wrap=True)


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


def near(path: Place) -> str:
    """A path as short as it can be said from here."""
    is_below = isinstance(path, Path) and path.is_relative_to(HERE)
    return str(path.relative_to(str(HERE)) if is_below else path)
