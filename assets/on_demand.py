"""Assets on demand, each its own job and never part of the night: what a trace is like, and what would be if.

They stand beside the lineage: nothing is made from them. Each has a `*_said`: what it tells of what was
written, be it in a run or from the command line. Plans on demand stand in plans_on_demand.py.
"""

from collections.abc import Mapping
from datetime import date

import dagster as dg
import pyarrow as pa

from fleetcast.assets.demand.character_figures import draw_character
from fleetcast.assets.demand.characterise import characterise
from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.forecasts import backtests as backtesting
from fleetcast.assets.forecasts.leaderboard import decision_curves, forecast_leaderboard
from fleetcast.assets.lake.partitions import DAYS, WITH_HISTORY
from fleetcast.assets.lake.settings import Settings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.on_demand import Call, on_demand
from fleetcast.assets.pages.pictures import draw_day
from fleetcast.assets.pages.telling import (
    Said,
    after,
    markdown,
    pictures,
    told,
)
from fleetcast.assets.studies import decisions as deciding
from fleetcast.assets.studies import latency_error, planner_board, whatif
from fleetcast.assets.studies import levels as levelling
from fleetcast.assets.studies.cases import case_names
from fleetcast.assets.studies.level_figures import level_drawings
from fleetcast.assets.studies.planner_figures import idea_figure, planner_figure

CASES = dg.StaticPartitionsDefinition(case_names())
DAYS_AND_CASES = dg.MultiPartitionsDefinition({"day": DAYS, "case": CASES})


@on_demand(after("demand", dg.AllPartitionMapping()))
def characterisation(call: Call) -> Said:
    """How bursty, how seasonal and how foreseeable the trace and its parts are, over all its days."""
    table = characterise(call.settings.lake, call.settings.trace, call.progress)
    return characterisation_said(call.settings.lake, call.settings.trace, table)


def characterisation_said(lake: Lake, trace: str, table: pa.Table) -> Said:
    """The table characterisation of a trace, and its figures."""
    lake.publish()
    figures = draw_character(lake, trace)
    return {**told(trace, table, "tables/characterisation.sql"), **pictures(figures)}


class Backtest(dg.Config):
    """What of the demand is forecast: a tier, or interactive: all that nobody holds back as one series."""

    tier: str = INTERACTIVE


@on_demand(after("demand", WITH_HISTORY), of=DAYS, config=Backtest)
def backtests(call: Call) -> Said:
    """Every forecast method on a past day, ten minutes to two hours ahead; never a part of the night."""
    table = backtesting.backtest_days(call.settings, call.day, call.day, call.config.tier, call.progress)
    return backtests_said(call.settings, call.day, call.config.tier, table)


def backtests_said(settings: Settings, day: date, tier: str, table: pa.Table) -> Said:
    """The backtests up to a day, with the leaderboard of the tier as table and figure."""
    figure = draw_day(settings, day, {"forecast_leaderboard": forecast_leaderboard})
    settings.lake.publish()
    board = backtesting.leaderboard(settings, tier)
    said = {**pictures(figure), "leaderboard": dg.MetadataValue.md(markdown(board)), "tier": tier}
    return {**told(settings.trace, table, "tables/backtests.sql"), **said}


@on_demand(*map(after, ("plans", "forecasts", "requests")), after("demand", WITH_HISTORY), of=DAYS)
def decisions(call: Call) -> Said:
    """What each forecast is worth: every method plans the day and is replayed, where all attain the same."""
    table = deciding.decide(call.settings, call.day, call.progress)
    return decisions_said(call.settings, call.day, table)


def decisions_said(settings: Settings, day: date, table: pa.Table) -> Said:
    """The decisions of a day, with their leaderboard and the curves that it is read from."""
    figure = draw_day(settings, day, {"decision_curves": decision_curves})
    settings.lake.publish()
    board = deciding.leaderboard(settings, day)
    said = {**pictures(figure), "leaderboard": dg.MetadataValue.md(markdown(board))}
    return {**told(settings.trace, table, "tables/decisions.sql"), **said}


SAME_DAY = dg.MultiToSingleDimensionPartitionMapping("day")


@on_demand(*[after(name, SAME_DAY) for name in ("forecasts", "demand", "requests")], of=DAYS_AND_CASES)
def whatifs(call: Call) -> Said:
    """Cost and attainment of a day under a case of data/whatif.toml: other prices, GPUs, regions, budgets."""
    table = whatif.what_if(call.settings, call.day, [case_of(call.context)], call.progress)
    call.settings.lake.publish()
    [said] = whatifs_said(call.settings, call.day, table).values()
    return said


