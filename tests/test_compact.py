"""The policy `compact`: prompts to the least waiting prompts, batch into gaps, instances by measured size."""

import dataclasses
import itertools
from datetime import date

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_endpoint import PREFILL_S_PER_TOKEN, a_fleet, a_trace, run, some_rules
from small import by_size, make_plans, small_config

from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.plans import measured_capacity
from fleetcast.assets.replays import compact_schedule, hold_times
from fleetcast.assets.replays.compact_schedule import CompactRule, needed_instances
from fleetcast.assets.replays.hold_times import pool_holds_s
from fleetcast.assets.replays.replay_workloads import read_workload
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.studies.foresight import with_boot_time
from fleetcast.models.plan import hold_time
from fleetcast.models.plan.hold_time import cheapest_hold
from fleetcast.models.plan.known_minutes import known_minutes_instances
from fleetcast.models.plan.pool_capacity import ROUNDED_OFF, instances_for_work, size_shares, sustained_work
from fleetcast.models.replay.session.rules import PULL_STEP_SHARE, make_rules
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.mechanisms import BatchPull, QueueOrder, Routing
from fleetcast.models.world.own_policies import FleetObservation, OwnPolicy

DAY = date(2025, 7, 3)  # the last of the small config


# --- dispatch and gaps ---------------------------------------------------------------------------------


def test_a_prompt_goes_where_fewest_prompt_tokens_wait_though_more_is_decoded_there() -> None:
    """Request 0 decodes a long answer at slot 0; request 1 prefills at slot 1 when request 2 arrives."""
    trace = a_trace([0.0, 1.0, 1.25], [16, 2048, 64], [4000, 1, 1])
    least, shortest = (
        run(trace, a_fleet(2, 4), some_rules(routing=routing))
        for routing in (Routing.LEAST_PREFILL, Routing.SHORTEST_QUEUE)
    )
    assert shortest.slot.tolist() == [0, 1, 1]
    assert least.slot.tolist() == [0, 1, 0]
    assert least.first_token_s[2] < 1.5 < shortest.first_token_s[2]


def test_equal_prompts_that_wait_go_to_the_fewest_tokens() -> None:
    trace = a_trace([0.0, 0.0, 1.0], [64, 64, 64], [1000, 100, 1])
    assert run(trace, a_fleet(3, 4), some_rules(routing=Routing.LEAST_PREFILL)).slot.tolist() == [0, 1, 2]
    assert run(trace, a_fleet(2, 4), some_rules(routing=Routing.LEAST_PREFILL)).slot.tolist() == [0, 1, 1]


@given(
    seed=st.integers(0, 2**32 - 1),
    instances=st.integers(1, 3),
    deferred=st.integers(1, 30),
)
def test_an_interactive_prompt_waits_for_one_deferred_prompt_at_most(
    seed: int, instances: int, deferred: int
) -> None:
    """A deferred prompt is sent where none waits; an interactive one has at most one of them before it."""
    rng, tokens = np.random.default_rng(seed), 512
    arrivals = np.sort(rng.integers(0, 64 * 32, 40)) / 32
    held = np.sort(rng.integers(0, 64 * 32, deferred)) / 32
    both = np.concatenate([arrivals, held])
    order = np.argsort(both, kind="stable")
    trace = a_trace(both[order], tokens, 1)
    trace = trace._replace(tier=np.repeat([0, 2], [arrivals.size, deferred])[order].astype(np.int16))
    rules = some_rules(
        routing=Routing.LEAST_PREFILL, batch_pull=BatchPull.GAPS, order=QueueOrder.LATE_LAST, tau_n_s=np.inf
    )
    mixed = run(trace, a_fleet(instances, 8), rules, horizon_s=400.0)
    assert np.isfinite(mixed.finish_s).all()
    is_held = trace.tier == 2
    begins = mixed.first_token_s - tokens * PREFILL_S_PER_TOKEN
    for request in np.flatnonzero(is_held):  # no prompt was there when it was sent
        sent, slot = mixed.dispatched_s[request], mixed.slot[request]
        others = (mixed.slot == slot) & (np.arange(both.size) != request)
        waits = others & (mixed.dispatched_s < sent) & (mixed.first_token_s > sent)
        assert not waits.any()
    for request in np.flatnonzero(~is_held):
        sent, slot = mixed.dispatched_s[request], mixed.slot[request]
        between = is_held & (mixed.slot == slot) & (begins < begins[request]) & (mixed.first_token_s > sent)
        assert between.sum() <= 1


