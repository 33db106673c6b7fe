"""Whole days of an exported plan of one workload, played through each format by the controllers' rules."""

import json
from collections.abc import Callable, Set
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
from cluster_controllers import Autoscaler, Keda, minute_of

from fleetcast.assets.lake.settings import midnight
from fleetcast.assets.plans import hourly_objects, scaled_objects
from fleetcast.assets.plans.cluster_formats import build_ray_serve_calls
from fleetcast.assets.plans.cluster_workloads import ClusterWorkload
from fleetcast.assets.plans.current_plan import CurrentPlan
from fleetcast.assets.plans.export_options import ExportOptions
from fleetcast.assets.plans.held_plan import hold_from
from fleetcast.assets.plans.hpa_steps import STEP_MINUTES, current_request
from fleetcast.assets.plans.keda_scaler import recent_replicas

MONDAY = date(2027, 7, 5)
BOOT_MINUTES = 10
DAY_MINUTES = 24 * 60
RECENT_MINUTES = STEP_MINUTES + 1
EXACT, ANY = ExportOptions(kubernetes=(1, 35)), ExportOptions()
# A day at 40 replicas: steps of one, of two, and of more than a tenth, up and down.
FORTY = [36, 36, 35, 35, 36, 38, 40, 41, 42, 40, 40, 41, 43, 44, 46, 45, 44, 43, 42, 41, 40, 38, 37, 36]


def plan_rows(day: date, counts: list[int]) -> list[dict[str, Any]]:
    """One workload's rows of a day."""
    return [
        {
            **{"llm": "m", "gpu": "g", "gpus_per_instance": 1, "role": "whole", "region": "east"},
            **{"policy": "day_ahead", "trace": "t", "made_at": None, "why": None, "usd": 1.0},
            **{"day": day, "hour_start": midnight(day) + timedelta(hours=hour), "instances": count},
            "decision_id": f"{day:%d}{hour:02}",
        }
        for hour, count in enumerate(counts)
    ]


def workload_of(rows: list[dict[str, Any]], today: date) -> ClusterWorkload:
    return ClusterWorkload("m-g", hold_from(today, rows), 0, 80, 60.0 * BOOT_MINUTES)


def days_of(counts: list[list[int]]) -> list[dict[str, Any]]:
    return [row for n, day in enumerate(counts) for row in plan_rows(MONDAY + timedelta(days=n), day)]


def by_minute(counts: list[list[int]]) -> np.ndarray:
    return np.repeat([count for day in counts for count in day], 60)


def play(
    applied: dict[int, dict[str, Any]], replicas: int, minutes: int, knows_tolerance: bool
) -> np.ndarray:
    """The replicas of each minute since Monday, (minutes, rounds); `applied`: objects by their minute."""
    begins = minute_of(midnight(MONDAY))
    keda = Keda(replicas, knows_tolerance)
    held = []
    for minute in range(minutes):
        if minute in applied:
            keda.apply(applied[minute], np.arange(begins + minute, begins + minutes))
        held.append(keda.play_minute(begins + minute))
    return np.array(held)


def wanted_with_lead(counts: list[list[int]]) -> np.ndarray:
    """What has to be requested in each minute: the highest count until a new replica serves."""
    return highest_within(by_minute(counts), BOOT_MINUTES)


def highest_within(wanted: np.ndarray, lead_minutes: int) -> np.ndarray:
    """The highest value from each minute until `lead_minutes` later."""
    padded = np.concatenate([wanted, np.full(lead_minutes, wanted[-1])])
    return np.lib.stride_tricks.sliding_window_view(padded, lead_minutes + 1).max(axis=1)


def play_hpa(
    applied: dict[int, ClusterWorkload], replicas: int, minutes: int
) -> tuple[np.ndarray, list[int]]:
    """An HPA whose CronJob patches it 15 s into each minute: replicas (minutes, rounds), and upper bounds.

    `applied`: the workloads of the files by the minute at which they are applied; the first is 0.
    """
    begins = minute_of(midnight(MONDAY))
    scale: Autoscaler | None = None
    held, bounds = [], []
    for minute in range(minutes):
        if minute in applied:
            hpa, steps, *_ = hourly_objects.build_hpas([applied[minute]], ANY)
            lines = [line.split(" ") for line in steps["data"]["steps"].splitlines()]
            scale = scale or Autoscaler(hpa["spec"], replicas, knows_tolerance=False)
            scale.apply(hpa["spec"])
        assert scale is not None
        now_s = (midnight(MONDAY) + timedelta(minutes=minute)).timestamp()
        begun = [json.loads(patch) for start, _, patch in lines if int(start) <= now_s]
        rounds = []
        for second in range(0, 60, 15):
            if second == 15 and begun:
                scale.apply({**hpa["spec"], **begun[-1]["spec"]})
            scale.sync(60 * (begins + minute) + second, [None])
            rounds.append(scale.replicas)
        held.append(rounds)
        bounds.append(scale.most)
    return np.array(held), bounds


