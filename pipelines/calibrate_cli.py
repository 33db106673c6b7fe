"""`fleetcast calibrate`: fit a latency profile to your engine's log or benchmark, and validate it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from fleetcast.pipelines.options import (
    LLM_NAME,
    QuietOption,
    expand_path,
    load_settings_and_day,
    make_progress,
    resolve_config,
)
from fleetcast.pipelines.terminal import ERR, OUT, cli_errors, exit_with_message, short_path

if TYPE_CHECKING:
    from fleetcast.assets.lake.settings import Progress
    from fleetcast.models.aliases import Floats
    from fleetcast.models.trials.engine_calibration import Calibration, CalibrationCheck, SeenLoad
    from fleetcast.models.trials.engine_fit import LoggedRequests
    from fleetcast.models.trials.log_replay import MeasuredEngine
    from fleetcast.models.trials.point_fit import LoadPoint, PointCalibration
    from fleetcast.models.world.catalogue import Catalogue
    from fleetcast.models.world.catalogue_entries import LatencyProfile, Llm
    from fleetcast.models.world.fleet_config import Deployment

LIMIT_OPTIONS = {  # engine limits that the fit depends on, and the option that sets each
    "max_batch": "--max-batch (vLLM's max_num_seqs)",
    "max_prefill_tokens": "--max-prefill-tokens (vLLM's max_num_batched_tokens)",
    "kv_tokens": "--kv-tokens (its start-up log's GPU KV cache size)",
}


def calibrate_command(
    llm: Annotated[str, typer.Option(help=f"The llm: {LLM_NAME}.")],
    gpu: Annotated[str, typer.Option(help="A name from data/catalogue/gpus.toml.")],
    tensor_parallel: Annotated[int, typer.Option(help="GPUs of one instance.", min=1, max=64)],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="The requests of one instance: a CSV, JSON lines, or results of a benchmark, one a run.",
            metavar="[FILE]...",
        ),
    ] = None,
    witnessed: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d"],
            help="Instead of a file: a day of the config's trace that `fleetcast witness` has compared.",
        ),
    ] = None,
    engine: Annotated[
        Path | None, typer.Option(help="The engine's limits: its metadata (JSON) or its start-up log.")
    ] = None,
    max_batch: Annotated[
        int | None, typer.Option(help="Maximum number of requests in a batch.", min=1, max=4096)
    ] = None,
    max_prefill_tokens: Annotated[
        int | None, typer.Option(help="Maximum number of prompt tokens in a step.", min=2, max=1_000_000)
    ] = None,
    kv_tokens: Annotated[
        int | None, typer.Option(help="Tokens that fit into the KV cache.", min=1, max=1_000_000_000)
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only validate the profile of the catalogue; fit none.")
    ] = False,
    ttft_limit: Annotated[
        float, typer.Option(help="Largest TTFT error that passes, a share.", min=0.0)
    ] = 0.08,
    e2e_limit: Annotated[
        float, typer.Option(help="Largest TPOT and E2E error that passes, a share.", min=0.0)
    ] = 0.07,
    write: Annotated[
        bool, typer.Option("--write", help="Write the profile into data/catalogue/latency.toml.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write the profile even if it fails.")] = False,
    config: Annotated[
        str,
        typer.Option(
            help="The config whose [fleet] sets the engine limits that are given nowhere else; with "
            "--witnessed that of the trace."
        ),
    ] = "office",
    quiet: QuietOption = False,
) -> None:
    """Fit a latency profile so that the replay matches a log of requests; without a log, estimate a profile.

    The log has all requests that ONE instance served in a period: a CSV with arrival_s, input_tokens,
    output_tokens, ttft_s, e2e_s (seconds; the last two from the arrival on), or JSON lines of vLLM.
    queued_s, when the engine had a request, gives the front end: HTTP and tokeniser. Or give the results of
    a benchmark tool, at one rate or several: vllm bench serve --save-detailed, aiperf, guidellm,
    inference-perf. It replays the log some thousand times. Three of ten requests are held out of the fit
    and validate it. It prints a block for data/catalogue/latency.toml. It does not write a profile that
    fails.

        fleetcast calibrate log.jsonl --engine meta.json --llm llama3.1-8b --gpu h100-80gb --tensor-parallel 1

        fleetcast calibrate rate-1.json rate-4.json --llm llama3.1-8b --gpu h100-80gb --tensor-parallel 1

        fleetcast calibrate --llm llama3.1-70b --gpu h200-141gb --tensor-parallel 2 --write

    Or fit it to a day of metrics: their histograms, compared with the replay by `fleetcast witness`.

        fleetcast calibrate --witnessed 2025-07-15 --config mine.toml --llm llama3.1-8b --gpu l40s-48gb \
