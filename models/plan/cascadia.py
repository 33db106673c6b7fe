"""Cascadia: GPUs for the llms of a cascade by a min-max MILP, thresholds by a search with a penalty.

    l[i,f]       least P95 of llm i on f GPUs, over all replicas that fit (3.2, appendix B)
    deploy       min L   s.t. sum_f x[i,f] = 1,  sum_(i,f) f x[i,f] <= N,  L >= sum_f l[i,f] x[i,f]
    J(theta)     L(theta) + mu max(0, (q - Q(theta)) / (z1 - z2))     z1, z2: quality of the last, the first
    Algorithm 1  deploy the best neighbour of theta by J, repeat until J is stable

The search starts at the point where llm i gets 1/i of the requests, as in the paper. It also starts from the
points where the first and the last llm get all requests, because J has local minima between cascades of two
and of three llms; their qualities are needed anyway. Neighbours are one grid step around, then two, then
three: J is stable after K = 3 rounds. The paper has "= N" in one place and "<= N" in two; here GPUs may stay
idle. L is the largest P95 of a stage, not that of the whole answer. A replay of the plan shows the latter.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.quality_milp import (
    LEAST_LOAD_SHARE,
    QualityDemand,
    QualityOffer,
    replica_capacity_per_s,
)

LATENCY_GRID_POINTS = 400  # latencies at which the capacity of replicas is computed
SEARCH_ROUNDS = 3  # rounds without a better J after which the search ends
QUALITY_PENALTY_S = 100.0  # mu, seconds for the whole difference of quality between first and last llm


class CascadePlan(NamedTuple):
    """A point, GPUs of each llm, and their latency and quality by the tables."""

    point: int
    gpus: Ints  # (M,)
    latency_s: float  # the largest P95 of a stage
    quality: float
    deployments: int  # number of min-max problems solved


class LatencyByGpus(NamedTuple):
    """l[i,f] of every point, and the offer and demand from which it was computed."""

    latency_s: Floats  # (P, M, N+1) inf where f GPUs are too few; 0 where the llm has no load
    offer: QualityOffer
    demand: QualityDemand


def latency_by_gpus(offer: QualityOffer, demand: QualityDemand, gpus: int) -> LatencyByGpus:
    """Return the least P95 of each llm on 0 to `gpus` GPUs of one type, for each point's load and mix."""
    points, llms = offer.shares.shape
    finite = offer.p95_s[np.isfinite(offer.p95_s)]
    grid = np.geomspace(finite.min(), finite.max(), LATENCY_GRID_POINTS)
    table = np.zeros((points, llms, gpus + 1))
    for point in range(points):
        carry = np.array([replica_capacity_per_s(offer, point, np.full(llms, within)) for within in grid]).T
        for llm in range(llms):
            load = demand.requests_per_s * offer.shares[point, llm]
            if offer.shares[point, llm] > LEAST_LOAD_SHARE:
                shapes = offer.llm == llm
                is_enough = best_load_by_gpus(carry[shapes], offer.gpus[shapes], gpus) >= load
                table[point, llm] = np.where(is_enough.any(axis=1), grid[is_enough.argmax(axis=1)], np.inf)
    return LatencyByGpus(table, offer, demand)


def best_load_by_gpus(carry: Floats, gpus: Ints, most: int) -> Floats:
    """Return the requests/s of the best replicas on 0 to `most` GPUs, shape (most+1, L).

    Parameters
    ----------
    carry : shape (S, L), requests/s of one replica of each shape within each latency
    gpus : shape (S,), GPUs of one replica
    """
    best = np.zeros((most + 1, carry.shape[1]))
    for f in range(1, most + 1):
        best[f] = best[f - 1]
        for size, replica_per_s in zip(gpus, carry, strict=True):
            if size <= f:
                np.maximum(best[f], best[f - size] + replica_per_s, out=best[f])
    return best


def replicas_by_shape(tables: LatencyByGpus, point: int, llm: int, gpus: int) -> Ints:
    """Return the replicas of each shape, (S,), that reach the llm's latency in the table on its GPUs."""
    offer, replicas = tables.offer, np.zeros(tables.offer.llm.size, np.int64)
    latency_s = tables.latency_s[point, llm, gpus]
    if not 0 < latency_s < np.inf:
        return replicas
    shapes = np.flatnonzero(offer.llm == llm)
    carry = replica_capacity_per_s(offer, point, np.full(offer.shares.shape[1], latency_s))[shapes, None]
    sizes, carried, left = offer.gpus[shapes].tolist(), carry[:, 0].tolist(), gpus
    best = best_load_by_gpus(carry, offer.gpus[shapes], gpus)[:, 0].tolist()
    while left > 0:
        if best[left] == best[left - 1]:
            left -= 1
            continue
        reached = [
            best[left - size] + one if size <= left else -1.0
            for size, one in zip(sizes, carried, strict=True)
        ]
        chosen = reached.index(max(reached))
        replicas[shapes[chosen]] += 1
        left -= sizes[chosen]
    return replicas


