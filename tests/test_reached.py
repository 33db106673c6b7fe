"""Every mechanism acts in a shipped run: switched off, something else comes out."""

import functools
import re
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from one_endpoint import with_plain_codes
from small import make_plans

from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.plans import measured_capacity
from fleetcast.assets.replays import compact_schedule
from fleetcast.assets.replays.policy_inputs import (
    fleet_and_rules,
    planned_capacity,
    policy_schedules,
    read_day_plans,
    with_measured_capacity,
)
from fleetcast.assets.replays.replay_workloads import expand_request_stages, read_workload
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules
from fleetcast.models.replay.run import replay_trace
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.trace_rows import select_requests
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.mechanisms import BatchPull, Opportunism, QueueOrder, Routing, Signal

Switch = Callable[[FleetArrays, Rules], tuple[FleetArrays, Rules]]
PAGE = Path(__file__).parents[1] / "models" / "replay" / "README.md"


def rules(**off: object) -> Switch:
    return lambda fleet, rules: (fleet, with_plain_codes(rules._replace(**off)))


def fleet(**off: Callable[[FleetArrays], object]) -> Switch:
    return lambda fleet, rules: (fleet._replace(**{name: of(fleet) for name, of in off.items()}), rules)


def at_home(fleet: FleetArrays) -> np.ndarray:
    """No request is served in another region than the own."""
    preference = np.full_like(fleet.preference, NO_INDEX)
    preference[:, 0] = np.arange(len(preference))
    return preference


def as_near(fleet: FleetArrays) -> np.ndarray:
    """Cold starts as with the weights in the region."""
    return np.full_like(fleet.boot_cold_s, fleet.boot_cold_s.min())


def whenever(fleet: FleetArrays, rules: Rules) -> tuple[FleetArrays, Rules]:
    """Held requests are never due."""
    return fleet, rules._replace(allowance_s=np.where(fleet.is_interactive, rules.allowance_s, 1e9))


# A mechanism as the page names it: under which policy it acts, and how it is switched off.
SWITCHES: dict[str, tuple[str, Switch]] = {
    "scaling on memory": ("reactive", rules(scale_out_share=1e9, scale_in_share=0.0)),
    "cooldown": ("reactive", rules(cooldown_s=0.0)),
    "passing the plan after a surge": ("lt_ua", rules(surge_ratio=1e9)),
    "passing the plan after a slump": ("lt_ua", rules(slump_ratio=-1.0)),
    "the last minutes of the hour": ("lt_ua", rules(correction_s=0.0)),
    "back-pressure": ("chiron", rules(pressure_share=1e9)),
    "deadline of batch instances": ("chiron", whenever),
    "reflex": ("corrected", rules(reactive_share=1e9)),
    "working off what waits": ("corrected", rules(catch_up_s=1e9)),
    "late ones last": ("corrected", rules(order=QueueOrder.FCFS)),
    "signal of work": ("corrected", rules(signal=Signal.MEMORY)),
    "routing to other regions": ("lt_ua", fleet(preference=at_home)),
    "queue manager": ("lt_ua", rules(niw_pull_one_share=1e9, niw_pull_two_share=1e9)),
    "ageing after 10 hours": ("lt_ua", rules(niw_priority_age_s=1e9)),
    "region caps": ("reactive", fleet(cap_gpus=lambda fleet: 100 * fleet.cap_gpus)),
    "minimum of an endpoint": ("reactive", fleet(min_instances=lambda fleet: 0 * fleet.min_instances)),
    "spot boots": ("reactive", fleet(boot_spot_s=lambda fleet: 0 * fleet.boot_spot_s)),
    "cold boots": ("reactive", fleet(boot_cold_s=lambda fleet: 0 * fleet.boot_cold_s)),
    "cold boots from another region": ("lt_ua", fleet(boot_cold_s=as_near)),
    "boots by GPU type": ("lt_ua", fleet(boot_factor=lambda fleet: np.ones_like(fleet.boot_factor))),
    "donation that takes a minute": ("reactive", fleet(donate_s=lambda fleet: 0.0)),
    "network delays that vary": ("lt_ua", fleet(network_factor=lambda fleet: np.ones(1))),
    "the opportunistic path": ("lt_ua", rules(opportunism=Opportunism.OFF)),
    "teams": ("lt_ua", fleet(team=lambda fleet: 0 * fleet.team)),
    "hand-over by a link": ("lt_ua", fleet(link_token_s=lambda fleet: 0 * fleet.link_token_s)),
    "gears of a cascade": ("reactive", rules(gear_llm=np.full(4, NO_INDEX))),
    "failures": ("clairvoyant", rules(failure_s=np.zeros(0), failure_slot=np.zeros(0, np.int64))),
    "batch into gaps": ("compact", rules(batch_pull=BatchPull.MEMORY)),
    "dispatch by waiting prompts": ("compact", rules(routing=Routing.SHORTEST_QUEUE)),
}


