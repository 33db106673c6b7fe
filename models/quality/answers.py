"""What several llms answered to the same questions, and which of them a threshold lets answer.

Two ways to choose (M llms, the first the smallest):

cascade   the answer of llm m is judged; below its threshold the next llm answers anew (Cascadia 3.3)
route     llm m answers where threshold m-1 <= router score < threshold m, before any answer (BoUTE 4.1);
          the router's score is how hard the question looks

Every score is a rank: 0.3 is above three of ten. So a threshold is the share of all answers that lie below.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Bools, Floats, Ints
from fleetcast.models.world.toml_dataclasses import ConfigError

SELECTION_RULES = ("cascade", "route")


class JudgedAnswers(NamedTuple):
    """N questions, of each the answers of M llms, from the smallest to the largest."""

    llms: tuple[str, ...]
    input_tokens: Ints  # (N,)
    output_tokens: Ints  # (N, M)
    score: Floats  # (N, M) how good the answer is, 0 to 1: what quality is the mean of
    judged: Floats  # (N, M-1) what the judge says of each but the last, as a rank
    hardness: Floats  # (N,) what the router says, as a rank

    def rows(self, picked: Ints | Bools | slice) -> "JudgedAnswers":
        """Some of the questions."""
        names = self._fields[1:]
        return self._replace(**{name: getattr(self, name)[picked] for name in names})

    def of(self, llms: Sequence[str]) -> "JudgedAnswers":
        """The answers of some of the llms, in the order that is asked for."""
        at = [self.llms.index(llm) for llm in llms]
        return self._replace(
            llms=tuple(llms),
            output_tokens=self.output_tokens[:, at],
            score=self.score[:, at],
            judged=self.judged[:, at[:-1]],
        )

    def halves(self) -> tuple["JudgedAnswers", "JudgedAnswers"]:
        """Every other question: thresholds are chosen on the first half and judged on the second."""
        return self.rows(slice(0, None, 2)), self.rows(slice(1, None, 2))


class SelectedAnswers(NamedTuple):
    """Who answers under some thresholds."""

    reached: Bools  # (N, M) the llm makes an answer
    kept: Ints  # (N,) the llm whose answer counts

    @property
    def shares(self) -> Floats:
        """Of the questions, those that come to each llm, shape (M,)."""
        return self.reached.mean(axis=0)


def select_answers(answers: JudgedAnswers, rule: str, thresholds: npt.ArrayLike) -> SelectedAnswers:
    """Who answers each question; ConfigError for thresholds that are out of range or out of order.

    thresholds : shape (M-1,), from 0 (nobody goes on; all are too hard) to 1
    """
    limits = np.asarray(thresholds, np.float64)
    llms = len(answers.llms)
    if limits.shape != (llms - 1,) or not ((limits >= 0) & (limits <= 1)).all():
        raise ConfigError(
            f"Thresholds {limits.tolist()}: {llms} llms need {llms - 1} of them, each from 0 to 1. Mend them."
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


def mean_quality(answers: JudgedAnswers, who: SelectedAnswers) -> float:
    """The mean score of the answers that count."""
    return float(selected_scores(answers, who).mean())


def selected_scores(answers: JudgedAnswers, who: SelectedAnswers) -> Floats:
    """The score of the answer that counts, shape (N,)."""
    return np.take_along_axis(answers.score, who.kept[:, None], axis=1)[:, 0]


def quality_standard_error(answers: JudgedAnswers, who: SelectedAnswers) -> float:
    """Of the quality."""
    return float(selected_scores(answers, who).std(ddof=1) / np.sqrt(len(who.kept)))
