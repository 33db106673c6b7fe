"""Which llm answers what on which GPUs: exact plans over tables of what a replica carries.

Symbols: p routing points (thresholds), m llms, s shapes (a replica of llm m(s) on GPU type k(s)).

    Q[p] quality    r[p,m] share of the requests that reaches llm m    R requests/s
    carry[p,s](L)   requests/s of point p's mix that a replica carries with a P95 of L or less

    min  sum_s usd[s] n[s] + judging
    s.t. sum_(s of m) carry[p,s](L_m) n[s] >= R r[p,m]      for every llm m              (cover)
         sum_s gpus[s] [k(s) = k] n[s] <= cap[k]            for every GPU type k         (gpus)
         sum_s usd[s] n[s] + judging <= budget              n integer                    (budget)

Capacities add: replicas meet L together iff what they carry covers the load, each with its own part of it. So
no split of the load needs a search. Where a router chooses, L_m = L for all: the P95 of all requests is at
most the largest of the llms'. In a cascade the legs follow each other: sum_m L_m + judging <= L, in several
splits. A judge that is an llm of ours has a leg behind every answer that it judges, and is covered like the
others.

What is asked of them all together: quality_modes.py.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints

LEAST_LOAD_SHARE = 1e-4  # of the requests: an llm that gets less of them is not deployed
JUDGE_PARTS = (1 / 64, 1 / 24, 1 / 10)  # of the latency, that a leg of a judge of ours may take
SPLIT_STEPS = 8  # of the latency, in which it is split over the legs of a cascade


class QualityOffer(NamedTuple):
    """What there is to choose from: P points of M llms, S shapes, X mixes of each llm, K loads of a curve."""

    rule: str  # cascade or route
    thresholds: Floats  # (P, M-1)
    quality: Floats  # (P,)
    error: Floats  # (P,) standard error of the quality
    shares: (
        Floats  # (P, M) legs of each llm by request, shadows included; (P, 1+M) with a judge of ours first
    )
    mix: Floats  # likewise, place of the point's mix between those that were measured: 1.25 is near mix 1
    llm: Ints  # (S,) of a shape
    gpu: Ints  # (S,)
    gpus: Ints  # (S,) of a replica
    usd_per_hour: Floats  # (S,) of a replica
    load_per_s: Floats  # (S, X, K) of a replica, rising
    p95_s: Floats  # (S, X, K) at these loads, rising
    judged: Floats  # (P,) answers that are judged, or requests that are routed, by request
    judge_s: float  # between two legs, of a judge outside
    judge_usd_per_1000: float = 0.0  # of them

    @property
    def judges(self) -> int:
        """How many of the llms judge, 0 or 1: it stands first."""
        return self.shares.shape[1] - self.thresholds.shape[1] - 1

    def judging_usd(self, point: int, requests_per_s: float) -> float:
        """USD per hour for a judge outside."""
        return float(self.judged[point] * requests_per_s * 3.6 * self.judge_usd_per_1000)

    def only(
        self, points: NDArray[np.bool_] | None = None, shapes: NDArray[np.bool_] | None = None
    ) -> "QualityOffer":
        """With some of the points or shapes."""
        kept = self
        if points is not None:
            of_points = ("thresholds", "quality", "error", "shares", "mix", "judged")
            kept = kept._replace(**{name: getattr(kept, name)[points] for name in of_points})
        if shapes is not None:
            of_shapes = ("llm", "gpu", "gpus", "usd_per_hour", "load_per_s", "p95_s")
            kept = kept._replace(**{name: getattr(kept, name)[shapes] for name in of_shapes})
        return kept


class QualityDemand(NamedTuple):
    """How much comes, and what may be spent on it."""

    requests_per_s: float
    cap_gpus: Ints  # (G,) by GPU type
    budget_usd_per_hour: float = np.inf


class PointPlan(NamedTuple):
    """A plan: a point, replicas of each shape, and what the tables promise."""

    point: int
    instances: Ints  # (S,)
    usd_per_hour: float
    latency_s: float  # promised: the P95 is no more
    within_s: Floats  # (M,) P95 of each llm that it was planned for


def replica_capacity_per_s(offer: QualityOffer, point: int, within_s: Floats) -> Floats:
    """Requests/s that a replica of each shape carries within its llm's P95, shape (S,).

    A point whose mix lies between two that were measured counts as the longer one.
    """
    mix = np.ceil(offer.mix[point, offer.llm]).astype(int)
    shapes, within = np.arange(mix.size), within_s[offer.llm]
    curves = zip(within, offer.p95_s[shapes, mix], offer.load_per_s[shapes, mix], strict=True)
    return np.array([np.interp(t, p95_s, load_per_s, left=0.0) for t, p95_s, load_per_s in curves])


def table_end_loads(offer: QualityOffer, point: int) -> Floats:
    """Requests/s of a replica of each shape, (S,), above which its table ends: too near to saturation."""
    mix = np.ceil(offer.mix[point, offer.llm]).astype(int)
    return np.asarray(offer.load_per_s[np.arange(mix.size), mix, -1])


def replica_loads(offer: QualityOffer, demand: QualityDemand, plan: "PointPlan") -> Floats:
    """Requests/s that a replica of each shape gets, (S,), where load is dealt by what they carry."""
    carry = replica_capacity_per_s(offer, plan.point, plan.within_s)
    weight = np.bincount(offer.llm, plan.instances * carry, offer.shares.shape[1])[offer.llm]
    load = demand.requests_per_s * offer.shares[plan.point, offer.llm]
    return np.divide(load * carry * (plan.instances > 0), weight, out=np.zeros_like(carry), where=weight > 0)


def latency_splits(offer: QualityOffer, point: int, latency_s: float) -> Iterator[Floats]:
    """P95s of the llms, shape (M,), that keep a latency together."""
    first, whole = offer.judges, np.full(offer.shares.shape[1], latency_s)
    legs = int((offer.shares[point, first:] > LEAST_LOAD_SHARE).sum())
    if offer.rule == "route":
        yield whole
        return
    for part in JUDGE_PARTS if first and legs > 1 else (0.0,):
        judge_s = part * latency_s if first else offer.judge_s
        left_s = latency_s - judge_s * (legs - 1)
        for parts in compositions(SPLIT_STEPS, legs):
            within = whole.copy()
            within[:first] = judge_s if legs > 1 else latency_s
            within[first : first + legs] = left_s * np.array(parts) / SPLIT_STEPS
            yield within


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a whole number as a sum of so many, each 1 or more."""
    if parts == 1:
        yield (total,)
        return
    for first in range(1, total - parts + 2):
        for rest in compositions(total - first, parts - 1):
            yield (first, *rest)


