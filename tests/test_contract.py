"""The marts' contract equals their headers and breaks where a meaning changes; Rill's project runs."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from rill_schemas import faults

from fleetcast.assets.lake import contract as contracts
from fleetcast.assets.lake.contract import (
    CONTRACT_FILE,
    build_contract,
    check_or_write_contract,
    contract_violations,
    read_contract,
    renew_contract,
)
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.rill_project import write_rill_project
from fleetcast.assets.lake.shared_columns import RENAMED_COLUMNS, load_shared_columns
from fleetcast.assets.lake.sql_files import SQL, read_sql
from fleetcast.assets.lake.warehouse import Lake

Change = Callable[[dict[str, Any]], object]


def mart(of: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in of["schema"] if one["name"] == name)


def column(of: dict[str, Any], mart_name: str, name: str) -> dict[str, Any]:
    return next(one for one in mart(of, mart_name)["properties"] if one["name"] == name)


def test_the_contract_equals_the_headers() -> None:
    promised = read_contract(CONTRACT_FILE)
    now = build_contract(promised["version"])
    assert contract_violations(promised, now) == [], "run python -m fleetcast.assets.lake.contract"
    assert promised == now, "run python -m fleetcast.assets.lake.contract"
    own = mart(now, "regret")["properties"]
    keys = {one["name"]: one["primaryKeyPosition"] for one in own if "primaryKey" in one}
    assert keys == {"trace": 1, "day": 2, "policy": 3}


def test_a_column_name_has_one_definition() -> None:
    """In all marts and tables: that of sql/columns.toml and what one of them adds, or the same text."""
    shared, of = load_shared_columns(), dict[str, dict[str, str]]()
    for one in build_contract()["schema"]:
        for entry in one["properties"]:
            of.setdefault(entry["name"], {})[one["name"]] = entry.get("description", "")
    for path in (SQL / "tables").glob("*.sql"):
        for name, text in read_sql(path).columns.items():
            of.setdefault(name, {})[f"tables/{path.stem}"] = text
    for name, texts in of.items():
        more = r"([,;:]? .*)?$" if name in shared else "$"
        same = re.compile(re.escape(shared.get(name, min(texts.values()))) + more)
        assert [where for where, text in texts.items() if not same.match(text)] == [], f"{name}: {texts}"
    assert [name for name in shared if len(of.get(name, {})) < 2] == [], "no shared columns"
    assert of["served_region"].keys() >= {"fleet_by_hour", "all_plans", "advice", "unit_cost", "buying_list"}
    assert of["region"].keys() & of["served_region"].keys() == {"tables/outcomes"}
    old = [name.partition(".") for name in RENAMED_COLUMNS if "." in name]
    assert [name for name, _, was in old if {name, f"tables/{name}"} & {*of.get(was, {})}] == []


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("select region, sum(usd) from plans group by region", "the instances are is served_region"),
        (
            "from fleet_by_hour join demand using (trace, day, llm, region)",
            "the instances are is served_region",
        ),
        ("select whole_usd from planner_board", "In planner_board it is constraint_usd"),
        ("select share from token_cdf", "In token_cdf it is cumulated_share"),
        ("select status from all_plans", "In all_plans it is solver_status"),
        ("select rule from tier_verdicts", "In tier_verdicts it is tier_rule"),
        ("select usd from lateness", r"Candidate bindings: [^.]*\.$"),
    ],
)
def test_old_names_of_columns_get_a_hint(tmp_path: Path, query: str, hint: str) -> None:
    with pytest.raises(LakeError, match=hint):
        Lake(tmp_path / "lake").sql(query)


@pytest.mark.parametrize(
    ("change", "message", "version"),
    [
        (lambda c: column(c, "regret", "usd").update(description="euros"), "regret.usd: descr", "3.0.0"),
        (lambda c: column(c, "regret", "usd").update(physicalType="DATE"), "regret.usd: physical", "3.0.0"),
        (lambda c: mart(c, "regret").update(description="Units: EUR."), "regret: what it is, or", "3.0.0"),
        (lambda c: mart(c, "regret").update(dataGranularityDescription="day"), "regret: its grain", "3.0.0"),
        (lambda c: mart(c, "regret")["properties"].append({"name": "eur"}), "regret.eur is gone.", "3.0.0"),
        (lambda c: c["schema"].append({"name": "old", "properties": []}), "old is gone.", "3.0.0"),
        (lambda c: mart(c, "regret")["properties"].pop(), None, "2.2.0"),
        (lambda c: None, None, "2.1.5"),
    ],
)  # fmt: skip
def test_a_changed_meaning_breaks_the_contract(
    change: Change, message: str | None, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The contract is changed here; this equals a change of the lake."""
    now = build_contract("2.1.5")
    monkeypatch.setattr(contracts, "build_contract", lambda of="1.0.0": {**copy.deepcopy(now), "version": of})
    promised = copy.deepcopy(now)
    change(promised)
    lines = contract_violations(promised, now)
    assert len(lines) == (0 if message is None else 1)
    assert all(line.startswith(str(message)) for line in lines)
    assert renew_contract(promised)["version"] == version


