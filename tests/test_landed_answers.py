"""Landed answers in `fleetcast plan quality`: which ones are used, which judge scores, what is refused."""

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_plan_quality import CONFIG, DEFAULTS, run_plan_quality

from fleetcast.assets.lake.settings import RunSettings, load_settings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.plans.quality_questions import Questions, sample_questions
from fleetcast.assets.traces.ingest import ingest_file
from fleetcast.assets.traces.request_days import canonical_requests
from fleetcast.assets.traces.staging import withdraw_file
from fleetcast.models.quality.judges import load_quality
from fleetcast.models.quality.trace_answers import generate_answers
from fleetcast.models.traffic.trace_columns import DayColumns
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.toml_dataclasses import ConfigError

QUALITY = load_quality()
PAIR = ("llama3.1-8b", "llama3.1-70b")
DRAWN = generate_answers(QUALITY.answers["mmlu_pro"], QUALITY.judges["learned"], 1_500, seed=9).of(PAIR)
TRACE = "small_quality"


def table(**columns: object) -> pd.DataFrame:
    """Return the answers of two llms to 1,500 queries; one of two judges gives the score."""
    rng = np.random.default_rng(3)
    parts = [
        pd.DataFrame({
            "query_id": [f"q{n}" for n in range(1_500)],
            "llm": llm,
            "score": DRAWN.score[:, at],
            "output_tokens": DRAWN.output_tokens[:, at],
            "input_tokens": DRAWN.input_tokens,
            "judge_own": 10 * (DRAWN.score[:, at] + rng.normal(0, 0.5, 1_500)),
            "judge_same": 2 * DRAWN.score[:, at] - 7,
            "judge_strict": 0.5 * DRAWN.score[:, at],
        })
        for at, llm in enumerate(PAIR)
    ]  # fmt: skip
    return pd.concat(parts).assign(**columns)


def land(folder: Path, rows: pd.DataFrame) -> Lake:
    """Return a lake in the folder with these answers for the trace of the config."""
    lake, path = Lake(folder / "lake"), folder / "judged.csv"
    rows.to_csv(path, index=False)
    (folder / "judged.toml").write_text(f'trace = "{TRACE}"')
    ingest_file(path, lake, load_catalogue())
    return lake


def settings_with(folder: Path, **changes: object) -> RunSettings:
    path = folder / "mine.toml"
    path.write_text(CONFIG.format(**DEFAULTS))
    settings = load_settings(str(path), folder / "lake")
    quality = dataclasses.replace(settings.config.quality, **changes)  # type: ignore[type-var,arg-type]
    return settings.with_config(quality=quality)


def questions(folder: Path, judge: str = "own", **changes: object) -> Questions:
    settings = settings_with(folder, judge=judge, **changes)
    assert settings.config.quality is not None
    return sample_questions(settings, QUALITY, settings.config.quality, judge, 4_000)


def test_a_plan_uses_and_names_the_landed_answers(tmp_path: Path) -> None:
    """A judge column without a router gives a cascade only. Halved scores differ from the model's."""
    land(tmp_path, table(score=np.concatenate([0.5 * DRAWN.score[:, 0], 0.5 * DRAWN.score[:, 1]])))
    printed = " ".join(run_plan_quality(tmp_path, "--quality=0.28", "--latency=30", judge="own").split())
    assert "cascade by the judge own" in printed
    assert "answers landed in small_quality, 1,500 queries)" in printed
    assert "route_by_tables" not in printed


def test_the_routing_judge_is_not_the_scoring_judge(tmp_path: Path) -> None:
    land(tmp_path, table())
    by_score, by_other = questions(tmp_path), questions(tmp_path, measured_by="strict")
    assert by_other.answers.score.mean() == pytest.approx(0.5 * by_score.answers.score.mean())
    np.testing.assert_array_equal(by_score.answers.judged, by_other.answers.judged)
    agrees = np.corrcoef(by_score.answers.judged[:, 0], by_score.answers.score[:, 0])[0, 1]
    assert 0.5 < agrees < 0.8
    assert (by_score.judge.seconds, by_score.judge.usd_per_1000) == (0, 0)
    oracle = questions(tmp_path, judge="oracle")
    assert np.corrcoef(oracle.answers.judged[:, 0], oracle.answers.score[:, 0])[0, 1] > 0.8


