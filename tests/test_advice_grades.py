"""Advice that was given, against what came: kept with its plan, replayed once its day has landed."""

import re
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import settings as example_settings
from hypothesis import strategies as st

from fleetcast.assets.advice import (
    advice_config,
    advised_days,
    import_trace,
    promise_sections,
    rule_replays,
    tomorrow_draws,
)
from fleetcast.assets.advice.advised_days import grade_or_explain
from fleetcast.assets.advice.metadata import describe_grade
from fleetcast.assets.advice.nightly_promise import describe_promises
from fleetcast.assets.advice.phrases import reliability_sentence
from fleetcast.assets.advice.promise import PastDay, Promise, PromiseSearch
from fleetcast.assets.advice.promise_sections import is_inside
from fleetcast.assets.advice.rule_replays import (
    FAILURES_PER_GPU_DAY,
    DayFigures,
    MidnightPlan,
    SizedRule,
    replay_rule,
)
from fleetcast.assets.advice.svg import reliability_chart
from fleetcast.assets.advice.tomorrow_draws import recorded_draw
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.studies import try_fleet
from fleetcast.assets.studies.unseen_days import minimum_fleet_usd
from fleetcast.models.latency.latency_errors import scale_profile
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment

CATALOGUE = load_catalogue()
DAYS = [date(2025, 3, 4), date(2025, 3, 5), date(2025, 3, 6)]
RULES = [SizedRule("static", 0.5), SizedRule("reflex", 0.4), SizedRule("day_ahead")]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four days of a small service."""
    rng = np.random.default_rng(5)
    at_s = np.sort(rng.uniform(0, 4 * 86_400, 8_000))
    size = rng.integers(100, 3_000, at_s.size)
    rows = {"Timestamp": at_s.round(2), "Model": "llama3.1-8b", "Request tokens": size}
    rows |= {"Response tokens": size // 20 + 5, "Total tokens": 1, "Log Type": "Conversation log"}
    path = tmp_path_factory.mktemp("grades") / "service.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    path.with_suffix(".toml").write_text("start = 2025-03-03T00:00:00Z\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page(file: Path) -> RunSettings:
    """The settings of a page on these days, with a fleet of l40s-48gb."""
    folder, fleet = file.parent / "page", "2 x llama3.1-8b@l40s-48gb"
    imported = import_trace.import_trace_file(file, folder, CATALOGUE, None, Progress())
    pools = try_fleet.parse_fleet(fleet, CATALOGUE, load_config("office", CATALOGUE))
    deployments = advice_config.current_deployments(pools)
    return advice_config.write_advice_config(imported, deployments, CATALOGUE, "none", folder / "advice.toml")


def midnight_plan(settings: RunSettings, day: date) -> MidnightPlan:
    """Two instances, three from noon on."""
    grid, world = settings.grid, settings.catalogue
    instances = np.full((24, len(grid.pools)), 2.0)
    instances[12:] = 3.0
    demand = np.full((24, len(world.llms), len(world.regions)), 40.0)
    return MidnightPlan(day, instances, demand, np.full(grid.shape, 900.0))


def promise_of(settings: RunSettings, sized: SizedRule, **more: Any) -> dict[str, Any]:
    """A promise that holds whatever comes, unless `more` narrows it."""
    tiers = [
        {"tier": "iw_fast", "low_share": 0.5, "high_share": 1.0, "target_share": 0.95},
    ]
    return {
        **{"rule": sized.rule, "headroom_share": sized.headroom_share, "required_share": 0.9, "draws": 20},
        **{"in_time_low_share": 0.5, "in_time_high_share": 1.0, "usd_low": 0.0, "usd_high": 1e6},
        **{"is_kept": True, "kept_share": 0.95, "tiers": tiers, "survival": {"kind": "none"}},
        **more,
    }


def give(settings: RunSettings, day: date, sized: SizedRule, **more: Any) -> DayFigures:
    """Keep the promise of a day; return what a direct replay of the plan gives."""
    plan = midnight_plan(settings, day)
    advised_days.keep_promise(
        settings, PromiseSearch(settings, [], plan, []), promise_of(settings, sized, **more)
    )
    return replay_rule(settings, plan, sized, recorded_draw(settings, day))


def test_a_grade_is_the_replay_of_the_advised_fleet(file: Path, page: RunSettings) -> None:
    """A later page in the folder clears the lake, and grades what the earlier one promised."""
    came = [give(page, day, sized) for day, sized in zip(DAYS, RULES, strict=True)]
    for day, most in ((DAYS[0], 5), (DAYS[2], 3)):
        [fleet] = page.lake.read("advised_days", day=day)["largest_fleet"].to_pylist()
        assert fleet == f"{most} x llama3.1-8b@1xl40s-48gb"
    config = page.config.file.read_text()
    import_trace.import_trace_file(file, file.parent / "page", CATALOGUE, None, Progress())
    page.config.file.write_text(config)
    advised_days.grade_landed_days(page, DAYS[-1], Progress())
    rows = page.lake.sql("from graded_advice order by day").to_pylist()
    assert [(row["day"], row["scaling_rule"]) for row in rows] == [
        (day, sized.rule) for day, sized in zip(DAYS, RULES, strict=True)
    ]
    for row, figures in zip(rows, came, strict=True):
        assert row["usd"] == pytest.approx(figures.usd)
        assert row["in_time_share"] == pytest.approx(figures.in_time_share)
        assert row["is_on_target"] is figures.is_on_target(CATALOGUE)
    assert len({row["usd"] for row in rows}) == len(rows)


def test_an_interval_is_of_days_and_not_of_errors_of_profiles(
    page: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong profile is wrong every day. Engines twenty times slower widen the other interval alone."""
    plan, recorded, sized = midnight_plan(page, DAYS[0]), recorded_draw(page, DAYS[0]), RULES[0]
    known = page.catalogue
    slow = replace(known, latency=tuple(scale_profile(known, one, 20, 20) for one in known.latency))
    draws = [recorded._replace(catalogue=slow)] * 8
    search = PromiseSearch(page, [PastDay(plan, recorded)], plan, draws)
    found = Promise(search.evidence(sized), False, {})
    promise, came = (
        promise_sections.promise_section(page, search, found, "none"),
        replay_rule(page, plan, sized, recorded),
    )
    assert is_inside(came.in_time_share, promise["in_time_low_share"], promise["in_time_high_share"])
    [tier] = promise["tiers"]
    assert tier["high_with_errors_share"] < 0.5 < tier["low_share"] <= came.attained[tier["tier"]]
    assert promise["kept_share"] == 0.0
    monkeypatch.setattr(tomorrow_draws, "sample_tomorrow", lambda *_: draws)
    [row] = promise_sections.grade_past_days(page, search, sized, [])
    assert row["is_inside"]
    least = minimum_fleet_usd(page)
    row = promise_sections.grade_row(
        page, DAYS[0], [came._replace(usd=least * of) for of in (1, 1, 1, 2)], came
    )
    assert row["usd_low"] == least < row["usd_high"]


