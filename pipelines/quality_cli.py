"""`fleetcast plan quality`: which llm answers what, on which GPUs, for a quality and a latency."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fleetcast.pipelines.options import ConfigOption, QuietOption, load_cli_settings, make_progress
from fleetcast.pipelines.terminal import cli_errors, short_path
from fleetcast.pipelines.terminal_tables import OUT, format_figure, format_percent, show_board

if TYPE_CHECKING:
    from fleetcast.assets.plans.quality_markets import Market
    from fleetcast.assets.plans.quality_requirements import QualityPlan
    from fleetcast.assets.plans.regional_quality import RegionalPlan
    from fleetcast.models.plan.quality_milp import PointPlan


def quality_command(
    quality: Annotated[float, typer.Option(help="The least mean score of the answers, 0 to 1.")],
    latency: Annotated[float, typer.Option(help="The most P95 from arrival to the last token, seconds.")],
    budget: Annotated[float | None, typer.Option(help="The most to be spent, USD per hour.")] = None,
    front: Annotated[
        bool, typer.Option("--front", help="Other policies too, and cost over quality by judge.")
    ] = False,
    whatif: Annotated[
        bool, typer.Option("--whatif", help="The cases of data/quality_cases.toml too, each planned.")
    ] = False,
    regions: Annotated[
        bool, typer.Option("--regions", help="The cheapest plan over all regions of the catalogue too.")
    ] = False,
    config: ConfigOption = "quality",
    quiet: QuietOption = False,
) -> None:
    """Plan which llm answers what on which GPUs, at the least cost for a quality and a latency.

        fleetcast plan quality --quality 0.58 --latency 12

        fleetcast plan quality --quality 0.58 --latency 12 --budget 30 --front

        fleetcast plan quality --quality 0.58 --latency 12 --whatif

        fleetcast plan quality --quality 0.58 --latency 12 --regions

    Tables of every shape propose, whole replays decide. The cheapest plan that keeps both is told, with
    quality and P95 on questions and arrivals that it was not chosen on. Quality is that of the answers that
    have landed for the trace, else of [quality] answers in the config, as they were fitted; that any of its
    llms will do is the config's claim. The questions are the trace's requests, where the lake has them.
    """
    with cli_errors():
        from fleetcast.assets.plans.quality_requirements import QualityRequirement
        from fleetcast.assets.plans.regional_quality import plan_over_regions
        from fleetcast.assets.plans_on_demand import quality_plan_result, quality_plans
        from fleetcast.assets.studies.quality_baselines import best_plans_by_tables, requirement_step_costs
        from fleetcast.assets.studies.quality_figures import draw_quality
        from fleetcast.assets.studies.quality_study import plan_quality
        from fleetcast.pipelines.runs import publish_on_demand

        settings = load_cli_settings(config)
        question = QualityRequirement(quality, latency, float("inf") if budget is None else budget)
        plans, lacking = plan_quality(settings, question, front, make_progress(quiet), whatif)
        publish_on_demand(quality_plans, settings, quality_plan_result(settings, question.name))
        show_chosen_plan(plans[0])
        show_compared_plans(plans)
        for name, why in lacking.items():
            OUT.print(f"{name}: {why}", soft_wrap=True)
        show_step_costs(requirement_step_costs(plans[0].market, question))
        show_best_plans(best_plans_by_tables(plans[0].market, question))
        if regions:
            show_regions(plans[0].market, plan_over_regions(settings, plans[0].market, question))
        OUT.print(f"figure   {short_path(draw_quality(settings, question.name))}", soft_wrap=True)
        OUT.print('tables   fleetcast sql "from quality_board", "from quality_front"')
        OUT.print(
            f"export   fleetcast plan export --format json --config {config} --question {question.name}",
            soft_wrap=True,
        )


def show_chosen_plan(plan: "QualityPlan") -> None:
    """The pools of the plan that was chosen, and what became of it."""
    from fleetcast.assets.plans.quality_tables import quality_pool_rows

    offer, served = plan.market.offers[plan.rule], plan.served
    (low_s, high_s), (low, high) = served.intervals()
    thresholds = ", ".join(f"{t:.2f}" for t in offer.thresholds[plan.answer.point])
    OUT.print(
        f"{plan.rule} by the judge {describe_judge(plan)}, thresholds {thresholds}: "
        f"{plan.answer.usd_per_hour:,.2f} USD/h at {plan.market.quality_config.requests_per_s:g} requests/s",
        soft_wrap=True,
    )
    OUT.print(
        f"replayed: P95 {served.p95_s:.2f} s ({low_s:.2f} to {high_s:.2f}), quality {served.quality:.3f} "
        f"({low:.3f} to {high:.3f}; {plan.market.source})",
        soft_wrap=True,
    )
    rows = [
        (
            str(row["llm"]),
            f"{row['tensor_parallel']} x {row['gpu']}"
            + (f", {row['pipeline_parallel']} stages" if row["pipeline_parallel"] != 1 else ""),
            *(format_figure(row[name], ",.0f") for name in ("instances", "gpus")),
            format_figure(row["usd_per_hour"], ",.2f"),
            *(format_percent(row[name], ".0f") for name in ("stage_share", "final_answer_share")),
            format_figure(row["leg_p95_s"], ".2f"),
        )
        for row in quality_pool_rows(plan)
    ]
    heads = ("\nllm", "\na replica", "repli-\ncas", "\nGPUs", "\nUSD/h", "asked\n%", "answers\n%",
             "leg P95\ns")  # fmt: skip
    show_board("", heads, rows)


def describe_judge(plan: "QualityPlan") -> str:
    """The judge by name, its llm if it is one of ours, its skill, and the sample that keeps scores known."""
    judging = plan.market.judging
    said = plan.market.name if judging.llm is None else f"{plan.market.name} ({judging.llm})"
    if judging.judge.skill is not None:
        said += f" of skill {judging.judge.skill:g}"
    if judging.shadow_share:
        said += f", shadows of {format_percent(judging.shadow_share, '.3g')} % of the requests"
    return said


def show_compared_plans(plans: Sequence["QualityPlan"]) -> None:
    """What others would cost, and the fronts."""
    chosen = plans[0].answer.usd_per_hour
    rows = [
        (
            one.name,
            format_figure(one.answer.usd_per_hour, ",.2f"),
            format_percent(one.answer.usd_per_hour / chosen - 1, "+.0f"),
            format_figure(one.served.quality, ".3f"),
            format_figure(one.served.p95_s, ",.2f"),
            format_figure(one.answer.latency_s, ",.2f"),
        )
        for one in plans
    ]
    heads = ("\nplan", "\nUSD/h", "over\nchosen, %", "\nquality", "P95\ns", "promised\ns")
    show_board("beside it, each replayed", heads, rows)


def show_step_costs(steps: Mapping[str, float | None]) -> None:
    """What one step of either requirement costs."""
    for name, usd in steps.items():
        OUT.print(f"{name}: " + ("no plan" if usd is None else f"{usd:+,.2f} USD/h by the tables"))


def show_best_plans(best: Mapping[str, "tuple[float, PointPlan] | None"]) -> None:
    """What either requirement could be, where the other one and the budget stay."""
    for name, found in best.items():
        if found is not None:
            quality, one = found
            told = f"{one.latency_s:.2f} s, quality {quality:.3f}, {one.usd_per_hour:,.2f} USD/h"
            OUT.print(f"{name}: {told} by the tables")


def show_regions(market: "Market", places: "RegionalPlan") -> None:
    """What stands where in a plan over regions, who answers, and what regions do for each other."""
    from fleetcast.assets.plans.regional_quality import describe_moved_load, regional_replicas

    rows = [
        (
            name,
            shape.llm,
            f"{shape.gpus} x {shape.gpu}",
            format_figure(count, ",.0f"),
            format_figure(usd, ",.2f"),
        )
        for name, shape, count, usd in regional_replicas(market, places)
    ]
    spread = places.spread
    gap = format_percent(max(spread.gap_share, 0.0), ".1f")
    title = f"over regions, by the tables: {spread.usd_per_hour:,.2f} USD/h, none is {gap} % cheaper"
    show_board(title, ("region", "llm", "a replica", "replicas", "USD/h"), rows)
    for name, per_s, shares in zip(places.names, places.requests_per_s, places.answered, strict=True):
        who = ", ".join(
            f"{llm} {format_percent(share, '.0f')} %"
            for llm, share in zip(market.quality_config.llms, shares, strict=True)
        )
        OUT.print(f"{name}: {per_s:.1f} requests/s, answered by {who}", soft_wrap=True)
    for line in describe_moved_load(market, places):
        OUT.print(line, soft_wrap=True)
