"""`fleetcast try LLM --concurrency C`: replay a benchmark's load on fleets, and print its figures."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fleetcast.pipelines.terminal import ERR
from fleetcast.pipelines.terminal_tables import OUT, format_figure, show_board

if TYPE_CHECKING:
    from fleetcast.assets.lake.settings import Progress
    from fleetcast.assets.studies.try_load import LoadTrialResult, TryLoad
    from fleetcast.models.world.catalogue import Catalogue
    from fleetcast.models.world.config import RunConfig


def make_load(
    llm: str,
    concurrency: Sequence[int] | None,
    rate: Sequence[float] | None,
    input_tokens: int | None,
    output_tokens: int | None,
    requests: int | None,
    max_batch: int | None,
    max_prefill_tokens: int | None,
) -> "TryLoad | None":
    """Return the load that the options describe, None without one; ConfigError if a part of it is missing."""
    from fleetcast.assets.studies.try_load import TryLoad
    from fleetcast.models.world.toml_dataclasses import ConfigError

    lengths = {"--input": input_tokens, "--output": output_tokens}
    if not concurrency and not rate:
        others = {
            "--requests": requests, "--max-batch": max_batch, "--max-prefill-tokens": max_prefill_tokens
        }  # fmt: skip
        if given := given_options({**lengths, **others}):
            raise ConfigError(
                f"{given} without --concurrency or --rate: a file has its own requests, and a config its "
                "engine. Add one of these for a load, or drop the rest."
            )
        return None
    if missing := [name for name, value in lengths.items() if value is None]:
        raise ConfigError(f"A load needs {' and '.join(missing)}: the tokens of each request. Add them.")
    return TryLoad(
        llm,
        input_tokens or 0,
        output_tokens or 0,
        tuple(concurrency or ()),
        tuple(rate or ()),
        requests,
        256 if max_batch is None else max_batch,
        2048 if max_prefill_tokens is None else max_prefill_tokens,
    )


def refuse_file_options(options: Mapping[str, object]) -> None:
    """Raise ConfigError if one of these options, which only files have, is given with a load."""
    from fleetcast.models.world.toml_dataclasses import ConfigError

    if given := given_options(options):
        raise ConfigError(
            f"{given} with --concurrency or --rate: a load has equal requests, without a prefix cache, "
            "columns or a price. Drop that, or replay a file."
        )


def given_options(options: Mapping[str, object]) -> str:
    """Return the names of the options that have a value, joined."""
    return " and ".join(name for name, value in options.items() if value is not None)


def try_load(
    load: "TryLoad",
    on: Sequence[str],
    catalogue: "Catalogue",
    config: "RunConfig",
    frontend_s: float | None,
    progress: "Progress",
) -> None:
    """Replay a load on fleets; print a line per fleet and trial."""
    from fleetcast.assets.studies.try_fleet import complete_for_fleets, with_frontend
    from fleetcast.assets.studies.try_load import check_load, parse_load_fleets, run_load_trials

    check_load(load, catalogue)
    pools = parse_load_fleets(load, on, catalogue, config)
    catalogue = complete_for_fleets(catalogue, [[pool] for pool in pools.values()], config)
    configs = {text: with_frontend(config, [pool], catalogue, frontend_s) for text, pool in pools.items()}
    found: list[LoadTrialResult] = []
    with progress.replay_bar("replay", len(pools) * len(list(load.trials()))) as done:
        for text, pool in pools.items():
            for result in run_load_trials(load, text, pool, catalogue, configs[text]):
                found.append(result)
                done(len(found))
    OUT.print(
        f"{load.llm}   ({load.input_tokens:,} input and {load.output_tokens:,} output tokens per request)",
    )
    show_load_trials(found)
    show_assumptions(configs, catalogue)


def show_assumptions(
    configs: "Mapping[str, RunConfig]", catalogue: "Catalogue", notes: Sequence[str] = ()
) -> None:
    """Print all that was assumed to stderr: notes, the front end of each fleet, and estimated profiles."""
    from fleetcast.models.latency.profile_order import describe_estimates

    front_ends = [
        f"front end {1e3 * config.fleet.frontend_s:g} ms per request: {text}; change it with --frontend-s"
        for text, config in configs.items()
        if config.fleet.frontend_s
    ]
    for line in filter(None, (*notes, *front_ends, *describe_estimates(catalogue))):
        ERR.print(line)


def show_load_trials(found: "Sequence[LoadTrialResult]") -> None:
    """Print a line per fleet and trial; inter-token is the mean gap between two tokens of a request."""
    from fleetcast.assets.studies.try_load import LOAD_PERCENTILES

    times = [f"{name}_p{level}_s" for name in ("ttft", "tpot", "e2e") for level in LOAD_PERCENTILES]
    heads = ("load", "fleet", "requests", "requests\n/s", "output\ntokens/s", "output tokens\n/s per GPU",
             *(f"{name.split('_')[0].upper()} ms\n{name.split('_')[1]}" for name in times),
             "inter-token\nmean ms", "at once\nmean")  # fmt: skip
    lines = [
        (
            trial.load,
            trial.fleet,
            format_figure(trial.row["requests"], ",.0f"),
            format_figure(trial.row["requests_per_s"], ",.2f"),
            format_figure(trial.row["output_tokens_per_s"], ",.0f"),
            format_figure(trial.row["output_tokens_per_s_gpu"], ",.0f"),
            *(format_figure(1e3 * trial.row[name], ",.2f" if "tpot" in name else ",.0f") for name in times),
            format_figure(1e3 * trial.row["itl_mean_s"], ",.2f"),
            format_figure(trial.row["mean_concurrency"], ",.1f"),
        )
        for trial in found
    ]
    show_board("", heads, lines)
