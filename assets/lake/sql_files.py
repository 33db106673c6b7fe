"""The files of sql/ and what their headers declare.

A header is the comment lines at the beginning of a file: a sentence; `key: value` lines (grain, reads, units;
for a query also `no rows`, what such a result means; for a table that may have no file where another has one,
`written with` and that other; for a mart of which one table is enough, `any of` and its tables; for a source
also format, recognised by, may have, clock and ids);
`column = meaning <- table.column` lines, where the arrow names the origin of a column; `column type = ...`
if assets write the column (assets/lake/schemas.py). Checks, tests, Dagster's column schemas and lineage,
sql/README.md and the readers of trace files use the headers, so they cannot drift from what runs.
"""

import difflib
import functools
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from fleetcast.models.world.project_paths import ROOT

SQL = ROOT / "sql"
INTROSPECTION_WORDS = {"show", "information_schema", "sqlite_master"}  # words of queries that list tables
COLUMN_LINE = re.compile(r"(\w+)(?: ([a-z]+(?:\[\]|\([a-z, ]+\))?))? = (.+)")  # name, type if any, meaning
HEADER_FIELDS = "grain|reads|units|written with|any of|no rows|format|recognised by|may have|clock|ids"


class SqlFileError(ValueError):
    """There is no such SQL file."""


class SqlFile(NamedTuple):
    """A file of sql/ with what its header declares."""

    name: str
    text: str
    sentence: str
    fields: Mapping[str, str]  # grain, reads, units, ...
    columns: Mapping[str, str]  # column -> meaning
    types: Mapping[str, str]  # column that assets write -> type, in the order of the table
    made_from: Mapping[str, tuple[tuple[str, str], ...]]  # column -> (table, column) of its origins

    @property
    def defined_names(self) -> frozenset[str]:
        """Names that the file defines: the functions of a file of macros, or the view of a mart."""
        return _macro_names(self.text) or frozenset({self.stem})

    @property
    def stem(self) -> str:
        """The name without its suffix: that of a mart."""
        return self.name.removesuffix(".sql")

    def listed(self, field: str) -> tuple[str, ...]:
        """Return the comma-separated entries of a header field; empty if it is absent or `none`."""
        entries = (entry.strip() for entry in self.fields.get(field, "none").split(","))
        return tuple(entry for entry in entries if entry != "none")


def read_sql(name: str | Path) -> SqlFile:
    """Read an SQL file by its name under sql/ or its path, and parse its header; SqlFileError if absent."""
    path = next(
        (p for p in (SQL / name, SQL.parent / name, Path(os.path.expanduser(name))) if p.is_file()), None
    )
    if path is None:
        raise SqlFileError(f"There is no SQL file {name}. {_nearest_file(Path(name))}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise SqlFileError(
            f"{path.name} is no UTF-8 text: byte {error.start + 1:,}. Save it as UTF-8."
        ) from error
    header = []
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        header.append(line.removeprefix("--").strip())
    fields = {m[1]: m[2] for line in header if (m := re.match(rf"({HEADER_FIELDS}): (.+)", line))}
    found = [match for line in header if (match := COLUMN_LINE.match(line))]
    types = {match[1]: match[2] for match in found if match[2]}
    parts = {match[1]: match[3].split(" <- ") for match in found}
    columns = {column: meaning for column, (meaning, *_) in parts.items()}
    made_from = {column: _column_origins(part[1]) for column, part in parts.items() if len(part) > 1}
    return SqlFile(path.name, text, header[0] if header else "", fields, columns, types, made_from)


def load_macros_and_marts() -> dict[Path, SqlFile]:
    """Read all macros and marts, by path and in the order of the paths."""
    found = [entry for folder in ("macros", "marts") for entry in os.scandir(SQL / folder)]
    files = sorted((file.path, file.stat().st_size, file.stat().st_mtime_ns) for file in found)
    return dict(_read_macros_and_marts(tuple(file for file in files if file[0].endswith(".sql"))))


@functools.lru_cache(maxsize=4)  # every query needs them, and they rarely change
def _read_macros_and_marts(files: tuple[tuple[str, int, int], ...]) -> dict[Path, SqlFile]:
    """Read files, cached by path, size and time of writing."""
    return {Path(path): read_sql(path) for path, _, _ in files}


def words_of_query(query: str | None, recipes: Iterable[SqlFile]) -> set[str] | None:
    """Return the words of a query and of all recipes it names; None if it may read any view."""
    words = set(_words(query or ""))
    if (
        not words
        or words & INTROSPECTION_WORDS
        or any(word.startswith(("duckdb_", "pragma_")) for word in words)
    ):
        return None
    unread = list(recipes)
    while named := [recipe for recipe in unread if words & recipe.defined_names]:
        unread = [recipe for recipe in unread if recipe not in named]
        words.update(*(_words(recipe.text) for recipe in named))
    return words


@functools.lru_cache(maxsize=1000)  # every query needs those of all macros and marts
def _words(text: str) -> frozenset[str]:
    """Return the words of an SQL text without its comments."""
    return frozenset(re.findall(r"\w+", re.sub(r"--.*", "", text).lower()))


@functools.lru_cache(maxsize=1000)
def _macro_names(text: str) -> frozenset[str]:
    """Return the functions that an SQL text defines."""
    return frozenset(re.findall(r"create or replace macro (\w+)", text))


def _nearest_file(path: Path) -> str:
    """Suggest the file of sql/ with the most similar name, else list all queries, as a sentence."""
    known = {file.stem: f"sql/{file.relative_to(SQL)}" for file in sorted(SQL.rglob("*.sql"))}
    if near := difflib.get_close_matches(path.stem, known, n=1):
        return f"Did you mean {known[near[0]]}?"
    recipes = sorted(file.stem for file in SQL.glob("queries/*.sql"))
    return f"In sql/queries there is: {', '.join(recipes)}."


def _column_origins(names: str) -> tuple[tuple[str, str], ...]:
    """Parse "requests.tier, requests.llm" into tables and columns."""
    pairs = (name.strip().split(".") for name in names.split(","))
    return tuple((table, column) for table, column in pairs)
