"""Bad input to every reader: no request lost, none counted twice, a refusal is one line."""

import gzip
import json
import re
import tarfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile_values import TEXTS
from test_sources import CATALOGUE, READERS, TRACES, fixture, landed

from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.data_quality import assess_trace
from fleetcast.assets.traces.ingest import IngestError, ingest_file
from fleetcast.assets.traces.trace_formats import recognise_format

TEXT_FORMATS = [name for name in READERS if fixture(name).suffix in (".csv", ".jsonl") and name != "log"]
ORDERED = {"mooncake_sessions"}  # formats in which the order of rows has a meaning
GARBAGE = b"caf\xe9,\xff\x00"  # neither UTF-8 nor a row of any format


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packed:
        packed.write(content)
    return sink.getvalue().to_pybytes()


def as_text(name: str, content: str) -> str:
    """The same rows with every number, or every field of a CSV, in quotes."""
    if fixture(name).suffix == ".jsonl":
        return re.sub(r"(: |[\[ ])(-?\d+(?:\.\d+)?)(?=[,}\]])", r'\1"\2"', content)
    return "\n".join(",".join(f'"{field}"' for field in line.split(",")) for line in content.splitlines())


def is_conserved(lake: Lake) -> bool:
    return all(
        lake.sql(f"checks/{check}.sql").num_rows == 0
        for check in ("rows_are_conserved", "requests_are_valid", "request_ids_are_unique")
    )


@pytest.mark.parametrize("name", TEXT_FORMATS)
def test_a_spoilt_file_gives_the_same_requests(name, tmp_path):
    """BOM, CRLF, numbers as text, a row in another encoding, compression: only the bad row is lost."""
    clean, lake = fixture(name), Lake(tmp_path / "lake")
    text = as_text(name, clean.read_text()).strip()
    spoilt = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode() + b"\r\n" + GARBAGE + b"\r\n"
    path = tmp_path / clean.name  # recognised by content: the name does not tell the compression
    path.write_bytes((gzip.compress, zstd)[TEXT_FORMATS.index(name) % 2](spoilt))
    report = ingest_file(path, lake, CATALOGUE)
    expected = json.loads((TRACES / f"{name}.expected.json").read_text())
    found = json.loads(json.dumps(landed(lake), default=str))
    assert found["kept"] == expected["kept"]
    assert found["quarantined"][:-1] == expected["quarantined"]
    assert report.rows_in == len(expected["kept"]) + len(expected["quarantined"]) + 1
    shapes = (
        f"2 fields where the header has {len(recognise_format(path).content.columns)}",
        "not a JSON object",
    )
    assert found["quarantined"][-1][1] in shapes
    assert is_conserved(lake)


@pytest.mark.parametrize("name", READERS)
def test_the_same_requests_in_two_files_count_once(name, tmp_path):
    """A second export, its rows in reverse (so that time decreases) and one of them new to the trace."""
    clean, lake = fixture(name), Lake(tmp_path / "lake")
    first = ingest_file(clean, lake, CATALOGUE)
    again = tmp_path / f"again{clean.suffix}"
    if clean.suffix == ".gz":  # an archive
        with tarfile.open(clean) as packed, tarfile.open(again, "w") as unpacked:
            for member in packed.getmembers():
                unpacked.addfile(member, packed.extractfile(member))
    elif clean.suffix == ".parquet":
        table = pq.read_table(clean)
        pq.write_table(table.take(list(range(table.num_rows))[::-1]), again)
    else:
        lines = clean.read_text().splitlines()
        head = lines[: recognise_format(clean).content.header_lines]
        rows = lines[len(head) :]
        rows = rows if name in ORDERED else rows[::-1]
        again.write_text("\n".join([*head, *rows]))
    second = ingest_file(again, lake, CATALOGUE)
    assert (second.rows_in, second.rows_kept) == (first.rows_in, 0)
    twins = [reason for reason in second.reasons if "already in the trace, from " + clean.name in reason]
    assert sum(second.reasons[reason] for reason in twins) == first.rows_kept
    assert lake.count("requests") + lake.count("answers") == first.rows_kept
    assert is_conserved(lake)


