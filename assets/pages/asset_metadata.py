"""What all assets share: the settings resource, common arguments, and the metadata of what they wrote."""

import base64
import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from fleetcast.assets.lake.environment import LAKE, LOCATION, read_process_config
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.learned_shares import with_learned_shares
from fleetcast.assets.lake.settings import RunSettings, load_settings
from fleetcast.assets.lake.shared_columns import column_meaning
from fleetcast.assets.lake.sql_files import read_sql
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.pages.figure_files import figure_thumbnail
from fleetcast.assets.pages.value_format import format_value

RunContext = dg.AssetExecutionContext | dg.OpExecutionContext
# Metadata of an asset: shown on its page in Dagster, and by the command line under its table.
Metadata = Mapping[str, Any]

OWNERS = ["team:capacity"]
DATA_VERSION_TAG, DAY_VERSION = "dagster/data_version", "day_version"
INTERRUPTED = "Interrupted by Ctrl-C or from the UI."
ASSET_OF_TABLE = {  # tables whose asset has another name
    "day_ahead_forecasts": "forecasts",
    "outcomes": "replays",
    "answers": "landing",
    "legs": "replays",
    "quality_pools": "quality_plans",
    "lost_pools": "commitments",
    "fleet_hours": "replays",
    "token_histogram": "characterisation",
    "arrival_windows": "characterisation",
}
RETRY = dg.RetryPolicy(max_retries=2, delay=1, backoff=dg.Backoff.EXPONENTIAL)


class SettingsResource(dg.ConfigurableResource):
    """The config and the lake of a run; `text` is the content of a custom config file."""

    config: str = "office"
    lake: str = LAKE
    text: str = ""

    @classmethod
    def deployed(cls) -> "SettingsResource":
        """Build the resource from the environment variables; ConfigError if there is no such config."""
        config, text = read_process_config()
        return cls(config=config, text=text)

    def load(self) -> RunSettings:
        """Read the catalogue and the config; ConfigError names what is wrong with them."""
        return load_settings(self.config, self.lake, self.text)


def build_asset_key(name: str) -> dg.AssetKey:
    """Return the key of an asset. A location's prefix separates its days from those of other configs."""
    return dg.AssetKey([LOCATION, name] if LOCATION else [name])


def upstream_asset(name: str, mapping: dg.PartitionMapping | None = None) -> dg.AssetDep:
    """Return the dependency on another asset."""
    return dg.AssetDep(build_asset_key(name), partition_mapping=mapping)


def common_asset_arguments(name: str, group: str = "") -> dict[str, Any]:
    """Return key, group, owner, kinds and retry policy of an asset; without a group, those of the lineage."""
    lineage = {
        "landing": ("traces", {"duckdb", "parquet"}),
        "requests": ("traces", {"numpy", "parquet"}),
        "demand": ("demand", {"duckdb", "parquet"}),
        "forecasts": ("forecast", {"python", "parquet"}),
        "plans": ("plan", {"python", "parquet"}),
        "replays": ("replay", {"python", "parquet"}),
        "scorecard": ("score", {"duckdb", "parquet"}),
        "figures": ("score", {"matplotlib"}),
        "advice": ("score", {"python", "html"}),
    }
    group, kinds = (group, {"python", "parquet"}) if group else lineage[name]
    return {
        "key": build_asset_key(name),
        "group_name": group,
        "kinds": kinds,
        "owners": OWNERS,
        "retry_policy": RETRY,
    }


def open_run_settings(context: RunContext, resource: SettingsResource) -> RunSettings:
    """Load the settings of a run and tag the run with the name of its trace."""
    settings = resource.load()
    context.instance.add_run_tags(context.run_id, {"trace": settings.trace})
    return settings


def open_day_settings(context: RunContext, resource: SettingsResource) -> tuple[RunSettings, date]:
    """Return `open_run_settings` with the capacity shares that were learned before the day, and the day."""
    day = partition_day(context)
    return with_learned_shares(open_run_settings(context, resource), day), day


def table_metadata(trace: str, table: pa.Table, file: str | Path) -> Mapping[str, Any]:
    """Return trace, row count, and columns with the meanings and origins in the header of an SQL file.

    Traces of one location share their partitions: the page of a day shows the one written last, and
    `trace_calendar` on the page of requests shows the days of each.
    """
    sql = read_sql(file)
    columns = [dg.TableColumn(f.name, str(f.type), column_meaning(f.name, sql.columns)) for f in table.schema]
    origins = {
        name: [
            dg.TableColumnDep(build_asset_key(ASSET_OF_TABLE.get(source, source)), column)
            for source, column in pairs
        ]
        for name, pairs in sql.made_from.items()
        if name in table.column_names
    }
    return {
        "trace": trace,
        "dagster/row_count": table.num_rows,
        "dagster/column_schema": dg.TableSchema(columns),
        "dagster/column_lineage": dg.TableColumnLineage(origins),
    }