def test_gaps_use_what_memory_leaves_and_no_more() -> None:
    """Nothing is pulled while more than the first threshold of the memory is in use."""
    fleet = a_fleet(1, 8, kv_capacity=np.array([1000]))
    trace = a_trace([0.0, 1.0], [700, 50], [200, 2])._replace(tier=np.array([0, 2], np.int16))
    rules = some_rules(batch_pull=BatchPull.GAPS)
    held = run(trace, fleet, rules)
    assert held.first_token_s[1] > held.finish_s[0]
    free = run(trace, fleet, rules._replace(niw_pull_one_share=0.9))
    assert free.first_token_s[1] < free.finish_s[0]


def test_a_gap_takes_no_request_that_would_slow_answers_beyond_the_limit() -> None:
    """The limit is on a decode step with the batch request in it, after its prefill."""
    fleet = a_fleet(1, 8)
    larger = 1 + np.arange(fleet.latency.decode_s.shape[1]) / 4  # a step is longer with more requests
    latency = fleet.latency._replace(decode_s=fleet.latency.decode_s * larger)
    fleet = fleet._replace(latency=latency)
    trace = a_trace([0.0, 1.0], [70, 50], [200, 2])._replace(tier=np.array([0, 2], np.int16))
    step_s = latency.decode_s[0, 2] + latency.decode_kv_s[0, 2] * (70 + 50)
    rules = some_rules(batch_pull=BatchPull.GAPS)
    held = run(trace, fleet, rules._replace(pull_step_s=0.999 * step_s))
    assert held.first_token_s[1] > held.finish_s[0]
    free = run(trace, fleet, rules._replace(pull_step_s=1.5 * step_s))
    assert free.first_token_s[1] < free.finish_s[0]


def test_the_limit_is_a_share_of_the_strictest_target_per_token_of_interactive_tiers() -> None:
    catalogue, replay = load_catalogue(), load_config("office", load_catalogue()).replay
    tiers = catalogue.tiers
    assert make_rules(catalogue, replay, "follow").pull_step_s == np.inf
    slower = {"iw_normal": 0.2, "iw_fast": 0.1, "niw": 0.01}
    changed = {name: dataclasses.replace(tiers[name], tpot_slo_s=target) for name, target in slower.items()}
    found = make_rules(dataclasses.replace(catalogue, tiers=changed), replay, "follow").pull_step_s
    assert found == pytest.approx(PULL_STEP_SHARE * 0.1)


# --- capacity by size ----------------------------------------------------------------------------------


def least_number(work: float, capacity: float, shares: list[float]) -> int:
    """Count up."""
    n = 0
    while n * (shares[min(n, 4) - 1] if n else 0.0) * capacity < work - ROUNDED_OFF * capacity:
        n += 1
    return n


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2000).map(lambda n: n / 16),
            st.sampled_from([1.0, 4.0]),
            st.floats(0.05, 1),
            st.floats(0.05, 1),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_the_instances_for_work_are_those_of_counting_up(
    pools: list[tuple[float, float, float, float]],
) -> None:
    work, capacity, one, two = (np.array(column) for column in zip(*pools, strict=True))
    shares = size_shares(one * capacity, two * capacity, capacity)
    assert (np.diff(shares, axis=0) >= 0).all()
    assert (shares[-1] == 1).all()
    found = instances_for_work(work, capacity, shares)
    expected = [least_number(*of) for of in zip(work, capacity, shares.T.tolist(), strict=True)]
    assert found.tolist() == expected
    assert (sustained_work(found, capacity, shares) >= work - ROUNDED_OFF * capacity - 1e-9).all()
    assert (instances_for_work(work * 1.25, capacity, shares) >= found).all()


RUNNING = np.array([3, 9, 0, 0, 0, 2])


