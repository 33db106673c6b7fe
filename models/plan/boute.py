"""BoUTE: deployments from a performance database, and its baselines (sections 5.1, 5.2 and 7.1).

    skimming    per GPU type all (replicas of one shape), Pareto-optimal in (latency, cost)
    knapsack    per budget at most one such candidate of each type: the least latency (multiple choice)
    space       the candidates of each llm at the load that a point gives it; all of their combinations

The paper searches the space by Bayesian optimisation because an evaluation is dear there. Here it is a
look-up, so the space is gone through, and `models/plan/quality_milp.py` does without it.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.pareto_front import not_dominated
from fleetcast.models.plan.quality_milp import (
    LEAST_LOAD_SHARE,
    PointPlan,
    QualityDemand,
    QualityOffer,
    cheapest_point_plan,
    replica_capacity_per_s,
)

BUDGET_STEPS = 12  # between nothing and all, for candidates of several GPU types
KNAPSACK_LATENCIES = 120  # latencies at which the knapsack is solved


class Candidate(NamedTuple):
    """A deployment of an llm: replicas of each shape, (S,)."""

    instances: Ints
    latency_s: float
    usd_per_hour: float


def pareto_candidates(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that no other beats in latency and cost."""
    if not candidates:
        return []
    kept = not_dominated(np.array([(one.latency_s, one.usd_per_hour) for one in candidates]))
    return [one for one, is_kept in zip(candidates, kept, strict=True) if is_kept]


def solve_knapsack(costs: Sequence[Floats], values: Sequence[Floats], budget: float) -> list[int] | None:
    """One item at most of each class, -1 for none, of the greatest value within a budget; exact.

    Class by class, sums that are dearer and worth no more than others are dropped (Nemhauser and Ullmann).
    """
    cost, value, kept = np.zeros(1), np.zeros(1), list[tuple[Ints, int]]()
    for more_cost, more_value in zip(costs, values, strict=True):
        items = more_cost.size + 1  # the first of them is none
        costs_here = np.add.outer(cost, np.concatenate([[0.0], more_cost])).ravel()
        values_here = np.add.outer(value, np.concatenate([[0.0], more_value])).ravel()
        order = np.flatnonzero(costs_here <= budget)
        order = order[np.lexsort((-values_here[order], costs_here[order]))]
        best_before = np.maximum.accumulate(np.concatenate([[-np.inf], values_here[order]]))[:-1]
        order = order[values_here[order] > best_before]
        cost, value = costs_here[order], values_here[order]
        kept.append((order, items))
    if not cost.size:
        return None
    chosen, at = list[int](), cost.size - 1
    for order, items in reversed(kept):
        at, item = divmod(int(order[at]), items)
        chosen.append(item - 1)
    return chosen[::-1]


