"""Answers for the requests of a trace: what every llm would have made of each, given its own lengths.

Length and difficulty go together: requests that are sent on are longer than others. So the ranks of a request
among those of its llm and app are kept as the normals of its lengths, and the rest is drawn given these.
Output tokens of another llm are the request's own, times the ratio of what the model says of the two llms at
their normals. The llm that the trace asks for keeps the request's own tokens.
"""

import numpy as np

from models.quality.answers import Answers, Floats, Ints
from models.quality.copula import AnswerModel, Columns, drawn_answers, normals, normals_given
from models.quality.judges import Judge, judged_by
from models.world.reading import require_known

STREAM = 0x9A17  # of the seed, that quality is drawn from
CLIP = (1 / 64, 64.0)  # of the ratio of two llms' output tokens


def made_up(model: AnswerModel, judge: Judge, size: int, seed: int) -> Answers:
    """So many questions with their answers, drawn from the model."""
    rng = np.random.default_rng([seed, STREAM])
    return judged_by(drawn_answers(model, normals(model.matrix, size, rng)), judge, rng)


def joined(
    model: AnswerModel,
    judge: Judge,
    llm: str,
    input_tokens: Ints,
    output_tokens: Ints,
    groups: Ints | None = None,
    seed: int = 0,
) -> Answers:
    """The answers to requests that were served by one llm of the model; ConfigError for another llm.

    Parameters
    ----------
    input_tokens, output_tokens : shape (N,), the requests' own
    groups : shape (N,), requests with like lengths (an app); ranks are taken within each. None: one group
    """
    require_known(llm, model.llms, "llm", "the answers' model")
    rng, own = np.random.default_rng([seed, STREAM]), model.llms.index(llm)
    group = np.zeros(input_tokens.size, np.int64) if groups is None else groups
    at = Columns(len(model.llms))
    lengths = np.column_stack([normal_ranks(tokens, group, rng) for tokens in (input_tokens, output_tokens)])
    z = normals_given(model.matrix, [at.input, at.output.start + own], lengths, rng)
    drawn = judged_by(drawn_answers(model, z), judge, rng)
    ratio = drawn.output_tokens / drawn.output_tokens[:, [own]]
    outputs = np.maximum(np.round(output_tokens[:, None] * ratio.clip(*CLIP)), 1).astype(np.int64)
    return drawn._replace(input_tokens=input_tokens, output_tokens=outputs)


def normal_ranks(values: Ints, group: Ints, rng: np.random.Generator) -> Floats:
    """Each value as the normal of its rank within its group, ties in an order that is drawn."""
    from scipy.special import ndtri

    order = np.lexsort((rng.random(values.size), values, group))
    counts = np.bincount(group)
    place = np.empty(values.size)
    place[order] = np.arange(values.size) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(ndtri((place + 0.5) / counts[group]))


def matched(
    answers: Answers, judge: Judge, llm: str, input_tokens: Ints, output_tokens: Ints, seed: int = 0
) -> Answers:
    """Rows of answers that landed for requests of one llm, whose lengths stand as high among their own.

    The requests keep their input tokens, and the output tokens of the llm that served them.
    """
    require_known(llm, answers.llms, "llm", "the answers")
    rng, own = np.random.default_rng([seed, STREAM]), answers.llms.index(llm)
    theirs = np.argsort(length_sum(answers.input_tokens, answers.output_tokens[:, own], rng))
    wanted = np.argsort(np.argsort(length_sum(input_tokens, output_tokens, rng)))
    drawn = (wanted + rng.random(wanted.size)) * theirs.size / max(wanted.size, 1)
    rows = answers.rows(theirs[drawn.astype(np.int64)])
    ratio = rows.output_tokens / rows.output_tokens[:, [own]]
    outputs = np.maximum(np.round(output_tokens[:, None] * ratio.clip(*CLIP)), 1).astype(np.int64)
    return judged_by(rows._replace(input_tokens=input_tokens, output_tokens=outputs), judge, rng)


def length_sum(input_tokens: Ints, output_tokens: Ints, rng: np.random.Generator) -> Floats:
    """How long requests are among all: the sum of the normals of both lengths."""
    one = np.zeros(input_tokens.size, np.int64)
    return normal_ranks(input_tokens, one, rng) + normal_ranks(output_tokens, one, rng)
