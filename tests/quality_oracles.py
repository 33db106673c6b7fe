"""Slower planners for quality and measures of fronts, to compare the planners with."""

from itertools import product

import numpy as np
from scipy.optimize import linprog

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.boute import LEAST_LOAD_SHARE, deployment_candidates
from fleetcast.models.plan.cascade_planners import best_point, mean_length_tables
from fleetcast.models.plan.cascadia import (
    CascadePlan,
    CascadeSearch,
    LatencyByGpus,
    allocate_min_max,
    latency_by_gpus,
)
from fleetcast.models.plan.quality_milp import PointPlan, QualityDemand, QualityOffer, replica_capacity_per_s
from fleetcast.models.plan.quality_objectives import quickest_point_plan
from fleetcast.models.quality.answers import JudgedAnswers, mean_quality, select_answers


def front(offer: QualityOffer, demand: QualityDemand) -> list[PointPlan]:
    """Least latency over quality within budget and GPUs, no plan dominated; the best quality first."""
    found: list[PointPlan] = []
    for point in np.argsort(-offer.quality, kind="stable"):
        one = quickest_point_plan(offer, demand, int(point), found[-1].latency_s if found else np.inf)
        if one is not None:
            found.append(one)
    return found


def enumerated(offer: QualityOffer, demand: QualityDemand) -> list[PointPlan]:
    """The front of the whole candidate space: least latency over quality within budget and GPUs."""
    found: list[PointPlan] = []
    llms = offer.shares.shape[1]
    for point in np.argsort(-offer.quality, kind="stable").tolist():
        needed = [llm for llm in range(llms) if offer.shares[point, llm] > LEAST_LOAD_SHARE]
        own = [deployment_candidates(offer, demand, point, llm) for llm in needed]
        best: PointPlan | None = None
        limit_s = found[-1].latency_s if found else np.inf
        for chosen in product(*own):
            latency_s = max(c.latency_s for c in chosen)
            usd = sum(c.usd_per_hour for c in chosen) + offer.judging_usd(point, demand.requests_per_s)
            if latency_s >= limit_s or usd > demand.budget_usd_per_hour + 1e-9:
                continue
            instances = np.sum([c.instances for c in chosen], axis=0)
            used = np.bincount(offer.gpu, instances * offer.gpus, demand.cap_gpus.size)
            if (used > demand.cap_gpus).any():
                continue
            best, limit_s = PointPlan(point, instances, usd, latency_s, np.full(llms, latency_s)), latency_s
        if best is not None:
            found.append(best)
    return found


def hypervolume(costs: Floats, reference: Floats) -> float:
    """The area that points of two costs dominate below a reference point; less is better."""
    inside = costs[(costs < reference).all(axis=1)]
    if not len(inside):
        return 0.0
    order = inside[np.lexsort((inside[:, 1], inside[:, 0]))]
    floor = np.minimum.accumulate(order[:, 1])
    widths = np.diff(np.append(order[:, 0], reference[0]))
    return float((widths * (reference[1] - floor)).sum())


def min_max_programme(table: Floats, gpus: int) -> tuple[Ints, float]:
    """The same as the paper prints it, by PuLP and CBC; slower, for comparison."""
    import pulp

    llms = range(len(table))
    lp = pulp.LpProblem("cascadia", pulp.LpMinimize)
    latency = lp.add_variable("L", 0)
    chosen = {
        (i, f): lp.add_variable(f"x_{i}_{f}", 0, 1, pulp.LpInteger)
        for i in llms
        for f in range(table.shape[1])
        if np.isfinite(table[i, f])
    }
    lp += latency
    lp += pulp.lpSum(f * x for (_, f), x in chosen.items()) <= gpus
    for i in llms:
        own = [(f, x) for (j, f), x in chosen.items() if j == i]
        lp += pulp.lpSum(x for _, x in own) == 1
        lp += latency >= pulp.lpSum(table[i, f] * x for f, x in own)
    lp.solve(pulp.PULP_CBC_CMD(msg=False))
    if lp.sol_status != pulp.LpSolutionOptimal:
        return np.zeros(len(table), np.int64), np.inf
    found = [next(f for (j, f), x in chosen.items() if j == i and x.value() > 0.5) for i in llms]
    return np.array(found), float(max(table[i, f] for i, f in zip(llms, found, strict=True)))


