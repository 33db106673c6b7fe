"""What a plan for quality chooses from: routing points of the answers, tables of the shapes by the replay."""

from collections.abc import Sequence
from itertools import islice, product
from typing import NamedTuple

import numpy as np

from fleetcast.assets.lake.settings import Progress, StepCounter, run_parallel
from fleetcast.models.aliases import Floats
from fleetcast.models.plan.quality_milp import LEAST_LOAD_SHARE, QualityOffer
from fleetcast.models.quality.answers import (
    JudgedAnswers,
    SelectedAnswers,
    mean_quality,
    quality_standard_error,
    select_answers,
)
from fleetcast.models.quality.judges import Judge
from fleetcast.models.trials.latency_curves import (
    LatencyCurve,
    LengthMix,
    ReplicaShape,
    measure_latency_curve,
)
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import RunConfig

MIXES_PER_LLM = 6  # of each llm that are measured, from the shortest to the longest
SAME_MIX_SHARE = 0.02  # mixes whose lengths differ by less are one


def routing_points(answers: JudgedAnswers, rule: str, points: int) -> Floats:
    """Thresholds on an even grid of about so many points, (P, M-1); one of those that send alike."""
    steps = len(answers.llms) - 1
    levels = np.linspace(0, 1, max(round(points ** (1 / steps)), 2))
    grid = [row for row in product(levels, repeat=steps) if rule == "cascade" or list(row) == sorted(row)]
    shares = np.array([select_answers(answers, rule, row).shares for row in grid]).round(6)
    _, first = np.unique(shares, axis=0, return_index=True)
    return np.array(grid)[np.sort(first)]


class JudgeSetup(NamedTuple):
    """Who judges answers, and how many of them."""

    judge: Judge
    llm: str | None = None  # of ours; None: a service outside
    rubric_tokens: int = 0  # that it reads besides prompt and answer
    shadow_share: float = 0.0  # of the requests, that all llms answer


def measure_quality_offer(
    answers: JudgedAnswers,
    rule: str,
    thresholds: Floats,
    shapes: Sequence[ReplicaShape],
    catalogue: Catalogue,
    config: RunConfig,
    judging: JudgeSetup,
    progress: Progress,
) -> QualityOffer:
    """Measure every shape on the mixes that come to its llm, and what each point is worth."""
    who = [select_answers(answers, rule, row) for row in thresholds]
    own = [length_mixes(answers, who, llm) for llm in range(len(answers.llms))]
    llms = list(answers.llms)
    mixes = [
        [LengthMix(answers.input_tokens[rows], answers.output_tokens[rows, llm]) for rows in reached]
        for llm, (reached, _) in enumerate(own)
    ]
    places = np.column_stack([place for _, place in own])
    judged = judged_answers_per_request(rule, thresholds, who, judging.shadow_share)
    shares = add_shadow_share(np.array([one.shares for one in who]), judging.shadow_share)
    if judging.llm is not None:
        llms, mixes = [judging.llm, *llms], [[judge_request_mix(answers, judging.rubric_tokens)], *mixes]
        places = np.column_stack([np.zeros(len(who)), places])
        shares = np.column_stack([judged, shares])
    curves = measure_shape_curves(
        shapes, [mixes[llms.index(shape.llm)] for shape in shapes], catalogue, config, progress
    )
    gpus = list(catalogue.gpus)
    prices = [gpu.usd_per_hour for gpu in catalogue.gpus.values()]
    gpu = np.array([gpus.index(shape.gpu) for shape in shapes])
    size = np.array([shape.gpus for shape in shapes])
    return QualityOffer(
        rule,
        thresholds,
        np.array([mean_quality(answers, one) for one in who]),
        np.array([quality_standard_error(answers, one) for one in who]),
        shares,
        places,
        np.array([llms.index(shape.llm) for shape in shapes]),
        gpu,
        size,
        size * np.array(prices)[gpu],
        np.array([[one.load_per_s for one in own] for own in curves]),
        np.array([[one.p95_s for one in own] for own in curves]),
        judged + router_calls_per_request(rule, who),
        judging.judge.seconds,
        judging.judge.usd_per_1000,
    )


