"""Judges of answers: one skill parameter from random to perfect, with a duration and a price.

A judge of skill s gives the score s x + sqrt(1 - s^2) e, where x is the answer's standardised true score and
e an independent normal: s is the correlation of the judge's score with the true score. Such a judge errs
equally on every question; real judges err in clusters. Without a skill, the scores that come with the answers
are used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.quality.answer_copula import AnswerModel
from fleetcast.models.quality.answers import JudgedAnswers
from fleetcast.models.world.catalogue import CATALOGUE_DIR
from fleetcast.models.world.catalogue_entries import NotNegative
from fleetcast.models.world.toml_dataclasses import Share, build_dataclass, read_toml


@dataclass(frozen=True)
class Judge:
    """A judge of answers: quality.toml, [judges.NAME]."""

    seconds: NotNegative  # to judge one answer
    usd_per_1000: NotNegative  # for a thousand judged answers
    source: str
    skill: Share | None = None  # correlation with the true score; None: use the scores of the answers


@dataclass(frozen=True)
class QualityCatalogue:
    """Content of data/catalogue/quality.toml: models of answers, and judges."""

    answers: Mapping[str, AnswerModel]
    judges: Mapping[str, Judge]


def load_quality(folder: Path = CATALOGUE_DIR) -> QualityCatalogue:
    """Read quality.toml; ConfigError where it is not valid."""
    parsed: dict[str, Any] = read_toml(folder / "quality.toml")
    loaded: QualityCatalogue = build_dataclass(QualityCatalogue, parsed, "quality.toml")
    return loaded


def apply_judge(answers: JudgedAnswers, judge: Judge, rng: np.random.Generator) -> JudgedAnswers:
    """Return the answers with the judge's scores; as a router it scores the first llm's answer in advance."""
    if judge.skill is None:
        return answers
    scores = judge.skill * standardise_scores(answers.score[:, :-1])
    scores = scores + np.sqrt(1 - judge.skill**2) * rng.standard_normal(scores.shape)
    return answers._replace(
        judged=column_ranks(scores, rng), hardness=column_ranks(-scores[:, :1], rng)[:, 0]
    )


def standardise_scores(score: Floats) -> Floats:
    """Scale each column of scores, shape (N, M), to mean 0 and deviation 1; zeros where all are equal."""
    centred = score - score.mean(axis=0)
    deviation = centred.std(axis=0)
    return np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 0)


def column_ranks(values: Floats, rng: np.random.Generator) -> Floats:
    """Return the rank of each value in its column, 0 to 1, shape (N, M) as `values`; ties in random order."""
    order = np.lexsort((rng.random(values.shape), values), axis=0)
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, (np.arange(len(values))[:, None] + 0.5) / len(values), axis=0)
    return ranks