def six_pools(**changes: object) -> CompactRule:
    """Six pools of three llms."""
    rule = CompactRule(
        llms=np.array([0, 0, 0, 1, 1, 2]),
        shares=np.tile(np.array([0.5, 0.75, 0.875, 1.0])[:, None], 6),
        of_four=np.full(6, 100.0),
        capacity=np.full(6, 100.0),
        least=np.zeros(6, np.int64),
        most=np.full(6, 40),
        held_decisions=np.zeros(6, np.int64),
    )
    return rule._replace(**changes)


def test_all_work_of_an_llm_counts_at_its_home() -> None:
    work = np.array([1000.0, 49.0, 251.0, 5.0, 0.0, 0.0])
    assert needed_instances(work, RUNNING, six_pools()).tolist() == [0, 13, 0, 1, 0, 1]
    runs_anyway = six_pools(least=np.array([1, 0, 0, 0, 1, 0]))
    assert needed_instances(work, RUNNING, runs_anyway).tolist() == [13, 0, 0, 0, 1, 1]
    full = six_pools(most=np.array([40, 8, 2, 40, 40, 40]))
    assert needed_instances(work, RUNNING, full).tolist() == [5, 8, 0, 1, 0, 1]
    turned = CompactRule(*(values[..., ::-1] for values in full))
    found = needed_instances(work[::-1], RUNNING[::-1], turned)
    assert found[::-1].tolist() == [5, 8, 0, 0, 1, 1]  # equal pools of the second llm: the first one


@pytest.mark.parametrize(("knob", "expected"), [(0.5, [10, 8]), (1.0, [5, 8]), (2.0, [0, 7])])
def test_only_what_a_full_home_does_not_sustain_goes_to_other_pools(knob: float, expected: list[int]) -> None:
    """The home has eight of a measured capacity of 100, for work of 1,300; a knob above 1 counts on more."""
    full = six_pools(
        most=np.array([40, 8, 2, 40, 40, 40]), capacity=np.full(6, 100.0 * knob), shares=np.ones((4, 6))
    )
    needed = needed_instances(np.array([1300.0, 0.0, 0.0, 0.0, 0.0, 0.0]), RUNNING, full)
    assert needed[:3].tolist() == [*expected, 0]


# --- how long an unused instance is held ----------------------------------------------------------------


def late_and_held(work, observed, hold, boot, least, capacity, shares, used):
    """Step by step: the share of late work, and the sum of instances."""
    needs, helds, queue, late = [], [], 0.0, 0.0
    needed = {load: max(least, least_number(load, used * capacity, shares)) for load in {*observed}}
    for step, (arriving, load) in enumerate(zip(work, observed, strict=True)):
        needs.append(needed[load])
        helds.append(max(needs[max(0, step - hold) :]))
        serving = min(helds[max(0, step - boot) :])
        queue = max(0.0, queue + arriving - serving * shares[min(serving, 4) - 1] * capacity)
        late += min(arriving, queue)
    return late / sum(work), sum(helds)


@settings(max_examples=50)
@given(
    work=st.lists(st.sampled_from([0.0, 1.0, 2.0, 9.0, 20.0]), min_size=8, max_size=24).filter(any),
    one=st.integers(4, 8),
    two=st.integers(4, 8),
    boot=st.integers(0, 3),
    least=st.integers(1, 2),
)
def test_the_cheapest_hold_is_that_of_going_step_by_step(work, one, two, boot, least) -> None:
    """Over a fine grid of the part of the capacity that is used: the cheapest of those that save enough.

    A time below the first must save a twentieth, one above it a tenth. The grid is right to 3 %.
    """
    choices, shares = [2, 1, 4, 8], size_shares(np.array([one / 8]), np.array([two / 8]), np.array([1.0]))
    observed = [work[0], *work[:-1]]
    found = cheapest_hold(np.array(work), np.array(observed), choices, boot, least, 4.0, shares[:, 0])
    costs = {}
    for hold in choices:
        trials = (
            late_and_held(work, observed, hold, boot, least, 4.0, shares[:, 0].tolist(), used)
            for used in np.geomspace(hold_time.LEAST_USED, hold_time.MOST_USED, 200)
        )
        costs[hold] = min((held for late, held in trials if late <= hold_time.LATE_SHARE), default=np.inf)
    if np.isfinite(costs[2]):
        left = {1: 0.95, 2: 1.03, 4: 0.9, 8: 0.9}
        surely = [cost for hold, cost in costs.items() if hold == 2 or cost <= (left[hold] - 0.03) * costs[2]]
        assert costs[found] <= 1.03 * min(surely)
        assert costs[found] <= (left[found] + 0.03) * costs[2]
    thousandfold = [1000 * np.array(of) for of in (work, observed)]
    assert cheapest_hold(*thousandfold, choices, boot, least, 4000.0, shares[:, 0]) == found


