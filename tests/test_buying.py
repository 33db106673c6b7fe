"""A buying list: the newsvendor's law, a naive twin, needs counted from requests by hand, a lost region."""

from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import small_config
from typer.testing import CliRunner

from fleetcast.assets.demand.demand import build_demand
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.plans import measured_capacity
from fleetcast.assets.studies.buying import PurchaseTerms, gpu_needs, whole_weeks, write_buying_list
from fleetcast.assets.studies.buying_figure import draw_commitments
from fleetcast.assets.traces.request_days import make_request_day
from fleetcast.models.plan.commitments import CommitmentPrices, commitment_costs, commitment_regrets
from fleetcast.pipelines.cli import cli_app

FIRST, DAYS = date(2025, 7, 1), 8
SUSTAINED = [9.0, 12.0, 6.0, 8.0]
NEEDS = st.lists(st.integers(0, 6), min_size=24, max_size=24)


@given(st.lists(st.tuples(NEEDS, NEEDS), min_size=1, max_size=3), st.integers(1, 9), st.integers(1, 11))
def test_a_commitment_costs_the_sum_of_its_hours(days, reserved: int, spot: int) -> None:
    """At least 10, the price on demand, is no spot. Of all numbers, those without a row are no cheaper."""
    need, held = (np.array([day[n] for day in days], float) for n in (0, 1))
    found = commitment_costs(need, held, CommitmentPrices(float(reserved), 10.0, float(spot)))
    costs = []
    for level in range(2 * 6 + 2):
        usd = 24.0 * level * reserved * len(days)
        for d, (own, waiting) in enumerate(days):
            dear = sum(max(needed - level, 0) for needed in own)
            used = sum(min(needed, level) for needed in own)
            used += min(sum(waiting), 24 * level - used)
            left = sum(own) + sum(waiting) - used - dear
            usd += 10.0 * dear + min(spot, 10.0) * left
            if level < len(found.usd):
                bought = (dear, left) if spot < 10 else (dear + left, 0.0)
                assert (found.on_demand_gpu_hours[level, d], found.spot_gpu_hours[level, d]) == (
                    pytest.approx(bought)
                )
        costs.append(usd)
    np.testing.assert_allclose(found.usd.sum(axis=1), costs[: len(found.usd)])
    assert found.usd.sum(axis=1).min() == pytest.approx(min(costs))


@given(NEEDS, st.integers(1, 9))
def test_without_batch_tier_the_best_commitment_is_the_newsvendor_s(need: list[int], reserved: int) -> None:
    """So many that the share of the price is not exceeded; one fewer would be too few."""
    usd = commitment_costs(
        np.array([need], float), np.zeros((1, 24)), CommitmentPrices(float(reserved), 10.0, 1.0)
    ).usd[:, 0]
    newsvendor = next(r for r in range(7) if np.mean(np.array(need) > r) <= reserved / 10)
    assert usd[newsvendor] == pytest.approx(usd.min())


def test_the_best_of_each_week_has_no_regret() -> None:
    usd = np.array([[5.0] * 7 + [1.0] * 7, [3.0] * 7 + [2.0] * 7])
    assert commitment_regrets(usd).tolist() == [[14.0, 0.0], [0.0, 7.0]]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    """Eight days; the first is before the whole week."""
    folder = tmp_path_factory.mktemp("buying")
    found = load_settings(small_config(folder, days=str(DAYS)), folder / "lake")
    for n in range(DAYS):
        make_request_day(found.lake, found.config.trace, found.catalogue, FIRST + timedelta(days=n))
        build_demand(found.lake, found.trace, FIRST + timedelta(days=n))
    return found


def test_needs_equal_the_load_of_the_requests(settings: RunSettings) -> None:
    days = whole_weeks(settings, 4)
    assert (days[0], days[-1], len(days)) == (FIRST + timedelta(days=1), FIRST + timedelta(days=7), 7)
    needs = gpu_needs(settings, days, SUSTAINED)
    requests = (
        "from requests where region = 'east' and llm = 'llama2-70b' and day = $day and hour(arrived_at) = 15"
    )
    peak = settings.lake.sql(
        f"select sum(input_tokens) / 900 as per_s {requests} and tier <> 'niw' "
        "group by time_bucket(interval 15 minutes, arrived_at) order by per_s desc limit 1",
        day=days[2],
    ).to_pylist()[0]["per_s"]
    held = settings.lake.sql(
        f"select sum(input_tokens) / 3600 as per_s {requests} and tier = 'niw'", day=days[2]
    ).to_pylist()[0]["per_s"]
    llms = list(settings.catalogue.llms)
    alone = [per_s if llm == "llama2-70b" else 1e12 for llm, per_s in zip(llms, SUSTAINED, strict=True)]
    per_s, gpus = SUSTAINED[llms.index("llama2-70b")], settings.config.fleet.deployments["llama2-70b"][0].gpus
    own = gpu_needs(settings, days, alone)["east", "h100-80gb"]
    others = sum(settings.config.fleet.deployments[llm][0].gpus for llm in llms if llm != "llama2-70b")
    assert own.interactive[2, 15] - gpus * np.ceil(peak / per_s) in range(others + 1)
    assert own.batch_tier[2, 15] == pytest.approx(gpus * held / per_s)
    assert set(needs) == {(region, "h100-80gb") for region in settings.catalogue.regions}


