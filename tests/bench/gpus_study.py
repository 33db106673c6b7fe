"""Cauchy's claims on like work: at which prices parting the phases pays, and what its autoscaler is worth."""

import dataclasses

import numpy as np
import pandas as pd
from gpus_fleets import WORKLOADS, goodput, setting_of
from measure import SHARED, Figures, Skipped, Target

from fleetcast.assets.studies.rent_query import RentScenario, deployment_prices
from fleetcast.models.latency.profile_order import comparable_profiles
from fleetcast.models.plan import cauchy_scaling, combos, phase_costs, share_program
from fleetcast.models.plan.combos import Combo, ComboPart
from fleetcast.models.plan.phase_costs import MeanRequest
from fleetcast.models.plan.rental import EXACT_SOLVER, NO_GPU_CAP, RentalOffer
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.fleet_arrays import link_token_s
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.trials.capacity import fixed_fleet
from fleetcast.models.trials.goodput import goodput_per_s
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.instance_kv_memory import kv_capacity_tokens

CATALOGUE = load_catalogue().of_era("2023", "here")
WAYS = ("static", "scaled", "one_more")
MEASURED = "llama2-70b as it was measured on H100 and A100"
TARGETS = {
    "gpus_flip_low_ratio": Target("", f"{MEASURED}: price of H100 over A100 from which on the cheapest fleet "
                                  "has its phases apart", at_least=1.4),
    "gpus_flip_high_ratio": Target("", "the same, up to which", at_most=2.2),
    "gpus_flip_together_ratio": Target(
        "", "from which on the cheapest fleet whose phases are together is on A100", at_least=1.4, at_most=2.2
    ),
    "gpus_apart_saving_share": Target("", "what parting saves between these prices, at most"),
    **{
        f"gpus_{of}_{way}_{what}": Target(unit, f"{of}, an Azure-shaped hour, {way}: {what}")
        for of in WORKLOADS
        for way in WAYS
        for what, unit in (("p90_e2e_s", "s"), ("instance_hours", "h"))
    },
    "gpus_apart_over_bound_share": Target("", "what it saves above the bound by GPU time, at most"),
}  # fmt: skip

GPUS = ("h100-80gb", "a100-80gb")
LLM, MAX_BATCH, PER_S = "llama2-70b", 64, 60.0
RATIOS = np.round(np.arange(1.0, 3.01, 0.05), 2)
SAMPLE_S = 10.0
TARGET = {"ttft_slo_s": 2.0, "tpot_slo_s": 0.15, "attainment_target_share": 0.9}


def flips() -> Figures:
    """The cheapest fleet at every price of an H100 over that of an A100, its options' sustained by replay."""
    rng = np.random.default_rng(1)
    inputs = np.clip(rng.lognormal(np.log(1300), 0.5, 5000), 1, 8000).astype(np.int32)
    outputs = np.clip(rng.lognormal(np.log(220), 0.5, 5000), 1, 2000).astype(np.int32)
    load = MeanRequest(float(inputs.mean()), float(outputs.mean()))
    profiles = comparable_profiles(CATALOGUE, LLM, [(gpu, tp) for gpu in GPUS for tp in (2, 4, 8)])
    world = dataclasses.replace(CATALOGUE, latency=tuple(profiles.values()))
    config, tier = (
        load_config("sageserve", CATALOGUE),
        dataclasses.replace(CATALOGUE.tiers["iw_fast"], **TARGET),
    )
    at = {ratio: prices_at(ratio, world, load) for ratio in RATIOS}
    options: dict[tuple[tuple[str, int, int], ...], Combo] = {}
    for found in list(at.values())[::4]:
        parted = combos.filter_combos(combos.disaggregated_combos(found, (1, 2), range(1, 7)), load, 5)
        options |= {key(combo): combo for combo in (*combos.colocated_combos(found), *parted)}
    sustained = {
        name: goodput_per_s(LLM, team(combo, world), world, config, tier, inputs, outputs, combo.per_s(load))
        for name, combo in options.items()
    }
    usd = np.array([[cheapest(options, sustained, ratio, way) for way in (0, 1, 2)] for ratio in RATIOS])
    whole, together, a100 = usd.T
    apart = RATIOS[whole < together * (1 - 0.01)]
    saved = 1 - whole / together
    bounds = np.array([phase_costs.saving_bound(at[ratio], load).saving_share for ratio in RATIOS])
    print("| price of H100 over A100 | bound | apart saves | on A100 alone, over the best together |")
    print("| --- | --- | --- | --- |")
    for n in range(4, RATIOS.size, 4):
        figures = f"{bounds[n]:.1%} | {saved[n]:.1%} | {a100[n] / together[n]:.2f}"
        print(f"| {RATIOS[n]:.1f} | {figures} |")
    return {
        "gpus_flip_low_ratio": float(apart.min()),
        "gpus_flip_high_ratio": float(apart.max()),
        "gpus_flip_together_ratio": float(RATIOS[a100 <= together * (1 + 1e-9)].min()),
        "gpus_apart_saving_share": float(saved.max()),
        "gpus_apart_over_bound_share": float((saved - bounds).max()),
    }


