"""The lake: whole files or none, one schema, one line for every error, views that outlive their reader."""

import errno
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fleetcast.assets.lake import duckdb_connection, store, warehouse
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.process_resources import usable_cores, usable_memory_bytes
from fleetcast.assets.lake.query_limits import QueryLimits
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import load_settings
from fleetcast.assets.lake.sql_files import SqlFileError, read_sql
from fleetcast.assets.lake.store import exclusive_lock
from fleetcast.assets.lake.warehouse import Lake, LakeVersionError
from fleetcast.models.world.toml_dataclasses import ConfigError

DAY = date(2025, 7, 1)
PARTITION = {"trace": "t", "day": DAY}


def requests(rows: int) -> pa.Table:
    return pa.table(
        {
            "request_id": list(range(rows)),
            "arrived_at": [datetime(2025, 7, 1, 12, n // 60, n % 60, tzinfo=UTC) for n in range(rows)],
            "region": ["east"] * rows,
            "llm": ["llama2-70b"] * rows,
            "tier": ["niw"] * rows,
            "app": ["rag"] * rows,
            "input_tokens": [5] * rows,
            "output_tokens": [6] * rows,
            "deadline_s": [7.0] * rows,
            "source": ["test"] * rows,
        }
    )


def files(lake: Lake) -> list[str]:
    """All files but the digests, which stay when their files are removed."""
    found = (str(path.relative_to(lake.root)) for path in lake.root.rglob("*") if path.is_file())
    return sorted(name for name in found if not name.startswith("digests/"))


def test_a_partition_comes_back_as_it_was_written(lake):
    path = lake.write("requests", requests(3), **PARTITION)
    assert path == lake.root / "requests" / "trace=t" / "day=2025-07-01" / "part.parquet"
    assert pq.read_schema(path) == warehouse.SCHEMAS["requests"]
    assert pq.read_metadata(path).row_group(0).column(0).compression == "ZSTD"
    read = lake.read("requests", trace="t")
    given = requests(3)
    given_schema = pa.schema([warehouse.SCHEMAS["requests"].field(name) for name in given.column_names])
    assert read.select(given.column_names).cast(given_schema) == given.cast(given_schema)
    assert read["session_id"].null_count == 3  # what is optional and was not given
    assert (read["trace"][0].as_py(), read["day"][0].as_py()) == ("t", DAY)
    assert lake.days("requests", "t") == [DAY]
    assert lake.days("demand", "t") == []
    lake.write("scorecard", pa.table({"requests": [1]}), **PARTITION)
    assert lake.days("scorecard", "t") == [DAY]


def test_each_file_of_a_table_has_a_mark_that_changes_with_it(lake):
    paths = [lake.write("requests", requests(3), **{**PARTITION, "trace": name}) for name in ("t", "u")]
    t, u = (str(path.relative_to(lake.root)) for path in paths)
    before = lake.marks("requests")
    assert list(before) == [t, u]
    lake.write("requests", requests(4), **PARTITION)
    after = lake.marks("requests")
    assert (before[t] == after[t], before[u] == after[u]) == (False, True)
    assert list(lake.marks("requests", trace="u")) == [u]


def test_a_file_from_before_a_column_was_added_reads_as_null(lake):
    old = lake.path("requests", trace="t", day=date(2025, 6, 30))
    old.parent.mkdir(parents=True)
    pq.write_table(requests(2), old)
    assert lake.sql("select session_id from requests")["session_id"].to_pylist() == [None, None]
    lake.write("requests", requests(1).append_column("session_id", pa.array(["s"])), **PARTITION)
    found = lake.sql("select day, session_id from requests order by day, session_id")
    assert found["session_id"].to_pylist() == [None, None, "s"]


def test_instants_are_utc_whatever_the_machine_thinks(lake, monkeypatch):
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    lake.write("requests", requests(1), **PARTITION)
    hour = lake.sql(
        "select hour(arrived_at) as hour, arrived_at::date = day as same from requests"
    ).to_pylist()
    monkeypatch.undo()
    time.tzset()
    assert hour == [{"hour": 12, "same": True}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop_columns(["app"]), "requests must have the columns request_id, .* got "),
        (lambda t: t.append_column("more", pa.array([1, 2])), "got .*more"),
        (
            lambda t: t.set_column(6, "input_tokens", pa.array([1, 1 << 40])),
            "Bringing requests to its schema failed",
        ),
        (
            lambda t: t.set_column(0, "request_id", pa.array([-1, 2])),
            "Bringing requests to its schema failed",
        ),
    ],
)
def test_a_wrong_schema_is_refused_and_nothing_is_written(lake, change, message):
    with pytest.raises(LakeError, match=message):
        lake.write("requests", change(requests(2)), **PARTITION)
    assert lake.days("requests", "t") == []


