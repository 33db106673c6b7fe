"""A generated trace behaves like the fitted one, except for the requested changes."""

import dataclasses
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
from small import small_config
from typer.testing import CliRunner

from fleetcast.assets.demand import fit_trace_clients, token_pairs
from fleetcast.assets.demand import generate_trace as generator
from fleetcast.assets.demand.characterise import characterise_trace
from fleetcast.assets.demand.fit_trace_clients import fit_clients
from fleetcast.assets.demand.generate_trace import GenerationRequest, generate_trace
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.ingest import ingest_file
from fleetcast.assets.traces.request_days import canonical_requests, make_request_day
from fleetcast.models.characterise.gap_families import GAP_FAMILIES
from fleetcast.models.normal_scores import normal_scores
from fleetcast.models.traffic.app_level_fit import fit_app_levels
from fleetcast.models.traffic.client_changes import apply_client_changes
from fleetcast.models.traffic.client_fit import fit_noise, weekly_rates
from fleetcast.models.traffic.clients import ClientTraffic, Noise, client_day, expected_rate, minute_rates
from fleetcast.models.traffic.length_scores import LengthScores, PoolMinutes, fit_length_scores
from fleetcast.models.traffic.random_streams import minute_noise
from fleetcast.models.traffic.recorded_days import RecordedDays
from fleetcast.models.traffic.renewal_arrivals import Spacing
from fleetcast.models.traffic.trace_changes import NewApp, Outage, TraceChanges, load_changes
from fleetcast.models.traffic.trace_columns import DayColumns, TraceNames
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config import TraceConfig
from fleetcast.models.world.config_loading import CONFIG_DIR, load_config
from fleetcast.models.world.toml_dataclasses import ConfigError
from fleetcast.models.world.traffic_config import BurstConfig
from fleetcast.pipelines.cli import cli_app

CATALOGUE = (
    load_catalogue()
    .of_era("2023", "here")
    .serving(("bloom-176b", "llama2-70b", "llama3.1-8b", "llama3.2-3b"))
)
NAMES = TraceNames.of(CATALOGUE)
FIRST = date(2025, 6, 30)  # a Monday
APPS = ["chat", "rag"]
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "traces"
PARTS = ["tier", "region", "llm", "app"]


def traffic(
    cv: float = 1.0, requests_per_hour: float = 1200.0, minute_share: float = 0.0, family: str = "gamma"
) -> ClientTraffic:
    """Four clients of even load: two apps, interactive in east and west, niw in east and central."""
    clients = 4
    return ClientTraffic(
        region=np.array([0, 2, 0, 1], np.int16),
        llm=np.array([0, 1, 2, 3], np.int16),
        tier=np.array([0, 1, 2, 2], np.int16),
        app=np.array([0, 1, 0, 1], np.int16),
        requests_per_hour=np.full((clients, 168), requests_per_hour),
        group=np.arange(clients),
        sender=np.arange(clients),
        level=np.full(clients, -1),
        pool=np.arange(clients),
        noise=Noise(np.zeros(clients + 1), np.full(clients + 1, minute_share), np.full(clients + 1, 5.0)),
        levels=fit_app_levels(np.empty((0, 48)), np.arange(48)),
        spacing=Spacing(
            np.full(clients, list(GAP_FAMILIES).index(family)), np.zeros(clients), np.ones(clients)
        ),
        history=RecordedDays(
            np.array([0]),
            np.full((clients, 1, 144), cv, np.float32),
            np.zeros(8, np.int64),
            np.empty((0, 24)),
            np.empty(0),
        ),
        first_pair=np.arange(clients + 1) * 2,
        pairs=np.arange(16, dtype=np.int32).reshape(8, 2) + 1,
        lengths=LengthScores(np.zeros(clients), np.zeros(clients), np.ones(clients)),
    )


def draw(
    made: ClientTraffic, changes: TraceChanges | None = None, day: date = FIRST, seed: int = 7
) -> DayColumns:
    return client_day(made, changes or TraceChanges(), day, FIRST, seed, NAMES)


