"""`fleetcast plan quality`: the cheapest routing of requests to llms and GPUs for a quality and a latency."""

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
    quality: Annotated[float, typer.Option(help="Minimum mean score of the answers, 0 to 1.")],
    latency: Annotated[
        float, typer.Option(help="Maximum P95 latency from arrival to the last token, seconds.")
    ],
    budget: Annotated[float | None, typer.Option(help="Maximum cost, USD per hour.")] = None,
    front: Annotated[
        bool, typer.Option("--front", help="Also plan other policies, and cost over quality by judge.")
    ] = False,
    whatif: Annotated[
        bool, typer.Option("--whatif", help="Also plan each case of data/quality_cases.toml.")
    ] = False,
    regions: Annotated[
        bool, typer.Option("--regions", help="Also plan over all regions of the catalogue.")
    ] = False,
    config: ConfigOption = "quality",
    quiet: QuietOption = False,
) -> None:
    """Plan which llm answers which requests on which GPUs, at the lowest cost for a quality and a latency.

        fleetcast plan quality --quality 0.58 --latency 12

        fleetcast plan quality --quality 0.58 --latency 12 --budget 40 --front

        fleetcast plan quality --quality 0.58 --latency 12 --whatif

        fleetcast plan quality --quality 0.58 --latency 12 --regions

    It finds candidate plans with latency tables of every deployment, and decides by complete replays.
    It prints the cheapest plan that meets both requirements, with quality and P95 on questions and arrivals
    that were not used to choose it. Quality comes from the answers in the lake for the trace, or else from
    the fitted [quality] answers of the config; it trusts the config that each of its llms may answer.
    The questions are the requests of the trace, if the lake has them.
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
        required = QualityRequirement(quality, latency, float("inf") if budget is None else budget)
        plans, not_found = plan_quality(settings, required, front, make_progress(quiet), whatif)
        publish_on_demand(quality_plans, settings, quality_plan_result(settings, required.name))
        market = plans[0].market
        show_chosen_plan(plans[0])
        show_compared_plans(plans)
        for name, why in not_found.items():
            OUT.print(f"{name}: {why}")
        show_step_costs(requirement_step_costs(market, required))
        show_best_plans(best_plans_by_tables(market, required))
        if regions:
            show_regions(market, plan_over_regions(settings, market, required))
        OUT.print(f"figure   {short_path(draw_quality(settings, required.name))}")
        OUT.print('tables   fleetcast sql "from quality_board", "from quality_front"')
        OUT.print(f"export   {settings.command(f'plan export --format json --question {required.name}')}")


def show_chosen_plan(plan: "QualityPlan") -> None:
    """Print the pools of the chosen plan with its replayed quality and P95 latency."""
    from fleetcast.assets.plans.quality_tables import quality_pool_rows

    offer, served = plan.market.offers[plan.rule], plan.served
    (low_s, high_s), (low, high) = served.intervals()
    thresholds = ", ".join(f"{t:.2f}" for t in offer.thresholds[plan.answer.point])
    OUT.print(
        f"{plan.rule} by the judge {describe_judge(plan)}, thresholds {thresholds}: "
        f"{plan.answer.usd_per_hour:,.2f} USD/h at {plan.market.quality_config.requests_per_s:g} requests/s",
    )
    OUT.print(
        f"replayed: P95 {served.p95_s:.2f} s ({low_s:.2f} to {high_s:.2f}), quality {served.quality:.3f} "
        f"({low:.3f} to {high:.3f}; {plan.market.source})",
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
    heads = ("\nllm", "\nper replica", "repli-\ncas", "\nGPUs", "\nUSD/h", "calls per\nrequest, %",
             "answers\n%", "stage\nP95 s")  # fmt: skip
    show_board("", heads, rows)


def describe_judge(plan: "QualityPlan") -> str:
    """Return the judge's name, its llm if the fleet serves it, its skill, and its shadow share."""
    judging = plan.market.judging
    text = plan.market.name if judging.llm is None else f"{plan.market.name} ({judging.llm})"
    if judging.judge.skill is not None:
        text += f" of skill {judging.judge.skill:g}"
    if judging.shadow_share:
        text += f", shadows of {format_percent(judging.shadow_share, '.3g')} % of the requests"
    return text


def show_compared_plans(plans: Sequence["QualityPlan"]) -> None:
    """Print the cost, quality and P95 latency of all plans; the first one is the chosen plan."""
    chosen = plans[0].answer.usd_per_hour
    rows = [
        (
            plan.name,
            format_figure(plan.answer.usd_per_hour, ",.2f"),
            format_percent(plan.answer.usd_per_hour / chosen - 1, "+.0f"),
            format_figure(plan.served.quality, ".3f"),
            format_figure(plan.served.p95_s, ",.2f"),
            format_figure(plan.answer.latency_s, ",.2f"),
        )
        for plan in plans
    ]
    heads = ("\nplan", "\nUSD/h", "over\nchosen, %", "\nquality", "P95\ns", "P95 by\ntables, s")
    show_board("compared with other plans, each replayed", heads, rows)


def show_step_costs(steps: Mapping[str, float | None]) -> None:
    """Print what one step of each requirement costs, USD/h; None: there is no plan."""
    for name, usd in steps.items():
        OUT.print(f"{name}: " + ("no plan" if usd is None else f"{usd:+,.2f} USD/h by the tables"))


def show_best_plans(best: Mapping[str, "tuple[float, PointPlan] | None"]) -> None:
    """Print the best value of each requirement while the other one and the budget stay the same."""
    for name, found in best.items():
        if found is not None:
            quality, plan = found
            OUT.print(
                f"{name}: {plan.latency_s:.2f} s, quality {quality:.3f}, {plan.usd_per_hour:,.2f} USD/h "
                "by the tables"
            )


def show_regions(market: "Market", places: "RegionalPlan") -> None:
    """Print the replicas by region, the llms that answer each region, and the load moved between regions."""
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
    title = (
        f"over regions, by the tables: {spread.usd_per_hour:,.2f} USD/h, at most {gap} % above the optimum"
    )
    show_board(title, ("region", "llm", "per replica", "replicas", "USD/h"), rows)
    for name, per_s, shares in zip(places.names, places.requests_per_s, places.answered, strict=True):
        by_llm = ", ".join(
            f"{llm} {format_percent(share, '.0f')} %"
            for llm, share in zip(market.quality_config.llms, shares, strict=True)
        )
        OUT.print(f"{name}: {per_s:.1f} requests/s, answered by {by_llm}")
    for line in describe_moved_load(market, places):
        OUT.print(line)
