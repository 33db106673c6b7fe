"""A typed query: it changes no byte, reads the lake only, and its process ends at its limits."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from fleetcast.assets.lake import query_process
from fleetcast.assets.lake.duckdb_connection import Connection, confine_to_folders
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.query_limits import QueryLimits
from fleetcast.assets.lake.read_only_query import parse_read_only_query
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.warehouse import Lake

GIB = 2**30
# Each statement type of DuckDB; FILE is a file of the lake, NEW one that is not there, DIR its folder.
STATEMENTS = """
alter table requests add column x int | alter view requests rename to x | alter sequence s owned by t
alter database x set alias to y | alter schema main rename to x | alter type e rename to f
analyze | analyze requests | vacuum | vacuum analyze | vacuum requests
attach 'NEW' as x | attach 'FILE' as x | attach if not exists 'NEW' as x | attach or replace 'NEW' as x
attach ':memory:' as x | attach 'NEW' as x (type duckdb) | attach 'NEW' as x (type sqlite) | detach x
detach database if exists memory | use memory | use x.y | begin | begin transaction read only | commit
rollback
abort | start transaction | call pragma_version() | call force_checkpoint() | call checkpoint()
call enable_logging('QueryLog', storage_path = 'NEW') | call disable_logging() | call truncate_duckdb_logs()
call enable_profiling(save_location = 'NEW') | call query('select 1') | checkpoint | force checkpoint
checkpoint memory | comment on table requests is 'x' | comment on column requests.llm is 'x'
copy requests to 'NEW' | copy (select 1) to 'FILE' | copy (select 1) to 'NEW' (format csv)
copy (select 1) to 'NEW' (format json) | copy (select 1 as a) to 'DIR' (format parquet, partition_by (a))
copy (select 1 as a) to 'DIR' (format parquet, partition_by (a), overwrite_or_ignore)
copy (select 1) to 'FILE' (format parquet, overwrite true) | copy requests from 'FILE'
copy x from 'FILE' (format csv)
copy from database memory to x | copy (values (1)) to 'FILE'
copy (from range(9)) to 'NEW' (per_thread_output true)
copy (describe requests) to 'NEW' | copy (show tables) to 'NEW' | copy (summarize requests) to 'NEW'
copy (pivot requests on tier) to 'NEW' | copy (unpivot requests on llm) to 'NEW'
create table x as select 1 | create temp table x as select 1 | create or replace table requests as select 1
create table if not exists x (a int) | create view x as select 1 | create temp view x as select 1
create or replace temp view requests as select 1 | create recursive view x (a) as select 1
create macro x() as 1 | create macro x() as table select 1 | create temp function x(a) as a
create sequence s
create schema x | create type e as enum ('a') | create index i on requests (llm)
create unique index i on requests (llm)
create secret s (type s3) | create persistent secret s (type s3, key_id 'a', secret 'b') | drop secret s
create table x as pivot (from range(3)) on range
create trigger t after insert on requests execute insert into x values (1)
delete from requests | delete from requests where true returning * | delete from requests using x
truncate requests
deallocate p | prepare p as select 1 | prepare p as copy (select 1) to 'NEW' | execute p | execute p(1)
drop view requests | drop view if exists requests cascade | drop table x | drop schema main cascade
drop macro may_wait
drop macro table demand_by | drop sequence s | drop type e | drop index i | drop function may_wait
export database 'DIR' | export database 'DIR' (format parquet) | import database 'DIR'
insert into requests select * from requests | insert into requests values (1)
insert or replace into x values (1)
insert into x by name select 1 as a | insert into x default values | insert into x values (1) returning *
insert into x values (1) on conflict do nothing | install httpfs | force install httpfs
install x from 'http://localhost:1'
install 'NEW' | load httpfs | load 'NEW' | load 'FILE' | update extensions | update extensions (httpfs)
merge into requests using x on true when matched then delete
merge into requests using x on true when not matched then insert
merge into x using (select 1) y on true when matched then update
pragma database_size | pragma enable_profiling | pragma profiling_output='NEW' | pragma memory_limit='9GB'
pragma threads=9
pragma enable_checkpoint_on_shutdown | pragma disable_optimizer | pragma import_database('DIR')
pragma version
pragma storage_info('requests') | pragma user_agent | pragma log_query_path='NEW'
pragma enable_progress_bar
reset threads | reset global memory_limit | reset variable x | set threads = 1
set global memory_limit = '9GB'
set session search_path = 'main' | set enable_external_access = true | set lock_configuration = false
set temp_directory = 'NEW' | set secret_directory = 'DIR' | set log_query_path = 'NEW'
set home_directory = 'DIR'
set allowed_directories = ['/'] | set allowed_paths = ['/etc/passwd'] | set extension_directory = 'DIR'
set allow_unsigned_extensions = true | set custom_extension_repository = 'http://localhost:1'
set profiling_output = 'NEW'
set enable_profiling = 'json' | set variable x = 1 | set schema = 'main' | set file_search_path = '/'
update requests set llm = 'x' | update requests set llm = 'x' from x where true returning *
update x set a = default
select 1; select 2 | select 1; copy (select 1) to 'FILE' | copy (select 1) to 'FILE'; select 1 | ; | --
select
select * into x from requests | select 1 into 'NEW' | from requests into outfile 'NEW'
with a as (copy (select 1) to 'NEW') from a | with a as (insert into x values (1) returning *) from a
with a as (delete from requests returning *) from a
with a as (update requests set llm = 'x' returning *) from a
with a as materialized (copy (select 1) to 'FILE') from a
with recursive a as (copy (select 1) to 'FILE') from a
with a as (select 1) insert into requests from a | with a as (select 1) delete from requests
with a as (select 1) update requests set llm = 'x' | with a as (select 1) copy (from a) to 'NEW'
from (copy (select 1) to 'NEW') | select (copy (select 1) to 'NEW')
select exists(delete from requests returning *)
from query('copy (select 1) to ''NEW''') | from query_table('requests')
from query_table(['requests', 'requests'], true)
from json_execute_serialized_sql(json_serialize_sql('select 1'))
pivot (with a as (copy (select 1) to 'NEW') from a) on count
from enable_logging('QueryLog', storage = 'file', storage_path = 'NEW') | from disable_logging()
from enable_logging(level = 'trace') | from truncate_duckdb_logs() | from duckdb_logs()
from enable_profiling(save_location = 'NEW') | from force_checkpoint() | from checkpoint()
from pragma_version()
from pragma_database_size() | from pragma_storage_info('requests') | from duckdb_settings()
from duckdb_secrets()
from duckdb_extensions() | from duckdb_temporary_files() | from duckdb_memory() | from duckdb_databases()
from pragma_user_agent() | from duckdb_functions() limit 1 | from duckdb_views() | from duckdb_variables()
select nextval('s') | select setseed(0.5) | select write_log('x') | select error('x')
select current_setting('threads')
select set_config('threads', '1', false) | select txid_current()
select add_parquet_key('k', '0123456789abcdef')
from read_text('FILE') | from read_blob('FILE') | from glob('DIR/*') | from 'FILE'
from parquet_metadata('FILE')
from parquet_file_metadata('FILE') | from sniff_csv('FILE') | from read_csv('FILE') | from read_json('FILE')
from requests | select * from requests order by random() | describe requests | show tables | show all tables
show databases | summarize requests | values (1) | table requests | pivot requests on tier using count(*)
unpivot (select 1 as a, 2 as b) on a, b | with a as (from requests) from a | select 1 union all select 2
from requests select count(*) | (select 1) | explain select 1 | show threads | describe select 1
desc requests
"""
WRAPPERS = ("{}", "explain {}", "explain analyze {}", "explain (analyze, format json) {}",
            "with w as (select 1) {}", "with w as ({}) from w", "-- x\n/* y */ {} ;", "({})")  # fmt: skip
TARGETS = ("/etc/passwd", "/proc/self/environ", "DIR/../../outside.csv", "DIR2/outside.csv", "https://localhost:1/x.csv",
           "s3://bucket/x.csv", "file:///etc/passwd")  # fmt: skip
READERS = ("read_text", "read_blob", "read_csv", "read_json", "read_parquet", "glob", "sniff_csv",
           "parquet_metadata", "parquet_schema", "read_ndjson_objects", "read_duckdb")  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("sandbox")
    lake = Lake(folder / "lake")
    rows = pa.table({"region": ["east", "west"], "llm": ["a", "b"], "tier": ["niw", "iw_fast"]})
    whole = {
        field.name: rows[field.name] if field.name in rows.column_names else pa.nulls(2, field.type)
        for field in SCHEMAS["requests"]
    }
    lake.write("requests", pa.table(whole), trace="t", day="2025-07-01")
    (folder / "lake2").mkdir()
    for outside in (folder / "outside.csv", folder / "lake2" / "outside.csv"):
        outside.write_text("secret\n1\n")
    return lake


@pytest.fixture(scope="module")
def confined(lake: Lake) -> Iterator[Connection]:
    """A connection with all views, as a typed query has it."""
    with lake.connect(threads="1") as con:
        confine_to_folders(con, [str(lake.root)])
        yield con


def content(lake: Lake) -> dict[str, tuple[bytes, int]]:
    """Bytes and time of every file around the lake, but those of the scratch folder."""
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in lake.root.parent.rglob("*")
        if path.is_file() and ".scratch" not in path.parts
    }


def statements(lake: Lake) -> Iterator[str]:
    file = next(lake.root.rglob("*.parquet"))
    for line in STATEMENTS.strip().splitlines():
        for text in line.split(" | "):
            yield (
                text.replace("FILE", str(file))
                .replace("NEW", str(lake.root.parent / "new"))
                .replace("DIR", str(lake.root))
            )


def read_typed(lake: Lake, query: str, limits: QueryLimits | None = None, *folders: Path) -> pa.Table:
    with lake.answer(query, limits or QueryLimits(), folders) as reader:
        return reader.read_all()


def test_no_statement_changes_a_byte(lake: Lake, confined: Connection) -> None:
    """All statement types, bare and wrapped; what is not refused runs, and reads."""
    there, texts, ran = content(lake), [*statements(lake)], []
    assert len(texts) >= 200
    queries = [wrapper.format(text) for wrapper in WRAPPERS for text in texts]
    for query in queries:
        with suppress(LakeError, duckdb.Error):
            parse_read_only_query(confined, query)
            confined.sql(query).fetchall()
            ran.append(query)
    assert confined.sql("from requests").fetchall() == confined.sql("table requests").fetchall() != []
    assert 100 < len(ran) < len(queries) / 2
    for query in ran[::50] + queries[::300]:  # the same in a process
        with suppress(LakeError):
            read_typed(lake, query)
    assert content(lake) == there


@pytest.mark.parametrize("target", TARGETS)
def test_a_typed_query_reads_no_other_file(lake: Lake, confined: Connection, target: str) -> None:
    """By any reader, wherever the file is; a folder whose name begins like the lake's is not the lake."""
    path = target.replace("DIR", str(lake.root))
    for reader in READERS:
        with pytest.raises(duckdb.Error, match="Permission Error: Cannot access"):
            confined.sql(f"from {reader}('{path}')").fetchall()
    with pytest.raises(duckdb.Error):
        confined.sql(f"from '{path}'").fetchall()
    with pytest.raises(LakeError, match=r"Cannot access file .* name with --allow FOLDER\.$"):
        read_typed(lake, f"from read_text('{path}')")