# --- drawing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "cv"), [("gamma", 0.5), ("weibull", 2.0), ("lognormal", 2.0)])
def test_a_client_has_its_rate_its_variation_and_no_edge_at_midnight(family, cv):
    rate = np.full((4, 168), 1200.0)
    rate[:, 12:24] = 6000.0
    made = dataclasses.replace(traffic(cv, family=family), requests_per_hour=rate)
    days = [draw(made, seed=seed) for seed in range(4)]
    first_minutes = [(day.arrived_us[day.llm == llm] < 600_000_000).sum() for day in days for llm in range(4)]
    assert np.mean(first_minutes) == pytest.approx(200.0, rel=0.1)
    for llm in range(4):
        at = days[0].arrived_us[days[0].llm == llm] / 1e6
        early = np.diff(at[at < 11 * 3600])
        assert early.mean() == pytest.approx(3.0, rel=0.1)
        assert early.std() / early.mean() == pytest.approx(cv, rel=0.15)
        assert ((at > 13 * 3600) & (at < 23 * 3600)).sum() == pytest.approx(60_000, rel=0.1)


def test_a_day_is_in_order_and_keeps_tokens_together():
    day = draw(traffic(cv=3.0, minute_share=0.5))
    assert np.all(np.diff(day.arrived_us) >= 0)
    assert 0 <= day.arrived_us[0] <= day.arrived_us[-1] < 86_400_000_000
    seen = set(zip(day.llm, day.input_tokens, day.output_tokens, strict=True))
    assert seen == {(c, i, i + 1) for c in range(4) for i in (4 * c + 1, 4 * c + 3)}
    again = draw(traffic(cv=3.0, minute_share=0.5))
    assert all(np.array_equal(a, b) for a, b in zip(day, again, strict=True))
    assert not np.array_equal(draw(traffic(cv=3.0), seed=8).arrived_us, draw(traffic(cv=3.0)).arrived_us)


# --- what if -------------------------------------------------------------------------------------------


def test_scale_and_ratio_change_the_whole_and_its_parts_only():
    made, _ = apply_client_changes(traffic(), TraceChanges(interactive_to_niw=3.0), 5.0, NAMES, APPS)
    weekly = made.requests_per_hour.sum(axis=1)
    assert weekly.sum() == pytest.approx(5 * traffic().requests_per_hour.sum())
    is_niw = made.tier == NAMES.tiers.index("niw")
    assert weekly[~is_niw].sum() == pytest.approx(3 * weekly[is_niw].sum())


def test_a_new_app_is_like_its_model_app():
    made, apps = apply_client_changes(
        traffic(), TraceChanges(new_apps=(NewApp("agents", "rag", 0.5),)), 1.0, NAMES, APPS
    )
    assert apps == [*APPS, "agents"]
    new = made.app == 2
    assert made.requests_per_hour[new].sum() == pytest.approx(0.5 * made.requests_per_hour[~new].sum())
    day = draw(made)
    for name in ("region", "llm", "tier", "input_tokens"):
        assert set(getattr(day, name)[day.app == 2]) == set(getattr(day, name)[day.app == 1])


def test_growth_bursts_and_holidays_change_the_rate_of_their_time():
    week = np.repeat([1000.0, 1000.0, 1000.0, 1000.0, 1000.0, 400.0, 300.0], 24)
    made = dataclasses.replace(traffic(), requests_per_hour=np.tile(week, (4, 1)))
    usual = expected_rate(made, TraceChanges(), FIRST, FIRST)
    later = expected_rate(made, TraceChanges(growth_per_week=0.1), FIRST + timedelta(days=15), FIRST)
    assert later == pytest.approx(
        1.21 * expected_rate(made, TraceChanges(), FIRST + timedelta(days=1), FIRST)
    )
    burst = TraceChanges(bursts=(BurstConfig(datetime(2025, 6, 30, 15, tzinfo=UTC), 20, 8.0),))
    ratio = expected_rate(made, burst, FIRST, FIRST) / usual
    assert np.all(ratio[:, 900:920] == 8.0)
    assert np.all(np.delete(ratio, np.s_[900:920], axis=1) == 1.0)
    holiday = expected_rate(made, TraceChanges(holidays=(FIRST,)), FIRST, FIRST)
    assert holiday == pytest.approx(expected_rate(made, TraceChanges(), FIRST + timedelta(days=6), FIRST))


