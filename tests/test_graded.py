"""Yesterday's fleet, read from a file, and yesterday's advice graded against it: twins and agreement."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from handed import plan_rows, write_plan
from small import small_config
from typer.testing import CliRunner

from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings, midnight
from fleetcast.assets.plans.cluster_workloads import build_workloads
from fleetcast.assets.plans.observed_fleet import import_observed_fleet, known_workloads
from fleetcast.assets.plans.plan_export import read_plan_rows
from fleetcast.assets.studies import shadow_grading as graded_module
from fleetcast.assets.studies.graded_hours import describe_graded_hours
from fleetcast.assets.studies.shadow_grading import grade_shadow
from fleetcast.assets.traces.request_days import make_request_day
from fleetcast.pipelines.cli import cli_app

DAY = date(2025, 7, 3)
ADVISED = [3] * 8 + [4] * 8 + [2] * 8
NEEDED = [2] * 6 + [4] * 6 + [3] * 4 + [2] * 4 + [3] * 4
MEASURED_S = 0.4  # TTFT of every request of the day in its trace
COLUMNS = "at,region,workload,replicas\n"


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    """A day whose requests hold their TTFT, with the advised and the needed fleet."""
    folder = tmp_path_factory.mktemp("graded")
    settings = load_settings(small_config(folder, requests_per_day="12_000.0"), folder / "lake")
    make_request_day(settings.lake, settings.config.trace, settings.catalogue, DAY)
    rows = [
        row
        for policy, counts in (("day_ahead", ADVISED), ("clairvoyant", NEEDED))
        for row in plan_rows(settings, DAY, policy, counts)
    ]
    settings.lake.write("plans", pa.Table.from_pylist(rows, SCHEMAS["plans"]), trace=settings.trace, day=DAY)
    table = settings.lake.part("requests", trace=settings.trace, day=DAY)
    at = table.schema.get_field_index("source_ttft_s")
    waited = pa.array([MEASURED_S] * table.num_rows)
    settings.lake.write(
        "requests", table.set_column(at, "source_ttft_s", waited), trace=settings.trace, day=DAY
    )
    return settings


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Callable[[str, str], Path]]:
    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def advised(settings: RunSettings, more: int = 0) -> list[tuple[str, str, str, float]]:
    """At, region, workload and replicas: the replicas of the day-ahead plan plus `more`."""
    return [
        (row["hour_start"].isoformat(), region, one.name, row["instances"] + more)
        for region in settings.catalogue.regions
        for one in build_workloads(settings, read_plan_rows(settings, DAY, "day_ahead", region))
        for row in one.rows
    ]


def as_csv(rows: list[tuple[str, str, str, float]]) -> str:
    return COLUMNS + "".join(",".join(map(str, row)) + "\n" for row in rows)


def graded(settings: RunSettings) -> tuple[pd.DataFrame, pd.DataFrame]:
    grade_shadow(settings, DAY, "day_ahead", Progress())
    return rows_of(settings, "graded_shadow"), rows_of(settings, "graded_decisions")


def rows_of(settings: RunSettings, mart: str) -> pd.DataFrame:
    where = "where trace = $trace and day = $day and policy = 'day_ahead'"
    return settings.lake.sql(f"from {mart} {where}", trace=settings.trace, day=DAY).to_pandas()


def test_a_fleet_equal_to_the_advice_saves_and_misses_nothing(night: RunSettings, file) -> None:
    assert import_observed_fleet(night, file("ran.csv", as_csv(advised(night)))) == {DAY: 24}
    board, decisions = graded(night)
    assert list(board["tier"].sort_values()) == ["iw_fast", "iw_normal"]
    assert (board["gained_share"] == 0).all()
    assert (rows_of(night, "graded_days")[["saved_gpu_hours", "saved_usd"]] == 0).all().all()
    assert set(decisions["verdict"]) == {"same"}
    assert (board["ran_ttft_p95_s"] == board["advised_ttft_p95_s"]).all()
    assert (board["measured_in_time_share"] == 1).all()  # 0.4 s is in time for both tiers
    assert (board["replay_error_share"] == board["ran_in_time_share"] - 1).all()
    assert (board["measured_ttft_p95_s"] == MEASURED_S).all()
    ids = {row["decision_id"] for row in read_plan_rows(night, DAY, "day_ahead")}
    assert set(decisions["decision_id"]) == ids


def test_each_decision_is_graded_as_by_hand(night: RunSettings, file) -> None:
    """Two more than advised in even hours, one fewer in odd ones."""
    rows = advised(night)
    ran = [(*row[:3], max(row[3] + (2 if int(row[0][11:13]) % 2 == 0 else -1), 0)) for row in rows]
    import_observed_fleet(night, file("ran.csv", as_csv(ran)))
    board, decisions = graded(night)
    needed = night.lake.sql(
        "select llm, served_region, hour_start, instances from plans where policy = 'clairvoyant'"
    ).to_pandas()
    both = decisions.merge(needed, on=["llm", "served_region", "hour_start"])
    assert len(both) == len(decisions) == 24 * 12
    usd = night.catalogue.gpus["h100-80gb"].usd_per_hour
    for _, row in both.iterrows():
        plan, real, need = row["advised_instances"], row["ran_instances"], row["instances"]
        fewer, more = "saved" if plan >= need else "short", "covered" if real < need else "spent"
        assert row["verdict"] == (fewer if plan < real else more if plan > real else "same")
        assert row["saved_usd"] == pytest.approx((real - plan) * row["gpus_per_instance"] * usd)
    assert {"saved", "short", "covered", "spent"} == set(decisions["verdict"])
    (one,) = rows_of(night, "graded_days").to_dict("records")  # one row, however many tiers there are
    assert one["saved_gpu_hours"] == pytest.approx(one["ran_gpu_hours"] - one["advised_gpu_hours"])
    assert one["saved_gpu_hours"] == pytest.approx(decisions["saved_gpu_hours"].sum())
    parameters = {"trace": night.trace, "day": DAY}
    recipe = night.lake.sql("queries/graded_shadow.sql", **parameters).to_pandas()
    assert recipe["saved_usd"].sum() == pytest.approx(decisions["saved_usd"].sum())
    assert recipe["gained_share"].tolist() == [board["gained_share"].min()]
    assert one["advised_short_hours"] == (both["advised_instances"] < both["instances"]).sum()


def test_given_advice_has_precedence_over_the_nightly_one(night: RunSettings, file) -> None:
    import_observed_fleet(night, file("ran.csv", as_csv([(*row[:3], 5) for row in advised(night)])))
    write_plan(night, DAY, [6] * 24)
    try:
        _, decisions = graded(night)
    finally:
        night.lake.path("day_ahead_plans", trace=night.trace, day=DAY).unlink()
    enough = decisions["needed_instances"] <= 5
    assert enough.any()
    assert set(decisions.loc[enough, "verdict"]) == {"spent"}
    assert set(decisions["advised_instances"]) == {6, 7}


def test_the_replayed_fleet_equals_the_file(night: RunSettings, file, monkeypatch) -> None:
    """Nothing boots when counts change; a missing hour has those before it, or else those after it."""
    counts = {(at, region, name): n % 3 for n, (at, region, name, _) in enumerate(advised(night))}
    hours, read = pd.Series(range(24)), [h for h in range(24) if h not in (0, 1, 5, 6, 23)]
    rows = [(*key, n) for key, n in counts.items() if int(key[0][11:13]) in read]
    import_observed_fleet(night, file("ran.csv", as_csv(rows)))
    played: list[Any] = []
    real = graded_module.replay_trials
    monkeypatch.setattr(graded_module, "replay_trials", lambda *of: (played.extend(of[0]), real(*of))[1])
    graded(night)
    fleet, drive = played[0].fleet, played[0].schedule
    assert (fleet.boot_cold_s == 0).all()
    assert (fleet.boot_spot_s == 0).all()
    own = [n for (_, region, name), n in counts.items() if (region, name) == ("east", "llama2-70b-h100-80gb")]
    places = [(pool.kind.llm, pool.region) for pool in night.grid.pools]
    assert drive.targets[:, places.index(("llama2-70b", "east"))].tolist() == [
        own[hour] for hour in hours.where(hours.isin(read)).ffill().bfill().astype(int)
    ]
    assert (drive.start == drive.targets[0]).all()


def test_a_smaller_fleet_is_replayed_unchanged(night: RunSettings, file) -> None:
    rows = [(at, region, name, 0 if region == "west" else 1) for at, region, name, _ in advised(night)]
    import_observed_fleet(night, file("ran.csv", as_csv(rows)))
    board, _ = graded(night)
    fast = board.set_index("tier").loc["iw_fast"]
    assert fast["gained_share"] > 0
    assert fast["is_beyond_error"] == (fast["gained_share"] > abs(fast["replay_error_share"]))


def test_a_place_without_a_sample_had_no_instance_in_the_hours_that_have_some(
    night: RunSettings, file
) -> None:
    """Only hours 2, 3 and 9; in them a region, a workload and a single hour are missing. Twin: a loop."""
    name = "llama2-70b-h100-80gb"
    ran = {
        (at, region, workload): n + 2
        for at, region, workload, n in advised(night)
        if int(at[11:13]) in (2, 3, 9)
        and region != "west"
        and workload != name
        and (int(at[11:13]), region) != (3, "east")
    }
    import_observed_fleet(night, file("ran.csv", as_csv([(*key, n) for key, n in ran.items()])))
    board, _ = graded(night)
    gpus = {kind: option.option.gpus for kind, option in known_workloads(night.grid).items()}
    planned = [row for row in advised(night) if int(row[0][11:13]) in (2, 3, 9)]
    (one,) = rows_of(night, "graded_days").to_dict("records")
    assert one["covered_hours"] == 3
    assert one["advised_gpu_hours"] == sum(n * gpus[workload] for *_, workload, n in planned)
    assert one["ran_gpu_hours"] == sum(ran.get(row[:3], 0) * gpus[row[2]] for row in planned)
    assert one["saved_gpu_hours"] == one["ran_gpu_hours"] - one["advised_gpu_hours"]
    second = list(gpus)[1]  # of which the plans by hand have one more
    assert one["ran_short_hours"] == sum(
        ran.get(row[:3], 0) < NEEDED[int(row[0][11:13])] + (row[2] == second) for row in planned
    )
    counted = night.lake.sql(
        "select tier, count(*) as requests from requests where day = $day and tier <> 'niw' "
        "and hour(arrived_at) in (2, 3, 9) group by tier",
        day=DAY,
    ).to_pandas()
    requests = counted.set_index("tier")["requests"].to_dict()
    assert board.set_index("tier")["requests"].to_dict() == requests
    shadow = night.day_rows("shadow_runs", DAY).to_pylist()
    assert {row["tier"]: row["measured"] for row in shadow if row["measured"]} == requests
    whole, place = describe_graded_hours(night, DAY, "day_ahead")
    assert whole == (
        "Graded are 3 of 24 hours of 2025-07-03, 02:00 to 04:00, 09:00 to 10:00 UTC. The import of what ran "
        "lacks 00:00 to 02:00, 04:00 to 09:00, 10:00 to 24:00."
    )
    west = sum(n * gpus[workload] for _, region, workload, n in planned if region == "west")
    assert place.startswith(
        f"The import of what ran has no instance in west, where the plan has {west:,} GPU-hours: it "
        "counts as 0 there."
    )


def test_a_rolling_plan_is_graded_from_its_first_hour(night: RunSettings, file, monkeypatch) -> None:
    monkeypatch.setattr("fleetcast.pipelines.runs.publish_on_demand", lambda *_: None)
    monkeypatch.setattr("fleetcast.pipelines.handover_cli.load_settings_and_day", lambda *_: (night, DAY))
    import_observed_fleet(night, file("ran.csv", as_csv(advised(night, 1))))
    at = midnight(DAY) + timedelta(hours=15)
    rows = [
        {**row, "policy": "rolling", "made_at": at, "day": DAY}
        for row in plan_rows(night, DAY, "rolling", ADVISED)
        if row["hour_start"] >= at
    ]
    where = {"trace": night.trace, "made_day": DAY}
    night.lake.write("rolling_plans", pa.Table.from_pylist(rows, SCHEMAS["rolling_plans"]), **where)
    try:
        answer = CliRunner().invoke(cli_app, ["plan", "grade", "--policy", "rolling", "--quiet"])
        found = night.lake.sql("from graded_days where policy = 'rolling'").to_pylist()
        import_observed_fleet(night, file("ran.csv", as_csv(advised(night)[:15])))
        with pytest.raises(
            ValueError, match=r"No hour of 2025-07-03 has both instances planned by rolling and"
        ):
            grade_shadow(night, DAY, "rolling", Progress())
    finally:
        night.lake.path("rolling_plans", **where).unlink()
    assert [(row["covered_hours"], row["saved_gpu_hours"]) for row in found] == [
        (9, 9 * len(night.catalogue.regions) * sum(kind.option.gpus for kind in night.grid.service_options))
    ]
    assert answer.exit_code == 0, answer.output
    (line,) = (line for line in answer.stderr.splitlines() if line)
    assert line == (
        "Graded are 9 of 24 hours of 2025-07-03, 15:00 to 24:00 UTC. "
        "The plan of rolling lacks 00:00 to 15:00."
    )


def test_a_past_fleet_beyond_the_limits_of_today_is_graded_as_before(night: RunSettings, file) -> None:
    """After max_instances and the GPUs of a region were lowered, or its GPUs given up: the same grades."""
    ran = [(at, region, name, n + 3) for at, region, name, n in advised(night)]
    import_observed_fleet(night, file("ran.csv", as_csv(ran)))
    before, _ = graded(night)
    fleet = replace(night.config.fleet, instances_at_start=1, min_instances=1, max_instances=1)
    for cap in (16, 0):
        west = night.catalogue.regions["west"]
        west = replace(west, cap_gpus=dict.fromkeys(west.cap_gpus, cap))
        regions = {**night.catalogue.regions, "west": west}
        small = replace(
            night,
            config=replace(night.config, fleet=fleet),
            catalogue=replace(night.catalogue, regions=regions),
        )
        pd.testing.assert_frame_equal(graded(small)[0], before, check_exact=True)


def test_an_hour_is_the_mean_of_its_samples_in_any_format(night: RunSettings, file) -> None:
    begin, name = midnight(DAY), "bloom-176b-h100-80gb"
    rows = [
        ((begin + timedelta(minutes=m)).isoformat(), "east", name, n) for m, n in ((0, 2), (30, 5), (60, 7))
    ]
    stamps = [[(begin + timedelta(minutes=m)).timestamp(), str(n)] for m, n in ((0, 2), (30, 5), (60, 7))]
    series = {"metric": {"region": "east", "deployment": name}, "values": stamps}
    answer = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [series]}})
    for path in (file("ran.csv", as_csv(rows)), file("ran.json", answer)):
        assert import_observed_fleet(night, path) == {DAY: 2}
        found = night.lake.read("ran_fleets", trace=night.trace, day=DAY).to_pylist()
        assert [(row["hour_start"], row["instances"], row["samples"]) for row in found] == [
            (begin, 3.5, 2),
            (begin + timedelta(hours=1), 7.0, 1),
        ]


def test_an_invalid_fleet_file_is_refused(night: RunSettings, file) -> None:
    name = "bloom-176b-h100-80gb"
    for text, message in (
        ("at,region,replicas\n", r"lacks the column workload; needed at, region, workload, replicas"),
        (COLUMNS, r"has no sample"),
        (COLUMNS + f"noon,east,{name},2\n", r"entry 1: at 'noon' .* must be an instant like"),
        (
            COLUMNS + f"2025-07-03T00:00,east,{name},-1\n",
            r"entry 1: replicas are -1\.0, needed a number from 0",
        ),
        (COLUMNS + "2025-07-03T00:00,east,bloom-176b-h100,2\n", rf"entry 1.*bloom-176b-h100.*{name}"),
        (COLUMNS + f"2025-07-03T00:00,eats,{name},2\n", r"entry 1.*eats.*east"),
    ):
        with pytest.raises(ValueError, match=message):
            import_observed_fleet(night, file("ran.csv", text))
    with pytest.raises(ValueError, match=r"ran\.json is no Prometheus response .* region and deployment"):
        import_observed_fleet(night, file("ran.json", '{"status": "error", "errorType": "bad_data"}'))
    import_observed_fleet(night, file("ran.csv", as_csv(advised(night))))
    with pytest.raises(ValueError, match=r"no advice of rolling for 2025-07-03\. Plan it first"):
        grade_shadow(night, DAY, "rolling", Progress())
    night.lake.path("ran_fleets", trace=night.trace, day=DAY).unlink()
    with pytest.raises(LakeError, match=r"has no fleet that ran .* Import it: fleetcast plan ran FILE"):
        grade_shadow(night, DAY, "day_ahead", Progress())