def test_the_list_and_a_lost_region(settings: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_capacity, "measure_capacities", lambda *_: SUSTAINED)
    day, table = write_buying_list(settings, PurchaseTerms(0.6, 0.3), 4, Progress())
    assert day == FIRST + timedelta(days=DAYS - 1)
    rows = table.to_pandas()
    listed = settings.lake.sql("from buying_list").to_pandas().set_index("served_region")
    usd = settings.catalogue.gpus["h100-80gb"].usd_per_hour
    needs = gpu_needs(settings, whole_weeks(settings, 4), SUSTAINED)
    for region, own in rows.groupby("served_region"):
        best = own.loc[own["usd_per_week"].idxmin()]
        assert own["is_best"].sum() == 1
        assert best["is_best"]
        assert listed.loc[region, "reserved_gpus"] == best["reserved_gpus"]
        hours, batch = (part.ravel() for part in needs[region, "h100-80gb"])
        assert listed.loc[region, "need_max_gpus"] == hours.max()
        assert listed.loc[region, "need_p50_gpus"] == np.quantile(hours, 0.5, method="inverted_cdf")
        none = own[own["reserved_gpus"] == 0].iloc[0]
        assert (none["on_demand_gpu_hours"], none["spot_gpu_hours"]) == pytest.approx(
            (hours.sum(), batch.sum())
        )
        assert listed.loc[region, "saved_share"] == pytest.approx(
            1 - best["usd_per_week"] / (usd * (hours.sum() + batch.sum()))
        )
        assert (best["reserved_usd"], best["on_demand_usd"], best["spot_usd"]) == (
            pytest.approx(0.6 * usd), usd, pytest.approx(0.3 * usd),
        )  # fmt: skip
    together = sum(need.interactive for need in needs.values())
    whole = together[together.max(axis=1).argmax()]
    lost = settings.lake.sql("from lost_pools where served_region = 'east'").to_pylist()[0]
    elsewhere = [r for r in settings.catalogue.regions if r != "east"]
    assert lost["needed_gpus"] == whole.max()
    assert lost["reserved_elsewhere_gpus"] == sum(listed.loc[r, "reserved_gpus"] for r in elsewhere)
    room = sum(settings.catalogue.regions[r].cap_gpus["h100-80gb"] for r in elsewhere)
    assert lost["short_gpus"] == max(whole.max() - room, 0)
    at = int(together.max(axis=1).argmax())
    dear = []
    for h in range(24):
        before_by_region = {r: needs[r, "h100-80gb"].interactive[at, h] for r in elsewhere}
        before = sum(max(n - listed.loc[r, "reserved_gpus"], 0) for r, n in before_by_region.items())
        dear.append(max(max(whole[h] - lost["reserved_elsewhere_gpus"], 0) - before, 0))
    assert lost["more_usd_per_day"] == pytest.approx(usd * sum(dear))
    assert max(dear) > 0
    assert draw_commitments(settings, day).stat().st_size > 10_000


def test_bad_terms_are_refused(settings: RunSettings, tmp_path: Path) -> None:
    for terms, message in (
        (PurchaseTerms(0.0, 1.0), "--reserved: got 0"),
        (PurchaseTerms(0.6, 1.5), "--spot: got 1.5"),
    ):
        with pytest.raises(ValueError, match=rf"^{message}, needed a share of the price on demand"):
            write_buying_list(settings, terms, 4, Progress())
    few = load_settings(small_config(tmp_path), tmp_path / "lake")
    few.lake.write("demand", settings.lake.part("demand", trace="small", day=FIRST), trace="small", day=FIRST)
    with pytest.raises(LakeError, match=r"has 1 days of demand in a row, needed 7 or more"):
        write_buying_list(few, PurchaseTerms(0.6, 1.0), 4, Progress())
    assert CliRunner().invoke(cli_app, ["plan", "buy"]).exit_code == 2
