"""SQL queries for the rows of a table, from files of any version."""

from fleetcast.assets.lake.schemas import COLUMN_TYPES, PARTITIONS, SCHEMAS
from fleetcast.assets.lake.store import LakePath

# The value of a column in older files that do not have it.
OLD_FILE_DEFAULTS = {"role": "whole"}


def table_rows_query(table: str, files: LakePath) -> str:
    """Return a query for all rows of a table's files; older files get OLD_FILE_DEFAULTS or null."""
    types = ", ".join(f"'{key}': {'date' if key == 'day' else 'varchar'}" for key in PARTITIONS[table])
    options = f"hive_partitioning = true, hive_types = {{{types}}}, union_by_name = true"
    rows = f"select * from read_parquet('{escape_quotes(files)}', {options})"
    if table not in SCHEMAS:
        return rows
    complete = f"{empty_table_query(table)} union all by name {rows}"
    defaults = [
        f"coalesce({name}, '{value}') as {name}"
        for name, value in OLD_FILE_DEFAULTS.items()
        if name in SCHEMAS[table].names
    ]
    return f"select * replace ({', '.join(defaults)}) from ({complete})" if defaults else complete


def empty_table_query(table: str) -> str:
    """Return a query for the columns of a table, without rows."""
    keys = {key: "date" if key == "day" else "varchar" for key in PARTITIONS[table]}
    nulls = ", ".join(f"null::{kind} as {name}" for name, kind in {**COLUMN_TYPES[table], **keys}.items())
    return f"select {nulls} where false"


def escape_quotes(path: object) -> str:
    """Return a path with its quotes escaped for an SQL string."""
    return str(path).replace("'", "''")
