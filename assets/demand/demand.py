"""Demand: arriving requests and tokens per region, llm, tier, app and minute, and series for forecasts."""

from datetime import UTC, date, datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.lake_preconditions import column_codes, describe_known_days, require_day
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.world.calendar import MINUTES_PER_DAY
from fleetcast.models.world.catalogue import Catalogue

INTERACTIVE = "interactive"  # the sum of all tiers whose requests are not deferred: plans cover it
MEASURES = ("input_tokens", "output_tokens", "requests")
LEAST_PART_SHARE = 0.05  # of the tokens of an endpoint, for an app to be a part that is forecast


class DemandMatrix(NamedTuple):
    """Tokens (or requests) per second of each endpoint and tier; nan, not 0, where nothing was collected."""

    bucket_start: NDArray[np.datetime64]  # (buckets,) UTC, first instant of each bucket
    per_s: NDArray[np.float64]  # (llms, regions, tiers, buckets)
    tiers: tuple[str, ...]
    interactive: tuple[str, ...]  # those whose requests are not deferred

    def tier_series(self, tier: str) -> NDArray[np.float64]:
        """Return the rates of one tier, or of the sum INTERACTIVE, shape (llms, regions, buckets)."""
        if tier == INTERACTIVE:
            return self._sum_tiers(is_interactive=True)
        return self.per_s[:, :, self.tiers.index(tier)]

    def held(self) -> NDArray[np.float64]:
        """Return the sum of all tiers that the queue manager may hold, shape (llms, regions, buckets)."""
        return self._sum_tiers(is_interactive=False)

    def _sum_tiers(self, is_interactive: bool) -> NDArray[np.float64]:
        """Return the sum of all interactive or of all other tiers, shape (llms, regions, buckets)."""
        wanted = [(tier in self.interactive) == is_interactive for tier in self.tiers]
        return self.per_s[:, :, wanted].sum(axis=2)


def build_demand(lake: Lake, trace: str, day: date) -> pa.Table:
    """Write the day's demand by minute (sql/marts/demand.sql) and return it; LakeError without requests."""
    require_day(lake, "requests", trace, day)
    content = lake.content("requests", trace=trace, day=day)
    demand = lake.sql("marts/demand.sql", trace=trace, day=day)
    if demand.num_rows == 0:
        raise LakeError(
            f"The day {day} of the trace {trace!r} has no requests. "
            f"{describe_known_days(lake, 'requests', trace)}"
        )
    lake.write("demand", demand, made_from=content, trace=trace, day=day)
    return demand


def read_demand_matrix(
    lake: Lake,
    trace: str,
    first_day: date,
    last_day: date,
    bucket_minutes: int,
    catalogue: Catalogue,
    measure: str = "input_tokens",
) -> DemandMatrix:
    """Read the demand of whole days, both ends included, as regular series.

    bucket_minutes : length of a bucket; a day must be a whole number of them
    measure : one of MEASURES

    Returns: endpoints and tiers in catalogue order; the mean rate of each bucket, 0 where no request arrived,
    nan where nothing was collected (`is_demand_unknown`).

    Raises
    ------
    LakeError
        None of the days has demand.
    ValueError
        Days out of order, or a bucket that does not divide a day.
    """
    _require_demand(lake, trace, first_day, last_day, bucket_minutes)
    per_day = MINUTES_PER_DAY // bucket_minutes
    days, bucket = (last_day - first_day).days + 1, np.timedelta64(bucket_minutes, "m")
    start = np.datetime64(first_day, "us") + np.arange(days * per_day) * bucket
    rates = np.zeros((len(catalogue.llms), len(catalogue.regions), len(catalogue.tiers), start.size))
    rows = lake.sql(
        "select * from demand_series($minutes) where trace = $trace and day between $first_day and $last_day",
        minutes=bucket_minutes,
        trace=trace,
        first_day=first_day,
        last_day=last_day,
    )
    bucket_starts = rows["bucket_start"].to_numpy().astype("datetime64[us]")
    where = (
        column_codes(rows, "llm", catalogue.llms),
        column_codes(rows, "region", catalogue.regions),
        column_codes(rows, "tier", catalogue.tiers),
        (bucket_starts - start[0]) // bucket,
    )
    rates[where] = rows[measure].to_numpy() / (60.0 * bucket_minutes)
    rates[..., is_demand_unknown(lake, trace, start, bucket)] = np.nan
    return DemandMatrix(start, rates, tuple(catalogue.tiers), catalogue.interactive_tiers)


