"""Measure the choices of a quality plan: routing points of the answers, and latency tables of the shapes."""

from collections.abc import Sequence
from itertools import islice, product
from typing import NamedTuple

import numpy as np

from fleetcast.assets.lake.settings import Progress, StepCounter, run_parallel
from fleetcast.models.aliases import Bools, Floats
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

MIXES_PER_LLM = 6  # length mixes of each llm that are measured, from the shortest to the longest
SAME_MIX_SHARE = 0.02  # mixes whose lengths differ by a smaller share are measured as one


def routing_points(answers: JudgedAnswers, rule: str, points: int) -> Floats:
    """Return thresholds on an even grid of about `points` points, (P, llms - 1), scores from 0 to 1.

    Of points with the same routing, only the first stays.
    """
    steps = len(answers.llms) - 1
    levels = np.linspace(0, 1, max(round(points ** (1 / steps)), 2))
    grid = [row for row in product(levels, repeat=steps) if rule == "cascade" or list(row) == sorted(row)]
    shares = np.array([select_answers(answers, rule, row).shares for row in grid]).round(6)
    _, first = np.unique(shares, axis=0, return_index=True)
    return np.array(grid)[np.sort(first)]


class JudgeSetup(NamedTuple):
    """The judge of answers, and the share of requests that it sees in full."""

    judge: Judge
    llm: str | None = None  # the deployed llm that judges; None: an external service
    rubric_tokens: int = 0  # tokens that it reads in addition to prompt and answer
    shadow_share: float = 0.0  # share of the requests that all llms answer


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
    """Measure every shape on the length mixes of its llm, and the quality of every routing point.

    `thresholds` has shape (P, llms - 1), scores from 0 to 1.
    """
    selected = [select_answers(answers, rule, row) for row in thresholds]
    mixes_by_llm = [length_mixes(answers, selected, llm) for llm in range(len(answers.llms))]
    llms = list(answers.llms)
    mixes = [
        [LengthMix(answers.input_tokens[rows], answers.output_tokens[rows, llm]) for rows in reached]
        for llm, (reached, _) in enumerate(mixes_by_llm)
    ]
    places = np.column_stack([place for _, place in mixes_by_llm])
    judged = judged_answers_per_request(rule, thresholds, selected, judging.shadow_share)
    shares = add_shadow_share(np.array([point.shares for point in selected]), judging.shadow_share)
    if judging.llm is not None:
        llms, mixes = [judging.llm, *llms], [[judge_request_mix(answers, judging.rubric_tokens)], *mixes]
        places = np.column_stack([np.zeros(len(selected)), places])
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
        np.array([mean_quality(answers, point) for point in selected]),
        np.array([quality_standard_error(answers, point) for point in selected]),
        shares,
        places,
        np.array([llms.index(shape.llm) for shape in shapes]),
        gpu,
        size,
        size * np.array(prices)[gpu],
        np.array([[curve.load_per_s for curve in row] for row in curves]),
        np.array([[curve.p95_s for curve in row] for row in curves]),
        judged + router_calls_per_request(rule, selected),
        judging.judge.seconds,
        judging.judge.usd_per_1000,
    )


def judged_answers_per_request(
    rule: str, thresholds: Floats, selected: Sequence[SelectedAnswers], shadow_share: float
) -> Floats:
    """Return judged answers per request at each point: the drafts, and all answers of the shadow sample.

    A threshold of 0 accepts every answer, so it needs no judge. An llm that serves alone is not sampled.

    thresholds : (P, llms - 1) scores from 0 to 1
    selected : routing of each of the P points
    shadow_share : share of the requests that all serving llms answer

    Returns
    -------
    (P,) answers per request
    """
    shares = np.array([point.shares for point in selected])
    drafts = (shares[:, :-1] * (thresholds > 0)).sum(axis=1) if rule == "cascade" else np.zeros(len(selected))
    serving = (shares > LEAST_LOAD_SHARE).sum(axis=1)
    sample = np.where(serving > 1, shadow_share, 0.0)
    return np.asarray((1 - sample) * drafts + sample * serving)


