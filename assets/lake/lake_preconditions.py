"""Preconditions of computing from a table: its day is in the lake, and the catalogue knows its names."""

from collections.abc import Iterable
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.world.toml_dataclasses import suggest_name


def require_day(lake: Lake, table: str, trace: str, day: date, nightly: str = "fleetcast nightly") -> None:
    """Raise a LakeError if the lake does not have a day of a table; it names the days that there are.

    `nightly` is the command that makes days of the trace.
    """
    if day not in lake.days(table, trace):
        raise LakeError(
            f"The trace {trace!r} has no {table} on {day}. {describe_known_days(lake, table, trace, nightly)}"
        )


def known_days(lake: Lake, table: str, trace: str) -> list[date]:
    """Return the days of a trace's table in the lake; LakeError if there is none."""
    if days := lake.days(table, trace):
        return days
    raise LakeError(f"The trace {trace!r} has no {table}. {describe_known_days(lake, table, trace)}")


def describe_known_days(lake: Lake, table: str, trace: str, nightly: str = "fleetcast nightly") -> str:
    """Describe which days of a table the lake has, and what to do for another day."""
    days = lake.days(table, trace)
    if not days:
        traces = lake.traces(table)
        known = f" {suggest_name(trace, traces)}" if traces else ""
        return f"It has no day at all.{known} Make it with {nightly}, or put its file into data/landing."
    gaps = (days[-1] - days[0]).days + 1 - len(days)
    missing = f", {gaps} of them missing" if gaps else ""
    return f"It has {days[0]} to {days[-1]}{missing}. Choose one of these, or land or make the missing one."


def require_unlanded(lake: Lake, trace: str) -> None:
    """Raise a LakeError if files have landed in a trace: days made for it would overwrite them."""
    if files := [path.stem for path in lake.files("ingests", trace=trace)]:
        raise LakeError(
            f"The trace {trace!r} holds {', '.join(files)} from data/landing, which days made for it would "
            f"overwrite. Give [trace] another name, or remove the files: fleetcast forget {files[0]}"
        )


def column_codes(table: pa.Table, column: str, names: Iterable[str]) -> NDArray[np.int16]:
    """Return the index in `names` of each text of a column, shape (rows,); LakeError for any other text."""
    known = pa.array(list(names), pa.string())
    codes = pc.index_in(table[column], value_set=known)
    if codes.null_count:
        unknown = table[column].filter(pc.is_null(codes))[0].as_py()
        deploy = " and to [fleet.deployments] of the config" if column == "llm" else ""
        raise LakeError(
            f"The trace has the {column} {unknown!r}; this run has {', '.join(known.to_pylist())}. "
            f"Add it to data/catalogue{deploy}, or map it to a known one and ingest the file again."
        )
    return codes.to_numpy().astype(np.int16)
