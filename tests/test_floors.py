"""Floors by what must survive: against every placement there is, and in plans and replays of a small day."""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import in_hours, make_plans, small_config

from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.plans import measured_capacity
from fleetcast.assets.replays.policy_inputs import fleet_and_rules
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.studies import whatif, whatif_cases
from fleetcast.models.latency.profile_order import complete_catalogue
from fleetcast.models.trials.capacity import fixed_fleet
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment, FleetConfig
from fleetcast.models.world.floors import place_floors
from fleetcast.models.world.pool_pairing import handover_target
from fleetcast.models.world.pool_rows import POOLINGS, build_pool_rows
from fleetcast.models.world.toml_dataclasses import ConfigError

DAY = date(2025, 7, 3)
THETA = [300.0, 400.0, 200.0, 250.0]  # tokens/s of an instance of each llm
CATALOGUE = load_catalogue()
OFFICE = load_config("office", CATALOGUE)
REGIONS = ("east", "central")
GPUS = {"h100-80gb": 3.0, "a100-80gb": 2.0}  # USD of an hour
IN_EAST = """[fleet.deployments]
"llama3.1-8b" = { gpu = "h100-80gb", tensor_parallel = 1, regions = ["east"] }"""
KINDS = ("none", "instance", "region")
Counts = dict[tuple[str, int, str], int]


def small_world(caps: Sequence[int]) -> Catalogue:
    """Two regions with so many GPUs of each type."""
    gpus = {name: dataclasses.replace(CATALOGUE.gpus[name], usd_per_hour=usd) for name, usd in GPUS.items()}
    by_region = zip(REGIONS, np.reshape(caps, (2, 2)).tolist(), strict=True)
    regions = {
        name: dataclasses.replace(CATALOGUE.regions[name], cap_gpus=dict(zip(GPUS, counts, strict=True)))
        for name, counts in by_region
    }
    return dataclasses.replace(CATALOGUE, gpus=gpus, regions=regions)


def small_fleet(*pools: Sequence[Deployment], survive: str | None, least: int = 0) -> FleetConfig:
    """Two llms of these pools, of which the second has its own floor."""
    deployments = {f"llm{n}": tuple(of_llm) for n, of_llm in enumerate(pools)}
    return dataclasses.replace(
        OFFICE.fleet, deployments=deployments, min_instances=least, max_instances=40, survive=survive
    )


@st.composite
def llm_pools(draw: st.DrawFn) -> tuple[Deployment, ...]:
    """Whole pools, or a prefill pool with its decode pool, of which one is in one region only."""
    gpus = st.sampled_from(sorted(GPUS))
    first, second = draw(gpus), draw(gpus)
    where = draw(st.sampled_from([None, ("east",), ("central", "east")]))
    most = draw(st.sampled_from([1, 2, 40]))
    if draw(st.booleans()):
        return (
            Deployment(first, 2, regions=where, max_instances=most),
            Deployment(second, 4, engine="b"),
        )
    team = draw(st.sampled_from([(0, 0), (1, 2), (2, 1)]))
    return (
        Deployment(first, 1, role="prefill", then="d", regions=where, team=team[0]),
        Deployment(second, 2, role="decode", name="d", team=team[1]),
    )


def each_placement(world: Catalogue, fleet: FleetConfig, llm: str) -> Iterator[tuple[Counts, Counts]]:
    """Every placement of up to two of each: in instances, and in what fails at once."""
    pools = fleet.deployments[llm]
    places = [
        (number, region)
        for number, pool in enumerate(pools)
        for region in REGIONS
        if (pool.regions is None or region in pool.regions) and world.regions[region].cap_gpus[pool.gpu]
        if not (pool.team and pool.role == "decode")
    ]
    for counts in product(range(3), repeat=len(places)):
        instances: Counts = {}
        for (number, region), count in zip(places, counts, strict=True):
            pool = pools[number]
            instances[llm, number, region] = count * max(pool.team, 1)
            if pool.team:
                to = handover_target(fleet, llm, pool)
                instances[llm, pools.index(to), region] = count * to.team
        units = {(llm, *place): count for place, count in zip(places, counts, strict=True)}
        if all(n <= fleet.limits(pools[number])[2] for (_, number, _), n in instances.items()):
            yield instances, units


