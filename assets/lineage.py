"""The assets as Dagster sees them: what each table is, what it is made from, and what a run says about it.

Nothing is computed here. Each asset calls the function of its own module and reports what was written.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from assets import backtests as trials
from assets import demand as demands
from assets import figures as drawings
from assets import forecasts as predictions
from assets import plan_page, plans, quality, replays, scorecards, traces
from assets.character_figures import draw_character
from assets.characterise import characterise
from assets.landing import COLUMNS, land_all, texts, traces_of
from assets.leaderboard import forecast_leaderboard
from assets.partitions import DAYS, WITH_HISTORY
from assets.settings import Progress, Settings, load_settings
from assets.sql_files import read_sql
from assets.warehouse import LAKE, LakeError

OWNERS = ["team:capacity"]
INTERRUPTED = "Interrupted by Ctrl-C or from the UI."
ASSET_OF = {  # tables whose asset has another name
    "outcomes": "replays",
    "fleet_hours": "replays",
    "token_histogram": "characterisation",
    "arrival_windows": "characterisation",
}
RETRY = dg.RetryPolicy(max_retries=2, delay=1, backoff=dg.Backoff.EXPONENTIAL)


class SettingsResource(dg.ConfigurableResource):
    """Which config a run reads, and which lake it works in."""

    config: str = "office"
    lake: str = str(LAKE)

    def load(self) -> Settings:
        """Read the catalogue and the config; ConfigError says what is wrong with them."""
        return load_settings(self.config, self.lake)


def described(name: str) -> dict[str, Any]:
    """What every asset shares: group, owner, kinds, retries."""
    group, kinds = {
        "landing": ("traces", {"duckdb", "parquet"}),
        "requests": ("traces", {"numpy", "parquet"}),
        "demand": ("demand", {"duckdb", "parquet"}),
        "characterisation": ("demand", {"duckdb", "python", "parquet"}),
        "forecasts": ("forecast", {"python", "parquet"}),
        "backtests": ("forecast", {"python", "parquet"}),
        "plans": ("plan", {"python", "parquet"}),
        "replays": ("replay", {"python", "parquet"}),
        "scorecard": ("score", {"duckdb", "parquet"}),
        "figures": ("score", {"matplotlib"}),
    }[name]
    return {"name": name, "group_name": group, "kinds": kinds, "owners": OWNERS, "retry_policy": RETRY}


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
        chosen, day = settings.load(), day_of(context)
        rows = traces.make_day(chosen.lake, chosen.config.trace, chosen.catalogue, day)
        columns = told(chosen.lake.sql("select * from requests limit 0"), "tables/requests.sql")
    return dg.MaterializeResult(metadata={**columns, "dagster/row_count": rows, "trace": chosen.trace})


@dg.asset(partitions_def=DAYS, deps=[requests], **described("demand"))
def demand(context: dg.AssetExecutionContext, settings: SettingsResource) -> dg.MaterializeResult:
    """Requests and tokens per region, llm, tier, app and minute; it conserves the day's tokens exactly."""
    with plainly():
        chosen, day = settings.load(), day_of(context)
        table = demands.build_demand(chosen.lake, chosen.trace, day)
    return dg.MaterializeResult(metadata=told(table, "marts/demand.sql"))


