"""What config, catalogue and plan hand to the replay, field by field: each figure arrives where it belongs.

The run is wired.toml's, in which no figure stands at its default and no two of a table are equal.
"""

import dataclasses
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from wired import DAY, LLMS, REGIONS, changed, wired_settings

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import RunSettings, load_settings
from fleetcast.assets.replays.policy_inputs import fleet_and_rules, policy_schedules
from fleetcast.models.replay.kernel_inputs import DRAFT_CYCLE, NO_INDEX, FleetArrays, Rules
from fleetcast.models.replay.run import Schedule
from fleetcast.models.replay.session.fleet_arrays import make_fleet
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.world.calendar import DAY_S
from fleetcast.models.world.config import CustomPolicy
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.mechanisms import (
    BATCH_PULLS,
    BATCHINGS,
    DEMANDS,
    ORDERS,
    POOL_SPREADS,
    ROLES,
    ROUTINGS,
    SCALINGS,
    SIGNALS,
    QueueOrder,
)
from fleetcast.models.world.policies import ANSWER_PLANNERS, REPLAY_POLICIES, planned_policies

PLACES = [(llm, region) for llm in LLMS for region in REGIONS]
# What each policy follows, by which rule, and on which pools: whether they take interactive requests, whether
# others, and their shares of 20 instances.
INTERACTIVE, MIXED, BATCH = (True, False), (True, True), (False, True)
UNIFIED, SILOED, CHIRON = (
    [(MIXED, 20)],
    [(INTERACTIVE, 16), (BATCH, 4)],
    [(INTERACTIVE, 10), (MIXED, 5), (BATCH, 5)],
)
FOLLOWED: dict[str, tuple[str | None, str, list[tuple[Any, int]], bool]] = {
    "static": ("peak", "follow", UNIFIED, False),
    "siloed": (None, "reactive", SILOED, False),
    "reactive": (None, "reactive", UNIFIED, False),
    "hpa": (None, "hpa", UNIFIED, False),
    "chiron": (None, "chiron", CHIRON, False),
    "dynamo": ("recent", "follow", UNIFIED, False),
    "lt_i": ("forecast", "follow", UNIFIED, False),
    "lt_u": ("forecast", "lt_u", UNIFIED, False),
    "lt_ua": ("forecast", "lt_ua", UNIFIED, False),
    "corrected": ("corrected", "reflex", UNIFIED, False),
    "corrected_closed": ("corrected", "reflex", UNIFIED, True),
    "day_ahead": ("day_ahead", "reflex", UNIFIED, False),
    "llumnix": (None, "freeness", UNIFIED, False),
    "corrected_llumnix": ("corrected", "reflex", UNIFIED, False),
    "melange": ("melange", "follow", UNIFIED, False),
    "cauchy_mixed": ("autoscaler", "follow", UNIFIED, False),
    "cauchy": ("autoscaler", "follow", UNIFIED, False),
    "corrected_combos": ("corrected", "reflex", UNIFIED, False),
    **dict.fromkeys(ANSWER_PLANNERS, ("standing", "follow", UNIFIED, False)),
    "clairvoyant": ("truth", "reflex", UNIFIED, False),
}


