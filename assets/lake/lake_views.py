"""The tables, macros and marts that a query needs, and their creation on a DuckDB connection."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from fleetcast.assets.lake.duckdb_connection import Connection
from fleetcast.assets.lake.schemas import PARTITIONS
from fleetcast.assets.lake.sql_files import SqlFile, load_macros_and_marts, words_of_query


def recipes_and_tables(query: str | None) -> tuple[dict[Path, SqlFile], list[str]]:
    """Return the macros and marts that a query needs, by path, and the tables; all without a query."""
    # A mart with the name of a table is the SQL that makes that table; all other marts are views.
    recipes = {path: sql for path, sql in load_macros_and_marts().items() if sql.stem not in PARTITIONS}
    words = words_of_query(query, recipes.values())
    if words is None:
        return recipes, sorted(PARTITIONS)
    needed = {path: sql for path, sql in recipes.items() if words & sql.defined_names}
    return needed, sorted(words.intersection(PARTITIONS))


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
