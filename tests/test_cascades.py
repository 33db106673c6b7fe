"""Cascades from a config: the stages of a request, the load of a plan, and the tables of a nightly run."""

import dataclasses
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_endpoint import a_trace, run
from small import make_plans, small_config
from test_legs import judge_rules, two_llms
from typer.testing import CliRunner

from fleetcast.assets.lake import settings as lake_settings
from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.lake.sql_files import SQL
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.plans.plan_loads import day_loads, read_forecast_windows
from fleetcast.assets.plans.quality_answers import AnswerSampler
from fleetcast.assets.plans.request_mixes import token_mixes
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.replays.scorecards import score_day
from fleetcast.assets.replays.timeline import write_timeline
from fleetcast.models.aliases import Ints
from fleetcast.models.quality.answers import JudgedAnswers
from fleetcast.models.replay.kernel_inputs import NO_INDEX, TraceArrays
from fleetcast.models.replay.session.legs import answer_rows, expand_cascades
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.world.cascades import stages_per_request
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.mechanisms import GEARS_BY, Ending
from fleetcast.models.world.replay_config import Cascade, Gear
from fleetcast.models.world.toml_dataclasses import ConfigError
from fleetcast.pipelines.cli import cli_app

DAY = date(2025, 7, 3)
LARGE, SMALL, OTHER = "llama2-70b", "llama3.1-8b", "bloom-176b"
LLMS = ["bloom-176b", "llama2-70b", "llama3.1-8b", "llama3.2-3b"]
SHARE, JUDGE_S = 0.4, 0.25
POLICIES = ("reactive", "dynamo", "lt_ua", "corrected_closed", "clairvoyant")


def as_file(folder: Path, cascades: str) -> str:
    path = folder / "cascade.toml"
    path.write_text(f'based_on = "sageserve"\n[replay.cascades]\n{cascades}\n')
    return str(path)


@pytest.mark.parametrize(
    ("cascade", "message"),
    [
        (
            'llms = ["llama2-70b"], escalation_shares = []',
            "llms are llama2-70b; it needs two or more, each once",
        ),
        (
            'llms = ["llama3.1-8b", "llama2-70b", "llama3.1-8b"], escalation_shares = [0.1, 0.1]',
            "each once, from the first to the last that serves",
        ),
        (
            'llms = ["llama3.1-8b", "llama2-70b"], escalation_shares = [0.1, 0.2]',
            "2 escalation_shares for 2 llms; each llm but the last needs one. Add or drop some.",
        ),
        (
            'llms = ["llama3.1-8b", "llama2-70b"], escalation_shares = [0.1], '
            "gears = [{ at_least = 9.0, escalation_shares = [0.1] }, "
            "{ at_least = 5.0, escalation_shares = [0.0] }]",
            "the gears' at_least is [9.0, 5.0]; it must rise",
        ),
        (
            'llms = ["llama3.1-8b", "llama2-70b"], escalation_shares = [0.1], '
            "gears = [{ at_least = 9.0, escalation_shares = [] }]",
            "the gear from 9 has 0 escalation_shares; each llm but the last needs one",
        ),
        ('llms = ["llama3.1-8b", "llama2"], escalation_shares = [0.1]', "llama2"),
        ('llms = ["llama3.1-8b", "llama2-70b"], escalation_shares = [1.5]', "escalation_shares"),
    ],
)
def test_an_invalid_cascade_is_refused_by_name(tmp_path: Path, cascade: str, message: str) -> None:
    path = as_file(tmp_path, f"{LARGE} = {{ {cascade}, judge_s = 0.1 }}")
    with pytest.raises(ConfigError) as refused:
        load_config(path, load_catalogue().of_era("2023", "here"))
    assert message in str(refused.value)
    assert f"[replay.cascades] {LARGE}" in str(refused.value) or f"cascades.{LARGE}" in str(refused.value)


def test_two_cascades_must_score_an_llm_alike(tmp_path: Path) -> None:
    one = f'llms = ["{SMALL}", "{LARGE}"], escalation_shares = [0.4], judge_s'
    other = f'llms = ["{SMALL}", "{OTHER}"], escalation_shares = [0.4], judge_s'
    alike = load_config(
        as_file(tmp_path, f"{LARGE} = {{ {one} = 0.1 }}\n{OTHER} = {{ {other} = 0.1 }}"),
        load_catalogue().of_era("2023", "here"),
    )
    assert len(alike.replay.cascades) == 2
    with pytest.raises(ConfigError, match=r"answers of llama3.1-8b are judged in another cascade too"):
        load_config(
            as_file(tmp_path, f"{LARGE} = {{ {one} = 0.1 }}\n{OTHER} = {{ {other} = 0.2 }}"),
            load_catalogue().of_era("2023", "here"),
        )


