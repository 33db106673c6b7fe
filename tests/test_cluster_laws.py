"""Whole days of exported objects, played against the controllers' published rules, minute by minute.

The law: applied early, late, twice or never, a fleet never serves fewer replicas than the plan requires.
After the end of an applied plan, no object can know the next one: it holds the plan's highest count.
"""

import json
import os
import subprocess
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_controllers import Autoscaler, active_minutes, cron_events, minute_of, serving_replicas
from cluster_days import (
    ANY,
    BOOT_MINUTES,
    DAY_MINUTES,
    EXACT,
    FORTY,
    MONDAY,
    by_minute,
    days_of,
    followed,
    highest_within,
    plan_rows,
    play,
    play_buffer,
    play_hpa,
    play_ray_serve,
    play_scaler,
    scaler_targets,
    share_over,
    wanted_with_lead,
    workload_of,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleetcast.assets.lake.settings import midnight
from fleetcast.assets.plans import hourly_objects, scaled_objects, step_job
from fleetcast.assets.plans.cluster_workloads import ClusterWorkload
from fleetcast.assets.plans.cron_triggers import cron_triggers
from fleetcast.assets.plans.export_options import ExportOptions
from fleetcast.assets.plans.hpa_steps import EXACT_MINUTES, LIFT_MINUTES, steady_request, step_requests

day_counts = st.lists(
    st.sampled_from([0, 1, 2, 5, 9, 10, 11, 12, 39, 40, 41, 44, 60]), min_size=24, max_size=24
)


@pytest.mark.parametrize("format_", ["k8s", "hpa", "keda-scaler", "ray-serve"])
@settings(max_examples=8, deadline=None)
@example(  # 42 run when the plan has 39: it was read after the step to them. 44 is within the band of 42
    counts=([0] * 24, [0] * 13 + [39, 44] + [0] * 9, [0] * 24), exports=(172, 0), delays=(600, None),
    again=None, is_exact=False,
)  # fmt: skip
@given(
    counts=st.tuples(day_counts, day_counts, day_counts),
    exports=st.tuples(*(st.integers(-DAY_MINUTES, DAY_MINUTES - 1) for _ in range(2))),
    delays=st.tuples(*(st.none() | st.integers(0, 600) for _ in range(2))),
    again=st.none() | st.integers(0, 3 * DAY_MINUTES - 1),
    is_exact=st.booleans(),
)
def test_a_fleet_never_serves_less_than_the_plan(
    format_: str,
    counts: tuple[list[int], ...],
    exports: tuple[int, int],
    delays: tuple[int | None, int | None],
    again: int | None,
    is_exact: bool,
) -> None:
    """Monday's objects are applied on Monday; those of the next days early, late or never, and one twice.

    The external scaler reads the plans at these times instead.
    """
    counts[0][0] = max(counts[0][0], 1)  # there is a workload at all
    rows, minutes = days_of(list(counts)), 3 * DAY_MINUTES
    options = EXACT if is_exact else ANY
    exported = [(0, 0, MONDAY)]
    for n, (at, delay) in enumerate(zip(exports, delays, strict=True), start=1):
        if delay is not None:
            at = max(at + n * DAY_MINUTES, 0)
            exported.append((min(at + delay, minutes - 1), at, MONDAY + timedelta(days=n)))
    applied, plans = dict[int, ClusterWorkload](), dict[int, list[dict[str, Any]]]()
    for at, made, day in sorted(exported):
        today = min(MONDAY + timedelta(days=made // DAY_MINUTES), day)
        plans[at] = [row for row in rows if row["day"] <= day]
        applied[at] = workload_of(plans[at], today)
    if again is not None:
        last = max(at for at in applied if at <= again)
        applied[again], plans[again] = applied[last], plans[last]
    required = required_replicas(applied, by_minute(list(counts)))
    if format_ == "k8s":
        objects = {at: scaled_objects.build_cron_object(one, options) for at, one in applied.items()}
        held = play(objects, counts[0][0], minutes, knows_tolerance=is_exact)
    elif format_ == "hpa":
        held, _ = play_hpa(applied, counts[0][0], minutes)
    elif format_ == "ray-serve":
        held = play_ray_serve(applied, minutes)
    else:
        held = play_scaler(plans, counts[0][0], minutes, options)
        is_known = covered_minutes(applied, minutes)
        for at in sorted(applied)[1:]:  # a new plan is followed a boot later
            late = slice(at, at + BOOT_MINUTES + 1)
            is_known[late] &= covered_minutes(applied, minutes, before=at)[late]
        required = np.where(is_known, required, 0)  # elsewhere it has the same hour of the day before
    serving = serving_replicas(held, BOOT_MINUTES)
    first = np.flatnonzero(serving < required)
    assert not first.size, (first[0], serving[first[0]], required[first[0]])


def required_replicas(applied: dict[int, ClusterWorkload], wanted: np.ndarray) -> np.ndarray:
    """What the newest applied plan requires in each minute; after its end at most its safe level."""
    minutes, required, moments = len(wanted), np.empty(len(wanted), dtype=int), sorted(applied)
    is_covered = covered_minutes(applied, minutes)
    for at, until in pairwise([*moments, minutes]):
        known, safe = is_covered[at:until], applied[at].safe_replicas
        required[at:until] = np.where(known, wanted[at:until], np.minimum(wanted[at:until], safe))
    for before, at in pairwise(moments):  # what the object before could not know is required a boot later
        late = slice(at, at + BOOT_MINUTES + 1)
        known = plan_end(applied[before]) > np.arange(minutes)[late]
        safe = applied[before].safe_replicas
        required[late] = np.where(known, required[late], np.minimum(required[late], safe))
    return required


def covered_minutes(
    applied: dict[int, ClusterWorkload], minutes: int, before: int | None = None
) -> np.ndarray:
    """The minutes that the newest applied plan has; `before`: of the plans that were applied before it."""
    covered = np.zeros(minutes, dtype=bool)
    moments = [at for at in sorted(applied) if before is None or at < before]
    for at, until in pairwise([*moments, minutes]):
        covered[at:until] = np.arange(at, until) < plan_end(applied[at])
    return covered


def plan_end(workload: ClusterWorkload) -> int:
    """The minute since Monday at which a plan ends."""
    return minute_of(workload.ends) - minute_of(midnight(MONDAY))


@pytest.mark.parametrize(
    ("options", "knows_tolerance", "over_share"),
    [(EXACT, True, 0.02), (ANY, True, 0.02), (ANY, False, 0.02)],
)
def test_forty_replicas_follow_each_step(
    options: ExportOptions, knows_tolerance: bool, over_share: float
) -> None:
    """The tail of the second day is the safe level, so it is not counted."""
    counts = [FORTY, FORTY]
    workload = workload_of(days_of(counts), MONDAY)
    held = play(
        {0: scaled_objects.build_cron_object(workload, options)}, 36, 2 * DAY_MINUTES, knows_tolerance
    )
    assert (serving_replicas(held, BOOT_MINUTES) >= by_minute(counts)).all()
    counted = followed(2 * DAY_MINUTES)
    assert 0 <= share_over(held, wanted_with_lead(counts), counted) <= over_share


def test_triggers_that_are_read_on_both_sides_of_a_minute_miss_no_replica() -> None:
    """An HPA reads them one after the other: so one of at least the lower count is active in both minutes."""
    minutes = np.arange(2 * DAY_MINUTES) + minute_of(midnight(MONDAY))
    triggers = cron_triggers(workload_of(days_of([FORTY, FORTY]), MONDAY), 0.0)
    counts = np.array([int(trigger["metadata"]["desiredReplicas"]) for trigger in triggers])
    held = np.array([active_minutes(trigger, minutes) for trigger in triggers]) * counts[:, None]
    either, both = held.max(axis=0), np.minimum(held[:, 1:], held[:, :-1]).max(axis=0)
    np.testing.assert_array_equal(both, np.minimum(either[1:], either[:-1]))


def test_an_older_cluster_that_drops_the_tolerance_misses_steps() -> None:
    """KEDA #5263 and #7900: so the model finds the fault that the objects avoid."""
    workload = workload_of(days_of([FORTY]), MONDAY)
    held = play(
        {0: scaled_objects.build_cron_object(workload, EXACT)}, 36, DAY_MINUTES, knows_tolerance=False
    )
    assert (serving_replicas(held, BOOT_MINUTES) < by_minute([FORTY])).any()


@given(st.integers(1, 300), st.integers(1, 400))
def test_an_overshoot_passes_every_dead_band_and_is_the_least_that_does(replicas: int, current: int) -> None:
    value = steady_request(replicas, 0.1)
    hpa = Autoscaler({"minReplicas": 1, "maxReplicas": 1000, "behavior": INSTANT}, current, False)
    hpa.sync(0, [float(value)])
    assert hpa.replicas >= replicas
    below = Autoscaler(
        {"minReplicas": 1, "maxReplicas": 1000, "behavior": INSTANT}, max(replicas - 1, 1), False
    )
    below.sync(0, [float(value - 1)])
    assert replicas == 1 or value == replicas or below.replicas < replicas
    assert value <= 1.1 * replicas + 1


@given(before=st.integers(1, 300), replicas=st.integers(1, 300), held=st.integers(1, 300))
@example(before=11, replicas=10, held=11)  # the steady value is exact, but not from above
@example(before=40, replicas=40, held=39)
def test_a_step_ends_at_its_exact_count_and_whatever_goes_wrong_not_below_it(
    before: int, replicas: int, held: int
) -> None:
    """Wrong: the HPA has another count than the plan had before, or it does not run in the first minute."""
    values = step_requests(before, replicas, 0.1)
    assert before != replicas or not values
    steady = [steady_request(replicas, 0.1)] * 5
    assert play_requests([*values, *steady], before) == replicas
    assert play_requests([*values, *steady], held) >= replicas
    assert play_requests([*values[LIFT_MINUTES:], *steady], before) >= replicas
    assert before > replicas or play_requests([*values, *steady][:1], held) >= replicas, "in a minute"
    most = max(before, replicas)
    assert max(values, default=0) <= 1.1 * most / 0.9 + 1  # the price of a step: pods that go again
    assert len(values) in (0, EXACT_MINUTES, LIFT_MINUTES + EXACT_MINUTES)


def play_requests(values: list[int], replicas: int) -> int:
    """What an HPA has after these metric values, one a minute."""
    spec = {"minReplicas": 1, "maxReplicas": 1000, "behavior": INSTANT | {"scaleDown": STABLE}}
    hpa = Autoscaler(spec, replicas, knows_tolerance=False)
    for now_s in range(0, 60 * len(values), 15):
        hpa.sync(now_s, [float(values[now_s // 60])])
    return hpa.replicas


STABLE = {"stabilizationWindowSeconds": 60}
INSTANT = {"scaleUp": {"policies": [{"type": "Pods", "value": 1000, "periodSeconds": 15}]}}


@settings(max_examples=8, deadline=None)
@example(first=date(2028, 2, 25), days=5, boot_s=0)  # it ends on a 29 February
@given(
    first=st.dates(date(2027, 1, 2), date(2028, 5, 1)), days=st.integers(1, 5), boot_s=st.integers(0, 8000)
)
def test_the_safe_level_is_held_outside_the_plan_also_next_year(first: date, days: int, boot_s: int) -> None:
    rows = [row for n in range(days) for row in plan_rows(first + timedelta(days=n), FORTY)]
    workload = ClusterWorkload("m-g", rows, 0, 80, float(boot_s))
    safe = next(one for one in cron_triggers(workload, 0.0) if one["name"] == "fleetcast-safe")
    assert safe["metadata"]["desiredReplicas"] == "46"
    begins, ends = minute_of(midnight(first)), minute_of(workload.ends)
    resumes = max(ends - (boot_s + 60 + 59) // 60, begins + 1)
    minutes = np.arange(begins - DAY_MINUTES, ends + 400 * DAY_MINUTES)
    active = active_minutes(safe, minutes)
    inside = (minutes >= begins - 1) & (minutes < resumes)
    np.testing.assert_array_equal(active, ~inside)


def test_before_a_plan_that_begins_at_six_its_safe_level_is_held() -> None:
    workload = ClusterWorkload("m-g", plan_rows(MONDAY, FORTY)[6:], 0, 80, 60.0 * BOOT_MINUTES)
    triggers = cron_triggers(workload, 0.0)
    active = [active_minutes(one, np.arange(6 * 60) + minute_of(midnight(MONDAY))) for one in triggers]
    counts = [int(one["metadata"]["desiredReplicas"]) for one in triggers]
    assert (np.max(np.array(active) * np.array(counts)[:, None], axis=0) == 46).all()


def test_cron_fires_by_day_or_weekday_as_robfig_cron() -> None:
    """By hand: 6 July 2027 is a Tuesday."""
    day = minute_of(datetime(2027, 7, 6, tzinfo=UTC))
    assert list(cron_events("5 7 6 7 *")[:1] - day) == [7 * 60 + 5]
    either = {event - day for event in cron_events("0 0 7 7 5") if 0 <= event - day < 5 * DAY_MINUTES}
    assert either == {DAY_MINUTES, 3 * DAY_MINUTES}
    every = cron_events("* * * * 2")
    assert [every[np.searchsorted(every, day)] - day, len(every) % DAY_MINUTES] == [0, 0]


# --- objects with the CronJob, and the external scaler ---------------------------------------------------


def test_an_hpa_follows_the_steps_of_its_cron_job(tmp_path: Path) -> None:
    """Its bounds are the plan: exact on every version. The job's script is run by a real shell."""
    workload, minutes = workload_of(days_of([FORTY, FORTY]), MONDAY), 2 * DAY_MINUTES
    _, steps, *_, job = hourly_objects.build_hpas([workload], ANY)
    held, bounds = play_hpa({0: workload}, 36, minutes)
    assert (serving_replicas(held, BOOT_MINUTES) >= by_minute([FORTY, FORTY])).all()
    wanted = wanted_with_lead([FORTY, FORTY])
    assert share_over(held, wanted, followed(minutes)) <= 0.02
    for hours in (0.5, 6.9, 14, 47.9, 24 * 400):
        now = midnight(MONDAY) + timedelta(hours=hours)
        [(name, patch)] = run_step_script(job, steps["data"]["steps"], now, tmp_path)
        assert name == "horizontalpodautoscalers.autoscaling/m-g"
        minute = int(60 * hours)
        assert json.loads(patch)["spec"]["maxReplicas"] == (bounds[minute] if minute < minutes else 46)
    assert run_step_script(job, steps["data"]["steps"], midnight(MONDAY) - timedelta(days=1), tmp_path) == []


@settings(max_examples=8, deadline=None)
@given(counts=st.tuples(day_counts, day_counts), lead=st.sampled_from([5, 75]))
@example(counts=([9, 5, *[7] * 22], [7] * 24), lead=75)  # while 9 ends, 7 is near
def test_a_node_is_ready_when_a_replica_is_requested(counts: tuple[list[int], ...], lead: int) -> None:
    """Nodes of the requested replicas and of the buffer: those of the next node lead, and no more.

    Until the end of the plan, where the safe level is requested without a buffer.
    """
    counts[0][0] = max(counts[0][0], 1)
    workload, minutes = workload_of(days_of(list(counts)), MONDAY), 2 * DAY_MINUTES
    requested = highest_within(by_minute(list(counts)), BOOT_MINUTES + 1)  # an autoscaler's minute earlier
    nodes = requested + play_buffer(workload, minutes, ANY._replace(node_lead_s=60.0 * lead))
    assert nodes.tolist() == highest_within(requested, lead).tolist()
    assert (serving_replicas(nodes[:, None], lead) >= requested).all()


def run_step_script(job: dict[str, Any], steps: str, now: datetime, folder: Path) -> list[tuple[str, str]]:
    """What the CronJob's script patches at an instant: object and patch; date and kubectl are stand-ins."""
    (folder / "steps").write_text(steps)
    for name, body in (
        ("date", f"echo {int(now.timestamp())}"),
        ("kubectl", 'echo "$2" "$8" "$1 $3 $4 $5 $6 $7"'),
    ):
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    [container] = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    environment = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "NAMESPACE": "default",
        "STEPS": str(folder / "steps"),
    }
    done = subprocess.run(container["command"], env=environment, capture_output=True, text=True, check=True)
    called = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert {rest for *_, rest in called} <= {"patch --namespace default --type merge --patch"}
    return [(name, patch) for name, patch, _ in called]


def test_a_failed_patch_fails_the_job_after_all_others(tmp_path: Path) -> None:
    start = midnight(date(2020, 1, 1))
    steps = [step_job.PatchStep(start, f"x/{name}", "{}") for name in "abc"]
    config, *_, job = step_job.build_step_job("n", "g", "x", steps, ANY)
    (tmp_path / "steps").write_text(config["data"]["steps"])
    (tmp_path / "kubectl").write_text('#!/bin/sh\necho "$2"\n[ "$2" != x/a ]\n')
    (tmp_path / "kubectl").chmod(0o755)
    [container] = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "NAMESPACE": "d",
        "STEPS": str(tmp_path / "steps"),
    }
    done = subprocess.run(container["command"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, sorted(done.stdout.split())) == (1, ["x/a", "x/b", "x/c"])


@pytest.mark.parametrize(("options", "over_share", "days"), [(EXACT, 0.02, 2), (ANY, 0.17, 1)])
def test_the_external_scaler_is_followed_and_while_away_the_safe_level_is_held(
    options: ExportOptions, over_share: float, days: int
) -> None:
    """It is away from 03:00 to 04:00 and from 13:00 to 14:00 of the first day."""
    counts, minutes = [FORTY] * days, days * DAY_MINUTES
    away = {*range(3 * 60, 4 * 60), *range(13 * 60, 14 * 60)}
    held = play_scaler({0: days_of(counts)}, 36, minutes, options, away)
    assert (serving_replicas(held, BOOT_MINUTES) >= by_minute(counts)).all()
    assert (held[3 * 60 + 2] >= 46).all()
    after = slice(14 * 60 + 10, minutes - BOOT_MINUTES - 2)
    assert share_over(held, wanted_with_lead(counts), after) <= over_share


def test_the_external_scaler_boots_ahead_of_the_hours_that_stand_in_for_a_missing_plan() -> None:
    """The plan has ended at midnight with 2; at the same time a day before there were 9."""
    rows, targets = plan_rows(MONDAY, [9, *([2] * 23)]), scaler_targets()
    ended = midnight(MONDAY) + timedelta(days=1)
    found = [targets(ended + timedelta(minutes=minutes), rows)[0] for minutes in (-12, -11, 0, 59, 60)]
    assert found == [2, 9, 9, 9, 2]
