"""Hostile trace files: fixtures with bytes or values changed, archives, Parquet, saved metrics."""

import csv
import io
import json
import random
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from engine_counters import answer, results
from hostile_values import JSON_VALUES, TEXTS, replace_leaf, spoil_bytes
from test_hostile_landing import BAD_MAPPINGS, GOOD, HOSTILE
from test_sources import CATALOGUE, FORMATS, OTHER_LOGS, fixture

from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.ingest import ingest_file
from fleetcast.assets.traces.ingest_bounds import IngestError
from fleetcast.assets.traces.metrics_ingest import land_metrics

Work = Callable[[], str]
ENGINE = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total",
          "vllm:request_prompt_tokens_count", "vllm:request_generation_tokens_count")  # fmt: skip
ARRAYS: tuple[Callable[[int], pa.Array], ...] = (
    pa.nulls,
    lambda n: pa.array([float("nan"), float("inf"), -1e308, 1e308] * n)[:n],
    lambda n: pa.array([2**63 - 1, -(2**63), 0, -1] * n)[:n],
    lambda n: pa.array([[1, None], [], None] * n)[:n],
    lambda n: pa.array([{"a": [{"b": "x"}]}, None] * n)[:n],
    lambda n: pa.array([b"\xff\x00", b""] * n)[:n],
    lambda n: pa.array(list(TEXTS) * n)[:n],
    lambda n: pa.array([True, False] * n)[:n],
    lambda n: pa.array([2**63 - 1, -(2**63)] * n, pa.timestamp("ns"))[:n],
    lambda n: pa.array([2**31 - 1, -1] * n, pa.date32())[:n],
    lambda n: pa.array(["a", None] * n).dictionary_encode()[:n],
    lambda n: pa.array([[("k", 1), ("k", 2)]] * n, pa.map_(pa.string(), pa.int64())),
)


def trace_files(folder: Path, draw: random.Random) -> Iterator[tuple[str, Work]]:
    """Each format's fixture, spoilt: as bytes, in one value, in all values of a column."""
    for name in (*FORMATS, *OTHER_LOGS):
        path = fixture(name)
        content = path.read_bytes()
        for what, changed in spoil_bytes(content, draw):
            yield f"{name} {what}", landing(folder, path.name, changed)
        for what, changed in _spoil_values(path, content, draw):
            yield f"{name} {what}", without_a_halt(landing(folder, path.name, changed))
    for name, content in HOSTILE.items():
        yield name, landing(folder, name, content)
    for name, mapping in BAD_MAPPINGS.items():
        yield name, landing(folder, f"{name.removesuffix('.toml')}.csv", GOOD, {name: mapping})
    for what, members in _archives(draw):
        yield f"archive {what}", landing(folder, "a.tar.gz", members)


def landing(folder: Path, name: str, content: bytes, others: dict[str, bytes] | None = None) -> Work:
    """Write a file in a folder of its own and land it there."""

    def work() -> str:
        own = folder / f"{random.getrandbits(64):x}"
        own.mkdir()
        for other, text in (others or {}).items():
            (own / other).write_bytes(text)
        (own / name).write_bytes(content)
        lake = Lake(own / "lake")
        report = ingest_file(own / name, lake, CATALOGUE)
        if report.rows_in != report.rows_kept + report.rows_quarantined:
            return f"{report.rows_in} rows in, {report.rows_kept} + {report.rows_quarantined} out"
        broken = lake.sql("checks/requests_are_valid.sql").num_rows
        return f"{broken} requests are not valid" if broken else ""

    return work


def without_a_halt(land: Work) -> Work:
    """Land a file with bad values: no value of a row keeps the other rows from landing."""

    def work() -> str:
        try:
            return land()
        except IngestError as error:
            if " failed: " in str(error):
                return f"a value halts the file: {error}"
            raise

    return work


def _spoil_values(path: Path, content: bytes, draw: random.Random) -> Iterator[tuple[str, bytes]]:
    if path.suffix == ".jsonl":
        yield from _spoil_documents(content.decode().splitlines(), draw)
    elif path.suffix == ".csv":
        yield from _spoil_cells(list(csv.reader(content.decode().splitlines())), draw)
    elif path.suffix == ".parquet":
        table = pq.read_table(path)
        for n, make in enumerate(ARRAYS):
            at = draw.randrange(table.num_columns)
            name = table.column_names[at]
            yield f"{name} of kind {n}", _parquet(table.set_column(at, name, make(table.num_rows)))
        yield "columns twice", _parquet(table.append_column(table.column_names[0], table.column(1)))
        yield "no rows", _parquet(table.slice(0, 0))


