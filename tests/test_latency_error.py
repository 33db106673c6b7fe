"""The error of the latency profiles: its size, its effect on the scoreboard, and which differences hold."""

import dataclasses
import io
import re
from collections.abc import Sequence
from contextlib import redirect_stdout
from datetime import date, timedelta
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import make_plans, small_config
from trial_rows import trial_rows

from fleetcast.assets.advice import next_day_plan
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.lake.sql_files import read_sql
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.replays import scorecards
from fleetcast.assets.replays.nightly_replays import begin_units, end_units
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.replays.scorecards import read_scoreboard, score_day
from fleetcast.assets.studies import latency_error
from fleetcast.models.latency.latency_errors import (
    NINETY_SIGMAS,
    catalogue_errors,
    describe_profile_errors,
    error_factors,
    errors_in_use,
    median_error_share,
    ninety_reach,
    sample_catalogues,
    scale_profile,
)
from fleetcast.models.latency.profile_order import compute_profile
from fleetcast.models.latency.roofline import roofline_context_token_s
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.catalogue_entries import ErrorLaw
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.toml_dataclasses import ConfigError
from fleetcast.pipelines import error_cli

CATALOGUE = load_catalogue().of_era("2023", "here")
DAY = date(2025, 7, 3)
POLICIES = ("static", "reactive", "lt_ua")
H100 = [("bloom-176b", [Deployment("h100-80gb", 8)]), ("llama3.1-8b", [Deployment("h100-80gb", 1)])]


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    """A planned and replayed day of so few instances that their pace matters."""
    folder = tmp_path_factory.mktemp("replayed")
    few = {"requests_per_day": "60_000.0", "min_instances": "1", "instances_at_start": "1"}
    settings = load_settings(small_config(folder, policies=str(list(POLICIES)), **few), folder / "lake")
    make_plans(settings, DAY, lambda *_: [3000.0, 4000.0, 9000.0, 9000.0])
    begin_units(settings, DAY)
    replay_day(settings, DAY, POLICIES, Progress())
    end_units(settings, DAY)
    score_day(settings, DAY)
    return settings


def by_draw(table: pa.Table, figure: str) -> pd.DataFrame:
    """Return one row per draw, one column per policy."""
    frame = table.to_pandas()
    return frame[frame["figure"] == figure].pivot(index="draw", columns="policy", values="value")


# --- the error of a profile ------------------------------------------------------------------------------


def test_an_error_is_the_published_one_or_the_roofline_s() -> None:
    mine = dataclasses.replace(
        CATALOGUE.profile("llama2-70b", "h100-80gb", 2),
        source="calibrated: 300 requests of log.csv",
        median_error_share=0.02,
        prefill_median_error_share=None,
    )
    others = [
        p for p in CATALOGUE.latency if (p.llm, p.gpu, p.tensor_parallel) != ("llama2-70b", "h100-80gb", 2)
    ]
    catalogue = dataclasses.replace(CATALOGUE, latency=(*others, mine))
    staged = Deployment("h100-80gb", 4, pipeline_parallel=2)
    found = errors_in_use(catalogue, [*H100, ("llama2-70b", [Deployment("h100-80gb", 2), staged, staged])])
    assert [error.kind for error in found] == ["measured", "estimated", "calibrated", "composed"]
    for error, shares in ((found[0], (0.0552, 0.0144)), (found[2], (0.02, 0.02))):
        assert (error.prefill_share, error.decode_share) == pytest.approx(shares, rel=1e-3)
        assert (error.prefill.bias, error.decode.bias) == (0.0, 0.0)
    for error in (found[1], found[3]):  # the second is of stages that were not measured together
        assert (error.prefill, error.decode) == (
            CATALOGUE.engine.roofline_dense.prefill,
            CATALOGUE.engine.roofline_dense.decode,
        )
    assert describe_profile_errors(found[::2]) == (
        "bloom-176b measured, 1 to 6 % off; llama2-70b calibrated, 2 % off"
    )