def test_an_outage_moves_requests_and_loses_none():
    out = TraceChanges(outages=(Outage("east", datetime(2025, 6, 30, 23, tzinfo=UTC), 120),))
    usual, moved = draw(traffic()), draw(traffic(), out)
    assert np.array_equal(usual.arrived_us, moved.arrived_us)
    hit = usual.arrived_us >= 23 * 3_600_000_000
    assert not (moved.region[hit] == NAMES.regions.index("east")).any()
    assert np.array_equal(moved.region[~hit], usual.region[~hit])
    tomorrow = draw(traffic(), out, FIRST + timedelta(days=1))
    assert not (tomorrow.region[tomorrow.arrived_us < 3_600_000_000] == 0).any()
    assert (tomorrow.region == 0).any()


@pytest.mark.parametrize(
    ("changes", "scale", "message"),
    [
        ({"new_apps": (NewApp("a", "rg", 0.1),)}, 1.0, "is like 'rg'; known: chat, rag"),
        ({"new_apps": (NewApp("rag", "chat", 0.1),)}, 1.0, "the new app 'rag' exists already"),
        ({}, 0.0, "scale is 0, needs more than 0"),
    ],
)
def test_impossible_changes_are_refused(changes, scale, message):
    with pytest.raises(ValueError, match=message):
        apply_client_changes(traffic(), TraceChanges(**changes), scale, NAMES, APPS)


def test_the_example_file_loads_and_a_typo_is_named(tmp_path):
    example = CONFIG_DIR.parent / "changes" / "example.toml"
    changes = load_changes(example)
    assert changes.bursts[0].factor == 8.0
    assert changes.new_apps[0].like == "code_generation"
    typo = tmp_path / "typo.toml"
    typo.write_text(example.read_text().replace("holidays", "holyday"))
    with pytest.raises(ConfigError, match="Did you mean 'holidays'"):
        load_changes(typo)


# --- fitting -------------------------------------------------------------------------------------------


def test_rates_are_recovered_conserved_and_keep_the_prior_without_data():
    hours = np.arange(336)
    of_week = hours % 168
    true = 1000 * (1.5 + np.sin(2 * np.pi * np.arange(168) / 24)) * np.where(np.arange(168) >= 120, 0.4, 1.0)
    counts = np.random.default_rng(0).poisson(true[of_week]).astype(float)[None]
    flat = np.full((1, 168), counts.mean())
    rates = weekly_rates(counts, np.ones(336), of_week, flat)
    assert rates[0] == pytest.approx(true, rel=0.1)
    assert rates[0][of_week].sum() == pytest.approx(counts.sum())
    one_hour = weekly_rates(np.array([[50.0]]), np.array([0.5]), np.array([30]), np.full((1, 168), 100.0))
    assert one_hour[0] == pytest.approx(100.0)
    assert weekly_rates(np.zeros((1, 336)), np.ones(336), of_week, flat).sum() == 0


def test_noise_is_recovered():
    days, rate = 14, np.full((3, 14 * 1440), 100.0)
    shares, memory = np.array([0.1, 0.3, 0.6]), np.array([3.0, 10.0, 30.0])
    rng = np.random.default_rng(0)
    load = [100 * minute_noise(rng, np.array([0.1, 0.1, 0.0]), shares, memory, (3,)) for _ in range(days)]
    counts = rng.poisson(np.concatenate(load, axis=1)).astype(float)
    counts[:, 2000:2500] = np.nan
    found = fit_noise(counts, rate, np.ones(3))
    assert found.minute_share == pytest.approx([*shares, 0.0], rel=0.25, abs=0.08)
    assert found.memory_minutes[:3] == pytest.approx(memory, rel=0.4)
    assert found.daily_share[:2] == pytest.approx(0.1, abs=0.07)
    shared = [
        minute_noise(rng, 0.0, 0.4, 5.0, (1,)) * minute_noise(rng, 0.0, 0.2, 5.0, (3,)) for _ in range(7)
    ]
    together = rng.poisson(100 * np.concatenate(shared, axis=1)).astype(float)
    found = fit_noise(together, rate[:, : 7 * 1440], np.ones(3))
    assert found.minute_share == pytest.approx([0.2, 0.2, 0.2, 0.4], abs=0.08)
    calm = fit_noise(rng.poisson(np.full((1, 14 * 1440), 100.0)).astype(float), rate[:1], np.ones(1))
    assert calm.minute_share[0] < 0.03