--tensor-parallel 1
    """
    with cli_errors():
        from fleetcast.assets.studies.profile_toml import profile_as_toml
        from fleetcast.models.latency.profile_order import compute_profile, require_degree
        from fleetcast.models.trials.log_replay import MeasuredEngine
        from fleetcast.models.world.catalogue import load_catalogue
        from fleetcast.models.world.config_loading import load_config
        from fleetcast.models.world.fleet_config import Deployment
        from fleetcast.models.world.named_llms import add_named_llms
        from fleetcast.models.world.toml_dataclasses import require_known

        if write:
            require_checkout()
        catalogue = add_named_llms(load_catalogue(), [llm], "--llm")
        require_known(gpu, catalogue.gpus, "gpu", "--gpu")
        require_degree(catalogue, llm, gpu, tensor_parallel)
        limits = {"TTFT": ttft_limit, "TPOT": e2e_limit, "E2E": e2e_limit}
        if witnessed is not None:
            if files or check:
                exit_with_message("--witnessed takes no file and no --check. Leave one of them out.")
            profile, passes = fit_witnessed(config, witnessed, llm, gpu, tensor_parallel, limits)
            frontend_s = 0.0
        elif not files:
            profile, passes, frontend_s = compute_profile(catalogue, llm, gpu, tensor_parallel), True, 0.0
        else:
            given = {"max_batch": max_batch, "max_prefill_tokens": max_prefill_tokens, "kv_tokens": kv_tokens}
            deployment, ranks = resolve_deployment(
                Deployment(gpu, tensor_parallel), engine, given, catalogue.llms[llm]
            )
            name = files[0].name + (f" and {len(files) - 1} more" if len(files) > 1 else "")
            chosen = load_config(resolve_config(config), catalogue)
            measured = MeasuredEngine(llm, deployment, catalogue, chosen, name, ranks)
            log = read_calibration_log(files, engine, measured, limits)
            profile, passes = calibrate_or_check(log, check, make_progress(quiet))
            frontend_s = log.engine.config.fleet.frontend_s
            if not check:
                show_other_degrees(catalogue, profile)
        if check and not passes:
            raise typer.Exit(1)
        if not check:
            OUT.print(profile_as_toml(profile, frontend_s), end="")
        if write:
            save_profile(profile, passes or force, frontend_s)


def fit_witnessed(
    config: str, moment: datetime, llm: str, gpu: str, tensor_parallel: int, limits: Mapping[str, float]
) -> "tuple[LatencyProfile, bool]":
    """Return the profile scaled to a witnessed day, and whether it passes; print how far it is off."""
    from fleetcast.assets.studies.witnessed_profile import fit_witnessed_profile

    settings, day = load_settings_and_day(config, moment)
    profile, fit = fit_witnessed_profile(settings, day, llm, gpu, tensor_parallel, limits)
    ERR.print(f"{fit.hours} hours of {settings.trace}, {day}: the profile keeps its shape.")
    ERR.print(f"Its seconds, times: prefill {fit.prefill_factor:.3g}, decode {fit.decode_factor:.3g}.")
    for phase in fit.kept_phases:
        ERR.print(f"{phase} is kept: too few hours show it, or the metrics have cache hits.")
    return profile, show_verdict(fit.checks)


def require_checkout() -> None:
    """Exit with code 2 without a checkout: --write changes its catalogue."""
    from fleetcast.models.world.project_paths import IS_CHECKOUT

    if not IS_CHECKOUT:
        exit_with_message(
            "--write needs a checkout: an installed catalogue is not changed. Leave --write out."
        )


class CalibrationLog(NamedTuple):
    """A log of one engine, or loads of a benchmark, and the errors that are allowed.

    `limits` has the largest error that passes by metric, a share, and `run_starts` the index of the first
    request of each run. With `points` there are no requests.
    """

    requests: "LoggedRequests | None"
    points: "list[LoadPoint]"
    engine: "MeasuredEngine"
    limits: Mapping[str, float]
    run_starts: tuple[int, ...]


def read_calibration_log(
    files: list[Path], engine_file: Path | None, engine: "MeasuredEngine", limits: Mapping[str, float]
) -> CalibrationLog:
    """Read logs under the engine's config with their front end; print what is noted and what is assumed."""
    from fleetcast.assets.studies.bench_summaries import read_load_points
    from fleetcast.assets.studies.engine_logs import read_logs
    from fleetcast.assets.studies.log_rows import refuse_repeated_files

    paths = [expand_path(file) for file in files]
    refuse_repeated_files(paths)
    if points := read_load_points(paths):
        for note in note_assumed_limits(engine, engine_file):
            ERR.print(note)
        return CalibrationLog(None, points, engine, limits, ())
    log = read_logs(paths)
    if log.frontend_s is not None:
        ERR.print(f"Front end: {1e3 * log.frontend_s:g} ms from arrival to the engine's queue.")
        fleet = replace(engine.config.fleet, frontend_s=log.frontend_s)
        engine = engine._replace(config=replace(engine.config, fleet=fleet))
    check_concurrency(engine, log.requests)
    for note in [*log.notes, *note_assumed_limits(engine, engine_file)]:
        ERR.print(note)
    return CalibrationLog(log.requests, [], engine, limits, log.run_starts)


