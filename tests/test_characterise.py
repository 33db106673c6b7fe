"""Characterising a trace follows its definitions: naive twins, known processes, and real traces."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from small import small_config

from fleetcast.assets.demand import characterise as characterised
from fleetcast.assets.demand.characterise import characterise_trace
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.sql_files import read_sql
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.assets.traces.ingest import ingest_file
from fleetcast.models.characterise.gap_families import (
    GAP_FAMILIES,
    draw_gaps,
    gamma_shape,
    shape_of_cv,
    weibull_shape,
)
from fleetcast.models.characterise.gap_fit import first_gaps, fit_gaps, ks_distance, window_cvs
from fleetcast.models.characterise.level_changes import find_level_changes
from fleetcast.models.characterise.load_statistics import (
    autocorrelation,
    dispersion_index,
    find_bursts,
    forecast_skills,
    season_strengths,
)
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.pipelines.definitions import defs

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "traces"
MONDAY = date(2025, 6, 30)
MINUTES = np.arange(14 * 1440)
RHYTHM = 60 * (1 + 0.8 * np.sin(2 * np.pi * MINUTES / 1440))


# --- gaps ----------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(1, 600), st.sampled_from([250_000 * 500, 250_000 * 3000]))
def test_variation_by_window_equals_counting(seed, rows, window_us):
    """On a grid of quarter seconds, so that gaps of 0 and arrivals on a window's edge really happen."""
    rng = np.random.default_rng(seed)
    arrived_us = 250_000 * np.sort(rng.integers(0, 2001, rows))
    stream = rng.integers(0, 4, rows)
    by_window: dict[tuple[int, int], list[int]] = {}
    for at, member in zip(arrived_us.tolist(), stream.tolist(), strict=True):
        by_window.setdefault((member, at // window_us), []).append(at)
    expected = {}
    for key, times in by_window.items():
        gaps = np.diff(times) / 1e6
        if len(gaps) >= 30 and gaps.mean() > 0:
            expected[key] = (len(gaps), gaps.std(ddof=1) / gaps.mean())
    found = window_cvs(arrived_us, stream, window_us)
    assert list(zip(found.stream.tolist(), found.window.tolist(), strict=True)) == sorted(expected)
    for (gaps, cv), key in zip(zip(found.gaps, found.cv, strict=True), sorted(expected), strict=True):
        assert (gaps, pytest.approx(cv)) == expected[key]


def test_distances_and_shapes_equal_scipy():
    rng = np.random.default_rng(0)
    gaps = rng.gamma(0.5, 2.0, 400)
    assert fit_gaps(gaps, "exponential", rng).distance == pytest.approx(
        stats.kstest(gaps, stats.expon(scale=gaps.mean()).cdf).statistic
    )
    shape = gamma_shape(gaps[None])[0]
    assert shape == pytest.approx(stats.gamma.fit(gaps, floc=0)[0], rel=0.05)
    assert fit_gaps(gaps, "gamma", rng).distance == pytest.approx(
        stats.kstest(gaps, stats.gamma(shape, scale=gaps.mean() / shape).cdf).statistic
    )
    likeliest, _, scale = stats.weibull_min.fit(gaps, floc=0)
    assert weibull_shape(gaps[None])[0] == pytest.approx(likeliest, rel=1e-3)
    assert fit_gaps(gaps, "weibull", rng).distance == pytest.approx(
        stats.kstest(gaps, stats.weibull_min(likeliest, scale=scale).cdf).statistic, rel=1e-2
    )


@pytest.mark.parametrize("family", GAP_FAMILIES)
def test_p_values_are_calibrated_and_can_reject(family):
    """Gaps of the family itself are rejected at 5 % about one time in twenty; clumped ones nearly always."""
    rng = np.random.default_rng(1)
    own = [fit_gaps(draw_gaps(rng, family, 0.6, (100,)), family, rng).p_value for _ in range(80)]
    assert np.mean(own) == pytest.approx(0.5, abs=0.12)
    assert np.mean(np.array(own) <= 0.05) < 0.15
    clumps = [np.where(rng.random(100) < 0.7, 0.01, 5.0) * rng.uniform(0.9, 1.1, 100) for _ in range(20)]
    assert np.mean([fit_gaps(gaps, family, rng).p_value <= 0.05 for gaps in clumps]) > 0.9


@pytest.mark.parametrize("family", ["gamma", "weibull", "lognormal", "hyperexponential"])
def test_the_family_of_gaps_is_recognised(family):
    """Of twenty windows with a variation of 3 most are nearest to the family that generated them."""
    rng = np.random.default_rng(3)
    windows = [draw_gaps(rng, family, shape_of_cv(family, 3.0), (400,)) for _ in range(20)]
    best = [
        min((other for other in GAP_FAMILIES), key=lambda other: ks_distance(gaps, other)) for gaps in windows
    ]
    assert best.count(family) >= 14


@pytest.mark.parametrize("family", ["gamma", "weibull", "lognormal", "hyperexponential"])
@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_sampled_gaps_have_the_requested_variation(family, cv):
    gaps = draw_gaps(np.random.default_rng(2), family, shape_of_cv(family, cv), (400_000,))
    if family == "hyperexponential":
        cv = max(cv, 1.0)  # two phases vary no less than one
    assert gaps.mean() == pytest.approx(1.0, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.1 if family == "lognormal" else 0.05)


def test_a_fit_refuses_insufficient_data():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="needs 30 gaps above 0, got 3"):
        fit_gaps(np.ones(3), "gamma", rng)
    with pytest.raises(ValueError, match="Unknown family 'pareto'"):
        fit_gaps(np.ones(40), "pareto", rng)
    coarse = first_gaps(np.repeat(np.arange(20) * 3_000_000, 3), 0)
    assert coarse.min() == pytest.approx(1.5)  # half of the smallest gap above 0


# --- load ----------------------------------------------------------------------------------------------


def poisson(rate: np.ndarray, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).poisson(rate).astype(float)


def test_dispersion_is_one_for_poisson_and_grows_with_clumps():
    assert dispersion_index(poisson(50 * RHYTHM)) == pytest.approx(1.0, abs=0.1)  # the rhythm does not count
    assert dispersion_index(10 * poisson(RHYTHM / 10)) == pytest.approx(10.0, rel=0.1)
    with_gap = poisson(RHYTHM)
    with_gap[3000:4000] = np.nan
    assert dispersion_index(with_gap) == pytest.approx(1.0, abs=0.1)
    assert np.isnan(dispersion_index(np.zeros(600)))


def test_bursts_are_found_where_they_are_and_nowhere_else():
    calm = poisson(RHYTHM, seed=1)
    assert find_bursts(calm) == []
    calm[5000:5012] *= 8
    calm[9000] = np.nan
    found = find_bursts(calm)
    assert [(burst.start, burst.minutes) for burst in found] == [(5000, 12)]
    assert found[0].ratio == pytest.approx(8.0, rel=0.5)
    assert found[0].extra_requests == pytest.approx(calm[5000:5012].sum() * 7 / 8, rel=0.15)
    assert find_bursts(np.full(100, np.nan)) == []
    busy = poisson(50 * RHYTHM, seed=1)
    busy[5000:5012] *= 1.5  # far beyond chance, but not twice the load around
    assert find_bursts(busy) == []


def test_seasons_are_strong_where_they_are_and_weak_where_not():
    hourly = RHYTHM.reshape(-1, 60).mean(axis=1)
    weekend = np.where(np.arange(336) % 168 >= 120, 0.3, 1.0)
    noise = np.random.default_rng(0).normal(0, 3, 336)
    assert min(season_strengths(hourly * weekend + noise)) > 0.8
    daily, weekly = season_strengths(hourly + noise)
    assert daily > 0.95
    assert weekly < 0.25  # days alone make no week
    noises = [np.random.default_rng(seed).normal(60, 3, 336) for seed in range(6)]
    assert np.mean([season_strengths(one) for one in noises], axis=0) == pytest.approx((0, 0), abs=0.08)
    assert np.isnan(season_strengths(hourly[:47])).all()
    assert np.isnan(season_strengths(hourly[:335])[1])
    assert autocorrelation(hourly, 24) == pytest.approx(1.0)
    assert autocorrelation(hourly, 12) < -0.9
    assert np.isnan(autocorrelation(np.ones(100), 1))


def test_a_lasting_change_is_found_and_a_rhythm_is_not():
    hourly = poisson(RHYTHM.reshape(-1, 60).sum(axis=1) * np.where(np.arange(336) % 168 >= 120, 0.3, 1.0))
    assert find_level_changes(hourly, 0) == []
    hourly[200:] *= 1.7
    (change,) = find_level_changes(hourly, 0)
    assert abs(change.hour - 200) <= 3
    assert change.ratio == pytest.approx(1.7, rel=0.05)
    assert find_level_changes(np.zeros(336), 0) == []


def test_a_slump_that_ends_is_found_where_it_begins_and_ends():
    """Three days of four weeks at 60 %, noise with a memory: nine times in ten, and rarely where none is."""
    hours = np.arange(28 * 24)
    week = np.where(hours % 168 >= 120, 0.5, 1.0) * (1 + 0.6 * np.sin(2 * np.pi * hours / 24))
    found = alarms = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        walk = 0.12 * rng.normal(size=hours.size)
        for hour in hours[1:]:
            walk[hour] = 0.7 * walk[hour - 1] + np.sqrt(0.51) * walk[hour]
        load = 500 * week * np.exp(walk)
        alarms += len(find_level_changes(rng.poisson(load).astype(float), 0)) > 0
        start = 24 * (9 + seed % 9)
        load[start : start + 72] *= 0.6
        ends = [change.hour for change in find_level_changes(rng.poisson(load).astype(float), 0)]
        found += len(ends) == 2 and max(abs(ends[0] - start), abs(ends[1] - start - 72)) <= 6
    assert found >= 18
    assert alarms <= 2


def test_the_skill_of_the_best_simple_forecast():
    foreseen = forecast_skills(poisson(20 * RHYTHM))
    assert set(foreseen) == {10, 60, 120}
    assert foreseen[120].share > foreseen[10].share >= 0
    assert foreseen[120].method != "last_value"
    assert foreseen[120].share > 0.8
    walk = 1000 + np.cumsum(np.random.default_rng(0).normal(size=MINUTES.size))
    assert forecast_skills(walk)[10] == ("last_value", 0.0)
    assert forecast_skills(RHYTHM[:1440]) == {}


# --- a trace in the lake ---------------------------------------------------------------------------------


def write_clients(lake: Lake, days: int, apps: int, cv: float) -> None:
    """Apps of gamma gaps, one request every six seconds each, all in one region with one llm and tier."""
    rng = np.random.default_rng(5)
    for number in range(days):
        midnight = datetime(MONDAY.year, MONDAY.month, MONDAY.day, tzinfo=UTC) + timedelta(days=number)
        rows = []
        for app in range(apps):
            gaps = 6 * draw_gaps(rng, "gamma", shape_of_cv("gamma", cv), (14_400,))
            rows += [(at, f"app{app}") for at in np.cumsum(gaps) if at < 86_400]
        rows.sort()
        size = len(rows)
        table = pa.table(
            {
                "request_id": np.arange(size, dtype=np.uint64) + number * 10_000_000,
                "arrived_at": [midnight + timedelta(seconds=at) for at, _ in rows],
                "region": ["east"] * size,
                "llm": ["llama2-70b"] * size,
                "tier": ["iw_fast"] * size,
                "app": [app for _, app in rows],
                "input_tokens": [900] * size,
                "output_tokens": [100] * size,
                "deadline_s": [1.0] * size,
                "source": ["test"] * size,
            }
        )
        lake.write("requests", table, trace="clients", day=midnight.date())


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Two days of twelve clumpy clients."""
    lake = Lake(tmp_path_factory.mktemp("clients") / "lake")
    write_clients(lake, days=2, apps=12, cv=2.0)
    characterise_trace(lake, "clients", Progress())
    return lake


def test_pooling_hides_the_burstiness_of_clients(lake, monkeypatch):
    table = lake.sql("tables/characterisation.sql", trace="clients")
    rows = {(r["tier"], r["app"]): r for r in table.to_pylist() if r["llm"] == r["region"] == "all"}
    whole, first = rows["all", "all"], rows["all", "app0"]
    assert first["gap_cv"] == pytest.approx(2.0, rel=0.1)
    assert first["gap_cv"] == pytest.approx(first["client_gap_cv"])
    assert whole["client_gap_cv"] == pytest.approx(2.0, rel=0.1)
    assert whole["gap_cv"] < 1.6
    assert whole["requests_per_s"] == pytest.approx(2.0, rel=0.05)
    assert whole["tokens_per_s"] == pytest.approx(1000 * whole["requests_per_s"])
    assert len([app for tier, app in rows if app != "all"]) == 10  # the largest
    tested = lake.sql(
        "select gamma_p, exponential_p from arrival_windows where stream_kind = 'client' and gamma_p > 0"
    )
    assert np.mean(tested["gamma_p"].to_numpy() >= 0.05) > 0.85
    assert np.mean(tested["exponential_p"].to_numpy() >= 0.05) < 0.1

    monkeypatch.setattr(
        characterised, "write_arrival_windows", lambda *given: pytest.fail("a day was read again")
    )
    assert characterise_trace(lake, "clients", Progress()).equals(table)


def test_optional_columns_are_characterised(tmp_path):
    """Hashes of prompts and times of the source, in columns that most traces lack."""
    there = Lake(tmp_path / "lake")
    write_clients(there, days=1, apps=1, cv=1.0)
    for mart in ("prefix_reuse", "source_latency"):
        assert there.sql(f"select * from {mart}").num_rows == 0
    path = there.path("requests", trace="clients", day=MONDAY)
    requests = pq.read_table(path, partitioning=None).slice(0, 4)
    hashes = pa.array([[1, 2, 3], [1, 2, 4], None, [1]], pa.list_(pa.uint64()))
    more = {"prefix_hashes": hashes, "source_ttft_s": pa.array([0.5, 1.5, None, None])}
    more["source_e2e_s"] = pa.array([1.0, 3.0, 8.0, None])
    for name, values in more.items():
        if name in requests.column_names:
            requests = requests.drop_columns([name])
        requests = requests.append_column(name, values)
    pq.write_table(requests, path)
    (reuse,) = there.sql("select * exclude (trace, llm) from prefix_reuse").to_pylist()
    assert reuse == {"requests": 3, "blocks": 7, "distinct_blocks": 4, "reuse_share": pytest.approx(3 / 7)}
    (waited,) = there.sql("select * from source_latency").to_pylist()
    assert (waited["requests"], waited["ttft_p50_s"], waited["e2e_mean_s"]) == (3, 1.0, 4.0)
    assert there.sql("queries/prefix_caching.sql").num_rows == 1


@pytest.mark.parametrize("name", ["arrival_windows", "characterisation", "episodes"])
def test_tables_have_the_columns_and_the_grain_of_their_header(lake, name):
    sql = read_sql(f"tables/{name}.sql")
    rows = lake.sql(f"tables/{name}.sql").to_pandas()
    assert sorted(rows.columns) == sorted(sql.columns)
    assert not rows.duplicated(list(sql.listed("grain"))).any()


def test_the_asset_shows_figures_of_the_findings(lake, tmp_path):
    resource = SettingsResource(config=small_config(tmp_path, name='"clients"'), lake=str(lake.root))
    done = defs.resolve_job_def("characterise").execute_in_process(
        resources={"settings": resource, "progress": Progress()}
    )
    metadata = done.get_asset_materialization_events()[0].materialization.metadata
    of_the_load = ["apps", "apps_by_hour", "burstiness", "endpoints", "load", "regions", "tiers", "tokens"]
    images = {name: of.value for name, of in metadata.items() if "data:image/png" in str(of.value)}
    assert sorted(images) == of_the_load  # latency figures only where the trace was replayed
    assert all(len(image) > 10_000 for image in images.values())
    assert all(column.description for column in metadata["dagster/column_schema"].value.columns)


def test_an_unknown_trace_is_named(lake):
    (known,) = lake.traces("requests")
    for name, hint in (("zzz", f"Known: {known}"), (known[:-1], f"Did you mean '{known}'")):
        with pytest.raises(LakeError, match=rf"'{name}' has no requests\. It has no day at all\. {hint}"):
            characterise_trace(lake, name, Progress())


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real Azure trace is not next to this checkout")
def test_an_hour_of_a_real_trace_gives_no_daily_figures(tmp_path):
    """Azure 2023: requests arrive in clumps; one hour shows nothing about days."""
    lake = Lake(tmp_path / "lake")
    ingest_file(SHARED / "AzureLLMInferenceTrace_conv.csv.gz", lake, load_catalogue())
    (whole,) = [
        row
        for row in characterise_trace(lake, "azure_llm", Progress()).to_pylist()
        if {row[key] for key in ("tier", "region", "llm", "app")} == {"all"}
    ]
    assert whole["requests"] == 19_366
    assert whole["gap_cv"] > 1.0
    assert whole["dispersion"] > 2.0
    assert 0 <= whole["poisson_share"] <= 1
    for name in ("daily_strength", "weekly_strength", "skill_60min", "acf_1d"):
        assert whole[name] is None or np.isnan(whole[name])
