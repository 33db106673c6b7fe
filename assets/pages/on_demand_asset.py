"""Assets on demand: one row each says how it is made, from what, and what its page shows.

Its asset, its job and the report of the command line are all made from that row.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from types import MappingProxyType
from typing import Any, NamedTuple

import dagster as dg
import pyarrow as pa

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.sql_files import SQL
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.pages.asset_metadata import (
    Metadata,
    SettingsResource,
    common_asset_arguments,
    embed_figures,
    markdown_table,
    open_run_settings,
    table_metadata,
    user_errors_as_failures,
)
from fleetcast.assets.pages.figure_files import DrawFigure, draw_day_figures

RowScope = Mapping[
    str, Any
]  # day, tier, llm, ...: what rows are of, by the names of the parameters of queries


class AssetContext(NamedTuple):
    """What an asset on demand is made with."""

    settings: RunSettings
    progress: Progress
    config: Any = None  # an instance of the class that its row names
    keys: Mapping[str, str] = MappingProxyType({})  # of the partition, by dimension

    @property
    def day(self) -> date:
        """The day that is asked for."""
        return date.fromisoformat(self.keys["day"])


class AssetRows(NamedTuple):
    """The rows that were written, and what they are of."""

    table: pa.Table
    of: RowScope = MappingProxyType({})


class OnDemandAsset(NamedTuple):
    """An asset on demand; its name is that of the function that makes it."""

    make: Callable[[AssetContext], AssetRows]  # its docstring is the description
    job: str
    job_description: str  # of the job
    group: str
    upstream_assets: Sequence[dg.AssetDep] = ()  # what it is made from
    partitions: dg.PartitionsDefinition | None = None
    config: type[dg.Config] | None = None
    boards: Mapping[str, str] = {}  # title: a query, or a file of sql/, with `of` as its parameters
    figures: Callable[[RunSettings, RowScope], Mapping[str, LakePath]] | None = None
    notes: Callable[[RunSettings, RowScope], Metadata] | None = None
    needs_config: bool = False  # what has no default

    @property
    def name(self) -> str:
        """Of the asset."""
        return self.make.__name__

    def metadata(self, settings: RunSettings, made: AssetRows) -> Metadata:
        """What its page shows of rows that were written."""
        of = {"trace": settings.trace, **made.of}
        boards = {
            title: dg.MetadataValue.md(markdown_table(settings.lake.sql(query, **of)))
            for title, query in self.boards.items()
        }
        known = (file for folder in ("tables", "marts") for file in SQL.glob(f"{folder}/{self.name}.sql"))
        header = next(known, SQL / "tables" / "trials.sql")
        return {
            **table_metadata(of["trace"], made.table, header),
            **{name: str(value) for name, value in of.items()},
            **embed_figures(self.figures(settings, of) if self.figures else {}),
            **boards,
            **(self.notes(settings, of) if self.notes else {}),
        }

    def partition(self, of: RowScope) -> str | None:
        """The key of the partition that rows are of."""
        if isinstance(self.partitions, dg.MultiPartitionsDefinition):
            return dg.MultiPartitionKey(
                {one.name: str(of[one.name]) for one in self.partitions.partitions_defs}
            )
        return None if self.partitions is None else str(of["day"])

    def asset(self) -> dg.AssetsDefinition:
        """The asset as Dagster sees it."""

        def made(
            context: dg.AssetExecutionContext,
            settings: SettingsResource,
            progress: dg.ResourceParam[Progress],
            config: dg.Config | None = None,
        ) -> dg.MaterializeResult:
            with user_errors_as_failures():
                own = open_run_settings(context, settings)
                found = self.make(AssetContext(own, progress, config, _partition_keys(context)))
                own.lake.publish()
                return dg.MaterializeResult(metadata=self.metadata(own, found))

        def plain(
            context: dg.AssetExecutionContext,
            settings: SettingsResource,
            progress: dg.ResourceParam[Progress],
        ) -> dg.MaterializeResult:
            return made(context, settings, progress)

        def configured(
            context: dg.AssetExecutionContext,
            config: self.config,  # type: ignore[name-defined]  # Dagster reads the class from here
            settings: SettingsResource,
            progress: dg.ResourceParam[Progress],
        ) -> dg.MaterializeResult:
            return made(context, settings, progress, config)

        asset = dg.asset(
            deps=self.upstream_assets,
            partitions_def=self.partitions,
            description=self.make.__doc__,
            **common_asset_arguments(self.name, self.group),
        )
        return asset(plain if self.config is None else configured)


def define_on_demand_asset(**row: Any) -> Callable[[Callable[[AssetContext], AssetRows]], OnDemandAsset]:
    """The row of an asset on demand, around the function that makes it; `row` are fields of OnDemand."""
    return lambda make: OnDemandAsset(make, **row)


def day_figures(
    drawings: Mapping[str, DrawFigure],
) -> Callable[[RunSettings, RowScope], Mapping[str, LakePath]]:
    """Figures of the day that rows are of."""
    return lambda settings, of: draw_day_figures(settings, of["day"], drawings)


def _partition_keys(context: dg.AssetExecutionContext) -> Mapping[str, str]:
    """The key of the partition of a run, by dimension."""
    if not context.has_partition_key:
        return {}
    key = context.partition_key
    return key.keys_by_dimension if isinstance(key, dg.MultiPartitionKey) else {"day": key}