@pytest.mark.parametrize(
    ("by", "seen"), [("rate", [2, NO_INDEX, 2, NO_INDEX]), ("load", [1, NO_INDEX, 0, NO_INDEX])]
)
def test_the_gears_of_a_cascade_are_those_of_its_llms(by: str, seen: list[int]) -> None:
    """Of three llms; below the first gear the configured shares hold."""
    gears = (Gear(3.0, (0.4, 0.2)), Gear(6.0, (0.1, 0.0)))
    three = Cascade((SMALL, OTHER, LARGE), (0.5, 0.25), 0.1, gears, by)
    replay = dataclasses.replace(
        load_config("sageserve", load_catalogue().of_era("2023", "here")).replay, cascades={LARGE: three}
    )
    found = make_rules(load_catalogue().of_era("2023", "here").serving(LLMS), replay, "follow")
    assert GEARS_BY[found.gears_by] == by
    assert found.gear_llm.tolist() == seen
    assert found.gear_from[[2, 0]].tolist() == [[0.0, 3.0, 6.0]] * 2
    assert found.gear_below[[2, 0]].tolist() == [[0.5, 0.4, 0.1], [0.25, 0.2, 0.0]]


def test_stages_per_request_of_each_llm() -> None:
    three = Cascade(("llama3.2-3b", SMALL, LARGE), (0.5, 0.25), 0.1)
    catalogue = load_catalogue().of_era("2023", "here").serving(LLMS)
    stages = stages_per_request(catalogue, {LARGE: three, OTHER: Cascade((SMALL, OTHER), (0.25,), 0.1)})
    expected = {
        "bloom-176b": [0.25, 0, 1.0, 0],
        "llama2-70b": [0, 0.125, 0.5, 1.0],
        "llama3.1-8b": [0, 0, 1, 0],
        "llama3.2-3b": [0, 0, 0, 1],
    }
    assert list(catalogue.llms) == LLMS
    without = stages_per_request(catalogue, {OTHER: Cascade(("llama3.2-3b", SMALL), (0.5,), 0.1)})
    assert without[0].tolist() == [0, 0, 0.5, 1.0]
    np.testing.assert_array_equal(stages, [expected[llm] for llm in LLMS])


def random_answers(trace: TraceArrays) -> Callable[[Cascade, Ints], JudgedAnswers]:
    """Answers as long as their requests, with random scores."""
    settings = RunSettings(
        Lake(Path()),
        load_catalogue().of_era("2023", "here"),
        load_config("sageserve", load_catalogue().of_era("2023", "here")),
    )
    return AnswerSampler(settings, DAY, None, trace.input_tokens, trace.output_tokens).answers


def test_every_request_has_the_legs_of_its_cascade() -> None:
    cascades = {LARGE: Cascade((SMALL, "llama3.2-3b", LARGE), (0.5, 0.5), 0.1)}
    trace = a_trace([0.0, 1.0, 2.0], [5, 6, 7], [1, 2, 3])._replace(llm=np.array([1, 0, 1], np.int16))
    legs, answerer, is_shadow = expand_cascades(
        trace, load_catalogue().of_era("2023", "here"), cascades, random_answers(trace)
    )
    assert (answerer == legs.llm).all()
    assert not is_shadow.any()
    assert legs.llm.tolist() == [2, 3, 1, 0, 2, 3, 1]
    assert legs.leg.tolist() == [0, 1, 2, 0, 0, 1, 2]
    assert legs.then.tolist() == [1, 2, NO_INDEX, NO_INDEX, 5, 6, NO_INDEX]
    assert legs.arrival_s.tolist() == [0, 0, 0, 1, 2, 2, 2]
    assert legs.input_tokens.tolist() == [5, 5, 5, 6, 7, 7, 7]
    assert ((legs.score >= 0) & (legs.score <= 1)).all()


