"""Measure the goodput of rentable options by replay, and find the best fleet of each kind.

models/plan/share_program.py chooses how many of each option to rent for a load. The busiest recorded hour,
scaled to the coming peak, is replayed on that fleet. The load in the program starts below the real one and
grows until the replayed fleet attains its target, so that fleets are compared by cost at equal attainment.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.studies.rent_hour import BusiestHour, HourResult, replay_hour
from fleetcast.assets.studies.rent_query import RentScenario, describe_targets, engine_prices, largest_batch
from fleetcast.models.plan import combos, share_program
from fleetcast.models.plan.combos import Combo, ComboPart
from fleetcast.models.plan.phase_costs import PhasePrice
from fleetcast.models.plan.rental import EXACT_SOLVER, NO_GPU_CAP, RentalOffer, RentalPlan, describe_shortage
from fleetcast.models.trials.goodput import goodput_per_s
from fleetcast.models.world.config import replace_given
from fleetcast.models.world.fleet_config import Deployment

PREFILL_INSTANCES, DECODE_INSTANCES = range(1, 3), range(1, 7)  # of a combo: Cauchy, 3.3.2
MAX_COMBOS = 12  # combos whose goodput is measured: Cauchy, 3.3.2
OF_EACH_GPU = 2  # tensor parallelisms per GPU type, of instances that do both phases
KEEP_WEIGHTS = (1.0, 1.5, 2.0, 3.0, 5.0)  # opportunism weights to compare
FACTORS = tuple(1.03**step for step in range(-8, 9))  # multiples of the load for which the program is solved
RENT_FLEET_KINDS = ("one_type", "mixed_types", "combos")
RentOptions = Sequence[tuple[Combo, float]]  # each with its goodput, requests/s of one


class RentedFleet(NamedTuple):
    """A fleet of fixed size, and its metrics in the busiest hour."""

    held: tuple[tuple[Combo, int], ...]  # combos with their counts
    goodputs: tuple[float, ...]  # requests/s of one combo, in the order of `held`
    met: HourResult
    usd_per_hour: float

    @property
    def gpus(self) -> dict[str, int]:
        """Number of GPUs by type."""
        sums: dict[str, int] = {}
        for combo, count in self.held:
            for gpu, size in combo.uses.items():
                sums[gpu] = sums.get(gpu, 0) + count * size
        return sums

    @property
    def engines(self) -> list[str]:
        """Names of the engines that it runs."""
        pools = (part.price.engine_pool for combo, _ in self.held for part in combo.parts)
        return list(dict.fromkeys(pool.engine for pool in pools if pool is not None and pool.engine))

    @property
    def is_disaggregated(self) -> bool:
        """Whether any combo has its phases on separate instances."""
        return any(combo.prefill is not None for combo, _ in self.held)


def measure_options(
    scenario: RentScenario, prices: Sequence[PhasePrice], way: str, progress: Progress
) -> RentOptions:
    """Return the options with a goodput above 0, by replay; ValueError if there is none.

    The named engines of the config are all among them, so they displace no other option.
    """
    load, candidates = scenario.load, list[Combo]()
    if way != "apart":
        for gpu in dict.fromkeys(price.gpu for price in prices):
            of_gpu = combos.colocated_combos(price for price in prices if price.gpu == gpu)
            candidates += combos.filter_combos(of_gpu, load, OF_EACH_GPU)
        candidates += combos.colocated_combos(engine_prices(scenario))
    if way != "together":
        candidates += teams_worth_trying(scenario, prices)
    options = []
    for combo in progress.each("goodput of options", candidates):
        rate = combo_goodput(scenario, combo)
        options += [(combo, rate)] if rate > 0 else []
    if not options:
        raise ValueError(
            f"No instance of these GPU types meets the targets of {scenario.tier_name} "
            f"({describe_targets(scenario.tier)}). Loosen them, or name other types with --gpus."
        )
    return options


def teams_worth_trying(scenario: RentScenario, prices: Sequence[PhasePrice]) -> list[Combo]:
    """Return the disaggregated combos worth a replay, best first."""
    linked = [price for price in prices if price.link_token_s]
    return combos.filter_combos(
        combos.disaggregated_combos(linked, PREFILL_INSTANCES, DECODE_INSTANCES), scenario.load, MAX_COMBOS
    )


def choose_opportunism(
    scenario: RentScenario, prices: Sequence[PhasePrice], way: str, progress: Progress
) -> RentScenario:
    """Return the scenario with the opportunism (off or a weight) that gives the best combo most goodput.

    With opportunism a request may start at its decode instance, or stay at its prefill instance
    (models/replay).
    """
    if way == "together" or not (teams := teams_worth_trying(scenario, prices)):
        return scenario
    rules = [replace_given(scenario.config.replay, opportunism="off")]
    rules += [
        replace_given(scenario.config.replay, opportunism="weighted", opportunism_weight=weight)
        for weight in KEEP_WEIGHTS
    ]
    scenarios = [scenario._replace(config=replace(scenario.config, replay=rule)) for rule in rules]
    rates = []
    for candidate in progress.each("weight of opportunism", scenarios):
        rates.append(combo_goodput(candidate, teams[0]))
    return scenarios[int(np.argmax(rates))]


def combo_goodput(scenario: RentScenario, combo: Combo) -> float:
    """Return the goodput of one combo in requests/s within the targets, by replay."""
    [llm] = scenario.catalogue.llms
    inputs, outputs = scenario.mix.input_tokens, scenario.mix.output_tokens
    return goodput_per_s(
        llm, team_pools(scenario, combo), scenario.catalogue, scenario.config, scenario.tier, inputs, outputs,
        combo.per_s(scenario.load),
    )  # fmt: skip


def team_pools(
    scenario: RentScenario, combo: Combo, count: int = 1, name: str | None = None, weight: float = 1.0
) -> list[tuple[Deployment, int]]:
    """Return the pools of `count` combos with their instances; KV transfers stay within a combo's pools."""
    [llm] = scenario.catalogue.llms

    def pool(part: ComboPart, role: str, team: int = 0) -> Deployment:
        if part.price.engine_pool is not None:
            return replace(part.price.engine_pool, weight=weight)
        gpu, gpus = part.price.gpu, part.price.gpus
        largest = largest_batch(scenario.catalogue.profile(llm, gpu, gpus))
        return Deployment(gpu, gpus, role=role, weight=weight, team=team, max_batch=largest)

    if combo.prefill is None:
        return [(pool(combo.decode, "whole"), count * combo.decode.instances)]
    prefill = replace(pool(combo.prefill, "prefill", combo.prefill.instances), then=name)
    decode = replace(pool(combo.decode, "decode", combo.decode.instances), name=name)
    return [(prefill, count * combo.prefill.instances), (decode, count * combo.decode.instances)]


