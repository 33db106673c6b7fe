"""The published rules of the controllers that scale a workload, as a model that plays exported objects.

Sources, read in November 2026:
- kubernetes/kubernetes pkg/controller/podautoscaler/replica_calculator.go (GetExternalPerPodMetricReplicas,
  Tolerances.isWithin) and horizontal.go (reconcileAutoscaler, computeReplicasForMetrics,
  stabilizeRecommendationWithBehaviors, convertDesiredReplicasWithBehaviorRate); config/v1alpha1/defaults.go
  (tolerance 0.1, sync period 15 s); features/kube_features.go (HPAConfigurableTolerance: 1.33 alpha, off;
  1.35 beta, on).
- kedacore/keda pkg/scalers/cron_scaler.go (GetMetricsAndActivity) and external_scaler.go, pkg/fallback,
  pkg/scaling/executor/scale_scaledobjects.go (RequestScale); robfig/cron v3 (SpecSchedule.Next, dayMatches).

Time is whole minutes since EPOCH; within a minute the controllers run every 15 s. Pods exist at once, and
serve a boot time later. What is not modelled: pod metrics, failed calls in between, a slow API server.
"""

from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np

EPOCH = datetime(2027, 1, 1, tzinfo=UTC)
DAYS = 2000  # with two 29 Februaries, so that each schedule has a next event
SYNC_S = 15
ROUNDS = 60 // SYNC_S  # of the controllers in a minute
STEADY_MINUTES = 7  # longer than every window of the rules: after it, nothing moves until a trigger does
DEFAULT_UP = [
    {"type": "Pods", "value": 4, "periodSeconds": 15},
    {"type": "Percent", "value": 100, "periodSeconds": 15},
]
DEFAULT_DOWN = [{"type": "Percent", "value": 100, "periodSeconds": 15}]


def minute_of(moment: datetime) -> int:
    """Whole minutes since EPOCH."""
    return int((moment - EPOCH) / timedelta(minutes=1))


# --- KEDA's cron scaler ---------------------------------------------------------------------------------


@lru_cache(maxsize=1000)
def cron_events(spec: str) -> np.ndarray:
    """The minutes at which a schedule fires; with both given, its day of month or its weekday is enough."""
    minutes, hours, days, months, weekdays = spec.split()
    dates = [EPOCH + timedelta(days=n) for n in range(DAYS)]
    of_day = np.array([date.day for date in dates])
    of_month = np.array([date.month for date in dates])
    of_week = np.array([date.isoweekday() % 7 for date in dates])
    day, week = np.isin(of_day, _field(days, 1, 31)), np.isin(of_week, _field(weekdays, 0, 6))
    either = day & week if "*" in (days, weekdays) else day | week
    chosen = np.flatnonzero(np.isin(of_month, _field(months, 1, 12)) & either)
    in_day = np.add.outer(60 * np.array(_field(hours, 0, 23)), np.array(_field(minutes, 0, 59))).ravel()
    return np.add.outer(1440 * chosen, in_day).ravel().astype(np.int32)


def _field(text: str, low: int, high: int) -> list[int]:
    return list(range(low, high + 1)) if text == "*" else sorted(int(part) for part in text.split(","))


def active_minutes(trigger: dict[str, Any], minutes: np.ndarray) -> np.ndarray:
    """Where a cron trigger is active: its next end is not after its next start."""
    start, end = (cron_events(trigger["metadata"][name]) for name in ("start", "end"))
    next_start, next_end = (events[np.searchsorted(events, minutes, side="right")] for events in (start, end))
    return next_start >= next_end


# --- the HPA --------------------------------------------------------------------------------------------


