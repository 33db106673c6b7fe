"""The llms' answers to a day's requests: joined to known answers where [quality] names any, else sampled.

A joined answer has its llm's own length, the judges' scores of such answers, and a known quality. A sampled
answer has the length of the request's answer, and a random score decides whether it is accepted.
"""

from collections.abc import Iterable, Sequence
from datetime import date
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.plans.quality_questions import REQUEST_TEXT_COLUMNS, answer_requests, find_answer_source
from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.quality.answers import JudgedAnswers
from fleetcast.models.quality.judges import load_quality
from fleetcast.models.quality.trace_answers import ServedRequests
from fleetcast.models.replay.kernel_inputs import NO_INDEX
from fleetcast.models.world.replay_config import Cascade

RequestTokens = npt.NDArray[np.int32]
ANSWER_SCORE_STREAM = 0xCA5C  # random stream of the sampled scores, with the seed and the day


class KnownAnswers(NamedTuple):
    """Answers to the requests of the service that [quality] describes."""

    answers: JudgedAnswers  # of its llms
    place: Ints  # (N,) row in `answers` of each of the day's requests; NO_INDEX for another service's request

    def has_answers(self, llms: Sequence[str], rows: Ints) -> bool:
        """Return whether the requests of `rows`, (rows,), have answers of these llms."""
        return set(llms) <= set(self.answers.llms) and bool((self.place[rows] != NO_INDEX).all())

    def scores_by_llm(self, llms: Iterable[str], serving_llm: npt.NDArray[np.integer]) -> Floats:
        """Return the score of each request's answer.

        llms : names by index
        serving_llm : (N,) index of the llm that answers each request

        Returns
        -------
        (N,) score from 0 to 1, NaN where it is not known
        """
        known = self.answers.llms
        column = np.array([known.index(llm) if llm in known else NO_INDEX for llm in llms])
        at, score = column[serving_llm], np.full(self.place.size, np.nan)
        rows = np.flatnonzero((self.place != NO_INDEX) & (at != NO_INDEX))
        score[rows] = self.answers.score[self.place[rows], at[rows]]
        return score


def find_known_answers(settings: RunSettings, day: date, table: pa.Table) -> KnownAnswers | None:
    """Return the answers to requests of a day; None without a [quality] section or without its requests.

    `table` has the requests' llm, app, query_id and tokens.
    """
    quality = settings.config.quality
    if quality is None:
        return None
    is_served = pc.is_in(table["llm"], pa.array(quality.llms)).combine_chunks().to_numpy(zero_copy_only=False)
    if not is_served.any():
        return None
    rows = table.filter(pa.array(is_served))
    llm, app, query_id = (rows[name].to_numpy().astype(object) for name in REQUEST_TEXT_COLUMNS)
    inputs, outputs = (rows[name].to_numpy().astype(np.int64) for name in ("input_tokens", "output_tokens"))
    requests = ServedRequests(llm.astype(str), app, inputs, outputs, query_id)
    where = f"{settings.config.file.name} [quality]"
    source, judge, _ = find_answer_source(settings, load_quality(), quality, quality.judge, where)
    seed = settings.config.trace.seed + day.toordinal()
    place = np.where(is_served, np.cumsum(is_served) - 1, NO_INDEX)
    return KnownAnswers(answer_requests(source, judge, quality, requests, seed), place)


class AnswerSampler:
    """Answers of cascades' llms to the requests of a day: the known ones, else sampled ones."""

    def __init__(
        self,
        settings: RunSettings,
        day: date,
        known: KnownAnswers | None,
        input_tokens: RequestTokens,
        output_tokens: RequestTokens,
    ) -> None:
        """`input_tokens` and `output_tokens` of all requests of the day, each of shape (N,)."""
        self.known, self.tokens = known, (input_tokens, output_tokens)
        self.rng = np.random.default_rng([settings.config.trace.seed, day.toordinal(), ANSWER_SCORE_STREAM])

    def answers(self, cascade: Cascade, rows: Ints) -> JudgedAnswers:
        """Return the answers of a cascade's llms to the requests of `rows`, (rows,)."""
        known = self.known
        if known is not None and known.has_answers(cascade.llms, rows):
            return known.answers.rows(known.place[rows]).of(cascade.llms)
        llms, (inputs, outputs) = len(cascade.llms), self.tokens
        return JudgedAnswers(
            cascade.llms,
            inputs[rows].astype(np.int64),
            np.repeat(outputs[rows, None].astype(np.int64), llms, axis=1),
            np.full((rows.size, llms), np.nan),
            self.rng.random((rows.size, llms - 1)),
            self.rng.random(rows.size),
        )
