"""Write the result of a query as CSV, whatever types its columns have."""

import json
from collections.abc import Callable
from typing import IO, Any

import pyarrow as pa


def write_csv(answer: pa.RecordBatchReader, out: IO[bytes]) -> int:
    """Write a query's result as CSV, batch by batch; return the number of rows.

    Bytes become hex digits. Lists, structs and maps become JSON, intervals [months, days, nanoseconds].
    """
    import pyarrow.csv

    empty = pa.Table.from_batches([], answer.schema)
    # Read the first batch before the header is written: a query that fails prints only its error.
    rows, batch = 0, next(answer, None)
    with pyarrow.csv.CSVWriter(out, _with_text_columns(empty).schema) as writer:
        while batch is not None:
            writer.write(_with_text_columns(pa.Table.from_batches([batch], answer.schema)))
            rows += batch.num_rows
            batch = next(answer, None)
    return rows


def _with_text_columns(table: pa.Table) -> pa.Table:
    """Return the table with bytes, nested values and intervals as text."""
    for number, field in enumerate(table.schema):
        if is_bytes(field.type):
            write: Callable[[Any], str] = bytes.hex
        elif pa.types.is_nested(field.type) or pa.types.is_interval(field.type):
            write = _to_json
        else:
            continue
        values = table.column(number).to_pylist(maps_as_pydicts="strict")
        texts = [None if value is None else write(value) for value in values]
        table = table.set_column(number, field.name, pa.array(texts, pa.string()))
    return table


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether a column has bytes, not text."""
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return any(test(kind) for test in tests) or pa.types.is_fixed_size_binary(kind)


def _to_json(value: Any) -> str:
    return json.dumps(value, default=lambda inner: inner.hex() if isinstance(inner, bytes) else str(inner))
