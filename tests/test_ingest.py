"""Landed files: identified by content, every row kept or quarantined, a second ingest changes nothing."""

import gzip
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fleetcast.assets.demand.demand import build_demand
from fleetcast.assets.demand.demand_history import drop_changed_days
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces import landing
from fleetcast.assets.traces.ingest import IngestError, ingest_file, landed_files, lone_mappings
from fleetcast.assets.traces.landing import forget_file
from fleetcast.assets.traces.request_days import make_request_day
from fleetcast.assets.traces.staging import withdraw_file
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.toml_dataclasses import ConfigError

CATALOGUE = load_catalogue()
TRACES = Path(__file__).resolve().parents[2] / "shared" / "data" / "traces"
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def land(tmp_path: Path, name: str, content: bytes | str) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / name


def canonical(ids: list[int], **columns: list) -> pa.Table:
    """Return valid requests one second apart, with some columns replaced."""
    rows = {
        "request_id": ids,
        "arrived_at": [datetime(2024, 5, 6, 10, 0, n, tzinfo=UTC) for n in range(len(ids))],
        "region": ["east"] * len(ids),
        "llm": ["llama2-70b"] * len(ids),
        "tier": ["niw"] * len(ids),
        "app": ["chat"] * len(ids),
        "input_tokens": [10 + n for n in range(len(ids))],
        "output_tokens": [3] * len(ids),
        "deadline_s": [5.0] * len(ids),
        "source": ["elsewhere"] * len(ids),
    }
    return pa.table({**rows, **columns})


def assert_rows_are_conserved(lake: Lake) -> bool:
    return all(
        lake.sql(f"checks/{check}.sql").num_rows == 0
        for check in ("rows_are_conserved", "requests_are_valid", "request_ids_are_unique")
    )


def test_a_messy_csv_keeps_its_valid_rows(tmp_path, lake):
    """BOM, CRLF, a blank line, quotes, no last newline; each bad row keeps its reason, number and text."""
    day_lines = [
        HEADER,
        "2023-11-16 18:17:03.9799600,4808,10",  # 1
        "",
        "2023-11-16 18:17:02.5,0,10",  # 3
        "nonsense,1,2",
        "2023-11-16 18:17:02,1.5,2",
        "2023-11-16 18:17:02,1,2,3",
        "2023-11-16 18:17:01,7,-2",
        "1023-11-16 18:17:01,7,2",
        '2023-11-16 18:17:01.25,"7", 8',  # 9
    ]
    spoilt = b"\xef\xbb\xbf" + "\r\n".join(day_lines).encode() + b"\r\n\xff\x00\xfe,1"
    report = ingest_file(land(tmp_path, "messy.csv", spoilt), lake, CATALOGUE)
    assert (report.rows_in, report.rows_kept, report.rows_quarantined) == (9, 2, 7)
    assert report.rows_out_of_order == 1
    assert report.days == (date(2023, 11, 16),)
    kept = lake.read("requests", trace="azure_llm", day=date(2023, 11, 16))
    assert kept["arrived_at"].to_pylist() == [
        datetime(2023, 11, 16, 18, 17, 1, 250_000, UTC),
        datetime(2023, 11, 16, 18, 17, 3, 979_960, UTC),
    ]
    assert kept["input_tokens"].to_pylist() == [7, 4808]
    refused = lake.sql("select row, reason, raw from quarantine order by row").to_pylist()
    assert [(row["row"], row["reason"].split(" ")[0]) for row in refused] == [
        (3, "input_tokens"),
        (4, "the"),
        (5, "input_tokens"),
        (6, "4"),
        (7, "output_tokens"),
        (8, "the"),
        (10, "2"),
    ]
    assert refused[2]["raw"] == "2023-11-16 18:17:02,1.5,2"
    assert assert_rows_are_conserved(lake)


@pytest.mark.parametrize("seed", range(3))
def test_rows_are_kept_or_quarantined_and_none_is_lost(tmp_path, lake, seed):
    """Repeated ids, invalid tokens and disorder in two files of a trace, compared with a naive twin."""
    rng = np.random.default_rng(seed)
    for name in ("one.parquet", "two.parquet", "one.parquet"):
        rows = int(rng.integers(1, 12))
        ids, tokens, days = (rng.integers(0, most, rows).tolist() for most in (9, 4, 3))
        arrived = [datetime(2024, 5, 6 + day, tzinfo=UTC) for day in days]
        table = canonical(ids, input_tokens=tokens, arrived_at=arrived)
        pq.write_table(table, land(tmp_path, name, b""))
        others = set(
            lake.sql("select request_id from requests where source <> $name", name=name)[
                "request_id"
            ].to_pylist()
        )
        report = ingest_file(tmp_path / "landing" / name, lake, CATALOGUE)
        kept: list[int] = []
        for request_id, count in zip(ids, tokens, strict=True):
            if count >= 1 and request_id not in others and request_id not in kept:
                kept.append(request_id)
        found = lake.sql("select request_id, day from requests where source = $name", name=name)
        assert sorted(found["request_id"].to_pylist()) == sorted(kept)
        assert (report.rows_in, report.rows_kept) == (rows, len(kept))
        assert set(report.days) == set(found["day"].to_pylist())
        assert assert_rows_are_conserved(lake)


