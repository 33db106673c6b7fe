"""BoUTE: deployments from a performance database, and its baselines (sections 5.1, 5.2 and 7.1).

    skimming    per GPU type all (replicas of one shape), Pareto-optimal in (latency, cost)
    knapsack    per budget at most one candidate of each type, with the least latency (multiple choice)
    space       the candidates of each llm at its load under a point, in all combinations

The paper searches the space by Bayesian optimisation, because an evaluation is expensive there. Here an
evaluation is a table look-up, so the whole space is enumerated. `models/plan/quality_milp.py` needs no space.
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

BUDGET_STEPS = 12  # budgets between 0 and the largest, for candidates of several GPU types
KNAPSACK_LATENCIES = 120  # latencies at which the knapsack is solved


class Candidate(NamedTuple):
    """A deployment of an llm."""

    instances: Ints  # (S,) replicas of each shape
    latency_s: float
    usd_per_hour: float


def pareto_candidates(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that no other candidate dominates in latency and cost."""
    if not candidates:
        return []
    is_kept = not_dominated(np.array([(c.latency_s, c.usd_per_hour) for c in candidates]))
    return [candidate for candidate, kept in zip(candidates, is_kept, strict=True) if kept]


def solve_knapsack(costs: Sequence[Floats], values: Sequence[Floats], budget: float) -> list[int] | None:
    """Return the item of each class, -1 for none, with the largest total value within a budget; exact.

    Class by class, sums that cost more and are worth no more than others are dropped (Nemhauser and Ullmann).
    None where the budget is below 0.

    Parameters
    ----------
    costs, values : for each class, shape (items,)
    """
    cost, value, steps = np.zeros(1), np.zeros(1), list[tuple[Ints, int]]()
    for item_cost, item_value in zip(costs, values, strict=True):
        items = item_cost.size + 1  # the first item is none
        sum_cost = np.add.outer(cost, np.concatenate([[0.0], item_cost])).ravel()
        sum_value = np.add.outer(value, np.concatenate([[0.0], item_value])).ravel()
        order = np.flatnonzero(sum_cost <= budget)
        order = order[np.lexsort((-sum_value[order], sum_cost[order]))]
        best_before = np.maximum.accumulate(np.concatenate([[-np.inf], sum_value[order]]))[:-1]
        order = order[sum_value[order] > best_before]
        cost, value = sum_cost[order], sum_value[order]
        steps.append((order, items))
    if not cost.size:
        return None
    chosen, at = list[int](), cost.size - 1
    for order, items in reversed(steps):
        at, item = divmod(int(order[at]), items)
        chosen.append(item - 1)
    return chosen[::-1]