def test_an_allowed_folder_is_read_and_no_other(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = lake.root.parent / "lake2"
    monkeypatch.chdir(lake.root.parent)
    query = "select (from requests select count(*)) as n, secret from read_csv('lake2/outside.csv')"
    assert read_typed(lake, query, None, outside).to_pylist() == [{"n": 2, "secret": 1}]
    with pytest.raises(LakeError, match="Cannot access file"):
        read_typed(lake, "from read_csv('outside.csv')", None, outside)


def children() -> set[str]:
    """The processes that this one has started."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.mark.parametrize(
    ("query", "limits", "message"),
    [
        (
            "select length(repeat(repeat('x', 10000), 300000)) as n",
            QueryLimits(0.1, 60),
            "more than 0.1 GiB of memory",
        ),
        ("select list(a.range) from range(100_000_000) a, range(9) b", QueryLimits(0.1, 60), "more than 0.1"),
        ("select length(repeat('x', 4000000000)) as n", QueryLimits(9, 0.3), r"stopped after 0\.3 s"),
        ("select sum(sin(a.range)) from range(100_000_000_000) a", QueryLimits(1, 0.3), r"after 0\.3 s"),
        ("from range(100_000_000_000)", QueryLimits(1, 0.3), r"after 0\.3 s"),  # while the result is read
    ],
)
def test_a_query_ends_at_its_limits(lake: Lake, query: str, limits: QueryLimits, message: str) -> None:
    """Also inside one call of a function, which DuckDB can neither bound nor interrupt."""
    before, begun_s, most_bytes = children(), time.monotonic(), [0]
    with pytest.MonkeyPatch.context() as patch:
        measure = query_process.own_memory_bytes
        patch.setattr(
            query_process, "own_memory_bytes", lambda pid: most_bytes.append(measure(pid)) or most_bytes[-1]
        )
        with pytest.raises(LakeError, match=message) as stopped, lake.answer(query, limits) as reader:
            for _ in reader:
                pass
    assert "\n" not in str(stopped.value)
    assert max(most_bytes) - most_bytes[1] < limits.process_bytes() + GIB / 2
    assert time.monotonic() - begun_s < 20
    assert children() == before
    assert not [*(lake.root / ".scratch").iterdir()]


def test_a_crash_of_the_process_is_one_line(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no end of a stream that was cut is taken for the end of the result."""
    monkeypatch.setattr(
        query_process.pa.ipc.RecordBatchStreamWriter,
        "write_batch",
        lambda *_: os.kill(os.getpid(), signal.SIGKILL),
        raising=False,
    )
    with pytest.raises(LakeError, match=r"^The query's process crashed \(SIGKILL\)\. Simplify the query\.$"):
        read_typed(lake, "from requests")


def test_a_query_ends_with_the_process_that_started_it(lake: Lake) -> None:
    """SIGKILL leaves no query running that nothing watches."""
    reading, writing = os.pipe()
    if (starter := os.fork()) == 0:
        with lake.answer("from range(100_000_000_000)", QueryLimits()) as reader:
            next(iter(reader))
            os.write(writing, min(children()).encode())
            time.sleep(60)
    os.close(writing)
    running = os.read(reading, 100).decode()
    os.kill(starter, signal.SIGKILL)
    os.waitpid(starter, 0)
    for _ in range(100):
        if not Path(f"/proc/{running}").exists() or "Z (" in Path(f"/proc/{running}/status").read_text():
            return
        time.sleep(0.05)
    raise AssertionError("The query runs on.")