def test_a_computed_profile_has_the_law_of_its_source_and_its_sort_of_llm() -> None:
    """Of two llms with profiles of the package one is a mixture; all laws differ."""
    laws = CATALOGUE.engine
    cases = {
        ("llama3.1-8b", "h100-80gb", 1): ("composed", laws.composed),
        ("gpt-oss-120b", "h100-80gb", 1): ("aiconfigurator-core", laws.package_mixture),
        ("llama3.1-8b", "b300-270gb", 1): ("aiconfigurator-core", laws.package_dense),
        ("llama3.1-8b", "h20-96gb", 1): ("composed in part", laws.roofline_dense),
        ("llama3.1-8b", "rtx4090-24gb", 1): ("estimated", laws.roofline_dense),
        ("gpt-oss-20b", "rtx4090-24gb", 1): ("estimated", laws.roofline_mixture),
    }
    for deployment, (kind, expected) in cases.items():
        profile = compute_profile(load_catalogue(), *deployment)
        [error] = catalogue_errors(dataclasses.replace(CATALOGUE, latency=(profile,)))
        assert (error.kind, error.prefill, error.decode) == (kind, expected.prefill, expected.decode)
    assert len({(law.decode, law.prefill) for _, law in cases.values()}) == 5
    whole = dataclasses.replace(
        CATALOGUE, latency=(compute_profile(load_catalogue(), "llama3.1-8b", "h100-80gb", 2),)
    )
    [staged] = errors_in_use(whole, [("llama3.1-8b", [Deployment("h100-80gb", 2, pipeline_parallel=2)])])
    assert (staged.kind, staged.decode) == ("composed", laws.roofline_dense.decode)


def test_draws_are_the_quantiles_of_the_law() -> None:
    """Median exp(bias), nine of ten within NINETY_SIGMAS * sigma of it: the interval covers its own draws."""
    bloom, llama = errors_in_use(CATALOGUE, H100)
    llama = llama._replace(prefill=ErrorLaw(-0.1, 0.2), decode=ErrorLaw(0.3, 0.1))
    many, dozen = error_factors(llama, 1000, seed=7), error_factors(llama, 12, seed=7)
    for factors, law in zip(many.T, (llama.prefill, llama.decode), strict=True):
        ends = law.bias + NINETY_SIGMAS * law.sigma * np.array([-1, 0, 1])
        assert np.quantile(np.log(factors), (0.05, 0.5, 0.95)) == pytest.approx(ends, abs=1e-3)
        assert ((np.log(factors) > ends[0]) & (np.log(factors) < ends[2])).mean() == 0.9
        assert np.median(np.abs(np.log(factors))) == pytest.approx(median_error_share(law), rel=0.01)
        assert ninety_reach(law) == pytest.approx(np.abs(ends).max())
    assert describe_profile_errors([llama]) == "llama3.1-8b estimated, 15 to 30 % off (steps 26 % too short)"
    slow = llama._replace(decode=ErrorLaw(-0.3, 0.1))
    assert describe_profile_errors([slow]) == "llama3.1-8b estimated, 15 to 30 % off (steps 35 % too long)"
    assert slow.worst == slow.decode
    of_bloom = np.median(np.abs(np.log(error_factors(bloom, 1000, seed=7))), axis=0)
    assert of_bloom == pytest.approx([0.0552, 0.0144], rel=0.01)  # prefill, decode
    assert np.log(dozen).mean(axis=0) == pytest.approx([-0.1, 0.3], abs=1e-12)
    assert abs(np.corrcoef(np.log(many).T)[0, 1]) < 0.1  # prefill and decode err apart
    assert abs(np.corrcoef(np.log(many[:, 0]), np.log(error_factors(bloom, 1000, seed=7)[:, 0]))[0, 1]) < 0.1
    alone, both = (
        sample_catalogues(CATALOGUE, [llama], 12, seed=7),
        sample_catalogues(CATALOGUE, [bloom, llama], 12, seed=7),
    )
    names = ("llama3.1-8b", "h100-80gb", 1)
    assert [world.profile(*names) for world in alone] == [world.profile(*names) for world in both]
    assert len({world.profile(*names) for world in both}) == 12
    assert both[0].profile("llama2-70b", "h100-80gb", 2) is CATALOGUE.profile("llama2-70b", "h100-80gb", 2)
    with pytest.raises(ValueError, match=r"^draws is 1, must be 2 to 1000\. A dozen is enough\.$"):
        error_factors(bloom, 1, seed=7)


