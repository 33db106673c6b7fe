"""`fleetcast witness`: did engines run yesterday as their latency profiles say, and as before?"""

from typing import TYPE_CHECKING

import typer

from fleetcast.pipelines.options import (
    ConfigOption,
    DayOption,
    QuietOption,
    load_settings_and_day,
    make_progress,
)
from fleetcast.pipelines.terminal import cli_errors
from fleetcast.pipelines.terminal_tables import OUT, show_board

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fleetcast.models.aliases import Row

HEADS = (
    "engines",
    "part",
    "measured / profile",
    "90 % interval",
    "before",
    "fits between",
    "since",
    "verdict",
)


def witness_command(
    date_: DayOption = None, config: ConfigOption = "office", quiet: QuietOption = False
) -> None:
    """Compare the latencies that engines measured on a day with its replay on the fleet that ran.

        fleetcast witness --date 2025-07-15 --config mine.toml

        fleetcast sql "from witnessed where verdict = 'changed'"

    It needs the day's metrics (`fleetcast ingest --from`), or a trace with measured latencies, and the fleet
    that ran (`fleetcast plan ran`). A line says by what factor prefill and decode were slower than the
    latency profile, between which factors it fits, and whether it changed since the nights
    before, from which hour on, and the likely cause. The exit code is 1 if an engine drifted.
    """
    with cli_errors():
        from fleetcast.assets.studies.witness import drifted_rows, witness_day
        from fleetcast.assets.studies_on_demand import witnessed
        from fleetcast.pipelines.runs import AssetRows, publish_on_demand

        settings, day = load_settings_and_day(config, date_)
        table = witness_day(settings, day, make_progress(quiet))
        publish_on_demand(witnessed, settings, AssetRows(table, {"day": day}))
        show_board(f"{settings.trace}, {day}", HEADS, map(_board_row, table.to_pylist()))
        drifted = drifted_rows(table)
        for line in describe_drifts(drifted):
            OUT.print(line)
    raise typer.Exit(1 if drifted else 0)


def describe_drifts(drifted: "Sequence[Row]") -> "Iterable[str]":
    """Yield a line for each llm and region that drifted, with its likely cause, and what to do."""
    from fleetcast.models.trials.drift_causes import CAUSE_SENTENCES, DriftCause

    causes = {_engines(row): DriftCause(row["cause"]) for row in drifted}
    if not causes:
        yield "No engine drifted."
    for engines, cause in causes.items():
        yield f"{engines}: {cause}. Likely: {CAUSE_SENTENCES[cause]}."
    if causes.keys() and set(causes.values()) != {DriftCause.CACHE_GONE}:
        yield (
            "If it is to stay, fit the profile to a new log of the engine, or to this day: "
            "fleetcast calibrate LOG --write, or --witnessed DAY"
        )


def _engines(row: "Row") -> str:
    return row["llm"] if row["served_region"] is None else f"{row['llm']} in {row['served_region']}"


def _board_row(row: "Row") -> tuple[str, ...]:
    """Return the cells of a row of `witnessed`, in the order of HEADS."""
    figures = [_factor(row[name]) for name in ("ratio", "low", "high", "usual_ratio")]
    ratio, low, high, before = figures
    allowed = row["allowed_factor"]
    return (
        _engines(row),
        row["part"],
        ratio,
        f"{low} to {high}" if ratio else "",
        before,
        "" if allowed is None else f"{_factor(1 / allowed)} to {_factor(allowed)}",
        "" if row["changed_at"] is None else f"{row['changed_at']:%H:%M}",
        row["verdict"],
    )


def _factor(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
