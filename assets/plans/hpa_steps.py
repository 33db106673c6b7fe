"""The metric values that bring a HorizontalPodAutoscaler (HPA) to the plan's replicas, past its tolerance.

An HPA does nothing while value / (its replicas) is within 1 +- tolerance, its dead band. So it ignores small
steps. Above all replicas that are too few lies the steady value: it lifts every one of them, and leaves the
right count as it is. But from a lower count it leads to too many. So a step has values of its own: for a
minute one that lifts the fleet out of the dead band, then the exact count, to which the HPA comes down. A
step up is lifted even where the plan's step is outside of the band: the fleet may be above the plan, as after
a new plan, and then within the band.
"""

from collections.abc import Sequence

DEFAULT_TOLERANCE = 0.1  # --horizontal-pod-autoscaler-tolerance of kube-controller-manager
LIFT_MINUTES = 1
EXACT_MINUTES = 3  # longer than a minute, the stabilisation of a scale-in, and a round of controllers
STEP_MINUTES = LIFT_MINUTES + EXACT_MINUTES


def steady_request(replicas: int, tolerance: float) -> int:
    """Return the least metric value that gives an HPA at least `replicas`, whatever it has now.

    The value must be outside of the dead band of every smaller count; the largest of them decides.
    """
    value = replicas
    while replicas > 1 and value / (replicas - 1) <= 1.0 + tolerance:
        value += 1
    return value


def step_requests(before: int, replicas: int, tolerance: float) -> list[int]:
    """Return the metric values of the first minutes after a step, one a minute.

    They lead from exactly `before` to exactly `replicas`; a step up leads from any count to no fewer within
    a minute. None where the steady value does so, or where both are the same.
    """
    if before == replicas:
        return []
    exact, steady = [replicas] * EXACT_MINUTES, steady_request(replicas, tolerance)
    if not before or not _is_within(replicas, before, tolerance):
        if steady == replicas:
            return []
        if replicas < before:
            return exact
    lift = max(before, steady)
    while (before and _is_within(lift, before, tolerance)) or _is_within(replicas, lift, tolerance):
        lift += 1
    return [lift] * LIFT_MINUTES + exact


def current_request(recent: Sequence[int], tolerance: float) -> int:
    """Return the metric value of now; `recent`: the plan's replicas now and one, two, ... minutes ago."""
    replicas = recent[0]
    for minutes, before in enumerate(recent):
        if before != replicas:
            values = step_requests(before, replicas, tolerance)
            return values[minutes - 1] if minutes <= len(values) else steady_request(replicas, tolerance)
    return steady_request(replicas, tolerance)


def _is_within(value: int, replicas: int, tolerance: float) -> bool:
    return 1.0 - tolerance <= value / replicas <= 1.0 + tolerance