def whatifs_said(settings: Settings, day: date, table: pa.Table) -> Mapping[str | None, Said]:
    """By partition, the row of each case."""
    said: dict[str | None, Said] = {}
    for n, case in enumerate(table["case_name"].to_pylist()):
        row = table.slice(n, 1)
        shown = {"told": dg.MetadataValue.md(markdown(row))}
        key = dg.MultiPartitionKey({"day": day.isoformat(), "case": case})
        said[key] = {**told(settings.trace, row, "tables/whatifs.sql"), **shown}
    return said


def case_of(context: dg.AssetExecutionContext) -> str:
    """The case that is asked for."""
    key = context.partition_key
    assert isinstance(key, dg.MultiPartitionKey)
    return key.keys_by_dimension["case"]


class Draws(dg.Config):
    """How many draws of the latencies."""

    draws: int = latency_error.DRAWS


@on_demand(*map(after, ("replays", "plans", "requests")), of=DAYS, config=Draws)
def error_draws(call: Call) -> Said:
    """The scoreboard of a day on latencies that are off by the error of their profiles: what of it lasts?"""
    table = latency_error.replay_draws(call.settings, call.day, [], call.config.draws, call.progress)
    return error_draws_said(call.settings, call.day, table)


def error_draws_said(settings: Settings, day: date, table: pa.Table) -> Said:
    """The draws of a day, and the intervals that they give."""
    settings.lake.publish()
    intervals = settings.lake.sql(latency_error.INTERVALS, trace=settings.trace, day=day)
    said = {"intervals": dg.MetadataValue.md(markdown(intervals))}
    return {**told(settings.trace, table, "tables/error_draws.sql"), **said}


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

    def asked(self) -> levelling.Asked:
        """With what is not said."""
        said = {name: value for name, value in self.model_dump().items() if value is not None}
        return levelling.Asked(**said)


@on_demand(after("requests"), after("plans"), of=DAYS, config=Levelled)
def level_trials(call: Call) -> Said:
    """How many levels of priority, how much headroom, do moves pay? An endpoint under every stack."""
    table = levelling.try_levels(call.settings, call.day, call.config.asked(), call.progress)
    return level_trials_said(call.settings, call.day, table)


def level_trials_said(settings: Settings, day: date, table: pa.Table) -> Said:
    """The trials of an endpoint, what they answer, and their figures."""
    settings.lake.publish()
    first = table.slice(0, 1).to_pylist()[0]
    of_endpoint = {name: first[name] for name in ("llm", "region")}
    drawings = level_drawings(**of_endpoint, dealt_by=first["dealt_by"], load=first["load_factor"])
    answer = "\n\n".join(levelling.answers(settings, day, **of_endpoint))
    said = {**pictures(draw_day(settings, day, drawings)), "answer": dg.MetadataValue.md(answer)}
    return {**told(settings.trace, table, "tables/level_trials.sql"), **of_endpoint, **said}


class Planners(dg.Config):
    """Which planners, else all; with ideas also those between; with draws also others of its requests."""

    planners: list[str] | None = None
    ideas: bool = True
    draws: int = 0


@on_demand(*map(after, ("plans", "forecasts", "requests")), of=DAYS, config=Planners)
def planner_trials(call: Call) -> Said:
    """The planners of five papers and ours on a day, searched to the same attainment and quality."""
    asked = call.config
    table = planner_board.try_planners(
        call.settings, call.day, asked.planners or (), asked.ideas, call.progress, asked.draws
    )
    return planner_trials_said(call.settings, call.day, table)


def planner_trials_said(settings: Settings, day: date, table: pa.Table) -> Said:
    """The trials of a day with the board, and its figures."""
    settings.lake.publish()
    drawings = {"planner_board": planner_figure}
    if planner_board.worth(settings, day).num_rows:
        drawings["idea_worth"] = idea_figure
    board = planner_board.board(settings, day)
    said = {**pictures(draw_day(settings, day, drawings)), "board": dg.MetadataValue.md(markdown(board))}
    return {**told(settings.trace, table, "tables/planner_trials.sql"), **said}


STUDIES = [
    characterisation,
    backtests,
    decisions,
    whatifs,
    error_draws,
    level_trials,
    planner_trials,
]
