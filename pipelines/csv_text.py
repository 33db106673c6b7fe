"""A query's answer as CSV, whatever its columns hold."""

import json
from typing import IO

import pyarrow as pa


def write_csv(table: pa.Table, out: IO[bytes]) -> None:
    """Write a table as CSV.

    What CSV has no form for is written as JSON: lists, structs, and intervals as [months, days, nanoseconds].
    """
    import pyarrow.csv

    for number, field in enumerate(table.schema):
        if pa.types.is_nested(field.type) or pa.types.is_interval(field.type):
            values = table.column(number).to_pylist()
            texts = [None if value is None else json.dumps(value, default=str) for value in values]
            table = table.set_column(number, field.name, pa.array(texts, pa.string()))
    pyarrow.csv.write_csv(table, out)
