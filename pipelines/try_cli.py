"""`fleetcast try`: replay a trace file, or a benchmark's load, on fleets given on the command line."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from fleetcast.pipelines.options import (
    LLM_NAME,
    ColumnsOption,
    PriceListsOption,
    ProviderOption,
    QuietOption,
    expand_path,
    make_progress,
    parse_columns,
    resolve_config,
)
from fleetcast.pipelines.terminal import cli_errors, short_path
from fleetcast.pipelines.terminal_tables import OUT, format_figure, format_percent, show_board
from fleetcast.pipelines.try_load_cli import make_load, refuse_file_options, show_assumptions, try_load

if TYPE_CHECKING:
    from fleetcast.assets.lake.settings import Progress
    from fleetcast.assets.studies.try_fleet import FleetTrial
    from fleetcast.models.world.catalogue import Catalogue
    from fleetcast.models.world.config import RunConfig


def try_command(
    file: Annotated[
        str,
        typer.Argument(
            help="A trace file that `fleetcast ingest` can read, a folder NAME.metrics, or with "
            f"--concurrency or --rate an llm: {LLM_NAME}.",
            metavar="FILE|LLM",
        ),
    ],
    on: Annotated[
        list[str] | None,
        typer.Option("--fleet", "--on", help='A fleet, like "8 x llama3.1-8b@h100-80gb"; may be repeated.'),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            help="The config whose [fleet] and [replay] set batching and the other rules, and whose prices "
            "are used; default: office, at the prices of a provider."
        ),
    ] = None,
    provider: ProviderOption = None,
    prices: PriceListsOption = None,
    prefix: Annotated[
        str | None,
        typer.Option(
            help="Prefix cache: none; given: hits as recorded; blocks: from the prefix hashes. Default: what "
            "the file has."
        ),
    ] = None,
    routing: Annotated[
        str | None,
        typer.Option(help="Instance routing: least_work, shortest_queue, round_robin or least_kv."),
    ] = None,
    concurrency: Annotated[
        list[int] | None,
        typer.Option(help="Requests that run or wait at any time, a closed loop; may be repeated."),
    ] = None,
    rate: Annotated[
        list[float] | None,
        typer.Option(help="Poisson arrivals, requests per second, in place of a loop; may be repeated."),
    ] = None,
    input: Annotated[int | None, typer.Option(help="Input tokens of each request of a load.")] = None,
    output: Annotated[int | None, typer.Option(help="Output tokens of each request of a load.")] = None,
    requests: Annotated[
        int | None,
        typer.Option(help="Requests of a load; default: 16 per client, at least 100, and 1600 at a rate."),
    ] = None,
    max_batch: Annotated[
        int | None,
        typer.Option(help="Maximum number of requests in a batch of a load (max_num_seqs); or 256."),
    ] = None,
    max_prefill_tokens: Annotated[
        int | None,
        typer.Option(help="Maximum number of tokens in a step of a load (max_num_batched_tokens); or 2048."),
    ] = None,
    frontend_s: Annotated[
        float | None,
        typer.Option(
            help="Seconds of HTTP, tokeniser and detokeniser of each request; default: that of the config, "
            "else 0.0062, or 0 where a profile was measured or calibrated."
        ),
    ] = None,
    columns: ColumnsOption = None,
    quiet: QuietOption = False,
) -> None:
    """Replay a trace file, or a benchmark's load, on one or several fleets: latency percentiles, cost.

    It writes nothing into the lake. A fleet with one llm serves all requests; a fleet with several
    serves each request by its llm. Without a file it replays what benchmark tools send: equal requests,
    by --concurrency clients that wait for each answer, or at a --rate.

        fleetcast try trace.csv --fleet "8 x llama3.1-8b@h100-80gb" --fleet "4 x llama3.1-8b@h100-80gb"

        fleetcast try mooncake.jsonl --prefix blocks --routing least_work --fleet "8 x llama3.1-8b@h100-80gb"

        fleetcast try trace.csv --fleet "4 x llama3.1-70b@4xh100-80gb + 8 x llama3.1-8b@h100-80gb"

        fleetcast try trace.csv --config fleet.toml --fleet "llama3.1-70b@config"

        fleetcast try llama3.1-8b --concurrency 64 --input 1024 --output 256
    """
    with cli_errors():
        from fleetcast.assets.studies.try_fleet import add_fleet_llms
        from fleetcast.models.world.catalogue import load_catalogue
        from fleetcast.models.world.catalogue_overrides import override_catalogue
        from fleetcast.models.world.config_loading import load_config

        catalogue = load_catalogue()
        load = make_load(file, concurrency, rate, input, output, requests, max_batch, max_prefill_tokens)
        if load is not None:
            refuse_file_options(
                {"--provider": provider, "--prices": prices, "--prefix": prefix, "--columns": columns}
            )
        chosen = with_replay_options(
            load_config(resolve_config(config or "office"), catalogue), prefix, routing
        )
        catalogue = override_catalogue(catalogue, chosen.catalogue, chosen.file.name)
        catalogue = add_fleet_llms(catalogue, on or [], [load.llm] if load else [], "fleetcast try")
        progress = make_progress(quiet)
        if load is None:
            source = TraceFile(expand_path(Path(file)), parse_columns(columns))
            own = None if prices is None else expand_path(prices)
            catalogue, note = price_fleets(on or [], catalogue, chosen, config is None, provider, own)
            try_file(source, on or [], catalogue, chosen, frontend_s, prefix is None, note, progress)
        else:
            try_load(load, on or [], catalogue, chosen, frontend_s, progress)


class TraceFile(NamedTuple):
    """A trace file, and the columns that --columns names."""

    path: Path
    columns: Mapping[str, str]


def try_file(
    source: TraceFile,
    on: Sequence[str],
    catalogue: "Catalogue",
    config: "RunConfig",
    frontend_s: float | None,
    follows_file: bool,
    price_note: str,
    progress: "Progress",
) -> None:
    """Replay a trace file on fleets; print a line per fleet and draw a figure, then what was assumed.

    With `follows_file` the prefix cache is what the file says of it.
    """
    from fleetcast.assets.studies import try_fleet
    from fleetcast.assets.traces.bulk_refusals import bulk_remedy
    from fleetcast.assets.traces.metrics_ingest import METRICS_FORMAT

    path = source.path
    require_file_options(path, on, catalogue)
    fleets = {text: try_fleet.parse_fleet(text, catalogue, config) for text in on}
    catalogue = try_fleet.complete_for_fleets(catalogue, fleets.values(), config)
    with tempfile.TemporaryDirectory() as scratch:
        report, rows, tier_note = try_fleet.read_file_requests(
            path, catalogue, Path(scratch), progress, source.columns
        )
    cache = ""
    if follows_file:
        config, cache = try_fleet.with_prefix_of_file(config, rows)
    configs = {
        text: try_fleet.with_frontend(config, pools, catalogue, frontend_s) for text, pools in fleets.items()
    }
    with progress.replay_bar("replay", len(fleets)) as done:
        found = []
        for text, pools in fleets.items():
            found.append(try_fleet.run_fleet_trial(text, pools, rows, catalogue, configs[text]))
            done(len(found))
    hours = rows["arrival_s"].iloc[-1] / 3600
    sampled = ", sampled from the metrics" if report.format == METRICS_FORMAT else ""
    OUT.print(
        f"{path.name}   ({report.format}: {len(rows):,} requests in {hours:,.2f} h{sampled}, "
        f"{report.rows_quarantined:,} rows left out)",
    )
    for line in (report.columns, bulk_remedy(report, path.parent)):
        if line:
            OUT.print(line)
    show_fleet_trials(found, try_fleet.attainment_keys(found, catalogue), config.fleet.prefix != "none")
    if (figure := try_fleet.draw_ttft_cdf(path, found, rows, catalogue)) is not None:
        OUT.print(f"figure  {short_path(figure)}")
    show_assumptions(configs, catalogue, [tier_note, cache, price_note])


def price_fleets(
    on: Sequence[str],
    catalogue: "Catalogue",
    config: "RunConfig",
    is_default: bool,
    provider: str | None,
    file: Path | None,
) -> tuple["Catalogue", str]:
    """Return the catalogue at the prices of one provider, and a line that says which, as `advise` has them.

    A config that was named (not `is_default`) has its own prices unless a provider or a file is given, and so
    have fleets of types that no provider has together.
    """
    from fleetcast.assets.studies.try_fleet import parse_fleet
    from fleetcast.models.world.prices import price_by_provider
    from fleetcast.models.world.toml_dataclasses import ConfigError

    is_given = provider is not None or file is not None
    if not (is_default or is_given):
        return catalogue, f"prices of {config.file.name} and data/catalogue/gpus.toml; --provider: others"
    gpus = [pool.deployment.gpu for text in on for pool in parse_fleet(text, catalogue, config)]
    try:
        found = price_by_provider(catalogue, gpus, provider, file)
    except ConfigError:
        if is_given:
            raise
        return catalogue, "prices of data/catalogue/gpus.toml, of several providers: none has all these types"
    return found.catalogue, found.note(gpus)


def require_file_options(path: Path, on: Sequence[str], catalogue: "Catalogue") -> None:
    """Raise ConfigError for an llm without a load, and for a file without a fleet."""
    from fleetcast.models.world.model_rows import model_row
    from fleetcast.models.world.toml_dataclasses import ConfigError

    name = str(path)
    if (name in catalogue.llms and not path.exists()) or model_row(name) is not None:
        raise ConfigError(
            f"{name} is an llm, not a trace file. Add --concurrency or --rate, --input and --output."
        )
    if not on:
        raise ConfigError('No --fleet is given. Name one, like --fleet "8 x llama3.1-8b@h100-80gb".')


def with_replay_options(config: "RunConfig", prefix: str | None, routing: str | None) -> "RunConfig":
    """Return the config with the options of the command line. Raises ConfigError for an unknown name."""
    import dataclasses

    from fleetcast.models.world.mechanisms import PREFIXES, ROUTINGS
    from fleetcast.models.world.toml_dataclasses import require_known

    fleet, replay = config.fleet, config.replay
    if prefix is not None:
        require_known(prefix, PREFIXES, "prefix", "--prefix")
        fleet = dataclasses.replace(fleet, prefix=prefix)
    if routing is not None:
        require_known(routing, ROUTINGS, "routing", "--routing")
        replay = dataclasses.replace(replay, routing=routing)
    return dataclasses.replace(config, fleet=fleet, replay=replay)


def show_fleet_trials(found: Sequence["FleetTrial"], tiers: Mapping[str, str], reuses: bool) -> None:
    """Print a line per fleet.

    `tiers` has the attainment column of each tier; without `reuses` the prefix cache has no column.
    """
    times = [f"{name}_p{level}_s" for name in ("ttft", "tpot", "e2e") for level in (50, 95, 99)]
    heads = ("fleet", *(f"{name}\nattained %" for name in tiers),
             *(f"{name.split('_')[0].upper()} ms\n{name.split('_')[1]}" for name in times),
             "GPUs", "GPU-\nhours", "\nUSD", "re-\nfused", "un-\nfinished", "prompt\nreused %")  # fmt: skip
    counts = ("gpus", "gpu_hours", "usd", "refused", "unfinished")
    lines = [
        (
            trial.fleet,
            *(format_percent(trial.row.get(key), ".1f") for key in tiers.values()),
            *(
                format_figure(1e3 * trial.row[name], ",.1f" if name.startswith("tpot") else ",.0f")
                for name in times
            ),
            *(format_figure(trial.row[name], ",.0f") for name in counts),
            format_percent(trial.row["reused_share"], ".1f"),
        )
        for trial in found
    ]
    if not reuses:
        heads, lines = heads[:-1], [line[:-1] for line in lines]
    show_board("", heads, lines)
