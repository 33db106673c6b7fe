"""The planners on one board: each mechanism acts, the search ends where it should, the marts say so."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from small import SOLVED_ONCE, in_hours, make_plans, shipped
from trial_rows import trial_rows

from fleetcast.assets.forecasts.forecasts import forecast_day
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.plans import measured_capacity, plans
from fleetcast.assets.studies import experiment, planner_board, planner_search
from fleetcast.assets.studies.planner_board import best_candidate_before, group_equal_policies
from fleetcast.assets.studies.planner_search import PlannerSearch, required_attainment_ratio
from fleetcast.models.trials.target_search import TargetTrial
from fleetcast.models.world.config import CustomPolicy
from fleetcast.models.world.planners import (
    BOARD_PLANNERS,
    IDEAS,
    ablation_steps,
    candidate_ideas,
    own_candidates,
)
from fleetcast.models.world.policies import REPLAY_POLICIES
from fleetcast.models.world.toml_dataclasses import ConfigError
from fleetcast.pipelines.board_cli import show_ideas

DAY = date(2025, 7, 3)
SHARE = 0.8  # of an instance, that plans count on
SUSTAINED = {
    "qwen3-32b": 900.0,
    "llama3.1-8b": 400.0,
    "llama3.1-70b": 160.0,
}  # input tokens/s, as if measured
SMALLER = {
    "name": '"few_together"',
    "days": "3",
    "requests_per_day": "35_000",
    "history_days": "2",
    "max_batch": "8",
    "policies": '["sageserve"]',
}


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    """A planned day of the shipped config with few requests, all of them within an hour."""
    folder = tmp_path_factory.mktemp("board")
    text = in_hours(shipped("together", **SMALLER), 10).replace("points = 60", "points = 6")
    text = text.replace("[quality]\n", "[quality]\nrequests = 1_000\nreplays = 8\n")
    chats_on_a100 = '  { gpu = "a100-80gb", tensor_parallel = 2, instances_at_start = 4'
    assert chats_on_a100 in text  # so cheap as whole instances that no team would pay
    text = "\n".join(line for line in text.splitlines() if not line.startswith(chats_on_a100))
    (folder / "mine.toml").write_text(text)
    settings = load_settings(str(folder / "mine.toml"), folder / "lake")
    make_plans(settings, DAY, measured)
    return settings


def measured(settings: RunSettings, *_: object) -> list[float]:
    """By the llm, and of a team four times that of an instance: it pays."""
    return [SUSTAINED[kind.llm] * (4 if kind.option.is_team else 1) for kind in settings.grid.service_options]


OFF = {  # planners with one of their mechanisms switched off
    "sageserve": CustomPolicy("static", together=True),
    "llumnix_hourly": CustomPolicy("llumnix_hourly", stack="config"),
    "cauchy_types": CustomPolicy("cauchy_types", together=True),
    "fleetcast_without_phases": CustomPolicy("fleetcast", together=True),
    "fleetcast_without_levels": CustomPolicy("fleetcast", stack="config"),
    "fleetcast_without_reflex": CustomPolicy("fleetcast", scaling="follow"),
    "compact_answers": CustomPolicy("compact"),
}


@pytest.fixture(scope="module")
def trials(night: RunSettings) -> pd.DataFrame:
    """Every planner, and each without a mechanism, at one point, whatever it attains there."""
    required = list[float]()

    def once(rows_searched: list[TargetTrial], ratio: float, near_share: float, *_: float) -> float | None:
        required.append(ratio)
        return None if rows_searched else SHARE

    own = replace(night.config, policies={f"not_{name}": policy for name, policy in OFF.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured_capacity, "measure_capacities", measured)
        patch.setattr(plans, "PLAN_SOLVERS", SOLVED_ONCE)
        patch.setattr(experiment, "next_point", once)
        patch.setattr(planner_board, "best_candidate_before", lambda *_: "all_ideas")
        named, settings = [*BOARD_PLANNERS, "compact_answers", *own.policies], replace(night, config=own)
        found = planner_board.try_planners(settings, DAY, named, False, Progress()).to_pandas()
    found.attrs["required"] = required
    return found


def test_each_planner_does_what_no_other_does(trials: pd.DataFrame) -> None:
    """No two of the board come to the same day, so none of their mechanisms is idle."""
    days = (
        trials[trials["planner"].isin(list(BOARD_PLANNERS))]
        .set_index("planner")[["usd", "attained_ratio", "ttft_p95_s", "quality"]]
        .round(9)
    )
    assert len(days) == len(BOARD_PLANNERS)
    assert not days.duplicated().any(), days
    assert (trials["usd_error_share"] > 0.05).all(), "also of planners without an hourly plan"


@pytest.mark.parametrize("off", OFF)
def test_a_mechanism_that_is_switched_off_changes_the_day(trials: pd.DataFrame, off: str) -> None:
    printed = trials.set_index("planner")[["usd", "attained_ratio", "ttft_p95_s", "e2e_p95_s", "quality"]]
    on = "fleetcast" if off.startswith("fleetcast") else off
    assert printed.loc[on].tolist() != printed.loc[f"not_{off}"].tolist()
    if on == "llumnix_hourly":  # without it nothing is left but the plan that it stands on
        assert printed.loc["not_llumnix_hourly"].tolist() == printed.loc["sageserve"].tolist()


def test_who_answers_shows_in_the_quality_and_never_without_it(
    night: RunSettings, trials: pd.DataFrame
) -> None:
    quality = trials.groupby("planner")["quality"].mean()[[*BOARD_PLANNERS, "compact_answers"]]
    routings = {name for name in quality.index if night.config.rules[name].answers}
    assert routings == {"cascadia_hourly", "boute_hourly", "fleetcast", "compact_answers"}
    best = quality["sageserve"]  # the largest llm answers all
    assert (quality[list(routings)] < best - 0.01).all()
    assert quality.drop(list(routings)).to_numpy() == pytest.approx(best, abs=2e-3)


def test_hourly_plans_are_of_the_llms_that_answer(trials: pd.DataFrame) -> None:
    planned_usd = trials.set_index("planner")["foresight_usd"]
    assert planned_usd["boute_hourly"] < planned_usd["sageserve"]
    assert planned_usd["cascadia_hourly"] != planned_usd["sageserve"]


def test_a_rule_without_a_plan_is_searched_by_its_thresholds(
    night: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A larger factor of them holds fewer instances; with equal ones every trial would be the same day."""
    factors = [0.05, 1.2]

    def each_once(rows_searched: list[TargetTrial], *_: float) -> float | None:
        return factors[len(rows_searched)] if len(rows_searched) < len(factors) else None

    monkeypatch.setattr(measured_capacity, "measure_capacities", measured)
    monkeypatch.setattr(experiment, "next_point", each_once)
    names = ["reactive", "hpa", "llumnix"]
    found = planner_board.try_planners(night, DAY, names, False, Progress()).to_pandas()
    assert found["capacity_share"].isna().all()
    found = found.sort_values("factor").groupby("planner")
    assert found["factor"].agg(list).to_dict() == dict.fromkeys(names, factors)
    for name, held in found["gpu_hours"].agg(list).items():
        assert held[0] > held[1] > 0, name
    with pytest.raises(ConfigError, match=r"^boute: it holds .* no knob to search\. Leave it out\."):
        planner_board.try_planners(night, DAY, ["boute"], False, Progress())


