"""Dagster's databases stay open while an instance is open, and only then."""

import dagster as dg
import sqlalchemy as sa
from small import DAGSTER

from fleetcast.pipelines.dagster_databases import open_dagster_instance

NORMAL, FULL = 1, 2  # of SQLite's synchronous


def test_databases_stay_open_between_events_and_are_whole_after_them(tmp_path, monkeypatch):
    (tmp_path / "dagster.yaml").write_text(DAGSTER)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with open_dagster_instance() as instance:
        for day in ("2025-07-01", "2025-07-02"):
            instance.report_runless_asset_event(dg.AssetMaterialization("plans", partition=day))
        logs = list(tmp_path.rglob("*.db-wal"))
        assert any(path.name == "index.db-wal" for path in logs)  # else the last connection was closed
        assert synchronous_of(tmp_path / "other.db") == NORMAL
        assert synchronous_of(":memory:") == NORMAL
    assert not list(tmp_path.rglob("*.db-wal"))
    assert synchronous_of(tmp_path / "other.db") == FULL
    with dg.DagsterInstance.get() as instance:
        assert instance.get_materialized_partitions(dg.AssetKey("plans")) == {"2025-07-01", "2025-07-02"}


def synchronous_of(path):
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        return connection.execute(sa.text("PRAGMA synchronous")).scalar()
