"""Every recipe of sql/queries answers its question: counted once more with pandas, and never empty."""

import re
import shutil
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import recipe_twins_levels  # noqa: F401  they register themselves
import recipe_twins_load  # noqa: F401
import recipe_twins_runs  # noqa: F401
from recipe_lake import PLACE, TRACE_DAY, TWINS, Tables, write_by_hand

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.lake.sql_files import SQL, read_sql
from fleetcast.assets.lake.sql_index import column_meanings, described_view, read_questions, search_index
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.world.project_paths import ROOT


@pytest.fixture(scope="module")
def tables(wired_scored: RunSettings, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    lake = Lake(tmp_path_factory.mktemp("recipes") / "lake")
    shutil.copytree(wired_scored.lake.root, lake.root)
    write_by_hand(lake)
    return Tables(lake)


def test_every_recipe_has_a_twin() -> None:
    assert sorted(TWINS) == sorted(path.stem for path in (SQL / "queries").glob("*.sql"))


@pytest.mark.parametrize("name", TWINS)
def test_a_recipe_answers_what_pandas_counts(tables: Tables, name: str) -> None:
    function, params = TWINS[name]
    sql, found = read_sql(f"queries/{name}.sql"), tables.lake.sql(f"queries/{name}.sql", **params).to_pandas()
    for rows in (found, tables.lake.sql(f"queries/{name}.sql").to_pandas()):
        assert set(sql.columns) <= set(rows.columns)
        assert not rows.duplicated(list(sql.listed("grain"))).any()
    if name != "prefix_caching" and "trace" in found:
        found = found[found["trace"] == "wired"]
    expected = function(tables).reset_index(drop=True)
    grain = [key for key in sql.listed("grain") if key in expected.columns]
    assert len(found) == len(expected) > 0
    both = found.merge(expected, on=grain, suffixes=("", "_twin"), validate="one_to_one")
    assert len(both) == len(found)
    values = [column for column in expected.columns if column not in grain]
    assert values
    for column in values:
        own, theirs = both[column], both[f"{column}_twin"]
        if own.dtype.kind in "if" and theirs.dtype.kind in "if":
            near = {"rtol": 1e-9, "atol": 1e-9}  # a difference of two sums may be 0 or next to it
            np.testing.assert_allclose(own.astype(float), theirs.astype(float), **near, err_msg=column)
        else:
            assert own.fillna("").astype(str).tolist() == theirs.fillna("").astype(str).tolist(), column


@pytest.mark.parametrize("folder", ["reads", "queries", "tables", "checks", "alarms"])
def test_a_name_that_is_not_there_has_no_rows(tables: Tables, folder: str) -> None:
    """Of every file with parameters: each of its conditions holds for every row, and none is left out."""
    there = {**TRACE_DAY, **PLACE, "policy": "lt_ua", "method": "seasonal_naive", "measure": "input_tokens"}
    for path in sorted((SQL / folder).glob("*.sql")):
        file, names = f"{folder}/{path.name}", {*re.findall(r"\$(\w+)", path.read_text())}
        if folder == "tables":  # each that has a trace is read by it
            names |= {"trace"} & {*read_sql(file).columns}
        given = {name: there[name] for name in names if name in there}
        for name in given.keys() - ({"policy"} if path.stem == "plan_page" else set()):  # it has the demand
            absent = date(1999, 1, 1) if name == "day" else "none"
            rows = tables.lake.sql(file, **{**given, name: absent}).to_pylist()
            assert not any(value for row in rows for value in row.values()), (path.name, name)


def test_the_shares_of_a_scoreboard_are_those_of_all_its_scorecard_rows(tables: Tables) -> None:
    board = tables.scoreboard.set_index("policy")
    waiting = tables.scorecard.query("tier != 'niw'")
    for share, met, of in (
        (1 - board["missed_share"], "met", waiting),
        (board["ttft_attainment_share"], "ttft_met", tables.scorecard.dropna(subset="ttft_met")),
    ):
        sums = of.groupby("policy")[[met, "requests", "pending"]].sum().astype(float).reindex(board.index)
        np.testing.assert_allclose(share, sums[met] / (sums["requests"] - sums["pending"]))
    assert tables.scorecard.groupby("policy").size().min() > 2 * len(PLACE)


def test_mean_days_times_their_number_are_all_demand(tables: Tables) -> None:
    """Of requests and of tokens: no weekday has more or less than its days."""
    weekday, demand = tables.load_by_weekday.set_index("tier"), tables.demand
    demand["tokens"] = demand["input_tokens"] + demand["output_tokens"]
    sums = demand.groupby("tier")[["requests", "tokens"]].sum().astype(float)
    for name in sums:
        found = (weekday["days"] * weekday[f"{name}_per_day"]).groupby("tier").sum()
        np.testing.assert_allclose(found, sums[name].reindex(found.index))
    assert len(weekday) >= len(sums) > 1
    assert demand.groupby(["tier", "day"]).size().min() > 1


def test_every_question_of_the_index_has_an_answer(tables: Tables) -> None:
    """In one query each. The lake has no landed or second trace, work left, sampled latencies or promise."""
    empty = {
        name for name, query in read_questions().items() if not tables.lake.sql(query, **TRACE_DAY).num_rows
    }
    marts = {re.search(r"from (\w+)", read_questions()[name]).group(1) for name in empty}
    lacking = {"quality", "silences", "growth", "left_over", "scoreboard_differences", "graded_tiers"}
    assert marts == lacking


def test_the_tasks_of_an_analyst_are_answered_with_the_right_values(tables: Tables) -> None:
    """The five commands of CONTRIBUTING.md: two lists, of which the first line counts, two files, a table."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Tasks of an analyst")[2]
    tasks = re.findall(r"^\| .*\? \| `fleetcast sql (.*?)`(?:, its first line)? \|$", page, re.MULTILINE)
    listed = [search_index(typed[7:])[0].query for typed in tasks if typed.startswith("--list ")]
    others = [typed.strip('"') for typed in tasks if not typed.startswith("--list ")]
    assert (len(listed), len(others)) == (2, 3)
    cost, cheapest = (tables.lake.sql(query, **TRACE_DAY).to_pandas() for query in listed)

    served = tables.outcomes.dropna(subset="e2e_s").rename(columns={"llm": "requested", "served_llm": "llm"})
    served["tokens"] = served["input_tokens"] + served["output_tokens"]
    keys = ["policy", "llm", "served_region"]
    parts = tables.fleet_by_hour.groupby(keys)["usd"].sum(), served.groupby(keys)["tokens"].sum()
    expected = 1e6 * parts[0] / parts[1].reindex(parts[0].index)
    found = cost.set_index(keys)["usd_per_million_tokens"]
    np.testing.assert_allclose(found.to_numpy(float), expected.reindex(found.index).to_numpy(float))
    assert len(found) == len(expected) > 10

    board = tables.scoreboard[(tables.scoreboard["attainment_share"] >= 0.95)]
    board = board[~board["policy"].str.startswith("clairvoyant")].sort_values("usd")
    assert cheapest["usd"].tolist() == board["usd"].tolist()
    assert dict(zip(cheapest["policy"], cheapest["usd"], strict=True)) == dict(
        zip(board["policy"], board["usd"], strict=True)
    ), "policies that cost the same come in any order"

    *files, described = others
    assert [Path(file).stem for file in files] == ["why_late", "who_drove_the_peak"]
    assert {Path(file).stem for file in files} <= TWINS.keys()  # their values: the test above
    columns = tables.lake.sql(described).to_pydict()["column_name"]
    meanings = dict(zip(columns, column_meanings(described_view(described), columns), strict=True))
    assert meanings["usd_per_million_tokens"] == "cost per million tokens; null without tokens"
    assert meanings["policy"] == "the scaling policy"
    assert list(meanings) == tables.unit_cost.columns.tolist()


@pytest.mark.parametrize("folder", ["tables", "marts"])
def test_headers_describe_existing_columns(tables: Tables, folder: str) -> None:
    with tables.lake.connect() as con:
        views = con.execute(
            "select table_name, list(column_name) from duckdb_columns() group by all"
        ).fetchall()
    there = dict(views)
    for sql in (read_sql(path) for path in (SQL / folder).glob("*.sql")):
        name = sql.name.removesuffix(".sql")
        assert {*sql.columns, *sql.listed("grain")} <= set(there[name]), name
        for table, column in (pair for pairs in sql.made_from.values() for pair in pairs):
            assert column in there[table], f"{name}: {table}.{column}"
