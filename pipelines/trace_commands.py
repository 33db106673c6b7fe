"""`fleetcast ingest`, `forget`, `characterise`, `generate`: import, remove, describe, make traces."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from fleetcast.pipelines.options import (
    ColumnsOption,
    QuietOption,
    ServerMatchersOption,
    expand_path,
    make_progress,
    parse_columns,
)
from fleetcast.pipelines.terminal import (
    cli_errors,
    exit_with_message,
    short_path,
    show_checks,
    show_mends,
    show_refused,
)
from fleetcast.pipelines.terminal_tables import OUT, format_figure, format_percent, show_board

NO_TRACE_FILES = "data/landing has no trace file. Copy one there; data/landing/README.md names the formats."
SHOWN_FINDINGS = 20
TraceArgument = Annotated[str, typer.Argument(help="The name of a trace in the lake.", metavar="TRACE")]


def ingest_command(
    file: Annotated[
        Path | None, typer.Argument(help="A trace file to copy into data/landing; default: all files there.")
    ] = None,
    columns: ColumnsOption = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", help="A Prometheus server: download its metrics into data/landing first."),
    ] = None,
    name: Annotated[
        str, typer.Option(help="--from: the name of the folder and of the trace.")
    ] = "prometheus",
    days: Annotated[
        int, typer.Option(help="--from: number of days that end at --until.", min=1, max=3660)
    ] = 14,
    until: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M"], help="--from: the end, UTC; default: now."),
    ] = None,
    step: Annotated[int, typer.Option(help="--from: seconds between two readings.", min=1, max=3600)] = 60,
    where: ServerMatchersOption = "",
    quiet: QuietOption = False,
) -> None:
    """Import the trace files in data/landing into the lake; rows that break a rule go to quarantine.

    The file is recognised by its content. Missing columns (region, llm, tier) come from a mapping file
    next to it: see data/landing/README.md.

        cp AzureLLMInferenceTrace_conv.csv.gz data/landing/ && fleetcast ingest

    A log of another format is read by the names of its columns; --columns names them, and is kept in the
    mapping file. Exit code 1: rows went to quarantine in bulk, and a line says what mends it.

        fleetcast ingest log.csv --columns arrived_at=startTime,input_tokens=in,output_tokens=out

    Without logs, use the metrics that vLLM, SGLang or Dynamo export to Prometheus. fleetcast keeps what
    it has downloaded; a second call downloads the rest. Set PROMETHEUS_TOKEN in the environment if the server
    needs a token.

        fleetcast ingest --from http://prometheus:9090 --name mine --where 'namespace="prod"'
    """
    with cli_errors():
        from fleetcast.assets.pages.asset_metadata import SettingsResource
        from fleetcast.assets.traces.ingest import LANDING_DIR, landed_files
        from fleetcast.assets.traces.landing_folder import bring_file
        from fleetcast.assets.traces.prometheus_download import fetch_metrics_folder
        from fleetcast.pipelines.nightly_run import land_files

        if from_ is not None:
            line = fetch_metrics_folder(
                from_, name, days, until, step, where, LANDING_DIR, make_progress(quiet)
            )
            OUT.print(line)
        named = parse_columns(columns)
        if file is not None:
            bring_file(expand_path(file), named)
        elif named:
            raise ValueError("--columns goes with a FILE: fleetcast ingest FILE --columns ...")
        if not landed_files():
            exit_with_message(NO_TRACE_FILES)
        landed = land_files(SettingsResource.deployed(), make_progress(quiet))
        show_landed(landed.files)
        show_findings(landed.findings)
        show_refused(landed.refused)
        show_checks(landed.checks, landed.broken)
    raise typer.Exit(1 if landed.broken or landed.mends() else 0)


def forget_command(file: Annotated[str, typer.Argument(help="The name of an imported file.")]) -> None:
    """Remove an imported file from the lake, with all its requests.

    fleetcast forget AzureLLMInferenceTrace_conv.csv.gz
    """
    with cli_errors():
        from fleetcast.assets.lake.settings import load_settings
        from fleetcast.assets.traces.ingest import LANDING_DIR
        from fleetcast.assets.traces.landing import forget_file

        traces = forget_file(load_settings("office"), file)
        OUT.print(f"{file} is no longer in the trace {', '.join(traces)}.")
        if (LANDING_DIR / file).exists():
            OUT.print("It is still in data/landing: remove it, or the next ingest imports it again.")


def show_landed(files: Sequence[Mapping[str, Any]]) -> None:
    """Print the format, trace and row counts of each imported file, two lines each, and what mends it."""
    for file in files:
        OUT.print(f"{file['file']}   {file['format']} -> trace {file['trace']}, {file['days']}")
        counts = (
            f"{file['rows_in']} rows in = {file['rows_kept']} kept + {file['rows_quarantined']} quarantined"
        )
        OUT.print(f"  {counts}   {file['note']}")
        if file["columns"]:
            OUT.print(f"  {file['columns']}")
        show_mends([file["mend"]] if file["mend"] else [])


def show_findings(findings: Sequence[Mapping[str, Any]]) -> None:
    """Print the data quality findings of the imported traces, a line each, warnings in yellow."""
    for finding in findings[:SHOWN_FINDINGS]:
        what = "{aspect}: {detail}".format(**finding)
        counts = [finding["rows"] and f"{finding['rows']} rows", finding["share"]]
        rows = f" ({', '.join(filter(None, counts))})" if any(counts) else ""
        where = "{trace} {file}".format(**finding) if finding["file"] != "all" else finding["trace"]
        style = "yellow" if finding["verdict"] == "warn" else None
        OUT.print(f"{finding['verdict']}  {where}  {what}{rows}", style=style)
    if len(findings) > SHOWN_FINDINGS:
        OUT.print(f'{len(findings) - SHOWN_FINDINGS} more findings: fleetcast sql "from quality"')


def characterise_command(trace: TraceArgument, quiet: QuietOption = False) -> None:
    """Characterise a trace: load by tier, bursts, season, gaps between requests, forecast skill.

    See sql/tables/characterisation.sql for the definitions. The marts have further tables.

        fleetcast characterise office

        fleetcast sql "from episodes where trace = 'office' and episode_kind = 'burst' order by ratio desc"
    """
    with cli_errors():
        from fleetcast.assets.demand.character_figures import character_figures_folder
        from fleetcast.assets.demand.characterise import characterise_trace
        from fleetcast.assets.lake.settings import load_settings
        from fleetcast.assets.studies_on_demand import characterisation
        from fleetcast.pipelines.runs import AssetRows, publish_on_demand

        settings = load_settings("office")  # only its lake is used
        lake = settings.lake
        table = characterise_trace(lake, trace, make_progress(quiet))
        publish_on_demand(characterisation, settings, AssetRows(table, {"trace": trace}))
        show_character(table, trace)
        OUT.print(f"figures  {short_path(character_figures_folder(lake, trace))}/*.png")
        OUT.print('tables   fleetcast sql "from characterisation"   (columns: sql/README.md)')


def show_character(parts: pa.Table, trace: str) -> None:
    """Print the character of a trace and its parts, a line each; `parts`: rows of characterisation."""
    heads = ("\npart", "requests\nper s", "tokens\nper s", "peak\nin mean", "dis-\npersion", "gap CV\npooled",
             "\nclient", "Poisson\n%", "strength\nday", "\nweek", "bursts\n%", "level\nchanges",
             "skill, %\n10 min", "\n60 min", "\n120 min")  # fmt: skip
    rows = [
        (
            " ".join(row[key] for key in ("tier", "region", "llm", "app") if row[key] != "all")
            or "everything",
            format_figure(row["requests_per_s"], ",.2f"),
            format_figure(row["tokens_per_s"], ",.0f"),
            format_figure(row["peak_requests_per_s"] / row["requests_per_s"], ".1f"),
            *(format_figure(row[name], ".2f") for name in ("dispersion", "gap_cv", "client_gap_cv")),
            format_percent(row["poisson_share"], ".0f"),
            *(format_figure(row[f"{season}_strength"], ".2f") for season in ("daily", "weekly")),
            format_percent(row["burst_share"], ".1f"),
            str(row["changes"]),
            *(format_percent(row[f"skill_{minutes}min"], ".0f") for minutes in (10, 60, 120)),
        )
        for row in parts.to_pylist()
    ]
    show_board(trace, heads, rows)


def generate_command(
    like: Annotated[str, typer.Option(help="The original: a trace in the lake.")],
    days: Annotated[int, typer.Option(help="Number of days to generate.", min=1)] = 28,
    scale: Annotated[float, typer.Option(help="Factor on the number of requests of the original.")] = 1.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same requests.", min=0)] = 7,
    name: Annotated[str | None, typer.Option(help="The name of the new trace; default: LIKE_xSCALE.")] = None,
    first_day: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="The first day; default: that of the original."),
    ] = None,
    changes: Annotated[
        Path | None, typer.Option(help="A file with changes, like data/changes/example.toml.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Generate a trace that behaves like another one, client by client. A config can use it as its [trace].

    For growth, new apps, bursts, another share of niw, an outage or holidays see data/changes/example.toml.

        fleetcast generate --like office --days 28 --scale 5 --seed 7

        fleetcast generate --like office --name stressed --changes data/changes/example.toml
    """
    with cli_errors():
        from fleetcast.assets.demand import generate_trace as generator
        from fleetcast.assets.lake.warehouse import Lake
        from fleetcast.models.traffic.trace_changes import TraceChanges, load_changes
        from fleetcast.models.world.catalogue import load_catalogue

        lake, catalogue = Lake(), load_catalogue()
        request = generator.GenerationRequest(
            like=like,
            name=name or f"{like}_x{scale:g}",
            first_day=first_day.date() if first_day else None,
            days=days,
            scale=scale,
            seed=seed,
            changes=load_changes(expand_path(changes)) if changes else TraceChanges(),
        )
        requests = generator.generate_trace(lake, catalogue, request, make_progress(quiet))
        lake.publish()
        first = request.first_day or lake.days("requests", request.name)[0]
        for line in (
            f"{requests:,} requests like {like} on {days} days, as the trace {request.name}",
            f"  fleetcast characterise {request.name}",
            "  a config for nightly runs on it:",
            '    based_on = "office"',
            "    [trace]",
            f'    name = "{request.name}"',
            f"    first_day = {first}",
            f"    days = {days}",
            f"    seed = {seed}",
        ):
            OUT.print(line)
