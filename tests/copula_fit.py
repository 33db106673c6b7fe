"""Fit the copula of models/quality/answer_copula.py to scored answers.

A variable x becomes g(x) = E[Z | x], the mean of the normal in its class of ties, whose Hermite coefficients
are a_k. Mehler's formula gives the correlation r of the normals that the data show:

    E[g(X) h(Y)] = sum_k r^k a_k b_k        biserial and tetrachoric correlations are its special cases
"""

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.quality.answer_copula import MARGINAL_KNOTS, AnswerModel
from fleetcast.models.quality.answers import JudgedAnswers

TERMS = 120  # of Mehler's series
MOST = 0.995  # the upper end of the search for a correlation


def fit(answers: JudgedAnswers, source: str) -> AnswerModel:
    """The model of scored answers; ValueError where two variables leave no correlation to find."""
    columns = [*answers.score.T, *answers.output_tokens.T, answers.input_tokens, *answers.judged.T]
    means, coefficients = zip(*(class_means(column) for column in [*columns, answers.hardness]), strict=True)
    size = len(means)
    found = [
        tuple(
            round(normal_correlation(means[a], means[b], coefficients[a], coefficients[b]), 4)
            for b in range(a)
        )
        for a in range(size)
    ]
    grades = np.unique(answers.score)
    return AnswerModel(
        llms=answers.llms,
        questions=len(answers.input_tokens),
        grades=tuple(grades.tolist()),
        grade_shares=tuple(
            tuple(np.mean(column[:, None] == grades, axis=0).round(5).tolist()) for column in answers.score.T
        ),
        output_tokens=tuple(quantiles(column) for column in answers.output_tokens.T),
        input_tokens=quantiles(answers.input_tokens),
        correlation=tuple(found),
        source=source,
    )


def quantiles(values: Ints) -> tuple[float, ...]:
    """Tokens at KNOTS."""
    from scipy.special import ndtr

    levels = ndtr(MARGINAL_KNOTS)
    levels[[0, -1]] = 0.0, 1.0
    return tuple(np.quantile(values, levels).round(1).tolist())


def class_means(values: Floats | Ints) -> tuple[Floats, Floats]:
    """E[Z | x] of each value, shape (N,), and its Hermite coefficients, shape (TERMS,)."""
    from scipy.stats import norm

    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    edges = norm.ppf(np.concatenate([[0.0], np.cumsum(counts) / values.size]).clip(0, 1))
    density = norm.pdf(edges)
    means = -np.diff(density) * values.size / counts
    # a_k = E[g He_k] / sqrt(k!): the integral under each step is He_(k-1) phi between its edges
    inner, jumps = edges[1:-1], np.diff(means)
    coefficients, before, now = np.zeros(TERMS), np.zeros(inner.size), np.ones(inner.size)
    for k in range(1, TERMS + 1):  # now: He_(k-1) / sqrt((k-1)!)
        coefficients[k - 1] = (jumps * density[1:-1] * now).sum() / np.sqrt(k)
        before, now = now, (inner * now - np.sqrt(k - 1) * before) / np.sqrt(k)
    return means[place], coefficients


def normal_correlation(x: Floats, y: Floats, of_x: Floats, of_y: Floats) -> float:
    """The correlation of the normals behind two variables, from their class means."""
    from scipy.optimize import brentq

    seen, powers = float(np.mean(x * y)), np.arange(1, TERMS + 1)

    def lacks(r: float) -> float:
        return float((r**powers * of_x * of_y).sum()) - seen

    if lacks(MOST) <= 0 or lacks(-MOST) >= 0:
        return MOST if lacks(MOST) <= 0 else -MOST
    return float(brentq(lacks, -MOST, MOST))
