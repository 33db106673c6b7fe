"""Who says whether an answer will do: one dial from lots to knowing, with seconds and a price.

A judge of skill s says s x + sqrt(1 - s^2) e of an answer, where x is its standardised score and e a normal
that nothing else knows of: s is the correlation of what it says with how good the answer is. Such a judge
errs on every question alike; real ones err in clusters. One without a skill is the one that the answers have.
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

    seconds: NotNegative  # that judging an answer takes
    usd_per_1000: NotNegative  # for a thousand answers judged
    source: str
    skill: Share | None = None  # correlation with how good the answer is; None: as the answers have it


@dataclass(frozen=True)
class QualityCatalogue:
    """data/catalogue/quality.toml: models of answers, and judges."""

    answers: Mapping[str, AnswerModel]
    judges: Mapping[str, Judge]


def load_quality(folder: Path = CATALOGUE_DIR) -> QualityCatalogue:
    """Read quality.toml; ConfigError says what is wrong with it."""
    parsed: dict[str, Any] = read_toml(folder / "quality.toml")
    loaded: QualityCatalogue = build_dataclass(QualityCatalogue, parsed, "quality.toml")
    return loaded


def apply_judge(answers: JudgedAnswers, judge: Judge, rng: np.random.Generator) -> JudgedAnswers:
    """The same answers, judged by this one; as a router it says so of the first llm before it answers."""
    if judge.skill is None:
        return answers
    said = judge.skill * standardise_scores(answers.score[:, :-1])
    said = said + np.sqrt(1 - judge.skill**2) * rng.standard_normal(said.shape)
    return answers._replace(judged=column_ranks(said, rng), hardness=column_ranks(-said[:, :1], rng)[:, 0])


def standardise_scores(score: Floats) -> Floats:
    """Of each llm: mean 0 and deviation 1; zeros where all are alike."""
    apart = score - score.mean(axis=0)
    deviation = apart.std(axis=0)
    return np.divide(apart, deviation, out=np.zeros_like(apart), where=deviation > 0)


def column_ranks(values: Floats, rng: np.random.Generator) -> Floats:
    """Each value's rank in its column, between 0 and 1; ties in an order that is drawn."""
    order = np.lexsort((rng.random(values.shape), values), axis=0)
    found = np.empty(values.shape)
    np.put_along_axis(found, order, (np.arange(len(values))[:, None] + 0.5) / len(values), axis=0)
    return found