class Autoscaler:
    """An HPA over external metrics of type AverageValue with target 1; `replicas` is the workload's scale.

    `knows_tolerance`: from Kubernetes 1.35 on; before, the field is dropped.
    """

    def __init__(self, spec: dict[str, Any], replicas: int, knows_tolerance: bool) -> None:
        self.replicas, self.knows_tolerance = replicas, knows_tolerance
        self.recommended: deque[tuple[int, int]] = deque()
        self.changes: list[tuple[int, int]] = []
        self.apply(spec)

    def apply(self, spec: dict[str, Any]) -> None:
        self.least, self.most = max(spec["minReplicas"], 1), spec["maxReplicas"]
        rules = spec.get("behavior", {})
        self.up, self.down = rules.get("scaleUp", {}), rules.get("scaleDown", {})
        self.tolerances = [
            float(rule.get("tolerance", 0.1)) if self.knows_tolerance else 0.1
            for rule in (self.up, self.down)
        ]

    def sync(self, now_s: int, metrics: Sequence[float | None]) -> None:
        """One reconciliation; None is a metric that cannot be read."""
        current = self.replicas
        if current == 0:
            return  # disabled until something else starts the first replica
        if current > self.most:
            wanted = self.most
        elif current < self.least:
            wanted = self.least
        else:
            known = [value for value in metrics if value is not None]
            desired = max((self._desired(value) for value in known), default=-1)
            if not known or (len(known) < len(metrics) and desired < current):
                return
            wanted = self._limited(now_s, self._stabilised(now_s, desired))
        if wanted != current:
            self.changes.append((now_s, wanted - current))
        self.replicas = wanted

    def _desired(self, value: float) -> int:
        ratio = value / self.replicas
        up, down = self.tolerances
        return self.replicas if 1.0 - down <= ratio <= 1.0 + up else ceil(value)

    def _stabilised(self, now_s: int, desired: int) -> int:
        up_s = self.up.get("stabilizationWindowSeconds", 0)
        down_s = self.down.get("stabilizationWindowSeconds", 300)
        while self.recommended and self.recommended[0][0] <= now_s - max(up_s, down_s):
            self.recommended.popleft()
        highest = max([desired, *(value for at, value in self.recommended if at > now_s - down_s)])
        lowest = min([desired, *(value for at, value in self.recommended if at > now_s - up_s)])
        self.recommended.append((now_s, desired))
        return min(max(self.replicas, lowest), highest)

    def _limited(self, now_s: int, desired: int) -> int:
        current = self.replicas
        if desired > current:
            limits = [self._limit(now_s, policy, 1) for policy in self.up.get("policies", DEFAULT_UP)]
            return min(desired, self.most, max(current, *limits))
        if desired < current:
            limits = [self._limit(now_s, policy, -1) for policy in self.down.get("policies", DEFAULT_DOWN)]
            return max(desired, self.least, min(current, *limits))
        return desired

    def _limit(self, now_s: int, policy: dict[str, Any], sign: int) -> int:
        recent = [change for at, change in self.changes if at > now_s - policy["periodSeconds"]]
        begins = self.replicas - sum(change for change in recent if change * sign > 0)
        if policy["type"] == "Pods":
            return begins + sign * policy["value"]
        share = 1 + sign * policy["value"] / 100
        return ceil(begins * share) if sign > 0 else int(begins * share)


# --- KEDA -----------------------------------------------------------------------------------------------


