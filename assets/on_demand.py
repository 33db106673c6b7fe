"""Assets on demand, a row each and never part of the night: what a trace is like, and what would be if.

They stand beside the lineage: nothing is made from them. Plans on demand stand in plans_on_demand.py.
"""

from collections.abc import Mapping

import dagster as dg

from fleetcast.assets.demand.character_figures import draw_character
from fleetcast.assets.demand.characterise import characterise
from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.forecasts.backtests import LEADERBOARD, backtest_days
from fleetcast.assets.forecasts.leaderboard import decision_curves, forecast_leaderboard
from fleetcast.assets.lake.partitions import DAYS, WITH_HISTORY
from fleetcast.assets.lake.settings import Settings
from fleetcast.assets.lake.store import Place
from fleetcast.assets.pages.on_demand import AssetContext, Made, Of, drawings_of_day, on_demand
from fleetcast.assets.pages.pictures import draw_day
from fleetcast.assets.pages.telling import Said, after
from fleetcast.assets.studies import decisions as deciding
from fleetcast.assets.studies import latency_error, planner_board, whatif
from fleetcast.assets.studies import levels as levelling
from fleetcast.assets.studies.cases import case_names
from fleetcast.assets.studies.level_figures import level_drawings
from fleetcast.assets.studies.planner_figures import planner_drawings

CASES = dg.StaticPartitionsDefinition(case_names())
DAYS_AND_CASES = dg.MultiPartitionsDefinition({"day": DAYS, "case": CASES})
SAME_DAY = dg.MultiToSingleDimensionPartitionMapping("day")
PLANS, FORECASTS, REQUESTS = map(after, ("plans", "forecasts", "requests"))
HISTORY = after("demand", WITH_HISTORY)
ALL_DEMAND = after("demand", dg.AllPartitionMapping())


@on_demand(
    job="characterise",
    about="What the trace of the config is like, over all its days.",
    group="demand",
    after=(ALL_DEMAND,),
    figures=lambda settings, of: draw_character(settings.lake, of["trace"]),
)
def characterisation(context: AssetContext) -> Made:
    """How bursty, how seasonal and how foreseeable the trace and its parts are, over all its days."""
    return Made(characterise(context.settings.lake, context.settings.trace, context.progress))


class Backtest(dg.Config):
    """What of the demand is forecast: a tier, or interactive: all that nobody holds back as one series."""

    tier: str = INTERACTIVE


@on_demand(
    job="backtest",
    about="Every forecast method on a past day: minutes of fits, so never at night.",
    group="forecast",
    after=(HISTORY,),
    partitions=DAYS,
    config=Backtest,
    boards={"leaderboard": LEADERBOARD},
    figures=drawings_of_day({"forecast_leaderboard": forecast_leaderboard}),
)
def backtests(context: AssetContext) -> Made:
    """Every forecast method on a past day, ten minutes to two hours ahead; never a part of the night."""
    day, tier = context.day, context.config.tier
    table = backtest_days(context.settings, day, day, tier, context.progress)
    return Made(table, {"day": day, "tier": tier})


@on_demand(
    job="decide",
    about="What each forecast is worth: the plans and replays of a day by each method.",
    group="forecast",
    after=(PLANS, FORECASTS, REQUESTS, HISTORY),
    partitions=DAYS,
    boards={"leaderboard": deciding.LEADERBOARD},
    figures=drawings_of_day({"decision_curves": decision_curves}),
)
def decisions(context: AssetContext) -> Made:
    """What each forecast is worth: every method plans the day and is replayed, where all attain the same."""
    table = deciding.decide(context.settings, context.day, context.progress)
    return Made(table, {"day": context.day})


@on_demand(
    job="whatif",
    about="A planned day under one case of data/whatif.toml.",
    group="plan",
    after=[after(name, SAME_DAY) for name in ("forecasts", "demand", "requests")],
    partitions=DAYS_AND_CASES,
    boards={"told": "from whatifs where trace = $trace and day = $day and case_name = $case_name"},
)
def whatifs(context: AssetContext) -> Made:
    """Cost and attainment of a day under a case of data/whatif.toml: other prices, GPUs, regions, budgets."""
    case = context.keys["case"]
    table = whatif.what_if(context.settings, context.day, [case], context.progress)
    return Made(table, {"day": context.day, "case": case, "case_name": case})


class Draws(dg.Config):
    """How many draws of the latencies."""

    draws: int = latency_error.DRAWS


@on_demand(
    job="error",
    about="A replayed day on latencies that are off by the error of their profiles.",
    group="score",
    after=(after("replays"), PLANS, REQUESTS),
    partitions=DAYS,
    config=Draws,
    boards={"intervals": latency_error.INTERVALS},
)
def error_draws(context: AssetContext) -> Made:
    """The scoreboard of a day on latencies that are off by the error of their profiles: what of it lasts?"""
    draws = context.config.draws
    table = latency_error.replay_draws(context.settings, context.day, [], draws, context.progress)
    return Made(table, {"day": context.day})


class Levelled(dg.Config):
    """What is tried (assets/studies/levels.py); what is not said as `fleetcast levels` has it."""

    llm: str | None = None
    region: str | None = None
    by: str | None = None
    levels: list[int] | None = None
    stacks: list[str] | None = None
    loads: list[float] | None = None
    headrooms: list[float] | None = None
    hours: int | None = None


def _level_figures(settings: Settings, of: Of) -> Mapping[str, Place]:
    drawings = level_drawings(of["llm"], of["region"], of["dealt_by"], of["load"])
    return draw_day(settings, of["day"], drawings)


def _level_answer(settings: Settings, of: Of) -> Said:
    answers = levelling.answers(settings, of["day"], of["llm"], of["region"])
    return {"answer": dg.MetadataValue.md("\n\n".join(answers))}


@on_demand(
    job="levels",
    about="An endpoint's busiest hours under levels of priority, by stack, headroom and load.",
    group="score",
    after=(REQUESTS, PLANS),
    partitions=DAYS,
    config=Levelled,
    figures=_level_figures,
    notes=_level_answer,
)
def level_trials(context: AssetContext) -> Made:
    """How many levels of priority, how much headroom, do moves pay? An endpoint under every stack."""
    asked = levelling.Asked(**context.config.model_dump(exclude_none=True))
    table = levelling.try_levels(context.settings, context.day, asked, context.progress)
    return Made(table, levelling.of_trials(context.day, table))


class Planners(dg.Config):
    """Which planners, else all; with ideas also those between; with draws also others of its requests."""

    planners: list[str] | None = None
    ideas: bool = True
    draws: int = 0


@on_demand(
    job="board",
    about="Every planner on a day, searched to the same attainment and quality.",
    group="score",
    after=(PLANS, FORECASTS, REQUESTS),
    partitions=DAYS,
    config=Planners,
    boards={"board": planner_board.BOARD_QUERY},
    figures=lambda settings, of: draw_day(settings, of["day"], planner_drawings(settings, of["day"])),
)
def planner_trials(context: AssetContext) -> Made:
    """The planners of five papers and ours on a day, searched to the same attainment and quality."""
    asked = context.config
    table = planner_board.try_planners(
        context.settings, context.day, asked.planners or (), asked.ideas, context.progress, asked.draws
    )
    return Made(table, {"day": context.day})


STUDIES = (characterisation, backtests, decisions, whatifs, error_draws, level_trials, planner_trials)
