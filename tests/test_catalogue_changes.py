"""A config's own [catalogue]: it reaches the fleet, it is layered key by key, and mistakes are one line."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from fleetcast.assets.lake.settings import load_settings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.replays.policy_inputs import fleet_and_rules
from fleetcast.models.traffic.synthetic_days import office_day
from fleetcast.models.traffic.trace_columns import TraceNames
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.toml_dataclasses import ConfigError

WORLD = load_catalogue().of_era("2023", "here")
DEPLOYED = """[fleet.deployments]
"bloom-176b" = { gpu = "h100-80gb", tensor_parallel = 8 }
"llama3.1-8b" = { gpu = "h100-80gb", tensor_parallel = 1 }
"llama3.2-3b" = { gpu = "h100-80gb", tensor_parallel = 1 }
"""
EAST, BULK = "[catalogue.regions.east]\n", "[catalogue.tiers.bulk]\n"
NO_TRAFFIC = """
by_weekday = [1, 1, 1, 1, 1, 1, 1]
by_hour = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
growth_per_week = 0.0
daily_noise_share = 0.0
minute_noise_share = 0.0
minute_noise_minutes = 1.0
bulk_share = 0.0
jobs_per_day = 0.0
job_minutes = 1
input_factor = 1.0
mix = { "bloom-176b" = { east = 1.0 } }
"""
NEW_GPU = "memory_gib = 96\npeak_tflops = 900\nbandwidth_tb_per_s = 4\nusd_per_hour = 3\nsource = 'x'\n"


def as_file(folder: Path, text: str, name: str = "mine", base: str = "sageserve") -> str:
    path = folder / f"{name}.toml"
    path.write_text(f'based_on = "{base}"\n{text}')
    return str(path)


def test_only_the_changes_of_a_config_reach_the_fleet(tmp_path: Path) -> None:
    text = """
    [catalogue.regions.west]
    cap_gpus = { h100-80gb = 250 }
    weights = ["bloom-176b"]
    network_s = { east = 0.2, central = 0.05 }
    [catalogue.tiers.iw_normal]
    ttft_slo_s = 5.0
    [catalogue.llms.llama2-70b]
    kv_heads = 64
    """
    lake = tmp_path / "lake"
    plain = load_settings("sageserve", lake)
    mine = load_settings(as_file(tmp_path, text), lake)
    before, after = (fleet_and_rules(settings, "reactive") for settings in (plain, mine))
    west, llama = list(plain.catalogue.regions).index("west"), list(plain.catalogue.llms).index("llama2-70b")
    assert after[0].cap_gpus[west].tolist() != before[0].cap_gpus[west].tolist()
    assert after[0].network_s[west].tolist() == [0.2, 0.05, 0.0]
    far = (after[0].region == west) & (after[0].llm != list(plain.catalogue.llms).index("bloom-176b"))
    assert np.array_equal(after[0].boot_cold_s == 7200.0, far)
    assert after[0].kv_capacity[llama] < before[0].kv_capacity[llama] / 7
    assert after[1].allowance_s.tolist() == [1.0, 5.0, 86400.0]
    assert mine.catalogue.regions["east"] == plain.catalogue.regions["east"]
    assert mine.catalogue.tiers["iw_normal"].deadline_s == plain.catalogue.tiers["iw_normal"].deadline_s


def test_changes_of_a_config_override_those_of_its_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleetcast.models.world import config_loading

    below = as_file(tmp_path, "[catalogue.tiers.iw_fast]\nttft_slo_s = 2.0\ndeadline_s = 50.0\n", "below")
    for name in ("office.toml", "sageserve.toml"):
        (tmp_path / name).write_bytes((config_loading.CONFIG_DIR / name).read_bytes())
    above = "[catalogue.tiers.iw_fast]\nttft_slo_s = 3.0\n[catalogue.gpus.h100-80gb]\nusd_per_hour = 1.0\n"
    tables = config_loading.read_tables(Path(as_file(tmp_path, above, "above", Path(below).stem)), tmp_path)
    config = config_loading.build_config(tables, tmp_path / "above.toml", WORLD)
    assert config.catalogue == {
        "latency_era": "2023",
        "tiers": {"iw_fast": {"ttft_slo_s": 3.0, "deadline_s": 50.0}},
        "gpus": {"h100-80gb": {"usd_per_hour": 1.0}},
    }


def test_a_gpu_with_every_key_is_new(tmp_path: Path) -> None:
    mine = load_settings(as_file(tmp_path, f"[catalogue.gpus.mi300x]\n{NEW_GPU}"), Lake(tmp_path).root)
    assert mine.catalogue.gpus["mi300x"].memory_gib == 96.0


@pytest.mark.parametrize("traffic", ["", "[trace]\nname = 't'\n[trace.office.tiers.bulk]\nshare = 0.0\n"])
def test_a_tier_with_every_key_is_new_and_needs_no_traffic(tmp_path: Path, traffic: str) -> None:
    if traffic:
        traffic += NO_TRAFFIC
    tier = BULK + "deadline_s = 1\nattainment_target_share = 1\nsource = 'x'\n"
    mine = load_settings(as_file(tmp_path, tier + traffic), Lake(tmp_path).root)
    plain = load_settings("sageserve", Lake(tmp_path).root)
    names = [TraceNames.of(settings.catalogue) for settings in (mine, plain)]
    assert names[0].tiers == (*names[1].tiers, "bulk")
    day = plain.config.trace.first_day
    with_bulk, without = (
        office_day(dataclasses.replace(settings.config.trace.office, requests_per_day=9_000), day, 7, each)
        for settings, each in zip((mine, plain), names, strict=True)
    )
    for column, same in zip(with_bulk, without, strict=True):
        assert np.array_equal(column, same)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[catalogue]\nregion = {}\n", r"\[catalogue\]: unknown table 'region'\. Did you mean 'regions'\?"),
        ("catalogue = 3\n", r"mine\.toml catalogue: got 3"),
        ("[catalogue]\nregions = 3\n", r"\[catalogue\.regions\]: got 3, needed a table"),
        ("[catalogue.regions]\neast = 3\n", r"\[catalogue\.regions\.east\]: got 3, needed a table"),
        ("[catalogue.regions.eats]\nweights = []\n", r"unknown region 'eats'\. Did you mean 'east'\?"),
        (EAST + "caps = {}\n", r"\[catalogue\.regions\.east\]: unknown key 'caps'"),
        (EAST + "cap_gpus = {h100 = 1}\n", r"unknown gpu 'h100'\. Did you mean 'h100-80gb'"),
        (EAST + "cap_gpus = {h100-80gb = -1}\n", r"cap_gpus\.h100-80gb: got -1, needed"),
        (EAST + 'weights = ["bloom"]\n', r"catalogue\.regions\.east\]: unknown llm 'bloom'"),
        (EAST + 'preference = ["wets"]\n', r"unknown region 'wets'\. Did you mean 'west'"),
        (EAST + "network_s = {wets = 1}\n", r"east\]: unknown region 'wets'"),
        (EAST + "cap_gpus = {h100-80gb = 100}\n", r"240 h100-80gb in east, whose cap_gpus is 100"),
        (DEPLOYED + '"llama2-70b" = { gpu = "a100-80gb", tensor_parallel = 2, regions = ["east"] }\n',
         r"llama2-70b is on a100-80gb in east, which has none: its cap_gpus has h100-80gb"),
        (EAST + "cap_gpus = {}\n" + DEPLOYED
         + '"llama2-70b" = { gpu = "h100-80gb", tensor_parallel = 2, regions = ["east"] }\n',
         r"llama2-70b is on h100-80gb in east, which has none: its cap_gpus has no GPU of any type "),
        ("[catalogue.tiers.iw_fast]\nttft_slo_s = 0\n", r"iw_fast\] ttft_slo_s: got 0\.0, needed a number"),
        (BULK + "deadline_s = 1\n", r"unknown tier 'bulk'\. .* needs all its keys"),
        ("[trace]\nname = 't'\n[trace.office.tiers.iw_fats]\nshare = 0.7\n",
         r"\[trace\.office\.tiers\]: unknown tier 'iw_fats'\. Did you mean 'iw_fast'"),
        ("[catalogue.tiers.all]\ndeadline_s = 1\nattainment_target_share = 1\nsource = 'x'\n",
         r"\[catalogue\.tiers\]: got the tier 'all', needed letters"),
        ("[catalogue.gpus.b300]\nmemory_gib = 288.0\n", r"'b300'\. .* peak_tflops, bandwidth_tb"),
        ("[catalogue.llms.llama2-70b]\nexperts = 8\n", r"a mixture of experts needs active_parameters_b"),
        ("[catalogue.llms.llama2-70b]\nkv_heads = 8.5\n", r"llama2-70b\] kv_heads: got 8\.5, needed int"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_file_and_its_remedy(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        load_settings(as_file(tmp_path, text), tmp_path / "lake")
    assert "\n" not in str(refused.value)
    assert "mine.toml" in str(refused.value) or "llms.toml" in str(refused.value)
