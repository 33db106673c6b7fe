"""The rows of a table as SQL, from files of any age."""

import pyarrow as pa

from fleetcast.assets.lake.result_schemas import COUNT, FIGURE, TEXT, TIMESTAMP
from fleetcast.assets.lake.schemas import PARTITIONS, SCHEMAS
from fleetcast.assets.lake.store import Place

# What a column held before there was one: in files that do not have it.
BEFORE = {"role": "whole"}

# What a table that has no file yet is made of, so that a view over it can stand.
DUCKDB_TYPES = {
    TEXT: "varchar",
    COUNT: "bigint",
    TIMESTAMP: "timestamptz",
    pa.date32(): "date",
    pa.uint64(): "ubigint",
    pa.int32(): "integer",
    pa.bool_(): "boolean",
    FIGURE: "double",
    pa.list_(pa.uint64()): "ubigint[]",
    pa.map_(TEXT, FIGURE): "map(varchar, double)",
    pa.map_(TEXT, TEXT): "map(varchar, varchar)",
}


def scan(table: str, files: Place) -> str:
    """A query for every row of the files of a table; what an older file lacks is as in BEFORE, else null."""
    types = ", ".join(f"'{key}': {'date' if key == 'day' else 'varchar'}" for key in PARTITIONS[table])
    options = f"hive_partitioning = true, hive_types = {{{types}}}, union_by_name = true"
    rows = f"select * from read_parquet('{quoted(files)}', {options})"
    if table not in SCHEMAS:
        return rows
    whole = f"{no_rows(table)} union all by name {rows}"
    known = [
        f"coalesce({name}, '{value}') as {name}"
        for name, value in BEFORE.items()
        if name in SCHEMAS[table].names
    ]
    return f"select * replace ({', '.join(known)}) from ({whole})" if known else whole


def no_rows(table: str) -> str:
    """A query for the columns of a table without a row."""
    keys = {key: pa.date32() if key == "day" else pa.string() for key in PARTITIONS[table]}
    schema = SCHEMAS[table]
    columns = {**{field.name: field.type for field in schema}, **keys}
    nulls = ", ".join(f"null::{DUCKDB_TYPES[kind]} as {name}" for name, kind in columns.items())
    return f"select {nulls} where false"


def quoted(path: object) -> str:
    """A path as it stands between the quotes of an SQL text."""
    return str(path).replace("'", "''")
