"""Plans of who answers on an ordinary night: what they say is what is replayed, and its cost is reported."""

import re
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small import in_hours, make_plans, shipped

from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.lake.sql_files import SQL
from fleetcast.assets.plans.nightly_quality import apply_quality_plan, nightly_question_name
from fleetcast.assets.plans.request_mixes import token_mixes
from fleetcast.assets.replays.replay_workloads import expand_request_stages, read_workload
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.replays.scorecards import read_scoreboard, score_day
from fleetcast.models.world.cascades import stages_per_request
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.policies import ANSWER_PLANNERS
from fleetcast.models.world.toml_dataclasses import ConfigError
from fleetcast.pipelines.scoreboard import show_scoreboard

DAY = date(2025, 7, 3)
SMALL, LARGE, JUDGE = "llama3.1-8b", "llama3.1-70b", "llama3.2-3b"
RUBRIC, SHADOWS = 150, 0.05
SMALLER = {
    "name": '"small_cascades"',
    "days": "3",
    "requests_per_day": "80_000",
    "history_days": "2",
    "policies": '["corrected", "quality", "cascadia", "boute"]',
}


def written(folder: Path, change: Callable[[str], str] = lambda text: text, **values: str) -> str:
    """The shipped config with other figures, and changed as a text; its path."""
    path = folder / "mine.toml"
    path.write_text(change(shipped("cascades", **(SMALLER | values))))
    return str(path)


def quick(text: str) -> str:
    """All requests within two hours, fewer points and replays in the search."""
    few = "[quality]\npoints = 7\nrequests = 3_000\nreplays = 12\n"
    return in_hours(text, 10, 11).replace("[quality]\n", few)


def night_of(folder: Path, config: str) -> RunSettings:
    """A day from its requests to its scorecard."""
    settings = load_settings(config, folder / "lake")
    make_plans(settings, DAY, lambda settings, *_: [2000.0] * len(settings.grid.service_options))
    replay_day(settings, DAY, settings.config.replay.policies, Progress())
    score_day(settings, DAY)
    return settings


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    folder = tmp_path_factory.mktemp("nights")
    return night_of(folder, written(folder, quick))


@pytest.fixture(scope="module")
def reported(night: RunSettings) -> pd.DataFrame:
    return night.lake.sql("select * from outcomes where status = 'finished'").to_pandas()


def test_every_check_holds(night: RunSettings) -> None:
    for check in sorted((SQL / "checks").glob("*.sql")):
        assert night.lake.sql(f"checks/{check.name}", trace=night.trace, day=DAY).num_rows == 0, check.name


@pytest.mark.parametrize("policy", ANSWER_PLANNERS)
def test_what_a_plan_says_of_who_answers_is_what_is_replayed(
    night: RunSettings, reported: pd.DataFrame, policy: str
) -> None:
    """Shares, instances and quality; the config's own cascade, which `corrected` has, sends on others."""
    requirement = {"question": nightly_question_name(DAY), "plan": policy}
    where = "where question = $question and plan = $plan"
    plan = night.lake.sql(f"from quality_plans {where}", **requirement).to_pylist()[0]
    pools = night.lake.sql(f"from quality_pools {where}", **requirement).to_pandas()
    own = reported[reported["policy"] == policy]
    limit = float(plan["thresholds"])
    sent = limit if plan["rule"] == "cascade" else 1 - limit
    assert 0.1 < sent < 0.9
    assert abs(sent - 0.56) > 0.02
    assert (own["served_llm"] == LARGE).mean() == pytest.approx(sent, abs=0.01)
    assert (own["earlier_s"] > 0).mean() == pytest.approx(sent if plan["rule"] == "cascade" else 0, abs=0.01)
    held = night.lake.sql(
        "select llm, gpu, sum(serving_s) / 86_400 as instances from fleet_hours "
        "where policy = $policy group by all having instances > 0",
        policy=policy,
    ).to_pandas()
    kept = pools.groupby(["llm", "gpu"])["instances"].sum()
    np.testing.assert_allclose(held.set_index(["llm", "gpu"])["instances"].sort_index(), kept.sort_index())
    assert own["score"].mean() == pytest.approx(plan["promised_quality"], abs=0.03)
    assert own["e2e_s"].quantile(0.95) <= 1.05 * plan["required_latency_s"]