def judged_answers_per_request(
    rule: str, thresholds: Floats, who: Sequence[SelectedAnswers], shadow_share: float
) -> Floats:
    """Answers that are judged at each point, by request, (P,): drafts, and whatever a shadow sample sees.

    Nobody judges an answer that no threshold can find wanting, nor samples an llm that serves alone.
    """
    shares = np.array([one.shares for one in who])
    drafts = (shares[:, :-1] * (thresholds > 0)).sum(axis=1) if rule == "cascade" else np.zeros(len(who))
    seen = (shares > LEAST_LOAD_SHARE).sum(axis=1)
    sample = np.where(seen > 1, shadow_share, 0.0)
    return np.asarray((1 - sample) * drafts + sample * seen)


def router_calls_per_request(rule: str, who: Sequence[SelectedAnswers]) -> Floats:
    """Requests that a router looks at, at each point, by request, (P,): all, where there is a choice."""
    seen = np.array([(one.shares > LEAST_LOAD_SHARE).sum() for one in who])
    return np.where((rule == "route") & (seen > 1), 1.0, 0.0)


def add_shadow_share(shares: Floats, shadow_share: float) -> Floats:
    """The shares with a sample of the requests at every llm that serves."""
    return np.where(shares > LEAST_LOAD_SHARE, shares + shadow_share * (1 - shares), shares)


def judge_request_mix(answers: JudgedAnswers, rubric_tokens: int) -> LengthMix:
    """What a judge of ours reads: prompt, answer and rubric; it writes one token."""
    inputs = (answers.input_tokens[:, None] + answers.output_tokens[:, :-1] + rubric_tokens).ravel()
    return LengthMix(inputs, np.ones(inputs.size, np.int64))


def measure_shape_curves(
    shapes: Sequence[ReplicaShape],
    mixes: Sequence[Sequence[LengthMix]],
    catalogue: Catalogue,
    config: RunConfig,
    progress: Progress,
) -> list[list[LatencyCurve]]:
    """The curves of each shape on the mixes of its llm, MIXES of them: the last ones over again."""
    work = [(shape, mix) for shape, own in zip(shapes, mixes, strict=True) for mix in own]
    with progress.bar("measure shapes", len(work)) as done:
        counted = StepCounter(done)

        def one(item: tuple[ReplicaShape, LengthMix]) -> LatencyCurve:
            found = measure_latency_curve(*item, catalogue, config)
            counted.count_step()
            return found

        curves = iter(run_parallel(one, work))
    by_shape = [list(islice(curves, len(own))) for own in mixes]
    return [(own + [own[-1]] * MIXES_PER_LLM)[:MIXES_PER_LLM] for own in by_shape]


def length_mixes(
    answers: JudgedAnswers, who: Sequence[SelectedAnswers], llm: int
) -> tuple[list[np.ndarray], Floats]:
    """The questions of each mix of an llm that is measured, and where each point lies between them, (P,).

    What tells mixes apart is their mean length, which loads a replica, and their long answers, which are its
    P95; both count alike.
    """
    known = np.flatnonzero([one.shares[llm] > LEAST_LOAD_SHARE for one in who])
    if not known.size:
        return [np.ones(len(answers.input_tokens), bool)], np.zeros(len(who))
    lengths = [answers.output_tokens[who[int(n)].reached[:, llm], llm] for n in known]
    told = np.array([(own.mean(), np.quantile(own, 0.95)) for own in lengths])
    long = np.full(len(who), np.nan)
    long[known] = (told / told.mean(axis=0)).mean(axis=1)
    wanted = np.linspace(np.nanmin(long), np.nanmax(long), MIXES_PER_LLM)
    knots = np.unique([known[np.abs(long[known] - at).argmin()] for at in wanted])
    knots = knots[np.argsort(long[knots])]
    apart = np.concatenate([[True], np.diff(long[knots]) > SAME_MIX_SHARE * long[knots[0]]])
    knots = knots[apart]
    place = np.interp(np.nan_to_num(long, nan=long[knots[0]]), long[knots], np.arange(knots.size))
    return [who[int(knot)].reached[:, llm] for knot in knots], place
