"""Any log lands: columns, case, separators and units are found, and no row is lost."""

import dataclasses
import json
import random
import re
import tempfile
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces import landing, landing_folder
from fleetcast.assets.traces.bulk_refusals import bulk_remedy
from fleetcast.assets.traces.data_quality import assess_trace
from fleetcast.assets.traces.file_content import JSON_ARRAY, FileContent
from fleetcast.assets.traces.ingest import IngestError, ingest_file, landed_files
from fleetcast.assets.traces.log_columns import find_log_columns, read_times
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.toml_dataclasses import ConfigError

CATALOGUE = load_catalogue()
NAMES = {  # column -> names that gateways and engines give it
    "request_id": ("request_id", "x-request-id", "RequestId"),
    "arrived_at": ("arrived_at", "timestamp", "startTime", "Request Time", "created"),
    "input_tokens": ("input_tokens", "promptTokens", "usage.prompt_tokens", "Input Length", "isl"),
    "output_tokens": ("output_tokens", "Completion-Tokens", "usage.completion_tokens", "GENERATED_TOKENS"),
    "source_llm": ("model", "Model Name", "llm"),
    "session_id": ("session_id", "conversationId"),
}
PER_S = {unit: np.timedelta64(1, "s") // np.timedelta64(1, unit) for unit in ("s", "ms", "us", "ns")}
FIRST = datetime(2025, 3, 1, tzinfo=UTC)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "request_id": st.one_of(
                st.uuids().map(str), st.integers(-9, 9).map(str), st.text("ab-", max_size=3)
            ),
            "arrived_us": st.one_of(st.none(), st.integers(0, 40 * 86_400_000_000)),
            "input_tokens": st.one_of(st.none(), st.integers(0, 5000)),
            "output_tokens": st.integers(1, 5000),
            "source_llm": st.sampled_from(["llama3.1-8b", "gpt-4o", "a;b|c, \td"]),
            "session_id": st.one_of(st.none(), st.sampled_from(["s", "é, \u65e5"])),
        }
    ),
    min_size=1,
    max_size=8,
)


def as_time(micros: int | None, unit: str) -> Any:
    """The instant as text, with or without a zone, or as a number since 1970."""
    if micros is None:
        return None
    instant = FIRST + timedelta(microseconds=micros)
    if unit == "text":
        return instant.strftime("%Y-%m-%d %H:%M:%S.%f")
    if unit == "zone":
        return instant.astimezone(timezone(timedelta(hours=5, minutes=30))).isoformat()
    since_us = round((instant - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))
    return since_us * 1000 if unit == "ns" else since_us if unit == "us" else since_us * PER_S[unit] / 1e6


def write_log(path: Path, rows: list[dict[str, Any]], unit: str, rng: random.Random) -> None:
    """Write rows with other names, order, case, separators and units, as CSV, JSON lines or Parquet."""
    columns = rng.sample(list(NAMES), len(NAMES))
    names = {name: rng.choice(NAMES[name]) for name in columns}
    names = {name: rng.choice((str.upper, str.lower, str))(text) for name, text in names.items()}
    values = [{**row, "arrived_at": as_time(row["arrived_us"], unit)} for row in rows]
    if path.suffix == ".parquet":
        table = {names[c]: pa.array([row[c] for row in values]) for c in columns}
        pq.write_table(pa.table(table), path)
    elif path.suffix == ".jsonl":
        documents = [nested({names[c]: row[c] for c in columns}) for row in values]
        path.write_text("\n".join(json.dumps(document, ensure_ascii=False) for document in documents))
    else:
        separator = rng.choice(",;\t|")
        lines = [[names[c] for c in columns], *([row[c] for c in columns] for row in values)]
        quoted = (separator.join("" if v is None else f'"{v}"' for v in line) for line in lines)
        path.write_text("\n".join(quoted))


def nested(document: dict[str, Any]) -> dict[str, Any]:
    """The document with a.b as a field b in a."""
    made: dict[str, Any] = {}
    for name, value in document.items():
        outer, _, inner = name.partition(".")
        if inner:
            made.setdefault(outer, {})[inner] = value
        else:
            made[name] = value
    return made