def test_days_are_counted_as_promised(page: RunSettings) -> None:
    """One day keeps its promise, one costs more than promised, one had none."""
    first = give(page, DAYS[0], RULES[0])
    usd, [(tier, share)] = first.usd, first.attained.items()
    low = {"tier": tier, "low_share": 0.0, "high_share": share - 0.01, "target_share": 0.95}
    none = {"tier": "niw", "low_share": 0.0, "high_share": 1.0, "target_share": 0.5}
    second = give(page, DAYS[1], RULES[0], usd_high=usd * 0.9, kept_share=1.0, tiers=[low, none])
    late = {"tier": tier, "low_share": 0.0, "high_share": 1.0, "target_share": 1.01}
    third = give(page, DAYS[2], RULES[0], is_kept=False, kept_share=0.62, tiers=[late])
    advised_days.grade_landed_days(page, DAYS[-1], Progress())
    rows = advised_days.reliability_section(page.lake, page.trace)
    table = [
        (row["is_promised"], row["promised_from_share"], row["graded_days"], row["inside_days"])
        for row in rows
    ]
    assert table == [(False, 0.6, 1, 1), (True, 0.9, 2, 1)]
    graded = page.lake.sql("from graded_tiers order by all").to_pylist()
    names = ("day", "tier", "has_attained", "is_interval_kept")
    assert [tuple(row[name] for name in names) for row in graded] == [
        (DAYS[0], tier, share >= 0.95, 0.5 <= share <= 1.0),
        (DAYS[1], tier, True, False),
        (DAYS[1], "niw", None, None),  # no request was of it
        (DAYS[2], tier, False, True),
    ]
    came = [row["attainment_share"] for row in graded if row["tier"] == tier]
    assert came == pytest.approx([figures.attained[tier] for figures in (first, second, third)])
    kept = rows[1]["target_days"]
    assert rows[1]["target_share"] == kept / 2
    assert reliability_sentence(rows).startswith(
        f"Of 2 advised days so far {kept} were kept (promised: 1.9); on 1 both"
    )
    assert reliability_sentence(rows).endswith("On 1 more days the target was not promised.")
    graded = advised_days.grade_advised_day(page.lake, page.trace, DAYS[0])
    metadata = describe_grade(page.lake, page.trace, graded)
    assert (metadata["advice_inside"], metadata["advice_usd"]) == (True, pytest.approx(usd))
    assert metadata["advice_so_far"] == reliability_sentence(rows)
    values = dg.AssetMaterialization("advice", metadata=metadata).metadata
    plotted = {name: one.value for name, one in values.items() if isinstance(one, dg.FloatMetadataValue)}
    names = {"advice_kept": "is_on_target", "advice_inside": "is_inside"}
    names |= {"advice_in_time_share": "in_time_share", "advice_usd": "usd"}
    assert plotted.pop(f"advice_{tier}_kept") == 1.0
    assert plotted == {name: float(graded[column]) for name, column in names.items()}
    lines = describe_promises(page, DAYS[1])
    assert lines[0].startswith(f"{DAYS[1]}: {tier} ")
    assert "(not kept: 0.0 to " in lines[0]
    assert f"USD (not kept: 0 to {usd * 0.9:,.0f} USD)" in lines[0]
    assert lines[1] == "2 of 3 graded days kept both intervals, share in time and cost (promised: 2.7)"
    assert "USD (kept: 0 to 1,000,000 USD)" in lines[2]
    assert describe_grade(page.lake, page.trace, None) == {}
    give(page, DAYS[0], RULES[0], kept_share=0.7)  # a new promise of a day replaces the one that was graded
    [waiting] = page.lake.sql("from graded_advice where day = $day", day=DAYS[0]).to_pylist()
    assert (waiting["usd"], waiting["is_inside"]) == (None, None)


