"""Every reader of sql/sources against a few rows of its format; what must come of them lies next to it."""

import json
from pathlib import Path
from typing import Any

import pytest

from fleetcast.assets.lake.sql_files import SQL
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.ingest import ingest_file
from fleetcast.assets.traces.log_columns import read_log_columns
from fleetcast.models.world.catalogue import load_catalogue

TRACES = Path(__file__).resolve().parent / "traces"
READERS = sorted(path.stem for path in (SQL / "sources").glob("*.sql"))
FORMATS = [*READERS, *read_log_columns()[1]]
OTHER_LOGS = {"litellm_dump": "litellm", "openai": "log"}  # more rows of a format, of another container
CATALOGUE = load_catalogue()
DRAWN = ("request_id", "trace", "day", "source", "file")  # by hash, or reported elsewhere


def fixture(name: str) -> Path:
    """The few rows of a format; next to them lies NAME.expected.json."""
    return next(p for p in TRACES.glob(f"{name}.*") if p.suffix != ".json")


def landed(lake: Lake) -> dict[str, Any]:
    """What became of a file: its requests or answers as far as it speaks of them, and its quarantine."""
    rows = lake.sql("select * from requests order by arrived_at, request_id").to_pylist()
    rows += lake.sql("select * from answers order by query_id, llm").to_pylist()
    refused = lake.sql("select row, reason from quarantine order by row, reason").to_pylist()
    kept = [{k: v for k, v in row.items() if k not in DRAWN and v is not None} for row in rows]
    return {"kept": kept, "quarantined": [list(row.values()) for row in refused]}


@pytest.mark.parametrize("name", [*FORMATS, *OTHER_LOGS])
def test_each_reader_gives_the_expected_rows_of_its_fixture(name: str, tmp_path: Path) -> None:
    path, lake = fixture(name), Lake(tmp_path / "lake")
    report = ingest_file(path, lake, CATALOGUE)
    found = json.loads(json.dumps(landed(lake), default=str))
    expected = json.loads((TRACES / f"{name}.expected.json").read_text())
    assert report.format == OTHER_LOGS.get(name, name)
    assert found == expected
    assert report.rows_in == len(found["kept"]) + len(found["quarantined"])
    for check in ("rows_are_conserved", "requests_are_valid", "request_ids_are_unique"):
        assert lake.sql(f"checks/{check}.sql").num_rows == 0