def test_prefill_moves_with_its_context_and_decode_with_its_cache() -> None:
    profile = CATALOGUE.profile("bloom-176b", "h100-80gb", 8)
    moved = scale_profile(CATALOGUE, profile, 2.0, 3.0)
    llm, gpu = CATALOGUE.llms["bloom-176b"], CATALOGUE.gpus["h100-80gb"]
    assert moved.prefill_s == tuple(2 * s for s in profile.prefill_s)
    assert moved.prefill_per_context_token_s == 2 * roofline_context_token_s(
        llm, gpu, 8, CATALOGUE.efficiency
    )
    assert moved.decode_s == tuple(3 * s for s in profile.decode_s)
    assert moved.decode_per_kv_token_s == 3 * profile.decode_per_kv_token_s


# --- its effect on the scoreboard -------------------------------------------------------------------------


def test_without_error_every_draw_equals_the_scoreboard(replayed, monkeypatch, capsys) -> None:
    errors = latency_error.profile_errors(replayed)
    exact = [error._replace(prefill=ErrorLaw(0.0, 0.0), decode=ErrorLaw(0.0, 0.0)) for error in errors]
    monkeypatch.setattr(latency_error, "profile_errors", lambda _: exact)
    table = latency_error.replay_latency_draws(replayed, DAY, [], 2, Progress())
    board = read_scoreboard(replayed, DAY)
    names = table["figure"].unique().to_pylist()
    assert set(names) == {
        *(f"{tier}_attainment_share" for tier in ("iw_fast", "iw_normal", "niw")),
        *("worst_llm_attainment_share", "missed_share", "ttft_p95_s", "gpu_hours", "usd"),
    }
    for row in board.to_pylist():
        for name in names:
            draws = by_draw(table, name)[row["policy"]].tolist()
            assert draws == [draws[0]] * 3
            assert draws[0] == pytest.approx(row[name], rel=1e-12)
    rows = latency_error.read_score_intervals(replayed, DAY, board)
    assert [row["policy"] for row in rows[:: len(names)]] == list(POLICIES)
    assert all(row["low"] == row["value"] == row["high"] and row["draws"] == 2 for row in rows)
    error_cli.show_errors(replayed, DAY, board)
    assert "2 samples of the latency errors" in capsys.readouterr().out
    other = board.set_column(board.column_names.index("usd"), "usd", pa.array([1.0] * board.num_rows))
    error_cli.show_errors(replayed, DAY, other)  # the draws belong to another board
    shown = capsys.readouterr().out
    assert "fleetcast error" in shown
    assert "draws" not in shown


def test_slower_engines_attain_less_and_all_policies_share_them(replayed, monkeypatch) -> None:
    def slower(catalogue: Catalogue, *_: object) -> list[Catalogue]:
        return [
            dataclasses.replace(
                catalogue, latency=tuple(scale_profile(catalogue, p, by, by) for p in catalogue.latency)
            )
            for by in (1.5, 3.0)
        ]

    monkeypatch.setattr(latency_error, "sample_catalogues", slower)
    table = latency_error.replay_latency_draws(replayed, DAY, [], 2, Progress())
    for policy in POLICIES:
        attained = by_draw(table, "iw_fast_attainment_share")[policy]
        assert attained[0] > attained[1] > attained[2]
    alone = latency_error.replay_latency_draws(replayed, DAY, ["reactive"], 2, Progress())
    for name in table["figure"].unique().to_pylist():
        assert by_draw(alone, name)["reactive"].tolist() == by_draw(table, name)["reactive"].tolist()
    assert by_draw(table, "gpu_hours")["static"].nunique() == 1  # plans stay as they were made


