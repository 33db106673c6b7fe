"""`fleetcast advise`: what to run tomorrow, as one page and its numbers, from a trace and no config."""

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetcast.pipelines.options import Day, Quiet, day_of, file_of, progress_of, settings_of
from fleetcast.pipelines.tables import OUT
from fleetcast.pipelines.terminal import near, spoken

if TYPE_CHECKING:
    from fleetcast.assets.advice.advise import Asked
    from fleetcast.assets.advice.files import Files
    from fleetcast.assets.lake.settings import Progress


def advise(
    file: Annotated[
        Path | None, typer.Argument(help="A trace, of any format that `fleetcast ingest` reads.")
    ] = None,
    trace: Annotated[
        str | None, typer.Option(help="Instead of a file: a trace that has landed, logs or metrics.")
    ] = None,
    config: Annotated[
        str | None, typer.Option(help="Instead of a file: a config, whose night has been run.")
    ] = None,
    as_: Annotated[
        str | None, typer.Option("--as", help="The llm that stands for those that nobody profiled or named.")
    ] = None,
    on: Annotated[str | None, typer.Option(help='What runs today, like "8 x llama3.1-8b@h100-80gb".')] = None,
    gpus: Annotated[
        str | None, typer.Option(help="GPU types that may be rented, joined by commas; else all timed ones.")
    ] = None,
    outputs: Annotated[
        int | None,
        typer.Option(help="Output tokens to assume where a file does not tell them.", min=1, max=2**31 - 1),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the page; else one of data/figures.", file_okay=False)
    ] = None,
    date_: Day = None,
    quiet: Quiet = False,
) -> None:
    """Say what to run tomorrow, on which GPUs, what it saves and how sure that is: a page, and its numbers.

    The trace lands in a lake of its own beside the page; the lake of the configs stays as it is. It is
    characterised, foreseen, planned and replayed; what it does not say stands on the page, a line each.

        fleetcast advise my-trace.csv.gz

        fleetcast advise my-trace.csv.gz --as llama3.1-70b --on "8 x llama3.1-70b@4xh100-80gb"

        fleetcast ingest --from http://prometheus:9090 --name mine && fleetcast advise --trace mine

        fleetcast advise --config office --date 2025-07-15   # from what its night has made
    """
    with spoken():
        from fleetcast.assets.advice.advise import Asked
        from fleetcast.models.replay.session import background_compile

        if sum(one is not None for one in (file, trace, config)) != 1:
            raise ValueError("Name one of: a trace FILE, --trace NAME of one that has landed, --config NAME.")
        progress = progress_of(quiet)
        with background_compile.compiling():
            if config is not None:
                if as_ or on or gpus or outputs:
                    raise ValueError(
                        "--as, --on, --gpus and --outputs go with a trace; a config says them itself."
                    )
                numbers, files = of_config(config, day_of(date_), out, progress)
            else:
                if date_ is not None:
                    raise ValueError("--date goes with --config; a trace is read to its end.")
                if trace is not None and outputs is not None:
                    raise ValueError("--outputs goes with a FILE; a trace that has landed has its outputs.")
                types = tuple(one.strip() for one in gpus.split(",")) if gpus else ()
                path = None if file is None else file_of(file)
                numbers, files = of_trace(Asked(path, trace, as_, on, types, outputs), out, progress)
        for line in numbers["answer"]:
            OUT.print(line, soft_wrap=True, markup=False)
        said = len(numbers["cannot"])
        OUT.print(f"page     {near(files.page)}   (with {said} lines on what it cannot say)", soft_wrap=True)
        OUT.print(f"numbers  {near(files.numbers)}", soft_wrap=True)


def of_trace(asked: "Asked", out: Path | None, progress: "Progress") -> tuple[dict[str, Any], "Files"]:
    """The numbers and files of a trace."""
    from fleetcast.assets.advice.advise import FOLDER
    from fleetcast.assets.advice.advise import advise as numbers_of
    from fleetcast.assets.advice.bring import trace_name
    from fleetcast.assets.advice.files import write

    folder = folder_of(out) or FOLDER / (trace_name(asked.file) if asked.file else str(asked.trace))
    numbers = numbers_of(asked, folder, progress)
    return numbers, write(numbers, folder)


def folder_of(out: Path | None) -> Path | None:
    """The folder that --out names; ValueError for one in a bucket, which would be a folder called s3:."""
    if out is not None and out.parts[:1] == ("s3:",):
        raise ValueError(f"--out {out}: a page is written to a disk. Name a folder, and copy it from there.")
    return None if out is None else file_of(out).resolve()


def of_config(
    config: str, day: date | None, out: Path | None, progress: "Progress"
) -> tuple[dict[str, Any], "Files"]:
    """The numbers and files of a day of a config, told to Dagster too."""
    from fleetcast.assets.advice.files import write
    from fleetcast.assets.advice.night import advise_night
    from fleetcast.assets.advice.told import advice_said
    from fleetcast.pipelines.runs import report

    settings = settings_of(config)
    day = day or settings.config.trace.replay_day
    numbers = advise_night(settings, day, progress)
    files = write(numbers, folder_of(out) or settings.figures(day))
    report("advice", {day.isoformat(): advice_said(settings.trace, numbers)})
    return numbers, files