def prices_at(ratio, world, load):
    """Prices by phase where an A100 costs 1 USD."""
    usd, fleet = {GPUS[0]: float(ratio), GPUS[1]: 1.0}, load_config("sageserve", CATALOGUE).fleet
    found = []
    for profile in world.latency:
        gpu, tp = profile.gpu, profile.tensor_parallel
        room = kv_capacity_tokens(CATALOGUE, fleet, LLM, gpu, tp)
        batch = min(MAX_BATCH, 2 * profile.decode_batch[-1])
        price = phase_costs.phase_price(profile, usd[gpu], load, room, TARGET["tpot_slo_s"], batch, 8192)
        if price is not None:
            found.append(price._replace(link_token_s=link_token_s(CATALOGUE, fleet, LLM, gpu, tp)))
    return found


def key(combo: Combo) -> tuple[tuple[str, int, int], ...]:
    """A combo whatever it costs."""
    return tuple((part.price.gpu, part.price.gpus, part.instances) for part in combo.parts)


def team(combo, world):
    """The pools of one combo."""
    roles = ("whole",) if combo.prefill is None else ("prefill", "decode")
    pools = []
    for part, role in zip(combo.parts, roles, strict=True):
        known = world.profile(LLM, part.price.gpu, part.price.gpus).decode_batch[-1]
        limit = min(MAX_BATCH, 2 * known)
        pools.append(
            (Deployment(part.price.gpu, part.price.gpus, role=role, max_batch=limit), part.instances)
        )
    return pools


def cheapest(options, sustained, ratio, way):
    """USD an hour for PER_S requests/s: of all options, of those together, of those on A100 together."""
    names = [
        name
        for name, rate in sustained.items()
        if rate > 0 and (way == 0 or len(name) == 1) and (way < 2 or name[0][0] == GPUS[1])
    ]
    uses = np.array([[options[name].uses.get(gpu, 0) for gpu in GPUS] for name in names])
    offer = RentalOffer(
        tuple(map(str, names)), GPUS, uses @ np.array([ratio, 1.0]), uses, np.full(2, NO_GPU_CAP)
    )
    rates = np.array([[sustained[name] for name in names]])
    return share_program.solve_shares(offer, np.array([PER_S]), rates, options=EXACT_SOLVER).usd_per_hour


SCALED_GPU, SCALED_MOST = "a800-80gb-pcie", 40  # instances that there are
STANDING = 7  # instances that the mean of the hour wants, so that one more or less is a small step
BOOT_S = 90.0