def test_a_run_names_the_policies_whose_draws_it_removes(replayed, monkeypatch, capsys) -> None:
    monkeypatch.setattr(error_cli, "load_settings_and_day", lambda *_: (replayed, DAY))

    def run(*policies: str) -> str:
        error_cli.error_command(list(policies), draws=2, quiet=True)
        drawn = replayed.day_rows("error_draws", DAY)["policy"].unique().to_pylist()
        assert set(drawn) == set(policies or POLICIES)
        return " ".join(capsys.readouterr().err.split())

    assert "removes" not in run()
    note = run("reactive")
    assert note.startswith("This run removes the day's samples of static, lt_ua. To compare all on the same")
    assert "--policy static --policy lt_ua --policy reactive" in note
    assert "removes" not in run("reactive", "static")


def test_impossible_draws_are_refused_in_one_line(replayed) -> None:
    for policies, day, draws, error, line in (
        ([], DAY, 1, ValueError, r"draws is 1, must be 2 to 1000"),
        ([], DAY - timedelta(days=1), 2, LakeError, r"no outcomes on 2025-07-02\. It has 2025-07-03"),
        (["lt_ux"], DAY, 2, ConfigError, r"unknown policy 'lt_ux'"),
        (["corrected_closed"], DAY, 2, ConfigError, r"unknown policy with an open-loop plan"),
    ):
        with pytest.raises(error, match=line) as caught:
            latency_error.replay_latency_draws(replayed, day, policies, draws, Progress())
        assert "\n" not in str(caught.value)
    other = dataclasses.replace(replayed, catalogue=dataclasses.replace(replayed.catalogue, latency=()))
    with pytest.raises(
        ConfigError,
        match=r"results of 2025-07-03 are not of small.toml as it is now.* --date 2025-07-03 --config /\S+",
    ):
        latency_error.open_loop_policies(other, DAY, [])


# --- which differences hold ------------------------------------------------------------------------------


def write_draws(lake: Lake, usd: dict[str, Sequence[float]]) -> None:
    """Write draws of one figure as a study writes them; the first draw is the scoreboard's."""
    draws = [(policy, n, value) for policy, values in usd.items() for n, value in enumerate(values)]
    rows = [({"variant": policy, "policy": policy, "draw": n}, {"usd": value}) for policy, n, value in draws]
    lake.write("trials", trial_rows(rows), experiment="error", trace="sageserve", day=DAY)


def test_a_difference_is_certain_if_it_holds_in_every_draw(tmp_path: Path, capsys) -> None:
    """The intervals of a and b overlap, yet b is dearer in every draw. c is dearer in most of them."""
    lake, rng = Lake(tmp_path), np.random.default_rng(5)
    world = rng.normal(1000, 100, 12)
    flips = np.where(np.arange(12) < 3, -5.0, 20.0)
    write_draws(
        lake,
        {
            "a": [1000, *world],
            "b": [1010, *(world + 10)],
            "c": [1020, *(world + flips)],
            "d": [1000, *world],
            "e": [990, *(world + 10)],  # cheaper than a on the scoreboard, dearer in all draws
        },
    )
    query = "from scoreboard_intervals where policy = 'b'"
    [row] = lake.sql(query).to_pylist()
    assert (row["value"], row["draws"]) == (1010, 12)
    assert (row["low"], row["high"]) == pytest.approx(tuple(np.quantile(world + 10, (0.05, 0.95))))
    pairs = lake.sql("from scoreboard_differences order by all").to_pylist()
    carried = {(row["policy"], row["against"]): row["is_carried"] for row in pairs}
    assert all(carried[a, b] == carried[b, a] for a, b in carried)
    assert {b: carried["a", b] for b in "bcde"} == {"b": True, "c": False, "d": False, "e": False}
    [row] = [row for row in pairs if (row["policy"], row["against"]) == ("c", "a")]
    assert (row["difference"], row["low"], row["high"]) == (20, -5, 20)
    rows = lake.sql("from scoreboard_intervals order by all").to_pylist()
    error_cli.show_intervals(rows, pairs, "a", "t", error_cli.interval_columns("iw_fast", ["iw_fast"]))
    marked = {line[0] for line in capsys.readouterr().out.splitlines() if line.endswith("~")}
    assert marked == {"c", "e"}  # d does not differ
    assert "2 of 9 differences are significant; not a and c, a and e, " in error_cli.describe_pairs(
        pairs, "usd"
    )