class Keda:
    """KEDA and its HPA for one ScaledObject, which may be applied anew; `external(minute)` is a scaler.

    `external` returns the metric, or None where the scaler cannot be reached.
    """

    def __init__(
        self, replicas: int, knows_tolerance: bool, external: Callable[[int], int | None] | None = None
    ):
        self.replicas, self.knows_tolerance, self.external = replicas, knows_tolerance, external
        self.hpa: Autoscaler | None = None
        self.last_active_s, self.failures, self.polled_s = -(10**9), 0, -(10**9)

    def apply(self, manifest: dict[str, Any], minutes: np.ndarray) -> None:
        """Apply an object; `minutes` are those in which it may be played."""
        self.spec, self.first = manifest["spec"], int(minutes[0])
        annotations = manifest["metadata"].get("annotations", {})
        self.paused = annotations.get("autoscaling.keda.sh/paused-replicas")
        hpa = {
            "minReplicas": self.spec["minReplicaCount"],
            "maxReplicas": self.spec["maxReplicaCount"],
            **self.spec.get("advanced", {}).get("horizontalPodAutoscalerConfig", {}),
        }
        if self.hpa is None:
            self.hpa = Autoscaler(hpa, self.replicas, self.knows_tolerance)
        self.hpa.apply(hpa)
        cron = [trigger for trigger in self.spec["triggers"] if trigger["type"] == "cron"]
        active = np.array([active_minutes(trigger, minutes) for trigger in cron], dtype=bool)
        active = active.reshape(len(cron), len(minutes))
        counts = np.array([int(trigger["metadata"]["desiredReplicas"]) for trigger in cron], dtype=int)
        # An inactive cron trigger reports one replica.
        self.cron_metric = np.where(active, counts[:, None], 1).max(axis=0, initial=1)
        self.cron_active = active.any(axis=0)
        self.has_cron = bool(cron)
        changed = np.flatnonzero(np.diff(self.cron_metric) | np.diff(self.cron_active)) + 1
        is_steady = np.ones(len(minutes), dtype=bool)
        for minute in (0, *changed):
            is_steady[minute : minute + STEADY_MINUTES] = False
        self.is_steady = is_steady
        self.moved = int(minutes[0])

    def play_minute(self, minute: int) -> list[int]:
        """The replicas after each round of the controllers of a minute."""
        assert self.hpa is not None
        is_steady = self.external is None and self.is_steady[minute - self.first]
        if is_steady and minute - self.moved > STEADY_MINUTES:
            return [self.replicas] * ROUNDS
        rounds = []
        for second in range(0, 60, SYNC_S):
            now_s = 60 * minute + second
            metrics, is_active = self._metrics(minute)
            if self.paused is not None:
                self.hpa.replicas = int(self.paused)
            else:
                if now_s - self.polled_s >= self.spec.get("pollingInterval", 30):
                    self.polled_s = now_s
                    self._poll(now_s, is_active)
                self.hpa.sync(now_s, metrics)
            rounds.append(self.hpa.replicas)
        if self.hpa.replicas != self.replicas:
            self.moved = minute
        self.replicas = self.hpa.replicas
        return rounds

    def _metrics(self, minute: int) -> tuple[list[float | None], bool]:
        metrics: list[float | None] = []
        is_active = False
        if self.has_cron:
            metrics.append(float(self.cron_metric[minute - self.first]))
            is_active = bool(self.cron_active[minute - self.first])
        if self.external is not None:
            value = self.external(minute)
            self.failures = self.failures + 1 if value is None else 0
            fallback = self.spec["fallback"]
            if value is None and self.failures > fallback["failureThreshold"]:
                value = fallback["replicas"]
            metrics.append(value)
            is_active |= bool(value)
        return metrics, is_active

    def _poll(self, now_s: int, is_active: bool) -> None:
        """The executor: from zero on activity, to zero a cooldown after it."""
        assert self.hpa is not None
        least = self.spec["minReplicaCount"]
        if is_active:
            self.last_active_s = now_s
            if self.hpa.replicas == 0:
                self.hpa.replicas = max(least, 1)
        elif self.hpa.replicas < least:
            self.hpa.replicas = least
        elif least == 0 and now_s - self.last_active_s > self.spec.get("cooldownPeriod", 300):
            self.hpa.replicas = 0


def serving_replicas(held: np.ndarray, boot_minutes: int) -> np.ndarray:
    """What serves in each minute: a replica serves a boot time after it was requested.

    The fewest of the minutes since then; the first minutes have booted before. `held`: replicas of each round
    of the controllers, (minutes, rounds).
    """
    fewest = held.min(axis=1)
    padded = np.concatenate([np.full(boot_minutes, fewest[0]), fewest])
    return np.lib.stride_tricks.sliding_window_view(padded, boot_minutes + 1).min(axis=1)
