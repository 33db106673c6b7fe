"""Answer which GPUs to rent for an llm: prices by phase, the bound on disaggregation, and replayed fleets.

A fleet has a fixed size for a whole day. It serves the day's largest forecast load of interactive requests,
at the quantile that plans cover, all regions together.
"""

from datetime import date
from typing import NamedTuple

import pandas as pd
import pyarrow as pa

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.studies.rent_buckets import BUCKET_KIND, best_fleet_by_bucket, describe_rare_buckets
from fleetcast.assets.studies.rent_fleets import (
    RENT_FLEET_KINDS,
    RentedFleet,
    best_fleet,
    choose_opportunism,
    measure_options,
    options_of_kind,
)
from fleetcast.assets.studies.rent_hour import busiest_hour
from fleetcast.assets.studies.rent_query import (
    RentQuery,
    RentScenario,
    build_rent_scenario,
    deployment_prices,
)
from fleetcast.models.latency.latency_errors import catalogue_errors
from fleetcast.models.plan import phase_costs
from fleetcast.models.plan.phase_costs import PhasePrice, SavingBound


class RentAnswer(NamedTuple):
    """Prices by phase, the saving bound, and the best fleet of each kind."""

    setting: RentScenario
    prices: list[PhasePrice]  # of all deployments that hold the llm and meet its TPOT target
    bound: SavingBound
    turns: list[phase_costs.PriceCrossover]
    fleets: dict[str, RentedFleet]  # by kind: RENT_FLEET_KINDS and BUCKET_KIND
    short: str  # sentence about a shortage under the caps; "" if there is none
    rare: str = ""  # sentence about buckets with too few requests; "" if there are none

    @property
    def is_on_target(self) -> bool:
        """Whether the best fleet attains the target; if not, none does."""
        return self.fleets[self.best].met.attainment_share >= self.setting.tier.attainment_target_share

    @property
    def best(self) -> str:
        """The cheapest kind of fleet that attains the target; if none does, the one that attains most."""
        highest = max(fleet.met.attainment_share for fleet in self.fleets.values())
        target = min(self.setting.tier.attainment_target_share, highest)
        attaining = [kind for kind, fleet in self.fleets.items() if fleet.met.attainment_share >= target]
        return min(attaining, key=lambda kind: round(self.fleets[kind].usd_per_hour, 6))


def answer_rent_query(
    settings: RunSettings, day: date, query: RentQuery, progress: Progress, tokens_per_s: float | None = None
) -> RentAnswer:
    """Compute prices by phase, the saving bound and the best fleet of each kind, by replay.

    `tokens_per_s`: the load to serve, in input tokens/s; None: the largest forecast load of the day.

    ConfigError for an unknown name, a GPU without a price, or an llm that no instance holds; ValueError
    without traffic, a fleet within the caps, or an option that meets the targets.
    """
    scenario = build_rent_scenario(settings, day, query, tokens_per_s)
    prices = deployment_prices(scenario)
    load = scenario.load
    bound = phase_costs.saving_bound(prices, load)
    scenario = choose_opportunism(scenario, prices, query.way, progress)
    options = measure_options(scenario, prices, query.way, progress)
    hour = busiest_hour(settings, day, query.llm, scenario.per_s * load.input_tokens)
    fleets, short, rare = {}, "", ""
    kinds = [
        kind
        for kind in RENT_FLEET_KINDS
        if (kind == "combos") == (query.way == "apart") or query.way == "any"
    ]
    for kind in progress.each("replay fleets", kinds):
        fleet, missing = best_fleet(scenario, options_of_kind(kind, options), query.caps, hour)
        short = missing or short
        if fleet is not None:
            fleets[kind] = fleet
    if query.edges is not None and query.way != "apart":
        [colocated] = options_of_kind("mixed_types", options)
        fleet, missing = best_fleet_by_bucket(scenario, colocated, query.caps, hour, query.edges)
        short, rare = missing or short, describe_rare_buckets(hour, query.edges)
        if fleet is not None:
            fleets[BUCKET_KIND] = fleet
    if not fleets:
        raise ValueError(short)
    return RentAnswer(scenario, prices, bound, phase_costs.price_crossovers(prices), fleets, short, rare)


# --- tables ----------------------------------------------------------------------------------------------


def write_rent_tables(settings: RunSettings, day: date, found: RentAnswer) -> tuple[pa.Table, pa.Table]:
    """Write gpu_prices and gpu_fleets of the day and the llm, and return both tables."""
    [llm] = found.setting.catalogue.llms
    tables = price_table(found), fleet_table(found)
    for name, table in zip(("gpu_prices", "gpu_fleets"), tables, strict=True):
        settings.lake.write(name, table, trace=settings.trace, day=day, llm=llm)
    return tables


def price_table(found: RentAnswer) -> pa.Table:
    """Return a row for each deployment that holds the llm."""
    scenario = found.setting
    best = phase_costs.cheapest_price_per_gpu(found.prices, scenario.load)
    errors = {(e.profile.gpu, e.profile.tensor_parallel): e for e in catalogue_errors(scenario.catalogue)}
    crossovers = {turn.gpu: turn for turn in found.turns}
    rows = []
    for price in found.prices:
        error = errors[price.gpu, price.gpus]
        crossover = crossovers.get(price.gpu)
        rows.append(
            {
                "gpu": price.gpu,
                "gpus_per_instance": price.gpus,
                "usd_per_gpu_hour": price.usd_per_hour / price.gpus,
                "usd_per_million_input_tokens": 1e6 * price.usd_per_input_token,
                "usd_per_million_output_tokens": 1e6 * price.usd_per_output_token,
                "decode_batch": price.batch,
                "tpot_s": price.tpot_s,
                "is_best_of_gpu": price in best,
                "prefill_turns_at_usd": crossover.prefill_usd if crossover else None,
                "decode_turns_at_usd": crossover.decode_usd if crossover else None,
                "mean_input_tokens": scenario.load.input_tokens,
                "mean_output_tokens": scenario.load.output_tokens,
                "disaggregation_saving_bound_share": found.bound.saving_share,
                "latency": error.kind,
                "median_error_share": max(error.prefill_share, error.decode_share),
            }
        )
    return pa.Table.from_pandas(pd.DataFrame(rows), preserve_index=False)


def fleet_table(found: RentAnswer) -> pa.Table:
    """Return a row for each kind of fleet and each option in it."""
    rows = []
    for kind, fleet in found.fleets.items():
        for (combo, count), rate in zip(fleet.held, fleet.goodputs, strict=True):
            rows.append(
                {
                    "fleet": kind,
                    "option": combo.title,
                    "options": count,
                    "goodput_per_s": rate,
                    "gpus": count * sum(combo.uses.values()),
                    "usd_per_hour": count * combo.usd_per_hour,
                    "is_disaggregated": combo.prefill is not None,
                    "required_requests_per_s": found.setting.per_s,
                    "fleet_usd_per_hour": fleet.usd_per_hour,
                    "is_best": found.is_on_target and kind == found.best,
                    **fleet.met._asdict(),
                }
            )
    return pa.Table.from_pandas(pd.DataFrame(rows), preserve_index=False)
