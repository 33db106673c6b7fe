"""What to run tomorrow, from a trace file, a trace in the lake, or what a night has left: as numbers.

A file lands in a lake of its own, a trace of the lake is copied into one. Then as the night and the studies
do it: characterise, foresee, seek the GPUs, plan and replay the last whole day from what came before it, plan
the next. A trace without two days is sized hour by hour (brief.py). Nothing of it enters the lake.
"""

from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa

from assets.advice import brief, brought, numbers, words, work, world
from assets.advice.brought import Brought
from assets.demand.characterise import characterise
from assets.lake.lookups import require_day
from assets.lake.settings import HOURS, Progress, Settings
from assets.lake.warehouse import Lake
from assets.plans.ahead import plan_ahead
from assets.studies import tried
from assets.studies.levels import answers as level_answers
from models.replay import beside
from models.world.catalogue import Catalogue, load_catalogue
from models.world.config import Config
from models.world.loading import load_config
from models.world.places import HOME
from models.world.reading import ConfigError, require_known

FOLDER = HOME / "data" / "figures" / "advice"
Numbers = dict[str, Any]
REQUESTS = """
select epoch(arrived_at) as arrival_s, llm, tier, input_tokens, output_tokens, cached_tokens, prefix_hashes
from requests
where trace = $trace and ($day is null or day = $day::date)
order by arrived_at, request_id
"""
RAN = """
select gpu, gpus_per_instance, sum(instances)::double as instance_hours
from ran_fleets
where trace = $trace and day = $day
group by all
order by all
"""
GRADED = """
select sum(in_time)::double / sum(requests) as share
from shadow_runs
where trace = $trace and day = $day and fleet = 'ran'
"""


class Asked(NamedTuple):
    """What is asked."""

    file: Path | None = None
    trace: str | None = None  # of the lake, where no file is given
    as_llm: str | None = None  # stands for llms without a profile, or without a name
    on: str | None = None  # what runs today, as `fleetcast try` reads it
    gpus: tuple[str, ...] = ()  # types that may be rented; else those of `default_gpus`


def advise(asked: Asked, folder: Path, progress: Progress, lake: Lake | None = None) -> Numbers:
    """The numbers of a page on a file, or on a trace of `lake`; its own lake and config lie in `folder`.

    Errors are one line: a file that cannot be read, a name that nobody knows, a fleet that lacks an llm.
    """
    catalogue = load_catalogue()
    office = load_config("office", catalogue)
    for gpu in asked.gpus:
        require_known(gpu, catalogue.gpus, "gpu", "--gpus")
    pools = tried.pools_of(asked.on, catalogue, office) if asked.on else []
    as_llm = asked.as_llm or (pools[0].llm if len(pools) == 1 else None)
    folder.mkdir(parents=True, exist_ok=True)
    if asked.file is not None:
        with progress.bar(f"land {asked.file.name}", 0):
            came = brought.land(asked.file, folder, catalogue, as_llm, Progress())
    else:
        came = brought.copy(lake or Lake(), str(asked.trace), folder, catalogue, as_llm)
    if lacking := [llm for llm in came.llms if pools and llm not in {pool.llm for pool in pools}]:
        raise ConfigError(
            f"--on {asked.on!r} has no {', '.join(lacking)}, which requests ask for. Add it, or name one llm "
            "alone, which stands for all that have no profile."
        )
    found = planned(came, asked, pools, catalogue, office, folder, progress)
    found["cannot"] = words.cannot(came, catalogue, found)
    found["answer"] = words.answer(found)
    shown = _shown(folder)
    again = f"fleetcast advise {asked.file or f'--trace {asked.trace}'}{_options(asked)}"
    types = {one["llm"]: asked.gpus or work.default_gpus(one["llm"], catalogue) for one in found["gpus"]}
    setup = f"export FLEETCAST_LAKE={shown}/lake FLEETCAST_CONFIG={shown}/advice.toml"
    found["commands"] = words.commands(found, setup, again, types)
    return dict(numbers.clean(found))


def _shown(folder: Path) -> str:
    """A folder as one types it from where everything lies."""
    return str(folder.relative_to(HOME)) if folder.is_relative_to(HOME) else str(folder)