def is_serving(fleet: FleetConfig, units: Counts) -> bool:
    """Whether requests can be served: by an instance or team, or by two of one region for the phases."""
    for (llm, number, region), count in units.items():
        pools = fleet.deployments[llm]
        pool = pools[number]
        if count and pool.role != "decode":
            to = handover_target(fleet, llm, pool)
            if to is None or pool.team or units.get((llm, pools.index(to), region), 0):
                return True
    return False


def is_surviving(fleet: FleetConfig, units: Counts, kind: str) -> bool:
    """Whether it serves after the loss of any one instance or team, or of any one region."""
    losses = [
        {place: count - (place == lost) for place, count in units.items()}
        for lost, alive in units.items()
        if kind == "instance" and alive
    ] + [
        {place: count * (place[2] != region) for place, count in units.items()}
        for region in REGIONS
        if kind == "region"
    ]
    return is_serving(fleet, units) and all(is_serving(fleet, left) for left in losses)


def placement_usd(world: Catalogue, fleet: FleetConfig, counts: Counts) -> float:
    return sum(
        n * fleet.deployments[llm][number].gpus * world.gpus[fleet.deployments[llm][number].gpu].usd_per_hour
        for (llm, number, _), n in counts.items()
    )


def is_within_caps(world: Catalogue, fleet: FleetConfig, counts: Counts) -> bool:
    used = {(region, gpu): 0 for region in REGIONS for gpu in GPUS}
    for (llm, number, region), n in counts.items():
        used[region, fleet.deployments[llm][number].gpu] += n * fleet.deployments[llm][number].gpus
    return all(n <= world.regions[region].cap_gpus[gpu] for (region, gpu), n in used.items())


def least_usd(world: Catalogue, fleet: FleetConfig, kind: str) -> float | None:
    """The cheapest of all placements of all llms that survive; None if none fits."""
    of_llms = [
        [
            instances
            for instances, units in each_placement(world, fleet, llm)
            if is_surviving(fleet, units, kind) and is_within_caps(world, fleet, instances)
        ]
        for llm in fleet.deployments
    ]
    together = ({k: n for part in parts for k, n in part.items()} for parts in product(*of_llms))
    costs = (
        placement_usd(world, fleet, counts) for counts in together if is_within_caps(world, fleet, counts)
    )
    return min(costs, default=None)


@settings(max_examples=150, deadline=None)
@given(
    st.tuples(llm_pools(), llm_pools()), st.lists(st.sampled_from([0, 4, 6, 8, 40]), min_size=4, max_size=4)
)
def test_a_floor_is_the_cheapest_placement_that_survives(
    pools: tuple[tuple[Deployment, ...], ...], caps: list[int]
) -> None:
    """Within caps and maxima; a floor of more is never cheaper."""
    world, costs = small_world(caps), []
    for kind in KINDS:
        fleet = small_fleet(*pools, survive=kind)
        counts, missing = place_floors(world, fleet)
        best = least_usd(world, fleet, kind)
        assert (best is None) == bool(missing)
        assert is_within_caps(world, fleet, counts)
        if best is not None:
            assert placement_usd(world, fleet, counts) == pytest.approx(best)
            costs.append(best)
    assert costs == sorted(costs)