def land(path: Path, folder: Path, mapping: str = "") -> tuple[Any, list[dict[str, Any]]]:
    lake = Lake(folder)
    path.with_suffix(".toml").write_text(f'trace = "t"\n{mapping}')
    report = ingest_file(path, lake, CATALOGUE)
    assert lake.sql("checks/rows_are_conserved.sql").num_rows == 0
    assert report.rows_in == report.rows_kept + report.rows_quarantined
    rows = lake.sql(
        "select * exclude (source, trace) from requests order by arrived_at, request_id"
    ).to_pylist()
    return report, rows


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    ROWS,
    st.sampled_from(["text", "zone", *PER_S]),
    st.sampled_from([".csv", ".jsonl", ".parquet"]),
    st.randoms(use_true_random=False),
)
@example(
    [{"request_id": "-7", "arrived_us": 1, "input_tokens": 3, "output_tokens": 4, "source_llm": "a;b|c, \td",
      "session_id": "x"}], "ns", ".csv", random.Random(3),
)  # fmt: skip
@example(
    [{"request_id": "", "arrived_us": 0, "input_tokens": 1, "output_tokens": 1, "source_llm": "gpt-4o",
      "session_id": None}] * 2, "text", ".csv", random.Random(0),
)  # fmt: skip
def test_any_table_lands_as_its_canonical_form(rows, unit, suffix, rng):
    """Renamed, reordered, in another case, unit and container: the same requests; no row is lost."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        arrived = [as_time(row["arrived_us"], "text") for row in rows]
        columns = {name: [row[name] for row in rows] for name in NAMES if name != "arrived_at"}
        # A log's row without an id gets one of its own; in canonical Parquet an empty id is an id.
        columns["request_id"] = [name or f"row {row}" for row, name in enumerate(columns["request_id"])]
        pq.write_table(
            pa.table({**columns, "arrived_at": pa.array(arrived, pa.string())}), folder / "c.parquet"
        )
        write_log(folder / f"log{suffix}", rows, unit, rng)
        canonical, wanted = land(folder / "c.parquet", folder / "a")
        report, found = land(folder / f"log{suffix}", folder / "b")
    assert canonical.format == "canonical"
    assert (report.rows_in, report.rows_kept) == (len(rows), canonical.rows_kept)
    if all(row["request_id"] for row in rows):
        assert found == wanted


def test_a_placeholder_among_times_moves_no_other_row(tmp_path: Path) -> None:
    """A zero among a hundred rows is no clock; among three it is one, and no row lands in 2077."""
    for rows, kept in ((101, 100), (3, 1)):
        path = tmp_path / f"{rows}.csv"
        times = [0, *(1_700_000_000 + n for n in range(rows - 1))]
        path.write_text("timestamp,input_tokens,output_tokens\n" + "".join(f"{t},5,6\n" for t in times))
        report, found = land(path, tmp_path / str(rows))
        assert report.rows_kept == kept
        assert {row["arrived_at"].year for row in found} == ({2023} if kept > 1 else {2024})


def test_fields_in_fields_land_alike_from_parquet_and_json(tmp_path: Path) -> None:
    documents = [
        {"request_id": str(n), "timestamp": f"2025-03-01T00:00:{n:02}Z", "model": "llama3.1-8b",
         "usage": {"prompt_tokens": 100 + n, "completion_tokens": 7 + n, "details": {"cached": n}}}
        for n in range(5)
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(documents), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, documents)))
    columns = 'columns = { cached_tokens = "usage.details.cached" }\n'
    of_parquet, of_json = (
        land(tmp_path / name, tmp_path / name[0], columns) for name in ("a.parquet", "b.jsonl")
    )
    assert of_parquet[1] == of_json[1]
    found = [
        tuple(row[c] for c in ("input_tokens", "output_tokens", "cached_tokens")) for row in of_parquet[1]
    ]
    assert found == [(100 + n, 7 + n, n) for n in range(5)]


@given(
    st.sampled_from(list(PER_S)), st.integers(1_300_000_000, 4_000_000_000), st.integers(0, 10**9),
    st.lists(st.floats(0, 3e6), min_size=1),
)  # fmt: skip
def test_the_unit_of_numbers_since_1970_is_found_and_other_numbers_are_relative(unit, first_s, offset, gaps):
    values = [(first_s + gap) * PER_S[unit] for gap in gaps]
    assert read_times(values, None, None)[:2] == (PER_S[unit], False)
    assert read_times([str(value) for value in values], None, None)[:2] == (PER_S[unit], False)
    assert read_times([0, *values], None, None)[:2] == (1, True)
    assert read_times([0, *values, *values[:1] * 99], None, None)[:2] == (PER_S[unit], False)
    assert read_times([gap + offset for gap in (0, *gaps)], "us", None)[:2] == (PER_S["us"], True)
    assert read_times([*values], None, "ms").per_s == PER_S["ms"]


@pytest.mark.parametrize(
    ("style", "day", "clock", "step_us"),
    [
        ("%d.%m.%Y %H:%M:%S", 1, "", 10**6),
        ("%m/%d/%Y, %I:%M:%S %p", 29, "", 10**6),
        ("%d/%m/%Y %H:%M", 13, "", 60 * 10**6),
        ("%d/%m/%y %H:%M", 1, 'clock = "%d/%m/%y %H:%M"', 60 * 10**6),
        ("%Y-%m-%d %H:%M:%S,%f", 1, "", 1),
        ("%b %d, %Y @ %H:%M:%S.%f", 1, "", 1),
        ("%d-%b-%Y %H:%M:%S", 5, 'clock = "Europe/Berlin"', 10**6),
        ("%a, %d %b %Y %H:%M:%S GMT", 5, 'clock = "Europe/Berlin"', 10**6),
        ("%Y-%m-%d %H:%M:%S.%f +0000 UTC", 1, "", 1),
    ],
)
def test_times_written_in_other_ways_are_the_same_times(
    style: str, day: int, clock: str, step_us: int, tmp_path: Path
) -> None:
    """A text with a zone of its own keeps it, whatever the mapping says; others have the mapping's."""
    first = datetime(2026, 5, day, 8, 59, 58, 900_000)
    times = [first + timedelta(microseconds=n * 87_650_321) for n in range(6)]
    rows = "".join(f'"{at.strftime(style)}",{100 + n},7\n' for n, at in enumerate(times))
    path = tmp_path / "times.csv"
    path.write_text(f"time,input_tokens,output_tokens\n{rows}")
    _, found = land(path, tmp_path / "lake", clock)
    zone = ZoneInfo("Europe/Berlin") if "Berlin" in clock and "GMT" not in style else UTC
    seen = [row["arrived_at"].astimezone(zone).replace(tzinfo=None) for row in found]
    step = timedelta(microseconds=step_us)
    assert seen == [at - (at - datetime(2026, 1, 1)) % step for at in times]