def _options(asked: Asked) -> str:
    parts = [f" --as {asked.as_llm}"] if asked.as_llm else []
    parts += [f' --on "{asked.on}"'] if asked.on else []
    parts += [f" --gpus {','.join(asked.gpus)}"] if asked.gpus else []
    return "".join(parts)


def planned(
    came: Brought,
    asked: Asked,
    pools: Sequence[tried.Pool],
    catalogue: Catalogue,
    office: Config,
    folder: Path,
    progress: Progress,
) -> Numbers:
    """Everything that is computed; parts that the trace does not allow are None or empty."""
    characterise(came.lake, came.trace, progress)
    llms = came.llms or (brought.AS_IF,)
    stands = world.on_today(pools) or world.plain(llms, catalogue, office)
    config, last = folder / "advice.toml", came.last_whole_day
    settings, next_day = (
        world.write_config(came, stands, catalogue, config),
        came.last_at.date() + timedelta(1),
    )
    found = empty(came)
    found["history"] = numbers.of_history(settings, came.last_at.date())
    if not came.llms:
        return found | {"watch": numbers.of_watch(settings, None, came.first_day, came.last_at.date())}
    if last is not None:
        work.foresee_demand(settings, next_day, progress)
    if beside.is_compiling():
        with progress.bar("compile the replay, once", 0) as passed:
            beside.wait(passed)
    peaks = brief.peaks(settings) if last is None else None
    answers = work.rent(settings, next_day, llms, asked.gpus, peaks, progress)
    if not pools:
        stands = work.stands_on(answers, llms, catalogue, office)
        settings = world.write_config(came, stands, catalogue, config)
    found["gpus"] = numbers.of_gpus(answers)
    if last is None:
        sizes = brief.sized(settings, stands, progress)
        found["tomorrow"] = numbers.of_sizes(settings, sizes, stands)
    else:
        work.run_day(settings, last, progress)
        if work.run_levels(settings, last, came, progress):
            found["levels"] = level_lines(settings, last)
        plan_ahead(settings, next_day, progress)
        found["tomorrow"] = numbers.of_tomorrow(settings, next_day)
        found["board"] = numbers.of_board(settings, last)
    today = of_today(settings, last, pools, asked.on, catalogue, office)
    tell(settings, found, came, last, today)
    return found


def empty(came: Brought) -> Numbers:
    """The numbers of a page of which nothing but the trace is known."""
    return {
        "version": numbers.VERSION,
        "answer": [],
        "trace": numbers.of_trace(came),
        "history": [],
        "tomorrow": None,
        "gpus": [],
        "levels": [],
        "llms": [],
        "board": None,
        "saving": None,
        "certainty": None,
        "profiles": [],
        "watch": None,
        "cannot": [],
        "commands": {},
    }


def tell(settings: Settings, found: Numbers, came: Brought, last: date | None, today: Numbers | None) -> None:
    """What follows from the plan and the board: the saving, how sure it is, what to watch."""
    first, until = came.first_day, came.last_at.date()
    if last is not None and found["board"] is not None:
        found["saving"] = numbers.of_saving(settings, last, found["board"], today)
    found["certainty"] = numbers.of_certainty(settings, last, found["board"])
    found["profiles"] = words.of_profiles(settings)
    found["llms"] = numbers.of_llms(came, settings, first, until)
    found["watch"] = numbers.of_watch(settings, found["tomorrow"], first, until)


def level_lines(settings: Settings, day: date) -> list[str]:
    """What the trials of levels answered, endpoint by endpoint."""
    rows = settings.lake.sql(
        "select distinct llm, region from level_trials where trace = $trace and day = $day order by all",
        trace=settings.trace,
        day=day,
    ).to_pylist()
    return [line for row in rows for line in level_answers(settings, day, row["llm"], row["region"])]


