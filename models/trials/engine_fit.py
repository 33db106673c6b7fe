"""Fit an engine's latency curves: replay a log of its requests until the replay matches the measured times.

Five parameters describe an engine:

    prefill_s(n) = a + b*n     f[B] = c + d*B     g seconds per cached token

Where the fit gains enough, the first two get a separate slope between each two knots. No parameter can be
read directly from the log, because the times of a request include its waiting. So each guess is used to
replay the whole log, and the replayed times are compared with the measured ones. A step boundary just before
an arrival instead of just after it changes all later events, so the error is not smooth. Differential
evolution searches globally, with the errors that depend least on such boundaries; Nelder and Mead's simplex
then refines.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.profile_tables import BATCH_REACH, ProfileFit
from fleetcast.models.latency.roofline import (
    RooflineWork,
    roofline_decode_s,
    roofline_kv_token_s,
    roofline_prefill_s,
)
from fleetcast.models.world.catalogue_entries import Efficiency

CURVE_KNOTS = 4  # of each curve, where its slope may change
LOG_SEARCH_RADIUS = 2.0  # of the global search around the roofline's values, in logarithms: factors 1/7 to 7
POPULATION, GENERATIONS = 6, 40  # of the global search; the population is per parameter
SIMPLEX_TRIES = 400  # replays of one simplex; twice as many with bent curves
SPREADS = (0.3, 0.1, 0.03)  # initial sizes of the successive simplexes, in logarithms
MAX_LOG_ERROR = 1.0  # an error of a request counts at most this much, in logarithms
BEND_PENALTY = 1e-3  # per squared change of the logarithm of a slope
COARSE, FINE = (0.0, 1.0, 1.0), (1.0, 2.0, 1.0)  # weights of the errors of TTFT, E2E, and E2E - TTFT


class LoggedRequests(NamedTuple):
    """Requests that an engine has served, sorted by arrival; each column has shape (requests,)."""

    arrival_s: Floats  # on any clock
    input_tokens: npt.NDArray[np.int32]
    output_tokens: npt.NDArray[np.int32]
    ttft_s: Floats
    e2e_s: Floats


class CurveKnots(NamedTuple):
    """Positions of the knots of an engine's curves."""

    prefill_tokens: npt.NDArray[np.int64]  # (up to CURVE_KNOTS,) tokens
    decode_batch: npt.NDArray[np.int64]  # (up to CURVE_KNOTS,) requests
    max_batch: int  # of the engine; the last slope of decode continues to it

    @property
    def parts(self) -> list[int]:
        """Number of parameters for a, the slopes b, c, the slopes d, and g."""
        return [1, self.prefill_tokens.size - 1, 1, self.decode_batch.size - 1, 1]


class FittedCurves(NamedTuple):
    """An engine's curves, and the error of its replay."""

    log_parameters: Floats  # (sum of CurveKnots.parts,) logarithms of a, slopes b, c, slopes d, and g
    error: float  # mean log error


class FitProblem(NamedTuple):
    """A fit: find the curves with which the replay matches the scored requests.

    play : replays the requests; returns TTFT and E2E, shape (requests,), seconds, NaN if they never end
    scored : shape (requests,), whether the fit uses the request
    """

    play: Callable[[ProfileFit], tuple[Floats, Floats]]
    requests: LoggedRequests
    scored: npt.NDArray[np.bool_]
    shape: CurveKnots


def place_knots(shortest: int, longest: int, largest: int, max_batch: int) -> CurveKnots:
    """Place the knots from the shortest to the longest prefill step, and up to the largest batch.

    A curve needs two knots: they reach at least to twice the shortest prefill step, and to a batch of 2.
    """
    tokens = np.unique(np.geomspace(shortest, max(longest, 2 * shortest), CURVE_KNOTS).astype(int))
    batch = np.unique(np.geomspace(1, max(2, largest), CURVE_KNOTS).astype(int))
    return CurveKnots(tokens, batch, max_batch)


def latency_fit(logs: Floats, shape: CurveKnots) -> ProfileFit:
    """Return the profile with these parameters; logs: shape (sum of shape.parts,), their logarithms."""
    a, b, c, d, g = np.split(np.exp(logs), np.cumsum(shape.parts)[:-1])
    batch = shape.decode_batch
    if shape.max_batch > BATCH_REACH * batch[-1]:
        batch, d = np.append(batch, shape.max_batch), np.append(d, d[-1])
    return ProfileFit(
        tuple(shape.prefill_tokens.tolist()),
        curve_seconds(a[0] + b[0] * shape.prefill_tokens[0], shape.prefill_tokens, b),
        tuple(batch.tolist()),
        curve_seconds(c[0] + d[0], batch, d),
        float(f"{g[0]:.3e}"),
    )


def curve_seconds(first: float, knots: npt.NDArray[np.int64], slopes: Floats) -> tuple[float, ...]:
    """Return the seconds at the knots, shape (K,): `first`, then by slopes, shape (K-1,), s per unit."""
    return tuple(np.cumsum([first, *(np.diff(knots) * slopes)]).round(6).tolist())