def cheapest_point_plan(
    offer: QualityOffer, demand: QualityDemand, point: int, latency_s: float
) -> PointPlan | None:
    """The least cost of a point within a latency; None where no plan keeps it."""
    best: PointPlan | None = None
    judging_usd = offer.judging_usd(point, demand.requests_per_s)
    for within_s in latency_splits(offer, point, latency_s):
        most_usd = demand.budget_usd_per_hour if best is None else best.usd_per_hour * (1 - 1e-6)
        carry = replica_capacity_per_s(offer, point, within_s)
        instances = covering_replicas(offer, demand, carry, point, most_usd - judging_usd)
        if instances is not None:
            usd = float(instances @ offer.usd_per_hour) + judging_usd
            best = PointPlan(point, instances, usd, latency_s, within_s)
    return best


def covering_replicas(
    offer: QualityOffer, demand: QualityDemand, carry: Floats, point: int, most_usd: float
) -> Ints | None:
    """The cheapest replicas, (S,), that carry a point's load for no more than so much; None without any."""
    if most_usd < 0:
        return None
    load = demand.requests_per_s * offer.shares[point]
    load = np.where(offer.shares[point] > LEAST_LOAD_SHARE, load, 0.0)
    is_of = offer.llm == np.arange(load.size)[:, None]
    if ((is_of * carry).max(axis=1) < 1e-9)[load > 0].any():
        return None
    return solve_covering(
        offer.usd_per_hour,
        cover=(is_of * carry, load),
        limits=[
            (offer.gpus * (offer.gpu == np.arange(demand.cap_gpus.size)[:, None]), demand.cap_gpus),
            *([] if np.isinf(most_usd) else [(offer.usd_per_hour[None], np.array([most_usd]))]),
        ],
        most=np.where(carry > 0, np.ceil(load[offer.llm] / np.maximum(carry, 1e-9)), 0),
    )


def solve_covering(
    usd: Floats, cover: tuple[Floats, Floats], limits: list[tuple[Any, Any]], most: Floats
) -> Ints | None:
    """The cheapest whole numbers up to `most` that cover and keep the limits; None where there are none."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    lines = [LinearConstraint(cover[0], lb=cover[1])]
    lines += [LinearConstraint(rows, ub=bound) for rows, bound in limits]
    found = milp(usd, integrality=np.ones(usd.size), bounds=Bounds(0, most), constraints=lines)
    return None if found.x is None else np.round(found.x).astype(np.int64)
