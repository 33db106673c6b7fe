"""Replay of model routing plans: requests arrive, llms answer, and judged answers may go on to the next llm.

Every leg has the tokens of its llm's answer. The last answer that was made counts, from when it was accepted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.quality.answers import JudgedAnswers
from fleetcast.models.replay.kernel_inputs import NO_INDEX, Rules, TraceArrays
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
from fleetcast.models.trials.capacity import fixed_fleet, replay_fixed_fleet
from fleetcast.models.trials.latency_curves import ReplicaShape
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.mechanisms import Ending, PoolSpread


class RoutingPlan(NamedTuple):
    """A plan that can be replayed: pools, and the rule that chooses the serving model.

    rule : cascade or route
    thresholds : of all llms but the last
    pools : for each shape, instances and the weight of the pool among those of its llm
    judge_s : seconds of an external judge
    judge_llm : llm that judges, in a separate pool; None: the judge is external
    rubric_tokens : that this llm reads in addition to prompt and answer
    shadow_share : of the requests, that all llms answer
    """

    rule: str
    thresholds: tuple[float, ...]
    pools: Mapping[ReplicaShape, tuple[int, float]]
    judge_s: float
    judge_llm: str | None = None
    rubric_tokens: int = 0
    shadow_share: float = 0.0


class RoutingOutcome(NamedTuple):
    """Outcome of N requests.

    answer_latency_s : shape (N,), seconds from arrival until the answer that counts is accepted; inf: never
    score : shape (N,), of the answer that counts; 0: none
    kept : shape (N,), position of the llm whose answer counts
    llms : the serving ones, from the smallest to the largest; last the judge, if it is an llm of the fleet
    leg_s : of each llm, shape (its legs,), seconds from the start of a leg to its last token
    shadow_legs : of each llm, legs for which no user waits
    """

    answer_latency_s: Floats
    score: Floats
    kept: Ints
    llms: tuple[str, ...]
    leg_s: list[Floats]
    shadow_legs: list[int]

    @property
    def p95_s(self) -> float:
        """Seconds within which 95 % of the requests are answered."""
        return float(np.quantile(self.answer_latency_s, 0.95, method="higher"))

    @property
    def quality(self) -> float:
        """Mean score of the answers that count."""
        return float(self.score.mean())

    def intervals(
        self, draws: int = 200, blocks: int = 40
    ) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return 95 % intervals of P95 and of quality, by a bootstrap over blocks of consecutive requests."""
        rng = np.random.default_rng(0xB007)
        rows_of_block = np.array_split(np.arange(self.answer_latency_s.size), blocks)
        resampled = np.empty((draws, 2))
        for n, picks in enumerate(rng.integers(0, blocks, (draws, blocks))):
            rows = np.concatenate([rows_of_block[block] for block in picks])
            resampled[n] = (
                np.quantile(self.answer_latency_s[rows], 0.95, method="higher"),
                self.score[rows].mean(),
            )
        low, high = np.quantile(resampled, (0.025, 0.975), axis=0, method="nearest")
        return (float(low[0]), float(high[0])), (float(low[1]), float(high[1]))


def poisson_arrivals_s(requests: int, requests_per_s: float, seed: int) -> Floats:
    """Sample Poisson arrivals at a mean rate, shape (requests,), seconds."""
    return np.cumsum(np.random.default_rng([seed, 0xA221]).exponential(1 / requests_per_s, requests))


def replay_routing_plan(
    serving: RoutingPlan, answers: JudgedAnswers, arrival_s: Floats, catalogue: Catalogue, config: RunConfig
) -> RoutingOutcome:
    """Replay a plan on requests that arrive at these times, shape (N,), seconds.

    A request routed to an llm without instances goes to the next larger one with some, else to the largest.
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
    served_answers = answers.of(llms)
    legs = routing_plan_legs(serving, plan, answers, served_answers)
    trace = legs_to_trace(legs, plan, served_answers, arrival_s)
    rules = apply_thresholds(make_rules(world, config.replay, "follow"), serving, plan)
    until_s = float(arrival_s[-1]) + 1.0
    fleet = fleet._replace(has_transfers=bool(trace.leg.size))
    outcome = replay_fixed_fleet(trace, fleet, rules, until_s)
    return routing_outcome(legs, trace, rules, outcome, served_answers, (*llms, *judges), codes)


def routing_plan_legs(
    serving: RoutingPlan, plan: CascadeLayout, answers: JudgedAnswers, served_answers: JudgedAnswers
) -> Legs:
    """Return the legs of the requests under the plan's rule, with shadow legs.

    `answers` are those of all llms, `served_answers` those of the llms with instances.
    """
    if serving.rule == "cascade":
        return cascade_legs(plan, served_answers)
    wanted = np.searchsorted(serving.thresholds, answers.hardness, side="right")
    places = np.array([answers.llms.index(llm) for llm in served_answers.llms])
    chosen = np.minimum(np.searchsorted(places, wanted), len(served_answers.llms) - 1)
    return routed_legs_with_shadows(plan, chosen, len(served_answers.llms))


def apply_thresholds(rules: Rules, serving: RoutingPlan, plan: CascadeLayout) -> Rules:
    """Return the rules with the plan's thresholds: an answer below that of its llm goes on to the next leg.

    With an llm of the fleet as judge the thresholds are zero, as its legs have the score minus the threshold.
    """
    below, judge_s = np.zeros(rules.go_on_below.size), np.zeros(rules.go_on_below.size)
    if serving.rule == "cascade" and plan.judge == NO_INDEX:
        below[plan.codes[:-1]] = plan.thresholds
        judge_s[plan.codes[:-1]] = serving.judge_s
    return rules._replace(
        go_on_below=below, judge_s=judge_s, spread=int(PoolSpread.WEIGHTS), route_utilisation_share=1.0
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
    """Return the outcome by request of a replay; `answers` are those of the serving llms.

    `codes`: shape (llms,), index of each of `llms` in the replay's catalogue.
    """
    ended = outcome.status == Ending.FINISHED
    # The row of an accepted answer, or the leg of an llm that judged it.
    row = answer_rows(trace, outcome)
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
    """Return the pools of a plan, each weighted by what its replicas carry.

    instances : shape (shapes,)
    carries : shape (shapes,), requests/s of one replica
    """
    return {
        shape: (int(count), float(count * carry))
        for shape, count, carry in zip(shapes, instances, carries, strict=True)
        if count > 0
    }