def roofline_parameters(work: RooflineWork, efficiency: Efficiency, shape: CurveKnots) -> Floats:
    """Return the logs of a, b, c, d and g, shape (5,), of lines through the ends of the roofline's curves."""
    five = []
    for knots, seconds in (
        (shape.prefill_tokens, roofline_prefill_s(work, shape.prefill_tokens, efficiency)),
        (shape.decode_batch, roofline_decode_s(work, shape.decode_batch, efficiency)),
    ):
        slope = max((seconds[-1] - seconds[0]) / (knots[-1] - knots[0]), 0.01 * seconds[0] / knots[-1])
        five += [max(seconds[0] - slope * knots[0], 0.1 * seconds[0]), slope]
    return np.log([*five, float(roofline_kv_token_s(work, efficiency))])


def mean_log_error(problem: FitProblem, fit: ProfileFit, weights: tuple[float, float, float]) -> float:
    """Return the weighted mean of the scored requests' errors, in logarithms, each up to MAX_LOG_ERROR."""
    means = [float(np.mean(error)) for error in request_log_errors(problem, fit)]
    return sum(w * mean for w, mean in zip(weights, means, strict=True)) / sum(weights)


def request_log_errors(problem: FitProblem, fit: ProfileFit) -> list[Floats]:
    """Return capped |log(replayed / measured)| of TTFT, E2E and E2E - TTFT, shape (scored,) each."""
    ttft_s, e2e_s = (column[problem.scored] for column in problem.play(fit))
    log_ttft_s, log_e2e_s = problem.requests.ttft_s[problem.scored], problem.requests.e2e_s[problem.scored]
    pairs = ((ttft_s, log_ttft_s), (e2e_s, log_e2e_s), (e2e_s - ttft_s, log_e2e_s - log_ttft_s))
    errors = []
    for replayed, measured in pairs:
        with np.errstate(invalid="ignore", divide="ignore"):
            error = np.abs(np.log(replayed / measured))
        # E2E - TTFT of a request with one token is zero in both.
        is_zero = (replayed == 0) & (measured == 0)
        errors.append(np.where(is_zero, 0.0, np.where(error < MAX_LOG_ERROR, error, MAX_LOG_ERROR)))
    return errors


def fit_straight_curves(problem: FitProblem, about: Floats) -> FittedCurves:
    """Fit straight curves by a global search around `about`, shape (5,), log parameters."""
    from scipy.optimize import differential_evolution

    def loss(five: Floats) -> float:
        logs = np.repeat(five, problem.shape.parts)  # of straight curves: all slopes of one are equal
        return mean_log_error(problem, latency_fit(logs, problem.shape), COARSE)

    bounds = [(log - LOG_SEARCH_RADIUS, log + LOG_SEARCH_RADIUS) for log in about]
    best = differential_evolution(
        loss, bounds, popsize=POPULATION, maxiter=GENERATIONS, init="sobol", polish=False, rng=1
    )
    return refine_straight_curves(problem, best.x)


def refine_straight_curves(problem: FitProblem, five: Floats) -> FittedCurves:
    """Refine straight curves by simplexes of falling size from `five`, shape (5,), log parameters."""
    for spread in SPREADS:
        five = minimise_by_simplex(
            problem, five, lambda free: np.repeat(free, problem.shape.parts), spread, SIMPLEX_TRIES
        ).log_parameters
    logs = np.repeat(five, problem.shape.parts)
    return FittedCurves(logs, mean_log_error(problem, latency_fit(logs, problem.shape), FINE))


def fit_bent_curves(problem: FitProblem, straight: FittedCurves) -> FittedCurves:
    """Let the slopes of straight curves differ; return the bent curves, or the straight ones if not worse."""
    parts = np.split(np.arange(straight.log_parameters.size), np.cumsum(problem.shape.parts)[:-1])

    def penalty(logs: Floats) -> float:
        return BEND_PENALTY * float(sum(np.square(np.diff(logs[part])).sum() for part in parts))

    bent = straight
    for spread in SPREADS[:2]:
        bent = minimise_by_simplex(
            problem, bent.log_parameters, lambda logs: logs, spread, 2 * SIMPLEX_TRIES, penalty
        )
    bent = FittedCurves(
        bent.log_parameters, mean_log_error(problem, latency_fit(bent.log_parameters, problem.shape), FINE)
    )
    return min(straight, bent, key=lambda fitted: fitted.error)


def minimise_by_simplex(
    problem: FitProblem,
    start: Floats,
    logs_of: Callable[[Floats], Floats],
    spread: float,
    tries: int,
    penalty: Callable[[Floats], float] = lambda logs: 0.0,
) -> FittedCurves:
    """Minimise the error with Nelder and Mead's simplex; return the best free parameters and their loss.

    start : shape (n,), free parameters, logarithms; the result has this shape too
    logs_of : returns all log parameters, shape (sum of shape.parts,), for free parameters
    spread : initial size of the simplex, in logarithms
    tries : most replays
    penalty : added to the error, for all log parameters
    """
    from scipy.optimize import minimize

    def loss(free: Floats) -> float:
        logs = logs_of(free)
        return mean_log_error(problem, latency_fit(logs, problem.shape), FINE) + penalty(logs)

    best = minimize(
        loss,
        start,
        method="Nelder-Mead",
        options={
            "maxfev": tries,
            "initial_simplex": np.vstack([start, start + spread * np.eye(start.size)]),
            "xatol": 1e-4,
            "fatol": 1e-6,
            "adaptive": start.size > 5,
        },
    )
    return FittedCurves(best.x, float(best.fun))