def test_ingest_is_idempotent_and_a_changed_file_replaces_its_rows(tmp_path, lake):
    path = land(tmp_path, "a.csv", f"{HEADER}\n2023-11-16 10:00:00,5,5\n2023-11-17 10:00:00,6,6\n")
    second_file = land(tmp_path, "b.csv", f"{HEADER}\n2023-11-16 11:00:00,7,7\n")
    assert ingest_file(path, lake, CATALOGUE).is_new
    assert ingest_file(second_file, lake, CATALOGUE).is_new
    files = {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in lake.root.rglob("*.parquet")}
    again = ingest_file(path, lake, CATALOGUE)
    assert (again.is_new, again.rows_kept) == (False, 2)
    assert files == {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in lake.root.rglob("*.parquet")}

    land(tmp_path, "a.csv", f"{HEADER}\n2023-11-16 12:00:00,8,8\n")
    assert ingest_file(path, lake, CATALOGUE).days == (date(2023, 11, 16),)
    assert lake.days("requests", "azure_llm") == [date(2023, 11, 16)]
    assert lake.read("requests", trace="azure_llm")["input_tokens"].sort().to_pylist() == [7, 8]
    assert assert_rows_are_conserved(lake)


def test_a_file_can_be_withdrawn_from_the_lake(tmp_path, lake):
    for name, days in (("a.csv", (16, 17)), ("b.csv", (16,))):
        rows = "".join(f"\n2023-11-{day} 10:00:00,{day + len(days)},5" for day in days)
        ingest_file(land(tmp_path, name, f"{HEADER}{rows}\nnonsense"), lake, CATALOGUE)
    for day in (16, 17):
        build_demand(lake, "azure_llm", date(2023, 11, day))
    settings = RunSettings(lake, CATALOGUE, load_config("sageserve", CATALOGUE))
    with pytest.raises(IngestError, match=r"No file 'a.cvs' has landed. Did you mean 'a.csv'\?"):
        forget_file(settings, "a.cvs")
    assert forget_file(settings, "a.csv") == ["azure_llm"]
    assert lake.days("requests", "azure_llm") == lake.days("demand", "azure_llm") == [date(2023, 11, 16)]
    for table, name in (
        ("requests", "source"),
        ("quarantine", "file"),
        ("ingests", "file"),
        ("quality", "file"),
    ):
        files = set(lake.read(table, trace="azure_llm")[name].to_pylist()) - {"all"}
        assert files == {"b.csv"}, table
    assert assert_rows_are_conserved(lake)
    assert ingest_file(tmp_path / "landing" / "a.csv", lake, CATALOGUE).is_new


