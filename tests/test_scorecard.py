"""The scorecard: SQL and Python agree on every metric, and the marts conserve what they sum up."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import metrics
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trial_rows import decided, trial_rows

from fleetcast.assets.lake.empty_query_hints import explain_empty_result
from fleetcast.assets.lake.schemas import PARTITIONS, SCHEMAS
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.lake.sql_files import read_sql
from fleetcast.assets.lake.sql_index import read_questions
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.plans.plan_tables import FLOWS
from fleetcast.assets.replays.timeline import chrome_trace_events, write_timeline
from fleetcast.models.metrics import (
    is_tier_slo_met,
    is_tpot_met,
    is_ttft_met,
    known_percentile_s,
    tpot_s,
    waited_percentile_s,
)
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.catalogue_entries import Tier
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.policies import REPLAY_POLICIES

START = datetime(2025, 7, 15, tzinfo=UTC)
WHERE = {"trace": "t", "day": START.date()}
MARTS = (
    "scorecard",
    "fleet_by_hour",
    "ttft_histogram",
    "forecast_by_llm",
    "scoreboard",
    "scoreboard_by_tier",
    "tier_attainment",
    "tier_places",
    "regret",
    "unit_cost",
    "lateness",
)
NUMBERS = metrics.ATTAINED
PLANNED = {
    **{"gpus_per_instance": 8, "instances_before": 2, "instances": 2, "delta": 0, "why": None, "usd": 1.0},
    **dict.fromkeys(("reclaimed", "started", "donated"), 0),
    **{"solver_status": "optimal", "gap_share": 0.0},
    **dict.fromkeys(("plan_usd", "plan_bound_usd", "plan_lp_bound_usd"), 1.0),
}
FORECAST = {
    **{"measure": "input_tokens", "tier": "interactive", "method": "arima", "llm": "a", "region": "east"},
    **{
        "cutoff": START,
        "bucket_start": START,
        "bucket_minutes": 60,
        "forecast_per_s": 3.0,
        "actual_per_s": 4.0,
    },
}
BOUND = {
    **{"hour_start": START, "fluid_usd": 10.0, "whole_usd": 11.0},
    **{"with_minimum_usd": 13.0, "whole_hours_usd": 17.0},
}
PARTS = (
    *("rounding_usd", "minimum_usd", "hour_usd", "routing_usd", "foresight_usd"),
    *("boot_usd", "scaling_usd", "backlog_usd"),
)
LEFT = {"input_tokens": 36_000}  # in the queue at midnight: half an hour of an instance
WAITS = ("held_s", "waited_s", "prefill_s", "network_s")
# met, missed, never served; met, missed, pending, out of time while waiting, refused
REQUESTS = [
    {
        "tier": "iw_fast",
        "status": "finished",
        "ttft_s": 1.0,
        "e2e_s": 900.0,
        "ttft_slo_s": 1.0,
        "deadline_s": 60.0,
    },
    {
        "tier": "iw_fast",
        "status": "finished",
        "ttft_s": 1.5,
        "e2e_s": 2.0,
        "ttft_slo_s": 1.0,
        "deadline_s": 60.0,
    },
    {"tier": "iw_fast", "status": "queued", "queued_s": 9.0, "ttft_slo_s": 1.0, "deadline_s": 60.0},
    {"tier": "niw", "status": "finished", "held_s": 9.0, "ttft_s": 50.0, "e2e_s": 100.0, "deadline_s": 100.0},
    {"tier": "niw", "status": "finished", "held_s": 9.0, "ttft_s": 50.0, "e2e_s": 100.5, "deadline_s": 100.0},
    {"tier": "niw", "status": "queued", "queued_s": 99.0, "deadline_s": 100.0, **LEFT},
    {"tier": "niw", "status": "queued", "queued_s": 100.0, "deadline_s": 100.0, **LEFT},
    {"tier": "niw", "status": "refused", "deadline_s": 100.0},
]


def outcomes(requests: list[dict[str, object]]) -> pa.Table:
    rows = [
        {
            "request_id": n,
            "arrived_at": START + timedelta(minutes=n),
            **{"llm": "a", "region": "east", "app": "rag", "served_region": "west", "preemptions": 1},
            **{"served_llm": "a", "legs": 1, "earlier_s": 0.0},
            **dict.fromkeys((*NUMBERS, *WAITS, "input_tokens", "output_tokens", "instance")),
            **request,
        }
        for n, request in enumerate(requests)
    ]
    return full("outcomes", rows)


def full(table: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows of a table of the lake; null where they do not say."""
    schema = SCHEMAS[table]
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)