def test_a_time_with_two_readings_is_refused_with_the_line_that_says_which(tmp_path: Path) -> None:
    path = tmp_path / "two.csv"
    path.write_text("time,input_tokens,output_tokens\n" + "11/05/2026 08:00:05,5,7\n" * 3)
    with pytest.raises(
        ConfigError, match=r"two.csv has times like '11/05/2026 08:00:05', which may be"
    ) as why:
        land(path, tmp_path / "lake")
    [line] = re.findall(r"clock = .*\"", str(why.value))
    _, rows = land(path, tmp_path / "lake", line)
    assert rows[0]["arrived_at"] == datetime(2026, 11, 5, 8, 0, 5, tzinfo=UTC)
    with pytest.raises(ConfigError, match=r"clock: got '%d', needed s, ms, us or ns"):
        land(path, tmp_path / "lake", 'clock = "%d"')
    with pytest.raises(ConfigError, match=r"clock: got '%Q %H', needed s, ms, us or ns"):
        land(path, tmp_path / "lake", 'clock = "%Q %H"')


def test_days_without_a_time_and_a_list_in_an_object_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "days.csv"
    path.write_text("date,input_tokens,output_tokens\n" + "2026-11-05,5,7\n" * 3)
    with pytest.raises(ConfigError, match=r"days.csv has days without a time of the day, like '2026-11-05'"):
        land(path, tmp_path / "lake")
    published = tmp_path / "azure.csv"  # of a format with times as text, which a day alone contradicts not
    published.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "2023-11-16,5,7\n" * 3)
    assert land(published, tmp_path / "published")[0].format == "azure_llm"
    path = tmp_path / "wrapped.json"
    path.write_text(json.dumps({"page": 1, "data": [{"timestamp": 1762502400, "prompt_tokens": 5}]}))
    with pytest.raises(IngestError, match=r"list in 'data'. .* for example: jq -c '.data\[\]' wrapped.json$"):
        land(path, tmp_path / "lake")


