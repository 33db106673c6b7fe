"""The generator reproduces SageServe section 3 and is deterministic; tiling keeps its laws."""

import dataclasses
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcast.models.traffic.synthetic_days import office_day, office_rate, tile_day, weekly_shape
from fleetcast.models.traffic.trace_columns import DayColumns, TraceNames
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.toml_dataclasses import ConfigError, build_dataclass
from fleetcast.models.world.traffic_config import BurstConfig, TiledTraffic

CATALOGUE = load_catalogue().serving(("bloom-176b", "llama2-70b", "llama3.1-8b", "llama3.2-3b"))
OFFICE = load_config("sageserve", CATALOGUE).trace.office
NAMES = TraceNames.of(CATALOGUE)
WEEK = [OFFICE.first_week + timedelta(days=k) for k in range(7)]
A, B = NAMES.llms.index("bloom-176b"), NAMES.llms.index("llama2-70b")
EAST, CENTRAL, WEST = (NAMES.regions.index(name) for name in ("east", "central", "west"))
IW_FAST, IW_NORMAL, NIW = range(3)


@pytest.fixture(scope="module")
def week() -> DayColumns:
    """A week of a fifth of the default load."""
    small = dataclasses.replace(OFFICE, requests_per_day=200_000)
    days = [office_day(small, day, 7, NAMES) for day in WEEK]
    return DayColumns._make(np.concatenate(columns) for columns in zip(*days, strict=True))


def test_shares_match_the_paper(week):
    tiers = np.bincount(week.tier) / week.tier.size
    assert tiers[IW_FAST] + tiers[IW_NORMAL] == pytest.approx(0.72, abs=0.02)
    assert tiers[IW_FAST] > tiers[IW_NORMAL] > tiers[NIW] > 0
    assert np.mean(week.app == list(OFFICE.apps).index("rag")) == pytest.approx(0.412, abs=0.002)
    assert len(OFFICE.apps) == 10
    regions = np.bincount(week.region)
    assert regions[EAST] > regions[CENTRAL] > regions[WEST]
    cell = np.zeros((3, 4, 3))
    np.add.at(cell, (week.tier, week.llm, week.region), 1)
    assert cell[IW_FAST, A, EAST] / cell[IW_FAST, A, WEST] == pytest.approx(4.0, rel=0.15)
    assert cell[IW_FAST, B].argmax() == CENTRAL
    assert cell[IW_NORMAL, B].argmax() == WEST
    assert cell[NIW, :, WEST].sum() < 0.05 * cell[NIW].sum()


def test_token_sizes_match_the_paper(week):
    assert np.mean(week.input_tokens > 1000) > 0.75
    assert np.mean(week.output_tokens < 1000) > 0.95
    assert np.mean(week.input_tokens[week.tier == IW_FAST] < 4000) == pytest.approx(0.95, abs=0.02)
    assert week.input_tokens.mean() == pytest.approx(2000, rel=0.05)
    assert week.output_tokens.mean() == pytest.approx(250, rel=0.05)
    assert week.input_tokens.min() >= 1
    assert week.input_tokens.max() <= OFFICE.max_input_tokens
    assert week.output_tokens.max() <= OFFICE.max_output_tokens


def test_niw_of_one_llm_is_heavier_in_one_region(week):
    """SageServe section 3: model C in central, from an evaluation app."""
    niw_c = (week.tier == NIW) & (week.llm == NAMES.llms.index("llama3.1-8b"))
    heavy, light = (week.input_tokens[niw_c & (week.region == region)].mean() for region in (CENTRAL, EAST))
    assert heavy / light == pytest.approx(2.5, rel=0.1)