@given(st.lists(st.lists(st.sampled_from(Ending), min_size=1, max_size=4)))
def test_the_last_answer_of_a_request_counts(chains: list[list[int]]) -> None:
    """The twin, request by request: it waits; else its last answer; else it was refused."""

    def of(chain: list[int]) -> int:
        for wanted, pick in ((Ending.QUEUED, min), (Ending.FINISHED, max), (Ending.REFUSED, min)):
            if places := [n for n, status in enumerate(chain) if status == wanted]:
                return pick(places)
        return 0

    chains = [chain for chain in chains if set(chain) != {Ending.SPARED}]
    leg = np.array([n for chain in chains for n in range(len(chain))], np.int8)
    rows = np.zeros(leg.size)
    trace = TraceArrays(rows, *(rows.astype(np.int32) for _ in range(5)), leg=leg)
    starts = np.cumsum([0, *map(len, chains)])
    expected = [int(start) + of(chain) for start, chain in zip(starts, chains, strict=False)]

    class Rows:
        status = np.array([status for chain in chains for status in chain], np.int8)

    if leg.size:
        assert answer_rows(trace, Rows).tolist() == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_expected_share_of_requests_goes_on(share: float) -> None:
    rng = np.random.default_rng(1)
    requests = a_trace(np.arange(2000) / 4, rng.integers(1, 99, 2000), rng.integers(1, 20, 2000))
    two = {OTHER: Cascade((OTHER, LARGE), (share,), 0.25)}
    trace = expand_cascades(
        requests, load_catalogue().of_era("2023", "here"), two, random_answers(requests)
    ).trace
    outcome = run(trace, two_llms(8), judge_rules(share, 0.25))
    gone = outcome.status[1::2] == Ending.FINISHED
    assert gone.mean() == pytest.approx(share, abs=0.04)
    if share == 0:
        alone = run(requests, two_llms(8), judge_rules(share))
        np.testing.assert_array_equal(outcome.finish_s[::2], alone.finish_s)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    """A night: a small llm with separate prefill and decode, then a large one."""
    folder = tmp_path_factory.mktemp("cascade")
    named = "[" + ", ".join(f'"{policy}"' for policy in POLICIES) + "]"
    config = Path(small_config(folder, policies=named, requests_per_day="20_000.0", instances_at_start="10"))
    text = config.read_text()
    line = f'"{SMALL}" = {{ gpu = "h100-80gb", tensor_parallel = 1 }}'
    assert line in text
    part = '{ gpu = "h100-80gb", tensor_parallel = 1, role ='
    text = text.replace(line, f'"{SMALL}" = [{part} "prefill" }}, {part} "decode" }}]')
    cascade = f'{{ llms = ["{SMALL}", "{LARGE}"], escalation_shares = [{SHARE}], judge_s = {JUDGE_S} }}'
    config.write_text(f"{text}\n[replay.cascades]\n{LARGE} = {cascade}\n")
    settings = load_settings(str(config), folder / "lake")
    make_plans(settings, DAY, lambda settings, *_: [300.0] * len(settings.grid.service_options))
    replay_day(settings, DAY, POLICIES, Progress())
    score_day(settings, DAY)
    return settings


@pytest.fixture(scope="module")
def rows(night: RunSettings) -> pd.DataFrame:
    return night.lake.sql("select * from outcomes").to_pandas()


@pytest.fixture(scope="module")
def legs(night: RunSettings) -> pd.DataFrame:
    return night.lake.sql("select * from legs order by policy, request_id, leg").to_pandas()


def test_a_night_with_a_cascade_passes_every_check(night: RunSettings) -> None:
    for check in sorted((SQL / "checks").glob("*.sql")):
        assert night.lake.sql(f"checks/{check.name}", trace=night.trace, day=DAY).num_rows == 0, check.name


def test_answers_by_hour_equal_the_legs(night: RunSettings, rows: pd.DataFrame, legs: pd.DataFrame) -> None:
    """Of the large llm's requests the small one drafts all, a share goes on, one answer each counts."""
    found = night.lake.sql("select * from legs_by_hour").to_pandas()
    done = rows[rows["status"] == "finished"].assign(hour_start=lambda t: t["arrived_at"].dt.floor("h"))
    keys = ["policy", "llm", "hour_start"]
    np.testing.assert_allclose(found.groupby(keys)["kept_share"].sum(), 1.0, atol=1e-12)
    counts = done.groupby(keys).size().rename("asked").reset_index()
    both = found.merge(counts, on=keys, validate="many_to_one")
    assert len(both) == len(found)
    assert (both["requests"] == both["asked"]).all()
    small = both[(both["llm"] == LARGE) & (both["served_llm"] == SMALL)]
    assert (small["stage_share"] == 1).all()
    assert small["judge_mean_s"].isna().all()
    large = both[(both["llm"] == LARGE) & (both["served_llm"] == LARGE)]
    assert (large["stage_share"] == large["kept_share"]).all()
    assert (large["judge_mean_s"] == JUDGE_S).all()
    # a draft lasts from its arrival at the prefill instance to the last token of the decoding instance
    own = legs[(legs["policy"] == "lt_ua") & (legs["llm"] == SMALL)]
    own = own.merge(done[["policy", "request_id", "llm", "hour_start"]], on=["policy", "request_id"])
    own = own[own["llm_y"] == LARGE].groupby(["request_id", "hour_start"])
    took_s = (own["ended_s"].max() - own["came_s"].min()).groupby("hour_start")
    mine = small[small["policy"] == "lt_ua"].set_index("hour_start").sort_index()
    np.testing.assert_allclose(mine["leg_mean_s"], took_s.mean(), rtol=1e-9)
    np.testing.assert_allclose(mine["leg_p95_s"], took_s.quantile(0.95), rtol=1e-9)