def calibrate_or_check(
    log: CalibrationLog, is_check: bool, progress: "Progress"
) -> "tuple[LatencyProfile, bool]":
    """Return the fitted profile, or that of the catalogue, and whether it passes; print how far it is off."""
    if log.requests is None:
        return check_load_points(log) if is_check else fit_load_points(log)
    from fleetcast.models.trials.engine_calibration import validate_profile

    if is_check:
        profile = log.engine.known_profile()
        checks = validate_profile(log.requests, profile, log.engine, log.limits)
    else:
        profile, checks = fit_profile(log, log.requests, progress)
    return profile, show_verdict(checks)


def check_load_points(log: CalibrationLog) -> "tuple[LatencyProfile, bool]":
    """Return the profile of the catalogue, and whether it has the means of the loads."""
    import numpy as np

    from fleetcast.models.trials.point_fit import check_points, make_point_player

    profile = log.engine.known_profile()
    play = make_point_player(log.points, profile, log.engine)
    predicted_s = play(np.ones(2), np.arange(len(log.points)))
    show_load_points(log.points, predicted_s)
    return profile, show_verdict(check_points(log.points, predicted_s, log.limits, least_loads=1))


def fit_load_points(log: CalibrationLog) -> "tuple[LatencyProfile, bool]":
    """Return the profile that the catalogue has, scaled to the loads, and whether it passes."""
    from fleetcast.models.trials.point_fit import calibrate_to_points

    profile = log.engine.known_profile()
    found = calibrate_to_points(log.points, profile, log.engine, log.limits)
    ERR.print(f"The loads are summaries: the profile keeps its shape ({profile.source}).")
    ERR.print(f"Its seconds, times: prefill {found.prefill_factor:.3g}, decode {found.decode_factor:.3g}.")
    if not any(point.shows_prefill for point in log.points):
        ERR.print("No load shows prefill: add one at a rate, or of one client. Its seconds are kept.")
    show_load_points(log.points, found.predicted_s)
    passes = show_verdict(found.checks)
    if not found.is_validated:
        ERR.print("One load validates nothing: add a result at another rate or concurrency.", style="red")
    show_missed_loads(found)
    return found.profile, passes and found.is_validated and found.fit.is_near


def show_missed_loads(found: "PointCalibration") -> None:
    """Print a line where no factors were found with which the replay has the loads, or those but a part."""
    from fleetcast.models.trials.factor_search import FIT_MISS_SHARE

    remedy = "Near saturation seconds jump with the factors: add a result at a low rate."
    if not found.fit.is_near:
        ERR.print(
            "No factors were found that fit these loads: with the nearest ones TTFT or TPOT is "
            f"{found.fit.miss_share:.0%} off in the median load, must be at most {FIT_MISS_SHARE:.0%}. "
            f"{remedy}",
            style="red",
        )
    elif not all(fit.is_near for fit in found.held_out_fits):
        worst = max(fit.miss_share for fit in found.held_out_fits)
        ERR.print(
            f"Without one of the loads no factors were found ({worst:.0%} off), so the error of that load is "
            f"not one of the profile. {remedy}",
            style="red",
        )


