"""A client of Prometheus servers; Mimir, Thanos and VictoriaMetrics have the same API."""

import contextlib
import http.client
import json
import os
import queue
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Mapping
from email.message import Message
from typing import Any, cast

from fleetcast.assets.traces.ingest_bounds import IngestError
from fleetcast.models.world.toml_dataclasses import shorten_text

TOKEN_VARIABLE = "PROMETHEUS_TOKEN"  # environment variable with the token
MAX_ANSWER_BYTES = 1 << 26  # the time range of a larger answer is halved
MAX_NAMES_BYTES = 1 << 24
CHUNK_BYTES, SLOW_BYTES = 1 << 16, 1 << 20
DOWNLOAD_TRIES, WAIT_S, LONGEST_WAIT_S, TIMEOUT_S = 5, 1.0, 30.0, 60.0
SPLIT_LABEL = "instance"  # a query of too many series is split by its values
MIN_RANGE_S = 600  # a time range up to this is not halved
BUSY_STATUSES = {429, 500, 502, 503, 504}
TOO_MANY_SERIES_MESSAGE = re.compile(r"\bseries\b", re.IGNORECASE)  # not "per timeseries"
TOO_LARGE_MESSAGE = re.compile(r"exceeded|too many|maximum|limit|too large|out of memory", re.IGNORECASE)


