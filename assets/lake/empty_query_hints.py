"""What a query lacks: parameters without a value, and the commands that fill the tables it reads."""

import difflib
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
    "witnessed": "witness",
    "advised_days": "plan promise",
    "commitments": "plan buy",
    "closed_plans": "replay --policy corrected_closed",
}
DEFAULT_CONFIGS: Mapping[str, str] = {"plan quality": "quality"}  # by command
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
    return list(dict.fromkeys(re.findall(r"\$([A-Za-z_]\w*)", _without_comments(query))))


def require_parameters(query: str, given: Mapping[str, Any]) -> None:
    """Raise ValueError for a $name without a value, unless the query says what null means.

    It does where it has `coalesce($name, ...)` or `$name is null`.
    """
    text = _without_comments(query)
    for name in query_parameters(query):
        if name not in given and not re.search(rf"coalesce\(\${name}\b|\${name} is (not )?null", text):
            near = difflib.get_close_matches(name, given, n=1)
            remedy = f"Did you mean ${near[0]}? Else give" if near else "Give"
            raise ValueError(f"The query has ${name} without a value. {remedy} --param {name}=VALUE.")


def explain_empty_result(lake: Lake, query: str, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences that explain why a query, or a file of sql/, has no rows with these parameters."""
    lacking = list(_lacking_tables(lake, query, given))
    yield from lacking
    own = [f"{name}={value}" for name, value in given.items() if name not in {"trace", "day"}]
    if not lacking and own:
        yield f"Its tables have rows. Check {', '.join(own)}."
    elif not lacking and query.endswith(".sql"):
        yield from filter(None, [read_sql(query).fields.get("no rows")])


def _lacking_tables(lake: Lake, query: str, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each table that the query reads and that has nothing for these parameters."""
    known = {name: given[name] for name in query_parameters(query) if name in given}
    named = re.findall(r"\b(?:from|join)\s+(\w+)", _without_comments(query))
    for table in sorted(set(_source_tables(lake, named, known))):
        if _has_files(lake, table, known):
            continue
        _, where = _place(table, known)
        if any(lake.files(other, **where) for other in _written_with(table)):
            continue
        command = FILLING_COMMANDS.get(table) or MARTS_OVER_TRIALS.get(table, ("", "nightly"))[1]
        of = "".join(f" of {key} {value}" for key, value in where.items())
        fills = f"fleetcast {command} fills it"
        config = DEFAULT_CONFIGS.get(command)
        if config and where.get("trace", config) != config:
            fills += f", by default of trace {config}: query that with --config {config}"
        yield f"The table {table} has nothing{of}: {fills}."


def _place(table: str, known: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the fixed partition of a mart over trials, and the one that the parameters name."""
    is_trials = table in MARTS_OVER_TRIALS
    own = {"experiment": MARTS_OVER_TRIALS[table][0]} if is_trials else {}
    return own, {key: known[key] for key in PARTITIONS["trials" if is_trials else table] if key in known}


def _has_files(lake: Lake, table: str, known: Mapping[str, Any]) -> bool:
    """Return whether a table, or a mart over trials, has a file for the parameters."""
    own, where = _place(table, known)
    return bool(lake.files("trials" if own else table, **own, **where))


def _written_with(table: str) -> tuple[str, ...]:
    """Return the tables with which this one is written, without a file where it has no rows."""
    header = SQL / "tables" / f"{table}.sql"
    return read_sql(header).listed("written with") if header.is_file() else ()


def _without_comments(query: str) -> str:
    """Return the text of a query, or of a file of sql/, without its comments and quoted texts."""
    text = read_sql(query).text if query.endswith(".sql") else query
    return re.sub(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'", " ", text, flags=re.DOTALL)


def _source_tables(lake: Lake, names: Iterable[str], known: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tables of the lake that these tables and marts read; of `any of`, those with a file."""
    for name in names:
        if name in PARTITIONS or name in MARTS_OVER_TRIALS:
            yield name
        elif (SQL / "marts" / f"{name}.sql").is_file():
            sql = read_sql(f"marts/{name}.sql")
            there = [table for table in sql.listed("any of") if _has_files(lake, table, known)]
            yield from there or _source_tables(lake, sql.listed("reads"), known)
