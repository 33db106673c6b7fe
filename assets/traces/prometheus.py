"""The answers of a Prometheus server, saved as they come: one file per counter and stretch of time.

What lies there whole is not asked for again, so that a download which was broken off goes on, and a later one
brings the days that are new. Mimir, Thanos and VictoriaMetrics speak the same API.
"""

import contextlib
import gzip
import http.client
import io
import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from pathlib import Path
from typing import Any, NamedTuple

from assets.lake.settings import Progress
from assets.traces.bounds import IngestError
from assets.traces.mapping import read_bounds
from assets.traces.samples import FOLDER
from models.world.engine_metrics import Metrics, load_metrics
from models.world.reading import TRACE_NAME

TOKEN = "PROMETHEUS_TOKEN"  # the environment variable that holds it
DAY_S, HOUR_S = 86_400, 3600
MOST_POINTS = 10_000  # of a series in one answer; Prometheus refuses more than 11,000
MOST_BYTES = 1 << 28  # of one answer; the stretch is halved where it is larger
TRIES, WAIT_S, LONGEST_WAIT_S, TIMEOUT_S = 5, 1.0, 30.0, 60.0
LEAST_S = 600  # a stretch that is not halved any more
BUSY = {429, 500, 502, 503, 504}
TOO_MUCH = re.compile(r"exceeded|too many|maximum|limit|too large|out of memory", re.IGNORECASE)


