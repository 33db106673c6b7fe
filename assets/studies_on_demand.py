"""On-demand assets that study: trace statistics, backtests, what-if cases and policy comparisons.

They are not part of the nightly run, and no asset depends on them. Plans are in plans_on_demand.py.
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
from fleetcast.assets.studies import latency_error, level_search, planner_board, whatif, witness
from fleetcast.assets.studies.decisions import DECISION_LEADERBOARD_SQL, try_forecasts
from fleetcast.assets.studies.level_figures import level_drawings
from fleetcast.assets.studies.planner_figures import planner_drawings
from fleetcast.assets.studies.unseen_days import UNSEEN_BOARD_SQL, compare_on_unseen_days, last_days
from fleetcast.assets.studies.unseen_figures import unseen_drawings
from fleetcast.assets.studies.whatif_cases import WHATIF_CASES
from fleetcast.models.world.toml_dataclasses import read_toml

CASE_PARTITIONS = dg.StaticPartitionsDefinition(list(read_toml(WHATIF_CASES)))
DAY_CASE_PARTITIONS = dg.MultiPartitionsDefinition({"day": DAY_PARTITIONS, "case": CASE_PARTITIONS})
SAME_DAY_MAPPING = dg.MultiToSingleDimensionPartitionMapping("day")
PLANS_DEP, FORECASTS_DEP, REQUESTS_DEP = map(upstream_asset, ("plans", "forecasts", "requests"))
DEMAND_HISTORY_DEP = upstream_asset("demand", HISTORY_MAPPING)
WHOLE_DEMAND_DEP = upstream_asset("demand", dg.AllPartitionMapping())


@define_on_demand_asset(
    job="characterise",
    job_description="Characterise the trace of the config over all its days.",
    group="demand",
    upstream_assets=(WHOLE_DEMAND_DEP,),
    figures=lambda settings, scope: draw_character_figures(settings.lake, scope["trace"]),
)
def characterisation(context: AssetContext) -> AssetRows:
    """Burstiness, seasonality and predictability of the trace and its parts, over all its days."""
    return AssetRows(characterise_trace(context.settings.lake, context.settings.trace, context.progress))


class BacktestRun(dg.Config):
    """Demand to forecast: one tier, or `interactive`, the sum of all tiers that are not deferred."""

    tier: str = INTERACTIVE


@define_on_demand_asset(
    job="backtest",
    job_description="Backtest every forecast method on a past day; takes minutes, so not in the nightly run.",
    group="forecast",
    upstream_assets=(DEMAND_HISTORY_DEP,),
    partitions=DAY_PARTITIONS,
    config=BacktestRun,
    boards={"leaderboard": FORECAST_LEADERBOARD_QUERY},
    figures=day_figures({"forecast_leaderboard": forecast_leaderboard_figure}),
)
def backtests(context: AssetContext) -> AssetRows:
    """Every forecast method on a past day, ten minutes to two hours ahead; not part of the nightly run."""
    day, tier = context.day, context.config.tier
    table = backtest_methods(context.settings, day, day, tier, context.progress)
    return AssetRows(table, {"day": day, "tier": tier})


@define_on_demand_asset(
    job="decide",
    job_description="Compare forecast methods by the plans and replays of a day.",
    group="forecast",
    upstream_assets=(PLANS_DEP, FORECASTS_DEP, REQUESTS_DEP, DEMAND_HISTORY_DEP),
    partitions=DAY_PARTITIONS,
    boards={"leaderboard": DECISION_LEADERBOARD_SQL},
    figures=day_figures({"decision_curves": decision_curves_figure}),
)
def decisions(context: AssetContext) -> AssetRows:
    """Value of each forecast method: it plans the day and is replayed, all methods at equal attainment."""
    table = try_forecasts(context.settings, context.day, context.progress)
    return AssetRows(table, {"day": context.day})


@define_on_demand_asset(
    job="whatif",
    job_description="Replay a planned day under one case of data/whatif.toml.",
    group="plan",
    upstream_assets=[upstream_asset(name, SAME_DAY_MAPPING) for name in ("forecasts", "demand", "requests")],
    partitions=DAY_CASE_PARTITIONS,
    boards={"results": "from whatifs where trace = $trace and day = $day and case_name = $case_name"},
)
def whatifs(context: AssetContext) -> AssetRows:
    """Cost and attainment of a day under a case of data/whatif.toml: other prices, GPUs, regions, budgets."""
    case = context.keys["case"]
    table = whatif.run_whatif_cases(context.settings, context.day, [case], context.progress)
    return AssetRows(table, {"day": context.day, "case": case, "case_name": case})


class ErrorDrawsRun(dg.Config):
    """Number of resamples of the latency profiles."""

    draws: int = latency_error.LATENCY_DRAWS


@define_on_demand_asset(
    job="error",
    job_description="Replay a day with latencies that vary within the error of their profiles.",
    group="score",
    upstream_assets=(upstream_asset("replays"), PLANS_DEP, REQUESTS_DEP),
    partitions=DAY_PARTITIONS,
    config=ErrorDrawsRun,
    boards={"intervals": "from scoreboard_intervals where trace = $trace and day = $day order by all"},
)
def error_draws(context: AssetContext) -> AssetRows:
    """Scoreboard of a day with latencies that vary within the error of their profiles: how stable is it?"""
    draws = context.config.draws
    table = latency_error.replay_latency_draws(context.settings, context.day, [], draws, context.progress)
    return AssetRows(table, {"day": context.day})


class LevelTrialsRun(dg.Config):
    """Trials to run (assets/studies/level_search.py); a field that is None has the default of LevelsQuery."""

    llm: str | None = None
    region: str | None = None
    by: str | None = None
    levels: list[int] | None = None
    stacks: list[str] | None = None
    loads: list[float] | None = None
    headrooms: list[float] | None = None
    hours: int | None = None


def _level_figures(settings: RunSettings, scope: RowScope) -> Mapping[str, LakePath]:
    drawings = level_drawings(scope["llm"], scope["region"], scope["needs_by"], scope["load"])
    return draw_day_figures(settings, scope["day"], drawings)


def _level_answer(settings: RunSettings, scope: RowScope) -> Metadata:
    answers = level_search.describe_endpoint_levels(settings, scope["day"], scope["llm"], scope["region"])
    return {"answer": dg.MetadataValue.md("\n\n".join(answers))}


@define_on_demand_asset(
    job="levels",
    job_description="Replay an endpoint's busiest hours with priority levels, by stack, headroom and load.",
    group="score",
    upstream_assets=(REQUESTS_DEP, PLANS_DEP),
    partitions=DAY_PARTITIONS,
    config=LevelTrialsRun,
    figures=_level_figures,
    notes=_level_answer,
)
def level_trials(context: AssetContext) -> AssetRows:
    """Value of priority levels, headroom and migrations at one endpoint, under every stack."""
    query = level_search.LevelsQuery(**context.config.model_dump(exclude_none=True))
    table = level_search.try_levels(context.settings, context.day, query, context.progress)
    return AssetRows(table, level_search.level_trials_scope(context.day, table))


@define_on_demand_asset(
    job="witness",
    job_description="Compare the latencies that engines measured on a day with its replay.",
    group="score",
    upstream_assets=(REQUESTS_DEP,),
    partitions=DAY_PARTITIONS,
    boards={"drift": witness.WITNESS_BOARD_SQL},
    notes=lambda settings, scope: witness.largest_drifts(settings, scope["day"]),
)
def witnessed(context: AssetContext) -> AssetRows:
    """Speed of the engines on a day, as factors of their latency profiles: did they change, and why?"""
    return AssetRows(
        witness.witness_day(context.settings, context.day, context.progress), {"day": context.day}
    )


class PlannerTrialsRun(dg.Config):
    """Planners to compare."""

    planners: list[str] | None = None  # None: all
    ideas: bool = True  # also the planners that differ by one idea
    draws: int = 0  # resamples of the day's requests to add


@define_on_demand_asset(
    job="board",
    job_description="Compare every planner on a day at equal attainment and quality.",
    group="score",
    upstream_assets=(PLANS_DEP, FORECASTS_DEP, REQUESTS_DEP),
    partitions=DAY_PARTITIONS,
    config=PlannerTrialsRun,
    boards={"board": planner_board.BOARD_QUERY},
    figures=lambda settings, scope: draw_day_figures(
        settings, scope["day"], planner_drawings(settings, scope["day"])
    ),
)
def planner_trials(context: AssetContext) -> AssetRows:
    """Planners of five papers and fleetcast's on a day, searched to the same attainment and quality."""
    config = context.config
    table = planner_board.try_planners(
        context.settings, context.day, config.planners or (), config.ideas, context.progress, config.draws
    )
    return AssetRows(table, {"day": context.day})


