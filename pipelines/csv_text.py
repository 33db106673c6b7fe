"""A query's answer as CSV, whatever its columns hold."""

import json
from collections.abc import Callable
from typing import IO, Any

import pyarrow as pa


def write_csv(answer: pa.RecordBatchReader, out: IO[bytes]) -> int:
    """Write an answer as CSV, batch by batch; its rows.

    Bytes are written as hex digits. What CSV has no form for is written as JSON: lists, structs, maps, and
    intervals as [months, days, nanoseconds].
    """
    import pyarrow.csv

    empty = pa.Table.from_batches([], answer.schema)
    rows, first = 0, next(answer, None)  # before the header: a query that fails says only so
    with pyarrow.csv.CSVWriter(out, _plain(empty).schema) as writer:
        batch = first
        while batch is not None:
            writer.write(_plain(pa.Table.from_batches([batch], answer.schema)))
            rows += batch.num_rows
            batch = next(answer, None)
    return rows


def _plain(table: pa.Table) -> pa.Table:
    """The table with columns of bytes, and those that CSV has no form for, as text."""
    for number, field in enumerate(table.schema):
        if is_bytes(field.type):
            write: Callable[[Any], str] = bytes.hex
        elif pa.types.is_nested(field.type) or pa.types.is_interval(field.type):
            write = _json
        else:
            continue
        values = table.column(number).to_pylist(maps_as_pydicts="strict")
        texts = [None if value is None else write(value) for value in values]
        table = table.set_column(number, field.name, pa.array(texts, pa.string()))
    return table


def is_bytes(kind: pa.DataType) -> bool:
    """Whether a column holds bytes, not text."""
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return any(test(kind) for test in tests) or pa.types.is_fixed_size_binary(kind)


def _json(value: Any) -> str:
    return json.dumps(value, default=lambda inner: inner.hex() if isinstance(inner, bytes) else str(inner))
