"""`fleetcast study`: repeat the experiments of papers, and compare the results with the published values."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
import pyarrow.compute as pc
import typer

from fleetcast.pipelines.options import QuietOption, make_progress, resolve_config
from fleetcast.pipelines.terminal import cli_errors, short_path
from fleetcast.pipelines.terminal_tables import OUT, format_figure, format_percent, show_board

if TYPE_CHECKING:
    from fleetcast.models.world.catalogue import Catalogue
    from fleetcast.models.world.catalogue_entries import Tier


def study_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Studies of data/studies; without a name, list them.", metavar="NAME"),
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="List the studies with the question of each.")
    ] = False,
    config: Annotated[
        str | None,
        typer.Option("--config", help="Run the study on this config instead of the one that it names."),
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Run studies: every variant of a config under every policy, compared with the values of the paper.

        fleetcast study --list

        fleetcast study scaling

        fleetcast sql sql/queries/against_the_paper.sql

    A study takes minutes: it makes its own trace and forecasts, then plans and replays each variant like a
    nightly run. It changes no nightly tables; the results are in the mart studies.
    """
    with cli_errors():
        from fleetcast.assets.lake.settings import load_settings
        from fleetcast.assets.studies import study as studies
        from fleetcast.assets.studies.study_figures import draw_against_the_paper, draw_study
        from fleetcast.assets.studies.study_files import load_study, read_study_header, study_names

        if list_ or not names:
            for name in study_names():
                head, _ = read_study_header(name)
                section = f"   ({head.section})" if head.section else ""
                OUT.print(f"{name}   {head.what}{section}")
            return
        lake, progress = load_settings("office").lake, make_progress(quiet)
        base = resolve_config(config) if config else None
        chosen = {name: load_study(name, lake, base) for name in names}  # read all before the first run
        studies.write_paper_values(lake)
        for name, variants in chosen.items():
            catalogue = variants[0].settings.catalogue
            show_study(name, studies.run_study(variants, progress), catalogue)
            show_paper_values(lake.sql("queries/against_the_paper.sql").filter(pc.field("study") == name))
            OUT.print(f"figure   {short_path(draw_study(lake, name, catalogue))}")
        studies.drop_unused_lakes(lake, [variant for variants in chosen.values() for variant in variants])
        lake.publish()
        OUT.print(f"figure   {short_path(draw_against_the_paper(lake))}")
        OUT.print('tables   fleetcast sql "from studies", fleetcast sql sql/queries/against_the_paper.sql')


def study_columns(tiers: Mapping[str, "Tier"], first: str) -> list[tuple[str, str, str, str]]:
    """Return the columns of a study's table: head, metric, tier, format. `first`: the strictest tier."""
    others = [tier for tier in tiers if tier != first]
    return [
        ("instance-\nhours", "instance_hours", "all", ",.0f"),
        ("by quarter\nof an hour", "quarter_instance_hours", "all", ",.0f"),
        ("GPU-\nhours", "gpu_hours", "all", ",.0f"),
        ("\nbacklog", "backlog_gpu_hours", "all", ",.0f"),
        ("\nwasted", "wasted_gpu_hours", "all", ",.1f"),
        ("memory\n%", "kv_utilisation_share", "all", "%.1f"),
        (f"attained %\n{first}", "attainment_share", first, "%.1f"),
        *((f"\n{tier}", "attainment_share", tier, "%.1f") for tier in others),
        ("TTFT s\nP75", "ttft_p75_s", first, ",.2f"),
        (f"{first}\nP95", "ttft_p95_s", first, ",.2f"),
        ("E2E s\nP95", "e2e_p95_s", first, ",.1f"),
        *((f"{name}\nbacklog", "unfinished", name, ",.0f") for name, tier in tiers.items() if tier.is_held),
    ]


def show_study(name: str, table: pa.Table, catalogue: "Catalogue") -> None:
    """Print a line for each variant and policy; `table`: rows of the mart studies of one study."""
    rows = table.filter(pc.field("llm") == "all").to_pylist()
    values = {(r["variant"], r["policy"], r["metric"], r["tier"]): r["value"] for r in rows}
    present = {row["tier"] for row in rows}
    tiers = {name: tier for name, tier in catalogue.tiers.items() if name in present}
    columns = study_columns(tiers, catalogue.strictest_tier(tiers) or "")
    heads = ("\nvariant, policy", *(head for head, *_ in columns))
    lines = []
    for variant, policy in dict.fromkeys((row["variant"], row["policy"]) for row in rows):
        cells = []
        for _, metric, tier, form in columns:
            value = values.get((variant, policy, metric, tier))
            cells.append(format_percent(value, form[1:]) if form[0] == "%" else format_figure(value, form))
        lines.append((f"{variant}, {policy}", *cells))
    show_board(name, heads, lines)


def show_paper_values(found: pa.Table) -> None:
    """Print a line for each value of a paper with fleetcast's; rows of queries/against_the_paper.sql."""
    lines = []
    for row in found.to_pylist():
        is_share = row["against"] is not None or row["metric"].endswith("_share")
        form, spec = (format_percent, "+.1f") if is_share else (format_figure, ",.1f")
        of = " ".join(row[key] for key in ("tier", "llm") if row[key] != "all")
        against = f" compared with {row['against']}" if row["against"] else ""
        what = f"{row['variant']}, {row['policy']}{against}: {row['metric']} {of}".rstrip()
        figures = (row[key] for key in ("paper_value", "fleetcast_value", "fleetcast_integral"))
        lines.append((what, *(form(figure, spec) for figure in figures), row["section"]))
    if lines:
        heads = ("metric", "paper", "fleetcast", "by time integral", "where")
        show_board("compared with the paper, shares in %", heads, lines)