def test_a_full_disk_keeps_what_was_there(lake, monkeypatch):
    lake.write("requests", requests(1), **PARTITION)
    before = files(lake)

    def full(writer: pq.ParquetWriter, table: pa.Table, rows: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # behind the head of the file, which is there

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(
        LakeError, match=r"part.parquet failed: .*No space left.* free some space and run again"
    ):
        lake.write("requests", requests(2), **PARTITION)
    assert files(lake) == before
    assert lake.read("requests").num_rows == 1


def test_an_interrupted_query_is_ctrl_c(lake):
    with pytest.raises(KeyboardInterrupt), lake.connect():
        raise RuntimeError("Query interrupted")


def test_queries_share_one_instance_and_leave_nothing_in_it(tmp_path, lake, monkeypatch):
    duckdb_connection._close_shared_instances()  # the one of another test
    made, connect = [], duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda *args, **config: made.append(1) or connect(*args, **config))
    for n in range(4):
        lake.write("requests", requests(3), trace=f"t{n}", day=DAY)
    with lake.connect() as con, ThreadPoolExecutor(4) as threads:
        con.execute("create temp table mine as select 1")
        found = threads.map(
            lambda n: lake.sql(f"select trace from requests where trace = 't{n % 4}'"), range(40)
        )
        assert [table["trace"].to_pylist() for table in found] == [[f"t{n % 4}"] * 3 for n in range(40)]
        with pytest.raises(LakeError, match="mine does not exist"):
            lake.sql("from mine")
        assert lake.read("requests", trace="t1").num_rows == con.execute("from mine").fetchone()[0] + 2
        Lake(tmp_path / "one").sql("select 1")
        assert len(made) == 2  # a folder of its own to spill into, while another lake may spill
    Lake(tmp_path / "other").sql("select 1")
    with lake.answer("from requests", QueryLimits()) as rows:
        assert rows.read_all().num_rows == 12
    assert len(made) == 2  # a typed query has a process of its own


def test_an_instance_that_has_spilled_is_not_kept(tmp_path, lake, monkeypatch):
    monkeypatch.setattr(duckdb_connection, "duckdb_settings", lambda: {"memory_limit": "60MB", "threads": 1})
    Lake(tmp_path / "other").sql("select 1")  # its instance spills to the next lake's folder
    lake.write("requests", requests(1), **PARTITION)
    shutil.rmtree(lake.root / ".scratch")  # a lake that was copied has none; DuckDB makes no parents
    with lake.connect() as con:
        con.execute("create temp table large as select random() as r from range(20_000_000)")
        assert list((lake.root / ".scratch").iterdir())
        assert lake.sql("select 1 as one")["one"].to_pylist() == [1]
        assert con.execute("select count(*) from large").fetchone() == (20_000_000,)
    assert list((lake.root / ".scratch").iterdir()) == []
    assert not [folder for folder in store.OPEN_SCRATCH_FOLDERS if lake.root in folder.parents]
    Lake(tmp_path / "other").sql("select 1")


