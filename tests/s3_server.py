"""A server that speaks S3, moto behind real HTTP in a process of its own; what is put there ends with it.

    python tests/s3_server.py PORT AWAY_S        what `serving` starts

On SIGUSR1 it is away for AWAY_S seconds: no one listens. On SIGUSR2 it is full: a PUT is refused.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple

BUCKET = "fleet"
AWAY_S = 10.0
LACKING = " and ".join(name for name in ("moto", "flask_cors", "s3fs") if find_spec(name) is None)
SKIPPED = f"no S3 server: {LACKING} is not installed (uv sync brings it)"
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
FULL = b"<Error><Code>QuotaExceeded</Code><Message>The quota of the bucket is used up</Message></Error>"


class Server(NamedTuple):
    """One that runs."""

    process: subprocess.Popen[bytes]
    url: str

    @property
    def environ(self) -> dict[str, str]:
        """What its clients need."""
        return {**KEYS, "AWS_ENDPOINT_URL": self.url}


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
    signal.signal(signal.SIGUSR1, lambda *_: leaves.set())
    signal.signal(signal.SIGUSR2, lambda *_: is_full.clear() if is_full.is_set() else is_full.set())
    moto: Callable[..., Any] = DomainDispatcherApplication(create_backend_app)

    def app(environ: dict[str, Any], answer: Callable[..., Any]) -> Any:
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
