"""Download metrics of a Prometheus server: one file per metric and time range, with the unchanged answer.

A complete file is not downloaded again. So an interrupted download continues, and a later one adds new days.
An answer of the last days that ends early is downloaded again, as samples may reach a server late.
"""

import gzip
import json
import math
import os
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.traces.ingest_bounds import IngestError
from fleetcast.assets.traces.prometheus_answers import METRICS_SUFFIX
from fleetcast.assets.traces.prometheus_client import PrometheusClient
from fleetcast.assets.traces.trace_mapping import read_ingest_bounds
from fleetcast.models.world.engine_metrics import MetricsCatalogue, load_engine_metrics
from fleetcast.models.world.toml_dataclasses import TRACE_NAME

DOWNLOAD_DAY_S, DOWNLOAD_HOUR_S = 86_400, 3600
LATE_DAYS = 7  # samples reach a server that late at most
LATE_STEPS = 2  # an answer ends early if it has no sample in its last steps, more than these
MAX_POINTS_PER_ANSWER = 10_000  # of a series in one answer; Prometheus refuses more than 11,000


@dataclass(frozen=True)
class MetricsDownload:
    """Server, folder, range and step of a download: whole steps in [first_s, last_s] since 1970."""

    url: str
    folder: Path
    first_s: int
    last_s: int
    step_s: int = 60
    where: str = ""  # further label matchers, as between the braces of a selector

    @property
    def bucket_step_s(self) -> int:
        """Step of a histogram's buckets: an hour, less if the range is under a day."""
        wanted_s = min(max((self.last_s - self.first_s) // 24, self.step_s), DOWNLOAD_HOUR_S)
        return wanted_s // self.step_s * self.step_s

    def stretches(self, step_s: int) -> list[tuple[int, int]]:
        """Return first and last instant of each answer: a UTC day, or at most MAX_POINTS_PER_ANSWER steps."""
        most_s = MAX_POINTS_PER_ANSWER * step_s
        length = max(step_s, min(DOWNLOAD_DAY_S, most_s // DOWNLOAD_HOUR_S * DOWNLOAD_HOUR_S or most_s))
        starts = range(self.first_s // length * length, self.last_s, length)
        clipped = ((max(s, self.first_s // step_s * step_s), min(s + length, self.last_s)) for s in starts)
        return [(first, last) for first, last in clipped if first < last]


def fetch_metrics_folder(
    url: str,
    name: str,
    days: int,
    until: datetime | None,
    step_s: int,
    where: str,
    landing: Path,
    progress: Progress,
) -> str:
    """Download the metrics of some days into the folder NAME.metrics of `landing`; return a line on it.

    Raises an IngestError or a ConfigError with the remedy.
    """
    TRACE_NAME.check(name, "--name")
    now_s = int(time.time())
    last_s = now_s if until is None else min(now_s, int(until.replace(tzinfo=UTC).timestamp()))
    last_s -= last_s % step_s
    folder = landing / f"{name}{METRICS_SUFFIX}"
    order = MetricsDownload(url, folder, last_s - days * DOWNLOAD_DAY_S, last_s, step_s, where)
    minutes = read_ingest_bounds(folder).ingest_minutes
    downloaded, kept, empty = download_metrics(order, load_engine_metrics(), minutes, progress)
    without = f"; no sample from {', '.join(map(_instant_text, empty))} on" if empty else ""
    return f"{downloaded:,} answers from {url}, {kept:,} were there: {folder.name}{without}"


def download_metrics(
    order: MetricsDownload, metrics: MetricsCatalogue, minutes: float, progress: Progress
) -> tuple[int, int, list[int]]:
    """Download all known metrics that the server has; IngestError with the remedy if it has none.

    Returns how many answers were downloaded, how many were there already, and the first instants (s since
    1970) of the days without a sample. Buckets of histograms are downloaded with the step `bucket_step_s`,
    all others with `step_s`.
    """
    client = PrometheusClient(order.url, time.monotonic() + 60 * minutes)
    known = [*metrics.counters(), *metrics.buckets()]
    available = set(client.names(known, order.where, order.first_s, order.last_s))
    wanted = [name for name in known if name in available]
    if not wanted:
        where = f" with {{{order.where}}}" if order.where else ""
        raise IngestError(
            f"{order.url} knows no metric of vLLM, SGLang or Dynamo between "
            f"{_instant_text(order.first_s)} and {_instant_text(order.last_s)}{where}. Does it scrape "
            "the engines? data/catalogue/metrics.toml has the names of the metrics."
        )
    parts = [
        (name, step, *stretch)
        for name in wanted
        for step in [order.bucket_step_s if name.endswith("_bucket") else order.step_s]
        for stretch in order.stretches(step)
    ]
    order.folder.mkdir(parents=True, exist_ok=True)
    downloaded, newest_s = 0, dict[int, int]()
    for name, step, first, last in progress.each(f"metrics from {order.url}", parts):
        path = order.folder / f"{re.sub(r'[^A-Za-z0-9_]', '_', name)}.{first}.json.gz"
        query = {"metric": name, "step_s": step, "last_s": last, "where": order.where}
        sample_s = _last_sample_s(path, query)
        may_grow = last > order.last_s - LATE_DAYS * DOWNLOAD_DAY_S
        if sample_s is None or (may_grow and sample_s < last - LATE_STEPS * step):
            sample_s = _save(path, client.query_range(name, order.where, first, last, step), query)
            downloaded += 1
        newest_s[first] = max(sample_s, newest_s.get(first, 0))
    return downloaded, len(parts) - downloaded, [first for first, last in newest_s.items() if not last]


def _instant_text(instant_s: int) -> str:
    return f"{datetime.fromtimestamp(instant_s, UTC):%Y-%m-%d %H:%M}"


def _last_sample_s(path: Path, query: dict[str, Any]) -> int | None:
    """Return the last instant of a stored answer to this query, 0 without a sample; None if it is not there.

    Answers of earlier versions do not have it: they end as they should.
    """
    try:
        with gzip.open(path, "rt") as opened:
            first_line = opened.readline()
        header = json.loads(first_line.rstrip().rstrip(",") + "}")
        return int(header.get("last_sample_s", query["last_s"])) if header["asked"] == query else None
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return None


def _save(path: Path, results: list[Any], query: dict[str, Any]) -> int:
    """Write an answer to a temporary file and move it into place; return its last instant, 0 without one.

    The first line of the file has the query and this instant.
    """
    last_s = int(max(map(_end_of_series, results), default=0.0))
    first_line = json.dumps({"asked": query, "last_sample_s": last_s, "status": "success"})[:-1]
    data = json.dumps({"resultType": "matrix", "result": results}, separators=(",", ":"))
    temporary = path.with_suffix(".part")
    with gzip.open(temporary, "wt", compresslevel=3) as opened:
        opened.write(f'{first_line},\n"data":{data}}}\n')
    os.replace(temporary, path)
    return last_s


def _end_of_series(series: Any) -> float:
    """Return the last instant of a series, s since 1970; 0 for a malformed one, which its reader reports."""
    values = series.get("values") if isinstance(series, dict) else None
    last = values[-1] if isinstance(values, list) and values else None
    instant = last[0] if isinstance(last, list) and last else None
    return float(instant) if isinstance(instant, int | float) and math.isfinite(instant) else 0.0
