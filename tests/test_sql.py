"""The headers of sql/ are true: every file reads what it says, and has the grain that it says."""

import ast
import re
from datetime import UTC, date, datetime, timedelta
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fleetcast.assets.demand.demand import build_demand
from fleetcast.assets.lake import sql_docs
from fleetcast.assets.lake.schemas import PARTITIONS, SCHEMAS, table_header_path
from fleetcast.assets.lake.sql_files import SQL, SqlFile, read_sql
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.request_days import canonical_requests
from fleetcast.models.traffic.synthetic_days import office_day
from fleetcast.models.traffic.trace_columns import TraceNames
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.project_paths import ROOT

FILES = sorted(str(path.relative_to(SQL)) for path in SQL.rglob("*.sql"))
GRAINLESS = {  # macros and updates
    *(f"macros/{name}.sql" for name in ("slo", "forecast_losses", "may_wait", "decision_id", "is_inside")),
    *("macros/student_half_width.sql", "macros/sustained_by_plan.sql"),
    *(f"staging/{name}.sql" for name in ("mapping", "clock", "tiers", "patterns", "duplicates")),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake of two small generated days with their demand."""
    catalogue = load_catalogue()
    trace = load_config("sageserve", catalogue).trace
    names = TraceNames.of(catalogue)
    lake = Lake(tmp_path_factory.mktemp("lake"))
    for day in (trace.first_day, trace.first_day + timedelta(days=1)):
        columns = office_day(trace.office, day, trace.seed, names)
        few = columns._make(column[::100] for column in columns)
        rows = canonical_requests(few, day, "office", catalogue, list(trace.office.apps))
        lake.write("requests", rows, trace="office", day=day)
        build_demand(lake, "office", day)
    return lake


def relations(sql: SqlFile) -> set[str]:
    """What stands behind from and join, or in a macro there, without what the file defines itself."""
    code = re.sub(r"--.*|'[^']*'|distinct from", "", sql.text)
    named = re.findall(r"(\w+)\s+as\s+(?:not materialized\s+)?\(", code)
    found = set(re.findall(r"\b(?:from|join)\s+(\w+)\b(?!\s*\()", code)) - set(named)
    called = (SQL / "macros" / f"{name}.sql" for name in re.findall(r"\b(?:from|join)\s+(\w+)\(", code))
    return found.union(
        *(relations(read_sql(path)) for path in called if path.exists() and path.stem != sql.stem)
    )


@pytest.mark.parametrize("name", FILES)
def test_every_file_has_a_true_header(name):
    sql = read_sql(name)
    assert len(sql.sentence) > 20
    assert relations(sql) == set(sql.listed("reads"))
    if name not in GRAINLESS:
        assert sql.listed("grain")
        assert sql.fields["units"]


@pytest.mark.parametrize("name", [name for name in FILES if "outcomes" in read_sql(name).listed("reads")])
def test_the_quantiles_of_all_requests_are_of_one_aggregate(name: str) -> None:
    """Each aggregate keeps all its values: of two million requests and 13 policies, five did not fit."""
    found = re.findall(r"(quantile_\w+|percentiles)\((\w+), [^)]*\)( filter \(.*\) as)?", read_sql(name).text)
    assert len(found) == len(set(found))


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("queries/")])
def test_a_query_of_days_filters_by_the_given_one(name: str) -> None:
    sql = read_sql(name)
    if {"trace", "day"} <= {*sql.listed("grain")}:
        assert {"$trace", "$day"} <= {*re.findall(r"\$\w+", sql.text)}


def test_no_sql_of_more_than_three_lines_stands_in_python() -> None:
    """It stands in sql/; only the query over a landed file is put together, from that file's columns."""
    found = []
    for path in [*ROOT.glob("[amp]*s/**/*.py")]:
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            first = node.values[0] if isinstance(node, ast.JoinedStr) else node
            value = str(getattr(first, "value", "")).lstrip()
            if isinstance(first, ast.Constant) and re.match(r"(select|with|from)\s", value):
                lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
                is_long = len([line for line in lines if line.strip(' "')]) - lines[0].endswith('= """') > 3
                found += [f"{path.name}:{node.lineno}"] * (is_long and path.name != "landed_rows.py")
    assert found == []


def test_the_grain_of_demand_is_unique_and_its_columns_exist(lake):
    sql = read_sql("marts/demand.sql")
    rows = lake.sql("marts/demand.sql", trace="office", day=date(2025, 7, 1)).to_pandas()
    assert len(rows) > 0
    assert not rows.duplicated(list(sql.listed("grain"))).any()
    assert set(sql.columns) == set(rows.columns)


def test_the_ids_of_a_generated_trace_rise_with_its_arrivals(lake):
    arrived = lake.sql("select request_id, arrived_at from requests order by request_id").to_pandas()
    assert arrived["request_id"].is_unique
    assert arrived["arrived_at"].is_monotonic_increasing
    assert arrived["arrived_at"].dt.date.nunique() == 2


@pytest.mark.parametrize("minutes", [1, 5, 15, 60])
def test_the_grain_of_demand_by_is_unique_and_conserves(lake, minutes):
    rows = lake.sql("select * from demand_by($minutes)", minutes=minutes).to_pandas()
    assert not rows.duplicated(list(read_sql("macros/demand_by.sql").listed("grain"))).any()
    assert (rows["bucket_start"].dt.minute % min(minutes, 60) == 0).all()
    totals = lake.sql(
        "select count(*) as n, sum(input_tokens)::bigint as i, sum(output_tokens)::bigint as o from requests"
    ).to_pylist()[0]
    sums = rows[["requests", "input_tokens", "output_tokens"]].sum().tolist()
    assert sums == list(totals.values())
    series = lake.sql("select * from demand_series($minutes)", minutes=minutes).to_pandas()
    assert series[["requests", "input_tokens", "output_tokens"]].sum().tolist() == list(totals.values())
    assert not series.duplicated(["trace", "llm", "region", "tier", "bucket_start"]).any()


def test_a_share_of_nothing_is_null_and_every_other_one_the_quotient(lake):
    """The macros that divide, over all small numbers."""
    rows = lake.sql(
        "select part, whole, wape_share(part::double, whole::double) as wape, "
        "attainment_share(part, whole + 2, 2) as attained, "
        "distance_share(part::double, whole::double) + 1 as distance "
        "from range(5) as parts(part), range(5) as wholes(whole)"
    ).to_pandas()
    expected = rows["part"] / rows["whole"].where(rows["whole"] > 0)
    for name in ("wape", "attained", "distance"):
        np.testing.assert_allclose(rows[name].astype(float), expected, err_msg=name)


def test_checks_of_requests_and_demand_pass_and_can_fail(lake, tmp_path):
    checks = ["demand_conserves_tokens", "requests_are_valid", "request_ids_are_unique", "rows_are_conserved"]
    for check in checks:
        assert lake.sql(f"checks/{check}.sql").num_rows == 0
    broken = Lake(tmp_path)
    day = date(2025, 7, 1)
    rows = lake.read("requests", trace="office", day=day).drop_columns(["trace", "day"])
    demand = lake.read("demand", trace="office", day=day).drop_columns(["trace", "day"])
    broken.write("requests", rows, trace="t", day=day + timedelta(days=1))  # in the folder of another day
    broken.write("requests", rows, trace="t", day=day)  # and so every id twice
    broken.write("demand", demand.slice(1), trace="t", day=day)
    assert broken.sql("checks/requests_are_valid.sql").num_rows == rows.num_rows
    assert broken.sql("checks/request_ids_are_unique.sql", trace="t").num_rows == rows.num_rows
    assert broken.sql("checks/demand_conserves_tokens.sql", trace="t", day=day).num_rows == 1
    assert broken.sql("checks/demand_conserves_tokens.sql", trace="other").num_rows == 0


OWN_UNIT = re.compile(r"(^|_)(s|usd|share|ratio|tokens|gpus|hours|w|requests)$|_per_")  # a name that says it


@pytest.mark.parametrize("table", PARTITIONS)
def test_every_column_of_the_lake_has_its_meaning_and_its_unit(table: str) -> None:
    sql = read_sql(table_header_path(table))
    assert sql.listed("grain")
    assert all(len(meaning) > 1 for meaning in sql.columns.values())
    assert set(sql.columns) - set(sql.types) <= {*PARTITIONS[table]} or table not in SCHEMAS
    named = re.findall(r"[\w*]+", sql.fields["units"])
    for column, kind in sql.types.items():
        has_unit = OWN_UNIT.search(column) or any(fnmatch(column, pattern) for pattern in named)
        assert has_unit or kind != "double", f"{table}.{column}: name its unit in the line of units"


def test_the_index_is_up_to_date_and_has_every_file_once():
    page = sql_docs.render_sql_index()
    has_unit = "run: python -m fleetcast.assets.lake.sql_docs"
    assert sql_docs.SQL_INDEX.read_text(encoding="utf-8") == page, has_unit
    folders = (*sql_docs.SQL_FILE_KINDS, "checks", "alarms")
    listed = re.findall(rf"^\| \[\w+\]\(((?:{'|'.join(folders)})/\w+\.sql)\)", page, re.MULTILINE)
    assert sorted(listed) == [name for name in FILES if name.split("/")[0] in folders]


def test_growth_compares_a_week_that_has_only_begun_with_the_same_hours_a_week_earlier(tmp_path):
    """Nine days: 10 requests an hour on the first Monday, 15 on the second, 1 on any other day."""
    lake, monday = Lake(tmp_path), datetime(2025, 7, 7, tzinfo=UTC)
    keys = {
        **dict.fromkeys(("region", "llm"), "a"),
        "tier": "niw",
        "app": "rag",
        "input_tokens": 1,
        "output_tokens": 1,
    }
    for n in range(9):
        counts = {0: 10, 7: 15}.get(n, 1)
        rows = [
            keys | {"bucket_start": monday + timedelta(days=n, hours=hour), "requests": counts}
            for hour in (range(24) if n < 8 else range(6))  # the last day has only begun
        ]
        day = (monday + timedelta(days=n)).date()
        lake.write("demand", pa.Table.from_pylist(rows, SCHEMAS["demand"]), trace="t", day=day)
    (row,) = lake.sql("queries/growth_by_week.sql").to_pylist()
    assert (row["compared_hours"], row["requests"], row["requests_before"]) == (30, 24 * 15 + 6, 24 * 10 + 6)
    assert row["growth_share"] == pytest.approx(366 / 246 - 1)


def test_a_new_format_is_one_file(lake, tmp_path, monkeypatch):
    """A format that is not known here lands with an SQL file alone."""
    from fleetcast.assets.traces import ingest, trace_formats

    catalogue = load_catalogue()
    folder = tmp_path / "sql"
    (folder / "sources").mkdir(parents=True)
    (folder / "sources" / "tiny.sql").write_text(
        "-- A format of three columns, made up for this test.\n-- reads: source\n-- format: csv\n"
        "-- recognised by: when, in, out\n"
        'select row, complaint, dice as request_id, try_cast("when" as timestamptz) as arrived_at,\n'
        "'east' as region, mapped('llm', dice) as llm, 'niw' as tier, null as app,\n"
        'whole("in") as input_tokens, whole("out") as output_tokens, null::double as deadline_s from source\n'
    )
    monkeypatch.setattr(trace_formats, "SQL", folder)
    monkeypatch.setattr(
        trace_formats, "read_sql", lambda path: read_sql(path if Path(path).is_absolute() else folder / path)
    )
    (tmp_path / "trace.csv").write_text("out,when,in\n7,2024-05-06 10:00:00+02:00,8\n")
    target = Lake(tmp_path / "lake")
    report = ingest.ingest_file(tmp_path / "trace.csv", target, catalogue)
    assert (report.format, report.rows_kept) == ("tiny", 1)
    row = target.read("requests").to_pylist()[0]
    assert (row["input_tokens"], row["output_tokens"], row["arrived_at"].hour, row["app"]) == (
        8,
        7,
        8,
        "unknown",
    )
