"""Cauchy's three workloads on GPU types as they are rented: what each programme's fleet costs and attains."""

import dataclasses

import numpy as np
from measure import Figures, Target

from assets.lake.settings import Progress
from assets.plans.inputs import Mix
from assets.studies.rent_asked import TENSOR_PARALLEL, Setting, prices
from assets.studies.rent_fleets import MOST_STEPS, STEP, Options, measured, offer_of, replayed
from assets.studies.rent_hour import Hour
from models.latency.kernels import comparable
from models.plan import combo_lp, melange, phases, shares
from models.plan.phases import Load
from models.plan.rent import EXACT, Rented
from models.replay.state import Trace
from models.world.catalogue import Catalogue, load_catalogue
from models.world.loading import load_config

LLM = "llama3.1-8b"
VERDA = {  # USD per GPU-hour on demand of one provider, 2026-06-01 (afhubbard/gpu-prices, CC BY 4.0)
    **{"b200-180gb": 6.11, "h200-141gb": 4.0, "h100-80gb": 3.25, "a100-80gb": 1.79},
    **{"rtxpro6000-96gb": 1.89, "l40s-48gb": 1.37},
}
OLDER = ("h100-80gb", "a100-80gb", "l40s-48gb")  # where no type is the cheapest in both phases
SETS = {"all": tuple(VERDA), "older": OLDER}
WORKLOADS = {  # Cauchy 4.1, 3.3.3: mean input and output tokens, requests/s, TTFT s, TPOT s
    "dailymail": (702, 42, 54.0, 10.0, 0.050),
    "sharegpt": (290, 207, 50.0, 5.0, 0.030),
    "longwriter": (337, 1330, 6.0, 1.0, 0.030),
}
SIGMA_IN, SIGMA_OUT = 0.6, 0.4  # of lognormal lengths; ours, as the paper names means alone
REQUESTS, REPLAYED, ATTAINED = 20_000, 80_000, 0.90  # the paper names no share
TIMES = 10  # of its rates: fleets of one or two GPUs would tell of whole numbers alone
NAMES = ("melange", "cauchy_mixed", "cauchy", "shares")
TARGETS = {
    **{
        f"gpus_{of}_{kind}_usd_over_{base}": Target(
            "", f"{of}, Verda's prices, {kind}: USD an hour over {base}"
        )
        for of in WORKLOADS
        for kind in SETS
        for base in ("melange", "best")
    },
    "gpus_tokens_per_usd_over_melange": Target(
        "", "tokens per USD of the fleet by shares over Melange's, worst of six", at_least=0.995
    ),
    "gpus_gap_to_best": Target("", "USD of shares over the cheapest of the four fleets, worst", at_most=0.03),
    "gpus_least_attainment_share": Target("", "what the worst of these fleets attains, replayed"),
}


def market() -> Figures:
    """Melange, Cauchy with and without combos, and shares on three workloads and two sets of GPU types."""
    catalogue = load_catalogue()
    gpus = {
        name: dataclasses.replace(gpu, usd_per_hour=VERDA.get(name, gpu.usd_per_hour))
        for name, gpu in catalogue.gpus.items()
    }
    catalogue = dataclasses.replace(catalogue, gpus=gpus)
    figures, ratios, gaps, attained = Figures(), [], [], []
    for of in WORKLOADS:
        for kind, types in SETS.items():
            setting = setting_of(catalogue, of, types)
            known = prices(setting)
            options = measured(setting, known, "any", Progress())
            hour = hour_of(setting)
            fleets, met = {}, {}
            for name in NAMES:
                fleets[name], met[name] = attaining(name, setting, options, hour)
            usd = {name: rented.usd_per_hour for name, rented in fleets.items()}
            bound = phases.saving_bound(known, setting.load).saving_share
            told = ", ".join(f"{name} {usd[name]:.2f} USD {100 * met[name]:.0f} %" for name in NAMES)
            rented = {
                combo.title: int(n)
                for (combo, _), n in zip(options, fleets["shares"].of_options, strict=True)
                if n
            }
            print(f"{of}, {kind}: bound {100 * bound:.1f} %; {told}; {rented}")
            figures[f"gpus_{of}_{kind}_usd_over_melange"] = usd["shares"] / usd["melange"]
            figures[f"gpus_{of}_{kind}_usd_over_best"] = usd["shares"] / min(usd.values())
            ratios.append(usd["melange"] / usd["shares"])
            gaps.append(usd["shares"] / min(usd.values()) - 1)
            attained += met.values()
    return figures | {
        "gpus_tokens_per_usd_over_melange": min(ratios),
        "gpus_gap_to_best": max(gaps),
        "gpus_least_attainment_share": min(attained),
    }


