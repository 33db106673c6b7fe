"""Find the answers of a quality plan: those that landed for the trace, else a model fitted to other answers.

The questions are requests of the trace, joined to the answers by their lengths or by query_id. Where the lake
has no request of the tier, questions are sampled from the answers themselves.
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

SAME_SCORE_CORRELATION = 0.9999  # above this rank correlation, a score is taken as the judge's own score
REQUEST_TEXT_COLUMNS = ("llm", "app", "query_id")
AnswerSource = AnswerModel | LandedAnswers
UNPRICED_JUDGE = Judge(0.0, 0.0, "landed with the answers, its seconds and price are not known")


class Questions(NamedTuple):
    """The questions that select and evaluate a plan."""

    answers: JudgedAnswers
    judge: Judge
    source: str  # describes the origin of the answers and the lengths


def sample_questions(
    settings: RunSettings,
    quality: QualityCatalogue,
    config: QualityConfig,
    name: str,
    size: int,
    past: Sequence[date] | None = None,
) -> Questions:
    """Return `size` questions with answers, judged by the named judge.

    `past` limits the requests to these days; None stands for all days of the lake. ConfigError where the
    answers or the judge are missing.
    """
    where, seed = f"{settings.config.file.name} [quality]", settings.config.trace.seed
    source, judge, origin = find_answer_source(settings, quality, config, name, where)
    llms = source.answers.llms if isinstance(source, LandedAnswers) else source.llms
    requests = sample_tier_requests(settings, config.tier, llms, size, past)
    if requests is not None:
        origin += f"; lengths of requests of {settings.trace}"
        return Questions(answer_requests(source, judge, config, requests, seed), judge, origin)
    if isinstance(source, LandedAnswers):
        require_input_tokens(settings.trace, config, source)
        answers = sample_landed_answers(source, judge, size, seed)
    else:
        answers = generate_answers(source, judge, size, seed)
    return Questions(judge_service_answers(answers, judge, config, seed), judge, origin)


def find_answer_source(
    settings: RunSettings, quality: QualityCatalogue, config: QualityConfig, name: str, where: str
) -> tuple[AnswerSource, Judge, str]:
    """Return the answers, the named judge, and a text on their origin; ConfigError where one is missing."""
    source: AnswerSource
    if settings.lake.count("answers", trace=settings.trace):
        frame = settings.lake.read("answers", trace=settings.trace).to_pandas()
        judge = find_judge(quality, frame, name, where)
        source = join_landed_answers(settings.trace, frame, config, name, where)
        origin = f"answers landed in {settings.trace}, {source.query_id.size:,} queries"
    else:
        if config.measured_by != SCORE:
            raise ConfigError(
                f"{where}: measured_by = {config.measured_by!r} needs answers that landed for "
                f"{settings.trace}. Land them, or drop it: the fitted score is not a judge's score."
            )
        require_known(config.answers, quality.answers, "answers", where)
        require_known(name, quality.judges, "judge", where)
        judge, source = quality.judges[name], quality.answers[config.answers]
        origin = f"answers {config.answers}, fitted"
    llms = source.answers.llms if isinstance(source, LandedAnswers) else source.llms
    for llm in config.llms:
        require_known(llm, llms, "llm", f"{where} {origin}")
    return source, judge, origin


def answer_requests(
    source: AnswerSource, judge: Judge, config: QualityConfig, requests: ServedRequests, seed: int
) -> JudgedAnswers:
    """Return the judged answers of a service's llms to requests."""
    return judge_service_answers(sample_request_answers(source, judge, requests, seed), judge, config, seed)


def judge_service_answers(
    answers: JudgedAnswers, judge: Judge, config: QualityConfig, seed: int
) -> JudgedAnswers:
    """Return the answers of the service's llms, judged among themselves."""
    return apply_judge(answers.of(config.llms), judge, np.random.default_rng([seed, 0x1D6E]))


def sample_tier_requests(
    settings: RunSettings, tier: str, llms: Sequence[str], size: int, past: Sequence[date] | None = None
) -> ServedRequests | None:
    """Return `size` sampled requests of a tier for one of these llms; None where the trace has none."""
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
    """Return the named judge of the landed answers, else of quality.toml with a skill; else ConfigError."""
    judges = judge_names(frame)
    known = quality.judges.get(name)
    if name in judges:
        return Judge(known.seconds, known.usd_per_1000, known.source) if known else UNPRICED_JUDGE
    able = {name: judge for name, judge in quality.judges.items() if judge.skill is not None}
    if known is not None and known.skill is None:
        raise ConfigError(
            f"{where}: the judge {name} has not judged the landed answers: they have no column "
            f"judge_{name}. Land one, or name one of {', '.join([*judges, *able])}."
        )
    require_known(name, [*judges, *able], "judge", where)
    return able[name]


def judge_names(frame: pd.DataFrame) -> list[str]:
    """Return the names of the judges of the landed answers."""
    return sorted({name for scores in frame["judges"] for name, _ in scores or ()})


