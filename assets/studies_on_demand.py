"""Assets on demand, a row each and never part of the night: what a trace is like, and what would be if.

They stand beside the lineage: nothing is made from them. Plans on demand stand in plans_on_demand.py.
"""

from collections.abc import Mapping

import dagster as dg

from fleetcast.assets.demand.character_figures import draw_character_figures
from fleetcast.assets.demand.characterise import characterise_trace
from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.forecasts.backtests import FORECAST_LEADERBOARD_QUERY, backtest_methods
from fleetcast.assets.forecasts.forecast_figures import decision_curves_figure, forecast_leaderboard_figure
from fleetcast.assets.lake.partitions import DAY_PARTITIONS, HISTORY_MAPPING
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.pages.asset_metadata import Metadata, upstream_asset
from fleetcast.assets.pages.figure_files import draw_day_figures
from fleetcast.assets.pages.on_demand_asset import (
    AssetContext,
    AssetRows,
    RowScope,
    day_figures,
    define_on_demand_asset,
)
from fleetcast.assets.studies import decisions as deciding
from fleetcast.assets.studies import latency_error, planner_board, whatif
from fleetcast.assets.studies import level_search as levelling
from fleetcast.assets.studies.level_figures import level_drawings
from fleetcast.assets.studies.planner_figures import planner_drawings
from fleetcast.assets.studies.whatif_cases import case_names

CASE_PARTITIONS = dg.StaticPartitionsDefinition(case_names())
DAY_CASE_PARTITIONS = dg.MultiPartitionsDefinition({"day": DAY_PARTITIONS, "case": CASE_PARTITIONS})
SAME_DAY_MAPPING = dg.MultiToSingleDimensionPartitionMapping("day")
PLANS_DEP, FORECASTS_DEP, REQUESTS_DEP = map(upstream_asset, ("plans", "forecasts", "requests"))
DEMAND_HISTORY_DEP = upstream_asset("demand", HISTORY_MAPPING)
WHOLE_DEMAND_DEP = upstream_asset("demand", dg.AllPartitionMapping())


@define_on_demand_asset(
    job="characterise",
    job_description="What the trace of the config is like, over all its days.",
    group="demand",
    upstream_assets=(WHOLE_DEMAND_DEP,),
    figures=lambda settings, of: draw_character_figures(settings.lake, of["trace"]),
)
def characterisation(context: AssetContext) -> AssetRows:
    """How bursty, how seasonal and how foreseeable the trace and its parts are, over all its days."""
    return AssetRows(characterise_trace(context.settings.lake, context.settings.trace, context.progress))


class BacktestRun(dg.Config):
    """What of the demand is forecast: a tier, or interactive: all that nobody holds back as one series."""

    tier: str = INTERACTIVE


@define_on_demand_asset(
    job="backtest",
    job_description="Every forecast method on a past day: minutes of fits, so never at night.",
    group="forecast",
    upstream_assets=(DEMAND_HISTORY_DEP,),
    partitions=DAY_PARTITIONS,
    config=BacktestRun,
    boards={"leaderboard": FORECAST_LEADERBOARD_QUERY},
    figures=day_figures({"forecast_leaderboard": forecast_leaderboard_figure}),
)
def backtests(context: AssetContext) -> AssetRows:
    """Every forecast method on a past day, ten minutes to two hours ahead; never a part of the night."""
    day, tier = context.day, context.config.tier
    table = backtest_methods(context.settings, day, day, tier, context.progress)
    return AssetRows(table, {"day": day, "tier": tier})


@define_on_demand_asset(
    job="decide",
    job_description="What each forecast is worth: the plans and replays of a day by each method.",
    group="forecast",
    upstream_assets=(PLANS_DEP, FORECASTS_DEP, REQUESTS_DEP, DEMAND_HISTORY_DEP),
    partitions=DAY_PARTITIONS,
    boards={"leaderboard": deciding.DECISION_LEADERBOARD_SQL},
    figures=day_figures({"decision_curves": decision_curves_figure}),
)
def decisions(context: AssetContext) -> AssetRows:
    """What each forecast is worth: every method plans the day and is replayed, where all attain the same."""
    table = deciding.try_forecasts(context.settings, context.day, context.progress)
    return AssetRows(table, {"day": context.day})


