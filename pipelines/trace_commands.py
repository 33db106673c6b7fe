"""`fleetcast characterise`: what a trace is like."""

from typing import Annotated

import typer

from pipelines.terminal import OUT, Bars, near, show_character, spoken

Trace = Annotated[str, typer.Argument(help="A trace of the lake by name.", metavar="TRACE")]


def characterise(trace: Trace) -> None:
    """Say what a trace is like: load by tier, bursts, season, gaps, and how far it can be foreseen.

    The definitions stand in sql/tables/characterisation.sql; everything else in the marts.

        fleetcast characterise office

        fleetcast sql "from episodes where trace = 'office' and kind = 'burst' order by ratio desc"
    """
    with spoken():
        from assets.character_figures import draw_character
        from assets.characterise import characterise as describe
        from assets.warehouse import Lake

        lake = Lake()
        table = describe(lake, trace, Bars())
        lake.publish()
        show_character(table, trace)
        where = next(iter(draw_character(lake, trace).values())).parent
        OUT.print(f"figures  {near(where)}/*.png")
        OUT.print('tables   fleetcast sql "from characterisation"   (meaning: sql/README.md)')
