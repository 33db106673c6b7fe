"""Studies: their rows are what was replayed, quarters of an hour are counted right, mistakes are one line."""

import dataclasses
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_endpoint import a_fleet, a_trace, some_rules
from small import ONE_TRIAL, small_config
from typer.testing import CliRunner
from wired import DAY, changed

from fleetcast.assets.lake import settings as lake_settings
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.replays import replays
from fleetcast.assets.replays.outcomes import REPLAY_END_S
from fleetcast.assets.replays.policy_inputs import (
    fleet_and_rules,
    planned_capacity,
    policy_schedules,
    read_day_plans,
    with_measured_capacity,
)
from fleetcast.assets.replays.quarter_hour_peaks import WatchedSession, largest_by_quarter, sum_by_endpoint
from fleetcast.assets.replays.replay_workloads import ReplayWorkload, read_workload
from fleetcast.assets.studies import study, study_files
from fleetcast.assets.studies.study_files import StudyHeader, load_study, study_names
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.world.calendar import DAY_S, QUARTER_S
from fleetcast.models.world.mechanisms import Scaling
from fleetcast.pipelines.cli import cli_app

# --- the largest of each quarter -----------------------------------------------------------------------


@settings(max_examples=40)
@given(st.data())
def test_a_quarter_counts_the_most_that_a_timeline_has_in_it(data: st.DataObject) -> None:
    """Of a timeline whose steps lie a stretch or more apart, two looks at each stretch miss none."""
    gap = st.one_of(st.integers(1, 90).map(lambda n: 15.0 * n), st.floats(15.0, 1400.0))
    times = np.cumsum(data.draw(st.lists(gap, max_size=40)))
    counts = [data.draw(st.integers(0, 30)) for _ in range(times.size + 1)]
    begins = np.arange(0.0, 4 * QUARTER_S, 15.0)
    at = [(np.searchsorted(times, t, "right"), np.searchsorted(times, t + 15.0)) for t in begins]
    seen = np.array(counts)[at].ravel()  # once what begins it has happened, and before what ends it

    def naive(begin: float) -> int:
        there = [c for c, at, to in zip(counts, [-1.0, *times], [*times, np.inf], strict=True)
                 if at < begin + QUARTER_S and to > begin]  # fmt: skip
        return max(there)

    assert largest_by_quarter(seen, 15.0).tolist() == [naive(n * QUARTER_S) for n in range(4)]


def test_a_size_that_a_quarter_only_begins_with_counts_in_it() -> None:
    """Four serve, no request needs them: one goes at 0 s, the next with the first request after the
    cooldown.
    """
    rules = some_rules(scaling=Scaling.REACTIVE, cooldown_s=890.0, monitor_s=1e9, scale_in_share=0.3)
    session = WatchedSession(a_fleet(4, 8), rules, [4])
    session.append_trace(a_trace([900.5, 1500.0], 100, 5))
    session.play(Schedule(hour_s=1800.0), 1800.0)
    assert session.instances()[0, :2].tolist() == [2, 0]
    assert session.largest().tolist() == [[3], [3]]


@pytest.mark.parametrize("policy", ["reactive", "lt_ua", "dynamo"])
def test_a_session_that_is_watched_plays_the_same_and_misses_no_size(
    wired_day: RunSettings, policy: str
) -> None:
    own = changed(wired_day, "replay", cooldown_s=30.0, monitor_s=30.0)  # and no second step within it
    workload, drive = read_workload(own, DAY), policy_schedules(own, DAY)[policy]
    fleet, rules = fleet_and_rules(own, policy)
    watched, finer = (WatchedSession(fleet, rules, drive.start) for _ in range(2))
    finer.interval_s = 10.0
    outcomes = []
    for session in (watched, finer):
        session.append_trace(workload.trace)
        spent = session.play(drive, DAY_S)
        session.finish(REPLAY_END_S)
        outcomes.append(session.outcome(*spent))
    plain = replay_trace(workload.trace, fleet, drive, rules, DAY_S)
    for outcome in outcomes:
        np.testing.assert_array_equal(outcome.finish_s, plain.finish_s)
        np.testing.assert_allclose(outcome.instance_s, plain.instance_s, atol=1e-6)
    assert watched.interval_s == 30.0
    whole = sum_by_endpoint(fleet, np.diff(fleet.slots))
    assert (watched.largest() <= whole).all()
    assert watched.largest().max(axis=0).sum() > sum_by_endpoint(fleet, fleet.min_instances).sum()
    np.testing.assert_array_equal(watched.largest(), finer.largest())