@define_on_demand_asset(
    job="whatif",
    job_description="A planned day under one case of data/whatif.toml.",
    group="plan",
    upstream_assets=[upstream_asset(name, SAME_DAY_MAPPING) for name in ("forecasts", "demand", "requests")],
    partitions=DAY_CASE_PARTITIONS,
    boards={"told": "from whatifs where trace = $trace and day = $day and case_name = $case_name"},
)
def whatifs(context: AssetContext) -> AssetRows:
    """Cost and attainment of a day under a case of data/whatif.toml: other prices, GPUs, regions, budgets."""
    case = context.keys["case"]
    table = whatif.run_whatif_cases(context.settings, context.day, [case], context.progress)
    return AssetRows(table, {"day": context.day, "case": case, "case_name": case})


class ErrorDrawsRun(dg.Config):
    """How many draws of the latencies."""

    draws: int = latency_error.LATENCY_DRAWS


@define_on_demand_asset(
    job="error",
    job_description="A replayed day on latencies that are off by the error of their profiles.",
    group="score",
    upstream_assets=(upstream_asset("replays"), PLANS_DEP, REQUESTS_DEP),
    partitions=DAY_PARTITIONS,
    config=ErrorDrawsRun,
    boards={"intervals": latency_error.SCORE_INTERVALS_SQL},
)
def error_draws(context: AssetContext) -> AssetRows:
    """The scoreboard of a day on latencies that are off by the error of their profiles: what of it lasts?"""
    draws = context.config.draws
    table = latency_error.replay_latency_draws(context.settings, context.day, [], draws, context.progress)
    return AssetRows(table, {"day": context.day})


class LevelTrialsRun(dg.Config):
    """What is tried (assets/studies/level_search.py); what is not said as `fleetcast levels` has it."""

    llm: str | None = None
    region: str | None = None
    by: str | None = None
    levels: list[int] | None = None
    stacks: list[str] | None = None
    loads: list[float] | None = None
    headrooms: list[float] | None = None
    hours: int | None = None


def _level_figures(settings: RunSettings, of: RowScope) -> Mapping[str, LakePath]:
    drawings = level_drawings(of["llm"], of["region"], of["needs_by"], of["load"])
    return draw_day_figures(settings, of["day"], drawings)


def _level_answer(settings: RunSettings, of: RowScope) -> Metadata:
    answers = levelling.describe_endpoint_levels(settings, of["day"], of["llm"], of["region"])
    return {"answer": dg.MetadataValue.md("\n\n".join(answers))}


@define_on_demand_asset(
    job="levels",
    job_description="An endpoint's busiest hours under levels of priority, by stack, headroom and load.",
    group="score",
    upstream_assets=(REQUESTS_DEP, PLANS_DEP),
    partitions=DAY_PARTITIONS,
    config=LevelTrialsRun,
    figures=_level_figures,
    notes=_level_answer,
)
def level_trials(context: AssetContext) -> AssetRows:
    """How many levels of priority, how much headroom, do moves pay? An endpoint under every stack."""
    asked = levelling.LevelsQuery(**context.config.model_dump(exclude_none=True))
    table = levelling.try_levels(context.settings, context.day, asked, context.progress)
    return AssetRows(table, levelling.level_trials_scope(context.day, table))


class PlannerTrialsRun(dg.Config):
    """Which planners, else all; with ideas also those between; with draws also others of its requests."""

    planners: list[str] | None = None
    ideas: bool = True
    draws: int = 0


@define_on_demand_asset(
    job="board",
    job_description="Every planner on a day, searched to the same attainment and quality.",
    group="score",
    upstream_assets=(PLANS_DEP, FORECASTS_DEP, REQUESTS_DEP),
    partitions=DAY_PARTITIONS,
    config=PlannerTrialsRun,
    boards={"board": planner_board.BOARD_QUERY},
    figures=lambda settings, of: draw_day_figures(settings, of["day"], planner_drawings(settings, of["day"])),
)
def planner_trials(context: AssetContext) -> AssetRows:
    """The planners of five papers and ours on a day, searched to the same attainment and quality."""
    asked = context.config
    table = planner_board.try_planners(
        context.settings, context.day, asked.planners or (), asked.ideas, context.progress, asked.draws
    )
    return AssetRows(table, {"day": context.day})


STUDIES_ON_DEMAND = (
    characterisation,
    backtests,
    decisions,
    whatifs,
    error_draws,
    level_trials,
    planner_trials,
)