def scaled() -> Figures:
    """An hour shaped like Azure's, on like instances that stand or follow Cauchy's autoscaler: Figure 10."""
    path = SHARED / "traces" / "AzureLLMInferenceTrace_conv.csv.gz"
    if not path.exists():
        raise Skipped(f"there is no {path}")
    rows = pd.read_csv(path, parse_dates=["TIMESTAMP"])
    hour_s = (rows["TIMESTAMP"] - rows["TIMESTAMP"].iloc[0]).dt.total_seconds().to_numpy()
    figures = Figures()
    print("| | P90 of E2E, s: standing | scaled | one more standing | instance-hours | scaled | one more |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for of in WORKLOADS:
        found = scaled_and_not(setting_of(CATALOGUE, of, (SCALED_GPU,), (1,)), hour_s)
        figures |= {f"gpus_{of}_{name}": value for name, value in found.items()}
        cells = [found[f"{way}_{unit}"] for unit in ("p90_e2e_s", "instance_hours") for way in WAYS]
        print(f"| {of} | {' | '.join(f'{cell:.2f}' for cell in cells)} |")
    return figures


def scaled_and_not(setting: RentScenario, hour_s: np.ndarray) -> Figures:
    """P90 of E2E and instance-hours of a workload that comes in the rhythm of an hour."""
    quick = dict.fromkeys(("boot_local_s", "boot_spot_s", "boot_spot_max_s", "boot_remote_s"), BOOT_S)
    config = dataclasses.replace(setting.config, replay=dataclasses.replace(setting.config.replay, **quick))
    llm, pool = "llama3.1-8b", Deployment(SCALED_GPU, 1)
    each = goodput(setting, Combo(None, ComboPart(deployment_prices(setting)[0], 1)))
    times = round(STANDING * each * hour_s[-1] / hour_s.size)
    came_s = np.sort(np.concatenate([hour_s + 0.7 * n for n in range(times)]))
    zero_ids = np.zeros(came_s.size, np.int16)
    tokens = (np.resize(own, came_s.size) for own in setting.mix[:2])
    trace = TraceArrays(came_s, zero_ids, zero_ids, zero_ids, *tokens)
    until_s = float(came_s[-1]) + 1.0
    per_s = np.histogram(came_s, np.arange(0.0, until_s + SAMPLE_S, SAMPLE_S))[0] / SAMPLE_S
    start = np.array([int(np.ceil(per_s.mean() / each))])  # for the mean of the hour, as in the paper
    rules = make_rules(setting.catalogue, config.replay, "follow")
    fleet = fixed_fleet({llm: [(pool, SCALED_MOST)]}, setting.catalogue, config)
    fleet = fleet._replace(min_instances=np.ones(1, np.int64))
    more = cauchy_scaling.cauchy_targets(
        per_s, np.array([each]), lambda rate, held: least(rate, held, each), start
    )
    figures = {}
    still = np.tile(start, (per_s.size, 1))
    for name, table in zip(WAYS, (still, more, still + 1), strict=True):
        drive = Schedule(table.astype(np.float64), start=table[0], hour_s=SAMPLE_S)
        outcome = replay_trace(trace, fleet, drive, rules, until_s)
        e2e_s = np.nan_to_num(outcome.finish_s - came_s, nan=np.inf)
        figures |= {
            f"{name}_p90_e2e_s": float(np.quantile(e2e_s, 0.9)),
            f"{name}_instance_hours": float(table.sum()) * SAMPLE_S / 3600,
        }
    return figures


def least(rate: float, held: np.ndarray, each: float) -> np.ndarray:
    """So many like instances as sustain the rate, of those that there are."""
    return np.array([min(int(np.ceil(rate / each)), SCALED_MOST - int(held[0]))])


FUNCTIONS = (flips, scaled)
SMALL = {"gpus_fleets.REQUESTS": 100, "WORKLOADS": ("longwriter",), "STANDING": 1}
SMOKE = {"scaled": SMALL}
