"""sql/README.md, written from the headers of the SQL files: python -m fleetcast.assets.lake.sql_docs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fleetcast.assets.lake.sql_files import SQL, SqlFile, read_sql
from fleetcast.assets.lake.views import quoted

README = SQL / "README.md"
INTRODUCTION = """# Tables, marts and recipes

Written from the headers of these files by `python -m fleetcast.assets.lake.sql_docs`; change the headers.
Instants are UTC. The published `data/lake/warehouse.duckdb` carries the same texts as comments on its views
and columns.

## How to ask

```
.venv/bin/fleetcast sql "from scoreboard"                                 # any table or mart
.venv/bin/fleetcast sql "from demand_by(15) where llm = 'bloom-176b' limit 5"
.venv/bin/fleetcast sql sql/queries/worst_hours.sql > worst_hours.csv     # a recipe; in a pipe CSV
.venv/bin/fleetcast sql sql/queries/plan_changes.sql --param policy=lt_ua
```

In a query `$trace` and `$day` stand for the config's trace and `--date`, any other `$name` for its `--param`.
From Python, also while a night is running:

```python
import duckdb

lake = duckdb.connect("data/lake/warehouse.duckdb", read_only=True)
lake.sql("select trace, day, policy, usd, attainment_by_tier['iw_fast'] from scoreboard order by all").show()
```

[contract.yaml](contract.yaml) is the marts' data contract (Open Data Contract Standard 3.1), written by
`python -m fleetcast.assets.lake.contract`. Keep the one that you rely on, and let your CI run
`python -m fleetcast.assets.lake.contract FILE`: it names every column that is gone or means something else.
`fleetcast explore FOLDER` writes a Rill project with a dashboard for each mart. Rill itself was not to be had
here: each file is held against what Rill's parser refuses, each model and measure is asked in DuckDB
(`tests/test_contract.py`).

A recipe answers a question: [all of them](#recipes). Where to begin:

- `queries/policies_over_days.sql`: what did each policy spend and miss?
- `queries/worst_hours.sql`, `queries/why_late.sql`: when, where and why were requests late?
- `queries/plan_changes.sql`: what does a plan change, and why?
- the mart [regret](#regret): what was spent above the least that any fleet could, and on what?
"""
CHAPTERS = (
    ("tables", "Tables", "Parquet files of the lake, written by the assets."),
    ("marts", "Marts", "Views over the tables; one named like a table is the recipe of that table."),
    ("macros", "Macros", "Formulas and table functions, each in one place."),
    ("queries", "Recipes", "Questions with their answer."),
    ("reads", "Reads", "What the program itself asks, each from one place."),
    ("checks", "Checks", "Each returns the rows that break its sentence; none may."),
    ("alarms", "Alarms", "The same, as warnings: nothing stops for them."),
)


def page() -> str:
    """The whole page as Markdown."""
    chapters = [INTRODUCTION]
    for folder, title, sentence in CHAPTERS:
        files = [read_sql(path) for path in sorted((SQL / folder).glob("*.sql"))]
        chapters.append(f"## {title}\n\n{sentence}\n")
        if folder in ("queries", "reads", "checks", "alarms"):
            rows = [f"| `{folder}/{file.name}` | {_cell(file.sentence)} |" for file in files]
            chapters.append("\n".join(["| file | |", "| --- | --- |", *rows, ""]))
        else:
            chapters += [_entry(file) for file in files]
    return "\n".join(chapters)


def write(path: Path = README) -> None:
    """Write the page."""
    path.write_text(page(), encoding="utf-8")


def comments(columns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """DuckDB statements that put the texts of the headers on views and their columns.

    Parameters
    ----------
    columns : Mapping[str, Sequence[str]]
        The columns of each view that is there.
    """
    for path in (*SQL.glob("tables/*.sql"), *SQL.glob("marts/*.sql")):
        file, view = read_sql(path), path.stem
        if view in columns:
            yield f"comment on view {view} is '{quoted(file.sentence)}'"
        for column, meaning in file.columns.items():
            if column in columns.get(view, ()):
                yield f"comment on column {view}.{column} is '{quoted(meaning)}'"


def _entry(file: SqlFile) -> str:
    """One table, mart or macro: its sentence, grain, sources and units, and its columns."""
    name = Path(file.name).stem
    lines = [f"### {name}", "", file.sentence.removeprefix(f"{name}: "), ""]
    lines += [
        f"- {field}: {_cell(file.fields[field])}"
        for field in ("grain", "reads", "units")
        if field in file.fields
    ]
    if file.columns:
        lines += ["", "| column | meaning | made from |", "| --- | --- | --- |"]
        for column, meaning in file.columns.items():
            origins = ", ".join(f"{table}.{name}" for table, name in file.made_from.get(column, ()))
            lines.append(f"| {column} | {_cell(meaning)} | {origins} |")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    write()
