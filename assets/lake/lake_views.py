"""The tables, macros and marts that a query needs, and their creation on a DuckDB connection."""

from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import NamedTuple

from fleetcast.assets.lake.duckdb_connection import Connection
from fleetcast.assets.lake.schemas import PARTITIONS
from fleetcast.assets.lake.sql_files import SqlFile, load_macros_and_marts, words_of_query
from fleetcast.assets.lake.table_files import TableFiles


class Needed(NamedTuple):
    """What a query needs: macros and marts by their path, and tables."""

    recipes: Mapping[Path, SqlFile]
    tables: list[str]


def find_needed(lake: TableFiles, query: str | None) -> Needed:
    """Return what a query needs; all there is without a query.

    A mart with the name of a table is the SQL that makes that table; all other marts are views. While a
    scored day has no scoreboard, as in a lake of an earlier release, that one is a view too.
    """
    marts, tables = load_macros_and_marts(), set(PARTITIONS)
    recipes = {path: sql for path, sql in marts.items() if sql.stem not in tables}
    words = words_of_query(query, recipes.values())
    if (words is None or "scoreboard" in words) and days_without_scoreboard(lake):
        tables.remove("scoreboard")
        recipes = {path: sql for path, sql in marts.items() if sql.stem not in tables}
        words = words_of_query(query, recipes.values())
    if words is None:
        return Needed(recipes, sorted(tables))
    needed = {path: sql for path, sql in recipes.items() if words & sql.defined_names}
    return Needed(needed, sorted(words & tables))


def days_without_scoreboard(lake: TableFiles) -> list[tuple[str, date]]:
    """Return the traces and days that are scored and have no scoreboard, in order."""
    scored, boards = (
        {tuple(folder.split("/")[1:]) for folder in lake.day_folders(table)}
        for table in ("scorecard", "scoreboard")
    )
    return sorted(
        (trace.removeprefix("trace="), date.fromisoformat(day.removeprefix("day=")))
        for trace, day in scored - boards
    )


def create_macros_and_marts(
    con: Connection, recipes: Mapping[Path, SqlFile], tables: Iterable[str], temp: str, bound: str
) -> None:
    """Create macros, and marts as views, each after those that it reads; none that reads an absent table."""
    waiting, known = dict(recipes), set(tables)
    while ready := [path for path, sql in waiting.items() if known.issuperset(sql.listed("reads"))]:
        for path in ready:
            text = waiting.pop(path).text
            if path.parent.name == "macros":
                con.execute(text.replace("replace macro", f"replace {temp} macro"))
            else:
                con.execute(f"create {temp} view {path.stem} {bound} as {text}")
            known.add(path.stem)
