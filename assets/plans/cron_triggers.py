"""Write a plan as cron triggers of KEDA that hold its safe level before it begins and after it ends.

KEDA knows no dates: a trigger is active while the next event of its two schedules is its end. The trigger of
the safe level starts once a year, at the plan's end, and ends every minute of the weekdays on which the plan
has no hour. So it is inactive in the hours of the plan alone. A year later the same dates are other weekdays.
Then it is active there as well, above all triggers of the past plan.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from fleetcast.assets.lake.settings import midnight
from fleetcast.assets.plans.cluster_workloads import ClusterWorkload, ReplicaInterval

_MINUTE = timedelta(minutes=1)
DEFAULT_TOLERANCE = 0.1  # --horizontal-pod-autoscaler-tolerance of kube-controller-manager
Trigger = dict[str, Any]


class CronTrigger(NamedTuple):
    """A cron trigger: a name, its two schedules in UTC, and the replicas between them."""

    name: str
    start: str
    end: str
    replicas: int


def cron_triggers(workload: ClusterWorkload, tolerance: float) -> list[Trigger]:
    """Return triggers under spec.triggers; none for hours without a replica, since any trigger starts one."""
    triggers = [*_plan_triggers(workload), *_safe_triggers(workload)]
    return [
        {
            "type": "cron",
            "name": trigger.name,
            "metadata": {
                "timezone": "Etc/UTC",
                "start": trigger.start,
                "end": trigger.end,
                "desiredReplicas": str(requested_replicas(trigger.replicas, tolerance)),
            },
        }
        for trigger in triggers
    ]


def requested_replicas(replicas: int, tolerance: float) -> int:
    """Return the least metric value that gives an HPA at least `replicas`, whatever it has now.

    An HPA does nothing while value / (its replicas) is within 1 +- tolerance. So the value must be outside of
    that for every smaller number of replicas; the largest of them decides.
    """
    value = replicas
    while replicas > 1 and value / (replicas - 1) <= 1.0 + tolerance:
        value += 1
    return value


def _plan_triggers(workload: ClusterWorkload) -> list[CronTrigger]:
    return [
        CronTrigger(
            f"fleetcast-{interval.decision_id}",
            cron_schedule(interval.start),
            cron_schedule(interval.end),
            interval.replicas,
        )
        for interval in overlap_intervals(workload.intervals(workload.lead))
        if interval.replicas > 0
    ]


def overlap_intervals(intervals: Sequence[ReplicaInterval]) -> list[ReplicaInterval]:
    """Return the intervals; of two neighbours the lower one lasts a minute into the higher one.

    An HPA reads one trigger after the other. Without the overlap it could find, on the change of a minute,
    neither of them active. It takes the highest, so the overlap requests nothing.
    """
    widened = list(intervals)
    for n, (before, after) in enumerate(pairwise(intervals)):
        if before.replicas < after.replicas:
            widened[n] = widened[n]._replace(end=before.end + _MINUTE)
        else:
            widened[n + 1] = widened[n + 1]._replace(start=after.start - _MINUTE)
    return widened


def _safe_triggers(workload: ClusterWorkload) -> list[CronTrigger]:
    """Return the triggers of the safe level: outside of the plan's days, and on its first day before it."""
    safe, begins = workload.safe_replicas, workload.rows[0]["hour_start"]
    if safe == 0:
        return []
    first, last = begins.date(), (workload.ends - _MINUTE).date()
    weekdays = {(first + timedelta(days=n)).isoweekday() % 7 for n in range((last - first).days + 1)}
    others = ",".join(str(day) for day in range(7) if day not in weekdays)
    resumes = max(workload.ends - workload.lead, midnight(first) + _MINUTE)
    triggers = [CronTrigger("fleetcast-safe", cron_schedule(resumes), f"* * * * {others}", safe)]
    if begins > midnight(first):
        opens, ends = cron_schedule(midnight(first) - 2 * _MINUTE), cron_schedule(begins + _MINUTE)
        triggers.append(CronTrigger("fleetcast-until-plan", opens, ends, safe))
    return triggers


def cron_schedule(moment: datetime) -> str:
    """Return the cron schedule of an instant's minute, on its day of every year."""
    return f"{moment.minute} {moment.hour} {moment.day} {moment.month} *"
