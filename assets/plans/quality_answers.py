"""What llms make of a day's requests: joined to answers where [quality] names any, else drawn.

Joined, every llm's answer has its own length, judges say of it what they say of such answers, and quality is
known. Drawn, all answers are as long as the request's, and whether one will do is a lot.
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
ANSWER_SCORE_STREAM = 0xCA5C  # of the seed and the day, that scores are drawn from


class KnownAnswers(NamedTuple):
    """Answers to the requests of the service that [quality] describes."""

    answers: JudgedAnswers  # of its llms
    place: Ints  # (N,) of each of the day's requests among them; NOBODY: it asks for another llm

    def has_answers(self, llms: Sequence[str], rows: Ints) -> bool:
        """Whether these requests, by their place, have answers of these llms."""
        return set(llms) <= set(self.answers.llms) and bool((self.place[rows] != NO_INDEX).all())

    def scores_by_llm(self, llms: Iterable[str], answerer: npt.NDArray[np.integer]) -> Floats:
        """How good each request's answer by this llm is, (N,); NaN where nothing is known of it."""
        column = np.array([self.answers.llms.index(m) if m in self.answers.llms else NO_INDEX for m in llms])
        at, told = column[answerer], np.full(self.place.size, np.nan)
        rows = np.flatnonzero((self.place != NO_INDEX) & (at != NO_INDEX))
        told[rows] = self.answers.score[self.place[rows], at[rows]]
        return told


def find_known_answers(settings: RunSettings, day: date, table: pa.Table) -> KnownAnswers | None:
    """The answers to requests of a day; None where the config has no [quality], or nobody asks for it.

    `table` has their llm, app, query_id and tokens.
    """
    said = settings.config.quality
    if said is None:
        return None
    own = pc.is_in(table["llm"], pa.array(said.llms)).combine_chunks().to_numpy(zero_copy_only=False)
    if not own.any():
        return None
    rows = table.filter(pa.array(own))
    llm, app, query_id = (rows[name].to_numpy().astype(object) for name in REQUEST_TEXT_COLUMNS)
    inputs, outputs = (rows[name].to_numpy().astype(np.int64) for name in ("input_tokens", "output_tokens"))
    requests = ServedRequests(llm.astype(str), app, inputs, outputs, query_id)
    where = f"{settings.config.file.name} [quality]"
    source, judge, _ = find_answer_source(settings, load_quality(), said, said.judge, where)
    seed = settings.config.trace.seed + day.toordinal()
    place = np.where(own, np.cumsum(own) - 1, NO_INDEX)
    return KnownAnswers(answer_requests(source, judge, said, requests, seed), place)


class AnswerSampler:
    """What the llms of cascades make of the requests of a day."""

    def __init__(
        self,
        settings: RunSettings,
        day: date,
        known: KnownAnswers | None,
        input_tokens: RequestTokens,
        output_tokens: RequestTokens,
    ) -> None:
        """Tokens of all of its requests, shape (N,) each."""
        self.known, self.tokens = known, (input_tokens, output_tokens)
        self.rng = np.random.default_rng([settings.config.trace.seed, day.toordinal(), ANSWER_SCORE_STREAM])

    def answers(self, cascade: Cascade, rows: Ints) -> JudgedAnswers:
        """Of some of the requests, by their place."""
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
