"""Dagster's assets of the nightly run: their descriptions, dependencies and metadata.

Nothing is computed here. Each asset calls the function of its module and reports what was written.
"""

from collections.abc import Iterator

import dagster as dg

from fleetcast.assets.advice.advice_page import read_advice, write_advice
from fleetcast.assets.advice.advised_days import grade_or_explain
from fleetcast.assets.advice.metadata import describe_advice, describe_grade
from fleetcast.assets.advice.nightly_advice import advise_nightly_run
from fleetcast.assets.demand import demand_history
from fleetcast.assets.forecasts import forecasts as predictions
from fleetcast.assets.lake.partitions import (
    DAY_BEFORE_MAPPING,
    DAY_PARTITIONS,
    HISTORY_MAPPING,
    ONE_RUN_FOR_ALL_DAYS,
)
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.stage_cache import STAGES, rebuild_if_changed
from fleetcast.assets.pages.asset_metadata import (
    RETRY,
    SettingsResource,
    add_day_metadata,
    build_asset_key,
    common_asset_arguments,
    day_version,
    embed_figure,
    embed_figures,
    markdown_table,
    open_day_settings,
    open_run_settings,
    partition_day,
    partition_days,
    run_seconds,
    set_days_version,
    table_metadata,
    text_table,
    upstream_asset,
    user_errors_as_failures,
)
from fleetcast.assets.pages.figure_files import draw_day_figures
from fleetcast.assets.plans import plan_page, plans
from fleetcast.assets.replays import nightly_replays, scorecards
from fleetcast.assets.replays import replay_figures as drawings
from fleetcast.assets.replays.replay_units import find_unit
from fleetcast.assets.replays.trend_figures import read_trend_figures, trend_policy
from fleetcast.assets.traces import data_quality
from fleetcast.assets.traces.landing import LANDING_COLUMNS, land_all_files, report_texts


@dg.asset(**common_asset_arguments("landing"))
def landing(settings: SettingsResource, progress: dg.ResourceParam[Progress]) -> dg.MaterializeResult:
    """Canonical requests of every trace file in data/landing; rows that break a rule go to quarantine."""
    with user_errors_as_failures():
        chosen = settings.load()
        landing = land_all_files(chosen, progress)
        findings = data_quality.trace_findings(chosen.lake, {report.trace for report in landing.reports})
        chosen.lake.publish()
    return dg.MaterializeResult(
        data_version=dg.DataVersion(chosen.lake.version(["ingests", "answers"])),
        metadata={
            "files": text_table([report_texts(report) for report in landing.reports], LANDING_COLUMNS),
            "quality": text_table(findings, data_quality.QUALITY_COLUMNS),
            "refused": dg.MetadataValue.json(landing.refused),
            "dagster/row_count": sum(report.rows_kept for report in landing.reports),
        },
    )