def test_advice_for_other_llms_is_not_graded(page: RunSettings, tmp_path: Path) -> None:
    give(page, DAYS[0], RULES[0])
    lake, lines = Lake(tmp_path), list[str]()
    advised_days.copy_promise(page.lake, lake, page.trace, DAYS[0])
    assert advised_days.grade_advised_day(lake, page.trace, DAYS[1]) is None
    with pytest.raises(LakeError, match=r"no requests\. Land it"):
        advised_days.grade_advised_day(lake, page.trace, DAYS[0])
    table = page.lake.read("requests", trace=page.trace, day=DAYS[0]).drop_columns(["trace", "day"])
    other = table.to_pandas().assign(llm="llama3.1-70b")
    lake.write("requests", table.from_pandas(other, table.schema), trace=page.trace, day=DAYS[0])
    progress = Progress()
    progress.say = lines.append  # type: ignore[method-assign, assignment]
    settings = RunSettings(lake, page.catalogue, page.config)
    assert grade_or_explain(settings, DAYS[0], progress) is None
    assert "no llama3.1-70b, which requests of that day need" in lines[0]


def test_advice_of_another_catalogue_is_explained(page: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A region more is another plan; the next page is made all the same."""
    give(page, DAYS[0], RULES[0])
    grown = replace(CATALOGUE, regions={"new": CATALOGUE.regions["east"], **CATALOGUE.regions})
    monkeypatch.setattr(advised_days, "load_catalogue", lambda: grown)
    with pytest.raises(LakeError, match=r"is of the regions .*; the catalogue now has new, .* advise again"):
        advised_days.grade_advised_day(page.lake, page.trace, DAYS[0])
    progress, lines = Progress(), list[str]()
    progress.say = lines.append  # type: ignore[method-assign, assignment]
    advised_days.grade_landed_days(page, DAYS[0], progress)
    assert [line.split(":")[0] for line in lines] == [f"The advice for {DAYS[0]} is not graded"]


def test_failures_cost_attainment(page: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the published rate two instances live for years; at fifty failures a day some requests are late."""
    plan, draw = midnight_plan(page, DAYS[1]), recorded_draw(page, DAYS[1])
    sure = replay_rule(page, plan, RULES[2], draw)
    figures = replay_rule(page, plan, RULES[2], draw._replace(seed=3))
    assert (figures.usd, figures.attained) == (sure.usd, sure.attained)
    monkeypatch.setattr(rule_replays, "FAILURES_PER_GPU_DAY", 50.0)
    found = [replay_rule(page, plan, RULES[2], draw._replace(seed=seed)) for seed in (3, 3, 4)]
    assert found[0].attained == found[1].attained != found[2].attained
    assert all(figures.in_time_share < sure.in_time_share for figures in found)


def test_without_spare_a_pool_has_what_its_load_needs(page: RunSettings) -> None:
    """Never more than planned, and one at least."""
    plan = midnight_plan(page, DAYS[0])  # two instances, three from noon on; each sustains 900 tokens/s
    demand = plan.demand.copy()
    demand[:6], demand[12:18], demand[18:] = 2_000.0, 2_000.0, 1_000.0
    bare = rule_replays.without_spare(page, plan._replace(demand=demand))
    assert bare.instances[:, 0].tolist() == [2.0] * 6 + [1.0] * 6 + [3.0] * 6 + [2.0] * 6
    assert bare.least is not None
    assert bare.least.tolist() == [1.0]


@example_settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=4, max_size=4),
    st.lists(st.integers(0, 80), min_size=4, max_size=4),
    st.sampled_from([0.0, 0.5]),
)
def test_with_region_spare_any_region_may_be_lost(
    counts: list[int], eighths: list[int], headroom: float
) -> None:
    """One llm is in three regions and serves its load without any of them, one is in one region.

    A pool holds no instance more than that takes, or than was planned.
    """
    places = [("a", "east"), ("b", "east"), ("a", "west"), ("a", "north")]
    pools = [
        SimpleNamespace(kind=SimpleNamespace(llm=llm), role="whole", region=region) for llm, region in places
    ]
    regions = ["east", "west", "north"]
    grid = SimpleNamespace(pools=pools, instance_capacity=lambda _: np.full(4, 8.0))
    stub: Any = SimpleNamespace(grid=grid, catalogue=SimpleNamespace(llms=["a", "b"], regions=regions))
    demand = np.zeros((1, 2, 3))
    for (llm, region), load in zip(places, eighths, strict=True):
        demand[0, "ab".index(llm), regions.index(region)] = load
    plan = MidnightPlan(DAYS[0], np.array([counts], float), demand, np.zeros(0))
    sized = SizedRule("day_ahead", headroom)
    spared = rule_replays.with_region_spare(stub, plan)
    [held] = rule_replays.rule_targets(spared, sized, np.zeros(4), np.full(4, 99.0))
    [planned] = rule_replays.rule_targets(plan, sized, np.zeros(4), np.full(4, 99.0))
    filled = np.minimum(np.array(eighths) / 8, counts)[[0, 2, 3]].sum() * (1 + headroom)
    assert held[1] == planned[1]
    assert held.tolist()[2] == max(planned[2], np.ceil(filled / 2))
    of_a = held[[0, 2, 3]]
    assert all(of_a.sum() - lost >= filled for lost in of_a)
    assert all(
        have in (before, np.ceil(filled / 2)) for have, before in zip(of_a, planned[[0, 2, 3]], strict=True)
    )