def single_shape_candidates(
    offer: QualityOffer, demand: QualityDemand, point: int, llm: int, carry: Floats, grid: Floats
) -> dict[int, list[Candidate]]:
    """By GPU type all candidates of replicas of one shape; carry (S, L) at the latencies of the grid."""
    load = demand.requests_per_s * offer.shares[point, llm]
    found: dict[int, list[Candidate]] = {}
    for s in np.flatnonzero(offer.llm == llm):
        size, gpu = int(offer.gpus[s]), int(offer.gpu[s])
        for count in range(1, int(demand.cap_gpus[gpu]) // size + 1):
            enough = carry[s] * count >= load
            latency_s = float(grid[enough.argmax()]) if enough.any() else np.inf
            usd = count * float(offer.usd_per_hour[s])
            if usd <= demand.budget_usd_per_hour:
                instances = np.zeros(offer.llm.size, np.int64)
                instances[s] = count
                found.setdefault(gpu, []).append(Candidate(instances, latency_s, usd))
    return found


def deployment_candidates(
    offer: QualityOffer, demand: QualityDemand, point: int, llm: int
) -> list[Candidate]:
    """All deployments of an llm that the paper would look at for a point: of one GPU type, and mixed."""
    finite = offer.p95_s[np.isfinite(offer.p95_s)]
    grid = np.geomspace(finite.min(), finite.max(), KNAPSACK_LATENCIES)
    llms = offer.shares.shape[1]
    carry = np.array([replica_capacity_per_s(offer, point, np.full(llms, within)) for within in grid]).T
    load = demand.requests_per_s * offer.shares[point, llm]
    every = single_shape_candidates(offer, demand, point, llm, carry, grid)
    alone = [
        one
        for own in every.values()
        for one in pareto_candidates([c for c in own if np.isfinite(c.latency_s)])
    ]
    by_type = list(every.values())
    if len(by_type) < 2:
        return pareto_candidates(alone)
    most = min(demand.budget_usd_per_hour, sum(max(c.usd_per_hour for c in own) for own in by_type))
    mixed = []
    costs = [np.array([c.usd_per_hour for c in own]) for own in by_type]
    carried = [np.array([c.instances for c in own]) @ carry for own in by_type]  # (candidates, latencies)
    for budget in np.linspace(0, most, BUDGET_STEPS + 1)[1:]:
        low, high, best = -1, grid.size, None
        while high - low > 1:
            middle = (low + high) // 2
            chosen = solve_knapsack(costs, [own[:, middle] for own in carried], float(budget))
            picked = [own[n] for own, n in zip(by_type, chosen or [], strict=True) if n >= 0]
            instances = sum((c.instances for c in picked), np.zeros(offer.llm.size, np.int64))
            if instances @ carry[:, middle] >= load:
                high, best = middle, instances
            else:
                low = middle
        if best is not None:
            mixed.append(Candidate(best, float(grid[high]), float(best @ offer.usd_per_hour)))
    return pareto_candidates([*alone, *mixed])


def cheapest_last_llm_plan(offer: QualityOffer, demand: QualityDemand, latency_s: float) -> PointPlan | None:
    """The cheapest plan in which the last llm answers all."""
    points = np.flatnonzero(offer.shares[:, -1] > 1 - LEAST_LOAD_SHARE)
    is_single = [p for p in points if offer.shares[p, :-1].max() <= LEAST_LOAD_SHARE]
    return cheapest_point_plan(offer, demand, int(is_single[0]), latency_s) if is_single else None


def cheapest_equal_spend_plan(
    offer: QualityOffer, demand: QualityDemand, quality: float, latency_s: float
) -> PointPlan | None:
    """The cheapest plan in which all llms answer, and each gets as much money (RouteLLM, 7.1)."""
    best: PointPlan | None = None
    free = offer._replace(judge_usd_per_1000=0.0)  # the router is paid once
    is_asked = offer.shares > LEAST_LOAD_SHARE
    every = is_asked[:, is_asked.any(axis=0)].all(axis=1)
    for point in np.flatnonzero((offer.quality - offer.error >= quality) & every).tolist():
        found = [
            cheapest_point_plan(
                free.only(shapes=offer.llm == llm)._replace(shares=_of_one(offer, llm)),
                demand,
                point,
                latency_s,
            )
            for llm in range(offer.shares.shape[1])
        ]
        if any(one is None for one in found):
            continue
        parts = [one for one in found if one is not None]
        usd = len(parts) * max(one.usd_per_hour for one in parts)
        usd += offer.judging_usd(point, demand.requests_per_s)
        if best is None or usd < best.usd_per_hour:
            instances = np.zeros(offer.llm.size, np.int64)
            for llm, one in enumerate(parts):
                instances[offer.llm == llm] = one.instances
            best = PointPlan(point, instances, usd, latency_s, parts[0].within_s)
    return best


def _of_one(offer: QualityOffer, llm: int) -> Floats:
    """The shares with the load of one llm only."""
    return np.where(np.arange(offer.shares.shape[1]) == llm, offer.shares, 0.0)


def boute_plans(
    offer: QualityOffer, demand: QualityDemand, quality: float, latency_s: float
) -> Iterator[PointPlan]:
    """All combinations of candidates with the quality, a standard error on top, within a latency, by cost."""
    found = []
    for point in np.flatnonzero(offer.quality - offer.error >= quality).tolist():
        needed = np.flatnonzero(offer.shares[point] > LEAST_LOAD_SHARE).tolist()
        own = [
            [c for c in deployment_candidates(offer, demand, point, llm) if c.latency_s <= latency_s]
            for llm in needed
        ]
        judging_usd = offer.judging_usd(point, demand.requests_per_s)
        for chosen in product(*own):
            usd = sum(c.usd_per_hour for c in chosen) + judging_usd
            instances = np.sum([c.instances for c in chosen], axis=0)
            used = np.bincount(offer.gpu, instances * offer.gpus, demand.cap_gpus.size)
            if usd <= demand.budget_usd_per_hour + 1e-9 and (used <= demand.cap_gpus).all():
                within = max(c.latency_s for c in chosen)
                found.append(PointPlan(point, instances, usd, within, np.full(offer.shares.shape[1], within)))
    yield from sorted(found, key=lambda one: one.usd_per_hour)