def test_pools_without_a_floor_keep_their_minimum_and_take_their_gpus_first() -> None:
    """A floor of one llm leaves the others alone; of equal cost it is in the first region that is written."""
    whole = Deployment("h100-80gb", 4, regions=("central", "east"))
    fleet = dataclasses.replace(
        small_fleet([whole], [dataclasses.replace(whole, min_instances=1)], survive=None),
        survive_by_llm={"llm0": "instance"},
    )
    roomy, full = small_world([16, 0, 16, 0]), small_world([16, 0, 8, 0])
    assert place_floors(roomy, fleet) == ({("llm0", 0, "central"): 2}, {})
    assert place_floors(full, fleet) == ({("llm0", 0, "central"): 1, ("llm0", 0, "east"): 1}, {})
    assert not place_floors(roomy, dataclasses.replace(fleet, survive_by_llm={})).instances


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_part_of_a_pool_has_its_floor(pooling: str) -> None:
    """Also the pools of a pair, of which the decode pool takes requests from two."""
    llms = list(OFFICE.fleet.deployments)
    pair = (
        Deployment("h100-80gb", 8, role="prefill", then="d"),
        Deployment("h100-80gb", 4, role="prefill", then="d", engine="b"),
        Deployment("a100-80gb", 4, role="decode", name="d"),
    )
    fleet = dataclasses.replace(
        OFFICE.fleet,
        deployments={**OFFICE.fleet.deployments, llms[0]: pair},
        min_instances=0,
        survive="region",
    )
    world = CATALOGUE.serving(llms)
    cap_gpus = {"h100-80gb": 240, "a100-80gb": 240}
    regions = {name: dataclasses.replace(one, cap_gpus=cap_gpus) for name, one in world.regions.items()}
    rows = build_pool_rows(dataclasses.replace(world, regions=regions), fleet, pooling)
    parts = len(POOLINGS[pooling])
    for llm in llms:
        for row in (row for row in rows if row.kind.llm == llm and row.min_instances):
            assert row.min_instances == 1 <= min(row.instances_at_start, row.max_instances)
            assert row.then is None or rows[row.then].min_instances == 1
            assert llm != llms[0] or row.deployment in pair[1:]
        kept = [row.region for row in rows if row.kind.llm == llm and row.min_instances]
        assert len(kept) == parts * (4 if llm == llms[0] else 2)
        assert len(set(kept)) == 2


def test_equal_deployments_share_one_floor() -> None:
    same = Deployment("h100-80gb", 4, max_instances=1)
    world, fleet = small_world([40] * 4), small_fleet([same, same, same], [same], survive="instance")
    llm_rows = {"llm0": 0, "llm1": 0}
    llms = {llm: next(iter(CATALOGUE.llms.values())) for llm in llm_rows}
    for row in build_pool_rows(dataclasses.replace(world, llms=llms), fleet):
        llm_rows[row.kind.llm] += row.min_instances
    assert llm_rows == {"llm0": 2, "llm1": 2}


def test_a_trial_of_an_instance_has_no_floor_of_its_own() -> None:
    """A capacity is that of so many instances, whatever the fleet must survive."""
    llm, (pool, *_) = next(iter(OFFICE.fleet.deployments.items()))
    config = dataclasses.replace(OFFICE, fleet=dataclasses.replace(OFFICE.fleet, survive="instance"))
    world = complete_catalogue(CATALOGUE, OFFICE)
    for count in (1, 2, 4):
        trial = fixed_fleet({llm: [(pool, count)]}, world.serving([llm]), config)
        assert trial.min_instances.tolist() == np.diff(trial.slots).tolist() == [count]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('survive = "regions"', "unknown kind of survival 'regions'. Did you mean 'region'"),
        (
            'survive_by_llm = { "llama3.1-8" = "region" }',
            "unknown llm 'llama3.1-8'. Did you mean 'llama3.1-8b'",
        ),
        (
            'survive = "region"\nmin_instances = 2',
            'survive = "region" and min_instances = 2, and only one of them may set its minimum. Set',
        ),
        (
            'survive_by_llm = { "gpt-oss-20b" = "none" }\nmin_instances = 1',
            'gpt-oss-20b has survive = "none" and min_instances = 1, and only one of them may',
        ),
        (
            f'min_instances = 0\nsurvive = "region"\n{IN_EAST}',
            'llama3.1-8b has survive = "region", which needs 2 instances in 2 or more regions, and 1',
        ),
        (
            f'min_instances = 0\nsurvive = "instance"\nmax_instances = 1\ninstances_at_start = 1\n{IN_EAST}',
            "which needs 2 instances in 1 or more regions, and 1 of them has no room. Raise max_instances",
        ),
    ],
)
def test_a_floor_that_cannot_be_is_refused_by_name(tmp_path: Path, lines: str, message: str) -> None:
    path = tmp_path / "floors.toml"
    path.write_text(
        'based_on = "office"\n[trace]\nname = "floors"\nfirst_day = 2025-07-01\ndays = 3\nseed = 1\n'
        f"[fleet]\n{lines}\n"
    )
    with pytest.raises(ConfigError, match=re.escape(message)) as refused:
        load_config(str(path), CATALOGUE)
    assert str(refused.value).startswith("floors.toml")
    assert "\n" not in str(refused.value)


