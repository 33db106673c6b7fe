"""`fleetcast levels`: trials equal a replay by hand, the search finds the fewest instances, the report."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from test_cli import invoke, one_line
from wired import DAY, LLMS, changed

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.replays.replay_workloads import read_workload, request_levels
from fleetcast.assets.studies import level_figures
from fleetcast.assets.studies.level_answer import describe_level_trials
from fleetcast.assets.studies.level_endpoint import Endpoint, read_endpoint, replay_endpoint
from fleetcast.assets.studies.level_search import (
    LevelsQuery,
    describe_endpoint_levels,
    read_level_values,
    try_levels,
)
from fleetcast.assets.studies.level_trials import LevelBench, LevelTrialKey, config_under_stack, percentile_s
from fleetcast.models.replay.kernel_inputs import NO_INDEX
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.traffic.priority_levels import assign_levels_by_app, level_shares, levels_of_steps
from fleetcast.models.traffic.request_needs import NeedsByRequest, levels_of_needs
from fleetcast.models.world.catalogue_entries import Tier
from fleetcast.models.world.config import apply_stack
from fleetcast.models.world.mechanisms import Ending, QueueOrder, Routing
from fleetcast.models.world.stacks import REPLAY_STACKS
from fleetcast.models.world.toml_dataclasses import ConfigError
from fleetcast.pipelines import levels_cli

ENDS_S, TIGHT_S = (1.3, 31.0), 0.0513  # of the tiers; a need that is not met by every request alone
FEW = LevelsQuery(
    LLMS[1], "south", (1, 3), "uniform", ("jsq", "freeness", "llumnix"), headrooms=(0.1, 0.3), hours=1
)


# --- needs and levels ------------------------------------------------------------------------------------


def test_a_step_of_needs_has_the_level_of_its_middle() -> None:
    """Ten steps of the enterprise sampler under four levels: shares .10, .35, .35, .20, in whole steps."""
    ten, four = level_shares("enterprise", 10), level_shares("enterprise", 4)
    level = levels_of_steps(ten, four)
    assert level.tolist() == [0, 1, 1, 1, 1, 2, 2, 2, 2, 3]
    np.testing.assert_allclose(np.bincount(level, ten), four)
    for by in ("uniform", "gaussian", "enterprise"):
        for count in range(1, 11):
            found = levels_of_steps(level_shares(by, 10), level_shares(by, count))
            assert (np.diff(found) >= 0).all()
            off = np.bincount(found, level_shares(by, 10), count) - level_shares(by, count)
            assert np.abs(off).max() <= level_shares(by, 10).max()  # never by more than a step


def test_apps_with_the_strictest_needs_get_the_highest_levels() -> None:
    """Three apps with half, a quarter and a quarter of the requests; the app with half of them needs 60 s."""
    app = np.array([0, 0, 0, 0, 1, 1, 2, 2])
    need_s = np.array([60.0, 60.0, 60.0, 60.0, 1.0, 60.0, 1.0, 1.0])
    assert assign_levels_by_app(app, need_s, 2).tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    assert assign_levels_by_app(app, need_s, 4)[4:].tolist() == [1, 1, 0, 0]
    tiers = {"a": Tier(9.0, 0.9, "", 1.0), "b": Tier(9.0, 0.9, "", 60.0)}
    needs = NeedsByRequest(tiers, (need_s == 60.0).astype(np.int16))
    np.testing.assert_array_equal(levels_of_needs(needs, "app", 2, app), assign_levels_by_app(app, need_s, 2))
    assert levels_of_needs(needs, "tier", 2).tolist() == needs.step.tolist()


def test_levels_by_app_are_those_of_the_day(wired_day: RunSettings) -> None:
    own = levels_settings(wired_day, by="app", count=2)
    table = wired_day.lake.read("requests", trace=wired_day.trace, day=DAY)
    workload = read_workload(own, DAY)
    frame = pd.DataFrame({"app": table["app"].to_pylist(), "level": workload.trace.level})
    assert frame.groupby("app")["level"].nunique().eq(1).all()
    assert sorted(frame["level"].unique()) == [0, 1]
    one = table.set_column(table.schema.get_field_index("app"), "app", pa.array(["rag"] * len(table)))
    with pytest.raises(ConfigError, match=r'Levels by "app": all requests of wired have one app \(.rag.\)'):
        request_levels(own, DAY, one, workload.trace.tier)


def levels_settings(settings: RunSettings, **levels: Any) -> RunSettings:
    """Return the settings with other values in [replay.levels]."""
    return changed(settings, "replay", levels=dataclasses.replace(settings.config.replay.levels, **levels))


# --- stacks ------------------------------------------------------------------------------------------------


def test_a_stack_follows_its_row_whatever_the_config(wired_day: RunSettings) -> None:
    found = {
        name: make_rules(wired_day.catalogue, apply_stack(wired_day.config.replay, stack), "follow")
        for name, stack in REPLAY_STACKS.items()
        if name != "config"
    }
    routing = {
        "round_robin": Routing.ROUND_ROBIN,
        "infaas": Routing.INFAAS,
        "freeness": Routing.FREENESS,
        "llumnix": Routing.FREENESS,
    }
    order = {"infaas": QueueOrder.FCFS, "preemptive": QueueOrder.PREEMPTIVE, "edf": QueueOrder.EDF}
    for name, rules in found.items():
        assert rules.routing == routing.get(name, Routing.SHORTEST_QUEUE), name
        assert rules.order == order.get(name, QueueOrder.PRIORITY), name
        assert (rules.demand, rules.promote_s) == (0, np.inf)
        assert rules.uses_central_queue == (name == "holdback")
        assert bool(rules.headroom_share[0]) == (name in ("freeness", "llumnix"))
        assert np.isfinite(rules.balance_s) == (name in ("llumnix", "jsq_moves"))
    of = ("balance_s", "gap_blocks", "from_blocks", "is_guarded", "lowest_first")
    assert [getattr(found["llumnix"], name) for name in of] == [0.05, 0.3, np.inf, False, True]
    assert [getattr(found["jsq_moves"], name) for name in of] == [0.5, 0.3, 3.0, True, False]
    assert found["holdback"].ceiling_share.tolist() == [1.0, 0.75, 0.5]
    assert apply_stack(wired_day.config.replay, REPLAY_STACKS["config"]) == wired_day.config.replay


def test_headroom_applies_only_to_stacks_with_headroom(wired_day: RunSettings) -> None:
    shares = {
        name: apply_stack(wired_day.config.replay, REPLAY_STACKS[name], 0.07).levels.headroom_share
        for name in ("config", "freeness", "llumnix", "jsq", "jsq_moves")
    }
    assert shares == {"config": 0.07, "freeness": 0.07, "llumnix": 0.07, "jsq": 0.0, "jsq_moves": 0.0}


# --- trials ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def endpoint(wired_day: RunSettings) -> Endpoint:
    return read_endpoint(wired_day, DAY, LLMS[1], "south", 1)


@pytest.fixture(scope="module")
def level_trials_run(wired_day: RunSettings, tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    """Return the settings of a separate lake that holds the trials of FEW."""
    own = dataclasses.replace(wired_day, lake=Lake(tmp_path_factory.mktemp("levels") / "lake"))
    for table in ("requests", "plans"):
        rows = wired_day.lake.read(table, trace="wired", day=DAY).drop_columns(["trace", "day"])
        own.lake.write(table, rows, trace="wired", day=DAY)
    try_levels(own, DAY, FEW, Progress())
    return own


def test_the_busiest_hours_of_an_endpoint_are_read(wired_day: RunSettings, endpoint: Endpoint) -> None:
    rows = wired_day.lake.sql("select * from requests where day = $day", day=DAY).to_pandas()
    own = rows[(rows["llm"] == LLMS[1]) & (rows["region"] == "south")].sort_values(
        ["arrived_at", "request_id"]
    )
    tokens = (own["input_tokens"] + own["output_tokens"]).groupby(own["arrived_at"].dt.hour).sum()
    busiest = own[own["arrived_at"].dt.hour == tokens.idxmax()]
    assert endpoint.trace.input_tokens.tolist() == busiest["input_tokens"].tolist()
    since = (busiest["arrived_at"] - busiest["arrived_at"].dt.floor("h")).dt.total_seconds()
    np.testing.assert_allclose(endpoint.trace.arrival_s, since)
    plan = wired_day.lake.sql("select * from plans where policy = 'corrected'").to_pandas()
    planned = plan[(plan["llm"] == LLMS[1]) & (plan["served_region"] == "south")]["instances"].max()
    assert endpoint.instances == planned
    work = rows.groupby(["llm", "region"])[["input_tokens", "output_tokens"]].sum().sum(axis=1)
    most = read_endpoint(wired_day, DAY, None, None, 1)
    assert (most.llm, most.region) == work.idxmax()


@pytest.mark.parametrize(("stack", "count"), [("llumnix", 3), ("edf", 1)])
def test_a_trial_equals_a_replay_counted_by_hand(endpoint: Endpoint, stack: str, count: int) -> None:
    ends_s = (TIGHT_S, ENDS_S[1])
    bench = LevelBench(endpoint, DAY, ends_s)
    wanted, key = bench.request_needs("uniform"), LevelTrialKey(stack, 4, 0.2, 1.0, count)
    assert np.allclose([tier.ttft_slo_s for tier in wanted.needs.tiers.values()][::9], ends_s)
    assert wanted.idle_share[0] < 0.98
    assert wanted.idle_share[-1] == 1.0
    trial = bench.trial(wanted, key).set_index("level")
    level = levels_of_needs(wanted.needs, "uniform", 4)
    requests = endpoint.trace._replace(tier=wanted.needs.step, level=level)
    outcome, fleet = replay_endpoint(
        endpoint, wanted.needs.tiers, config_under_stack(endpoint, stack, 4, 0.2), requests, count
    )
    needs_s = np.geomspace(*ends_s, 10)[wanted.needs.step]
    ttft_s = outcome.first_token_s - endpoint.trace.arrival_s
    in_time = ttft_s <= needs_s
    assert trial.index.tolist() == ["all", "0", "1", "2", "3"]
    for name, own in (("all", level >= 0), *((str(p), level == p) for p in range(4))):
        row = trial.loc[name]
        assert (row["requests"], row["met"]) == (own.sum(), in_time[own].sum())
        assert row["finished"] == (outcome.status[own] == Ending.FINISHED).sum()
        assert row["preemptions"] == outcome.preemptions[own].sum()
        later = np.sort(np.where(np.isnan(ttft_s), np.inf, ttft_s)[own])
        assert row["ttft_p95_s"] == later[int(np.ceil(0.95 * own.sum())) - 1]
    assert trial.loc["all", "moved_live"] == outcome.moved[..., 1].sum()
    assert trial.loc["all", "moves_given_up"] == outcome.moved[..., 2].sum()
    if stack == "llumnix":
        by_level = [(outcome.sent_from[level == p] != NO_INDEX).sum() for p in range(4)]
        assert trial.loc["0":"3", "moved_live"].tolist() == by_level
        assert sum(by_level) > 0
    shares_in_time = [in_time[wanted.needs.step == step].mean() for step in range(10)]
    worst = (np.array(shares_in_time) / wanted.idle_share).min()
    assert trial["worst_need_share"].tolist() == pytest.approx([worst] * 5)
    hours = count * endpoint.deployment.gpus
    assert trial.loc["all", ["gpu_hours", "usd"]].tolist() == [hours, hours * 9.5]
    assert fleet.pool.size == count


def test_more_load_is_more_requests_with_the_same_needs(endpoint: Endpoint) -> None:
    bench = LevelBench(endpoint, DAY)
    wanted = bench.request_needs("uniform")
    assert next(iter(wanted.needs.tiers.values())).ttft_slo_s == pytest.approx(ENDS_S[0])
    once, twice = (bench.trial(wanted, LevelTrialKey("jsq", 2, 0.0, load, 9)).iloc[0] for load in (1.0, 2.0))
    assert twice["requests"] == 2 * once["requests"]
    assert twice["ttft_p99_s"] > once["ttft_p99_s"]


def test_the_search_brackets_the_needed_instances(level_trials_run: RunSettings) -> None:
    trials = level_trials_run.lake.sql("from level_trials where level = 'all'").to_pandas()
    assert set(trials["needs_by"]) == {"uniform", "tier"}
    assert sorted(trials.loc[trials["needs_by"] == "uniform", "levels"].unique()) == [1, 3, 10]
    rows = level_trials_run.lake.sql("from level_value").to_pandas()
    cases = ["needs_by", "stack", "levels", "headroom_share"]
    assert {tuple(row) for row in rows[cases].to_numpy()} >= {
        ("uniform", stack, 3, share) for stack in ("freeness", "llumnix") for share in (0.1, 0.3)
    } | {("uniform", "jsq", 3, 0.0), ("uniform", "edf", 10, 0.0)}
    for row in rows.itertuples():
        own = trials[(trials[cases] == [getattr(row, name) for name in cases]).all(axis=1)]
        is_met = own.set_index("instances")["is_met"]
        assert row.today_instances in is_met.index
        if np.isnan(row.instances):
            assert not is_met.any()
            continue
        assert is_met[row.instances]
        assert row.resolution == 1
        assert row.instances == 1 or not is_met[row.instances - 1]


def test_report_and_figures_are_those_of_the_trials(level_trials_run: RunSettings, capsys) -> None:
    endpoint = {"llm": LLMS[1], "region": "south"}
    levels_cli.show_endpoint_levels(level_trials_run, DAY, **endpoint)
    assert capsys.readouterr().out.splitlines()[-1] == (
        "fewest instances: each target as often as required, of the requests that an idle instance serves in "
        "time; attained: of all"
    )
    by_uniform, by_tier = read_level_values(level_trials_run, DAY, **endpoint)
    assert {row["needs_by"] for row in by_uniform} == {"uniform"}
    assert describe_endpoint_levels(level_trials_run, DAY, **endpoint) == [
        describe_level_trials(by_uniform),
        describe_level_trials(by_tier),
    ]
    drawings = level_figures.level_drawings(**endpoint, needs_by="uniform", load=1.0)
    figures = {name: draw(level_trials_run, DAY) for name, draw in drawings.items()}
    jsq = {row["levels"]: row["instances"] for row in by_uniform if row["stack"] == "jsq"}
    panel = figures["level_value"].axes[1]
    assert panel.get_title() == "needs by uniform"
    lines = {line.get_color(): np.asarray(line.get_ydata()).tolist() for line in panel.lines}
    assert lines[level_figures.STACK_COLOURS["jsq"]] == list(jsq.values())
    assert len(figures["level_ttft"].axes) == 2
    bars = figures["ablation"].axes[0].patches
    assert len(bars) == 4
    assert [text.get_text() for text in figures["headroom"].axes[0].texts][:2] == [" 10%", " 30%"]


# --- the report --------------------------------------------------------------------------------------------


def value(stack: str, levels: int, instances: int | None, share: float = 0.0) -> dict[str, Any]:
    of = {"llm": "a", "region": "east", "needs_by": "uniform", "load_factor": 1.0, "limit_instances": 8}
    return (
        of
        | {"stack": stack, "levels": levels, "headroom_share": share, "instances": instances}
        | {"resolution": 1}
    )


def test_the_report_in_words() -> None:
    rows = [value("jsq", 1, 11), value("jsq", 2, 9), value("jsq", 3, 9), value("jsq", 4, 9)]
    rows += [value("jsq_moves", n, count) for n, count in ((1, 11), (2, 9), (3, 8), (4, 8))]
    rows += [value("freeness", 1, 14, 0.1), value("freeness", 2, 12, 0.1), value("freeness", 2, 12, 0.2)]
    rows += [value("edf", 10, 8)]
    assert describe_level_trials(rows) == (
        "a in east, needs by uniform: jsq needs 11 instances with 1 level, 2 levels need 9 instead of 11, 3 "
        "and 4 save none (resolution 1), by needs themselves (edf) it is 8; jsq_moves needs 8 with 3 levels; "
        "10% headroom is enough for freeness (12); moves save 1 on jsq."
    )
    none = [value("jsq", 1, None), value("round_robin", 1, 7)]
    assert "jsq meets the needs with none of the tested numbers of instances" in describe_level_trials(none)
    worse = [value("jsq", 1, 8), value("jsq", 2, 8), value("jsq_moves", 1, 9)]
    assert describe_level_trials(worse).endswith(
        "no other stack needs fewer; moves save none, they cost 1 on jsq."
    )


def test_a_percentile_counts_unfinished_requests_as_last() -> None:
    assert percentile_s(np.array([3.0, np.nan, 1.0, 2.0]), 50) == 2.0
    assert percentile_s(np.array([3.0, np.nan, 1.0, 2.0]), 75) == 3.0
    assert np.isnan(percentile_s(np.array([3.0, np.nan, 1.0, 2.0]), 99))


# --- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--levels 1,11", "--levels: got 11, needed whole numbers from 1 to 10."),
        ("--levels 1,x", "--levels: got 'x', needed whole numbers with commas between."),
        ("--levels 2.5", "--levels: got '2.5', needed whole numbers with commas between."),
        ("--headroom 0,1.2", "--headroom: got 1.2, needed shares from 0 to 1."),
        ("--load 0", "--load: got 0, needed numbers above 0 and up to 100."),
        ("--hours 25", "--hours: got 25, needed whole numbers from 1 to 24."),
        ("--by tiers", "--by: unknown source of needs 'tiers'. Did you mean 'tier'?"),
        ("--stack jsqq", "--stack: unknown stack 'jsqq'. Did you mean 'jsq'?"),
        ("--needs 3", "--needs: got 1 numbers, needed two: STRICTEST,LOOSEST."),
    ],
)
def test_impossible_trials_are_refused_in_one_line(options: str, message: str, tmp_path: Path) -> None:
    assert message in one_line(invoke("levels", *options.split(), "--date", "2024-01-01"))


def test_crossing_or_impossible_needs_are_refused_in_one_line(endpoint: Endpoint) -> None:
    with pytest.raises(ConfigError, match=r"Needs from 3 s to 2 s: the strictest must be above 0 s"):
        LevelBench(endpoint, DAY, (3.0, 2.0)).request_needs("uniform")
    with pytest.raises(
        ConfigError, match=r"needs its first token within 0\.0001 s gets it on an idle 4 x h100"
    ):
        LevelBench(endpoint, DAY, (1e-4, 2.0)).request_needs("uniform")


def test_an_endpoint_without_requests_or_with_several_pools_is_refused(wired_day: RunSettings) -> None:
    [pool] = wired_day.config.fleet.deployments[LLMS[1]]
    twice = {**wired_day.config.fleet.deployments, LLMS[1]: (pool, pool)}
    with pytest.raises(ConfigError, match=f"{LLMS[1]} has 2 pools in south; levels are tested on one pool"):
        read_endpoint(changed(wired_day, "fleet", deployments=twice), DAY, LLMS[1], "south", 1)
    empty = dataclasses.replace(wired_day, lake=Lake(wired_day.lake.root.parent / "empty"))
    rows = wired_day.lake.read("requests", trace="wired", day=DAY).drop_columns(["trace", "day"])
    empty.lake.write("requests", rows.slice(0, 0), trace="wired", day=DAY)
    with pytest.raises(ConfigError, match=f"No request of {LLMS[1]} in any region on {DAY}"):
        read_endpoint(empty, DAY, LLMS[1], None, 1)