@dg.asset(
    deps=[dg.AssetDep("demand", partition_mapping=dg.AllPartitionMapping())], **described("characterisation")
)
def characterisation(
    settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """How bursty, how seasonal and how foreseeable the trace and its parts are, over all its days."""
    with plainly():
        chosen = settings.load()
        table = characterise(chosen.lake, chosen.trace, progress)
        chosen.lake.publish()
        paths = draw_character(chosen.lake, chosen.trace)
    pictures = {name: picture(path) for name, path in paths.items()}
    return dg.MaterializeResult(metadata={**told(table, "tables/characterisation.sql"), **pictures})


@dg.asset(
    partitions_def=DAYS,
    deps=[dg.AssetDep("demand", partition_mapping=WITH_HISTORY)],
    **described("forecasts"),
)
def forecasts(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """Interactive input tokens/s of the next hour, made every hour from what was known when it began."""
    with plainly():
        chosen, day = settings.load(), day_of(context)
        table = predictions.forecast_day(chosen, day, progress)
        errors = predictions.errors(chosen, day)
    return dg.MaterializeResult(
        metadata={**told(table, "tables/forecasts.sql"), "errors": dg.MetadataValue.md(markdown(errors))}
    )


@dg.asset(
    partitions_def=DAYS,
    deps=[dg.AssetDep("demand", partition_mapping=WITH_HISTORY)],
    **described("backtests"),
)
def backtests(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """Every forecast method on a past day, ten minutes to two hours ahead; never a part of the night."""
    with plainly():
        chosen, day = settings.load(), day_of(context)
        table = trials.backtest_days(chosen, day, day, progress)
        board = trials.leaderboard(chosen)
        figure = drawings.draw_day(chosen, day, {"forecast_leaderboard": forecast_leaderboard})
        chosen.lake.publish()
    said: dict[str, Any] = {name: picture(path) for name, path in figure.items()}
    said["leaderboard"] = dg.MetadataValue.md(markdown(board))
    return dg.MaterializeResult(metadata={**told(table, "tables/backtests.sql"), **said})


@dg.asset(partitions_def=DAYS, deps=[forecasts], **described("plans"))
def plans_(
    context: dg.AssetExecutionContext, settings: SettingsResource, progress: dg.ResourceParam[Progress]
) -> dg.MaterializeResult:
    """Instances per llm, region and hour: from the forecast, the true demand, and the peak of the history."""
    with plainly():
        chosen, day = settings.load(), day_of(context)
        table = plans.plan_day(chosen, day, progress)
        drawn, changes = plan_page.draw_plan_page(chosen, day), plan_page.changes(chosen, day)
    columns = dg.TableSchema([dg.TableColumn(name) for name in plan_page.CHANGES])
    records = [dg.TableRecord({k: str(v) for k, v in row.items()}) for row in changes.to_pylist()]
    return dg.MaterializeResult(
        metadata={
            **told(table, "tables/plans.sql"),
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
        chosen, day = settings.load(), day_of(context)
        rows = replays.replay_day(chosen, day, chosen.config.replay.policies, progress)
        columns = told(chosen.lake.sql("select * from outcomes limit 0"), "tables/outcomes.sql")
    return dg.MaterializeResult(metadata={**columns, "dagster/row_count": rows})


@dg.asset(partitions_def=DAYS, deps=[replays_], **described("scorecard"))
def scorecard(context: dg.AssetExecutionContext, settings: SettingsResource) -> dg.MaterializeResult:
    """Attainment and latency per policy, llm, region, tier and hour; the scoreboard sums it up per policy."""
    with plainly():
        chosen, day = settings.load(), day_of(context)
        table = scorecards.score_day(chosen, day)
        chosen.lake.publish()
        board = scorecards.scoreboard(chosen, day)
    return dg.MaterializeResult(
        metadata={**told(table, "marts/scorecard.sql"), "scoreboard": dg.MetadataValue.md(markdown(board))}
    )


@dg.asset(partitions_def=DAYS, deps=[scorecard], **described("figures"))
def figures(context: dg.AssetExecutionContext, settings: SettingsResource) -> dg.MaterializeResult:
    """The day in four pictures, under data/figures."""
    with plainly():
        paths = drawings.draw_day(settings.load(), day_of(context))
    return dg.MaterializeResult(metadata={name: picture(path) for name, path in paths.items()})


ASSETS = [
    *(landing, requests, demand, characterisation, forecasts, backtests),
    *(plans_, replays_, scorecard, figures),
]


# --- what a run says -----------------------------------------------------------------------------------


def told(table: pa.Table, file: str) -> Mapping[str, Any]:
    """Row count, columns with their meaning and what each is made from, as the header of the file says."""
    sql = read_sql(file)
    columns = [dg.TableColumn(f.name, str(f.type), sql.columns.get(f.name)) for f in table.schema]
    origins = {
        name: [dg.TableColumnDep(dg.AssetKey(ASSET_OF.get(other, other)), column) for other, column in pairs]
        for name, pairs in sql.made_from.items()
        if name in table.column_names
    }
    return {
        "dagster/row_count": table.num_rows,
        "dagster/column_schema": dg.TableSchema(columns),
        "dagster/column_lineage": dg.TableColumnLineage(origins),
    }


def text_table(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> dg.TableMetadataValue:
    """Rows of text as a table of Dagster's page."""
    schema = dg.TableSchema([dg.TableColumn(name) for name in columns])
    return dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in rows], schema)


def markdown(table: pa.Table) -> str:
    """A small table as Markdown, figures rounded for reading."""
    names = table.column_names
    lines = ["| " + " | ".join(names) + " |", "| " + " | ".join("---" for _ in names) + " |"]
    for row in table.to_pylist():
        cells = (f"{v:,.4g}" if isinstance(v, float) else str(v) for v in row.values())
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def picture(path: Path) -> dg.MetadataValue:
    """A figure as Markdown that carries its own, smaller, copy."""
    packed = base64.b64encode(drawings.thumbnail(path)).decode()
    return dg.MetadataValue.md(f"![{path.stem}](data:image/png;base64,{packed})")


def day_of(context: dg.AssetExecutionContext) -> date:
    """The day that is asked for."""
    return date.fromisoformat(context.partition_key)


@contextmanager
def plainly() -> Iterator[None]:
    """Say a user's mistake in one line and do not try again; the disk may do better the next time."""
    try:
        yield
    except LakeError as error:  # told as it is; a full disk may have room the next time
        raise dg.Failure(str(error), allow_retries="disk is full" in str(error)) from error
    except dg.DagsterExecutionInterruptedError as interrupt:  # the retry policy would go on
        raise dg.Failure(INTERRUPTED, allow_retries=False) from interrupt
    except ValueError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