def exhaustive(search: CascadeSearch, quality: float) -> CascadePlan:
    """The best J of all points."""
    return search.plan(min(range(len(search.offer.quality)), key=lambda point: search.score(point, quality)))


def uniform_parallelism(tables: LatencyByGpus, gpus: int, degrees: Ints, quality: float) -> tuple[int, float]:
    """Point and latency where all replicas have as many GPUs; degrees (S,) of the shapes."""
    best = (-1, np.inf)
    for degree in np.unique(degrees):
        offer = tables.offer.only(shapes=degrees == degree)
        if np.unique(offer.llm).size < offer.shares.shape[1]:
            continue
        own = latency_by_gpus(offer, tables.demand, gpus)
        latency_s = np.array([allocate_min_max(table, gpus)[1] for table in own.latency_s])
        found = best_point(offer, latency_s, quality)
        best = found if found[1] < best[1] else best
    return best


def cascade_serve(tables: LatencyByGpus, gpus: int, quality: float) -> tuple[int, float]:
    """Point and true latency of what CascadeServe plans: by load alone, all requests taken for mean ones."""
    found = [allocate_min_max(table, gpus) for table in mean_length_tables(tables, gpus).latency_s]
    point, _ = best_point(tables.offer, np.array([latency_s for _, latency_s in found]), quality)
    return point, float(max(tables.latency_s[point, i, f] for i, f in enumerate(found[point][0])))


def skill(answers: JudgedAnswers, rule: str, steps: int = 100) -> float:
    """What the choice is worth with the first and the last llm: 0.5 is a choice by lot (RouteLLM's APGR).

    The mean over all shares of requests sent to the last llm of (quality - the first's) / (the last's - the
    first's). ValueError where the last is not better.
    """
    two = answers.of((answers.llms[0], answers.llms[-1]))
    small, large = two.score.mean(axis=0)
    if large <= small:
        raise ValueError(f"{two.llms[1]} answers no better than {two.llms[0]}: no skill to tell.")
    sent = (np.arange(steps) + 0.5) / steps
    if rule == "cascade":
        found = [mean_quality(two, select_answers(two, rule, [share])) for share in sent]
    else:
        found = [mean_quality(two, select_answers(two, rule, [1 - share])) for share in sent]
    return float((np.mean(found) - small) / (large - small))


def busy_share(offer: QualityOffer, instances: Ints, load: Floats, latency_s: float) -> float:
    """By LP: the least share of the time in which all replicas serve a load, of any split; inf without one.

    `instances` (S,); `load` (P, M) in requests/s of each point and llm. A replica takes a request's mix as
    long as its capacity for that mix says.
    """
    points, llms = load.shape
    load = np.where(offer.shares > LEAST_LOAD_SHARE, load, 0.0)
    carry = np.array([replica_capacity_per_s(offer, p, np.full(llms, latency_s)) for p in range(points)])
    sizes, shapes = offer.llm.size * points, offer.llm.size  # columns: x[p,s] requests/s, and the share
    split = np.kron(np.eye(points), offer.llm == np.arange(llms)[:, None])
    seconds = np.divide(1.0, carry, out=np.zeros_like(carry), where=carry > 0)
    busy = np.hstack([np.eye(shapes) * of for of in seconds])
    most = np.where((carry > 0) & (instances > 0), np.inf, 0.0).ravel()
    found = linprog(
        np.append(np.zeros(sizes), 1.0),
        A_ub=np.column_stack([busy, -instances]),
        b_ub=np.zeros(shapes),
        A_eq=np.column_stack([split, np.zeros(points * llms)]),
        b_eq=load.ravel(),
        bounds=[*((0, of) for of in most), (0, None)],
    )
    return float(found.x[-1]) if found.status == 0 else np.inf