@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("answers_come_from_the_last_leg", "select * replace (ended_s + 0.001 as ended_s) from legs"),
        ("answers_come_from_the_last_leg", f"select * replace ('{SMALL}' as llm) from legs"),
        ("answers_come_from_the_last_leg", "select * from legs where false"),
        ("no_answer_is_judged_twice", "select * replace (came_s as first_token_s) from legs"),
    ],
)
def test_each_check_of_legs_finds_its_fault(
    night: RunSettings, tmp_path: Path, check: str, change: str
) -> None:
    lake, place = Lake(tmp_path), {"trace": night.trace, "day": DAY, "policy": "lt_ua"}
    for table, query in (("outcomes", "from outcomes"), ("legs", change)):
        rows = night.lake.sql(f"select * exclude (trace, day, policy) from ({query}) where policy = 'lt_ua'")
        lake.write(table, rows, **place)
    assert lake.sql(f"checks/{check}.sql", trace=night.trace, day=DAY).num_rows > 0
    assert lake.sql(f"checks/{check}.sql", trace="other").num_rows == 0


def test_a_share_of_the_large_llm_s_requests_reaches_it(rows: pd.DataFrame) -> None:
    for policy, own in rows[rows["llm"] == LARGE].groupby("policy"):
        assert set(own["served_llm"]) == {SMALL, LARGE}
        assert (own["served_llm"] == LARGE).mean() == pytest.approx(SHARE, abs=0.03), policy
    others = rows[rows["llm"] != LARGE]
    assert (others["served_llm"] == others["llm"]).all()
    # samples are the same under every policy
    assert rows.groupby("request_id")["served_llm"].nunique().max() == 1


def test_the_time_to_a_first_token_is_the_sum_of_its_parts(rows: pd.DataFrame) -> None:
    done = rows[rows["status"] == "finished"]
    parts = done[["earlier_s", "held_s", "waited_s", "prefill_s", "network_s"]].sum(axis=1)
    np.testing.assert_allclose(parts, done["ttft_s"], rtol=1e-9)
    is_second = (done["llm"] == LARGE) & (done["served_llm"] == LARGE)
    assert (done.loc[is_second, "earlier_s"] > JUDGE_S).all()
    assert (done.loc[~is_second, "earlier_s"] == 0).all()


def test_the_legs_of_a_request_follow_each_other(rows: pd.DataFrame, legs: pd.DataFrame) -> None:
    done = rows[rows["status"] == "finished"]
    counted = legs.groupby(["policy", "request_id"]).size()
    both = done.set_index(["policy", "request_id"])
    several = both[both["legs"] > 1]
    assert sorted(counted[counted.index.isin(several.index)]) == sorted(several["legs"])
    assert set(both.loc[both["served_llm"] == SMALL, "legs"]) == {2}
    assert set(both.loc[both["llm"] == LARGE, "legs"]) == {2, 3}
    one = legs.merge(
        done[["policy", "request_id", "e2e_s", "network_s", "instance"]], on=["policy", "request_id"]
    )
    same = one.groupby(["policy", "request_id"])
    before_s = same["ended_s"].shift()
    later = before_s.notna()
    assert (one["hand_over_s"].notna() == later).all()
    gap_s = one.loc[later, "came_s"] - before_s[later] - one.loc[later, "hand_over_s"]
    assert gap_s.min() > -1e-9
    assert gap_s[one.loc[later, "role"] == "decode"].max() < 1e-9
    assert set(one.loc[one["llm"] == LARGE, "hand_over_s"]) == {JUDGE_S}
    assert (one["began_s"] >= one["came_s"] - 1e-9).all()
    assert (one["ended_s"] >= one["began_s"]).all()
    assert (one["first_token_s"].notna() == (one["role"] != "decode")).all()
    last = same.tail(1)
    np.testing.assert_allclose(last["ended_s"], last["e2e_s"] - last["network_s"], rtol=1e-9)
    assert (last["instance_x"] == last["instance_y"]).all()