def test_a_row_that_sums_several_requests_is_no_request(tmp_path: Path) -> None:
    path = tmp_path / "usage.csv"
    path.write_text(
        "start_time,num_model_requests,input_tokens,output_tokens\n1762502400,40,900,70\n1762506000,1,9,7\n"
    )
    report, rows = land(path, tmp_path / "lake")
    assert [row["input_tokens"] for row in rows] == [9]
    assert report.reasons == {"the row is a sum of several requests": 1}
    report, rows = land(path, tmp_path / "all", 'columns = { requests = "" }')
    assert [row["input_tokens"] for row in rows] == [900, 9]


@pytest.mark.parametrize(
    ("ids", "whole", "kept"),
    [
        (pa.array([-5, 0, 7], pa.int64()), {0, 7}, {"-5"}),
        (pa.array([-5, 0, 7], pa.int16()), {0, 7}, {"-5"}),
        (pa.array([2**64 - 1, 0, 7], pa.uint64()), {2**64 - 1, 0, 7}, set()),
        (pa.array([b"\xff\x00a", b"x", b"y"], pa.binary()), set(), {r"\xFF\x00a", "x", "y"}),
        (pa.array([b"\xff" * 2, b"ab", b"cd"], pa.binary(2)), set(), {r"\xFF" * 2, "ab", "cd"}),
        (pa.array([1.5, -2.0, 3.25]), set(), {"1.5", "-2.0", "3.25"}),
    ],
)  # fmt: skip
def test_ids_of_any_type_land_in_canonical_parquet(tmp_path, ids, whole, kept):
    """A whole number from 0 is the id; anything else is hashed, alike in each file, and kept as text."""
    for folder, rows in (("a", range(3)), ("b", (2, 1, 0))):
        (tmp_path / folder).mkdir()
        table = {"request_id": ids, "arrived_at": [FIRST + timedelta(seconds=n) for n in range(3)],
                 "input_tokens": [5, 6, 7], "output_tokens": [1, 2, 3]}  # fmt: skip
        pq.write_table(pa.table(table).take(pa.array(rows)), tmp_path / folder / "c.parquet")
    (report, found), (_, turned) = (
        land(tmp_path / name / "c.parquet", tmp_path / name / "lake") for name in "ab"
    )
    assert (report.format, report.rows_kept, len({row["request_id"] for row in found})) == ("canonical", 3, 3)
    assert {row["request_id"] for row in found if row["source_request_id"] is None} == whole
    assert {row["source_request_id"] for row in found} - {None} == kept
    assert found == turned


