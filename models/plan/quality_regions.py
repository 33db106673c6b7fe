"""Model routing and GPUs over regions: replicas by region, points mixed over time, one mean quality.

Symbols as in models/plan/quality_milp.py, and j regions; y[j,p] is the share of a region's requests under
point p.

    min  sum_(s,j) usd[s] n[s,j] + routing
    s.t. sum_(j, s of m) carry[s] n[s,j] >= sum_j R[j] sum_p y[j,p] r[p,m] e[p,m]  for m     (cover)
         sum_p y[j,p] = 1                                                          for j     (one)
         sum_j R[j] sum_p y[j,p] Q[p] >= q sum_j R[j]                                        (quality)
         sum_s gpus[s] [k(s) = k] n[s,j] <= cap[j,k]                               for j, k  (gpus)

Load may move, so that the regions cover it together; `moved_requests` says which region serves what.

carry[s] is for the longest mixes of the points used, which are those of one point, the reference: the model
uses only points whose mixes are no longer. e[p,m] is the work of a request of point p's mix relative to one
of the reference, the largest ratio of any shape; a point with a mix that no shape carries in time has y = 0.
So no plan is short of capacity. Every point is the reference in turn, each time for less than the cheapest
plan so far, which is returned: a plan of one point in one region is never cheaper. The rule is a router's:
every llm has the whole latency.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.quality_milp import LEAST_LOAD_SHARE, QualityOffer, replica_capacity_per_s

TIME_LIMIT_S = 60.0  # of the search over all reference points
INFEASIBLE = 2  # status of scipy's milp


class RegionalDemand(NamedTuple):
    """Load and available GPUs of each region."""

    requests_per_s: Floats  # (J,)
    cap_gpus: Ints  # (J, G)


class MultiRegionPlan(NamedTuple):
    """A plan over regions."""

    instances: Ints  # (S, J)
    shares: Floats  # (J, P) of a region's requests under each point
    usd_per_hour: float
    bound_usd: float  # no plan costs less
    moved_per_s: Floats  # (M, J) requests/s that other regions serve; < 0: served for others
    reference: int  # the point with the longest mixes that the plan can serve

    @property
    def gap_share(self) -> float:
        """Largest distance of the cost to the optimum, as a share of the cost."""
        return 1 - self.bound_usd / self.usd_per_hour if self.usd_per_hour else 0.0


def points_without_longer_mix(offer: QualityOffer, reference: int) -> NDArray[np.bool_]:
    """Return whether a point's mixes are no longer than those of the reference, shape (P,)."""
    longer = (offer.mix > offer.mix[reference]) & (offer.shares > LEAST_LOAD_SHARE)
    return np.asarray(~longer.any(axis=1))


def reference_work(offer: QualityOffer, latency_s: float) -> tuple[Floats, Floats]:
    """Return carry[s] and r[p,m] e[p,m] for the longest mix that any point uses.

    Returns
    -------
    carry : shape (S,), requests/s of the longest mix per replica
    work : shape (P, M), requests of the longest mix per request of a point; inf: no shape carries it in time
    """
    points, llms = offer.shares.shape
    within_s = np.full(llms, latency_s)
    used = offer.shares > LEAST_LOAD_SHARE
    longest = offer._replace(mix=np.tile(np.where(used, offer.mix, 0.0).max(axis=0), (points, 1)))
    reference = replica_capacity_per_s(longest, 0, within_s)
    work = np.zeros((points, llms))
    for point in range(points):
        carry = replica_capacity_per_s(offer, point, within_s)
        none = np.where(reference > 0, np.inf, 0.0)
        np.maximum.at(work[point], offer.llm, np.divide(reference, carry, out=none, where=carry > 0))
    work[work == 0] = np.inf
    return reference, np.multiply(offer.shares, work, out=np.zeros_like(work), where=used)


def moved_requests(capacity: Floats, load: Floats, requests_per_s: Floats) -> Floats:
    """Return requests/s of each llm that other regions serve, (M, J); below 0 where served for others.

    A region serves its own requests up to its capacity. Regions with some left share the others by it.
    `capacity` and `load`, (M, J), are in requests/s of the reference; `requests_per_s` has the same shape.
    """
    lacking, left = np.maximum(load - capacity, 0.0), np.maximum(capacity - load, 0.0)
    sent = requests_per_s * np.divide(lacking, load, out=np.zeros_like(load), where=load > 0)
    total = left.sum(axis=1, keepdims=True)
    part = np.divide(left, total, out=np.zeros_like(left), where=total > 0)
    return np.asarray(sent - part * sent.sum(axis=1, keepdims=True))


