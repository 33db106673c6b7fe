"""A study: the variants of a config, each under its policies, as rows of the table trials.

Each variant is planned and replayed like a night, in a lake that is thrown away. Requests, demand and
forecasts, most of the work, lie in a lake beside: one for all variants, of whatever study, that make
them alike.
"""

import contextlib
import dataclasses
import hashlib
from collections.abc import Sequence
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
from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.world.calendar import QUARTER_S
from fleetcast.models.world.project_paths import CODE
from fleetcast.models.world.toml_dataclasses import ConfigError

PREPARED = ".prepared"  # folder of the lake: a lake for each sort of requests, with their forecasts
FORECASTING = ("models/forecast/*.py", "assets/forecasts/*.py", "models/world/calendar.py")


def run_study(variants: Sequence[StudyVariant], progress: Progress) -> pa.Table:
    """Run the variants of a study; its rows of the mart studies.

    Each variant is written as soon as it is known. What the lake has of variants that the study no longer
    has goes.
    """
    lake, study, written = variants[0].settings.lake, variants[0].study, set[str]()
    for variant in variants:
        progress.say(f"{study}, {variant.name}: {variant.what}")
        rows = run_variant(variant, prepare_lake(variant, progress), progress)
        path = write_trials(variant.settings, "study", variant.days[-1], rows, f"{study}@{variant.name}")
        written.add(lake.below(path))
    for file in lake.files("trials", experiment="study"):
        if file.stem.startswith(f"{study}@") and lake.below(file) not in written:
            file.unlink()
    return lake.sql("select * from studies where study = $study", study=study)


def prepare_lake(variant: StudyVariant, progress: Progress) -> Lake:
    """The lake that has the requests, the demand and the forecasts of a variant's days."""
    settings, days = variant.settings, variant.days
    for day in days:
        demand_history.require_history(settings, day)
    own = dataclasses.replace(
        settings, lake=Lake(settings.lake.root / PREPARED / prepared_lake_name(settings))
    )
    for trace in landed_trace_names(settings):
        share_tables(settings.lake, own.lake, INPUT_TABLES[:4], trace=trace)
    demand_history.drop_changed_days(own)
    asked = sorted({*days, *(past for day in days for past in demand_history.past_days(own, day))})
    for first, last in demand_history.consecutive_stretches(asked):
        stretch = [day for day in asked if first <= day <= last]
        demand_history.make_requests(own, stretch, progress)
        for _ in demand_history.make_demand(own, stretch, progress):
            pass
    for day in days:
        if day not in own.lake.days("day_ahead_forecasts", own.trace):  # the last that is written of a day
            forecast_day(own, day, progress)
    return own.lake


def run_variant(variant: StudyVariant, known: Lake, progress: Progress) -> pa.Table:
    """Plan and replay a variant's days, and measure each policy over all of them."""
    policies = variant.settings.config.replay.policies
    quarters = dict.fromkeys(policies, np.zeros(len(variant.settings.catalogue.llms)))
    with scratch_lake(variant.settings, known, INPUT_TABLES) as own:
        for day in variant.days:
            plan_day(own, day, progress)
        for days in [variant.days] if variant.in_one_go else [[day] for day in variant.days]:
            largest: dict[str, Ints] = {}
            replay_days(own, days, policies, progress, largest)
            quarters = {
                name: quarters[name] + instance_hours_by_llm(own, most) for name, most in largest.items()
            }
        found = []
        with progress.bar(f"measure {variant.study}, {variant.name}", len(policies)) as done:
            for policy in policies:
                told = policy_metrics(own.lake, policy, in_one_go=variant.in_one_go)
                trial = Variant(variant.name, own, variant.days[-1], policy, labels={"study": variant.study})
                found.append(trial.rows([*told, *quarter_hour_metrics(own, quarters[policy])]))
                done(len(found))
    return pa.concat_tables(found)


def instance_hours_by_llm(settings: RunSettings, largest: Ints) -> Floats:
    """Instance-hours of each llm by the most that each endpoint held in each quarter of an hour, (L,)."""
    regions = len(settings.catalogue.regions)
    return largest.sum(axis=0).reshape(-1, regions).sum(axis=1) * QUARTER_S / 3600.0


def quarter_hour_metrics(settings: RunSettings, of_llms: Floats) -> list[dict[str, Any]]:
    """Figures of the metric quarter_instance_hours."""
    told = {
        **dict(zip(settings.catalogue.llms, of_llms.tolist(), strict=True)),
        ALL_GROUPS: float(of_llms.sum()),
    }
    return [{"metric": "quarter_instance_hours", "llm": llm, "value": value} for llm, value in told.items()]


# --- what variants share -------------------------------------------------------------------------------


def prepared_lake_name(settings: RunSettings) -> str:
    """What the requests and forecasts of a variant depend on, as the name of their lake."""
    config, tiers = settings.config, settings.catalogue.tiers
    held = [(name, tier.is_held) for name, tier in tiers.items()]
    parts = (settings.trace, config.trace.first_day, config.forecast, config.calendar, held)
    digest = hashlib.sha256(f"{demand_history.generated_trace_fingerprint(settings)} {parts!r}".encode())
    for path in sorted(path for pattern in FORECASTING for path in CODE.glob(pattern)):
        digest.update(path.read_bytes())
    for trace in landed_trace_names(settings):  # what landed anew is another trace
        digest.update(repr(sorted(settings.lake.marks("requests", trace=trace).items())).encode())
    return digest.hexdigest()[:16]


def landed_trace_names(settings: RunSettings) -> list[str]:
    """The landed traces that a variant's requests are read from."""
    trace = settings.config.trace
    if trace.tiled is not None:
        return [trace.tiled.template]
    return [] if trace.office is not None else [trace.name]


def drop_unused_lakes(lake: Lake, run: Sequence[StudyVariant]) -> None:
    """Drop what was prepared neither for these variants nor for any of a shipped study as it is now."""
    used = {prepared_lake_name(variant.settings) for variant in run}
    for name in study_names():
        with contextlib.suppress(ValueError):  # told where it is asked
            used |= {prepared_lake_name(variant.settings) for variant in load_study(name, lake)}
    for folder in (lake.root / PREPARED).glob("*"):
        if folder.name not in used:
            store.remove_tree(folder)


# --- what papers say -----------------------------------------------------------------------------------


def write_paper_values(lake: Lake) -> None:
    """Bring the CSV files of data/studies into the table paper_values; ConfigError names a wrong one."""
    for path in sorted(study_files.STUDIES_DIR.glob("*.csv")):
        schema = SCHEMAS["paper_values"]
        said = csv.ConvertOptions(
            column_types=schema, strings_can_be_null=True, null_values=[""], include_columns=schema.names
        )
        try:
            table = csv.read_csv(path, convert_options=said)
        except (pa.ArrowException, KeyError) as error:
            why = str(error).splitlines()[0].rstrip(".")
            raise ConfigError(f"{path.name}: {why}. Its columns are {', '.join(schema.names)}.") from error
        lake.write("paper_values", table, paper=path.stem)
