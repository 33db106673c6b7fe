"""Fleets of Cauchy's three workloads by each programme, replayed: what they cost at equal attainment."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import numpy as np

from fleetcast.assets.plans.request_mixes import RequestMix
from fleetcast.assets.studies.rent_fleets import (
    DECODE_INSTANCES,
    MAX_COMBOS,
    PREFILL_INSTANCES,
    RentOptions,
    build_rent_offer,
    team_pools,
)
from fleetcast.assets.studies.rent_query import TENSOR_PARALLEL, RentScenario, deployment_prices
from fleetcast.models.aliases import Floats
from fleetcast.models.latency.profile_order import comparable_profiles
from fleetcast.models.metrics import is_tier_slo_met, tpot_s
from fleetcast.models.plan import combo_lp, combos, melange, share_program
from fleetcast.models.plan.combo_lp import build_combo_lp
from fleetcast.models.plan.combos import Combo
from fleetcast.models.plan.phase_costs import MeanRequest
from fleetcast.models.plan.rental import EXACT_SOLVER, RentalOffer, RentalPlan
from fleetcast.models.plan.solver import solve_model
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.trials.capacity import fixed_fleet
from fleetcast.models.trials.goodput import goodput_per_s
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment

LLM = "llama3.1-8b"
WORKLOADS = {  # Cauchy 4.1, 3.3.3: mean input and output tokens, requests/s, TTFT s, TPOT s
    "dailymail": (702, 42, 54.0, 10.0, 0.050),
    "sharegpt": (290, 207, 50.0, 5.0, 0.030),
    "longwriter": (337, 1330, 6.0, 1.0, 0.030),
}
LONG = {"long": (4000, 1000, 10.0, 5.0, 0.050)}  # chosen here: prompts of documents, answered at length
SIGMA_IN, SIGMA_OUT = 0.6, 0.4  # of lognormal lengths; chosen here, as the paper names means alone
REQUESTS, REPLAYED, ATTAINED = 20_000, 80_000, 0.90  # the paper names no share
FACTORS = 1.02 ** np.arange(-8, 12)  # of the load, that a program plans for
TAIL_S = 600.0
TIE = 1e-6  # share of the price that decides between fleets of one ratio
COMPUTED = "co_lp, computed"  # CO-LP by equation (15)
Found = dict[str, float]  # what a fleet met


def setting_of(
    catalogue: Catalogue,
    workload: str,
    types: Iterable[str],
    degrees: Iterable[int] = TENSOR_PARALLEL,
    times: int = 1,
    link_gbit_per_s: float | None = None,
) -> RentScenario:
    """A workload of the paper, so many times as fast, as `fleetcast gpus` would receive it."""
    inputs, outputs, per_s, ttft_slo_s, tpot_slo_s = {**WORKLOADS, **LONG}[workload]
    rng = np.random.default_rng(6)
    drawn = [
        np.clip(rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, REQUESTS), 1, 8192).astype(np.int32)
        for mean, sigma in ((inputs, SIGMA_IN), (outputs, SIGMA_OUT))
    ]
    profiles = comparable_profiles(catalogue, LLM, list(product(types, degrees)))
    tier = dataclasses.replace(
        catalogue.tiers["iw_fast"],
        ttft_slo_s=ttft_slo_s,
        tpot_slo_s=tpot_slo_s,
        attainment_target_share=ATTAINED,
    )
    config = load_config("sageserve", catalogue)
    fleet = dataclasses.replace(
        config.fleet, max_batch=256, kv_transfer="layers", link_gbit_per_s=link_gbit_per_s
    )
    own = dataclasses.replace(catalogue.serving([LLM]), latency=tuple(profiles.values()))
    load = MeanRequest(float(drawn[0].mean()), float(drawn[1].mean()))
    config = dataclasses.replace(config, fleet=fleet)
    return RentScenario(
        own, config, tier, workload, RequestMix(drawn[0], drawn[1], None), load, times * per_s
    )


def hour_of(setting: RentScenario, requests: int, per_s: float | None = None) -> TraceArrays:
    """Poisson arrivals of the workload's requests."""
    came_s = np.cumsum(np.random.default_rng(8).exponential(1 / (per_s or setting.per_s), requests))
    zero_ids = np.zeros(requests, np.int16)
    tokens = (np.resize(own, requests) for own in setting.mix[:2])
    return TraceArrays(came_s, zero_ids, zero_ids, zero_ids, *tokens)