def read_app_demand(
    lake: Lake,
    trace: str,
    start: NDArray[np.datetime64],
    bucket_minutes: int,
    known: int,
    catalogue: Catalogue,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Read the interactive input tokens of each endpoint's large apps, and of its other apps together.

    start : the buckets of whole days, as in `DemandMatrix`
    known : number of buckets that choose the large apps: those with LEAST_PART_SHARE of the endpoint's tokens

    Returns
    -------
    per_s : tokens per second, shape (apps, buckets), as in `DemandMatrix`. An endpoint whose known buckets
        have a single app has none.
    endpoint : index of each app's endpoint, llm by llm, shape (apps,)
    """
    bucket = np.timedelta64(bucket_minutes, "m")
    rows = lake.sql(
        "reads/largest_apps.sql",
        minutes=bucket_minutes,
        trace=trace,
        first_day=start[0].astype("datetime64[D]").astype(date),
        last_day=start[-1].astype("datetime64[D]").astype(date),
        tiers=list(catalogue.interactive_tiers),
        known_until=(start[0] + known * bucket).astype(datetime).replace(tzinfo=UTC),
        least_share=LEAST_PART_SHARE,
    )
    llm, region = column_codes(rows, "llm", catalogue.llms), column_codes(rows, "region", catalogue.regions)
    endpoint_of = llm.astype(np.int64) * len(catalogue.regions) + region
    app_of = np.unique(rows["app"].to_numpy().astype(str), return_inverse=True)[1]
    parts, part = np.unique(np.stack([endpoint_of, app_of]), axis=1, return_inverse=True)
    rates = np.zeros((parts.shape[1], start.size))
    bucket_starts = rows["bucket_start"].to_numpy().astype("datetime64[us]")
    rates[part.ravel(), (bucket_starts - start[0]) // bucket] = rows["input_tokens"].to_numpy()
    is_part = rates[:, :known].any(axis=1)
    is_part &= np.bincount(parts[0], is_part)[parts[0]] > 1
    rates[:, is_demand_unknown(lake, trace, start, bucket)] = np.nan
    return rates[is_part] / (bucket / np.timedelta64(1, "s")), parts[0, is_part]


def is_landed_trace(lake: Lake, trace: str) -> bool:
    """Whether the trace is made from files of data/landing: a day without requests is then an empty day."""
    return bool(lake.files("ingests", trace=trace))


def is_demand_unknown(
    lake: Lake, trace: str, start: NDArray[np.datetime64], bucket: np.timedelta64
) -> NDArray[np.bool_]:
    """Whether the demand of each bucket is unknown, not 0, because data is missing in it; shape (buckets,).

    For a landed trace, the mart silences has the gaps in the data; any other day without requests is 0, also
    after the last one. A generated trace is unknown on days that were not generated.
    """
    unknown = np.zeros(start.size, np.bool_)
    silences = lake.sql("from silences where trace = $trace", trace=trace)
    begin, end = (silences[f"silence_{edge}"].to_numpy().astype(start.dtype) for edge in ("start", "end"))
    for first, last in zip(begin, end, strict=True):  # an open end is NaT
        unknown |= ~(start + bucket <= first) & ~(start >= last)
    day = start.astype("datetime64[D]")
    is_built, has_requests = (
        np.isin(day, np.array(lake.days(table, trace), "datetime64[D]")) for table in ("demand", "requests")
    )
    return unknown | ~is_built & (has_requests | (not is_landed_trace(lake, trace)))


def _require_demand(lake: Lake, trace: str, first_day: date, last_day: date, bucket_minutes: int) -> None:
    if bucket_minutes < 1 or MINUTES_PER_DAY % bucket_minutes:
        raise ValueError(
            f"bucket_minutes is {bucket_minutes}, a day must be a whole number of buckets. Use 15."
        )
    if last_day < first_day:
        raise ValueError(f"The last day {last_day} is before the first day {first_day}. Swap them.")
    if not any(first_day <= day <= last_day for day in lake.days("demand", trace)):
        raise LakeError(
            f"The trace {trace!r} has no demand from {first_day} to {last_day}. "
            + describe_known_days(lake, "demand", trace)
        )
