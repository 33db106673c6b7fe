"""Random one-line changes of the project's Python and SQL, drawn by lines over all rooms."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measure import ROOT

FOLDERS = ("assets", "models", "pipelines", "sql")
PYTHON_SWAPS: dict[type[ast.AST], str] = {
    **{ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="},
    **{ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is", ast.And: "or", ast.Or: "and"},
    **{ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "/", ast.Pow: "*"},
    **{ast.Mod: "//", ast.BitAnd: "|", ast.BitOr: "&"},
}
SYMMETRIC = {"min", "max", "minimum", "maximum", "allclose", "array_equal"}  # in their first two arguments
SQL_SWAPS = (  # comparison, join, aggregate, arithmetic, filter, unit, order
    *((r"<=", "<"), (r">=", ">"), (r"(?<![<>=-])<(?![=>-])", "<="), (r"(?<![<>=-])>(?!=)", ">=")),
    *((r" = ", " <> "), (r" is null", " is not null"), (r" is not null", " is null")),
    *((r"\band\b", "or"), (r"\bor\b", "and"), (r" desc\b", ""), (r"\bdistinct ", "")),
    *((r"\bleft join\b", "inner join"), (r"\binner join\b", "left join"), (r"\bunion all\b", "union")),
    *((r"\bmin\(", "max("), (r"\bmax\(", "min("), (r"\b(sum|avg)\(", "max("), (r"\barg_min\(", "arg_max(")),
    *(
        (r" \+ ", " - "),
        (r" - ", " + "),
        (r"(?<!select) \* (?!from|exclude|replace)", " / "),
        (r" / ", " * "),
    ),
    *((r"^(\s*)where .*[^(]$", r"\1where true"), (r" filter \(where [^()]*\)", ""), (r"\b3600\b", "60")),
    (r"(?<![\w.$'])(\d+)(?![\w.'])", lambda found: str(int(found[1]) + 1)),
)


class Change(NamedTuple):
    """One place of a file, and what stands there instead."""

    file: str
    line: int  # from 1
    start: int  # of the old text, in characters
    end: int
    new: str
    kind: str

    @property
    def room(self) -> str:
        """The folder of the file, of two levels."""
        return "/".join(Path(self.file).parts[:-1][:2])

    def text(self) -> str:
        """The file's text with the change."""
        text = (ROOT / self.file).read_text(encoding="utf-8")
        return text[: self.start] + self.new + text[self.end :]

    def lines(self) -> tuple[str, str]:
        """The changed lines before and after, in one line each."""
        before, after = (ROOT / self.file).read_text(encoding="utf-8"), self.text()
        begin, tail = before.rfind("\n", 0, self.start) + 1, len(before) - self.end
        until = before.find("\n", self.end)
        rest = tail - (len(before) - until)
        old, new = before[begin:until], after[begin : len(after) - tail + rest]
        return " ".join(old.split()), " ".join(new.split())


def draw_changes(seed: int, count: int) -> list[Change]:
    """Draw lines that can be changed, without repetition, and one change of each."""
    by_line: dict[tuple[str, int], list[Change]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.*")):
            file = str(path.relative_to(ROOT))
            changes = {".py": python_changes, ".sql": sql_changes}.get(path.suffix)
            for change in changes(file, path.read_text(encoding="utf-8")) if changes else ():
                by_line.setdefault((file, change.line), []).append(change)
    rng, drawn = np.random.default_rng(seed), list[Change]()
    lines = list(by_line)
    for at in rng.permutation(len(lines)):
        own = by_line[lines[at]]
        change = own[rng.integers(len(own))]
        if change.file.endswith(".sql") or is_compilable(change.text()):
            drawn.append(change)
        if len(drawn) == count:
            break
    return drawn


def is_compilable(text: str) -> bool:
    """Whether Python can read a text."""
    try:
        compile(text, "changed", "exec")
    except SyntaxError:
        return False
    return True


def sql_changes(file: str, text: str) -> Iterator[Change]:
    """Yield the changes of SQL, outside comments and strings."""
    at = 0
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        code = line.split("--")[0].rstrip()
        for pattern, new in SQL_SWAPS:
            for found in re.finditer(pattern, code):
                if code[: found.start()].count("'") % 2 == 0:
                    instead = new(found) if callable(new) else found.expand(new)
                    yield Change(file, number, at + found.start(), at + found.end(), instead, pattern)
        at += len(line)


def python_changes(file: str, text: str) -> Iterator[Change]:
    """Yield the changes of Python, outside annotations, decorators, error messages and imports."""
    encoded = [line.encode() for line in text.splitlines(keepends=True)]
    starts = np.concatenate([[0], np.cumsum([len(line.decode()) for line in encoded])])

    def at(line: int, column: int) -> int:
        return int(starts[line - 1]) + len(encoded[line - 1][:column].decode())

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        return at(node.lineno, node.col_offset), at(node.end_lineno or 0, node.end_col_offset or 0)

    for node in changeable_nodes(ast.parse(text)):
        for start, end, new, kind in node_changes(node, text, span):
            yield Change(file, node.lineno, start, end, new, kind)


def changeable_nodes(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yield the statements and expressions that run and give no text to a reader."""
    for field, value in ast.iter_fields(node):
        if (
            field in ("annotation", "returns", "decorator_list", "exc")
            or getattr(node, "arg", "") == "strict"
            or isinstance(value, ast.JoinedStr)
        ):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.Import | ast.ImportFrom | ast.JoinedStr) or not isinstance(
                child, ast.AST
            ):
                continue
            if isinstance(child, ast.expr | ast.stmt):
                yield child
            yield from changeable_nodes(child)


def node_changes(node: ast.AST, text: str, span) -> Iterator[tuple[int, int, str, str]]:
    """Yield start, end, new text and kind of each change of one node."""
    if isinstance(node, ast.Compare):
        for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            yield span(left)[1], span(right)[0], f" {PYTHON_SWAPS[type(op)]} ", "comparison"
    elif isinstance(node, ast.BinOp) and type(node.op) in PYTHON_SWAPS:
        between = span(node.left)[1], span(node.right)[0]
        if not set("()") & set(text[slice(*between)]):
            yield *between, f" {PYTHON_SWAPS[type(node.op)]} ", "arithmetic"
    elif isinstance(node, ast.BoolOp):
        between = span(node.values[0])[1], span(node.values[1])[0]
        if not set("()") & set(text[slice(*between)]):
            yield *between, f" {PYTHON_SWAPS[type(node.op)]} ", "boolean"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        yield span(node)[0], span(node.operand)[0], "", "sign"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        new = (
            not node.value
            if isinstance(node.value, bool)
            else node.value + 1
            if isinstance(node.value, int)
            else 2 * node.value
        )
        yield *span(node), repr(new if new or node.value else 1.0), "constant"
    elif isinstance(node, ast.Call) and are_swappable(node):
        first, second = span(node.args[0]), span(node.args[1])
        swapped = text[slice(*second)] + text[first[1] : second[0]] + text[slice(*first)]
        if text[slice(*first)] != text[slice(*second)]:
            yield first[0], second[1], swapped, "arguments"
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        start, end = span(node.test)
        yield start, end, f"not ({text[start:end]})", "condition"
    elif isinstance(node, ast.AugAssign | ast.Raise) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield *span(node), "pass", "statement"


def are_swappable(call: ast.Call) -> bool:
    """Whether the first two arguments may be swapped, and their order counts."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    listed = any(isinstance(argument, ast.Starred | ast.GeneratorExp) for argument in call.args[:2])
    return len(call.args) >= 2 and not listed and name not in SYMMETRIC