def text_table(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> dg.TableMetadataValue:
    """Return rows of text as a table for Dagster's page."""
    schema = dg.TableSchema([dg.TableColumn(name) for name in columns])
    return dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in rows], schema)


def markdown_table(table: pa.Table) -> str:
    """Return a small table as Markdown."""
    names = table.column_names
    lines = ["| " + " | ".join(names) + " |", "| " + " | ".join("---" for _ in names) + " |"]
    for row in table.to_pylist():
        lines.append("| " + " | ".join(map(format_value, row.values())) + " |")
    return "\n".join(lines)


def embed_figure(path: LakePath) -> dg.MetadataValue:
    """Return a figure as Markdown that embeds a smaller copy of it."""
    packed = base64.b64encode(figure_thumbnail(path)).decode()
    return dg.MetadataValue.md(f"![{path.stem}](data:image/png;base64,{packed})")


def embed_figures(paths: Mapping[str, LakePath]) -> Mapping[str, dg.MetadataValue]:
    """Return figures as Markdown, by name."""
    return {name: embed_figure(path) for name, path in paths.items()}


def partition_day(context: RunContext) -> date:
    """Return the day of the run's partition."""
    return date.fromisoformat(context.partition_key)


def partition_days(context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext) -> list[date]:
    """Return the days of the run's partitions, in order."""
    return [date.fromisoformat(key) for key in context.partition_keys]


def add_day_metadata(context: dg.AssetExecutionContext, day: date, metadata: Metadata) -> None:
    """Attach metadata to the materialisation of a day's partition."""
    context.add_asset_metadata(metadata, partition_key=day.isoformat())


def run_seconds(context: RunContext) -> dict[str, float]:
    """Return the seconds since the run began, as metadata; empty where the instance does not know."""
    begun = context.instance.get_run_stats(context.run_id).start_time
    return {} if begun is None else {"run_s": time.time() - begun}


def day_version(settings: RunSettings, tables: Sequence[str], day: date) -> dg.DataVersion:
    """Return the data version of a day's tables: written again with the same bytes, it is the same."""
    return dg.DataVersion(settings.lake.version(tables, trace=settings.trace, day=day))


def set_days_version(context: dg.AssetExecutionContext, settings: RunSettings, table: str) -> None:
    """Set the data version of the run's days, and show each day's own on its page.

    Dagster 1.13 gives the days of one run one version: `Output`, `MaterializeResult` and `set_data_version`
    take no partition, only `add_asset_metadata` does. A materialization that an asset logs for each day, with
    a version in its tags, comes before Dagster's own, and the last one counts. So the version is the one of
    the runs before if no day has changed, else a new one, and what follows each of these days is unsynced.
    """
    versions = {day: day_version(settings, [table], day).value for day in partition_days(context)}
    before = {_version_before(context, day, version) for day, version in versions.items()}
    whole = hashlib.sha256(repr(sorted(versions.items())).encode()).hexdigest()
    context.set_data_version(
        context.asset_key, dg.DataVersion(next(iter(before)) if len(before) == 1 else whole)
    )
    for day, version in versions.items():
        add_day_metadata(context, day, {DAY_VERSION: version})


def _version_before(context: dg.AssetExecutionContext, day: date, version: str) -> str:
    """Return the data version of the day's last materialization if its bytes are the same, else `version`."""
    of_day = dg.AssetRecordsFilter(context.asset_key, asset_partitions=[day.isoformat()])
    for record in context.instance.fetch_materializations(of_day, limit=1).records:
        event = record.asset_materialization
        if event and event.tags and event.metadata.get(DAY_VERSION) == dg.TextMetadataValue(version):
            return event.tags[DATA_VERSION_TAG]
    return version


@contextmanager
def user_errors_as_failures() -> Iterator[None]:
    """Turn a user's mistake into a one-line failure; allow retries only if a disk or store may recover."""
    try:
        yield
    except LakeError as error:
        # A full disk or store may have space at the next attempt.
        may_pass = any(words in str(error) for words in ("disk is full", "is full (", "did not answer"))
        raise dg.Failure(str(error), allow_retries=may_pass) from error
    except dg.DagsterExecutionInterruptedError as interrupt:  # else the retry policy would run it again
        raise dg.Failure(INTERRUPTED, allow_retries=False) from interrupt
    except ValueError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
