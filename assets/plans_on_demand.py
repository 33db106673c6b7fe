"""Plans on demand, each its own job: of days to come, of what to rent or buy, of which llm answers what.

Like the assets of on_demand.py they stand beside the lineage, each with a `*_said`.
"""

from datetime import date

import dagster as dg
import pyarrow as pa

from fleetcast.assets.demand.history import not_known
from fleetcast.assets.lake.partitions import DAYS
from fleetcast.assets.lake.settings import Settings
from fleetcast.assets.pages.on_demand import Call, on_demand
from fleetcast.assets.pages.telling import (
    Said,
    after,
    markdown,
    picture,
    told,
)
from fleetcast.assets.plans import ahead as planning
from fleetcast.assets.plans import quality_asked as asking
from fleetcast.assets.plans import rolling as roll
from fleetcast.assets.studies import buying, graded, renting
from fleetcast.assets.studies import quality_plans as answering
from fleetcast.assets.studies.buying_figure import draw_commitments
from fleetcast.assets.studies.phase_figures import draw_phase_prices
from fleetcast.assets.studies.quality_figures import draw_quality
from fleetcast.assets.studies.rent_asked import question


@on_demand(after("demand", dg.AllPartitionMapping()))
def day_ahead_plans(call: Call) -> Said:
    """The fleet of the day after the last one with demand, from what is known when it begins."""
    day = planning.day_to_come(call.settings)
    table = planning.plan_ahead(call.settings, day, call.progress)
    return day_ahead_plans_said(call.settings, day, table)


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


@on_demand(after("demand", dg.AllPartitionMapping()))
def rolling_plans(call: Call) -> Said:
    """The fleet of the next 48 hours, from the demand until now; made again and again."""
    table = roll.plan_rolling(call.settings, None, call.progress)
    return rolling_plans_said(call.settings, table)


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


@on_demand(after("plans"), after("requests"), of=DAYS)
def shadow_runs(call: Call) -> Said:
    """Yesterday's advice against the fleet that ran, both replayed: what it would have saved and missed."""
    table = graded.grade_shadow(call.settings, call.day, planning.POLICY, call.progress)
    return shadow_runs_said(call.settings, call.day, table)


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


@on_demand(after("demand", dg.AllPartitionMapping()), config=Terms)
def commitments(call: Call) -> Said:
    """What to reserve, to buy on demand and to take from spot, from the need of past weeks."""
    terms = buying.Terms(call.config.reserved, call.config.spot)
    day, table = buying.buy(call.settings, terms, call.config.weeks, call.progress)
    return commitments_said(call.settings, day, table)


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


@on_demand(*[after(name, dg.AllPartitionMapping()) for name in ("demand", "requests")], config=Renting)
def gpu_fleets(call: Call) -> Said:
    """Which GPUs to rent for an llm: USD per token by phase, and the best fleets, replayed at the peak."""
    day = planning.day_to_come(call.settings)
    llm, gpus, way = call.config.llm, call.config.gpus, call.config.way
    asked = question(call.settings, day, llm, gpus, [], way, None, None, call.progress)
    _, table = renting.write(call.settings, day, renting.answer(call.settings, day, asked, call.progress))
    return gpu_fleets_said(call.settings, day, asked.llm, table)


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


@on_demand(config=Asked)
def quality_plans(call: Call) -> Said:
    """Which llm answers what on which GPUs, for a quality and a latency; needs a config with [quality]."""
    question = asking.Question(call.config.quality, call.config.latency_s, call.config.budget_usd_per_hour)
    answering.plan_quality(call.settings, question, call.config.front, call.progress, call.config.whatif)
    return quality_plans_said(call.settings, question.name)


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
