"""Cauchy's claims on like work: Table 3, and at which prices it pays to part prefill and decode."""

import dataclasses

import numpy as np
import pandas as pd
from measure import SHARED, Figures, Skipped, Target

from models.latency.kernels import comparable, composed
from models.plan import autoscale, combos, phases, shares
from models.plan.combos import Combo
from models.plan.phases import Load
from models.plan.rent import ANY, EXACT, Offer
from models.replay.capacity import standing_fleet
from models.replay.fleet import kv_capacity_tokens, make_rules
from models.replay.goodput import goodput_per_s
from models.replay.run import Drive, replay
from models.replay.state import Trace
from models.world.catalogue import LatencyProfile, load_catalogue
from models.world.config import Deployment
from models.world.loading import load_config

CATALOGUE = load_catalogue()
MEASURED = "llama2-70b as it was measured on H100 and A100"
TARGETS = {
    "gpus_table3_e2e_error": Target("", "E2E of Cauchy's Table 3, basic rows, worst of 3", at_most=0.08),
    "gpus_table3_tpot_error": Target("", "its time per token, worst of 3", at_most=0.05),
    "gpus_flip_low_ratio": Target("", f"{MEASURED}: price of H100 over A100 from which on the cheapest fleet "
                                  "has its phases apart", at_least=1.4),
    "gpus_flip_high_ratio": Target("", "the same, up to which", at_most=2.2),
    "gpus_flip_together_ratio": Target(
        "", "from which on the cheapest fleet whose phases are together is on A100", at_least=1.4, at_most=2.2
    ),
    "gpus_apart_saving_share": Target("", "what parting saves between these prices, at most"),
    **{
        f"gpus_{way}_{of}": Target(unit, f"an Azure-shaped hour, {way}: {of}")
        for way in ("static", "scaled")
        for of, unit in (("p90_e2e_s", "s"), ("instance_hours", "h"))
    },
    "gpus_apart_over_bound_share": Target("", "what it saves above the bound by GPU time, at most"),
}  # fmt: skip

TABLE_3 = {  # Cauchy, basic round robin: decode instances -> requests/s, mean E2E s, mean TBT ms
    1: (2.14, 22.03, 15.92),
    2: (2.90, 17.75, 12.84),
    3: (2.96, 14.56, 10.51),
}
READ_INPUT, READ_OUTPUT = 337, 1360  # LongWriter's prompts; (E2E - TTFT) / TBT is 1,360 in all rows
TABLE_3_REQUESTS = 6000


