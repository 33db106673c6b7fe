"""Demand as regular series: equal to counting; nan where a day is missing, 0 where no request came."""

from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from fleetcast.assets.demand.demand import INTERACTIVE, build_demand, read_demand_matrix
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.request_days import make_request_day, read_template_trace
from fleetcast.models.traffic.trace_columns import TraceNames
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config import TraceConfig
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.traffic_config import TiledTraffic

CATALOGUE = load_catalogue()
LLMS, REGIONS, TIERS = list(CATALOGUE.llms), list(CATALOGUE.regions), list(CATALOGUE.tiers)
DAY = date(2025, 7, 1)


def write_day(lake: Lake, day: date, rows: int, seed: int) -> list[tuple]:
    """Write random requests of one day and return them as (llm, region, tier, minute, input tokens)."""
    rng = np.random.default_rng(seed)
    second = np.sort(rng.integers(0, 86_400, rows))
    codes = [rng.integers(0, len(names), rows) for names in (LLMS, REGIONS, TIERS)]
    tokens = rng.integers(1, 5000, rows)
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    table = pa.table(
        {
            "request_id": np.arange(rows, dtype=np.uint64),
            "arrived_at": [midnight + timedelta(seconds=int(s)) for s in second],
            "region": [REGIONS[c] for c in codes[1]],
            "llm": [LLMS[c] for c in codes[0]],
            "tier": [TIERS[c] for c in codes[2]],
            "app": ["chat"] * rows,
            "input_tokens": tokens,
            "output_tokens": tokens,
            "deadline_s": [1.0] * rows,
            "source": ["test"] * rows,
        }
    )
    lake.write("requests", table, trace="t", day=day)
    return list(zip(*codes, second // 60, tokens, strict=True))


@pytest.mark.parametrize("minutes", [5, 60])
def test_the_matrix_equals_counting(lake, minutes):
    expected = np.full((len(LLMS), len(REGIONS), len(TIERS), 3 * 1440 // minutes), np.nan)
    for offset in (0, 2):  # the day between is missing
        day = DAY + timedelta(days=offset)
        first = offset * 1440 // minutes
        expected[..., first : first + 1440 // minutes] = 0.0
        for llm, region, tier, minute, tokens in write_day(lake, day, 400, offset):
            expected[llm, region, tier, first + minute // minutes] += tokens / (60 * minutes)
        build_demand(lake, "t", day)
    found = read_demand_matrix(lake, "t", DAY, DAY + timedelta(days=2), minutes, CATALOGUE)
    assert found.bucket_start[0] == np.datetime64(DAY)
    assert np.all(np.diff(found.bucket_start) == np.timedelta64(minutes, "m"))
    np.testing.assert_allclose(found.per_s, expected, rtol=1e-12)
    np.testing.assert_allclose(found.tier_series(INTERACTIVE), expected[:, :, :2].sum(axis=2), rtol=1e-12)
    np.testing.assert_array_equal(found.tier_series("niw"), found.per_s[:, :, 2])


def test_missing_days_are_reported(lake):
    with pytest.raises(LakeError, match=r"'t' has no requests on 2025-07-01.* no day at all\. Make it"):
        build_demand(lake, "t", DAY)
    write_day(lake, DAY, 3, 0)
    write_day(lake, DAY + timedelta(days=2), 3, 0)
    with pytest.raises(
        LakeError, match=r"no requests on 2025-07-02\. It has 2025-07-01 to 2025-07-03, 1 of them missing"
    ):
        build_demand(lake, "t", DAY + timedelta(days=1))
    with pytest.raises(LakeError, match="has no demand from 2025-07-01 to 2025-07-01"):
        read_demand_matrix(lake, "t", DAY, DAY, 15, CATALOGUE)
    with pytest.raises(ValueError, match="bucket_minutes is 7, a day must be a whole number of buckets"):
        read_demand_matrix(lake, "t", DAY, DAY, 7, CATALOGUE)


def test_a_name_missing_in_the_catalogue_is_reported(lake):
    write_day(lake, DAY, 50, 0)
    requests = lake.read("requests").drop_columns(["trace", "day"])
    renamed = pa.array(["gone" if llm == LLMS[0] else llm for llm in requests["llm"].to_pylist()])
    lake.write("requests", requests.set_column(3, "llm", renamed), trace="t", day=DAY)
    build_demand(lake, "t", DAY)
    with pytest.raises(LakeError, match="has the llm 'gone'; this run has bloom-176b"):
        read_demand_matrix(lake, "t", DAY, DAY, 15, CATALOGUE)


def test_days_are_generated_from_the_config(lake):
    office = load_config("sageserve", CATALOGUE).trace
    assert make_request_day(lake, office, CATALOGUE, office.first_day) > 800_000
    made = lake.read("requests", trace="sageserve")
    assert lake.sql("checks/requests_are_valid.sql").num_rows == 0
    assert made["request_id"].to_pylist()[:2] == [
        office.first_day.toordinal() << 32,
        (office.first_day.toordinal() << 32) + 1,
    ]
    instants = made["arrived_at"].cast(pa.int64()).to_numpy()
    assert np.all(np.diff(instants) >= 0)
    kinds = lake.sql("select distinct tier, deadline_s, source from requests order by deadline_s").to_pylist()
    assert [tuple(kind.values()) for kind in kinds] == [
        (name, tier.deadline_s, "office") for name, tier in CATALOGUE.tiers.items()
    ]

    write_day(lake, DAY, 500, 0)
    tiled = TraceConfig("tiles", DAY, 1, 7, tiled=TiledTraffic("t", 1.0, (1.0,) * 168))
    assert make_request_day(lake, tiled, CATALOGUE, DAY) == pytest.approx(500, abs=24)
    template, apps = read_template_trace(lake, "t", TraceNames.of(CATALOGUE))
    assert apps == ["chat"]
    rows = set(zip(template.llm, template.region, template.tier, template.input_tokens, strict=True))
    for row in lake.read("requests", trace="tiles").to_pylist():
        codes = LLMS.index(row["llm"]), REGIONS.index(row["region"]), TIERS.index(row["tier"])
        assert (*codes, row["input_tokens"]) in rows
        assert row["source"] == "tiled t"

    landed = TraceConfig("t", DAY, 1, 7)
    assert make_request_day(lake, landed, CATALOGUE, DAY) == 500
    with pytest.raises(LakeError, match="'t' has no requests on 2025-07-09"):
        make_request_day(lake, landed, CATALOGUE, date(2025, 7, 9))
    lost = TraceConfig("tiles", DAY, 1, 7, tiled=TiledTraffic("azure_llm", 1.0, (1.0,) * 168))
    with pytest.raises(LakeError, match="'azure_llm', which is to be tiled, has not been landed"):
        make_request_day(lake, lost, CATALOGUE, DAY)
