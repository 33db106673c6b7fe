"""The marts as a data contract (Open Data Contract Standard 3.1), and the check of a contract.

    python -m fleetcast.assets.lake.contract         write sql/contract.yaml from headers and types
    python -m fleetcast.assets.lake.contract FILE    check a contract that you rely on: exit 1 if it is broken

The meaning of a column is its line in the header, the units of its mart, its type and the grain. A change of
any of these, or a removed column, raises the major version. An addition raises the minor version. The
contract is kept in git: the next version follows from the previous one, and consumers take the file of a
release.
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fleetcast.assets.lake.shared_columns import column_meaning
from fleetcast.assets.lake.sql_files import SQL, read_sql
from fleetcast.assets.lake.warehouse import Lake

CONTRACT_FILE = SQL / "contract.yaml"
LOGICAL_TYPES = {
    **dict.fromkeys(("BIGINT", "INTEGER", "UBIGINT", "HUGEINT"), "integer"),
    **dict.fromkeys(("DOUBLE", "FLOAT"), "number"),
    **{"BOOLEAN": "boolean", "DATE": "date", "VARCHAR": "string", "TIMESTAMP WITH TIME ZONE": "timestamp"},
}
Contract = Mapping[str, Any]


def build_contract(version: str = "1.0.0") -> dict[str, Any]:
    """Build the contract of all marts from their headers and the column types in an empty lake."""
    types = mart_column_types()
    return {
        "apiVersion": "v3.1.0",
        "kind": "DataContract",
        "id": "fleetcast-marts",
        "name": "fleetcast marts",
        "version": version,
        "status": "active",
        "description": {
            "purpose": "What came, was planned, replayed, spent and missed, for dashboards and others.",
            "usage": "Attach warehouse.duckdb read-only; instants are UTC.",
        },
        "servers": [{"server": "lake", "type": "duckdb", "database": "warehouse.duckdb", "schema": "main"}],
        "schema": [
            _mart_entry(path.stem, types[path.stem]) for path in sorted((SQL / "marts").glob("*.sql"))
        ],
    }


def contract_violations(promised: Contract, given: Contract) -> list[str]:
    """Return a line for each promise that `given` breaks; empty if it keeps all."""
    marts = {mart["name"]: mart for mart in given["schema"]}
    lines = []
    for mart in promised["schema"]:
        name, now = mart["name"], marts.get(mart["name"])
        if now is None:
            lines.append(f"{name} is gone.")
            continue
        for key in ("dataGranularityDescription", "description"):
            if mart[key] != now[key]:
                lines.append(f"{name}: {_PROPERTY_LABELS[key]} was {mart[key]!r}, is {now[key]!r}.")
        columns = {column["name"]: column for column in now["properties"]}
        for column in mart["properties"]:
            column_now = columns.get(column["name"])
            if column_now is None:
                lines.append(f"{name}.{column['name']} is gone.")
                continue
            lines += [
                f"{name}.{column['name']}: {key} was {column.get(key)!r}, is {column_now.get(key)!r}."
                for key in ("physicalType", "description", "primaryKey")
                if column.get(key) != column_now.get(key)
            ]
    return lines


_PROPERTY_LABELS = {"dataGranularityDescription": "its grain", "description": "what it is, or its units,"}


def renew_contract(promised: Contract) -> dict[str, Any]:
    """Build the contract of today, with the version that its changes since `promised` require."""
    major, minor, _ = (int(part) for part in promised["version"].split("."))
    now = build_contract(promised["version"])
    if contract_violations(promised, now):
        return build_contract(f"{major + 1}.0.0")
    return now if now == promised else build_contract(f"{major}.{minor + 1}.0")


def read_contract(path: Path) -> Contract:
    """Read a contract of these marts from a file; ValueError if it is none."""
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except yaml.YAMLError as error:
        raise ValueError(f"{path.name} is no YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(found, dict) or found.get("id") != "fleetcast-marts":
        raise ValueError(
            f"{path.name} is no contract of fleetcast's marts. Take sql/contract.yaml as you rely on it."
        )
    return found


def write_contract(path: Path = CONTRACT_FILE) -> None:
    """Write the contract and replace an earlier one."""
    now = renew_contract(read_contract(path)) if path.exists() else build_contract()
    path.write_text(_HEAD + yaml.dump(now, Dumper=_Dumper, sort_keys=False, width=10_000), encoding="utf-8")


_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where PyYAML has it, is ten times as fast


class _Dumper(yaml.SafeDumper):
    """YAML with one line per column, so that the file and its diffs stay readable."""

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        return super().represent_mapping(tag, mapping, flow_style or "logicalType" in mapping)


_HEAD = "# Written by python -m fleetcast.assets.lake.contract from the headers of sql/marts; change those.\n"


def _mart_entry(name: str, types: Mapping[str, str]) -> dict[str, Any]:
    sql = read_sql(SQL / "marts" / f"{name}.sql")
    grain = sql.listed("grain")
    return {
        "name": name,
        "physicalType": "view",
        "description": f"{sql.sentence.removeprefix(f'{name}: ')} Units: {sql.fields['units']}.",
        "dataGranularityDescription": ", ".join(grain),
        "properties": [_column_entry(column, kind, sql.columns, grain) for column, kind in types.items()],
    }


def _column_entry(name: str, kind: str, meanings: Mapping[str, str], grain: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": name,
        "logicalType": LOGICAL_TYPES.get(kind, "array"),
        "physicalType": kind,
    }
    if meaning := column_meaning(name, meanings):
        found["description"] = meaning
    if name in grain:
        found |= {"primaryKey": True, "primaryKeyPosition": grain.index(name) + 1}
    return found


@cache
def mart_column_types() -> dict[str, dict[str, str]]:
    """Return the columns of every mart and their DuckDB types, from a lake without rows."""
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder) / "lake")
        for table in ("demand", "scorecard"):  # tables without a registered schema: their SQL defines it
            day = date(2025, 1, 1)
            lake.write(table, lake.sql(f"marts/{table}.sql", trace="none", day=day), trace="none", day=day)
        with lake.connect() as con:
            rows = con.execute(
                "select table_name, column_name, data_type from duckdb_columns() where not internal "
                "order by table_name, column_index"
            ).fetchall()
    found: dict[str, dict[str, str]] = {}
    for table, column, kind in rows:
        found.setdefault(table, {})[column] = kind
    return found


def check_or_write_contract(files: Sequence[str]) -> int:
    """Write the contract, or check the given files; return the exit status."""
    if not files:
        write_contract()
        return 0
    lines = [
        line for file in files for line in contract_violations(read_contract(Path(file)), build_contract())
    ]
    print("\n".join(lines) or "The contract holds.")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(check_or_write_contract(sys.argv[1:]))
