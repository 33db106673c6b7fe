"""The front end: seconds outside the engine, in the TTFT and E2E of every request, once."""

import dataclasses

import numpy as np
import pytest

from fleetcast.models.replay.kernel_inputs import NO_INDEX, TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.fleet_arrays import make_fleet
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.trials.capacity import measure_capacity_tokens_per_s
from fleetcast.models.world.catalogue import check_regions, load_catalogue
from fleetcast.models.world.config_loading import CONFIG_DIR, load_config
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.toml_dataclasses import ConfigError

CATALOGUE = load_catalogue().of_era("2023", "here")
OFFICE = load_config("sageserve", CATALOGUE)
FRONTEND_S = 0.25
COUNT = 600


def play(frontend_s: float) -> tuple[TraceArrays, Outcome]:
    """Requests of three regions on the default's fleet, some of them served in another region."""
    fleet_config = dataclasses.replace(OFFICE.fleet, frontend_s=frontend_s)
    catalogue = CATALOGUE.serving(OFFICE.fleet.deployments)
    replay = dataclasses.replace(OFFICE.replay, network_sigma=0.5)
    fleet = make_fleet(catalogue, fleet_config, replay, seed=3)
    rng = np.random.default_rng(1)
    region, llm = rng.integers(0, 3, COUNT).astype(np.int16), np.zeros(COUNT, np.int16)
    tokens = (rng.integers(10, 1000, COUNT).astype(np.int32) for _ in range(2))
    trace = TraceArrays(np.sort(rng.uniform(0, 60, COUNT)), region, llm, llm, *tokens)
    serving = np.ones(fleet.kind.size)
    serving[(fleet.region == 0) & (fleet.llm == 0)] = 0  # requests of this region go elsewhere
    fleet = fleet._replace(min_instances=np.zeros_like(fleet.min_instances))
    rules = make_rules(catalogue, replay, "follow")
    return trace, replay_trace(trace, fleet, Schedule([serving]), rules, 3600.0)


def test_every_request_is_later_by_the_front_end_once_and_the_network_stays() -> None:
    (_, plain), (_, later) = play(0.0), play(FRONTEND_S)
    assert (plain.slot != NO_INDEX).all()
    assert len(np.unique(plain.network_s)) > 50, "some are served in another region, with delays that vary"
    for name in ("first_token_s", "finish_s", "network_s"):
        shift_s = getattr(later, name) - getattr(plain, name)
        np.testing.assert_allclose(shift_s, FRONTEND_S, atol=1e-9)
    for name in ("slot", "dispatched_s", "admitted_s"):
        np.testing.assert_array_equal(getattr(later, name), getattr(plain, name))


def test_capacity_within_the_targets_falls_with_the_front_end() -> None:
    tokens = np.full(100, 500, np.int32), np.full(100, 50, np.int32)
    capacity = [
        measure_capacity_tokens_per_s(
            "llama3.1-8b",
            Deployment("h100-80gb", 1),
            CATALOGUE,
            dataclasses.replace(OFFICE, fleet=dataclasses.replace(OFFICE.fleet, frontend_s=seconds)),
            *tokens,
        )
        for seconds in (0.0, 0.9)
    ]
    assert capacity[1] < 0.98 * capacity[0]


CURRENT = {
    "office",
    "office_large",
    "together",
    "together_rules",
    "azure",
    "weeks",
    "weeks_slow",
    "calm_regions",
}  # and all NAME_weeks


def test_configs_of_current_engines_have_one() -> None:
    """Profiles of 2023 are measurements of whole engines."""
    paths = sorted(CONFIG_DIR.glob("*.toml"))
    assert len(paths) > 10
    for path in paths:
        is_current = path.stem in CURRENT or path.stem.endswith("_weeks")
        assert load_config(path.stem, CATALOGUE).fleet.frontend_s == (0.0062 if is_current else 0), path.stem


def test_a_region_has_no_delay_to_itself() -> None:
    east = dataclasses.replace(CATALOGUE.regions["east"], network_s={"east": 0.1})
    other = dataclasses.replace(CATALOGUE, regions={**CATALOGUE.regions, "east": east})
    with pytest.raises(ConfigError, match=r"east\]: network_s to itself is 0.1 s, must be 0: .*frontend_s"):
        check_regions(other, "regions.toml [{}]")