def _spoil_documents(lines: list[str], draw: random.Random) -> Iterator[tuple[str, bytes]]:
    documents = [json.loads(line) for line in lines]
    for n in range(6):
        spoilt = [replace_leaf(draw.choice(documents), draw, value) for value in draw.sample(JSON_VALUES, 20)]
        yield f"values {n}", "\n".join([*lines, *(json.dumps(document) for _, document in spoilt)]).encode()
    first, value = documents[0], draw.choice(JSON_VALUES)
    where, spoilt_first = replace_leaf(first, draw, value)
    yield f"first {where}"[:60], "\n".join([json.dumps(spoilt_first), *lines]).encode()
    key = draw.choice(list(first))
    yield f"key {key} twice", f'{lines[0][:-1]}, "{key}": 5}}\n'.encode()
    yield "only scalars", b'{"a": 1}\n5\n"x"\nnull\ntrue\n[]\n' + content_of(lines)


def content_of(lines: list[str]) -> bytes:
    """Lines as a file."""
    return "\n".join(lines).encode()


def _spoil_cells(rows: list[list[str]], draw: random.Random) -> Iterator[tuple[str, bytes]]:
    head, *body = rows
    for at in draw.sample(range(len(head)), min(6, len(head))):
        spoilt = [[*row[:at], text, *row[at + 1 :]] for text in TEXTS for row in [draw.choice(body)]]
        yield f"column {head[at]}", _csv([head, *spoilt])
    yield "names of columns", _csv([[draw.choice(TEXTS)[:999] for _ in head], *body])
    yield "a column twice", _csv([[*head, head[0]], *([*row, row[0]] for row in body)])
    yield "wide rows", _csv([head, *(row * 50 for row in body)])


def _csv(rows: list[list[str]]) -> bytes:
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerows(rows)
    return sink.getvalue().encode("utf-8", "replace")


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def _archives(draw: random.Random) -> Iterator[tuple[str, bytes]]:
    """Members with hostile names, kinds and contents among those of a real archive."""
    with tarfile.open(fixture("servegen")) as packed:
        real = [(m.name, packed.extractfile(m).read()) for m in packed if m.isfile()]  # type: ignore[union-attr]
    for name in ("../../evil.csv", "/etc/evil", "a/../../b", "x" * 5000, "\x1b[2J", "chunk-0-trace.csv/"):
        yield f"member {name[:20]!r}", _tar([*real, (name, b"x")])
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
        yield f"kind {kind!r}", _tar([(f"../{real[0][0]}", b""), *real], kind)
        yield f"trace of kind {kind!r}", _tar([("chunk-0-trace.csv", b""), *real[1:]], kind)
    for name, content in real:
        for what, spoilt in draw.sample(list(spoil_bytes(content, draw)), 6):
            yield f"{name} {what}", _tar([(name, spoilt), *(one for one in real if one[0] != name)])
    yield "10,000 members", _tar([*real, *((f"chunk-{n}-trace.csv", b"") for n in range(10_000))])


def _tar(members: list[tuple[str, bytes]], kind: bytes = tarfile.REGTYPE) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz", format=tarfile.PAX_FORMAT) as packed:
        for n, (name, content) in enumerate(members):
            member = tarfile.TarInfo(name)
            member.size, member.type = len(content), kind if n == 0 else tarfile.REGTYPE
            member.linkname = "/etc/passwd" if n == 0 else ""
            packed.addfile(member, io.BytesIO(content))
    return sink.getvalue()


def saved_answer() -> dict[str, Any]:
    """A range answer of a server with two engines over two hours."""
    t = 1_735_689_600.0 + 60.0 * np.arange(120)
    return answer(
        [
            results({"model_name": "llama2-70b", "instance": f"e{n}"}, name, le, t, np.cumsum(np.ones(120)))
            for n in range(2)
            for name, le in (*((name, None) for name in ENGINE), ("vllm:request_prompt_tokens_bucket", "100"))
        ]
    )


def metrics_folders(folder: Path, draw: random.Random) -> Iterator[tuple[str, Work]]:
    """Saved answers of Prometheus, each with one value replaced or its bytes spoilt."""
    whole = saved_answer()

    def work(content: bytes) -> Work:
        def land() -> str:
            own = folder / f"{random.getrandbits(64):x}"
            (own / "m.metrics").mkdir(parents=True)
            (own / "m.metrics" / "a.json").write_bytes(content)
            (own / "m.metrics" / "b.json").write_text(json.dumps(saved_answer()))
            report = land_metrics(own / "m.metrics", Lake(own / "lake"), CATALOGUE)
            return "" if report.rows_kept >= 0 else "no rows"

        return land

    for what, content in spoil_bytes(json.dumps(whole).encode(), draw):
        yield f"answer {what}", work(content)
    for value in (
        *JSON_VALUES,
        *("+Inf", [1, "2"], ["x", "y"], [1e300, "1"], [-1, "1"], [float("nan"), "1"]),
    ):
        where, spoilt = replace_leaf(whole, draw, value)
        yield f"{where} {value!r}"[:60], work(json.dumps(spoilt).encode("utf-8", "replace"))