def test_a_newer_lake_is_not_touched(tmp_path):
    (tmp_path / "VERSION").write_text("1\n")
    Lake(tmp_path).write("requests", requests(1), **PARTITION)
    assert (tmp_path / "VERSION").read_text() == f"{warehouse.LAKE_VERSION}\n"
    (tmp_path / "VERSION").write_text(f"{warehouse.LAKE_VERSION + 1}\n")
    with pytest.raises(LakeVersionError, match=r"has version 3, this code reads up to 2\. Update fleetcast"):
        Lake(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\xff\x00one"])
def test_damaged_lake_version_is_reported(tmp_path, content):
    (tmp_path / "VERSION").write_bytes(content)
    with pytest.raises(LakeVersionError, match=r"VERSION is damaged: it contains .* Write 2 into it\."):
        Lake(tmp_path)


def test_wrong_names_are_answered_with_the_right_ones(lake):
    lake.write("requests", requests(1), **PARTITION)
    with pytest.raises(LakeError, match=r"no table 'request'. Did you mean 'requests'\?"):
        lake.read("request")
    with pytest.raises(LakeError, match="requests is not partitioned by policy, but by trace, day"):
        lake.read("requests", policy="static")
    with pytest.raises(
        LakeError, match="no requests of trace t, day 2025-07-02; it has: trace=t/day=2025-07-01"
    ):
        lake.read("requests", trace="t", day=date(2025, 7, 2))
    with pytest.raises(LakeError, match="Writing requests needs its partition day"):
        lake.write("requests", requests(1), trace="t")
    with pytest.raises(
        LakeError, match=r"The query failed: .*scorecard does not exist\..* The lake has the tables requests"
    ):
        lake.sql("select * from scorecard")
    with pytest.raises(
        LakeError, match=r'mean "top_apps"\? .* marts advice, .*all_plans, .*ttft_histogram, .*whatifs\.$'
    ):
        lake.sql("select * from top_app")
    with pytest.raises(LakeError, match=r'"tierr" not found .*Candidate bindings: "tier"[^:]*$'):
        lake.sql("select tierr from requests")
    for name in ("queries/worst_hour.sql", "elsewhere/worst_hour.sql"):
        with pytest.raises(SqlFileError, match=r"worst_hour.sql. Did you mean sql/queries/worst_hours.sql\?"):
            lake.sql(name)
    with pytest.raises(
        SqlFileError, match=r"no SQL file zzz.sql. In sql/queries there is: against_the_paper, "
    ):
        lake.sql("zzz.sql")


def test_a_recipe_is_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_sql("sql/queries/worst_hours.sql") == read_sql("queries/worst_hours.sql")


READS = [
    "pivot requests on tier using count(*)",
    "describe requests",
    "show tables",
    "values (1)",
    "select 1;",
    "-- why\nexplain select 1",
    "explain (analyze, format json) from requests",
    "explain analyze pivot requests on tier",
    '/* für */ explain (select 1 as "query")',
    "with a as (from requests) select count(*) as update from a",
    "select 'copy (select 1) to' as \"delete\" -- copy",
]
HOSTILE = {
    "drop view requests": "drop",
    "select 1; select 2": "select, select",
    "-- nothing": "none",
    "COPY": "copy",
    "explain analyze COPY": "explain analyze copy",
    "explain /* a plan */ (format json, analyze) COPY": r"explain \( format json , analyze \) copy",
    "/* für übermorgen */ explain\nanalyze COPY": "explain analyze copy",
    "explain analyze create table x as select 1": "explain analyze create",
    "explain analyze set threads = 1": "explain analyze set",
    "explain analyze load httpfs": "explain analyze load",
    "copy (pivot (from range(3)) on range) to 'PLANS'": "copy",
    "explain analyze copy (pivot (from range(3)) on range) to 'PLANS'": "explain analyze copy",
    "create table x as pivot (from range(3)) on range": "create",
    "with a as (COPY) from a": "a with clause with copy",
    "explain analyze with a as materialized (COPY) from a": "a with clause with copy",
    "with p as (pivot (from range(3)) on range), a as (COPY) from a": "a with clause with copy",
    "pivot (with a as (COPY) from a) on Count": "a with clause with copy",
    "with p as (pivot (from range(3)) on range) insert into requests from p": "a with clause with insert",
    "from query('with a as (' || 'copy (select 1) to ''PLANS'') from a')": "the function query, .*",
    "from \"Json_execute_serialized_sql\"(json_serialize_sql('with a as (COPY) from a'))": "the function .*",
    "load httpfs": "load",
    "install httpfs": "load",
    "attach 'PLANS' as x": "attach",
    "select 1) union all (select 2": "",
}


def read_answer(lake: Lake, query: str) -> pa.Table:
    with lake.answer(query, QueryLimits()) as reader:
        return reader.read_all()


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("is_typed", [True, False])
def test_only_one_query_that_reads_is_answered(lake, text, is_typed):
    """Whatever the name under which a statement writes, no byte of the lake changes."""
    lake.write("requests", requests(2), **PARTITION)
    plans = lake.path("requests", **PARTITION)
    there = {path: path.read_bytes() for path in lake.root.rglob("*") if path.is_file()}
    copied = "copy (select 1) to ''PLANS''" if "serialize" in text else "copy (select 1) to 'PLANS'"
    query = text.replace("COPY", copied).replace("PLANS", str(plans))
    got = f"Needed one query .*, got {HOSTILE[text]}\\. Any" if HOSTILE[text] else "syntax error"
    with pytest.raises(LakeError, match=f"^[^\n]*{got}[^\n]*$"):
        read_answer(lake, query) if is_typed else lake.sql(query)
    assert {path: path.read_bytes() for path in lake.root.rglob("*") if path.is_file()} == there


def test_queries_that_read_are_answered(lake):
    lake.write("requests", requests(2), **PARTITION)
    for query in READS:
        assert read_answer(lake, query).num_columns > 0, query


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("from enable_logging('QueryLog', storage = 'file', storage_path = 'LOGS')", "has been locked"),
        ("from enable_profiling(save_location = 'LOGS')", "has been locked"),
        ("from read_csv('http://localhost:1/rows.csv')", "Cannot access file .*--allow FOLDER"),
    ],
)
def test_a_typed_query_changes_no_setting_and_loads_no_extension(lake, tmp_path, query, why):
    with pytest.raises(LakeError, match=why):
        read_answer(lake, query.replace("LOGS", str(tmp_path / "logs")))
    assert not (tmp_path / "logs").exists()