def of_one_pool(scores: LengthScores, seed: int) -> DayColumns:
    """A day of one client whose rate varies by the minute, and whose lengths are lognormal in every hour."""
    lengths = np.exp(7 + np.random.default_rng(0).normal(size=1000)).astype(np.int32)
    one = dataclasses.replace(
        traffic(minute_share=0.4),
        requests_per_hour=np.array([0, 0, 0, 12_000.0])[:, None] * np.ones(168),
        lengths=LengthScores(*np.hstack([np.repeat([[0.0], [0.0], [1.0]], 3, axis=1), scores])),
        pairs=np.concatenate([np.ones((6, 2), np.int32), np.stack([lengths, lengths], axis=1)]),
        first_pair=np.array([0, 2, 4, 6, 1006]),
    )
    history = one.history._replace(pair_hour=np.zeros(1006, np.int64))
    return draw(dataclasses.replace(one, history=history), seed=seed)


@pytest.mark.parametrize(
    ("load", "own", "memory"), [(0.3, 0, 1.0), (-0.3, 0.3, 3.0), (0, 0.4, 2.0), (0, 0, 1.0)]
)
def test_lengths_follow_the_minute_as_fitted(load, own, memory):
    """What is generated is fitted again; and each hour has the pairs that it would have without scores."""
    day = of_one_pool(LengthScores(*np.array([[load], [own], [memory]])), seed=3)
    free = of_one_pool(LengthScores(*np.array([[0.0], [0.0], [1.0]])), seed=3)
    hour, minute = day.arrived_us // 3_600_000_000, day.arrived_us // 60_000_000
    assert (day.arrived_us == free.arrived_us).all()
    for one in range(24):
        assert (np.sort(day.input_tokens[hour == one]) == np.sort(free.input_tokens[hour == one])).all()
    assert (day.output_tokens == day.input_tokens).all()
    seen = np.flatnonzero(np.random.default_rng(0).random(minute.max() + 1) < 0.8)  # the others are silent
    sums = (np.bincount(minute, weights)[seen] for weights in (None, day.input_tokens))
    found = fit_length_scores(
        PoolMinutes(seen // 60, seen % 60, *sums), hour, day.input_tokens, np.zeros(24, np.int64)
    )
    assert found.load == pytest.approx(load, abs=0.04)
    assert found.own == pytest.approx(own, abs=0.05)
    if own:
        assert found.memory_minutes == pytest.approx(memory, rel=0.4)


def test_what_may_be_chance_counts_as_chance():
    """Of 200 pools without any dependence at least half have none; without the shrinkage none would."""
    rng, pools = np.random.default_rng(0), 200
    requests = rng.poisson(20.0, 60 * pools) + 1
    pool = np.repeat(np.arange(60 * pools) // 60, requests)
    length = rng.lognormal(7, 1, pool.size).astype(np.int64)
    sums = np.bincount(np.repeat(np.arange(60 * pools), requests), length)
    minutes = PoolMinutes(np.arange(60 * pools) // 60, np.arange(60 * pools) % 60, requests, sums)
    found = fit_length_scores(minutes, pool, length, np.arange(pools))
    assert (found.load == 0).mean() > 0.5 < (found.own == 0).mean()


def test_a_trace_whose_busy_minutes_have_long_prompts_is_generated_so(tmp_path):
    minute = np.repeat(np.arange(120), np.tile([60, 120], 60))
    at = np.sort(minute * 60_000_000 + np.random.default_rng(0).integers(0, 60_000_000, minute.size))
    lake, code = Lake(tmp_path / "lake"), np.zeros(at.size, np.int16)
    lengths = (100 + 200 * (minute % 2)).astype(np.int32)
    rows = canonical_requests(
        DayColumns(at, code, code, code, code, lengths, code + np.int32(10)), FIRST, "x", CATALOGUE, ["chat"]
    )
    lake.write("requests", rows, trace="long", day=FIRST)
    made = draw(fit_clients(lake, "long", NAMES, Progress())[0])
    load, tokens = (np.bincount(made.arrived_us // 60_000_000, by) for by in (None, made.input_tokens))
    assert np.corrcoef(load, tokens / np.maximum(load, 1))[0, 1] > 0.7


def test_batches_leave_the_variation_that_they_do_not_explain(tmp_path):
    """Twelve windows of batches of 2 on average; in two they come in the first and the last minute."""
    rng = np.random.default_rng(0)
    windows = rng.random((12, 150)) + np.arange(12)[:, None]
    windows[::6] = windows[::6] // 1 + 0.9 * (windows[::6] % 1 > 0.5) + 0.1 * rng.random((2, 150))
    starts_s = np.repeat(600 * windows.ravel(), rng.geometric(0.5, windows.size))
    at = np.sort((1e6 * (np.floor(starts_s) + rng.random(starts_s.size))).astype(np.int64))
    lake, code = Lake(tmp_path / "lake"), np.zeros(at.size, np.int16)
    columns = DayColumns(at, code, code, code, code, code + np.int32(100), code + np.int32(10))
    rows = canonical_requests(columns, FIRST, "x", CATALOGUE, ["chat"])
    lake.write("requests", rows, trace="batches", day=FIRST)
    found = fit_clients(lake, "batches", NAMES, Progress())[0]
    assert found.spacing.mean_size() == pytest.approx(2.0, rel=0.2)
    cv = found.history.gap_cv[0, 0, :12].reshape(2, 6)
    assert cv[:, 1:] == pytest.approx(1.0, abs=0.15)
    assert (cv[:, 0] > 2.0).all()


def test_scores_are_those_of_ranks_within_a_cell():
    cell, value, weight = (
        np.array(of) for of in ([1, 0, 1, 0, 1, 0], [3, 5, 3, 9, 8, 5], [1, 1, 2, 3, 1, 4])
    )
    for weights in (weight, None):
        found = normal_scores(cell, value, weights)
        for n in range(6):
            of = cell == cell[n]
            times = np.where(of, 1 if weights is None else weights, 0)
            below = (times * ((value < value[n]) + 0.5 * (value == value[n]))).sum()
            assert NormalDist().cdf(found[n]) == pytest.approx(below / times.sum())


def test_a_record_that_begins_and_ends_within_a_minute_has_its_rate_and_no_noise(tmp_path):
    """A hundred requests a minute for 16 minutes and two parts: not two slumps, nor a lower rate."""
    at = np.sort(np.random.default_rng(0).integers(50_000_000, 17 * 60_000_000 + 6_000_000, 1627))
    lake, code = Lake(tmp_path / "lake"), np.zeros(at.size, np.int16)
    columns = DayColumns(at, code, code, code, code, code + np.int32(100), code + np.int32(10))
    rows = canonical_requests(columns, FIRST, "x", CATALOGUE, ["chat"])
    lake.write("requests", rows, trace="short", day=FIRST)
    found, _ = fit_clients(lake, "short", NAMES, Progress())
    assert found.requests_per_hour.sum() / 168 == pytest.approx(6000.0, rel=0.001)
    assert found.noise.minute_share == pytest.approx(0.0)


def test_every_hour_of_whole_days_is_whole(tmp_path):
    """The first and the last request lie some seconds within three days, whose hours vary by chance."""
    rng, lake = np.random.default_rng(0), Lake(tmp_path / "lake")
    for number in range(3):
        hour = np.repeat(rng.integers(0, 24, 9), 1000)
        at = np.concatenate([[15e6, 86_385e6], 3600e6 * (hour + rng.random(hour.size))])
        code, tokens = np.zeros(at.size, np.int16), np.full(at.size, 9, np.int32)
        columns = DayColumns(np.sort(at).astype(np.int64), code, code, code, code, tokens, tokens)
        day = FIRST + timedelta(days=number)
        rows = canonical_requests(columns, day, "x", CATALOGUE, ["chat"])
        lake.write("requests", rows, trace="varied", day=day)
    [levels] = fit_clients(lake, "varied", NAMES, Progress())[0].history.levels
    assert not np.isnan(levels).any()


# --- side by side ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Five office days, Tuesday to Saturday, of 60,000 requests, and five that are generated like them."""
    folder = tmp_path_factory.mktemp("generated")
    config = load_config(small_config(folder, days="5", requests_per_day="60_000.0"), CATALOGUE)
    lake = Lake(folder / "lake")
    for number in range(5):
        make_request_day(lake, config.trace, CATALOGUE, config.trace.first_day + timedelta(days=number))
    generate_trace(lake, CATALOGUE, order("twin"), Progress())
    return lake


def order(name: str, **changes: object) -> GenerationRequest:
    wanted = GenerationRequest("small", name, None, 5, 1.0, 7, TraceChanges())
    return wanted._replace(**changes)


def parts(lake: Lake, trace: str) -> pd.DataFrame:
    table = characterise_trace(lake, trace, Progress()).to_pandas().set_index(PARTS)
    return table[table["requests"] > 10_000]


def test_original_and_generated_side_by_side(lake):
    """Load within 5 %, tokens 7 %, CV of gaps 0.04, dispersion 20 %, seasons of interactive parts 0.05.

    The smallest apps have thirty windows with gaps enough, whose mean CV is chance by 0.03 in either trace.
    """
    old, new = parts(lake, "small"), parts(lake, "twin")
    new = new.reindex(old.index)
    assert new["requests"].to_numpy() == pytest.approx(old["requests"].to_numpy(), rel=0.05)
    assert new["tokens_per_s"].to_numpy() == pytest.approx(old["tokens_per_s"].to_numpy(), rel=0.07)
    within = np.where(old["requests"] > 20_000, 0.04, 0.12)
    assert (np.abs(new["gap_cv"] - old["gap_cv"]) < within).all()
    assert new["dispersion"].to_numpy() == pytest.approx(old["dispersion"].to_numpy(), rel=0.2)
    interactive = old.index.get_level_values("tier").isin(["iw_fast", "iw_normal"])
    for column, within in (("daily_strength", 0.05), ("acf_10min", 0.03), ("acf_1h", 0.03), ("acf_1d", 0.05)):
        assert new[column][interactive].to_numpy() == pytest.approx(
            old[column][interactive].to_numpy(), abs=within
        ), column
    niw = ("niw", "all", "all", "all")
    assert new["daily_strength"][niw] < 0.8 > old["daily_strength"][niw]
    assert new["skill_120min"][niw] == pytest.approx(old["skill_120min"][niw], abs=0.1)

    weekday = lake.sql("select tier, weekday, trace, of_mean_working_day from load_by_weekday").to_pandas()
    wide = weekday.pivot_table(index=["tier", "weekday"], columns="trace", values="of_mean_working_day")
    assert wide["twin"].to_numpy() == pytest.approx(wide["small"].to_numpy(), abs=0.15)
    cdf = lake.sql("select llm, kind, tokens, trace, cumulated_share from token_cdf").to_pandas()
    wide = cdf.pivot_table(
        index=["llm", "kind", "tokens"], columns="trace", values="cumulated_share"
    ).dropna()
    assert np.abs(wide["twin"] - wide["small"]).max() < 0.02
    grown = lake.sql("select requests_ratio from growth where trace = 'twin' and tier = 'all'")
    assert grown["requests_ratio"][0].as_py() == pytest.approx(1.0, abs=0.03)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real Azure trace is not next to this checkout")
def test_an_hour_of_a_real_trace_is_as_bursty_when_generated(tmp_path):
    """Azure 2023, whose minutes disperse eighty times as much as Poisson arrivals: within a third of that."""
    lake = Lake(tmp_path / "lake")
    for name in ("code", "conv"):
        ingest_file(SHARED / f"AzureLLMInferenceTrace_{name}.csv.gz", lake, CATALOGUE)
    whole = lake.read("requests", trace="azure_llm").to_pandas()
    minute = (whole["arrived_at"] - whole["arrived_at"].min()) // pd.Timedelta(minutes=1)
    before = np.bincount(minute)[:-1]
    made = draw(fit_clients(lake, "azure_llm", NAMES, Progress())[0])
    after = np.bincount(made.arrived_us // 60_000_000, minlength=1440)
    assert after.mean() == pytest.approx(before.mean(), rel=0.1)
    assert after.var() / after.mean() == pytest.approx(before.var() / before.mean(), rel=1 / 3)
    assert made.input_tokens.mean() == pytest.approx(whole["input_tokens"].mean(), rel=0.05)
    assert made.output_tokens.mean() == pytest.approx(whole["output_tokens"].mean(), rel=0.05)


@pytest.mark.parametrize("instants_us", [[5_000_000], [7_000_000] * 200])
def test_a_trace_of_one_instant_is_made_into_days(tmp_path, instants_us):
    lake, one = Lake(tmp_path / "lake"), np.zeros(len(instants_us), np.int16)
    columns = DayColumns(np.array(instants_us), one, one, one, one, one + np.int32(100), one + np.int32(10))
    lake.write(
        "requests", canonical_requests(columns, FIRST, "x", CATALOGUE, ["chat"]), trace="small", day=FIRST
    )
    progress = RecordedLines()
    assert generate_trace(lake, CATALOGUE, order("twin", days=2), progress) > 0
    assert progress.lines == [
        "small was recorded for 1 minute(s), so its daily pattern is unknown. Every hour of the new trace "
        "has the rate of these minutes; --scale changes it."
    ]


class RecordedLines(Progress):
    """Keeps the lines that stay."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def test_a_client_absent_on_the_busiest_day_is_generated_too(tmp_path):
    lake = Lake(tmp_path / "lake")
    for number, requests in enumerate((300, 400)):  # one app a day
        at = np.sort(np.random.default_rng(number).integers(0, 86_400_000_000, requests))
        one = np.zeros(requests, np.int16)
        columns = DayColumns(
            at, one, one, one, one + np.int16(number), one + np.int32(100), one + np.int32(10)
        )
        day = FIRST + timedelta(days=number)
        lake.write("requests", canonical_requests(columns, day, "x", CATALOGUE, APPS), trace="small", day=day)
    assert generate_trace(lake, CATALOGUE, order("twin", days=2), Progress()) > 0
    assert set(lake.sql("select distinct app from requests where trace = 'twin'")["app"].to_pylist()) == {
        *APPS
    }


def test_a_night_client_sends_nothing_by_day():
    """Half of its endpoint's load comes from 22 to 6; the rest by day is noise of the fit."""
    hour = np.arange(7 * 24)
    at_night = (hour % 24 >= 22) | (hour % 24 < 6)
    counts = np.random.default_rng(0).poisson(120.0 * at_night)[None].astype(float)
    group = np.full((1, 168), 60.0) + 120 * at_night
    rates = weekly_rates(counts, np.ones(168), hour, group * counts.sum() / group.sum())
    by_minute = minute_rates(rates, 0, 7 * 1440)
    assert by_minute[0, np.repeat(~at_night, 60)].sum() < 0.005 * by_minute.sum()
    assert by_minute.sum() == pytest.approx(counts.sum(), rel=0.01)


def test_many_tokens_are_subsampled_with_the_mean_of_each_hour(lake, monkeypatch):
    clients = lake.sql(
        "select distinct app, region, llm, tier from requests where trace = 'small' order by all"
    ).to_pandas()
    days = lake.days("requests", "small")
    _, first, whole, hours, _ = token_pairs.read_token_pairs(lake, "small", clients, days)
    assert len(whole) == lake.count("requests", trace="small")
    monkeypatch.setattr(token_pairs, "MOST_PAIRS", len(whole) // 4)
    _, fewer, kept, kept_hours, _ = token_pairs.read_token_pairs(lake, "small", clients, days)
    assert 0.15 * len(whole) < len(kept) <= 0.26 * len(whole)
    largest = np.diff(first).argmax()
    whole, hours = (of[first[largest] : first[largest + 1]] for of in (whole, hours))
    kept, kept_hours = (of[fewer[largest] : fewer[largest + 1]] for of in (kept, kept_hours))
    mean, mean_kept = (
        np.bincount(at, of[:, 0], 24 * len(days)) / np.maximum(np.bincount(at, minlength=24 * len(days)), 1)
        for at, of in ((hours, whole), (kept_hours, kept))
    )
    busy = np.bincount(hours, minlength=24 * len(days)) >= 60
    assert busy.sum() > 20
    assert mean_kept[busy] == pytest.approx(mean[busy], rel=0.25)
    assert mean_kept[busy].mean() == pytest.approx(mean[busy].mean(), rel=0.02)


def test_a_generation_resumes_and_a_different_one_is_refused(lake, monkeypatch):
    whole = lake.read("requests", trace="twin", day=date(2025, 7, 2))
    count = generate_trace(lake, CATALOGUE, order("twin", days=2), Progress())
    assert lake.read("requests", trace="twin", day=date(2025, 7, 2)).equals(whole)
    for table in ("requests", "demand", "arrival_windows"):  # no day of the longer order is left
        assert lake.days(table, "twin")[2:] == []
    assert count == sum(
        lake.read("requests", trace="twin", day=date(2025, 7, day)).num_rows for day in (1, 2)
    )
    with pytest.raises(LakeError, match="already has another trace 'twin'"):
        generate_trace(lake, CATALOGUE, order("twin", scale=2.0), Progress())
    with pytest.raises(LakeError, match="already has another trace 'small'"):
        generate_trace(lake, CATALOGUE, order("small"), Progress())
    monkeypatch.setattr(fit_trace_clients, "MOST_CLIENTS", 10)
    with pytest.raises(
        LakeError, match=r"'small' has \d+ clients .* at most 10 are allowed\. Give it fewer apps"
    ):
        generate_trace(lake, CATALOGUE, order("new"), Progress())
    with pytest.raises(ConfigError, match=r"--name: got '\.\./x', needed up to 60 letters"):
        generate_trace(lake, CATALOGUE, order("../x"), Progress())
    with pytest.raises(LakeError, match="'nobody' has no requests"):
        generate_trace(lake, CATALOGUE, order("new", like="nobody"), Progress())


def test_the_command_prints_results_and_errors(lake, monkeypatch, tmp_path):
    monkeypatch.setattr(generator, "fit_clients", lambda *given: (traffic(requests_per_hour=10.0), APPS))
    monkeypatch.setattr("fleetcast.assets.lake.warehouse.Lake", lambda: lake)
    made = CliRunner().invoke(
        cli_app, ["generate", "--like", "small", "--days", "2", "--scale", "2", "--quiet"]
    )
    assert made.exit_code == 0, made.output
    assert "requests like small on 2 days, as the trace small_x2" in made.output
    config = tmp_path / "hinted.toml"
    config.write_text(made.output.partition("for nightly runs on it:")[2])
    assert load_config(str(config), load_catalogue()).trace == TraceConfig("small_x2", date(2025, 7, 1), 2, 7)
    assert lake.sql("checks/requests_are_valid.sql", trace="small_x2").num_rows == 0
    assert lake.sql("checks/request_ids_are_unique.sql", trace="small_x2").num_rows == 0
    lost = CliRunner().invoke(cli_app, ["generate", "--like", "smal"])
    assert lost.exit_code == 2
    assert "'smal' has no requests" in lost.stderr