def test_the_scoreboard_shows_quality_and_cost(
    night: RunSettings, reported: pd.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    board = night.lake.sql("select * from scoreboard").to_pandas().set_index("policy")
    mean = reported.groupby("policy")["score"].mean()
    np.testing.assert_allclose(board["quality"].sort_index(), mean.sort_index())
    show_scoreboard(read_scoreboard(night, DAY), night.trace, DAY)
    shown = capsys.readouterr().out
    assert all(f"{quality:.3f}" in shown for quality in mean)
    assert (reported.loc[reported["policy"] == "corrected", "served_llm"] == LARGE).mean() == pytest.approx(
        0.56, abs=0.01
    )
    assert board.loc["quality", "usd"] <= board.loc[["cascadia", "boute"], "usd"].min() + 1e-6


def test_answers_have_the_lengths_of_their_llm(night: RunSettings, reported: pd.DataFrame) -> None:
    """What is sent on is longer than the rest, and the small llm writes more than was required."""
    own = reported[reported["policy"] == "cascadia"]
    is_on = own["served_llm"] == LARGE
    assert own.loc[is_on, "output_tokens"].mean() > 1.05 * own.loc[~is_on, "output_tokens"].mean()
    cascade = apply_quality_plan(night, DAY, "cascadia").config.replay.cascades[LARGE]
    assert cascade.llms == (SMALL, LARGE)
    assert apply_quality_plan(night, DAY, "boute").config.replay.cascades[LARGE].at_arrival


@pytest.fixture(scope="module")
def judged_here(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    """A night whose judge is an llm of the catalogue, with shadows, in the config's cascade and in a
    plan's.
    """
    folder = tmp_path_factory.mktemp("judges")
    by = f'judge_llm = "{JUDGE}", rubric_tokens = {RUBRIC}, shadow_share = {SHADOWS}'

    def change(text: str) -> str:
        text = text.replace("judge_s = 0.02", f"judge_s = 0.0, {by}")
        text = quick(text).replace("[quality]\n", "[quality]\n" + by.replace(", ", "\n") + "\n")
        pool = f'"{JUDGE}" = {{ gpu = "h100-80gb", tensor_parallel = 1, regions = ["east"] }}'
        return text.replace("[fleet.deployments]\n", f"[fleet.deployments]\n{pool}\n")

    policies = '["corrected", "cascadia"]'
    return night_of(folder, written(folder, change, policies=policies, requests_per_day="30_000"))


def test_every_answer_but_the_last_has_a_verdict_of_our_judge(judged_here: RunSettings) -> None:
    """Shadows are not shown; what was found good is shown when the verdict is there."""
    lake = judged_here.lake
    for check in ("answers_come_from_the_last_leg", "no_answer_is_judged_twice", "plans_cover_demand"):
        assert lake.sql(f"checks/{check}.sql", trace=judged_here.trace, day=DAY).num_rows == 0, check
    reported = lake.sql("select * from outcomes where status = 'finished'").to_pandas()
    assert reported.groupby("policy").size().nunique() == 1
    legs = lake.sql("select * from legs order by policy, request_id, leg").to_pandas()
    plan = lake.sql("from quality_plans").to_pylist()[0]
    for policy, sent in (("corrected", 0.56), ("cascadia", float(plan["thresholds"]))):
        own, its = reported[reported["policy"] == policy], legs[legs["policy"] == policy]
        assert set(own["served_llm"]) == {SMALL, LARGE}
        assert (own["served_llm"] == LARGE).mean() == pytest.approx(sent, abs=0.01)
        assert (its["llm"] == JUDGE).equals(its["is_judging"])
        assert sorted(its.loc[its["is_judging"], "request_id"]) == sorted(own["request_id"])
        drafts = own[own["served_llm"] == SMALL]
        assert (drafts["ttft_s"] == drafts["e2e_s"]).all()
        assert (drafts["legs"] == 2).all()
        assert own["score"].notna().all()
        by_hour = lake.sql("select * from legs_by_hour where policy = $policy", policy=policy).to_pandas()
        assert set(by_hour["served_llm"]) == {SMALL, LARGE}


def test_a_judge_and_shadows_are_work_that_plans_carry(judged_here: RunSettings) -> None:
    settings = judged_here
    work = expand_request_stages(settings, DAY, read_workload(settings, DAY))
    requests = work.requests.num_rows
    code = [list(settings.catalogue.llms).index(llm) for llm in (SMALL, LARGE, JUDGE)]
    assert work.known is not None
    made = [int((work.trace.llm == one).sum()) for one in code]
    other_plans = [int((work.is_shadow & (work.trace.llm == one)).sum()) for one in code]
    gone = 0.56 * requests  # what stands behind the judge's verdict runs for these only
    runs = np.array([made[0], gone + other_plans[1], made[2]])
    shares = stages_per_request(settings.catalogue, settings.config.replay.cascades)[code[1], code]
    np.testing.assert_allclose(runs / requests, shares, atol=0.01)
    assert other_plans[1] == pytest.approx(SHADOWS * 0.44 * requests, rel=0.1)
    is_verdict = (work.trace.llm == code[2]) & (work.answerer == code[0])
    outputs = work.known.answers.output_tokens[:, 0]
    read = work.trace.input_tokens[is_verdict & (work.trace.leg == 1)] - RUBRIC
    assert (work.trace.output_tokens[is_verdict] == 1).all()
    assert read.mean() == pytest.approx((work.known.answers.input_tokens + outputs).mean(), rel=0.02)
    mix = token_mixes(settings, DAY)[JUDGE]
    prompts = settings.lake.sql("select avg(input_tokens) as mean from requests")["mean"][0].as_py()
    assert mix.prompt_token_ratio == pytest.approx(prompts / mix.input_tokens.mean(), rel=0.05)
    assert mix.prompt_token_ratio < 0.6


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("quality = 0.55\n", "", "policy quality needs [quality] with quality and latency_s"),
        ('1, regions = ["east"] }', "1 }", "plans one region, but east, central, west has GPUs"),
        ("[quality]\n", '[quality]\njudge_llm = "llama3.2-3b"\n', "[fleet.deployments] lacks llama3.2-3b"),
        ('h100-80gb", tensor_parallel = 1', 'l40s-48gb", tensor_parallel = 1', "Merge equal pools"),
    ],
)
def test_a_policy_that_cannot_plan_is_refused_by_name(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    config = written(tmp_path, lambda text: text.replace(old, new))
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_config(config, load_catalogue())


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ('judge_llm = "llama2-70b"', "would judge its own answers"),
        ('judge_llm = "llama3.1-405b"', "'llama3.1-405b' is not in [fleet.deployments]"),
        ('judge_llm = "llama3.2-3b", at_arrival = true', "which reads answers: at arrival there is none"),
        ('judge_llm = "llama3.2-3b"', "whose legs are its time"),
        (
            "at_arrival = true, gears = [{ at_least = 1.0, escalation_shares = [0] }]",
            "gears need an external judge",
        ),
        ("shadow_share = 1.5", "shadow_share"),
    ],
)
def test_an_impossible_judge_of_the_catalogue_is_refused(tmp_path: Path, said: str, message: str) -> None:
    cascade = 'llms = ["llama3.1-8b", "llama2-70b"], escalation_shares = [0.4], judge_s = 0.1'
    path = tmp_path / "mine.toml"
    path.write_text(f'based_on = "sageserve"\n[replay.cascades]\nllama2-70b = {{ {cascade}, {said} }}\n')
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_config(str(path), load_catalogue())
