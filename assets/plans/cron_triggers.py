"""Write a plan as cron triggers of KEDA that hold its safe level before it begins and after it ends.

KEDA knows no dates: a trigger is active while the next event of its two schedules is its end. The trigger of
the safe level starts once a year, at the plan's end, and ends every minute of the weekdays on which the plan
has no hour. So it is inactive in the hours of the plan alone. A year later the same dates are other weekdays.
Then it is active there as well, above all triggers of the past plan but those that lift a step for a minute.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from fleetcast.assets.lake.settings import midnight
from fleetcast.assets.plans.cluster_workloads import ClusterWorkload, ReplicaInterval
from fleetcast.assets.plans.hpa_steps import LIFT_MINUTES, steady_request, step_requests

_MINUTE = timedelta(minutes=1)
Trigger = dict[str, Any]


class CronTrigger(NamedTuple):
    """A cron trigger: a name, its two schedules in UTC, and the metric value between them."""

    name: str
    start: str
    end: str
    value: int


class RequestInterval(NamedTuple):
    """A constant metric value between two instants, and the name of its trigger."""

    start: datetime
    end: datetime
    value: int
    name: str


def cron_triggers(workload: ClusterWorkload, tolerance: float, has_exact_steps: bool = True) -> list[Trigger]:
    """Return triggers under spec.triggers; none for hours without a replica, since any trigger starts one.

    With exact steps, a step has triggers of its own for some minutes (hpa_steps). Without, an HPA with a
    tolerance may hold up to a tenth more than the plan.
    """
    return [
        {
            "type": "cron",
            "name": f"fleetcast-{trigger.name}",
            "metadata": {
                "timezone": "Etc/UTC",
                "start": trigger.start,
                "end": trigger.end,
                "desiredReplicas": str(trigger.value),
            },
        }
        for trigger in _cron_triggers(workload, tolerance, has_exact_steps)
        if trigger.value > 0
    ]


def _cron_triggers(workload: ClusterWorkload, tolerance: float, has_exact_steps: bool) -> list[CronTrigger]:
    intervals = _plan_and_safe_level(workload)
    before = [None, *(interval.replicas for interval in intervals[:-1])]
    requests = [
        request
        for interval, held in zip(intervals, before, strict=True)
        for request in _requests(interval, held if has_exact_steps else None, tolerance)
    ]
    *of_plan, safe = overlap_requests(requests)
    triggers = [
        CronTrigger(one.name, cron_schedule(one.start), cron_schedule(one.end), one.value) for one in of_plan
    ]
    return [*triggers, *_safe_triggers(workload, safe)]


def _plan_and_safe_level(workload: ClusterWorkload) -> list[ReplicaInterval]:
    """Return the intervals of the plan until its safe level is requested for its end, then that level."""
    *of_plan, safe = workload.intervals_to_safe_level(workload.lead)
    return [
        *(interval._replace(end=min(interval.end, safe.start)) for interval in of_plan),
        safe._replace(decision_id="safe"),
    ]


def _requests(interval: ReplicaInterval, before: int | None, tolerance: float) -> list[RequestInterval]:
    """Return the metric values of an interval: of the step from `before` if it is known and there is time."""
    start, end, replicas, name = interval
    values = [] if before is None else step_requests(before, replicas, tolerance)
    if start + (len(values) + 1) * _MINUTE > end:
        values = []
    requests = []
    lifts = LIFT_MINUTES if values and values[0] != replicas else 0
    for part, count in (("lift", lifts), ("exact", len(values) - lifts)):
        if count:
            value, until = values[0] if part == "lift" else replicas, start + count * _MINUTE
            requests.append(RequestInterval(start, until, value, f"{name}-{part}"))
            start = until
    return [*requests, RequestInterval(start, end, steady_request(replicas, tolerance), name)]


def overlap_requests(requests: Sequence[RequestInterval]) -> list[RequestInterval]:
    """Return the intervals; of two neighbours the lower one lasts a minute into the higher one.

    An HPA reads one trigger after the other. Without the overlap it could find, on the change of a minute,
    neither of them active. It takes the highest, so the overlap requests nothing.
    """
    widened = list(requests)
    for n, (before, after) in enumerate(pairwise(requests)):
        if before.value < after.value:
            widened[n] = widened[n]._replace(end=before.end + _MINUTE)
        else:
            widened[n + 1] = widened[n + 1]._replace(start=after.start - _MINUTE)
    return widened


def _safe_triggers(workload: ClusterWorkload, safe: RequestInterval) -> list[CronTrigger]:
    """Return the triggers of the safe level: outside of the plan's days, and on its first day before it.

    `safe` is its interval at the plan's end: from its start on the level is held.
    """
    begins = workload.rows[0]["hour_start"]
    first, last = begins.date(), (workload.ends - _MINUTE).date()
    weekdays = {(first + timedelta(days=n)).isoweekday() % 7 for n in range((last - first).days + 1)}
    others = ",".join(str(day) for day in range(7) if day not in weekdays)
    resumes = max(safe.start, midnight(first) + _MINUTE)
    triggers = [CronTrigger(safe.name, cron_schedule(resumes), f"* * * * {others}", safe.value)]
    if begins > midnight(first):
        opens, ends = cron_schedule(midnight(first) - 2 * _MINUTE), cron_schedule(begins + _MINUTE)
        triggers.append(CronTrigger("until-plan", opens, ends, safe.value))
    return triggers


def cron_schedule(moment: datetime) -> str:
    """Return the cron schedule of an instant's minute, on its day of every year."""
    return f"{moment.minute} {moment.hour} {moment.day} {moment.month} *"