def test_a_plan_carries_the_load_of_each_llm(night: RunSettings) -> None:
    tokens = night.lake.sql(
        "select llm, sum(input_tokens)::double as tokens from requests "
        "where day = $day and tier <> 'niw' group by llm",
        day=DAY,
    ).to_pandas().set_index("llm")["tokens"]  # fmt: skip
    loads = day_loads(night, DAY)
    carried = dict(zip(LLMS, loads["truth"].demand.mean(axis=3).sum(axis=(0, 2)) * 3600, strict=True))
    assert tokens[LARGE] > 0
    assert carried[SMALL] == pytest.approx(tokens[SMALL] + tokens[LARGE])
    assert carried[LARGE] == pytest.approx(SHARE * tokens[LARGE])
    assert carried[OTHER] == pytest.approx(tokens[OTHER])
    foreseen = night.lake.sql(
        "select llm, sum(forecast_per_s) as tokens from forecasts "
        "where day = $day and measure = 'input_tokens' and tier = 'interactive' group by llm",
        day=DAY,
    ).to_pandas().set_index("llm")["tokens"]  # fmt: skip
    mean = dict(
        zip(LLMS, read_forecast_windows(night, DAY, "last_value")[0].sum(axis=(0, 2, 3)), strict=True)
    )
    assert mean[SMALL] == pytest.approx(foreseen[SMALL] + foreseen[LARGE])
    assert mean[LARGE] == pytest.approx(SHARE * foreseen[LARGE])
    planned = night.lake.sql(
        "select llm, role, sum(demand_tokens_per_s) as demand from plans where policy = 'lt_ua' group by all"
    ).to_pandas().set_index(["llm", "role"])["demand"]  # fmt: skip
    of_hours = dict(zip(LLMS, loads["forecast"].demand.max(axis=3).sum(axis=(0, 2)), strict=True))
    for role in ("prefill", "decode"):
        assert planned[SMALL, role] == pytest.approx(of_hours[SMALL])
    assert planned[LARGE, "whole"] == pytest.approx(of_hours[LARGE])


def test_capacity_is_measured_on_the_arriving_mix(night: RunSettings) -> None:
    """A sample of the small llm's own requests and of the large one's, in their proportion."""
    rows = night.lake.sql(
        "select llm, input_tokens, output_tokens from requests where day = $day and tier <> 'niw'",
        day=date(2025, 7, 2),
    ).to_pandas()
    own, come = (rows[rows["llm"].isin(llms)] for llms in ([LARGE], [SMALL, LARGE]))
    mixes = token_mixes(night, DAY)
    assert sorted(mixes[SMALL][0].tolist()) == sorted(come["input_tokens"])
    assert sorted(mixes[SMALL][1].tolist()) == sorted(come["output_tokens"])
    assert set(mixes[LARGE][0]) <= set(own["input_tokens"])
    tiny = "llama3.2-3b"
    cascades = {LARGE: Cascade((SMALL, tiny), (0.25,), 0.1)}
    replay_config = dataclasses.replace(night.config.replay, cascades=cascades)
    other = dataclasses.replace(night, config=dataclasses.replace(night.config, replay=replay_config))
    requests = rows.groupby("llm").size()
    assert len(token_mixes(other, DAY)[tiny][0]) == requests[tiny] + round(0.25 * requests[LARGE])


def test_explain_and_timeline_show_legs_and_kv_transfers(
    night: RunSettings, legs: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = legs[(legs["policy"] == "lt_ua") & (legs["leg"] == 3)]
    one = own.iloc[0]
    monkeypatch.setattr(lake_settings, "load_settings", lambda _: night)
    shown = CliRunner().invoke(
        cli_app, ["explain", str(one["request_id"]), "--config", str(night.config.file)]
    )
    assert shown.exit_code == 0, shown.output
    for text in (
        "stages of the request",
        "1 prefill",
        "2 decode",
        "3 whole",
        "drafts",
        f"{LARGE} on h100-80gb",
    ):
        assert text in shown.output, shown.output
    hour = int(night.lake.sql(
        "select hour(arrived_at) as h from outcomes where request_id = $r limit 1", r=int(one["request_id"])
    )["h"][0].as_py())  # fmt: skip
    for llm, region, names in (
        (LARGE, one["served_region"], {"handed over", "prefill", "decode"}),
        (SMALL, one["served_region"], {"handed over", "prefill", "decode"}),
    ):
        path = write_timeline(night, DAY, "lt_ua", llm, region, hour)
        events = json.loads(path.read_text())["traceEvents"]
        assert names <= {event["name"] for event in events}
        mine = [e for e in events if e["ph"] == "X" and e["args"]["request_id"] == one["request_id"]]
        assert {e["args"]["leg"] for e in mine} <= {1, 2, 3}
        assert mine
