"""A Rill project over the published lake: model, metrics view and dashboard of each mart, from its header.

The grain of a mart and every text are dimensions. Counts, money and GPU-hours are summed, any other number is
averaged over the rows shown. The time is the mart's first timestamp, else its day.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fleetcast.assets.lake.contract import mart_column_types
from fleetcast.assets.lake.shared_columns import column_meaning
from fleetcast.assets.lake.sql_files import SQL, read_sql
from fleetcast.assets.lake.warehouse import Lake

NUMBER_TYPES = ("BIGINT", "INTEGER", "UBIGINT", "HUGEINT", "DOUBLE", "FLOAT")
TIME_TYPES = ("TIMESTAMP WITH TIME ZONE", "DATE")
# Ends of the names of columns that are summed.
SUMMED_SUFFIXES = ("usd", "gpu_hours", "joules", "tokens", "requests", "missed", "met", "pending")


def write_rill_project(lake: Lake, folder: Path) -> list[str]:
    """Write the project into an empty folder or over an earlier project; return the marts that it shows."""
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
    """Return the name of a mart's model. A model with the name of the table it reads is a cycle to Rill."""
    return f"rows_of_{mart}"


def rill_metrics_view(mart: str, columns: Mapping[str, str]) -> dict[str, Any]:
    """Build the metrics view of a mart: dimensions and measures, with the meanings in its header."""
    sql = read_sql(SQL / "marts" / f"{mart}.sql")
    grain = sql.listed("grain")
    times = sorted(
        (name for name, kind in columns.items() if kind in TIME_TYPES), key=lambda n: (n == "day", n)
    )
    measures = [name for name, kind in columns.items() if kind in NUMBER_TYPES and name not in grain]
    maps = {name for name, kind in columns.items() if kind.startswith("MAP")}
    dimensions = [name for name in columns if name not in (*measures, *times[:1], *maps)]
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
        {"name": name, "column": name, **_description_entry(sql.columns, name)} for name in dimensions
    ]
    view["measures"] = [
        {"name": "rows", "expression": "count(*)", "description": "rows of the mart"},
        *(
            {"name": f"{how}_{name}", "expression": f"{how}({name})", **_description_entry(sql.columns, name)}
            for name in measures
            for how in ("sum" if name.endswith(SUMMED_SUFFIXES) else "avg",)
        ),
    ]
    return view


def _description_entry(meanings: Mapping[str, str], name: str) -> dict[str, str]:
    meaning = column_meaning(name, meanings)
    return {"description": meaning} if meaning else {}


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False, width=118), encoding="utf-8")
