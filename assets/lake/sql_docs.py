"""Write sql/README.md, an index of the SQL files by subject: python -m fleetcast.assets.lake.sql_docs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fleetcast.assets.lake.shared_columns import column_meaning
from fleetcast.assets.lake.sql_files import SQL, read_sql
from fleetcast.assets.lake.sql_index import (
    BY_QUESTION,
    SQL_FILE_KINDS,
    describe_file,
    index_entries,
    read_subjects,
)
from fleetcast.assets.lake.table_queries import escape_quotes

SQL_INDEX = SQL / "README.md"
INTRODUCTION = """# Tables, marts and queries

Written from the first lines of these files by `python -m fleetcast.assets.lake.sql_docs`; change the files.
Instants are UTC. The published `data/lake/warehouse.duckdb` carries the same texts as comments on its views
and columns.

## How to ask

```
.venv/bin/fleetcast sql "from scoreboard"                                 # any table or mart
.venv/bin/fleetcast sql "from demand_by(15) where llm = 'llama3.1-70b' limit 5"
.venv/bin/fleetcast sql sql/queries/worst_hours.sql > worst_hours.csv     # a shipped query; CSV in a pipe
.venv/bin/fleetcast sql sql/queries/plan_changes.sql --param policy=lt_ua
.venv/bin/fleetcast sql --list cost                                       # what has this word; all without it
.venv/bin/fleetcast sql "describe unit_cost"                              # its columns and what they mean
```

In a query `$trace` and `$day` stand for the config's trace and `--date`, any other `$name` for its `--param`.
From Python, also during a nightly run:

```python
import duckdb

lake = duckdb.connect("data/lake/warehouse.duckdb", read_only=True)
lake.sql("select trace, day, policy, usd, attainment_by_tier['iw_fast'] from scoreboard order by all").show()
```

[contract.yaml](contract.yaml) is the marts' data contract (Open Data Contract Standard 3.1), written by
`python -m fleetcast.assets.lake.contract`. Keep the one that you rely on, and let your CI run
`python -m fleetcast.assets.lake.contract FILE`: it names every column that is gone or means something else.
`fleetcast explore FOLDER` writes a Rill project with a dashboard for each mart. `tests/test_contract.py`
checks each file against the rules of Rill's parser, and runs each model and measure in DuckDB. Rill itself
was not run.
"""
SUBJECTS_INTRODUCTION = """## What there is, by subject

Tables are Parquet files of the lake, marts are views over them, queries answer a question. The header of each
file has its grain, its units and the meaning of its columns; [columns.toml](columns.toml) has those of the
columns that many files have. `reads/` has the queries of the program itself.
"""


def render_sql_index() -> str:
    """Return the page as Markdown: a line for each table, mart, macro and query, then the checks."""
    parts = [INTRODUCTION, _list_questions(), SUBJECTS_INTRODUCTION]
    for subject, names in read_subjects().items():
        parts.append(_list(subject, [(name, SQL_FILE_KINDS[name.split("/")[0]]) for name in names]))
    checks = [
        f"{kind}s/{path.stem}"
        for kind in ("check", "alarm")
        for path in sorted((SQL / f"{kind}s").glob("*.sql"))
    ]
    title = "Checks, which no row may break, and alarms, for which nothing stops"
    parts.append(_list(title, [(name, name.split("/")[0].removesuffix("s")) for name in checks]))
    return "\n".join(parts)


def write_sql_index(path: Path = SQL_INDEX) -> None:
    """Write the page to a file."""
    path.write_text(render_sql_index(), encoding="utf-8")


def comment_statements(columns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield DuckDB statements that write the headers' texts as comments on views and columns.

    `columns`: those of each existing view.
    """
    for path in (*SQL.glob("tables/*.sql"), *SQL.glob("marts/*.sql")):
        file, view = read_sql(path), path.stem
        if view in columns:
            yield f"comment on view {view} is '{escape_quotes(file.sentence)}'"
        for column in columns.get(view, ()):
            if meaning := column_meaning(column, file.columns):
                yield f"comment on column {view}.{column} is '{escape_quotes(meaning)}'"


def _list_questions() -> str:
    """Return a Markdown table of questions with their query: those of marts, then those of sql/queries."""
    rows = [f"## {BY_QUESTION}", "", "| question | fleetcast sql |", "| --- | --- |"]
    for entry in index_entries():
        if entry.kind == "question":
            rows.append(f'| {entry.text} | `"{entry.query}"` |')
        elif entry.kind == "query":
            question = entry.text.partition("?")[0] + "?" if "?" in entry.text else entry.text
            rows.append(f"| {escape_cell(question)} | [{entry.query}]({entry.query.removeprefix('sql/')}) |")
    return "\n".join([*rows, ""])


def _list(title: str, files: Sequence[tuple[str, str]]) -> str:
    """Return a Markdown table of files with the first sentence of each."""
    rows = [f"### {title}", "", "| name | kind | what it has |", "| --- | --- | --- |"]
    for name, kind in files:
        file, stem = read_sql(f"{name}.sql"), name.split("/")[1]
        rows.append(f"| [{stem}]({name}.sql) | {kind} | {escape_cell(describe_file(file))} |")
    return "\n".join([*rows, ""])


def escape_cell(text: str) -> str:
    """Return a text as a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    write_sql_index()
