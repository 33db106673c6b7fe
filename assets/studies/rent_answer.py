"""Which GPUs to rent for an llm: prices by phase, the bound on parting them, and fleets that are replayed.

The fleet stands all day and carries the largest load that is foreseen for a day to come, at the quantile that
plans cover, all regions together, of the requests that nobody holds back.
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
    """What was found."""

    setting: RentScenario
    prices: list[PhasePrice]  # of all deployments that hold the llm and keep the pace
    bound: SavingBound
    turns: list[phase_costs.PriceCrossover]
    fleets: dict[str, RentedFleet]  # by KINDS
    short: str  # who is short under the caps; "" where nobody is
    rare: str = ""  # which buckets have no traffic of their own, likewise

    @property
    def best(self) -> str:
        """The cheapest kind of fleet of those that attain most; of equal ones the simplest."""
        most = max(fleet.met.attainment_share for fleet in self.fleets.values())
        target = min(self.setting.tier.attainment_target_share, most)
        able = [kind for kind, fleet in self.fleets.items() if fleet.met.attainment_share >= target]
        return min(able, key=lambda kind: round(self.fleets[kind].usd_per_hour, 6))


def answer_rent_query(
    settings: RunSettings, day: date, asked: RentQuery, progress: Progress, tokens_per_s: float | None = None
) -> RentAnswer:
    """Prices by phase, the bound, and the best fleet of each kind, replayed.

    `tokens_per_s` of input is what the fleet has to carry; None: the largest load that is foreseen.

    Raises
    ------
    ConfigError
        A name that nobody knows, a GPU without a price, an llm that no instance holds.
    ValueError
        No traffic; caps under which nothing can be rented at all; no option that keeps its targets.
    """
    setting = build_rent_scenario(settings, day, asked, tokens_per_s)
    known = deployment_prices(setting)
    load = setting.load
    bound = phase_costs.saving_bound(known, load)
    setting = choose_opportunism(setting, known, asked.way, progress)
    options = measure_options(setting, known, asked.way, progress)
    hour = busiest_hour(settings, day, asked.llm, setting.tier_name, setting.per_s * load.input_tokens)
    fleets, short, rare = {}, "", ""
    wanted = [
        kind
        for kind in RENT_FLEET_KINDS
        if (kind == "combos") == (asked.way == "apart") or asked.way == "any"
    ]
    with progress.bar("replay fleets", len(wanted)) as done:
        for n, kind in enumerate(wanted, start=1):
            fleet, missing = best_fleet(setting, options_of_kind(kind, options), asked.caps, hour)
            short = missing or short
            if fleet is not None:
                fleets[kind] = fleet
            done(n)
    if asked.edges is not None and asked.way != "apart":
        [together] = options_of_kind("mixed_types", options)
        fleet, missing = best_fleet_by_bucket(setting, together, asked.caps, hour, asked.edges)
        short, rare = missing or short, describe_rare_buckets(hour, asked.edges)
        if fleet is not None:
            fleets[BUCKET_KIND] = fleet
    if not fleets:
        raise ValueError(short)
    return RentAnswer(setting, known, bound, phase_costs.price_crossovers(known), fleets, short, rare)


# --- tables ----------------------------------------------------------------------------------------------


def write_rent_tables(settings: RunSettings, day: date, found: RentAnswer) -> tuple[pa.Table, pa.Table]:
    """Write gpu_prices and gpu_fleets of the day and the llm."""
    [llm] = found.setting.catalogue.llms
    tables = price_table(found), fleet_table(found)
    for name, table in zip(("gpu_prices", "gpu_fleets"), tables, strict=True):
        settings.lake.write(name, table, trace=settings.trace, day=day, llm=llm)
    return tables


def price_table(found: RentAnswer) -> pa.Table:
    """A row for each deployment that holds the llm."""
    setting = found.setting
    best = phase_costs.cheapest_price_per_gpu(found.prices, setting.load)
    told = {(e.profile.gpu, e.profile.tensor_parallel): e for e in catalogue_errors(setting.catalogue)}
    turn = {turn.gpu: turn for turn in found.turns}
    rows = []
    for price in found.prices:
        error = told[price.gpu, price.gpus]
        at = turn.get(price.gpu)
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
                "prefill_turns_at_usd": at.prefill_usd if at else None,
                "decode_turns_at_usd": at.decode_usd if at else None,
                "mean_input_tokens": setting.load.input_tokens,
                "mean_output_tokens": setting.load.output_tokens,
                "disaggregation_saving_bound_share": found.bound.saving_share,
                "latency": error.kind,
                "median_error_share": max(error.prefill_share, error.decode_share),
            }
        )
    return pa.Table.from_pandas(pd.DataFrame(rows), preserve_index=False)


def fleet_table(found: RentAnswer) -> pa.Table:
    """A row for each kind of fleet and option that it holds."""
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
                    "is_best": kind == found.best,
                    **fleet.met._asdict(),
                }
            )
    return pa.Table.from_pandas(pd.DataFrame(rows), preserve_index=False)
