"""The order of a night's work: land what was dropped, make the history that is missing, then run the day."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple, cast

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from fleetcast.assets.demand import demand_history
from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.forecasts import backtests
from fleetcast.assets.lake.partitions import require_in_calendar
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.assets.pages.on_demand_asset import AssetRows
from fleetcast.assets.replays import nightly_replays, replays, scorecards
from fleetcast.assets.studies_on_demand import backtests as asset
from fleetcast.assets.traces.ingest import landed_files
from fleetcast.models.replay.session import background_compile
from fleetcast.models.world.toml_dataclasses import require_known
from fleetcast.pipelines.runs import report_materializations, run_job, set_dagster_home, unmaterialized_days

UNREAD = "landing: every_file_is_read"


class NightlyRun(NamedTuple):
    """What a night left: the scoreboard, where the rest lies, and how the checks went."""

    trace: str
    day: date
    board: pa.Table | None  # None where a failed check stopped the night before it
    other_targets: pa.Table | None
    figures: LakePath
    warehouse: LakePath
    checks: int
    broken: Sequence[str]
    alarms: Sequence[str]  # checks that warned
    refused: Sequence[str]  # why files in data/landing were not taken
    short: Sequence[Mapping[str, Any]]  # of plans that the fleet cannot carry: sql/queries/short_plans.sql


class LandingSummary(NamedTuple):
    """What became of the landed files, one mapping of texts per file."""

    files: Sequence[Mapping[str, Any]]
    findings: Sequence[Mapping[str, Any]]  # of their quality, those that are not simply ok
    refused: Sequence[str]  # why the others were not taken
    checks: int
    broken: Sequence[str]


def run_night(resource: SettingsResource, day: date | None, progress: Progress) -> NightlyRun:
    """Run a day from its requests to the scoreboard, its history first."""
    settings = resource.load()
    day = day or settings.config.trace.replay_day
    require_in_calendar(day)
    demand_history.require_history(settings, day)
    demand_history.claim_trace_name(settings)
    set_dagster_home()
    with background_compile.compile_in_background():
        return _run_night(resource, settings, day, progress)


def _run_night(
    resource: SettingsResource, settings: RunSettings, day: date, progress: Progress
) -> NightlyRun:
    trace = settings.trace
    landed = land_files(resource, progress) if landed_files() else LandingSummary([], [], [], 0, [])
    checks, broken, alarms = landed.checks, list(landed.broken), list[str]()
    demand_history.drop_changed_days(settings)
    missing = {
        *demand_history.missing_days(settings, day),
        *unmaterialized_days("demand", demand_history.past_days(settings, day)),
    }
    for first, last in demand_history.consecutive_stretches(sorted(missing)):
        ran = run_job("history", resource, first, progress, until=last)
        checks, broken = checks + ran.checks, broken + ran.broken
    if set(broken) <= {UNREAD}:  # a bad file must not keep the night from its work
        ran = run_job("nightly", resource, day, progress)
        alarms = ran.alarms
        checks, broken = checks + ran.checks, broken + ran.broken
    is_scored = set(broken) <= {UNREAD}
    board = scorecards.read_scoreboard(settings, day) if is_scored else None
    targets = scorecards.attainment_by_target(settings, day) if is_scored else None
    warehouse = settings.lake.root / "warehouse.duckdb"
    short = settings.lake.sql("queries/short_plans.sql", trace=trace, day=day).to_pylist()
    figures = settings.figures(day)
    return NightlyRun(
        trace, day, board, targets, figures, warehouse, checks, broken, alarms, landed.refused, short
    )


def run_nights(
    resource: SettingsResource, last: date | None, days: int, progress: Progress
) -> Iterator[NightlyRun]:
    """Run so many days up to `last`, one night after the other; one without a scoreboard ends it."""
    last = last or resource.load().config.trace.replay_day
    for back in reversed(range(days)):
        night = run_night(resource, last - timedelta(days=back), progress)
        yield night
        if night.board is None:
            return


def land_files(resource: SettingsResource, progress: Progress) -> LandingSummary:
    """Bring every file in data/landing into the lake."""
    set_dagster_home()
    ran = run_job("land", resource, None, progress)
    told = ran.result.asset_materializations_for_node("landing")[0].metadata
    files, findings = (
        [record.data for record in cast(dg.TableMetadataValue, told[name]).records]
        for name in ("files", "quality")
    )
    refused = cast(Sequence[str], cast(dg.JsonMetadataValue, told["refused"]).value)
    return LandingSummary(files, findings, refused, ran.checks, ran.broken)


def run_backtests(
    resource: SettingsResource, last: date | None, days: int, tier: str, progress: Progress
) -> tuple[pa.Table, LakePath]:
    """Backtest the days up to `last`, their history first; the leaderboard, and the folder of its figure."""
    settings = resource.load()
    require_known(tier, (INTERACTIVE, *settings.catalogue.tiers), "tier", "--tier")
    last = last or settings.config.trace.replay_day
    first = last - timedelta(days=days - 1)
    require_in_calendar(last)
    demand_history.require_history(settings, first)
    demand_history.claim_trace_name(settings)
    set_dagster_home()
    demand_history.drop_changed_days(settings)
    after = last + timedelta(days=1)
    missing = sorted(
        {*demand_history.missing_days(settings, first), *demand_history.missing_days(settings, after)}
    )
    for begin, end in demand_history.consecutive_stretches(missing):
        run_job("history", resource, begin, progress, until=end)
    table = backtests.backtest_methods(settings, first, last, tier, progress)
    settings.lake.publish()
    said = asset.metadata(settings, AssetRows(table, {"day": last, "tier": tier}))
    report_materializations(asset.name, {(first + timedelta(days=n)).isoformat(): said for n in range(days)})
    return backtests.read_forecast_leaderboard(settings, tier), settings.figures(last)


def replay_policy(
    resource: SettingsResource, day: date | None, policy: str, progress: Progress
) -> tuple[pa.Table, str, date]:
    """Replay one policy on a planned day; its row of the scoreboard, the trace and the day."""
    settings = resource.load()
    require_known(policy, settings.config.rules, "policy", "replay")
    day = day or settings.config.trace.replay_day
    nightly_replays.require_same_config(settings, day)
    replays.replay_day(settings, day, [policy], progress)
    scorecards.score_day(settings, day)
    settings.lake.publish()
    board = scorecards.read_scoreboard(settings, day)
    return board.filter(pc.equal(board["policy"], policy)), settings.trace, day
