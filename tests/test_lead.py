"""The policy `lead`: the growth until a new instance could serve, and the instances that it holds."""

from datetime import date, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import make_plans, small_config

from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.replays import lead_schedule
from fleetcast.assets.replays.lead_schedule import comparable_days, needed_instances
from fleetcast.assets.replays.policy_inputs import policy_schedules
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.studies.foresight import with_boot_time
from fleetcast.models.plan.load_growth import SHAPE_MINUTES, STEADYING_SHARE, load_growth
from fleetcast.models.world.own_policies import FleetObservation

MINUTES, HALF = 48, SHAPE_MINUTES // 2
DAY = date(2025, 7, 3)  # the last of the small config


def naive_growth(past: np.ndarray, lead: int) -> np.ndarray:
    """Minute by minute, from the formula of the module."""
    _, llms, minutes = past.shape
    mean = past.mean(axis=0)
    found = np.empty_like(mean)
    for llm in range(llms):
        day = [sum(mean[llm, (t + k) % minutes] for k in range(-HALF, HALF + 1)) for t in range(minutes)]
        day = [value / SHAPE_MINUTES for value in day]
        day = [value + STEADYING_SHARE * sum(mean[llm]) / minutes for value in day]
        for t in range(minutes):
            found[llm, t] = max(day[(t + h) % minutes] for h in range(lead + 1)) / day[t]
    return found


@given(seed=st.integers(0, 2**32 - 1), lead=st.integers(0, 20))
def test_the_growth_is_that_of_its_naive_twin(seed: int, lead: int) -> None:
    past = np.random.default_rng(seed).random((3, 2, MINUTES))
    found = load_growth(past, lead)
    np.testing.assert_allclose(found, naive_growth(past, lead), rtol=1e-12)
    assert (found >= 1).all()
    assert (load_growth(past, lead + 1) >= found - 1e-12).all()  # a longer boot never needs less
    np.testing.assert_allclose(load_growth(7 * past, lead), found)


def test_without_a_boot_or_without_load_nothing_grows() -> None:
    past = np.random.default_rng(1).random((3, 2, MINUTES))
    np.testing.assert_array_equal(load_growth(past, 0), 1.0)
    np.testing.assert_array_equal(load_growth(0 * past, 9), 1.0)
    gap = np.concatenate([past, np.full_like(past[:1], np.nan)])
    np.testing.assert_allclose(load_growth(gap, 9), load_growth(past, 9))
    np.testing.assert_array_equal(load_growth(past[:0], 9), 1.0)  # nothing is known of the past


def test_a_weekend_is_compared_with_weekends() -> None:
    past = [date(2025, 7, 1) + timedelta(days=n) for n in range(14)]
    assert [day.day for day in comparable_days(past, past[-1])] == [8, 9, 10, 11, 14]
    assert [day.day for day in comparable_days(past[:-2], past[-2])] == [5, 6, 12]
    assert comparable_days(past[:3], past[4]) == past[:3]  # no weekend yet


def test_small_pools_are_served_by_the_largest_one_of_their_llm() -> None:
    work = np.array([1000.0, 49.0, 251.0, 5.0, 0.0, 0.0])
    running, llms = np.array([3, 9, 0, 0, 0, 2]), np.array([0, 0, 0, 1, 1, 2])
    found = needed_instances(work, np.full(6, 100.0), running, llms)
    assert found.tolist() == [10, 1, 3, 1, 0, 1]  # home of the first llm: 9 instances; each llm keeps one
    more = np.array([0, 0, 9, 0, 0, 2])
    assert needed_instances(work, np.full(6, 100.0), more, llms).tolist() == [10, 0, 3, 1, 0, 1]
    np.testing.assert_array_equal(
        needed_instances(work[::-1], np.full(6, 100.0), running[::-1], llms[::-1]), found[::-1]
    )


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    folder = tmp_path_factory.mktemp("lead")
    path = small_config(folder, requests_per_day="40_000.0", min_instances="0")
    settings = load_settings(path, folder / "lake")
    make_plans(settings, DAY, lambda s, *_: [30.0] * len(s.grid.service_options))
    return settings


def wanted_fleets(
    settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[FleetObservation, np.ndarray]]:
    """What the policy observes each minute of a replay, and what it decides."""
    seen: list[tuple[FleetObservation, np.ndarray]] = []
    plain = lead_schedule.own_schedule

    def watched(name, policy, *of):
        def decide(observed: FleetObservation) -> np.ndarray:
            seen.append((observed, np.asarray(policy.decide(observed))))
            return seen[-1][1]

        return plain(name, policy._replace(decide=decide), *of)

    monkeypatch.setattr(lead_schedule, "own_schedule", watched)
    replay_day(settings, DAY, ["lead"], Progress())
    return seen


def test_it_holds_what_the_work_needs_and_for_as_long_as_a_boot(
    night: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = with_boot_time(night, 300.0)
    growth = load_growth(lead_schedule.past_load(settings, DAY), 5)
    assert growth.max() > 1.05
    seen = wanted_fleets(settings, monkeypatch)
    assert len(seen) == 24 * 60
    llms = [list(settings.catalogue.llms).index(llm) for llm in seen[0][0].llm]
    needed = []
    for minute, (observed, wanted) in enumerate(seen):
        assert observed.now_s == 60 * minute
        work = observed.arriving_tokens_per_s + observed.waiting_tokens / settings.config.replay.catch_up_s
        running = observed.serving + observed.booting
        work, capacity = work * growth[llms, minute], observed.capacity_tokens_per_s
        needed.append(needed_instances(work, capacity, running, np.array(llms)))
        start = [] if minute > 4 else [np.asarray(policy_schedules(settings, DAY, ["lead"])["lead"].start)]
        np.testing.assert_array_equal(wanted, np.max([*start, *needed[-6:]], axis=0))
    decided = np.array([wanted for _, wanted in seen])
    assert len(np.unique(decided)) > 3


def test_a_longer_boot_holds_more(night: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same day with the same work: the sum of the decisions grows with the boot time."""
    sums = []
    for boot_s in (60.0, 1200.0):
        with monkeypatch.context() as patch:
            sums.append(
                sum(wanted.sum() for _, wanted in wanted_fleets(with_boot_time(night, boot_s), patch))
            )
    assert sums[1] > 1.1 * sums[0]