def test_an_interrupted_ingest_is_completed_by_the_next(tmp_path, lake, monkeypatch):
    path = land(tmp_path, "a.csv", f"{HEADER}\n2023-11-16 10:00:00,5,5\n2023-11-17 10:00:00,6,6\n")
    copy, calls = Lake.copy, []

    def interrupted(self: Lake, *args: object, **keys: object) -> Path:
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return copy(self, *args, **keys)

    monkeypatch.setattr(Lake, "copy", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ingest_file(path, lake, CATALOGUE)
    monkeypatch.undo()
    assert lake.days("requests", "azure_llm") == [date(2023, 11, 16)]
    assert list((lake.root / ".scratch").iterdir()) == []
    report = ingest_file(path, lake, CATALOGUE)
    assert (report.is_new, report.rows_kept, len(report.days)) == (True, 2, 2)
    assert assert_rows_are_conserved(lake)


def test_a_mapping_imputes_missing_columns(tmp_path, lake):
    rows = "\n".join(
        json.dumps({"timestamp": 1000 * n, "input_length": 9, "output_length": 4}) for n in range(4000)
    )
    path = land(tmp_path, "mine.jsonl.gz", gzip.compress(rows.encode()))
    land(
        tmp_path,
        "mine.toml",
        'trace = "mine"\nllm = "llama2-70b"\ntier = "iw_fast"\napp = "code"\n'
        "region = { east = 0.75, west = 0.25 }\nstart = 2024-02-29T23:59:00Z\n",
    )
    report = ingest_file(path, lake, CATALOGUE)
    assert (report.trace, report.days) == ("mine", (date(2024, 2, 29), date(2024, 3, 1)))
    assert report.first_at == datetime(2024, 2, 29, 23, 59, tzinfo=UTC)
    shares = lake.sql("select region, count(*) / 4000 as share from requests group by region order by region")
    assert shares["region"].to_pylist() == ["east", "west"]
    assert shares["share"].to_pylist() == pytest.approx([0.75, 0.25], abs=0.03)
    others = lake.sql("select distinct llm, tier, app, deadline_s from requests").to_pylist()
    deadline = CATALOGUE.tiers["iw_fast"].deadline_s
    assert others == [{"llm": "llama2-70b", "tier": "iw_fast", "app": "code", "deadline_s": deadline}]
    land(tmp_path, "mine.toml", 'trace = "mine"\nregion = "west"\n')
    assert ingest_file(path, lake, CATALOGUE).is_new
    assert lake.sql("select distinct region from requests")["region"].to_pylist() == ["west"]


def test_default_shares_are_independent_of_each_other(tmp_path, lake):
    rows = "\n".join(f"2023-11-16 10:00:00,{n},1" for n in range(1, 20_001))
    ingest_file(land(tmp_path, "a.csv", f"{HEADER}\n{rows}"), lake, CATALOGUE)
    cells = lake.sql(
        "select region, llm, tier, count(*) / 20000 as share from requests group by region, llm, tier"
    ).to_pylist()
    region = {"east": 0.45, "central": 0.33, "west": 0.22}
    llm = {"llama3.1-405b-fp8": 0.25, "llama3.1-70b": 0.35, "llama3.1-8b": 0.22, "gpt-oss-20b": 0.18}
    tier = {"iw_fast": 0.42, "iw_normal": 0.30, "niw": 0.28}
    assert len(cells) == 36
    for cell in cells:
        expected = region[cell["region"]] * llm[cell["llm"]] * tier[cell["tier"]]
        assert cell["share"] == pytest.approx(expected, abs=0.006)


def test_unknown_names_are_quarantined_and_missing_values_imputed(tmp_path, lake):
    table = canonical(
        [1, 2, 3, 4],
        llm=["gpt", "llama2-70b", "llama2-70b", "llama2-70b"],
        deadline_s=[1.0, None, -1.0, 2.0],
        tier=["niw", "niw", "niw", None],
    )
    path = land(tmp_path, "c.parquet", b"")
    pq.write_table(table, path)
    report = ingest_file(path, lake, CATALOGUE)
    assert report.reasons == {"deadline_s is not above 0": 1, "unknown llm gpt": 1}
    rows = lake.read("requests").select(["deadline_s", "tier", "tier_source"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (CATALOGUE.tiers["niw"].deadline_s, "niw", "given"), (2.0, "iw_fast", "deadline"),
    ]  # fmt: skip
    assert '"llm":"gpt"' in lake.read("quarantine")["raw"][0].as_py()
    pq.write_table(table.select(["request_id", "arrived_at", "input_tokens", "output_tokens"]), path)
    land(tmp_path, "c.toml", 'llm = "bloom-176b"\nregion = "west"\ntier = "niw"\napp = "batch"')
    assert ingest_file(path, lake, CATALOGUE).rows_kept == 4
    found = lake.sql("select distinct llm, region, tier, app, tier_source from requests").to_pylist()
    assert [tuple(row.values()) for row in found] == [("bloom-176b", "west", "niw", "batch", "mapping")]


def test_quoted_commas_and_quotes_belong_to_their_field(tmp_path, lake):
    day_lines = [
        f'note,{HEADER},"a, ""b"""',
        '"one, two",2023-11-16 10:00:00,5,1,x',
        ' "say ""hi, you""" ,"2023-11-16 10:00:01","6",2,',
        '5" wide,2023-11-16 10:00:02,7,3,"a"',
        '"it goes on',
        'here",2023-11-16 10:00:03,8,4,x',
        '"",2023-11-16 10:00:04,9,5,"x"y',
    ]
    report = ingest_file(land(tmp_path, "a.csv", "\n".join(day_lines)), lake, CATALOGUE)
    assert lake.sql("select input_tokens as i from requests order by i")["i"].to_pylist() == [5, 6, 7, 8, 9]
    assert report.reasons == {"1 fields where the header has 5, and a quote that does not end in the line": 1}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", "a.csv is empty"),
        ("a.csv", HEADER, r"a.csv \(azure_llm\) has no row"),
        (
            "a.csv",
            "TIMESTAMP,ContextTokens\n1,2",
            r"has arrived_at \(as TIMESTAMP\) and input_tokens \(as ContextTokens\), but no output_tokens; "
            "it is csv .* --columns output_tokens=COLUMN .*output_tokens = 200",
        ),
        ("a.jsonl", '[{"timestamp": 1}]', "is one JSON array. Write one object a line, .* jq -c"),
        (
            "a.csv",
            "a,b\n1,2",
            "no column that is known as arrived_at, input_tokens or output_tokens; it is csv with a, b",
        ),
        ("a.png", b"\x89PNG\x00", "neither text nor Parquet"),
        ("a.jsonl", '{"timestamp": ', "not a complete object"),
        ("a.jsonl", '{"turns": ' * 99_999, "its first line is nested too deeply to be read"),
        ("a.parquet", b"PAR1xxxx", "a.parquet cannot be read"),
        ("a.gz", b"\x1f\x8b\x08xx", "a.gz cannot be read: Compressed file ended"),
        (
            "a.csv.gz",
            gzip.compress("\n".join([HEADER, *(f"2023-11-16,{n},{n * n}" for n in range(300_000))]).encode())[
                :-9000
            ],
            "a.csv.gz cannot be read: Compressed file ended before.* Copy the file here again, completely",
        ),
    ],
)
def test_files_that_are_no_trace_are_refused_in_one_line(tmp_path, lake, name, content, message):
    with pytest.raises(IngestError, match=message) as caught:
        ingest_file(land(tmp_path, name, content), lake, CATALOGUE)
    assert "\n" not in str(caught.value)
    assert list(lake.root.rglob("*.parquet")) == []


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ('llm = "llama2-70"', "a.toml: unknown llm 'llama2-70'. Did you mean 'llama2-70b'"),
        ("region = { east = 0.5, wset = 0.5 }", "unknown region 'wset'. Did you mean 'west'"),
        ("tier = { niw = 0.5 }", "a.toml tier: the shares sum to 0.5. Make them sum to 1"),
        ('regions = "east"', "unknown key 'regions'. Did you mean 'region'"),
        ('trace = "../x"', "a.toml trace: got '../x', needed up to 60 letters"),
    ],
)
def test_mapping_errors_name_the_remedy(tmp_path, lake, mapping, message):
    land(tmp_path, "a.toml", mapping)
    with pytest.raises(ConfigError, match=message):
        ingest_file(land(tmp_path, "a.csv", f"{HEADER}\n2023-11-16 10:00:00,5,5\n"), lake, CATALOGUE)


