"""Whose answers a plan for quality goes by: those that landed for the trace, else a model fitted to others.

The questions are requests of the trace, joined to these by their lengths, or by query_id; where the lake has
none of the tier, they are drawn from the answers themselves.
"""

from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

import numpy as np
import pandas as pd

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.models.quality.answer_copula import AnswerModel
from fleetcast.models.quality.answers import JudgedAnswers
from fleetcast.models.quality.judges import Judge, QualityCatalogue, apply_judge, column_ranks
from fleetcast.models.quality.trace_answers import (
    LandedAnswers,
    ServedRequests,
    generate_answers,
    sample_landed_answers,
    sample_request_answers,
)
from fleetcast.models.world.quality_config import SCORE, QualityConfig
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known

SAME_SCORE_CORRELATION = (
    0.9999  # rank correlation of a score with what a judge says, from which on it is what that one says
)
REQUEST_TEXT_COLUMNS = ("llm", "app", "query_id")
AnswerSource = AnswerModel | LandedAnswers
UNPRICED_JUDGE = Judge(0.0, 0.0, "landed with the answers, its seconds and price are not known")


class Questions(NamedTuple):
    """What a plan is chosen and judged on."""

    answers: JudgedAnswers
    judge: Judge
    source: str  # whose answers, whose lengths, as it is told


def sample_questions(
    settings: RunSettings,
    quality: QualityCatalogue,
    said: QualityConfig,
    name: str,
    size: int,
    past: Sequence[date] | None = None,
) -> Questions:
    """So many questions, judged by this judge; ConfigError where answers or judge cannot be had.

    `past`: the days whose requests they are, else all that the lake has.
    """
    where, seed = f"{settings.config.file.name} [quality]", settings.config.trace.seed
    source, judge, told = find_answer_source(settings, quality, said, name, where)
    llms = source.answers.llms if isinstance(source, LandedAnswers) else source.llms
    requests = sample_tier_requests(settings, said.tier, llms, size, past)
    if requests is not None:
        told += f"; lengths of requests of {settings.trace}"
        return Questions(answer_requests(source, judge, said, requests, seed), judge, told)
    if isinstance(source, LandedAnswers):
        require_input_tokens(settings.trace, said, source)
        found = sample_landed_answers(source, judge, size, seed)
    else:
        found = generate_answers(source, judge, size, seed)
    return Questions(judge_service_answers(found, judge, said, seed), judge, told)


def find_answer_source(
    settings: RunSettings, quality: QualityCatalogue, said: QualityConfig, name: str, where: str
) -> tuple[AnswerSource, Judge, str]:
    """Whose answers they are, the judge by this name, and how that is told; ConfigError where one lacks."""
    source: AnswerSource
    if settings.lake.count("answers", trace=settings.trace):
        frame = settings.lake.read("answers", trace=settings.trace).to_pandas()
        judge = find_judge(quality, frame, name, where)
        source = join_landed_answers(settings.trace, frame, said, name, where)
        told = f"answers landed in {settings.trace}, {source.query_id.size:,} queries"
    else:
        if said.measured_by != SCORE:
            raise ConfigError(
                f"{where}: measured_by = {said.measured_by!r} needs answers that landed for "
                f"{settings.trace}. Land them, or drop it: the fitted score is no judge's."
            )
        require_known(said.answers, quality.answers, "answers", where)
        require_known(name, quality.judges, "judge", where)
        judge, source = quality.judges[name], quality.answers[said.answers]
        told = f"answers {said.answers}, fitted"
    llms = source.answers.llms if isinstance(source, LandedAnswers) else source.llms
    for llm in said.llms:
        require_known(llm, llms, "llm", f"{where} {told}")
    return source, judge, told


def answer_requests(
    source: AnswerSource, judge: Judge, said: QualityConfig, requests: ServedRequests, seed: int
) -> JudgedAnswers:
    """What the llms of a service make of requests."""
    return judge_service_answers(sample_request_answers(source, judge, requests, seed), judge, said, seed)


def judge_service_answers(
    found: JudgedAnswers, judge: Judge, said: QualityConfig, seed: int
) -> JudgedAnswers:
    """Of these llms' answers, judged among themselves."""
    return apply_judge(found.of(said.llms), judge, np.random.default_rng([seed, 0x1D6E]))


def sample_tier_requests(
    settings: RunSettings, tier: str, llms: Sequence[str], size: int, past: Sequence[date] | None = None
) -> ServedRequests | None:
    """So many requests of a tier of the trace, drawn, for one of these llms; None where there is none."""
    frame = settings.lake.sql(
        "reads/questions.sql",
        trace=settings.trace,
        tier=tier,
        llms=list(llms),
        past=None if past is None else list(past),
        size=size,
    ).to_pandas()
    if frame.empty:
        return None
    rng = np.random.default_rng([settings.config.trace.seed, 0x9E57])
    rows = np.arange(size) if len(frame) == size else rng.integers(0, len(frame), size)
    text = {
        name: frame[name].astype(object).where(frame[name].notna(), None).to_numpy()
        for name in REQUEST_TEXT_COLUMNS
    }
    inputs, outputs = (frame[name].to_numpy().astype(np.int64) for name in ("input_tokens", "output_tokens"))
    return ServedRequests(text["llm"].astype(str), text["app"], inputs, outputs, text["query_id"]).rows(rows)


