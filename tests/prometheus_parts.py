"""Servers that answer as a test defines, and a real Prometheus that reads them."""

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

TOKENS: list[str | None] = []  # that were sent to the servers here


@contextmanager
def served(answer: Callable[[str], tuple[int, dict[str, str], bytes]]) -> Iterator[str]:
    """A server on a port of its own that answers every GET so: path -> status, headers, body."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answer(self.path)
            self.send_response(status)
            for name, text in headers.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            TOKENS.append(self.headers.get("Authorization"))

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def prometheus_of(folder: Path, targets: list[str], *flags: str) -> Iterator[str]:
    """A real Prometheus that scrapes these addresses, until the block ends or a minute is over."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("there is no prometheus here (Debian: apt install prometheus)")
    config = folder / "prometheus.yml"
    jobs = [{"job_name": "engines", "scrape_interval": "200ms", "scrape_timeout": "200ms",
             "static_configs": [{"targets": [url.removeprefix("http://") for url in targets]}]}]  # fmt: skip
    config.write_text(json.dumps({"scrape_configs": jobs}))  # YAML has JSON in it
    with served(lambda path: (200, {}, b"")) as free:
        address = free.removeprefix("http://")
    command = [binary, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
               f"--web.listen-address={address}", "--log.level=error", *flags]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(10)