def test_instances_are_held_from_burst_to_burst_and_no_longer() -> None:
    """Bursts of two steps every eight: a hold of six bridges the gaps. One burst a day: no other time pays.

    Load that rises slowly and ends at once: the shorter one.
    """
    shares, choices, step = np.ones(4), [2, 1, 4, 6, 8, 20], np.arange(1440)
    for work, expected in (
        (np.where(step % 8 < 2, 100.0, 1.0), 6),
        (np.where(step < 600, 100.0, 1.0), 2),
        (np.where(step % 40 < 30, 5.0 * (step % 40), 1.0), 1),
        (np.zeros(1440), 2),
    ):
        assert cheapest_hold(work, np.roll(work, 1), choices, 1, 1.0, 10.0, shares) == expected


def test_without_a_past_week_each_pool_holds_for_the_longest_boot(tmp_path) -> None:
    settings = load_settings("office", tmp_path)
    pools = len(settings.grid.pools)
    held_s = pool_holds_s(settings, DAY, np.ones(pools), np.ones((4, pools)))
    assert held_s.tolist() == [settings.config.replay.boot_spot_max_s] * pools


# --- a day ---------------------------------------------------------------------------------------------


DECISIONS_PER_HOUR = 60  # a quarter of what is shipped: each costs the replay milliseconds
HOLDS_MINUTES = [5] * 3 + [10] * 3 + [20] * 3 + [1] * 3  # by pool
Seen = list[tuple[FleetObservation, np.ndarray]]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    folder = tmp_path_factory.mktemp("compact")
    path = small_config(folder, requests_per_day="40_000.0", min_instances="0", policies='["compact"]')
    settings = load_settings(path, folder / "lake")
    make_plans(settings, DAY, lambda s, *_: [30.0] * len(s.grid.service_options))
    return settings


@pytest.fixture(scope="module")
def watched_day(night: RunSettings) -> tuple[RunSettings, Seen]:
    """What the policy observes at each decision of a replay, and what it decides.

    Deferred requests wait until they age.
    """
    replay = dataclasses.replace(
        with_boot_time(night, 400.0).config.replay, niw_pull_one_share=0.0, niw_pull_two_share=0.0
    )
    settings = dataclasses.replace(night, config=dataclasses.replace(night.config, replay=replay))
    seen: Seen = []
    plain = compact_schedule.own_schedule

    def watched(name, policy, *of):
        def decide(observed: FleetObservation) -> np.ndarray:
            seen.append((observed, np.asarray(policy.decide(observed))))
            return seen[-1][1]

        return plain(name, policy._replace(decide=decide), *of)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured_capacity, "measure_capacities", by_size)
        patch.setattr(measured_capacity, "MEASURED_SIZES", {})
        patch.setattr(compact_schedule, "DECISIONS_PER_HOUR", DECISIONS_PER_HOUR)
        patch.setattr(compact_schedule, "own_schedule", watched)
        patch.setattr(compact_schedule, "pool_holds_s", lambda *_: 60.0 * np.array(HOLDS_MINUTES))
        replay_day(settings, DAY, ["compact"], Progress())
    return settings, seen


