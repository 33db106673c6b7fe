"""The index of what SQL can read: questions with their query, then tables, marts and queries by subject."""

import re
import tomllib
from collections.abc import Iterator
from typing import NamedTuple

from fleetcast.assets.lake.shared_columns import column_meaning
from fleetcast.assets.lake.sql_files import SQL, SqlFile, read_sql

BY_QUESTION = "By question"
QUESTIONS_FILE, SUBJECTS_FILE = SQL / "questions.toml", SQL / "subjects.toml"
SQL_FILE_KINDS = {"tables": "table", "marts": "mart", "macros": "macro", "queries": "query"}
DESCRIBE = re.compile(r"\s*(?:describe|desc)\s+(?:table\s+)?(\w+)\s*;?\s*", re.IGNORECASE)


class IndexEntry(NamedTuple):
    """A line of the index: what to type after `fleetcast sql`, and what it has."""

    subject: str
    kind: str  # question, table, mart, macro or query
    query: str  # a name, a file of sql/queries, or a query
    text: str
    words: str  # everything that a search looks at


def read_questions() -> dict[str, str]:
    """Read the questions that marts answer, each with its query."""
    return tomllib.loads(QUESTIONS_FILE.read_text(encoding="utf-8"))


def read_subjects() -> dict[str, list[str]]:
    """Read which tables, marts, macros and queries are listed, like marts/demand, by subject."""
    return tomllib.loads(SUBJECTS_FILE.read_text(encoding="utf-8"))


def index_entries() -> Iterator[IndexEntry]:
    """Yield the questions, then every table, mart, macro and query by subject."""
    for question, query in read_questions().items():
        yield IndexEntry(BY_QUESTION, "question", query, question, f"{question} {query}")
    for subject, names in read_subjects().items():
        for name in names:
            folder, stem = name.split("/")
            file, kind = read_sql(f"{name}.sql"), SQL_FILE_KINDS[folder]
            query = f"sql/{name}.sql" if kind == "query" else stem
            yield IndexEntry(subject, kind, query, describe_file(file), f"{query} {_searched_text(file)}")


def search_index(word: str) -> list[IndexEntry]:
    """Return the entries with a word that begins so in name, text or columns; ValueError if there is none."""
    begins_word = re.compile(rf"(?<![^\W_]){re.escape(word)}", re.IGNORECASE)
    if found := [entry for entry in index_entries() if begins_word.search(entry.words)]:
        return found
    raise ValueError(
        f"No word of the index begins with {word!r}. Try fewer letters, or see all: fleetcast sql --list."
    )


def describe_file(file: SqlFile) -> str:
    """Return the first sentence of a file without its name."""
    return file.sentence.removeprefix(f"{file.stem}: ")


def described_view(query: str) -> SqlFile | None:
    """Return the header of the table or mart of a query `describe NAME`; None for other queries and names."""
    if found := DESCRIBE.fullmatch(query):
        for folder in ("tables", "marts"):
            if (path := SQL / folder / f"{found[1].lower()}.sql").is_file():
                return read_sql(path)
    return None


def column_meanings(file: SqlFile, columns: list[str]) -> list[str | None]:
    """Return the meaning of each column by the header; None where it has none."""
    return [column_meaning(column, file.columns) for column in columns]


def _searched_text(file: SqlFile) -> str:
    columns = " ".join(f"{name} {meaning}" for name, meaning in file.columns.items())
    return f"{file.sentence} {columns}"
