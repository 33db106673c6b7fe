"""Plans on demand, each its own job: of days to come, of what to rent or buy, of which llm answers what.

Like the assets of on_demand.py they stand beside the lineage, each with a `*_said`.
"""

from datetime import date

import dagster as dg
import pyarrow as pa

from assets.demand.history import not_known
from assets.lake.partitions import DAYS
from assets.lake.settings import Progress, Settings
from assets.pages.telling import (
    Said,
    SettingsResource,
    after,
    day_of,
    described,
    markdown,
    opened,
    picture,
    plainly,
    told,
)
from assets.plans import ahead as planning
from assets.plans import quality_asked as asking
from assets.plans import rolling as roll
from assets.studies import buying, graded, renting
from assets.studies import quality_plans as answering
from assets.studies.buying_figure import draw_commitments
from assets.studies.phase_figures import draw_phase_prices
from assets.studies.quality_figures import draw_quality
from assets.studies.rent_asked import question


@dg.asset(
    deps=[after("demand", dg.AllPartitionMapping())],
    **described("day_ahead_plans"),
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


@dg.asset(
    deps=[after("demand", dg.AllPartitionMapping())],
    **described("rolling_plans"),
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


@dg.asset(partitions_def=DAYS, deps=[*map(after, ("plans", "requests"))], **described("shadow_runs"))
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
    deps=[after("demand", dg.AllPartitionMapping())],
    **described("commitments"),
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


class Renting(dg.Config):
    """For which llm, which GPU types may be rented, and whether the phases may run apart."""

    llm: str | None = None  # else the one with most input tokens to come
    gpus: str | None = None  # joined by commas; else all whose kernels were timed
    way: str = "any"  # or together, or apart


@dg.asset(
    deps=[after(name, dg.AllPartitionMapping()) for name in ("demand", "requests")],
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


PLANS = [day_ahead_plans, rolling_plans, shadow_runs, commitments, gpu_fleets, quality_plans]
