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
from fleetcast.models.latency.roofline import Work, decode_s, kv_token_s, prefill_s
from fleetcast.models.latency.tables import Fit
from fleetcast.models.world.entries import Efficiency

KNOTS = 4  # of each curve, where its slope may change
REACH = 2.0  # of the population from the roofline's figures, in logarithms: a seventh to seven times
POPULATION, GENERATIONS = 12, 60  # of the search, the first a figure
TRIES = 400  # replays of a simplex; twice that where the curves may bend
SPREADS = (0.3, 0.1, 0.03)  # of a simplex after the other, in logarithms
WORST = 1.0  # an error of a request counts at most so much, in logarithms
BENDING = 1e-3  # what a change of slope must earn
COARSE, FINE = (0.0, 1.0, 1.0), (1.0, 2.0, 1.0)  # weights of the errors of TTFT, E2E, and the time between


class Requests(NamedTuple):
    """Requests that an engine has served, by arrival; each column of shape (requests,)."""

    arrival_s: Floats  # on any clock
    input_tokens: npt.NDArray[np.int32]
    output_tokens: npt.NDArray[np.int32]
    ttft_s: Floats
    e2e_s: Floats


class Shape(NamedTuple):
    """Where the knots of an engine's curves lie."""

    prefill_tokens: npt.NDArray[np.int64]
    decode_batch: npt.NDArray[np.int64]

    @property
    def parts(self) -> list[int]:
        """How many logarithms describe a, the slopes b, c, the slopes d, and g."""
        return [1, self.prefill_tokens.size - 1, 1, self.decode_batch.size - 1, 1]


class Found(NamedTuple):
    """An engine's curves, and how far its replay is off."""

    logs: Floats  # of a, the slopes b, c, the slopes d, and g
    error: float


class Search(NamedTuple):
    """What is looked for: the curves with which `play` gives what the scored requests met."""

    play: Callable[[Fit], tuple[Floats, Floats]]  # TTFT and E2E of the requests; NaN for what never ends
    requests: Requests
    scored: npt.NDArray[np.bool_]
    shape: Shape


def shape_of(requests: Requests, max_batch: int, max_prefill_tokens: int) -> Shape:
    """Knots over the passes and the batches that the engine can have made."""
    shortest = int(requests.input_tokens.min())
    longest = max(min(int(requests.input_tokens.sum()), max_prefill_tokens), 2 * shortest)
    tokens = np.unique(np.geomspace(shortest, longest, KNOTS).astype(int))
    return Shape(tokens, np.unique(np.geomspace(1, max(2, max_batch), KNOTS).astype(int)))


def fit_of(logs: Floats, shape: Shape) -> Fit:
    """The knots that logarithms describe."""
    a, b, c, d, g = np.split(np.exp(logs), np.cumsum(shape.parts)[:-1])
    return Fit(
        tuple(shape.prefill_tokens.tolist()),
        risen(a[0] + b[0] * shape.prefill_tokens[0], shape.prefill_tokens, b),
        tuple(shape.decode_batch.tolist()),
        risen(c[0] + d[0], shape.decode_batch, d),
        float(f"{g[0]:.3e}"),
    )


def risen(first: float, knots: npt.NDArray[np.int64], slopes: Floats) -> tuple[float, ...]:
    """Seconds at the knots, from the first one on with these slopes between them."""
    return tuple(np.cumsum([first, *(np.diff(knots) * slopes)]).round(6).tolist())


def straight(five: Floats, shape: Shape) -> Floats:
    """The logarithms of an engine whose curves do not bend, of those of a, b, c, d and g."""
    return np.repeat(five, shape.parts)


def roofline_five(work: Work, efficiency: Efficiency, shape: Shape) -> Floats:
    """The logarithms of a, b, c, d and g of straight lines through the ends of the roofline's curves."""
    five = []
    for knots, seconds in (
        (shape.prefill_tokens, prefill_s(work, shape.prefill_tokens, efficiency)),
        (shape.decode_batch, decode_s(work, shape.decode_batch, efficiency)),
    ):
        slope = max((seconds[-1] - seconds[0]) / (knots[-1] - knots[0]), 0.01 * seconds[0] / knots[-1])
        five += [max(seconds[0] - slope * knots[0], 0.1 * seconds[0]), slope]
    return np.log([*five, float(kv_token_s(work, efficiency))])


def error(search: Search, fit: Fit, weights: tuple[float, float, float]) -> float:
    """The mean error of the scored requests, in logarithms, none counting for more than WORST."""
    means = [float(np.mean(wrong)) for wrong in errors(search, fit)]
    return sum(w * mean for w, mean in zip(weights, means, strict=True)) / sum(weights)


def errors(search: Search, fit: Fit) -> list[Floats]:
    """|log(replayed / measured)| of TTFT, E2E and the time between, each of shape (scored,), up to WORST."""
    ttft_s, e2e_s = (column[search.scored] for column in search.play(fit))
    own_ttft_s, own_e2e_s = search.requests.ttft_s[search.scored], search.requests.e2e_s[search.scored]
    pairs = ((ttft_s, own_ttft_s), (e2e_s, own_e2e_s), (e2e_s - ttft_s, own_e2e_s - own_ttft_s))
    found = []
    for replayed, measured in pairs:
        with np.errstate(invalid="ignore", divide="ignore"):
            wrong = np.abs(np.log(replayed / measured))
        is_none = (replayed == 0) & (measured == 0)  # of one token
        found.append(np.where(is_none, 0.0, np.where(wrong < WORST, wrong, WORST)))
    return found


def explore(search: Search, about: Floats) -> Found:
    """The best five figures of an engine whose curves do not bend, anywhere about those given."""
    from scipy.optimize import differential_evolution

    def loss(five: Floats) -> float:
        return error(search, fit_of(straight(five, search.shape), search.shape), COARSE)

    bounds = [(log - REACH, log + REACH) for log in about]
    best = differential_evolution(
        loss, bounds, popsize=POPULATION, maxiter=GENERATIONS, init="sobol", polish=False, rng=1
    )
    return settle_down(search, best.x)


def settle_down(search: Search, five: Floats) -> Found:
    """The bottom of the valley that these five figures lie in."""
    for spread in SPREADS:
        five = simplex(search, five, lambda free: straight(free, search.shape), spread, TRIES).logs
    logs = straight(five, search.shape)
    return Found(logs, error(search, fit_of(logs, search.shape), FINE))


def bend(search: Search, begun: Found) -> Found:
    """Let the slopes of a straight engine differ, as far as that pays."""
    own = np.split(np.arange(begun.logs.size), np.cumsum(search.shape.parts)[:-1])

    def penalty(logs: Floats) -> float:
        return BENDING * float(sum(np.square(np.diff(logs[part])).sum() for part in own))

    found = begun
    for spread in SPREADS[:2]:
        found = simplex(search, found.logs, lambda logs: logs, spread, 2 * TRIES, penalty)
    found = Found(found.logs, error(search, fit_of(found.logs, search.shape), FINE))
    return min(begun, found, key=lambda one: one.error)


def simplex(
    search: Search,
    start: Floats,
    logs_of: Callable[[Floats], Floats],
    spread: float,
    tries: int,
    penalty: Callable[[Floats], float] = lambda logs: 0.0,
) -> Found:
    """Nelder and Mead's simplex from `start` on; its best figures, in place of all logarithms."""
    from scipy.optimize import minimize

    def loss(free: Floats) -> float:
        logs = logs_of(free)
        return error(search, fit_of(logs, search.shape), FINE) + penalty(logs)

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
    return Found(best.x, float(best.fun))