class AnswerTooLargeError(Exception):
    """An answer is too large for the server (of_series: it has too many series) or for this client."""

    def __init__(self, message: str, is_of_series: bool = False) -> None:
        super().__init__(message)
        self.is_of_series = is_of_series


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would send the token to another server."""

    def redirect_request(self, *_: Any) -> None:
        """Return None, so that the answer with the redirect is returned as it is."""


URL_OPENER = urllib.request.build_opener(_NoRedirects)


class PrometheusClient:
    """Queries a server with a few attempts and growing waits, until `end_s` of time.monotonic()."""

    def __init__(self, url: str, end_s: float) -> None:
        self.url, self.end_s = require_url(url), end_s
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
        if not (token.isascii() and token.isprintable()):  # it would be printed with Python's error
            raise IngestError(
                f"{TOKEN_VARIABLE} has a line end or another character that no token has. Set it again."
            )
        authorization = token if " " in token else f"Bearer {token}"
        self.headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
        self.headers |= {"Authorization": authorization} if token else {}

    def names(self, known: list[str], where: str, first: int, last: int) -> list[str]:
        """Return the metrics that the server has between two instants, in seconds since 1970."""
        prefixes = sorted({re.match(r"[a-z]+", name)[0] for name in known})  # type: ignore[index]
        selector = f'{{__name__=~"({"|".join(prefixes)})[:_].*"{"," if where else ""}{where}}}'
        return self.label_values("__name__", selector, first, last)

    def label_values(self, label: str, selector: str, first: int, last: int) -> list[str]:
        """Return the values of a label between two instants; of both halves if the server has too many."""
        parameters = {"match[]": selector, "start": first, "end": last}
        try:
            found = self.get(f"/api/v1/label/{label}/values", parameters, MAX_NAMES_BYTES)
        except AnswerTooLargeError as error:
            if last - first <= MIN_RANGE_S:
                raise IngestError(
                    f"{self.url} does not list the values of {label}: {error}. Narrow it with --where."
                ) from error
            middle = first + (last - first) // 2
            halves = ((first, middle), (middle, last))
            found = [name for half in halves for name in self.label_values(label, selector, *half)]
        if not isinstance(found, list):
            raise IngestError(f"{self.url} answers {label} with no list. Is it a Prometheus server?")
        return list(dict.fromkeys(map(str, found)))

    def query_range(self, name: str, where: str, first: int, last: int, step: int) -> list[Any]:
        """Return the series of a metric, one value per step; query in parts if the answer is too large.

        The parts are halves of the time, or of the instances if the server has a limit of series.
        """
        selector = f"{name}{{{where}}}" if where else name
        try:
            data = self.get(
                "/api/v1/query_range", {"query": selector, "start": first, "end": last, "step": step}
            )
        except AnswerTooLargeError as error:
            if error.is_of_series and (parts := self._split_by_label(selector, where, first, last)):
                return [
                    series for part in parts for series in self.query_range(name, part, first, last, step)
                ]
            if last - first <= max(MIN_RANGE_S, step):
                raise IngestError(
                    f"{self.url} refuses even {(last - first) / 60:.0f} minutes of {name}: {error}. "
                    "Narrow it with --where, or take a longer --step."
                ) from error
            middle = first + (last - first) // 2 // step * step
            return [
                *self.query_range(name, where, first, middle, step),
                *self.query_range(name, where, middle, last, step),
            ]
        is_matrix = isinstance(data, dict) and data.get("resultType") == "matrix"
        if not is_matrix or not isinstance(data.get("result"), list):
            raise IngestError(f"{self.url} answers {name} with no matrix. Is it a Prometheus server?")
        return list(data["result"])

    def _split_by_label(self, selector: str, where: str, first: int, last: int) -> list[str]:
        """Return the matchers of two halves of the instances that `where` leaves; none if it leaves one."""
        if "{" not in selector:
            selector = f"{selector}{{}}"
        values = sorted(self.label_values(SPLIT_LABEL, selector, first, last))
        if len(values) < 2:
            return []
        before = re.search(rf',?{SPLIT_LABEL}=~"([^"]*)"$', where)
        kept = where[: before.start()] if before else where
        halves = values[: len(values) // 2], values[len(values) // 2 :]
        if before is None or before[1].endswith("|"):
            halves[0].append("")  # series without the label
        matchers = [json.dumps("|".join(map(re.escape, half))) for half in halves]
        return [f"{kept}{',' if kept else ''}{SPLIT_LABEL}=~{matcher}" for matcher in matchers]

    def get(self, path: str, parameters: Mapping[str, Any], most_bytes: int | None = None) -> Any:
        """Return the `data` of an answer; IngestError or AnswerTooLargeError if there is none."""
        url = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        reply = "nothing"
        for attempt in range(DOWNLOAD_TRIES):
            status, text, headers = self._get_once(url, most_bytes or MAX_ANSWER_BYTES)
            if status == 200:
                return self._data(text)
            reply = f"{status} {_error_message(text)}".strip() if status else text.decode(errors="replace")
            if status in (401, 403):
                raise IngestError(
                    f"{self.url} refuses access: {reply}. Put a token that may read it into the environment "
                    f"variable {TOKEN_VARIABLE} (Bearer, or with its scheme)."
                )
            message = _error_message(text)
            if status == 422 or (TOO_LARGE_MESSAGE.search(message) and status in (400, 413, 503)):
                raise AnswerTooLargeError(reply, is_of_series=bool(TOO_MANY_SERIES_MESSAGE.search(message)))
            if status and status not in BUSY_STATUSES:
                raise IngestError(
                    f"{self.url} answers {reply} to {path}. Is it the address of a Prometheus server?"
                )
            wait_s = _wait_s(headers.get("Retry-After"), attempt)
            if attempt == DOWNLOAD_TRIES - 1 or time.monotonic() + wait_s > self.end_s:
                break
            time.sleep(wait_s)
        raise IngestError(
            f"{self.url} answers {reply}, {attempt + 1} times. The answers so far are kept: run the same "
            "command again when the server is well."
        )

    def _get_once(self, url: str, most_bytes: int) -> tuple[int, bytes, Mapping[str, str]]:
        """Return status, body and headers of one attempt; status 0 and the reason if there is no answer.

        The attempt has a deadline as a whole: a socket's timeout begins again with every byte.
        """
        limit_s = max(1.0, min(TIMEOUT_S, self.end_s - time.monotonic()))
        found: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def attempt() -> None:
            try:
                found.put(self._read_answer(url, most_bytes, time.monotonic() + limit_s))
            except Exception as error:
                found.put(error)

        threading.Thread(target=attempt, daemon=True).start()
        try:
            answer = found.get(timeout=limit_s + 1.0)
        except queue.Empty:
            answer = IngestError(f"{self.url} sends no whole answer within {limit_s:.0f} s. Is it well?")
        if isinstance(answer, (OSError, EOFError, http.client.HTTPException, zlib.error)):
            reason = getattr(answer, "reason", answer)
            return 0, f"nothing ({_one_line(str(reason)) or type(answer).__name__})".encode(), {}
        if isinstance(answer, Exception):
            raise answer
        return cast(tuple[int, bytes, Mapping[str, str]], answer)

    def _read_answer(self, url: str, most_bytes: int, end_s: float) -> tuple[int, bytes, Mapping[str, str]]:
        request = urllib.request.Request(url, headers=self.headers)
        timeout_s = max(1.0, end_s - time.monotonic())
        try:
            with URL_OPENER.open(request, timeout=timeout_s) as answer:
                is_packed = answer.headers.get("Content-Encoding") == "gzip"
                text = self._read_body(answer, is_packed, most_bytes, end_s)
                return answer.status, text, _headers(answer.headers)
        except urllib.error.HTTPError as error:
            return error.code, _error_body(error.read(4096), error.headers), _headers(error.headers)

    def _read_body(self, answer: Any, is_packed: bool, most_bytes: int, end_s: float) -> bytes:
        """Read a body in chunks and unpack it, up to a size and a time."""
        unpacking, parts, size = zlib.decompressobj(wbits=31), list[bytes](), 0
        while chunk := answer.read1(CHUNK_BYTES):
            text = unpacking.decompress(chunk, most_bytes + 1) if is_packed else chunk
            parts.append(text)
            size += len(text)
            if size > most_bytes:
                raise AnswerTooLargeError(f"an answer of more than {most_bytes >> 20} MiB")
            if time.monotonic() > end_s:
                if size > SLOW_BYTES:
                    raise AnswerTooLargeError(f"{size:,} bytes and no end within {TIMEOUT_S:.0f} s")
                raise IngestError(
                    f"{self.url} sent {size:,} bytes and no end within {TIMEOUT_S:.0f} s. Is it well? "
                    "The answers so far are kept: run the same command again."
                )
        if is_packed and parts and not unpacking.eof:
            raise EOFError("a compressed answer without its end")
        if not is_packed and answer.length:
            raise http.client.IncompleteRead(b"", answer.length)
        return b"".join(parts)

    def _data(self, text: bytes) -> Any:
        """Return the `data` of a body; IngestError if it is not one of Prometheus."""
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError) as error:
            begins = _one_line(text[:60].decode(errors="replace")) or "nothing"
            raise IngestError(
                f"{self.url} answers no JSON but {begins!r}. Give the address of "
                "/api/v1/query_range, without a login page before it."
            ) from error
        if not isinstance(answer, dict) or answer.get("status") != "success":
            raise IngestError(f"{self.url} answers JSON, but not as Prometheus does. Is it another service?")
        return answer.get("data")


def require_url(url: str) -> str:
    """Return the address without query and API path; IngestError if it is not an http address."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:  # a bracket without its end
        parts = urllib.parse.urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise IngestError(f"--from {shorten_text(url)}: it must be an address like http://prometheus:9090.")
    if parts.username or parts.password:
        raise IngestError(
            f"--from {parts.scheme}://...@{parts.hostname}: no password in an address. "
            f"Put 'Basic ...' into the environment variable {TOKEN_VARIABLE}."
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/").removesuffix("/api/v1")


def _headers(found: Message) -> dict[str, str]:
    return {name.title(): text for name, text in found.items()}


def _error_body(text: bytes, headers: Message) -> bytes:
    """Return the unpacked body of an error."""
    with contextlib.suppress(zlib.error):
        if headers.get("Content-Encoding") == "gzip":
            return zlib.decompressobj(wbits=31).decompress(text, 4096)
    return text


def _error_message(text: bytes) -> str:
    """Return the message of an error answer in Prometheus's format; empty for another format."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    return _one_line(str(answer.get("error", ""))) if isinstance(answer, dict) else ""


def _one_line(text: str) -> str:
    return shorten_text(re.sub(r"\s+", " ", text).strip())


def _wait_s(retry_after: str | None, attempt: int) -> float:
    wait_s = float(retry_after) if retry_after and retry_after.isdecimal() else WAIT_S * 2**attempt
    return min(wait_s, LONGEST_WAIT_S)
