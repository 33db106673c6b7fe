"""Planners of cascades on GPUs of one type, as published: Cascadia, uniform GPUs, CascadeServe.

Each planner plans a given number of GPUs; `plans_by_gpus` calls it for rising numbers, so by rising cost.

Cascadia        GPUs and thresholds by the paper's Algorithm 1
uniform         the same number of GPUs for each llm, with the best thresholds
CascadeServe    Algorithm 1 on tables in which all requests have mean lengths
"""

from collections.abc import Callable, Iterator

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan import cascadia
from fleetcast.models.plan.quality_milp import PointPlan, QualityOffer

PointAndGpus = tuple[int, Ints] | None  # a point, and the GPUs of each llm (M,)


def plans_by_gpus(
    tables: cascadia.LatencyByGpus, latency_s: float, plan: Callable[[int], PointAndGpus]
) -> Iterator[PointPlan]:
    """Yield a planner's plans for rising numbers of GPUs, without those whose slowest stage is too slow.

    The tables are of one GPU type; `plan` is called with the number of GPUs.
    """
    last: PointPlan | None = None
    for gpus in range(1, tables.latency_s.shape[2]):
        found = plan(gpus)
        if found is None:
            continue
        new = quickest_deployment(tables, *found)
        is_new = last is None or new.point != last.point or (new.instances != last.instances).any()
        if is_new and new.latency_s <= latency_s and new.usd_per_hour <= tables.demand.budget_usd_per_hour:
            yield new
            last = new


def quickest_deployment(tables: cascadia.LatencyByGpus, point: int, gpus: Ints) -> PointPlan:
    """Return the replicas of the least latency of each llm on its GPUs, `gpus` (M,)."""
    offer, demand = tables.offer, tables.demand
    stages_s = np.array([tables.latency_s[point, llm, count] for llm, count in enumerate(gpus)])
    instances = sum(
        (cascadia.replicas_by_shape(tables, point, llm, int(count)) for llm, count in enumerate(gpus)),
        np.zeros(offer.llm.size, np.int64),
    )
    usd = float(instances @ offer.usd_per_hour) + offer.judging_usd(point, demand.requests_per_s)
    longest_s = float(offer.p95_s[np.isfinite(offer.p95_s)].max())  # every replica has capacity at it
    return PointPlan(point, instances, usd, float(stages_s.max()), np.full(len(gpus), longest_s))


def cascadia_planner(tables: cascadia.LatencyByGpus, quality: float) -> Callable[[int], PointAndGpus]:
    """Return Cascadia's planner for a quality plus its largest standard error, like the other planners."""
    needed = quality + float(tables.offer.error.max())

    def plan(gpus: int) -> PointAndGpus:
        found = cascadia.search_cascade(cascadia.CascadeSearch(tables, gpus), needed)
        return (found.point, found.gpus) if np.isfinite(found.latency_s) else None

    return plan


def uniform_planner(tables: cascadia.LatencyByGpus, quality: float) -> Callable[[int], PointAndGpus]:
    """Return the planner that gives each llm the same number of GPUs."""
    needed, llms = quality + float(tables.offer.error.max()), tables.offer.shares.shape[1]

    def plan(gpus: int) -> PointAndGpus:
        point, latency_s = best_uniform_point(cascadia.CascadeSearch(tables, gpus), needed)
        return (point, np.full(llms, gpus // llms)) if np.isfinite(latency_s) else None

    return plan


def cascadeserve_planner(tables: cascadia.LatencyByGpus, quality: float) -> Callable[[int], PointAndGpus]:
    """Return CascadeServe's planner, which knows the load but only mean lengths of requests."""
    most = tables.latency_s.shape[2] - 1
    return cascadia_planner(mean_length_tables(tables, most), quality)


def best_uniform_point(search: cascadia.CascadeSearch, quality: float) -> tuple[int, float]:
    """Return the best point and its latency in seconds where all llms have the same number of GPUs."""
    llms = search.offer.shares.shape[1]
    latency_s = search.tables.latency_s[:, :, search.gpus // llms].max(axis=1)
    return best_point(search.offer, latency_s, quality)


def mean_length_tables(tables: cascadia.LatencyByGpus, gpus: int) -> cascadia.LatencyByGpus:
    """Return the tables up to a number of GPUs with the same mix at all points, that of the most legs."""
    offer = tables.offer
    mean_mix = offer.mix[offer.shares.sum(axis=1).argmax()]
    same_mix = offer._replace(mix=np.broadcast_to(mean_mix, offer.mix.shape))
    return cascadia.latency_by_gpus(same_mix, tables.demand, gpus)


def best_point(offer: QualityOffer, latency_s: Floats, quality: float) -> tuple[int, float]:
    """Return the point of the least latency with the quality, and its latency, inf without any.

    `latency_s` (P,) is the latency of each point.
    """
    allowed_s = np.where(offer.quality >= quality, latency_s, np.inf)
    point = int(allowed_s.argmin())
    return point, float(allowed_s[point])
