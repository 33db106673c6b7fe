"""Why a query has no rows: missing parameters, and the commands that fill the tables it reads."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fleetcast.assets.lake.schemas import PARTITIONS
from fleetcast.assets.lake.sql_files import SQL, read_sql
from fleetcast.assets.lake.warehouse import Lake

FILLING_COMMANDS: Mapping[str, str] = {  # tables that the nightly run does not fill
    **dict.fromkeys(("ingests", "quarantine", "silences", "quality", "answers"), "ingest"),
    **dict.fromkeys(
        ("characterisation", "episodes", "token_histogram", "arrival_windows"), "characterise TRACE"
    ),
    **dict.fromkeys(("backtests", "backtest_intervals"), "backtest"),
    **dict.fromkeys(("gpu_prices", "gpu_fleets"), "gpus"),
    **dict.fromkeys(("quality_plans", "quality_pools"), "plan quality"),
    "paper_values": "study NAME",
    "level_trials": "levels",
    "day_ahead_plans": "plan ahead",
    "rolling_plans": "plan rolling",
    "ran_fleets": "plan ran",
    "advised_days": "advise",
    "commitments": "plan buy",
}
# Marts over the table trials: their experiment, and the command that fills it.
MARTS_OVER_TRIALS: Mapping[str, tuple[str, str]] = {
    "decisions": ("decide", "decide"),
    "whatifs": ("whatif", "whatif"),
    "planner_trials": ("board", "board"),
    "unseen_days": ("unseen", "board --unseen-days 5"),
    "foresight": ("foresight", "board --boot-s 60 --boot-s 600"),
    "studies": ("study", "study NAME"),
    "error_draws": ("error", "error"),
    "shadow_runs": ("grade", "plan grade"),
}


def query_parameters(query: str) -> list[str]:
    """Return the $names of a query, or of a file of sql/, in their order."""
    return list(dict.fromkeys(re.findall(r"\$([a-z_]\w*)", _without_comments(query))))


def explain_empty_result(lake: Lake, query: str, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences that explain why a query, or a file of sql/, has no rows with these parameters."""
    names = query_parameters(query)
    if missing := [name for name in names if name not in given]:
        yield f"It lacks {', '.join(f'${name}' for name in missing)}: give each as --param NAME=VALUE."
    for table in sorted(
        set(_source_tables(re.findall(r"\b(?:from|join)\s+(\w+)", _without_comments(query))))
    ):
        file, command = table, FILLING_COMMANDS.get(table, "nightly")
        partition = dict[str, str]()
        if table in MARTS_OVER_TRIALS:
            file, (partition["experiment"], command) = "trials", MARTS_OVER_TRIALS[table]
        where = {key: given[key] for key in PARTITIONS[file] if key in names and key in given}
        if not lake.files(file, **partition, **where):
            of = "".join(f" of {key} {value}" for key, value in where.items())
            yield f"The table {table} has nothing{of}: fleetcast {command} fills it."


def _without_comments(query: str) -> str:
    """Return the text of a query without its comments."""
    return re.sub(r"--.*", "", read_sql(query).text if query.endswith(".sql") else query)


def _source_tables(names: Iterable[str]) -> Iterator[str]:
    """Yield the tables of the lake that these tables and marts read."""
    for name in names:
        if name in PARTITIONS or name in MARTS_OVER_TRIALS:
            yield name
        elif (SQL / "marts" / f"{name}.sql").is_file():
            yield from _source_tables(read_sql(f"marts/{name}.sql").listed("reads"))