def test_the_fleet_for_rules_without_a_plan_has_one_more_minimum_and_nothing_else() -> None:
    """Its config repeats the pools of together."""

    def pools(config: str) -> dict[tuple[str, ...], tuple[Any, ...]]:
        rows = load_settings(config).grid.pools
        keys = [tuple(map(str, (row.kind, row.region, row.role, row.team))) for row in rows]
        assert len({*keys}) == len(keys)
        sizes = [(row.min_instances, row.max_instances, row.instances_at_start) for row in rows]
        return dict(zip(keys, sizes, strict=True))

    own, base = pools("together_rules"), pools("together")
    assert own.keys() == base.keys()
    assert [(base[key], own[key]) for key in own if own[key] != base[key]] == [((0, 40, 8), (1, 40, 8))]


def test_ideas_are_added_one_at_a_time_both_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usd = {name: 1000.0 - 7 * n * n for n, name in enumerate(ablation_steps())}
    rows = [
        trial(name, 0.8, usd[name], 1.0, ideas=", ".join(ablation_steps()[name])) for name in ablation_steps()
    ]
    lake = rows_searched(tmp_path, [*rows, trial("sageserve", 0.8, 5.0, 1.0)])
    found = lake.sql("from idea_worth order by way, ideas_so_far").to_pandas()
    assert list(found["way"]) == ["backward"] * 6 + ["forward"] * 6
    for way, order in (("forward", list(IDEAS)), ("backward", list(reversed(IDEAS)))):
        own = found[found["way"] == way].set_index("ideas_so_far")
        assert own["idea"].dropna().tolist() == order
        assert (own.loc[0, "planner"], own.loc[5, "planner"]) == ("plain", "all_ideas")
        assert own["saved_usd"].dropna().tolist() == [
            usd[before] - usd[after] for before, after in pairwise(own["planner"])
        ]
    show_ideas(lake.sql("from idea_worth order by way, ideas_so_far"))
    shown = re.findall(r"([+-]\d+) +([+-]\d+\.\d)\b", capsys.readouterr().out)
    of_rows = found.dropna(subset="idea")[["saved_usd", "saved_share"]].itertuples(index=False)
    assert shown == [(f"{usd:+.0f}", f"{100 * share:+.1f}") for usd, share in of_rows]


