"""Model routing and GPUs over regions: replicas by region, points mixed over time, one mean quality.

Symbols as in models/plan/quality_milp.py, and j regions; y[j,p] is the share of a region's requests under
point p.

    min  sum_(s,j) usd[s] n[s,j] + routing
    s.t. sum_(s of m) carry[s] n[s,j] + z[m,j] >= R[j] sum_p y[j,p] r[p,m] e[p,m]  for m, j  (cover)
         sum_j z[m,j] = 0        z[m,j]: load of llm m that other regions serve       for m     (moved)
         sum_p y[j,p] = 1                                                             for j     (one)
         sum_j R[j] sum_p y[j,p] Q[p] >= q sum_j R[j]                                           (quality)
         sum_s gpus[s] [k(s) = k] n[s,j] <= cap[j,k]                                  for j, k  (gpus)

carry[s] is for the longest mixes of the points used, which are those of one point, the reference: the model
uses only points whose mixes are no longer. e[p,m] is the work of a request of point p's mix relative to one
of the reference, the largest ratio of any shape. So no plan is short of capacity. The points with a quality
near the required one are the reference in turn, and the cheapest plan is returned. The rule is a router's:
every llm has the whole latency.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.quality_milp import LEAST_LOAD_SHARE, QualityOffer, replica_capacity_per_s

REFERENCE_POINTS = 5  # number of points that are the reference in turn
TIME_LIMIT_S = 60.0  # of the search over all reference points


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
    moved_per_s: Floats  # (M, J) requests/s of the reference served in other regions; < 0: served for others
    reference: int  # the point with the longest mixes that the plan can serve

    @property
    def gap_share(self) -> float:
        """Largest distance of the cost to the optimum, as a share of the cost."""
        return 1 - self.bound_usd / self.usd_per_hour if self.usd_per_hour else 0.0


def points_without_longer_mix(offer: QualityOffer, reference: int) -> NDArray[np.bool_]:
    """Return whether a point's mixes are no longer than those of the reference, shape (P,)."""
    longer = (offer.mix > offer.mix[reference] + 1e-9) & (offer.shares > LEAST_LOAD_SHARE)
    return np.asarray(~longer.any(axis=1))


def reference_work(offer: QualityOffer, latency_s: float) -> tuple[Floats, Floats]:
    """Return carry[s] and r[p,m] e[p,m] for the longest mix of any point.

    Returns
    -------
    carry : shape (S,), requests/s of the longest mix per replica
    work : shape (P, M), requests of the longest mix per request of a point
    """
    points, llms = offer.shares.shape
    within_s = np.full(llms, latency_s)
    longest = offer._replace(mix=np.tile(offer.mix.max(axis=0), (points, 1)))
    reference = replica_capacity_per_s(longest, 0, within_s)
    work = np.zeros((points, llms))
    for point in range(points):
        carry = replica_capacity_per_s(offer, point, within_s)
        ratio = np.divide(reference, carry, out=np.zeros_like(carry), where=carry > 0)
        np.maximum.at(work[point], offer.llm, ratio)
    return reference, np.where(offer.shares > LEAST_LOAD_SHARE, offer.shares * work, 0.0)


def cheapest_regional_plan(
    offer: QualityOffer,
    regions: RegionalDemand,
    quality: float,
    latency_s: float,
    gap_share: float = 0.005,
    references: Sequence[int] | None = None,
) -> MultiRegionPlan | None:
    """Return the cheapest replicas for a mean quality and a latency, to a gap; None where there are none.

    `references` are the reference points, by default those with a quality near the required one. They share
    the time limit.
    """
    if references is None:
        references = np.argsort(np.abs(offer.quality - quality), kind="stable")[:REFERENCE_POINTS].tolist()
    found = []
    for reference in references:
        kept = points_without_longer_mix(offer, reference)
        plan = _cheapest_within(
            offer.only(points=kept), regions, quality, latency_s, gap_share, TIME_LIMIT_S / len(references)
        )
        if plan is not None:
            shares = np.zeros((len(plan.shares), kept.size))
            shares[:, kept] = plan.shares
            found.append(plan._replace(shares=shares, reference=int(reference)))
    if not found:
        return None
    best = min(found, key=lambda plan: plan.usd_per_hour)
    return best._replace(bound_usd=min(plan.bound_usd for plan in found))


