"""Assets on demand, each its own job and never part of the night: what a trace is like, and what would be if.

They stand beside the lineage: nothing is made from them.
"""

from typing import Any

import dagster as dg
from pydantic import Field

from assets import backtests as backtesting
from assets import decisions as deciding
from assets import whatif
from assets.cases import case_names
from assets.character_figures import draw_character
from assets.characterise import characterise
from assets.demand import INTERACTIVE
from assets.figures import draw_day
from assets.leaderboard import decision_curves, forecast_leaderboard
from assets.partitions import DAYS, WITH_HISTORY
from assets.settings import Progress
from assets.telling import SettingsResource, day_of, described, markdown, picture, plainly, told

CASES = dg.StaticPartitionsDefinition(case_names())
DAYS_AND_CASES = dg.MultiPartitionsDefinition({"day": DAYS, "case": CASES})


@dg.asset(
    deps=[dg.AssetDep("demand", partition_mapping=dg.AllPartitionMapping())], **described("characterisation")
)
def characterisation(
    settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """How bursty, how seasonal and how foreseeable the trace and its parts are, over all its days."""
    with plainly():
        chosen = settings.load()
        table = characterise(chosen.lake, chosen.trace, progress)
        chosen.lake.publish()
        paths = draw_character(chosen.lake, chosen.trace)
    pictures = {name: picture(path) for name, path in paths.items()}
    return dg.MaterializeResult(metadata={**told(table, "tables/characterisation.sql"), **pictures})


class Backtest(dg.Config):
    """What of the demand is forecast."""

    tier: str = Field(INTERACTIVE, description="interactive (all but niw as one series), or a single tier")


@dg.asset(
    partitions_def=DAYS,
    deps=[dg.AssetDep("demand", partition_mapping=WITH_HISTORY)],
    **described("backtests"),
)
def backtests(
    context: dg.AssetExecutionContext,
    config: Backtest,
    settings: SettingsResource,
    progress: dg.ResourceParam[Progress],
) -> dg.MaterializeResult:
    """Every forecast method on a past day, ten minutes to two hours ahead; never a part of the night."""
    with plainly():
        chosen, day = settings.load(), day_of(context)
        table = backtesting.backtest_days(chosen, day, day, config.tier, progress)
        board = backtesting.leaderboard(chosen, config.tier)
        figure = draw_day(chosen, day, {"forecast_leaderboard": forecast_leaderboard})
        chosen.lake.publish()
    said: dict[str, Any] = {name: picture(path) for name, path in figure.items()}
    said["leaderboard"] = dg.MetadataValue.md(markdown(board))
    return dg.MaterializeResult(metadata={**told(table, "tables/backtests.sql"), **said})


@dg.asset(partitions_def=DAYS, deps=["plans"], **described("decisions"))
def decisions(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """What each forecast is worth: every method plans the day and is replayed, where all attain the same."""
    with plainly():
        chosen, day = settings.load(), day_of(context)
        table = deciding.decide(chosen, day, progress)
        board = deciding.leaderboard(chosen, day)
        figure = draw_day(chosen, day, {"decision_curves": decision_curves})
        chosen.lake.publish()
    said: dict[str, Any] = {name: picture(path) for name, path in figure.items()}
    said["leaderboard"] = dg.MetadataValue.md(markdown(board))
    return dg.MaterializeResult(metadata={**told(table, "tables/decisions.sql"), **said})


@dg.asset(
    partitions_def=DAYS_AND_CASES,
    deps=[dg.AssetDep("forecasts", partition_mapping=dg.MultiToSingleDimensionPartitionMapping("day"))],
    **described("whatifs"),
)
def whatifs(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """Cost and attainment of a day under a case of data/whatif.toml: other prices, GPUs, regions, budgets."""
    with plainly():
        chosen, day = settings.load(), day_of(context)
        table = whatif.what_if(chosen, day, [case_of(context)], progress)
        chosen.lake.publish()
    return dg.MaterializeResult(
        metadata={**told(table, "tables/whatifs.sql"), "told": dg.MetadataValue.md(markdown(table))}
    )


def case_of(context: dg.AssetExecutionContext) -> str:
    """The case that is asked for."""
    key = context.partition_key
    assert isinstance(key, dg.MultiPartitionKey)
    return key.keys_by_dimension["case"]


STUDIES = [characterisation, backtests, decisions, whatifs]
