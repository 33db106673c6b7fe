"""Asset checks: every file of sql/checks is a rule and returns the rows that break it.

A check that fails stops the assets downstream of its own.
"""

from collections.abc import Mapping, Sequence
from datetime import date

import dagster as dg
import pyarrow as pa

from fleetcast.assets.lake.damaged_files import check_night_inputs
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.lake.sql_files import read_sql
from fleetcast.assets.pages.asset_metadata import (
    SettingsResource,
    build_asset_key,
    markdown_table,
    partition_days,
    user_errors_as_failures,
)
from fleetcast.assets.traces.data_quality import WARN_VERDICT

CHECKS: Mapping[str, Sequence[str]] = {
    "landing": ("rows_are_conserved",),
    "requests": ("requests_are_valid", "request_ids_are_unique"),
    "demand": ("demand_conserves_tokens",),
    "forecasts": ("forecasts_start_at_their_cutoff", "forecasts_cover_the_day"),
    "plans": ("plans_cover_demand", "plan_windows_balance", "plans_chain"),
    "replays": (
        *("replays_end_every_request_once", "replays_account_for_every_hour"),
        *("answers_come_from_the_last_leg", "no_answer_is_judged_twice"),
    ),
    "quality_plans": ("shares_of_answers_sum_to_one", "fronts_have_no_dominated_plan"),
    "scorecard": ("scorecard_conserves_requests",),
}
# Files of sql/alarms: they warn in the UI and at the end of a nightly run, and stop nothing.
ALARMS: Mapping[str, Sequence[str]] = {
    "forecasts": ("forecasts_beat_last_value", "demand_behaves_as_before"),
    "scorecard": ("rules_on_memory_see_who_waits",),
    "witnessed": ("engines_run_as_before",),
}
SHOWN_OFFENDING_ROWS = 5


def build_sql_check(asset: str, name: str, folder: str = "checks") -> dg.AssetChecksDefinition:
    """Build the asset check of an SQL file: one of sql/checks blocks downstream, one of sql/alarms warns."""
    file, is_blocking = f"{folder}/{name}.sql", folder == "checks"
    severity = dg.AssetCheckSeverity.ERROR if is_blocking else dg.AssetCheckSeverity.WARN

    @dg.asset_check(
        asset=build_asset_key(asset), name=name, description=read_sql(file).sentence, blocking=is_blocking
    )
    def check(context: dg.AssetCheckExecutionContext, settings: SettingsResource) -> dg.AssetCheckResult:
        with user_errors_as_failures():
            return check_rows(settings.load(), context)

    def check_rows(chosen: RunSettings, context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        partitions: list[tuple[str | None, date | None]] = [(None, None)]  # the whole lake
        if context.has_partition_key or context.has_partition_key_range:
            partitions = [(chosen.trace, day) for day in partition_days(context)]
        parameters = {
            "method": chosen.config.forecast.method,
            "tiers": list(chosen.catalogue.tiers),
            "by_memory": chosen.config.by_memory,
            "scale_in_share": chosen.config.replay.scale_in_share,
        }
        broken = pa.concat_tables(
            chosen.lake.sql(file, trace=trace, day=day, **parameters) for trace, day in partitions
        )
        shown = dg.MetadataValue.md(markdown_table(broken.slice(0, SHOWN_OFFENDING_ROWS)))
        return dg.AssetCheckResult(
            passed=broken.num_rows == 0,
            severity=severity,
            metadata={"offending_rows": broken.num_rows, **({"first": shown} if broken.num_rows else {})},
        )

    return check


@dg.asset_check(
    asset=build_asset_key("landing"), description="Every trace file in data/landing was understood."
)
def every_file_is_read(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    """Fail on files that the latest landing refused; the nightly run goes on without them."""
    event = context.instance.get_latest_materialization_event(build_asset_key("landing"))
    refused = (
        event.asset_materialization.metadata["refused"].value if event and event.asset_materialization else []
    )
    return dg.AssetCheckResult(passed=not refused, metadata={"refused": dg.MetadataValue.json(refused)})


@dg.asset_check(asset=build_asset_key("landing"), description="No landed trace has a finding to look into.")
def landed_traces_are_sound(settings: SettingsResource) -> dg.AssetCheckResult:
    """Warn with the findings of the quality report. They stop nothing: a trace with a gap is still useful."""
    with user_errors_as_failures():
        broken = settings.load().lake.sql(
            "select * from quality where verdict = $verdict", verdict=WARN_VERDICT
        )
    shown = dg.MetadataValue.md(markdown_table(broken))
    return dg.AssetCheckResult(
        passed=broken.num_rows == 0,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"findings": broken.num_rows, **({"look into": shown} if broken.num_rows else {})},
    )


@dg.asset_check(
    asset=build_asset_key("demand"),
    description="Requests, demand, and what an earlier run left, have the bytes that were written.",
    blocking=True,
)
def files_are_as_written(
    context: dg.AssetCheckExecutionContext, settings: SettingsResource
) -> dg.AssetCheckResult:
    """Fail on a damaged or vanished file before a forecast reads it. `fleetcast check` verifies the lake."""
    with user_errors_as_failures():
        chosen = settings.load()
        is_partitioned = context.has_partition_key or context.has_partition_key_range
        nights = partition_days(context) if is_partitioned else []
        history = {past for day in nights for past in chosen.history(day)} - set(nights)
        found = check_night_inputs(chosen.lake, chosen.trace, nights, sorted(history))
    return dg.AssetCheckResult(
        passed=not found.broken,
        metadata={
            "files": found.verified,
            "without a digest": len(found.without_digest),
            **({"make again by": dg.MetadataValue.json(found.broken)} if found.broken else {}),
        },
    )


ASSET_CHECKS = [
    every_file_is_read,
    landed_traces_are_sound,
    files_are_as_written,
    *(build_sql_check(asset, name) for asset, names in CHECKS.items() for name in names),
    *(build_sql_check(asset, name, "alarms") for asset, names in ALARMS.items() for name in names),
]
