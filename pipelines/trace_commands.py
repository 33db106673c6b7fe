"""`fleetcast characterise` and `fleetcast generate`: what a trace is like, and another one like it."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from pipelines.options import Quiet, file_of, progress_of
from pipelines.tables import OUT
from pipelines.terminal import near, show_character, spoken

Trace = Annotated[str, typer.Argument(help="A trace of the lake by name.", metavar="TRACE")]


def characterise(trace: Trace, quiet: Quiet = False) -> None:
    """Say what a trace is like: load by tier, bursts, season, gaps, and how far it can be foreseen.

    The definitions stand in sql/tables/characterisation.sql; everything else in the marts.

        fleetcast characterise office

        fleetcast sql "from episodes where trace = 'office' and kind = 'burst' order by ratio desc"
    """
    with spoken():
        from assets.demand.character_figures import figures_of
        from assets.demand.characterise import characterise as describe
        from assets.lake.warehouse import Lake
        from assets.on_demand import characterisation_said
        from pipelines.runs import report

        lake = Lake()
        table = describe(lake, trace, progress_of(quiet))
        report("characterisation", {None: characterisation_said(lake, trace, table)})
        show_character(table, trace)
        OUT.print(f"figures  {near(figures_of(lake, trace))}/*.png")
        OUT.print('tables   fleetcast sql "from characterisation"   (meaning: sql/README.md)')


def generate(
    like: Annotated[str, typer.Option(help="The trace of the lake that it is fitted to.")],
    days: Annotated[int, typer.Option(help="How many days to make.", min=1)] = 28,
    scale: Annotated[float, typer.Option(help="Requests, in those of the original.")] = 1.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same requests.", min=0)] = 7,
    name: Annotated[str | None, typer.Option(help="Of the new trace; without it LIKE_xSCALE.")] = None,
    first_day: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="Without it that of the original.")
    ] = None,
    changes: Annotated[Path | None, typer.Option(help="A file like data/changes/example.toml.")] = None,
    quiet: Quiet = False,
) -> None:
    """Make a trace that behaves like another one, client by client, and can be used as a [trace].

    Growth, new apps, bursts, another share of niw, an outage, holidays: data/changes/example.toml.

        fleetcast generate --like office --days 28 --scale 5 --seed 7

        fleetcast generate --like office --name stressed --changes data/changes/example.toml
    """
    with spoken():
        from assets.demand import generate as generator
        from assets.lake.warehouse import Lake
        from models.traffic.changes import Changes, load_changes
        from models.world.catalogue import load_catalogue

        lake, catalogue = Lake(), load_catalogue()
        order = generator.Order(
            like=like,
            name=name or f"{like}_x{scale:g}",
            first_day=first_day.date() if first_day else None,
            days=days,
            scale=scale,
            seed=seed,
            changes=load_changes(file_of(changes)) if changes else Changes(),
        )
        requests = generator.generate(lake, catalogue, order, progress_of(quiet))
        lake.publish()
        first = order.first_day or lake.days("requests", order.name)[0]
        for line in (
            f"{requests:,} requests like {like} on {days} days, as the trace {order.name}",
            f"  fleetcast characterise {order.name}",
            "  a config that runs nights on it:",
            '    based_on = "office"',
            "    [trace]",
            f'    name = "{order.name}"',
            f"    first_day = {first}",
            f"    days = {days}",
            f"    seed = {seed}",
        ):
            OUT.print(line, markup=False, soft_wrap=True)