def met(
    setting: RentScenario,
    pools: Sequence[tuple[Deployment, int]],
    trace: TraceArrays,
    spread: str = "weights",
) -> dict[str, float]:
    """What a standing fleet met: attainment, and means of E2E, TTFT and TPOT.

    `spread` is a `PoolSpread`, or "memory": in proportion to the KV tokens that an instance has room for.
    """
    [llm] = setting.catalogue.llms
    alone = dataclasses.replace(setting.catalogue, tiers={"asked": setting.tier})
    fleet = fixed_fleet({llm: pools}, alone, setting.config)
    if spread == "memory":
        fleet, spread = fleet._replace(weight=fleet.kv_capacity[fleet.kind].astype(float)), "weights"
    rules = make_rules(alone, dataclasses.replace(setting.config.replay, spread=spread), "follow")
    until_s = float(trace.arrival_s[-1]) + TAIL_S
    outcome = replay_trace(trace, fleet, Schedule(np.diff(fleet.slots), hour_s=until_s), rules, until_s)
    ttft_s, e2e_s = outcome.first_token_s - trace.arrival_s, outcome.finish_s - trace.arrival_s
    return {
        "attained": float(is_tier_slo_met(setting.tier, ttft_s, e2e_s, trace.output_tokens).mean()),
        "e2e_s": float(np.nanmean(e2e_s)),
        "ttft_s": float(np.nanmean(ttft_s)),
        "tpot_s": float(np.nanmean(tpot_s(ttft_s, e2e_s, trace.output_tokens))),
    }


def pools_of(
    setting: RentScenario, options: RentOptions, counts: Sequence[int]
) -> list[tuple[Deployment, int]]:
    """The pools of so many of each option, requests distributed in proportion to what each sustains.

    A team is a pool pair of its own: its instances hand caches on among themselves.
    """
    pools = []
    for n, ((combo, rate), count) in enumerate(zip(options, map(int, counts), strict=True)):
        if combo.prefill is None and count:
            pools += team_pools(setting, combo, count, None, count * rate)
        elif combo.prefill is not None:
            pools += [pool for k in range(count) for pool in team_pools(setting, combo, 1, f"{n} {k}", rate)]
    return pools


def goodput(setting: RentScenario, combo: Combo) -> float:
    """Requests/s of one combo; teams stand alone, instances that do both phases share their load."""
    return goodput_per_s(
        LLM, team_pools(setting, combo), setting.catalogue, setting.config, setting.tier, *setting.mix[:2],
        combo.per_s(setting.load), None if combo.prefill is None else 1,
    )  # fmt: skip


def options_of(setting: RentScenario) -> RentOptions:
    """Each deployment that does both phases, and the paper's twelve combos."""
    known = deployment_prices(setting)
    pairs = combos.disaggregated_combos(known, PREFILL_INSTANCES, DECODE_INSTANCES)
    found_by_counts = [
        *combos.colocated_combos(known),
        *combos.filter_combos(pairs, setting.load, MAX_COMBOS),
    ]
    return [(combo, rate) for combo in found_by_counts if (rate := goodput(setting, combo)) > 0]


def chosen(name: str, setting: RentScenario, options: RentOptions, caps: Mapping[str, int]) -> RentalPlan:
    """What a programme rents of these options; Melange and Cauchy* of those that do both phases."""
    is_kept = [c.prefill is None or name not in ("melange", "co_lp, together") for c, _ in options]
    kept = np.flatnonzero(is_kept)
    own = [options[n] for n in kept]
    offer, rates = build_rent_offer(own, caps), np.array([setting.per_s])
    rate = np.array([[rate for _, rate in own]])
    if name == "melange":
        found = melange.solve_melange(offer, rates, rate)
    elif name == "shares":
        found = share_program.solve_shares(offer, rates, rate, options=EXACT_SOLVER)
    elif name == "mce_lp, ratio":
        found = most_efficient(offer, rates, rate)
    else:
        efficiency = np.array([[combo.tokens_per_usd(setting.load, rate) for combo, rate in own]])
        if name == COMPUTED:
            efficiency = np.array([[computed_tokens_per_usd(setting, combo) for combo, _ in own]])
        found = combo_lp.solve_combo_lp(name.partition(",")[0], offer, rates, rate, efficiency)
    counts = np.zeros(len(options), np.int64)
    counts[kept] = np.atleast_2d(found.counts).sum(axis=0)
    return found._replace(counts=counts)


