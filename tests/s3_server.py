"""A server that speaks S3, moto behind real HTTP in a process of its own; what is put there ends with it.

    python tests/s3_server.py PORT AWAY_S        what `serving` starts

Tests order two things of it, and go on when it is so: `leave` (no one listens for AWAY_S seconds)
and `set_full` (a PUT is refused).
"""

import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any, NamedTuple

BUCKET = "fleet"
AWAY_S = 10.0
LACKING = " and ".join(name for name in ("moto", "flask_cors", "s3fs") if find_spec(name) is None)
SKIPPED = f"no S3 server: {LACKING} is not installed (uv sync brings it)"
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
LEAVE, FILL, EMPTY = "/tests/leave", "/tests/fill", "/tests/empty"
FULL = b"<Error><Code>QuotaExceeded</Code><Message>The quota of the bucket is used up</Message></Error>"


class Server(NamedTuple):
    """One that runs."""

    process: subprocess.Popen[bytes]
    url: str

    @property
    def environ(self) -> dict[str, str]:
        """What its clients need."""
        return {**KEYS, "AWS_ENDPOINT_URL": self.url}

    def leave(self) -> None:
        """Have it go away; returns when no one listens."""
        self._post(LEAVE)
        address = ("127.0.0.1", int(self.url.rpartition(":")[2]))
        with suppress(ConnectionRefusedError):
            while True:
                with suppress(ConnectionResetError):  # it closes just now
                    socket.create_connection(address, timeout=10).close()
                time.sleep(0.01)

    def set_full(self, is_full: bool) -> None:
        """Have it refuse every PUT, or take them again."""
        self._post(FILL if is_full else EMPTY)

    def _post(self, path: str) -> None:
        post = urllib.request.Request(f"{self.url}{path}", b"", method="POST")
        urllib.request.urlopen(post, timeout=60).close()


@contextmanager
def serving(away_s: float = AWAY_S) -> Iterator[Server]:
    """Run one with an empty bucket until the block ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, __file__, str(port), str(away_s)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                put = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
                urllib.request.urlopen(put, timeout=10).close()
                break
            except OSError:
                time.sleep(0.1)
        yield Server(process, url)
    finally:
        process.kill()
        process.wait()


def main(port: int, away_s: float) -> None:
    """Serve until killed."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    is_full, leaves = threading.Event(), threading.Event()
    orders = {LEAVE: leaves.set, FILL: is_full.set, EMPTY: is_full.clear}
    moto: Callable[..., Any] = DomainDispatcherApplication(create_backend_app)

    def app(environ: dict[str, Any], answer: Callable[..., Any]) -> Any:
        if environ["PATH_INFO"] in orders:
            orders[environ["PATH_INFO"]]()
            answer("200 OK", [("Content-Length", "0")])
            return [b""]
        if is_full.is_set() and environ["REQUEST_METHOD"] == "PUT":
            answer("403 Forbidden", [("Content-Type", "application/xml")])
            return [FULL]
        return moto(environ, answer)

    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    while True:
        leaves.clear()
        server = make_server("127.0.0.1", port, app, threaded=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        leaves.wait()
        server.shutdown()
        server.server_close()
        time.sleep(away_s)


if __name__ == "__main__":
    os.environ["MOTO_ALLOW_NONEXISTENT_REGION"] = "true"
    main(int(sys.argv[1]), float(sys.argv[2]))
