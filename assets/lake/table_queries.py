"""SQL queries for the rows of a table, from files of any version."""

from collections.abc import Mapping
from types import MappingProxyType

from fleetcast.assets.lake.schemas import COLUMN_TYPES, PARTITIONS, SCHEMAS
from fleetcast.assets.lake.store import LakePath

# The value of a column in older files that do not have it.
OLD_FILE_DEFAULTS = {"role": "whole"}
# Until 0.2 the region of the instances had the name of the region of the requests.
REGION_TABLES = ("ran_fleets", "fleet_hours", "commitments", "lost_pools", "witnessed", "engine_histograms")
PLAN_TABLES = ("plans", "closed_plans", "day_ahead_plans", "rolling_plans")
# The names that columns have in files of earlier releases.
OLD_NAMES = {
    **{table: {"served_region": "region"} for table in REGION_TABLES},
    **{table: {"served_region": "region", "solver_status": "status"} for table in PLAN_TABLES},
    **{table: {"ensemble_weights": "reason"} for table in ("forecasts", "day_ahead_forecasts", "backtests")},
    "plan_bounds": {"with_minimum_usd": "minimum_usd", "whole_hours_usd": "hour_usd"},
    "advised_days": {
        "plan_headroom_share": "headroom_share",
        "scaling_rule": "rule",
        "largest_fleet": "fleet",
    },
    "legs": {"served_region": "region", "is_judging": "judges"},
    "tier_verdicts": {"tier_rule": "rule"},
    "episodes": {"episode_kind": "kind"},
    "arrival_windows": {"stream_kind": "level"},
    "gpu_prices": {"disaggregation_saving_bound_share": "apart_saving_bound_share"},
    "gpu_fleets": {"is_disaggregated": "is_apart", "required_requests_per_s": "asked_per_s"},
    "level_trials": {"needs_by": "dealt_by"},
    "quality_pools": {
        "load_share": "dealt_share",
        "stage_share": "asked_share",
        "final_answer_share": "answered_share",
    },
    "quality_plans": {
        "plan_kind": "kind",
        "answers_source": "answers",
        "required_quality": "asked_quality",
        "required_latency_s": "asked_latency_s",
        "p95_by_tables_s": "promised_p95_s",
    },
}


def table_rows_query(table: str, *files: LakePath) -> str:
    """Return a query for all rows of a table's files; in their paths * stands for any name.

    Columns that older files do not have come from their OLD_NAMES, else OLD_FILE_DEFAULTS, else null.
    """
    types = ", ".join(f"'{key}': {'date' if key == 'day' else 'varchar'}" for key in PARTITIONS[table])
    options = f"hive_partitioning = true, hive_types = {{{types}}}, union_by_name = true"
    listed = ", ".join(f"'{escape_quotes(file)}'" for file in files)
    rows = f"select * from read_parquet([{listed}], {options})"
    if table not in SCHEMAS:
        return rows
    old_names = OLD_NAMES.get(table, {})
    complete = f"{empty_table_query(table, old_names)} union all by name {rows}"
    filled = [
        *(f"coalesce({name}, {old}) as {name}" for name, old in old_names.items()),
        *(
            f"coalesce({name}, '{value}') as {name}"
            for name, value in OLD_FILE_DEFAULTS.items()
            if name in SCHEMAS[table].names
        ),
    ]
    without = f"exclude ({', '.join(old_names.values())}) " if old_names else ""
    return f"select * {without}replace ({', '.join(filled)}) from ({complete})" if filled else complete


def empty_table_query(table: str, old_names: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a query for the columns of a table, without rows; `old_names` too, by the present name."""
    keys = {key: "date" if key == "day" else "varchar" for key in PARTITIONS[table]}
    types = {**COLUMN_TYPES[table], **keys}
    types |= {old: types[name] for name, old in old_names.items()}
    nulls = ", ".join(f"null::{kind} as {name}" for name, kind in types.items())
    return f"select {nulls} where false"


def escape_quotes(path: object) -> str:
    """Return a path with its quotes escaped for an SQL string."""
    return str(path).replace("'", "''")
