"""Metrics from a server: a real Prometheus that scrapes engines of the test, and faulty servers."""

import gzip
import json
import re
import shutil
import socket
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from prometheus_parts import TOKENS, prometheus_of, served

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces import prometheus_client
from fleetcast.assets.traces.ingest_bounds import IngestError
from fleetcast.assets.traces.metrics_ingest import land_metrics
from fleetcast.assets.traces.prometheus_client import TOKEN_VARIABLE
from fleetcast.assets.traces.prometheus_download import (
    LATE_DAYS,
    MetricsDownload,
    download_metrics,
    fetch_metrics_folder,
)
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.engine_metrics import load_engine_metrics

CATALOGUE = load_catalogue()
UNTIL = datetime(2025, 7, 4)
BOUNDS = (100.0, 200.0, 500.0, float("inf"))
LENGTHS = (80, 150, 150, 400)  # of the prompts, in order
OUTPUT = 20


class Engine:
    """Counters of vLLM, as its /metrics shows them; a restart sets them to 0."""

    def __init__(self) -> None:
        self.lock, self.requests, self.total = threading.Lock(), 0, 0

    def serve(self, requests: int) -> None:
        with self.lock:
            self.requests += requests
            self.total += requests

    def text(self) -> str:
        with self.lock:
            n = self.requests
        rounds, rest = divmod(n, len(LENGTHS))
        lengths = [*LENGTHS * rounds, *LENGTHS[:rest]]
        label = 'model_name="llama2-70b",engine="0"'
        lines = ["# HELP vllm:prompt_tokens_total Prefill tokens.", "# TYPE vllm:prompt_tokens_total counter"]
        lines.append(f"vllm:prompt_tokens_total{{{label}}} {sum(lengths)}.0")
        for name, values in (
            ("request_prompt_tokens", lengths),
            ("request_generation_tokens", [OUTPUT] * n),
            ("time_to_first_token_seconds", [0.1] * n),
        ):
            lines.append(f"# TYPE vllm:{name} histogram")
            for bound in BOUNDS:
                le = "+Inf" if bound == float("inf") else str(bound)
                lines.append(f'vllm:{name}_bucket{{le="{le}",{label}}} {sum(v <= bound for v in values)}.0')
            lines.append(f"vllm:{name}_count{{{label}}} {n}.0")
            lines.append(f"vllm:{name}_sum{{{label}}} {sum(values)}")
        return "\n".join(lines) + "\n"


def test_a_real_prometheus_loses_no_request(tmp_path: Path) -> None:
    """Two engines, of which one restarts: no request and no token is lost."""
    engines = [Engine(), Engine()]
    with (
        served(lambda _: (200, {"Content-Type": "text/plain"}, engines[0].text().encode())) as one,
        served(lambda _: (200, {"Content-Type": "text/plain"}, engines[1].text().encode())) as other,
        prometheus_of(tmp_path, [one, other]) as url,
    ):
        wait_until_scraped(url, engines)
        for second in range(3):
            for engine in engines:
                engine.serve(40)
            wait_until_scraped(url, engines)
            if second == 1:
                engines[1].requests = 0
                wait_until_scraped(url, engines)
        now_s, folder = int(time.time()), tmp_path / "mine.metrics"
        order = MetricsDownload(url, folder, now_s - 30, now_s, 1, 'job="engines"')
        came = [download_metrics(order, load_engine_metrics(), 1.0, Progress()) for _ in range(2)]
    assert came[0][:2] == came[1][:2][::-1]
    assert came[0][0] > came[0][1] == 0
    lake = Lake(tmp_path / "lake")
    report = land_metrics(folder, lake, CATALOGUE)
    total = sum(engine.total for engine in engines)
    rows = lake.sql("select llm, input_tokens as i, output_tokens as o from requests").to_pandas()
    assert (report.rows_kept, set(rows["llm"])) == (total, {"llama2-70b"})
    assert rows["i"].sum() == total // 4 * sum(LENGTHS)
    assert rows["o"].sum() == total * OUTPUT
    below = [(rows["i"] <= bound).mean() for bound in BOUNDS[:3]]
    assert below == pytest.approx([0.25, 0.75, 1.0], abs=0.05)
    details = " ".join(lake.sql("select detail from metric_findings")["detail"].to_pylist())
    assert "1 counters of requests began again" in details


