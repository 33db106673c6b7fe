"""The rows of a table as SQL, from files of any age."""

from fleetcast.assets.lake.schemas import COLUMN_TYPES, PARTITIONS, SCHEMAS
from fleetcast.assets.lake.store import LakePath

# What a column held before there was one: in files that do not have it.
OLD_FILE_DEFAULTS = {"role": "whole"}


def table_rows_query(table: str, files: LakePath) -> str:
    """A query for every row of the files of a table; what an older file lacks is as in BEFORE, else null."""
    types = ", ".join(f"'{key}': {'date' if key == 'day' else 'varchar'}" for key in PARTITIONS[table])
    options = f"hive_partitioning = true, hive_types = {{{types}}}, union_by_name = true"
    rows = f"select * from read_parquet('{escape_quotes(files)}', {options})"
    if table not in SCHEMAS:
        return rows
    whole = f"{empty_table_query(table)} union all by name {rows}"
    known = [
        f"coalesce({name}, '{value}') as {name}"
        for name, value in OLD_FILE_DEFAULTS.items()
        if name in SCHEMAS[table].names
    ]
    return f"select * replace ({', '.join(known)}) from ({whole})" if known else whole


def empty_table_query(table: str) -> str:
    """A query for the columns of a table without a row."""
    keys = {key: "date" if key == "day" else "varchar" for key in PARTITIONS[table]}
    nulls = ", ".join(f"null::{kind} as {name}" for name, kind in {**COLUMN_TYPES[table], **keys}.items())
    return f"select {nulls} where false"


def escape_quotes(path: object) -> str:
    """A path as it stands between the quotes of an SQL text."""
    return str(path).replace("'", "''")