def test_it_holds_what_the_work_needs_for_the_time_of_each_pool(
    watched_day: tuple[RunSettings, Seen],
) -> None:
    settings, seen = watched_day
    assert len(seen) == 24 * DECISIONS_PER_HOUR
    llms = np.array([list(settings.catalogue.llms).index(llm) for llm in seen[0][0].llm])
    first = seen[0][0]
    rule = CompactRule(
        llms,
        np.tile(np.array([0.5, 0.75, 0.875, 1.0])[:, None], llms.size),
        first.capacity_tokens_per_s,
        first.capacity_tokens_per_s,
        first.least,
        first.most,
        np.zeros(llms.size, np.int64),
    )
    needed = [seen[0][0].serving + seen[0][0].booting]
    for observed, wanted in seen:
        work = observed.arriving_tokens_per_s + observed.waiting_tokens / settings.config.replay.catch_up_s
        work += observed.due_tokens_per_s
        needed.append(needed_instances(work, observed.serving + observed.booting, rule))
        holds = zip(np.array(needed).T, HOLDS_MINUTES, strict=True)
        np.testing.assert_array_equal(wanted, [row[-1 - minutes :].max() for row, minutes in holds])
    assert len(np.unique([wanted for _, wanted in seen])) > 3


def test_each_llm_is_held_for_the_time_that_was_cheapest_on_the_days_before(
    night: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their work is counted from their requests; three pools of each llm are equal."""
    names, capacity = list(night.catalogue.llms), 100.0
    past = night.lake.sql(
        "select llm, arrived_at, input_tokens from requests "
        "where trace = $trace and day < $day and tier in ('iw_fast', 'iw_normal')",
        trace=night.trace,
        day=DAY,
    ).to_pandas()
    steps = (past["arrived_at"] - pd.Timestamp(2025, 7, 1, tz="UTC")) // pd.Timedelta("15s")
    work = np.zeros((len(names), 2 * 5760))
    np.add.at(work, (past["llm"].map(names.index), steps), past["input_tokens"] / 15)
    observed = np.zeros_like(work)
    for step in range(1, work.shape[1]):  # smoothed over a minute
        observed[:, step] = observed[:, step - 1] + (work[:, step - 1] - observed[:, step - 1]) * 15 / 60
    shares = np.tile(np.array([0.5, 0.75, 0.875, 1.0])[:, None], len(night.grid.pools))
    expected = [
        15 * cheapest_hold(*of_llm, [20, 4, 40, 80, 160], 4, 1.0, capacity, shares[:, 0])
        for of_llm in zip(work, observed, strict=True)
    ]
    found = pool_holds_s(night, DAY, np.full(len(night.grid.pools), capacity), shares)
    assert found.tolist() == np.repeat(expected, 3).tolist()
    assert len(set(expected)) > 2
    choices_of_llms: list[list[int]] = []
    slow = with_boot_time(night, 800.0)  # 1,200 s at most

    def first_choice(_work: object, _observed: object, choices: list[int], *_: object) -> int:
        choices_of_llms.append(choices)
        return choices[0]

    monkeypatch.setattr(hold_times, "cheapest_hold", first_choice)
    assert (pool_holds_s(slow, DAY, found, shares) == 1200.0).all()
    assert choices_of_llms == [[80, 54, 160]] * len(names)
    first = dataclasses.replace(night.config.trace, first_day=DAY)
    without = dataclasses.replace(night, config=dataclasses.replace(night.config, trace=first))
    assert (pool_holds_s(without, DAY, found, shares) == 300.0).all()


def test_each_pool_with_a_minimum_is_a_home_of_its_region(
    night: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its instances run anyway, so requests of its region are sent there; it must sustain them."""
    fleet = dataclasses.replace(night.config.fleet, survive="region")
    settings = dataclasses.replace(night, config=dataclasses.replace(night.config, fleet=fleet))
    grid, policies = settings.grid, list[OwnPolicy]()
    pools, zero = len(grid.pools), np.zeros(len(grid.pools))
    monkeypatch.setattr(measured_capacity, "measure_capacities", by_size)
    monkeypatch.setattr(measured_capacity, "MEASURED_SIZES", {})
    monkeypatch.setattr(compact_schedule, "own_schedule", lambda _name, policy, *_: policies.append(policy))
    capacity = np.full(grid.shape, 30.0)
    compact_schedule.compact_schedule(settings, DAY, capacity, capacity, zero)
    names = (
        tuple(getattr(row, name) if name == "region" else getattr(row.kind, name) for row in grid.pools)
        for name in ("llm", "region", "gpu")
    )
    none, least = np.zeros(pools, np.int64), np.array([row.min_instances for row in grid.pools])
    work = np.full(pools, 75.0)  # 2.5 instances of four
    wanted = policies[0].decide(
        FleetObservation(0.0, *names, none, none, work, zero, zero, zero, zero + 30.0, least, none + 40)
    )
    assert least.tolist() == [1, 1, 0] * 4  # three regions of each llm
    assert np.asarray(wanted).tolist() == [5, 3, 0] * 4  # the first home has the work of the third region too


def test_capacities_by_size_are_measured_once(night: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(
        measured_capacity, "measure_capacities", lambda *of: calls.append(of[-1]) or by_size(*of)
    )
    monkeypatch.setattr(measured_capacity, "MEASURED_SIZES", {})
    of_four = np.full(len(night.grid.pools), 30.0)
    for _ in range(2):
        shares = compact_schedule.pool_size_shares(night, DAY, of_four)
        assert shares[:, 0].tolist() == [0.5, 0.75, 0.875, 1.0]
    assert calls == [1, 2]
    plan = dataclasses.replace(night.config.plan, corrected_capacity_share=0.5)
    halved = compact_schedule.pool_size_shares(night.with_config(plan=plan), DAY, of_four / 2)
    assert halved.tolist() == shares.tolist()  # a plan's utilisation target is no part of what is measured
    assert calls == [1, 2]
    for table, change in (
        ("fleet", {"max_batch": 7}),
        ("replay", {"routing": "round_robin"}),
        ("plan", {"capacity": "throughput"}),
    ):
        calls.clear()
        own = dataclasses.replace(getattr(night.config, table), **change)
        compact_schedule.pool_size_shares(night.with_config(**{table: own}), DAY, of_four)
        assert calls == [1, 2], table


def test_deferred_work_is_due_before_it_ages(watched_day: tuple[RunSettings, Seen]) -> None:
    """While nothing is pulled: all prompts of an llm that wait, in the time until the first one ages."""
    settings, seen = watched_day
    trace, age_s = read_workload(settings, DAY).trace, settings.config.replay.niw_priority_age_s
    niw, llms = trace.tier == list(settings.catalogue.tiers).index("niw"), list(settings.catalogue.llms)
    for observed, _ in seen[3:500:24]:
        waits = niw & (trace.arrival_s < observed.now_s)
        for number, llm in enumerate(llms):
            mine = waits & (trace.llm == number)
            left_s = trace.arrival_s[mine].min(initial=observed.now_s) + age_s - observed.now_s
            due = observed.due_tokens_per_s[np.array(observed.llm) == llm].sum()
            assert due == pytest.approx(trace.input_tokens[mine].sum() / left_s)


# --- what knowing each minute would save ---------------------------------------------------------------


@given(
    work=st.lists(st.integers(0, 40), min_size=1, max_size=3),
    batch=st.integers(0, 60),
    least=st.integers(0, 2),
    one=st.integers(1, 8),
    two=st.integers(1, 8),
)
def test_no_fleet_needs_less_than_one_that_knows_each_minute(work, batch, least, one, two) -> None:
    """Compared with every fleet of up to nine instances a minute; equal without batch work."""
    shares = size_shares(np.array([one / 8]), np.array([two / 8]), np.array([1.0]))
    capacity, interactive = 8.0, np.array(work, float)
    found = known_minutes_instances(interactive, float(batch), float(least), capacity, shares[:, 0])
    sizes = np.arange(10)
    sustained = sustained_work(sizes.astype(float), np.full(10, capacity), np.repeat(shares, 10, axis=1))
    needs = []
    for fleet in itertools.product(range(least, 10), repeat=len(work)):
        room = sustained[list(fleet)] - interactive
        if room.min() >= -1e-9 and room.sum() >= batch - 1e-9:
            needs.append(sum(fleet))
    assert not needs or found <= min(needs) + 1e-9
    alone = known_minutes_instances(interactive, 0.0, float(least), capacity, shares[:, 0])
    assert alone <= found
    assert batch or alone == min(needs, default=alone)
