"""On-demand assets that plan: coming days, GPUs to rent or buy, and which llm serves which requests."""

from datetime import timedelta

import dagster as dg
import pyarrow as pa

from fleetcast.assets.advice.nightly_promise import describe_promises, promise_next_day
from fleetcast.assets.demand.demand_history import unknown_history_sentence
from fleetcast.assets.lake.partitions import DAY_PARTITIONS
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.pages.asset_metadata import Metadata, markdown_table, upstream_asset
from fleetcast.assets.pages.on_demand_asset import AssetContext, AssetRows, RowScope, define_on_demand_asset
from fleetcast.assets.plans import day_ahead, rolling_plan
from fleetcast.assets.plans.quality_requirements import QualityRequirement
from fleetcast.assets.studies import buying, quality_study, rent_answer, shadow_grading
from fleetcast.assets.studies.buying_figure import draw_commitments
from fleetcast.assets.studies.phase_figures import draw_phase_prices
from fleetcast.assets.studies.quality_figures import draw_quality
from fleetcast.assets.studies.rent_query import build_rent_query

PLAN_BY_HOUR_QUERY = "queries/plan_by_hour.sql"
EVERY_DEMAND_DEP = upstream_asset("demand", dg.AllPartitionMapping())
EVERY_REQUEST_DEP = upstream_asset("requests", dg.AllPartitionMapping())


def _not_known(settings: RunSettings, scope: RowScope) -> Metadata:
    return {"not_known": unknown_history_sentence(settings, scope["day"]) or "nothing"}


@define_on_demand_asset(
    job="plan_ahead",
    job_description="Plan the fleet of the day after the last one with demand.",
    group="plan",
    upstream_assets=(EVERY_DEMAND_DEP,),
    boards={"by_hour": PLAN_BY_HOUR_QUERY},
    notes=_not_known,
)
def day_ahead_plans(context: AssetContext) -> AssetRows:
    """Fleet of the day after the last one with demand, planned from data before that day."""
    day = day_ahead.next_plan_day(context.settings)
    table = day_ahead.plan_ahead(context.settings, day, context.progress)
    return AssetRows(table, {"day": day, "policy": day_ahead.DAY_AHEAD_POLICY})


def _promised(settings: RunSettings, scope: RowScope) -> Metadata:
    lines = describe_promises(settings, scope["day"] - timedelta(days=1))
    return {"promise": dg.MetadataValue.md("\n\n".join(lines))}


@define_on_demand_asset(
    job="promise",
    job_description="Promise what the plan of the next day attains and costs; the nightly run grades it.",
    group="score",
    upstream_assets=(upstream_asset("day_ahead_plans"), EVERY_REQUEST_DEP),
    notes=_promised,
)
def advised_days(context: AssetContext) -> AssetRows:
    """Intervals of attainment and cost of the next day, from replays of its plan on versions of the day."""
    day = day_ahead.next_plan_day(context.settings)
    return AssetRows(promise_next_day(context.settings, day, context.progress), {"day": day})


def _hours_of_days(settings: RunSettings, scope: RowScope) -> Metadata:
    parameters = {"trace": settings.trace, "policy": rolling_plan.ROLLING_POLICY}
    hours = pa.concat_tables(
        settings.lake.sql(PLAN_BY_HOUR_QUERY, day=day, **parameters) for day in scope["days"]
    )
    return {"by_hour": dg.MetadataValue.md(markdown_table(hours))}


@define_on_demand_asset(
    job="plan_rolling",
    job_description="Plan the fleet of the next 48 hours.",
    group="plan",
    upstream_assets=(EVERY_DEMAND_DEP,),
    notes=_hours_of_days,
)
def rolling_plans(context: AssetContext) -> AssetRows:
    """Fleet of the next 48 hours, planned from the demand until now; made anew at each run."""
    return rolling_plan_result(rolling_plan.plan_rolling(context.settings, None, context.progress))


def rolling_plan_result(table: pa.Table) -> AssetRows:
    """Return the rows of a rolling plan with the days that it covers."""
    days = sorted(set(table["day"].to_pylist()))
    return AssetRows(table, {"made_at": table["made_at"][0].as_py().isoformat(), "days": days})


