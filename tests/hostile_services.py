"""Hostile servers of metrics, and hostile requests to the scaler."""

import asyncio
import json
import os
import random
from collections.abc import Callable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

from handed import write_plan
from hostile_files import ENGINE, saved_answer
from hostile_values import ARGUMENTS, JSON_VALUES, TEXTS, replace_leaf
from hostile_verdict import run_command, trouble_of
from prometheus_parts import served
from small import small_config

from fleetcast.assets.lake.settings import Progress, load_settings, midnight
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.plans.current_plan import CurrentPlan
from fleetcast.assets.plans.keda_messages import CALLS, MESSAGE_CLASSES, grpc_handlers
from fleetcast.assets.plans.keda_scaler import TRIGGER_KEYS, KedaScaler
from fleetcast.assets.traces import prometheus_client
from fleetcast.assets.traces.metrics_ingest import land_metrics
from fleetcast.assets.traces.prometheus_download import fetch_metrics_folder
from fleetcast.models.world.catalogue import load_catalogue

Work = Callable[[], str]
DAY = date(2025, 7, 3)


def servers(folder: Path, draw: random.Random) -> Iterator[tuple[str, Work]]:
    """Answers of a Prometheus server, which are downloaded and landed."""
    prometheus_client.WAIT_S, prometheus_client.LONGEST_WAIT_S = (
        0.0,
        0.1,
    )  # not the seconds that a server names
    names, whole = {"status": "success", "data": list(ENGINE)}, saved_answer()
    values = (*JSON_VALUES, "+Inf", [1, "2"], ["x", "y"], [1e300, "1"])

    def work(names_answer: bytes, range_answer: bytes, headers: dict[str, str], status: int) -> Work:
        def download() -> str:
            own = folder / f"{random.getrandbits(64):x}"

            def reply(path: str) -> tuple[int, dict[str, str], bytes]:
                return status, headers, names_answer if "/label/" in path else range_answer

            with served(reply) as url:
                fetch_metrics_folder(url, "m", 1, datetime(2025, 1, 2), 600, "", own, Progress())
            land_metrics(own / "m.metrics", Lake(own / "lake"), load_catalogue())
            return ""

        return download

    def as_bytes(document: Any) -> bytes:
        return json.dumps(document).encode("utf-8", "replace")

    for value in draw.sample(values, 20):
        where, spoilt = replace_leaf(names, draw, value)
        yield f"names {where} {value!r}"[:60], work(as_bytes(spoilt), as_bytes(whole), {}, 200)
        where, spoilt = replace_leaf(whole, draw, value)
        yield f"range {where} {value!r}"[:60], work(as_bytes(names), as_bytes(spoilt), {}, 200)
    heads = (("Content-Encoding", "gzip"), ("Content-Encoding", "br"), ("Retry-After", "9" * 400),
             ("Retry-After", "nan"), ("Retry-After", "-1"), ("Content-Type", "x" * 5000))  # fmt: skip
    for head in heads:
        for status in (200, 429, 503):
            yield (
                f"{head[0]}: {head[1][:20]} {status}",
                work(as_bytes(names), as_bytes(whole), dict([head]), status),
            )
    for status in (100, 204, 206, 301, 400, 404, 413, 418, 422, 500, 599, 999):
        yield f"status {status}", work(b"[" * 50_000, b"\x00", {}, status)
    for token in ("a\nb", "é", "x" * 100_000, "\x7f", "Basic", "a b c"):

        def with_token(token: str = token) -> str:
            os.environ["PROMETHEUS_TOKEN"] = token
            try:
                return work(as_bytes(names), as_bytes(whole), {}, 200)()
            except ValueError as error:
                return "the token is printed" if token.strip() in str(error) else trouble_of(error)
            finally:
                del os.environ["PROMETHEUS_TOKEN"]

        yield f"token {token[:20]!r}", with_token
    for url in (
        "",
        "x",
        "http://",
        "http://[",
        "http://a:99999999",
        "file:///etc/passwd",
        "ftp://x",
        "http://\x1b",
        "http://é",
    ):
        yield (
            f"url {url!r}",
            lambda url=url: run_command(["ingest", "--from", url, "--name", "m", "--days", "1"]),
        )  # type: ignore[misc]
    for text in draw.sample(ARGUMENTS, 10):
        yield (
            f"--name {text[:40]!r}",
            lambda text=text: run_command(  # type: ignore[misc]
                ["ingest", "--from", "http://127.0.0.1:9", f"--name={text}", "--days", "1"]
            ),
        )


