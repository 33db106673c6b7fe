"""`fleetcast configure`: which engine settings serve a traffic at the least cost."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetcast.pipelines.options import (
    LLM_NAME,
    ComparedProviderOption,
    GpuTypesOption,
    PriceListsOption,
    QuietOption,
    TpotTargetOption,
    TtftTargetOption,
    expand_path,
    make_progress,
    parse_phases,
    resolve_config,
)
from fleetcast.pipelines.terminal import cli_errors, short_path
from fleetcast.pipelines.terminal_tables import OUT, format_figure, format_percent, show_board

if TYPE_CHECKING:
    from fleetcast.assets.studies.configure_answer import EngineAnswer
    from fleetcast.models.configure.fleet_trials import FleetScore


def configure_command(
    llm: Annotated[str, typer.Argument(help=f"The llm: {LLM_NAME}.", metavar="LLM")],
    trace: Annotated[
        str | None,
        typer.Option(
            help="A trace file that `fleetcast ingest` can read, or the name of a trace in the lake. "
            "Default: the one trace of the lake.",
            metavar="NAME|FILE",
        ),
    ] = None,
    gpus: GpuTypesOption = None,
    quality_floor: Annotated[
        str | None,
        typer.Option(help="Least bits of the weights: bf16, fp8 or fp4. Default: those of the llm."),
    ] = None,
    backends: Annotated[
        str,
        typer.Option(
            help="The engines to choose from, with commas between: vllm, sglang, trtllm. Each has the "
            "seconds of its own kernels, and vLLM's scheduler.",
            metavar="NAMES",
        ),
    ] = "vllm",
    apart: Annotated[bool, typer.Option("--disaggregated", help="Only prefill and decode apart.")] = False,
    together: Annotated[bool, typer.Option("--colocated", help="Only prefill and decode together.")] = False,
    ttft_slo_s: TtftTargetOption = None,
    tpot_slo_s: TpotTargetOption = None,
    speculative_acceptance: Annotated[
        str | None,
        typer.Option(
            help="For each draft token of a step, the share of steps in which it is accepted, with commas "
            "between: steps with none to all of them are considered. Default: those of the config.",
            metavar="SHARES",
        ),
    ] = None,
    speculative_draft_s: Annotated[
        float | None,
        typer.Option(
            help="Seconds of the drafter for each of them, 0 for n-grams. Default: those of the config.",
            min=0,
            max=10,
        ),
    ] = None,
    hours: Annotated[int, typer.Option(help="Number of busiest hours to replay.", min=1, max=24)] = 1,
    provider: ComparedProviderOption = None,
    prices: PriceListsOption = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder for the files. Default: data/figures/configure/LLM.")
    ] = None,
    config: Annotated[
        str, typer.Option(help="The config whose [fleet] and [replay] set what is not searched.")
    ] = "office",
    quiet: QuietOption = False,
) -> None:
    """Choose engine settings for an llm by replays of your traffic: GPUs, bits, batch, caches, router.

    Every deployment that fits memory, whose heads spread evenly over its GPUs and whose kernels were timed is
    considered, with all its settings. The best ones are replayed on the busiest hours, with the fewest
    instances that attain every tier.

        fleetcast configure llama3.1-70b --trace trace.csv --gpus h100-80gb,h200-141gb

        fleetcast configure llama3.1-70b --trace trace.csv --quality-floor fp8 --tpot-slo-s 0.03

        fleetcast configure llama3.1-70b --trace trace.csv --speculative-acceptance 0.7,0.5,0.3
    """
    with cli_errors():
        from fleetcast.assets.lake.environment import LAKE
        from fleetcast.assets.lake.warehouse import Lake
        from fleetcast.assets.studies import configure_answer, configure_files, configure_traffic, rent_query
        from fleetcast.models.world.catalogue import load_catalogue
        from fleetcast.models.world.catalogue_overrides import override_catalogue
        from fleetcast.models.world.config_loading import load_config
        from fleetcast.models.world.named_llms import add_named_llms
        from fleetcast.models.world.prices import describe_rates, price_as_given

        way = parse_phases(apart, together)
        catalogue = load_catalogue()
        chosen = configure_answer.with_drafts_of(
            load_config(resolve_config(config), catalogue), speculative_acceptance, speculative_draft_s
        )
        catalogue = override_catalogue(catalogue, chosen.catalogue, chosen.file.name)
        catalogue = add_named_llms(catalogue, [llm], "configure")
        types = rent_query.parse_gpu_types(gpus)
        catalogue, seller = price_as_given(catalogue, types, provider, prices and expand_path(prices))
        query = configure_answer.ConfigureQuery(
            llm,
            types or rent_query.timed_gpus(catalogue),
            quality_floor,
            way,
            ttft_slo_s,
            tpot_slo_s,
            list(dict.fromkeys(name.strip() for name in backends.split(","))),
        )
        catalogue = configure_answer.with_targets(catalogue, query)
        progress, lake = make_progress(quiet), Lake(LAKE)
        source = str(expand_path(Path(trace))) if trace else configure_traffic.find_only_trace(lake)
        with tempfile.TemporaryDirectory() as scratch:
            traffic = configure_traffic.read_configure_traffic(
                source, llm, hours, catalogue, chosen, lake, Path(scratch), progress
            )
        count = len(traffic.hours)
        busiest = "the busiest hour" if count == 1 else f"the {count} busiest hours"
        answer = configure_answer.choose_engine(query, traffic, catalogue, chosen, progress)
        OUT.print(
            f"{traffic.name}   ({traffic.requests:,} requests of {busiest}, "
            f"{answer.search.considered:,} settings considered, {answer.search.replayed:,} replayed)"
        )
        show_engine_answer(answer)
        for note in traffic.notes:
            OUT.print(note)
        OUT.print(f"{seller}: {describe_rates(catalogue, query.gpus)}")
        folder = configure_files.write_answer_files(answer, traffic, catalogue, out and expand_path(out))
        OUT.print(f"files    {short_path(folder)}: answer.json, engines.sh, fleet.toml, engines.yaml")


def show_engine_answer(answer: "EngineAnswer") -> None:
    """Print the best deployments, the front of cost against TPOT, and the explanation."""
    from fleetcast.assets.studies.configure_explanation import explain_answer
    from fleetcast.assets.studies.engine_commands import describe_point

    best = list(answer.search.finalists)
    names = [describe_point(score.point) for score in best]
    if answer.defaults is not None:
        best.append(answer.defaults)
        names.append(f"vLLM's defaults: {describe_point(answer.defaults.point)}")
    show_scores("fewest instances that attain every tier, the best settings of each deployment", best, names)
    if len(answer.search.front) > 1:
        names = [describe_point(score.point) for score in answer.search.front]
        show_scores("cost against TPOT, on a part of the busiest hour", answer.search.front, names)
    for line in explain_answer(answer):
        OUT.print(line)


def show_scores(title: str, scores: Sequence["FleetScore"], names: Sequence[str]) -> None:
    """Print a line per score, with its name."""
    tiers = list(scores[0].attained)
    times = [f"{name}_p{level}_s" for name in ("ttft", "tpot") for level in (50, 95, 99)]
    heads = ("deployment", "in-\nstances", "GPUs", "USD per M\ntokens", "batch", "tokens\na step", "prefix",
             "router",
             *(f"{tier}\nattained %" for tier in tiers),
             *(f"{name.split('_')[0].upper()} s\n{name.split('_')[1]}" for name in times))  # fmt: skip
    rows = []
    for name, score in zip(names, scores, strict=True):
        point, settings = score.point, score.point.settings
        gpus = sum(shape.gpus * n for shape, n in zip(point.shapes, score.counts, strict=True))
        rows.append(
            (
                name,
                " + ".join(map(str, score.counts)),
                f"{gpus:,}",
                f"{score.usd_per_million_tokens:.3f}",
                f"{settings.max_batch}",
                f"{settings.token_budget:,}",
                settings.prefix,
                settings.routing,
                *(format_percent(score.attained[tier], ".1f") for tier in tiers),
                *(format_figure(score.seconds[n], ",.3f" if n.startswith("tpot") else ",.2f") for n in times),
            )
        )
    show_board(title, heads, rows)