def join_landed_answers(
    trace: str, frame: pd.DataFrame, config: QualityConfig, judge: str, where: str
) -> LandedAnswers:
    """Return the answers of a service's llms to the queries that all of them have answered.

    ConfigError names an llm without an answer, llms without a common query, or a judge that both routes and
    measures although there is another judge.
    """
    require_answers(trace, frame, config, where)
    scores_by_judge = {
        name: pivot_by_llm(frame.assign(value=judge_scores(frame, name)), config)
        for name in judge_names(frame)
    }
    score = pivot_by_llm(frame.assign(value=frame["score"]), config)
    outputs = pivot_by_llm(frame.assign(value=frame["output_tokens"]), config)
    routing_scores = scores_by_judge.get(judge)
    if config.measured_by != SCORE:
        score = measured_scores(score, scores_by_judge, config.measured_by, judge, where)
    elif routing_scores is not None:
        others = [name for name in scores_by_judge if name != judge]
        require_separate_judge(score, routing_scores, others, judge, where)
    is_whole = score.notna().all(axis=1)
    judged = (score if routing_scores is None else routing_scores)[list(config.llms[:-1])]
    is_whole &= judged.notna().all(axis=1)
    if not is_whole.any():
        raise ConfigError(
            f"{where}: no query has an answer of each of {', '.join(config.llms)} among those that landed "
            f"for {trace}, judged by {judge}. Land answers of all llms to the same queries."
        )
    rng = np.random.default_rng(0)
    queries = score.index[is_whole]
    first = frame.groupby("query_id")[["input_tokens", "hardness"]].first().loc[queries]
    hardness = first["hardness"].to_numpy(float)
    is_routed = not np.isnan(hardness).any()
    return LandedAnswers(
        queries.to_numpy(),
        JudgedAnswers(
            config.llms,
            first["input_tokens"].fillna(0).to_numpy().astype(np.int64),
            outputs.loc[queries].to_numpy().astype(np.int64),
            score.loc[queries].to_numpy(float),
            column_ranks(judged.loc[queries].to_numpy(float), rng),
            column_ranks(hardness[:, None], rng)[:, 0] if is_routed else np.full(len(queries), np.nan),
        ),
    )


def require_answers(trace: str, frame: pd.DataFrame, config: QualityConfig, where: str) -> None:
    """Raise ConfigError where no answer of one of the service's llms has landed."""
    there = set(frame["llm"])
    for llm in config.llms:
        if llm not in there:
            raise ConfigError(
                f"{where}: no answer of {llm} has landed for {trace}; there are answers of "
                f"{', '.join(sorted(there))}. Land some, or drop it from llms."
            )


def judge_scores(frame: pd.DataFrame, judge: str) -> np.ndarray:
    """Return one judge's score of each answer, (answers,); NaN where it has none."""
    return np.array([dict(scores or ()).get(judge, np.nan) for scores in frame["judges"]], np.float64)


def pivot_by_llm(frame: pd.DataFrame, config: QualityConfig) -> pd.DataFrame:
    """Return a frame with a row for each query and a column for each llm of the service."""
    return frame.pivot(index="query_id", columns="llm", values="value")[list(config.llms)].astype(float)


def measured_scores(
    score: pd.DataFrame, scores_by_judge: dict[str, pd.DataFrame], name: str, judge: str, where: str
) -> pd.DataFrame:
    """Return the measuring judge's scores; ConfigError for the routing judge or for scores outside 0 to 1."""
    if name == judge:
        raise ConfigError(f"{where}: the judge {judge} routes, so it cannot measure too. Name another.")
    require_known(name, [SCORE, *scores_by_judge], "measured_by", where)
    found = scores_by_judge[name]
    low, high = float(np.nanmin(found.to_numpy())), float(np.nanmax(found.to_numpy()))
    if low < 0 or high > 1:
        raise ConfigError(
            f"{where}: measured_by {name}, with scores from {low:g} to {high:g}; quality needs 0 to 1. "
            f"Divide judge_{name} by its best grade and land the answers again."
        )
    return found


def require_separate_judge(
    score: pd.DataFrame, routing_scores: pd.DataFrame, others: Sequence[str], judge: str, where: str
) -> None:
    """Raise ConfigError where the landed scores are the routing judge's and another judge could measure."""
    measured, routed = (pd.Series(frame.to_numpy().ravel()) for frame in (score, routing_scores))
    if others and measured.corr(routed, method="spearman") > SAME_SCORE_CORRELATION:
        raise ConfigError(
            f"{where}: the landed scores are those of the judge {judge}, which routes and must not measure "
            f"too. Set measured_by to {' or '.join(others)}."
        )


def require_input_tokens(trace: str, config: QualityConfig, source: LandedAnswers) -> None:
    """Raise ConfigError where landed queries serve as requests but have no input lengths."""
    if not (source.answers.input_tokens > 0).all():
        raise ConfigError(
            f"The landed answers of {trace} have no input_tokens, and the lake has no request of "
            f"{config.tier} to take lengths from. Land answers with input_tokens, or the requests."
        )


def has_router(answers: JudgedAnswers) -> bool:
    """Return whether every question has a hardness, which a router reads."""
    return not bool(np.isnan(answers.hardness).any())
