"""One Gaussian copula over what several llms make of a question, and draws from it.

Each variable is a monotone function of a normal one, and these are jointly normal with correlations R:

    score_m   a step function: the grades by their shares        output_m, input   tokens, by their quantiles
    judged_m  what a judge says of the answer, as a rank         hardness          what a router says, a rank

The fit stands in tests/copula_fit.py.

Draws may be given some of the variables: the rest is normal with mean B z and covariance R_bb - B R_ab, where
B = R_ba / R_aa.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.quality.answers import JudgedAnswers
from fleetcast.models.world.toml_dataclasses import ConfigError, Share

LEAST_EIGENVALUE = 1e-6
# normals at which a marginal is told; at the ends stand its least and its most
MARGINAL_KNOTS = np.linspace(-3.5, 3.5, 43)


@dataclass(frozen=True)
class AnswerModel:
    """A fitted model of answers: data/catalogue/quality.toml, [answers.NAME].

    The variables of `correlation` are, in order: the scores of the llms, their output tokens, the input
    tokens, what the judge says of each llm but the last, and how hard the question looks to the router.
    """

    llms: tuple[str, ...]
    questions: int  # that it was fitted to
    grades: tuple[Share, ...]  # that a score may be, rising
    grade_shares: tuple[tuple[Share, ...], ...]  # of each llm's answers
    output_tokens: tuple[tuple[float, ...], ...]  # of each llm, at KNOTS
    input_tokens: tuple[float, ...]  # likewise
    correlation: tuple[tuple[float, ...], ...]  # rows of the lower triangle, without the diagonal
    source: str

    def __post_init__(self) -> None:
        llms = len(self.llms)
        if llms < 2 or not (len(self.grade_shares) == len(self.output_tokens) == llms):
            raise ConfigError(
                f"quality.toml: {llms} llms with {len(self.grade_shares)} grade_shares and "
                f"{len(self.output_tokens)} output_tokens; two llms or more need one of each. Mend the table."
            )
        if {len(knots) for knots in (*self.output_tokens, self.input_tokens)} != {MARGINAL_KNOTS.size}:
            raise ConfigError(f"quality.toml: tokens need {MARGINAL_KNOTS.size} knots each. Fit it again.")
        if [len(row) for row in self.correlation] != list(range(3 * llms + 1)):
            raise ConfigError(
                f"quality.toml: {llms} llms need {3 * llms + 1} rows of correlation, the first empty, each "
                f"one longer; got {[len(row) for row in self.correlation]}. Fit it again."
            )
        if float(np.linalg.eigvalsh(self.matrix)[0]) < LEAST_EIGENVALUE:
            raise ConfigError("quality.toml: these correlations cannot be: no normal has them. Fit it again.")

    @property
    def matrix(self) -> Floats:
        """The correlations, shape (3M+1, 3M+1)."""
        size = len(self.correlation)
        lower = np.zeros((size, size))
        for n, row in enumerate(self.correlation):
            lower[n, :n] = row
        return lower + lower.T + np.eye(size)


class CopulaColumns(NamedTuple):
    """Where the variables of M llms stand in the correlations."""

    llms: int

    @property
    def score(self) -> slice:
        """Of each llm."""
        return slice(0, self.llms)

    @property
    def output(self) -> slice:
        """Of each llm."""
        return slice(self.llms, 2 * self.llms)

    @property
    def input(self) -> int:
        """Of the question."""
        return 2 * self.llms

    @property
    def judged(self) -> slice:
        """Of each llm but the last."""
        return slice(2 * self.llms + 1, 3 * self.llms)

    @property
    def hardness(self) -> int:
        """Of the question."""
        return 3 * self.llms


def draw_normals(correlation: Floats, size: int, rng: np.random.Generator) -> Floats:
    """Jointly normal draws, shape (size, V); also where one variable follows from others."""
    values, vectors = np.linalg.eigh(correlation)
    return rng.standard_normal((size, len(values))) @ (vectors * np.sqrt(values.clip(0))).T


def draw_conditional_normals(
    correlation: Floats, at: Sequence[int], z: Floats, rng: np.random.Generator
) -> Floats:
    """The same where the variables `at` are known, z of shape (N, len(at))."""
    known = np.asarray(at)
    rest = np.setdiff1d(np.arange(len(correlation)), known)
    weights = np.linalg.solve(correlation[np.ix_(known, known)], correlation[np.ix_(known, rest)]).T
    left = correlation[np.ix_(rest, rest)] - weights @ correlation[np.ix_(known, rest)]
    drawn = np.empty((len(z), len(correlation)))
    drawn[:, known], drawn[:, rest] = z, z @ weights.T + draw_normals(left, len(z), rng)
    return drawn


def answers_from_normals(model: AnswerModel, z: Floats) -> JudgedAnswers:
    """The answers that normals of shape (N, 3M+1) stand for."""
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
    """Tokens at these normals, one at least."""
    return np.maximum(np.round(np.interp(z, MARGINAL_KNOTS, knots)), 1).astype(np.int64)
