"""The options that may be rented, with their goodput by replay, and the best fleet of each kind.

How many of which option is said by models/plan/share_program.py. What the whole fleet attains is a replay
of the
busiest hour that is known, as fast as the peak to come. The programme is asked for a part of the load, then
for more and more, until the replayed fleet attains its target: at equal attainment fleets are compared by
cost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.studies.rent_hour import BusiestHour, HourResult, replay_hour
from fleetcast.assets.studies.rent_query import RentScenario, describe_targets, largest_batch
from fleetcast.models.plan import combos, share_program
from fleetcast.models.plan.combos import Combo, ComboPart
from fleetcast.models.plan.phase_costs import PhasePrice
from fleetcast.models.plan.rental import EXACT_SOLVER, NO_GPU_CAP, RentalOffer, RentalPlan, describe_shortage
from fleetcast.models.trials.goodput import goodput_per_s
from fleetcast.models.world.config import replace_given
from fleetcast.models.world.fleet_config import Deployment

PREFILL_INSTANCES, DECODE_INSTANCES = range(1, 3), range(1, 7)  # of a combo: Cauchy, 3.3.2
MAX_COMBOS = 12  # combos whose goodput is measured: Cauchy, 3.3.2
OF_EACH_GPU = 2  # numbers of GPUs of an instance that does both phases
KEEP_WEIGHTS = (1.0, 1.5, 2.0, 3.0, 5.0)  # of opportunism, that are tried
FACTORS = tuple(1.03**step for step in range(-8, 9))  # of the load, that the programme is asked for
RENT_FLEET_KINDS = ("one_type", "mixed_types", "combos")
RentOptions = Sequence[tuple[Combo, float]]  # with goodput, requests/s of one


class RentedFleet(NamedTuple):
    """A fleet that stands all day, and what it met in the busiest hour."""

    held: tuple[tuple[Combo, int], ...]
    goodputs: tuple[float, ...]  # requests/s of one of each
    met: HourResult
    usd_per_hour: float

    @property
    def gpus(self) -> dict[str, int]:
        """GPUs by type."""
        sums: dict[str, int] = {}
        for combo, count in self.held:
            for gpu, size in combo.uses.items():
                sums[gpu] = sums.get(gpu, 0) + count * size
        return sums

    @property
    def is_disaggregated(self) -> bool:
        """Whether any of it has its phases apart."""
        return any(combo.prefill is not None for combo, _ in self.held)


def measure_options(
    setting: RentScenario, known: Sequence[PhasePrice], way: str, progress: Progress
) -> RentOptions:
    """The options worth trying, each with its goodput by replay; those of 0 are left out."""
    load, candidates = setting.load, list[Combo]()
    if way != "apart":
        for gpu in dict.fromkeys(price.gpu for price in known):
            own = combos.colocated_combos(price for price in known if price.gpu == gpu)
            candidates += combos.filter_combos(own, load, OF_EACH_GPU)
    if way != "together":
        candidates += teams_worth_trying(setting, known)
    options = []
    with progress.bar("goodput of options", len(candidates)) as done:
        for n, combo in enumerate(candidates, start=1):
            rate = combo_goodput(setting, combo)
            options += [(combo, rate)] if rate > 0 else []
            done(n)
    if not options:
        raise ValueError(
            f"No instance of these GPU types meets the targets of {setting.tier_name} "
            f"({describe_targets(setting.tier)}). Loosen them, or name other types with --gpus."
        )
    return options


def teams_worth_trying(setting: RentScenario, known: Sequence[PhasePrice]) -> list[Combo]:
    """The combos whose phases are apart, best first."""
    linked = [price for price in known if price.link_token_s]
    return combos.filter_combos(
        combos.disaggregated_combos(linked, PREFILL_INSTANCES, DECODE_INSTANCES), setting.load, MAX_COMBOS
    )


def choose_opportunism(
    setting: RentScenario, known: Sequence[PhasePrice], way: str, progress: Progress
) -> RentScenario:
    """The setting under the opportunism with which the best team serves most, by replay: off, or a weight.

    Requests may begin where they will decode, and stay where they were prefilled (models/replay).
    """
    if way == "together" or not (teams := teams_worth_trying(setting, known)):
        return setting
    ways = [replace_given(setting.config.replay, opportunism="off")]
    ways += [
        replace_given(setting.config.replay, opportunism="weighted", opportunism_weight=weight)
        for weight in KEEP_WEIGHTS
    ]
    tried = [setting._replace(config=replace(setting.config, replay=way)) for way in ways]
    with progress.bar("weight of opportunism", len(tried)) as done:
        rates = []
        for n, one in enumerate(tried, start=1):
            rates.append(combo_goodput(one, teams[0]))
            done(n)
    return tried[int(np.argmax(rates))]


def combo_goodput(setting: RentScenario, combo: Combo) -> float:
    """Requests/s of one combo within its targets, by replay."""
    [llm] = setting.catalogue.llms
    inputs, outputs = setting.mix.input_tokens, setting.mix.output_tokens
    return goodput_per_s(
        llm, team_pools(setting, combo), setting.catalogue, setting.config, setting.tier, inputs, outputs,
        combo.per_s(setting.load),
    )  # fmt: skip


def team_pools(
    setting: RentScenario, combo: Combo, count: int = 1, name: str | None = None, weight: float = 1.0
) -> list[tuple[Deployment, int]]:
    """The pools of so many combos, with their instances: whole teams, which hand on among themselves."""
    [llm] = setting.catalogue.llms

    def pool(part: ComboPart, role: str, team: int = 0) -> Deployment:
        gpu, gpus = part.price.gpu, part.price.gpus
        largest = largest_batch(setting.catalogue.profile(llm, gpu, gpus))
        return Deployment(gpu, gpus, role=role, weight=weight, team=team, max_batch=largest)

    if combo.prefill is None:
        return [(pool(combo.decode, "whole"), count * combo.decode.instances)]
    first = replace(pool(combo.prefill, "prefill", combo.prefill.instances), then=name)
    last = replace(pool(combo.decode, "decode", combo.decode.instances), name=name)
    return [(first, count * combo.prefill.instances), (last, count * combo.decode.instances)]


def options_of_kind(kind: str, options: RentOptions) -> list[RentOptions]:
    """The offers among which the best fleet of a kind is sought."""
    mixed = [(combo, rate) for combo, rate in options if combo.prefill is None]
    if kind == "one_type":
        types = dict.fromkeys(combo.decode.price.gpu for combo, _ in mixed)
        return [[one for one in mixed if one[0].decode.price.gpu == gpu] for gpu in types]
    return [mixed if kind == "mixed_types" else options]


def best_fleet(
    setting: RentScenario, offers: Sequence[RentOptions], caps: Mapping[str, int], hour: BusiestHour
) -> tuple[RentedFleet | None, str]:
    """The cheapest fleet of these offers that attains the target; else who is short."""
    found, short = list[RentedFleet](), ""
    for options in offers:
        if not options:
            continue
        fleet, missing = cheapest_attaining_fleet(setting, options, caps, hour)
        short = missing or short
        found += [fleet] if fleet is not None else []
    target = setting.tier.attainment_target_share
    found.sort(key=lambda fleet: (fleet.met.attainment_share < target, fleet.usd_per_hour))
    return (found[0], "") if found else (None, short)


def cheapest_attaining_fleet(
    setting: RentScenario, options: RentOptions, caps: Mapping[str, int], hour: BusiestHour
) -> tuple[RentedFleet | None, str]:
    """The least fleet of these options that attains the target in the busiest hour; else the one nearest."""
    target, tried = setting.tier.attainment_target_share, dict[tuple[int, ...], RentedFleet]()
    for factor in FACTORS:  # who is asked for more costs more: the first that attains is the cheapest
        rented, short = solve_rented_counts(setting, options, caps, factor)
        if short and factor <= 1:
            return None, solve_rented_counts(setting, options, caps, 1.0)[1]
        if short:
            break
        counts = tuple(int(n) for n in rented.counts)
        if counts not in tried:
            tried[counts] = replay_rented_fleet(setting, options, rented, hour)
        if tried[counts].met.attainment_share >= target:
            return tried[counts], ""
    return max(tried.values(), key=lambda fleet: fleet.met.attainment_share), ""


def build_rent_offer(options: RentOptions, caps: Mapping[str, int]) -> RentalOffer:
    """What may be rented: the options with their prices, GPUs and the caps on these."""
    gpus = tuple(dict.fromkeys(gpu for combo, _ in options for gpu in combo.uses))
    return RentalOffer(
        tuple(combo.title for combo, _ in options),
        gpus,
        np.array([combo.usd_per_hour for combo, _ in options]),
        np.array([[combo.uses.get(gpu, 0) for gpu in gpus] for combo, _ in options]),
        np.array([caps.get(gpu, NO_GPU_CAP) for gpu in gpus]),
    )


def solve_rented_counts(
    setting: RentScenario, options: RentOptions, caps: Mapping[str, int], factor: float
) -> tuple[RentalPlan, str]:
    """The programme's choice for the load times `factor`, and who is short."""
    offer = build_rent_offer(options, caps)
    rates = np.array([setting.per_s * factor])
    rented = share_program.solve_shares(
        offer, rates, np.array([[rate for _, rate in options]]), options=EXACT_SOLVER
    )
    [llm] = setting.catalogue.llms
    return rented, describe_shortage(offer, rented, rates, [llm])


def replay_rented_fleet(
    setting: RentScenario, options: RentOptions, rented: RentalPlan, hour: BusiestHour
) -> RentedFleet:
    """The chosen fleet, replayed; each pool gets its share of the requests by what it sustains."""
    held = [(combo, int(n), rate) for (combo, rate), n in zip(options, rented.counts, strict=True) if n]
    pools = [
        one
        for n, (combo, count, rate) in enumerate(held)
        for one in team_pools(setting, combo, count, f"team {n}", count * rate)
    ]
    met = replay_hour(setting.catalogue, setting.config, setting.tier, pools, hour)
    return RentedFleet(
        tuple((combo, count) for combo, count, _ in held),
        tuple(rate for *_, rate in held),
        met,
        rented.usd_per_hour,
    )
