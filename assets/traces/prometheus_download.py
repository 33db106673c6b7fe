"""The answers of a Prometheus server, saved as they come: one file per counter and stretch of time.

What lies there whole is not asked for again, so that a download which was broken off goes on, and a later one
brings the days that are new.
"""

import gzip
import json
import os
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.traces.ingest_bounds import IngestError
from fleetcast.assets.traces.prometheus_answers import METRICS_SUFFIX
from fleetcast.assets.traces.prometheus_client import PrometheusClient
from fleetcast.assets.traces.trace_mapping import read_ingest_bounds
from fleetcast.models.world.engine_metrics import MetricsCatalogue, load_engine_metrics
from fleetcast.models.world.toml_dataclasses import TRACE_NAME

DOWNLOAD_DAY_S, DOWNLOAD_HOUR_S = 86_400, 3600
MAX_POINTS_PER_ANSWER = 10_000  # of a series in one answer; Prometheus refuses more than 11,000


@dataclass(frozen=True)
class MetricsDownload:
    """What is asked for: whole steps in [first_s, last_s], seconds since 1970."""

    url: str
    folder: Path
    first_s: int
    last_s: int
    step_s: int = 60
    where: str = ""  # further label matchers, as between the braces of a selector

    @property
    def bucket_step_s(self) -> int:
        """Between two readings of a histogram's buckets: an hour, less where there are not 24 of them."""
        return (
            min(max((self.last_s - self.first_s) // 24, self.step_s), DOWNLOAD_HOUR_S)
            // self.step_s
            * self.step_s
        )

    def stretches(self, step_s: int) -> list[tuple[int, int]]:
        """First and last instant of each answer: of a UTC day, or of as much as one answer may hold."""
        length = max(
            step_s,
            min(
                DOWNLOAD_DAY_S,
                MAX_POINTS_PER_ANSWER * step_s // DOWNLOAD_HOUR_S * DOWNLOAD_HOUR_S
                or MAX_POINTS_PER_ANSWER * step_s,
            ),
        )
        starts = range(self.first_s // length * length, self.last_s, length)
        cut = ((max(s, self.first_s // step_s * step_s), min(s + length, self.last_s)) for s in starts)
        return [(first, last) for first, last in cut if first < last]


class DownloadCounts(NamedTuple):
    """How many answers were asked for, and how many lay there."""

    asked: int
    kept: int


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
    """Bring the metrics of some days into the folder NAME.metrics of `landing`; what was done, as a line.

    IngestError or ConfigError is one line with the remedy.
    """
    TRACE_NAME.check(name, "--name")
    now_s = int(time.time())
    last_s = now_s if until is None else min(now_s, int(until.replace(tzinfo=UTC).timestamp()))
    last_s -= last_s % step_s
    folder = landing / f"{name}{METRICS_SUFFIX}"
    order = MetricsDownload(url, folder, last_s - days * DOWNLOAD_DAY_S, last_s, step_s, where)
    came = download_metrics(order, load_engine_metrics(), read_ingest_bounds(folder).ingest_minutes, progress)
    return f"{came.asked:,} answers from {url}, {came.kept:,} were there: {folder.name}"


def download_metrics(
    order: MetricsDownload, metrics: MetricsCatalogue, minutes: float, progress: Progress
) -> DownloadCounts:
    """Save what the server knows of the metrics; IngestError is one line with the remedy.

    Buckets of histograms are asked for by the hour at most, all else by the step.
    """
    client = PrometheusClient(order.url, time.monotonic() + 60 * minutes)
    known = [*metrics.counters(), *metrics.buckets()]
    there = set(client.names(known, order.where, order.first_s, order.last_s))
    wanted = [name for name in known if name in there]
    if not wanted:
        where = f" with {{{order.where}}}" if order.where else ""
        raise IngestError(
            f"{order.url} knows no metric of vLLM, SGLang or Dynamo between "
            f"{_instant_text(order.first_s)} and {_instant_text(order.last_s)}{where}. Does it scrape "
            f"the engines? "
            "data/catalogue/metrics.toml has the names that are asked for."
        )
    parts = [
        (name, step, *stretch)
        for name in wanted
        for step in [order.bucket_step_s if name.endswith("_bucket") else order.step_s]
        for stretch in order.stretches(step)
    ]
    order.folder.mkdir(parents=True, exist_ok=True)
    asked = 0
    with progress.bar(f"metrics from {order.url}", len(parts)) as done:
        for number, (name, step, first, last) in enumerate(parts, start=1):
            path = order.folder / f"{re.sub(r'[^A-Za-z0-9_]', '_', name)}.{first}.json.gz"
            if not _is_whole(path, name, step, last, order.where):
                _save(
                    path,
                    client.query_range(name, order.where, first, last, step),
                    name,
                    step,
                    last,
                    order.where,
                )
                asked += 1
            done(number)
    return DownloadCounts(asked, len(parts) - asked)


def _instant_text(instant_s: int) -> str:
    return f"{datetime.fromtimestamp(instant_s, UTC):%Y-%m-%d %H:%M}"


def _query_header(name: str, step: int, last: int, where: str) -> dict[str, Any]:
    return {"metric": name, "step_s": step, "last_s": last, "where": where}


def _is_whole(path: Path, name: str, step: int, last: int, where: str) -> bool:
    """Whether a file holds the answer to this question, up to this instant."""
    try:
        with gzip.open(path, "rt") as opened:
            begins = opened.readline()
        asked = json.loads(begins.rstrip().rstrip(",") + "}")["asked"]
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return False
    return bool(asked == _query_header(name, step, last, where))


def _save(path: Path, results: list[Any], name: str, step: int, last: int, where: str) -> None:
    """Write an answer aside and move it into place; its first line says what was asked."""
    begins = json.dumps({"asked": _query_header(name, step, last, where), "status": "success"})[:-1]
    data = json.dumps({"resultType": "matrix", "result": results}, separators=(",", ":"))
    aside = path.with_suffix(".part")
    with gzip.open(aside, "wt", compresslevel=3) as opened:
        opened.write(f'{begins},\n"data":{data}}}\n')
    os.replace(aside, path)
