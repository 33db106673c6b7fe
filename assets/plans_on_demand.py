"""Plans on demand, a row each: of days to come, of what to rent or buy, of which llm answers what."""

import dagster as dg
import pyarrow as pa

from fleetcast.assets.demand.history import not_known
from fleetcast.assets.lake.partitions import DAYS
from fleetcast.assets.lake.settings import Settings
from fleetcast.assets.pages.on_demand import AssetContext, Made, Of, on_demand
from fleetcast.assets.pages.telling import Said, after, markdown
from fleetcast.assets.plans import ahead as planning
from fleetcast.assets.plans import quality_asked as asking
from fleetcast.assets.plans import rolling as roll
from fleetcast.assets.studies import buying, graded, renting
from fleetcast.assets.studies import quality_plans as answering
from fleetcast.assets.studies.buying_figure import draw_commitments
from fleetcast.assets.studies.phase_figures import draw_phase_prices
from fleetcast.assets.studies.quality_figures import draw_quality
from fleetcast.assets.studies.rent_asked import question

BY_HOUR = "queries/plan_by_hour.sql"
ALL_DEMAND = after("demand", dg.AllPartitionMapping())
ALL_REQUESTS = after("requests", dg.AllPartitionMapping())


def _not_known(settings: Settings, of: Of) -> Said:
    return {"not_known": not_known(settings, of["day"]) or "nothing"}


@on_demand(
    job="plan_ahead",
    about="The fleet of the day after the last one with demand.",
    group="plan",
    after=(ALL_DEMAND,),
    boards={"by_hour": BY_HOUR},
    notes=_not_known,
)
def day_ahead_plans(context: AssetContext) -> Made:
    """The fleet of the day after the last one with demand, from what is known when it begins."""
    day = planning.day_to_come(context.settings)
    table = planning.plan_ahead(context.settings, day, context.progress)
    return Made(table, {"day": day, "policy": planning.POLICY})


def _hours_of_days(settings: Settings, of: Of) -> Said:
    known = {"trace": settings.trace, "policy": roll.ROLLING}
    hours = pa.concat_tables(settings.lake.sql(BY_HOUR, day=day, **known) for day in of["days"])
    return {"by_hour": dg.MetadataValue.md(markdown(hours))}


@on_demand(
    job="plan_rolling",
    about="The fleet of the next 48 hours, from now on.",
    group="plan",
    after=(ALL_DEMAND,),
    notes=_hours_of_days,
)
def rolling_plans(context: AssetContext) -> Made:
    """The fleet of the next 48 hours, from the demand until now; made again and again."""
    table = roll.plan_rolling(context.settings, None, context.progress)
    return made_rolling(table)


def made_rolling(table: pa.Table) -> Made:
    """The rows of a rolling plan, with the days that it reaches."""
    days = sorted(set(table["day"].to_pylist()))
    return Made(table, {"made_at": table["made_at"][0].as_py().isoformat(), "days": days})


@on_demand(
    job="grade",
    about="A day's advice against the fleet that ran: saved and missed.",
    group="score",
    after=(after("plans"), after("requests")),
    partitions=DAYS,
    boards={"grade": "queries/graded_shadow.sql"},
)
def shadow_runs(context: AssetContext) -> Made:
    """Yesterday's advice against the fleet that ran, both replayed: what it would have saved and missed."""
    table = graded.grade_shadow(context.settings, context.day, planning.POLICY, context.progress)
    return Made(table, {"day": context.day})


class Terms(dg.Config):
    """What is paid of the price on demand, and how many weeks are looked at."""

    reserved: float
    spot: float = 1.0
    weeks: int = 4


@on_demand(
    job="buy",
    about="Which GPUs to reserve, to buy on demand, to take from spot.",
    group="plan",
    after=(ALL_DEMAND,),
    config=Terms,
    boards={"what_to_buy": "queries/what_to_buy.sql"},
    figures=lambda settings, of: {"commitments": draw_commitments(settings, of["day"])},
    needs_config=True,
)
def commitments(context: AssetContext) -> Made:
    """What to reserve, to buy on demand and to take from spot, from the need of past weeks."""
    asked = context.config
    terms = buying.Terms(asked.reserved, asked.spot)
    day, table = buying.buy(context.settings, terms, asked.weeks, context.progress)
    return Made(table, {"day": day})


class Renting(dg.Config):
    """For which llm, which GPU types may be rented, and whether the phases may run apart."""

    llm: str | None = None  # else the one with most input tokens to come
    gpus: str | None = None  # joined by commas; else all whose kernels were timed
    way: str = "any"  # or together, or apart


@on_demand(
    job="gpus",
    about="Which GPUs to rent for an llm, for the day after the last one.",
    group="plan",
    after=(ALL_DEMAND, ALL_REQUESTS),
    config=Renting,
    boards={"which_gpus": "queries/which_gpus.sql"},
    figures=lambda settings, of: {"phase_prices": draw_phase_prices(settings, of["day"], of["llm"])},
    needs_config=True,
)
def gpu_fleets(context: AssetContext) -> Made:
    """Which GPUs to rent for an llm: USD per token by phase, and the best fleets, replayed at the peak."""
    settings, progress, day = context.settings, context.progress, planning.day_to_come(context.settings)
    llm, gpus, way = context.config.llm, context.config.gpus, context.config.way
    asked = question(settings, day, llm, gpus, [], way, None, None, progress)
    _, table = renting.write(settings, day, renting.answer(settings, day, asked, progress))
    return Made(table, {"day": day, "llm": asked.llm})


class Asked(dg.Config):
    """What is asked of a plan for quality."""

    quality: float = 0.58  # the least mean score
    latency_s: float = 12.0  # the most P95 from arrival to the last token
    budget_usd_per_hour: float = float("inf")
    front: bool = True
    whatif: bool = False  # the cases of data/quality_cases.toml too


@on_demand(
    job="plan_quality",
    about="Which llm answers what on which GPUs; of a config with [quality].",
    group="quality",
    config=Asked,
    boards={
        "board": "select * exclude (trace, question) from quality_board where trace = $trace "
        "and question = $question order by kind, usd_per_hour, plan"
    },
    figures=lambda settings, of: {"front": draw_quality(settings, of["question"])},
)
def quality_plans(context: AssetContext) -> Made:
    """Which llm answers what on which GPUs, for a quality and a latency; needs a config with [quality]."""
    asked, settings = context.config, context.settings
    question = asking.Question(asked.quality, asked.latency_s, asked.budget_usd_per_hour)
    answering.plan_quality(settings, question, asked.front, context.progress, asked.whatif)
    return made_for_quality(settings, question.name)


def made_for_quality(settings: Settings, question: str) -> Made:
    """The plans of a question as they stand in the lake."""
    table = settings.lake.read("quality_plans", trace=settings.trace, question=question)
    return Made(table, {"question": question})


PLANS = (day_ahead_plans, rolling_plans, shadow_runs, commitments, gpu_fleets, quality_plans)