def show_load_points(points: "Sequence[LoadPoint]", predicted_s: "Floats") -> None:
    """Print each load's measured means and how far off the replay is, predicted_s of shape (loads, 2)."""
    for point, (ttft_s, tpot_s) in zip(points, predicted_s.tolist(), strict=True):
        ttft = f"TTFT {point.ttft_s:.3g} s {ttft_s / point.ttft_s - 1:+.1%}, " if point.shows_prefill else ""
        ERR.print(f"  {point}: {ttft}TPOT {point.tpot_s:.3g} s {tpot_s / point.tpot_s - 1:+.1%}")


def fit_profile(
    log: CalibrationLog, requests: "LoggedRequests", progress: "Progress"
) -> "tuple[LatencyProfile, list[CalibrationCheck]]":
    """Fit a profile to the log and print the engine hypotheses; return it with the checks of its error."""
    from fleetcast.assets.studies.profile_toml import deployment_line
    from fleetcast.models.trials.engine_calibration import calibrate_profile, engine_hypotheses

    engine = log.engine
    with progress.replay_bar("replay the log", len(engine_hypotheses(engine))) as done:
        found = calibrate_profile(requests, engine, log.limits, done, log.run_starts)
    show_hypotheses(found, engine.instances)
    show_unseen_load(found.seen, engine)
    ERR.print(f"As a deployment: {deployment_line(engine.llm, found.deployment)}")
    return found.profile, found.verdict


def show_other_degrees(catalogue: "Catalogue", profile: "LatencyProfile") -> None:
    """Print what the profile, once it is in latency.toml, corrects but its own deployment, and how surely."""
    from fleetcast.models.latency.profile_order import (
        compute_profile,
        correction_factors,
        degree_error_share,
    )

    computed = compute_profile(catalogue, profile.llm, profile.gpu, profile.tensor_parallel)
    prefill, decode = correction_factors(profile, computed)
    ERR.print(
        f"In latency.toml it corrects {profile.llm} on other numbers of {profile.gpu} too: prefill takes "
        f"{prefill:.3g}, decode {decode:.3g} times as long as computed. TPOT is then taken to be "
        f"{degree_error_share(catalogue, profile):.0%} off in the median. No other llm is corrected."
    )


def save_profile(profile: "LatencyProfile", is_allowed: bool, frontend_s: float) -> None:
    """Write the profile into the catalogue; exit with code 2 if it did not pass and was not forced."""
    from fleetcast.assets.studies.profile_toml import LATENCY_TOML, write_profile

    if not is_allowed:
        exit_with_message(
            "the profile does not pass and was not written. Check the engine's limits and the log, "
            "raise --ttft-limit or --e2e-limit, or write it with --force."
        )
    replaced = write_profile(profile, LATENCY_TOML, frontend_s)
    ERR.print(f"{short_path(LATENCY_TOML)}: the profile was {'replaced' if replaced else 'added'}.")


def resolve_deployment(
    deployment: "Deployment", engine: Path | None, given: dict[str, int | None], arch: "Llm"
) -> "tuple[Deployment, int]":
    """Return the deployment with the limits of the engine's file, and its number of data-parallel ranks.

    `given` limits of options come first. Raises CalibrationError if the file has another tensor_parallel, or
    the ranks of a mixture of experts.
    """
    from fleetcast.assets.studies.engine_logs import read_engine_limits
    from fleetcast.assets.studies.log_rows import CalibrationError

    limits: dict[str, Any] = {} if engine is None else read_engine_limits(expand_path(engine))
    degree = limits.pop("tensor_parallel", deployment.tensor_parallel)
    if degree != deployment.tensor_parallel:
        raise CalibrationError(
            f"{engine}: tensor_parallel is {degree}, --tensor-parallel {deployment.tensor_parallel}. "
            "Name the deployment that was measured."
        )
    ranks = limits.pop("data_parallel_size", 1)
    if ranks > 1 and arch.experts is not None:
        raise CalibrationError(
            f"{engine}: data_parallel_size is {ranks}: the ranks of a mixture share its experts, and no "
            "profile of one rank can be fitted to their log. Give that of an engine without such ranks."
        )
    if ranks > 1:
        ERR.print(f"data_parallel_size is {ranks}: each rank is an instance of its own, with these limits.")
    if limits.pop("has_prefix_cache", False):
        ERR.print("The engine caches prefixes: prompts that share a prefix look cheaper than they are.")
    options = {name: value for name, value in given.items() if value is not None}
    return replace(deployment, **{**limits, **options}), ranks