@given(
    value=st.floats(-1e3, 1e3),
    drawn=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12),
    shift=st.sampled_from([0.0, 50.0]),
)
@settings(max_examples=40, deadline=None)
def test_an_interval_holds_its_figure_or_is_marked(value: float, drawn: list[float], shift: float) -> None:
    """Over any draws: with the mart's own text, and in the printed table."""
    rows = [("t", "p", "usd", n, one + shift * (n > 0)) for n, one in enumerate([value, *drawn])]
    with duckdb.connect() as con:
        con.execute(read_sql("macros/is_inside.sql").text)
        con.execute("create table error_draws(trace text, policy text, figure text, draw int, value double)")
        con.execute("alter table error_draws add column day date")
        con.executemany("insert into error_draws values (?, ?, ?, ?, ?, '2025-07-15')", rows)
        [row] = con.sql(read_sql("marts/scoreboard_intervals.sql").text).to_arrow_table().to_pylist()
    low, high = np.quantile([one[-1] for one in rows[1:]], (0.05, 0.95))
    assert (row["low"], row["high"]) == pytest.approx((low, high), rel=1e-9, abs=1e-9)
    slack = 1e-5 * max(abs(low), abs(high), 1e-6)
    assert row["is_value_inside"] or value < low or value > high
    assert not row["is_value_inside"] or low - slack <= value <= high + slack
    printed = io.StringIO()
    with redirect_stdout(printed):
        error_cli.show_intervals([row], [], "p", "t", error_cli.interval_columns("fast", []))
    assert printed.getvalue().count("!") == (0 if row["is_value_inside"] else 2)  # the mark, and its meaning


def test_the_error_of_a_plan_weighs_its_llms_by_cost(replayed) -> None:
    """Each of two llms with independent errors weighs by the cost spent on it; their biases add."""

    def share(usd: dict[str, float]) -> float:
        rows = [{"llm": llm, "usd": value / 2} for llm, value in usd.items() for _ in range(2)]
        return latency_error.usd_error_share(replayed, rows)

    laws = {error.profile.llm: error.worst for error in latency_error.profile_errors(replayed)}
    one, other = laws["llama3.1-8b"], laws["bloom-176b"]
    assert share({"llama3.1-8b": 10.0}) == pytest.approx(abs(one.bias) + 1.645 * one.sigma, rel=1e-3)
    spread = 1.645 * np.hypot(0.75 * one.sigma, 0.25 * other.sigma)
    assert share({"llama3.1-8b": 3.0, "bloom-176b": 1.0}) == pytest.approx(
        abs(0.75 * one.bias + 0.25 * other.bias) + spread, rel=1e-3
    )
    assert share({}) == 0.0
    with pytest.raises(ConfigError, match=r"does not deploy gpt-oss-20b, which the plan has\. Add it to"):
        share({"gpt-oss-20b": 1.0})