def test_a_day_can_be_taken_out_of_every_table(lake):
    for number in (1, 2):
        day = date(2025, 7, number)
        lake.write("requests", requests(1), trace="t", day=day)
        lake.write("scorecard", pa.table({"requests": [1]}), trace="t", day=day)
        lake.write("outcomes", SCHEMAS["outcomes"].empty_table(), trace="t", day=day, policy="static")
    lake.write("requests", requests(1), trace="u", day=DAY)
    lake.drop_day("t", DAY)
    assert [name for name in files(lake) if f"day={DAY}" in name] == [
        f"requests/trace=u/day={DAY}/part.parquet"
    ]
    assert len([name for name in files(lake) if "day=2025-07-02" in name]) == 3


def test_the_rows_of_a_day_are_of_its_trace_alone(tmp_path):
    settings = load_settings("office", tmp_path / "lake")
    for trace, number, rows in ((settings.trace, 1, 3), (settings.trace, 2, 1), ("u", 1, 1)):
        settings.lake.write("requests", requests(rows), trace=trace, day=date(2025, 7, number))
    rows = settings.day_rows("requests", DAY, "request_id desc").to_pylist()
    assert [(row["trace"], row["day"], row["request_id"]) for row in rows] == [
        (settings.trace, DAY, number) for number in (2, 1, 0)
    ]


def test_parameters_that_are_not_given_are_null(lake):
    lake.write("requests", requests(2), **PARTITION)
    query = "select count(*) as n from requests where trace = coalesce($trace, trace)"
    assert lake.sql(query)["n"].to_pylist() == [2]
    assert lake.sql(query, trace="other", day=DAY)["n"].to_pylist() == [0]


def one_empty_row(table: str) -> pa.Table:
    return pa.table({field.name: pa.nulls(1, field.type) for field in SCHEMAS[table]})


def test_published_file_documents_its_columns(lake):
    lake.write("requests", requests(2), **PARTITION)
    with duckdb.connect(str(lake.publish()), read_only=True) as reader:
        described = dict(
            reader.execute(
                "select column_name, comment from duckdb_columns() where table_name = 'top_apps'"
            ).fetchall()
        )
    assert described == dict(read_sql("marts/top_apps.sql").columns)