SUSTAINED = 2300.0, 2000.0, 1100.0, 16_500.0, 46_000.0  # tokens/s of each option, as measured, of four


def of_options(_settings: RunSettings, _day: date, _progress: Progress, instances: int = 4) -> list[float]:
    return [{1: 0.7, 2: 0.85, 4: 1.0}[instances] * tokens_per_s for tokens_per_s in SUSTAINED]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunSettings]:
    """The shipped run, up to its plans."""
    settings = load_settings("stress", tmp_path_factory.mktemp("stress"))
    assert len(SUSTAINED) == len(settings.grid.service_options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            measured_capacity, "measure_capacities", of_options
        )  # compact measures while it is replayed
        make_plans(settings, settings.config.trace.replay_day)
        yield settings


@pytest.fixture(scope="module")
def play(night: RunSettings) -> Callable[[str, Switch, int], Outcome]:
    """Replay the first hours of the night under a policy with something switched off."""
    day = night.config.trace.replay_day
    trace = expand_request_stages(night, day, read_workload(night, day)).trace
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compact_schedule, "DECISIONS_PER_HOUR", 30)  # of 240: each takes milliseconds
        drives = policy_schedules(night, day, {policy for policy, _ in SWITCHES.values()})
    sustained = planned_capacity(night.grid, night.config, read_day_plans(night, day))

    def one(policy: str, switch: Switch, hours: int) -> Outcome:
        fleet, rules = fleet_and_rules(night, policy)
        fleet, rules = switch(with_measured_capacity(night, fleet, sustained), rules)
        end_s = HOUR_S * hours
        came = select_requests(trace, np.arange(np.searchsorted(trace.arrival_s, end_s)))
        return replay_trace(came, fleet, drives[policy].of_hours(0, hours), rules, end_s)

    return one


@pytest.fixture(scope="module")
def as_it_is(play: Callable[[str, Switch, int], Outcome]) -> Callable[[str, int], Outcome]:
    """The same with all switched on, once for each policy and number of hours."""
    return functools.cache(lambda policy, hours: play(policy, rules(), hours))


@pytest.mark.parametrize("mechanism", SWITCHES)
def test_a_mechanism_that_is_switched_off_is_missed(play, as_it_is, mechanism: str) -> None:
    """Most are missed before the sixth hour; the others are looked for in the whole day."""

    def differs(on: Outcome, off: Outcome) -> bool:
        same = np.array_equal(on.first_token_s, off.first_token_s, equal_nan=True)
        return not (same and np.array_equal(on.instance_s, off.instance_s))

    policy, switch = SWITCHES[mechanism]
    assert any(differs(as_it_is(policy, hours), play(policy, switch, hours)) for hours in (6, 24))


def test_plans_choose_among_gpu_types_and_fill_an_endpoint(night: RunSettings) -> None:
    held = night.lake.sql(
        "select gpu, llm, served_region, max(instances) as most from plans "
        "where policy = 'clairvoyant' group by all"
    ).to_pandas()
    pair = "1xh100-80gb > 1xh100-80gb"  # a team
    assert set(held.loc[held["most"] > 0, "gpu"]) == {"h100-80gb", "a100-80gb", pair}
    assert held["most"].max() == night.config.fleet.max_instances


def test_every_mechanism_is_described_on_the_page(night: RunSettings) -> None:
    section = PAGE.read_text(encoding="utf-8").split("## What acts where")[1].split("\n## ")[0]
    named = re.findall(r"^\| ([^|`]+?) \| `(\w+)` \|", section, re.MULTILINE)
    assert named == [(mechanism, policy) for mechanism, (policy, _) in SWITCHES.items()]