def fleet_hours(serving_s: float, booting_s: float) -> pa.Table:
    row = {
        **{"hour_start": START, "llm": "a", "served_region": "east", "gpu": "h100", "gpus_per_instance": 8},
        **{"serving_s": serving_s, "booting_s": booting_s, "draining_s": 450.0, "donated_s": 7200.0},
        **{"kv_utilisation_share": 0.5, "usd_per_gpu_hour": 12.0},
    }
    return full("fleet_hours", [row, {**row, "hour_start": START + timedelta(hours=1)}])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with one small day under two policies; the clairvoyant boots less."""
    lake = Lake(tmp_path_factory.mktemp("lake"))
    plan = {
        **{"policy": "clairvoyant", "hour_start": START, "llm": "a", "served_region": "east", "gpu": "h100"},
        **{"demand_tokens_per_s": 25.0, "buffer_tokens_per_s": 5.0, "capacity_tokens_per_s": 20.0},
        **{"short_tokens_per_s": 30.0, "short_llm_tokens_per_s": 0.0, "programme": "corrected"},
        **PLANNED,
    }
    other = plan | {"llm": "b", "usd": 0.25}
    plans = [plan | {"usd": 0.75}, other, plan | {"policy": "lt_i", "usd": 30.0}]
    lake.write("plans", full("plans", plans), **WHERE)
    lake.write("plan_bounds", full("plan_bounds", [BOUND]), **WHERE)
    lake.write("forecasts", full("forecasts", [FORECAST, FORECAST | {"region": "west"}]), **WHERE)
    for policy, booting_s in (("reactive", 1800.0), ("clairvoyant", 450.0)):
        lake.write("outcomes", outcomes(REQUESTS), **WHERE, policy=policy)
        lake.write("fleet_hours", fleet_hours(3600.0, booting_s), **WHERE, policy=policy)
    lake.write("scorecard", lake.sql("marts/scorecard.sql", **WHERE), **WHERE)
    tiers = [
        {"tier": "iw_fast", "ttft_slo_s": 1.0, "deadline_s": 60.0, "is_held": False},
        {"tier": "niw", "deadline_s": 86400.0, "is_held": True},
    ]
    lake.write(
        "tiers", full("tiers", [{"trace": WHERE["trace"], **tier} for tier in tiers]), trace=WHERE["trace"]
    )
    return lake


@pytest.mark.parametrize("mart", MARTS)
def test_the_grain_of_a_mart_is_unique_and_its_columns_exist(lake, mart):
    sql = read_sql(f"marts/{mart}.sql")
    rows = lake.sql(sql.text if mart not in PARTITIONS else f"marts/{mart}.sql", **WHERE).to_pandas()
    assert len(rows) > 0
    assert not rows.duplicated(list(sql.listed("grain"))).any()
    assert {name for name in sql.columns if "*" not in name} <= set(rows.columns)


def test_every_way_to_end_is_counted_once(lake):
    rows = lake.sql("select * from scorecard where policy = 'reactive'").to_pandas().set_index("tier")
    counts = rows[["requests", "met", "missed", "pending"]]
    assert counts.loc[["iw_fast", "niw"]].to_numpy().tolist() == [[3, 1, 2, 0], [5, 1, 3, 1]]
    assert rows.loc["niw", "attainment_share"] == 1 / 4
    assert rows["served_elsewhere"].tolist() == rows["requests"].tolist()


def test_the_scoreboard_adds_up(lake):
    board = lake.sql("select * from scoreboard").to_pandas().set_index("policy")
    reactive = board.loc["reactive"]
    assert (reactive["gpu_hours"], reactive["wasted_gpu_hours"]) == (
        2 * 8 * (3600 + 1800 + 450) / 3600,
        2 * 8 * 0.5,
    )
    assert reactive["usd"] == 12 * reactive["gpu_hours"]
    assert reactive["backlog_gpu_hours"] == 8.0
    assert reactive["over_clairvoyant_share"] == pytest.approx(
        metrics.distance_share(reactive["gpu_hours"] + 8, board.loc["clairvoyant", "gpu_hours"] + 8)
    )
    assert reactive["worst_llm_attainment_share"] == pytest.approx(1 / 3)
    assert reactive["missed_share"] == pytest.approx(2 / 3)
    assert (reactive["requests"], reactive["missed"], reactive["pending"]) == (8, 5, 1)


def test_a_request_that_was_never_served_counts_as_the_slowest(lake):
    """Of three interactive ones one never was; of four batch ones that are decided, two."""
    card = lake.sql("select * from scorecard where policy = 'reactive'").to_pandas().set_index("tier")
    board = lake.sql("select * from scoreboard where policy = 'reactive'").to_pandas().iloc[0]
    tiers = (
        lake.sql("select * from scoreboard_by_tier where policy = 'reactive'").to_pandas().set_index("tier")
    )
    study = lake.sql("staging/trial_figures.sql", policy="reactive", in_one_go=False).to_pylist()
    trials = {row["metric"]: row["value"] for row in study if (row["tier"], row["llm"]) == ("iw_fast", "all")}
    for found in (card.loc["iw_fast"], tiers.loc["iw_fast"], trials):
        assert found["ttft_p50_s"] == 1.5
        assert np.isnan(found.get("ttft_p95_s", np.nan))
    assert card.loc["niw", ["ttft_p50_s", "e2e_p50_s"]].isna().all()  # half way to one without end
    assert board[["ttft_p95_s", "e2e_p95_s"]].isna().all()
    assert trials["unfinished"] == 1
    two = (
        "(from scorecard union all "
        "select * replace ('iw_normal' as tier, 2.0 as ttft_p95_s) from scorecard where tier = 'iw_fast')"
    )
    worst = lake.sql(read_sql("queries/worst_hours.sql").text.replace("from scorecard", f"from {two}"))
    assert worst["worst_ttft_p95_s"].to_pylist() == [None, None]  # by policy; not that of the other tier


def test_the_costs_of_tiers_add_up_to_that_of_the_fleet_and_late_requests_to_the_missed_ones(lake):
    spent = lake.sql("select policy, sum(usd) as usd from fleet_by_hour group by policy order by policy")
    parts = lake.sql("select policy, sum(usd) as usd from unit_cost group by policy order by policy")
    assert parts["usd"].to_pylist() == pytest.approx(spent["usd"].to_pylist())
    late, counted = (
        lake.sql(
            f"select policy, sum({name})::int as late from {mart} group by policy order by policy"
        ).to_pylist()
        for name, mart in (("late", "lateness"), ("missed", "scorecard"))
    )
    assert late == counted


def test_a_policy_that_knows_the_day_answers_no_question_about_the_cheapest(tmp_path: Path) -> None:
    """Each clairvoyant policy is cheaper than all others here, and each serves all requests in time."""
    lake = Lake(tmp_path / "lake")
    hindsight = ["clairvoyant", "clairvoyant_routed", "clairvoyant_whole"]
    others = [name for name in REPLAY_POLICIES if name not in hindsight]
    for n, policy in enumerate([*hindsight, *others]):
        lake.write("outcomes", outcomes([{**REQUESTS[0], "ttft_s": 0.5}]), **WHERE, policy=policy)
        lake.write("fleet_hours", fleet_hours(100.0 * (n + 1), 0.0), **WHERE, policy=policy)
    lake.write("outcomes", outcomes([{**REQUESTS[0], "ttft_s": 1.5}]), **WHERE, policy=others[0])  # all late
    lake.write("scorecard", lake.sql("marts/scorecard.sql", **WHERE), **WHERE)
    tier = {"trace": "t", "tier": "iw_fast", "ttft_slo_s": 1.0, "deadline_s": 60.0, "is_held": False}
    lake.write("tiers", full("tiers", [tier]), trace="t")
    found = lake.sql("select policy, is_hindsight from scoreboard").to_pylist()
    assert {row["policy"] for row in found if row["is_hindsight"]} == set(hindsight)
    assert {row["policy"] for row in found if not row["is_hindsight"]} == set(others)
    cheapest = read_questions()["Which policy is cheapest of those that serve 95 % in time?"]
    assert [row["policy"] for row in lake.sql(cheapest, **WHERE).to_pylist()] == others[1:]


@pytest.mark.parametrize(
    ("query", "given", "sentences"),
    [
        ("queries/plan_changes.sql", {"policy": "ltua"}, ["Its tables have rows. Check policy=ltua."]),
        ("queries/short_plans.sql", {}, ["No plan is short of capacity."]),
    ],
)
def test_an_empty_answer_names_no_other_kind_of_plan(lake, query, given, sentences):
    assert list(explain_empty_result(lake, query, {**WHERE, **given})) == sentences


@pytest.mark.parametrize(("attained", "known"), [(1.0, 1.0), (0.9, 1.0), (1.0, 0.9)])
def test_nothing_is_compared_with_a_rule_that_missed_its_targets(
    tmp_path: Path, attained: float, known: float
) -> None:
    """reflex costs 100 and corrected 80 USD: 20 % less, if reflex attained on unseen and known days."""
    own, base = ({"attained_ratio": a, "known_ratio": k} for a, k in ((1.0, 1.0), (attained, known)))
    lake = Lake(tmp_path)
    rows = [
        ({"variant": name, "policy": name, "knobs": {"boot_s": 60.0, "factor": 1.0},
          "labels": {"reading": "own", "against": "reflex"}}, figures | {"total_usd": usd, "floor_usd": 1.0})
        for name, figures, usd in (("reflex", base, 100.0), ("corrected", own, 80.0))
    ]  # fmt: skip
    lake.write("trials", trial_rows(rows), experiment="foresight", trace="t", day="2025-07-15")
    [found] = lake.sql("from foresight where policy = 'corrected'").to_pylist()
    assert found["is_ranked"]
    is_base_ranked = (attained, known) == (1.0, 1.0)
    assert found["over_reflex_share"] == (pytest.approx(-0.2) if is_base_ranked else None)


def test_needed_gpus_come_from_the_clairvoyant_plan(lake):
    rows = lake.sql("select * from fleet_by_hour where policy = 'reactive' order by hour_start").to_pandas()
    assert rows["needed_gpus"].iloc[0] == 8 * 30 / 20
    assert np.isnan(rows["needed_gpus"].iloc[1])  # the plan has no such hour


def test_the_parts_of_a_regret_add_up(lake):
    rows = lake.sql("select * from regret").to_pandas().set_index("policy")
    for policy, row in rows.iterrows():
        parts = row[list(PARTS)]
        assert row["regret_usd"] == pytest.approx(parts.sum()), policy
        assert row["usd"] + row["backlog_usd"] - row["fluid_usd"] == pytest.approx(row["regret_usd"])
    assert rows["backlog_usd"].tolist() == [12 * 8.0] * 2
    usd = 12 * 2 * 8 / 3600  # of a second of two hours
    assert rows.loc["reactive", list(PARTS[:5])].tolist() == [1, 2, 4, -16, 0]
    assert rows.loc["reactive", "boot_usd"] == pytest.approx(usd * 1800)
    assert rows.loc["clairvoyant", "boot_usd"] == pytest.approx(usd * 450)


def test_the_histogram_ends_at_the_share_that_was_served(lake):
    rows = lake.sql("select * from ttft_histogram where policy = 'reactive' and tier = 'iw_fast'").to_pandas()
    assert rows["requests"].sum() == 2
    assert rows["cumulated_share"].max() == pytest.approx(2 / 3)


SECONDS = st.one_of(st.none(), st.integers(0, 40).map(lambda n: n / 4))
REQUEST = st.fixed_dictionaries(
    {
        "tier": st.just("niw"),
        "status": st.just("finished"),
        "ttft_s": SECONDS,
        "tpot_s": SECONDS,
        "e2e_s": SECONDS,
        "queued_s": SECONDS,
        "ttft_slo_s": SECONDS,
        "tpot_slo_s": SECONDS,
        "deadline_s": st.integers(1, 40).map(lambda n: n / 4),
    }
)


sql_double = "{}::double".format


@settings(max_examples=25)
@given(requests=st.lists(REQUEST, min_size=1, max_size=30))
@example(requests=REQUESTS)
def test_sql_and_python_agree_on_attainment_and_percentiles(lake, requests):
    table = outcomes(requests)
    floats = {name: table[name].to_numpy().astype(float) for name in NUMBERS}
    rows = ", ".join(
        f"({', '.join(sql_double('null' if r.get(name) is None else r[name]) for name in NUMBERS)})"
        for r in requests
    )
    found = lake.sql(
        "select count_if(is_met(ttft_s, tpot_s, e2e_s, ttft_slo_s, tpot_slo_s, deadline_s)) as met, "
        "count_if(is_pending(queued_s, ttft_slo_s, deadline_s)) as pending, "
        "percentiles(ranked_s(ttft_s, queued_s, ttft_slo_s, deadline_s)) as ttft, "
        "attainment_share(met, count(*), pending) as share "
        f"from (values {rows}) as t({', '.join(NUMBERS)})"
    ).to_pylist()[0]
    counted = metrics.attainment(**floats)
    assert (found["met"], found["pending"], found["share"]) == (counted.met, counted.pending, counted.share)
    is_pending = metrics.is_pending(*(floats[name] for name in metrics.PENDING))
    expected = metrics.percentiles(floats["ttft_s"], is_pending)
    np.testing.assert_allclose(np.array(found["ttft"] or [None] * 4, float), expected, rtol=1e-12)


QUARTERS_S = st.integers(0, 20).map(lambda n: n / 4)  # so that values and targets tie, with exact sums
TARGETS_S = st.one_of(st.none(), QUARTERS_S.filter(bool))
WAIT = st.tuples(st.one_of(st.none(), QUARTERS_S), st.one_of(st.none(), QUARTERS_S), st.integers(1, 9))


@given(
    tier=st.builds(Tier, QUARTERS_S.filter(bool), st.just(0.9), st.just("a test"), TARGETS_S, TARGETS_S),
    waits=st.lists(WAIT, min_size=1, max_size=30),
)
@example(tier=Tier(9.0, 0.9, "a test", 1.0, 0.5), waits=[(1.0, 0.5, 3), (1.0, 0.0, 1), (1.0, None, 1)])
@example(tier=Tier(2.0, 0.9, "a test"), waits=[(1.0, 0.5, 3), (None, None, 1), (1.0, None, 2)])
@example(tier=Tier(9.0, 0.9, "a test", None, 0.5), waits=[(1.0, 0.5, 2), (1.0, 0.75, 2), (9.0, 0.0, 1)])
def test_the_slo_has_one_formula_in_python_and_in_sql(lake, tier, waits):
    """`waits` of each request: its first token, its time per further token, how many it answers."""
    ttft_s, pace_s = (np.array([wait[n] for wait in waits], float) for n in (0, 1))
    tokens = np.array([count for _, _, count in waits])
    e2e_s = ttft_s + pace_s * (tokens - 1)
    found = lake.sql(
        "select is_met(ttft_s, tpot_s, e2e_s, $ttft_slo_s::double, $tpot_slo_s::double, "
        "$deadline_s::double), is_ttft_met(ttft_s, $ttft_slo_s::double), "
        "is_tpot_met(tpot_s, e2e_s, $tpot_slo_s::double), "
        "target_ratio(ttft_s, tpot_s, e2e_s, $ttft_slo_s::double, $tpot_slo_s::double, "
        "$deadline_s::double) <= 1 "
        "from (select unnest($first)::double as ttft_s, unnest($last)::double as e2e_s, "
        "(e2e_s - ttft_s) / nullif(unnest($tokens) - 1, 0) as tpot_s)",
        first=[None if np.isnan(at) else at for at in ttft_s.tolist()],
        last=[None if np.isnan(at) else at for at in e2e_s.tolist()],
        tokens=tokens.tolist(),
        ttft_slo_s=tier.ttft_slo_s,
        tpot_slo_s=tier.tpot_slo_s,
        deadline_s=tier.deadline_s,
    )
    slo_s = [np.nan if slo is None else slo for slo in (tier.ttft_slo_s, tier.tpot_slo_s)]
    met = is_tier_slo_met(tier, ttft_s, e2e_s, tokens)
    parts = is_ttft_met(ttft_s, slo_s[0]), is_tpot_met(tpot_s(ttft_s, e2e_s, tokens), e2e_s, slo_s[1])
    for column, expected in zip(found.columns, (met, *parts, met), strict=True):
        assert column.to_pylist() == expected.tolist()


@settings(max_examples=30)
@given(
    seconds=st.lists(st.one_of(st.none(), st.integers(0, 64).map(lambda n: n / 8)), min_size=1, max_size=41)
)
@example(seconds=[1.0] * 20 + [None])  # the 95th percentile is the last one that was served
@example(seconds=[1.0] * 19 + [None])
def test_a_percentile_counts_those_never_served_in_python_as_in_sql(lake, seconds):
    times = np.array(seconds, float)
    sql = "select percentiles(coalesce(s, 'infinity'::double)) as p from (select unnest($seconds) as s)"
    with lake.connect(threads="1") as con:
        [[expected]] = con.execute(sql, {"seconds": seconds}).fetchall()
    found = [waited_percentile_s(times, percent) for percent in (50, 90, 95, 99)]
    np.testing.assert_allclose(found, np.array(expected, float), rtol=1e-12)
    assert np.isnan(known_percentile_s(times, 50)) == np.isnan(times).all()


MANY = "count(*) > 5000000"  # of days_by_size(): such a day's percentiles are found in two walks
WALKS = read_sql("macros/percentiles_of_day.sql").text.replace("replace macro", "replace temp macro")


@settings(max_examples=6)
@given(seconds=st.lists(st.one_of(st.none(), st.just(0.0), st.floats(1e-6, 1e6)), min_size=1, max_size=60))
@example(seconds=[2.5] * 50)
@example(seconds=[1.0 + n / 7e4 for n in range(60)])
def test_percentiles_of_many_are_those_of_few(lake, seconds):
    """Two walks over bins, rank by rank as the aggregate that holds every value."""
    requests = [
        {"tier": ("iw_fast", "niw")[n % 2], "ttft_s": s, "tpot_s": s and s / 3, "tpot_slo_s": 1.0}
        for n, s in enumerate(seconds)
    ]
    lake.write("outcomes", outcomes(requests), **WHERE, policy="reactive")
    boards = []
    assert MANY in WALKS
    for macros in (WALKS, WALKS.replace(MANY, "count(*) > 0")):
        with lake.connect(threads="2") as con:  # of its own
            con.execute(macros)
            boards += [
                np.array(con.execute(f"select columns('.*_p[0-9]+_s') from {mart} order by all").fetchall())
                for mart in ("scoreboard", "scoreboard_by_tier")
            ]
    lake.write("outcomes", outcomes(REQUESTS), **WHERE, policy="reactive")  # as the other tests know it
    for few, many in zip(boards[:2], boards[2:], strict=True):
        np.testing.assert_allclose(many.astype(float), few.astype(float), rtol=1e-12)


def test_a_day_of_many_requests_is_ranked_in_little_memory(tmp_path: Path) -> None:
    """2.5 million outcomes take 60 MB to sort by three measures, as often again while they are gathered."""
    lake = Lake(tmp_path)
    file = lake.path("outcomes", **WHERE, policy="reactive")
    file.parent.mkdir(parents=True)
    with lake.connect(memory_limit="100MiB", threads="2", preserve_insertion_order="false") as con:
        con.execute(
            "copy (select 'iw_fast' as tier, 1.0 as tpot_slo_s, exp(i * 7919 % 2500000 / 1e6) as ttft_s, "
            f"ttft_s + 1 as e2e_s, ttft_s / 9 as tpot_s from range(2500000) as t(i)) to '{file}'"
        )
    lake.write("scorecard", lake.sql("marts/scorecard.sql", policy="none"), **WHERE)
    query = "from percentiles_of_day([ttft_s, e2e_s, tpot_s], tier) order by measure"
    with lake.connect(memory_limit="100MiB", threads="2") as con:
        con.execute(WALKS.replace(MANY, "count(*) > 2000000"))
        found = np.array([row[-1] for row in con.execute(query).fetchall()])
        with pytest.raises(Exception, match="Out of Memory"):
            con.execute(f"select {', '.join(f'percentiles({name})' for name in NUMBERS[:3])} from outcomes")
    rank = np.array([0.50, 0.90, 0.95, 0.99]) * 2_499_999
    np.testing.assert_allclose(found[0], np.exp(rank / 1e6), rtol=1e-9)
    np.testing.assert_allclose(found[1:], [found[0] + 1, found[0] / 9], rtol=1e-9)


def test_forecasts_are_compared_where_they_attain_the_same_and_their_costs_add_up(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    trials = [
        ("truth", 1.0, 30.0, 4.0, 3.0, 0.98),
        ("truth", 1.2, 20.0, 2.0, 2.0, 0.94),  # 0.96 lies half way
        ("last_value", 1.0, 50.0, 6.0, 5.0, 0.97),
        ("last_value", 1.2, 34.0, 2.0, 3.4, 0.93),  # three quarters of the way
        ("arima", 1.0, 90.0, 1.0, 9.0, 0.99),
        ("arima", 1.2, 80.0, 1.0, 8.0, 0.97),  # never comes down to it
    ]
    rows = [
        decided(method, share, met, 0.96, usd=usd, boot_usd=boot, gpu_hours=hours)
        for method, share, usd, boot, hours, met in trials
    ]
    lake.write("trials", trial_rows(rows), experiment="decide", **WHERE)
    lake.write("plan_bounds", full("plan_bounds", [BOUND]), **WHERE)
    board = lake.sql("select * from decision_leaderboard").to_pandas().set_index("method")
    assert board["usd"].to_dict() == pytest.approx(
        {"truth": 25, "last_value": 46, "arima": np.nan}, nan_ok=True
    )
    assert board["noise_share"].to_dict() == pytest.approx(
        {"truth": 0.5, "last_value": 5 / 3.4 - 1, "arima": np.nan}, nan_ok=True
    )
    assert board["failure_reason"].dropna().to_dict() == {
        "arima": "still attains 97.0 % at 1.2 times the capacity"
    }
    parts = ["fluid_usd", "constraint_usd", "routing_usd", "forecast_usd", "boot_usd"]
    assert board.loc["last_value", parts].tolist() == pytest.approx([10, 7, 22 - 17, 46 - 5 - 22, 5])
    assert board.loc["truth", parts].tolist() == pytest.approx([10, 7, 5, 0, 3])
    assert board.loc["truth", "saved_on_last_value_share"] == pytest.approx(1 - 2.5 / 4.6)


@pytest.mark.parametrize(
    ("check", "table", "change"),
    [
        ("scorecard_conserves_requests", "scorecard", "select * replace (missed + 1 as missed)"),
        ("replays_end_every_request_once", "outcomes", "select * replace (request_id + 1 as request_id)"),
        ("replays_end_every_request_once", "outcomes", "select * replace (-1.0 as ttft_s)"),
        ("replays_account_for_every_hour", "fleet_hours", "select * replace (-1.0 as serving_s)"),
        (
            "forecasts_start_at_their_cutoff",
            "forecasts",
            "select * replace (cutoff + interval 15 minute as cutoff)",
        ),
        (
            "forecasts_start_at_their_cutoff",
            "forecasts",
            "select * replace (cutoff - interval 1 hour as cutoff)",
        ),
        ("forecasts_cover_the_day", "forecasts", "select * replace (null::double as forecast_per_s)"),
        (
            "forecasts_cover_the_day",
            "day_ahead_forecasts",
            "select * replace (cutoff + interval 1 hour as cutoff)",
        ),
        (
            "forecasts_cover_the_day",
            "day_ahead_forecasts",
            "select * replace (bucket_start - interval 1 hour as bucket_start)",
        ),
        ("plans_cover_demand", "plans", "select * replace (0 as instances)"),
        ("plan_windows_balance", "plan_windows", "select * replace (29.0 as capacity_tokens_per_s)"),
        ("plan_windows_balance", "plan_windows", "select * replace (1.0 as exports_tokens_per_s)"),
        ("plans_chain", "plans", "select * replace (instances_before + 1 as instances_before)"),
    ],
)
def test_a_check_finds_what_it_is_for(tmp_path: Path, check: str, table: str, change: str) -> None:
    lake = sound_lake(tmp_path)
    assert lake.sql(f"checks/{check}.sql", **WHERE).num_rows == 0
    keys = {key: value for key, value in {**WHERE, "policy": "reactive"}.items() if key in PARTITIONS[table]}
    hive = ", ".join(keys)
    lake.write(table, lake.sql(f"{change} from (select * exclude ({hive}) from {table})"), **keys)
    assert lake.sql(f"checks/{check}.sql", **WHERE).num_rows > 0
    assert lake.sql(f"checks/{check}.sql", trace="other").num_rows == 0


def sound_lake(root: Path) -> Lake:
    """A lake of one request, planned, replayed and scored for a whole day."""
    lake = Lake(root)
    request = {
        **{
            "request_id": 0,
            "arrived_at": START,
            "region": "east",
            "llm": "a",
            "tier": "iw_fast",
            "app": "rag",
        },
        **{"input_tokens": 1, "output_tokens": 1, "deadline_s": 60.0, "source": "test"},
    }
    hours = [START + timedelta(hours=hour) for hour in range(24)]
    plan = {
        **{"policy": "lt_i", "llm": "a", "served_region": "east", "gpu": "h100", "demand_tokens_per_s": 25.0},
        **{"buffer_tokens_per_s": 5.0, "capacity_tokens_per_s": 20.0},
        **{"short_llm_tokens_per_s": 0.0, "programme": "paper"},
        **PLANNED,
    }
    window = {
        **{"policy": "lt_i", "llm": "a", "region": "east", "hour_start": START, "window_start": START},
        **{"demand_tokens_per_s": 25.0, "buffer_tokens_per_s": 5.0, "capacity_tokens_per_s": 30.0},
        **dict.fromkeys((f"{name}_tokens_per_s" for name in FLOWS[1:]), 0.0),
    }
    forecasts = [FORECAST | {"cutoff": hour, "bucket_start": hour} for hour in hours]
    row = fleet_hours(3600.0, 0.0).to_pylist()[0]
    lake.write("requests", full("requests", [request]), **WHERE)
    lake.write("plans", full("plans", [plan | {"hour_start": hour} for hour in hours]), **WHERE)
    lake.write("plan_bounds", full("plan_bounds", [BOUND]), **WHERE)
    lake.write("plan_windows", full("plan_windows", [window]), **WHERE)
    lake.write("forecasts", full("forecasts", forecasts), **WHERE)
    ahead = [forecast | {"cutoff": START} for forecast in forecasts]
    lake.write("day_ahead_forecasts", full("day_ahead_forecasts", ahead), **WHERE)
    lake.write("outcomes", outcomes(REQUESTS[:1]), **WHERE, policy="reactive")
    fleet = full("fleet_hours", [row | {"hour_start": hour} for hour in hours])
    lake.write("fleet_hours", fleet, **WHERE, policy="reactive")
    lake.write("scorecard", lake.sql("marts/scorecard.sql", **WHERE), **WHERE)
    return lake


def test_left_over_is_what_may_wait_and_no_instance_had_by_midnight(tmp_path: Path) -> None:
    """Of 8 GPUs that sustain 20 tokens/s at 12 USD: 3,600 tokens are 360 GPU-seconds."""
    waits = {"tier": "niw", "is_held": True, "status": "queued", "input_tokens": 3600, "held_s": None}
    until_midnight_s = 86_400.0 - 60.0 * np.arange(7)
    rows = [
        waits,
        {**waits, "status": "refused"},
        {**waits, "status": "finished", "held_s": until_midnight_s[2] - 1.0},
        {**waits, "status": "finished", "held_s": until_midnight_s[3]},
        {**waits, "status": "finished", "held_s": until_midnight_s[4] - 1.0, "earlier_s": 1.0},
        {**waits, "tier": "iw_fast", "is_held": False},
        {**waits, "llm": "b"},
    ]
    lake = Lake(tmp_path)
    lake.write("outcomes", outcomes(rows), **WHERE, policy="reactive")
    lake.write("fleet_hours", fleet_hours(3600.0, 0.0), **WHERE, policy="reactive")
    plan = {"policy": "clairvoyant", "hour_start": START, "llm": "a", "served_region": "east", "gpu": "h100"}
    plan |= {"capacity_tokens_per_s": 20.0, "gpus_per_instance": 8, "instances": 1}
    lake.write("plans", full("plans", [plan]), **WHERE)
    [left_row] = lake.sql("select * from left_over").to_pylist()
    assert (left_row["requests"], left_row["input_tokens"]) == (4, 4 * 3600)  # the last one waits for llm a
    assert left_row["backlog_gpu_hours"] == pytest.approx(4 * 3600 / (20.0 / 8) / 3600)
    assert left_row["backlog_usd"] == pytest.approx(12.0 * left_row["backlog_gpu_hours"])
    tomorrow = {"trace": "t", "day": WHERE["day"] + timedelta(days=1)}
    later = [{**row, "arrived_at": START + timedelta(hours=30)} for row in (waits, {**waits, "held_s": 60.0})]
    lake.write("outcomes", outcomes(later), **tomorrow, policy="reactive")
    lake.write("fleet_hours", fleet_hours(3600.0, 0.0), **tomorrow, policy="reactive")
    lake.write("plans", full("plans", [plan]), **tomorrow)
    for in_one_go, requests in ((False, 4 + 1), (True, 2 + 1)):  # of a week only who waits at its end
        study = lake.sql("staging/trial_figures.sql", policy="reactive", in_one_go=in_one_go).to_pylist()
        left = {row["llm"]: row["value"] for row in study if row["metric"] == "backlog_gpu_hours"}
        assert left["a"] == left["all"] == pytest.approx(requests * left_row["backlog_gpu_hours"] / 4)


def test_why_late_counts_those_ahead_on_the_same_instance(tmp_path: Path) -> None:
    """Request 2 joins instance 7 at minute 2: request 0 is ahead until minute 3, request 1 is elsewhere."""
    waits = {"waited_s": 50.0, "prefill_s": 10.0, "network_s": 0.0, "held_s": 0.0}
    waits |= {"tier": "iw_normal", "status": "finished", "deadline_s": 600.0, "input_tokens": 300}
    waits["ttft_slo_s"] = 60.0
    lake = Lake(tmp_path)
    rows = [
        {**waits, "instance": 7, "ttft_s": 180.0},
        {**waits, "instance": 8, "ttft_s": 180.0},
        {**waits, "instance": 7, "ttft_s": 60.0},
    ]
    lake.write("outcomes", outcomes(rows), **WHERE, policy="reactive")
    lake.write("fleet_hours", fleet_hours(3600.0, 1800.0), **WHERE, policy="reactive")
    left_row = lake.sql("queries/why_late.sql", request=2, **WHERE).to_pylist()
    assert [(row["ahead"], row["ahead_input_tokens"], row["waited_s"]) for row in left_row] == [
        (1, 300, 50.0)
    ]
    everything = lake.sql("queries/why_late.sql", **WHERE).to_pylist()
    assert {row["request_id"]: row["ahead"] for row in everything} == {0: 0, 1: 0}  # 2 was in time
    tomorrow = {"trace": "t", "day": WHERE["day"] + timedelta(days=1)}
    lake.write("outcomes", outcomes(rows[2:]), **tomorrow, policy="reactive")
    lake.write("fleet_hours", fleet_hours(3600.0, 1800.0), **tomorrow, policy="reactive")
    assert lake.sql("queries/why_late.sql", **tomorrow).num_rows == 0
    reasons = explain_empty_result(lake, "queries/why_late.sql", tomorrow)
    assert list(reasons) == ["No interactive request was late."]


def test_a_timeline_has_every_second_of_every_request_in_lanes_that_do_not_overlap(tmp_path: Path) -> None:
    waits = {"held_s": 0.0, "waited_s": 20.0, "prefill_s": 30.0, "network_s": 0.5, "e2e_s": 150.5}
    waits |= {"tier": "iw_normal", "status": "finished", "deadline_s": 600.0, "instance": 7}
    lake = Lake(tmp_path)
    lake.write("outcomes", outcomes([waits] * 5), **WHERE, policy="reactive")
    rows = lake.sql(
        "queries/timeline.sql", policy="reactive", llm="a", region="west", hour=START.hour, **WHERE
    ).to_pylist()
    bars = [event for event in chrome_trace_events(rows) if event["ph"] == "X"]
    assert sum(bar["dur"] for bar in bars) == 5 * 150.0 * 1e6
    assert {bar["tid"] for bar in bars} == {0, 1, 2}  # one a minute, each for two and a half
    for lane in range(3):
        own = sorted((bar["ts"], bar["dur"]) for bar in bars if bar["tid"] == lane)
        assert all(ts + dur <= later for (ts, dur), (later, _) in pairwise(own))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"llm": "bloom"}, "--llm: unknown llm 'bloom'. Did you mean 'bloom-176b'"),
        ({"region": "eas"}, "--region: unknown region 'eas'. Did you mean 'east'"),
        ({"policy": "lt_e"}, "--policy: unknown policy 'lt_e'. Did you mean 'lt_"),
        ({"policy": "lt_i"}, "lt_i was not replayed on .* fleetcast replay --policy lt_i --date "),
        ({"day": date(2025, 7, 9)}, "'sageserve' has no outcomes on 2025-07-09"),
        ({"hour": 3}, "in hour 3 of .* under reactive.* policy = 'reactive' and day = '"),
    ],
)
def test_a_timeline_names_what_there_is_not(tmp_path: Path, wrong: dict, message: str) -> None:
    lake, catalogue = Lake(tmp_path), load_catalogue()
    office = RunSettings(lake, catalogue, load_config("sageserve", catalogue))
    lake.write("outcomes", outcomes([{}]), trace="sageserve", day=START.date(), policy="reactive")
    query = {"day": START.date(), "policy": "reactive", "llm": "bloom-176b", "region": "east", "hour": 1}
    with pytest.raises(ValueError, match=message):
        write_timeline(office, **(query | wrong))


def test_a_rule_that_looks_at_memory_while_requests_wait_rings(tmp_path: Path) -> None:
    """Of three hours one is blind: low memory and most of the interactive requests late."""
    lake = Lake(tmp_path / "lake")
    late, in_time = ({**REQUESTS[0], "ttft_s": seconds} for seconds in (1.5, 0.5))
    hours = [START + timedelta(hours=n) for n in range(3)]
    of_hours = [[late] * 14 + [in_time] * 6, [late] * 14 + [in_time] * 6, [late] * 9 + [in_time] * 11]
    requests = [
        {**request, "arrived_at": hour, "region": "east"}
        for hour, some in zip(hours, of_hours, strict=True)
        for request in some
    ]
    row = {"llm": "a", "served_region": "east", "gpu": "h100", "gpus_per_instance": 8, "serving_s": 3600.0}
    used = zip(hours, (0.25, 0.35, 0.25), strict=True)
    fleet = full(
        "fleet_hours", [{**row, "hour_start": h, "kv_utilisation_share": share} for h, share in used]
    )
    for policy in ("reactive", "chiron"):
        lake.write("outcomes", outcomes(requests), **WHERE, policy=policy)
        lake.write("fleet_hours", fleet, **WHERE, policy=policy)
    lake.write("scorecard", lake.sql("marts/scorecard.sql", **WHERE), **WHERE)
    office = load_config("sageserve", load_catalogue())
    assert office.by_memory == ["siloed", "reactive", "hpa", "lt_u", "lt_ua"]
    (found,) = lake.sql(
        "alarms/rules_on_memory_see_who_waits.sql",
        **WHERE,
        by_memory=office.by_memory,
        scale_in_share=office.replay.scale_in_share,
    ).to_pylist()
    assert (found["policy"], found["hours"], found["kv_utilisation_share"]) == ("reactive", 1, 0.25)
    assert found["missed_share"] == pytest.approx(0.7)
