"""What a replayed day becomes: each policy its own outcome, each figure its column, each rule its effect.

On wired.py's day endpoints stand above their minimum for hours, so that a mechanism that is not reached, or
reached with another's figure, changes what comes out.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import metrics
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from wired import DAY, LLMS, OPEN, REGIONS, SUSTAINED, TIERS, changed

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.replays.fleet_hours import MOVE_COLUMNS, fleet_hours_table
from fleetcast.assets.replays.outcomes import REPLAY_END_S, outcomes_table
from fleetcast.assets.replays.policy_inputs import fleet_and_rules, policy_schedules
from fleetcast.assets.replays.replay_workloads import ReplayWorkload, read_workload
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.replays.scorecards import read_scoreboard
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.trace_rows import select_requests
from fleetcast.models.world.calendar import DAY_S
from fleetcast.models.world.mechanisms import Ending

IW_FAST, NIW = TIERS.index("iw_fast"), TIERS.index("niw")
DYING = {"failures_per_instance_day": 20.0}  # what dies comes back by a cold start
Play = Callable[..., Outcome]


@pytest.fixture(scope="module")
def workload(wired_day: RunSettings) -> ReplayWorkload:
    return read_workload(wired_day, DAY)


@pytest.fixture(scope="module")
def drives(wired_day: RunSettings) -> dict[str, Schedule]:
    return policy_schedules(wired_day, DAY)


@pytest.fixture(scope="module")
def play(wired_day: RunSettings, workload: ReplayWorkload, drives: dict[str, Schedule]) -> Play:
    """Replay the day under a policy, with other values in a table of the config."""
    played: dict[str, Outcome] = {}

    def one(policy: str, table: str = "replay", drive: Schedule | None = None, **values: object) -> Outcome:
        key = repr((policy, table, values, drive))
        if key not in played:
            fleet, rules = fleet_and_rules(changed(wired_day, table, **values), policy)
            played[key] = replay_trace(workload.trace, fleet, drive or drives[policy], rules, DAY_S)
        return played[key]

    return one


# --- from a replay to its tables -----------------------------------------------------------------------


def test_the_kernel_reads_the_requests_of_the_day(wired_day: RunSettings, workload: ReplayWorkload) -> None:
    rows = wired_day.lake.read("requests", trace=wired_day.trace, day=DAY).to_pandas()
    trace = workload.trace
    since = (rows["arrived_at"] - datetime(2025, 7, 3, tzinfo=UTC)).dt.total_seconds()
    np.testing.assert_allclose(trace.arrival_s, since)
    named = {"region": REGIONS, "llm": LLMS, "tier": TIERS}
    for column, names in named.items():
        assert np.array(names)[getattr(trace, column)].tolist() == rows[column].tolist()
    for column in ("input_tokens", "output_tokens", "cached_tokens"):
        rows[column] = rows[column].fillna(0).astype(int)
        assert getattr(trace, column).tolist() == rows[column].tolist()
    assert (trace.input_tokens != trace.output_tokens).any()


def an_outcome(requests: int, slots: int = 70) -> Outcome:
    """Of requests that finished, were refused, and are queued still, in turn; no two figures are equal."""
    n = np.arange(requests)
    status = np.array([Ending.FINISHED, Ending.REFUSED, Ending.QUEUED], np.int8)[n % 3]
    done, gone = status == Ending.FINISHED, np.where(status == Ending.FINISHED, 0.0, np.nan)
    shape = (24, len(LLMS) * len(REGIONS))
    return Outcome(
        row=n,
        status=status,
        first_token_s=100_000.0 + n + gone,
        finish_s=200_000.0 + n + gone,
        dispatched_s=80_000.0 + n + gone,
        admitted_s=90_000.5 + n + gone,
        slot=np.where(done, n, -1),
        served_region=np.where(done, (n // 3) % 3, -1).astype(np.int16),
        network_s=np.where(done, 0.25 + n / 1024, 0.0),
        preemptions=n.astype(np.int32),
        reused=(n + 7).astype(np.int32),
        sent_from=np.where(n % 6 == 0, (n + 1) % slots, -1),  # of those that finished, every other one
        sent_s=300.0 + n,
        came_s=301.0 + n,
        joined_s=302.0 + n + n / 1024,
        instance_s=np.arange(4 * np.prod(shape), dtype=float).reshape(*shape, 4),
        kv_used=np.arange(np.prod(shape)).reshape(shape) / 1000.0,
        kv_room=np.full(shape, 2.0),
        moved=np.arange(3 * np.prod(shape)).reshape(*shape, 3),
        **dict.fromkeys(("cached_tokens", "recomputed_tokens", "reused_tokens", "events"), 0),
    )


def test_every_figure_of_a_request_lands_in_its_column(
    wired_day: RunSettings, workload: ReplayWorkload
) -> None:
    few = ReplayWorkload(workload.requests.slice(0, 60), select_requests(workload.trace, np.arange(60)))
    outcome = an_outcome(60)
    rows = outcomes_table(wired_day, few, fleet_and_rules(wired_day, "lt_i"), outcome).to_pylist()
    given = few.requests.to_pylist()
    slo_s = {"iw_fast": 1.3, "iw_normal": 31.0, "niw": None}
    for n, (row, request) in enumerate(zip(rows, given, strict=True)):
        copied = ("request_id", "region", "llm", "tier", "app", "arrived_at", "deadline_s")
        for column in (*copied, "input_tokens", "output_tokens"):
            assert row.pop(column) == request[column]
        assert row.pop("ttft_slo_s") == slo_s[request["tier"]]
        assert (row.pop("tpot_slo_s"), row.pop("is_held")) == (None, request["tier"] == "niw")
        arrival_s = float(few.trace.arrival_s[n])
        assert (row.pop("preemptions"), row.pop("reused_tokens")) == (n, n + 7)
        assert row.pop("level") == few.trace.level[n]
        done = n % 3 == 0
        moved = n % 6 == 0
        assert (row.pop("moves"), row.pop("stopped_s")) == (moved, 2.0 + n / 1024 if moved else None)
        expected = {
            "status": ("finished", "refused", "queued")[n % 3],
            "served_llm": request["llm"],
            "served_region": REGIONS[(n // 3) % 3] if done else None,
            "legs": 2 if moved else 1,
            "score": None,
            "earlier_s": 0.0,
            "instance": n if done else None,
            "network_s": outcome.network_s[n],
            "ttft_s": 100_000.0 + n - arrival_s if done else None,
            "e2e_s": 200_000.0 + n - arrival_s if done else None,
            "tpot_s": 100_000.0 / (request["output_tokens"] - 1) if done else None,
            "queued_s": REPLAY_END_S - arrival_s if n % 3 == 2 else None,
            "held_s": 80_000.0 + n - arrival_s if done else None,
            "waited_s": 10_000.5 if done else None,
            "prefill_s": 9_999.5 - outcome.network_s[n] if done else None,
        }
        assert row == pytest.approx(expected, nan_ok=True) if done else row == expected


def test_every_figure_of_the_fleet_lands_in_its_row_and_column(wired_day: RunSettings) -> None:
    outcome = an_outcome(1)
    fleet, _ = fleet_and_rules(wired_day, "lt_i")
    rows = fleet_hours_table(wired_day, DAY, fleet, outcome).to_pylist()
    assert len(rows) == 24 * len(LLMS) * len(REGIONS)
    for row in rows:
        place = LLMS.index(row["llm"]) * len(REGIONS) + REGIONS.index(row["served_region"])
        where = row["hour_start"].hour, place
        states = [row[f"{state}_s"] for state in ("serving", "booting", "draining", "donated")]
        assert states == outcome.instance_s[where].tolist()
        assert row["kv_utilisation_share"] == outcome.kv_share[where]
        assert [row[name] for name in MOVE_COLUMNS] == outcome.moved[where].tolist()
        gpu = ("a100-80gb", 8, 3.25) if row["llm"] == LLMS[0] else ("h100-80gb", 4, 9.5)
        assert (row["gpu"], row["gpus_per_instance"], row["usd_per_gpu_hour"]) == gpu
        assert row["hour_start"].date() == DAY


# Without teams there is nothing to tell these apart by: none is deployed there (test_planned_teams.py).
ALIKE = {"cauchy": "cauchy_mixed", "corrected_combos": "corrected"}


def test_each_policy_is_replayed_as_itself(wired_scored: RunSettings) -> None:
    """What the lake says of a policy is what its fleet, rules and drive give, and of no other policy."""
    trace, found = read_workload(wired_scored, DAY).trace, set()
    drives = policy_schedules(wired_scored, DAY)
    outcomes = wired_scored.lake.sql(
        "select policy, ttft_s from outcomes order by policy, request_id"
    ).to_pandas()
    hours = wired_scored.lake.sql(
        "select policy, serving_s, booting_s from fleet_hours "
        "order by policy, hour_start, llm, served_region = 'far', served_region = 'south'"
    ).to_pandas()
    for policy in OPEN:
        fleet, rules = fleet_and_rules(wired_scored, policy)
        fleet = fleet._replace(tokens_per_s=0.93 * np.array(SUSTAINED)[fleet.llm])
        alone = replay_trace(trace, fleet, drives[policy], rules, DAY_S)
        ttft_s = outcomes.loc[outcomes["policy"] == policy, "ttft_s"]
        np.testing.assert_allclose(ttft_s, alone.first_token_s - trace.arrival_s)
        own = hours[hours["policy"] == policy]
        places = (24, -1, len(LLMS) * len(REGIONS), 4)  # pools of like instances are counted together
        serving_s, booting_s, *_ = np.moveaxis(alone.instance_s.reshape(places).sum(axis=1), -1, 0)
        np.testing.assert_allclose(own["serving_s"], serving_s.ravel())
        np.testing.assert_allclose(own["booting_s"], booting_s.ravel())
        found.add((round(ttft_s.sum(), 6), round(own["serving_s"].sum(), 6)))
    assert len(found) == len(OPEN) - len(ALIKE)


def test_a_reflex_counts_on_as_much_of_an_instance_as_its_plan(
    wired_scored: RunSettings, tmp_path: Path
) -> None:
    own = replace(wired_scored, lake=Lake(tmp_path))
    shutil.copytree(wired_scored.lake.root, tmp_path, dirs_exist_ok=True)
    replay_day(own, DAY, ["lean", "hasty"], Progress())
    found = own.lake.sql("select policy, ttft_s from outcomes order by policy, request_id").to_pandas()
    trace = read_workload(own, DAY).trace
    for policy, share in {"lean": 0.5, "hasty": 0.93}.items():
        fleet, rules = fleet_and_rules(own, policy)
        fleet = fleet._replace(tokens_per_s=share * np.array(SUSTAINED)[fleet.llm])
        alone = replay_trace(trace, fleet, policy_schedules(own, DAY)[policy], rules, DAY_S)
        ttft_s = found.loc[found["policy"] == policy, "ttft_s"]
        np.testing.assert_allclose(ttft_s, alone.first_token_s - trace.arrival_s)


def pending(rows: pd.DataFrame) -> npt.NDArray[np.bool_]:
    return metrics.is_pending(*(rows[name].to_numpy(float) for name in metrics.PENDING))


def test_a_scorecard_has_each_percentile_in_its_column(wired_scored: RunSettings) -> None:
    every = wired_scored.lake.sql("select * from outcomes").to_pandas()
    every["hour_start"] = every["arrived_at"].dt.floor("h")
    keys = ["policy", "llm", "region", "tier", "hour_start"]
    card = wired_scored.lake.sql("select * from scorecard").to_pandas().set_index(keys)
    for key, own in list(every.groupby(keys))[::7]:
        for name in ("ttft", "tpot", "e2e"):
            seconds = own[f"{name}_s"].to_numpy(float)
            expected = metrics.percentiles(seconds, np.isnan(seconds) if name == "tpot" else pending(own))
            found = card.loc[key, [f"{name}_p{level}_s" for level in (50, 90, 95, 99)]]
            np.testing.assert_allclose(found.to_numpy(float), expected, rtol=1e-9, err_msg=str(key))


def test_scoreboard_reports_attainment_and_fleet_cost(wired_scored: RunSettings) -> None:
    """Counted once more from the rows, by the plain formulas of metrics.py."""
    board = read_scoreboard(wired_scored, DAY).to_pandas().set_index("policy")
    every = wired_scored.lake.sql("select * from outcomes").to_pandas()
    fleet = wired_scored.lake.sql("select * from fleet_hours").to_pandas()
    assert sorted(board.index) == sorted(OPEN)
    for policy, row in board.iterrows():
        rows, hours = every[every["policy"] == policy], fleet[fleet["policy"] == policy]
        for tier in TIERS:
            columns = (rows.loc[rows["tier"] == tier, name].to_numpy(float) for name in metrics.ATTAINED)
            assert row[f"{tier}_attainment_share"] == pytest.approx(metrics.attainment(*columns).share)
        fast = rows[rows["tier"] == "iw_fast"]
        for name in ("ttft", "e2e"):
            expected = metrics.percentiles(fast[f"{name}_s"].to_numpy(), pending(fast))[2]
            assert row[f"{name}_p95_s"] == pytest.approx(expected)
        met = (fast["ttft_s"] <= fast["ttft_slo_s"]).groupby(fast["llm"]).mean()
        assert row["worst_llm_attainment_share"] == pytest.approx(met.min())
        own = {
            state: metrics.gpu_hours(hours[f"{state}_s"], hours["gpus_per_instance"])
            for state in (*metrics.PAID_STATES, "donated")
        }
        spent = sum(own[state] for state in metrics.PAID_STATES)
        assert row["gpu_hours"] == pytest.approx(spent.sum())
        assert row["usd"] == pytest.approx(metrics.usd(spent, hours["usd_per_gpu_hour"]))
        assert row["wasted_gpu_hours"] == pytest.approx(own["booting"].sum())
        assert row["instance_hours"] == pytest.approx((spent / hours["gpus_per_instance"]).sum())
        assert row["donated_gpu_hours"] == pytest.approx(own["donated"].sum())
        assert (row["requests"], row["preemptions"]) == (len(rows), rows["preemptions"].sum())


def test_the_scoreboard_is_in_the_order_of_the_config(wired_scored: RunSettings) -> None:
    policies = read_scoreboard(wired_scored, DAY)["policy"].to_pylist()
    assert policies[:3] == list(wired_scored.config.replay.policies) == ["lt_ua", "lt_u", "reactive"]
    assert sorted(policies) == sorted(OPEN)


# --- what the mechanisms do ----------------------------------------------------------------------------


def test_no_two_policies_have_one_outcome_and_all_stand_above_their_minimum(play: Play) -> None:
    spent = {policy: play(policy).instance_s[..., 0].sum(axis=1) / 3600.0 for policy in OPEN}
    for policy, hours in spent.items():
        if policy != "reflex":  # it holds what the work needs, and these few requests need the minimum
            assert hours.max() > 1.25 * len(LLMS) * len(REGIONS), policy
    found = {
        policy: (hours.round(9).tolist(), np.nansum(play(policy).finish_s)) for policy, hours in spent.items()
    }
    for policy, other in ALIKE.items():
        assert repr(found[policy]) == repr(found.pop(other))
    assert len({repr(one) for one in found.values()}) == len(OPEN) - len(ALIKE)


FRONTEND_DELAY_S = 0.0013  # of tests/wired.toml


def test_another_region_answers_later_by_the_network_between_them(
    workload: ReplayWorkload, play: Play
) -> None:
    outcome, between = play("reactive", network_sigma=0.0), np.array([0.0, 0.11, 0.07])
    own = (workload.trace.region == 0) & (outcome.served_region >= 0)
    delay_s = FRONTEND_DELAY_S + between[outcome.served_region[own]]
    np.testing.assert_allclose(outcome.network_s[own], delay_s, rtol=1e-12)
    assert set(outcome.served_region[own].tolist()) == {0, 1, 2}
    # the network is in what the request meets, not in what the instance does
    served = outcome.first_token_s - outcome.network_s - outcome.admitted_s
    assert np.nanmin(served) > 0


def test_the_networks_delay_is_drawn_about_the_catalogues(play: Play) -> None:
    """One draw for each request, whatever the policy; its median is what the catalogue says."""
    plain, drawn = play("lt_i", network_sigma=0.0), play("lt_i")
    far = plain.network_s > FRONTEND_DELAY_S
    factor = np.log((drawn.network_s[far] - FRONTEND_DELAY_S) / (plain.network_s[far] - FRONTEND_DELAY_S))
    assert np.median(factor) == pytest.approx(0.0, abs=0.1)
    assert factor.std() == pytest.approx(1.2, rel=0.1)
    other = play("reactive")
    both = far & (other.served_region == drawn.served_region)
    np.testing.assert_array_equal(other.network_s[both], drawn.network_s[both])


def paid(outcome: Outcome) -> float:
    return float(outcome.instance_s[..., :3].sum())


def booting(outcome: Outcome) -> float:
    return float(outcome.instance_s[..., 1].sum())


@pytest.mark.parametrize(
    ("policy", "less", "more", "measure"),
    [
        ("reactive", {"scale_out_share": 0.74}, {"scale_out_share": 0.4}, paid),
        ("reactive", {"scale_in_share": 0.28}, {"scale_in_share": 0.08}, paid),
        ("lt_i", DYING | {"boot_local_s": 60.0}, DYING | {"boot_local_s": 1400.0}, booting),
        ("lt_i", DYING | {"boot_remote_s": 490.0}, DYING | {"boot_remote_s": 3000.0}, booting),
        ("reactive", {"boot_spot_s": 5.0}, {"boot_spot_s": 80.0}, booting),
        ("lt_i", {"donate_s": 0.0}, {"donate_s": 300.0}, paid),
        ("reactive", {"cooldown_s": 17.0}, {"cooldown_s": 1.0}, paid),
        ("chiron", {"pressure_share": 0.9}, {"pressure_share": 0.2}, paid),
        ("hpa", {"scale_out_share": 0.74}, {"scale_out_share": 0.4}, paid),
        ("lt_ua", {"surge_ratio": 1000.0}, {"surge_ratio": 3.3}, paid),
        ("lt_ua", {"slump_ratio": 0.62}, {"slump_ratio": 0.01}, paid),
    ],
)  # fmt: skip
def test_a_threshold_makes_the_fleet_smaller_or_larger(play: Play, policy, less, more, measure) -> None:
    assert measure(play(policy, **less)) < 0.999 * measure(play(policy, **more))


def wait(tier: int) -> Callable[[ReplayWorkload, Outcome], float]:
    return lambda workload, outcome: float(
        np.nanmean((outcome.first_token_s - workload.trace.arrival_s)[workload.trace.tier == tier])
    )


def held(workload: ReplayWorkload, outcome: Outcome) -> float:
    waited_s = outcome.dispatched_s - workload.trace.arrival_s
    return float(np.nanmean(waited_s[workload.trace.tier == NIW]))


def elsewhere(workload: ReplayWorkload, outcome: Outcome) -> float:
    return float(np.mean(outcome.served_region != workload.trace.region))


def preempted(workload: ReplayWorkload, outcome: Outcome) -> float:
    return float(outcome.preemptions.sum())


@pytest.mark.parametrize(
    ("policy", "less", "more", "measure"),
    [
        ("lt_i", {"order": "pf"}, {"order": "fcfs"}, wait(IW_FAST)),
        ("lt_i", {"order": "edf"}, {"order": "fcfs"}, wait(IW_FAST)),
        ("lt_i", {"route_utilisation_share": 0.9}, {"route_utilisation_share": 0.3}, elsewhere),
        ("lt_i", {"niw_pull_one_share": 0.58}, {"niw_pull_one_share": 0.41}, held),
        ("lt_i", {"niw_pull_two_share": 0.58}, {"niw_pull_two_share": 0.1}, held),
        ("lt_i", {"niw_priority_age_s": 60.0}, {"niw_priority_age_s": 7300.0}, held),
        ("lt_i", {"failures_per_instance_day": 0.0}, {"failures_per_instance_day": 20.0}, preempted),
    ],
)  # fmt: skip
def test_a_threshold_makes_requests_wait_or_move(play: Play, workload, policy, less, more, measure) -> None:
    assert measure(workload, play(policy, **less)) < 0.999 * measure(workload, play(policy, **more))


def test_more_memory_holds_more_requests(play: Play, workload: ReplayWorkload) -> None:
    small, large = (play("lt_i", "fleet", kv_memory_share=share) for share in (0.57, 0.7))
    assert preempted(workload, large) < 0.5 * preempted(workload, small)


def test_lt_ua_passes_its_plan_only_in_the_last_minutes_and_only_by_its_forecast(
    play: Play, drives: dict[str, Schedule]
) -> None:
    """In no minute of the hour it is LT-U; an hour long and with another forecast it is neither."""
    never = play("lt_ua", correction_minutes=0)
    np.testing.assert_array_equal(never.first_token_s, play("lt_u").first_token_s)
    usual, always = play("lt_ua"), play("lt_ua", correction_minutes=60)
    assert len({paid(never), paid(usual), paid(always)}) == 3
    blind = drives["lt_ua"]._replace(forecast_tokens_per_s=0 * np.asarray(drives["lt_ua"].targets))
    assert paid(play("lt_ua", drive=blind)) > 1.01 * paid(usual)