@define_on_demand_asset(
    job="grade",
    job_description="Compare a day's advice with the fleet that ran: USD saved, requests missed.",
    group="score",
    upstream_assets=(upstream_asset("plans"), upstream_asset("requests")),
    partitions=DAY_PARTITIONS,
    boards={"grade": "queries/graded_shadow.sql"},
)
def shadow_runs(context: AssetContext) -> AssetRows:
    """Day-ahead advice compared with the fleet that ran, both replayed: USD saved and requests missed."""
    table = shadow_grading.grade_shadow(
        context.settings, context.day, day_ahead.DAY_AHEAD_POLICY, context.progress
    )
    return AssetRows(table, {"day": context.day})


class CommitmentsRun(dg.Config):
    """Prices of reserved and spot GPUs as shares of the on-demand price, and the weeks of history to use."""

    reserved: float
    spot: float = 1.0
    weeks: int = 4


@define_on_demand_asset(
    job="buy",
    job_description="Choose which GPUs to reserve, to buy on demand and to take from spot.",
    group="plan",
    upstream_assets=(EVERY_DEMAND_DEP,),
    config=CommitmentsRun,
    boards={"what_to_buy": "queries/what_to_buy.sql"},
    figures=lambda settings, scope: {"commitments": draw_commitments(settings, scope["day"])},
    needs_config=True,
)
def commitments(context: AssetContext) -> AssetRows:
    """GPUs to reserve, to buy on demand and to take from spot, from the need of past weeks."""
    config = context.config
    terms = buying.PurchaseTerms(config.reserved, config.spot)
    day, table = buying.write_buying_list(context.settings, terms, config.weeks, context.progress)
    return AssetRows(table, {"day": day})


class GpuFleetsRun(dg.Config):
    """The llm, the GPU types that may be rented, and whether prefill and decode may run apart."""

    llm: str | None = None  # None: the llm with the most forecast input tokens
    gpus: str | None = None  # separated by commas; None: all GPU types with measured kernels
    way: str = "any"  # any, together or apart


@define_on_demand_asset(
    job="gpus",
    job_description="Choose the GPUs to rent for an llm, for the day after the last one.",
    group="plan",
    upstream_assets=(EVERY_DEMAND_DEP, EVERY_REQUEST_DEP),
    config=GpuFleetsRun,
    boards={"which_gpus": "queries/which_gpus.sql"},
    figures=lambda settings, scope: {"phase_prices": draw_phase_prices(settings, scope["day"], scope["llm"])},
    needs_config=True,
)
def gpu_fleets(context: AssetContext) -> AssetRows:
    """GPUs to rent for an llm: USD per token by phase, and the best fleets, replayed at the peak."""
    settings, progress, day = context.settings, context.progress, day_ahead.next_plan_day(context.settings)
    llm, gpus, way = context.config.llm, context.config.gpus, context.config.way
    query = build_rent_query(settings, day, llm, gpus, [], way, None, None, progress)
    _, table = rent_answer.write_rent_tables(
        settings, day, rent_answer.answer_rent_query(settings, day, query, progress)
    )
    return AssetRows(table, {"day": day, "llm": query.llm})


class QualityPlansRun(dg.Config):
    """Requirements of a quality plan."""

    quality: float = 0.58  # minimum mean score
    latency_s: float = 12.0  # maximum P95 from arrival to the last token
    budget_usd_per_hour: float = float("inf")
    front: bool = True
    whatif: bool = False  # also run the cases of data/quality_cases.toml


@define_on_demand_asset(
    job="plan_quality",
    job_description="Choose the llm that serves each request, and its GPUs; needs a config with [quality].",
    group="quality",
    config=QualityPlansRun,
    boards={
        "board": "select * exclude (trace, question) from quality_board where trace = $trace "
        "and question = $question order by plan_kind, usd_per_hour, plan"
    },
    figures=lambda settings, scope: {"front": draw_quality(settings, scope["question"])},
)
def quality_plans(context: AssetContext) -> AssetRows:
    """Serving llm and GPUs of each request, for a quality and a latency; needs a config with [quality]."""
    config, settings = context.config, context.settings
    requirement = QualityRequirement(config.quality, config.latency_s, config.budget_usd_per_hour)
    quality_study.plan_quality(settings, requirement, config.front, context.progress, config.whatif)
    return quality_plan_result(settings, requirement.name)


def quality_plan_result(settings: RunSettings, question: str) -> AssetRows:
    """Read the plans of a quality requirement from the lake."""
    table = settings.lake.read("quality_plans", trace=settings.trace, question=question)
    return AssetRows(table, {"question": question})


PLANS_ON_DEMAND = (
    day_ahead_plans,
    advised_days,
    rolling_plans,
    shadow_runs,
    commitments,
    gpu_fleets,
    quality_plans,
)
