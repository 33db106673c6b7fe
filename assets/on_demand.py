"""Assets on demand, each its own job and never part of the night: what a trace is like, and what would be if.

They stand beside the lineage: nothing is made from them. Each has a `*_said`: what it tells of what was
written, be it in a run or from the command line.
"""

from collections.abc import Mapping
from datetime import date
from typing import Any

import dagster as dg
import pyarrow as pa

from assets.demand.character_figures import draw_character
from assets.demand.characterise import characterise
from assets.demand.demand import INTERACTIVE
from assets.demand.history import not_known
from assets.forecasts import backtests as backtesting
from assets.forecasts.leaderboard import decision_curves, forecast_leaderboard
from assets.lake.partitions import DAYS, WITH_HISTORY
from assets.lake.settings import Progress, Settings
from assets.lake.warehouse import Lake
from assets.pages.pictures import draw_day
from assets.pages.telling import SettingsResource, day_of, described, markdown, opened, picture, plainly, told
from assets.plans import ahead as planning
from assets.plans import rolling as roll
from assets.studies import buying, graded, latency_error, renting, whatif
from assets.studies import decisions as deciding
from assets.studies import levels as levelling
from assets.studies import quality_asked as asking
from assets.studies import quality_plans as answering
from assets.studies.buying_figure import draw_commitments
from assets.studies.cases import case_names
from assets.studies.level_figures import level_drawings
from assets.studies.phase_figures import draw_phase_prices
from assets.studies.quality_figures import draw_quality
from assets.studies.rent_asked import question

CASES = dg.StaticPartitionsDefinition(case_names())
DAYS_AND_CASES = dg.MultiPartitionsDefinition({"day": DAYS, "case": CASES})


Said = Mapping[str, Any]


