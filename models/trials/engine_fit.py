"""An engine's seconds, found by replaying a log of its requests until the replay meets what was measured.

Few numbers describe an engine:

    prefill_s(n) = a + b*n     f[B] = c + d*B     g seconds per cached token

and, where that pays, a slope of its own between each two knots of the first two. No request tells one of them
apart from its waiting, so none is read off the log: the whole timeline is replayed with a guess, and what its
requests meet is compared with what was measured. A boundary that falls before an arrival instead of behind it
changes all that follows, so the error is rugged: a population looks for the valley (differential evolution),
over what hangs least on such moments, and a simplex (Nelder and Mead) for its bottom.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.profile_tables import ProfileFit
from fleetcast.models.latency.roofline import (
    RooflineWork,
    roofline_decode_s,
    roofline_kv_token_s,
    roofline_prefill_s,
)
from fleetcast.models.world.catalogue_entries import Efficiency

CURVE_KNOTS = 4  # of each curve, where its slope may change
LOG_SEARCH_RADIUS = (
    2.0  # of the population from the roofline's figures, in logarithms: a seventh to seven times
)
POPULATION, GENERATIONS = 12, 60  # of the search, the first a figure
SIMPLEX_TRIES = 400  # replays of a simplex; twice that where the curves may bend
SPREADS = (0.3, 0.1, 0.03)  # of a simplex after the other, in logarithms
MAX_LOG_ERROR = 1.0  # an error of a request counts at most so much, in logarithms
BEND_PENALTY = 1e-3  # what a change of slope must earn
COARSE, FINE = (0.0, 1.0, 1.0), (1.0, 2.0, 1.0)  # weights of the errors of TTFT, E2E, and the time between


class LoggedRequests(NamedTuple):
    """Requests that an engine has served, by arrival; each column of shape (requests,)."""

    arrival_s: Floats  # on any clock
    input_tokens: npt.NDArray[np.int32]
    output_tokens: npt.NDArray[np.int32]
    ttft_s: Floats
    e2e_s: Floats


class CurveKnots(NamedTuple):
    """Where the knots of an engine's curves lie."""

    prefill_tokens: npt.NDArray[np.int64]
    decode_batch: npt.NDArray[np.int64]

    @property
    def parts(self) -> list[int]:
        """How many logarithms describe a, the slopes b, c, the slopes d, and g."""
        return [1, self.prefill_tokens.size - 1, 1, self.decode_batch.size - 1, 1]


class FittedCurves(NamedTuple):
    """An engine's curves, and how far its replay is off."""

    log_parameters: Floats  # of a, the slopes b, c, the slopes d, and g
    error: float


class FitProblem(NamedTuple):
    """What is looked for: the curves with which `play` gives what the scored requests met."""

    play: Callable[
        [ProfileFit], tuple[Floats, Floats]
    ]  # TTFT and E2E of the requests; NaN for what never ends
    requests: LoggedRequests
    scored: npt.NDArray[np.bool_]
    shape: CurveKnots


def place_knots(requests: LoggedRequests, max_batch: int, max_prefill_tokens: int) -> CurveKnots:
    """Knots over the passes and the batches that the engine can have made."""
    shortest = int(requests.input_tokens.min())
    longest = max(min(int(requests.input_tokens.sum()), max_prefill_tokens), 2 * shortest)
    tokens = np.unique(np.geomspace(shortest, longest, CURVE_KNOTS).astype(int))
    return CurveKnots(tokens, np.unique(np.geomspace(1, max(2, max_batch), CURVE_KNOTS).astype(int)))


def latency_fit(logs: Floats, shape: CurveKnots) -> ProfileFit:
    """The knots that logarithms describe."""
    a, b, c, d, g = np.split(np.exp(logs), np.cumsum(shape.parts)[:-1])
    return ProfileFit(
        tuple(shape.prefill_tokens.tolist()),
        curve_seconds(a[0] + b[0] * shape.prefill_tokens[0], shape.prefill_tokens, b),
        tuple(shape.decode_batch.tolist()),
        curve_seconds(c[0] + d[0], shape.decode_batch, d),
        float(f"{g[0]:.3e}"),
    )


def curve_seconds(first: float, knots: npt.NDArray[np.int64], slopes: Floats) -> tuple[float, ...]:
    """Seconds at the knots, from the first one on with these slopes between them."""
    return tuple(np.cumsum([first, *(np.diff(knots) * slopes)]).round(6).tolist())


def straight_parameters(five: Floats, shape: CurveKnots) -> Floats:
    """The logarithms of an engine whose curves do not bend, of those of a, b, c, d and g."""
    return np.repeat(five, shape.parts)


