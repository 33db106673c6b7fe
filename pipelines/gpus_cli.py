"""`fleetcast gpus`: which GPUs to rent for an llm, and whether to disaggregate prefill and decode."""

from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Annotated

import typer

from fleetcast.pipelines.options import (
    ComparedProviderOption,
    ConfigOption,
    GpuTypesOption,
    PriceListsOption,
    QuietOption,
    TpotTargetOption,
    TtftTargetOption,
    expand_path,
    load_cli_settings,
    make_progress,
    parse_day,
    parse_phases,
)
from fleetcast.pipelines.plan_cli import NextDayOption
from fleetcast.pipelines.terminal import cli_errors, short_path, show_note
from fleetcast.pipelines.terminal_tables import OUT, format_figure, format_percent, show_board

if TYPE_CHECKING:
    from fleetcast.assets.studies.rent_answer import RentAnswer

RENT_KIND_TITLES = {
    "one_type": "one type",
    "mixed_types": "mixed types",
    "combos": "combos",
    "by_bucket": "mixed types by bucket",
}


def gpus_command(
    llm: Annotated[
        str | None, typer.Option(help="The llm; default: the one with the most forecast input tokens.")
    ] = None,
    gpus: GpuTypesOption = None,
    cap: Annotated[
        list[str] | None,
        typer.Option(help="TYPE=COUNT: at most this many GPUs of the type; may be repeated."),
    ] = None,
    apart: Annotated[
        bool,
        typer.Option(
            "--disaggregated", "--apart", help="Only fleets with prefill and decode on separate instances."
        ),
    ] = False,
    together: Annotated[
        bool, typer.Option("--colocated", "--together", help="Only fleets without disaggregation.")
    ] = False,
    provider: ComparedProviderOption = None,
    prices: PriceListsOption = None,
    ttft_slo_s: TtftTargetOption = None,
    tpot_slo_s: TpotTargetOption = None,
    buckets: Annotated[
        str | None,
        typer.Option(help="Also plan by bucket. INPUTS/OUTPUTS: edges in tokens, like 512/100,500."),
    ] = None,
    date_: NextDayOption = None,
    config: ConfigOption = "office",
    quiet: QuietOption = False,
) -> None:
    """Recommend GPUs for an llm: USD per token by phase, the saving of disaggregation, the best fleets.

    The fleet runs all day. It carries the largest forecast load of the day (--date, default: the day after
    the last one) at the quantile that plans cover, without the deferred tiers. fleetcast replays each fleet
    on the busiest hour of the day before, scaled to that load.

        fleetcast gpus

        fleetcast gpus --llm llama3.1-8b --gpus h100-80gb,a100-80gb,l40s-48gb --cap a100-80gb=16

        fleetcast gpus --disaggregated --prices prices.toml --tpot-slo-s 0.03
    """
    with cli_errors():
        from fleetcast.assets.plans.day_ahead import next_plan_day
        from fleetcast.assets.plans_on_demand import gpu_fleets
        from fleetcast.assets.studies import rent_answer, rent_buckets, rent_query
        from fleetcast.models.world.model_rows import file_stem
        from fleetcast.models.world.prices import describe_rates, price_as_given
        from fleetcast.pipelines.runs import AssetRows, publish_on_demand

        way = parse_phases(apart, together)
        settings = load_cli_settings(config)
        day = parse_day(date_) or next_plan_day(settings)
        priced, seller = price_as_given(
            settings.catalogue, rent_query.parse_gpu_types(gpus), provider, prices and expand_path(prices)
        )
        settings = replace(settings, catalogue=priced)
        query = rent_query.build_rent_query(
            settings, day, llm, gpus, cap or [], way, ttft_slo_s, tpot_slo_s, make_progress(quiet)
        )
        if buckets is not None:
            query = query._replace(edges=rent_buckets.parse_bucket_edges(buckets))
        found = rent_answer.answer_rent_query(settings, day, query, make_progress(quiet))
        _, table = rent_answer.write_rent_tables(settings, day, found)
        publish_on_demand(gpu_fleets, settings, AssetRows(table, {"day": day, "llm": query.llm}))
        show_prices(found, query.llm, settings.trace, day)
        show_fleets(found)
        show_note(found.short)
        show_note(found.rare)
        if any(fleet.is_disaggregated for fleet in found.fleets.values()):
            OUT.print(describe_opportunism(found))
        OUT.print(describe_rent_answer(found))
        OUT.print(f"{seller}: {describe_rates(priced, query.gpus)}")
        OUT.print(f"figure   {short_path(settings.figures(day))}/phase_prices_{file_stem(query.llm)}.png")
        OUT.print('tables   fleetcast sql "from phase_prices", "from gpu_fleets"')