def computed_tokens_per_usd(setting: RentScenario, combo: Combo) -> float:
    """Cauchy's cost-efficiency of a combo by its equation (15), without a measurement.

    CE = A1 f / p of the prefill GPU + A2 b / p of the decode GPU; f FLOP/s, b bytes/s, p USD per second
    A1 = 1 / (C1 R_in + C2), A2 = 1 / (C4 R_out / 2 + C4 R_in + C3 / B)
    C1 = 4 l h, C2 = 8 l h^2 + 6 l h i, C3 = d (2 v h + (4 h^2 + 3 h i + 2 h) l), C4 = 2 d l k s
    """
    gpus, arch, load = setting.catalogue.gpus, setting.catalogue.llms[LLM], setting.load
    decode = combo.decode.price
    prefill = decode if combo.prefill is None else combo.prefill.price
    layers, hidden, inner, vocabulary = arch.layers, arch.hidden, arch.intermediate, arch.vocabulary
    assert hidden is not None
    assert inner is not None
    assert vocabulary is not None
    token_bytes = arch.weight_bits / 8
    attention, dense = 4 * layers * hidden, 8 * layers * hidden**2 + 6 * layers * hidden * inner
    weights = token_bytes * (
        2 * vocabulary * hidden + (4 * hidden**2 + 3 * hidden * inner + 2 * hidden) * layers
    )
    cached = 2 * token_bytes * layers * arch.kv_heads * arch.head_dim
    read = cached * (load.output_tokens / 2 + load.input_tokens) + weights / decode.batch
    flop_per_usd = 3600 * 1e12 * gpus[prefill.gpu].peak_tflops / gpus[prefill.gpu].usd_per_hour
    bytes_per_usd = 3600 * 1e12 * gpus[decode.gpu].bandwidth_tb_per_s / gpus[decode.gpu].usd_per_hour
    return flop_per_usd / (attention * load.input_tokens + dense) + bytes_per_usd / read


def most_efficient(offer: RentalOffer, rates: Floats, goodput: Floats) -> RentalPlan:
    """MCE-LP as a ratio: the fleet that serves the rate at most goodput per USD; of equal ones the cheapest.

    Dinkelbach: the least of USD less goodput / ratio is 0 where no fleet has a better ratio.
    """
    usd, counts = offer.usd_per_hour, np.zeros(goodput.shape, np.int64)
    ratio, found = float((goodput / usd).max()), 0.0
    while not np.isclose(ratio, found, rtol=1e-9):
        ratio = found or ratio
        weights = usd * (1 + TIE) - goodput / ratio
        solved = solve_model(build_combo_lp(offer, rates, goodput, weights), EXACT_SOLVER)
        counts[:] = 0
        for key, count in solved.values["x"].items():
            counts[key] = count
        found = float((goodput * counts).sum() / (counts @ usd).sum())
    served = goodput * counts
    left = np.maximum(rates - served.sum(axis=1), 0.0)
    return RentalPlan("mce_lp, ratio", counts, served, left, float((counts @ usd).sum()), 0.0, 0.0)


def attaining(
    name: str,
    setting: RentScenario,
    options: RentOptions,
    caps: Mapping[str, int],
    trace: TraceArrays,
    target: float,
) -> tuple[RentalPlan, Found]:
    """The cheapest fleet of a programme that attains the target, for less and for more of the load."""
    found_by_counts: dict[tuple[int, ...], tuple[RentalPlan, Found]] = {}
    for factor in FACTORS:
        rented = chosen(name, setting._replace(per_s=setting.per_s * factor), options, caps)
        counts = tuple(map(int, rented.counts))
        if counts not in found_by_counts:
            found_by_counts[counts] = rented, met(setting, pools_of(setting, options, counts), trace)
    able = [one for one in found_by_counts.values() if one[1]["attained"] >= target]
    return min(able or found_by_counts.values(), key=lambda one: one[0].usd_per_hour)


def fleet_text(options: RentOptions, counts: Sequence[int]) -> str:
    """The fleet in words."""
    held = [(combo.title, n) for (combo, _), n in zip(options, counts, strict=True) if n]
    return ", ".join(f"{n} ({title})" if n > 1 else title for title, n in held)