def _cheapest_within(
    offer: QualityOffer,
    regions: RegionalDemand,
    quality: float,
    latency_s: float,
    gap_share: float,
    time_limit_s: float,
) -> MultiRegionPlan | None:
    """Solve the MILP of this file's docstring; capacities are for the longest mixes of the offer's points."""
    from scipy.optimize import Bounds, milp

    carry, work = reference_work(offer, latency_s)
    points, llms = work.shape
    shapes, places = offer.llm.size, len(regions.requests_per_s)
    counts, mixes, moves = shapes * places, places * points, llms * places  # columns: n[s,j], y[j,p], z[m,j]
    rates = regions.requests_per_s.tolist()
    routing_usd = [[offer.judging_usd(point, rate) for point in range(points)] for rate in rates]
    usd = np.concatenate([np.repeat(offer.usd_per_hour, places), np.ravel(routing_usd), np.zeros(moves)])
    most = np.repeat(np.where(carry > 0, np.inf, 0.0), places)
    found = milp(
        usd,
        integrality=np.arange(counts + mixes + moves) < counts,
        bounds=Bounds(
            np.concatenate([np.zeros(counts + mixes), np.full(moves, -np.inf)]),
            np.concatenate([most, np.full(mixes + moves, np.inf)]),
        ),
        constraints=_constraints(offer, regions, quality, carry, work),
        options={"mip_rel_gap": gap_share, "time_limit": time_limit_s},
    )
    if found.x is None:
        return None
    instances = np.round(found.x[:counts]).astype(np.int64).reshape(shapes, places)
    return MultiRegionPlan(
        instances,
        found.x[counts : counts + mixes].reshape(places, points),
        float(usd[:counts] @ instances.ravel() + usd[counts:] @ found.x[counts:]),
        float(found.mip_dual_bound),
        found.x[counts + mixes :].reshape(llms, places),
        0,
    )


def _constraints(
    offer: QualityOffer, regions: RegionalDemand, quality: float, carry: Floats, work: Floats
) -> list[Any]:
    """Return (cover), (moved), (one), (quality) and (gpus) over the columns n[s,j], y[j,p], z[m,j].

    `carry` (S,) and `work` (P, M) are those of `reference_work`.
    """
    from scipy.optimize import LinearConstraint
    from scipy.sparse import csr_array, hstack, kron

    points, llms = work.shape
    places, types = regions.cap_gpus.shape
    rate, identity = regions.requests_per_s, np.eye(places)
    counts, mixes, moves = offer.llm.size * places, places * points, llms * places

    def rows(n: object = None, y: object = None, z: object = None, size: int = 0) -> csr_array:
        blocks = zip((n, y, z), (counts, mixes, moves), strict=True)
        return csr_array(hstack([csr_array((size, width)) if b is None else b for b, width in blocks]))

    is_of = (offer.llm == np.arange(llms)[:, None]) * carry
    by_type = (offer.gpu == np.arange(types)[:, None]) * offer.gpus
    load = np.einsum("jk,j,pm->mjkp", identity, rate, work).reshape(moves, mixes)
    total_quality = np.outer(rate, offer.quality).reshape(1, mixes)
    return [
        LinearConstraint(
            rows(kron(is_of, identity), csr_array(-load), csr_array(np.eye(moves)), moves), lb=0.0
        ),
        LinearConstraint(rows(z=kron(np.eye(llms), np.ones((1, places))), size=llms), lb=0.0, ub=0.0),
        LinearConstraint(rows(y=kron(identity, np.ones((1, points))), size=places), lb=1.0, ub=1.0),
        LinearConstraint(rows(y=csr_array(total_quality), size=1), lb=quality * rate.sum()),
        LinearConstraint(
            rows(kron(by_type, identity), size=types * places),
            ub=regions.cap_gpus.T.reshape(-1).astype(float),
        ),
    ]