@pytest.mark.parametrize(
    ("survive", "least", "regions"), [("none", 1, 1), ("instance", 2, 1), ("region", 1, 2)]
)
def test_a_fleet_has_the_instances_to_survive(
    file: Path, tmp_path: Path, survive: str, least: int, regions: int
) -> None:
    """The loss of an instance takes a second one, that of a region a second region."""
    imported = import_trace.import_trace_file(file, tmp_path / "page", CATALOGUE, None, Progress())
    deployments = {"llama3.1-8b": advice_config.SizedDeployment(Deployment("l40s-48gb", 1), 1)}
    settings = advice_config.write_advice_config(
        imported, deployments, CATALOGUE, survive, tmp_path / "a.toml"
    )
    rows = settings.grid.pools
    assert (len(rows), {row.min_instances for row in rows}) == (regions, {least})


def test_the_spare_of_a_region_does_not_hide_missing_headroom(file: Path, tmp_path: Path) -> None:
    """A day in three minutes: one instance of a region misses, two would do, as its spare is two."""
    imported = import_trace.import_trace_file(file, tmp_path / "page", CATALOGUE, None, Progress())
    deployments = {"llama3.1-8b": advice_config.SizedDeployment(Deployment("l40s-48gb", 1), 1)}
    settings = advice_config.write_advice_config(
        imported, deployments, CATALOGUE, "region", tmp_path / "a.toml"
    )
    recorded = recorded_draw(settings, DAYS[0])
    draw = recorded._replace(trace=recorded.trace._replace(arrival_s=recorded.trace.arrival_s / 500))
    plan = midnight_plan(settings, DAYS[0])
    full = plan._replace(instances=np.ones_like(plan.instances), demand=plan.demand * 1e6)
    spared, found = promise_sections.search_region_promise(PromiseSearch(settings, [], full, [draw]))
    assert found.is_kept
    assert found.advised.sized.headroom_share > 0
    targets = rule_replays.sized_targets(settings, spared.plan, found.advised.sized)
    assert targets.tolist() == [[3.0, 3.0]] * 24  # two instances of load, and its headroom, in either region
    assert found.advised.future[0].usd == pytest.approx(6 * 24 * 3.5, rel=0.02)