def options_of_kind(kind: str, options: RentOptions) -> list[RentOptions]:
    """Return the sets of options among which the best fleet of a kind is searched."""
    colocated = [(combo, rate) for combo, rate in options if combo.prefill is None]
    if kind == "one_type":
        types = dict.fromkeys(combo.decode.price.gpu for combo, _ in colocated)
        return [[option for option in colocated if option[0].decode.price.gpu == gpu] for gpu in types]
    return [colocated if kind == "mixed_types" else options]


def best_fleet(
    scenario: RentScenario, offers: Sequence[RentOptions], caps: Mapping[str, int], hour: BusiestHour
) -> tuple[RentedFleet | None, str]:
    """Return the cheapest fleet of these offers that attains the target; else why they are short of GPUs."""
    found, short = list[RentedFleet](), ""
    for options in offers:
        if not options:
            continue
        fleet, missing = cheapest_attaining_fleet(scenario, options, caps, hour)
        short = missing or short
        found += [fleet] if fleet is not None else []
    target = scenario.tier.attainment_target_share
    found.sort(key=lambda fleet: (fleet.met.attainment_share < target, fleet.usd_per_hour))
    return (found[0], "") if found else (None, short)


def cheapest_attaining_fleet(
    scenario: RentScenario, options: RentOptions, caps: Mapping[str, int], hour: BusiestHour
) -> tuple[RentedFleet | None, str]:
    """Return `smallest_attaining_fleet` of these options for all requests together."""
    replayed = dict[tuple[int, ...], RentedFleet]()

    def replay(rented: RentalPlan) -> RentedFleet:
        counts = tuple(int(n) for n in rented.counts)
        if counts not in replayed:
            replayed[counts] = replay_rented_fleet(scenario, options, rented, hour)
        return replayed[counts]

    return smallest_attaining_fleet(scenario, partial(solve_rented_counts, scenario, options, caps), replay)


