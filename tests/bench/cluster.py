"""Exported objects played against the published rules of KEDA and the HPA: replicas against the plan."""

import numpy as np
from cluster_controllers import serving_replicas
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
    play,
    play_buffer,
    play_hpa,
    play_ray_serve,
    play_scaler,
    share_over,
    workload_of,
)
from measure import Figures, Target

from fleetcast.assets.plans.scaled_objects import build_cron_object

DAYS = 2
FORMATS = {
    "k8s_1_35": "k8s --kubernetes 1.35",
    "k8s": "k8s, any version",
    "keda_scaler_1_35": "keda-scaler --kubernetes 1.35",
    "keda_scaler": "keda-scaler, any version",
    "hpa": "hpa with its CronJob, any version",
    "ray_serve": "ray-serve",
    "buffer": "nodes of capacity-buffer against requested replicas",
}
TARGETS = {
    name: target
    for key, label in FORMATS.items()
    for name, target in (
        (f"{key}_minutes_below_plan", Target("minutes", f"{label}: minutes that serve less", at_most=0)),
        (f"{key}_replicas_over_plan", Target("", f"{label}: replicas over what is wanted", at_most=0.02)),
        (f"{key}_most_over_plan", Target("replicas", f"{label}: the most over what is wanted, at any time")),
    )
}


def follow_the_plan() -> Figures:
    """Two days at about 40 replicas, with steps of one and of two, each minute."""
    counts, minutes = [FORTY] * DAYS, DAYS * DAY_MINUTES
    rows = days_of(counts)
    workload = workload_of(rows, MONDAY)
    played = {
        "k8s_1_35": play({0: build_cron_object(workload, EXACT)}, FORTY[0], minutes, True),
        "k8s": play({0: build_cron_object(workload, ANY)}, FORTY[0], minutes, False),
        "keda_scaler_1_35": play_scaler({0: rows}, FORTY[0], minutes, EXACT),
        "keda_scaler": play_scaler({0: rows}, FORTY[0], minutes, ANY),
        "hpa": play_hpa({0: workload}, FORTY[0], minutes)[0],
        "ray_serve": play_ray_serve({0: workload}, minutes),
    }
    plan, counted = by_minute(counts), followed(minutes)
    as_planned = {key: (held, plan, BOOT_MINUTES) for key, held in played.items()}
    requested = highest_within(plan, BOOT_MINUTES + 1)  # an autoscaler's minute earlier
    nodes = (requested + play_buffer(workload, minutes))[:, None]
    figures: Figures = {}
    for key, (held, needed, lead_minutes) in (
        as_planned | {"buffer": (nodes, requested, int(ANY.node_lead_s / 60))}
    ).items():
        below = serving_replicas(held, lead_minutes) < needed
        wanted = highest_within(needed, lead_minutes)
        figures[f"{key}_minutes_below_plan"] = int(np.count_nonzero(below))
        figures[f"{key}_replicas_over_plan"] = share_over(held, wanted, counted)
        figures[f"{key}_most_over_plan"] = int((held - wanted[:, None])[counted].max())
    return figures


FUNCTIONS = [follow_the_plan]
SMOKE = {"follow_the_plan": {"DAYS": 1}}