def test_columns_that_the_user_names_come_first_and_an_unknown_one_is_refused(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("began,t0,in,out,id\n2025-03-01 00:00:05,2025-03-01 00:00:01,7,8,a\n")
    with pytest.raises(
        IngestError, match=r"no column that is known as arrived_at, .* --columns arrived_at=COLUMN"
    ):
        land(path, tmp_path / "lake")
    named = (
        'columns = { arrived_at = "began", input_tokens = "in", output_tokens = "OUT", request_id = "id" }'
    )
    report, [row] = land(path, tmp_path / "lake", named)
    assert (row["arrived_at"].second, row["input_tokens"], row["source_request_id"]) == (5, 7, "a")
    assert report.columns.startswith("read arrived_at = began (as given, UTC where the text has no zone)")
    for wrong, message in (
        ('columns = { arrived_at = "begun" }', r"log.csv has no column 'begun'. Did you mean 'began'\?"),
        ('columns = { arived_at = "began" }', r"unknown column 'arived_at'. Did you mean 'arrived_at'"),
        ('clock = "fortnights"', r"log.toml clock: got 'fortnights', needed s, ms, us or ns .*time zone"),
    ):
        with pytest.raises(ConfigError, match=message):
            land(path, tmp_path / "lake", wrong)


@pytest.mark.parametrize(("absent", "kept"), [("completion_tokens", 0), ("prompt_tokens", 1)])
def test_tokens_that_are_absent_are_the_total_less_the_others(tmp_path: Path, absent: str, kept: int) -> None:
    """A total below the others, or none, gives no request."""
    rows = [(7, 5, 12), (300, 1, 301), (40, 0, 40), (9, 9, 8), (9, 9, "")]
    both = ("prompt_tokens", "completion_tokens")
    lines = [f"2026-03-01T08:00:0{n}Z,{row[kept]},{row[2]}" for n, row in enumerate(rows)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join([f"timestamp,{both[kept]},total_tokens", *lines]) + "\n", encoding="utf-8")
    report, landed = land(path, tmp_path / "lake")
    assert "total_tokens = total_tokens" in report.columns
    assert absent not in report.columns
    assert [(row["input_tokens"], row["output_tokens"]) for row in landed] == [(7, 5), (300, 1)]


@pytest.mark.parametrize(
    ("columns", "means"),
    [
        (("startTimeUnixNano", "endTime"), {"arrived_at": "startTimeUnixNano", "ended_at": "endTime"}),
        (
            ("latency", "duration_ms"),
            {"source_e2e_s": "duration_ms"},
        ),  # a duration without a unit is not read
        (("created", "timestamp"), {"arrived_at": "created"}),
        (("id", "max_tokens"), {}),
        (
            ("prompt_tokens", "total_tokens"),
            {"input_tokens": "prompt_tokens", "total_tokens": "total_tokens"},
        ),
        (
            ("prompt_tokens", "completion_tokens", "total_tokens"),  # the total adds nothing
            {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"},
        ),
    ],
)
def test_names_are_read_by_their_order_and_units(columns, means):
    fields = tuple((name,) for name in columns)
    found = find_log_columns(Path("x"), FileContent("csv", columns, 1, "none", fields=fields), {}, None)
    assert {name: path[0] for name, path in found.paths.items()} == means


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=3),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
)
ENVOY = (
    '[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "a, b" "c"'
)
TEXT_LOGS = (
    ENVOY,  # Envoy's default access log
    "[2025-05-27 20:00:05 TP0] Decode batch. #running-req: 1, #token: 327",  # SGLang
    "[INFO] ready", "[1747.5] started", "[12/May/2025:10:00:00 +0000] GET", "[nullable] x", "[1] x", "[-] -",
)  # fmt: skip


@given(st.lists(JSON, max_size=3), st.sampled_from([None, 0, 2]), st.sampled_from([(", ", ": "), (",", ":")]))
@settings(max_examples=200, deadline=None)
def test_json_arrays_begin_with_a_value_and_text_logs_do_not(values, indent, separators):
    [first, *_] = json.dumps(values, indent=indent, separators=separators).split("\n")
    assert JSON_ARRAY.match(first)
    assert not any(JSON_ARRAY.match(line) for line in TEXT_LOGS)


def test_a_text_log_without_tokens_is_not_taken_for_json(tmp_path):
    path = tmp_path / "a.log"
    path.write_text(f"{ENVOY}\n{ENVOY}\n")
    with pytest.raises(
        IngestError, match=r"no column that is known as arrived_at, .*; it is csv with \[2016"
    ):
        land(path, tmp_path / "lake")