def smallest_attaining_fleet(
    scenario: RentScenario,
    solve: Callable[[float], tuple[RentalPlan, str]],
    replay: Callable[[RentalPlan], RentedFleet],
) -> tuple[RentedFleet | None, str]:
    """Return the smallest fleet that attains the target in the busiest hour, else that attains most.

    None where the load itself cannot be served, with the sentence about the shortage. `solve`: returns the
    plan for a multiple of the load, and a sentence about any shortage.
    """
    target, fleets = scenario.tier.attainment_target_share, list[RentedFleet]()
    for factor in FACTORS:  # more load costs more, so the first fleet that attains is the cheapest
        rented, short = solve(factor)
        if short and factor <= 1:
            return None, solve(1.0)[1]
        if short:
            break
        fleets.append(replay(rented))
        if fleets[-1].met.attainment_share >= target:
            return fleets[-1], ""
    return max(fleets, key=lambda fleet: fleet.met.attainment_share), ""


def build_rent_offer(options: RentOptions, caps: Mapping[str, int]) -> RentalOffer:
    """Return the offer of the program: options with their prices, GPUs and caps on GPUs."""
    gpus = tuple(dict.fromkeys(gpu for combo, _ in options for gpu in combo.uses))
    return RentalOffer(
        tuple(combo.title for combo, _ in options),
        gpus,
        np.array([combo.usd_per_hour for combo, _ in options]),
        np.array([[combo.uses.get(gpu, 0) for gpu in gpus] for combo, _ in options]),
        np.array([caps.get(gpu, NO_GPU_CAP) for gpu in gpus]),
    )


def solve_rented_counts(
    scenario: RentScenario, options: RentOptions, caps: Mapping[str, int], factor: float
) -> tuple[RentalPlan, str]:
    """Solve the program for the load times `factor`; return its plan and a sentence about any shortage."""
    offer = build_rent_offer(options, caps)
    rates = np.array([scenario.per_s * factor])
    rented = share_program.solve_shares(
        offer, rates, np.array([[rate for _, rate in options]]), options=EXACT_SOLVER
    )
    [llm] = scenario.catalogue.llms
    return rented, describe_shortage(offer, rented, rates, [llm])


def replay_rented_fleet(
    scenario: RentScenario, options: RentOptions, rented: RentalPlan, hour: BusiestHour
) -> RentedFleet:
    """Replay a rented fleet; requests are distributed to pools in proportion to their goodput."""
    combo_counts = [
        (combo, int(n), rate) for (combo, rate), n in zip(options, rented.counts, strict=True) if n
    ]
    pools = [
        pool
        for n, (combo, count, rate) in enumerate(combo_counts)
        for pool in team_pools(scenario, combo, count, f"team {n}", count * rate)
    ]
    met = replay_hour(scenario.catalogue, scenario.config, scenario.tier, pools, hour)
    return RentedFleet(
        tuple((combo, count) for combo, count, _ in combo_counts),
        tuple(rate for *_, rate in combo_counts),
        met,
        rented.usd_per_hour,
    )
