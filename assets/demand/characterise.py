"""The characterisation of a trace: loads by minute from SQL, and their statistics from models/characterise.

Days are processed one at a time (token_histogram, arrival_windows), and again only when their requests
changed.
"""

from datetime import date, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fleetcast.assets.demand.arrival_windows import write_arrival_windows
from fleetcast.assets.demand.demand import build_demand, is_demand_unknown
from fleetcast.assets.lake.lake_preconditions import known_days
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.characterise.load_statistics import HORIZONS_MINUTES
from fleetcast.models.characterise.load_summary import LoadSummary, summarise_load

STREAM_KEYS = ["tier", "region", "llm", "app"]
MAX_APPS_DESCRIBED = 10  # the largest apps have statistics of their own
GAP_COLUMNS = [
    *("gap_cv", "client_gap_cv", "poisson_share", "gamma_share", "weibull_share"),
    *("lognormal_share", "hyperexponential_share"),
]
MINUTE = np.timedelta64(1, "m")


def characterise_trace(lake: Lake, trace: str, progress: Progress) -> pa.Table:
    """Characterise a trace and its parts; write characterisation and episodes, and return the former.

    Raises
    ------
    LakeError
        The lake has no requests of the trace.
    """
    refresh_days(lake, trace, progress)
    streams = _streams(lake, trace)
    rows, episodes = [], []
    for keys, stream in progress.each(f"parts of {trace}", streams.items()):
        row, of_stream = _describe(dict(zip(STREAM_KEYS, keys, strict=True)), stream)
        rows.append(row)
        episodes += of_stream
    gaps = lake.sql("select * from gap_variation where trace = $trace", trace=trace).to_pandas()
    table = pd.DataFrame(rows).merge(gaps[[*STREAM_KEYS, *GAP_COLUMNS]], on=STREAM_KEYS, how="left")
    described = pa.Table.from_pandas(table[SCHEMAS["characterisation"].names], preserve_index=False)
    lake.write("characterisation", described, trace=trace)
    lake.write("episodes", pa.Table.from_pylist(episodes, SCHEMAS["episodes"]), trace=trace)
    return lake.sql("tables/characterisation.sql", trace=trace)


def refresh_days(lake: Lake, trace: str, progress: Progress) -> list[date]:
    """Update the tables made from each day's requests, and return the days; LakeError without any."""
    days = known_days(lake, "requests", trace)
    for day in progress.each(f"days of {trace}", days):
        refresh_day(lake, trace, day)
    return days


def refresh_day(lake: Lake, trace: str, day: date) -> None:
    """Update the day's demand, token histogram and arrival windows where its requests have changed."""
    of_day: dict[str, Any] = {"trace": trace, "day": day}
    content = lake.content("requests", **of_day)
    if not lake.is_made_from("demand", content, **of_day):
        build_demand(lake, trace, day)
    if not lake.is_made_from("token_histogram", content, **of_day):
        histogram = lake.sql("marts/token_histogram.sql", **of_day)
        lake.write("token_histogram", histogram, made_from=content, **of_day)
    if not lake.is_made_from("arrival_windows", content, **of_day):
        write_arrival_windows(lake, trace, day)


def recorded_minutes(lake: Lake, trace: str) -> tuple[np.datetime64, np.ndarray]:
    """Return the first minute of a trace, UTC, and an array (minutes,) from it to the last minute.

    Its value is 0 in recorded minutes, nan in others.
    """
    ends = lake.sql(
        "select min(bucket_start)::timestamp as first, max(bucket_start)::timestamp as last "
        "from demand where trace = $trace",
        trace=trace,
    )
    first, last = (ends[name].to_numpy()[0] for name in ("first", "last"))
    minutes = first + np.arange((last - first) // MINUTE + 1) * MINUTE
    return first, np.where(is_demand_unknown(lake, trace, minutes, MINUTE), np.nan, 0.0)


class Stream:
    """Requests and tokens of a part of a trace, (minutes,), from the trace's first minute to its last."""

    def __init__(self, rows: pd.DataFrame, recorded: np.ndarray, first: np.datetime64) -> None:
        self.first = first
        self.requests, self.tokens = recorded.copy(), recorded.copy()
        at = (rows["minute"].to_numpy() - first) // MINUTE
        self.requests[at], self.tokens[at] = rows["requests"], rows["tokens"]


def _streams(lake: Lake, trace: str) -> dict[tuple[str, ...], Stream]:
    """Read the parts of a trace by their keys; minutes that were not recorded are nan, not 0."""
    top = lake.sql(
        "select app from top_apps where trace = $trace and tier = 'all' and place <= $apps",
        trace=trace,
        apps=MAX_APPS_DESCRIBED,
    )["app"]
    rows = lake.sql(
        "select tier, region, llm, app, bucket_start::timestamp as minute, requests, tokens "
        "from streams where trace = $trace and (app = 'all' or list_contains($top, app))",
        trace=trace,
        top=top.to_pylist(),
    ).to_pandas()
    first, recorded = recorded_minutes(lake, trace)
    return {keys: Stream(part, recorded, first) for keys, part in rows.groupby(STREAM_KEYS)}


def _describe(keys: dict[str, str], stream: Stream) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the row of a stream in characterisation (without its gaps), and its rows in episodes."""
    began: datetime = stream.first.astype("datetime64[us]").item()
    summary = summarise_load(stream.requests, 24 * began.weekday() + began.hour)
    requests = np.nansum(stream.requests)
    recorded_s = 60.0 * np.count_nonzero(~np.isnan(stream.requests))
    row = {
        **keys,
        "requests": int(requests),
        "requests_per_s": requests / recorded_s,
        "tokens_per_s": np.nansum(stream.tokens) / recorded_s,
        "peak_requests_per_s": np.nanmax(stream.requests) / 60,
        **{name: getattr(summary, name) for name in summary._fields[:7]},
        "bursts": len(summary.bursts),
        "burst_share": sum(burst.extra_requests for burst in summary.bursts) / requests,
        "changes": len(summary.changes),
    }
    for minutes in HORIZONS_MINUTES:
        skill = summary.skills.get(minutes)
        row[f"best_{minutes}min"] = skill.method if skill else None
        row[f"skill_{minutes}min"] = skill.share if skill else np.nan
    return row, _episodes(keys, stream.first, summary)


def _episodes(keys: dict[str, str], first: np.datetime64, summary: LoadSummary) -> list[dict[str, Any]]:
    bursts = [
        {
            **keys,
            "kind": "burst",
            "starts_at": (first + burst.start * MINUTE).item(),
            "minutes": burst.minutes,
            "ratio": burst.ratio,
            "extra_requests": burst.extra_requests,
        }
        for burst in summary.bursts
    ]
    changes = [
        {
            **keys,
            "kind": "change",
            "starts_at": (first + 60 * change.hour * MINUTE).item(),
            "ratio": change.ratio,
        }
        for change in summary.changes
    ]
    return bursts + changes
