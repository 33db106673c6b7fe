"""The days of each table that a query needs, so that it opens only their files.

DuckDB reads only the files of the days that it passes down to a scan. But before, it lists all files of the
table and opens them for their columns, once per scan. So on a lake of many files a query is planned first on
tables without rows, which opens none. Its views are then made of the files of the days in that plan.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import duckdb

from fleetcast.assets.lake.duckdb_connection import Connection, confine_to_folders, open_duckdb
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.lake_views import Needed, create_macros_and_marts
from fleetcast.assets.lake.read_only_query import parse_read_only_query
from fleetcast.assets.lake.schemas import PARTITIONS, SCHEMAS
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.lake.table_files import TableFiles
from fleetcast.assets.lake.table_queries import empty_table_query, table_rows_query

FEW_DAYS = 8  # of a table: to open their files takes less time than the plan
DAY_FILTER = re.compile(r"\(day = '(\d{4}-\d\d-\d\d)'::DATE\)")
WILDCARDS = re.compile(r"[*?\[]")  # in a path they stand for other names


def files_of_days(
    lake: TableFiles, query: str, needed: Needed, params: Mapping[str, Any], folders: Sequence[str] | None
) -> dict[str, list[LakePath]]:
    """Return the files that a query needs, of each table of which it reads single days.

    A table without a registered schema has its last file too, for its columns. Empty for a lake of few days.
    """
    recipes, named = needed
    folders_of = {table: lake.day_folders(table) for table in named if "day" in PARTITIONS[table]}
    if all(len(found) <= FEW_DAYS for found in folders_of.values()):
        return {}
    last = {
        table: last_file(lake, table, folders_of.get(table, ())) for table in named if table not in SCHEMAS
    }
    # What confines a connection holds for its whole instance: such a query is planned on a separate one.
    with open_duckdb(lake.root, is_plan=True, may_share=folders is None) as con:
        known = [table for table in named if last.get(table) or table in SCHEMAS]
        for table in known:
            file = last.get(table)
            rows = table_rows_query(table, file) if file else empty_table_query(table)
            con.execute(f"create temp table {table} as from ({rows}) limit 0")
        create_macros_and_marts(con, recipes, known, "temp", "with (defer_binding)")
        if folders is not None:
            confine_to_folders(con, folders)
        days = scanned_days(con, query, params)
    found = {
        table: {file for day in days[table] for file in lake.files(table, day=day)}
        | {file for file in (last.get(table),) if file}
        for table in folders_of.keys() & days.keys()
    }
    return {
        table: sorted(files)
        for table, files in found.items()
        if not any(WILDCARDS.search(str(file)) for file in files)
    }


def last_file(lake: TableFiles, table: str, folders: Iterable[str]) -> LakePath | None:
    """Return a file of the last day of a table that has one; of a table without days, any file."""
    for day in sorted({folder.rpartition("day=")[2] for folder in folders}, reverse=True):
        if files := lake.files(table, day=day):
            return files[-1]
    return None if "day" in PARTITIONS[table] else next(iter(lake.files(table)), None)


def scanned_days(con: Connection, query: str, params: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the days that a query reads, of each table of which every scan names one day.

    A table that is not in the result may be read whole. Empty for a query that cannot be planned here.
    """
    try:
        statement = parse_read_only_query(con, query, params)
        if statement.type != duckdb.StatementType.SELECT:  # a pivot reads its names before, in another plan
            return {}
        values = {name: params.get(name) for name in statement.named_parameters}
        [(_, plan)] = con.execute(f"explain (format json) {query}", values or None).fetchall()
    except (duckdb.Error, LakeError):  # the query itself reports it
        return {}
    days: dict[str, set[str]] = {}
    whole = set[str]()
    for details in _nodes(json.loads(plan)):
        if table := details.get("Table", "").rpartition(".")[2].strip('"'):
            filters = details.get("Filters", [])
            found = [
                DAY_FILTER.fullmatch(text) for text in ([filters] if isinstance(filters, str) else filters)
            ]
            named = {match[1] for match in found if match}
            days.setdefault(table, set()).update(named)
            whole.update(() if named else (table,))
    return {table: days[table] for table in days.keys() - whole}


def _nodes(plan: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the details of each node of a plan."""
    for node in plan:
        yield node.get("extra_info", {})
        yield from _nodes(node["children"])
