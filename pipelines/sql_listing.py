"""The index of `fleetcast sql --list` in the terminal, and the meanings of columns for `describe`."""

import sys
from collections.abc import Sequence
from itertools import groupby

import pyarrow as pa
from rich.table import Table
from rich.text import Text

from fleetcast.assets.lake.sql_files import SqlFile
from fleetcast.assets.lake.sql_index import IndexEntry, column_meanings
from fleetcast.pipelines.csv_text import write_csv
from fleetcast.pipelines.terminal_tables import OUT


def show_index(entries: Sequence[IndexEntry]) -> None:
    """Print entries of the index by subject; as CSV in a pipe."""
    if not sys.stdout.isatty():
        fields = ("subject", "kind", "query", "text")
        table = pa.table({name: [getattr(entry, name) for entry in entries] for name in fields})
        write_csv(table.to_reader(), sys.stdout.buffer)
        return
    for subject, group in groupby(entries, key=lambda entry: entry.subject):
        OUT.print(Text(subject, style="bold"))
        table = Table.grid(padding=(0, 2, 0, 0))
        for entry in group:
            if entry.kind == "question":
                table.add_row(Text(entry.text))
                table.add_row(Text(f'  "{entry.query}"', style="dim"))
            else:
                table.add_row(Text(entry.query, no_wrap=True), entry.kind, Text(entry.text))
        OUT.print(table)
        OUT.print()


def show_description(answer: pa.RecordBatchReader, view: SqlFile) -> int:
    """Print the columns of a table or mart with their meanings, as CSV in a pipe; return their number.

    `answer`: the result of `describe`.
    """
    table = answer.read_all().select(["column_name", "column_type"])
    meanings = pa.array(column_meanings(view, table["column_name"].to_pylist()), pa.string())
    table = table.append_column("comment", meanings)
    if not sys.stdout.isatty():
        return write_csv(table.to_reader(), sys.stdout.buffer)
    OUT.print(view.sentence, f"grain: {view.fields['grain']}", f"units: {view.fields['units']}", "", sep="\n")
    grid = Table.grid(padding=(0, 2, 0, 0))
    for name, kind, meaning in zip(*table.to_pydict().values(), strict=True):
        grid.add_row(Text(name, no_wrap=True), Text(kind.lower(), no_wrap=True), Text(meaning or ""))
    OUT.print(grid)
    return table.num_rows