def show_prices(found: "RentAnswer", llm: str, trace: str, day: date) -> None:
    """Print USD per million tokens by phase and GPU type, then the largest saving of disaggregation."""
    from fleetcast.models.latency.latency_errors import catalogue_errors, describe_profile_errors
    from fleetcast.models.plan.phase_costs import cheapest_price_per_gpu

    setting, load = found.setting, found.setting.load
    turns = {turn.gpu: turn for turn in found.turns}
    rows = []
    shown = {*cheapest_price_per_gpu(found.prices, load), found.bound.prefill, found.bound.decode}
    for price in sorted(shown, key=lambda price: price.usd_per_request(load)):
        turn = turns.get(price.gpu)
        rows.append(
            [
                f"{price.gpus}x{price.gpu}",
                format_figure(price.usd_per_hour / price.gpus, ".2f"),
                format_figure(1e6 * price.usd_per_input_token, ".3f"),
                format_figure(1e6 * price.usd_per_output_token, ".3f"),
                format_figure(
                    1e6 * price.usd_per_request(load) / (load.input_tokens + load.output_tokens), ".3f"
                ),
                f"{price.batch}",
                "–" if turn is None else f"{turn.prefill_usd:.2f} and {turn.decode_usd:.2f}",
            ]
        )
    heads = ("\ninstance", "USD per\nGPU-hour", "USD per million\ntokens in", "\nout", "\nboth",
             "decode\nbatch", "cheapest in prefill and\nin decode below, USD")  # fmt: skip
    show_board(
        f"{llm} of {trace} on {day}: mean {load.input_tokens:,.0f} input and {load.output_tokens:,.0f} "
        f"output tokens, {setting.per_s:,.1f} requests/s",
        heads,
        rows,
    )
    used = {(price.gpu, price.gpus) for price in found.prices}
    errors = [
        e for e in catalogue_errors(setting.catalogue) if (e.profile.gpu, e.profile.tensor_parallel) in used
    ]
    OUT.print(f"latencies: {describe_profile_errors(errors)} in the median")
    OUT.print(describe_saving_bound(found))


def describe_saving_bound(found: "RentAnswer") -> str:
    """Say how much disaggregation can save at most, and with which GPU for each phase."""
    bound = found.bound
    if bound.saving_share == 0:
        return (
            f"Disaggregation saves nothing: {bound.together.gpu} is cheapest in prefill and in decode. It "
            "may help latency."
        )
    return (
        f"Disaggregation saves at most {format_percent(bound.saving_share, '.1f')} % of GPU cost: prefill is "
        f"cheapest on {bound.prefill.gpus}x{bound.prefill.gpu}, decode on "
        f"{bound.decode.gpus}x{bound.decode.gpu}, both on {bound.together.gpus}x{bound.together.gpu}."
    )


def show_fleets(found: "RentAnswer") -> None:
    """Print the best fleet of each kind with its replayed attainment and latencies."""
    from fleetcast.assets.studies.rent_query import describe_targets

    tier = found.setting.tier
    rows = [
        [
            RENT_KIND_TITLES[kind]
            + (" (misses)" if fleet.met.attainment_share < tier.attainment_target_share else ""),
            " + ".join(f"{count} x ({combo.title})" for combo, count in fleet.held),
            f"{sum(fleet.gpus.values())}",
            format_figure(fleet.usd_per_hour, ",.2f"),
            format_figure(fleet.met.tokens_per_usd / 1e6, ".2f"),
            format_percent(fleet.met.ttft_attainment_share, ".1f"),
            format_percent(fleet.met.tpot_attainment_share, ".1f"),
            format_figure(fleet.met.ttft_p95_s, ".2f"),
            format_figure(1e3 * fleet.met.tpot_p95_s, ".1f"),
        ]
        for kind, fleet in found.fleets.items()
    ]
    heads = ("\nfleet", "\nrented", "\nGPUs", "USD\nper hour", "million tokens\nper USD",
             "TTFT at-\ntained, %", "TPOT at-\ntained, %", "TTFT\np95, s", "TPOT\np95, ms")  # fmt: skip
    target = format_percent(tier.attainment_target_share, ".0f")
    show_board(f"fleets for an attainment of {target} % ({describe_targets(tier)})", heads, rows)


def describe_opportunism(found: "RentAnswer") -> str:
    """Say when a request of a paired pool runs both phases on one instance: the best rule of the replay."""
    rules = found.setting.config.replay
    if rules.opportunism == "off":
        return (
            "In paired pools every request has a KV transfer: both phases on one instance serve no more load."
        )
    return (
        "In paired pools a request is prefilled where it decodes if that instance is idle. It decodes where "
        f"it was prefilled while {rules.opportunism_weight:g} x the backlog there, in tokens, is below the "
        "backlog where it would go."
    )


def describe_rent_answer(found: "RentAnswer") -> str:
    """Return the recommendation in one sentence."""
    from fleetcast.assets.studies.level_answer import join_all_names

    best, bound = found.fleets[found.best], format_percent(found.bound.saving_share, ".1f")
    rented = join_all_names([f"{count} {gpu}" for gpu, count in best.gpus.items()])
    if best.engines:
        rented += f" (engine {join_all_names(best.engines)})"
    target, attained = found.setting.tier.attainment_target_share, best.met.attainment_share
    if found.best == "by_bucket":
        rented += ", each for its own buckets"
    if not found.is_on_target:
        phases = "disaggregated" if best.is_disaggregated else "colocated"
        return (
            f"No fleet here attains the target of {format_percent(target, '.0f')} %. Closest comes {rented}, "
            f"{phases}, with {format_percent(attained, '.1f')} %."
        )
    if not best.is_disaggregated:
        return f"Rent {rented}, colocated: disaggregation would save at most {bound} %."
    others = [
        fleet.usd_per_hour
        for fleet in found.fleets.values()
        if not fleet.is_disaggregated and fleet.met.attainment_share >= target
    ]
    if not others:
        return f"Rent {rented}, disaggregated: by GPU time this saves at most {bound} %."
    less = format_percent(1 - best.usd_per_hour / min(others), ".1f")
    return (
        f"Rent {rented}, disaggregated: {less} % less than colocated (by GPU time alone at most {bound} %)."
    )
