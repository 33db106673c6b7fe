"""Fit data/catalogue/quality.toml to answers that were judged: python tests/bench/fit_quality.py"""

from pathlib import Path

import numpy as np
import pandas as pd
from copula_fit import fit
from measure import ROOT, SHARED
from scipy.stats import rankdata

from fleetcast.models.quality.answer_copula import AnswerModel
from fleetcast.models.quality.answers import JudgedAnswers

TARGET = ROOT / "data" / "catalogue" / "quality.toml"
MMLU_PRO = SHARED / "quality" / "mmlu_pro_answers.csv.gz"
WILDBENCH = SHARED / "quality" / "wildbench_scores.csv.gz"
LLMS = {"phi3-mini": "phi3-mini-3.8b", "llama3.1-8b": "llama3.1-8b", "llama3.1-70b": "llama3.1-70b"}
CHATTING = ("gemma-2b-it", "gemma-7b-it", "Phi-3-mini-128k-instruct", "Qwen1.5-72B-Chat-greedy")
CHARACTERS = 4  # of a token
SOURCE = (
    "fitted to {:,} questions of MMLU-Pro (TIGER-AI-Lab/MMLU-Pro, eval_results, Apache-2.0), tokens = "
    "characters / 4; judge and router: logistic regressions on question and answer, out of fold"
)

LLM_JUDGE = (
    "skill: correlation of what GPT-4o and GPT-4-turbo say of 1,016 chat answers of each of four llms "
    "(allenai/WildBench, Apache-2.0), which is not yet that either is right; seconds: Cascadia 4.1, footnote "
    "4; price: estimated, 400 input tokens at 2.50 USD a million"
)


def mmlu_pro() -> JudgedAnswers:
    """What three llms answered to MMLU-Pro."""
    table = pd.read_csv(MMLU_PRO).dropna(subset=[f"{name}_right" for name in LLMS.values()])

    def columns(kind: str) -> np.ndarray:
        return np.column_stack([table[f"{name}_{kind}"] for name in LLMS.values()])

    judged = [table[f"judge_{name}"] for name in list(LLMS.values())[:-1]]
    return JudgedAnswers(
        tuple(LLMS),
        tokens(table["prompt_chars"].to_numpy()),
        tokens(columns("chars")),
        columns("right").astype(float),
        np.column_stack([as_rank(column) for column in judged]),
        as_rank(-table["route_llama3.1-8b"]),
    )


def tokens(characters: np.ndarray) -> np.ndarray:
    """Tokens of texts of so many characters, one at least."""
    return np.maximum(np.round(characters / CHARACTERS), 1).astype(np.int64)


def as_rank(values: pd.Series) -> np.ndarray:
    """Ranks between 0 and 1."""
    return np.asarray((rankdata(values) - 0.5) / len(values))


def llm_judge_skill() -> float:
    """The correlation of two llms that judge the same answers: the mean by the llm that answers."""
    scores = pd.read_csv(WILDBENCH)
    found = [scores[f"{llm}_gpt4o"].corr(scores[f"{llm}_gpt4turbo"]) for llm in CHATTING]
    return round(float(np.mean(found)), 2)


def as_toml(name: str, model: AnswerModel, skill: float) -> str:
    """The file."""

    def listed(rows: tuple[tuple[float, ...], ...]) -> str:
        return "[\n" + "".join(f"  [{', '.join(f'{x:g}' for x in row)}],\n" for row in rows) + "]"

    return f"""\
# Quality and length of llms' answers, and the judges. Written by tests/bench/fit_quality.py.
[answers.{name}]
llms = [{", ".join(f'"{llm}"' for llm in model.llms)}]
questions = {model.questions}
grades = {list(model.grades)}
grade_shares = {listed(model.grade_shares)}
output_tokens = {listed(model.output_tokens)}
input_tokens = [{", ".join(f"{x:g}" for x in model.input_tokens)}]
correlation = {listed(model.correlation)}
source = "{model.source}"

[judges.random]
skill = 0.0
seconds = 0.0
usd_per_1000 = 0.0
source = "by definition: draws lots"

[judges.learned]
seconds = 0.02
usd_per_1000 = 0.0
source = "skill as fitted above; seconds: estimated for a classifier next to the llm"

[judges.llm]
skill = {skill}
seconds = 0.27
usd_per_1000 = 1.0
source = "{LLM_JUDGE}"

[judges.oracle]
skill = 1.0
seconds = 0.0
usd_per_1000 = 0.0
source = "by definition: knows how good the answer is"
"""


def main(target: Path = TARGET) -> None:
    """Fit and write."""
    answers = mmlu_pro()
    model = fit(answers, SOURCE.format(len(answers.input_tokens)))
    target.write_text(as_toml("mmlu_pro", model, llm_judge_skill()), encoding="utf-8")
    print(f"{target}: smallest eigenvalue {np.linalg.eigvalsh(model.matrix)[0]:.3f}")


if __name__ == "__main__":
    main()