def setting_of(catalogue: Catalogue, workload: str, types: tuple[str, ...]) -> Setting:
    """A workload of the paper as `fleetcast gpus` would be asked for it."""
    inputs, outputs, per_s, ttft_slo_s, tpot_slo_s = WORKLOADS[workload]
    rng = np.random.default_rng(6)
    drawn = [
        np.clip(rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, REQUESTS), 1, 8192).astype(np.int32)
        for mean, sigma in ((inputs, SIGMA_IN), (outputs, SIGMA_OUT))
    ]
    profiles = comparable(catalogue, LLM, [(gpu, tp) for gpu in types for tp in TENSOR_PARALLEL])
    tier = dataclasses.replace(
        catalogue.tiers["iw_fast"],
        ttft_slo_s=ttft_slo_s,
        tpot_slo_s=tpot_slo_s,
        attainment_target_share=ATTAINED,
    )
    config = load_config("office", catalogue)
    fleet = dataclasses.replace(config.fleet, max_batch=256, hand_over="layers")
    own = dataclasses.replace(catalogue.serving([LLM]), latency=tuple(profiles.values()))
    load = Load(float(drawn[0].mean()), float(drawn[1].mean()))
    config = dataclasses.replace(config, fleet=fleet)
    return Setting(own, config, tier, workload, Mix(drawn[0], drawn[1], None), load, TIMES * per_s)


def hour_of(setting: Setting) -> Hour:
    """Poisson arrivals at the paper's rate."""
    came_s = np.cumsum(np.random.default_rng(8).exponential(1 / setting.per_s, REPLAYED))
    nobody = np.zeros(REPLAYED, np.int16)
    tokens = (np.tile(own, REPLAYED // REQUESTS) for own in setting.mix[:2])
    trace = Trace(came_s, nobody, nobody, nobody, *tokens)
    return Hour(None, trace, float(came_s[-1]))


def attaining(name: str, setting: Setting, options: Options, hour: Hour) -> tuple[Rented, float]:
    """The first fleet of a programme that attains the target as it is asked for more and more."""
    for step in range(MOST_STEPS):
        rented = chosen(name, setting._replace(per_s=setting.per_s * STEP**step), options)
        met = replayed(setting, options, rented, hour).met.attainment_share
        if met >= ATTAINED:
            break
    return rented, met


def chosen(name: str, setting: Setting, options: Options) -> Rented:
    """What a programme rents of these options; the others get none."""
    kept = [
        n for n, (combo, _) in enumerate(options) if combo.prefill is None or name in ("cauchy", "shares")
    ]
    own = [options[n] for n in kept]
    offer = offer_of(own, {})
    rates, goodput = np.array([setting.per_s]), np.array([[rate for _, rate in own]])
    if name == "melange":
        found = melange.solve(offer, rates, goodput)
    elif name == "shares":
        found = shares.solve(offer, rates, goodput, options=EXACT)
    else:
        efficiency = np.array([[combo.tokens_per_usd(setting.load, rate) for combo, rate in own]])
        found = combo_lp.solve("co_lp", offer, rates, goodput, efficiency)
    counts = np.zeros(len(options), np.int64)
    counts[kept] = found.of_options
    return found._replace(counts=counts)


FUNCTIONS = (market,)
