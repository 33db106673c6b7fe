"""The rows of a log of requests as a table, and the line that refuses a row that breaks a rule."""

import filecmp
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fleetcast.models.trials.engine_fit import LoggedRequests

PLACE = "place"  # the column that says where in its file a row is


class CalibrationError(ValueError):
    """An unusable log; the message names line, rule and remedy."""


def refuse_repeated_files(paths: list[Path]) -> None:
    """Raise CalibrationError if two files have the same content: their run would count twice."""
    for path, other in combinations([path for path in paths if path.is_file()], 2):
        if filecmp.cmp(path, other, shallow=False):
            raise CalibrationError(
                f"{path} and {other} have the same content, but each run counts once. Leave one of them out."
            )


def read_json_documents(path: Path) -> list[Any]:
    """Return the values of a JSON file: the elements of one list, one object, or one value for each line.

    Raises CalibrationError for a file that is not there, or that is neither JSON nor JSON lines.
    """
    try:
        text = path.read_text()
        try:
            whole = json.loads(text)
        except json.JSONDecodeError:  # several values: a line each
            return [json.loads(line) for line in text.splitlines() if line.strip()]
    except FileNotFoundError:
        raise CalibrationError(f"There is no file {path}. Name a log of measured requests.") from None
    except (ValueError, OSError, RecursionError) as error:
        raise CalibrationError(
            f"{path.name} is neither JSON nor JSON lines: {error}. Export it again."
        ) from error
    return whole if isinstance(whole, list) else [whole]


def require_columns(path: Path, table: pd.DataFrame, names: tuple[str, ...]) -> None:
    """Raise CalibrationError if a log lacks one of these columns."""
    missing = [name for name in names if name not in table.columns]
    if missing:
        present = ", ".join(map(str, table.columns)) or "none"
        raise CalibrationError(
            f"{path.name} lacks the columns {', '.join(missing)}; it has {present}. Rename or add them."
        )


def numeric_column(table: pd.DataFrame, name: str) -> np.ndarray:
    """Return a column as numbers, shape (rows,); NaN where a value is not a number."""
    return pd.to_numeric(table[name], errors="coerce").to_numpy(np.float64)


def refuse_bad_rows(bad: np.ndarray, rule: str, path: Path, table: pd.DataFrame) -> None:
    """Raise CalibrationError with the first bad row and the count, if any row of `bad`, (rows,), is true."""
    if bad.any():
        row_number = int(np.argmax(bad))
        shown = [name for name in LoggedRequests._fields if name in table.columns]
        row = ", ".join(f"{name}={table[name].iloc[row_number]}" for name in shown)
        raise CalibrationError(
            f"{path.name} {table[PLACE].iloc[row_number]} ({row}): {rule}. {bad.sum()} of {bad.size} rows "
            "break this; correct or drop them."
        )