@pytest.mark.parametrize(
    ("rows", "changes", "message"),
    [
        ({}, {"measured_by": "own"}, "the judge own routes, so it cannot measure too"),
        ({}, {"measured_by": "same"}, r"measured_by same, with scores from -7 to -5; quality needs 0 to 1"),
        ({}, {"measured_by": "strickt"}, r"unknown measured_by 'strickt'. Did you mean 'strict'\?"),
        ({}, {"judge": "same"}, r"are those of the judge same, .* Set measured_by to own or strict\."),
        ({}, {"judge": "learned"}, r"judge learned has not judged .* judge_learned\. Land one, or name one"),
        ({}, {"judge": "oracel"}, r"unknown judge 'oracel'. Did you mean 'oracle'"),
        ({"llm": PAIR[0], "query_id": range(3_000)}, {}, "no answer of llama3.1-70b has landed"),
        ({"query_id": range(3_000)}, {}, r"no query has an answer of each of llama3.1-8b, llama3.1-70b"),
        ({"input_tokens": ""}, {}, r"have no input_tokens, and the lake has no request of iw_normal"),
    ],
)
def test_unusable_answers_are_refused_in_one_line(
    rows: dict[str, object], changes: dict[str, str], message: str, tmp_path: Path
) -> None:
    land(tmp_path, table(**rows))
    with pytest.raises(ConfigError, match=message) as refused:
        questions(tmp_path, **changes)
    assert "\n" not in str(refused.value)


def test_invalid_scores_and_repeated_answers_are_quarantined(tmp_path: Path) -> None:
    rows = table()
    rows.loc[rows["score"] == 1, "score"] = 9
    lake = land(tmp_path, pd.concat([rows, rows.head(10)]))
    quarantined = lake.sql("select reason, count(*)::int as n from quarantine group by reason").to_pylist()
    nines = int((rows["score"] == 9).sum())
    zeros = int((rows.head(10)["score"] == 0).sum())
    assert {one["reason"].split(":")[0]: one["n"] for one in quarantined} == {
        "score lies outside 0 to 1": nines + 10 - zeros,
        "its query_id and llm are used by an earlier row": zeros,
    }
    assert lake.count("answers") == 3_000 - nines
    assert lake.sql("checks/rows_are_conserved.sql").num_rows == 0
    withdraw_file(lake, TRACE, "judged.csv")
    assert lake.count("answers") + lake.count("ingests") == 0


def test_questions_have_the_lengths_of_the_trace_requests(tmp_path: Path) -> None:
    """Requests of the tier; fitted answers and landed ones alike."""
    settings, size = settings_with(tmp_path, judge="own"), 900
    none, tiers = np.zeros(size, np.int16), np.random.default_rng(0).integers(0, 3, size)
    small = np.full(size, list(settings.catalogue.llms).index(PAIR[0]), np.int16)
    tokens = (np.arange(1, size + 1, dtype=np.int32), np.arange(5_000, 5_000 + size, dtype=np.int32))
    columns = DayColumns(np.arange(size) * 1_000, none, small, tiers.astype(np.int16), none, *tokens)
    day = settings.config.trace.first_day
    rows = canonical_requests(columns, day, "test", settings.catalogue, ["chat"])
    settings.lake.write("requests", rows, trace=TRACE, day=day)
    wanted = tiers == list(settings.catalogue.tiers).index("iw_normal")
    assert settings.config.quality is not None
    fitted = sample_questions(settings, QUALITY, settings.config.quality, "learned", 400)
    land(tmp_path, table())
    landed = sample_questions(settings, QUALITY, settings.config.quality, "own", 400)
    for found in (fitted, landed):
        own = found.answers.output_tokens[:, 0]
        assert set(own) <= set(tokens[1][wanted])
        np.testing.assert_array_equal(own - found.answers.input_tokens, 4_999)
        assert "; lengths of requests of small_quality" in found.source