@pytest.mark.parametrize("name", TEXT_FORMATS)
def test_a_file_that_cannot_be_read_is_refused_in_one_line(name, tmp_path):
    """Truncated packings, nothing, a header alone or of something else: file named, lake untouched."""
    content = fixture(name).read_bytes()
    header = content.splitlines()[0] + b"\n" if fixture(name).suffix == ".csv" else b"\n\n"
    renamed = b"nonsense,b\n1,2\n" if fixture(name).suffix == ".csv" else b'{"nonsense": 1}\n'
    lake, path = Lake(tmp_path / "lake"), tmp_path / "trace.bin"
    for spoilt, message in (
        (gzip.compress(content)[:-9], "cannot be read|GZIP"),
        (zstd(content)[:-3], "cannot be read: Truncated compressed stream"),
        (b"", "is empty"),
        (header, "has no row|is empty"),
        (renamed, "has no column that is known as arrived_at, input_tokens or output_tokens"),
        (content.decode().encode("utf-16"), "neither text nor Parquet"),
    ):
        path.write_bytes(spoilt)
        with pytest.raises(IngestError, match=message) as caught:
            ingest_file(path, lake, CATALOGUE)
        assert "trace.bin" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert list(lake.root.rglob("*.parquet")) == []


def test_names_stay_intact_when_another_line_has_another_encoding(tmp_path):
    """UTF-8 beyond Latin, and a line of Latin-1: invalid UTF-8 bytes are marked, the request stays."""
    row = '{{"timestamp": {}, "input_length": 5, "output_length": 5, "session_id": "{}"}}\n'.format
    lines = (
        row(0, "\u65e5\u672c \u20ac").encode()
        + row(1, "caf\u00e9").encode("latin-1")
        + row(2, "caf\u00e9").encode()
    )
    (tmp_path / "a.jsonl").write_bytes(lines)
    lake = Lake(tmp_path / "lake")
    report = ingest_file(tmp_path / "a.jsonl", lake, CATALOGUE)
    assert report.rows_kept == 3
    findings = {row["aspect"]: row for row in assess_trace(lake, report.trace).to_pylist()}
    assert (findings["not UTF-8"]["rows"], findings["not UTF-8"]["verdict"]) == (1, "warn")
    names = lake.sql("select session_id from requests order by arrived_at")["session_id"].to_pylist()
    assert names == ["\u65e5\u672c \u20ac", "caf\ufffd", "caf\u00e9"]