def find_judge(quality: QualityCatalogue, frame: pd.DataFrame, name: str, where: str) -> Judge:
    """The judge: one who judged the answers that landed, else one of quality.toml with a skill."""
    judges = judge_names(frame)
    known = quality.judges.get(name)
    if name in judges:
        return Judge(known.seconds, known.usd_per_1000, known.source) if known else UNPRICED_JUDGE
    able = {name: judge for name, judge in quality.judges.items() if judge.skill is not None}
    if known is not None and known.skill is None:
        raise ConfigError(
            f"{where}: the judge {name} has not judged the answers that landed: they have no column "
            f"judge_{name}. Land one, or name one of {', '.join([*judges, *able])}."
        )
    require_known(name, [*judges, *able], "judge", where)
    return able[name]


def judge_names(frame: pd.DataFrame) -> list[str]:
    """Who has judged answers that landed."""
    return sorted({name for said in frame["judges"] for name, _ in said or ()})


def join_landed_answers(
    trace: str, frame: pd.DataFrame, said: QualityConfig, judge: str, where: str
) -> LandedAnswers:
    """The answers of all llms of a service to the queries that each has answered.

    ConfigError names an llm without an answer, llms without a query in common, and a judge who routes and
    measures where there is another.
    """
    require_answers(trace, frame, said, where)
    said_by = {
        name: pivot_by_llm(frame.assign(value=judge_scores(frame, name)), said) for name in judge_names(frame)
    }
    score = pivot_by_llm(frame.assign(value=frame["score"]), said)
    outputs = pivot_by_llm(frame.assign(value=frame["output_tokens"]), said)
    routes = said_by.get(judge)
    if said.measured_by != SCORE:
        score = measured_scores(score, said_by, said.measured_by, judge, where)
    elif routes is not None:
        require_separate_judge(score, routes, [name for name in said_by if name != judge], judge, where)
    whole = score.notna().all(axis=1)
    judged = routes[list(said.llms[:-1])] if routes is not None else score[list(said.llms[:-1])]
    whole &= judged.notna().all(axis=1)
    if not whole.any():
        raise ConfigError(
            f"{where}: no query has an answer of each of {', '.join(said.llms)} among those that landed for "
            f"{trace}, judged by {judge}. Land answers of all llms to the same queries."
        )
    rng = np.random.default_rng(0)
    at = score.index[whole]
    first = frame.groupby("query_id")[["input_tokens", "hardness"]].first().loc[at]
    hardness = first["hardness"].to_numpy(float)
    is_routed = not np.isnan(hardness).any()
    return LandedAnswers(
        at.to_numpy(),
        JudgedAnswers(
            said.llms,
            first["input_tokens"].fillna(0).to_numpy().astype(np.int64),
            outputs.loc[at].to_numpy().astype(np.int64),
            score.loc[at].to_numpy(float),
            column_ranks(judged.loc[at].to_numpy(float), rng),
            column_ranks(hardness[:, None], rng)[:, 0] if is_routed else np.full(len(at), np.nan),
        ),
    )


def require_answers(trace: str, frame: pd.DataFrame, said: QualityConfig, where: str) -> None:
    """Refuse a service with an llm of which no answer has landed."""
    there = set(frame["llm"])
    for llm in said.llms:
        if llm not in there:
            raise ConfigError(
                f"{where}: no answer of {llm} has landed for {trace}; there are those of "
                f"{', '.join(sorted(there))}. Land some, or drop it from llms."
            )


def judge_scores(frame: pd.DataFrame, judge: str) -> np.ndarray:
    """Of each answer, what one judge says; NaN: nothing."""
    return np.array([dict(said or ()).get(judge, np.nan) for said in frame["judges"]], np.float64)


def pivot_by_llm(frame: pd.DataFrame, said: QualityConfig) -> pd.DataFrame:
    """A row a query, a column an llm of the service."""
    return frame.pivot(index="query_id", columns="llm", values="value")[list(said.llms)].astype(float)


def measured_scores(
    score: pd.DataFrame, said_by: dict[str, pd.DataFrame], name: str, judge: str, where: str
) -> pd.DataFrame:
    """What the judge who measures says of each answer, as a score."""
    if name == judge:
        raise ConfigError(f"{where}: the judge {judge} routes; it does not measure too. Name another.")
    require_known(name, [SCORE, *said_by], "measured_by", where)
    found = said_by[name]
    low, high = float(np.nanmin(found.to_numpy())), float(np.nanmax(found.to_numpy()))
    if low < 0 or high > 1:
        raise ConfigError(
            f"{where}: measured_by {name}, who says {low:g} to {high:g}; quality needs 0 to 1. Divide "
            f"judge_{name} by its best grade and land the answers again."
        )
    return found


def require_separate_judge(
    score: pd.DataFrame, routes: pd.DataFrame, others: Sequence[str], judge: str, where: str
) -> None:
    """Refuse scores that are what the judge says who routes, where somebody else could measure."""
    both = (pd.Series(of.to_numpy().ravel()) for of in (score, routes))
    if others and next(both).corr(next(both), method="spearman") > SAME_SCORE_CORRELATION:
        raise ConfigError(
            f"{where}: the scores that landed are what the judge {judge} says, who routes and must not "
            f"measure too. Set measured_by to {' or '.join(others)}."
        )


def require_input_tokens(trace: str, said: QualityConfig, source: LandedAnswers) -> None:
    """Queries that are the requests must be known in length."""
    if not (source.answers.input_tokens > 0).all():
        raise ConfigError(
            f"The answers that landed for {trace} have no input_tokens, and the lake has no request of "
            f"{said.tier} to take lengths from. Land answers with input_tokens, or the requests."
        )


def has_router(answers: JudgedAnswers) -> bool:
    """Whether somebody says how hard a question looks."""
    return not bool(np.isnan(answers.hardness).any())