def test_days_in_one_go_are_one_long_day(wired_day: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits at midnight is served after it, by the fleet of midnight, and reported with the day it
    came.
    """
    own = changed(wired_day, "replay", niw_pull_one_share=0.0, niw_pull_two_share=0.0)
    values: list[tuple[ReplayWorkload, Outcome]] = []
    monkeypatch.setattr(
        replays, "write_outcome", lambda s, d, p, workload, _, out, u: values.append((workload, out))
    )
    for policy in ("lt_ua", "corrected"):
        values.clear()
        replays.replay_days(own, [DAY] * 3, [policy], Progress())
        drive = policy_schedules(own, DAY)[policy]
        thrice = [np.tile(np.asarray(rows), (3, *[1] * (np.ndim(rows) - 1))) for rows in drive[:2]]
        fleet, rules = fleet_and_rules(own, policy, days=3)
        sustained = planned_capacity(own.grid, own.config, read_day_plans(own, DAY))
        fleet = with_measured_capacity(own, fleet, sustained)
        trace = values[0][0].trace
        all_days = TraceArrays(*(np.tile(c, 3) if c.size == trace.arrival_s.size else c for c in trace))
        arrival_s = np.concatenate([trace.arrival_s + day * DAY_S for day in range(3)])
        whole = replay_trace(
            all_days._replace(arrival_s=arrival_s),
            fleet,
            drive._replace(targets=thrice[0], forecast_tokens_per_s=thrice[1]),
            rules,
            3 * DAY_S,
        )
        days = [outcome for _, outcome in values]
        held = np.concatenate([day.instance_s for day in days])
        np.testing.assert_allclose(held, whole.instance_s, atol=1e-6)
        for name in ("status", "slot", "preemptions"):
            joined = np.concatenate([getattr(day, name) for day in days])
            np.testing.assert_array_equal(joined, getattr(whole, name))
        for name in ("first_token_s", "finish_s", "admitted_s"):
            joined = np.concatenate([getattr(day, name) + at * DAY_S for at, day in enumerate(days)])
            np.testing.assert_allclose(joined, getattr(whole, name), rtol=0, atol=1e-6)
        carried = days[0].finish_s > DAY_S
        assert (days[0].slot[carried] >= 0).all()
        late = np.count_nonzero(days[0].dispatched_s > DAY_S)
        assert late > 20, "niw of the day is taken after midnight"


# --- a study from the command to its rows --------------------------------------------------------------


TINY = """
what = "two days of a trickle"
based_on = "{base}"
replayed_days = 2
replay.policies = ["reactive", "siloed", "lt_ua"]
catalogue.tiers.iw_fast.ttft_slo_s = 0.25
"""
HEADER = "study,variant,policy,against,metric,tier,llm,value,section\n"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, Lake]:
    """A tiny study from the command line: the lake that it wrote to, and the one that it threw away."""
    folder = tmp_path_factory.mktemp("study")
    lake, kept, studies = Lake(folder / "lake"), folder / "kept", folder / "studies"
    studies.mkdir()
    few = small_config(folder, days="4", requests_per_day="6000.0", **ONE_TRIAL)
    (studies / "tiny.toml").write_text(TINY.format(base=few))
    (studies / "p.csv").write_text(f"{HEADER}tiny,as_is,lt_ua,siloed,gpu_hours,all,llama2-70b,-0.375,7.2\n")
    gone = pa.table({name: [] for name in SCHEMAS["trials"].names}, schema=SCHEMAS["trials"])
    lake.write("trials", gone, "tiny@no_longer_there", experiment="study", trace="t", day="2025-07-01")

    def replayed(settings: RunSettings, *rest: object) -> None:
        replay_through(settings, *rest)  # type: ignore[arg-type]
        shutil.copytree(settings.lake.root, kept, dirs_exist_ok=True)

    replay_through = study.replay_days
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake_settings, "load_settings", lambda name: load_settings(name, lake.root))
        patch.setattr(study_files, "STUDIES_DIR", studies)
        patch.setattr(study, "replay_days", replayed)
        result = CliRunner().invoke(cli_app, ["study", "tiny", "--quiet"])
    assert result.exit_code == 0, result.output
    assert "as_is, lt_ua" in result.stdout
    assert "lt_ua compared with siloed: gpu_hours llama2-70b" in result.stdout
    assert "-37.5" in result.stdout
    return lake, Lake(kept)


def test_the_rows_of_a_study_are_what_was_replayed(ran: tuple[Lake, Lake]) -> None:
    lake, kept = ran
    rows = lake.sql("select * from studies").to_pandas()
    assert not rows.duplicated(["study", "variant", "policy", "metric", "tier", "llm"]).any()
    values = rows.set_index(["policy", "metric", "tier", "llm"])["value"]
    outcomes = kept.sql("select * from outcomes").to_pandas()
    hours = kept.sql("select * from fleet_hours").to_pandas()
    assert set(rows["policy"]) == {"reactive", "siloed", "lt_ua"} == set(outcomes["policy"])
    assert outcomes["day"].nunique() == 2
    for policy in ("reactive", "lt_ua"):
        fleet = hours[hours["policy"] == policy]
        paid = fleet[["serving_s", "booting_s", "draining_s"]].sum(axis=1)
        llama = fleet["llm"] == "llama2-70b"
        assert values[policy, "instance_hours", "all", "llama2-70b"] == pytest.approx(
            paid[llama].sum() / 3600
        )
        assert values[policy, "gpu_hours", "all", "all"] == pytest.approx(
            (paid * fleet["gpus_per_instance"]).sum() / 3600
        )
        wasted = (fleet["booting_s"] * fleet["gpus_per_instance"]).sum() / 3600
        assert values[policy, "wasted_gpu_hours", "all", "all"] == pytest.approx(wasted)
        own = outcomes[(outcomes["policy"] == policy) & (outcomes["tier"] == "iw_fast")]
        for name, of in (("all", own), ("bloom-176b", own[own["llm"] == "bloom-176b"])):
            met = (of["ttft_s"] <= 0.25).mean()
            assert values[policy, "attainment_share", "iw_fast", name] == pytest.approx(met)
            assert values[policy, "ttft_p75_s", "iw_fast", name] == pytest.approx(of["ttft_s"].quantile(0.75))
            assert values[policy, "e2e_p95_s", "iw_fast", name] == pytest.approx(of["e2e_s"].quantile(0.95))
        worst = own.assign(met=own["ttft_s"] <= 0.25).groupby("llm")["met"].mean().min()
        assert values[policy, "attainment_share", "iw_fast", "worst"] == pytest.approx(worst)
        niw = outcomes[(outcomes["policy"] == policy) & (outcomes["tier"] == "niw")]
        assert values[policy, "unfinished", "niw", "all"] == niw["e2e_s"].isna().sum()
        held = fleet.groupby("llm")[["serving_s", "booting_s"]].sum().sum(axis=1) / 3600
        for llm, integral in held.items():  # the most of a quarter is no less than its mean
            most = values[policy, "quarter_instance_hours", "all", llm]
            assert integral - 1e-9 <= most <= 1.5 * integral
    siloed = values.sort_index()["siloed", "quarter_instance_hours", "all"]
    assert siloed["all"] == siloed.drop("all").sum() >= 2 * 24 * 4 * 3 * 2 * 2  # days, llms, regions, silos


def test_a_study_leaves_the_nightly_tables_alone_and_prepares_once(ran: tuple[Lake, Lake]) -> None:
    lake, kept = ran
    assert {path.name for path in lake.root.iterdir() if not path.name.startswith(".")} == {
        "VERSION", "digests", "trials", "paper_values", "warehouse.duckdb"
    }  # fmt: skip
    assert [path.stem for path in lake.files("trials")] == ["tiny@as_is"]
    (folder,) = (lake.root / study.PREPARED).iterdir()
    assert not list((lake.root / ".scratch").glob("*"))
    own = Lake(folder)
    assert len(own.days("requests", "study")) == 4
    assert own.files("forecasts")[0].samefile(folder / kept.files("forecasts")[0].relative_to(kept.root))


def test_variants_that_make_the_same_requests_share_them(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    names = {
        name: {study.prepared_lake_name(variant.settings) for variant in load_study(name, lake)}
        for name in study_names()
    }
    assert names["orders"] == names["headroom"] == names["scaling"] == names["week"]
    assert len(names["bursts"]) == 3
    assert names["scaling"] < names["bursts"]
    variant, *_ = load_study("scaling", lake)
    tiers = {**variant.settings.catalogue.tiers}
    tiers["iw_normal"] = dataclasses.replace(tiers["iw_normal"], is_held=True)
    held = dataclasses.replace(variant.settings.catalogue, tiers=tiers)
    other = dataclasses.replace(variant.settings, catalogue=held)  # plans cover less: other forecasts
    assert study.prepared_lake_name(other) != study.prepared_lake_name(variant.settings)


def test_a_trace_that_a_study_names_stands_by_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(study_files, "STUDIES_DIR", tmp_path)
    text = """
    what = "a landed trace next to a made one, which goes on for a week"
    based_on = "sageserve"
    [variants.landed]
    trace = { name = "t", first_day = 2025-07-01, days = 3, seed = 1 }
    [variants.made]
    trace.days = 22
    trace.office.tiers.niw.minute_noise_minutes = 30.0
    """
    (tmp_path / "own.toml").write_text(text)
    lake = Lake(tmp_path / "lake")
    before = [study.prepared_lake_name(v.settings) for v in load_study("own", lake)]
    none = pa.table({f.name: pa.nulls(0, f.type) for f in SCHEMAS["requests"]}, schema=SCHEMAS["requests"])
    lake.write("requests", none, trace="t", day="2025-07-01")
    after = [study.prepared_lake_name(v.settings) for v in load_study("own", lake)]
    assert (before[0] != after[0], before[1] != after[1]) == (
        True,
        False,
    )  # what landed anew is another trace
    landed, made = (v.settings.config.trace for v in load_study("own", lake))
    assert (landed.name, landed.office, landed.days) == ("t", None, 3)
    assert (made.name, made.days) == ("study", 22)
    assert made.office is not None
    assert made.office.tiers["niw"].minute_noise_minutes == 30.0
    assert made.office.tiers["niw"].share == 0.28


def test_study_runs_on_a_custom_config_based_on_a_shipped_one(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('based_on = "sageserve_large"\n[fleet]\nmax_instances = 177\n')
    variants = load_study("week", Lake(tmp_path / "lake"), str(own))
    assert {v.settings.config.fleet.max_instances for v in variants} == {177}
    assert {v.settings.config.fleet.instances_at_start for v in variants} == {100}


# --- mistakes ------------------------------------------------------------------------------------------


def test_a_day_that_never_landed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(study_files, "STUDIES_DIR", tmp_path)
    (tmp_path / "own.toml").write_text(
        'what = "a week with a missing day"\nbased_on = "sageserve"\nreplayed_days = 2\n'
        'trace = { name = "t", first_day = 2025-07-01, days = 3, seed = 1 }\n'
    )
    lake = Lake(tmp_path / "lake")
    none = pa.table({f.name: pa.nulls(0, f.type) for f in SCHEMAS["requests"]}, schema=SCHEMAS["requests"])
    for day in ("2025-07-01", "2025-07-03"):
        lake.write("requests", none, trace="t", day=day)
    message = r"^The trace 't' has no requests on 2025-07-02\. It has 2025-07-01 to 2025-07-03, 1 of"
    with pytest.raises(ValueError, match=message):
        study.run_study(load_study("own", lake), Progress())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tiers = ['iw_normal']\n", "no request of iw_normal, which this study needs; it has"),
        ("tiers = ['iw_slow']\n", "unknown tier 'iw_slow'"),
        ("replayed_day = 3\n", "own.toml: unknown key 'replayed_day'. Did you mean 'replayed_days'?"),
        ("replayed_days = 0\n", "own.toml replayed_days: got 0"),
        ("[variants]\na = 3\n", "own.toml [variants.a]: got 3, needed a table"),
        ("[variants.a]\nreplai.order = 'edf'\n", "own.toml [variants.a]: unknown key 'replai'"),
        ("[variants.a]\nreplay.order = 'edd'\n", "own.toml [variants.a] replay order: unknown queue"),
        ("[variants.a]\ncatalogue.tiers.iw_fats.deadline_s = 3\n", "unknown tier 'iw_fats'"),
        ("trace.office.bursts = [{ start = 2024-12-24T00:00:00Z, minutes = 9, factor = 8.0 }]\n",
         "bursts: the one of 2024-12-24 00:00 is outside the trace, which has 2024-11-04 to 2024-11-18"),
    ],
)  # fmt: skip
def test_a_study_that_cannot_be_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, message: str
) -> None:
    monkeypatch.setattr(study_files, "STUDIES_DIR", tmp_path)
    (tmp_path / "own.toml").write_text(f'what = "a test"\nbased_on = "sageserve_2024"\n{text}')
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        load_study("own", Lake(tmp_path / "lake"))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scalling"], "data/studies: unknown study 'scalling'. Did you mean 'scaling'?"),
        (["scaling", "--config", "ofice"], "There is no config 'ofice'"),
        (["orders", "--config", "azure"], "no request of iw_fast"),
        (["mixes", "--config", "azure"], "changes [trace.office], but the requests of this config"),
    ],
)
def test_command_reports_a_mistake_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], message: str
) -> None:
    monkeypatch.setattr(lake_settings, "load_settings", lambda name: load_settings(name, tmp_path))
    result = CliRunner().invoke(cli_app, ["study", *arguments])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert message in line


def test_study_list_is_complete_and_each_study_has_its_page() -> None:
    values = CliRunner().invoke(cli_app, ["study", "--list"]).stdout
    page = (study_files.STUDIES_DIR / "README.md").read_text(encoding="utf-8")
    keys = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(keys) == sorted(field.name for field in dataclasses.fields(StudyHeader))
    for name in study_names():
        assert f"{name}   " in values
        assert f"## {name}" in page
        assert load_study(name, Lake())


def test_paper_values_belong_to_studies_and_their_metrics(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lake = Lake(tmp_path)
    study.write_paper_values(lake)
    rows = lake.sql("select * from paper_values").to_pandas().replace({np.nan: None})
    for name, own in rows.groupby("study"):
        variants = {v.name: v.settings for v in load_study(str(name), lake)}
        for row in own.itertuples():
            settings = variants[str(row.variant)]
            assert {row.policy, row.against} - {None} <= set(settings.config.replay.policies)
            assert row.llm in (*settings.catalogue.llms, "all")
            assert row.tier in (*settings.catalogue.tiers, "all")
    (tmp_path / "bad.csv").write_text("study,value\na,b\n")
    monkeypatch.setattr(study_files, "STUDIES_DIR", tmp_path)
    with pytest.raises(ValueError, match=r"bad\.csv: .*Its columns are study, variant"):
        study.write_paper_values(lake)
