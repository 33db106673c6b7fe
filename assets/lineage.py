"""The assets as Dagster sees them: what each table is, what it is made from, and what a run says about it.

Nothing is computed here. Each asset calls the function of its own module and reports what was written.
"""

from collections.abc import Iterator

import dagster as dg

from fleetcast.assets.advice.files import read, write
from fleetcast.assets.advice.night import advise_night
from fleetcast.assets.advice.told import advice_said
from fleetcast.assets.demand import history
from fleetcast.assets.forecasts import forecasts as predictions
from fleetcast.assets.lake.kept import made_once
from fleetcast.assets.lake.partitions import ALL_AT_ONCE, DAY_BEFORE, DAYS, WITH_HISTORY
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.pages.pictures import draw_day
from fleetcast.assets.pages.telling import (
    RETRY,
    SettingsResource,
    after,
    day_of,
    days_of,
    described,
    key_of,
    markdown,
    opened,
    picture,
    pictures,
    plainly,
    say_of_day,
    text_table,
    told,
)
from fleetcast.assets.plans import page as plan_page
from fleetcast.assets.plans import plans
from fleetcast.assets.replays import figures as drawings
from fleetcast.assets.replays import nights, scorecards
from fleetcast.assets.replays.units import unit_called
from fleetcast.assets.traces import quality
from fleetcast.assets.traces.landing import COLUMNS, land_all, texts, traces_of


@dg.asset(**described("landing"))
def landing(settings: SettingsResource, progress: dg.ResourceParam[Progress]) -> dg.MaterializeResult:
    """Every trace file in data/landing, as canonical requests; rows that break a rule go to quarantine."""
    with plainly():
        chosen = settings.load()
        landing = land_all(chosen, progress)
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