def cheapest_regional_plan(
    offer: QualityOffer,
    regions: RegionalDemand,
    quality: float,
    latency_s: float,
    gap_share: float = 0.005,
    references: Sequence[int] | None = None,
) -> MultiRegionPlan | None:
    """Return the cheapest replicas for a mean quality and a latency, to a gap; None where there are none.

    `references` are the reference points, by default all, those of a quality near the required one first.
    They share the time limit.
    """
    if references is None:
        references = np.argsort(np.abs(offer.quality - quality), kind="stable").tolist()
    best, bounds_usd = None, []
    for reference in references:
        kept = points_without_longer_mix(offer, reference)
        most_usd = np.inf if best is None else best.usd_per_hour * (1 - 1e-6)
        limits = (gap_share, TIME_LIMIT_S / len(references), most_usd)
        plan, bound_usd = _cheapest_within(offer.only(points=kept), regions, quality, latency_s, limits)
        bounds_usd.append(bound_usd)
        if plan is not None:
            shares = np.zeros((len(plan.shares), kept.size))
            shares[:, kept] = plan.shares
            best = plan._replace(shares=shares, reference=int(reference))
    return best and best._replace(bound_usd=min(best.usd_per_hour, *bounds_usd))


def _cheapest_within(
    offer: QualityOffer,
    regions: RegionalDemand,
    quality: float,
    latency_s: float,
    limits: tuple[float, float, float],
) -> tuple[MultiRegionPlan | None, float]:
    """Solve the MILP of this file's docstring; capacities are for the longest mixes of the offer's points.

    `limits` are gap, seconds and USD per hour. Returns a plan, or None, and a cost that none is below.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    carry, work = reference_work(offer, latency_s)
    gap_share, time_limit_s, most_usd = limits
    is_carried = np.asarray(np.isfinite(work).all(axis=1))
    work = np.where(is_carried[:, None], work, 0.0)
    points, llms = work.shape
    shapes, places = offer.llm.size, len(regions.requests_per_s)
    counts, mixes = shapes * places, places * points  # columns: n[s,j], y[j,p]
    rates = regions.requests_per_s.tolist()
    routing_usd = [[offer.judging_usd(point, rate) for point in range(points)] for rate in rates]
    usd = np.concatenate([np.repeat(offer.usd_per_hour, places), np.ravel(routing_usd)])
    most_replicas = np.repeat(np.where(carry > 0, np.inf, 0.0), places)
    found = milp(
        usd,
        integrality=np.arange(counts + mixes) < counts,
        bounds=Bounds(0.0, np.concatenate([most_replicas, np.tile(is_carried.astype(float), places)])),
        constraints=[
            *_constraints(offer, regions, quality, carry, work),
            LinearConstraint(usd[None], ub=most_usd),
        ],
        options={"mip_rel_gap": gap_share, "time_limit": time_limit_s},
    )
    if found.x is None:
        return None, np.inf if found.status == INFEASIBLE else float(found.mip_dual_bound or 0.0)
    instances = np.round(found.x[:counts]).astype(np.int64).reshape(shapes, places)
    shares = found.x[counts:].reshape(places, points)
    usd_per_hour = float(usd[:counts] @ instances.ravel() + usd[counts:] @ found.x[counts:])
    capacity = ((offer.llm == np.arange(llms)[:, None]) * carry) @ instances
    load, requests = (of.T * regions.requests_per_s for of in (shares @ work, shares @ offer.shares))
    moved_per_s = moved_requests(capacity, load, requests)
    bound_usd = float(found.mip_dual_bound)
    return MultiRegionPlan(instances, shares, usd_per_hour, bound_usd, moved_per_s, 0), bound_usd


def _constraints(
    offer: QualityOffer, regions: RegionalDemand, quality: float, carry: Floats, work: Floats
) -> list[Any]:
    """Return (cover), (one), (quality) and (gpus) over the columns n[s,j], y[j,p].

    `carry` (S,) and `work` (P, M) are those of `reference_work`.
    """
    from scipy.optimize import LinearConstraint
    from scipy.sparse import csr_array, hstack, kron

    points, llms = work.shape
    places, types = regions.cap_gpus.shape
    rate, identity = regions.requests_per_s, np.eye(places)
    counts, mixes = offer.llm.size * places, places * points

    def rows(n: object = None, y: object = None, size: int = 0) -> csr_array:
        blocks = zip((n, y), (counts, mixes), strict=True)
        return csr_array(hstack([csr_array((size, width)) if b is None else b for b, width in blocks]))

    is_of = (offer.llm == np.arange(llms)[:, None]) * carry
    by_type = (offer.gpu == np.arange(types)[:, None]) * offer.gpus
    load = np.einsum("j,pm->mjp", rate, work).reshape(llms, mixes)
    total_quality = np.outer(rate, offer.quality).reshape(1, mixes)
    return [
        LinearConstraint(rows(kron(is_of, np.ones((1, places))), csr_array(-load)), lb=0.0),
        LinearConstraint(rows(y=kron(identity, np.ones((1, points))), size=places), lb=1.0, ub=1.0),
        LinearConstraint(rows(y=csr_array(total_quality), size=1), lb=quality * rate.sum()),
        LinearConstraint(
            rows(kron(by_type, identity), size=types * places),
            ub=regions.cap_gpus.T.reshape(-1).astype(float),
        ),
    ]
