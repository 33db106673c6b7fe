"""The nightly run: import new trace files, compute the missing history, then run the day."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple, cast

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from fleetcast.assets.advice.nightly_promise import describe_promises
from fleetcast.assets.demand import demand_history
from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.forecasts import backtests
from fleetcast.assets.lake.learned_shares import with_learned_shares
from fleetcast.assets.lake.partitions import require_in_calendar
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.assets.pages.on_demand_asset import AssetRows
from fleetcast.assets.plans.shortage_remedies import describe_shortage_remedy
from fleetcast.assets.replays import nightly_replays, replays, scorecards
from fleetcast.assets.replays.replay_units import nightly_units
from fleetcast.assets.studies_on_demand import backtests as backtests_asset
from fleetcast.assets.traces.ingest import landed_files
from fleetcast.models.replay.session import background_compile
from fleetcast.models.world.toml_dataclasses import require_known
from fleetcast.pipelines.runs import report_materializations, run_job, set_dagster_home, unmaterialized_days

UNREAD = "landing: every_file_is_read"


class NightlyRun(NamedTuple):
    """The results of a nightly run.

    board : rows of the mart scoreboard; None if a failed check stopped the run before it
    other_targets : attainment by target where tiers have several targets
    figures, warehouse : the folder of the figures, the file of the published database
    checks : number of checks
    broken, alarms : names of the checks that failed, and of those that only warn
    refused : why files in data/landing were not imported
    mends : of files with rows in quarantine in bulk: what mends them
    short : plans that the fleet cannot carry, rows of sql/queries/short_plans.sql with their remedy
    promises : lines on the graded promise of the day, and on that of the next day
    not_known : a sentence on the hours of the day that no data covers; "" for none
    """

    trace: str
    day: date
    board: pa.Table | None
    other_targets: pa.Table | None
    figures: LakePath
    warehouse: LakePath
    checks: int
    broken: Sequence[str]
    alarms: Sequence[str]
    refused: Sequence[str]
    mends: Sequence[str]
    short: Sequence[Mapping[str, Any]]
    promises: Sequence[str] = ()
    not_known: str = ""


class LandingSummary(NamedTuple):
    """The results of the job land.

    files : texts by name for each imported file
    findings : data quality findings that are not ok
    refused : why other files were not imported
    checks, broken : number of checks, names of those that failed
    """

    files: Sequence[Mapping[str, Any]]
    findings: Sequence[Mapping[str, Any]]
    refused: Sequence[str]
    checks: int
    broken: Sequence[str]

    def mends(self) -> list[str]:
        """Return a line for each file with rows in quarantine in bulk: how many, why, and what mends them."""
        return [file["mend"] for file in self.files if file["mend"]]


def run_night(resource: SettingsResource, day: date | None, progress: Progress) -> NightlyRun:
    """Run the missing history, then a day from its requests to the scoreboard."""
    settings = resource.load()
    day = day or settings.config.trace.replay_day
    require_in_calendar(day)
    nightly_units(settings)  # an unknown division is refused before anything is made
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
    if set(broken) <= {UNREAD}:  # a file that cannot be read does not stop the nightly run
        ran = run_job("nightly", resource, day, progress)
        alarms = ran.alarms
        checks, broken = checks + ran.checks, broken + ran.broken
    is_scored = set(broken) <= {UNREAD}
    board = scorecards.read_scoreboard(settings, day) if is_scored else None
    targets = scorecards.attainment_by_target(settings, day) if is_scored else None
    warehouse = settings.lake.root / "warehouse.duckdb"
    short = [
        {**plan, "remedy": describe_shortage_remedy(settings, plan)}
        for plan in settings.lake.sql("queries/short_plans.sql", trace=trace, day=day).to_pylist()
    ]
    figures = settings.figures(day)
    files = (landed.refused, landed.mends())
    promises = describe_promises(settings, day)
    gaps = demand_history.unknown_day_sentence(settings, day)
    return NightlyRun(
        trace, day, board, targets, figures, warehouse, checks, broken, alarms, *files, short, promises, gaps
    )


def run_nights(
    resource: SettingsResource, last: date | None, days: int, progress: Progress
) -> Iterator[NightlyRun]:
    """Yield the nightly runs of `days` days up to `last`; stop after a run without a scoreboard."""
    last = last or resource.load().config.trace.replay_day
    for back in reversed(range(days)):
        result = run_night(resource, last - timedelta(days=back), progress)
        yield result
        if result.board is None:
            return


def land_files(resource: SettingsResource, progress: Progress) -> LandingSummary:
    """Import every file in data/landing into the lake."""
    set_dagster_home()
    ran = run_job("land", resource, None, progress)
    metadata = ran.result.asset_materializations_for_node("landing")[0].metadata
    files, findings = (
        [record.data for record in cast(dg.TableMetadataValue, metadata[name]).records]
        for name in ("files", "quality")
    )
    refused = cast(Sequence[str], cast(dg.JsonMetadataValue, metadata["refused"]).value)
    return LandingSummary(files, findings, refused, ran.checks, ran.broken)


def run_backtests(
    resource: SettingsResource, last: date | None, days: int, tier: str, progress: Progress
) -> tuple[pa.Table, LakePath]:
    """Run the missing history, then backtest `days` days up to `last`.

    Returns the rows of the mart forecast_leaderboard, and the folder of its figure.
    """
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
    metadata = backtests_asset.metadata(settings, AssetRows(table, {"day": last, "tier": tier}))
    partitions = [(first + timedelta(days=n)).isoformat() for n in range(days)]
    report_materializations(backtests_asset.name, dict.fromkeys(partitions, metadata))
    return backtests.read_forecast_leaderboard(settings, tier), settings.figures(last)


def replay_policy(
    resource: SettingsResource, day: date | None, policy: str, progress: Progress
) -> tuple[pa.Table, str, date]:
    """Replay one policy on a planned day; return its row of the scoreboard, the trace and the day."""
    settings = resource.load()
    require_known(policy, settings.config.rules, "policy", "replay")
    day = day or settings.config.trace.replay_day
    settings = with_learned_shares(settings, day)
    nightly_replays.require_same_config(settings, day)
    replays.replay_day(settings, day, [policy], progress)
    scorecards.score_day(settings, day)
    settings.lake.publish()
    board = scorecards.read_scoreboard(settings, day)
    return board.filter(pc.equal(board["policy"], policy)), settings.trace, day