def play_ray_serve(applied: dict[int, ClusterWorkload], minutes: int) -> np.ndarray:
    """The replicas (minutes, 1) of Ray Serve, which has what the last call of the newest file requests."""
    begins, held = midnight(MONDAY), np.empty((minutes, 1), dtype=int)
    for at, until in pairwise([*sorted(applied), minutes]):
        calls = build_ray_serve_calls(applied[at], ANY)
        called = [(datetime.fromisoformat(call["at"]) - begins) / timedelta(minutes=1) for call in calls]
        replicas = np.array([call["body"]["target_num_replicas"] for call in calls])
        last = np.searchsorted(called, np.arange(at, until), side="right") - 1
        assert (last >= 0).all(), "a file has a call for the time at which it is applied"
        held[at:until, 0] = replicas[last]
    return held


def play_buffer(workload: ClusterWorkload, minutes: int, options: ExportOptions = ANY) -> np.ndarray:
    """The replicas of a CapacityBuffer in each minute, patched by its CronJob; 0 without one."""
    objects = hourly_objects.build_buffers([workload], options)
    if not objects:
        return np.zeros(minutes, dtype=int)
    lines = [line.split(" ") for line in objects[1]["data"]["steps"].splitlines()]
    now_s = midnight(MONDAY).timestamp() + 60 * np.arange(minutes)
    last = np.searchsorted([int(start) for start, *_ in lines], now_s, side="right") - 1
    held = np.array([json.loads(patch)["spec"]["replicas"] for *_, patch in lines])[last]
    return np.where(last < 0, objects[0]["spec"]["replicas"], held)


def scaler_targets() -> Callable[..., list[int]]:
    """The external scaler's replicas of the workload at an instant and in the minutes before, newest first.

    From the rows of the plans that are known at that instant; `count`: 1 for the instant alone.
    """
    moment = [midnight(MONDAY)]
    plan = CurrentPlan.__new__(CurrentPlan)
    plan.policy, plan.now, plan.distrusted = "day_ahead", lambda: moment[0], frozenset()
    key = ("east", "m", "g", 1, "whole")

    def replicas(now: datetime, rows: list[dict[str, Any]], count: int = RECENT_MINUTES) -> list[int]:
        moment[0] = now
        plan.workloads = {key: ClusterWorkload("m-g", rows, 0, 80, 60.0 * BOOT_MINUTES)}
        return [plan.replica_target(key, 46).replicas] if count == 1 else recent_replicas(plan, key, 46)

    return replicas


def play_scaler(
    plans: dict[int, list[dict[str, Any]]],
    replicas: int,
    minutes: int,
    options: ExportOptions,
    away: Set[int] = frozenset(),
) -> np.ndarray:
    """The replicas (minutes, rounds) with the external scaler, which is away in some minutes.

    `plans`: the rows of all plans in the lake, by the minute from which on they are there; the first is 0.
    """
    targets, begins = scaler_targets(), minute_of(midnight(MONDAY))
    tolerance = scaled_objects.tolerance_of(options)
    values: list[int] = []
    for at, until in pairwise([*sorted(plans), minutes]):
        first = midnight(MONDAY) + timedelta(minutes=at)
        known = targets(first, plans[at])[::-1]  # of the minutes until now, by the newest plans
        for minute in range(at, until):
            if minute > at:
                known.append(targets(first + timedelta(minutes=minute - at), plans[at], 1)[0])
            values.append(current_request(known[: -RECENT_MINUTES - 1 : -1], tolerance))
    manifest = scaled_objects.build_scaler_object(workload_of(plans[0], MONDAY), options)
    external = lambda minute: None if minute - begins in away else values[minute - begins]  # noqa: E731
    keda = Keda(replicas, options.sets_tolerance, external)
    keda.apply(manifest, np.arange(begins, begins + minutes))
    return np.array([keda.play_minute(begins + minute) for minute in range(minutes)])


def share_over(held: np.ndarray, wanted: np.ndarray, counted: slice) -> float:
    """Replicas over what is wanted in the counted minutes; (minutes, rounds) and (minutes,)."""
    return float(held[counted].mean(axis=1).sum() / wanted[counted].sum() - 1)


def followed(minutes: int) -> slice:
    """The minutes of a plan without those in which the safe level is requested for its end."""
    return slice(2, minutes - BOOT_MINUTES - 2)