def test_november_2024_is_a_fifth_of_july_2025_and_has_no_normal_tier(week):
    """SageServe section 3: about 5 times the requests and tokens in seven months."""
    before = load_config("sageserve_2024", CATALOGUE).trace.office
    small = dataclasses.replace(before, requests_per_day=before.requests_per_day / 2)
    days = [office_day(small, before.first_week + timedelta(days=k), 7, NAMES) for k in range(7)]
    old = DayColumns._make(np.concatenate(columns) for columns in zip(*days, strict=True))
    scale = 0.5 / (200_000 / OFFICE.requests_per_day)  # both samples were thinned
    tokens = [int(made.input_tokens.sum(dtype=np.int64) + made.output_tokens.sum()) for made in (week, old)]
    assert scale * week.tier.size / old.tier.size == pytest.approx(5.0, rel=0.05)
    assert scale * tokens[0] / tokens[1] == pytest.approx(5.0, rel=0.1)
    assert set(old.tier) == {IW_FAST, NIW}


def test_expected_requests_follow_the_weekly_shape():
    """Without noise and jobs the week has its 72 %, its weekdays requests_per_day, and iw_normal grows."""
    silent = {
        name: dataclasses.replace(t, daily_noise_share=0.0, minute_noise_share=0.0, bulk_share=0.0)
        for name, t in OFFICE.tiers.items()
    }
    calm = dataclasses.replace(OFFICE, tiers=silent)
    rates = np.array(
        [office_rate(calm, day, 7, NAMES).sum(axis=(1, 2)) for day in WEEK]
    )  # days, tiers, minutes
    assert rates[:, :2].sum() / rates.sum() == pytest.approx(0.72, abs=1e-9)
    weekdays = [n for n, day in enumerate(WEEK) if day.weekday() < 5]
    assert rates[weekdays].sum() / 5 == pytest.approx(OFFICE.requests_per_day)
    by_hour = rates.reshape(7, 3, 24, 60).sum(-1)
    tuesday, saturday = by_hour[0], by_hour[4]
    assert tuesday[IW_FAST].max() > 5 * tuesday[IW_FAST].min()
    assert saturday[IW_FAST].sum() < 0.5 * tuesday[IW_FAST].sum()
    assert np.allclose(by_hour[:, NIW], by_hour[0, NIW, 0])
    normal = {day.weekday(): row[IW_NORMAL].sum() for day, row in zip(WEEK, rates, strict=True)}
    assert max(normal[0], normal[1]) < min(normal[2], normal[3], normal[4])
    later = office_rate(calm, WEEK[0] + timedelta(days=14), 7, NAMES).sum(axis=(1, 2, 3))
    growth = OFFICE.tiers["iw_normal"].growth_per_week
    assert later[IW_NORMAL] / rates[0, IW_NORMAL].sum() == pytest.approx((1 + growth) ** 2)
    assert np.all([weekly_shape(t).sum() == pytest.approx(1.0) for t in OFFICE.tiers.values()])


def test_minutes_are_bursty_and_correlated():
    """A cell of calm shape varies far more than a Poisson process, and its minutes hang together."""
    flat = dataclasses.replace(OFFICE.tiers["iw_fast"], by_hour=(1.0,) * 24, by_weekday=(1.0,) * 7)
    office = dataclasses.replace(OFFICE, tiers={**OFFICE.tiers, "iw_fast": flat})
    day = office_day(office, WEEK[0], 7, NAMES)
    counts = np.bincount(day.arrived_us[(day.tier == IW_FAST) & (day.llm == A)] // 60_000_000, minlength=1440)
    assert counts.var() > 2 * counts.mean()
    assert 0.1 < np.corrcoef(counts[:-1], counts[1:])[0, 1] < 0.9


def test_a_burst_multiplies_the_load_of_its_minutes_only():
    burst = BurstConfig(datetime(2025, 7, 1, 23, 50, tzinfo=UTC), 20, 8.0)
    bursting = dataclasses.replace(OFFICE, bursts=(burst,))
    for day, first, last in ((WEEK[0], 1430, 1440), (WEEK[1], 0, 10), (WEEK[2], 0, 0)):
        ratio = office_rate(bursting, day, 7, NAMES) / office_rate(OFFICE, day, 7, NAMES)
        assert np.allclose(ratio[..., first:last], 8.0)
        assert np.allclose(np.delete(ratio, np.s_[first:last], axis=-1), 1.0)


def test_a_day_depends_on_seed_and_day_alone():
    small = dataclasses.replace(OFFICE, requests_per_day=5_000)
    first = office_day(small, WEEK[3], 7, NAMES)
    again = office_day(small, WEEK[3], 7, NAMES)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert np.all(np.diff(first.arrived_us) >= 0)
    assert 0 <= first.arrived_us[0] <= first.arrived_us[-1] < 86_400_000_000
    week_before = office_rate(OFFICE, WEEK[3] - timedelta(days=7), 7, NAMES)
    assert not np.allclose(week_before, office_rate(OFFICE, WEEK[3], 7, NAMES), rtol=0.1)
    assert not np.array_equal(office_day(small, WEEK[3], 8, NAMES).arrived_us, first.arrived_us)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"by_hour": (1.0,) * 23}, "by_hour has 23 figures, needs 24"),
        ({"by_weekday": (1.0,)}, "by_weekday has 1 figures, needs 7"),
        ({"mix": {"bloom-176b": {"east": 0.9}}}, "mix sums to 0.9, needs 1"),
    ],
)
def test_broken_parameters_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(OFFICE.tiers["iw_fast"], **change)


