"""The catalogue and the run config: the shipped files load; every mistake is named with its remedy."""

import dataclasses
import re
import shutil
from collections.abc import Callable
from datetime import date
from enum import IntEnum
from pathlib import Path

import pandas as pd
import pytest
from measurements import SPLITWISE

from fleetcast.assets.lake.settings import build_settings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.replay.session.fleet_arrays import make_fleet
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.world import mechanisms
from fleetcast.models.world.catalogue import CATALOGUE_DIR, load_catalogue
from fleetcast.models.world.config import RunConfig, TraceConfig
from fleetcast.models.world.config_loading import CONFIG_DIR, load_config
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.instance_kv_memory import kv_capacity_tokens
from fleetcast.models.world.mechanisms import SCALINGS
from fleetcast.models.world.toml_dataclasses import ConfigError, ConfigWarning

CATALOGUE = load_catalogue()
OFFICE = load_config("office", CATALOGUE)
SERVING = build_settings(Lake(), CATALOGUE, OFFICE).catalogue
Edit = Callable[[str, str, str], None]
LEVELS = "20\n[replay.levels]\n"  # behind the last key of [replay]
SHARES = LEVELS + 'count = 3\nby = "shares"\n'


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A copy of the shipped files that a test may change."""
    for folder in (CATALOGUE_DIR, CONFIG_DIR):
        shutil.copytree(folder, tmp_path / folder.name)
    return tmp_path


@pytest.fixture
def edit(data: Path) -> Edit:
    """Replace the match of a pattern in one of the copied files; it must exist."""

    def replace(file: str, pattern: str, by: str) -> None:
        path = data / file
        text, found = re.subn(pattern, by, path.read_text(), count=1, flags=re.MULTILINE)
        assert found, f"{pattern} is not in {file}"
        path.write_text(text)

    return replace


def load(data: Path) -> None:
    load_config("office", load_catalogue(data / "catalogue"), data / "config")


def test_a_catalogue_is_read_again_when_a_figure_of_it_has_changed(data: Path, edit: Edit) -> None:
    """Also where the file keeps its length."""
    first = load_catalogue(data / "catalogue")
    assert load_catalogue(data / "catalogue") is first
    edit("catalogue/gpus.toml", r"^memory_gib = 80\.0", "memory_gib = 96.0")
    assert load_catalogue(data / "catalogue").gpus["h100-80gb"].memory_gib == 96.0


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFIG_DIR.glob("*.toml")))
def test_every_shipped_run_loads_and_fits_its_gpus(name: str) -> None:
    config = load_config(name, CATALOGUE)
    world = build_settings(Lake(), CATALOGUE, config).catalogue
    fleet = make_fleet(world, config.fleet, config.replay, seed=0)
    assert (fleet.kv_capacity > 0).all()
    for policy_scaling in SCALINGS:
        make_rules(CATALOGUE, config.replay, policy_scaling)


def test_codes_in_arrays_are_positions_in_the_files() -> None:
    assert tuple(CATALOGUE.tiers) == ("iw_fast", "iw_normal", "niw")
    assert CATALOGUE.interactive_tiers == ("iw_fast", "iw_normal")
    config = load_config("sageserve", CATALOGUE)
    world = build_settings(Lake(), CATALOGUE, config).catalogue
    fleet = make_fleet(world, config.fleet, config.replay, seed=0)
    for code, llm in enumerate(world.llms):
        (deployed,) = config.fleet.deployments[llm]
        capacity = kv_capacity_tokens(CATALOGUE, config.fleet, llm, deployed.gpu, deployed.tensor_parallel)
        assert (fleet.kv_capacity[code], fleet.gpus[code]) == (capacity, deployed.tensor_parallel)


def test_every_figure_of_the_catalogue_names_its_source() -> None:
    parts = (CATALOGUE.gpus, CATALOGUE.llms, CATALOGUE.regions, CATALOGUE.tiers)
    assert all(entry.source for part in parts for entry in part.values())
    assert all(profile.source for profile in (*CATALOGUE.latency, *CATALOGUE.past_latency))


@pytest.mark.parametrize(
    ("file", "pattern", "by", "message"),
    [
        # unknown names, with the nearest known one
        ("config/office.toml", '"last_value",', '"lst_value",', r"method 'lst_value'.*'last_value'"),
        ("config/office.toml", '"static",', '"statik",', r"unknown policy 'statik'.*'static'"),
        ("config/office.toml", "^epsilon =", "epsilom =", r"office\.toml.*unknown key 'epsilom'.*'epsilon'"),
        ("config/office.toml", r"^\[plan\]", "[plann]", r"unknown key 'plann'\. Did you mean 'plan'\?"),
        (
            "config/office.toml",
            r'^"llama3.1-8b" = \[',
            '"llama3.1-9b" = [',
            r"office\.toml \[fleet\.deployments\]: unknown llm 'llama3.1-9b'\. Did you mean 'llama3.1-8b'\?",
        ),
        (
            "config/office.toml",
            'gpu = "h100-80gb", tensor_parallel = 4',
            'gpu = "h200", tensor_parallel = 4',
            r"llama3.1-70b: unknown gpu 'h200'. Known: h100-80gb",
        ),
        (
            "catalogue/gpus.toml",
            "^usd_per_hour = .*$",
            "usd_per_hour = -1",
            r"got -1\.0, needed a number from 0",
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
        # tiers: a name that tables use for several, one that no folder can have, none that a plan covers
        ("catalogue/tiers.toml", r"^\[niw\]", "[niv]", r"tiers\]: unknown tier 'niw'\. Did you mean 'niv'"),
        (
            "catalogue/tiers.toml",
            r"^\[niw\]",
            "[interactive]",
            r"tiers\.toml: got the tier 'interactive', needed",
        ),
        ("catalogue/tiers.toml", r"^\[niw\]", "['n/w']", r"tiers\.toml: got the tier 'n/w', needed letters"),
        (
            "catalogue/tiers.toml",
            r"(?s)\[iw_fast\].*?\[niw\]",
            "[niw]",
            r"tiers\.toml: of niw none is interactive .* a ttft_slo_s or a tpot_slo_s",
        ),
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
            "catalogue/latency_2023.toml",
            "^gpu = .*$",
            "",
            r"latency_2023\.toml \[\[profile\]\] 1: the key 'gpu' is miss",
        ),
        # of the wrong type
        ("config/office.toml", "^days = 15", 'days = "15"', r"trace days: got '15', needed int"),
        ("config/office.toml", "^days = 15", "days = true", r"trace days: got True, needed int"),
        ("config/office.toml", "^epsilon = .*$", "epsilon = [1]", r"plan epsilon: got \[1\], needed float"),
        ("config/office.toml", "^methods = .*$", "methods = [3]", r"forecast methods: got 3, needed str"),
        ("config/office.toml", "^first_day = .*$", "first_day = 7", r"first_day: got 7, needed date"),
        ("catalogue/gpus.toml", r"\A", "t4 = 16\n", r"gpus\.toml \[t4\]: got 16, needed a table of Gpu"),
        # not TOML
        ("config/office.toml", r"^\[plan\]", "[plan", r"office\.toml is not valid TOML: .*Correct that line"),
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


def test_an_integer_is_read_as_a_float_and_optional_keys_may_be_absent(data: Path, edit: Edit) -> None:
    edit("config/office.toml", "^epsilon = .*$", "epsilon = 1")
    config = load_config("office", CATALOGUE, data / "config")
    assert isinstance(config.plan.epsilon, float)
    assert config.trace.tiled is None
    assert CATALOGUE.tiers["niw"].ttft_slo_s is None


def test_bytes_that_are_no_text_are_not_toml(data: Path) -> None:
    (data / "config" / "office.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"office\.toml is not valid TOML"):
        load(data)


def test_a_config_based_on_another_holds_only_differences(tmp_path: Path) -> None:
    older, base = load_config("sageserve_2024", CATALOGUE), load_config("sageserve", CATALOGUE)
    assert (older.fleet, older.forecast, older.plan, older.replay) == (
        (base.fleet, base.forecast, base.plan, base.replay)
    )

    def mine(text: str) -> RunConfig:
        (tmp_path / "mine.toml").write_text(f'based_on = "office"\n{text}')
        return load_config(str(tmp_path / "mine.toml"), CATALOGUE)

    landed = mine(
        '[trace]\nname = "t"\nfirst_day = 2025-07-01\ndays = 3\nseed = 1\n[fleet]\nmax_batch = 32\n'
    )
    assert landed.trace == TraceConfig("t", date(2025, 7, 1), 3, 1)
    assert landed.fleet == dataclasses.replace(OFFICE.fleet, max_batch=32)
    made = mine('[trace]\nname = "t"\ndays = 3\n[trace.office]\ninput_sigma = 0.0\n').trace
    still = dataclasses.replace(OFFICE.trace.office, input_sigma=0.0)
    assert made == dataclasses.replace(OFFICE.trace, name="t", days=3, office=still)
    niw, fast = ("[trace.office.tiers.niw]\nshare = 0.0\n", "[trace.office.tiers.iw_fast]\nshare = 0.7\n")
    found = mine(f'[trace]\nname = "t"\n{niw}{fast}').trace.office.tiers
    for name, share in (("iw_fast", 0.7), ("iw_normal", 0.3), ("niw", 0.0)):
        assert found[name] == dataclasses.replace(OFFICE.trace.office.tiers[name], share=share)
    one = '[fleet.deployments]\n"llama3.1-8b" = { gpu = "h100-80gb", tensor_parallel = 1 }\n'
    own = mine(
        '[trace]\nname = "t"\ndays = 3\n[trace.office]\n[policies.due]\nlike = "lt_ua"\norder = "edf"\n'
    )
    assert (own.rules["due"], own.under("due").replay.order, own.replay.order) == (
        (own.rules["lt_ua"]._replace(order="edf"), "edf", "fcfs")
    )
    planner = mine(
        '[trace]\nname = "t"\ndays = 3\n[trace.office]\n[policies.dealt]\nlike = "fleetcast"\nspread = '
        '"goodput"\n'
    )
    assert planner.rules["dealt"] == planner.rules["fleetcast"]._replace(spread="goodput")
    for text, message in (
        (
            '[policies.fleetcast]\nlike = "lt_ua"\n',
            r"\[policies\.fleetcast\]: a shipped policy has this name",
        ),
        ('[policies.lt_i]\nlike = "lt_ua"\n', r"\[policies\.lt_i\]: a shipped policy has this name"),
        ('[policies.p]\nlike = "lt_uu"\n', r"policies\.p like: unknown policy 'lt_uu'\. Did you mean 'lt_u'"),
        ('[policies."a/b"]\nlike = "lt_i"\n', r"got 'a/b', needed up to 60 letters"),
        ('[policies.p]\nlike = "hpa"\nquantile = 0.9\n', "hpa has no plan with a quantile. Drop quantile"),
        ('[policies.p]\nlike = "hpa"\ncapacity_share = 0.9\n', "hpa has no plan. Drop capacity_share"),
        ('[policies.p]\nlike = "compact"\nanswers = "quality"\n', r"policy p needs \[quality\] with quality"),
        ("[trace.office]\n", "trace: the key 'name' is missing"),
        ('[trace]\nname = "t"\n', "trace: the key 'first_day' is missing"),
        (one, r"mix\]: llama3\.1-405b-fp8 is not in \[fleet\.deployments\]\. Add it there or drop it"),
        ("[fleet.deployments]\n", "must have an llm"),
        ('name = "t"\n', "unknown key 'name'"),
    ):
        with pytest.raises(ConfigError, match=message):
            mine(text)


def test_the_base_of_a_config_must_exist_and_not_be_itself(data: Path) -> None:
    for name, message in (("ofice", "There is no file ofice"), ("a", "not based on this one")):
        (data / "config" / "a.toml").write_text(f'based_on = "{name}"\n')
        with pytest.raises(ConfigError, match=message):
            load_config("a", CATALOGUE, data / "config")


def test_a_config_is_found_by_path_too(data: Path) -> None:
    mine = data / "mine.toml"
    shutil.copy(data / "config" / "office.toml", mine)
    assert load_config(str(mine), CATALOGUE) == dataclasses.replace(OFFICE, file=mine)


def test_an_llm_that_does_not_fit_its_gpus_is_refused() -> None:
    tight = dataclasses.replace(OFFICE.fleet, kv_memory_share=0.4)
    message = r"llama3\.1-70b: weights take 132 GiB, 4 x h100-80gb have 128 GiB\. Raise tensor_parallel"
    with pytest.raises(ConfigError, match=message):
        make_fleet(SERVING, tight, OFFICE.replay, seed=0)


def test_an_llm_without_a_deployment_is_refused() -> None:
    deployments = {"llama3.1-70b": (Deployment("h100-80gb", 4),)}
    with pytest.raises(
        ConfigError, match=r"no entry for llama3\.1-8b, llama3\.1-405b-fp8, gpt-oss.*Add a gpu"
    ):
        make_fleet(SERVING, dataclasses.replace(OFFICE.fleet, deployments=deployments), OFFICE.replay, 0)


def test_a_fleet_needs_a_region_with_its_gpus():
    regions = {name: dataclasses.replace(site, cap_gpus={}) for name, site in CATALOGUE.regions.items()}
    nowhere = dataclasses.replace(SERVING, regions=regions)
    with pytest.raises(ConfigError, match="No region has the GPUs of any"):
        make_fleet(nowhere, OFFICE.fleet, OFFICE.replay, seed=0)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        # names of mechanisms
        ("batching", '"chunky"', r"fleet batching: unknown batching 'chunky'.*'chunked'"),
        ("order", '"edd"', r"replay order: unknown queue order 'edd'.*'edf'"),
        ("routing", '"random"', r"replay routing: unknown routing 'random'"),
        ("solver", '"hihgs"', r"plan solver: unknown solver 'hihgs'.*'highs'"),
        ('"llama3.1-405b-fp8"', "{ east = 0.35 }\nllama-3 = {}", r"iw_fast\.mix\]: unknown llm 'llama-3'"),
        ('"llama3.1-405b-fp8"', "{ eest = 0.35 }", r"iw_fast\.mix\]: unknown region 'eest'"),
        # figures
        ("name", '".."', r"trace name: got '\.\.', needed up to 60 letters"),
        ("first_day", "2025-07-01T00:00:00", r"first_day: got datetime\.datetime.*needed date"),
        ("seed", "-1", r"trace seed: got -1, needed a number from 0 to"),
        ("min_instances", "-1", r"fleet min_instances: got -1, needed a number from 0 to 10,000"),
        ("kv_memory_share", "0.0", r"got 0\.0, needed a number above 0 and up to 1"),
        ("bucket_minutes", "45", r"got 45, needed one of 1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60"),
        ("time_limit_s", "nan", r"plan time_limit_s: got nan, needed a finite number"),
        ("by_hour", f"[{'-1.0, ' * 24}]", r"iw_fast by_hour: got -1\.0"),
        ("by_hour", f"[{'0.0, ' * 24}]", r"by_hour has nothing but 0"),
        ("rag", "{ share = {}, input_tokens = 0, output_tokens = 1 }", r"rag input_tokens: got 0\.0"),
        # figures that contradict each other
        ("scale_in_share", "0.9", r"\[replay\] needs scale_in_share < scale_out_share\. Change it"),
        ("niw_pull_two_share", "0.61", r"niw_pull_two_share <= niw_pull_one_share"),
        ("boot_spot_max_s", "59.0", r"boot_spot_s <= boot_spot_max_s"),
        ("max_prefill_tokens", "256", r"max_prefill_tokens = 256 must exceed max_batch = 256"),
        ("batching", '"orca"\nspeculative_acceptance = [0.5]', r"\[0\.5\] needs batching = \"chunked\""),
        ("min_instances", "1\nspeculative_acceptance = [0.5, 0.6]", r"rates that do not rise"),
        ("min_instances", "1\nspeculative_acceptance = [1.5]", r"speculative_acceptance.*got 1\.5"),
        (
            "max_prefill_tokens",
            "512\nspeculative_acceptance = [0.5]",
            r"= 512 must exceed max_batch = 256 times 2 tokens, of which 1 are drafts",
        ),
        ("batching", '"orca"\nwatermark = 0.01', r'watermark = 0\.01 are limits of batching = "chunked"'),
        ("min_instances", '2\nprefix = "blocks"\nprefix_block_tokens = 24', r"= 24 must be a multiple of"),
        ("instances_at_start", "41", r"instances_at_start <= max_instances"),
        ("instances_at_start", "18", r"252 h100-80gb in east, whose cap_gpus is 240"),
        ("policies", "[]", r"policies must have a policy"),
        # levels of priority and moves
        ("correction_minutes", LEVELS + "count = 11", r"levels count: got 11, needed a number from 1 to 10"),
        (
            "correction_minutes",
            LEVELS + "headroom_share = 1.2",
            r"levels headroom_share: got 1\.2, needed a number from 0 to 1",
        ),
        (
            "correction_minutes",
            LEVELS + 'by = "shares"',
            r"by = \"shares\" and shares go together\. Give both or neither",
        ),
        ("correction_minutes", SHARES + "shares = [0.5, 0.5]", r"2 shares for count = 3\. Give one a level"),
        (
            "correction_minutes",
            SHARES + "shares = [0.5, 0.3, 0.1]",
            r"the shares sum to 0\.9, needed 1\. Change one of them",
        ),
        ("instances_at_start", "20\nlink_gbit_per_s = 0.0", r"got 0\.0, needed a number above 0"),
        ("policies", '["statc"]', r"\[replay\] policies: unknown policy 'statc'. Did you mean 'static'"),
        ("policies", '["hpa", "static", "hpa"]', r"hpa is there twice"),
        (
            "methods",
            '["arima"]',
            r"methods must have method and paper_method among them; it lacks method 'weighted'",
        ),
    ],
)
def test_invalid_settings_are_refused_before_work_begins(
    data: Path, edit: Edit, key: str, value: str, message: str
) -> None:
    edit("config/office.toml", rf"^{re.escape(key)} = [^#\n]*", f"{key} = {value} ")
    with pytest.raises(ValueError, match=message) as refused:
        load(data)
    assert "\n" not in str(refused.value)


def test_a_threshold_above_all_memory_needs_a_signal_of_work(data: Path, edit: Edit) -> None:
    edit("config/office.toml", r"^scale_out_share = [^#\n]*", "scale_out_share = 1.1 ")
    load(data)
    edit("config/office.toml", r"^signal = [^#\n]*", 'signal = "memory" ')
    with pytest.raises(ValueError, match=r"scale_out_share = 1\.1 of memory is never used.*Change it"):
        load(data)


def test_a_cold_start_takes_longer_where_the_weights_are_not_in_the_region() -> None:
    """SageServe 7.1: 10 minutes with the weights in the region, 2 hours without."""
    names = list(CATALOGUE.regions)
    west = dataclasses.replace(CATALOGUE.regions["west"], weights=("llama3.1-70b",))
    catalogue = dataclasses.replace(SERVING, regions={**CATALOGUE.regions, "west": west})
    boot_s = make_fleet(catalogue, OFFICE.fleet, OFFICE.replay, 0).boot_cold_s.reshape(-1, len(names))
    remote = [list(SERVING.llms).index(llm) for llm in SERVING.llms if llm != "llama3.1-70b"]
    assert set(boot_s[remote, names.index("west")]) == {7200.0}
    boot_s[remote, names.index("west")] = 600.0
    assert (boot_s == 600.0).all()


def test_reclaiming_a_spot_instance_takes_minutes_about_the_median() -> None:
    """SageServe 7.1: a minute in the median, five at most; one seed gives one sample."""
    spot_s = make_fleet(SERVING, OFFICE.fleet, OFFICE.replay, seed=1).boot_spot_s
    assert sorted(spot_s)[spot_s.size // 2] == pytest.approx(60.0, rel=0.05)
    assert 30.0 <= spot_s.min() < 40.0
    assert 250.0 < spot_s.max() <= 300.0
    again, other = (make_fleet(SERVING, OFFICE.fleet, OFFICE.replay, n).boot_spot_s for n in (1, 2))
    assert (again == spot_s).all()
    assert (other != spot_s).any()


def test_the_power_of_boards_is_the_median_of_measurements() -> None:
    """Splitwise's average_power is a share of the board's 400 W; 0 means not measured."""
    if not SPLITWISE.exists():
        pytest.skip(f"{SPLITWISE.name} is not next to this checkout")
    rows = pd.read_csv(SPLITWISE).query("average_power > 0")
    keys = ["model", "hardware", "tensor_parallel"]
    measured = 400.0 * rows.groupby(keys)["average_power"].median()
    median_power = {
        (one.llm, one.gpu, one.tensor_parallel): one.board_w
        for one in load_catalogue().past_latency
        if one.board_w is not None
    }
    assert median_power == pytest.approx(measured.to_dict(), abs=0.05)


def test_old_names_are_read_with_one_warning(data: Path, edit: Edit) -> None:
    """An old name of a key or a planner is read as the new name, with one warning line."""

    def read() -> RunConfig:
        return load_config("together", load_catalogue(data / "catalogue"), data / "config")

    today = read()
    edit("config/together.toml", 'kv_transfer = "layers"', 'hand_over = "layers"')
    edit("config/together.toml", '"fleetcast", "clairvoyant"', '"ours", "clairvoyant"')
    with pytest.warns(ConfigWarning) as warned:
        assert read() == today
    assert [str(one.message) for one in warned] == [
        "together.toml: hand_over is called kv_transfer now; ours is called fleetcast now. "
        "Rename that: the old name is refused from 0.2 on."
    ]


def test_each_mechanism_has_a_code_of_its_own() -> None:
    """The kernel knows rules by their codes: 0, 1 and on. One of them has two names."""
    enums = [one for one in vars(mechanisms).values() if isinstance(one, type) and issubclass(one, IntEnum)]
    assert len(enums) > 10
    for codes in enums:
        if codes is not IntEnum:
            assert [*codes] == [*range(len(codes))], codes
    second = {name for codes in enums for name, code in codes.__members__.items() if code.name != name}
    assert second == {"LATE_LAST"}
