"""What a plan for quality chooses from: routing points of the answers, tables of the shapes by the replay."""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from assets.lake.settings import Counted, Progress, side_by_side
from models.plan.quality import LEAST_LOAD_SHARE, Offer
from models.quality.answers import Answers, Floats, Taken, quality, standard_error, taken
from models.replay.performance import Curve, Mix, Shape, curve
from models.world.catalogue import Catalogue
from models.world.config import Config

MIXES = 5  # of each llm that are measured, from the shortest to the longest
ALIKE_SHARE = 0.03  # mixes whose mean lengths differ by less are one


def points_of(answers: Answers, rule: str, points: int) -> Floats:
    """Thresholds on an even grid of about so many points, (P, M-1); one of those that send alike."""
    steps = len(answers.llms) - 1
    levels = np.linspace(0, 1, max(round(points ** (1 / steps)), 2))
    grid = [row for row in product(levels, repeat=steps) if rule == "cascade" or list(row) == sorted(row)]
    shares = np.array([taken(answers, rule, row).shares for row in grid]).round(6)
    _, first = np.unique(shares, axis=0, return_index=True)
    return np.array(grid)[np.sort(first)]


def offer_of(
    answers: Answers,
    rule: str,
    thresholds: Floats,
    shapes: Sequence[Shape],
    catalogue: Catalogue,
    config: Config,
    judge_s: float,
    progress: Progress,
) -> Offer:
    """Measure every shape on the mixes that come to its llm, and what each point is worth."""
    llms = list(answers.llms)
    who = [taken(answers, rule, row) for row in thresholds]
    mixes = [mixes_of(answers, who, llm) for llm in range(len(llms))]
    places = np.column_stack([place for _, place in mixes])
    work = [
        (shape, reached)
        for shape in shapes
        for reached in mixes[llms.index(shape.llm)][0]
    ]  # fmt: skip
    with progress.bar("measure shapes", len(work)) as done:
        counted = Counted(done)

        def measured(item: tuple[Shape, np.ndarray]) -> Curve:
            shape, reached = item
            llm = llms.index(shape.llm)
            rows = Mix(answers.input_tokens[reached], answers.output_tokens[reached, llm])
            found = curve(shape, rows, catalogue, config)
            counted.one_more()
            return found

        curves = side_by_side(measured, work)
    by_shape: Mapping[Shape, list[Curve]] = {shape: [] for shape in shapes}
    for (shape, _), found in zip(work, curves, strict=True):
        by_shape[shape].append(found)
    padded = [(own + [own[-1]] * MIXES)[:MIXES] for own in by_shape.values()]
    gpus = list(catalogue.gpus)
    prices = [gpu.usd_per_hour for gpu in catalogue.gpus.values()]
    gpu = np.array([gpus.index(shape.gpu) for shape in shapes])
    size = np.array([shape.gpus for shape in shapes])
    return Offer(
        rule,
        thresholds,
        np.array([quality(answers, one) for one in who]),
        np.array([standard_error(answers, one) for one in who]),
        np.array([one.shares for one in who]),
        places,
        np.array([llms.index(shape.llm) for shape in shapes]),
        gpu,
        size,
        size * np.array(prices)[gpu],
        np.array([[one.load_per_s for one in own] for own in padded]),
        np.array([[one.p95_s for one in own] for own in padded]),
        judge_s,
    )


def mixes_of(answers: Answers, who: Sequence[Taken], llm: int) -> tuple[list[np.ndarray], Floats]:
    """The questions of each mix of an llm that is measured, and where each point lies between them, (P,)."""
    shares = np.array([one.shares[llm] for one in who])
    means = np.array([
        answers.output_tokens[one.reached[:, llm], llm].mean() if share > LEAST_LOAD_SHARE else np.nan
        for one, share in zip(who, shares, strict=True)
    ])  # fmt: skip
    known = np.flatnonzero(~np.isnan(means))
    if not known.size:
        return [np.ones(len(answers.input_tokens), bool)], np.zeros(len(who))
    wanted = np.linspace(means[known].min(), means[known].max(), MIXES)
    knots = known[np.abs(means[known][:, None] - wanted).argmin(axis=0)]
    knots = knots[np.unique(means[knots], return_index=True)[1]]
    knots = knots[np.concatenate([[True], np.diff(means[knots]) > ALIKE_SHARE * means[knots[0]]])]
    place = np.interp(np.nan_to_num(means, nan=means[knots[0]]), means[knots], np.arange(knots.size))
    return [who[knot].reached[:, llm] for knot in knots], place