def allocate_min_max(table: Floats, gpus: int) -> tuple[Ints, float]:
    """Return the GPUs of each llm, (M,), that minimise the largest latency, and this latency in seconds.

    `table` (M, N+1) is the latency on 0 to N GPUs. The search is a bisection over its values. The latency is
    inf where the GPUs are too few for all llms.
    """
    levels = np.unique(table[np.isfinite(table)])
    low, high = -1, levels.size
    while high - low > 1:
        middle = (low + high) // 2
        if fewest_gpus(table, levels[middle]).sum() <= gpus:
            high = middle
        else:
            low = middle
    if high == levels.size:
        return np.zeros(len(table), np.int64), np.inf
    return fewest_gpus(table, levels[high]), float(levels[high])


def fewest_gpus(table: Floats, latency_s: float) -> Ints:
    """Return the fewest GPUs of each llm that keep a latency, (M,); `table` (M, N+1).

    Where no number of GPUs keeps it, the result exceeds every number of GPUs in the table.
    """
    is_kept = table <= latency_s
    return np.where(is_kept.any(axis=1), is_kept.argmax(axis=1), table.shape[1] * len(table)).astype(np.int64)


class CascadeSearch:
    """Deployments of the points, each solved once, and their score J."""

    def __init__(self, tables: LatencyByGpus, gpus: int) -> None:
        self.tables, self.offer, self.gpus = tables, tables.offer, gpus
        self.known: dict[int, tuple[Ints, float]] = {}
        self.ends = quality_range(self.offer)

    def deployed(self, point: int) -> tuple[Ints, float]:
        """Return the GPUs of each llm, (M,), and the latency in seconds."""
        if point not in self.known:
            self.known[point] = allocate_min_max(self.tables.latency_s[point], self.gpus)
        return self.known[point]

    def score(self, point: int, quality: float) -> float:
        """Return J of a point in seconds for a required quality."""
        best, worst = self.ends
        shortfall = max(0.0, (quality - float(self.offer.quality[point])) / (best - worst))
        return self.deployed(point)[1] + QUALITY_PENALTY_S * shortfall

    def plan(self, point: int) -> CascadePlan:
        """Return the plan of a point."""
        gpus, latency_s = self.deployed(point)
        return CascadePlan(point, gpus, latency_s, float(self.offer.quality[point]), len(self.known))


def quality_range(offer: QualityOffer) -> tuple[float, float]:
    """Return the quality of the points with the most and with the least load on the last llm."""
    last = offer.shares[:, -1]
    return float(offer.quality[last.argmax()]), float(offer.quality[last.argmin()])


def search_cascade(search: CascadeSearch, quality: float) -> CascadePlan:
    """Return the plan of the least J for a quality, by the bi-level search."""

    def score(point: int) -> float:
        return search.score(point, quality)

    starts = start_points(search.offer)
    return search.plan(
        min((descend_to_best_point(search.offer, start, score) for start in starts), key=score)
    )


def start_points(offer: QualityOffer) -> tuple[int, int, int]:
    """Return where a search starts: the paper's point (3.3), all load on the last llm, all on the first."""
    shares = offer.shares
    proportional = np.abs(shares - 1 / np.arange(1, shares.shape[1] + 1)).sum(axis=1).argmin()
    return int(proportional), int(shares[:, -1].argmax()), int(shares[:, 1:].sum(axis=1).argmin())


def descend_to_best_point(offer: QualityOffer, here: int, score: Callable[[int], float]) -> int:
    """Return the point reached from `here` that no neighbour within SEARCH_ROUNDS grid steps improves."""
    level = np.column_stack([np.unique(column, return_inverse=True)[1] for column in offer.thresholds.T])
    radius = 1
    while radius <= SEARCH_ROUNDS:
        around = np.flatnonzero(np.abs(level - level[here]).max(axis=1) <= radius)
        best = min(around.tolist(), key=score)
        if score(best) < score(here):
            here, radius = best, 1
        else:
            radius += 1
    return here
