"""Quality of a landed trace: gaps in its collection, and findings, as two tables of the lake."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from fleetcast.assets.lake.warehouse import Lake

QUALITY_COLUMNS = ("verdict", "trace", "file", "aspect", "rows", "share", "detail")
WARN_VERDICT = "warn"  # the verdict of a finding to look into


def assess_trace(lake: Lake, trace: str) -> pa.Table:
    """Write the tables silences and quality of a trace (sql/marts) and return the findings."""
    for table in ("silences", "quality"):
        lake.write(table, lake.sql(f"marts/{table}.sql", trace=trace), trace=trace)
    return lake.read("quality", trace=trace)


def trace_findings(lake: Lake, traces: Iterable[str]) -> list[Mapping[str, Any]]:
    """Return all findings of some traces that are not ok, as texts, warnings first."""
    rows = lake.sql(
        "select * from quality where trace in (select unnest($traces::varchar[])) and verdict <> 'ok' "
        "order by verdict desc, trace, file, aspect, rows desc nulls last, detail",
        traces=sorted(traces),
    ).to_pylist()
    for row in rows:
        row["rows"] = "" if row["rows"] is None else f"{row['rows']:,}"
        row["share"] = "" if row["share"] is None else f"{100 * row['share']:.3g} %"
    return [{name: str(row[name]) for name in QUALITY_COLUMNS} for row in rows]