class TooMuch(Exception):
    """The server, or we, cannot take so much in one answer."""


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


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: it would take the token to whoever is named."""

    def redirect_request(self, *_: Any) -> None:
        """Leave the answer as it is."""


OPENER = urllib.request.build_opener(_Stay)


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
    there = set(client.names(order, known))
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


class Client:
    """Asks a server politely: a few times, with growing waits, until a given instant of the clock."""

    def __init__(self, url: str, end_s: float) -> None:
        self.url, self.end_s = _base(url), end_s
        token = os.environ.get(TOKEN, "").strip()
        authorization = token if " " in token else f"Bearer {token}"
        self.headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
        self.headers |= {"Authorization": authorization} if token else {}

    def names(self, order: Order, known: list[str]) -> list[str]:
        """Which of the metrics the server has in the time of the order."""
        prefixes = sorted({re.match(r"[a-z]+", name)[0] for name in known})  # type: ignore[index]
        selector = f'{{__name__=~"({"|".join(prefixes)})[:_].*"{"," if order.where else ""}{order.where}}}'
        asked = {"match[]": selector, "start": order.first_s, "end": order.last_s}
        found = self.get("/api/v1/label/__name__/values", asked)
        return [str(name) for name in found or []]

    def ranged(self, name: str, where: str, first: int, last: int, step: int) -> list[Any]:
        """The series of a metric by steps; in two halves where it is too much at once."""
        selector = f"{name}{{{where}}}" if where else name
        try:
            data = self.get(
                "/api/v1/query_range", {"query": selector, "start": first, "end": last, "step": step}
            )
        except TooMuch as error:
            if last - first <= max(LEAST_S, step):
                raise IngestError(
                    f"{self.url} refuses even {(last - first) / 60:.0f} minutes of {name}: {error}. "
                    "Narrow it with --where, or take a longer --step."
                ) from error
            middle = first + (last - first) // 2 // step * step
            return [
                *self.ranged(name, where, first, middle, step),
                *self.ranged(name, where, middle, last, step),
            ]
        if not isinstance(data, dict) or not isinstance(data.get("result"), list):
            raise IngestError(f"{self.url} answers {name} with no matrix. Is it a Prometheus server?")
        return list(data["result"])

    def get(self, path: str, asked: Mapping[str, Any]) -> Any:
        """The `data` of an answer."""
        url = f"{self.url}{path}?{urllib.parse.urlencode(asked)}"
        said = "nothing"
        for attempt in range(TRIES):
            status, text, headers = self._once(url)
            if status == 200:
                return self._data(text)
            said = f"{status} {_error_of(text)}".strip() if status else text.decode(errors="replace")
            if status in (401, 403):
                raise IngestError(
                    f"{self.url} refuses us: {said}. Put a token that may read it into the environment "
                    f"variable {TOKEN} (Bearer, or with its scheme)."
                )
            if TOO_MUCH.search(_error_of(text)) and status in (400, 422, 413, 503):
                raise TooMuch(said)
            if status and status not in BUSY:
                raise IngestError(
                    f"{self.url} answers {said} to {path}. Is it the address of a Prometheus server?"
                )
            wait_s = _wait_s(headers.get("Retry-After"), attempt)
            if attempt == TRIES - 1 or time.monotonic() + wait_s > self.end_s:
                break
            time.sleep(wait_s)
        raise IngestError(
            f"{self.url} answers {said}, {attempt + 1} times. What came so far is kept: run the same command "
            "again when the server is well."
        )

    def _once(self, url: str) -> tuple[int, bytes, Mapping[str, str]]:
        """Status, body and headers of one attempt; status 0 and the reason where there is no answer."""
        request = urllib.request.Request(url, headers=self.headers)
        timeout_s = max(1.0, min(TIMEOUT_S, self.end_s - time.monotonic()))
        try:
            with OPENER.open(request, timeout=timeout_s) as answer:
                text = answer.read(MOST_BYTES + 1)
                if answer.headers.get("Content-Encoding") == "gzip":
                    text = gzip.GzipFile(fileobj=io.BytesIO(text)).read(MOST_BYTES + 1)
                if len(text) > MOST_BYTES:
                    raise TooMuch(f"an answer of more than {MOST_BYTES >> 20} MiB")
                return answer.status, text, _headers(answer.headers)
        except urllib.error.HTTPError as error:
            return error.code, _begin_of(error.read(4096), error.headers), _headers(error.headers)
        except (OSError, EOFError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            return 0, f"nothing ({reason or type(error).__name__})".encode(), {}

    def _data(self, text: bytes) -> Any:
        try:
            answer = json.loads(text)
        except ValueError as error:
            begins = re.sub(r"\s+", " ", text[:60].decode(errors="replace")).strip() or "nothing"
            raise IngestError(
                f"{self.url} answers no JSON but {begins!r}. Name the address under which "
                "/api/v1/query_range lies, without a login page before it."
            ) from error
        if not isinstance(answer, dict) or answer.get("status") != "success":
            raise IngestError(f"{self.url} answers JSON, but not as Prometheus does. Is it another service?")
        return answer.get("data")


def _base(url: str) -> str:
    """The address without what follows it; IngestError for what is none."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise IngestError(f"--from {url}: it must be an address like http://prometheus:9090.")
    if parts.username or parts.password:
        raise IngestError(
            f"--from {parts.scheme}://...@{parts.hostname}: no password in an address. "
            f"Put 'Basic ...' into the environment variable {TOKEN}."
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/").removesuffix("/api/v1")


def _headers(found: Message) -> dict[str, str]:
    return {name.title(): text for name, text in found.items()}


def _begin_of(text: bytes, headers: Message) -> bytes:
    """What an error says, which Prometheus packs as it packs an answer."""
    with contextlib.suppress(zlib.error):
        if headers.get("Content-Encoding") == "gzip":
            return zlib.decompressobj(wbits=31).decompress(text, 4096)
    return text


def _error_of(text: bytes) -> str:
    """What an answer that failed says, as far as it is Prometheus that speaks."""
    try:
        answer = json.loads(text)
    except ValueError:
        return ""
    return str(answer.get("error", ""))[:200] if isinstance(answer, dict) else ""


def _wait_s(retry_after: str | None, attempt: int) -> float:
    asked = float(retry_after) if retry_after and retry_after.isdigit() else WAIT_S * 2**attempt
    return min(asked, LONGEST_WAIT_S)
