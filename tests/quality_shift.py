"""A cascade whose load shifts: a plan that stays, gears, a valve, and plans made anew (Cascadia 4.4, G).

Between control rows a controller looks at what came: every LOOK_S the rate, and of SAMPLED answers of the
first llm their mean length and how many would be sent on. Where one has left the band around what the plan
was made for, a new plan is made from the answers that all llms gave to a share of the requests (SHADOW_SHARE:
extra requests that no one waits for). It is there SOLVE_S later, and the fleet follows one instance at a
time. Gears and valve leave the fleet alone and move the threshold (quality_gears.py).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.plans.quality_offers import JudgeSetup, measure_quality_offer, routing_points
from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.quality_milp import PointPlan, QualityDemand, QualityOffer
from fleetcast.models.plan.quality_objectives import least_cost_plan
from fleetcast.models.quality.answers import JudgedAnswers
from fleetcast.models.quality.judges import Judge
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.run import Schedule, Session
from fleetcast.models.replay.session.answer_legs import CascadeLayout as Chains
from fleetcast.models.replay.session.answer_legs import Legs, add_shadow_legs, chain_legs, legs_to_trace
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.trials.capacity import fixed_fleet
from fleetcast.models.trials.latency_curves import ReplicaShape
from fleetcast.models.trials.model_routing import RoutingOutcome, routing_outcome
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import RunConfig

ROW_S, LOOK_S, SOLVE_S = 20.0, 300.0, 20.0  # a control row is also what one instance's change takes
SAMPLED, SHADOW_SHARE = 50, 0.05
RATE_BAND_SHARE, BAND_ERRORS = 0.15, 3.0  # of the rate; standard errors of lengths and scores
SPARE_SHARE = 0.05  # above the measured rate, that a plan is made for
POINTS = 25


class Service(NamedTuple):
    """What is served with: llms of `shapes` in order, as many GPUs as `gpus` of their one type."""

    shapes: Sequence[ReplicaShape]  # one of each llm
    gpus: int
    judge: Judge
    quality: float
    latency_s: float
    catalogue: Catalogue
    config: RunConfig


class Load(NamedTuple):
    """What comes: questions with their arrivals, in phases."""

    answers: JudgedAnswers
    arrival_s: Floats  # (N,)
    phase: Ints  # (N,)


class Plan(NamedTuple):
    """Instances, thresholds, and what they were made for."""

    instances: Ints  # (M,) of each llm
    thresholds: Floats  # (M-1,)
    requests_per_s: float
    output_tokens: float  # mean of the first llm's answers
    deviation_tokens: float
    go_on_share: float


class Played(NamedTuple):
    """What came of a policy."""

    served: RoutingOutcome
    usd_per_hour: float
    plans: int  # made on the way


class Phase(NamedTuple):
    """A part of the load."""

    seconds: float
    requests_per_s: float
    hardness: float = 0.0  # h: a question is drawn by e^(h rank) of the length of its first answer


def loaded(drawn: JudgedAnswers, phases: Sequence[Phase], seed: int) -> Load:
    """Poisson arrivals phase by phase."""
    rng, found, begin_s = np.random.default_rng([seed, 0x5B1F]), [], 0.0
    rank = np.argsort(np.argsort(drawn.output_tokens[:, 0])) / len(drawn.input_tokens)
    for n, (phase_s, rate, hardness) in enumerate(phases):
        arrival_s = begin_s + np.sort(rng.uniform(0, phase_s, rng.poisson(rate * phase_s)))
        weight = np.exp(hardness * rank)
        picked = rng.choice(rank.size, arrival_s.size, p=weight / weight.sum())
        found.append((arrival_s, picked, np.full(arrival_s.size, n)))
        begin_s += phase_s
    arrival_s, picked, phase = (np.concatenate(column) for column in zip(*found, strict=True))
    return Load(drawn.rows(picked), arrival_s, phase)


def plan_for(
    service: Service, seen: JudgedAnswers, requests_per_s: float
) -> tuple[Plan, QualityOffer, PointPlan] | None:
    """The cheapest plan for what was seen; None where none keeps quality and latency."""
    grid = routing_points(seen, "cascade", POINTS)
    judging = JudgeSetup(service.judge)
    offer = measure_quality_offer(
        seen, "cascade", grid, service.shapes, service.catalogue, service.config, judging, Progress()
    )
    caps = np.full(len(service.catalogue.gpus), service.gpus)
    demand = QualityDemand((1 + SPARE_SHARE) * requests_per_s, caps)
    answer = least_cost_plan(offer, demand, service.quality, service.latency_s)
    if answer is None:
        return None
    first = seen.output_tokens[:, 0]
    thresholds = offer.thresholds[answer.point]
    return (
        Plan(
            answer.instances,
            thresholds,
            requests_per_s,
            float(first.mean()),
            float(first.std()),
            float((seen.judged[:, 0] < thresholds[0]).mean()),
        ),
        offer,
        answer,
    )


def has_shifted(plan: Plan, seen: JudgedAnswers, requests_per_s: float, rng: np.random.Generator) -> bool:
    """Whether rate, lengths or scores have left the band around what the plan was made for."""
    some = seen.rows(rng.choice(len(seen.input_tokens), min(SAMPLED, len(seen.input_tokens)), replace=False))
    error = BAND_ERRORS / np.sqrt(len(some.input_tokens))
    share = float((some.judged[:, 0] < plan.thresholds[0]).mean())
    spread = np.sqrt(max(plan.go_on_share * (1 - plan.go_on_share), 0.01))
    return (
        abs(requests_per_s / plan.requests_per_s - 1) > RATE_BAND_SHARE
        or abs(some.output_tokens[:, 0].mean() - plan.output_tokens) > error * plan.deviation_tokens
        or abs(share - plan.go_on_share) > error * spread
    )


def play(service: Service, load: Load, plan: Plan, rules: Rules, anew: bool) -> Played:
    """A policy on all of the load: the plan's fleet, and new plans on the way where `anew` says so.

    Where the rules have gears, these choose the thresholds, else the plans.
    """
    fleet = laid_out(service, plan)
    legs, trace = fed(load, SHADOW_SHARE if anew else 0.0)
    is_shadow = np.isin(np.arange(load.arrival_s.size), legs.question[legs.is_shadow])
    session = Session(fleet, rules, plan.instances)
    session.append_trace(trace)
    rows = int(np.ceil((load.arrival_s[-1] + 1.0) / ROW_S))
    rng, now, coming, due_row, made = np.random.default_rng(0x5EE), plan, plan, rows, 0
    target, spent = plan.instances.copy(), []
    for row in range(rows):
        at_s = row * ROW_S
        if anew and row and at_s % LOOK_S == 0:
            seen = (load.arrival_s >= at_s - LOOK_S) & (load.arrival_s < at_s)
            rate = float(seen.sum() / LOOK_S)
            if has_shifted(now, load.answers.rows(seen), rate, rng):
                shadows = np.flatnonzero(seen & is_shadow)
                if found := plan_for(service, load.answers.rows(shadows), rate):
                    coming, due_row, made = found[0], row + int(np.ceil(SOLVE_S / ROW_S)), made + 1
        if row == due_row:
            now = coming
        target = step_towards(target, now.instances, service)
        below = np.zeros((1, len(service.shapes)))
        below[0, :-1] = now.thresholds
        drive = Schedule(target[None], hour_s=ROW_S, go_on_below=None if rules.gear_from.size else below)
        spent.append(session.play(drive, at_s + ROW_S))
    session.finish(rows * ROW_S + 3600.0)
    outcome = session.outcome(*(np.concatenate(column) for column in zip(*spent, strict=True)))
    answers, codes = load.answers, np.arange(len(service.shapes))
    served = routing_outcome(legs, trace, rules, outcome, answers, answers.llms, codes)
    return Played(served, usd_per_hour(service, outcome), made)


def step_towards(target: Ints, wanted: Ints, service: Service) -> Ints:
    """One instance more where one lacks and has room, else one fewer where there are too many."""
    sizes = np.array([shape.gpus for shape in service.shapes])
    after = target.copy()
    for llm in np.flatnonzero(target < wanted)[::-1]:
        if target @ sizes + sizes[llm] <= service.gpus:
            after[llm] += 1
            return after
    for llm in np.flatnonzero(target > wanted):
        after[llm] -= 1
        return after
    return after


def laid_out(service: Service, plan: Plan) -> FleetArrays:
    """A fleet that may have any number of instances of each llm on all GPUs."""
    most = [service.gpus // shape.gpus for shape in service.shapes]
    pools = {
        shape.llm: [(shape.deployment, count)] for shape, count in zip(service.shapes, most, strict=True)
    }
    world = service.catalogue.serving(list(pools))
    if list(world.llms) != list(pools):
        raise ValueError(f"Name the llms in the catalogue's order: {', '.join(world.llms)}.")
    fleet = fixed_fleet(pools, world, service.config)
    gpu = fleet.gpu[fleet.kind[0]]
    cap = np.where(np.arange(fleet.cap_gpus.shape[1]) == gpu, service.gpus, 0)[None]
    return fleet._replace(
        has_transfers=True,
        cap_gpus=cap,
        instances_at_start=plan.instances.copy(),
        min_instances=np.ones_like(plan.instances),
        boot_cold_s=np.full(fleet.kind.size, ROW_S),
        boot_spot_s=np.full(1, ROW_S),
        boot_factor=np.ones_like(fleet.boot_factor),
    )


def fed(load: Load, shadow_share: float) -> tuple[Legs, TraceArrays]:
    """All llms in a chain, since thresholds move; next to them every later leg of a share of the
    questions.
    """
    llms = len(load.answers.llms)
    chains = Chains(np.ones(llms - 1), np.arange(llms), int(NO_INDEX), 0, shadow_share)
    is_first = np.broadcast_to(np.arange(llms) == 0, load.answers.score.shape)
    legs = add_shadow_legs(chain_legs(chains, load.answers), chains, is_first, is_first)
    return legs, legs_to_trace(legs, chains, load.answers, load.arrival_s)


def usd_per_hour(service: Service, outcome: Outcome) -> float:
    """What the instances cost that serve, boot or drain."""
    sizes = np.array([shape.gpus for shape in service.shapes])
    held_s = outcome.instance_s[:, :, :3].sum(axis=(0, 2))
    usd = service.catalogue.gpus[service.shapes[0].gpu].usd_per_hour
    return float(held_s @ sizes) * usd / (outcome.instance_s.shape[0] * ROW_S)
