"""Cauchy's three workloads on GPU types as they are rented: what each programme's fleet costs and attains."""

import dataclasses
from typing import Any

from gpus_fleets import WORKLOADS, attaining, fleet_text, hour_of, options_of, setting_of
from measure import Figures, Target

from fleetcast.assets.studies.rent_query import deployment_prices
from fleetcast.models.plan import phase_costs
from fleetcast.models.world.catalogue import load_catalogue

VERDA = {  # USD per GPU-hour on demand of one provider, 2026-06-01 (afhubbard/gpu-prices, CC BY 4.0)
    **{"b200-180gb": 6.11, "h200-141gb": 4.0, "h100-80gb": 3.25, "a100-80gb": 1.79},
    **{"rtxpro6000-96gb": 1.89, "l40s-48gb": 1.37},
}
OLDER = ("h100-80gb", "a100-80gb", "l40s-48gb")  # where no type is the cheapest in both phases
SETS = {"all": tuple(VERDA), "older": OLDER}
REPLAYED, ATTAINED = 80_000, 0.90  # the paper names no share
TIMES = 10  # of its rates: fleets of one or two GPUs would tell of whole numbers alone
NAMES = {"melange": "melange", "cauchy_mixed": "co_lp, together", "cauchy": "co_lp", "shares": "shares"}
TARGETS = {
    **{
        f"gpus_{of}_{kind}_usd_over_{base}": Target(
            "", f"{of}, Verda's prices, {kind}: USD an hour over {base}"
        )
        for of in WORKLOADS
        for kind in SETS
        for base in ("melange", "best")
    },
    "gpus_listed_bound_share": Target("", "six GPU types at hyperscalers' prices: the bound, worst of three"),
    "gpus_verda_bound_share": Target("", "at Verda's prices"),
    "gpus_tokens_per_usd_over_melange": Target(
        "", "tokens per USD of the fleet by shares over Melange's, worst of six", at_least=0.995
    ),
    "gpus_gap_to_best": Target("", "USD of shares over the cheapest of the four fleets, worst", at_most=0.03),
    "gpus_least_attainment_share": Target("", "what the worst of these fleets attains, replayed"),
}


def market() -> Figures:
    """Melange, Cauchy with and without combos, and shares on three workloads and two sets of GPU types."""
    catalogue = load_catalogue().of_era("2023", "here")
    gpus = {
        name: dataclasses.replace(gpu, usd_per_hour=VERDA.get(name, gpu.usd_per_hour))
        for name, gpu in catalogue.gpus.items()
    }
    catalogue = dataclasses.replace(catalogue, gpus=gpus)
    figures, ratios, gaps, attained = Figures(), [], [], []
    print("| | bound | Melange | CO-LP, together | CO-LP | shares | fleet by shares |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for of in WORKLOADS:
        for kind, types in SETS.items():
            setting = setting_of(catalogue, of, types, times=TIMES)
            known, options = deployment_prices(setting), options_of(setting)
            trace = hour_of(setting, REPLAYED)
            found = {
                name: attaining(programme, setting, options, {}, trace, ATTAINED)
                for name, programme in NAMES.items()
            }
            usd = {name: rented.usd_per_hour for name, (rented, _) in found.items()}
            bound = phase_costs.saving_bound(known, setting.load).saving_share
            cells = " | ".join(f"{one:.2f}" for one in usd.values())
            plan = fleet_text(options, found["shares"][0].counts)
            print(f"| {of}, {kind} | {bound:.1%} | {cells} | {plan} |")
            figures[f"gpus_{of}_{kind}_usd_over_melange"] = usd["shares"] / usd["melange"]
            figures[f"gpus_{of}_{kind}_usd_over_best"] = usd["shares"] / min(usd.values())
            ratios.append(usd["melange"] / usd["shares"])
            gaps.append(usd["shares"] / min(usd.values()) - 1)
            attained += [one["attained"] for _, one in found.values()]
    return figures | {
        "gpus_tokens_per_usd_over_melange": min(ratios),
        "gpus_gap_to_best": max(gaps),
        "gpus_least_attainment_share": min(attained),
    }


def listed() -> Figures:
    """The bound at the catalogue's prices, those of hyperscalers, and at one provider's."""
    catalogue, figures = load_catalogue().of_era("2023", "here"), Figures()
    for name, usd in (("listed", {}), ("verda", VERDA)):
        own = {
            gpu: dataclasses.replace(one, usd_per_hour=usd.get(gpu, one.usd_per_hour))
            for gpu, one in catalogue.gpus.items()
        }
        world = dataclasses.replace(catalogue, gpus=own)
        bounds = []
        for of in WORKLOADS:
            setting = setting_of(world, of, VERDA)
            bounds.append(phase_costs.saving_bound(deployment_prices(setting), setting.load).saving_share)
        print(f"{name}: {', '.join(f'{bound:.1%}' for bound in bounds)}")
        figures[f"gpus_{name}_bound_share"] = max(bounds)
    return figures


FUNCTIONS = (market, listed)
SMALL: dict[str, Any] = {"gpus_fleets.REQUESTS": 200, "gpus_fleets.FACTORS": (1.1,), "REPLAYED": 200}
SMALL |= {"WORKLOADS": ("dailymail",), "SETS": {"older": OLDER[:1]}, "TIMES": 2}
SMOKE = {"market": SMALL, "listed": {"gpus_fleets.REQUESTS": 200, "WORKLOADS": ("dailymail",)}}