def test_a_long_zstd_file_without_its_end_is_refused(tmp_path):
    """DuckDB alone would land the rows before the break without an error."""
    rows = (f"2023-11-16 10:00:00,{n},{n * n % 997}" for n in range(1, 200_000))
    path = tmp_path / "a.csv.zst"
    path.write_bytes(zstd("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]).encode())[:-20])
    with pytest.raises(
        IngestError, match=r"a\.csv\.zst cannot be read: Truncated.* Copy the file here again"
    ):
        ingest_file(path, Lake(tmp_path / "lake"), CATALOGUE)


@pytest.mark.parametrize("name", [name for name in TEXT_FORMATS if fixture(name).suffix == ".jsonl"])
def test_nulls_inside_a_document_spoil_no_other_row(name, tmp_path):
    """Each value of a document is null in turn, at every depth: each line still gives its requests."""
    lines = fixture(name).read_text().splitlines()
    spoilt = [json.dumps(null) for null in with_a_null(json.loads(lines[0]))]
    path, lake = tmp_path / fixture(name).name, Lake(tmp_path / "lake")
    path.write_text("\n".join([lines[0], *spoilt]))
    report = ingest_file(path, lake, CATALOGUE)
    rows = lake.sql("select row from quarantine").num_rows
    assert (report.rows_quarantined, report.rows_in) == (rows, report.rows_kept + rows)
    assert report.rows_in >= 1 + len(spoilt)  # no line vanishes
    assert report.rows_kept >= 1
    assert is_conserved(lake)


@pytest.mark.parametrize("name", ["mooncake", "copilot_agent"])
def test_a_line_with_a_key_twice_is_refused(name, tmp_path):
    """Each key that the format reads, in turn, with another value: which one counts is nowhere written."""
    landed_file = recognise_format(fixture(name))
    lines = fixture(name).read_text().splitlines()
    read = [
        key
        for kind in ("recognised by", "may have")
        for key in landed_file.source.listed(kind)
        if f'"{key}"' in lines[0] and key in json.loads(lines[0])
    ]
    spoilt = [f'{line[:-1]}, "{key}": 5}}' for key in read for line in lines[:1]]
    path, lake = tmp_path / fixture(name).name, Lake(tmp_path / "lake")
    path.write_text("\n".join([*lines, *spoilt, f'{lines[0][:-1]}, "unread": 1, "unread": 2}}']))
    report = ingest_file(path, lake, CATALOGUE)
    reasons = [reason for reason in report.reasons if reason.startswith("has the key")]
    assert read
    assert sorted(reasons) == sorted(f"has the key {key} more than once" for key in read)
    assert name != "mooncake" or sum(report.reasons[reason] for reason in reasons) == len(read)
    assert is_conserved(lake)


def test_a_key_twice_in_an_object_of_a_log_is_refused(tmp_path):
    line = (
        '{{"startTime": "2025-01-01T00:00:0{}Z", "usage": {{"prompt_tokens": 5, "completion_tokens": 6{}}}}}'
    )
    twice = (line.format(1, ', "prompt_tokens": 9'), line.format(2, ', "prompt_tokens": 5'))
    kept = (line.format(3, ""), line.format(4, ', "x": 1, "x": 2'))
    (tmp_path / "a.jsonl").write_text("\n".join([*twice, *kept]))
    report = ingest_file(tmp_path / "a.jsonl", Lake(tmp_path / "lake"), CATALOGUE)
    assert (report.rows_kept, report.reasons) == (2, {"has the key prompt_tokens more than once": 2})


@pytest.mark.parametrize("name", ["otel_genai", "dynamo", "copilot_agent", "alibaba_genai", "openai"])
def test_no_value_of_a_row_keeps_the_others_from_landing(name, tmp_path):
    """Each value that an object has at its top, and each column, with hostile values in turn."""
    clean, values = fixture(name), [text for text in TEXTS if len(text) < 1000 and "\n" not in text]
    lines = clean.read_text().splitlines()
    if clean.suffix == ".jsonl":
        first = json.loads(lines[0])
        spoilt = [
            json.dumps({**first, key: value}) for key in first for value in (*values, [], 1e308, {"a": 1})
        ]
    else:
        fields = lines[1].split(",")
        spoilt = [
            ",".join([*fields[:at], value, *fields[at + 1 :]])
            for at in range(len(fields))
            for value in values
        ]
    path, lake = tmp_path / clean.name, Lake(tmp_path / "lake")
    path.write_text("\n".join([*lines, *spoilt]), encoding="utf-8", errors="replace")
    expected = json.loads((TRACES / f"{name}.expected.json").read_text())
    report = ingest_file(path, lake, CATALOGUE)
    assert report.rows_kept >= len(expected["kept"])
    assert report.rows_in == report.rows_kept + report.rows_quarantined >= len(spoilt) + len(lines) - 1
    assert is_conserved(lake)


@pytest.mark.parametrize("seconds", ["nan", "1e300", "-1e300", "inf"])
def test_a_hostile_duration_is_one_bad_row(seconds, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(
        "end_time,latency_s,input_tokens,output_tokens\n"
        f"2025-01-01 01:00,1,5,5\n2025-01-02 01:00,{seconds},5,5\n"
    )
    report = ingest_file(path, Lake(tmp_path / "lake"), CATALOGUE)
    assert (report.rows_in, report.rows_kept) == (2, 1)


def test_a_damaged_parquet_file_is_refused_in_one_line(tmp_path):
    content, path = fixture("canonical").read_bytes(), tmp_path / "a.parquet"
    half = len(content) // 2
    for spoilt in (content[:half] + bytes(64) + content[half:], content.replace(b"\n", b" ")):
        path.write_bytes(spoilt)
        with pytest.raises(IngestError, match=r"^a\.parquet cannot be read: .*completely\.$"):
            ingest_file(path, Lake(tmp_path / "lake"), CATALOGUE)


def with_a_null(document):
    """The document again and again, with one of its values null each time."""
    keys = list(document) if isinstance(document, dict) else range(len(document))
    for key in keys:
        copy = document.copy()
        copy[key] = None
        yield copy
        if isinstance(document[key], dict | list):
            for inner in with_a_null(document[key]):
                yield {**document, key: inner} if isinstance(document, dict) else [
                    *document[:key], inner, *document[key + 1 :]
                ]  # fmt: skip


@pytest.mark.parametrize("name", ["azure_llm", "copilot_agent", "swissai"])
def test_an_instant_without_zone_is_utc(name, tmp_path):
    """The quality report states how the reader took it."""
    clean, lake = fixture(name), Lake(tmp_path / "lake")
    text = clean.read_text().replace("02:00:00+02:00", "00:00:00Z")
    path = tmp_path / clean.name
    path.write_text(re.sub(r"(?<=\d)(Z|\+00:00)", "", text))
    report = ingest_file(path, lake, CATALOGUE)
    expected = json.loads((TRACES / f"{name}.expected.json").read_text())
    assert json.loads(json.dumps(landed(lake), default=str))["kept"] == expected["kept"]
    assert "UTC where the text has no zone" in report.clock
