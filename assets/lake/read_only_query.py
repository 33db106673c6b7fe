"""Check that a text is one query that only reads: a SELECT, with or without an explain before it.

The type of a statement is not enough. `explain analyze` runs what it explains, a pivot counts as several
statements, a with clause may contain a `copy ... to`, and some functions run a text.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import duckdb

from fleetcast.assets.lake.duckdb_connection import Connection
from fleetcast.assets.lake.errors import LakeError

_Kind = duckdb.StatementType
QUERY_TYPES = (_Kind.SELECT, _Kind.EXPLAIN, _Kind.MULTI)  # MULTI: a pivot is several statements
QUERY_KEYWORDS = {
    "select",
    "from",
    "with",
    "values",
    "table",
    "pivot",
    "pivot_wider",
    "pivot_longer",
    "unpivot",
    "describe",
    "desc",
    "show",
    "summarize",
    "(",
}
EXPLAIN_OPTIONS = {"analyze", "analyse", "format"}
WRITE_KEYWORDS = {"copy", "insert", "update", "delete", "merge"}  # statements that a with clause may contain
TEXT_RUNNING_FUNCTIONS = {"query", "json_execute_serialized_sql"}  # table functions
NESTED_WRITE_ERROR = "must be at the top level"  # in DuckDB's error for a nested with clause that writes


class QueryToken(NamedTuple):
    """A word, string or operator of a query, in lower case and without quotes around a name."""

    text: str
    starts: int  # in bytes of UTF-8, as DuckDB counts
    ends: int


def parse_read_only_query(
    con: Connection, text: str, params: Mapping[str, Any] | None = None
) -> duckdb.Statement:
    """Return the single statement of a text without running it; LakeError unless it only reads."""
    try:
        text.encode()
    except UnicodeEncodeError as error:  # a byte of the command line that the terminal's encoding lacks
        raise LakeError(
            f"The query has a byte that is no UTF-8, at character {error.start + 1}. Write it in UTF-8."
        ) from error
    statements = con.extract_statements(text)
    kinds = [_kind(statement) for statement in statements]
    if len(kinds) != 1 or kinds[0] not in QUERY_TYPES:
        raise _refusal(", ".join(kind.name.lower() for kind in kinds) or "none")
    (statement,) = statements
    tokens = [token for token in _tokens(text) if token.text != ";"]
    start = explained_start(tokens)
    words = [token.text for token in tokens]
    for word, after in pairwise(words):
        if word in TEXT_RUNNING_FUNCTIONS and after == "(":
            raise _refusal(f"the function {word}, which runs a text")
    if tokens[start].text not in QUERY_KEYWORDS:
        raise _refusal(" ".join(token.text for token in tokens[: start + 1]))
    if found := sorted(WRITE_KEYWORDS.intersection(words)):  # DuckDB refuses to nest a query that writes
        nested = f"from (\n{text.encode()[tokens[start].starts : tokens[-1].ends].decode()}\n)"
        values = {name: (params or {}).get(name) for name in statement.named_parameters}
        try:
            con.sql(nested, params=values or None)
        except (duckdb.BinderException, duckdb.ParserException) as error:
            if NESTED_WRITE_ERROR in str(error) or isinstance(error, duckdb.ParserException):
                raise _refusal(f"a with clause with {found[0]}") from error
            raise
    return statement


def _kind(statement: duckdb.Statement) -> duckdb.StatementType:
    try:
        return statement.type
    except ValueError:  # a type that the bindings do not know, like that of `update extensions`
        return _Kind.INVALID


def explained_start(tokens: list[QueryToken]) -> int:
    """Return the index of the first token that is explained: 0 for a statement without explain."""
    words = [token.text for token in tokens]
    if words[0] != "explain":
        return 0
    if words[1] in EXPLAIN_OPTIONS:
        return 2
    return words.index(")") + 1 if words[1] == "(" and words[2] in EXPLAIN_OPTIONS else 1


def _tokens(text: str) -> Iterator[QueryToken]:
    found, encoded = duckdb.tokenize(text), text.encode()
    for (starts, kind), (ends, _) in zip(found, [*found[1:], (len(encoded), None)], strict=True):
        if kind != duckdb.token_type.comment:
            word = encoded[starts:ends].rstrip()
            yield QueryToken(word.decode().strip('"').casefold(), starts, starts + len(word))


def _refusal(given: str) -> LakeError:
    return LakeError(
        "Needed one query that only reads (select, from, pivot, describe, summarize, or explain of one), "
        f"got {given}. Anything else can be done in a DuckDB shell on warehouse.duckdb."
    )
