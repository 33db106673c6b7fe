"""How an asset on demand is declared: what it is made from, what may be asked of it, and what it tells."""

from collections.abc import Callable
from datetime import date
from typing import Any, NamedTuple

import dagster as dg

from fleetcast.assets.lake.settings import Progress, Settings
from fleetcast.assets.pages.telling import Said, SettingsResource, day_of, described, opened, plainly


class Call(NamedTuple):
    """What an asset on demand is made with."""

    settings: Settings
    progress: Progress
    context: dg.AssetExecutionContext
    config: Any = None  # an instance of the class that the asset was declared with

    @property
    def day(self) -> date:
        """The day that is asked for."""
        return day_of(self.context)


def on_demand(
    *deps: dg.AssetDep, of: dg.PartitionsDefinition | None = None, config: type[dg.Config] | None = None
) -> Callable[[Callable[[Call], Said]], dg.AssetsDefinition]:
    """An asset by the name and in the words of the function that makes it, which returns what it tells.

    `of` says for which parts it is asked, `config` what may be asked of it.
    """

    def declared(make: Callable[[Call], Said]) -> dg.AssetsDefinition:
        def made(
            context: dg.AssetExecutionContext,
            settings: SettingsResource,
            progress: dg.ResourceParam[Progress],
            asked: dg.Config | None = None,
        ) -> dg.MaterializeResult:
            with plainly():
                call = Call(opened(context, settings), progress, context, asked)
                return dg.MaterializeResult(metadata=make(call))

        def plain(
            context: dg.AssetExecutionContext,
            settings: SettingsResource,
            progress: dg.ResourceParam[Progress],
        ) -> dg.MaterializeResult:
            return made(context, settings, progress)

        def configured(
            context: dg.AssetExecutionContext,
            config: config,  # type: ignore[valid-type]  # Dagster reads the class from here
            settings: SettingsResource,
            progress: dg.ResourceParam[Progress],
        ) -> dg.MaterializeResult:
            return made(context, settings, progress, config)

        asset = dg.asset(deps=deps, partitions_def=of, description=make.__doc__, **described(make.__name__))
        return asset(plain if config is None else configured)

    return declared
