"""Plans of who answers what, replayed whole: questions arrive, llms answer, judges send on.

The questions are the requests; every leg has the tokens of its llm's answer. Of a question the last answer
that was made counts, from when it was found good.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.quality.answers import JudgedAnswers
from fleetcast.models.replay.kernel_inputs import NO_INDEX, Rules, TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.answer_legs import (
    CascadeLayout,
    Legs,
    cascade_legs,
    legs_to_trace,
    routed_legs_with_shadows,
)
from fleetcast.models.replay.session.legs import answer_rows, leg_begin_s
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.trials.capacity import fixed_fleet
from fleetcast.models.trials.latency_curves import ReplicaShape
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.mechanisms import Ending, PoolSpread


class RoutingPlan(NamedTuple):
    """A plan that can be played: pools, and who answers."""

    rule: str  # cascade or route
    thresholds: tuple[float, ...]  # of the llms but the last
    pools: Mapping[
        ReplicaShape, tuple[int, float]
    ]  # instances, and the weight of the pool among those of its llm
    judge_s: float  # of a judge outside
    judge_llm: str | None = None  # that judges, in a pool of its own; None: the judge is outside
    rubric_tokens: int = 0  # that it reads besides prompt and answer
    shadow_share: float = 0.0  # of the questions, that all llms answer


class RoutingOutcome(NamedTuple):
    """What became of N questions."""

    answer_latency_s: (
        Floats  # (N,) from arrival to when the answer that counts is there, and found good; inf: never
    )
    score: Floats  # (N,) of the answer that counts; 0: none
    kept: Ints  # (N,) the llm whose answer counts, by its place
    llms: tuple[
        str, ...
    ]  # that serve, from the smallest to the largest; last the judge, if it is one of ours
    leg_s: list[Floats]  # of each llm, from when it was asked to its last token
    shadow_legs: list[int]  # of each llm, legs that nobody waited for

    @property
    def p95_s(self) -> float:
        """Seconds within which 95 % of the questions are answered."""
        return float(np.quantile(self.answer_latency_s, 0.95, method="higher"))

    @property
    def quality(self) -> float:
        """The mean score."""
        return float(self.score.mean())

    def intervals(
        self, draws: int = 200, blocks: int = 40
    ) -> tuple[tuple[float, float], tuple[float, float]]:
        """95 % of P95 and of quality, by a bootstrap of blocks of questions in a row."""
        rng = np.random.default_rng(0xB007)
        place = np.array_split(np.arange(self.answer_latency_s.size), blocks)
        found = np.empty((draws, 2))
        for n, some in enumerate(rng.integers(0, blocks, (draws, blocks))):
            rows = np.concatenate([place[b] for b in some])
            found[n] = (
                np.quantile(self.answer_latency_s[rows], 0.95, method="higher"),
                self.score[rows].mean(),
            )
        low, high = np.quantile(found, (0.025, 0.975), axis=0, method="nearest")
        return (float(low[0]), float(high[0])), (float(low[1]), float(high[1]))


def poisson_arrivals_s(requests: int, requests_per_s: float, seed: int) -> Floats:
    """Poisson arrivals at a mean rate."""
    return np.cumsum(np.random.default_rng([seed, 0xA221]).exponential(1 / requests_per_s, requests))


def replay_routing_plan(
    serving: RoutingPlan, answers: JudgedAnswers, arrival_s: Floats, catalogue: Catalogue, config: RunConfig
) -> RoutingOutcome:
    """Play a plan on questions that arrive at these times, shape (N,).

    What a router would send to an llm without instances goes to the next larger one, else to the largest.
    """
    llms = [llm for llm in answers.llms if any(shape.llm == llm for shape in serving.pools)]
    judges = sorted({shape.llm for shape in serving.pools} & {serving.judge_llm or ""})
    world = catalogue.serving([*llms, *judges])
    pools: dict[str, list[tuple[Deployment, int]]] = {llm: [] for llm in world.llms}
    for shape, (count, weight) in serving.pools.items():
        pools[shape.llm].append((replace(shape.deployment, weight=weight), count))
    fleet = fixed_fleet(pools, world, config)
    codes = np.array([list(world.llms).index(llm) for llm in (*llms, *judges)])
    limits = np.array(serving.thresholds[: len(llms) - 1])
    judge = int(codes[-1]) if judges else int(NO_INDEX)
    plan = CascadeLayout(limits, codes[: len(llms)], judge, serving.rubric_tokens, serving.shadow_share)
    some = answers.of(llms)
    legs = routing_plan_legs(serving, plan, answers, some)
    trace = legs_to_trace(legs, plan, some, arrival_s)
    rules = apply_thresholds(make_rules(world, config.replay, "follow"), serving, plan)
    until_s = float(arrival_s[-1]) + 1.0
    drive = Schedule(np.diff(fleet.slots), hour_s=until_s)
    outcome = replay_trace(trace, fleet._replace(has_transfers=bool(trace.leg.size)), drive, rules, until_s)
    return routing_outcome(legs, trace, rules, outcome, some, (*llms, *judges), codes)


def routing_plan_legs(
    serving: RoutingPlan, plan: CascadeLayout, answers: JudgedAnswers, some: JudgedAnswers
) -> Legs:
    """The legs of the questions under the plan's rule, with their shadows; `some`: of the llms that serve."""
    if serving.rule == "cascade":
        return cascade_legs(plan, some)
    asked = np.searchsorted(serving.thresholds, answers.hardness, side="right")
    places = np.array([answers.llms.index(llm) for llm in some.llms])
    chosen = np.minimum(np.searchsorted(places, asked), len(some.llms) - 1)
    return routed_legs_with_shadows(plan, chosen, len(some.llms))


