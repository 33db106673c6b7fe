"""One bad file keeps no other from landing: hostile files among good ones, over all readers."""

import gzip
import json
import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_sources import CATALOGUE, FORMATS, fixture

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces import file_content, landing
from fleetcast.assets.traces.ingest import IngestError, ingest_file, landed_files
from fleetcast.models.world.config_loading import load_config

HEADER = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
GOOD = HEADER + b"2023-11-16 10:00:00,5,5\n2023-11-16 10:00:01,6,6\n"
DEEP = b"[" * 100_000 + b"]" * 100_000
DEEP_OBJECT = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
HOSTILE: dict[str, bytes] = {
    "deep.json": DEEP,
    "deep.jsonl": DEEP_OBJECT,
    "deep_value.jsonl": b'{"session_id": "a", "turns": ' + DEEP + b"}\n",
    "open.jsonl": b'{"turns": ' * 100_000,
    "empty.csv": b"",
    "blank.csv": b"\n" * 5000,
    "nul.csv": b"\x00" * 5000,
    "bom.csv": b"\xef\xbb\xbf",
    "utf16.csv": GOOD.decode().encode("utf-16"),
    "latin.csv": b"caf\xe9,\xff\n1,2\n",
    "header.csv": HEADER,
    "twice.csv": HEADER.strip() + b",ContextTokens\n2023-11-16 10:00:00,5,5,9\n",
    "quotes.csv": HEADER + b'"' * 9999,
    "columns.csv": b",".join(b"c%d" % n for n in range(4_000)) + b"\n",
    "control_name.csv": b"\x01",  # the line quotes the name of a column
    "numbers.csv": HEADER + b"2023-11-16 10:00:00,1e308,-1\n99999-01-01,nan,inf\n,,\n",
    "huge_number.csv": HEADER + b"2023-11-16 10:00:00," + b"9" * 5000 + b",5\n",
    "formula.csv": HEADER + b"=cmd|'/c calc'!A1,5,5\n",
    "cut.csv.gz": gzip.compress(GOOD * 1000)[:-9],
    "head.gz": b"\x1f\x8b\x08xx",
    "zstd.zst": b"\x28\xb5\x2f\xfd" + bytes(100),
    "parquet.parquet": b"PAR1xxxx",
    "parquet_end.parquet": b"PAR1" + bytes(100) + b"\xff\xff\xff\x7fPAR1",
    "picture.png": b"\x89PNG\r\n\x1a\n" + bytes(50),
    "elf.csv": b"\x7fELF" + bytes(500),
    "pickle.csv": b"\x80\x04\x95cos\nsystem\n(S'touch /tmp/x'\ntR.",
    "answer.json": b'{"status": "success", "data": 5}',
    "null.jsonl": b"null\n{}\n",
    "keys.jsonl": json.dumps({f"k{n}": n for n in range(2000)}).encode(),
    "surrogate.jsonl": b'{"timestamp": 1, "input_length": 1, "output_length": 1, "session_id": "\\ud800"}',
    "tar.tar": b"x" * 257 + b"ustar" + bytes(700),
    "[red]markup[bold].csv": b"a,b\n1,2",
    "quote'); copy x.csv": b"a,b\n1,2",
    "back\\slash.csv": b"a,b",
    "$HOME.csv": b"a,b",
    "*.csv": b"a,b",
    "new\nline.csv": GOOD,
    "escape\x1b[2J.csv": GOOD,
    "long" + "g" * 240 + ".csv": b"a,b",
}
BAD_MAPPINGS = {
    "bad_deep.toml": b"a = " + b"[" * 5000,
    "bad_bytes.toml": b"\xff\xfe",
    "bad_unknown.toml": b"x = 1",
    "bad_large.toml": b"#" + b"x" * 2_000_000,
}


def land_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[landing.LandingOutcome, Lake]:
    lake = Lake(folder / "lake")
    monkeypatch.setattr(landing, "landed_files", lambda: landed_files(folder / "landing"))
    monkeypatch.setattr(landing, "lone_mappings", list)
    return landing.land_all_files(RunSettings(lake, CATALOGUE, load_config("sageserve", CATALOGUE))), lake


def test_every_reader_lands_among_hostile_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A good file of every format, every hostile file, hostile folders, links, rights and mappings."""
    there = tmp_path / "landing"
    there.mkdir()
    good = set()
    for name in FORMATS:
        clean = fixture(name)
        (there / f"good_{clean.name}").write_bytes(clean.read_bytes())
        good.add(f"good_{clean.name}")
    for name, content in HOSTILE.items():
        (there / name).write_bytes(content)
    for name, content in BAD_MAPPINGS.items():
        (there / name).write_bytes(content)
        (there / name).with_suffix(".csv").write_bytes(GOOD + name.encode())
    (there / "deep.metrics").mkdir()
    (there / "deep.metrics" / "a.json").write_bytes(DEEP)
    (there / "none.metrics").mkdir()
    (there / os.fsdecode(b"name\xff.csv")).write_bytes(GOOD)
    (there / "loop.csv").symlink_to("loop.csv")
    os.mkfifo(there / "pipe.csv")
    done, lake = land_all(tmp_path, monkeypatch)
    assert good <= {report.file for report in done.reports}
    assert all(report.rows_kept > 0 for report in done.reports if report.file in good)
    for line in done.refused:
        line.encode()
        assert line.isprintable()
        assert "Traceback" not in line
        assert len(line) < 1500, line
    landed = {report.file for report in done.reports}
    for name in HOSTILE:
        shown = ascii(name).strip("'\"")
        assert name in landed or any(name in line or shown in line for line in done.refused), name
    assert len(done.refused) > len(HOSTILE) - 8
    assert lake.sql("checks/rows_are_conserved.sql").num_rows == 0


def test_a_defect_of_a_reader_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also an error that no reader expects."""
    (tmp_path / "landing").mkdir()
    for name in ("a.csv", "b.csv"):
        (tmp_path / "landing" / name).write_bytes(GOOD + name.encode())
    whole = landing.ingest_file

    def broken(path: Path, *more: object) -> object:
        if path.name == "a.csv":
            raise RecursionError("maximum recursion depth exceeded")
        return whole(path, *more)

    monkeypatch.setattr(landing, "ingest_file", broken)
    done, _ = land_all(tmp_path, monkeypatch)
    assert done.refused == [
        "a.csv cannot be read: maximum recursion depth exceeded. Remove it from data/landing."
    ]
    assert [report.file for report in done.reports] == ["b.csv"]


def test_a_first_line_above_the_limit_and_columns_of_one_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_content, "MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / "a.csv"
    path.write_bytes(HEADER.strip() + b",x" * (1 << 19) + b"\n1\n")
    with pytest.raises(IngestError, match=r"^a\.csv has a first line above 1 MiB\. Is it a trace\?$"):
        ingest_file(path, Lake(tmp_path / "lake"), CATALOGUE)
    path.write_bytes(HOSTILE["twice.csv"])
    message = r"^a\.csv has 2 columns 'ContextTokens'\. Rename all but one\.$"
    with pytest.raises(IngestError, match=message):
        ingest_file(path, Lake(tmp_path / "lake"), CATALOGUE)
    table = pa.table([pa.array([1]), pa.array([2])], names=["request_id", "request_id"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(IngestError, match=re.escape("has 2 columns 'request_id'")):
        ingest_file(tmp_path / "a.parquet", Lake(tmp_path / "lake"), CATALOGUE)
