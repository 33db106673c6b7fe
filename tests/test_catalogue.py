"""The catalogue and the run configuration: what ships loads, and every mistake is named with its remedy."""

import dataclasses
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from models.catalogue import CATALOGUE_DIR, TIERS, load_catalogue
from models.config import CONFIG_DIR, Deployment, load_config
from models.reading import ConfigError
from models.replay.fleet import kv_capacity_tokens, make_fleet, make_rules
from models.replay.scale import SCALINGS

CATALOGUE = load_catalogue()
OFFICE = load_config("office", CATALOGUE)
Edit = Callable[[str, str, str], None]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A copy of the shipped files that a test may spoil."""
    for folder in (CATALOGUE_DIR, CONFIG_DIR):
        shutil.copytree(folder, tmp_path / folder.name)
    return tmp_path


@pytest.fixture
def edit(data: Path) -> Edit:
    """Replace what a pattern finds in one of the copied files; it must be there."""

    def replace(file: str, pattern: str, by: str) -> None:
        path = data / file
        text, found = re.subn(pattern, by, path.read_text(), count=1, flags=re.MULTILINE)
        assert found, f"{pattern} is not in {file}"
        path.write_text(text)

    return replace


def load(data: Path) -> None:
    load_config("office", load_catalogue(data / "catalogue"), data / "config")


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFIG_DIR.glob("*.toml")))
def test_every_shipped_run_loads_and_fits_its_gpus(name: str) -> None:
    config = load_config(name, CATALOGUE)
    fleet = make_fleet(CATALOGUE, config.fleet, config.replay, seed=0)
    assert (fleet.kv_capacity > 0).all()
    for policy_scaling in SCALINGS:
        make_rules(CATALOGUE, config.replay, policy_scaling)


def test_codes_in_arrays_are_positions_in_the_files() -> None:
    assert tuple(CATALOGUE.tiers) == TIERS
    fleet = make_fleet(CATALOGUE, OFFICE.fleet, OFFICE.replay, seed=0)
    for code, llm in enumerate(CATALOGUE.llms):
        assert fleet.kv_capacity[code] == kv_capacity_tokens(CATALOGUE, OFFICE.fleet, llm)
        assert fleet.gpus[code] == OFFICE.fleet.deployments[llm].tensor_parallel


def test_every_figure_of_the_catalogue_names_its_source() -> None:
    parts = (CATALOGUE.gpus, CATALOGUE.llms, CATALOGUE.regions, CATALOGUE.tiers)
    assert all(entry.source for part in parts for entry in part.values())
    assert all(profile.source for profile in CATALOGUE.latency)


@pytest.mark.parametrize(
    ("file", "pattern", "by", "message"),
    [
        # unknown names, with the nearest known one
        (
            "config/office.toml",
            "^bucket_minutes = 15",
            "bucket_minutes = 45",
            r"must divide an hour",
        ),
        ("config/office.toml", "^history_days = 14", "history_days = 0", r"history_days must be at least 1"),
        (
            "config/office.toml",
            '"last_value",',
            '"lst_value",',
            r"method 'lst_value'.*'last_value'",
        ),
        ("config/office.toml", '"static",', '"statik",', r"unknown policy 'statik'.*'static'"),
        (
            "config/office.toml",
            "^scale_in_share = 0.30",
            "scale_in_share = 3.0",
            r"< scale_out_share",
        ),
        ("config/office.toml", "^epsilon =", "epsilom =", r"office\.toml.*unknown key 'epsilom'.*'epsilon'"),
        ("config/office.toml", r"^\[plan\]", "[plann]", r"unknown key 'plann'\. Did you mean 'plan'\?"),
        (
            "config/office.toml",
            "^bloom-176b = { gpu",
            "bloom-167b = { gpu",
            r"office\.toml \[fleet\.deployments\]: unknown llm 'bloom-167b'\. Did you mean 'bloom-176b'\?",
        ),
        (
            "config/office.toml",
            'gpu = "h100-80gb", tensor_parallel = 2',
            'gpu = "h200", tensor_parallel = 2',
            r"no profile of llama2-70b on 2 x h200; of this llm it has 2 x a100.*fleetcast calibrate",
        ),
        ("catalogue/gpus.toml", "^usd_per_hour", "eur_per_hour", r"gpus\.toml \[h100-80gb\]: unknown key"),
        (
            "catalogue/regions.toml",
            r'^preference = \["east"',
            'preference = ["easst"',
            r"regions\.toml \[east\]: unknown region 'easst'\. Did you mean 'east'\?",
        ),
        (
            "catalogue/regions.toml",
            "h100-80gb = 240",
            "z9 = 240",
            r"regions\.toml \[east\]: unknown gpu 'z9'\. Known: h100-80gb, a100-80gb",
        ),
        ("catalogue/tiers.toml", r"^\[niw\]", "[niv]", r"tiers\.toml: unknown tier 'niv'\. .*'niw'"),
        # missing
        (
            "config/office.toml",
            "^epsilon = .*$",
            "",
            r"office\.toml plan: the key 'epsilon' is missing\. Add",
        ),
        (
            "catalogue/llms.toml",
            "^layers = .*$",
            "",
            r"llms\.toml \[bloom-176b\]: the key 'layers' is missing",
        ),
        (
            "catalogue/latency.toml",
            "^gpu = .*$",
            "",
            r"latency\.toml \[\[profile\]\] 1: the key 'gpu' is miss",
        ),
        # of the wrong type
        ("config/office.toml", "^days = 15", 'days = "15"', r"trace days: got '15', needed int"),
        ("config/office.toml", "^days = 15", "days = true", r"trace days: got True, needed int"),
        ("config/office.toml", "^epsilon = .*$", "epsilon = [1]", r"plan epsilon: got \[1\], needed float"),
        ("config/office.toml", "^methods = .*$", "methods = [3]", r"forecast methods: got 3, needed str"),
        ("config/office.toml", "^first_day = .*$", "first_day = 7", r"first_day: got 7, needed date"),
        ("catalogue/gpus.toml", r"\A", "t4 = 16\n", r"gpus\.toml \[t4\]: got 16, needed a table of Gpu"),
        # not TOML
        ("config/office.toml", r"^\[plan\]", "[plan", r"office\.toml is not valid TOML: .*Mend that line"),
        ("catalogue/gpus.toml", "^memory_gib = .*$", "memory_gib = ", r"gpus\.toml is not valid TOML"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_its_remedy(
    data: Path, edit: Edit, file: str, pattern: str, by: str, message: str
) -> None:
    edit(file, pattern, by)
    with pytest.raises(ConfigError, match=message) as refused:
        load(data)
    assert "\n" not in str(refused.value)


def test_a_whole_number_stands_for_a_float_and_an_optional_key_may_be_absent(data: Path, edit: Edit) -> None:
    edit("config/office.toml", "^epsilon = .*$", "epsilon = 1")
    config = load_config("office", CATALOGUE, data / "config")
    assert isinstance(config.plan.epsilon, float)
    assert config.trace.tiled is None
    assert CATALOGUE.tiers["niw"].ttft_slo_s is None


def test_bytes_that_are_no_text_are_not_toml(data: Path) -> None:
    (data / "config" / "office.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"office\.toml is not valid TOML"):
        load(data)


def test_a_config_may_be_based_on_another(tmp_path):
    older, newer = load_config("office_2024", CATALOGUE), load_config("office", CATALOGUE)
    assert (older.fleet, older.forecast, older.plan, older.replay) == (
        (newer.fleet, newer.forecast, newer.plan, newer.replay)
    )
    path = tmp_path / "mine.toml"
    path.write_text('based_on = "office"\n[trace]\nname = "t"\nfirst_day = 2025-07-01\ndays = 3\nseed = 1\n')
    mine = load_config(str(path), CATALOGUE)
    assert mine.trace.office is None
    assert mine.fleet == newer.fleet
    path.write_text('based_on = "ofice"\n')
    with pytest.raises(ConfigError, match="There is no file ofice"):
        load_config(str(path), CATALOGUE)


def test_an_unknown_config_names_those_that_exist() -> None:
    with pytest.raises(
        ConfigError, match=r"no file ofice\.toml in .*config; there is: azure, office, office_2024\."
    ):
        load_config("ofice", CATALOGUE)


def test_a_config_is_found_by_path_too(data: Path) -> None:
    mine = data / "mine.toml"
    shutil.copy(data / "config" / "office.toml", mine)
    assert load_config(str(mine), CATALOGUE) == dataclasses.replace(OFFICE, name="mine.toml")


def test_an_llm_that_does_not_fit_its_gpus_is_refused() -> None:
    tight = dataclasses.replace(OFFICE.fleet, kv_memory_share=0.5)
    message = r"bloom-176b: weights take 328 GiB, 8 x h100-80gb offer 320 GiB\. Raise tensor_parallel"
    with pytest.raises(ConfigError, match=message):
        make_fleet(CATALOGUE, tight, OFFICE.replay, seed=0)


def test_an_llm_without_a_deployment_is_refused() -> None:
    deployments = {"llama2-70b": Deployment("h100-80gb", 2)}
    with pytest.raises(ConfigError, match=r"no entry for bloom-176b, llama3\.1-8b, llama3\.2-3b.*Add a gpu"):
        make_fleet(CATALOGUE, dataclasses.replace(OFFICE.fleet, deployments=deployments), OFFICE.replay, 0)


@pytest.mark.parametrize(
    ("table", "key", "value", "message"),
    [
        ("fleet", "batching", "chunky", r"\[fleet\] batching: unknown batching 'chunky'.*'chunked'"),
        ("replay", "order", "edd", r"\[replay\] order: unknown queue order 'edd'.*'edf'"),
        ("replay", "routing", "random", r"\[replay\] routing: unknown routing 'random'"),
    ],
)
def test_an_unknown_mechanism_is_refused(table: str, key: str, value: str, message: str) -> None:
    spoilt = {table: dataclasses.replace(getattr(OFFICE, table), **{key: value})}
    config = dataclasses.replace(OFFICE, **spoilt)

    def lay_out() -> None:
        make_fleet(CATALOGUE, config.fleet, config.replay, seed=0)
        make_rules(CATALOGUE, config.replay, "follow")

    with pytest.raises(ConfigError, match=message):
        lay_out()


def test_a_cold_start_takes_longer_where_the_weights_are_not_in_the_region() -> None:
    """SageServe 7.1: 10 minutes with the weights in the region, 2 hours without."""
    names = list(CATALOGUE.regions)
    west = dataclasses.replace(CATALOGUE.regions["west"], weights=("llama2-70b",))
    catalogue = dataclasses.replace(CATALOGUE, regions={**CATALOGUE.regions, "west": west})
    boot_s = make_fleet(catalogue, OFFICE.fleet, OFFICE.replay, 0).boot_cold_s.reshape(-1, len(names))
    remote = [list(CATALOGUE.llms).index(llm) for llm in CATALOGUE.llms if llm != "llama2-70b"]
    assert set(boot_s[remote, names.index("west")]) == {7200.0}
    boot_s[remote, names.index("west")] = 600.0
    assert (boot_s == 600.0).all()


def test_reclaiming_a_spot_instance_takes_minutes_about_the_median() -> None:
    """SageServe 7.1: a minute in the median, five at most; one seed, one draw."""
    spot_s = make_fleet(CATALOGUE, OFFICE.fleet, OFFICE.replay, seed=1).boot_spot_s
    assert sorted(spot_s)[spot_s.size // 2] == pytest.approx(60.0, rel=0.05)
    assert 30.0 <= spot_s.min() < 40.0
    assert 250.0 < spot_s.max() <= 300.0
    again, other = (make_fleet(CATALOGUE, OFFICE.fleet, OFFICE.replay, n).boot_spot_s for n in (1, 2))
    assert (again == spot_s).all()
    assert (other != spot_s).any()