def test_a_reliability_diagram_has_a_point_where_promise_and_outcome_meet() -> None:
    """A row of which as many days were kept as promised is on the diagonal, one of fewer below it."""
    rows = [
        {"promised_share": 0.9, "target_share": 0.9, "graded_days": 10},
        {"promised_share": 0.95, "target_share": 0.5, "graded_days": 4},
    ]
    assert reliability_chart([]) == ""
    chart = reliability_chart(rows)
    [line] = re.findall(r'<polyline points="([^"]+)"', chart)
    diagonal = {float(x): float(y) for x, y in (point.split(",") for point in line.split())}
    points = [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', chart)]
    on_line, below = points
    on_line_y, below_y = np.interp([on_line[0], below[0]], list(diagonal), list(diagonal.values()))
    assert on_line[1] == pytest.approx(on_line_y, abs=0.2)
    assert below[1] > below_y + 50  # y points down
    assert re.findall(r">(10|4)</text>", chart) == ["10", "4"]


@example_settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3))
def test_the_macro_agrees_with_python(page: RunSettings, values: list[float]) -> None:
    value, low, high = values
    """And what a narrow interval holds, a wider one holds too."""
    for one in (value, low, high, high + 0.9e-6 * max(abs(low), abs(high)), low - 2e-6 * max(abs(low), 1)):
        assert is_inside(one, low, high) <= is_inside(one, low - abs(value), high + 1.0)
        query = "select is_inside($value::double, $low::double, $high::double) as it"
        [row] = page.lake.sql(query, value=one, low=low, high=high).to_pylist()
        assert row["it"] == is_inside(one, low, high)


def test_failures_follow_the_published_count() -> None:
    """419 unexpected interruptions in 54 days of 16,384 GPUs: one GPU fails once in 5.8 years."""
    years = 1 / FAILURES_PER_GPU_DAY / 365.25
    failures = FAILURES_PER_GPU_DAY * 54 * 16_384
    assert (years, failures) == pytest.approx((5.78, 419), rel=1e-3)
