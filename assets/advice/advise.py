"""What to run tomorrow, from a trace file, a trace in the lake, or what a night has left: as numbers.

A file lands in a lake of its own, a trace of the lake is copied into one. Then as the night and the studies
do it: characterise, foresee, seek the GPUs, plan and replay the last whole day from what came before it, plan
the next. A trace without two days is sized hour by hour (brief.py). Nothing of it enters the lake.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fleetcast.assets.advice import (
    advice_config,
    advice_pipeline,
    data_sections,
    import_trace,
    imported_trace,
    limitations,
    next_day_plan,
    phrases,
    policy_comparison,
    short_trace,
)
from fleetcast.assets.advice.current_fleet import evaluate_current_fleet
from fleetcast.assets.advice.imported_trace import ImportedTrace
from fleetcast.assets.advice.sections import add_derived_sections, empty_sections
from fleetcast.assets.demand.characterise import characterise_trace
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.plans.day_ahead import plan_ahead
from fleetcast.assets.studies import try_fleet
from fleetcast.models.aliases import Numbers
from fleetcast.models.replay.session import background_compile
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.project_paths import HOME
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known

ADVICE_FOLDER = HOME / "data" / "figures" / "advice"


class AdviceRequest(NamedTuple):
    """What is asked."""

    file: Path | None = None
    trace: str | None = None  # of the lake, where no file is given
    as_llm: str | None = None  # stands for llms without a profile, or without a name
    on: str | None = None  # what runs today, as `fleetcast try` reads it
    gpus: tuple[str, ...] = ()  # types that may be rented; else those of `default_gpus`
    output_tokens: int | None = None  # of answers whose length the file does not tell


def advise_trace(asked: AdviceRequest, folder: Path, progress: Progress, lake: Lake | None = None) -> Numbers:
    """The numbers of a page on a file, or on a trace of `lake`; its own lake and config lie in `folder`.

    Errors are one line: a file that cannot be read, a name that nobody knows, a fleet that lacks an llm.
    """
    catalogue = load_catalogue()
    office = load_config("office", catalogue)
    for gpu in asked.gpus:
        require_known(gpu, catalogue.gpus, "gpu", "--gpus")
    pools = try_fleet.parse_fleet(asked.on, catalogue, office) if asked.on else []
    as_llm = asked.as_llm or (pools[0].llm if len(pools) == 1 else None)
    if asked.file is not None:
        with progress.bar(f"land {asked.file.name}", 0):
            came = import_trace.import_trace_file(
                asked.file, folder, catalogue, as_llm, Progress(), asked.output_tokens
            )
    else:
        came = import_trace.copy_landed_trace(lake or Lake(), str(asked.trace), folder, catalogue, as_llm)
    if missing := [llm for llm in came.llms if pools and llm not in {pool.llm for pool in pools}]:
        raise ConfigError(
            f"--fleet {asked.on!r} has no {', '.join(missing)}, which requests ask for. Add it, or name "
            f"one llm "
            "alone, which stands for all that have no profile."
        )
    found = compute_sections(came, asked, pools, catalogue, office, folder, progress)
    found["cannot"] = limitations.list_limitations(came, catalogue, found)
    found["answer"] = phrases.answer_sentences(found)
    shown = _path_to_type(folder)
    again = f"fleetcast advise {asked.file or f'--trace {asked.trace}'}{_command_options(asked)}"
    types = {
        one["llm"]: asked.gpus or advice_pipeline.default_gpus(one["llm"], catalogue) for one in found["gpus"]
    }
    setup = f"export FLEETCAST_LAKE={shown}/lake FLEETCAST_CONFIG={shown}/advice.toml"
    found["commands"] = phrases.reproduce_commands(found, setup, again, types)
    return dict(data_sections.to_json_values(found))


def _path_to_type(folder: Path) -> str:
    """A folder as one types it from where everything lies."""
    return str(folder.relative_to(HOME)) if folder.is_relative_to(HOME) else str(folder)


def _command_options(asked: AdviceRequest) -> str:
    parts = [f" --as {asked.as_llm}"] if asked.as_llm else []
    parts += [f' --fleet "{asked.on}"'] if asked.on else []
    parts += [f" --outputs {asked.output_tokens}"] if asked.output_tokens else []
    parts += [f" --gpus {','.join(asked.gpus)}"] if asked.gpus else []
    return "".join(parts)


def compute_sections(
    came: ImportedTrace,
    asked: AdviceRequest,
    pools: Sequence[try_fleet.TryPool],
    catalogue: Catalogue,
    office: RunConfig,
    folder: Path,
    progress: Progress,
) -> Numbers:
    """Everything that is computed; parts that the trace does not allow are None or empty."""
    characterise_trace(came.lake, came.trace, progress)
    llms = came.llms or (imported_trace.DEFAULT_LLM,)
    stands = advice_config.current_deployments(pools) or advice_config.default_deployments(
        llms, catalogue, office
    )
    config, last = folder / "advice.toml", came.last_whole_day
    settings = advice_config.write_advice_config(came, stands, catalogue, config)
    next_day = came.day_to_plan
    found = empty_sections(came)
    found["history"] = data_sections.history_section(settings, came.last_at.date())
    if not came.llms:
        return found | {
            "watch": next_day_plan.watch_section(settings, None, came.first_day, came.last_at.date())
        }
    if last is not None:
        advice_pipeline.forecast_next_day(settings, next_day, progress)
    if background_compile.is_compiling():
        with progress.bar("compile the replay, once", 0) as passed:
            background_compile.wait_for_compilation(passed)
    peaks = short_trace.peak_tokens_per_s_by_llm(settings) if last is None else None
    answers = advice_pipeline.find_fleets_to_rent(settings, next_day, llms, asked.gpus, peaks, progress)
    if not pools:
        if last is None:
            types = {llm: advice_pipeline.profiled_gpus(llm, asked.gpus, catalogue) for llm in llms}
            stands = short_trace.cheapest_sized_deployments(settings, llms, types, progress)
        else:
            stands = advice_pipeline.rented_sized_deployments(answers, llms, catalogue, office)
        settings = advice_config.write_advice_config(came, stands, catalogue, config)
    found["gpus"] = data_sections.gpu_section(answers)
    if last is None:
        sizes = short_trace.size_hours(settings, stands, progress)
        found["tomorrow"] = next_day_plan.sized_hours_section(settings, sizes, stands)
    else:
        advice_pipeline.run_day_pipeline(settings, last, progress)
        if advice_pipeline.run_level_trials(settings, last, came, progress):
            found["levels"] = data_sections.levels_section(settings, last)
        plan_ahead(settings, next_day, progress)
        found["tomorrow"] = next_day_plan.next_day_section(settings, next_day)
        found["board"] = policy_comparison.policies_section(settings, last)
    today = evaluate_current_fleet(settings, last, pools, asked.on, catalogue, office)
    add_derived_sections(settings, found, came, last, today)
    return found