class UnseenDaysRun(dg.Config):
    """Days and trials of a comparison; the partition is the last unseen day."""

    policies: list[str] | None = None  # None: all that the board has
    unseen_days: int = 5
    known_days: int = 4
    trials: int = 9


@define_on_demand_asset(
    job="board_unseen",
    job_description="Tune every policy on known days and score it on unseen days; takes up to an hour.",
    group="score",
    upstream_assets=(WHOLE_DEMAND_DEP,),
    partitions=DAY_PARTITIONS,
    config=UnseenDaysRun,
    boards={"board": UNSEEN_BOARD_SQL},
    figures=day_figures(unseen_drawings()),
)
def unseen_days(context: AssetContext) -> AssetRows:
    """Policies tuned on known days, with the same number of trials, and scored on the days after them."""
    config = context.config
    period = last_days(context.day, config.unseen_days, config.known_days, config.trials)
    compare_on_unseen_days(context.settings, period, config.policies or (), context.progress)
    table = context.settings.lake.sql("from unseen_days where trace = $trace", trace=context.settings.trace)
    return AssetRows(table, {"day": context.day})


STUDIES_ON_DEMAND = (
    unseen_days,
    characterisation,
    backtests,
    decisions,
    whatifs,
    error_draws,
    witnessed,
    level_trials,
    planner_trials,
)
