"""A Rill project over the published lake: model, metrics view and dashboard of each mart, from its header.

What names the rows of a mart is a dimension, as every text is; counts, money and GPU-hours are summed, any
other figure is averaged over what is shown. Time is the first instant of the mart, else its day.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fleetcast.assets.lake.contract import mart_column_types
from fleetcast.assets.lake.sql_files import SQL, read_sql
from fleetcast.assets.lake.warehouse import Lake

NUMBER_TYPES = ("BIGINT", "INTEGER", "UBIGINT", "HUGEINT", "DOUBLE", "FLOAT")
TIME_TYPES = ("TIMESTAMP WITH TIME ZONE", "DATE")
SUMMED_SUFFIXES = (
    "usd",
    "gpu_hours",
    "joules",
    "tokens",
    "requests",
    "missed",
    "met",
    "pending",
)  # so names end


def write_rill_project(lake: Lake, folder: Path) -> list[str]:
    """Write the project into a folder that is empty or is one already; the marts that it shows."""
    marker = folder / "rill.yaml"
    if folder.exists() and any(folder.iterdir()) and not marker.exists():
        raise ValueError(f"{folder} is no Rill project and not empty. Name another folder, or empty it.")
    for name in ("connectors", "models", "metrics", "dashboards"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    _write(marker, {"compiler": "rillv1", "display_name": "fleetcast", "olap_connector": "duckdb"})
    warehouse = str(lake.root / "warehouse.duckdb").replace("'", "''")
    attach = f"attach if not exists '{warehouse}' as lake (read_only)"
    _write(
        folder / "connectors" / "duckdb.yaml",
        {"type": "connector", "driver": "duckdb", "managed": True, "init_sql": attach},
    )
    types = mart_column_types()
    for mart, columns in types.items():
        if (SQL / "marts" / f"{mart}.sql").exists():
            model = folder / "models" / f"{rill_model_name(mart)}.sql"
            model.write_text(f"from lake.{mart}\n", encoding="utf-8")
            _write(folder / "metrics" / f"{mart}_metrics.yaml", rill_metrics_view(mart, columns))
            explore = {"type": "explore", "display_name": mart, "metrics_view": f"{mart}_metrics"}
            _write(folder / "dashboards" / f"{mart}.yaml", {**explore, "dimensions": "*", "measures": "*"})
    return sorted(path.stem for path in (folder / "dashboards").glob("*.yaml"))


def rill_model_name(mart: str) -> str:
    """What its model is called: not as the table it reads, which Rill would take for itself, and refuse."""
    return f"rows_of_{mart}"


def rill_metrics_view(mart: str, columns: Mapping[str, str]) -> dict[str, Any]:
    """What of a mart is a dimension and what a measure, with the meanings of its header."""
    sql = read_sql(SQL / "marts" / f"{mart}.sql")
    grain = sql.listed("grain")
    times = sorted(
        (name for name, kind in columns.items() if kind in TIME_TYPES), key=lambda n: (n == "day", n)
    )
    measured = [name for name, kind in columns.items() if kind in NUMBER_TYPES and name not in grain]
    is_map = {name for name, kind in columns.items() if kind.startswith("MAP")}
    named = [name for name in columns if name not in (*measured, *times[:1], *is_map)]
    view: dict[str, Any] = {
        "version": 1,
        "type": "metrics_view",
        "display_name": mart,
        "model": rill_model_name(mart),
    }
    view["description"] = f"{sql.sentence.removeprefix(f'{mart}: ')} Units: {sql.fields['units']}."
    if times:
        view["timeseries"] = times[0]
    view["dimensions"] = [
        {"name": name, "column": name, **_description_entry(sql.columns, name)} for name in named
    ]
    view["measures"] = [
        {"name": "rows", "expression": "count(*)", "description": "rows of the mart"},
        *(
            {"name": f"{how}_{name}", "expression": f"{how}({name})", **_description_entry(sql.columns, name)}
            for name in measured
            for how in ("sum" if name.endswith(SUMMED_SUFFIXES) else "avg",)
        ),
    ]
    return view


def _description_entry(meanings: Mapping[str, str], name: str) -> dict[str, str]:
    return {"description": meanings[name]} if name in meanings else {}


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False, width=118), encoding="utf-8")