def test_times_that_contradict_a_format_are_read_for_what_they_are(tmp_path):
    """Mooncake's columns with milliseconds since 1970 are a log: as Mooncake they would lie in 2079."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"timestamp": 1740787200500, "input_length": 5, "output_length": 6}')
    report, [row] = land(path, tmp_path / "lake")
    assert (report.format, row["arrived_at"]) == ("log", datetime(2025, 3, 1, 0, 0, 0, 500_000, UTC))


def test_a_local_clock_set_back_an_hour_is_warned_of_and_mended(tmp_path):
    """02:00 to 03:00 of 2024-10-27 occurs twice in Berlin; the same rows in UTC rise."""
    start = datetime(2024, 10, 26, 22, tzinfo=UTC)
    local = [start + timedelta(minutes=9 * n) for n in range(40)]  # 00:00 to 05:51
    hours = [2 if t < datetime(2024, 10, 27, 1, tzinfo=UTC) else 1 for t in local]
    lines = [f"{t + timedelta(hours=h):%Y-%m-%d %H:%M:%S},5,6" for t, h in zip(local, hours, strict=True)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["timestamp,input_tokens,output_tokens", *lines]))
    report, _ = land(path, tmp_path / "lake")
    lake = Lake(tmp_path / "lake")
    [step] = [row for row in assess_trace(lake, "t").to_pylist() if row["aspect"] == "clock steps"]
    assert (report.rows_out_of_order, step["verdict"], step["rows"]) == (1, "warn", 1)
    assert 'clock = "Europe/Berlin"' in step["detail"]
    report, rows = land(path, tmp_path / "lake", 'clock = "Europe/Berlin"')
    assert [row["arrived_at"] for row in rows] == local
    assert "as given, Europe/Berlin where the text has no zone" in report.columns
    assert (report.rows_out_of_order, report.clock) == (
        0,
        "as given, Europe/Berlin where the text has no zone",
    )


def test_a_changed_trace_moves_the_file(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("timestamp,input_tokens,output_tokens\n2025-03-01 01:00,5,6\n2025-03-02 01:00,7,8\n")
    monkeypatch.setattr(landing, "landed_files", lambda: landed_files(tmp_path))
    monkeypatch.setattr(landing, "lone_mappings", list)
    lake = Lake(tmp_path / "lake")
    chosen = RunSettings(lake, CATALOGUE, load_config("sageserve", CATALOGUE))
    landing.land_all_files(chosen)
    assert lake.count("requests", trace="log") == 2
    path.with_suffix(".toml").write_text('trace = "mine"')
    [report] = landing.land_all_files(chosen).reports
    assert landing.report_texts(report)["note"] == "moved here from the trace log"
    assert (lake.count("requests", trace="mine"), lake.count("requests")) == (2, 2)
    assert [row["trace"] for row in lake.sql("select trace from ingests").to_pylist()] == ["mine"]
    [again] = landing.land_all_files(chosen).reports
    assert (again.is_new, again.moved_from) == (False, ())


@pytest.mark.parametrize(
    ("rows", "remedy"),
    [
        (
            "yesterday,5,6",
            r"a.csv: 20 of 40 rows are in quarantine: the timestamp is missing or unreadable. Name",
        ),
        (
            "01.02.2025 00:00:05,5,6",  # the other rows are ISO 8601
            r"unreadable. Name the column of times \(--columns arrived_at=COLUMN\), or write its times like "
            r"2025-02-01T00:00:05Z \(ISO 8601\), or say how they are written: clock = ",
        ),
        ("2025-03-01,x,6", "Name the column of input tokens: --columns input_tokens=COLUMN"),
        ("2025-03-01,5,6,7", r"4 fields where the header has 3. See them: fleetcast sql"),
        ("2025-03-01,5,0", None),  # a failure
    ],
)
def test_rows_refused_in_bulk_have_a_line_that_mends_them(tmp_path, rows, remedy):
    path = tmp_path / "a.csv"
    good = [f"2025-03-01 00:00:{n:02d},5,6" for n in range(20)]
    path.write_text("\n".join(["timestamp,input_tokens,output_tokens", *good, *[rows] * 20]))
    report, _ = land(path, tmp_path / "lake")
    line = bulk_remedy(report)
    if remedy is None:
        assert line is None
    else:
        assert line is not None
        assert line.count("\n") == 0
        assert re.search(remedy, line)


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("region", ("east", "west", "central")),
        ("tier", ("iw_fast", "iw_normal", "niw")),
        ("llm", ("llama3.1-70b", "llama3.1-8b", "qwen3-32b")),
    ],
)
def test_rows_of_unknown_names_can_be_mapped_or_be_of_the_catalogue(tmp_path, kind, known):
    """The most frequent name comes first, and the mapping file has its folder and the file's dots.

    Copied as it is, the line makes no two names one.
    """
    path = tmp_path / "own.jan.parquet"
    row = {"arrived_at": FIRST, "input_tokens": 5, "output_tokens": 6}
    row |= {"region": "east", "tier": "iw_fast", "llm": "llama3.1-70b"}
    names = ["fra", *["dub"] * 2, *["é"] * 3, *['a\n"b'] * 4]
    rows = [{"request_id": n, **row, kind: name} for n, name in enumerate(names)]
    pq.write_table(pa.Table.from_pylist(rows), path)
    own = dataclasses.replace(
        CATALOGUE, **{f"{kind}s": dict.fromkeys([known[0], *names], vars(CATALOGUE)[f"{kind}s"][known[0]])}
    )
    lake = Lake(tmp_path / "lake")
    line = bulk_remedy(ingest_file(path, lake, CATALOGUE))
    assert line is not None
    key = "llm_names" if kind == "llm" else "label_names"
    assert set(known) <= vars(CATALOGUE)[f"{kind}s"].keys()
    pairs = f'"a\\n\\"b" = "{known[0]}", "é" = "{known[1]}", "dub" = "{known[2]}", ...'
    assert f"({key} = {{ {pairs} }} in data/landing/own.jan.toml)" in line
    assert f'or add ["a\\n\\"b"], ["é"], ["dub"], ... to data/catalogue/{kind}s.toml' in line
    assert "\n" not in line
    assert ingest_file(path, lake, own).rows_kept == 10


def test_a_named_file_is_copied_into_the_landing_folder_with_its_columns(tmp_path, monkeypatch):
    monkeypatch.setattr(landing_folder, "LANDING_DIR", tmp_path / "landing")
    source = tmp_path / "a.csv"
    source.write_text("t,i,o\n")
    source.with_suffix(".toml").write_text('trace = "mine"\ncolumns = { arrived_at = "x" }\n')
    for columns in ({"arrived_at": "t"}, {"input_tokens": "i", "output_tokens": 'o"'}):
        landing_folder.bring_file(source, columns)
    text = (tmp_path / "landing" / "a.toml").read_text()
    assert text == 'columns = { input_tokens = "i", output_tokens = "o\\"" }\ntrace = "mine"\n'
    source.write_text("other\n")
    with pytest.raises(
        IngestError, match=r"data/landing has another file a\.csv\. Rename yours, or remove that one"
    ):
        landing_folder.bring_file(source, {})
    with pytest.raises(IngestError, match=r"There is no file .*b\.csv"):
        landing_folder.bring_file(tmp_path / "b.csv", {})


def test_ids_that_begin_again_in_each_file_are_refused_aloud_and_the_same_requests_are_not(tmp_path):
    """The next day's file has the ids of the day before; an export that overlaps has the requests too."""
    lake = Lake(tmp_path / "lake")

    def land_day(name: str, day: int, options: str = "", count: int = 30) -> Any:
        rows = [f"{n},2025-02-{day:02d}T00:{n:02d}:00Z,5,{6 + n}" for n in range(count)]
        path = tmp_path / name
        path.write_text("\n".join(["request_id,timestamp,input_tokens,output_tokens", *rows]))
        path.with_suffix(".toml").write_text(f'trace = "t"\n{options}')
        return ingest_file(path, lake, CATALOGUE)

    assert bulk_remedy(land_day("one.csv", 1)) is None
    again = land_day("two.csv", 2)
    assert again.reasons == {"another request has its request_id, from one.csv": 30}
    line = bulk_remedy(again)
    assert line is not None
    assert "leave them out (--columns request_id=)" in line
    overlap = land_day("three.csv", 1, count=20)
    assert overlap.reasons == {"its request_id is already in the trace, from one.csv": 20}
    assert bulk_remedy(overlap) is None
    assert bulk_remedy(land_day("two.csv", 2, 'columns = { request_id = "" }\n')) is None
    assert lake.count("requests") == 60
