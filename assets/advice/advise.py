"""Compute the numbers of an advice page, what to run tomorrow, from a trace file or a trace in the lake.

A file lands in a separate lake; a trace of the lake is copied into one. Its lake gets the promise, to be
graded by the nightly run (advised_days.py), and nothing else. Then come the steps of a nightly run and of the
studies: characterise, forecast, search GPUs, plan and replay the last whole day from the days before it, plan
the next day. A trace of less than two days is sized hour by hour (short_trace.py).
"""

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fleetcast.assets.advice import (
    advice_config,
    advice_pipeline,
    advised_days,
    data_sections,
    import_trace,
    imported_trace,
    limitations,
    next_day_plan,
    phrases,
    policy_comparison,
    promise_sections,
    short_trace,
    sized_plan,
)
from fleetcast.assets.advice.current_fleet import evaluate_current_fleet
from fleetcast.assets.advice.data_sections import add_derived_sections, empty_sections
from fleetcast.assets.advice.imported_trace import ImportedTrace
from fleetcast.assets.advice.promise import RentedPromise
from fleetcast.assets.advice.remedies import describe_remedy
from fleetcast.assets.advice.rented_gpus import Deployments, search_rented_promise
from fleetcast.assets.demand.characterise import characterise_trace
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.plans.day_ahead import forecast_plan_day, plan_ahead
from fleetcast.assets.studies import try_fleet
from fleetcast.assets.studies.level_search import describe_endpoint_levels
from fleetcast.assets.studies.unseen_days import minimum_fleet_usd
from fleetcast.models.aliases import Numbers
from fleetcast.models.replay.session import background_compile
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import SURVIVAL_FLOORS
from fleetcast.models.world.prices import price_by_provider
from fleetcast.models.world.project_paths import HOME
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known

ADVICE_FOLDER = HOME / "data" / "figures" / "advice"


class AdviceRequest(NamedTuple):
    """Options of `fleetcast advise` on a trace."""

    file: Path | None = None
    trace: str | None = None  # a trace of the lake, without a file
    as_llm: str | None = None  # assumed for llms without a profile or without a name
    current_fleet: str | None = None  # what runs today, as `fleetcast try` reads it
    gpus: tuple[str, ...] = ()  # types that may be rented; (): those of `default_gpus`
    output_tokens: int | None = None  # assumed for answers whose length the file does not give
    survive: str = "instance"  # what the fleet survives, of SURVIVAL_FLOORS
    provider: str | None = None  # whose prices; None: the first list with all types in question
    prices: Path | None = None  # a file of price lists instead of the catalogue's
    columns: Mapping[str, str] = {}  # column of a log -> column of the file
    engines: advice_config.EngineFiles = advice_config.NO_ENGINES  # to plan with, too


def advise_trace(
    request: AdviceRequest, folder: Path, progress: Progress, lake: Lake | None = None
) -> Numbers:
    """Compute the numbers of a page on a file or on a trace of `lake`; `folder` gets its lake and config.

    ConfigError, in one line, for an unreadable file, an unknown name or a fleet that lacks an llm.
    """
    catalogue = load_catalogue()
    office = load_config("office", catalogue)
    for gpu in request.gpus:
        require_known(gpu, catalogue.gpus, "gpu", "--gpus")
    fleets = [request.current_fleet] if request.current_fleet else []
    as_llms = [request.as_llm] if request.as_llm else []
    catalogue = try_fleet.add_fleet_llms(catalogue, fleets, as_llms, "--assume-llm")
    require_known(request.survive, SURVIVAL_FLOORS, "kind of survival", "--survive")
    if request.engines.paths and request.survive == "region":
        raise ConfigError(
            "--engines and --survive region: the spare of a lost region is planned for one engine of each "
            "llm. Drop one of them."
        )
    pools = try_fleet.parse_fleet(request.current_fleet, catalogue, office) if request.current_fleet else []
    needed = [*request.gpus, *(pool.deployment.gpu for pool in pools)]
    catalogue, provider, prices = price_by_provider(catalogue, needed, request.provider, request.prices)
    as_llm = request.as_llm or (pools[0].llm if len(pools) == 1 else None)
    if request.file is not None:
        with progress.bar(f"land {request.file.name}", 0):
            imported = import_trace.import_trace_file(
                request.file, folder, catalogue, as_llm, Progress(), request.output_tokens, request.columns
            )
    else:
        imported = import_trace.copy_landed_trace(
            lake or Lake(), str(request.trace), folder, catalogue, as_llm
        )
    if missing := [llm for llm in imported.llms if pools and llm not in {pool.llm for pool in pools}]:
        raise ConfigError(
            f"--fleet {request.current_fleet!r} has no {', '.join(missing)}, which requests need. Add it, or "
            "name one llm only, which is then assumed for all llms without a profile."
        )
    sections = compute_sections(imported, request, pools, catalogue, office, folder, progress)
    if request.file is None and sections["promise"] is not None:
        advised_days.copy_promise(imported.lake, lake or Lake(), str(request.trace), imported.day_to_plan)
    sections["prices"] = data_sections.prices_section(sections, provider, prices)
    sections["cannot"] = limitations.list_limitations(imported, catalogue, sections)
    sections["answer"] = phrases.answer_sentences(sections)
    shown = folder.absolute()
    command = command_of_page(request, shown, lake)
    types = {
        row["llm"]: request.gpus or advice_pipeline.default_gpus(row["llm"], catalogue)
        for row in sections["gpus"]
    }
    lake_path, config_path = (shlex.quote(str(shown / name)) for name in ("lake", "advice.toml"))
    place = f"FLEETCAST_LAKE={lake_path} FLEETCAST_CONFIG={config_path} "
    sections["commands"] = phrases.reproduce_commands(sections, place, command, types)
    return dict(data_sections.to_json_values(sections))