def test_landing_lists_only_traces_with_their_mapping(tmp_path):
    for name in ("b.csv", "a.jsonl.gz", "a.toml", "bb.toml", "README.md", ".hidden", "c.parquet.part"):
        land(tmp_path, name, "x")
    folder = tmp_path / "landing"
    assert [path.name for path in landed_files(folder)] == ["a.jsonl.gz", "b.csv"]
    assert [path.name for path in lone_mappings(folder)] == ["bb.toml"]


def test_a_deeply_nested_file_does_not_stop_other_files(tmp_path, lake, monkeypatch):
    """Too deep in the first line, the file is refused; in a later line, the row keeps its other fields."""
    row = '{"timestamp": %d, "input_length": 5, "output_length": 5, "hash_ids": %s}\n'
    land(tmp_path, "a.jsonl", row % (1, "[" * 99_999 + "]" * 99_999))
    land(tmp_path, "b.jsonl", row % (1, "[1]") + row % (2, "[" * 99_999 + "]" * 99_999))
    land(tmp_path, "c.csv", f"{HEADER}\n2023-11-16 10:00:00,5,5")
    monkeypatch.setattr(landing, "landed_files", lambda: landed_files(tmp_path / "landing"))
    monkeypatch.setattr(landing, "lone_mappings", list)
    done = landing.land_all_files(RunSettings(lake, CATALOGUE, load_config("sageserve", CATALOGUE)))
    assert [line.split()[0] for line in done.refused] == ["a.jsonl"]
    assert [(report.file, report.rows_kept) for report in done.reports] == [("b.jsonl", 2), ("c.csv", 1)]


