"""Run a study: plan and replay the variants of a config under each policy, and write table trials.

Each variant is planned and replayed like a nightly run, in a scratch lake. Requests, demand and forecasts
are most of the work. A prepared lake holds them, and all variants of all studies with the same requests and
forecasts share it.
"""

import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from fleetcast.assets.demand import demand_history
from fleetcast.assets.forecasts.forecasts import forecast_day
from fleetcast.assets.lake import store
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.plans.plans import plan_day
from fleetcast.assets.replays.replays import replay_days
from fleetcast.assets.studies import study_files
from fleetcast.assets.studies.experiment import (
    ALL_GROUPS,
    INPUT_TABLES,
    Variant,
    policy_metrics,
    scratch_lake,
    share_tables,
    write_trials,
)
from fleetcast.assets.studies.study_files import StudyVariant, load_study, study_names
from fleetcast.models.aliases import Ints
from fleetcast.models.world.calendar import HOUR_S, QUARTER_S
from fleetcast.models.world.installed_objects import installed_sources
from fleetcast.models.world.own_forecasts import FORECAST_GROUP
from fleetcast.models.world.project_paths import CODE
from fleetcast.models.world.toml_dataclasses import ConfigError

PREPARED = ".prepared"  # folder of prepared lakes, one per set of requests and forecasts
FORECASTING = ("models/forecast/*.py", "assets/forecasts/*.py", "models/world/calendar.py")


def run_study(variants: Sequence[StudyVariant], progress: Progress) -> pa.Table:
    """Run the variants of a study and return its rows of the mart studies.

    Each variant is written as soon as it is measured. Trials of variants that the study no longer has are
    deleted.
    """
    lake, study, written = variants[0].settings.lake, variants[0].study, set[str]()
    for variant in variants:
        progress.say(f"{study}, {variant.name}: {variant.what}")
        rows = run_variant(variant, prepare_lake(variant.settings, variant.days, progress), progress)
        path = write_trials(variant.settings, "study", variant.days[-1], rows, f"{study}@{variant.name}")
        written.add(lake.below(path))
    for file in lake.files("trials", experiment="study"):
        if file.stem.startswith(f"{study}@") and lake.below(file) not in written:
            lake.remove(file)
    return lake.sql("select * from studies where study = $study", study=study)


def prepare_lake(settings: RunSettings, days: Sequence[date], progress: Progress) -> Lake:
    """Return the prepared lake with the requests, demand and forecasts of these days."""
    for day in days:
        demand_history.require_history(settings, day)
    prepared = dataclasses.replace(
        settings, lake=Lake(settings.lake.root / PREPARED / prepared_lake_name(settings))
    )
    for trace in landed_trace_names(settings):
        share_tables(settings.lake, prepared.lake, INPUT_TABLES[:4], trace=trace)
    demand_history.drop_changed_days(prepared)
    needed_days = sorted({*days, *(past for day in days for past in demand_history.past_days(prepared, day))})
    for first, last in demand_history.consecutive_stretches(needed_days):
        stretch = [day for day in needed_days if first <= day <= last]
        demand_history.make_requests(prepared, stretch, progress)
        for _ in demand_history.make_demand(prepared, stretch, progress):
            pass
    forecast_days = prepared.lake.days("day_ahead_forecasts", prepared.trace)  # the last table of a forecast
    for day in days:
        if day not in forecast_days:
            forecast_day(prepared, day, progress)
    return prepared.lake


