"""A lake on s3://, against a server that speaks S3: the same bytes, nothing lost, a line for what fails."""

import asyncio
import contextlib
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import s3_server
import wired

from fleetcast.assets.forecasts.forecasts import forecast_day
from fleetcast.assets.lake import bucket_objects, query_days
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.query_limits import QueryLimits
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.stage_cache import rebuild_if_changed
from fleetcast.assets.lake.store import remove_tree
from fleetcast.assets.lake.warehouse import Lake, one_line_errors
from fleetcast.assets.pages.figure_files import draw_day_figures, figure_thumbnail
from fleetcast.assets.plans import measured_capacity, plans
from fleetcast.assets.replays.nightly_replays import begin_units, end_units, replay_missing_policies
from fleetcast.assets.replays.replay_figures import REPLAY_DRAWINGS
from fleetcast.assets.replays.scorecards import score_day
from fleetcast.assets.studies.study import share_tables
from fleetcast.assets.traces.ingest import ingest_file
from fleetcast.models.world.catalogue import load_catalogue

AWAY_S = 3.0
AGAIN = r"was written anew or removed while in use\. Run it again"
POLICIES = ("lt_ua", "reactive")
LAND = """
import sys
from pathlib import Path
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.ingest import ingest_file
from fleetcast.models.world.catalogue import load_catalogue
lake, catalogue = Lake(sys.argv[2]), load_catalogue()
print("ready", flush=True)
sys.stdin.readline()
ingest_file(Path(sys.argv[1]), lake, catalogue)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[s3_server.Server]:
    """One for all tests of this file; each has a lake of its own there."""
    if s3_server.LACKING:
        pytest.skip(s3_server.SKIPPED)
    from fleetcast.assets.lake.bucket import Bucket

    with s3_server.serving(AWAY_S) as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environ.items():
            patch.setenv(name, value)
        yield running
    Bucket.clear_instance_cache()


@pytest.fixture
def lake(server: s3_server.Server, request: pytest.FixtureRequest) -> Lake:
    """An empty one."""
    return Lake(f"s3://{s3_server.BUCKET}/{request.node.originalname}{hash(request.node.name)}")


def rows(count: int) -> pa.Table:
    """Of demand."""
    whole = {name: range(count) for name in ("requests", "input_tokens", "output_tokens")}
    named = {name: ["x"] * count for name in ("region", "llm", "tier", "app")}
    return pa.table({**whole, **named, "bucket_start": [datetime(2025, 7, 1, tzinfo=UTC)] * count})


def one_day(day: int = 1) -> dict[str, object]:
    """A partition."""
    return {"trace": "t", "day": date(2025, 7, day)}


def files(lake: Lake) -> dict[str, bytes]:
    """Everything below the root, but notes of this machine."""
    found = ((lake.below(path), path) for path in lake.root.rglob("*") if path.is_file())
    return {name: path.read_bytes() for name, path in found if not name.startswith(".")}


# --- the same ------------------------------------------------------------------------------------------


def night(root: Path | str) -> RunSettings:
    """Three small days of wired.toml, and the last one from its requests to the scoreboard."""
    settings = wired.changed(wired.wired_settings(root), "replay", policies=POLICIES)
    settings = wired.fill(wired.changed(settings, "plan", solver="highs", together=False))
    settings = settings.with_config(policies={})  # fewer plans
    forecast_day(settings, wired.DAY, Progress())
    for again in (False, True):
        with rebuild_if_changed(settings, "plans", wired.DAY) as is_needed:
            assert is_needed is not again
            if is_needed:
                plans.plan_day(settings, wired.DAY, Progress())
    for unit in begin_units(settings, wired.DAY):
        replay_missing_policies(settings, wired.DAY, unit, Progress())
    end_units(settings, wired.DAY)
    score_day(settings, wired.DAY)
    settings.lake.publish()
    return settings


def test_a_night_in_a_bucket_is_the_night_on_a_disk(lake, tmp_path, monkeypatch):
    monkeypatch.setattr(wired, "REQUESTS", 6000)
    monkeypatch.setattr(measured_capacity, "measure_capacities", lambda *_: list(wired.SUSTAINED))
    here, there = night(tmp_path / "lake"), night(str(lake.root))
    mine, theirs = files(here.lake), files(there.lake)
    assert set(mine) == set(theirs)
    others = {name for name in mine if mine[name] != theirs[name]}
    assert others == {"warehouse.duckdb", f"made_from/wired/{wired.DAY}/plans"}  # paths, ETags
    assert len([name for name in mine if name.endswith(".parquet")]) > 12
    board = f"from scoreboard where day = date '{wired.DAY}' order by all"
    expected = here.lake.sql(board)
    monkeypatch.setattr(query_days, "FEW_DAYS", 0)  # so that only the files of the day are opened
    assert there.lake.sql(board) == expected
    cdf = {"ttft_cdf": REPLAY_DRAWINGS["ttft_cdf"]}
    drawn = [draw_day_figures(settings, wired.DAY, cdf)["ttft_cdf"] for settings in (here, there)]
    assert str(drawn[1]) == f"s3://fleet/figures/wired/{wired.DAY}/ttft_cdf.png"
    assert figure_thumbnail(drawn[0]) == figure_thumbnail(drawn[1])
    with there.lake.answer("from fleet_by_hour", QueryLimits()) as answer:
        assert sum(batch.num_rows for batch in answer) > 0
    copied = Lake(tmp_path / "copied")
    share_tables(there.lake, copied, ("demand", "plans"))
    assert copied.read("plans") == here.lake.read("plans")


def test_an_analyst_reads_what_was_published(lake, tmp_path):
    lake.write("demand", rows(3), **one_day())
    path = lake.publish()
    (tmp_path / "warehouse.duckdb").write_bytes(path.read_bytes())
    with duckdb.connect(str(tmp_path / "warehouse.duckdb"), read_only=True) as con:
        con.register_filesystem(lake.root.fs.snapshot())
        lake.write("demand", rows(2), **one_day(2))
        assert con.execute("select count(*) from demand").fetchall() == [(5,)]


def test_a_long_listing_is_read_to_its_end(lake, monkeypatch):
    from fleetcast.assets.lake import bucket

    monkeypatch.setattr(bucket, "LISTING_PAGE_KEYS", 2)
    for day in range(1, 6):
        lake.write("demand", rows(day), **one_day(day))
    lake.write("demand", rows(1), trace="u", day=date(2025, 7, 1))
    assert [day.day for day in lake.days("demand", "t")] == [1, 2, 3, 4, 5]
    assert len(lake.marks("demand")) == 6
    assert {path.name for path in (lake.root / "demand").glob("*")} == {"trace=t", "trace=u"}
    assert lake.sql("select count(*) as n from demand where trace = 't'")["n"].to_pylist() == [15]
    neighbour = Lake(lake.root / "neighbour")
    share_tables(lake, neighbour, ("demand",))
    assert neighbour.marks("demand") == lake.marks("demand")
    remove_tree(lake.root / "demand")
    assert (lake.files("demand"), neighbour.count("demand")) == ([], 16)


# --- nothing lost --------------------------------------------------------------------------------------


class Overtaken(Lake):
    """Publishes while another one, with a table that was not there when this one looked, publishes too."""

    looks = 0

    def _write_views(self, file: Path) -> None:
        super()._write_views(file)
        self.looks += 1
        if self.looks == 1:
            other = Lake(self.root)
            other.write("demand", rows(3), **one_day())
            other.publish()


def test_a_slower_publisher_hides_no_table_of_a_faster_one(lake, tmp_path):
    for looks in (2, 1):
        slow = Overtaken(lake.root)
        slow.looks = 2 - looks
        slow.publish()
        assert slow.looks == 2
    (tmp_path / "views").write_bytes((lake.root / "warehouse.duckdb").read_bytes())
    with duckdb.connect(str(tmp_path / "views"), read_only=True) as con:
        con.register_filesystem(lake.root.fs.snapshot())
        assert con.execute("select count(*) from demand").fetchall() == [(3,)]


def test_two_processes_land_into_one_day_and_lose_nothing(lake, tmp_path):
    paths = [tmp_path / f"part_{n}.csv" for n in range(2)]
    for n, path in enumerate(paths):
        lines = (f"2024-05-06 10:{n:02d}:{at:02d}.{n}00000,{100 + at},{10 + n}\n" for at in range(20))
        path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(lines))
        path.with_suffix(".toml").write_text('trace = "split"\n')
    command = [sys.executable, "-c", LAND, str(paths[0]), str(lake.root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "ready\n"
        other.stdin.write("go\n")
        other.stdin.close()
        ingest_file(paths[1], lake, load_catalogue())
        assert other.wait(60) == 0
    assert lake.count("requests", trace="split") == 40
    assert len(lake.files("ingests", trace="split")) == 2


def sum_after(con: duckdb.DuckDBPyConnection, change: Callable[[], object]) -> None:
    """A query over a table that changes after it was looked at."""
    with one_line_errors("The query"):
        change()
        con.execute("select sum(requests) from demand").fetchall()


def test_an_object_is_read_as_it_was_or_not_at_all(lake):
    path = lake.root / "large"
    path.write_bytes(b"a" * (3 << 20))
    with path.open("rb") as file:
        path.write_bytes(b"b" * (3 << 20))
        with pytest.raises(LakeError, match=AGAIN):
            file.read()
    noise = pa.array(np.random.default_rng(0).integers(0, 1 << 60, 200_000))
    large = rows(len(noise)).set_column(0, "requests", noise)
    for change in (lake.write, lambda *_, **where: lake.path("demand", **where).unlink()):
        lake.write("demand", large, **one_day())
        with lake.connect() as con, pytest.raises(LakeError, match=AGAIN):
            sum_after(con, partial(change, "demand", large.slice(1), **one_day()))
    path.write_bytes(bytes(range(256)) * (12 << 10))
    with path.open("rb") as file:
        for at, size in ((0, 7), (700, 300), (2 << 20, 9), ((2 << 20) - 3, 11), ((3 << 20) - 5, 99)):
            file.seek(at)
            assert file.read(size) == (bytes(range(256)) * (12 << 10))[at : at + size]
    with contextlib.suppress(KeyError), (lake.root / "half").open("wb") as file:
        file.write(b"half of it")
        raise KeyError
    assert not (lake.root / "half").exists()
    (lake.root / "empty").write_bytes(b"")
    assert (lake.root / "empty").read_bytes() == b""
    (lake.root / "empty").write_bytes(b"no more")
    assert (lake.root / "empty").read_bytes() == b"no more"


def test_a_tail_is_requested_once_for_each_text_of_an_object(monkeypatch):
    """In any order of reads; the tails that are kept take no more than the capacity."""
    monkeypatch.setattr(bucket_objects, "TAIL_CACHE", bucket_objects.TailCache())
    monkeypatch.setattr(bucket_objects, "TAIL_CACHE_BYTES", 50)
    rng, requested, kept = np.random.default_rng(1), list[tuple[str, str]](), list[tuple[str, str]]()
    texts = {(path, etag): (path + etag).encode() * 5 for path in "ab" for etag in "12345"}  # ten bytes each
    present = {"a": "1", "b": "1"}

    def get_range(path: str, part: str, etag: str) -> tuple[bytes, int, str]:
        requested.append((path, present[path]))
        assert etag in ("", present[path])
        return texts[path, present[path]], 10, present[path]

    bucket = SimpleNamespace(_strip_protocol=str, get_range=get_range)
    for _ in range(300):
        path = str(rng.choice(["a", "b"]))
        present[path] = str(rng.integers(1, 6))
        key, before = (path, present[path]), len(requested)
        is_known = bool(rng.integers(0, 2))
        reader = bucket_objects.ObjectReader(bucket, path, present[path] if is_known else "", 10)
        assert reader.read() == texts[key]
        assert len(requested) - before == (not is_known or key not in kept)
        kept = [*(one for one in kept if one != key), key][-5:]
        assert bucket_objects.TAIL_CACHE.bytes == 10 * len(kept)


# --- one line ------------------------------------------------------------------------------------------


def test_without_the_client_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(LakeError, match=r"s3://fleet/x needs s3fs, .* pip install 'fleetcast\[cluster\]'"):
        Lake(Path("s3://fleet/x"))


@pytest.mark.parametrize("root", ["gs://fleet/x", "s3://", "S3:/"])
def test_only_folders_and_s3_hold_a_lake(root):
    with pytest.raises(LakeError, match=f"in a folder or under s3://BUCKET/NAME, got '{root}'"):
        Lake(root)


def test_a_bucket_that_is_not_there_is_not_made(server, lake):
    for _ in range(2):
        lake.root.fs.mkdir("nobodys/lake", create_parents=True)
        with pytest.raises(LakeError, match=r"There is no bucket 'nobodys'\. Make it, or name another"):
            Lake("s3://nobodys/lake")


def test_a_wrong_key_is_no_empty_lake(server, lake):
    lake.write("demand", rows(3), **one_day())
    with_auth(server, "0")
    try:
        calls: list[Callable[[], object]] = [
            partial(Lake, lake.root),
            partial(lake.sql, "from demand"),
            partial(lake.is_made_from, "demand", "it", **one_day()),
            (lake.root / "note").is_file,
            partial(lake.write, "demand", rows(1), **one_day()),
        ]
        for ask in calls:
            with pytest.raises(
                LakeError, match=r"s3://fleet refuses the key \(.*\)\. Renew AWS_ACCESS_KEY_ID"
            ):
                ask()
    finally:
        with_auth(server, "inf")
    assert lake.count("demand") == 3


def with_auth(server: s3_server.Server, from_request: str) -> None:
    """Have the server ask for a key that it knows, from some request on."""
    plain = {"Content-Type": "text/plain"}
    calls = urllib.request.Request(f"{server.url}/moto-api/reset-auth", from_request.encode(), plain)
    urllib.request.urlopen(calls, timeout=10).close()


def test_a_full_bucket_keeps_what_was_there(server, lake):
    lake.write("demand", rows(3), **one_day())
    server.set_full(True)
    try:
        for write in (partial(lake.write, "demand", rows(1), **one_day()), lake.publish):
            with pytest.raises(LakeError, match=r"is full \(QuotaExceeded: .* earlier data is kept"):
                write()
    finally:
        server.set_full(False)
    assert lake.count("demand") == 3


@pytest.mark.parametrize("away_s", [29.0, float("inf")])
def test_requests_are_repeated_for_half_a_minute(away_s, monkeypatch):
    """On a clock that only waits move: the last wait may end 2 s after the 30 s."""
    from fleetcast.assets.lake import bucket

    clock_s = [0.0]

    async def wait(wait_s):
        clock_s[0] += wait_s

    async def request():
        if clock_s[0] < away_s:
            raise ConnectionError
        return "answer"

    monkeypatch.setattr(bucket, "time", SimpleNamespace(monotonic=lambda: clock_s[0]))
    monkeypatch.setattr(bucket, "asyncio", SimpleNamespace(sleep=wait))
    work = bucket.Bucket._with_retries(None, request, "fleet")
    if away_s < 30:
        assert asyncio.run(work) == "answer"
        return
    with pytest.raises(LakeError, match="did not answer for 30 s"):
        asyncio.run(work)
    assert 30 < clock_s[0] <= 32


def test_a_store_that_is_away_is_waited_for_and_not_for_ever(server, lake, monkeypatch):
    from fleetcast.assets.lake import bucket

    monkeypatch.setattr(bucket, "RETRY_FOR_S", 0.5)
    server.leave()
    with pytest.raises(LakeError, match=r"s3://fleet did not answer for .* Run again when it does"):
        (lake.root / "note").is_file()
    monkeypatch.undo()
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)
    lake.write("demand", rows(3), **one_day())  # while no process listens yet
    assert lake.count("demand") == 3