def test_a_trace_is_landed_or_generated_never_both(tmp_path, lake):
    settings = RunSettings(lake, CATALOGUE, load_config("sageserve", CATALOGUE))
    path = land(tmp_path, "a.csv", f"{HEADER}\n2023-11-16 10:00:00,5,5\n")
    land(tmp_path, "a.toml", 'trace = "sageserve"')
    ingest_file(path, lake, CATALOGUE)
    for make in (
        lambda: make_request_day(lake, settings.config.trace, CATALOGUE, date(2025, 7, 1)),
        lambda: drop_changed_days(settings),
    ):
        with pytest.raises(LakeError, match=r"'sageserve' holds a.csv .* overwrite.* fleetcast forget a.csv"):
            make()
    assert not lake.made_from("sageserve").exists()
    forget_file(settings, "a.csv")
    drop_changed_days(settings)
    with pytest.raises(IngestError, match=r"a.csv would land in 'sageserve', a trace whose days are made"):
        ingest_file(path, lake, CATALOGUE)


@pytest.mark.parametrize(
    ("name", "rows", "first_at", "inputs"),
    [
        (
            "AzureLLMInferenceTrace_code.csv.gz",
            8_819,
            datetime(2023, 11, 16, 18, 17, 3, 979_960, UTC),
            (3, 7_437),
        ),
        (
            "AzureLLMInferenceTrace_conv.csv.gz",
            19_366,
            datetime(2023, 11, 16, 18, 15, 46, 680_590, UTC),
            (2, 14_050),
        ),
        ("mooncake_synthetic_trace.jsonl.gz", 3_993, datetime(2024, 1, 1, tzinfo=UTC), None),
    ],
)
def test_real_traces_land_without_loss(lake, name, rows, first_at, inputs):
    if not (TRACES / name).exists():
        pytest.skip(f"{name} is not available (../shared/data/traces)")
    report = ingest_file(TRACES / name, lake, CATALOGUE)
    assert (report.rows_in, report.rows_kept, report.rows_quarantined) == (rows, rows, 0)
    assert report.first_at == first_at
    landed = lake.read("requests", trace=report.trace)
    assert landed.select(SCHEMAS["requests"].names).schema.remove_metadata() == SCHEMAS["requests"]
    if inputs:
        tokens = landed["input_tokens"].to_pylist()
        assert (min(tokens), max(tokens)) == inputs
    assert assert_rows_are_conserved(lake)


def test_concurrent_ingests_of_one_day_lose_nothing(lake: Lake, tmp_path: Path) -> None:
    """Eight threads; then one file is withdrawn, and a day of an earlier version is split by source."""
    paths = [land(tmp_path, f"part_{n}.csv", f"{HEADER}\n" + "".join(day_lines(n))) for n in range(8)]
    for path in paths:
        land(tmp_path, f"{path.stem}.toml", 'trace = "split"\n')
    with ThreadPoolExecutor(8) as threads:
        reports = list(threads.map(lambda path: ingest_file(path, lake, CATALOGUE), paths))
    assert [report.rows_kept for report in reports] == [20] * 8
    assert lake.count("requests", trace="split") == 160
    withdraw_file(lake, "split", paths[3].name)
    there = lake.read("requests", trace="split")
    assert sorted(set(there["source"].to_pylist())) == [path.name for n, path in enumerate(paths) if n != 3]
    [day] = lake.days("requests", "split")
    for file in lake.files("requests", trace="split"):
        file.unlink()
    lake.write("requests", there.drop_columns(["trace", "day"]), trace="split", day=day)
    ingest_file(paths[3], lake, CATALOGUE)
    assert [file.stem for file in lake.files("requests", trace="split")] == [path.name for path in paths]
    assert lake.count("requests", trace="split") == 160


def day_lines(n: int) -> Iterator[str]:
    """Return twenty requests of a day that no other file contains."""
    return (f"2024-05-06 10:{n:02d}:{at:02d}.{n}00000,{100 + at},{10 + n}\n" for at in range(20))


def test_demand_is_recomputed_when_its_requests_change(lake: Lake, tmp_path: Path) -> None:
    """The recorded inputs decide whether demand is stale; the time of writing does not."""
    land(tmp_path, "one.toml", 'trace = "one"\n')
    ingest_file(land(tmp_path, "one.csv", f"{HEADER}\n" + "".join(day_lines(0))), lake, CATALOGUE)
    [day] = lake.days("requests", "one")
    of_day = {"trace": "one", "day": day}
    build_demand(lake, **of_day)
    content = lake.content("requests", **of_day)
    [requests] = lake.files("requests", **of_day)
    os.utime(requests)
    assert lake.is_made_from("demand", content, **of_day)
    rows = lake.read("requests", **of_day).drop_columns(["trace", "day"])
    lake.write("requests", rows.slice(1), file=requests.stem, **of_day)
    os.utime(requests, (0, 0))
    assert not lake.is_made_from("demand", lake.content("requests", **of_day), **of_day)
