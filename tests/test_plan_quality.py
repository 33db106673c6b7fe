"""`fleetcast plan quality`: a small question from end to end, and which inputs it refuses in one line."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from fleetcast.assets.lake import settings as lake_settings
from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.plans.quality_export import (
    find_quality_plan,
    quality_plan_to_json,
    render_quality_scaled_objects,
)
from fleetcast.assets.plans.quality_markets import build_market
from fleetcast.assets.plans.quality_policies import (
    OWN_QUALITY_POLICIES,
    QUALITY_POLICIES,
    plan_single_llm,
)
from fleetcast.assets.plans.quality_requirements import QualityRequirement
from fleetcast.assets.plans_on_demand import quality_plan_result, quality_plans
from fleetcast.pipelines import runs
from fleetcast.pipelines.cli import cli_app

CONFIG = """\
based_on = "quality"
[trace]
name = "small_quality"
first_day = 2025-07-08
days = 8
seed = 7
[quality]
llms = {llms}
rule = "{rule}"
tier = "{tier}"
judge = "{judge}"
answers = "{answers}"
requests_per_s = 40.0
gpus = {gpus}
tensor_parallel = [1, 4]
points = 6
requests = 2_000
replays = 15
{more}
"""
DEFAULTS = {
    "llms": '["llama3.1-8b", "llama3.1-70b"]',
    "rule": "both",
    "tier": "iw_normal",
    "judge": "learned",
    "answers": "mmlu_pro",
    "gpus": "{ h100-80gb = 24 }",
    "more": "",
}
FIGURE = r"[\d.,]+"


def run_plan_quality(folder: Path, *words: str, **changes: str) -> str:
    """Return what the command prints, with its lake in a folder."""
    path = folder / "mine.toml"
    path.write_text(CONFIG.format(**{**DEFAULTS, **changes}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "report_materializations", lambda *_: None)
        real = lake_settings.load_settings
        patch.setattr(lake_settings, "load_settings", lambda config: real(config, folder / "lake"))
        found = CliRunner().invoke(cli_app, ["plan", "quality", *words, "--config", str(path), "--quiet"])
    assert "Traceback" not in found.output
    return found.output


@pytest.fixture(scope="module")
def printed_plan(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, RunSettings]:
    folder = tmp_path_factory.mktemp("quality")
    printed = run_plan_quality(
        folder, "--quality", "0.55", "--latency", "25", "--front", "--whatif", "--regions"
    )
    return printed, load_settings(str(folder / "mine.toml"), folder / "lake")


def test_an_llm_that_misses_the_latency_is_no_candidate(printed_plan: tuple[str, RunSettings]) -> None:
    market = build_market(printed_plan[1], Progress())
    for latency_s, expected in ((25.0, ["route"]), (0.001, [])):
        required = QualityRequirement(0.55, latency_s)
        for llm in (0, -1):
            assert [rule for rule, _ in plan_single_llm(market, required, llm)] == expected


def test_the_plan_is_printed_with_its_alternatives(printed_plan: tuple[str, RunSettings]) -> None:
    printed, _ = printed_plan
    assert re.search(rf"thresholds {FIGURE}: {FIGURE} USD/h at 40 requests/s", printed), printed
    assert re.search(rf"replayed: P95 {FIGURE} s \({FIGURE} to {FIGURE}\), quality 0\.\d+ \(", printed)
    for name in ("alone", "equal_money", "route_by_tables", "cascade_by_tables", "route_h100-80gb_only"):
        assert re.search(rf"^{re.escape(name)} +{FIGURE}", printed, re.MULTILINE), name
    assert "0.01 of quality more: " in printed
    assert "10% of latency less: " in printed
    least, most = (
        [
            float(n)
            for n in re.findall(rf"^{name}: ({FIGURE}) s, quality ({FIGURE}),", printed, re.MULTILINE)[0]
        ]
        for name in ("least latency", "most quality")
    )
    assert least[0] < 25
    assert least[1] >= 0.55
    assert most[1] > 0.6


def test_a_plan_over_regions_is_printed(printed_plan: tuple[str, RunSettings]) -> None:
    """The deployed instances add up to the cost; the requests of each region are answered."""
    printed = printed_plan[0].split("over regions, by the tables: ")[1]
    total = float(printed.split(" USD/h")[0])
    stands = re.findall(r"^(?:east|central|west) +llama\S+ +\d x \S+ +\d+ +([\d.]+)$", printed, re.MULTILINE)
    assert sum(map(float, stands)) == pytest.approx(total, abs=0.02)
    rates = re.findall(rf"^\w+: ({FIGURE}) requests/s, answered by", printed, re.MULTILINE)
    assert sum(map(float, rates)) == pytest.approx(40.0, abs=0.2)


def test_the_chosen_plan_is_the_cheapest_that_keeps_the_constraints(
    printed_plan: tuple[str, RunSettings],
) -> None:
    _, settings = printed_plan
    board = settings.lake.sql("select * from quality_board").to_pandas().set_index("plan")
    chosen = board.loc["chosen"]
    baselines = board[(board["plan_kind"] == "baseline") & board["is_kept"]]
    assert chosen["usd_per_hour"] <= baselines["usd_per_hour"].min() + 1e-9
    assert chosen["p95_s"] <= 1.05 * 25
    assert chosen["quality"] >= 0.55 - 0.025  # two standard errors of 2,000 questions
    promised = board[board["plan_kind"] == "front"]
    assert (promised["p95_s"] <= 1.05 * promised["p95_by_tables_s"]).all()


def test_the_board_has_each_policy_as_replayed(printed_plan: tuple[str, RunSettings]) -> None:
    """The small llm alone lacks quality. All others keep both, and none costs less than fleetcast."""
    _, settings = printed_plan
    board = settings.lake.sql("select * from quality_board where plan_kind = 'policy'").to_pandas()
    board = board.set_index("plan")
    assert set(board.index) == {*QUALITY_POLICIES, *OWN_QUALITY_POLICIES}
    assert set(board.index[~board["is_kept"]]) == {"alone_small"}
    usd = board["usd_per_hour"]
    assert usd["alone_small"] < usd["quality_oracle"] <= usd["quality"]
    assert usd["quality"] <= usd.drop(["alone_small", "quality_oracle"]).min() + 1e-9
    assert usd["boute"] <= usd["boute_homo"] <= usd["alone_large"]
    assert board.loc["alone_large", "who"] == "llama3.1-70b 100 %"
    assert (board.loc[["cascadia", "cascade_serve", "uniform_cascade"], "rule"] == "cascade").all()


def test_pools_sum_to_their_plan(printed_plan: tuple[str, RunSettings]) -> None:
    _, settings = printed_plan
    pools = settings.lake.sql("select * from quality_pools").to_pandas()
    plans = settings.lake.sql("select * from quality_plans").to_pandas().set_index("plan")
    usd = pools.groupby("plan")["usd_per_hour"].sum()
    routed = plans.index[(plans["rule"] == "route") & ~plans.index.isin(["equal_money", "uniform"])]
    assert usd[routed].to_numpy() == pytest.approx(plans.loc[routed, "usd_per_hour"].to_numpy())
    answered = pools.groupby(["plan", "llm"])["final_answer_share"].first().groupby("plan").sum()
    assert answered.to_numpy() == pytest.approx(1.0)
    load_shares = pools.groupby(["plan", "llm"])["load_share"].sum()
    assert load_shares.to_numpy() == pytest.approx(1.0)
    assert pools.groupby("plan")["llm"].nunique().max() == 2
    assert (pools["gpus"] == pools["instances"] * pools["tensor_parallel"]).all()


def test_plan_checks_pass_and_detect_violations(
    printed_plan: tuple[str, RunSettings], tmp_path: Path
) -> None:
    _, settings = printed_plan
    names = ("shares_of_answers_sum_to_one", "fronts_have_no_dominated_plan")
    for check in names:
        assert settings.lake.sql(f"checks/{check}.sql", trace=settings.trace).num_rows == 0
    lake, place = Lake(tmp_path), {"trace": settings.trace, "question": "0.55_25s"}
    for table, change in (
        ("quality_plans", ""),
        ("quality_pools", "replace (final_answer_share / 2 as final_answer_share)"),
    ):
        query = f"select * exclude (trace, question) {change} from {table}"
        lake.write(table, settings.lake.sql(query), **place)
    assert lake.sql(f"checks/{names[0]}.sql").num_rows == lake.count("quality_plans")
    assert lake.sql(f"checks/{names[0]}.sql", trace="other").num_rows == 0


def test_a_better_judge_raises_quality_at_no_more_cost(printed_plan: tuple[str, RunSettings]) -> None:
    _, settings = printed_plan
    worth = settings.lake.sql("queries/what_the_judge_is_worth.sql").to_pandas()
    routed = worth[worth["rule"] == "route"].set_index("judge")["usd_per_hour"]
    # what the learned one sends on is longer, so that it may cost more than lots
    assert routed["oracle"] <= min(routed["learned"], routed["random"])
    best = settings.lake.sql(
        "select rule, judge, max(quality) as q from quality_plans group by all"
    ).to_pandas()
    most = best.set_index(["rule", "judge"])["q"]
    for rule in ("cascade", "route"):  # a router that knows, too, knows of these llms' answers
        assert most[rule, "oracle"] > max(most[rule, "learned"], most[rule, "random"]) + 0.03


def test_what_if_cases_are_planned_with_the_question(printed_plan: tuple[str, RunSettings]) -> None:
    """A perfect judge costs no more; a budget of 20 USD/h is too little here and the report states it."""
    printed, settings = printed_plan
    board = settings.lake.sql(
        "select * from quality_board where plan_kind in ('whatif', 'chosen')"
    ).to_pandas()
    usd = board.set_index("plan")["usd_per_hour"]
    assert sorted(usd.index) == ["chosen", "judge_oracle", "judge_random", "no_5090"]
    assert usd["judge_oracle"] <= usd["chosen"]
    assert usd["no_5090"] == usd["chosen"], "there is none"
    assert set(board["judge"]) == {"learned", "oracle", "random"}
    line = next(line for line in printed.splitlines() if line.startswith("budget_20: "))
    assert "for 20 USD/h: the budget binds" in line


def test_a_plan_is_found_by_its_question(printed_plan: tuple[str, RunSettings]) -> None:
    printed, settings = printed_plan
    assert "--question 0.55_25s" in printed
    plan, pools = find_quality_plan(settings, "0.55_25s")
    found = json.loads(quality_plan_to_json(plan, pools))
    assert found["usd_per_hour"] == pytest.approx(sum(pool["usd_per_hour"] for pool in found["pools"]))
    assert all(0 <= t <= 1 for t in found["thresholds"])
    assert found["p95_by_tables_s"] >= found["p95_s"], "a bound of the tables, which may be above the target"
    assert "promised_p95_s" not in found
    objects = render_quality_scaled_objects(plan, pools).split("---\n")
    assert len({re.search(r"name: (\S+)", one)[1] for one in objects}) == len(pools)
    for one, pool in zip(objects, pools, strict=True):
        assert one.count(f"ReplicaCount: {pool['instances']}\n") == 2
    for arguments, message in (
        (("0.55_25",), r"has no question '0.55_25' of quality. Did you mean '0.55_25s'\?"),
        (("0.55_25s", "chose"), r"no plan 'chose' of the question 0.55_25s. Did you mean 'chosen'\?"),
    ):
        with pytest.raises(ValueError, match=message):
            find_quality_plan(settings, *arguments)


def test_the_asset_metadata_has_the_board_and_the_figure(printed_plan: tuple[str, RunSettings]) -> None:
    _, settings = printed_plan
    metadata = quality_plans.metadata(settings, quality_plan_result(settings, "0.55_25s"))
    assert "chosen" in str(metadata["board"].value)
    assert "data:image/png" in str(metadata["front"].value)
    table = settings.lake.read("quality_plans", trace=settings.trace)
    assert isinstance(table, pa.Table)


@pytest.mark.parametrize(
    ("words", "changes", "message"),
    [
        (
            ("0.7", "25"),
            {},
            r"No plan has a quality of 0.7: the best of llama3.1-8b, llama3.1-70b together by",
        ),
        (
            ("0.6", "2"),
            {},
            r"quality 0.6 within 2 s: the latency binds; tables promise [\d.]+ s at the least",
        ),
        (
            ("0.55", "25", "--budget", "3"),
            {},
            r"for 3 USD/h: the budget binds; tables need [\d.]+ USD/h. Raise --budget",
        ),
        (("1.5", "25"), {}, r"--quality 1.5: needed a mean score, above 0 and up to 1"),
        (("0.5", "-1"), {}, r"--latency -1: needed seconds, above 0"),
        (
            ("0.5", "25"),
            {"tier": "iw_fast", "rule": "cascade"},
            r"due in 1 s: a cascade sends no token before a draft was judged. Use rule = 'route'",
        ),
        (("0.5", "25"), {"judge": "learnt"}, r"unknown judge 'learnt'. Did you mean 'learned'\?"),
        (("0.5", "25"), {"answers": "mmlu"}, r"unknown answers 'mmlu'. Did you mean 'mmlu_pro'\?"),
        (
            ("0.5", "25"),
            {"llms": '["llama3.1-8b"]'},
            r"llms are llama3.1-8b; it needs two or more, each once",
        ),
        (
            ("0.5", "25"),
            {"llms": '["llama3.1-8b", "qwen3-32b"]'},
            r"answers mmlu_pro, fitted: unknown llm 'qwen3-32b'",
        ),
        (("0.5", "25"), {"gpus": "{ h100 = 8 }"}, r"unknown gpu 'h100'. Did you mean 'h100-80gb'\?"),
        (
            ("0.5", "25"),
            {"gpus": "{ rtx5090-32gb = 8 }"},
            r"llama3.1-70b and a request of [\d,]+ tokens fit on none of rtx5090-32gb",
        ),
        (
            ("0.5", "25"),
            {"more": 'judge_llm = "llama3.1-70b"'},
            r"judge_llm = 'llama3.1-70b' would judge its own answers\. Name an llm that does not answer here",
        ),
        (
            ("0.5", "25"),
            {"more": 'judge_llm = "llama3.2-3b"', "rule": "route"},
            r"rule = 'route' with judge_llm = 'llama3.2-3b', which judges answers: a router has none to read",
        ),
        (("0.5", "25"), {"more": 'measured_by = "gpt"'}, r"measured_by = 'gpt' needs answers that landed"),
        (("0.6", "90"), {"gpus": "{ h100-80gb = 4 }"}, r"these GPUs do not carry the load. Add GPUs"),
    ],
)
def test_impossible_questions_are_refused_in_one_line(
    words: tuple[str, ...], changes: dict[str, str], message: str, tmp_path: Path
) -> None:
    quality, latency, *rest = words
    found = run_plan_quality(tmp_path, f"--quality={quality}", f"--latency={latency}", *rest, **changes)
    line = " ".join(found.split())
    assert re.search(message, line), line
    assert line.count("Error") <= 1


def test_a_config_without_quality_service_is_refused(tmp_path: Path) -> None:
    found = CliRunner().invoke(
        cli_app, ["plan", "quality", "--quality=0.5", "--latency=9", "--config", "office"]
    )
    assert found.exit_code == 2
    assert "office.toml has no [quality]" in " ".join(found.output.split())