def single_shape_candidates(
    offer: QualityOffer, demand: QualityDemand, point: int, llm: int, carry: Floats, grid: Floats
) -> dict[int, list[Candidate]]:
    """Return by GPU type all candidates that are replicas of one shape.

    Parameters
    ----------
    carry : shape (S, L), requests/s of a replica within each latency
    grid : shape (L,), latencies in seconds, ascending
    """
    load = demand.requests_per_s * offer.shares[point, llm]
    found: dict[int, list[Candidate]] = {}
    for s in np.flatnonzero(offer.llm == llm):
        size, gpu = int(offer.gpus[s]), int(offer.gpu[s])
        for count in range(1, int(demand.cap_gpus[gpu]) // size + 1):
            is_enough = carry[s] * count >= load
            latency_s = float(grid[is_enough.argmax()]) if is_enough.any() else np.inf
            usd = count * float(offer.usd_per_hour[s])
            if usd <= demand.budget_usd_per_hour:
                instances = np.zeros(offer.llm.size, np.int64)
                instances[s] = count
                found.setdefault(gpu, []).append(Candidate(instances, latency_s, usd))
    return found


def deployment_candidates(
    offer: QualityOffer, demand: QualityDemand, point: int, llm: int
) -> list[Candidate]:
    """Return the deployments of an llm in the paper's space of a point: of one GPU type, and mixed."""
    finite = offer.p95_s[np.isfinite(offer.p95_s)]
    grid = np.geomspace(finite.min(), finite.max(), KNAPSACK_LATENCIES)
    llms = offer.shares.shape[1]
    carry = np.array([replica_capacity_per_s(offer, point, np.full(llms, within)) for within in grid]).T
    load = demand.requests_per_s * offer.shares[point, llm]
    by_type = list(single_shape_candidates(offer, demand, point, llm, carry, grid).values())
    unmixed = [
        candidate
        for of_type in by_type
        for candidate in pareto_candidates([c for c in of_type if np.isfinite(c.latency_s)])
    ]
    if len(by_type) < 2:
        return pareto_candidates(unmixed)
    most = min(demand.budget_usd_per_hour, sum(max(c.usd_per_hour for c in of_type) for of_type in by_type))
    mixed = []
    costs = [np.array([c.usd_per_hour for c in of_type]) for of_type in by_type]
    carried = [np.array([c.instances for c in of_type]) @ carry for of_type in by_type]  # (candidates, L)
    for budget in np.linspace(0, most, BUDGET_STEPS + 1)[1:]:
        low, high, best = -1, grid.size, None
        while high - low > 1:
            middle = (low + high) // 2
            chosen = solve_knapsack(costs, [per_s[:, middle] for per_s in carried], float(budget))
            picked = [of_type[n] for of_type, n in zip(by_type, chosen or [], strict=True) if n >= 0]
            instances = sum((c.instances for c in picked), np.zeros(offer.llm.size, np.int64))
            if instances @ carry[:, middle] >= load:
                high, best = middle, instances
            else:
                low = middle
        if best is not None:
            mixed.append(Candidate(best, float(grid[high]), float(best @ offer.usd_per_hour)))
    return pareto_candidates([*unmixed, *mixed])


def cheapest_last_llm_plan(offer: QualityOffer, demand: QualityDemand, latency_s: float) -> PointPlan | None:
    """Return the cheapest plan in which the last llm serves all requests."""
    points = np.flatnonzero(offer.shares[:, -1] > 1 - LEAST_LOAD_SHARE)
    alone = [p for p in points if offer.shares[p, :-1].max() <= LEAST_LOAD_SHARE]
    return cheapest_point_plan(offer, demand, int(alone[0]), latency_s) if alone else None


def cheapest_equal_spend_plan(
    offer: QualityOffer, demand: QualityDemand, quality: float, latency_s: float
) -> PointPlan | None:
    """Return the cheapest plan in which all llms serve, each with the same budget (RouteLLM, 7.1)."""
    best: PointPlan | None = None
    free = offer._replace(judge_usd_per_1000=0.0)  # the router's cost is added once below
    has_load = offer.shares > LEAST_LOAD_SHARE
    all_serve = has_load[:, has_load.any(axis=0)].all(axis=1)
    for point in np.flatnonzero((offer.quality - offer.error >= quality) & all_serve).tolist():
        found = [
            cheapest_point_plan(
                free.only(shapes=offer.llm == llm)._replace(shares=_shares_of_llm(offer, llm)),
                demand,
                point,
                latency_s,
            )
            for llm in range(offer.shares.shape[1])
        ]
        plans = [plan for plan in found if plan is not None]
        if len(plans) < len(found):
            continue
        usd = len(plans) * max(plan.usd_per_hour for plan in plans)
        usd += offer.judging_usd(point, demand.requests_per_s)
        if best is None or usd < best.usd_per_hour:
            instances = np.zeros(offer.llm.size, np.int64)
            for llm, plan in enumerate(plans):
                instances[offer.llm == llm] = plan.instances
            best = PointPlan(point, instances, usd, latency_s, plans[0].within_s)
    return best


def _shares_of_llm(offer: QualityOffer, llm: int) -> Floats:
    """Return the shares with the load of one llm only, shape (P, M)."""
    return np.where(np.arange(offer.shares.shape[1]) == llm, offer.shares, 0.0)


def boute_plans(
    offer: QualityOffer, demand: QualityDemand, quality: float, latency_s: float
) -> Iterator[PointPlan]:
    """Yield all combinations of candidates for a quality, plus its standard error, and a latency, by cost."""
    found = []
    for point in np.flatnonzero(offer.quality - offer.error >= quality).tolist():
        needed = np.flatnonzero(offer.shares[point] > LEAST_LOAD_SHARE).tolist()
        by_llm = [
            [c for c in deployment_candidates(offer, demand, point, llm) if c.latency_s <= latency_s]
            for llm in needed
        ]
        judging_usd = offer.judging_usd(point, demand.requests_per_s)
        for chosen in product(*by_llm):
            usd = sum(c.usd_per_hour for c in chosen) + judging_usd
            instances = np.sum([c.instances for c in chosen], axis=0)
            used = np.bincount(offer.gpu, instances * offer.gpus, demand.cap_gpus.size)
            if usd <= demand.budget_usd_per_hour + 1e-9 and (used <= demand.cap_gpus).all():
                within = max(c.latency_s for c in chosen)
                found.append(PointPlan(point, instances, usd, within, np.full(offer.shares.shape[1], within)))
    yield from sorted(found, key=lambda plan: plan.usd_per_hour)