def test_an_error_that_adds_no_whole_instance_moves_no_cost_of_a_plan(replayed) -> None:
    plan = [{"llm": "llama3.1-8b", "usd": 10.0}]
    of_counts = {
        count: error_cli.describe_cost_error(replayed, [row | {"instances": count} for row in plan])
        for count in (1, 1000)
    }
    assert "that adds no whole instance to any pool, so nothing to the plan's cost." in of_counts[1]
    share = latency_error.usd_error_share(replayed, plan)
    assert 0.05 < share < 0.5

    def moves(instances: int, load: float) -> bool:
        row = {"instances": instances, "capacity_tokens_per_s": 100.0, "demand_tokens_per_s": load}
        return next_day_plan.whole_instance_error_share(replayed, [plan[0] | row]) is not None

    assert [moves(1, load) for load in (10, 100 / (1 + 1.1 * share), 100 / (1 + 0.9 * share), 101)] == [
        *(False, False),
        *(True, True),
    ]
    assert [moves(2, load) for load in (10, 101, 100 / (1 - 0.9 * share))] == [False, True, True]
    row = plan[0] | {"instances": 2, "capacity_tokens_per_s": 100.0, "demand_tokens_per_s": 390.0}
    two = [row] * 2  # two GPU types with 200 tokens/s each
    assert next_day_plan.whole_instance_error_share(replayed, two) == share
    assert of_counts[1000] == error_cli.describe_cost_error(replayed, plan)
    assert "% off (nine of ten times)." in of_counts[1000]


def test_savings_state_the_part_due_to_latency_error(replayed, capsys) -> None:
    spent = replayed.lake.sql("reads/planned_usd.sql", trace=replayed.trace, day=DAY).to_pylist()
    error = latency_error.usd_error_share(replayed, spent)
    assert 0.02 < error < 0.5
    methods = {"method": ["last_value", "arima", "truth"], "saved_on_last_value_share": [None, 0.02, 0.5]}
    error_cli.show_savings(replayed, DAY, pa.table(methods))
    first, second = capsys.readouterr().out.splitlines()
    assert re.search(
        r"llama3.1-8b, llama3.2-3b estimated, \d+ to \d+ % off .*in the median; .* may be \d+\.\d % off",
        first,
    )
    part = f"{200 * error:.0f} %"  # of a half
    assert f"each that this error may explain: arima 2.0 % (100 %), truth 50.0 % ({part});" in second
    cases = pa.table({"case_name": ["dear", "as_is", "cheap"], "usd": [150.0, 100.0, 50.0]})
    error_cli.show_differences(replayed, DAY, cases)
    assert (
        "on as_is, and the part of each that this error may explain: "
        f"dear -50.0 % ({part}), cheap 50.0 % ({part});" in capsys.readouterr().out
    )


def test_a_plan_states_the_interval_of_its_saving(replayed, tmp_path, monkeypatch) -> None:
    lake = Lake(tmp_path)
    usd = {"static": [100.0, 130, 140, 150], "reactive": [90, 80, 110, 100], "lt_ua": [95.0, 100, 100, 100]}
    write_draws(lake, usd)
    board = pa.table({"policy": list(usd), "usd": [values[0] for values in usd.values()]})
    monkeypatch.setattr(scorecards, "read_scoreboard", lambda *_: board)
    own = dataclasses.replace(replayed, lake=lake, config=load_settings("sageserve").config)

    def line(policy: str, day: date = DAY) -> str:
        return error_cli.describe_replayed_saving(own, day, policy)

    assert "static costs +5 USD compared with lt_ua, +31 to +49 in nine of ten samples" in line("static")
    assert line("static").endswith("this is significant.")
    assert "reactive costs -5 USD compared with lt_ua, -18 to +9 in nine of ten samples" in line("reactive")
    assert line("reactive").endswith("this is not significant.")
    assert line("lt_ua") == line("corrected") == line("static", DAY - timedelta(days=1)) == ""
    board = board.set_column(1, "usd", pa.array([1.0, 1.0, 1.0]))  # the draws belong to another board
    assert line("static") == ""
