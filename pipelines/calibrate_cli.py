"""`fleetcast calibrate`: a latency profile for the user's own engine, and a verdict on it."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from fleetcast.pipelines.options import QuietOption, expand_path, make_progress, resolve_config
from fleetcast.pipelines.terminal import ERR, OUT, cli_errors, exit_with_message, short_path

if TYPE_CHECKING:
    from fleetcast.assets.lake.settings import Progress
    from fleetcast.models.trials.engine_calibration import Calibration, CalibrationCheck
    from fleetcast.models.trials.engine_fit import LoggedRequests
    from fleetcast.models.world.catalogue import Catalogue
    from fleetcast.models.world.catalogue_entries import LatencyProfile
    from fleetcast.models.world.config import RunConfig
    from fleetcast.models.world.fleet_config import Deployment, FleetConfig

LIMIT_OPTIONS = {  # limits of an engine that a fit hangs on, and how to say them
    "max_batch": "--max-batch (vLLM's max_num_seqs)",
    "max_prefill_tokens": "--max-prefill-tokens (vLLM's max_num_batched_tokens)",
    "kv_tokens": "--kv-tokens (its start-up log's GPU KV cache size)",
}


def calibrate_command(
    llm: Annotated[str, typer.Option(help="A name of data/catalogue/llms.toml.")],
    gpu: Annotated[str, typer.Option(help="A name of data/catalogue/gpus.toml.")],
    tensor_parallel: Annotated[int, typer.Option(help="GPUs of one instance.", min=1, max=64)],
    file: Annotated[
        Path | None, typer.Argument(help="The requests of one instance: CSV or JSON lines.", metavar="[FILE]")
    ] = None,
    engine: Annotated[
        Path | None, typer.Option(help="What the engine says of itself: metadata (JSON) or start-up log.")
    ] = None,
    max_batch: Annotated[int | None, typer.Option(help="LoggedRequests in a batch.", min=1, max=4096)] = None,
    max_prefill_tokens: Annotated[
        int | None, typer.Option(help="Prompt tokens in a step.", min=2, max=1_000_000)
    ] = None,
    kv_tokens: Annotated[
        int | None, typer.Option(help="Tokens of KV cache that fit.", min=1, max=1_000_000_000)
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Judge the profile that there is; fit none.")
    ] = False,
    ttft_limit: Annotated[float, typer.Option(help="Error that passes, a share.", min=0.0)] = 0.15,
    e2e_limit: Annotated[float, typer.Option(help="The same of TPOT and E2E.", min=0.0)] = 0.07,
    write: Annotated[bool, typer.Option("--write", help="Put it into data/catalogue/latency.toml.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write it whatever the verdict is.")] = False,
    config: Annotated[str, typer.Option(help="Whose [fleet] says what nobody else does.")] = "office",
    quiet: QuietOption = False,
) -> None:
    """Find the profile with which the replay meets a log of requests; without a log, estimate one.

    The log has all requests that ONE instance served in a stretch of time: a CSV with arrival_s,
    input_tokens, output_tokens, ttft_s, e2e_s (seconds; the last two from the arrival on), or JSON lines of
    vLLM. It is replayed some thousand times; three of ten requests are left out of the fit and judge it. The
    block printed is one for data/catalogue/latency.toml; one that does not pass is not written.

        fleetcast calibrate log.jsonl --engine meta.json --llm llama3.1-8b --gpu h100-80gb --tensor-parallel 1

        fleetcast calibrate --llm llama2-70b --gpu h200-141gb --tensor-parallel 2 --write
    """
    with cli_errors():
        from fleetcast.assets.studies.engine_logs import read_log
        from fleetcast.assets.studies.profile_toml import profile_as_toml
        from fleetcast.models.world.catalogue import load_catalogue
        from fleetcast.models.world.config_loading import load_config
        from fleetcast.models.world.fleet_config import Deployment
        from fleetcast.models.world.project_paths import IS_CHECKOUT
        from fleetcast.models.world.toml_dataclasses import require_known

        if write and not IS_CHECKOUT:
            exit_with_message(
                "--write needs a checkout: an installed catalogue is not changed. Leave it out."
            )
        catalogue = load_catalogue()
        require_known(llm, catalogue.llms, "llm", "--llm")
        require_known(gpu, catalogue.gpus, "gpu", "--gpu")
        deployment = Deployment(gpu, tensor_parallel)
        if file is None:
            from fleetcast.models.trials.engine_calibration import estimate_profile

            profile, passes = estimate_profile(llm, deployment, catalogue), True
        else:
            chosen = load_config(resolve_config(config), catalogue)
            log = read_log(expand_path(file))
            said = {"max_batch": max_batch, "max_prefill_tokens": max_prefill_tokens, "kv_tokens": kv_tokens}
            deployment = resolve_deployment(deployment, engine, said)
            for note in [*log.notes, *note_assumed_limits(deployment, chosen.fleet, log.requests, file.name)]:
                ERR.print(note, markup=False, soft_wrap=True)
            limits = {"TTFT": ttft_limit, "TPOT": e2e_limit, "E2E": e2e_limit}
            measured = CalibrationLog(log.requests, file.name, llm, deployment, catalogue, chosen, limits)
            profile, verdict = (
                check_existing_profile(measured) if check else fit_profile(measured, make_progress(quiet))
            )
            passes = show_verdict(verdict)
        if not check:
            OUT.print(profile_as_toml(profile), end="", markup=False, soft_wrap=True)
        elif not passes:
            raise typer.Exit(1)
        if write:
            save_profile(profile, passes or force)


class CalibrationLog(NamedTuple):
    """A log of one instance, what it is the log of, and how far a profile may be off."""

    requests: "LoggedRequests"
    name: str  # of the file
    llm: str
    deployment: "Deployment"
    catalogue: "Catalogue"
    config: "RunConfig"
    limits: Mapping[str, float]  # by metric, a share


def check_existing_profile(of: CalibrationLog) -> "tuple[LatencyProfile, list[CalibrationCheck]]":
    """The profile that there is, and how far it is off."""
    from fleetcast.models.trials.engine_calibration import validate_profile

    profile = of.catalogue.profile(of.llm, of.deployment.gpu, of.deployment.tensor_parallel)
    return profile, validate_profile(of.requests, profile, of.deployment, of.catalogue, of.config, of.limits)


def fit_profile(of: CalibrationLog, progress: "Progress") -> "tuple[LatencyProfile, list[CalibrationCheck]]":
    """The profile with which the replay meets the log, and how far it is off; says which engine fits best."""
    from fleetcast.assets.studies.profile_toml import deployment_line
    from fleetcast.models.replay.compiled import is_kernel_cached
    from fleetcast.models.trials.engine_calibration import calibrate_profile as fit
    from fleetcast.models.trials.engine_calibration import engine_hypotheses

    first = "" if is_kernel_cached() else "compile the replay, "  # a minute, once
    with progress.bar(f"{first}replay the log", len(engine_hypotheses(of.deployment))) as done:
        found = fit(of.requests, of.llm, of.deployment, of.catalogue, of.config, of.name, of.limits, done)
    show_hypotheses(found)
    ERR.print(f"As a deployment: {deployment_line(of.llm, found.deployment)}", markup=False, soft_wrap=True)
    return found.profile, found.verdict


def save_profile(profile: "LatencyProfile", may: bool) -> None:
    """Write the profile into the catalogue, where it may be."""
    from fleetcast.assets.studies.profile_toml import LATENCY_TOML, write_profile

    if not may:
        exit_with_message(
            "the profile does not pass and was not written. Look at the engine's limits and the log, "
            "raise --ttft-limit or --e2e-limit, or write it with --force."
        )
    replaced = write_profile(profile, LATENCY_TOML)
    ERR.print(
        f"{short_path(LATENCY_TOML)}: the profile was {'replaced' if replaced else 'added'}.", soft_wrap=True
    )


def resolve_deployment(
    deployment: "Deployment", engine: Path | None, said: dict[str, int | None]
) -> "Deployment":
    """The deployment with the limits that the engine says, or the user, who is right where they differ."""
    import dataclasses

    from fleetcast.assets.studies.engine_logs import CalibrationError, read_engine_limits

    limits: dict[str, Any] = {} if engine is None else read_engine_limits(expand_path(engine))
    degree = limits.pop("tensor_parallel", deployment.tensor_parallel)
    if degree != deployment.tensor_parallel:
        raise CalibrationError(
            f"{engine}: tensor_parallel is {degree}, --tensor-parallel {deployment.tensor_parallel}. "
            "Name the deployment that was measured."
        )
    if limits.pop("has_prefix_cache", False):
        ERR.print(
            "The engine caches prefixes: prompts that share a beginning look cheaper than they are.",
            soft_wrap=True,
        )
    told = {name: value for name, value in said.items() if value is not None}
    return dataclasses.replace(deployment, **{**limits, **told})


def note_assumed_limits(
    deployment: "Deployment", fleet: "FleetConfig", requests: "LoggedRequests", name: str
) -> list[str]:
    """What nobody says of the engine, by name; CalibrationError where what is said contradicts the log."""
    from fleetcast.assets.studies.engine_logs import CalibrationError, max_concurrency

    limits, running = fleet.engine(deployment), max_concurrency(requests)
    if running > limits.max_batch:
        raise CalibrationError(
            f"{name}: {running} requests run at once, max_batch is {limits.max_batch}. Is it the log of one "
            "instance? Say the engine's own limit with --max-batch or --engine."
        )
    notes = []
    for field, option in LIMIT_OPTIONS.items():
        if getattr(deployment, field) is None:
            value = getattr(limits, field)
            taken = "by formula" if value is None else f"{value:,}"
            notes.append(f"Nobody says {field}: taken {taken}. Say it with {option}, or --engine.")
    return notes


def show_hypotheses(found: "Calibration") -> None:
    """Which engine fits best, and what the others miss by."""
    (best, error), *others = found.hypotheses.items()
    ERR.print(
        f"{found.fitted} requests fitted, {found.held_out} left out, the first ones neither.",
        soft_wrap=True,
    )
    ERR.print(f"Best: {best} (mean error {error:.1%}).", soft_wrap=True)
    for other, its in others:
        ERR.print(f"  {other}: {its:.1%}", soft_wrap=True)
    if best.instances > 1:
        exit_with_message("more than one instance served this log. Part it by instance and give one of them.")


def show_verdict(verdict: "list[CalibrationCheck]") -> bool:
    """A line a metric; whether all of them pass."""
    for metric in dict.fromkeys(line.metric for line in verdict):
        own = [line for line in verdict if line.metric == metric]
        told = ", ".join(
            f"{line.of} {line.signed_error_share:.1%}"
            if line.of == "a request"
            else f"{line.of} {line.measured_s:.3g} s {line.signed_error_share:+.1%}"
            for line in own
        )
        passes = all(line.passes for line in own)
        ERR.print(
            f"{metric}: {told}; limit {own[0].limit_share:.0%}: {'pass' if passes else 'FAIL'}",
            style=None if passes else "red",
            markup=False,
            soft_wrap=True,
        )
    return all(line.passes for line in verdict)
