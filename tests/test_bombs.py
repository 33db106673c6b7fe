"""Small files that hold gigabytes: refused soon, in one line, with the setting that lifts the limit."""

import gzip
import io
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_sources import CATALOGUE

from fleetcast.assets.lake.settings import Progress, Step
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces import ingest_bounds
from fleetcast.assets.traces.ingest import IngestError, ingest_file

HEADER = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROW = b"2023-11-16 10:00:00,5,5\n"
MIB = 1 << 20
BLOCKS = 40  # MiB, where the free ones are 1


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of a small file begins at 1 MiB instead of 256, so that the bombs are quickly built."""
    monkeypatch.setattr(ingest_bounds, "UNCHECKED_BYTES", MIB)


class Zeroes(io.RawIOBase):
    """Returns as many zeroes as requested."""

    def read(self, size: int = -1) -> bytes:
        return bytes(size)


def write(path: Path, head: bytes, block: bytes) -> None:
    with gzip.open(path, "wb") if path.suffix == ".gz" else pa.CompressedOutputStream(path, "zstd") as packed:
        packed.write(head)
        for _ in range(BLOCKS):
            packed.write(block)


def archive(path: Path, mode: str) -> None:
    with tarfile.open(path, mode) as packed:  # type: ignore[call-overload]
        for name in ("chunk-0-trace.csv", "chunk-0-dataset.json"):
            member = tarfile.TarInfo(name)
            member.size = BLOCKS * MIB
            packed.addfile(member, Zeroes())


def parquet(path: Path) -> None:
    rows = 20 * MIB
    same = pa.array([5]).take(pa.array([0] * MIB))
    table = pa.table({"request_id": same, "arrived_at": same.cast(pa.timestamp("us")), "input_tokens": same,
                      "output_tokens": same})  # fmt: skip
    with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
        for _ in range(rows // MIB):
            writer.write_table(table)


BOMBS = {
    "blank.csv.gz": lambda path: write(path, b"", b"\n" * MIB),
    "blank.csv.zst": lambda path: write(path, b"", b"\n" * MIB),
    "rows.csv.gz": lambda path: write(path, HEADER, ROW * (MIB // len(ROW))),
    "rows.csv.zst": lambda path: write(path, HEADER, ROW * (MIB // len(ROW))),
    "after.csv.gz": lambda path: write(path, HEADER + ROW, b"\n" * MIB),
    "line.csv.gz": lambda path: write(path, HEADER + ROW, b"5" * MIB),
    "tar.tar.gz": lambda path: archive(path, "w:gz"),
    "tar.tar.xz": lambda path: archive(path, "w:xz"),
    "rows.parquet": parquet,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_is_written_anywhere(name: str, tmp_path: Path) -> None:
    path, lake = tmp_path / name, Lake(tmp_path / "lake")
    BOMBS[name](path)
    begun = time.monotonic()
    with pytest.raises(IngestError) as refused:
        ingest_file(path, lake, CATALOGUE)
    message = str(refused.value)
    if name.startswith("blank"):
        assert message == f"{name} begins with more than 100,000 blank lines. Remove them."
    else:
        assert message.startswith(f"{name} unpacks to more than 100 times its size")
        assert "give it a higher unpack_ratio in" in message
    assert "\n" not in message
    assert time.monotonic() - begun < 10
    assert [p for p in lake.root.rglob("*") if p.is_file() and p.name != "VERSION"] == []


class Bars(Progress):
    """Records how far each bar got."""

    def __init__(self) -> None:
        self.progress: dict[str, int] = {}

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[Step]:
        self.progress[label] = 0
        yield lambda done: self.progress.update({label: done})


def test_the_mapping_file_lifts_the_ratio_and_a_bar_shows_progress(tmp_path: Path) -> None:
    path, bars = tmp_path / "rows.csv.gz", Bars()
    path.write_bytes(gzip.compress(HEADER + ROW * 100_000))
    (tmp_path / "rows.toml").write_text("unpack_ratio = 100_000")
    report = ingest_file(path, Lake(tmp_path / "lake"), CATALOGUE, bars)
    assert report.rows_in == 100_000
    assert bars.progress["text of rows.csv.gz"] == len(HEADER + ROW * 100_000)
    assert {"rows of rows.csv.gz", "days of rows.csv.gz"} <= bars.progress.keys()


def test_a_file_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    """In the middle of DuckDB's work; nothing is left behind."""
    path, lake = tmp_path / "long.csv", Lake(tmp_path / "lake")
    path.write_bytes(HEADER + ROW * 2_000_000)
    (tmp_path / "long.toml").write_text("ingest_minutes = 0.02")
    with pytest.raises(IngestError, match=r"^long\.csv was not ingested within .* ingest_minutes in long"):
        ingest_file(path, lake, CATALOGUE)
    assert list(lake.root.rglob("*.parquet")) == []
