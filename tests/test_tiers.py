"""Any number of tiers, each with its own targets: five of them, landed, through a night to the scoreboard."""

import dataclasses
from datetime import UTC, date, datetime, timedelta

import metrics
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fleetcast.assets.demand.demand import INTERACTIVE, read_demand_matrix
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.assets.replays.scorecards import attainment_by_target
from fleetcast.assets.studies import decisions, experiment
from fleetcast.assets.traces.ingest import ingest_file
from fleetcast.models.metrics import is_tpot_met, tpot_s
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.catalogue_entries import Tier
from fleetcast.pipelines.nightly_run import run_night
from fleetcast.pipelines.scoreboard import show_other_targets

LLM, DAY, DAYS, REQUESTS = "llama2-70b", date(2025, 7, 3), 3, 1500
TPOT_SLO_S = 0.0373  # of about half the requests
CONFIG = f"""
based_on = "sageserve"
[trace]
name = "five"
first_day = {DAY - timedelta(days=DAYS - 1)}
days = {DAYS}
seed = 1
[fleet.deployments]
"{LLM}" = {{ gpu = "h100-80gb", tensor_parallel = 2 }}
[forecast]
method = "last_value"
paper_method = "last_value"
methods = ["last_value"]
[plan]
capacity = "throughput"
[replay]
policies = ["corrected", "clairvoyant"]
"""


def five_tiers() -> Catalogue:
    """The shipped tiers, a stricter one with a pace before them, and a second one that is held among them."""
    shipped = load_catalogue().of_era("2023", "here")
    chat = Tier(60.0, 0.9, "a test", ttft_slo_s=0.5, tpot_slo_s=TPOT_SLO_S)
    batch = Tier(3600.0, 0.9, "a test", tpot_slo_s=1.0, is_held=True)
    fast, normal, niw = shipped.tiers.values()
    tiers = {"chat": chat, "iw_fast": fast, "batch": batch, "iw_normal": normal, "niw": niw}
    return dataclasses.replace(shipped, tiers=tiers)


