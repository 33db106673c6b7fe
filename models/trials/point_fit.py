"""Fit a factor of prefill and one of decode to means of a benchmark's loads, or to hours of measured engines.

A summary of a benchmark has no requests, so each load is replayed with requests of equal length, by clients
that wait for their answers or with Poisson arrivals (client_load.py). Its mean TTFT and TPOT are compared
with those measured, until both agree in the median over loads (factor_search.py): TTFT decides the factor of
prefill, TPOT that of decode.

Means, not medians: seconds grow with tokens nearly along a line, so the mean over lengths is that of the mean
length. Clients with requests of equal length stay in step, so their prompts meet; others do not, and TTFT
is far less. So a load of several clients says nothing of prefill: only one client does, or arrivals at a
rate. The curves keep their shape: a few means do not show it.

Of hours (`fit_hours`), `hourly_speed_ratios` (latency_drift.py) gives by how much each phase left its profile
in each. The factor of a phase is the median of its hours. Every third hour that is known is left out of a
second fit and compared with it.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.latency.batch_extension import extend_profile
from fleetcast.models.latency.latency_errors import calibrated_copy, scale_profile
from fleetcast.models.metrics import tpot_s
from fleetcast.models.trials.capacity import trial_fleet, trial_rules
from fleetcast.models.trials.client_load import MAX_CLIENT_REQUESTS, SentRequests, replay_equal_requests
from fleetcast.models.trials.engine_calibration import LIMITS, CalibrationCheck
from fleetcast.models.trials.factor_search import FactorFit, search_factors
from fleetcast.models.trials.latency_drift import LEAST_LEVEL_HOURS
from fleetcast.models.trials.log_replay import MeasuredEngine
from fleetcast.models.world.catalogue_entries import LatencyProfile

LEAST_FIT_HOURS = 3 * LEAST_LEVEL_HOURS  # of a phase: two thirds to fit, one to check
HELD_OUT_EVERY = 3
PHASE_METRICS = {"prefill": "TTFT", "decode": "TPOT"}  # the latency that a phase decides
MOST_POINT_REQUESTS, POINT_WAVES = 1_000, 4  # of a replay: requests, or so many of each client if more
FOLDS = 5  # of the validation: as many times a part of the loads is left out of the fit


class LoadPoint(NamedTuple):
    """A load of a benchmark: its requests, their mean tokens, and the means that were measured."""

    clients: int | None  # that send a request when their last one ended; None: Poisson arrivals
    requests_per_s: float  # 0 with clients
    requests: int
    input_tokens: int
    output_tokens: int
    ttft_s: float
    tpot_s: float

    @property
    def shows_prefill(self) -> bool:
        """Whether its TTFT depends on prefill and not on whether clients stay in step."""
        return self.clients is None or self.clients == 1

    def __str__(self) -> str:
        return f"{self.requests_per_s:g}/s" if self.clients is None else f"{self.clients:,} at once"


class PointCalibration(NamedTuple):
    """A scaled profile, its two factors, and the means that the factors of other loads give each load."""

    profile: LatencyProfile
    predicted_s: Floats  # (loads, 2): TTFT, TPOT
    checks: list[CalibrationCheck]  # of each metric that two loads show
    fit: FactorFit  # to all loads
    held_out_fits: list[FactorFit]  # each to the loads but a part

    @property
    def prefill_factor(self) -> float:
        """Seconds of prefill over those of the profile that was scaled."""
        return float(self.fit.factors[0])

    @property
    def decode_factor(self) -> float:
        """The same of decode."""
        return float(self.fit.factors[1])

    @property
    def is_validated(self) -> bool:
        """Whether all factors that were fitted are checked by loads that were left out."""
        fitted = {"TPOT"} if self.prefill_factor == 1 else {"TPOT", "TTFT"}
        return fitted <= {check.metric for check in self.checks}


def calibrate_to_points(
    points: Sequence[LoadPoint],
    profile: LatencyProfile,
    engine: MeasuredEngine,
    limits: Mapping[str, float] = LIMITS,
) -> PointCalibration:
    """Scale a profile so that the replay has the means of the loads; check each load on the others' fit.

    ValueError for a load whose requests do not fit on the deployment.
    """
    play = make_point_player(points, profile, engine)
    every = np.arange(len(points))
    fit, held_out_fits = fit_factors(play, points, every), list[FactorFit]()
    folds = min(FOLDS, len(points)) if len(points) > 1 else 0
    predicted_s = play(fit.factors, every)
    for fold in range(folds):
        is_out = every % folds == fold
        held_out_fits.append(fit_factors(play, points, every[~is_out]))
        predicted_s[is_out] = play(held_out_fits[-1].factors, every[is_out])
    checks = check_points(points, predicted_s, limits)
    shares = {check.metric: round(check.signed_error_share, 4) for check in checks}
    source = f"calibrated: {len(points)} loads of {engine.source}"
    prefill, decode = fit.factors.tolist()
    scaled = calibrated_copy(engine.catalogue, profile, prefill, decode, shares, source)
    return PointCalibration(scaled, predicted_s, checks, fit, held_out_fits)


def measured_times(points: Sequence[LoadPoint]) -> Floats:
    """Return the measured TTFT and TPOT of the loads, shape (loads, 2), seconds."""
    return np.array([(point.ttft_s, point.tpot_s) for point in points])


def check_points(
    points: Sequence[LoadPoint], predicted_s: Floats, limits: Mapping[str, float], least_loads: int = 2
) -> list[CalibrationCheck]:
    """Return the median error of a load, by metric that enough loads show; predicted_s: (loads, 2)."""
    shows_prefill = np.array([point.shows_prefill for point in points])
    checks = []
    for column, (metric, shows) in enumerate((("TTFT", shows_prefill), ("TPOT", np.full(len(points), True)))):
        if shows.sum() >= least_loads:
            measured, predicted = measured_times(points)[shows, column], predicted_s[shows, column]
            error = float(np.median(np.abs(predicted / measured - 1)))
            checks.append(
                CalibrationCheck(metric, "a load", float(np.median(measured)), np.nan, error, limits[metric])
            )
    return checks


def fit_factors(
    play: Callable[[Floats, Ints], Floats], points: Sequence[LoadPoint], chosen: Ints
) -> FactorFit:
    """Return the factors of prefill and decode, shape (2,), for the chosen loads, shape (n,) of indices.

    That of prefill is 1 where none of them shows it.
    """
    measured_s = measured_times(points)[chosen]
    shows_prefill = np.array([points[index].shows_prefill for index in chosen])

    def log_misses(factors: Floats) -> Floats:
        logs = np.log(measured_s / play(factors, chosen))
        prefill = np.median(logs[shows_prefill, 0]) if shows_prefill.any() else 0.0
        return np.array([prefill, np.median(logs[:, 1])])

    return search_factors(log_misses, np.ones(2))


def make_point_player(
    points: Sequence[LoadPoint], profile: LatencyProfile, engine: MeasuredEngine
) -> Callable[[Floats, Ints], Floats]:
    """Return a function that replays some loads with a profile times two factors.

    It takes the factors, shape (2,), and the indices of the loads, shape (n,). It returns their mean TTFT and
    TPOT, shape (n, 2), seconds.
    """
    llm, deployment, catalogue, config, _, instances = engine
    max_batch = config.fleet.engine(deployment).max_batch

    def play(factors: Floats, chosen: Ints) -> Floats:
        scaled = extend_profile(catalogue, scale_profile(catalogue, profile, *factors), max_batch)
        only = dataclasses.replace(catalogue, latency=(scaled,))
        fleet = trial_fleet(llm, deployment, only, config, instances=instances)
        rules = trial_rules(llm, only, config)
        means = []
        for index in chosen:
            point = points[index]
            load = point.clients, point.requests_per_s, replayed_requests(point)
            lengths = point.input_tokens, point.output_tokens
            means.append(mean_times(replay_equal_requests(*load, lengths, fleet, rules)))
        return np.array(means)

    return play


def replayed_requests(point: LoadPoint) -> int:
    """Return the number of requests that a replay of the load has: no more than was measured."""
    if point.clients is None:
        return min(point.requests, MOST_POINT_REQUESTS)
    most = max(MOST_POINT_REQUESTS, POINT_WAVES * point.clients)
    return min(point.requests, most, MAX_CLIENT_REQUESTS * point.clients)


def mean_times(sent: SentRequests) -> tuple[float, float]:
    """Return the mean TTFT and TPOT of replayed requests, seconds."""
    token_s = tpot_s(sent.ttft_s, sent.e2e_s, sent.output_tokens)
    return float(np.mean(sent.ttft_s)), float(np.mean(token_s))


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
