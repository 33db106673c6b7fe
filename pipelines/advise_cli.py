"""`fleetcast advise`: recommend tomorrow's fleet from a trace alone, as one page and its numbers."""

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetcast.pipelines.options import (
    LLM_NAME,
    ColumnsOption,
    DayOption,
    PriceListsOption,
    ProviderOption,
    QuietOption,
    expand_path,
    load_cli_settings,
    make_progress,
    parse_columns,
    parse_day,
)
from fleetcast.pipelines.terminal import cli_errors, short_path
from fleetcast.pipelines.terminal_tables import OUT

if TYPE_CHECKING:
    from fleetcast.assets.advice.advice_page import AdviceFiles
    from fleetcast.assets.advice.advise import AdviceRequest
    from fleetcast.assets.lake.settings import Progress


def advise_command(
    file: Annotated[
        Path | None, typer.Argument(help="A trace, of any format that `fleetcast ingest` reads.")
    ] = None,
    trace: Annotated[
        str | None, typer.Option(help="Instead of a file: the name of a trace in the lake, logs or metrics.")
    ] = None,
    config: Annotated[
        str | None, typer.Option(help="Instead of a file: a config whose nightly run has finished.")
    ] = None,
    as_: Annotated[
        str | None,
        typer.Option(
            "--assume-llm",
            "--as",
            help="The llm to assume where the trace names no llm, or one without a latency profile: "
            f"{LLM_NAME}.",
        ),
    ] = None,
    on: Annotated[
        str | None, typer.Option("--fleet", "--on", help='Today\'s fleet, like "8 x llama3.1-8b@h100-80gb".')
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(help="GPU types to choose from, with commas between; default: all that were timed."),
    ] = None,
    outputs: Annotated[
        int | None,
        typer.Option(
            help="Output tokens to assume per request where a file does not have them.", min=1, max=2**31 - 1
        ),
    ] = None,
    survive: Annotated[
        str, typer.Option(help="What the fleet survives: none, the loss of an instance, or of a region.")
    ] = "instance",
    provider: ProviderOption = None,
    prices: PriceListsOption = None,
    engines: Annotated[
        list[Path] | None,
        typer.Option(help="An answer.json of `fleetcast configure` to plan with, too; may be repeated."),
    ] = None,
    quality_floor: Annotated[
        str | None,
        typer.Option(help="Least bits of these engines: bf16, fp8 or fp4. Default: those of the llm."),
    ] = None,
    columns: ColumnsOption = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder of the page; default: a folder in data/figures.", file_okay=False),
    ] = None,
    date_: DayOption = None,
    quiet: QuietOption = False,
) -> None:
    """Recommend what to run tomorrow and on which GPUs, with the saving and its uncertainty, as one page.

    It writes the trace into a separate lake next to the page; the lake of the configs does not change.
    It characterises the trace, forecasts it, plans the next day and replays the plan. The page also lists
    what cannot be concluded from this trace, one line each.

        fleetcast advise my-trace.csv.gz

        fleetcast advise my-trace.csv.gz --assume-llm llama3.1-70b --fleet "8 x llama3.1-70b@4xh100-80gb"

        fleetcast ingest --from http://prometheus:9090 --name mine && fleetcast advise --trace mine

        fleetcast advise --config office --date 2025-07-15   # from the results of its nightly run
    """
    with cli_errors():
        from fleetcast.assets.advice.advice_config import EngineFiles
        from fleetcast.assets.advice.advise import AdviceRequest
        from fleetcast.assets.studies.rent_query import parse_gpu_types
        from fleetcast.models.replay.session import background_compile
        from fleetcast.models.world.quality_floor import FLOOR_BITS
        from fleetcast.models.world.toml_dataclasses import require_known

        if sum(source is not None for source in (file, trace, config)) != 1:
            raise ValueError("Name one of: a trace FILE, --trace NAME of a trace in the lake, --config NAME.")
        if quality_floor is not None:
            require_known(quality_floor, FLOOR_BITS, "quality floor", "--quality-floor")
        progress = make_progress(quiet)
        with background_compile.compile_in_background():
            if config is not None:
                given = (as_, on, gpus, outputs, columns, provider, prices, engines, quality_floor)
                if any(given) or survive != "instance":
                    raise ValueError(
                        "--assume-llm, --fleet, --gpus, --provider, --prices, --survive, --outputs, "
                        "--quality-floor, --engines and --columns go with a trace; a config has these values "
                        "itself."
                    )
                numbers, files = advise_on_config(config, parse_day(date_), out, progress)
            else:
                if date_ is not None:
                    raise ValueError("--date goes with --config; of a trace, all days are read.")
                if trace is not None and (outputs is not None or columns):
                    raise ValueError("--outputs and --columns go with a FILE; a trace in the lake has them.")
                types = tuple(parse_gpu_types(gpus))
                path = None if file is None else expand_path(file)
                own = None if prices is None else expand_path(prices)
                request = AdviceRequest(
                    *(path, trace, as_, on, types, outputs),
                    survive=survive,
                    provider=provider,
                    prices=own,
                    columns=parse_columns(columns),
                    engines=EngineFiles([expand_path(file) for file in engines or ()], quality_floor),
                )
                numbers, files = advise_on_trace(request, out, progress)
        for line in numbers["answer"]:
            OUT.print(line)
        limits = len(numbers["cannot"])
        OUT.print(f"page     {short_path(files.page)}   (with {limits} lines on what cannot be concluded)")
        OUT.print(f"numbers  {short_path(files.numbers)}")


def advise_on_trace(
    request: "AdviceRequest", out: Path | None, progress: "Progress"
) -> tuple[dict[str, Any], "AdviceFiles"]:
    """Return the advice on a trace, and the files that were written."""
    from fleetcast.assets.advice.advice_page import write_advice
    from fleetcast.assets.advice.advise import ADVICE_FOLDER, advise_trace
    from fleetcast.assets.advice.import_trace import trace_name

    folder = parse_output_folder(out) or ADVICE_FOLDER / (
        trace_name(request.file) if request.file else str(request.trace)
    )
    numbers = advise_trace(request, folder, progress)
    return numbers, write_advice(numbers, folder)


def parse_output_folder(out: Path | None) -> Path | None:
    """Return the folder that --out names.

    Raises ValueError for a bucket: s3://x would become a local folder called s3:.
    """
    if out is not None and out.parts[:1] == ("s3:",):
        raise ValueError(f"--out {out}: a page is written to a disk. Name a folder, and copy it from there.")
    return None if out is None else expand_path(out).resolve()


def advise_on_config(
    config: str, day: date | None, out: Path | None, progress: "Progress"
) -> tuple[dict[str, Any], "AdviceFiles"]:
    """Return the advice on a day of a config and the files that were written; report them to Dagster."""
    from fleetcast.assets.advice.advice_page import write_advice
    from fleetcast.assets.advice.metadata import describe_advice
    from fleetcast.assets.advice.nightly_advice import advise_nightly_run
    from fleetcast.pipelines.runs import report_materializations

    settings = load_cli_settings(config)
    day = day or settings.config.trace.replay_day
    folder = parse_output_folder(out)
    numbers = advise_nightly_run(settings, day, progress, folder)
    files = write_advice(numbers, folder or settings.figures(day))
    report_materializations("advice", {day.isoformat(): describe_advice(settings.trace, numbers)})
    return numbers, files