def run_variant(variant: StudyVariant, prepared: Lake, progress: Progress) -> pa.Table:
    """Plan and replay a variant's days; return each policy's rows of trials over all days."""
    policies = variant.settings.config.replay.policies
    quarters: dict[str, Ints] = dict.fromkeys(policies, np.zeros(1, np.int64))
    with scratch_lake(variant.settings, prepared, INPUT_TABLES) as scratch:
        for day in variant.days:
            plan_day(scratch, day, progress)
        for days in [variant.days] if variant.in_one_go else [[day] for day in variant.days]:
            largest: dict[str, Ints] = {}
            replay_days(scratch, days, policies, progress, largest)
            quarters = {name: quarters[name] + peaks.sum(axis=0) for name, peaks in largest.items()}
        tables = []
        for policy in progress.each(f"measure {variant.study}, {variant.name}", policies):
            metrics = policy_metrics(scratch.lake, policy, in_one_go=variant.in_one_go)
            trial = Variant(variant.name, scratch, variant.days[-1], policy, labels={"study": variant.study})
            tables.append(trial.rows([*metrics, *quarter_hour_metrics(scratch, quarters[policy])]))
    return pa.concat_tables(tables)


def quarter_hour_metrics(settings: RunSettings, quarters: Ints) -> list[dict[str, Any]]:
    """Return the metric quarter_instance_hours; `quarters`: instances, summed over quarters, (L * R,)."""
    llms = list(settings.catalogue.llms)
    hours = quarters.reshape(len(llms), -1).sum(axis=1) * QUARTER_S / HOUR_S
    values = {**dict(zip(llms, hours.tolist(), strict=True)), ALL_GROUPS: float(hours.sum())}
    return [{"metric": "quarter_instance_hours", "llm": llm, "value": value} for llm, value in values.items()]


# --- prepared lakes, shared by variants ----------------------------------------------------------------


def prepared_lake_name(settings: RunSettings) -> str:
    """Return the prepared lake's name: a hash of all that the requests and forecasts depend on."""
    config, tiers = settings.config, settings.catalogue.tiers
    deferrable = [(name, tier.is_held) for name, tier in tiers.items()]
    parts = (settings.trace, config.trace.first_day, config.forecast, config.calendar, deferrable)
    digest = hashlib.sha256(f"{demand_history.generated_trace_fingerprint(settings)} {parts!r}".encode())
    digest.update(forecasting_code())
    for name in sorted({config.forecast.method, *config.forecast.methods}):
        digest.update(installed_sources(FORECAST_GROUP, name))
    for trace in landed_trace_names(settings):  # a trace that landed again counts as another one
        digest.update(repr(sorted(settings.lake.marks("requests", trace=trace).items())).encode())
    return digest.hexdigest()[:16]


@functools.cache
def forecasting_code() -> bytes:
    """Return the text of fleetcast's forecasting files."""
    paths = sorted(path for pattern in FORECASTING for path in CODE.glob(pattern))
    return b"".join(path.read_bytes() for path in paths)


def landed_trace_names(settings: RunSettings) -> list[str]:
    """Return the landed traces that a variant's requests are read from."""
    trace = settings.config.trace
    if trace.tiled is not None:
        return [trace.tiled.template]
    return [] if trace.office is not None else [trace.name]


def drop_unused_lakes(lake: Lake, run: Sequence[StudyVariant]) -> None:
    """Delete prepared lakes that neither these variants nor any shipped study uses."""
    used = {prepared_lake_name(variant.settings) for variant in run}
    for name in study_names():
        with contextlib.suppress(ValueError):  # a broken study reports its error when it is run
            used |= {prepared_lake_name(variant.settings) for variant in load_study(name, lake)}
    for folder in (lake.root / PREPARED).glob("*"):
        if folder.name not in used:
            store.remove_tree(folder)


# --- values from papers --------------------------------------------------------------------------------


def write_paper_values(lake: Lake) -> None:
    """Load the CSV files of data/studies into table paper_values; ConfigError names an invalid file."""
    for path in sorted(study_files.STUDIES_DIR.glob("*.csv")):
        schema = SCHEMAS["paper_values"]
        options = csv.ConvertOptions(
            column_types=schema, strings_can_be_null=True, null_values=[""], include_columns=schema.names
        )
        try:
            table = csv.read_csv(path, convert_options=options)
        except (pa.ArrowException, KeyError) as error:
            why = str(error).splitlines()[0].rstrip(".")
            raise ConfigError(f"{path.name}: {why}. Its columns are {', '.join(schema.names)}.") from error
        lake.write("paper_values", table, paper=path.stem)
