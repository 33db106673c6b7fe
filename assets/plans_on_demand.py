"""Plans on demand, a row each: of days to come, of what to rent or buy, of which llm answers what."""

import dagster as dg
import pyarrow as pa

from fleetcast.assets.demand.demand_history import unknown_history_sentence
from fleetcast.assets.lake.partitions import DAY_PARTITIONS
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.pages.asset_metadata import Metadata, markdown_table, upstream_asset
from fleetcast.assets.pages.on_demand_asset import AssetContext, AssetRows, RowScope, define_on_demand_asset
from fleetcast.assets.plans import day_ahead as planning
from fleetcast.assets.plans import quality_requirements as asking
from fleetcast.assets.plans import rolling_plan as roll
from fleetcast.assets.studies import buying, rent_answer, shadow_grading
from fleetcast.assets.studies import quality_study as answering
from fleetcast.assets.studies.buying_figure import draw_commitments
from fleetcast.assets.studies.phase_figures import draw_phase_prices
from fleetcast.assets.studies.quality_figures import draw_quality
from fleetcast.assets.studies.rent_query import build_rent_query

PLAN_BY_HOUR_QUERY = "queries/plan_by_hour.sql"
EVERY_DEMAND_DEP = upstream_asset("demand", dg.AllPartitionMapping())
EVERY_REQUEST_DEP = upstream_asset("requests", dg.AllPartitionMapping())


def _not_known(settings: RunSettings, of: RowScope) -> Metadata:
    return {"not_known": unknown_history_sentence(settings, of["day"]) or "nothing"}


@define_on_demand_asset(
    job="plan_ahead",
    job_description="The fleet of the day after the last one with demand.",
    group="plan",
    upstream_assets=(EVERY_DEMAND_DEP,),
    boards={"by_hour": PLAN_BY_HOUR_QUERY},
    notes=_not_known,
)
def day_ahead_plans(context: AssetContext) -> AssetRows:
    """The fleet of the day after the last one with demand, from what is known when it begins."""
    day = planning.next_plan_day(context.settings)
    table = planning.plan_ahead(context.settings, day, context.progress)
    return AssetRows(table, {"day": day, "policy": planning.DAY_AHEAD_POLICY})


def _hours_of_days(settings: RunSettings, of: RowScope) -> Metadata:
    known = {"trace": settings.trace, "policy": roll.ROLLING_POLICY}
    hours = pa.concat_tables(settings.lake.sql(PLAN_BY_HOUR_QUERY, day=day, **known) for day in of["days"])
    return {"by_hour": dg.MetadataValue.md(markdown_table(hours))}


@define_on_demand_asset(
    job="plan_rolling",
    job_description="The fleet of the next 48 hours, from now on.",
    group="plan",
    upstream_assets=(EVERY_DEMAND_DEP,),
    notes=_hours_of_days,
)
def rolling_plans(context: AssetContext) -> AssetRows:
    """The fleet of the next 48 hours, from the demand until now; made again and again."""
    table = roll.plan_rolling(context.settings, None, context.progress)
    return rolling_plan_result(table)


def rolling_plan_result(table: pa.Table) -> AssetRows:
    """The rows of a rolling plan, with the days that it reaches."""
    days = sorted(set(table["day"].to_pylist()))
    return AssetRows(table, {"made_at": table["made_at"][0].as_py().isoformat(), "days": days})


@define_on_demand_asset(
    job="grade",
    job_description="A day's advice against the fleet that ran: saved and missed.",
    group="score",
    upstream_assets=(upstream_asset("plans"), upstream_asset("requests")),
    partitions=DAY_PARTITIONS,
    boards={"grade": "queries/graded_shadow.sql"},
)
def shadow_runs(context: AssetContext) -> AssetRows:
    """Yesterday's advice against the fleet that ran, both replayed: what it would have saved and missed."""
    table = shadow_grading.grade_shadow(
        context.settings, context.day, planning.DAY_AHEAD_POLICY, context.progress
    )
    return AssetRows(table, {"day": context.day})