class Aborted(Exception):
    """The call was refused with a status."""


class Context:
    """What a call of the scaler sees of its client."""

    def set_trailing_metadata(self, pairs: Any) -> None:
        """As gRPC: names and values are printable ASCII."""
        for name, value in pairs:
            assert name.isascii() and value.isascii() and value.isprintable(), (name, value)  # noqa: PT018

    async def abort(self, code: Any, details: str) -> None:
        """End the call with a status."""
        raise Aborted(f"{code}: {details}")


def scaler_requests(folder: Path, draw: random.Random) -> Iterator[tuple[str, Work]]:
    """Messages of KEDA with hostile fields, and bytes that are no messages."""
    settings = load_settings(small_config(folder), folder / "lake")
    write_plan(settings, DAY, [3] * 24)
    logged = list[str]()
    scaler = KedaScaler(CurrentPlan(settings, "day_ahead", lambda: midnight(DAY)), logged.append)
    scaler.source.refresh()
    methods = {"IsActive": scaler.is_active, "StreamIsActive": scaler.stream_is_active,
               "GetMetricSpec": scaler.metric_spec, "GetMetrics": scaler.metrics}  # fmt: skip
    handlers = grpc_handlers(methods)
    row = settings.grid.service_options[0]
    region = next(iter(settings.catalogue.regions))
    good = dict(
        zip(TRIGGER_KEYS, (region, row.llm, row.option.gpu, str(row.option.gpus), row.role), strict=True)
    )

    def call(name: str, content: bytes) -> str:
        class Details:
            method = f"/externalscaler.ExternalScaler/{name}"
            invocation_metadata = ()

        handler = handlers.service(Details())
        request = handler.request_deserializer(content)

        async def answered() -> None:
            if CALLS[name][2]:
                async for _ in handler.unary_stream(request, Context()):
                    return
            else:
                handler.response_serializer(await handler.unary_unary(request, Context()))

        before = len(logged)
        try:
            asyncio.run(answered())
        except Aborted as refused:
            if "\n" in str(refused) or len(str(refused)) > 2000:
                return f"no clear line: {str(refused)[:300]!r}"
        lines = logged[before:]
        if len(lines) > 1 or any(not line.isprintable() or len(line) > 2000 for line in lines):
            return f"a forged line: {lines!r}"[:500]
        return ""

    for key in (*TRIGGER_KEYS, "policy", "floor", "tolerance", "name", "namespace", "metricName", "more"):
        for text in draw.sample(TEXTS, 8):
            fields = {"name": "so", "namespace": "default", "metricName": "s0"} | {
                k: text.encode("utf-8", "replace").decode() for k in (key,)
            }
            metadata = good | {key: fields[key]} if key not in ("name", "namespace", "metricName") else good
            ref = MESSAGE_CLASSES["ScaledObjectRef"](
                name=fields["name"], namespace=fields["namespace"], scalerMetadata=metadata
            )
            whole = MESSAGE_CLASSES["GetMetricsRequest"](scaledObjectRef=ref, metricName=fields["metricName"])
            for name, message in (("GetMetrics", whole), (draw.choice([*CALLS][:3]), ref)):
                content = message.SerializeToString()
                yield f"{name} {key} {text[:30]!r}", lambda name=name, content=content: call(name, content)  # type: ignore[misc]
    for name in CALLS:
        for content in (b"", b"\xff" * 100, b"\n" * 1000, draw.randbytes(300), b"\x0a\xff\xff\xff\xff\x0f"):
            yield f"{name} bytes {content[:8]!r}", lambda name=name, content=content: call(name, content)  # type: ignore[misc]