def router_calls_per_request(rule: str, selected: Sequence[SelectedAnswers]) -> Floats:
    """Return router calls per request at each point, (P,): 1 where a router has several llms, else 0."""
    serving = np.array([(point.shares > LEAST_LOAD_SHARE).sum() for point in selected])
    return np.where((rule == "route") & (serving > 1), 1.0, 0.0)


def add_shadow_share(shares: Floats, shadow_share: float) -> Floats:
    """Return shares of requests by point and llm, (P, llms), with the shadow sample at every serving llm."""
    return np.where(shares > LEAST_LOAD_SHARE, shares + shadow_share * (1 - shares), shares)


def judge_request_mix(answers: JudgedAnswers, rubric_tokens: int) -> LengthMix:
    """Return the lengths of a deployed judge: prompt, answer and rubric as input, one token as output."""
    inputs = (answers.input_tokens[:, None] + answers.output_tokens[:, :-1] + rubric_tokens).ravel()
    return LengthMix(inputs, np.ones(inputs.size, np.int64))


def measure_shape_curves(
    shapes: Sequence[ReplicaShape],
    mixes: Sequence[Sequence[LengthMix]],
    catalogue: Catalogue,
    config: RunConfig,
    progress: Progress,
) -> list[list[LatencyCurve]]:
    """Return MIXES_PER_LLM curves of each shape on its llm's mixes; the last curve fills missing ones."""
    work = [(shape, mix) for shape, shape_mixes in zip(shapes, mixes, strict=True) for mix in shape_mixes]
    with progress.bar("measure shapes", len(work)) as done:
        counter = StepCounter(done)

        def measure(item: tuple[ReplicaShape, LengthMix]) -> LatencyCurve:
            curve = measure_latency_curve(*item, catalogue, config)
            counter.count_step()
            return curve

        curves = iter(run_parallel(measure, work))
    by_shape = [list(islice(curves, len(shape_mixes))) for shape_mixes in mixes]
    return [(row + [row[-1]] * MIXES_PER_LLM)[:MIXES_PER_LLM] for row in by_shape]


def length_mixes(
    answers: JudgedAnswers, selected: Sequence[SelectedAnswers], llm: int
) -> tuple[list[Bools], Floats]:
    """Return the length mixes of an llm that are measured, and the place of each routing point among them.

    The measure of a mix is half its mean output length, which loads a replica, and half its P95 of the
    output length, which sets the replica's P95.

    Returns
    -------
    mixes : for each mix, (questions,) whether the question belongs to it
    place : (P,) place of each point among the mixes, from 0 to their number - 1
    """
    served = np.flatnonzero([point.shares[llm] > LEAST_LOAD_SHARE for point in selected])
    if not served.size:
        return [np.ones(len(answers.input_tokens), bool)], np.zeros(len(selected))
    outputs = [answers.output_tokens[selected[int(n)].reached[:, llm], llm] for n in served]
    lengths = np.array([(tokens.mean(), np.quantile(tokens, 0.95)) for tokens in outputs])
    length = np.full(len(selected), np.nan)
    length[served] = (lengths / lengths.mean(axis=0)).mean(axis=1)
    wanted = np.linspace(np.nanmin(length), np.nanmax(length), MIXES_PER_LLM)
    knots = np.unique([served[np.abs(length[served] - at).argmin()] for at in wanted])
    knots = knots[np.argsort(length[knots])]
    is_apart = np.concatenate([[True], np.diff(length[knots]) > SAME_MIX_SHARE * length[knots[0]]])
    knots = knots[is_apart]
    place = np.interp(np.nan_to_num(length, nan=length[knots[0]]), length[knots], np.arange(knots.size))
    return [selected[int(knot)].reached[:, llm] for knot in knots], place
