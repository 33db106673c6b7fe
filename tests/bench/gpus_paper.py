"""Cauchy's claims on its own GPU types: eight H800, A800 (PCIe) and H20 each, two to a server, 25 Gb/s.

Profiles are composed in part (data/catalogue/kernels.toml says what stands for what): how far off whole runs
are no one knows. data/studies/gpus.md holds what this prints.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

from gpus_fleets import (
    COMPUTED,
    LLM,
    WORKLOADS,
    attaining,
    fleet_text,
    goodput,
    hour_of,
    met,
    options_of,
    pools_of,
    setting_of,
)
from measure import Figures, Target

from fleetcast.assets.studies.rent_fleets import RentOptions, team_pools
from fleetcast.assets.studies.rent_query import RentScenario, deployment_prices
from fleetcast.models.plan import phase_costs
from fleetcast.models.plan.combos import Combo, ComboPart
from fleetcast.models.plan.phase_costs import MeanRequest, PhasePrice
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.kernel_times import MatrixProductTimes

CATALOGUE = load_catalogue().of_era("2023", "here")
H800, A800, H20 = TYPES = ("h800-80gb", "a800-80gb-pcie", "h20-96gb")
DEGREES, LINK_GBIT_PER_S = (1, 2), 25.0
CAPS = dict.fromkeys(TYPES, 8)
TIMES = 4  # of the paper's rates, so that fleets are more than two GPUs and every one of them can be played
REPLAYED = 30_000
LEAST_SHARE = 0.8  # of the load, that a fleet must sustain
ATTAINED, STRICT = 0.90, 0.95  # of requests in time; the paper names no share
LENGTHS = (  # mean input and output tokens, TPOT s
    *((337, 1330, 0.03), (2000, 1000, 0.03)),
    *((4000, 1000, 0.05), (8000, 1000, 0.05), (16000, 1000, 0.05)),
)
PROGRAMMES = ("melange", "co_lp, together", "co_lp", COMPUTED, "mc_lp", "mce_lp", "mce_lp, ratio", "shares")
TARGETS = {
    **{
        f"gpus_paper_{of}_bound_share": Target("", f"{of}, paper's set: bound on parting") for of in WORKLOADS
    },
    **{
        f"gpus_paper_{of}_{what}": Target("", f"{of}, paper's set: tokens per USD of {how}")
        for of in WORKLOADS
        for what, how in (
            ("co_lp_over_melange", "CO-LP over Melange"),
            ("shares_over_melange", "shares over Melange"),
            ("co_lp_over_mc_lp", "CO-LP over MC-LP"),
            ("computed_over_melange", "CO-LP by equation (15) over Melange"),
            ("computed_over_mc_lp", "CO-LP by equation (15) over MC-LP"),
            ("co_lp_over_mce_lp", "CO-LP over MCE-LP"),
            ("co_lp_over_mce_lp_ratio", "CO-LP over MCE-LP as a ratio"),
        )
    },
    **{
        f"gpus_paper_{inputs}_tokens_bound_share": Target("", f"the bound at prompts of {inputs:,} tokens")
        for inputs, *_ in LENGTHS
    },
    "gpus_gap_to_exhaustive": Target(
        "", "USD of shares over the cheapest of all fleets that attain, paper's set, worst of 3", at_most=0.03
    ),
    "gpus_long_shares_over_melange": Target(
        "", "prompts of 4,000 tokens: tokens per USD of shares over Melange"
    ),
    "gpus_long_co_lp_over_melange": Target("", "the same of CO-LP"),
    "gpus_long_computed_over_melange": Target("", "the same of CO-LP by equation (15)"),
    "gpus_pair_gain_share": Target("", "ShareGPT: H800 > H20 over H800 > H800 + H20 > H20, tokens per USD"),
    **{
        f"gpus_distributed_{of}_{kind}_e2e_share": Target(
            "", f"{of}: mean E2E by goodput less than in turn, {kind} instances"
        )
        for of in WORKLOADS
        for kind in ("unlike", "unlike_idle", "like")
    },
    **{
        f"gpus_dispatch_over_{way}_{of}_{kind}_e2e_share": Target(
            "", f"{of}: mean E2E by goodput less than by {words}, {kind} instances"
        )
        for of in WORKLOADS
        for kind in ("unlike", "unlike_idle", "like")
        for way, words in (("memory", "all KV tokens"), ("most_unused", "unused KV tokens"))
    },
}


def scenario_of(workload: str, catalogue: Catalogue = CATALOGUE) -> RentScenario:
    """A workload on the paper's set."""
    return setting_of(catalogue, workload, TYPES, DEGREES, TIMES, LINK_GBIT_PER_S)