def test_a_consumer_can_check_its_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    relied = dict(read_contract(CONTRACT_FILE))
    column(relied, "scoreboard", "usd")["physicalType"] = "DECIMAL"
    (tmp_path / "mine.yaml").write_text(yaml.dump(relied, Dumper=yaml.CSafeDumper))
    assert check_or_write_contract([str(CONTRACT_FILE)]) == 0
    assert check_or_write_contract([str(tmp_path / "mine.yaml")]) == 1
    assert "scoreboard.usd: physicalType was 'DECIMAL', is 'DOUBLE'." in capsys.readouterr().out
    (tmp_path / "other.yaml").write_text("id: another")
    with pytest.raises(ValueError, match=r"^other\.yaml is no contract of fleetcast's marts\."):
        read_contract(tmp_path / "other.yaml")


def test_rill_accepts_the_project(tmp_path: Path) -> None:
    """Its parser accepts it; and a fault is found."""
    write_rill_project(Lake(tmp_path / "lake"), tmp_path)
    assert faults(tmp_path) == []
    view, model = tmp_path / "metrics" / "energy_metrics.yaml", tmp_path / "models" / "rows_of_energy.sql"
    for path, old, new, message in (
        (view, "measures:", "measure:", "energy_metrics.yaml has the key measure"),
        (view, "name: sum_joules\n", "name: rows\n", "rows is there twice"),
        (view, "model: rows_of_energy", "model: energy", "of no model: energy"),
        (model, "lake.energy", "lake.rows_of_energy", "refers to the model rows_of_energy"),
        (model, "from", "form", "is no select"),
        (tmp_path / "dashboards" / "energy.yaml", "energy_metrics", "energy", "energy.yaml: of no view"),
        (tmp_path / "rill.yaml", "compiler", "compilers", "rill.yaml has the key compilers"),
    ):
        text = path.read_text()
        assert old in text, old
        path.write_text(text.replace(old, new, 1))
        assert any(message in fault for fault in faults(tmp_path)), message
        path.write_text(text)


def test_rill_s_models_and_measures_can_be_queried(tmp_path: Path) -> None:
    """As Rill queries them: an attached read-only warehouse, each measure over its model."""
    lake = Lake(tmp_path / "lake")
    where = {"trace": "none", "day": "2025-01-01"}
    for table in ("demand", "scorecard"):
        lake.write(table, lake.sql(f"marts/{table}.sql", **where), **where)
    lake.publish()
    shown = write_rill_project(lake, tmp_path / "rill")
    assert {"scoreboard", "graded_shadow", "energy"} <= set(shown)
    connector = yaml.safe_load((tmp_path / "rill" / "connectors" / "duckdb.yaml").read_text())
    with duckdb.connect() as con:
        con.execute(connector["init_sql"])
        for name in shown:
            model = tmp_path / "rill" / "models" / f"rows_of_{name}.sql"
            con.execute(f"create view {name} as (select * from ({model.read_text()}))")
            view = yaml.safe_load((tmp_path / "rill" / "metrics" / f"{name}_metrics.yaml").read_text())
            expressions = [*(one["expression"] for one in view["measures"])]
            con.execute(f"select {', '.join(expressions)} from {name}").fetchall()
            named = [one["column"] for one in view["dimensions"]] + [view.get("timeseries", "1")]
            con.execute(f"select {', '.join(named)} from {name}").fetchall()
    board = yaml.safe_load((tmp_path / "rill" / "metrics" / "scoreboard_metrics.yaml").read_text())
    how = {one["name"] for one in board["measures"]}
    assert {"sum_usd", "sum_gpu_hours", "avg_ttft_p95_s"} <= how
    assert board["timeseries"] == "day"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"full is no Rill project and not empty\. Name another folder"):
        write_rill_project(lake, tmp_path / "full")