@dg.asset(
    partitions_def=DAY_PARTITIONS,
    backfill_policy=ONE_RUN_FOR_ALL_DAYS,
    deps=[landing],
    **common_asset_arguments("requests"),
)
def requests(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> None:
    """Requests of a day: generated or tiled if the config sets it, else the landed ones."""
    with user_errors_as_failures():
        chosen = open_run_settings(context, settings)
        rows = demand_history.make_requests(chosen, partition_days(context), progress)
        columns = table_metadata(
            chosen.trace, chosen.lake.sql("select * from requests limit 0"), "tables/requests.sql"
        )
        set_days_version(context, chosen, "requests")
        calendar = text_table(demand_history.trace_calendar(chosen.lake), demand_history.CALENDAR_COLUMNS)
    for day, count in rows.items():
        add_day_metadata(context, day, {**columns, "trace_calendar": calendar, "dagster/row_count": count})


@dg.asset(
    partitions_def=DAY_PARTITIONS,
    backfill_policy=ONE_RUN_FOR_ALL_DAYS,
    deps=[requests],
    **common_asset_arguments("demand"),
)
def demand(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> None:
    """Requests and tokens per region, llm, tier, app and minute; the sums over a day are exact."""
    with user_errors_as_failures():
        chosen = open_run_settings(context, settings)
        for day, table in demand_history.make_demand(chosen, partition_days(context), progress):
            add_day_metadata(context, day, table_metadata(chosen.trace, table, "marts/demand.sql"))
        set_days_version(context, chosen, "demand")


@dg.asset(
    partitions_def=DAY_PARTITIONS,
    deps=[upstream_asset("demand", HISTORY_MAPPING)],
    **common_asset_arguments("forecasts"),
)
def forecasts(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """Forecast input tokens, output tokens and requests of the next hour, made each hour from past demand."""
    with user_errors_as_failures():
        chosen, day = open_run_settings(context, settings), partition_day(context)
        demand_history.make_missing_demand(chosen, day, progress)
        with rebuild_if_changed(chosen, "forecasts", day, progress) as is_needed:
            if is_needed:
                predictions.forecast_day(chosen, day, progress)
        table = chosen.lake.part("forecasts", trace=chosen.trace, day=day)
        errors = predictions.read_day_forecast_errors(chosen, day)
    return dg.MaterializeResult(
        data_version=day_version(chosen, STAGES["forecasts"].made, day),
        metadata={
            **table_metadata(chosen.trace, table, "tables/forecasts.sql"),
            "errors": dg.MetadataValue.md(markdown_table(errors)),
        },
    )


@dg.asset(
    partitions_def=DAY_PARTITIONS,
    deps=[
        forecasts,
        upstream_asset("demand", HISTORY_MAPPING),
        upstream_asset("requests", DAY_BEFORE_MAPPING),
    ],
    **common_asset_arguments("plans"),
)
def plans_asset(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """Instances per llm, region and hour, planned from the forecast, the true demand and the past peak."""
    with user_errors_as_failures():
        chosen, day = open_day_settings(context, settings)
        with rebuild_if_changed(chosen, "plans", day, progress) as is_needed:
            if is_needed:
                plans.plan_day(chosen, day, progress)
                plan_page.draw_plan_page(chosen, day)
        table = chosen.lake.part("plans", trace=chosen.trace, day=day)
        figure, changes = chosen.figures(day) / "plan.png", plan_page.describe_plan_changes(chosen, day)
    return dg.MaterializeResult(
        data_version=day_version(chosen, STAGES["plans"].made, day),
        metadata={
            **table_metadata(chosen.trace, table, "tables/plans.sql"),
            "plan": embed_figure(figure),
            "not_known": demand_history.unknown_history_sentence(chosen, day) or "nothing",
            "changes": text_table(changes, plan_page.PLAN_PAGE_COLUMNS),
        },
    )


@dg.op(
    name="replay_units",
    ins=dict.fromkeys(("requests", "plans"), dg.In(dg.Nothing)),
    out=dg.DynamicOut(dg.Nothing),
    retry_policy=RETRY,
)
def replay_units_op(
    context: dg.OpExecutionContext, settings: SettingsResource
) -> Iterator[dg.DynamicOutput[None]]:
    """Split the day's replays into units: one step each, which can run on any machine."""
    with user_errors_as_failures():
        chosen, day = open_day_settings(context, settings)
        units = nightly_replays.begin_units(chosen, day)
    for unit in units:
        yield dg.DynamicOutput(None, mapping_key=unit.name)


@dg.op(name="replay_unit", ins={"begun": dg.In(dg.Nothing)}, out=dg.Out(dg.Nothing), retry_policy=RETRY)
def replay_unit_op(
    context: dg.OpExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> None:
    """Replay the policies of one unit: outcomes of every request, and costs of the fleet."""
    with user_errors_as_failures():
        chosen, day = open_day_settings(context, settings)
        nightly_replays.replay_missing_policies(
            chosen, day, find_unit(chosen, str(context.get_mapping_key())), progress
        )


@dg.op(name="replayed", ins={"units": dg.In(dg.Nothing)}, out=dg.Out(dg.Nothing), retry_policy=RETRY)
def replays_done_op(context: dg.OpExecutionContext, settings: SettingsResource) -> dg.Output[None]:
    """Collect the replayed units of the day."""
    with user_errors_as_failures():
        chosen, day = open_day_settings(context, settings)
        nightly_replays.end_units(chosen, day)
        policies = chosen.config.replay.policies
        rows = len(policies) * chosen.lake.count("requests", trace=chosen.trace, day=day)
        columns = table_metadata(
            chosen.trace, chosen.lake.sql("select * from outcomes limit 0"), "tables/outcomes.sql"
        )
        version = day_version(chosen, STAGES["replays"].made, day)
    return dg.Output(None, metadata={**columns, "dagster/row_count": rows}, data_version=version)


@dg.graph_asset(
    partitions_def=DAY_PARTITIONS,
    ins={name: dg.AssetIn(build_asset_key(name), dagster_type=dg.Nothing) for name in ("requests", "plans")},
    **{key: value for key, value in common_asset_arguments("replays").items() if key != "retry_policy"},
)
def replays_asset(requests: None, plans: None) -> None:
    """Outcome of every request and cost of the fleet under each policy, all starting from the same fleet."""
    return replays_done_op(replay_units_op(requests=requests, plans=plans).map(replay_unit_op).collect())


@dg.asset(partitions_def=DAY_PARTITIONS, deps=[replays_asset], **common_asset_arguments("scorecard"))
def scorecard(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """Attainment and latency per policy, llm, region, tier and hour, with a scoreboard per policy."""
    with user_errors_as_failures():
        chosen, day = open_day_settings(context, settings)
        with rebuild_if_changed(chosen, "scorecard", day) as is_needed:
            if is_needed:
                scorecards.score_day(chosen, day, progress)
        table = chosen.lake.part("scorecard", trace=chosen.trace, day=day)
        chosen.lake.publish()
        board = scorecards.read_scoreboard(chosen, day)
        figures = read_trend_figures(chosen, day, board)
    return dg.MaterializeResult(
        data_version=day_version(chosen, STAGES["scorecard"].made, day),
        metadata={
            **table_metadata(chosen.trace, table, "marts/scorecard.sql"),
            "trend_of": trend_policy(board),
            **figures,
            **run_seconds(context),
            "scoreboard": dg.MetadataValue.md(
                markdown_table(board.select(scorecards.scoreboard_page_columns(board)))
            ),
        },
    )


@dg.asset(partitions_def=DAY_PARTITIONS, deps=[scorecard], **common_asset_arguments("figures"))
def figures_asset(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """Figures of the day, under data/figures."""
    with user_errors_as_failures():
        chosen, day = open_day_settings(context, settings)
        wanted = drawings.replay_drawings(chosen)
        with rebuild_if_changed(chosen, "figures", day) as is_needed:
            if is_needed:
                draw_day_figures(chosen, day, wanted, progress)
        paths = {name: chosen.figures(day) / f"{name}.png" for name in wanted}
    return dg.MaterializeResult(metadata={"trace": chosen.trace, **embed_figures(paths)})


@dg.asset(
    partitions_def=DAY_PARTITIONS,
    deps=[scorecard, upstream_asset("demand", HISTORY_MAPPING)],
    **common_asset_arguments("advice"),
)
def advice(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """Page of the day: the fleet for the next day, what it would have saved, and how certain that is."""
    with user_errors_as_failures():
        chosen, day = open_run_settings(context, settings), partition_day(context)
        folder = chosen.figures(day)
        graded = grade_or_explain(chosen, day, progress)
        with rebuild_if_changed(chosen, "advice", day, progress) as is_needed:
            if is_needed or (numbers := read_advice(folder)) is None:
                numbers = advise_nightly_run(chosen, day, progress)
                write_advice(numbers, folder)
        metadata = {
            **describe_advice(chosen.trace, numbers),
            **describe_grade(chosen.lake, chosen.trace, graded),
        }
    return dg.MaterializeResult(metadata={"page": str(folder / "advice.html"), **metadata})


ASSETS = [landing, requests, demand, forecasts, plans_asset, replays_asset, scorecard, figures_asset, advice]