def wait_until_scraped(url: str, engines: list[Engine]) -> None:
    """Wait until it has the current counts, and has had them for a whole second: the step of the test."""
    client = prometheus_client.PrometheusClient(url, time.monotonic() + 30)
    expected = sorted(engine.requests for engine in engines)
    for _ in range(300):
        try:
            data = client.get("/api/v1/query", {"query": "vllm:request_prompt_tokens_count"})
            if sorted(float(one["value"][1]) for one in data["result"]) == expected:
                time.sleep(1.1)
                return
        except IngestError:
            pass
        time.sleep(0.1)
    raise AssertionError("Prometheus did not scrape the engines within 30 s.")


ERROR = json.dumps({"status": "error", "errorType": "execution", "error": "query timed out"}).encode()
NAMES = json.dumps({"status": "success", "data": ["up"]}).encode()


@pytest.mark.parametrize(
    ("status", "headers", "body", "message"),
    [
        (401, {}, b"<html>", f"refuses access: 401. Put a token .* {TOKEN_VARIABLE}"),
        (429, {"Retry-After": "0"}, b"slow down", "answers 429, 5 times. The answers so far are kept"),
        (503, {"Retry-After": "0"}, ERROR, "answers 503 query timed out, 5 times"),
        (302, {"Location": "http://elsewhere/login"}, b"", "answers 302 .*Is it the address of a Prometheus"),
        (404, {}, b"no", "answers 404 to /api/v1/label"),
        (200, {}, b"<!doctype html><title>Log in", "no JSON but '<!doctype html><title>Log in'"),
        (200, {}, b"", "no JSON but 'nothing'"),
        (200, {}, b'{"hits": []}', "answers JSON, but not as Prometheus does"),
        (200, {}, NAMES, "knows no metric of vLLM, SGLang or Dynamo between"),
    ],
)
def test_a_bad_answer_is_reported_in_one_line(
    status: int, headers: dict[str, str], body: bytes, message: str, tmp_path: Path
) -> None:
    with (
        served(lambda _: (status, headers, body)) as url,
        pytest.raises(IngestError, match=message) as caught,
    ):
        fetch_metrics_folder(url, "mine", 1, None, 60, "", tmp_path, Progress())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("where", ["", 'job="engines"'])
def test_a_limit_of_series_is_met_by_querying_instances_in_parts(tmp_path: Path, where: str) -> None:
    """As Mimir and Thanos have it: no series is lost or counted twice, those without an instance neither."""
    metric, names = "vllm:prompt_tokens_total", [*(f"10.0.0.{n}:80" for n in range(7)), ""]
    refusals = []

    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        query = {key: value[0] for key, value in parse_qs(urlsplit(path).query).items()}
        if "/label/__name__/" in path:
            return 200, {}, json.dumps({"status": "success", "data": [metric]}).encode()
        selector = query.get("match[]", query.get("query", ""))
        found = re.search(r'instance=~"([^"]*)"', selector)
        chosen = [n for n in names if found is None or re.fullmatch(json.loads(f'"{found[1]}"'), n)]
        assert where in selector
        if "/label/instance/" in path:
            return 200, {}, json.dumps({"status": "success", "data": [n for n in chosen if n]}).encode()
        if len(chosen) > 2:
            refusals.append(selector)
            text = "the query exceeded the maximum number of series (limit: 2 series)"
            return 422, {}, json.dumps({"status": "error", "errorType": "execution", "error": text}).encode()
        result = [{"metric": {"__name__": metric, "instance": n}, "values": [[0, "1"]]} for n in chosen]
        data = {"resultType": "matrix", "result": result}
        return 200, {}, json.dumps({"status": "success", "data": data}).encode()

    with served(answer) as url:
        fetch_metrics_folder(url, "mine", 1, UNTIL, 60, where, tmp_path, Progress())
    [file] = (tmp_path / "mine.metrics").glob("*.json.gz")
    found = [
        one["metric"]["instance"] for one in json.loads(gzip.decompress(file.read_bytes()))["data"]["result"]
    ]
    assert sorted(found) == sorted(names)
    assert refusals


