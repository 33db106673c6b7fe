"""What to run tomorrow, from a trace file, a trace in the lake, or what a night has left: as numbers.

A file lands in a lake of its own, a trace of the lake is copied into one. Then as the night and the studies
do it: characterise, foresee, seek the GPUs, plan and replay the last whole day from what came before it, plan
the next. A trace without two days is sized hour by hour (brief.py). Nothing of it enters the lake.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fleetcast.assets.advice import (
    brief,
    bring,
    brought,
    coming,
    judged,
    lacking,
    numbers,
    words,
    work,
    world,
)
from fleetcast.assets.advice.brought import Brought
from fleetcast.assets.advice.parts import empty, tell
from fleetcast.assets.advice.today import of_today
from fleetcast.assets.demand.characterise import characterise
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.plans.ahead import plan_ahead
from fleetcast.assets.studies import tried
from fleetcast.models.aliases import Numbers
from fleetcast.models.replay.session import background_compile
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.config import Config
from fleetcast.models.world.loading import load_config
from fleetcast.models.world.places import HOME
from fleetcast.models.world.reading import ConfigError, require_known

FOLDER = HOME / "data" / "figures" / "advice"


class Asked(NamedTuple):
    """What is asked."""

    file: Path | None = None
    trace: str | None = None  # of the lake, where no file is given
    as_llm: str | None = None  # stands for llms without a profile, or without a name
    on: str | None = None  # what runs today, as `fleetcast try` reads it
    gpus: tuple[str, ...] = ()  # types that may be rented; else those of `default_gpus`
    output_tokens: int | None = None  # of answers whose length the file does not tell


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
    if asked.file is not None:
        with progress.bar(f"land {asked.file.name}", 0):
            came = bring.land(asked.file, folder, catalogue, as_llm, Progress(), asked.output_tokens)
    else:
        came = bring.copy(lake or Lake(), str(asked.trace), folder, catalogue, as_llm)
    if missing := [llm for llm in came.llms if pools and llm not in {pool.llm for pool in pools}]:
        raise ConfigError(
            f"--on {asked.on!r} has no {', '.join(missing)}, which requests ask for. Add it, or name one llm "
            "alone, which stands for all that have no profile."
        )
    found = planned(came, asked, pools, catalogue, office, folder, progress)
    found["cannot"] = lacking.cannot(came, catalogue, found)
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
    parts += [f" --outputs {asked.output_tokens}"] if asked.output_tokens else []
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
    settings = world.write_config(came, stands, catalogue, config)
    next_day = came.day_to_plan
    found = empty(came)
    found["history"] = numbers.of_history(settings, came.last_at.date())
    if not came.llms:
        return found | {"watch": coming.of_watch(settings, None, came.first_day, came.last_at.date())}
    if last is not None:
        work.foresee_demand(settings, next_day, progress)
    if background_compile.is_compiling():
        with progress.bar("compile the replay, once", 0) as passed:
            background_compile.wait(passed)
    peaks = brief.peaks(settings) if last is None else None
    answers = work.rent(settings, next_day, llms, asked.gpus, peaks, progress)
    if not pools:
        if last is None:
            types = {llm: work.profiled_gpus(llm, asked.gpus, catalogue) for llm in llms}
            stands = brief.cheapest_stands(settings, llms, types, progress)
        else:
            stands = work.stands_on(answers, llms, catalogue, office)
        settings = world.write_config(came, stands, catalogue, config)
    found["gpus"] = numbers.of_gpus(answers)
    if last is None:
        sizes = brief.sized(settings, stands, progress)
        found["tomorrow"] = coming.of_sizes(settings, sizes, stands)
    else:
        work.run_day(settings, last, progress)
        if work.run_levels(settings, last, came, progress):
            found["levels"] = numbers.level_lines(settings, last)
        plan_ahead(settings, next_day, progress)
        found["tomorrow"] = coming.of_tomorrow(settings, next_day)
        found["board"] = judged.of_board(settings, last)
    today = of_today(settings, last, pools, asked.on, catalogue, office)
    tell(settings, found, came, last, today)
    return found
