"""Lengths by minute: prompts of a busy minute may be longer than others, or those of any minute.

Within an hour, the loads of minutes and the lengths of prompts become normal scores. The score of a length is

    load x score of its minute's load + own x level of its minute + what is left by chance,

with unit variance; levels are autocorrelated. The load of a minute is the number of requests of the pool of
token pairs. A generated hour keeps the token pairs that were sampled for it. The scores decide which of its
requests has which pair.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.normal_scores import normal_scores
from fleetcast.models.traffic.random_streams import minute_walk
from fleetcast.models.world.traffic_config import TRAFFIC_DAY_MINUTES

MOST_SCORE = 100  # the difference of two scores is smaller
MOST_SHARE = 0.999  # of the variance of the scores that a fit explains
MOST_MEMORY_MINUTES = 30  # levels that last longer are those of hours, which the sampled pairs have


class LengthScores(NamedTuple):
    """How the lengths of a pool depend on their minute; all of shape (pools,)."""

    load: Floats  # correlation with the load of the minute, -1 to 1
    own: Floats  # standard deviation of the levels of minutes, 0 to 1
    memory_minutes: Floats  # correlation time of these levels

    def of(self, pool: Ints) -> "LengthScores":
        """Return the rows of these pools."""
        return LengthScores(*(values[pool] for values in self))


class PoolMinutes(NamedTuple):
    """The minutes in which a pool has requests, by pool and in order of time; all of shape (minutes,)."""

    cell: Ints  # number of the pool and clock hour
    minute: Ints  # of the hour
    requests: Floats
    input_tokens: Floats


def fit_length_scores(
    seen: PoolMinutes, pair_cell: Ints, pair_input: Ints, pool_of_cell: Ints
) -> LengthScores:
    """Fit the length scores of each pool from sums by minute; what may be chance is 0.

    The slope of an hour is in tokens per score of a length. The covariance of tokens with the scores of load,
    over that slope, gives the correlation. The scatter of the means of minutes beyond that of single lengths
    gives the levels. Both are shrunk by their standard errors (James and Stein, positive part), for which
    minutes are independent.

    pair_cell, pair_input : cell and input tokens of each recorded pair, shape (pairs,); every cell has pairs
    pool_of_cell : pool of each cell, shape (cells,)
    """
    cells, cell, requests = pool_of_cell.size, seen.cell, seen.requests
    pairs = np.bincount(pair_cell, minlength=cells)
    mean, square, product = (
        np.bincount(pair_cell, values, cells) / pairs
        for values in (pair_input, pair_input**2.0, pair_input * normal_scores(pair_cell, pair_input))
    )
    slope, variance = product[cell], (square - mean**2)[cell]
    sent, tokens = (np.bincount(cell, values, cells)[cell] for values in (requests, seen.input_tokens))
    score, beyond = normal_scores(cell, requests, requests), seen.input_tokens - requests * tokens / sent
    of, pools = pool_of_cell[cell], int(pool_of_cell.max()) + 1
    load = _shrunk(score * beyond, slope * requests * score**2, of, pools)
    load = np.clip(load, -MOST_SHARE, MOST_SHARE)
    rest = beyond / requests - load[of] * slope * score
    scatter = requests * rest**2 - variance * (1 - requests / sent)
    own = _shrunk(scatter, slope**2 * requests, of, pools)
    later = np.flatnonzero((np.diff(cell, prepend=-1) == 0) & (np.diff(seen.minute, prepend=-2) == 1))
    weight = np.sqrt(requests[later] * requests[later - 1])
    alike = _shrunk(weight * rest[later] * rest[later - 1], weight * slope[later] ** 2, of[later], pools)
    memory = np.divide(alike, own, out=np.zeros(pools), where=own > 0)
    return LengthScores(
        load,
        np.sqrt(np.clip(own, 0.0, MOST_SHARE - load**2)),
        -1 / np.log(np.clip(memory, 1e-9, np.exp(-1 / MOST_MEMORY_MINUTES))),
    )


def _shrunk(part: Floats, whole: Floats, pool: Ints, pools: int) -> Floats:
    """Return sum of `part` over sum of `whole`, shape (pools,), shrunk by the standard error of the first.

    `part`, `whole` and `pool` have the shape (minutes,).
    """
    total, square, full = (np.bincount(pool, values, pools) for values in (part, part**2, whole))
    beyond = np.maximum(1 - square / np.maximum(total**2, 1e-300), 0.0)
    return np.divide(beyond * total, full, out=np.zeros(pools), where=full > 0)


def exchange_pairs(
    rng: np.random.Generator,
    pair: Ints,
    input_tokens: NDArray[np.int32],
    cell: Ints,
    minute: Ints,
    scores: LengthScores,
) -> Ints:
    """Exchange pairs of tokens among the requests of an hour so that lengths follow the minute, (requests,).

    pair : pair of each request, shape (requests,)
    input_tokens : of each pair, shape (pairs,)
    cell, minute : 24 x kind + hour of each request, and its minute of the day, shape (requests,)
    scores : of each kind of client, shape (kinds,)
    """
    # The kinds without scores, mostly small ones, get no room: there may be 20,000 kinds.
    kinds = np.flatnonzero((scores.load != 0) | (scores.own > 0))
    place = np.full(scores.load.size, -1)
    place[kinds] = np.arange(kinds.size)
    chosen = np.flatnonzero(place[cell // 24] >= 0)
    kind, own = place[cell[chosen] // 24], pair[chosen]
    cell, minute = 24 * kind + cell[chosen] % 24, kind * TRAFFIC_DAY_MINUTES + minute[chosen]
    load, own_level, memory_minutes = (values[kinds] for values in scores)
    requests = np.bincount(minute, minlength=kinds.size * TRAFFIC_DAY_MINUTES).astype(float)
    busy = np.flatnonzero(requests)
    mean = minute_walk(rng, own_level, memory_minutes, own_level.shape).T.ravel()
    mean[busy] += load[busy // TRAFFIC_DAY_MINUTES] * normal_scores(
        busy // 60, requests[busy], requests[busy]
    )
    chance = np.sqrt(1 - load**2 - own_level**2)[kind] * rng.standard_normal(chosen.size)
    exchanged = pair.copy()
    by_score = np.argsort(MOST_SCORE * cell + mean[minute] + chance)
    exchanged[chosen[by_score]] = own[np.argsort((cell << 32) + input_tokens[own], kind="stable")]
    return exchanged
