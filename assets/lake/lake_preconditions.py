"""What a table must have before anything is computed from it: its day, and names that the catalogue knows."""

from collections.abc import Iterable
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.warehouse import Lake


def require_day(lake: Lake, table: str, trace: str, day: date) -> None:
    """Refuse a day that the lake does not have, naming the trace, the day and the days that there are."""
    if day not in lake.days(table, trace):
        raise LakeError(
            f"The trace {trace!r} has no {table} on {day}. {describe_known_days(lake, table, trace)}"
        )


def known_days(lake: Lake, table: str, trace: str) -> list[date]:
    """The days of a table that the lake has of a trace; LakeError where there is none."""
    if days := lake.days(table, trace):
        return days
    raise LakeError(f"The trace {trace!r} has no {table}. {describe_known_days(lake, table, trace)}")


def describe_known_days(lake: Lake, table: str, trace: str) -> str:
    """Which days of a table the lake has, and what to do for another one, as a sentence."""
    days = lake.days(table, trace)
    if not days:
        return "It has no day at all: make it with fleetcast nightly, or drop its file into data/landing."
    gaps = (days[-1] - days[0]).days + 1 - len(days)
    missing = f", {gaps} of them missing" if gaps else ""
    return f"It has {days[0]} to {days[-1]}{missing}. Choose one of these, or land or make the missing one."


def require_unlanded(lake: Lake, trace: str) -> None:
    """Refuse to make the days of a trace that files have landed in: they would be overwritten."""
    if files := [path.stem for path in lake.files("ingests", trace=trace)]:
        raise LakeError(
            f"The trace {trace!r} holds {', '.join(files)} from data/landing, which days made for it would "
            f"overwrite. Give [trace] another name, or take it out: fleetcast forget {files[0]}"
        )


def column_codes(table: pa.Table, column: str, names: Iterable[str]) -> NDArray[np.int16]:
    """Where the texts of a column stand in `names`, shape (rows,); a text that is not there is refused."""
    known = pa.array(list(names), pa.string())
    codes = pc.index_in(table[column], value_set=known)
    if codes.null_count:
        stranger = table[column].filter(pc.is_null(codes))[0].as_py()
        deploy = " and to [fleet.deployments] of the config" if column == "llm" else ""
        raise LakeError(
            f"The trace has the {column} {stranger!r}; this run has {', '.join(known.to_pylist())}. "
            f"Add it to data/catalogue{deploy}, or map it to a known one and ingest the file again."
        )
    return codes.to_numpy().astype(np.int16)
