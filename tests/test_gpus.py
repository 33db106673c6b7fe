"""`fleetcast gpus`: a coming day carried by fleets that are replayed; bad input is one line."""

import dataclasses
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from mine import DAYS, land, mine
from typer.testing import CliRunner

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans.plan_loads import read_forecast_windows
from fleetcast.assets.studies import rent_answer, rent_buckets, rent_fleets, rent_query
from fleetcast.assets.studies.phase_figures import draw_phase_prices
from fleetcast.assets.studies.rent_hour import busiest_hour, replay_hour
from fleetcast.models.plan.phase_costs import saving_bound
from fleetcast.models.plan.problem import PlanError
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.prices import price_as_given
from fleetcast.models.world.toml_dataclasses import ConfigError
from fleetcast.pipelines.cli import cli_app
from fleetcast.pipelines.gpus_cli import describe_rent_answer, describe_saving_bound, show_fleets
from fleetcast.pipelines.options import parse_phases

LLM, H100, A100 = "llama3.1-8b", "h100-80gb", "a100-80gb"
DAY = date(2025, 7, 4)  # a coming day
BUSY, PER_MINUTE = 12, 150  # requests in every minute of that hour; two in all others
DEPLOYMENTS = """
"llama3.1-8b" = { gpu = "h100-80gb", tensor_parallel = 1 }
"llama2-70b" = { gpu = "h100-80gb", tensor_parallel = 2 }
"""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    """Three landed days of one llm; the other llm has no requests."""
    own = mine(tmp_path_factory.mktemp("gpus"), DEPLOYMENTS, "seasonal_naive_day")
    rng = np.random.default_rng(2)
    seconds = np.concatenate(
        [
            minute * 60 + rng.uniform(0, 60, PER_MINUTE if minute // 60 % 24 == BUSY else 2)
            for minute in range(DAYS * 1440)
        ]
    )
    tiers = np.where(np.arange(seconds.size) % 10, "iw_fast", "niw").tolist()
    inputs, outputs = (rng.integers(low, high, seconds.size) for low, high in ((600, 1400), (50, 350)))
    land(own, seconds, llm=LLM, tier=tiers, input_tokens=inputs, output_tokens=outputs)
    return own


def rent(settings: RunSettings, *caps: str, way: str = "any", **targets: float) -> rent_query.RentQuery:
    slos = targets.get("ttft_slo_s"), targets.get("tpot_slo_s")
    return rent_query.build_rent_query(settings, DAY, LLM, f"{H100},{A100}", caps, way, *slos, Progress())


def priced(settings: RunSettings, folder: Path, **usd: float) -> RunSettings:
    """With H100 and A100 at these prices."""
    (folder / "p.toml").write_text(f"{H100} = {usd['h100']}\n{A100} = {usd['a100']}\n")
    catalogue, _ = price_as_given(settings.catalogue, (H100, A100), None, folder / "p.toml")
    return dataclasses.replace(settings, catalogue=catalogue)


def test_the_fleet_of_a_coming_day_is_found_replayed_and_reported(
    settings: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rent_fleets, "MAX_COMBOS", 4)
    own = priced(settings, tmp_path, h100=3.0, a100=1.25)
    found = rent_answer.answer_rent_query(own, DAY, rent(own, tpot_slo_s=0.05), Progress())
    load = found.setting.load
    _, quantile = read_forecast_windows(own, DAY, "seasonal_naive_day", "day_ahead_forecasts")
    assert found.setting.per_s == pytest.approx(quantile[:, 1].sum(axis=1).max() / load.input_tokens)
    assert set(found.fleets) == {"one_type", "mixed_types", "combos"}
    assert found.bound == saving_bound(found.prices, load)
    assert found.bound.saving_share > 0.02  # at 2.4 times the price an H100 is worth it for prompts alone
    assert {turn.gpu for turn in found.turns} == {H100, A100}
    low, high = next(turn for turn in found.turns if turn.gpu == H100).between
    assert low < 3.0 < high
    for kind, fleet in found.fleets.items():
        assert fleet.met.attainment_share >= 0.95, kind
        assert fleet.met.served_per_s == pytest.approx(found.setting.per_s, rel=0.03)
        assert fleet.usd_per_hour == pytest.approx(
            3.0 * fleet.gpus.get(H100, 0) + 1.25 * fleet.gpus.get(A100, 0)
        )
        tokens = load.input_tokens + load.output_tokens
        assert fleet.met.tokens_per_usd * fleet.usd_per_hour == pytest.approx(
            3600 * found.setting.per_s * tokens, rel=0.05
        )
    assert len(found.fleets["one_type"].gpus) == 1
    assert not found.fleets["mixed_types"].is_disaggregated
    best = found.fleets[found.best]
    assert best.usd_per_hour == min(fleet.usd_per_hour for fleet in found.fleets.values())
    assert describe_rent_answer(found).startswith(
        f"Rent {next(iter(best.gpus.values()))} {next(iter(best.gpus))}"
    )
    assert "Disaggregation saves at most" in describe_saving_bound(found)
    rent_answer.write_rent_tables(own, DAY, found)
    own.lake.publish()
    where = {"trace": "mine", "day": DAY}
    assert {row["fleet"] for row in own.lake.sql("queries/which_gpus.sql", **where).to_pylist()} == set(
        found.fleets
    )
    [row] = own.lake.sql("queries/apart_or_together.sql", **where).to_pylist()
    assert row["prefill_gpu"] == found.bound.prefill.gpu
    assert own.lake.sql("from phase_prices where is_cheapest_together")["gpu"].to_pylist() == [
        found.bound.together.gpu
    ]
    assert draw_phase_prices(own, DAY, LLM).stat().st_size > 10_000


def test_without_a_fleet_that_attains_none_is_recommended(
    settings: RunSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where the bursts of the hour miss the target on every fleet: the mixed one less."""
    monkeypatch.setattr(rent_fleets, "combo_goodput", lambda setting, combo: 0.9 * combo.per_s(setting.load))
    found = rent_answer.answer_rent_query(settings, DAY, rent(settings, way="together"), Progress())
    assert found.is_on_target
    missed = {
        kind: fleet._replace(met=fleet.met._replace(attainment_share=share), usd_per_hour=usd)
        for (kind, fleet), share, usd in zip(found.fleets.items(), (0.8, 0.9), (1.0, 9.0), strict=True)
    }
    found = found._replace(fleets=missed)
    assert (found.is_on_target, found.best) == (False, "mixed_types")
    answer = describe_rent_answer(found)
    assert answer.startswith("No fleet here attains the target of 95 %. Closest comes ")
    assert answer.endswith(", colocated, with 90.0 %.")
    assert "save" not in answer
    show_fleets(found)
    assert capsys.readouterr().out.count("(misses)") == 2
    assert not any(rent_answer.fleet_table(found)["is_best"].to_pylist())


def test_caps_hold_and_a_shortage_is_reported(settings: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rent_fleets, "combo_goodput", lambda setting, combo: 0.9 * combo.per_s(setting.load))
    free = rent_answer.answer_rent_query(settings, DAY, rent(settings, way="together"), Progress())
    assert free.short == ""
    assert set(free.fleets) == {"one_type", "mixed_types"}
    cheap = next(iter(free.fleets["one_type"].gpus))
    held = rent_answer.answer_rent_query(
        settings, DAY, rent(settings, f"{cheap}=0", way="together"), Progress()
    )
    assert cheap not in held.fleets["mixed_types"].gpus
    assert held.fleets["one_type"].usd_per_hour > free.fleets["one_type"].usd_per_hour
    nothing = rent(settings, f"{H100}=0", f"{A100}=0")
    with pytest.raises(
        ValueError, match=r"0 h100-80gb.* are short: llama3.1-8b of [\d.]+ of [\d.]+ requests/s"
    ):
        rent_answer.answer_rent_query(settings, DAY, nothing, Progress())
    apart = rent_answer.answer_rent_query(settings, DAY, rent(settings, way="apart"), Progress())
    assert set(apart.fleets) == {"combos"}
    assert apart.fleets["combos"].is_disaggregated


def test_a_fleet_by_bucket_serves_the_plan_of_each_gpu_type(
    settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Buckets follow from prompts and from the app's answers on the day before."""
    for module in (rent_buckets, rent_fleets):
        monkeypatch.setattr(module, "combo_goodput", lambda setting, combo: 0.9 * combo.per_s(setting.load))
    edges = rent_buckets.parse_bucket_edges("1000/100")
    found = rent_answer.answer_rent_query(
        settings, DAY, rent(settings, way="together")._replace(edges=edges), Progress()
    )
    by_bucket, mixed = found.fleets["by_bucket"], found.fleets["mixed_types"]
    assert by_bucket.met.attainment_share >= 0.95
    assert by_bucket.usd_per_hour <= 1.1 * mixed.usd_per_hour
    assert not by_bucket.is_disaggregated
    hour = busiest_hour(settings, DAY, LLM, 5_000.0)
    where = f"trace = 'mine' and day = '{DAY - timedelta(days=2)}' and tier = 'iw_fast'"
    [row] = settings.lake.sql(f"select avg(output_tokens) as mean from requests where {where}").to_pylist()
    np.testing.assert_allclose(hour.expected_tokens, row["mean"])
    bucket, titles = rent_buckets.assign_buckets(hour, edges)
    assert titles == ["up to 999 in, 100 and more out", "1000 and more in, 100 and more out"]
    np.testing.assert_array_equal(bucket, hour.trace.input_tokens >= 1000)
    _, titles = rent_buckets.assign_buckets(hour, rent_buckets.parse_bucket_edges("610/"))
    assert titles == ["610 and more in, any out"], "a hundred requests are no bucket"
    assert found.rare == (
        "Buckets with fewer than 200 requests in that hour go with the next one: "
        "up to 999 in, up to 99 out; 1000 and more in, up to 99 out."
    )
    assert rent_buckets.describe_rare_buckets(hour, rent_buckets.parse_bucket_edges("1000/")) == ""
    world, crowd = found.setting, busiest_hour(settings, DAY, LLM, 200_000.0)
    pools = [rent_fleets.team_pools(world, mixed.held[0][0], count)[0] for count in (40, 1)]
    for place, low, high in ((0, 0.95, 1.0), (1, 0.0, 0.2)):
        place_of = np.full(bucket.size, place)
        met = replay_hour(world.catalogue, world.config, world.tier, pools, crowd, place_of)
        assert low <= met.attainment_share <= high, "each pool takes its own requests, and nothing else"
    for text, message in (
        ("512", "it must be INPUTS/OUTPUTS in tokens"),
        ("5,x/3", "it must be"),
        ("9,5/3", "input: got 9, 5"),
    ):
        with pytest.raises(PlanError, match=message):
            rent_buckets.parse_bucket_edges(text)


def test_next_to_no_load_is_nothing_to_rent_for(settings: RunSettings) -> None:
    """Its busiest hour would be replayed for years."""
    with pytest.raises(ValueError, match="Less than one interactive request"):
        rent_answer.answer_rent_query(settings, DAY, rent(settings), Progress(), 1e-6)


def test_the_busiest_hour_has_the_rate_of_the_peak(settings: RunSettings) -> None:
    hour = busiest_hour(settings, DAY, LLM, 5_000.0)
    assert hour.day == date(2025, 7, 3)
    tokens = float(hour.trace.input_tokens.sum())
    assert tokens / hour.until_s == pytest.approx(5_000.0)
    assert hour.trace.arrival_s.size == pytest.approx(0.9 * 60 * PER_MINUTE, rel=0.02)  # niw is held back
    assert 0 <= hour.trace.arrival_s[0] < hour.trace.arrival_s[-1] < hour.until_s
    assert hour.trace.input_tokens.flags.writeable


def test_bad_input_is_one_line(settings: RunSettings, tmp_path: Path) -> None:
    for text, message in (
        (f"{H100} = -1\n{A100} = 2", r"p.toml \[p\] on_demand.h100-80gb: got -1.0, needed a number above 0"),
        (f"{H100} = 0\n{A100} = 2", r"p.toml \[p\] on_demand.h100-80gb: got 0.0, needed a number above 0"),
        (f'{H100} = "3"\n{A100} = 2', r"p.toml \[p\] on_demand.h100-80gb: got '3', needed float"),
        (f"{H100} = 3", "p.toml has no price of a100-80gb from p. Leave that type out"),
        ("h10 = 3", r"p.toml \[p\] on_demand: unknown gpu 'h10'"),
        ("", "p.toml has no price. Write USD per GPU-hour by type"),
    ):
        (tmp_path / "p.toml").write_text(text)
        with pytest.raises(ConfigError, match=message):
            price_as_given(settings.catalogue, (H100, A100), None, tmp_path / "p.toml")
    with pytest.raises(ConfigError, match="--cap a100-80gb: it must be TYPE=COUNT"):
        rent(settings, "a100-80gb")
    with pytest.raises(ConfigError, match="--cap l40s-48gb=4: l40s-48gb is not compared"):
        rent(settings, "l40s-48gb=4")
    unknown = rent(settings)._replace(gpus=("h100",))
    with pytest.raises(ConfigError, match="unknown gpu 'h100'"):
        rent_query.build_rent_scenario(settings, DAY, unknown)
    with pytest.raises(
        ValueError, match="Less than one interactive request of llama2-70b an hour is forecast on 2025-07-04"
    ):
        rent_query.build_rent_scenario(settings, DAY, rent(settings)._replace(llm="llama2-70b"))
    with pytest.raises(ConfigError, match="unknown llm 'qwen3-8b'"):
        rent_query.build_rent_scenario(settings, DAY, rent(settings)._replace(llm="qwen3-8b"))
    slow = rent_query.build_rent_scenario(settings, DAY, rent(settings, tpot_slo_s=0.001))
    with pytest.raises(
        ConfigError, match=r"No instance .* holds llama3.1-8b \(15 GiB of weights\): 1, 2, 4, 8 x h100"
    ):
        rent_query.deployment_prices(slow)
    late = rent(settings, ttft_slo_s=0.001)
    with pytest.raises(ValueError, match=r"meets the targets of iw_fast \(first token in 0.001 s\)"):
        rent_answer.answer_rent_query(settings, DAY, late._replace(gpus=(H100,), way="together"), Progress())
    both = CliRunner().invoke(cli_app, ["gpus", "--apart", "--together"])
    assert both.exit_code == 2
    assert "one or the other" in both.output
    ways = [parse_phases(*given) for given in ((False, False), (True, False), (False, True))]
    assert ways == ["any", "apart", "together"]


def test_a_gpu_without_a_price_and_an_llm_without_room_are_one_line(settings: RunSettings) -> None:
    def with_gpus(**changed: float) -> RunSettings:
        gpus = {name: dataclasses.replace(gpu, **changed) for name, gpu in settings.catalogue.gpus.items()}
        return dataclasses.replace(settings, catalogue=dataclasses.replace(settings.catalogue, gpus=gpus))

    with pytest.raises(ConfigError, match=r"h100-80gb has no price above 0. Give one: --prices FILE"):
        rent_query.build_rent_scenario(with_gpus(usd_per_hour=0.0), DAY, rent(settings))
    small = rent_query.build_rent_scenario(with_gpus(memory_gib=1.0), DAY, rent(settings))
    with pytest.raises(
        ConfigError, match=r"No instance .* \(15 GiB of weights\): 1, 2, 4, 8 x h100-80gb too small; 1"
    ):
        rent_query.deployment_prices(small)


def test_types_by_default_have_a_price_and_timed_kernels() -> None:
    """A provider may offer only some: the others have no price then."""
    catalogue = load_catalogue()
    gpus = dict(catalogue.gpus)
    assert {"h100-80gb", "l40s-48gb"} <= set(rent_query.timed_gpus(catalogue)) < set(gpus)
    gpus["l40s-48gb"] = dataclasses.replace(gpus["l40s-48gb"], usd_per_hour=0.0)
    assert "l40s-48gb" not in rent_query.timed_gpus(dataclasses.replace(catalogue, gpus=gpus))