def command_of_page(request: AdviceRequest, folder: Path, lake: Lake | None) -> str:
    """Return the command that makes the page again in `folder`, from any folder."""
    source = [str(request.file.absolute())] if request.file else ["--trace", str(request.trace)]
    columns = ",".join(f"{name}={column}" for name, column in request.columns.items())
    options = {
        "--assume-llm": request.as_llm,
        "--fleet": request.current_fleet,
        "--outputs": request.output_tokens,
        "--columns": columns,
        "--gpus": ",".join(request.gpus),
        "--survive": request.survive if request.survive != "instance" else None,
        "--provider": request.provider,
        "--prices": request.prices and request.prices.absolute(),
        "--quality-floor": request.engines.quality_floor,
        "--out": folder,
    }
    parts = [part for name, value in options.items() if value for part in (name, str(value))]
    parts += [part for path in request.engines.paths for part in ("--engines", str(path.absolute()))]
    place = "" if request.file else f"FLEETCAST_LAKE={shlex.quote(str((lake or Lake()).root))} "
    return place + shlex.join(["fleetcast", "advise", *source, *parts])


def compute_sections(
    imported: ImportedTrace,
    request: AdviceRequest,
    pools: Sequence[try_fleet.TryPool],
    catalogue: Catalogue,
    office: RunConfig,
    folder: Path,
    progress: Progress,
) -> Numbers:
    """Compute all sections; sections that the trace does not allow are None or empty."""
    characterise_trace(imported.lake, imported.trace, progress)
    llms = imported.llms or (imported_trace.DEFAULT_LLM,)
    deployments = advice_config.current_deployments(pools) or advice_config.default_deployments(
        llms, catalogue, office
    )
    types = {llm: request.gpus or advice_pipeline.default_gpus(llm, catalogue) for llm in deployments}
    config, last = folder / "advice.toml", imported.last_whole_day
    engines = request.engines if pools else advice_config.NO_ENGINES  # of a fleet to rent: once it is known
    settings_of = partial(
        advice_config.write_advice_config,
        imported,
        catalogue=catalogue,
        survive=request.survive,
        path=config,
        engines=request.engines,
    )
    settings = settings_of(deployments, engines=engines)
    next_day = imported.day_to_plan
    sections = empty_sections(imported)
    sections["history"] = data_sections.history_section(settings, imported.last_at.date())
    if not imported.llms:
        return sections | {
            "watch": next_day_plan.watch_section(settings, None, imported.first_day, imported.last_at.date())
        }
    if last is None and request.engines.paths:
        raise ConfigError(
            "--engines needs a trace of two days: a shorter one is sized without a plan. Drop it."
        )
    if last is None and request.survive == "region":
        raise ConfigError(
            "--survive region needs a trace of two days: a shorter one is sized in its own regions "
            "alone. Take --survive instance."
        )
    if last is not None:
        forecast_plan_day(settings, next_day, progress)
    if background_compile.is_compiling():
        with progress.bar("compile the replay, once", 0) as progress_step:
            background_compile.wait_for_compilation(progress_step)
    peaks = short_trace.peak_tokens_per_s_by_llm(settings) if last is None else None
    answers = advice_pipeline.find_fleets_to_rent(settings, next_day, llms, types, peaks, progress)
    choices, rented = [deployments], None
    whole = replace(settings, catalogue=catalogue)  # that of the config has profiles of its own GPUs only
    if last is not None:
        found = advice_pipeline.choose_deployments(whole, next_day, answers, llms, types, progress)
        if pools:
            rented = search_rented_promise(
                found, deployments, settings_of, last, next_day, request.survive, progress
            )
        else:
            choices = found
    sections["gpus"] = data_sections.gpu_section(answers)
    current = evaluate_current_fleet(settings, last, pools, request.current_fleet, catalogue, office)
    if last is not None:
        deployments, planned = plan_cheapest_kept(
            choices,
            [minimum_fleet_usd(settings_of(choice)) for choice in choices],
            lambda choice: planned_sections(
                settings_of(choice), last, next_day, request.survive, current, rented, progress
            ),
        )
        sections |= planned
    else:
        cheapest = short_trace.cheapest_sized_deployments(whole, llms, types, progress)
        deployments = deployments if pools else cheapest
        sections |= short_trace_sections(settings_of, deployments, cheapest, progress)
    settings = settings_of(deployments)
    if last is not None and advice_pipeline.run_level_trials(settings, last, imported, progress):
        sections["levels"] = describe_endpoint_levels(settings, last)
    missed = sections["tomorrow"] if last is None else sections["promise"]
    if missed["missed_hours"] if last is None else not missed["is_kept"]:
        others = {llm: (*types[llm], *advice_pipeline.default_gpus(llm, catalogue)) for llm in deployments}
        draws = 0 if last is None else missed["draws"]
        missed["remedy"] = describe_remedy(settings, last, deployments, others, catalogue, office, draws)
    add_derived_sections(settings, sections, imported, last, current)
    return sections