@pytest.fixture(scope="module")
def two_regions(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    """A planned day with requests in two hours only: nothing but a floor keeps an instance at night."""
    folder = tmp_path_factory.mktemp("floors")
    config = Path(small_config(folder, min_instances='0\nsurvive = "region"', instances_at_start="4"))
    config.write_text(in_hours(config.read_text(), 9, 10))
    settings = load_settings(str(config), folder / "lake")
    make_plans(settings, DAY, lambda *_: THETA)
    return settings


def test_the_floor_serves_in_every_plan_and_under_every_rule(two_regions: RunSettings) -> None:
    """All day; the rest of the fleet comes and goes."""
    policies = ["corrected", "lt_ua", "reactive"]
    replay_day(two_regions, DAY, policies, Progress())
    rows = two_regions.lake.sql(
        "select policy, llm, served_region, hour_start, sum(instances) as planned from plans "
        "group by all having planned >= 1"
    ).to_pandas()
    for policy in ("corrected", "lt_ua"):
        regions = rows[rows["policy"] == policy].groupby(["llm", "hour_start"])["served_region"].nunique()
        assert len(regions) == 4 * 24
        assert regions.min() >= 2
    hours = two_regions.lake.sql(
        "select policy, llm, hour_start, served_region, sum(serving_s) as serving_s from fleet_hours "
        "group by all having serving_s >= 3599"
    ).to_pandas()
    for policy in policies:
        regions = hours[hours["policy"] == policy].groupby(["llm", "hour_start"])["served_region"].nunique()
        assert len(regions) >= 4 * 24
        assert regions.min() >= 2


def test_what_if_compares_the_floors(two_regions: RunSettings) -> None:
    """Each case replaces the floors of the config, and each floor serves all day."""
    names = ["min_0", "survive_none", "survive_instance", "survive_region", "min_1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured_capacity, "measure_capacities", lambda *_: THETA)
        table = whatif.run_whatif_cases(two_regions, DAY, names, Progress()).to_pandas()
    rows = table.set_index("case_name")
    assert list(rows.index) == names
    one_of_each = 8 + 2 + 1 + 1  # GPUs
    of_nights = rows["gpu_hours"].diff().dropna() / (22 * one_of_each)
    assert of_nights.to_numpy() == pytest.approx([1, 1, 0, 1], abs=0.2)
    assert (rows["below_minimum_hours"] == 0).all()


def test_a_region_that_is_down_leaves_the_rest_of_a_floor(two_regions: RunSettings) -> None:
    both = whatif_cases.load_whatif_cases()["east_down"]
    case = dataclasses.replace(both, down=("east", "central"))
    case_settings = whatif_cases.resolve_case(two_regions, case, "x")
    fleet, _ = fleet_and_rules(whatif_cases.without_regions(case_settings, case.down), "corrected")
    west = fleet.region == list(two_regions.catalogue.regions).index("west")
    assert fleet.min_instances[west].tolist() == [1] * 4
    assert fleet.min_instances.sum() == 4