# --- prices by phase -------------------------------------------------------------------------------------


def read_quicker(catalogue: Catalogue, share: float) -> Catalogue:
    """H20's products of 16 bits, weights read at so much of its bandwidth where nothing else is slower."""
    own = catalogue.kernels[H20]
    known, gpu = own.products["16"], catalogue.gpus[H20]
    read_s = 2 / (share * gpu.bandwidth_tb_per_s * 1e12)
    computed_s = known.weight_s[-1] / known.tokens[-1]  # per token, where it computes
    weight_s = tuple(max(read_s, n * computed_s) for n in known.tokens)
    quicker = dataclasses.replace(
        own, products={**own.products, "16": MatrixProductTimes(known.tokens, known.launch_s, weight_s)}
    )
    return dataclasses.replace(catalogue, kernels={**catalogue.kernels, H20: quicker})


def in_8_bits(catalogue: Catalogue) -> Catalogue:
    """The llm in 8 bits."""
    llm = dataclasses.replace(catalogue.llms[LLM], weight_bits=8)
    return dataclasses.replace(catalogue, llms={**catalogue.llms, LLM: llm})


def by_phase() -> Figures:
    """USD per million tokens by phase, and the bound on parting them, under both readings of H20."""
    readings = {
        "as the catalogue has it": CATALOGUE,
        "H20 reads weights at 80 %": read_quicker(CATALOGUE, 0.8),
        "weights in 8 bits": in_8_bits(CATALOGUE),
    }
    figures = Figures()
    print("| | | H800 | A800 | H20 | bound |", "| --- | --- | --- | --- | --- | --- |", sep="\n")
    for reading, catalogue in readings.items():
        for of in WORKLOADS:
            setting = scenario_of(of, catalogue)
            in_8 = catalogue.llms[LLM].weight_bits == 8
            known = [price for price in deployment_prices(setting) if not (in_8 and price.gpu == A800)]
            cells = []
            for gpu in TYPES:
                own = [price for price in known if price.gpu == gpu]
                if not own:
                    cells.append("no such products")
                    continue
                tokens = (min(getattr(p, f"usd_per_{way}_token") for p in own) for way in ("input", "output"))
                cells.append(", ".join(f"{1e6 * usd:.3f}" for usd in tokens))
            bound = phase_costs.saving_bound(known, setting.load).saving_share
            print(f"| {reading} | {of} | {' | '.join(cells)} | {bound:.1%} |")
            figures.setdefault(f"gpus_paper_{of}_bound_share", bound)
    return figures


def by_length() -> Figures:
    """The same as prompts grow: a long cache is read at the bandwidth, which is cheapest on H20."""
    figures = Figures()
    print(
        "| tokens in, out | TPOT, ms | H800 | A800 | H20 | bound |",
        "| --- | --- | --- | --- | --- | --- |",
        sep="\n",
    )
    for inputs, outputs, pace_s in LENGTHS:
        setting = scenario_of("longwriter")
        tier = dataclasses.replace(setting.tier, tpot_slo_s=pace_s)
        setting = setting._replace(load=MeanRequest(inputs, outputs), tier=tier)
        known = deployment_prices(setting)
        usd = [1e6 * min(p.usd_per_output_token for p in known if p.gpu == gpu) for gpu in TYPES]
        bound = phase_costs.saving_bound(known, setting.load).saving_share
        cells = " | ".join(f"{one:.3f}" for one in usd)
        print(f"| {inputs:,}, {outputs:,} | {1e3 * pace_s:g} | {cells} | {bound:.1%} |")
        figures[f"gpus_paper_{inputs}_tokens_bound_share"] = bound
    return figures


# --- fleets at equal attainment --------------------------------------------------------------------------


