"""Demand: what arrives per region, llm, tier, app and minute, and the series that forecasts read."""

from datetime import date
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from assets.lake.lookups import days_there, positions, require_day
from assets.lake.warehouse import Lake, LakeError
from models.world.catalogue import Catalogue

MINUTES_PER_DAY = 1440
INTERACTIVE = "interactive"  # all tiers together that nobody holds back: what plans cover
MEASURES = ("input_tokens", "output_tokens", "requests")


class DemandMatrix(NamedTuple):
    """Tokens (or requests) per second of each endpoint and tier; nan, never 0, where nobody collected."""

    bucket_start: NDArray[np.datetime64]  # (buckets,) UTC, first instant of each bucket
    per_s: NDArray[np.float64]  # (llms, regions, tiers, buckets)
    tiers: tuple[str, ...]
    interactive: tuple[str, ...]  # of these, the ones that nobody holds back

    def of_tier(self, tier: str) -> NDArray[np.float64]:
        """The series of one tier or of all INTERACTIVE ones together, shape (llms, regions, buckets)."""
        if tier == INTERACTIVE:
            return self._together(is_interactive=True)
        return self.per_s[:, :, self.tiers.index(tier)]

    def held(self) -> NDArray[np.float64]:
        """The series of all tiers together that the queue manager may hold, (llms, regions, buckets)."""
        return self._together(is_interactive=False)

    def _together(self, is_interactive: bool) -> NDArray[np.float64]:
        wanted = [(tier in self.interactive) == is_interactive for tier in self.tiers]
        return self.per_s[:, :, wanted].sum(axis=2)


def build_demand(lake: Lake, trace: str, day: date) -> pa.Table:
    """Write the day's demand at one minute (sql/marts/demand.sql) and return it."""
    require_day(lake, "requests", trace, day)
    demand = lake.sql("marts/demand.sql", trace=trace, day=day)
    if demand.num_rows == 0:
        raise LakeError(
            f"The day {day} of the trace {trace!r} has no request. {days_there(lake, 'requests', trace)}"
        )
    lake.write("demand", demand, trace=trace, day=day)
    return demand


def demand_matrix(
    lake: Lake,
    trace: str,
    first_day: date,
    last_day: date,
    bucket_minutes: int,
    catalogue: Catalogue,
    measure: str = "input_tokens",
) -> DemandMatrix:
    """Read the demand of whole days, both ends included, as regular series.

    Parameters
    ----------
    bucket_minutes : int
        Length of a bucket; a day must be a whole number of them.
    measure : str
        One of MEASURES.

    Returns
    -------
    DemandMatrix
        Endpoints and tiers in catalogue order; the mean rate of each bucket, 0 where a present day has no
        request, nan where a silence of the quality report touches it.
    """
    present = _present_days(lake, trace, first_day, last_day, bucket_minutes)
    per_day = MINUTES_PER_DAY // bucket_minutes
    days, bucket = (last_day - first_day).days + 1, np.timedelta64(bucket_minutes, "m")
    start = np.datetime64(first_day, "us") + np.arange(days * per_day) * bucket
    rates = np.full(
        (len(catalogue.llms), len(catalogue.regions), len(catalogue.tiers), days * per_day), np.nan
    )
    for day in present:
        rates[..., (day - first_day).days * per_day :][..., :per_day] = 0.0
    rows = lake.sql(
        "select * from demand_series($minutes) where trace = $trace and day between $first_day and $last_day",
        minutes=bucket_minutes,
        trace=trace,
        first_day=first_day,
        last_day=last_day,
    )
    bucket_starts = rows["bucket_start"].to_numpy().astype("datetime64[us]")
    where = (
        positions(rows, "llm", catalogue.llms),
        positions(rows, "region", catalogue.regions),
        positions(rows, "tier", catalogue.tiers),
        (bucket_starts - start[0]) // bucket,
    )
    rates[where] = rows[measure].to_numpy() / (60.0 * bucket_minutes)
    for silence in lake.sql("from silences where trace = $trace", trace=trace).to_pylist():
        first, end = (
            np.datetime64(silence[f"silence_{edge}"].replace(tzinfo=None)) for edge in ("start", "end")
        )
        rates[..., (start < end) & (start + bucket > first)] = np.nan
    return DemandMatrix(start, rates, tuple(catalogue.tiers), catalogue.interactive_tiers)


def _present_days(lake: Lake, trace: str, first_day: date, last_day: date, bucket_minutes: int) -> set[date]:
    if bucket_minutes < 1 or MINUTES_PER_DAY % bucket_minutes:
        raise ValueError(
            f"bucket_minutes is {bucket_minutes}, a day must be a whole number of buckets: take 15."
        )
    if last_day < first_day:
        raise ValueError(f"The last day {last_day} lies before the first day {first_day}: exchange them.")
    present = {day for day in lake.days("demand", trace) if first_day <= day <= last_day}
    if not present:
        raise LakeError(
            f"The trace {trace!r} has no demand from {first_day} to {last_day}. "
            + days_there(lake, "demand", trace)
        )
    return present