def test_planners_that_come_to_the_same_are_replayed_once(night: RunSettings) -> None:
    assert ["sageserve", "hourly"] in group_equal_policies(
        night, [*BOARD_PLANNERS, *ablation_steps()]
    ).values()
    plain = replace(night, config=replace(night.config, quality=None))
    alike = group_equal_policies(plain, list(BOARD_PLANNERS))
    assert alike["sageserve"] == ["sageserve", "cascadia_hourly", "boute_hourly"]


def test_fleetcast_has_the_ideas_that_were_cheapest_on_the_day_before(
    night: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what attains too little, and all of it where nothing does; those that are alike are played once."""
    costs = dict.fromkeys(own_candidates(), 20.0) | {"hourly_corrected_levels": 19.0}
    late, searched = {"hourly_corrected_answers"}, list[tuple[date, int]]()

    class Found:
        def rows(self, name: str, twin: str) -> list[pa.Table]:
            in_time = [] if name in late else [trial(twin, 0.8, costs[name], 1.0)]
            others = [trial(twin, 0.9, 15.0, 0.99), trial(twin, 0.7, 14.0, 1.2, quality=0.54)]
            return [trial_rows([*in_time, *others])]

    def search(settings: RunSettings, day: date, names: list[str], progress: Progress) -> Found:
        searched.append((day, len(names)))
        return Found()

    monkeypatch.setattr(PlannerSearch, "search_day", search)
    assert best_candidate_before(night, DAY, Progress()) == "hourly_corrected_levels"
    assert searched == [(DAY - timedelta(days=1), 8 + 2)]
    late = {*own_candidates()}
    assert best_candidate_before(night, DAY, Progress()) == "all_ideas"
    plain = replace(night, config=replace(night.config, quality=None))
    best_candidate_before(plain, DAY, Progress())
    assert searched[-1][1] == 4 + 1
    own = planner_board.with_own_planner(night, "hourly_corrected_levels")
    assert own.config.rules["fleetcast"].answers is None
    costs["compact_answers"], late = 18.0, {"hourly_corrected_answers"}
    assert best_candidate_before(night, DAY, Progress()) == "compact_answers"
    own = planner_board.with_own_planner(night, "compact_answers").config.rules["fleetcast"]
    assert own.answers == "quality"
    assert own._replace(answers=None, what="") == REPLAY_POLICIES["compact"]._replace(what="")
    assert (
        best_candidate_before(night, night.config.trace.first_day + timedelta(days=1), Progress())
        == "all_ideas"
    )


def test_compact_is_no_candidate_for_instances_that_only_decode() -> None:
    apart, paired = load_settings("sageserve_legs"), load_settings("together")
    assert planner_board.candidates_of_fleet(apart) == list(candidate_ideas())
    assert planner_board.candidates_of_fleet(paired) == own_candidates()


def trial(
    planner: str, share: float, usd: float, ratio: float, quality: float = 0.6, required: float = 1.0,
    draw: int = 0, **labels: str,
) -> tuple[dict, dict]:  # fmt: skip
    return {
        "variant": planner, "knobs": {"capacity_share": share}, "resample": draw,
        "labels": {"what": planner, **labels},
    }, {
        "usd": usd, "backlog_usd": 10.0, "required_ratio": required, ("attained_ratio", "iw_fast"): ratio,
        ("attained_ratio", "niw"): 2.0, "required_quality": 0.55, "quality": quality,
    }  # fmt: skip


def rows_searched(folder: Path, rows: list[tuple[dict, dict]]) -> Lake:
    """A lake that has these trials."""
    lake = Lake(folder)
    lake.write("trials", trial_rows(rows), experiment="board", trace="t", day=DAY)
    return lake


def boarded(folder: Path, rows: list[tuple[dict, dict]]) -> pd.DataFrame:
    """The mart of these trials, by planner."""
    return rows_searched(folder, rows).sql("from planner_board").to_pandas().set_index("planner")


def naive_board(rows: list[tuple[dict, dict]]) -> pd.DataFrame:
    """The columns of the board that compare trials, planner by planner."""
    every = pd.DataFrame(
        {"planner": keys["variant"], "draw": keys["resample"], **keys["knobs"], **figures}
        for keys, figures in rows
    )
    every["usd"] += every["backlog_usd"]
    every["ratio"] = every["attained_ratio", "iw_fast"]
    in_time, good = every["ratio"] >= every["required_ratio"], every["quality"] >= every["required_quality"]
    best = (
        every[in_time & good]
        .sort_values(["usd", "capacity_share"])
        .groupby(["draw", "planner"])
        .first()
        .reset_index()
    )
    best["over"] = (
        best["usd"] / best["draw"].map(best[best["planner"] == "fleetcast"].set_index("draw")["usd"]) - 1
    )
    board = {}
    for planner, own in every.groupby("planner"):
        of_day, kept = own[own["draw"] == 0], best[best["planner"] == planner]
        found, draws = kept[kept["draw"] == 0], kept[kept["draw"] > 0]
        usd, misses = found["usd"].min(), of_day[~(in_time & good)[of_day.index]]["usd"]
        board[planner] = {
            "total_usd": usd, "capacity_share": found["capacity_share"].min(),
            "over_fleetcast_share": found["over"].min(), "noise_share": 1 - misses[misses < usd].max() / usd,
            "kept_draws": len(draws) if (own["draw"] > 0).any() else np.nan,
            "low_usd": draws["usd"].min(), "high_usd": draws["usd"].max(),
            "low_over_fleetcast_share": draws["over"].min(), "high_over_fleetcast_share": draws["over"].max(),
            "required_ratio": of_day["required_ratio"].max(), "best_ratio": of_day["ratio"].max(),
            "best_quality": of_day["quality"].max(),
            "failure_reason": "no trial meets the SLO targets" if not in_time[of_day.index].any()
            else "no trial meets the quality" if not good[of_day.index].any()
            else "no trial meets the SLO targets and the quality together" if found.empty else "",
        }  # fmt: skip
    return pd.DataFrame.from_dict(board, orient="index")


def test_the_board_is_that_of_trials_compared_one_by_one(tmp_path: Path) -> None:
    """Random trials with ties, on the day and on resamples; the first boards have no resamples."""
    boards = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        required = (1.0, 0.8)[seed % 2]
        rows = [
            trial(
                *(planner, 0.5 + n / 8, 10.0 * rng.integers(60, 80), required + rng.integers(-3, 3) / 10),
                *(rng.choice([0.5, 0.55, 0.6]), required, draw),
            )
            for planner in ("fleetcast", "dear", "torn")
            for draw in range(1 if seed < 3 else 4)
            for n in range(rng.integers(draw == 0, 5))
        ]
        board, expected = (
            boarded(tmp_path / str(seed), rows).fillna({"failure_reason": ""}),
            naive_board(rows),
        )
        found = board.sort_index()[expected.columns]
        pd.testing.assert_frame_equal(found, expected.sort_index(), check_dtype=False, check_names=False)
        boards.append(found.replace({"failure_reason": {"": np.nan}}))
    assert (pd.concat(boards).notna().sum() >= 5).all()


@pytest.mark.parametrize(
    ("best", "required"), [((1.0, 0.5), 1.0), ((0.8, 0.9), 0.8), ((0.8, 0.7, None), 0.7), ((), 1.0)]
)
def test_where_no_planner_attains_the_targets_the_weakest_sets_the_bar(
    best: tuple[float | None, ...], required: float
) -> None:
    rows_searched = [
        [] if one is None else [TargetTrial(1.0, 5.0, one - 0.1), TargetTrial(0.5, 9.0, one)] for one in best
    ]
    assert required_attainment_ratio(rows_searched) == required


def test_all_are_searched_to_the_same(trials: pd.DataFrame) -> None:
    """At one point each: to all of the targets if any attains them, else to the least of what they do."""
    ratios = trials["attained_ratio"]
    least = 1.0 if ratios.max() >= 1 else ratios.min()
    assert set(trials["required_ratio"]) == {least}
    assert (trials.attrs["required"][0], trials.attrs["required"][-1]) == (1.0, least)


@pytest.fixture(scope="module")
def again(night: RunSettings) -> tuple[dict[int, PlannerSearch], list[int]]:
    """A planner that attains enough on the day, on another draw of it; requests as they were forecast."""
    made, came = dict[int, PlannerSearch](), list[int]()

    def forecast(settings: RunSettings, day: date, progress: Progress) -> None:
        query = "select sum(requests)::bigint as requests from demand where day = $day"
        came.append(settings.lake.sql(query, day=day)["requests"][0].as_py())
        forecast_day(settings, day, progress)

    def once(
        rows_searched: list[TargetTrial], ratio: float, near_share: float, first: float, step: float
    ) -> float | None:
        return None if rows_searched else first

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured_capacity, "measure_capacities", measured)
        patch.setattr(plans, "PLAN_SOLVERS", SOLVED_ONCE)
        patch.setattr(experiment, "next_point", once)
        patch.setattr(planner_search, "forecast_day", forecast)
        made[0] = PlannerSearch.search_day(night, DAY, ["sageserve"], Progress())
        made[0].target = 0.9
        made[0].board_day.quality_margin["boute"] = 0.02  # what quality lacked on the day
        attained = {0.6: 2.0, 0.7: 0.9, 0.8: 0.0}
        made[0].knob_trials = {
            "sageserve": [TargetTrial(share, 5.0, ratio) for share, ratio in attained.items()]
        }
        made[0].knob_trials["static"] = [TargetTrial(1.0, 5.0, 0.8)]  # it never attains
        made[0].found["static"] = []
        patch.setattr(PlannerSearch, "search_day", lambda *_: made[0])
        redrawn = PlannerSearch.search_resample

        def drawn(
            board: PlannerSearch, settings: RunSettings, first: Mapping[str, float], draw: int
        ) -> PlannerSearch:
            made[draw] = redrawn(board, settings, first, draw)
            return made[draw]

        patch.setattr(PlannerSearch, "search_resample", drawn)
        named = ["sageserve", "static"]
        table = planner_board.try_planners(night, DAY, named, False, Progress(), 1)
        assert set(table["draw"].to_pylist()) == {0, 1}
    return made, came


def figures_of(table: pa.Table) -> dict[str, Any]:
    """The keys of a trial, and its figures of all tiers and llms."""
    rows = table.filter((pc.field("tier") == "all") & (pc.field("llm") == "all")).to_pylist()
    figures = {row["metric"]: row["value"] for row in rows}
    return {"resample": rows[0]["resample"], **dict(rows[0]["knobs"]), **figures}


def test_another_draw_is_planned_and_played_on_its_own_requests(
    night: RunSettings, again: tuple[dict[int, PlannerSearch], list[int]]
) -> None:
    """From where the planner attained on the day, to the same targets; the lake is left as it was."""
    boards, came = again
    tables = (board.rows("sageserve", "sageserve") for board in boards.values())
    [on_day], [drawn] = ([figures_of(table) for table in found] for found in tables)
    there = night.lake.count("requests", trace=night.trace, day=DAY)
    assert came != [there]
    assert came == pytest.approx([there], rel=0.2)
    assert (on_day["resample"], drawn["resample"], drawn["capacity_share"]) == (0, 1, 0.7)
    assert {board.target for board in boards.values()} == {0.9}
    assert [board.board_day.quality_margin["boute"] for board in boards.values()] == [0.02] * 2
    assert "static" not in boards[1].knob_trials
    assert drawn["fluid_usd"] != on_day["fluid_usd"]  # of the requests that came
    assert drawn["fluid_usd"] == pytest.approx(on_day["fluid_usd"], rel=0.3)
    assert night.lake.read("requests", trace=night.trace, day=DAY)["request_id"][0].as_py() > 1 << 32


@pytest.mark.parametrize("draws", [-1, 101])
def test_too_many_draws_are_refused_in_a_line(night: RunSettings, draws: int) -> None:
    with pytest.raises(ValueError, match=f"^{draws} draws of a day's requests: take 0 to 100"):
        planner_board.try_planners(night, DAY, (), False, Progress(), draws)


def test_a_day_without_plans_is_refused_in_a_line(night: RunSettings) -> None:
    with pytest.raises(LakeError, match="has no plans on 2025-08-01"):
        planner_board.try_planners(night, date(2025, 8, 1), (), False, Progress())


def test_a_routing_with_too_low_a_quality_is_planned_for_what_it_lacks_and_half_more() -> None:
    """At most three times; the trials of all planners with that routing begin again, others keep theirs."""
    rules = {name: SimpleNamespace(answers=kind) for name, kind in zip("abc", "xxy", strict=True)}
    search = object.__new__(PlannerSearch)
    planned: list[dict[str, float]] = []
    config = SimpleNamespace(rules=rules, quality=SimpleNamespace(quality=0.7))
    search.settings = SimpleNamespace(config=config)
    search.board_day = SimpleNamespace(quality_margin={"x": 0.0, "y": 0.0}, plan_answers=planned.append)
    search.quality_raises = Counter()
    for turn in range(1, 5):
        search.knob_trials, search.found = ({name: ["trial"] for name in rules} for _ in range(2))
        search._raise_quality({"a": 0.6, "b": 0.65, "c": 0.71})
        for trials_of in (search.found, search.knob_trials):
            assert [len(trials_of[name]) for name in rules] == ([0, 0, 1] if turn <= 3 else [1, 1, 1])
        assert search.board_day.quality_margin == {"x": pytest.approx(0.15 * min(turn, 3)), "y": 0.0}
    assert planned == [{"x": pytest.approx(0.1)}] * 3