class CommitmentsRun(dg.Config):
    """What is paid of the price on demand, and how many weeks are looked at."""

    reserved: float
    spot: float = 1.0
    weeks: int = 4


@define_on_demand_asset(
    job="buy",
    job_description="Which GPUs to reserve, to buy on demand, to take from spot.",
    group="plan",
    upstream_assets=(EVERY_DEMAND_DEP,),
    config=CommitmentsRun,
    boards={"what_to_buy": "queries/what_to_buy.sql"},
    figures=lambda settings, of: {"commitments": draw_commitments(settings, of["day"])},
    needs_config=True,
)
def commitments(context: AssetContext) -> AssetRows:
    """What to reserve, to buy on demand and to take from spot, from the need of past weeks."""
    asked = context.config
    terms = buying.PurchaseTerms(asked.reserved, asked.spot)
    day, table = buying.write_buying_list(context.settings, terms, asked.weeks, context.progress)
    return AssetRows(table, {"day": day})


class GpuFleetsRun(dg.Config):
    """For which llm, which GPU types may be rented, and whether the phases may run apart."""

    llm: str | None = None  # else the one with most input tokens to come
    gpus: str | None = None  # joined by commas; else all whose kernels were timed
    way: str = "any"  # or together, or apart


@define_on_demand_asset(
    job="gpus",
    job_description="Which GPUs to rent for an llm, for the day after the last one.",
    group="plan",
    upstream_assets=(EVERY_DEMAND_DEP, EVERY_REQUEST_DEP),
    config=GpuFleetsRun,
    boards={"which_gpus": "queries/which_gpus.sql"},
    figures=lambda settings, of: {"phase_prices": draw_phase_prices(settings, of["day"], of["llm"])},
    needs_config=True,
)
def gpu_fleets(context: AssetContext) -> AssetRows:
    """Which GPUs to rent for an llm: USD per token by phase, and the best fleets, replayed at the peak."""
    settings, progress, day = context.settings, context.progress, planning.next_plan_day(context.settings)
    llm, gpus, way = context.config.llm, context.config.gpus, context.config.way
    asked = build_rent_query(settings, day, llm, gpus, [], way, None, None, progress)
    _, table = rent_answer.write_rent_tables(
        settings, day, rent_answer.answer_rent_query(settings, day, asked, progress)
    )
    return AssetRows(table, {"day": day, "llm": asked.llm})


class QualityPlansRun(dg.Config):
    """What is asked of a plan for quality."""

    quality: float = 0.58  # the least mean score
    latency_s: float = 12.0  # the most P95 from arrival to the last token
    budget_usd_per_hour: float = float("inf")
    front: bool = True
    whatif: bool = False  # the cases of data/quality_cases.toml too


@define_on_demand_asset(
    job="plan_quality",
    job_description="Which llm answers what on which GPUs; of a config with [quality].",
    group="quality",
    config=QualityPlansRun,
    boards={
        "board": "select * exclude (trace, question) from quality_board where trace = $trace "
        "and question = $question order by kind, usd_per_hour, plan"
    },
    figures=lambda settings, of: {"front": draw_quality(settings, of["question"])},
)
def quality_plans(context: AssetContext) -> AssetRows:
    """Which llm answers what on which GPUs, for a quality and a latency; needs a config with [quality]."""
    asked, settings = context.config, context.settings
    question = asking.QualityRequirement(asked.quality, asked.latency_s, asked.budget_usd_per_hour)
    answering.plan_quality(settings, question, asked.front, context.progress, asked.whatif)
    return quality_plan_result(settings, question.name)


def quality_plan_result(settings: RunSettings, question: str) -> AssetRows:
    """The plans of a question as they stand in the lake."""
    table = settings.lake.read("quality_plans", trace=settings.trace, question=question)
    return AssetRows(table, {"question": question})


PLANS_ON_DEMAND = (day_ahead_plans, rolling_plans, shadow_runs, commitments, gpu_fleets, quality_plans)
