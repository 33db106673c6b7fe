"""The plan of a day to come right after a file has landed, and what is said where nothing has."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assets.lake.settings import Progress, Settings, load_settings
from assets.lake.warehouse import LakeError
from assets.plans import ahead
from assets.traces.ingest import ingest
from models.world.catalogue import load_catalogue

LAST = date(2025, 7, 3)
CONFIG = """
based_on = "office"
[trace]
name = "mine"
first_day = 2025-07-01
days = 3
seed = 1
[fleet.deployments]
"llama2-70b" = { gpu = "h100-80gb", tensor_parallel = 2 }
[forecast]
method = "last_value"
paper_method = "last_value"
methods = ["last_value"]
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A config of a trace that has not landed yet."""
    (tmp_path / "mine_run.toml").write_text(CONFIG)
    return load_settings(str(tmp_path / "mine_run.toml"), tmp_path / "lake")


def land(settings: Settings, trace: str) -> None:
    """Three days with a request of 900 tokens a minute, every third one of niw."""
    rows = 3 * 1440
    first = datetime(2025, 7, 1, tzinfo=UTC)
    said = {"region": "east", "llm": "llama2-70b", "app": "chat"}
    table = pa.table(
        {
            "request_id": list(range(rows)),
            "arrived_at": [first + timedelta(minutes=n) for n in range(rows)],
            "input_tokens": [900] * rows,
            "output_tokens": [9] * rows,
            "tier": ["iw_fast", "iw_fast", "niw"] * (rows // 3),
            **{name: [value] * rows for name, value in said.items()},
        }
    )
    folder = settings.lake.root.parent
    pq.write_table(table, folder / f"{trace}.parquet")
    (folder / f"{trace}.toml").write_text(f'trace = "{trace}"\n')
    ingest(folder / f"{trace}.parquet", settings.lake, load_catalogue())


def test_what_has_just_landed_can_be_planned_ahead(settings, monkeypatch):
    land(settings, "mine")
    assert settings.lake.days("demand", "mine") == []
    monkeypatch.setattr(ahead, "sustained_tokens_per_s", lambda *_: [300.0])
    day = ahead.day_to_come(settings)
    assert day == LAST + timedelta(days=1)
    for number in range(2):
        table = ahead.plan_ahead(settings, day + timedelta(days=number), Progress())
        assert table.num_rows == 24 * len(settings.catalogue.regions)
        niw = settings.config.forecast.niw_buffer_share * 900 / 180
        buffers = sorted(set(table["buffer_tokens_per_s"].to_pylist()))
        assert buffers == [0.0, pytest.approx(niw)]  # of the latest day that is known
    mean = (
        "select day, avg(forecast_per_s) as mean, count(actual_per_s) as came from day_ahead_forecasts "
        "where region = 'east' group by day order by day"
    )
    rows = settings.lake.sql(mean).to_pylist()
    assert [row["day"] for row in rows] == [day, day + timedelta(days=1)]
    assert [row["mean"] for row in rows] == pytest.approx([900 * 2 / 180] * 2)
    assert [row["came"] for row in rows] == [0, 0]  # nobody knows it yet, though a day without rows is empty


def test_where_nothing_has_landed_the_next_command_is_named(settings):
    with pytest.raises(
        LakeError, match=r"'mine' has no day to forecast from\. Run fleetcast ingest, .*again\.$"
    ):
        ahead.day_to_come(settings)
    land(settings, "other")
    with pytest.raises(LakeError, match=r"Landed is other: .* fleetcast plan ahead --config FILE\.$"):
        ahead.day_to_come(settings)
