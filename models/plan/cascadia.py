"""Cascadia: GPUs for the llms of a cascade by a min-max programme, thresholds by a search with a penalty.

    l[i,f]      least P95 of llm i on f GPUs, over all replicas that fit there (3.2, appendix B)
    deploy      min L   s.t. sum_f x[i,f] = 1,  sum_(i,f) f x[i,f] <= N,  L >= sum_f l[i,f] x[i,f]
    J(theta)    L(theta) + mu max(0, (q - Q(theta)) / (z1 - z2))     z1, z2: quality of the last, the first
    llm Algorithm 1 the best neighbour of theta by J, deployed, and again until J is stable

It begins where llm i gets 1/i of the requests, as the text has it, and also from all to the first and all to
the last llm, whose qualities it needs anyway: between a cascade of two llms and one of three lies a hill.
Neighbours are looked for one grid step around, then two, then three: stable for K = 3 rounds. The text has "=
N" in one place and "<= N" in two: GPUs may stay idle here. L is the largest P95 of a stage, not of the whole
answer; who replays a plan sees the latter.
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

LATENCY_GRID_POINTS = 400  # latencies at which what replicas carry is told
SEARCH_ROUNDS = 3  # without a better J, after which the search ends
QUALITY_PENALTY_S = 100.0  # mu, seconds for missing all quality between the first and the last llm


class CascadePlan(NamedTuple):
    """A point, GPUs of each llm, and what it promises."""

    point: int
    gpus: Ints  # (M,)
    latency_s: float  # the largest P95 of a stage
    quality: float
    deployments: int  # programmes that were solved


class LatencyByGpus(NamedTuple):
    """l[i,f] of every point, and the replicas behind it."""

    latency_s: Floats  # (P, M, N+1) inf where f GPUs do not do; 0 where the llm has no load
    offer: QualityOffer
    demand: QualityDemand


def latency_by_gpus(offer: QualityOffer, demand: QualityDemand, gpus: int) -> LatencyByGpus:
    """Least P95 of each llm on up to so many GPUs of one type, for the load and the mix of each point."""
    points, llms = offer.shares.shape
    finite = offer.p95_s[np.isfinite(offer.p95_s)]
    grid = np.geomspace(finite.min(), finite.max(), LATENCY_GRID_POINTS)
    table = np.zeros((points, llms, gpus + 1))
    for point in range(points):
        carry = np.array([replica_capacity_per_s(offer, point, np.full(llms, within)) for within in grid]).T
        for llm in range(llms):
            load = demand.requests_per_s * offer.shares[point, llm]
            if offer.shares[point, llm] > LEAST_LOAD_SHARE:
                own = offer.llm == llm
                most = best_load_by_gpus(carry[own], offer.gpus[own], gpus)
                enough = most >= load
                table[point, llm] = np.where(enough.any(axis=1), grid[enough.argmax(axis=1)], np.inf)
    return LatencyByGpus(table, offer, demand)


def best_load_by_gpus(carry: Floats, gpus: Ints, most: int) -> Floats:
    """What the best replicas carry on up to so many GPUs, shape (most+1, L); carry of shape (S, L)."""
    best = np.zeros((most + 1, carry.shape[1]))
    for f in range(1, most + 1):
        best[f] = best[f - 1]
        for size, own in zip(gpus, carry, strict=True):
            if size <= f:
                np.maximum(best[f], best[f - size] + own, out=best[f])
    return best


def replicas_by_shape(tables: LatencyByGpus, point: int, llm: int, gpus: int) -> Ints:
    """Replicas of each shape, (S,), with which llm keeps its latency on so many GPUs."""
    offer, found = tables.offer, np.zeros(tables.offer.llm.size, np.int64)
    latency_s = tables.latency_s[point, llm, gpus]
    if not 0 < latency_s < np.inf:
        return found
    own = np.flatnonzero(offer.llm == llm)
    carry = replica_capacity_per_s(offer, point, np.full(offer.shares.shape[1], latency_s))[own, None]
    best, left = best_load_by_gpus(carry, offer.gpus[own], gpus)[:, 0], gpus
    while left > 0:
        if best[left] == best[left - 1]:
            left -= 1
            continue
        reached = [
            best[left - offer.gpus[s]] + carry[n, 0] if offer.gpus[s] <= left else -1.0
            for n, s in enumerate(own)
        ]
        chosen = own[int(np.argmax(reached))]
        found[chosen] += 1
        left -= int(offer.gpus[chosen])
    return found


def allocate_min_max(table: Floats, gpus: int) -> tuple[Ints, float]:
    """The allocation with the least largest latency, by bisection; table (M, N+1).

    The latency is inf where the GPUs do not do for all.
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
    """The fewest GPUs of each llm that keep a latency; more than there are where none do."""
    kept = table <= latency_s
    return np.where(kept.any(axis=1), kept.argmax(axis=1), table.shape[1] * len(table)).astype(np.int64)


class CascadeSearch:
    """Deployments of the points, each solved once, and what the paper's score says of them."""

    def __init__(self, tables: LatencyByGpus, gpus: int) -> None:
        self.tables, self.offer, self.gpus = tables, tables.offer, gpus
        self.known: dict[int, tuple[Ints, float]] = {}
        self.ends = quality_range(self.offer)

    def deployed(self, point: int) -> tuple[Ints, float]:
        """The GPUs of each llm and the latency."""
        if point not in self.known:
            self.known[point] = allocate_min_max(self.tables.latency_s[point], self.gpus)
        return self.known[point]

    def score(self, point: int, quality: float) -> float:
        """J, with the least latency under a quality that is asked for."""
        best, worst = self.ends
        short = max(0.0, (quality - float(self.offer.quality[point])) / (best - worst))
        return self.deployed(point)[1] + QUALITY_PENALTY_S * short

    def plan(self, point: int) -> CascadePlan:
        """What is known of a point."""
        gpus, latency_s = self.deployed(point)
        return CascadePlan(point, gpus, latency_s, float(self.offer.quality[point]), len(self.known))


def quality_range(offer: QualityOffer) -> tuple[float, float]:
    """The quality of the points with the most and the least load on the last llm."""
    last = offer.shares[:, -1]
    return float(offer.quality[last.argmax()]), float(offer.quality[last.argmin()])


def search_cascade(search: CascadeSearch, quality: float) -> CascadePlan:
    """The bi-level search: the least latency for a quality."""

    def score(point: int) -> float:
        return search.score(point, quality)

    shares = search.offer.shares
    proportional = np.abs(shares - 1 / np.arange(1, shares.shape[1] + 1)).sum(axis=1).argmin()
    starts = (int(proportional), int(shares[:, -1].argmax()), int(shares[:, 1:].sum(axis=1).argmin()))
    return search.plan(
        min((descend_to_best_point(search.offer, start, score) for start in starts), key=score)
    )


def descend_to_best_point(offer: QualityOffer, here: int, score: Callable[[int], float]) -> int:
    """The point from which no neighbour is better, up to ROUNDS grid steps around."""
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