def table_3() -> Figures:
    """One instance that prefills and one to three that decode, at the rates of the paper's Table 3."""
    llm, rng = "llama3.1-8b", np.random.default_rng(4)
    batch = np.array([1, 64, 128])
    steps_s = tuple((8.40e-3 + 0.149e-3 * batch).tolist())  # fitted to the same six rows by Little's law
    gpu = dataclasses.replace(CATALOGUE.gpus["h100-80gb"], memory_gib=96.0, link_gbit_per_s=25.0)
    profile = LatencyProfile(
        llm, "h20", 2, (1, 8192), (0.10 + 73e-6, 0.10 + 73e-6 * 8192), (1, 64, 128), steps_s, 0.0, None, ""
    )
    world = dataclasses.replace(CATALOGUE.serving([llm]), gpus={"h20": gpu}, latency=(profile,))
    config = load_config("office", CATALOGUE)
    config = dataclasses.replace(config, fleet=dataclasses.replace(config.fleet, max_batch=256))
    e2e_errors, tpot_errors = [], []
    for decode, (per_s, e2e_s, tbt_ms) in TABLE_3.items():
        pools = [(Deployment("h20", 2, role=r), n) for r, n in (("prefill", 1), ("decode", decode))]
        fleet = standing_fleet({llm: pools}, world, config)
        nobody = np.zeros(TABLE_3_REQUESTS, np.int16)
        tokens = (np.full(TABLE_3_REQUESTS, n, np.int32) for n in (READ_INPUT, READ_OUTPUT))
        came_s = np.cumsum(rng.exponential(1 / per_s, TABLE_3_REQUESTS))
        trace = Trace(came_s, nobody, nobody, nobody, *tokens)
        until_s = float(came_s[-1]) + 600.0
        rules = make_rules(world, config.replay, "follow")
        outcome = replay(trace, fleet, Drive(np.diff(fleet.slots), hour_s=until_s), rules, until_s)
        steady = slice(TABLE_3_REQUESTS // 10, -TABLE_3_REQUESTS // 10)
        ours = (outcome.finish_s - came_s)[steady]
        pace = (outcome.finish_s - outcome.first_token_s)[steady] / (READ_OUTPUT - 1)
        told = f"E2E {ours.mean():.2f} s for {e2e_s}, TPOT {1e3 * pace.mean():.2f} ms for {tbt_ms}"
        print(f"{decode} decode: {told}")
        e2e_errors.append(abs(float(ours.mean()) / e2e_s - 1))
        tpot_errors.append(abs(1e3 * float(pace.mean()) / tbt_ms - 1))
    return {"gpus_table3_e2e_error": max(e2e_errors), "gpus_table3_tpot_error": max(tpot_errors)}


GPUS = ("h100-80gb", "a100-80gb")
LLM, MAX_BATCH, PER_S = "llama2-70b", 64, 60.0
RATIOS = np.round(np.arange(1.0, 3.01, 0.05), 2)
SAMPLE_S = 10.0
PACED = {"ttft_slo_s": 2.0, "tpot_slo_s": 0.05}
TARGET = {"ttft_slo_s": 2.0, "tpot_slo_s": 0.15, "attainment_target_share": 0.9}


def flips() -> Figures:
    """The cheapest fleet at every price of an H100 over that of an A100, its options' goodput by replay."""
    rng = np.random.default_rng(1)
    inputs = np.clip(rng.lognormal(np.log(1300), 0.5, 5000), 1, 8000).astype(np.int32)
    outputs = np.clip(rng.lognormal(np.log(220), 0.5, 5000), 1, 2000).astype(np.int32)
    load = Load(float(inputs.mean()), float(outputs.mean()))
    profiles = comparable(CATALOGUE, LLM, [(gpu, tp) for gpu in GPUS for tp in (2, 4, 8)])
    world = dataclasses.replace(CATALOGUE, latency=tuple(profiles.values()))
    config, tier = load_config("office", CATALOGUE), dataclasses.replace(CATALOGUE.tiers["iw_fast"], **TARGET)
    at = {ratio: prices_at(ratio, world, load) for ratio in RATIOS}
    options: dict[tuple[tuple[str, int, int], ...], Combo] = {}
    for found in list(at.values())[::4]:
        parted = combos.worth_trying(combos.apart(found, (1, 2), range(1, 7)), load, 5)
        options |= {key(combo): combo for combo in (*combos.together(found), *parted)}
    goodput = {
        name: goodput_per_s(LLM, team(combo, world), world, config, tier, inputs, outputs, combo.per_s(load))
        for name, combo in options.items()
    }
    usd = np.array([[cheapest(options, goodput, ratio, way) for way in (0, 1, 2)] for ratio in RATIOS])
    whole, together, a100 = usd.T
    apart = RATIOS[whole < together * (1 - 0.01)]
    saved = 1 - whole / together
    bounds = np.array([phases.saving_bound(at[ratio], load).saving_share for ratio in RATIOS])
    return {
        "gpus_flip_low_ratio": float(apart.min()),
        "gpus_flip_high_ratio": float(apart.max()),
        "gpus_flip_together_ratio": float(RATIOS[a100 <= together * (1 + 1e-9)].min()),
        "gpus_apart_saving_share": float(saved.max()),
        **{
            f"gpus_{way}_{of}": Target(unit, f"an Azure-shaped hour, {way}: {of}")
            for way in ("static", "scaled")
            for of, unit in (("p90_e2e_s", "s"), ("instance_hours", "h"))
        },
        "gpus_apart_over_bound_share": float((saved - bounds).max()),
    }


def prices_at(ratio, world, load):
    """Prices by phase where an A100 costs 1 USD."""
    usd, fleet = {GPUS[0]: float(ratio), GPUS[1]: 1.0}, load_config("office", CATALOGUE).fleet
    found = []
    for profile in world.latency:
        gpu, tp = profile.gpu, profile.tensor_parallel
        room = kv_capacity_tokens(CATALOGUE, fleet, LLM, gpu, tp)
        batch = min(MAX_BATCH, 2 * profile.decode_batch[-1])
        found.append(phases.phase_price(profile, usd[gpu], load, room, TARGET["tpot_slo_s"], batch, 8192))
    return [price for price in found if price is not None]


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


def cheapest(options, goodput, ratio, way):
    """USD an hour for PER_S requests/s: of all options, of those together, of those on A100 together."""
    names = [
        name
        for name, rate in goodput.items()
        if rate > 0 and (way == 0 or len(name) == 1) and (way < 2 or name[0][0] == GPUS[1])
    ]
    uses = np.array([[options[name].uses.get(gpu, 0) for gpu in GPUS] for name in names])
    offer = Offer(tuple(map(str, names)), GPUS, uses @ np.array([ratio, 1.0]), uses, np.full(2, ANY))
    rates = np.array([[goodput[name] for name in names]])
    return shares.solve(offer, np.array([PER_S]), rates, options=EXACT).usd_per_hour


SCALED_LLM, SCALED_GPU, SCALED_MOST = "llama3.1-8b", "a100-80gb", 40  # instances that there are
TIMES = 8  # of the rate of the Azure hour, so that an instance is a small step
BOOT_S = 90.0


def scaled() -> Figures:
    """An hour shaped like Azure's, on like instances that stand or follow Cauchy's autoscaler: Fig. 10."""
    path = SHARED / "traces" / "AzureLLMInferenceTrace_conv.csv.gz"
    if not path.exists():
        raise Skipped(f"there is no {path}")
    rows = pd.read_csv(path, parse_dates=["TIMESTAMP"])
    came_s = (rows["TIMESTAMP"] - rows["TIMESTAMP"].iloc[0]).dt.total_seconds().to_numpy()
    came_s = np.sort(np.concatenate([came_s + 0.7 * n for n in range(TIMES)]))
    pick = np.random.default_rng(3).integers(0, len(rows), came_s.size)
    inputs, outputs = (rows[name].to_numpy(np.int32)[pick] for name in ("ContextTokens", "GeneratedTokens"))
    nobody = np.zeros(came_s.size, np.int16)
    trace = Trace(came_s, nobody, nobody, nobody, inputs, np.maximum(outputs, 1))
    config = load_config("office", CATALOGUE)
    quick = {
        "boot_local_s": BOOT_S,
        "boot_spot_s": BOOT_S,
        "boot_spot_max_s": BOOT_S,
        "boot_remote_s": BOOT_S,
    }
    config = dataclasses.replace(
        config,
        fleet=dataclasses.replace(config.fleet, max_batch=256),
        replay=dataclasses.replace(config.replay, **quick),
    )
    profile = composed(CATALOGUE, SCALED_LLM, SCALED_GPU, 1)
    world = dataclasses.replace(CATALOGUE.serving([SCALED_LLM]), latency=(profile,))
    pool, tier = Deployment(SCALED_GPU, 1), dataclasses.replace(CATALOGUE.tiers["iw_fast"], **PACED)
    each = goodput_per_s(SCALED_LLM, [(pool, 1)], world, config, tier, inputs, trace.output_tokens, 8.0)
    until_s = float(came_s[-1]) + 1.0
    per_s = np.histogram(came_s, np.arange(0.0, until_s + SAMPLE_S, SAMPLE_S))[0] / SAMPLE_S
    start = np.array([int(np.ceil(per_s.mean() / each))])  # for the mean of the hour, as in the paper
    rules = make_rules(world, config.replay, "follow")
    fleet = standing_fleet({SCALED_LLM: [(pool, SCALED_MOST)]}, world, config)
    fleet = fleet._replace(min_instances=np.ones(1, np.int64))
    more = autoscale.targets(per_s, np.array([each]), lambda rate, held: least(rate, held, each), start)
    figures = {}
    for name, table in (("static", np.tile(start, (per_s.size, 1))), ("scaled", more)):
        drive = Drive(table.astype(np.float64), start=start, hour_s=SAMPLE_S)
        outcome = replay(trace, fleet, drive, rules, until_s)
        e2e_s = np.nan_to_num(outcome.finish_s - came_s, nan=np.inf)
        figures |= {
            f"gpus_{name}_p90_e2e_s": float(np.quantile(e2e_s, 0.9)),
            f"gpus_{name}_instance_hours": float(table.sum()) * SAMPLE_S / 3600,
        }
    return figures


def least(rate: float, held: np.ndarray, each: float) -> np.ndarray:
    """So many like instances as sustain the rate, of those that there are."""
    return np.array([min(int(np.ceil(rate / each)), SCALED_MOST - int(held[0]))])


FUNCTIONS = (table_3, flips, scaled)
