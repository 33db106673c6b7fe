"""`fleetcast try`: a trace file on fleets that are named on the command line."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetcast.pipelines.options import QuietOption, expand_path, make_progress, resolve_config
from fleetcast.pipelines.terminal import cli_errors, short_path
from fleetcast.pipelines.terminal_tables import OUT, format_figure, format_percent, show_board

if TYPE_CHECKING:
    from fleetcast.assets.studies.try_fleet import FleetTrial
    from fleetcast.models.world.config import RunConfig


def try_command(
    file: Annotated[
        Path, typer.Argument(help="A trace as `fleetcast ingest` reads it, or a folder NAME.metrics.")
    ],
    on: Annotated[
        list[str],
        typer.Option("--fleet", "--on", help='A fleet, like "8 x llama3.1-8b@h100-80gb"; may be repeated.'),
    ],
    config: Annotated[str, typer.Option(help="Whose [fleet] and [replay] say how engines batch.")] = "office",
    prefix: Annotated[
        str | None,
        typer.Option(help="Of prompts, what is cached: none; given, as recorded; blocks, by hashes."),
    ] = None,
    routing: Annotated[
        str | None, typer.Option(help="To an instance: least_work, shortest_queue, round_robin, least_kv.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Replay a trace file on a fleet, or on several side by side: percentiles, attainment, cost, a figure.

    Nothing enters the lake. A fleet of one llm takes all requests; one of several takes each by its llm.

        fleetcast try trace.csv --fleet "8 x llama3.1-8b@h100-80gb" --fleet "4 x llama3.1-8b@h100-80gb"

        fleetcast try mooncake.jsonl --prefix blocks --routing least_work --fleet "8 x llama3.1-8b@h100-80gb"

        fleetcast try trace.csv --fleet "4 x llama2-70b@4xh100-80gb + 8 x llama3.1-8b@h100-80gb"
    """
    with cli_errors():
        from fleetcast.assets.studies import try_fleet
        from fleetcast.assets.traces.metrics_ingest import METRICS_FORMAT
        from fleetcast.models.latency.batch_extension import extend_catalogue
        from fleetcast.models.replay.compiled import is_kernel_cached
        from fleetcast.models.world.catalogue import load_catalogue
        from fleetcast.models.world.catalogue_overrides import override_catalogue
        from fleetcast.models.world.config_loading import load_config

        catalogue = load_catalogue()
        chosen, path = (
            with_replay_options(load_config(resolve_config(config), catalogue), prefix, routing),
            expand_path(file),
        )
        catalogue = override_catalogue(catalogue, chosen.catalogue, chosen.file.name)
        catalogue = extend_catalogue(catalogue, chosen.fleet, chosen.file.name)
        fleets = {text: try_fleet.parse_fleet(text, catalogue, chosen) for text in on}
        progress = make_progress(quiet)
        with tempfile.TemporaryDirectory() as scratch:
            report, rows = try_fleet.read_file_requests(path, catalogue, Path(scratch), progress)
        first = "" if is_kernel_cached() else "compile the replay, "  # a minute, once
        with progress.bar(f"{first}replay", len(fleets)) as done:
            found = []
            for text, pools in fleets.items():
                found.append(try_fleet.run_fleet_trial(text, pools, rows, catalogue, chosen))
                done(len(found))
        hours = rows["arrival_s"].iloc[-1] / 3600
        are_drawn = ", drawn from what was counted" if report.format == METRICS_FORMAT else ""
        OUT.print(
            f"{path.name}   ({report.format}: {len(rows):,} requests in {hours:,.2f} h{are_drawn}, "
            f"{report.rows_quarantined:,} rows left out)",
            markup=False,
            soft_wrap=True,
        )
        show_fleet_trials(found, try_fleet.attainment_keys(found, catalogue), chosen.fleet.prefix != "none")
        if (drawn := try_fleet.draw_ttft_cdf(path, found, rows, catalogue)) is not None:
            OUT.print(f"figure  {short_path(drawn)}", soft_wrap=True)


def with_replay_options(config: "RunConfig", prefix: str | None, routing: str | None) -> "RunConfig":
    """The config with what was said on the command line; ConfigError for a name that nobody knows."""
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
    """A line a fleet."""
    times = [f"{name}_p{level}_s" for name in ("ttft", "tpot", "e2e") for level in (50, 95, 99)]
    heads = ("fleet", *(f"{name}\nin time %" for name in tiers),
             *(f"{name.split('_')[0].upper()} s\n{name.split('_')[1]}" for name in times),
             "GPUs", "GPU-\nhours", "\nUSD", "re-\nfused", "un-\nfinished", "prompt\nreused %")  # fmt: skip
    counts = ("gpus", "gpu_hours", "usd", "refused", "unfinished")
    lines = [
        (
            one.fleet,
            *(format_percent(one.row.get(key), ".1f") for key in tiers.values()),
            *(format_figure(one.row[name], ",.3f" if name.startswith("tpot") else ",.2f") for name in times),
            *(format_figure(one.row[name], ",.0f") for name in counts),
            format_percent(one.row["reused_share"], ".1f"),
        )
        for one in found
    ]
    if not reuses:
        heads, lines = heads[:-1], [line[:-1] for line in lines]
    show_board("", heads, lines)
