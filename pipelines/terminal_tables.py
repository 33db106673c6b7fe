"""Tables in the terminal. No cell is cut off: columns that do not fit continue in a table below."""

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fleetcast.assets.pages.value_format import format_value
from fleetcast.pipelines.csv_text import write_csv

UNBOUNDED = 10_000  # characters per line of a file or a pipe
_CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")  # all but the end of a line


class LiteralConsole(Console):
    """A console that prints texts as they are: no line breaks, markup or emoji; escapes for controls."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print texts in their own lines, however long; only a table is laid out by the width."""
        options.setdefault("soft_wrap", all(isinstance(one, str) for one in objects))
        super().print(*objects, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text with its escapes for controls."""
        return super().render_str(_CONTROLS.sub(_escaped, text), **options)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


OUT = LiteralConsole(width=None if sys.stdout.isatty() else UNBOUNDED)
MAX_SHOWN_ROWS = 100


def show_board(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows, named by their first cell; columns that do not fit go into tables below, named again."""
    rows = list(rows)
    widths = _widths(heads, rows)
    room, pages = OUT.width - widths[0], [list[int]()]
    for column in range(1, len(heads)):
        if pages[-1] and sum(1 + widths[shown] for shown in (*pages[-1], column)) > room:
            pages.append([])
        pages[-1].append(column)
    if title:
        OUT.print(title)
    for page in pages:
        columns = (0, *page)
        numbers = frozenset(range(1, len(columns)))
        cells = ([row[column] for column in columns] for row in rows)
        OUT.print(_new_table([heads[column] for column in columns], cells, numbers))


def show_resolution(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print the resolution of the search that found the rows of a board, from their noise_share."""
    resolution = max((row["noise_share"] for row in rows if row["noise_share"] is not None), default=0.0)
    OUT.print(
        f"resolution of the search: {format_percent(resolution, '.1f')} %; smaller differences mean nothing"
    )


def show_table(answer: pa.RecordBatchReader) -> int:
    """Print the result of a query: CSV in a pipe, else a table, or a block per row if the table is too wide.

    Returns the number of rows. A terminal shows the first MAX_SHOWN_ROWS.
    """
    if not sys.stdout.isatty():
        return write_csv(answer, sys.stdout.buffer)
    batches, found = [], 0
    for batch in answer:
        if found < MAX_SHOWN_ROWS:
            batches.append(batch)
        found += batch.num_rows
    shown = pa.Table.from_batches(batches, answer.schema).slice(0, MAX_SHOWN_ROWS)
    names = shown.column_names
    columns = [[format_value(value) for value in _values(column)] for column in shown.columns]
    rows = list(zip(*columns, strict=True))
    if sum(_widths(names, rows)) + 2 * len(names) <= OUT.width:
        kinds = (field.type for field in shown.schema)
        numbers = {
            n for n, kind in enumerate(kinds) if pa.types.is_floating(kind) or pa.types.is_integer(kind)
        }
        OUT.print(_new_table(names, rows, numbers, gap=2))
    else:
        for row in rows:
            show_record(names, row)
    if found > MAX_SHOWN_ROWS:
        OUT.print(f"{MAX_SHOWN_ROWS} of {found:,} rows; pipe it into a file for all of them.")
    return found


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column; as Arrow's text if Python has no such value (a year after 9999)."""
    try:
        return column.to_pylist(maps_as_pydicts="strict")
    except OverflowError:
        return column.cast(pa.string()).to_pylist()


def show_record(names: Sequence[str], values: Sequence[str]) -> None:
    """Print one row as a block, a line for each column."""
    width = max(map(len, names))
    for name, value in zip(names, values, strict=True):
        OUT.print(f"{name:<{width}}  {value}")
    OUT.print()


def format_percent(share: float | None, spec: str) -> str:
    """Format a share of 0 to 1 in per cent."""
    return format_figure(None if share is None else 100 * share, spec)


def format_figure(value: float | None, spec: str) -> str:
    """Format a number; a dash for None or NaN."""
    return "–" if value is None or math.isnan(value) else f"{value:{spec}}"


def _widths(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[int]:
    """Return the number of characters of the widest line of each column."""
    columns = zip(heads, *rows, strict=True)
    return [max(map(len, chain.from_iterable(cell.split("\n") for cell in column))) for column in columns]


def _new_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int], gap: int = 1
) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, gap - 1, 0, 0), show_edge=False)
    for column, head in enumerate(heads):
        table.add_column(head, justify="right" if column in numbers else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(OUT.render_str, row))
    return table