@pytest.fixture(scope="module")
def wired(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    """The run of wired.toml over an empty lake."""
    return wired_settings(tmp_path_factory.mktemp("lake"))


def fleet_of(settings: RunSettings, pooling: str = "unified") -> FleetArrays:
    return make_fleet(settings.catalogue, settings.config.fleet, settings.config.replay, 3, pooling)


def at(fleet: FleetArrays, llm: str, region: str, pool: int = 0) -> dict[str, Any]:
    """What the fleet holds of an llm in a region, by name; the one place that knows how it is laid out."""
    i, j = LLMS.index(llm), REGIONS.index(region)
    row = fleet.pools_of[i * len(REGIONS) + j, pool]
    slots, kind = slice(fleet.slots[row], fleet.slots[row + 1]), fleet.kind[row]
    assert (fleet.pool[slots] == row).all()
    assert (fleet.slot_kind[slots] == kind).all()
    assert (fleet.llm[row], fleet.region[row]) == (i, j)
    return {
        "slots": slots.stop - slots.start,
        "instances_at_start": fleet.instances_at_start[row],
        "min_instances": fleet.min_instances[row],
        "boot_cold_s": fleet.boot_cold_s[row],
        "boot_factor": fleet.boot_factor[kind],
        "kv_capacity": fleet.kv_capacity[kind],
        "gpu": fleet.gpu[kind],
        "gpus": fleet.gpus[kind],
    }


def pools_of(fleet: FleetArrays) -> list[tuple[Any, float]]:
    """The pools of every llm in every region: what they take, and their share of 20 instances."""
    rows = [
        [
            ((bool(fleet.takes[row, :2].all()), bool(fleet.takes[row, 2])), 20 * fleet.share[row])
            for row in own
        ]
        for own in fleet.pools_of
    ]
    assert all(row == rows[0] for row in rows)
    return rows[0]


def test_nothing_in_this_run_is_a_default_and_no_two_figures_are_equal(wired: RunSettings) -> None:
    usual = load_settings("sageserve", wired.lake.root).config
    # test_calendar.py, test_cascades.py, test_compact.py, test_engine_answers.py, test_floors.py, below
    apart = ("calendar", "cascades", "batch_pull", "start", "is_balanced", "engines", "quality_floor")
    apart += ("survive", "survive_by_llm")
    for table in ("fleet", "forecast", "plan", "replay"):
        own = dataclasses.asdict(getattr(wired.config, table))
        default = dataclasses.asdict(getattr(usual, table))
        assert not [key for key, value in own.items() if value == default[key] and key not in apart]
        figures = [value for value in own.values() if isinstance(value, int | float) and value is not True]
        assert not [figure for figure, count in Counter(figures).items() if count > 1]


def test_the_rules_are_those_of_the_config_and_the_tiers(wired: RunSettings) -> None:
    found = make_rules(wired.catalogue, wired.config.replay, "lt_ua")._asdict()
    assert (SCALINGS[found.pop("scaling")], ROUTINGS[found.pop("routing")]) == ("lt_ua", "least_kv")
    assert ORDERS[found.pop("order")] == "edf"
    assert (POOL_SPREADS[found.pop("spread")], SIGNALS[found.pop("signal")]) == ("most_unused", "both")
    assert BATCH_PULLS[found.pop("batch_pull")] == "memory"
    assert found.pop("urgency").tolist() == [0, 1, 1]
    assert [found.pop(name).tolist() for name in ("go_on_below", "judge_s")] == [[0.0, 0.0]] * 2
    assert [found.pop(name).size for name in ("gear_from", "gear_below")] == [0, 0]  # test_cascades.py
    assert (found.pop("gears_by"), found.pop("gear_llm").tolist()) == (0, [NO_INDEX, NO_INDEX])
    assert [found.pop(name) for name in ("last_copy_tokens", "max_copies", "move_s")] == [48, 5, 0.02]
    np.testing.assert_allclose(found.pop("headroom_share"), 0.35 * np.exp([0.0, -1.0, -2.0]))
    assert found.pop("ceiling_share").tolist() == [1.0, 1.0, 1.0]
    assert DEMANDS[found.pop("demand")] == "all"
    assert found.pop("balance_s") == np.inf
    assert found.pop("pull_step_s") == np.inf  # test_compact.py
    assert found.pop("allowance_s").tolist() == [1.3, 31.0, 43_000.0]
    assert [found.pop(name).size for name in ("failure_s", "failure_slot")] == [0, 0]
    assert found.pop("steps_per_event") > 1 << 40
    assert found == {
        **{"tau_p_s": 0.37, "tau_n_s": 8.5, "cooldown_s": 17.0, "monitor_s": 11.0},
        **{"route_utilisation_share": 0.66, "scale_out_share": 0.74, "scale_in_share": 0.28},
        **{"niw_pull_one_share": 0.58, "niw_pull_two_share": 0.41, "niw_priority_age_s": 7300.0},
        **{"surge_ratio": 3.3, "slump_ratio": 0.62, "pressure_share": 0.54},
        **{"catch_up_s": 91.0, "reactive_share": 1.7},
        "correction_s": (60 - 25) * 60.0,
        **{
            "opportunism": 2,
            "opportunism_weight": 1.9,
            "uses_central_queue": False,
            "promote_s": 77.0,
            "freeness_out": -0.77,
            "freeness_in": 2.9,
        },
        **{"gap_blocks": 0.7, "from_blocks": 6.0, "is_guarded": False, "lowest_first": False},
    }


def test_config_sets_request_deferral(wired: RunSettings) -> None:
    replay = wired.config.replay
    levels = dataclasses.replace(replay.levels, least_ceiling_share=0.5)
    rules = make_rules(wired.catalogue, dataclasses.replace(replay, levels=levels), "lt_ua")
    assert (rules.uses_central_queue, rules.ceiling_share.tolist()) == (True, [1.0, 0.75, 0.5])


def test_policy_sets_live_migration(wired: RunSettings) -> None:
    for policy, is_balanced in (("llumnix", True), ("corrected_llumnix", True), ("lt_ua", False)):
        fleet, rules = fleet_and_rules(wired, policy)
        assert (rules.balance_s, fleet.has_transfers) == ((1.5, True) if is_balanced else (np.inf, False))
        assert fleet.by_freeness == (ROUTINGS[rules.routing] == "freeness") == is_balanced
        assert ORDERS[rules.order] == ("priority" if is_balanced else "edf")


@pytest.mark.parametrize(
    ("names", "key", "field"),
    [
        (ROUTINGS, "routing", "routing"),
        (ORDERS, "order", "order"),
        (SIGNALS, "signal", "signal"),
        (BATCH_PULLS, "batch_pull", "batch_pull"),
        (SCALINGS, None, "scaling"),
    ],
)
def test_every_name_has_its_own_code(wired: RunSettings, names, key, field) -> None:
    replay = wired.config.replay
    for code, name in enumerate(names):
        own = dataclasses.replace(replay, **({key: name} if key else {}))
        rules = make_rules(wired.catalogue, own, "follow" if key else name)
        assert getattr(rules, field) == (QueueOrder.DPA if name == "late_last" else code)


def test_the_fleet_is_that_of_the_config_and_the_catalogue(wired: RunSettings) -> None:
    fleet = fleet_of(wired)
    llama_bytes, bloom_bytes = 2 * 69.0e9, 2 * 176.2e9
    kv = {  # (what the GPUs offer - weights) / bytes of a block of 32 tokens
        LLMS[0]: (8 * 75 * 2**30 * 0.57 - bloom_bytes) // (2 * 70 * 112 * 128 * 2 * 32) * 32,
        LLMS[1]: (4 * 58.2 * 2**30 * 0.57 - llama_bytes) // (2 * 80 * 8 * 128 * 2 * 32) * 32,
    }
    has_weights = {(LLMS[0], "north"), (LLMS[0], "south"), (LLMS[1], "south"), (LLMS[1], "far")}
    for llm, region in PLACES:
        assert at(fleet, llm, region) == {
            **{"slots": 13, "instances_at_start": 8, "min_instances": 1},
            "boot_cold_s": (480.0 if (llm, region) in has_weights else 1500.0)
            * (1.25 if llm == LLMS[0] else 1),
            "boot_factor": 1.25 if llm == LLMS[0] else 1.0,
            "kv_capacity": kv[llm],
            "gpu": list(wired.catalogue.gpus).index("h100-80gb" if llm == LLMS[1] else "a100-80gb"),
            "gpus": 4 if llm == LLMS[1] else 8,
        }
    assert ({*fleet.max_batch}, {*fleet.max_prefill_tokens}, fleet.kv_block_tokens) == ({48}, {4096}, 32)
    assert {*fleet.long_prefill_token_threshold} == {1536}
    assert fleet.drafts.tokens.tolist() == [2, 2]
    assert (fleet.drafts.made[:, -1] / DRAFT_CYCLE).tolist() == [1 + 0.375 + 0.125] * 2
    assert fleet.drafts.draft_s.tolist() == [2 * 0.0121] * 2
    assert fleet.watermark_blocks.tolist() == [int(0.03 * (kv[llm] // 32 + 1)) for llm in LLMS]
    assert (fleet.then == NO_INDEX).all()
    assert not fleet.has_transfers
    assert fleet.is_interactive.tolist() == [True, True, False]
    layers, token_bytes = [70, 80], [2 * 70 * 112 * 128 * 2, 2 * 80 * 8 * 128 * 2]
    assert fleet.link_layers[fleet.kind].tolist() == np.repeat(layers, len(REGIONS)).tolist()
    np.testing.assert_allclose(fleet.link_token_s, [8 * each / 77e9 for each in token_bytes])
    assert {BATCHINGS[code] for code in fleet.batching} == {"chunked"}
    assert fleet.is_async.all()
    assert fleet.cap_gpus.tolist() == [[53, 101], [47, 97], [43, 89]]
    network_s = np.array([[0.0, 0.11, 0.07], [0.05, 0.0, 0.13], [0.19, 0.17, 0.0]])
    np.testing.assert_array_equal(fleet.network_s, 0.0013 + network_s)  # behind the front end
    assert fleet.preference.tolist() == [[0, 2, 1], [1, 0, NO_INDEX], [2, 1, 0]]
    # 8 x a100, 4 x h100: a step of three tokens, and two passes of the drafter
    assert fleet.latency.decode_s[:, 1].tolist() == pytest.approx([0.049803 + 0.0242, 0.029942 + 0.0242])
    assert fleet.donate_s == 37.0
    assert np.median(fleet.boot_spot_s) == pytest.approx(45.0, rel=0.05)
    assert (fleet.boot_spot_s.min(), fleet.boot_spot_s.max()) == (45.0 / 2, 90.0)


def test_an_engine_may_have_limits_of_its_own(wired: RunSettings) -> None:
    limits = {"batching": "orca", "max_batch": 40, "max_prefill_tokens": 2048, "async_scheduling": False,
              "long_prefill_token_threshold": 0, "watermark": 0.0, "speculative_acceptance": (),
              "speculative_draft_s": 0.0}  # fmt: skip
    own = wired.config.fleet.deployments
    (pool,) = own[LLMS[1]]
    config = dataclasses.replace(
        wired.config.fleet,
        deployments={**own, LLMS[1]: (dataclasses.replace(pool, **limits, kv_tokens=99_999),)},
    )
    fleet = fleet_of(dataclasses.replace(wired, config=dataclasses.replace(wired.config, fleet=config)))
    assert [BATCHINGS[code] for code in fleet.batching] == ["chunked", "orca"]
    assert (fleet.max_batch.tolist(), fleet.max_prefill_tokens.tolist()) == ([48, 40], [4096, 2048])
    assert fleet.is_async.tolist() == [True, False]
    assert (fleet.long_prefill_token_threshold[1], fleet.watermark_blocks[1]) == (0, 0)
    assert fleet.drafts.tokens.tolist() == [2, 0]
    assert fleet.kv_capacity[1] == 99_999 // 32 * 32
    assert fleet.latency.decode_s.shape == (2, 49)


def test_a_region_without_the_gpus_of_an_llm_has_no_place_for_it(wired: RunSettings) -> None:
    bare = dataclasses.replace(wired.catalogue.regions["far"], cap_gpus={"h100-80gb": 43})
    catalogue = dataclasses.replace(wired.catalogue, regions={**wired.catalogue.regions, "far": bare})
    fleet = fleet_of(dataclasses.replace(wired, catalogue=catalogue), "siloed")
    for pool in (0, 1):
        there = {place: at(fleet, *place, pool) for place in PLACES}
        none = there.pop((LLMS[0], "far"))
        assert (none["slots"], none["instances_at_start"], none["min_instances"]) == (0, 0, 0)
        assert all(place["slots"] and place["min_instances"] for place in there.values())


@pytest.mark.parametrize(
    ("pooling", "slots", "at_start"),
    [("unified", [13], [8]), ("siloed", [10, 3], [6, 2]), ("chiron", [7, 3, 3], [4, 2, 2])],
)
def test_pools_share_the_instances(wired: RunSettings, pooling, slots, at_start) -> None:
    fleet = fleet_of(wired, pooling)
    for llm, region in PLACES:
        pools = [at(fleet, llm, region, pool) for pool in range(len(slots))]
        assert [pool["slots"] for pool in pools] == slots
        assert [pool["instances_at_start"] for pool in pools] == at_start
        assert {pool["boot_cold_s"] for pool in pools} == {at(fleet_of(wired), llm, region)["boot_cold_s"]}


@pytest.mark.parametrize("policy", FOLLOWED)
def test_each_policy_follows_its_own_plan_by_its_own_rule_on_its_own_pools(
    wired: RunSettings, policy
) -> None:
    plan, scaling, pools, is_closed = FOLLOWED[policy]
    assert (REPLAY_POLICIES[policy].plan, REPLAY_POLICIES[policy].is_closed) == (plan, is_closed)
    fleet, rules = fleet_and_rules(wired, policy)
    assert pools_of(fleet) == pools
    kept = {name: value for name, value in rules._asdict().items() if not name.startswith("failure")}
    changes = {"order": "late_last"} if scaling == "reflex" else {}
    if policy == "hpa":
        changes = {"signal": "memory"}  # a custom policy may observe work too
    if "llumnix" in policy:
        changes = {"order": "priority", "routing": "freeness", "is_balanced": True}
    if "cauchy" in policy or policy in ("melange", "corrected_combos"):
        changes |= {"spread": "goodput"}
    if policy in ANSWER_PLANNERS:
        changes |= {"spread": "weights"}
    own = dataclasses.replace(wired.config.replay, **changes)  # opportunism is weighted here, as theirs is
    np.testing.assert_equal(
        kept | {"failure_s": np.zeros(0), "failure_slot": np.zeros(0, np.int64)},
        make_rules(wired.catalogue, own, scaling)._asdict(),  # the signal of all is "both" here
    )


def test_a_policy_of_ones_own_has_its_own_order_and_routing(wired: RunSettings) -> None:
    own, base = fleet_and_rules(wired, "hasty")[1], fleet_and_rules(wired, "lt_ua")[1]
    assert (own.order, own.routing, own.scaling) == (3, 1, 1)
    assert (base.order, base.routing) == (1, 2)
    assert (fleet_and_rules(wired, "lean")[1].order, fleet_and_rules(wired, "lean")[1].tau_n_s) == (
        3,
        np.inf,
    )  # late_last
    assert [SIGNALS[fleet_and_rules(wired, name)[1].signal] for name in ("hasty", "lean", "lt_ua")] == (
        ["queue", "both", "both"]
    )
    by_memory = changed(wired, "replay", signal="memory")
    assert [fleet_and_rules(by_memory, name)[1].signal for name in ("chiron", "lean", "lt_ua")] == [2, 2, 0]


def test_stack_applies_to_policies_without_overrides(wired: RunSettings) -> None:
    own = {"moved": CustomPolicy("corrected", stack="llumnix")}
    own["mine"] = CustomPolicy("corrected", stack="llumnix", order="pf", is_balanced=False)
    config = dataclasses.replace(wired.config, policies={**wired.config.policies, **own})
    settings = dataclasses.replace(wired, config=config)
    moved, mine = (fleet_and_rules(settings, name) for name in own)
    routed = [(ROUTINGS[rules.routing], ORDERS[rules.order], rules.balance_s) for _, rules in (moved, mine)]
    assert routed == [("freeness", "priority", 0.05), ("freeness", "pf", np.inf)]
    assert [fleet.has_transfers for fleet, _ in (moved, mine)] == [True, False]
    for _, rules in (moved, mine):
        assert (SCALINGS[rules.scaling], rules.is_guarded) == ("reflex", False)
        np.testing.assert_allclose(rules.headroom_share, 0.2 * np.exp([0.0, -1.0, -2.0]))
    assert ORDERS[fleet_and_rules(settings, "corrected")[1].order] == "dpa"  # late_last


def test_failure_rate_comes_from_the_config(wired: RunSettings) -> None:
    def drawn(settings: RunSettings) -> Rules:
        return fleet_and_rules(settings, "lt_i")[1]

    often = drawn(changed(wired, "replay", failures_per_instance_day=9.0))
    slots = fleet_of(wired).pool.size
    assert often.failure_s.size == pytest.approx(9.0 * slots, rel=0.1)
    assert drawn(wired).failure_s.size == pytest.approx(0.9 * slots, rel=0.4)
    assert (np.diff(often.failure_s) >= 0).all()
    assert 0.99 * DAY_S < often.failure_s[-1] < DAY_S
    assert set(often.failure_slot.tolist()) == set(range(slots))
    other = drawn(changed(wired, "trace", seed=6))
    assert not np.array_equal(other.failure_s, drawn(wired).failure_s)
    assert drawn(changed(wired, "replay", failures_per_instance_day=0.0)).failure_s.size == 0


# --- what each policy is given on a day ----------------------------------------------------------------


KINDS = {
    LLMS[0]: {"gpu": "a100-80gb", "gpus_per_instance": 8},
    LLMS[1]: {"gpu": "h100-80gb", "gpus_per_instance": 4},
}


def count(policy: str, hour: int, llm: str, region: str) -> int:
    """A number of instances that is planned nowhere else."""
    return 1000 * planned_policies().index(policy) + 10 * hour + PLACES.index((llm, region))


@pytest.fixture(scope="module")
def day(wired: RunSettings) -> RunSettings:
    """Plans of which every number is another, and a demand of one token a second for each slot of an hour."""
    rows = [
        dict.fromkeys(SCHEMAS["plans"].names)
        | {"policy": policy, "llm": llm, "served_region": region, "programme": "paper", "role": "whole"}
        | KINDS[llm]
        | {"hour_start": datetime(2025, 7, 3, hour, tzinfo=UTC)}
        | {"instances": count(policy, hour, llm, region)}
        | {"demand_tokens_per_s": count(policy, hour, llm, region) + 0.5}
        | {"capacity_tokens_per_s": count(policy, hour, llm, region) + 0.25}
        for policy in reversed(planned_policies())
        if not REPLAY_POLICIES[policy].is_closed
        for hour in range(24)
        for llm, region in reversed(PLACES)
    ]
    where = {"trace": wired.trace, "day": DAY}
    wired.lake.write("plans", pa.Table.from_pylist(rows, SCHEMAS["plans"]), **where)
    minutes = [
        {"region": region, "llm": llm, "tier": tier, "app": "rag", "requests": 1, "output_tokens": 7}
        | {"bucket_start": datetime(2025, 7, 3, tzinfo=UTC) + timedelta(minutes=minute)}
        | {"input_tokens": (100_000 if tier == "iw_fast" else 70_000) * (minute % 100)}
        for minute in range(1440)
        for llm, region in PLACES
        for tier in ("iw_fast", "niw")
    ]
    wired.lake.write("demand", pa.Table.from_pylist(minutes, SCHEMAS["demand"]), **where)
    return wired


@pytest.fixture(scope="module")
def drives(day: RunSettings) -> dict[str, Schedule]:
    return policy_schedules(day, DAY)


def table(policy: str, plus: float = 0.0) -> np.ndarray:
    """A policy's plan of that day: (hours, llms, regions)."""
    counts = [count(policy, hour, llm, region) + plus for hour in range(24) for llm, region in PLACES]
    return np.array(counts).reshape(24, len(LLMS), len(REGIONS))


PLAIN = [
    name
    for name, rule in REPLAY_POLICIES.items()
    if name in FOLLOWED
    and not rule.is_closed
    and rule.start is None
    and rule.plan not in ("autoscaler", "standing")
]


@pytest.mark.parametrize("policy", PLAIN)
def test_each_policy_is_given_its_own_plan_and_forecast(drives: dict[str, Schedule], policy) -> None:
    drive = drives[policy]
    shares = [share / 20 for _, share in FOLLOWED[policy][2]]
    first = [np.round(share * table("lt_i")[0]) for share in shares]  # the pools of an endpoint share it
    assert np.asarray(drive.start).tolist() == np.ravel(first).tolist()
    assert drive.hour_s == 3600.0
    if REPLAY_POLICIES[policy].plan is None:
        assert (drive.targets, drive.forecast_tokens_per_s, drive.rows_per_hour) == (None, None, 1)
    elif policy != "dynamo":
        np.testing.assert_array_equal(drive.targets, table(policy).reshape(24, -1))
        np.testing.assert_array_equal(drive.forecast_tokens_per_s, table(policy, 0.5))
        assert drive.rows_per_hour == 1


def test_policies_starting_with_the_whole_fleet(day: RunSettings, drives: dict[str, Schedule]) -> None:
    of_chiron = np.repeat([4.0, 2.0, 2.0], len(PLACES))  # of the 8 that each endpoint has
    np.testing.assert_array_equal(drives["chiron"].start, of_chiron)
    all_do = policy_schedules(changed(day, "replay", start="whole"), DAY)
    for policy in ("lt_i", "reactive"):
        np.testing.assert_array_equal(all_do[policy].start, np.full(len(PLACES), 8.0))


def test_dynamo_is_given_what_the_three_minutes_before_needed(drives: dict[str, Schedule]) -> None:
    drive = drives["dynamo"]
    targets = np.asarray(drive.targets)
    assert (drive.rows_per_hour, targets.shape, drive.row_s) == (20, (480, len(PLACES)), 180.0)
    sustained = table("clairvoyant", 0.25)[0].ravel()
    for period in range(1, 480):
        minutes = range(3 * period - 3, 3 * period)
        load = sum(100_000 * (minute % 100) for minute in minutes) / 180.0
        assert (targets[period] == np.clip(np.ceil(load / sustained), 1, 13)).all()
    assert (targets[0] == table("lt_i")[0].ravel()).all()
    assert len(np.unique(targets[1:])) > 5


def test_instances_of_a_kind_that_the_config_does_not_have_are_left_out(day: RunSettings, tmp_path) -> None:
    rows = day.lake.read("plans", trace=day.trace, day=DAY).drop_columns(["trace", "day"]).to_pylist()
    other = wired_settings(tmp_path)
    twice = [*rows, *(row | {"gpus_per_instance": 2} for row in rows)]
    other.lake.write("plans", pa.Table.from_pylist(twice, SCHEMAS["plans"]), trace=day.trace, day=DAY)
    minutes = day.lake.read("demand", trace=day.trace, day=DAY).drop_columns(["trace", "day"])
    other.lake.write("demand", minutes, trace=day.trace, day=DAY)
    drive = policy_schedules(other, DAY)["corrected"]
    np.testing.assert_array_equal(drive.targets, table("corrected").reshape(24, -1))
    np.testing.assert_array_equal(drive.forecast_tokens_per_s, table("corrected", 0.5))


def test_pool_regions_transfers_and_weights_come_from_the_config(wired: RunSettings) -> None:
    prefill = Deployment("h100-80gb", 4, "prefill", then="far", min_instances=2, max_instances=7)
    near = Deployment("a100-80gb", 4, "decode", name="near", regions=("north",), weight=3.5)
    far = Deployment("a100-80gb", 8, "decode", name="far", instances_at_start=5)
    also = Deployment("h100-80gb", 4, "prefill", then="near", regions=("north",))
    whole = wired.config.fleet.deployments[LLMS[0]]
    pools = {LLMS[0]: whole, LLMS[1]: (prefill, near, far, also)}
    fleet = fleet_of(changed(wired, "fleet", deployments=pools, link_gbit_per_s=None, kv_transfer="bulk"))
    rows = [
        (
            LLMS[fleet.llm[row]],
            REGIONS[fleet.region[row]],
            ROLES[fleet.role[row]],
            fleet.gpus[fleet.kind[row]],
        )
        for row in range(fleet.kind.size)
    ]
    expected = [(LLMS[0], region, "whole", 8) for region in REGIONS]
    for region in REGIONS:
        here = [("prefill", 4), ("decode", 4), ("decode", 8), ("prefill", 4)]
        for (role, gpus), one in zip(here, pools[LLMS[1]], strict=True):
            expected += [(LLMS[1], region, role, gpus)] * (one.regions is None or region in one.regions)
    assert rows == expected
    north = len(REGIONS) + 2 * REGIONS.index("north")
    at_north = dict(zip(("prefill", "near", "far", "also"), range(north, north + 4), strict=True))
    assert fleet.then[at_north["prefill"]] == at_north["far"]
    assert fleet.then[at_north["also"]] == at_north["near"]
    assert (fleet.then[fleet.role != ROLES.index("prefill")] == NO_INDEX).all()
    assert fleet.has_transfers
    assert fleet.takes.any(axis=1).tolist() == (fleet.role != ROLES.index("decode")).tolist()
    assert fleet.weight[at_north["near"]] == 3.5
    sizes = (fleet.instances_at_start, fleet.min_instances, np.diff(fleet.slots))
    assert [column[at_north["prefill"]] for column in sizes] == [8, 2, 7]
    assert [column[at_north["far"]] for column in sizes] == [5, 1, 13]
    both = fleet.kv_capacity[fleet.kind[[at_north["also"], at_north["near"]]]]
    assert fleet.max_request_tokens[at_north["also"]] == both.min() - 2 < both.max()  # 2 draft tokens
    assert (fleet.link_layers == 1).all()
    gpu = wired.catalogue.gpus["h100-80gb"]
    token_s = 8 * 2 * 80 * 8 * 128 * 2 / (4 * 1e9 * gpu.link_gbit_per_s)
    np.testing.assert_allclose(fleet.link_token_s[fleet.kind[at_north["prefill"]]], token_s)
    assert [list(own[own != NO_INDEX]) for own in fleet.pools_of[len(REGIONS) :]] == [
        [row for row, place in enumerate(rows) if place[:2] == (LLMS[1], region)] for region in REGIONS
    ]
