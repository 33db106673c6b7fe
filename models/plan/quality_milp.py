"""Model routing and GPUs together: optimal plans from tables of the capacity of a replica.

Symbols: p routing points (thresholds), m llms, s shapes (a replica of llm m(s) on GPU type k(s)).

    Q[p] quality    r[p,m] share of the requests that reaches llm m    R requests/s
    carry[p,s](L)   requests/s of point p's mix that a replica serves with a P95 of L or less

    min  sum_s usd[s] n[s] + judging
    s.t. sum_(s of m) carry[p,s](L_m) n[s] >= R r[p,m]      for every llm m              (cover)
         sum_s gpus[s] [k(s) = k] n[s] <= cap[k]            for every GPU type k         (gpus)
         sum_s usd[s] n[s] + judging <= budget              n integer                    (budget)

Capacities add: replicas meet L together if and only if their carry covers the load, each with its part of it.
So the split of the load over replicas needs no search. With a router, L_m = L for all llms: the P95 of all
requests is at most the largest P95 of an llm. In a cascade the legs (stages of a request) follow each other:
sum_m L_m + judging <= L; several splits of L are compared. A judge that is one of the fleet's llms adds a leg
after every answer that it scores, and is covered like the other llms.

models/plan/quality_objectives.py searches over the points.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints

LEAST_LOAD_SHARE = 1e-4  # of the requests; an llm with a smaller share is not deployed
JUDGE_PARTS = (1 / 64, 1 / 24, 1 / 10)  # parts of the latency for a leg of a judge of the fleet
SPLIT_STEPS = 8  # steps in which the latency is split over the legs of a cascade


class QualityOffer(NamedTuple):
    """Options of a plan: P points of M llms, S shapes, X mixes of each llm, K loads of each curve.

    With a judge of the fleet, the judge is the first llm: `shares` and `mix` are then of shape (P, 1+M).
    """

    rule: str  # cascade or route
    thresholds: Floats  # (P, M-1)
    quality: Floats  # (P,)
    error: Floats  # (P,) standard error of the quality
    shares: Floats  # (P, M) legs of each llm per request, shadow requests included
    mix: Floats  # (P, M) position of the point's mix between the measured mixes; 1.25 is near mix 1
    llm: Ints  # (S,) index of a shape's llm
    gpu: Ints  # (S,) index of its GPU type
    gpus: Ints  # (S,) of a replica
    usd_per_hour: Floats  # (S,) of a replica
    load_per_s: Floats  # (S, X, K) requests/s of a replica, rising
    p95_s: Floats  # (S, X, K) P95 latency at these loads, rising
    judged: Floats  # (P,) judged answers, or routed requests, per request
    judge_s: float  # seconds between two legs for an external judge
    judge_usd_per_1000: float = 0.0  # USD per 1,000 answers that an external judge scores

    @property
    def judges(self) -> int:
        """Number of judges among the llms, 0 or 1."""
        return self.shares.shape[1] - self.thresholds.shape[1] - 1

    def judging_usd(self, point: int, requests_per_s: float) -> float:
        """Return USD per hour of an external judge."""
        return float(self.judged[point] * requests_per_s * 3.6 * self.judge_usd_per_1000)

    def only(
        self, points: NDArray[np.bool_] | None = None, shapes: NDArray[np.bool_] | None = None
    ) -> "QualityOffer":
        """Return the offer with only some points (P,) or some shapes (S,)."""
        kept = self
        if points is not None:
            point_fields = ("thresholds", "quality", "error", "shares", "mix", "judged")
            kept = kept._replace(**{name: getattr(kept, name)[points] for name in point_fields})
        if shapes is not None:
            shape_fields = ("llm", "gpu", "gpus", "usd_per_hour", "load_per_s", "p95_s")
            kept = kept._replace(**{name: getattr(kept, name)[shapes] for name in shape_fields})
        return kept


class QualityDemand(NamedTuple):
    """Load of a plan, available GPUs and budget."""

    requests_per_s: float
    cap_gpus: Ints  # (G,) by GPU type
    budget_usd_per_hour: float = np.inf


class PointPlan(NamedTuple):
    """A plan: a routing point, replicas of each shape, and the latency by the tables."""

    point: int
    instances: Ints  # (S,)
    usd_per_hour: float
    latency_s: float  # upper limit of the P95
    within_s: Floats  # (M,) P95 target of each llm


def replica_capacity_per_s(offer: QualityOffer, point: int, within_s: Floats) -> Floats:
    """Return requests/s that a replica of each shape serves within its llm's P95, shape (S,).

    `within_s` (M,) is the P95 target of each llm. A mix between two measured ones counts as the longer one.
    """
    mix = np.ceil(offer.mix[point, offer.llm]).astype(int)
    shapes, within = np.arange(mix.size), within_s[offer.llm]
    curves = zip(within, offer.p95_s[shapes, mix], offer.load_per_s[shapes, mix], strict=True)
    return np.array([np.interp(t, p95_s, load_per_s, left=0.0) for t, p95_s, load_per_s in curves])


def table_end_loads(offer: QualityOffer, point: int) -> Floats:
    """Return the largest requests/s in the table of each shape, (S,): above it is too near to saturation."""
    mix = np.ceil(offer.mix[point, offer.llm]).astype(int)
    return np.asarray(offer.load_per_s[np.arange(mix.size), mix, -1])


def replica_loads(offer: QualityOffer, demand: QualityDemand, plan: PointPlan) -> Floats:
    """Return requests/s of a replica of each shape, (S,), where load is distributed by capacity."""
    carry = replica_capacity_per_s(offer, plan.point, plan.within_s)
    weight = np.bincount(offer.llm, plan.instances * carry, offer.shares.shape[1])[offer.llm]
    load = demand.requests_per_s * offer.shares[plan.point, offer.llm]
    return np.divide(load * carry * (plan.instances > 0), weight, out=np.zeros_like(carry), where=weight > 0)


def latency_splits(offer: QualityOffer, point: int, latency_s: float) -> Iterator[Floats]:
    """Yield P95 targets of the llms in seconds, each of shape (M,), that keep the latency together."""
    first, all_s = offer.judges, np.full(offer.shares.shape[1], latency_s)
    legs = int((offer.shares[point, first:] > LEAST_LOAD_SHARE).sum())
    if offer.rule == "route":
        yield all_s
        return
    for part in JUDGE_PARTS if first and legs > 1 else (0.0,):
        judge_s = part * latency_s if first else offer.judge_s
        left_s = latency_s - judge_s * (legs - 1)
        for parts in compositions(SPLIT_STEPS, legs):
            within = all_s.copy()
            within[:first] = judge_s if legs > 1 else latency_s
            within[first : first + legs] = left_s * np.array(parts) / SPLIT_STEPS
            yield within


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to write a total as a sum of `parts` whole numbers, each 1 or more."""
    if parts == 1:
        yield (total,)
        return
    for first in range(1, total - parts + 2):
        for rest in compositions(total - first, parts - 1):
            yield (first, *rest)


def cheapest_point_plan(
    offer: QualityOffer, demand: QualityDemand, point: int, latency_s: float
) -> PointPlan | None:
    """Return the cheapest plan of a point within a latency; None where there is none."""
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
    """Return the cheapest replicas, (S,), that serve a point's load for at most `most_usd` per hour, or None.

    `carry` (S,) is requests/s of a replica.
    """
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
    """Return the cheapest whole numbers n, shape (S,): min usd n with 0 <= n <= most; None without any.

    Parameters
    ----------
    usd, most : shape (S,)
    cover : A of shape (llms, S) and b of shape (llms,): A n >= b
    limits : for each (A, b): A n <= b
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    constraints = [LinearConstraint(cover[0], lb=cover[1])]
    constraints += [LinearConstraint(rows, ub=bound) for rows, bound in limits]
    found = milp(usd, integrality=np.ones(usd.size), bounds=Bounds(0, most), constraints=constraints)
    return None if found.x is None else np.round(found.x).astype(np.int64)
