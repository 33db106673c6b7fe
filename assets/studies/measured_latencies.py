"""Read the latencies that engines measured on a day: histograms from metrics, or times of single requests.

Both become samples by hour and bucket, by llm and by region where the metrics have one.
"""

from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.settings import HOURS_OF_DAY, RunSettings, midnight
from fleetcast.models.metrics import tpot_s
from fleetcast.models.trials.latency_drift import TIMED_MEASURES, MeasuredHours, ReplayedTimes
from fleetcast.models.world.calendar import HOUR_S

FINE_BOUNDS = np.append(np.geomspace(1e-3, 1e4, 400), np.inf)  # buckets of requests that were timed singly
PER_REQUEST_FACTOR = 1.5  # a histogram with more samples per request counts single tokens
Engines = tuple[str, str | None]  # llm and region of the engines; None: all regions together


class MeasuredDay(NamedTuple):
    """What engines measured on a day."""

    latencies: Mapping[Engines, Mapping[str, MeasuredHours]]  # by measure
    by_engines: bool  # the engines' own clocks, without front end and network


def read_measured_day(settings: RunSettings, day: date) -> MeasuredDay:
    """Read what engines measured on a day; LakeError if neither metrics nor requests have latencies."""
    of_day: dict[str, Any] = {"trace": settings.trace, "begin": midnight(day)}
    end = midnight(day + timedelta(days=1))
    found = settings.lake.sql(
        "reads/latency_histograms.sql", **of_day, end=end, measures=list(TIMED_MEASURES)
    ).to_pandas()
    if len(found):
        return MeasuredDay(dict(_histograms(found)), by_engines=True)
    timed = settings.lake.sql("reads/measured_times.sql", **of_day, day=day).to_pandas()
    if timed.empty:
        raise LakeError(
            f"The trace {settings.trace!r} has no measured latencies on {day}. They come from metrics "
            "(fleetcast ingest --from), or from a log with the time to first token of its requests."
        )
    timed["tpot_s"] = tpot_s(*(timed[name].to_numpy() for name in ("ttft_s", "e2e_s", "output_tokens")))
    latencies = {
        engines: {
            name: MeasuredHours(FINE_BOUNDS, times.counts(FINE_BOUNDS))
            for name, times in samples_by_measure(timed[is_of_engines(timed, engines)]).items()
        }
        for engines in _each_engines(timed)
    }
    return MeasuredDay(latencies, by_engines=False)


def _histograms(found: pd.DataFrame) -> Iterator[tuple[Engines, dict[str, MeasuredHours]]]:
    """Yield the histograms of each llm and region by measure, of those that count requests, not tokens."""
    for engines in _each_engines(found):
        by_measure = {}
        for name, rows in found[is_of_engines(found, engines)].groupby("measure"):
            bounds = np.unique(np.append(rows["at_most"], np.inf))
            counts = np.zeros((HOURS_OF_DAY, bounds.size))
            at = rows["hour"].to_numpy(np.int64), np.searchsorted(bounds, rows["at_most"])
            np.add.at(counts, at, rows["samples"].to_numpy(np.float64))
            by_measure[str(name)] = MeasuredHours(bounds, counts)
        first = by_measure.get("ttft_s")
        most = np.inf if first is None else PER_REQUEST_FACTOR * first.counts.sum()
        yield engines, {name: each for name, each in by_measure.items() if each.counts.sum() <= most}


def _each_engines(rows: pd.DataFrame) -> list[Engines]:
    pairs = rows[["llm", "region"]].drop_duplicates().itertuples(index=False)
    return [(llm, region if isinstance(region, str) else None) for llm, region in pairs]


def is_of_engines(rows: pd.DataFrame, engines: Engines) -> "pd.Series[bool]":
    """Return which rows, with columns llm and region, are of these engines."""
    llm, region = engines
    return (rows["llm"] == llm) & (True if region is None else rows["region"] == region)


def samples_by_measure(rows: pd.DataFrame) -> dict[str, ReplayedTimes]:
    """Return the times of requests by measure, each in the hour in which it ended."""
    return {
        name: ReplayedTimes(
            ((rows["arrival_s"] + rows[ended])[known] // HOUR_S).to_numpy(np.int64),
            rows.loc[known, name].to_numpy(np.float64),
        )
        for name, ended in zip(TIMED_MEASURES, ("ttft_s", "e2e_s", "e2e_s"), strict=True)
        if (known := rows[name].notna() & rows[ended].notna()).any()
    }