@dg.asset(
    deps=[dg.AssetDep("demand", partition_mapping=dg.AllPartitionMapping())], **described("characterisation")
)
def characterisation(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """How bursty, how seasonal and how foreseeable the trace and its parts are, over all its days."""
    with plainly():
        chosen = opened(context, settings)
        table = characterise(chosen.lake, chosen.trace, progress)
        return dg.MaterializeResult(metadata=characterisation_said(chosen.lake, chosen.trace, table))


def characterisation_said(lake: Lake, trace: str, table: pa.Table) -> Said:
    """The table characterisation of a trace, and its figures."""
    lake.publish()
    pictures = {name: picture(path) for name, path in draw_character(lake, trace).items()}
    return {**told(trace, table, "tables/characterisation.sql"), **pictures}


class Backtest(dg.Config):
    """What of the demand is forecast: a tier, or interactive: all that nobody holds back as one series."""

    tier: str = INTERACTIVE


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
        chosen, day = opened(context, settings), day_of(context)
        table = backtesting.backtest_days(chosen, day, day, config.tier, progress)
        return dg.MaterializeResult(metadata=backtests_said(chosen, day, config.tier, table))


def backtests_said(settings: Settings, day: date, tier: str, table: pa.Table) -> Said:
    """The backtests up to a day, with the leaderboard of the tier as table and figure."""
    figure = draw_day(settings, day, {"forecast_leaderboard": forecast_leaderboard})
    settings.lake.publish()
    board = backtesting.leaderboard(settings, tier)
    said: dict[str, Any] = {name: picture(path) for name, path in figure.items()}
    said |= {"leaderboard": dg.MetadataValue.md(markdown(board)), "tier": tier}
    return {**told(settings.trace, table, "tables/backtests.sql"), **said}


@dg.asset(
    partitions_def=DAYS,
    deps=["plans", "forecasts", "requests", dg.AssetDep("demand", partition_mapping=WITH_HISTORY)],
    **described("decisions"),
)
def decisions(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """What each forecast is worth: every method plans the day and is replayed, where all attain the same."""
    with plainly():
        chosen, day = opened(context, settings), day_of(context)
        table = deciding.decide(chosen, day, progress)
        return dg.MaterializeResult(metadata=decisions_said(chosen, day, table))


def decisions_said(settings: Settings, day: date, table: pa.Table) -> Said:
    """The decisions of a day, with their leaderboard and the curves that it is read from."""
    figure = draw_day(settings, day, {"decision_curves": decision_curves})
    settings.lake.publish()
    said: dict[str, Any] = {name: picture(path) for name, path in figure.items()}
    said["leaderboard"] = dg.MetadataValue.md(markdown(deciding.leaderboard(settings, day)))
    return {**told(settings.trace, table, "tables/decisions.sql"), **said}


SAME_DAY = dg.MultiToSingleDimensionPartitionMapping("day")


@dg.asset(
    partitions_def=DAYS_AND_CASES,
    deps=[dg.AssetDep(name, partition_mapping=SAME_DAY) for name in ("forecasts", "demand", "requests")],
    **described("whatifs"),
)
def whatifs(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """Cost and attainment of a day under a case of data/whatif.toml: other prices, GPUs, regions, budgets."""
    with plainly():
        chosen, day = opened(context, settings), day_of(context)
        table = whatif.what_if(chosen, day, [case_of(context)], progress)
        chosen.lake.publish()
        [said] = whatifs_said(chosen, day, table).values()
    return dg.MaterializeResult(metadata=said)


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


@dg.asset(partitions_def=DAYS, deps=["replays", "plans", "requests"], **described("error_draws"))
def error_draws(
    context: dg.AssetExecutionContext,
    config: Draws,
    settings: SettingsResource,
    progress: dg.ResourceParam[Progress],
) -> dg.MaterializeResult:
    """The scoreboard of a day on latencies that are off by the error of their profiles: what of it lasts?"""
    with plainly():
        chosen, day = opened(context, settings), day_of(context)
        table = latency_error.replay_draws(chosen, day, [], config.draws, progress)
        return dg.MaterializeResult(metadata=error_draws_said(chosen, day, table))


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


@dg.asset(partitions_def=DAYS, deps=["requests", "plans"], **described("level_trials"))
def level_trials(
    context: dg.AssetExecutionContext,
    config: Levelled,
    settings: SettingsResource,
    progress: dg.ResourceParam[Progress],
) -> dg.MaterializeResult:
    """How many levels of priority, how much headroom, do moves pay? An endpoint under every stack."""
    with plainly():
        chosen, day = opened(context, settings), day_of(context)
        table = levelling.try_levels(chosen, day, config.asked(), progress)
        return dg.MaterializeResult(metadata=level_trials_said(chosen, day, table))


def level_trials_said(settings: Settings, day: date, table: pa.Table) -> Said:
    """The trials of an endpoint, what they answer, and their figures."""
    settings.lake.publish()
    first = table.slice(0, 1).to_pylist()[0]
    of_endpoint = {name: first[name] for name in ("llm", "region")}
    drawings = level_drawings(**of_endpoint, dealt_by=first["dealt_by"], load=first["load_factor"])
    said: dict[str, Any] = {name: picture(path) for name, path in draw_day(settings, day, drawings).items()}
    said["answer"] = dg.MetadataValue.md("\n\n".join(levelling.answers(settings, day, **of_endpoint)))
    return {**told(settings.trace, table, "tables/level_trials.sql"), **of_endpoint, **said}


@dg.asset(
    deps=[dg.AssetDep("demand", partition_mapping=dg.AllPartitionMapping())], **described("day_ahead_plans")
)
def day_ahead_plans(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """The fleet of the day after the last one with demand, from what is known when it begins."""
    with plainly():
        chosen = opened(context, settings)
        day = planning.day_to_come(chosen)
        table = planning.plan_ahead(chosen, day, progress)
        return dg.MaterializeResult(metadata=day_ahead_plans_said(chosen, day, table))


def day_ahead_plans_said(settings: Settings, day: date, table: pa.Table) -> Said:
    """The plan of a day to come, with what each hour holds and costs."""
    settings.lake.publish()
    hours = settings.lake.sql(
        "queries/plan_by_hour.sql", trace=settings.trace, day=day, policy=planning.POLICY
    )
    said = {
        "day": day.isoformat(),
        "by_hour": dg.MetadataValue.md(markdown(hours)),
        "not_known": not_known(settings, day) or "nothing",
    }
    return {**told(settings.trace, table, "tables/day_ahead_plans.sql"), **said}


class Renting(dg.Config):
    """For which llm, which GPU types may be rented, and whether the phases may run apart."""

    llm: str | None = None  # else the one with most input tokens to come
    gpus: str | None = None  # joined by commas; else all whose kernels were timed
    way: str = "any"  # or together, or apart


@dg.asset(
    deps=[dg.AssetDep(name, partition_mapping=dg.AllPartitionMapping()) for name in ("demand", "requests")],
    **described("gpu_fleets"),
)
def gpu_fleets(
    context: dg.AssetExecutionContext,
    config: Renting,
    settings: SettingsResource,
    progress: dg.ResourceParam[Progress],
) -> dg.MaterializeResult:
    """Which GPUs to rent for an llm: USD per token by phase, and the best fleets, replayed at the peak."""
    with plainly():
        chosen = opened(context, settings)
        day = planning.day_to_come(chosen)
        asked = question(chosen, day, config.llm, config.gpus, [], config.way, None, None, progress)
        _, table = renting.write(chosen, day, renting.answer(chosen, day, asked, progress))
        return dg.MaterializeResult(metadata=gpu_fleets_said(chosen, day, asked.llm, table))


def gpu_fleets_said(settings: Settings, day: date, llm: str, table: pa.Table) -> Said:
    """The fleets for an llm, cheapest first, and the prices of its phases as a figure."""
    settings.lake.publish()
    figure = draw_phase_prices(settings, day, llm)
    board = settings.lake.sql("queries/which_gpus.sql", trace=settings.trace, day=day)
    return {
        **told(settings.trace, table, "tables/gpu_fleets.sql"),
        "day": day.isoformat(),
        "llm": llm,
        "which_gpus": dg.MetadataValue.md(markdown(board)),
        "phase_prices": picture(figure),
    }


class Asked(dg.Config):
    """What is asked of a plan for quality."""

    quality: float = 0.58  # the least mean score
    latency_s: float = 12.0  # the most P95 from arrival to the last token
    budget_usd_per_hour: float = float("inf")
    front: bool = True
    whatif: bool = False  # the cases of data/quality_cases.toml too


@dg.asset(
    deps=[dg.AssetDep("demand", partition_mapping=dg.AllPartitionMapping())], **described("rolling_plans")
)
def rolling_plans(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """The fleet of the next 48 hours, from the demand until now; made again and again."""
    with plainly():
        chosen = opened(context, settings)
        table = roll.plan_rolling(chosen, None, progress)
        return dg.MaterializeResult(metadata=rolling_plans_said(chosen, table))


def rolling_plans_said(settings: Settings, table: pa.Table) -> Said:
    """When the plan was made, and what each of its hours holds and costs."""
    settings.lake.publish()
    days = sorted(set(table["day"].to_pylist()))
    by_hour = [
        settings.lake.sql("queries/plan_by_hour.sql", trace=settings.trace, day=day, policy=roll.ROLLING)
        for day in days
    ]
    return {
        **told(settings.trace, table, "tables/rolling_plans.sql"),
        "made_at": table["made_at"][0].as_py().isoformat(),
        "by_hour": dg.MetadataValue.md(markdown(pa.concat_tables(by_hour))),
    }


@dg.asset(partitions_def=DAYS, deps=["plans", "requests"], **described("shadow_runs"))
def shadow_runs(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """Yesterday's advice against the fleet that ran, both replayed: what it would have saved and missed."""
    with plainly():
        chosen, day = opened(context, settings), day_of(context)
        table = graded.grade_shadow(chosen, day, planning.POLICY, progress)
        return dg.MaterializeResult(metadata=shadow_runs_said(chosen, day, table))


def shadow_runs_said(settings: Settings, day: date, table: pa.Table) -> Said:
    """The replays of a day's advice and of what ran, with the grade."""
    settings.lake.publish()
    board = settings.lake.sql("queries/graded_shadow.sql", trace=settings.trace, day=day)
    return {
        **told(settings.trace, table, "tables/shadow_runs.sql"),
        "grade": dg.MetadataValue.md(markdown(board)),
    }


class Terms(dg.Config):
    """What is paid of the price on demand, and how many weeks are looked at."""

    reserved: float
    spot: float = 1.0
    weeks: int = 4


@dg.asset(
    deps=[dg.AssetDep("demand", partition_mapping=dg.AllPartitionMapping())], **described("commitments")
)
def commitments(
    context: dg.AssetExecutionContext,
    config: Terms,
    settings: SettingsResource,
    progress: dg.ResourceParam[Progress],
) -> dg.MaterializeResult:
    """What to reserve, to buy on demand and to take from spot, from the need of past weeks."""
    with plainly():
        chosen = opened(context, settings)
        terms = buying.Terms(config.reserved, config.spot)
        day, table = buying.buy(chosen, terms, config.weeks, progress)
        return dg.MaterializeResult(metadata=commitments_said(chosen, day, table))


def commitments_said(settings: Settings, day: date, table: pa.Table) -> Said:
    """The buying list up to a day, and the cost and regret of every commitment as a figure."""
    settings.lake.publish()
    board = settings.lake.sql("queries/what_to_buy.sql", trace=settings.trace, day=day)
    return {
        **told(settings.trace, table, "tables/commitments.sql"),
        "what_to_buy": dg.MetadataValue.md(markdown(board)),
        "commitments": picture(draw_commitments(settings, day)),
    }


@dg.asset(**described("quality_plans"))
def quality_plans(
    context: dg.AssetExecutionContext,
    config: Asked,
    settings: SettingsResource,
    progress: dg.ResourceParam[Progress],
) -> dg.MaterializeResult:
    """Which llm answers what on which GPUs, for a quality and a latency; needs a config with [quality]."""
    with plainly():
        chosen = opened(context, settings)
        question = asking.Question(config.quality, config.latency_s, config.budget_usd_per_hour)
        answering.plan_quality(chosen, question, config.front, progress, config.whatif)
        return dg.MaterializeResult(metadata=quality_plans_said(chosen, question.name))


def quality_plans_said(settings: Settings, question: str) -> Said:
    """The plans of a question side by side, and their picture."""
    settings.lake.publish()
    table = settings.lake.read("quality_plans", trace=settings.trace, question=question)
    board = settings.lake.sql(
        "select * exclude (trace, question) from quality_board where trace = $trace and question = $question "
        "order by kind, usd_per_hour, plan",
        trace=settings.trace,
        question=question,
    )
    said = {
        "question": question,
        "board": dg.MetadataValue.md(markdown(board)),
        "front": picture(draw_quality(settings, question)),
    }
    return {**told(settings.trace, table, "tables/quality_plans.sql"), **said}


STUDIES = [
    *(characterisation, backtests, decisions, whatifs, error_draws),
    *(level_trials, day_ahead_plans, rolling_plans, shadow_runs, commitments, gpu_fleets, quality_plans),
]
