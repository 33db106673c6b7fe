"""Plans of who answers what, replayed whole: questions arrive, llms answer, judges send on.

The questions are the requests; every leg has the tokens of its llm's answer. Of a question the last answer
that was made counts.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from models.quality.answers import Answers, Floats, Ints
from models.replay.capacity import standing_fleet
from models.replay.fleet import make_rules
from models.replay.legs import answers as answer_rows
from models.replay.legs import begun_s
from models.replay.performance import Shape
from models.replay.run import FINISHED, Drive, Outcome, replay
from models.replay.spread import WEIGHTS
from models.replay.state import NOBODY, Rules, Trace
from models.world.catalogue import Catalogue
from models.world.config import Config, Deployment


class Serving(NamedTuple):
    """A plan that can be played: pools, and who answers."""

    rule: str  # cascade or route
    thresholds: tuple[float, ...]  # of the llms but the last
    pools: Mapping[Shape, tuple[int, float]]  # instances, and the weight of the pool among those of its llm
    judge_s: float


class Served(NamedTuple):
    """What became of N questions."""

    took_s: Floats  # (N,) from arrival to the last token that counts; inf: never
    score: Floats  # (N,) of the answer that counts; 0: none
    kept: Ints  # (N,) the llm whose answer counts
    leg_s: list[Floats]  # of each llm that serves, from when it was asked to its last token

    @property
    def p95_s(self) -> float:
        """Seconds within which 95 % of the questions are answered."""
        return float(np.quantile(self.took_s, 0.95, method="higher"))

    @property
    def quality(self) -> float:
        """The mean score."""
        return float(self.score.mean())

    def intervals(
        self, draws: int = 200, blocks: int = 40
    ) -> tuple[tuple[float, float], tuple[float, float]]:
        """95 % of P95 and of quality, by a bootstrap of blocks of questions in a row."""
        rng = np.random.default_rng(0xB007)
        place = np.array_split(np.arange(self.took_s.size), blocks)
        found = np.empty((draws, 2))
        for n, some in enumerate(rng.integers(0, blocks, (draws, blocks))):
            rows = np.concatenate([place[b] for b in some])
            found[n] = np.quantile(self.took_s[rows], 0.95, method="higher"), self.score[rows].mean()
        low, high = np.quantile(found, (0.025, 0.975), axis=0, method="nearest")
        return (float(low[0]), float(high[0])), (float(low[1]), float(high[1]))


def arrivals_s(requests: int, requests_per_s: float, seed: int) -> Floats:
    """Poisson arrivals at a mean rate."""
    return np.cumsum(np.random.default_rng([seed, 0xA221]).exponential(1 / requests_per_s, requests))


def served(
    serving: Serving, answers: Answers, arrival_s: Floats, catalogue: Catalogue, config: Config
) -> Served:
    """Play a plan on questions that arrive at these times, shape (N,).

    What a router would send to an llm without instances goes to the next larger one, else to the largest.
    """
    llms = [llm for llm in answers.llms if any(shape.llm == llm for shape in serving.pools)]
    world = catalogue.serving(llms)
    pools: dict[str, list[tuple[Deployment, int]]] = {llm: [] for llm in world.llms}
    for shape, (count, weight) in serving.pools.items():
        deployment = shape.deployment
        pools[shape.llm].append((_weighted(deployment, weight), count))
    fleet = standing_fleet(pools, world, config)
    codes = np.array([list(world.llms).index(llm) for llm in llms])
    rules = make_rules(world, config.replay, "follow")
    some = answers.of(llms)
    if serving.rule == "route":
        asked = np.searchsorted(serving.thresholds, answers.hardness, side="right")
        places = np.array([answers.llms.index(llm) for llm in llms])
        trace = routed(np.minimum(np.searchsorted(places, asked), len(llms) - 1), some, arrival_s, codes)
    else:
        trace = chained(some, arrival_s, codes)
    rules = with_thresholds(rules, serving, codes)
    until_s = float(arrival_s[-1]) + 1.0
    drive = Drive(np.diff(fleet.slots), hour_s=until_s)
    outcome = replay(trace, fleet._replace(hands_over=bool(trace.leg.size)), drive, rules, until_s)
    return told(trace, rules, outcome, some, codes)


def _weighted(deployment: Deployment, weight: float) -> Deployment:
    from dataclasses import replace

    return replace(deployment, weight=weight)


def with_thresholds(rules: Rules, serving: Serving, codes: Ints) -> Rules:
    """Rules by which an answer below its llm's threshold is followed by the next leg."""
    below, judge_s = np.zeros(codes.size), np.zeros(codes.size)
    if serving.rule == "cascade":
        below[codes[:-1]] = serving.thresholds[: codes.size - 1]
        judge_s[codes[:-1]] = serving.judge_s
    return rules._replace(go_on_below=below, judge_s=judge_s, spread=WEIGHTS, route_utilisation_share=1.0)


def routed(chosen: Ints, answers: Answers, arrival_s: Floats, codes: Ints) -> Trace:
    """The questions as requests, each for the llm that is chosen."""
    outputs = np.take_along_axis(answers.output_tokens, chosen[:, None], axis=1)[:, 0]
    return _rows(arrival_s, codes[chosen], answers.input_tokens, outputs)


def chained(answers: Answers, arrival_s: Floats, codes: Ints) -> Trace:
    """The questions as requests with a row for each llm; one where there is only one."""
    size, llms = arrival_s.size, len(answers.llms)
    if llms == 1:
        return routed(np.zeros(size, np.int64), answers, arrival_s, codes)
    leg = np.tile(np.arange(llms), size)
    score = np.column_stack([answers.judged, np.ones(size)])
    rows = _rows(
        np.repeat(arrival_s, llms),
        codes[leg],
        np.repeat(answers.input_tokens, llms),
        answers.output_tokens.ravel(),
    )
    return rows._replace(
        leg=leg.astype(np.int8),
        then=np.where(leg < llms - 1, np.arange(leg.size) + 1, NOBODY).astype(np.int32),
        score=score.ravel().astype(np.float32),
    )


def _rows(arrival_s: Floats, llm: Ints, inputs: Ints, outputs: Ints) -> Trace:
    nothing = np.zeros(arrival_s.size, np.int16)
    return Trace(
        arrival_s, nothing, llm.astype(np.int16), nothing, inputs.astype(np.int32), outputs.astype(np.int32)
    )


def told(trace: Trace, rules: Rules, outcome: Outcome, answers: Answers, codes: Ints) -> Served:
    """What the outcome says of each question."""
    row = answer_rows(trace, outcome)
    size = answers.input_tokens.size
    row = np.arange(size) if isinstance(row, slice) else row
    kept = np.argsort(codes)[trace.llm[row]] if codes.size > 1 else np.zeros(size, np.int64)
    arrival_s = trace.arrival_s[row]
    done = outcome.status[row] == FINISHED
    score = np.take_along_axis(answers.score, kept[:, None], axis=1)[:, 0]
    spent_s = outcome.finish_s - begun_s(trace, rules, outcome)
    ended = outcome.status == FINISHED
    return Served(
        np.where(done, outcome.finish_s[row] - arrival_s, np.inf),
        np.where(done, score, 0.0),
        kept,
        [spent_s[ended & (trace.llm == code)] for code in codes],
    )


def pools_of(shapes: Sequence[Shape], instances: Ints, carries: Floats) -> dict[Shape, tuple[int, float]]:
    """The pools of a plan; each is dealt as much as its replicas carry."""
    return {
        shape: (int(count), float(count * carry))
        for shape, count, carry in zip(shapes, instances, carries, strict=True)
        if count > 0
    }
