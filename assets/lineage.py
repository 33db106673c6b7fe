"""The assets as Dagster sees them: what each table is, what it is made from, and what a run says about it.

Nothing is computed here. Each asset calls the function of its own module and reports what was written.
"""

import dagster as dg

from assets.demand import demand as demands
from assets.forecasts import forecasts as predictions
from assets.lake.partitions import DAY_BEFORE, DAYS, WITH_HISTORY
from assets.lake.settings import Progress
from assets.pages.pictures import draw_day
from assets.pages.telling import (
    SettingsResource,
    day_of,
    described,
    markdown,
    opened,
    picture,
    plainly,
    text_table,
    told,
)
from assets.plans import page as plan_page
from assets.plans import plans
from assets.replays import figures as drawings
from assets.replays import replays, scorecards
from assets.traces import quality, traces
from assets.traces.landing import COLUMNS, land_all, texts, traces_of


@dg.asset(**described("landing"))
def landing(settings: SettingsResource) -> dg.MaterializeResult:
    """Every trace file in data/landing, as canonical requests; rows that break a rule go to quarantine."""
    with plainly():
        chosen = settings.load()
        landing = land_all(chosen)
        findings = quality.findings(chosen.lake, traces_of(landing))
        chosen.lake.publish()
    return dg.MaterializeResult(
        metadata={
            "files": text_table([texts(report) for report in landing.reports], COLUMNS),
            "quality": text_table(findings, quality.COLUMNS),
            "refused": dg.MetadataValue.json(landing.refused),
            "dagster/row_count": sum(report.rows_kept for report in landing.reports),
        }
    )


@dg.asset(partitions_def=DAYS, deps=[landing], **described("requests"))
def requests(context: dg.AssetExecutionContext, settings: SettingsResource) -> dg.MaterializeResult:
    """The requests of a day: generated or tiled where the config says so, else those that were landed."""
    with plainly():
        chosen, day = opened(context, settings), day_of(context)
        rows = traces.make_day(chosen.lake, chosen.config.trace, chosen.catalogue, day)
        columns = told(chosen.trace, chosen.lake.sql("select * from requests limit 0"), "tables/requests.sql")
    return dg.MaterializeResult(metadata={**columns, "dagster/row_count": rows})


@dg.asset(partitions_def=DAYS, deps=[requests], **described("demand"))
def demand(context: dg.AssetExecutionContext, settings: SettingsResource) -> dg.MaterializeResult:
    """Requests and tokens per region, llm, tier, app and minute; it conserves the day's tokens exactly."""
    with plainly():
        chosen, day = opened(context, settings), day_of(context)
        table = demands.build_demand(chosen.lake, chosen.trace, day)
    return dg.MaterializeResult(metadata=told(chosen.trace, table, "marts/demand.sql"))


@dg.asset(
    partitions_def=DAYS,
    deps=[dg.AssetDep("demand", partition_mapping=WITH_HISTORY)],
    **described("forecasts"),
)
def forecasts(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """Input tokens, output tokens and requests of the next hour, every hour from what was known then."""
    with plainly():
        chosen, day = opened(context, settings), day_of(context)
        table = predictions.forecast_day(chosen, day, progress)
        errors = predictions.errors(chosen, day)
    return dg.MaterializeResult(
        metadata={
            **told(chosen.trace, table, "tables/forecasts.sql"),
            "errors": dg.MetadataValue.md(markdown(errors)),
        }
    )


@dg.asset(
    partitions_def=DAYS,
    deps=[
        forecasts,
        dg.AssetDep("demand", partition_mapping=WITH_HISTORY),
        dg.AssetDep("requests", partition_mapping=DAY_BEFORE),
    ],
    **described("plans"),
)
def plans_(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """Instances per llm, region and hour: from the forecast, the true demand, and the peak of the history."""
    with plainly():
        chosen, day = opened(context, settings), day_of(context)
        table = plans.plan_day(chosen, day, progress)
        drawn, changes = plan_page.draw_plan_page(chosen, day), plan_page.changes(chosen, day)
    columns = dg.TableSchema([dg.TableColumn(name) for name in plan_page.CHANGES])
    records = [dg.TableRecord({k: str(v) for k, v in row.items()}) for row in changes.to_pylist()]
    return dg.MaterializeResult(
        metadata={
            **told(chosen.trace, table, "tables/plans.sql"),
            "plan": picture(drawn),
            "changes": dg.MetadataValue.table(records, columns),
        }
    )


@dg.asset(partitions_def=DAYS, deps=[requests, plans_], **described("replays"))
def replays_(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """What every request met and what the fleet spent, under each policy, all from the same fleet."""
    with plainly():
        chosen, day = opened(context, settings), day_of(context)
        with replays.of_one_config(chosen, day):
            rows = replays.replay_day(chosen, day, chosen.config.replay.policies, progress)
        columns = told(chosen.trace, chosen.lake.sql("select * from outcomes limit 0"), "tables/outcomes.sql")
    return dg.MaterializeResult(metadata={**columns, "dagster/row_count": rows})


@dg.asset(partitions_def=DAYS, deps=[replays_], **described("scorecard"))
def scorecard(context: dg.AssetExecutionContext, settings: SettingsResource) -> dg.MaterializeResult:
    """Attainment and latency per policy, llm, region, tier and hour; the scoreboard sums it up per policy."""
    with plainly():
        chosen, day = opened(context, settings), day_of(context)
        table = scorecards.score_day(chosen, day)
        chosen.lake.publish()
        board = scorecards.scoreboard(chosen, day)
    return dg.MaterializeResult(
        metadata={
            **told(chosen.trace, table, "marts/scorecard.sql"),
            "scoreboard": dg.MetadataValue.md(markdown(board.select(scorecards.SHOWN))),
        }
    )


@dg.asset(partitions_def=DAYS, deps=[scorecard], **described("figures"))
def figures(context: dg.AssetExecutionContext, settings: SettingsResource) -> dg.MaterializeResult:
    """The day in pictures, under data/figures."""
    with plainly():
        chosen = opened(context, settings)
        paths = draw_day(chosen, day_of(context), drawings.drawings(chosen))
    pictures = {name: picture(path) for name, path in paths.items()}
    return dg.MaterializeResult(metadata={"trace": chosen.trace, **pictures})


ASSETS = [landing, requests, demand, forecasts, plans_, replays_, scorecard, figures]