def test_the_published_file_is_replaced_under_its_readers(lake):
    lake.write("requests", requests(2), **PARTITION)
    leftover = lake.root / ".scratch" / "of_a_killed_run"
    leftover.mkdir(parents=True)
    os.utime(leftover, (0, 0))
    path = lake.publish()
    assert not leftover.exists()
    with duckdb.connect(str(path), read_only=True) as reader:
        lake.write("requests", requests(3), trace="t", day=date(2025, 7, 2))
        lake.write("silences", one_empty_row("silences"), trace="t")
        before = path.stat().st_ino
        assert lake.publish().stat().st_ino != before
        assert reader.execute("select count(*) from requests").fetchall() == [(5,)]
    with duckdb.connect(str(path), read_only=True) as reader:
        assert reader.execute("select count(*) from demand_by(15)").fetchall() == [(0,)]
    assert [name for name in files(lake) if ".scratch" in name] == []


def test_views_that_have_not_changed_are_not_published_again(lake, monkeypatch):
    """They change with the first file of a table, with sql/, and with versions of DuckDB and its files."""

    def published_file() -> int:
        return lake.publish().stat().st_ino

    lake.write("requests", requests(2), **PARTITION)
    first = published_file()
    lake.write("requests", requests(3), trace="t", day=date(2025, 7, 2))
    assert published_file() == first
    lake.write("silences", one_empty_row("silences"), trace="t")
    second = published_file()
    assert second != first
    sql_folder = lake.root.parent / "sql"
    shutil.copytree(warehouse.SQL, sql_folder)
    header = sql_folder / "tables" / "requests.sql"
    header.write_text(header.read_text().replace("requests: ", "requests: the ", 1))
    monkeypatch.setattr(warehouse, "SQL", sql_folder)
    third = published_file()
    assert third != second
    monkeypatch.setattr(duckdb, "__version__", "0")
    fourth = published_file()
    assert fourth != third
    monkeypatch.setattr(warehouse, "STORAGE_VERSION", "v1.4.0")
    fifth = published_file()
    assert fifth != fourth
    (lake.root / "warehouse.duckdb").write_bytes(b"no database")
    assert published_file() != fifth
    with duckdb.connect(str(lake.root / "warehouse.duckdb"), read_only=True) as reader:
        assert reader.execute("select count(*) from requests").fetchall() == [(5,)]


def test_who_publishes_later_lists_the_tables_later(lake):
    """While another one publishes no process lists tables: what is written meanwhile is not hidden."""
    with ThreadPoolExecutor(1) as threads:
        with exclusive_lock(lake.root / ".publishing"):
            publishing = threads.submit(lake.publish)
            time.sleep(0.5)
            assert not publishing.done()
            lake.write("requests", requests(1), **PARTITION)
        published = publishing.result()
    with duckdb.connect(str(published), read_only=True) as con:
        assert con.execute("select count(*) from requests").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("files", "environ", "found"),
    [
        ({"cpu.max": "100000 100000", "memory.max": "2000"}, {}, (1, 2000)),
        ({"cpu.max": "50000 100000", "memory.max": "max"}, {}, (1, None)),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, {}, (1, None)),
        ({"cpu.max": "100000 100000"}, {"FLEETCAST_CORES": "7", "FLEETCAST_MEMORY_GIB": "3"}, (7, 3 * 2**30)),
        ({"cpu.max": "max 100000", "memory/memory.limit_in_bytes": "9"}, {}, (None, 9)),
    ],
)
def test_a_process_uses_what_its_cgroup_or_a_setting_gives_it(tmp_path, files, environ, found):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    plain = usable_cores({}, tmp_path / "none"), usable_memory_bytes({}, tmp_path / "none")
    expected = tuple(own or whole for own, whole in zip(found, plain, strict=True))
    assert (usable_cores(environ, tmp_path), usable_memory_bytes(environ, tmp_path)) == expected
    with pytest.raises(ConfigError, match=r"FLEETCAST_CORES is 'two', needed a number from 1 to 4,096. Set"):
        usable_cores({"FLEETCAST_CORES": "two"}, tmp_path)
