"""Definitions of on-demand assets: how an asset is made, from what, and what its page shows.

The Dagster asset, its job and the report of the command line are all built from one definition.
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

# The day, tier, llm, ... of some rows, by the names of the queries' parameters.
RowScope = Mapping[str, Any]


class AssetContext(NamedTuple):
    """Arguments of the function that makes an on-demand asset."""

    settings: RunSettings
    progress: Progress
    config: Any = None  # an instance of OnDemandAsset.config
    keys: Mapping[str, str] = MappingProxyType({})  # partition key by dimension

    @property
    def day(self) -> date:
        """Day of the partition."""
        return date.fromisoformat(self.keys["day"])


class AssetRows(NamedTuple):
    """Rows that were written, and their scope."""

    table: pa.Table
    of: RowScope = MappingProxyType({})


class OnDemandAsset(NamedTuple):
    """Definition of an on-demand asset."""

    make: Callable[[AssetContext], AssetRows]  # its name and docstring are those of the asset
    job: str
    job_description: str
    group: str
    upstream_assets: Sequence[dg.AssetDep] = ()
    partitions: dg.PartitionsDefinition | None = None
    config: type[dg.Config] | None = None
    boards: Mapping[str, str] = {}  # title -> a query, or a file of sql/, with the scope as its parameters
    figures: Callable[[RunSettings, RowScope], Mapping[str, LakePath]] | None = None
    notes: Callable[[RunSettings, RowScope], Metadata] | None = None
    needs_config: bool = False  # True: the config has no default, so the job is given none

    @property
    def name(self) -> str:
        """Name of the asset."""
        return self.make.__name__

    def metadata(self, settings: RunSettings, made: AssetRows) -> Metadata:
        """Return what the asset's page shows of rows that were written."""
        scope = {"trace": settings.trace, **made.of}
        boards = {
            title: dg.MetadataValue.md(markdown_table(settings.lake.sql(query, **scope)))
            for title, query in self.boards.items()
        }
        headers = (file for folder in ("tables", "marts") for file in SQL.glob(f"{folder}/{self.name}.sql"))
        return {
            **table_metadata(scope["trace"], made.table, next(headers, SQL / "tables" / "trials.sql")),
            **{name: str(value) for name, value in scope.items()},
            **embed_figures(self.figures(settings, scope) if self.figures else {}),
            **boards,
            **(self.notes(settings, scope) if self.notes else {}),
        }

    def partition(self, scope: RowScope) -> str | None:
        """Return the partition key of rows of this scope; None if the asset has no partitions."""
        if isinstance(self.partitions, dg.MultiPartitionsDefinition):
            return dg.MultiPartitionKey(
                {dimension.name: str(scope[dimension.name]) for dimension in self.partitions.partitions_defs}
            )
        return None if self.partitions is None else str(scope["day"])

    def asset(self) -> dg.AssetsDefinition:
        """Build the Dagster asset."""

        def materialize(
            context: dg.AssetExecutionContext,
            settings: SettingsResource,
            progress: dg.ResourceParam[Progress],
            config: dg.Config | None = None,
        ) -> dg.MaterializeResult:
            with user_errors_as_failures():
                chosen = open_run_settings(context, settings)
                made = self.make(AssetContext(chosen, progress, config, _partition_keys(context)))
                chosen.lake.publish()
                return dg.MaterializeResult(metadata=self.metadata(chosen, made))

        def plain(
            context: dg.AssetExecutionContext,
            settings: SettingsResource,
            progress: dg.ResourceParam[Progress],
        ) -> dg.MaterializeResult:
            return materialize(context, settings, progress)

        def configured(
            context: dg.AssetExecutionContext,
            config: self.config,  # type: ignore[name-defined]  # Dagster reads the class from here
            settings: SettingsResource,
            progress: dg.ResourceParam[Progress],
        ) -> dg.MaterializeResult:
            return materialize(context, settings, progress, config)

        asset = dg.asset(
            deps=self.upstream_assets,
            partitions_def=self.partitions,
            description=self.make.__doc__,
            **common_asset_arguments(self.name, self.group),
        )
        return asset(plain if self.config is None else configured)


def define_on_demand_asset(**row: Any) -> Callable[[Callable[[AssetContext], AssetRows]], OnDemandAsset]:
    """Return a decorator that turns a function into an OnDemandAsset; `row` are the fields after `make`."""
    return lambda make: OnDemandAsset(make, **row)


def day_figures(
    drawings: Mapping[str, DrawFigure],
) -> Callable[[RunSettings, RowScope], Mapping[str, LakePath]]:
    """Return a function that draws figures of the rows' day, for OnDemandAsset.figures."""
    return lambda settings, scope: draw_day_figures(settings, scope["day"], drawings)


def _partition_keys(context: dg.AssetExecutionContext) -> Mapping[str, str]:
    """Return the partition key of a run by dimension; empty for a run without partition."""
    if not context.has_partition_key:
        return {}
    key = context.partition_key
    return key.keys_by_dimension if isinstance(key, dg.MultiPartitionKey) else {"day": key}
