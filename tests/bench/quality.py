"""Which llm answers what: the model of answers, tables by the replay, exact plans, those of the papers."""

import numpy as np
from measure import Figures, Skipped, Target

from models.quality.answers import Answers, quality, taken
from models.quality.join import made_up
from models.quality.judges import load_quality

PAIR = ("llama3.1-8b", "llama3.1-70b")
THREE = ("phi3-mini", *PAIR)
SENT_SHARES = (0.3, 0.5, 0.7)
DRAWN = 200_000
TARGETS = {
    "quality_copula_points": Target(
        "", "quality of 8B and 70B at 30, 50, 70 % sent on, drawn less real, worst", at_most=0.01
    ),
    "quality_copula_tokens": Target(
        "", "the same: output tokens of what is sent on, drawn over real, less 1, worst", at_most=0.06
    ),
    "quality_copula_points_phi3": Target("", "the quality of phi3-mini and 70B likewise"),
    "quality_copula_apart": Target(
        "", "output tokens of what is sent on, had quality been drawn apart from length, over real, less 1"
    ),
}


def copula() -> Figures:
    """The model of answers against the answers that it was fitted to."""
    real = real_answers()
    catalogue = load_quality()
    drawn = made_up(catalogue.answers["mmlu_pro"], catalogue.judges["learned"], DRAWN, seed=1)
    points, tokens = off_by(real.of(PAIR), drawn.of(PAIR))
    phi3, _ = off_by(real.of((THREE[0], THREE[2])), drawn.of((THREE[0], THREE[2])))
    apart = [drawn.output_tokens[:, 2].mean() / sent_tokens(real.of(PAIR), s) - 1 for s in SENT_SHARES]
    return {
        "quality_copula_points": points,
        "quality_copula_tokens": tokens,
        "quality_copula_points_phi3": phi3,
        "quality_copula_apart": min(apart),
    }


def real_answers() -> Answers:
    """MMLU-Pro's."""
    from fit_quality import MMLU_PRO, mmlu_pro

    if not MMLU_PRO.exists():
        raise Skipped(f"no {MMLU_PRO.name}: lay the shared data beside the checkout")
    return mmlu_pro()


def off_by(real: Answers, drawn: Answers) -> tuple[float, float]:
    """By how much quality and tokens sent on differ at worst."""
    points = [
        quality(drawn, taken(drawn, "cascade", [s])) - quality(real, taken(real, "cascade", [s]))
        for s in SENT_SHARES
    ]
    tokens = [sent_tokens(drawn, s) / sent_tokens(real, s) - 1 for s in SENT_SHARES]
    return float(np.abs(points).max()), float(np.abs(tokens).max())


def sent_tokens(answers: Answers, share: float) -> float:
    """Mean output tokens of the large llm on the questions that are sent on to it."""
    return float(answers.output_tokens[taken(answers, "cascade", [share]).reached[:, 1], 1].mean())


FUNCTIONS = (copula,)
