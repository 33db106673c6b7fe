"""Columns that many tables and marts have: sql/columns.toml defines each of them once, for all headers.

A header line of such a column begins with the definition, and says more: "number of requests in this bin".
"""

import re
import tomllib
from collections.abc import Mapping
from functools import cache

from fleetcast.assets.lake.sql_files import SQL
from fleetcast.assets.lake.table_queries import OLD_NAMES

COLUMNS_FILE = SQL / "columns.toml"
# Until 0.3: old names, of one mart or table or of many, and what to write instead.
RENAMED_COLUMNS: Mapping[str, str] = {
    "region": "Where the instances are is served_region; where the requests come from is region.",
    "left_over.gpu_hours": "In left_over it is backlog_gpu_hours.",
    "left_over.usd": "In left_over it is backlog_usd.",
    "planner_board.draws": "In planner_board it is kept_draws.",
    "quality_board.kind": "In quality_board it is plan_kind.",
    "quality_board.promised_p95_s": "In quality_board it is p95_by_tables_s.",
    "quality_front.promised_p95_s": "In quality_front it is p95_by_tables_s.",
    "idea_worth.place": "In idea_worth it is ideas_so_far.",
    "decision_leaderboard.rounding_usd": "In decision_leaderboard it is constraint_usd.",
    "planner_board.whole_usd": "In planner_board it is constraint_usd.",
    "all_plans.status": "In all_plans it is solver_status.",
    "token_cdf.share": "In token_cdf it is cumulated_share.",
    "ttft_histogram.share": "In ttft_histogram it is cumulated_share.",
    "tpot_histogram.share": "In tpot_histogram it is cumulated_share.",
    **{
        f"{table}.{old}": f"In {table} it is {name}."
        for table, old_names in OLD_NAMES.items()
        for name, old in old_names.items()
    },
}


@cache
def load_shared_columns() -> Mapping[str, str]:
    """Read the definitions, by column."""
    return tomllib.loads(COLUMNS_FILE.read_text(encoding="utf-8"))


def column_meaning(column: str, described: Mapping[str, str]) -> str | None:
    """Return what a column means, by its own header, else by the shared definition; None without either."""
    return described.get(column) or load_shared_columns().get(column)


def renamed_column_hint(message: str, query: str) -> str:
    """Return what to write for the unknown column of DuckDB's message, if it has a new name; else ""."""
    found = re.search(r'column "?(\w+)"?', message, re.IGNORECASE)
    for name, hint in RENAMED_COLUMNS.items():
        mart, _, column = name.rpartition(".")
        if found and found[1] == column and mart in query.lower():
            return hint
    return ""