def of_today(
    settings: Settings,
    day: date | None,
    pools: Sequence[tried.Pool],
    on: str | None,
    catalogue: Catalogue,
    office: Config,
) -> Numbers | None:
    """What runs today, and what it costs and attains on the last whole day; None where nobody told.

    As --on names it, replayed; else the fleet that ran, with what `fleetcast plan grade` found of it.
    """
    if day is None:
        return None
    if not pools or on is None:
        return ran(settings, day)
    rows = settings.lake.sql(REQUESTS, trace=settings.trace, day=day).to_pandas(
        types_mapper=lambda of: pd.ArrowDtype(of) if pa.types.is_list(of) else None
    )
    rows["arrival_s"] -= rows["arrival_s"].iloc[0]
    row = tried.play(on, pools, rows, catalogue, office).row
    usd = sum(p.instances * p.deployment.gpus * catalogue.gpus[p.deployment.gpu].usd_per_hour for p in pools)
    counts = rows["tier"].value_counts()
    own = [tier for tier in catalogue.interactive_tiers if tier in counts.index]
    met = sum(row[f"{tier}_attainment_share"] * counts[tier] for tier in own)
    asked = sum(counts[tier] for tier in own)
    return {"fleet": on, "usd": HOURS * usd, "in_time_share": float(met / asked) if asked else None}


def ran(settings: Settings, day: date) -> Numbers | None:
    """The fleet that ran on a day; None where the lake does not know it."""
    rows = settings.lake.sql(RAN, trace=settings.trace, day=day).to_pylist()
    if not rows:
        return None
    gpus = settings.catalogue.gpus
    hours = [row["instance_hours"] * row["gpus_per_instance"] for row in rows]
    usd = sum(hour * gpus[row["gpu"]].usd_per_hour for hour, row in zip(hours, rows, strict=True))
    [graded] = settings.lake.sql(GRADED, trace=settings.trace, day=day).to_pylist()
    return {"fleet": "the fleet that ran", "usd": usd, "in_time_share": graded["share"]}


# --- what a night has left ---------------------------------------------------------------------------------


def advise_night(settings: Settings, day: date, progress: Progress) -> Numbers:
    """The numbers of a page on a config's own day, from what its night made; the next day is planned.

    LakeError without the day's scorecard. A next day that cannot be planned is a line of the page.
    """
    require_day(settings.lake, "scorecard", settings.trace, day)
    came, next_day = of_lake(settings, day), day + timedelta(days=1)
    found = empty(came)
    table = "plans" if next_day in settings.lake.days("plans", settings.trace) else "day_ahead_plans"
    why = ""
    try:
        if table != "plans":
            plan_ahead(settings, next_day, progress)
        found["tomorrow"] = numbers.of_tomorrow(settings, next_day, table)
    except ValueError as error:
        why = str(error)
    found["history"] = numbers.of_history(settings, day)
    found["board"] = numbers.of_board(settings, day)
    found["levels"] = level_lines(settings, day)
    tell(settings, found, came, day, ran(settings, day))
    found["cannot"] = words.cannot(came, settings.catalogue, found)
    if why:
        found["cannot"].insert(0, {"key": "tomorrow", "line": why})
    found["answer"] = words.answer(found)
    config = settings.config.file
    name = (
        config.stem if config.parent == load_config("office", load_catalogue()).file.parent else str(config)
    )
    again = f"fleetcast advise --config {name} --date {day}"
    found["commands"] = words.commands(found, f"export FLEETCAST_CONFIG={name}", again, {})
    return dict(numbers.clean(found))


OF_DEMAND = """
select
    sum(requests)::bigint as requests, min(bucket_start) as first_at, max(bucket_start) as last_at,
    sum(input_tokens)::double as input_tokens, sum(output_tokens)::double as output_tokens,
    count(distinct app)::bigint as apps, any_value(app) as app,
    list(distinct region order by region) as regions, list(distinct tier order by tier) as tiers,
    list(distinct llm order by llm) as llms
from demand
where trace = $trace and day between $first and $last
"""


def of_lake(settings: Settings, day: date) -> Brought:
    """What the days of a config's trace say, up to one."""
    first = settings.history(day)[0]
    asked = {"trace": settings.trace, "first": first, "last": day}
    [row] = settings.lake.sql(OF_DEMAND, **asked).to_pylist()
    return Brought(
        settings.lake, settings.trace, settings.config.file.stem, "config", {}, row["requests"],
        row["first_at"], row["last_at"], row["input_tokens"], row["output_tokens"], tuple(row["llms"]), {},
        {}, None, tuple(row["regions"]), tuple(row["tiers"]), row["app"] if row["apps"] == 1 else None,
        frozenset(),
    )  # fmt: skip