BOMB = gzip.compress(bytes(1 << 25))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("number", "answers __name__ with no list"),
        ("refused", "does not list the values of __name__: 422 series limit"),
        ("bomb", "does not list the values of __name__: an answer of more than 1 MiB"),
        ("endless", "does not list the values of __name__: an answer of more than 1 MiB"),
        ("cut", r"answers nothing \(a compressed answer without its end\), 5 times"),
        ("no gzip", r"answers nothing \(Error -3 .*\), 5 times"),
        ("slow body", "sent .* bytes and no end within 1 s. Is it well|sends no whole answer within 1 s"),
        ("slow head", "sends no whole answer within 1 s"),
    ],
)
def test_a_hostile_server_is_left_within_its_limits(
    kind: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line with the server's name, within bounded memory and time."""
    for name, value in {"TIMEOUT_S": 1.0, "WAIT_S": 0.0, "MAX_NAMES_BYTES": 1 << 20}.items():
        monkeypatch.setattr(prometheus_client, name, value)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    packed = head + b"Content-Encoding: gzip\r\nConnection: close\r\n\r\n"
    error = json.dumps({"status": "error", "error": "series limit"}).encode()
    sent = {
        "number": head + b'Content-Length: 32\r\n\r\n{"status": "success", "data": 5}',
        "refused": b"HTTP/1.1 422 Unprocessable\r\nContent-Length: %d\r\n\r\n%s" % (len(error), error),
        "bomb": packed + BOMB,
        "cut": packed + gzip.compress(NAMES)[:-9],
        "no gzip": packed + b"nothing packed here",
    }

    def talk(client: socket.socket) -> None:
        with suppress(OSError), client:
            client.recv(1 << 16)
            if kind in sent:
                client.sendall(sent[kind])
            elif kind == "endless":
                client.sendall(head + b"\r\n")
                while True:
                    client.sendall(b" " * (1 << 16))
            else:
                client.sendall(head + b"\r\n" if kind == "slow body" else head)
                while True:
                    client.sendall(b"x")
                    time.sleep(0.05)

    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    threading.Thread(target=talk, args=(client,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        url, begun_s = f"http://127.0.0.1:{server.getsockname()[1]}", time.monotonic()
        with pytest.raises(IngestError, match=f"^{url} {message}") as refused:
            fetch_metrics_folder(url, "mine", 1, None, 60, "", tmp_path, Progress())
        server.shutdown(socket.SHUT_RDWR)  # else its accept() waits on, and may take what a later server gets
        assert "\n" not in str(refused.value)
        assert time.monotonic() - begun_s < 30


def test_a_token_that_is_none_is_not_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for token in ("secret\nX-Other: 1", "secr\u00e9t", "secret\x7f"):
        monkeypatch.setenv(TOKEN_VARIABLE, token)
        with pytest.raises(IngestError, match=f"^{TOKEN_VARIABLE} has a line end or another") as refused:
            fetch_metrics_folder("http://127.0.0.1:9", "mine", 1, None, 60, "", tmp_path, Progress())
        assert "secr" not in str(refused.value)


@pytest.mark.parametrize("retry_after", ["\u00b2", "nan", "-1", "9" * 400])
def test_what_a_server_says_is_cut_to_a_line(
    retry_after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a wait that is no number, or has no end."""
    monkeypatch.setattr(prometheus_client, "WAIT_S", 0.0)
    monkeypatch.setattr(prometheus_client, "LONGEST_WAIT_S", 0.0)
    body = json.dumps({"status": "error", "error": "much\n" * 100}).encode()
    with (
        served(lambda _: (503, {"Retry-After": retry_after}, body)) as url,
        pytest.raises(IngestError, match=r"answers 503 much much .* \.\.\., 5 times") as refused,
    ):
        fetch_metrics_folder(url, "mine", 1, None, 60, "", tmp_path, Progress())
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500


def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    with served(lambda _: (503, {"Retry-After": "20"}, b"")) as url:
        client = prometheus_client.PrometheusClient(url, time.monotonic() + 10.0)
        begun_s = time.monotonic()
        with pytest.raises(IngestError, match="answers 503, 1 times"):
            client.get("/api/v1/query", {"query": "up"})
        assert time.monotonic() < begun_s + 10.0


def test_an_unreachable_server_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus_client, "WAIT_S", 0.0)
    with served(lambda _: (200, {}, b"")) as url:
        pass
    with pytest.raises(IngestError, match=r"answers nothing \(.*refused\), 5 times"):
        fetch_metrics_folder(url, "mine", 1, None, 60, "", tmp_path, Progress())
    for address in ("prometheus:9090", "http://[", ""):
        message = re.escape(f"--from {address}: it must be an address like http://")
        with pytest.raises(IngestError, match=message):
            fetch_metrics_folder(address, "mine", 1, None, 60, "", tmp_path, Progress())


def test_an_answer_of_one_instant_is_no_history(tmp_path: Path) -> None:
    """A gateway that runs the query of a range as one of an instant answers a vector."""
    sample = {"metric": {"__name__": "vllm:prompt_tokens_total"}, "value": [UNTIL.timestamp(), "1"]}
    names = {"status": "success", "data": ["vllm:prompt_tokens_total"]}
    instant = {"status": "success", "data": {"resultType": "vector", "result": [sample]}}

    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        return 200, {}, json.dumps(names if "label" in path else instant).encode()

    with served(answer) as url, pytest.raises(IngestError, match="prompt_tokens_total with no matrix"):
        fetch_metrics_folder(url, "mine", 1, UNTIL, 60, "", tmp_path, Progress())
    assert not list(tmp_path.rglob("*.json.gz"))


def test_a_download_resumes_and_halves_too_large_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token is sent, stored parts are not requested again, a too large answer is fetched in parts."""
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    metric, requested = "vllm:prompt_tokens_total", list[str]()

    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        if "label" in path:
            return 200, {}, json.dumps({"status": "success", "data": [metric]}).encode()
        start, end = (float(path.split(f"{key}=")[1].split("&")[0]) for key in ("start", "end"))
        requested.append(path)
        if end - start > 50_000:
            text = "exceeded maximum resolution of 11,000 points per timeseries"
            return 400, {}, json.dumps({"status": "error", "errorType": "bad_data", "error": text}).encode()
        if len(requested) == 5:
            return 401, {}, b""
        series = {"metric": {"__name__": metric}, "values": [[start, "1"], [end, "2"]]}
        return (
            200,
            {},
            json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [series]}}).encode(),
        )

    with served(answer) as url:
        with pytest.raises(IngestError, match="refuses access: 401"):
            fetch_metrics_folder(url, "mine", 3, UNTIL, 60, "", tmp_path, Progress())
        kept = len(list((tmp_path / "mine.metrics").glob("*.json.gz")))
        before = len(requested)
        fetch_metrics_folder(url, "mine", 3, UNTIL, 60, "", tmp_path, Progress())
    assert (kept, before, len(requested)) == (1, 5, 11)
    assert len(list((tmp_path / "mine.metrics").glob("*.json.gz"))) == 3
    assert set(TOKENS[-before:]) == {"Bearer secret"}


def test_samples_that_reach_the_server_late_are_fetched(tmp_path: Path) -> None:
    """The last days are fetched again until they end; an older day and one that has all are not."""
    metric, requested, until_s = (
        "vllm:prompt_tokens_total",
        list[float](),
        UNTIL.replace(tzinfo=UTC).timestamp(),
    )
    known_until = [until_s - 100_000]

    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        if "label" in path:
            return 200, {}, json.dumps({"status": "success", "data": [metric]}).encode()
        start, end = (float(path.split(f"{key}=")[1].split("&")[0]) for key in ("start", "end"))
        requested.append(start)
        there = [[t, "1"] for t in np.arange(start, end + 1, 60.0) if t <= known_until[0]]
        result = [{"metric": {"__name__": metric}, "values": there}] if there else []
        data = {"status": "success", "data": {"resultType": "matrix", "result": result}}
        return 200, {}, json.dumps(data).encode()

    def fetch() -> tuple[str, int]:
        before = len(requested)
        line = fetch_metrics_folder(url, "mine", 10, UNTIL, 60, "", tmp_path, Progress())
        return line, len(requested) - before

    with served(answer) as url:
        line, fetched = fetch()
        days = fetched
        ends_early = {start for start in requested if start + 86_400 > known_until[0] + 120}
        empty = [start for start in sorted(ends_early) if start > known_until[0]]
        assert [f"{datetime.fromtimestamp(start, UTC):%Y-%m-%d %H:%M}" in line for start in empty] == [True]
        assert fetch()[1] == len(ends_early) == 2
        known_until[0] = until_s
        line, fetched = fetch()
        assert (fetched, "no sample" in line) == (2, False)
        assert fetch()[1] == 0
        known_until[0] = until_s - 9 * 86_400  # a day that was never whole
        shutil.rmtree(tmp_path / "mine.metrics")
        assert fetch()[1] == days
        assert fetch()[1] == LATE_DAYS < days - 1
