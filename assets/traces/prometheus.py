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
from fleetcast.assets.traces.bounds import IngestError
from fleetcast.assets.traces.mapping import read_bounds
from fleetcast.assets.traces.prometheus_client import Client
from fleetcast.assets.traces.samples import FOLDER
from fleetcast.models.world.engine_metrics import Metrics, load_metrics
from fleetcast.models.world.reading import TRACE_NAME

DAY_S, HOUR_S = 86_400, 3600
MOST_POINTS = 10_000  # of a series in one answer; Prometheus refuses more than 11,000


@dataclass(frozen=True)
class Order:
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
        return min(max((self.last_s - self.first_s) // 24, self.step_s), HOUR_S) // self.step_s * self.step_s

    def stretches(self, step_s: int) -> list[tuple[int, int]]:
        """First and last instant of each answer: of a UTC day, or of as much as one answer may hold."""
        length = max(step_s, min(DAY_S, MOST_POINTS * step_s // HOUR_S * HOUR_S or MOST_POINTS * step_s))
        starts = range(self.first_s // length * length, self.last_s, length)
        cut = ((max(s, self.first_s // step_s * step_s), min(s + length, self.last_s)) for s in starts)
        return [(first, last) for first, last in cut if first < last]


class Downloaded(NamedTuple):
    """How many answers were asked for, and how many lay there."""

    asked: int
    kept: int


def fetch(
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
    folder = landing / f"{name}{FOLDER}"
    order = Order(url, folder, last_s - days * DAY_S, last_s, step_s, where)
    came = download(order, load_metrics(), read_bounds(folder).ingest_minutes, progress)
    return f"{came.asked:,} answers from {url}, {came.kept:,} were there: {folder.name}"


def download(order: Order, metrics: Metrics, minutes: float, progress: Progress) -> Downloaded:
    """Save what the server knows of the metrics; IngestError is one line with the remedy.

    Buckets of histograms are asked for by the hour at most, all else by the step.
    """
    client = Client(order.url, time.monotonic() + 60 * minutes)
    known = [*metrics.counters(), *metrics.buckets()]
    there = set(client.names(known, order.where, order.first_s, order.last_s))
    wanted = [name for name in known if name in there]
    if not wanted:
        where = f" with {{{order.where}}}" if order.where else ""
        raise IngestError(
            f"{order.url} knows no metric of vLLM, SGLang or Dynamo between "
            f"{_said(order.first_s)} and {_said(order.last_s)}{where}. Does it scrape the engines? "
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
                    path, client.ranged(name, order.where, first, last, step), name, step, last, order.where
                )
                asked += 1
            done(number)
    return Downloaded(asked, len(parts) - asked)


def _said(instant_s: int) -> str:
    return f"{datetime.fromtimestamp(instant_s, UTC):%Y-%m-%d %H:%M}"


def _asked(name: str, step: int, last: int, where: str) -> dict[str, Any]:
    return {"metric": name, "step_s": step, "last_s": last, "where": where}


def _is_whole(path: Path, name: str, step: int, last: int, where: str) -> bool:
    """Whether a file holds the answer to this question, up to this instant."""
    try:
        with gzip.open(path, "rt") as opened:
            begins = opened.readline()
        asked = json.loads(begins.rstrip().rstrip(",") + "}")["asked"]
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return False
    return bool(asked == _asked(name, step, last, where))


def _save(path: Path, results: list[Any], name: str, step: int, last: int, where: str) -> None:
    """Write an answer aside and move it into place; its first line says what was asked."""
    begins = json.dumps({"asked": _asked(name, step, last, where), "status": "success"})[:-1]
    data = json.dumps({"resultType": "matrix", "result": results}, separators=(",", ":"))
    aside = path.with_suffix(".part")
    with gzip.open(aside, "wt", compresslevel=3) as opened:
        opened.write(f'{begins},\n"data":{data}}}\n')
    os.replace(aside, path)
