"""The order of a night's work: land what was dropped, make the history that is missing, then run the day."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple, cast

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from fleetcast.assets.demand import history
from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.forecasts import backtests
from fleetcast.assets.lake.partitions import require_in_calendar
from fleetcast.assets.lake.settings import Progress, Settings
from fleetcast.assets.lake.store import Place
from fleetcast.assets.on_demand import backtests as asset
from fleetcast.assets.pages.on_demand import Made
from fleetcast.assets.pages.telling import SettingsResource
from fleetcast.assets.replays import nights, replays, scorecards
from fleetcast.assets.traces.ingest import landed_files
from fleetcast.models.replay.session import background_compile
from fleetcast.models.world.reading import require_known
from fleetcast.pipelines.runs import embedded_home, report, run_job, untold

UNREAD = "landing: every_file_is_read"


class Night(NamedTuple):
    """What a night left: the scoreboard, where the rest lies, and how the checks went."""

    trace: str
    day: date
    board: pa.Table | None  # None where a failed check stopped the night before it
    other_targets: pa.Table | None
    figures: Place
    warehouse: Place
    checks: int
    broken: Sequence[str]
    alarms: Sequence[str]  # checks that warned
    refused: Sequence[str]  # why files in data/landing were not taken
    short: Sequence[Mapping[str, Any]]  # of plans that the fleet cannot carry: sql/queries/short_plans.sql


class Landed(NamedTuple):
    """What became of the landed files, one mapping of texts per file."""

    files: Sequence[Mapping[str, Any]]
    findings: Sequence[Mapping[str, Any]]  # of their quality, those that are not simply ok
    refused: Sequence[str]  # why the others were not taken
    checks: int
    broken: Sequence[str]


def run_night(resource: SettingsResource, day: date | None, progress: Progress) -> Night:
    """Run a day from its requests to the scoreboard, its history first."""
    settings = resource.load()
    day = day or settings.config.trace.replay_day
    require_in_calendar(day)
    history.require_history(settings, day)
    history.require_own_name(settings)
    embedded_home()
    with background_compile.compiling():
        return _run_night(resource, settings, day, progress)


def _run_night(resource: SettingsResource, settings: Settings, day: date, progress: Progress) -> Night:
    trace = settings.trace
    landed = land(resource, progress) if landed_files() else Landed([], [], [], 0, [])
    checks, broken, alarms = landed.checks, list(landed.broken), list[str]()
    history.forget_changed(settings)
    missing = {*history.missing_days(settings, day), *untold("demand", history.past_days(settings, day))}
    for first, last in history.in_a_row(sorted(missing)):
        ran = run_job("history", resource, first, progress, until=last)
        checks, broken = checks + ran.checks, broken + ran.broken
    if set(broken) <= {UNREAD}:  # a bad file must not keep the night from its work
        ran = run_job("nightly", resource, day, progress)
        alarms = ran.alarms
        checks, broken = checks + ran.checks, broken + ran.broken
    is_scored = set(broken) <= {UNREAD}
    board = scorecards.scoreboard(settings, day) if is_scored else None
    targets = scorecards.other_targets(settings, day) if is_scored else None
    warehouse = settings.lake.root / "warehouse.duckdb"
    short = settings.lake.sql("queries/short_plans.sql", trace=trace, day=day).to_pylist()
    figures = settings.figures(day)
    return Night(
        trace, day, board, targets, figures, warehouse, checks, broken, alarms, landed.refused, short
    )


def run_nights(
    resource: SettingsResource, last: date | None, days: int, progress: Progress
) -> Iterator[Night]:
    """Run so many days up to `last`, one night after the other; one without a scoreboard ends it."""
    last = last or resource.load().config.trace.replay_day
    for back in reversed(range(days)):
        night = run_night(resource, last - timedelta(days=back), progress)
        yield night
        if night.board is None:
            return


def land(resource: SettingsResource, progress: Progress) -> Landed:
    """Bring every file in data/landing into the lake."""
    embedded_home()
    ran = run_job("land", resource, None, progress)
    told = ran.result.asset_materializations_for_node("landing")[0].metadata
    files, findings = (
        [record.data for record in cast(dg.TableMetadataValue, told[name]).records]
        for name in ("files", "quality")
    )
    refused = cast(Sequence[str], cast(dg.JsonMetadataValue, told["refused"]).value)
    return Landed(files, findings, refused, ran.checks, ran.broken)


def backtest_days(
    resource: SettingsResource, last: date | None, days: int, tier: str, progress: Progress
) -> tuple[pa.Table, Place]:
    """Backtest the days up to `last`, their history first; the leaderboard, and the folder of its figure."""
    settings = resource.load()
    require_known(tier, (INTERACTIVE, *settings.catalogue.tiers), "tier", "--tier")
    last = last or settings.config.trace.replay_day
    first = last - timedelta(days=days - 1)
    require_in_calendar(last)
    history.require_history(settings, first)
    history.require_own_name(settings)
    embedded_home()
    history.forget_changed(settings)
    after = last + timedelta(days=1)
    missing = sorted({*history.missing_days(settings, first), *history.missing_days(settings, after)})
    for begin, end in history.in_a_row(missing):
        run_job("history", resource, begin, progress, until=end)
    table = backtests.backtest_days(settings, first, last, tier, progress)
    settings.lake.publish()
    said = asset.metadata(settings, Made(table, {"day": last, "tier": tier}))
    report(asset.name, {(first + timedelta(days=n)).isoformat(): said for n in range(days)})
    return backtests.leaderboard(settings, tier), settings.figures(last)


def replay_policy(
    resource: SettingsResource, day: date | None, policy: str, progress: Progress
) -> tuple[pa.Table, str, date]:
    """Replay one policy on a planned day; its row of the scoreboard, the trace and the day."""
    settings = resource.load()
    require_known(policy, settings.config.rules, "policy", "replay")
    day = day or settings.config.trace.replay_day
    nights.require_same_config(settings, day)
    replays.replay_day(settings, day, [policy], progress)
    scorecards.score_day(settings, day)
    settings.lake.publish()
    board = scorecards.scoreboard(settings, day)
    return board.filter(pc.equal(board["policy"], policy)), settings.trace, day