def roofline_parameters(work: RooflineWork, efficiency: Efficiency, shape: CurveKnots) -> Floats:
    """The logarithms of a, b, c, d and g of straight lines through the ends of the roofline's curves."""
    five = []
    for knots, seconds in (
        (shape.prefill_tokens, roofline_prefill_s(work, shape.prefill_tokens, efficiency)),
        (shape.decode_batch, roofline_decode_s(work, shape.decode_batch, efficiency)),
    ):
        slope = max((seconds[-1] - seconds[0]) / (knots[-1] - knots[0]), 0.01 * seconds[0] / knots[-1])
        five += [max(seconds[0] - slope * knots[0], 0.1 * seconds[0]), slope]
    return np.log([*five, float(roofline_kv_token_s(work, efficiency))])


def mean_log_error(search: FitProblem, fit: ProfileFit, weights: tuple[float, float, float]) -> float:
    """The mean error of the scored requests, in logarithms, none counting for more than WORST."""
    means = [float(np.mean(wrong)) for wrong in request_log_errors(search, fit)]
    return sum(w * mean for w, mean in zip(weights, means, strict=True)) / sum(weights)


def request_log_errors(search: FitProblem, fit: ProfileFit) -> list[Floats]:
    """|log(replayed / measured)| of TTFT, E2E and the time between, each of shape (scored,), up to WORST."""
    ttft_s, e2e_s = (column[search.scored] for column in search.play(fit))
    own_ttft_s, own_e2e_s = search.requests.ttft_s[search.scored], search.requests.e2e_s[search.scored]
    pairs = ((ttft_s, own_ttft_s), (e2e_s, own_e2e_s), (e2e_s - ttft_s, own_e2e_s - own_ttft_s))
    found = []
    for replayed, measured in pairs:
        with np.errstate(invalid="ignore", divide="ignore"):
            wrong = np.abs(np.log(replayed / measured))
        is_none = (replayed == 0) & (measured == 0)  # of one token
        found.append(np.where(is_none, 0.0, np.where(wrong < MAX_LOG_ERROR, wrong, MAX_LOG_ERROR)))
    return found


def fit_straight_curves(search: FitProblem, about: Floats) -> FittedCurves:
    """The best five figures of an engine whose curves do not bend, anywhere about those given."""
    from scipy.optimize import differential_evolution

    def loss(five: Floats) -> float:
        return mean_log_error(
            search, latency_fit(straight_parameters(five, search.shape), search.shape), COARSE
        )

    bounds = [(log - LOG_SEARCH_RADIUS, log + LOG_SEARCH_RADIUS) for log in about]
    best = differential_evolution(
        loss, bounds, popsize=POPULATION, maxiter=GENERATIONS, init="sobol", polish=False, rng=1
    )
    return refine_straight_curves(search, best.x)


def refine_straight_curves(search: FitProblem, five: Floats) -> FittedCurves:
    """The bottom of the valley that these five figures lie in."""
    for spread in SPREADS:
        five = minimise_by_simplex(
            search, five, lambda free: straight_parameters(free, search.shape), spread, SIMPLEX_TRIES
        ).log_parameters
    logs = straight_parameters(five, search.shape)
    return FittedCurves(logs, mean_log_error(search, latency_fit(logs, search.shape), FINE))


def fit_bent_curves(search: FitProblem, begun: FittedCurves) -> FittedCurves:
    """Let the slopes of a straight engine differ, as far as that pays."""
    own = np.split(np.arange(begun.log_parameters.size), np.cumsum(search.shape.parts)[:-1])

    def penalty(logs: Floats) -> float:
        return BEND_PENALTY * float(sum(np.square(np.diff(logs[part])).sum() for part in own))

    found = begun
    for spread in SPREADS[:2]:
        found = minimise_by_simplex(
            search, found.log_parameters, lambda logs: logs, spread, 2 * SIMPLEX_TRIES, penalty
        )
    found = FittedCurves(
        found.log_parameters, mean_log_error(search, latency_fit(found.log_parameters, search.shape), FINE)
    )
    return min(begun, found, key=lambda one: one.error)


def minimise_by_simplex(
    search: FitProblem,
    start: Floats,
    logs_of: Callable[[Floats], Floats],
    spread: float,
    tries: int,
    penalty: Callable[[Floats], float] = lambda logs: 0.0,
) -> FittedCurves:
    """Nelder and Mead's simplex from `start` on; its best figures, in place of all logarithms."""
    from scipy.optimize import minimize

    def loss(free: Floats) -> float:
        logs = logs_of(free)
        return mean_log_error(search, latency_fit(logs, search.shape), FINE) + penalty(logs)

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
