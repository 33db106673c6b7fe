"""Answers of several llms to the same questions, and which llm serves each question under thresholds.

Two selection rules (M llms, the first the smallest):

cascade   a judge scores the answer of llm m; below its threshold the next llm answers too (Cascadia 3.3)
route     llm m answers where threshold m-1 <= router score < threshold m, before any answer (BoUTE 4.1);
          the router scores the hardness of the question

Every judge's or router's score is a rank: 0.3 is above three of ten. A threshold is therefore the share of
all answers below it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Bools, Floats, Ints
from fleetcast.models.world.toml_dataclasses import ConfigError

SELECTION_RULES = ("cascade", "route")


class JudgedAnswers(NamedTuple):
    """N questions, each with the answers of M llms, from the smallest to the largest."""

    llms: tuple[str, ...]
    input_tokens: Ints  # (N,)
    output_tokens: Ints  # (N, M)
    score: Floats  # (N, M) true score of each answer, 0 to 1; quality is its mean
    judged: Floats  # (N, M-1) the judge's score of each answer but the last llm's, as a rank
    hardness: Floats  # (N,) the router's score, as a rank

    def rows(self, picked: Ints | Bools | slice) -> "JudgedAnswers":
        """Return the picked questions; `picked` is a slice, indices (K,) or a mask (N,)."""
        names = self._fields[1:]
        return self._replace(**{name: getattr(self, name)[picked] for name in names})

    def of(self, llms: Sequence[str]) -> "JudgedAnswers":
        """Return the answers of these llms, in the given order."""
        at = [self.llms.index(llm) for llm in llms]
        return self._replace(
            llms=tuple(llms),
            output_tokens=self.output_tokens[:, at],
            score=self.score[:, at],
            judged=self.judged[:, at[:-1]],
        )

    def halves(self) -> tuple["JudgedAnswers", "JudgedAnswers"]:
        """Return even and odd questions: thresholds are chosen on the first, evaluated on the second."""
        return self.rows(slice(0, None, 2)), self.rows(slice(1, None, 2))


class SelectedAnswers(NamedTuple):
    """The llms that answer each question under given thresholds."""

    reached: Bools  # (N, M) the llm generates an answer
    kept: Ints  # (N,) place of the llm whose answer is returned

    @property
    def shares(self) -> Floats:
        """Share of the questions that reach each llm, shape (M,)."""
        return self.reached.mean(axis=0)


def select_answers(answers: JudgedAnswers, rule: str, thresholds: npt.ArrayLike) -> SelectedAnswers:
    """Select the llm that serves each question.

    rule : one of SELECTION_RULES
    thresholds : shape (M-1,), each 0 to 1. At 0 a cascade escalates no answer, and a router sends every
        question on.

    Raises
    ------
    ConfigError
        Thresholds out of range or, for a router, out of order.
    """
    limits = np.asarray(thresholds, np.float64)
    llms = len(answers.llms)
    if limits.shape != (llms - 1,) or not ((limits >= 0) & (limits <= 1)).all():
        raise ConfigError(
            f"Thresholds {limits.tolist()}: {llms} llms need {llms - 1}, each from 0 to 1. Correct them."
        )
    if rule == "route":
        if (np.diff(limits) < 0).any():
            raise ConfigError(
                f"Thresholds {limits.tolist()} are out of order: those of a router must not fall. Sort them."
            )
        kept = np.searchsorted(limits, answers.hardness, side="right")
        return SelectedAnswers(kept[:, None] == np.arange(llms), kept)
    goes_on = np.column_stack([np.ones(len(answers.judged), bool), answers.judged < limits])
    reached = np.logical_and.accumulate(goes_on, axis=1)
    return SelectedAnswers(reached, reached.sum(axis=1) - 1)


def mean_quality(answers: JudgedAnswers, selected: SelectedAnswers) -> float:
    """Return the mean score of the returned answers, 0 to 1."""
    return float(selected_scores(answers, selected).mean())


def selected_scores(answers: JudgedAnswers, selected: SelectedAnswers) -> Floats:
    """Return the score of each question's returned answer, shape (N,), 0 to 1."""
    return np.take_along_axis(answers.score, selected.kept[:, None], axis=1)[:, 0]


def quality_standard_error(answers: JudgedAnswers, selected: SelectedAnswers) -> float:
    """Return the standard error of the mean quality."""
    return float(selected_scores(answers, selected).std(ddof=1) / np.sqrt(len(selected.kept)))