def every_fleet(
    setting: RentScenario, options: RentOptions, below_usd: float
) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Every fleet within the caps that might sustain the load and costs less: USD an hour, and its counts."""
    order = sorted(range(len(options)), key=lambda n: options[n][0].usd_per_hour / options[n][1])
    floor = [options[n][0].usd_per_hour / options[n][1] for n in order]
    required_requests_per_s = LEAST_SHARE * setting.per_s
    counts, left = [0] * len(options), dict(CAPS)

    def grow(at: int, usd: float, per_s: float) -> Iterator[tuple[float, tuple[int, ...]]]:
        if per_s >= required_requests_per_s:
            yield usd, tuple(counts)
        if at == len(order) or usd + max(0.0, required_requests_per_s - per_s) * floor[at] >= below_usd:
            return
        combo, rate = options[order[at]]
        taken = 0
        while usd + taken * combo.usd_per_hour < below_usd and all(left[g] >= 0 for g in combo.uses):
            counts[order[at]] = taken
            if taken == 0 or per_s + taken * rate < required_requests_per_s + 2 * rate:
                deeper = grow(at + 1, usd + taken * combo.usd_per_hour, per_s + taken * rate)
                yield from deeper
            taken += 1
            for gpu, size in combo.uses.items():
                left[gpu] -= size
        for gpu, size in combo.uses.items():
            left[gpu] += taken * size
        counts[order[at]] = 0

    yield from grow(0, 0.0, 0.0)


def exhaustive(
    setting: RentScenario, options: RentOptions, trace: TraceArrays, below_usd: float
) -> tuple[int, tuple[float, tuple[int, ...]] | None]:
    """How many fleets cheaper than `below_usd` were played; the cheapest that attains the target, if any."""
    every = sorted(set(every_fleet(setting, options, below_usd)))
    for count, (usd, counts) in enumerate(every, start=1):
        if met(setting, pools_of(setting, options, counts), trace)["attained"] >= ATTAINED:
            return count, (usd, counts)
    return len(every), None


def fleets() -> Figures:
    """Each programme's fleet at equal attainment compared with the cheapest of all fleets: Figures 6, 7 and
    8.
    """
    figures, gaps = Figures(), []
    print("| | | USD/h | in time | E2E, s | TTFT, s | TPOT, ms | fleet | USD/h at 95 % |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for of in WORKLOADS:
        setting = scenario_of(of)
        options, trace = options_of(setting), hour_of(setting, REPLAYED)
        usd = {}
        for name in PROGRAMMES:
            rented, found = attaining(name, setting, options, CAPS, trace, ATTAINED)
            strict, _ = attaining(name, setting, options, CAPS, trace, STRICT)
            usd[name] = rented.usd_per_hour
            printed = row(of, name, usd[name], found, fleet_text(options, rented.counts))
            print(f"{printed} {strict.usd_per_hour:.2f} |")
        least = min(usd.values())
        count, best = exhaustive(setting, options, trace, least - 1e-9)
        if best is None:
            print(f"| {of} | of {count} cheaper fleets | | none | | | | | |")
        else:
            least, counts = best
            found = met(setting, pools_of(setting, options, counts), trace)
            print(
                row(of, f"the best of {count} cheaper fleets", least, found, fleet_text(options, counts)), "|"
            )
        gaps.append(usd["shares"] / least - 1)
        figures |= {
            f"gpus_paper_{of}_co_lp_over_melange": usd["melange"] / usd["co_lp"],
            f"gpus_paper_{of}_shares_over_melange": usd["melange"] / usd["shares"],
            f"gpus_paper_{of}_co_lp_over_mc_lp": usd["mc_lp"] / usd["co_lp"],
            f"gpus_paper_{of}_computed_over_melange": usd["melange"] / usd[COMPUTED],
            f"gpus_paper_{of}_computed_over_mc_lp": usd["mc_lp"] / usd[COMPUTED],
            f"gpus_paper_{of}_co_lp_over_mce_lp": usd["mce_lp"] / usd["co_lp"],
            f"gpus_paper_{of}_co_lp_over_mce_lp_ratio": usd["mce_lp, ratio"] / usd["co_lp"],
        }
    return figures | {"gpus_gap_to_exhaustive": max(gaps)}


def row(of: str, name: str, usd: float, found: dict[str, float], fleet: str) -> str:
    """A row of the table."""
    times = f"{found['e2e_s']:.2f} | {found['ttft_s']:.2f} | {1e3 * found['tpot_s']:.1f}"
    return f"| {of} | {name} | {usd:.2f} | {found['attained']:.1%} | {times} | {fleet} |"


def long_prompts() -> Figures:
    """Prompts of 4,000 tokens, of which the bound says that parting pays: fleets without caps."""
    setting = scenario_of("long")
    options, trace = options_of(setting), hour_of(setting, REPLAYED)
    usd = {}
    print("| | | USD/h | in time | E2E, s | TTFT, s | TPOT, ms | fleet |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in ("melange", "co_lp, together", "co_lp", COMPUTED, "mc_lp", "shares"):
        rented, found = attaining(name, setting, options, {}, trace, ATTAINED)
        usd[name] = rented.usd_per_hour
        print(row("long", name, usd[name], found, fleet_text(options, rented.counts)))
    return {
        "gpus_long_shares_over_melange": usd["melange"] / usd["shares"],
        "gpus_long_co_lp_over_melange": usd["melange"] / usd["co_lp"],
        "gpus_long_computed_over_melange": usd["melange"] / usd[COMPUTED],
    }


# --- single claims ---------------------------------------------------------------------------------------


def pair() -> Figures:
    """Two H800 and two H20, of which each type does one phase, or each its own pair: Figure 2."""
    setting = scenario_of("sharegpt")
    by_name = {(price.gpu, price.gpus): price for price in deployment_prices(setting)}

    def part(gpu: str, gpus: int = 1, instances: int = 1) -> ComboPart:
        price: PhasePrice = by_name[gpu, gpus]
        return ComboPart(price, instances)

    cases = {
        "2xH800 > 2xH20": [Combo(part(H800, 2), part(H20, 2))],
        "2 x H800 > 2 x H20": [Combo(part(H800, 1, 2), part(H20, 1, 2))],
        "H800 > H800 and H20 > H20": [Combo(part(gpu), part(gpu)) for gpu in (H800, H20)],
        "2 x H800 and 2 x H20, each both phases": [
            Combo(None, part(gpu, 1, 1)) for gpu in (H800, H800, H20, H20)
        ],
    }
    rates = {name: sum(goodput(setting, combo) for combo in own) for name, own in cases.items()}
    print("| ShareGPT on the same four GPUs | requests/s |", "| --- | --- |", sep="\n")
    for name, rate in rates.items():
        print(f"| {name} | {rate:.1f} |")
    apart = max(rates["2xH800 > 2xH20"], rates["2 x H800 > 2 x H20"])
    return {"gpus_pair_gain_share": apart / rates["H800 > H800 and H20 > H20"] - 1}


def spread_by_weight() -> Figures:
    """Unlike and like instances under each way to deal requests out: Figure 9."""
    figures = Figures()
    print("| | instances | load | in turn | most unused | by memory | by goodput | in time, % |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for of in WORKLOADS:
        setting = scenario_of(of)
        both = [Combo(None, ComboPart(price, 1)) for price in deployment_prices(setting) if price.gpus == 1]
        rates = [goodput(setting, combo) for combo in both]
        unlike, like = list(zip(both, rates, strict=True)), [(both[0], rates[0])] * len(both)
        for kind, own, load in (("unlike", unlike, 0.85), ("unlike_idle", unlike, 0.3), ("like", like, 0.85)):
            per_s = load * 2 * sum(rate for _, rate in own)
            pools = [
                pool
                for n, (combo, rate) in enumerate(own)
                for pool in team_pools(setting, combo, 2, f"t{n}", rate)
            ]
            trace = hour_of(setting, REPLAYED, per_s)
            found_by_spread = {
                spread: met(setting, pools, trace, spread)
                for spread in ("round_robin", "most_unused", "memory", "goodput")
            }
            times = " | ".join(f"{found['e2e_s']:.2f}" for found in found_by_spread.values())
            in_time = ", ".join(f"{100 * found['attained']:.0f}" for found in found_by_spread.values())
            print(f"| {of} | {kind.partition('_')[0]} | {load:.0%} | {times} | {in_time} |")
            e2e_s = {spread: found["e2e_s"] for spread, found in found_by_spread.items()}
            saved = {spread: 1 - e2e_s["goodput"] / other for spread, other in e2e_s.items()}
            figures[f"gpus_distributed_{of}_{kind}_e2e_share"] = saved["round_robin"]
            for way in ("memory", "most_unused"):
                figures[f"gpus_dispatch_over_{way}_{of}_{kind}_e2e_share"] = saved[way]
    return figures


FUNCTIONS = (by_phase, by_length, fleets, long_prompts, pair, spread_by_weight)
SMALL: dict[str, Any] = {"gpus_fleets.REQUESTS": 200, "gpus_fleets.FACTORS": (1.1,), "REPLAYED": 200}
SMALL |= {"WORKLOADS": ("dailymail",), "LENGTHS": LENGTHS[:1], "DEGREES": (1,), "TIMES": 1, "CAPS": CAPS}
SMOKE = dict.fromkeys(("by_phase", "by_length", "spread_by_weight"), SMALL)
SMOKE |= dict.fromkeys(("fleets", "long_prompts"), SMALL | {"TYPES": (H800,)})
SMOKE["pair"] = SMALL | {"DEGREES": (1, 2)}
