"""A Gaussian copula of the answers of several llms to one question, and samples from it.

Each variable is a monotone function of a normal variable. These are jointly normal with correlations R:

    score_m   a step function: the grades by their shares        output_m, input   tokens, by their quantiles
    judged_m  a judge's score of the answer, as a rank           hardness          a router's score, as a rank

The fit is in tests/copula_fit.py.

Samples can be conditional on some variables z: the others are normal with mean B z and covariance
R_bb - B R_ab, where B = R_ba / R_aa.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.quality.answers import JudgedAnswers
from fleetcast.models.world.toml_dataclasses import ConfigError, Share

LEAST_EIGENVALUE = 1e-6
# Normals at which a marginal distribution is given; the first and last knots are its minimum and maximum.
MARGINAL_KNOTS = np.linspace(-3.5, 3.5, 43)


@dataclass(frozen=True)
class AnswerModel:
    """A fitted model of answers: data/catalogue/quality.toml, [answers.NAME].

    The variables of `correlation` are, in order: the scores of the llms, their output tokens, the input
    tokens, the judge's score of each llm but the last, and the router's score of the question (hardness).
    """

    llms: tuple[str, ...]
    questions: int  # number that the model was fitted to
    grades: tuple[Share, ...]  # possible scores, rising
    grade_shares: tuple[tuple[Share, ...], ...]  # of each llm, the share of answers with each grade
    output_tokens: tuple[tuple[float, ...], ...]  # of each llm, at MARGINAL_KNOTS
    input_tokens: tuple[float, ...]  # at MARGINAL_KNOTS
    correlation: tuple[tuple[float, ...], ...]  # rows of the lower triangle, without the diagonal
    source: str

    def __post_init__(self) -> None:
        llms = len(self.llms)
        if llms < 2 or not (len(self.grade_shares) == len(self.output_tokens) == llms):
            raise ConfigError(
                f"quality.toml: {llms} llms with {len(self.grade_shares)} grade_shares and "
                f"{len(self.output_tokens)} output_tokens; at least two llms are needed, with one of each "
                "per llm. Correct the table."
            )
        if {len(knots) for knots in (*self.output_tokens, self.input_tokens)} != {MARGINAL_KNOTS.size}:
            raise ConfigError(f"quality.toml: tokens need {MARGINAL_KNOTS.size} knots each. Fit it again.")
        if [len(row) for row in self.correlation] != list(range(3 * llms + 1)):
            raise ConfigError(
                f"quality.toml: {llms} llms need {3 * llms + 1} rows of correlation, the first empty, each "
                f"one longer; got {[len(row) for row in self.correlation]}. Fit it again."
            )
        if float(np.linalg.eigvalsh(self.matrix)[0]) < LEAST_EIGENVALUE:
            raise ConfigError(
                "quality.toml: the correlation matrix is not positive definite; it must be. Fit it again."
            )

    @property
    def matrix(self) -> Floats:
        """The full correlation matrix of M llms, shape (3M+1, 3M+1)."""
        size = len(self.correlation)
        lower = np.zeros((size, size))
        for n, row in enumerate(self.correlation):
            lower[n, :n] = row
        return lower + lower.T + np.eye(size)


class CopulaColumns(NamedTuple):
    """The column of each variable in the correlation matrix of M llms."""

    llms: int

    @property
    def score(self) -> slice:
        """Score of each llm."""
        return slice(0, self.llms)

    @property
    def output(self) -> slice:
        """Output tokens of each llm."""
        return slice(self.llms, 2 * self.llms)

    @property
    def input(self) -> int:
        """Input tokens of the question."""
        return 2 * self.llms

    @property
    def judged(self) -> slice:
        """Judge's score of each llm but the last."""
        return slice(2 * self.llms + 1, 3 * self.llms)

    @property
    def hardness(self) -> int:
        """Router's score of the question."""
        return 3 * self.llms


def draw_normals(correlation: Floats, size: int, rng: np.random.Generator) -> Floats:
    """Return joint normal samples, shape (size, V); `correlation`, shape (V, V), may be singular."""
    values, vectors = np.linalg.eigh(correlation)
    return rng.standard_normal((size, len(values))) @ (vectors * np.sqrt(values.clip(0))).T


def draw_conditional_normals(
    correlation: Floats, at: Sequence[int], z: Floats, rng: np.random.Generator
) -> Floats:
    """Return joint normal samples in which some variables are known.

    correlation : shape (V, V)
    at : the known variables, as columns of `correlation`
    z : their values, shape (N, len(at))

    Returns: all variables, shape (N, V).
    """
    known = np.asarray(at)
    rest = np.setdiff1d(np.arange(len(correlation)), known)
    weights = np.linalg.solve(correlation[np.ix_(known, known)], correlation[np.ix_(known, rest)]).T
    left = correlation[np.ix_(rest, rest)] - weights @ correlation[np.ix_(known, rest)]
    sample = np.empty((len(z), len(correlation)))
    sample[:, known], sample[:, rest] = z, z @ weights.T + draw_normals(left, len(z), rng)
    return sample


def answers_from_normals(model: AnswerModel, z: Floats) -> JudgedAnswers:
    """Transform normals z, shape (N, 3M+1), into N answers by the model's marginal distributions."""
    from scipy.special import ndtr

    rank, at = ndtr(z), CopulaColumns(len(model.llms))
    return JudgedAnswers(
        model.llms,
        tokens_from_normals(model.input_tokens, z[:, at.input]),
        np.column_stack([
            tokens_from_normals(knots, column)
            for knots, column in zip(model.output_tokens, z[:, at.output].T, strict=True)
        ]),
        np.column_stack([
            np.asarray(model.grades)[np.searchsorted(np.cumsum(shares)[:-1], column, side="right")]
            for shares, column in zip(model.grade_shares, rank[:, at.score].T, strict=True)
        ]),
        rank[:, at.judged],
        rank[:, at.hardness],
    )  # fmt: skip


def tokens_from_normals(knots: Sequence[float], z: Floats) -> Ints:
    """Return the tokens at the normals z, both (N,), at least 1; `knots` are tokens at MARGINAL_KNOTS."""
    return np.maximum(np.round(np.interp(z, MARGINAL_KNOTS, knots)), 1).astype(np.int64)