def check_concurrency(engine: "MeasuredEngine", requests: "LoggedRequests") -> None:
    """Raise CalibrationError if a log has more requests at once than max_batch, that of all ranks."""
    from fleetcast.assets.studies.log_rows import CalibrationError
    from fleetcast.models.trials.engine_calibration import max_concurrency

    max_batch = engine.instances * engine.config.fleet.engine(engine.deployment).max_batch
    running = max_concurrency(requests)
    if running > max_batch:
        raise CalibrationError(
            f"{engine.source}: {running} requests run at once, max_batch is {max_batch}. Is it the log of "
            "one instance? Set the engine's limit with --max-batch or --engine."
        )


def note_assumed_limits(engine: "MeasuredEngine", engine_file: Path | None) -> list[str]:
    """Return a note for each engine limit that neither an option nor the engine's file has."""
    deployment = engine.deployment
    limits = engine.config.fleet.engine(deployment)
    notes = []
    for field, option in LIMIT_OPTIONS.items():
        if getattr(deployment, field) is None:
            value = getattr(limits, field)
            assumed = "computed from a formula" if value is None else f"{value:,} assumed"
            notes.append(
                f"{field} is not given: {assumed}. Set it with {option}, or --engine."
                if engine_file is None
                else f"{engine_file.name} does not have {field}: {assumed}. Set it with {option}."
            )
    return notes


def show_hypotheses(found: "Calibration", instances: int) -> None:
    """Print the engine hypothesis that fits best, and the mean errors of the others.

    Exits with code 2 if the log looks like that of more than one instance.
    """
    (best, best_error), *others = found.hypotheses.items()
    ERR.print(f"{found.fitted} requests fitted, {found.held_out} held out, the first ones neither.")
    ERR.print(f"Best: {best} (mean error {best_error:.1%}).")
    for other, error in others:
        ERR.print(f"  {other}: {error:.1%}")
    if best.instances > instances:
        known = "one instance" if instances == 1 else f"{instances} ranks"
        exit_with_message(f"more than {known} served this log. Split it by instance and pass one part.")


def show_unseen_load(seen: "SeenLoad", engine: "MeasuredEngine") -> None:
    """Print up to which batch and prompt the log shows the engine, where its limits allow for far more."""
    from fleetcast.models.latency.profile_tables import BATCH_REACH

    limits = engine.config.fleet.engine(engine.deployment)
    lacks_batches = BATCH_REACH * seen.batch < limits.max_batch
    if not lacks_batches and seen.waiting_tokens >= limits.max_prefill_tokens:
        return
    rests = [f"batches above {seen.batch}, computed and times the median factor"] * lacks_batches
    if seen.waiting_tokens < limits.max_prefill_tokens:
        rests.append(f"prefill above {seen.waiting_tokens:,} tokens, on its last slope")
    lone = " No prompt met a running request: how they delay each other was not seen." * (seen.batch == 1)
    ERR.print(
        f"The log has batches up to {seen.batch} and prompts up to {seen.prompt_tokens:,} tokens; limits of "
        f"the engine are {limits.max_batch:,} and {limits.max_prefill_tokens:,}. Not measured: "
        f"{', '.join(rests)}.{lone} If your engine reaches more, log it then.",
        style="red" if lacks_batches else None,
    )


def show_verdict(checks: "list[CalibrationCheck]") -> bool:
    """Print a line per metric; return whether all checks pass."""
    for metric in dict.fromkeys(check.metric for check in checks):
        of_metric = [check for check in checks if check.metric == metric]
        errors = ", ".join(
            f"{check.of} {check.signed_error_share:.1%}"
            if check.replayed_s != check.replayed_s  # NaN: the error of single ones
            else f"{check.of} {check.measured_s:.3g} s {check.signed_error_share:+.1%}"
            for check in of_metric
        )
        passes = all(check.passes for check in of_metric)
        ERR.print(
            f"{metric}: {errors}; limit {of_metric[0].limit_share:.0%}: {'pass' if passes else 'FAIL'}",
            style=None if passes else "red",
        )
    return all(check.passes for check in checks)