def short_trace_sections(
    settings_of: Callable[[Deployments], RunSettings],
    deployments: Deployments,
    cheapest: Deployments,
    progress: Progress,
) -> Numbers:
    """Return the plan of a trace of less than two days, and what the deployments `cheapest` would save."""

    def size_hours(chosen: Deployments) -> Numbers:
        settings = settings_of(chosen)
        sizes = short_trace.size_hours(settings, chosen, progress)
        return next_day_plan.sized_hours_section(settings, sizes, chosen)

    plan = size_hours(deployments)
    # A fleet may have llms that no request needs.
    rented = plan if cheapest is deployments else size_hours({**deployments, **cheapest})
    return {"tomorrow": plan, "split": next_day_plan.rented_saving(plan, rented)}


def plan_cheapest_kept(
    choices: Sequence[Deployments],
    least_usd: Sequence[float],
    plan: Callable[[Deployments], Numbers],
) -> tuple[Deployments, Numbers]:
    """Return the cheapest of `choices` whose promise is kept, else the one that comes closest; its sections.

    `least_usd`: the cost of the least fleet of each choice; one whose least fleet costs as much as a kept
    promise is not planned. Closest: kept in most versions of tomorrow, then most requests in time. The found
    one is planned last, so that the plans in the lake are of it.
    """
    planned = list[tuple[Deployments, Numbers]]()
    kept_usd = math.inf
    for choice, floor_usd in zip(choices, least_usd, strict=True):
        if floor_usd < kept_usd:
            planned.append((choice, plan(choice)))
            promise = planned[-1][1]["promise"]
            kept_usd = min(kept_usd, promise["usd_mean"] if promise["is_kept"] else math.inf)

    def rank(found: tuple[Deployments, Numbers]) -> tuple[float, ...]:
        promise = found[1]["promise"]
        if promise["is_kept"]:
            return 0.0, promise["usd_mean"]
        return 1.0, -promise["kept_share"], -promise["in_time_low_share"]

    best, sections = min(planned, key=rank)
    return best, sections if best is planned[-1][0] else plan(best)


def planned_sections(
    settings: RunSettings,
    last: date,
    next_day: date,
    survive: str,
    today: Numbers | None,
    rented: RentedPromise | None,
    progress: Progress,
) -> Numbers:
    """Plan and replay the past days, plan the next one, and choose, size and promise its rule.

    All on the deployments of the config. `today`: the current fleet, of `evaluate_current_fleet`. `rented`:
    the promise on other GPUs. The plan of the next day in the lake gets the instances of the sized rule if it
    keeps its promise.
    """
    days = advice_pipeline.plan_past_days(settings, last, progress)
    advice_pipeline.run_day_pipeline(settings, last, progress)
    plan_ahead(settings, next_day, progress)
    whole = advice_pipeline.whole_days_until(settings, days[-1])
    search, found = promise_sections.search_promise(settings, days, whole, next_day, survive, progress)
    sized = found.advised.sized
    if found.is_kept:
        sized_plan.write_sized_plan(settings, search.plan, sized)
    promise = promise_sections.promise_section(settings, search, found, survive)
    advised_days.keep_promise(settings, search, promise)
    advised_days.grade_landed_days(settings, days[-1], progress)
    return {
        "promise": promise,
        "reliability": advised_days.reliability_section(settings.lake, settings.trace),
        "choice": promise_sections.choice_section(search, found, settings),
        "grades": promise_sections.grade_past_days(settings, search, sized, whole),
        "split": promise_sections.saving_split(found, None if today is None else today["usd"], rented),
        "tomorrow": next_day_plan.next_day_section(settings, next_day),
        "board": policy_comparison.policies_section(settings, last, promise),
    }