def requests(catalogue: Catalogue) -> pa.Table:
    """A few days of requests of all tiers; some have a single output token."""
    rng, rows = np.random.default_rng(5), DAYS * REQUESTS
    first = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC) - timedelta(days=DAYS - 1)
    at_s = np.sort(rng.uniform(0, DAYS * 86_400, rows))
    outputs = np.where(rng.random(rows) < 0.1, 1, rng.integers(2, 400, rows))
    return pa.table(
        {
            "request_id": np.arange(rows, dtype=np.uint64),
            "arrived_at": pa.array([first + timedelta(seconds=float(s)) for s in at_s]),
            "region": rng.choice(list(catalogue.regions), rows),
            "llm": np.full(rows, LLM),
            "tier": rng.choice(list(catalogue.tiers), rows),
            "app": np.full(rows, "chat"),
            "input_tokens": rng.integers(1, 4000, rows),
            "output_tokens": outputs,
        }
    )


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    """The lake after the night."""
    folder, catalogue = tmp_path_factory.mktemp("five"), five_tiers()
    (folder / "run.toml").write_text(CONFIG)
    pq.write_table(requests(catalogue), folder / "five.parquet")
    (folder / "five.toml").write_text('trace = "five"\n')
    resource = SettingsResource(config=str(folder / "run.toml"), lake=str(folder / "lake"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(folder))
        patch.setattr("fleetcast.assets.lake.settings.load_catalogue", lambda: catalogue)
        assert ingest_file(folder / "five.parquet", Lake(folder / "lake"), catalogue).rows_quarantined == 0
        night = run_night(resource, DAY, Progress())
        assert not night.broken
        return resource.load()


def outcomes(settings: RunSettings) -> pd.DataFrame:
    return settings.lake.sql("select * from outcomes where policy = 'corrected'").to_pandas()


def test_every_tier_is_forecast_scored_and_printed(settings: RunSettings, capsys) -> None:
    known = set(settings.catalogue.tiers)
    for table, expected in (("forecasts", known | {INTERACTIVE}), ("scorecard", known), ("tiers", known)):
        assert set(settings.lake.sql(f"select distinct tier from {table}")["tier"].to_pylist()) == expected
    by_tier = settings.lake.sql("select * from scoreboard_by_tier").to_pandas()
    assert by_tier.groupby("policy")["tier"].agg(set).tolist() == [known] * 2
    assert by_tier.groupby("tier")["is_held"].first().to_dict() == {
        "batch": True, "chat": False, "iw_fast": False, "iw_normal": False, "niw": True,
    }  # fmt: skip
    attainment = attainment_by_target(settings, DAY).to_pandas()
    assert attainment[["policy", "tier"]].to_numpy().tolist() == [
        [policy, tier] for policy in ("corrected", "clairvoyant") for tier in ("chat", "batch")
    ]
    show_other_targets(attainment_by_target(settings, DAY, "corrected"))
    assert {"chat", "batch"} < set(capsys.readouterr().out.split())
    assert "tpot_cdf" in {path.stem for path in settings.figures(DAY).glob("*.png")}


def test_plans_cover_undeferred_tiers_and_buffer_the_rest(settings: RunSettings) -> None:
    found = read_demand_matrix(settings.lake, settings.trace, DAY, DAY, 60, settings.catalogue)
    single = {tier: found.tier_series(tier) for tier in settings.catalogue.tiers}
    together = single["chat"] + single["iw_fast"] + single["iw_normal"]
    np.testing.assert_allclose(found.tier_series(INTERACTIVE), together)
    np.testing.assert_allclose(found.held(), single["batch"] + single["niw"])
    rows = settings.lake.sql(
        "select hour(hour_start) as hour, sum(buffer_tokens_per_s) as buffer from plans "
        "where policy = 'clairvoyant' group by all order by hour"
    ).to_pandas()
    share = settings.config.forecast.niw_buffer_share
    np.testing.assert_allclose(rows["buffer"], share * found.held().sum(axis=(0, 1)))


def test_what_may_wait_is_what_the_catalogue_holds_and_a_tier_it_lost_is_offending(
    settings: RunSettings,
) -> None:
    lake, known = settings.lake, list(settings.catalogue.tiers)
    room = lake.sql("queries/room_at_night.sql").to_pandas()
    tokens = "select sum(input_tokens + output_tokens) as n from requests where tier in ('batch', 'niw')"
    assert room["held_tokens"].sum() == pytest.approx(lake.sql(tokens)["n"][0].as_py())
    lost = lake.sql("checks/requests_are_valid.sql", tiers=known[1:])
    assert set(lost["tier"].to_pylist()) == {"chat"}
    assert lake.sql("checks/requests_are_valid.sql", tiers=known).num_rows == 0


def test_attainment_by_all_and_by_single_targets_equals_the_twin(settings: RunSettings) -> None:
    rows = outcomes(settings)
    twin = tpot_s(*rows[["ttft_s", "e2e_s", "output_tokens"]].to_numpy().T)
    np.testing.assert_allclose(rows["tpot_s"], twin, rtol=1e-12)
    assert np.isnan(rows["tpot_s"]).sum() > 10  # a single token
    scored = settings.lake.sql("select * from scoreboard_by_tier where policy = 'corrected'").to_pandas()
    for _, row in scored.iterrows():
        own = rows[rows["tier"] == row["tier"]].astype({"ttft_slo_s": float, "tpot_slo_s": float})
        came = {name: own[name].to_numpy(float) for name in metrics.ATTAINED}
        assert row["attainment_share"] == metrics.attainment(**came).share
        tier = settings.catalogue.tiers[row["tier"]]
        if tier.tpot_slo_s is None:
            assert np.isnan(row["tpot_attainment_share"])
        else:
            paced = is_tpot_met(came["tpot_s"], came["e2e_s"], came["tpot_slo_s"])
            assert row["tpot_attainment_share"] == paced.mean()
    chat = scored.set_index("tier").loc["chat"]
    apart = chat["ttft_attainment_share"], chat["tpot_attainment_share"]
    assert min(apart) > 0.05
    assert max(apart) < 0.99
    assert chat["attainment_share"] < min(apart)


def test_the_scoreboard_counts_interactive_what_is_not_held(settings: RunSettings) -> None:
    rows, (row,) = (
        outcomes(settings),
        settings.lake.sql("select * from scoreboard where policy = 'corrected'").to_pylist(),
    )
    own = rows[rows["tier"].isin(["chat", "iw_fast", "iw_normal"])]
    came = {name: own[name].to_numpy(float) for name in metrics.ATTAINED}
    assert row["missed_share"] == 1 - metrics.attainment(**came).share
    paced = rows[rows["tier"].isin(["chat", "batch"])]
    came = (paced[name].to_numpy(float) for name in ("tpot_s", "e2e_s", "tpot_slo_s"))
    assert row["tpot_attainment_share"] == is_tpot_met(*came).mean()


def test_forecasts_are_compared_by_the_strictest_tier_of_any_name(settings: RunSettings, monkeypatch) -> None:
    monkeypatch.setattr(experiment, "next_point", lambda done, *_: None if done else 1.0)
    found = decisions.try_forecasts(settings, DAY, Progress()).to_pandas()
    assert set(found["tier"]) == {"chat"}
    assert found["attainment_share"].between(0.0, 1.0, inclusive="neither").all()
    assert set(found["matched_share"]) == {0.9}
