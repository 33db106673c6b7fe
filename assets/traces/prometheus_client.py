"""A client of Prometheus servers; Mimir, Thanos and VictoriaMetrics have the same API."""

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
from email.message import Message
from typing import Any

from fleetcast.assets.traces.ingest_bounds import IngestError

TOKEN_VARIABLE = "PROMETHEUS_TOKEN"  # environment variable with the token
MAX_ANSWER_BYTES = 1 << 28  # the time range of a larger answer is halved
DOWNLOAD_TRIES, WAIT_S, LONGEST_WAIT_S, TIMEOUT_S = 5, 1.0, 30.0, 60.0
MIN_RANGE_S = 600  # a time range up to this is not halved
BUSY_STATUSES = {429, 500, 502, 503, 504}
TOO_LARGE_MESSAGE = re.compile(r"exceeded|too many|maximum|limit|too large|out of memory", re.IGNORECASE)


class AnswerTooLargeError(Exception):
    """An answer is too large for the server or for this client."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would send the token to another server."""

    def redirect_request(self, *_: Any) -> None:
        """Return None, so that the answer with the redirect is returned as it is."""


URL_OPENER = urllib.request.build_opener(_NoRedirects)


class PrometheusClient:
    """Queries a server with a few attempts and growing waits, until `end_s` of time.monotonic()."""

    def __init__(self, url: str, end_s: float) -> None:
        self.url, self.end_s = _base_url(url), end_s
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
        authorization = token if " " in token else f"Bearer {token}"
        self.headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
        self.headers |= {"Authorization": authorization} if token else {}

    def names(self, known: list[str], where: str, first: int, last: int) -> list[str]:
        """Return the metrics that the server has between two instants, in seconds since 1970."""
        prefixes = sorted({re.match(r"[a-z]+", name)[0] for name in known})  # type: ignore[index]
        selector = f'{{__name__=~"({"|".join(prefixes)})[:_].*"{"," if where else ""}{where}}}'
        found = self.get("/api/v1/label/__name__/values", {"match[]": selector, "start": first, "end": last})
        return [str(name) for name in found or []]

    def query_range(self, name: str, where: str, first: int, last: int, step: int) -> list[Any]:
        """Return the series of a metric, one value per step; query two halves if the answer is too large."""
        selector = f"{name}{{{where}}}" if where else name
        try:
            data = self.get(
                "/api/v1/query_range", {"query": selector, "start": first, "end": last, "step": step}
            )
        except AnswerTooLargeError as error:
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
        if not isinstance(data, dict) or not isinstance(data.get("result"), list):
            raise IngestError(f"{self.url} answers {name} with no matrix. Is it a Prometheus server?")
        return list(data["result"])

    def get(self, path: str, parameters: Mapping[str, Any]) -> Any:
        """Return the `data` of an answer; IngestError or AnswerTooLargeError if there is none."""
        url = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        reply = "nothing"
        for attempt in range(DOWNLOAD_TRIES):
            status, text, headers = self._get_once(url)
            if status == 200:
                return self._data(text)
            reply = f"{status} {_error_message(text)}".strip() if status else text.decode(errors="replace")
            if status in (401, 403):
                raise IngestError(
                    f"{self.url} refuses access: {reply}. Put a token that may read it into the environment "
                    f"variable {TOKEN_VARIABLE} (Bearer, or with its scheme)."
                )
            if TOO_LARGE_MESSAGE.search(_error_message(text)) and status in (400, 422, 413, 503):
                raise AnswerTooLargeError(reply)
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

    def _get_once(self, url: str) -> tuple[int, bytes, Mapping[str, str]]:
        """Return status, body and headers of one attempt; status 0 and the reason if there is no answer."""
        request = urllib.request.Request(url, headers=self.headers)
        timeout_s = max(1.0, min(TIMEOUT_S, self.end_s - time.monotonic()))
        try:
            with URL_OPENER.open(request, timeout=timeout_s) as answer:
                text = answer.read(MAX_ANSWER_BYTES + 1)
                if answer.headers.get("Content-Encoding") == "gzip":
                    text = gzip.GzipFile(fileobj=io.BytesIO(text)).read(MAX_ANSWER_BYTES + 1)
                if len(text) > MAX_ANSWER_BYTES:
                    raise AnswerTooLargeError(f"an answer of more than {MAX_ANSWER_BYTES >> 20} MiB")
                return answer.status, text, _headers(answer.headers)
        except urllib.error.HTTPError as error:
            return error.code, _error_body(error.read(4096), error.headers), _headers(error.headers)
        except (OSError, EOFError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            return 0, f"nothing ({reason or type(error).__name__})".encode(), {}

    def _data(self, text: bytes) -> Any:
        """Return the `data` of a body; IngestError if it is not one of Prometheus."""
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError) as error:
            begins = re.sub(r"\s+", " ", text[:60].decode(errors="replace")).strip() or "nothing"
            raise IngestError(
                f"{self.url} answers no JSON but {begins!r}. Give the address of "
                "/api/v1/query_range, without a login page before it."
            ) from error
        if not isinstance(answer, dict) or answer.get("status") != "success":
            raise IngestError(f"{self.url} answers JSON, but not as Prometheus does. Is it another service?")
        return answer.get("data")


def _base_url(url: str) -> str:
    """Return the address without query and API path; IngestError if it is not an http address."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise IngestError(f"--from {url}: it must be an address like http://prometheus:9090.")
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
    return str(answer.get("error", ""))[:200] if isinstance(answer, dict) else ""


def _wait_s(retry_after: str | None, attempt: int) -> float:
    wait_s = float(retry_after) if retry_after and retry_after.isdigit() else WAIT_S * 2**attempt
    return min(wait_s, LONGEST_WAIT_S)