def test_a_broken_rule_between_fields_names_the_file_and_its_table():
    table = {"template": "mine", "requests_share": 1.0, "by_hour_of_week": [1.0] * 3}
    with pytest.raises(ConfigError, match=r"^mine\.toml trace tiled: by_hour_of_week has 3 figures"):
        build_dataclass(TiledTraffic, table, "mine.toml trace tiled")


def template(arrived_us: list[int]) -> DayColumns:
    """A trace whose input tokens are the row numbers, so that a tiled request shows its origin."""
    rows = np.arange(len(arrived_us))
    codes = [np.zeros(rows.size, np.int16)] * 4
    return DayColumns(np.array(arrived_us), *codes, rows.astype(np.int32), np.ones(rows.size, np.int32))


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 4_500_000_000), min_size=1, max_size=30).map(sorted),
    st.integers(0, 6),
    st.integers(-2, 4),
    st.integers(1, 3),
    st.floats(0.1, 20.0),
)
def test_tiling_keeps_the_place_in_the_hour_and_the_hours_of_the_weeks(
    arrived_us, weekday, week, weeks, share
):
    weights, monday = np.random.default_rng(0).random((weeks, 168)) + 0.1, date(2024, 1, 1)
    day = monday + timedelta(weeks=week, days=weekday)
    traffic = TiledTraffic("t", share, tuple(weights.ravel()), monday if weeks > 1 else None)
    tiled = tile_day(template(arrived_us), traffic, day, 3)
    elapsed = np.array(arrived_us) - arrived_us[0]
    span = max(int(elapsed[-1]), 1)
    folded = min(span, 3_600_000_000)
    of_day = weights[week % weeks, 24 * weekday :][:24] / weights.mean()
    counts = np.rint(share * len(arrived_us) * folded / span * of_day)
    assert tiled.arrived_us.size == counts.sum()
    assert np.all(np.diff(tiled.arrived_us) >= 0)
    assert np.array_equal(np.bincount(tiled.arrived_us // 3_600_000_000, minlength=24), counts)
    place = elapsed[tiled.input_tokens] % folded * (3_600_000_000 / folded)
    jitter = (tiled.arrived_us - place) % 3_600_000_000
    assert np.all((jitter < 1_000_001) | (jitter > 3_599_999_999))  # a microsecond of rounding on either side


def test_a_template_without_requests_is_refused():
    with pytest.raises(ValueError, match="template of the trace has no requests"):
        tile_day(template([]), TiledTraffic("t", 1.0, (1.0,) * 168), date(2024, 1, 1), 3)
    with pytest.raises(ValueError, match="by_hour_of_week has 24 figures, needs 168 for each week"):
        TiledTraffic("t", 1.0, (1.0,) * 24)
    with pytest.raises(ValueError, match="by_hour_of_week has 2 weeks, needs first_week"):
        TiledTraffic("t", 1.0, (1.0,) * 336)
    with pytest.raises(ValueError, match="first_week is a tuesday, needs a monday"):
        TiledTraffic("t", 1.0, (1.0,) * 336, date(2024, 1, 2))