@dg.asset(partitions_def=DAYS, backfill_policy=ALL_AT_ONCE, deps=[landing], **described("requests"))
def requests(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> None:
    """The requests of a day: generated or tiled where the config says so, else those that were landed."""
    with plainly():
        chosen = opened(context, settings)
        rows = history.make_requests(chosen, days_of(context), progress)
        columns = told(chosen.trace, chosen.lake.sql("select * from requests limit 0"), "tables/requests.sql")
    for day, count in rows.items():
        say_of_day(context, day, {**columns, "dagster/row_count": count})


@dg.asset(partitions_def=DAYS, backfill_policy=ALL_AT_ONCE, deps=[requests], **described("demand"))
def demand(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> None:
    """Requests and tokens per region, llm, tier, app and minute; it conserves the day's tokens exactly."""
    with plainly():
        chosen = opened(context, settings)
        for day, table in history.make_demand(chosen, days_of(context), progress):
            say_of_day(context, day, told(chosen.trace, table, "marts/demand.sql"))


@dg.asset(
    partitions_def=DAYS,
    deps=[after("demand", WITH_HISTORY)],
    **described("forecasts"),
)
def forecasts(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """Input tokens, output tokens and requests of the next hour, every hour from what was known then."""
    with plainly():
        chosen, day = opened(context, settings), day_of(context)
        with made_once(chosen, "forecasts", day, progress) as is_needed:
            if is_needed:
                predictions.forecast_day(chosen, day, progress)
        table = chosen.lake.part("forecasts", trace=chosen.trace, day=day)
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
        after("demand", WITH_HISTORY),
        after("requests", DAY_BEFORE),
    ],
    **described("plans"),
)
def plans_(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """Instances per llm, region and hour: from the forecast, the true demand, and the peak of the history."""
    with plainly():
        chosen, day = opened(context, settings), day_of(context)
        with made_once(chosen, "plans", day, progress) as is_needed:
            if is_needed:
                plans.plan_day(chosen, day, progress)
                plan_page.draw_plan_page(chosen, day)
        table = chosen.lake.part("plans", trace=chosen.trace, day=day)
        drawn, changes = chosen.figures(day) / "plan.png", plan_page.changes(chosen, day)
    columns = dg.TableSchema([dg.TableColumn(name) for name in plan_page.CHANGES])
    records = [dg.TableRecord({k: str(v) for k, v in row.items()}) for row in changes.to_pylist()]
    return dg.MaterializeResult(
        metadata={
            **told(chosen.trace, table, "tables/plans.sql"),
            "plan": picture(drawn),
            "not_known": history.not_known(chosen, day) or "nothing",
            "changes": dg.MetadataValue.table(records, columns),
        }
    )


@dg.op(
    ins=dict.fromkeys(("requests", "plans"), dg.In(dg.Nothing)),
    out=dg.DynamicOut(dg.Nothing),
    retry_policy=RETRY,
)
def replay_units(
    context: dg.OpExecutionContext, settings: SettingsResource
) -> Iterator[dg.DynamicOutput[None]]:
    """What the day's replays are cut into: a step each, which may run anywhere."""
    with plainly():
        chosen, day = opened(context, settings), day_of(context)
        units = nights.begin_units(chosen, day)
    for unit in units:
        yield dg.DynamicOutput(None, mapping_key=unit.name)


@dg.op(ins={"begun": dg.In(dg.Nothing)}, out=dg.Out(dg.Nothing), retry_policy=RETRY)
def replay_unit(
    context: dg.OpExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> None:
    """What every request met under the unit's policies, and what the fleet spent."""
    with plainly():
        chosen, day = settings.load(), day_of(context)
        nights.replay_unit(chosen, day, unit_called(chosen, str(context.get_mapping_key())), progress)


@dg.op(ins={"units": dg.In(dg.Nothing)}, out=dg.Out(dg.Nothing), retry_policy=RETRY)
def replayed(context: dg.OpExecutionContext, settings: SettingsResource) -> dg.Output[None]:
    """All units have been replayed."""
    with plainly():
        chosen, day = settings.load(), day_of(context)
        nights.end_units(chosen, day)
        policies = chosen.config.replay.policies
        rows = len(policies) * chosen.lake.count("requests", trace=chosen.trace, day=day)
        columns = told(chosen.trace, chosen.lake.sql("select * from outcomes limit 0"), "tables/outcomes.sql")
    return dg.Output(None, metadata={**columns, "dagster/row_count": rows})


@dg.graph_asset(
    partitions_def=DAYS,
    ins={name: dg.AssetIn(key_of(name), dagster_type=dg.Nothing) for name in ("requests", "plans")},
    **{key: told for key, told in described("replays").items() if key != "retry_policy"},
)
def replays_(requests: None, plans: None) -> None:
    """What every request met and what the fleet spent, under each policy, all from the same fleet."""
    return replayed(replay_units(requests=requests, plans=plans).map(replay_unit).collect())


@dg.asset(partitions_def=DAYS, deps=[replays_], **described("scorecard"))
def scorecard(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """Attainment and latency per policy, llm, region, tier and hour; the scoreboard sums it up per policy."""
    with plainly():
        chosen, day = opened(context, settings), day_of(context)
        with made_once(chosen, "scorecard", day) as is_needed:
            if is_needed:
                scorecards.score_day(chosen, day, progress)
        table = chosen.lake.part("scorecard", trace=chosen.trace, day=day)
        chosen.lake.publish()
        board = scorecards.scoreboard(chosen, day)
    return dg.MaterializeResult(
        metadata={
            **told(chosen.trace, table, "marts/scorecard.sql"),
            "scoreboard": dg.MetadataValue.md(markdown(board.select(scorecards.shown_columns(board)))),
        }
    )


@dg.asset(partitions_def=DAYS, deps=[scorecard], **described("figures"))
def figures(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """The day in pictures, under data/figures."""
    with plainly():
        chosen, day = opened(context, settings), day_of(context)
        wanted = drawings.drawings(chosen)
        with made_once(chosen, "figures", day) as is_needed:
            if is_needed:
                draw_day(chosen, day, wanted, progress)
        paths = {name: chosen.figures(day) / f"{name}.png" for name in wanted}
    return dg.MaterializeResult(metadata={"trace": chosen.trace, **pictures(paths)})


@dg.asset(partitions_def=DAYS, deps=[scorecard, after("demand", WITH_HISTORY)], **described("advice"))
def advice(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """The page of the day: what to run on the next one, what that would have saved, how sure it is."""
    with plainly():
        chosen, day = opened(context, settings), day_of(context)
        folder = chosen.figures(day)
        with made_once(chosen, "advice", day, progress) as is_needed:
            if is_needed or (numbers := read(folder)) is None:
                numbers = advise_night(chosen, day, progress)
                write(numbers, folder)
        said = advice_said(chosen.trace, numbers)
    return dg.MaterializeResult(metadata={"page": str(folder / "advice.html"), **said})


ASSETS = [landing, requests, demand, forecasts, plans_, replays_, scorecard, figures, advice]