def apply_thresholds(rules: Rules, serving: RoutingPlan, plan: CascadeLayout) -> Rules:
    """Rules by which an answer below its llm's threshold is followed by the next leg.

    A judge of ours holds the verdict of each answer as a score around zero.
    """
    below, judge_s = np.zeros(rules.go_on_below.size), np.zeros(rules.go_on_below.size)
    if serving.rule == "cascade" and plan.judge == NO_INDEX:
        below[plan.codes[:-1]] = plan.thresholds
        judge_s[plan.codes[:-1]] = serving.judge_s
    return rules._replace(
        go_on_below=below, judge_s=judge_s, spread=PoolSpread.WEIGHTS, route_utilisation_share=1.0
    )


def routing_outcome(
    legs: Legs,
    trace: TraceArrays,
    rules: Rules,
    outcome: Outcome,
    answers: JudgedAnswers,
    llms: Sequence[str],
    codes: Ints,
) -> RoutingOutcome:
    """What the outcome says of each question; `answers` are those of the llms that answer."""
    ended = outcome.status == Ending.FINISHED
    row = answer_rows(trace, outcome)  # of an answer that was accepted, or of the verdict of a judge of ours
    row = np.arange(trace.arrival_s.size) if isinstance(row, slice) else row
    row = row[~legs.is_shadow[row]]
    kept, done = legs.place[row], ended[row]
    score = np.take_along_axis(answers.score, kept[:, None], axis=1)[:, 0]
    spent_s = outcome.finish_s - leg_begin_s(trace, rules, outcome)
    counted = ended & ~legs.is_shadow
    judging_s = np.where(legs.has_next_leg[row], rules.judge_s[trace.llm[row]], 0.0)
    return RoutingOutcome(
        np.where(done, outcome.finish_s[row] + judging_s - trace.arrival_s[row], np.inf),
        np.where(done, score, 0.0),
        kept,
        tuple(llms),
        [spent_s[counted & (trace.llm == code)] for code in codes],
        [int((legs.is_shadow & (trace.llm == code)).sum()) for code in codes],
    )


def weighted_pools(
    shapes: Sequence[ReplicaShape], instances: Ints, carries: Floats
) -> dict[ReplicaShape, tuple[int, float]]:
    """The pools of a plan; each is dealt as much as its replicas carry."""
    return {
        shape: (int(count), float(count * carry))
        for shape, count, carry in zip(shapes, instances, carries, strict=True)
        if count > 0
    }
