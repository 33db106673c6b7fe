"""Fit a factor of prefill and one of decode to the hours in which engines were measured against their replay.

`hourly_speed_ratios` (latency_drift.py) gives by how much each phase left its profile in each hour, from
histograms or from times of requests. The factor of a phase is the median of its hours. Every third hour that
is known is left out of a second fit and compared with it. The curves of the profile keep their shape.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.trials.engine_calibration import LIMITS, CalibrationCheck
from fleetcast.models.trials.latency_drift import LEAST_LEVEL_HOURS

LEAST_FIT_HOURS = 3 * LEAST_LEVEL_HOURS  # of a phase: two thirds to fit, one to check
HELD_OUT_EVERY = 3
PHASE_METRICS = {"prefill": "TTFT", "decode": "TPOT"}  # the latency that a phase decides


class HoursFit(NamedTuple):
    """Factors of a profile's seconds, and the errors of the hours that were left out."""

    prefill_factor: float
    decode_factor: float
    hours: int  # of the phase that fewer hours show
    checks: list[CalibrationCheck]  # of each phase that was fitted

    @property
    def kept_phases(self) -> list[str]:
        """Phases that too few hours show."""
        fitted = {check.metric for check in self.checks}
        return [phase for phase, metric in PHASE_METRICS.items() if metric not in fitted]


def fit_hours(factors: Mapping[str, Floats], limits: Mapping[str, float] = LIMITS) -> HoursFit | None:
    """Return the factors of the phases; None if no phase has LEAST_FIT_HOURS hours.

    factors : by phase, measured over replayed seconds of each hour, (hours,), in order of time; NaN where
        unknown. A phase with fewer than LEAST_FIT_HOURS known hours keeps its seconds.
    limits : largest error that passes, by metric of PHASE_METRICS
    """
    found, known, checks = dict.fromkeys(PHASE_METRICS, 1.0), list[int](), list[CalibrationCheck]()
    for phase, metric in PHASE_METRICS.items():
        hours = factors.get(phase, np.empty(0))
        hours = hours[np.isfinite(hours)]
        if hours.size < LEAST_FIT_HOURS:
            continue
        is_out = np.arange(hours.size) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
        fitted = np.median(hours[~is_out])
        error = float(np.median(np.abs(fitted / hours[is_out] - 1)))
        found[phase] = float(np.median(hours))
        known.append(hours.size)
        checks.append(CalibrationCheck(metric, "an hour", found[phase], np.nan, error, limits[metric]))
    return HoursFit(found["prefill"], found["decode"], min(known), checks) if checks else None
