"""Plans of cascades on GPUs of one type, as their papers make them: Cascadia's, uniform ones, CascadeServe's.

Each says what to do with so many GPUs; from the fewest on they are plans by rising cost.

Algorithm 1     GPUs and thresholds by Cascadia's search
uniform         as many GPUs for each llm, the best thresholds for that
CascadeServe    as Algorithm 1's tables, but all requests are taken for mean ones
"""

from collections.abc import Callable, Iterator

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan import cascadia
from fleetcast.models.plan.quality_milp import PointPlan, QualityOffer

PointAndGpus = tuple[int, Ints] | None  # a point, and the GPUs of each llm


def plans_by_gpus(
    tables: cascadia.LatencyByGpus, latency_s: float, plan: Callable[[int], PointAndGpus]
) -> Iterator[PointPlan]:
    """What a planner says for rising numbers of GPUs, where no stage takes longer than the latency.

    The tables are of one GPU type; `plan` is called with the number of GPUs.
    """
    last: PointPlan | None = None
    for gpus in range(1, tables.latency_s.shape[2]):
        found = plan(gpus)
        if found is None:
            continue
        one = quickest_deployment(tables, *found)
        is_new = last is None or one.point != last.point or (one.instances != last.instances).any()
        if is_new and one.latency_s <= latency_s and one.usd_per_hour <= tables.demand.budget_usd_per_hour:
            yield one
            last = one


def quickest_deployment(tables: cascadia.LatencyByGpus, point: int, gpus: Ints) -> PointPlan:
    """The replicas with which each llm is quickest on its GPUs."""
    offer, demand = tables.offer, tables.demand
    stages_s = np.array([tables.latency_s[point, llm, count] for llm, count in enumerate(gpus)])
    instances = sum(
        (cascadia.replicas_by_shape(tables, point, llm, int(count)) for llm, count in enumerate(gpus)),
        np.zeros(offer.llm.size, np.int64),
    )
    usd = float(instances @ offer.usd_per_hour) + offer.judging_usd(point, demand.requests_per_s)
    longest_s = float(offer.p95_s[np.isfinite(offer.p95_s)].max())  # the tables' end: all carry something
    return PointPlan(point, instances, usd, float(stages_s.max()), np.full(len(gpus), longest_s))


def cascadia_planner(tables: cascadia.LatencyByGpus, quality: float) -> Callable[[int], PointAndGpus]:
    """Cascadia's planner; it is asked for a standard error of quality on top, like the others here."""
    asked = quality + float(tables.offer.error.max())

    def plan(gpus: int) -> PointAndGpus:
        found = cascadia.search_cascade(cascadia.CascadeSearch(tables, gpus), asked)
        return (found.point, found.gpus) if np.isfinite(found.latency_s) else None

    return plan


def uniform_planner(tables: cascadia.LatencyByGpus, quality: float) -> Callable[[int], PointAndGpus]:
    """As many GPUs for each llm."""
    asked, llms = quality + float(tables.offer.error.max()), tables.offer.shares.shape[1]

    def plan(gpus: int) -> PointAndGpus:
        point, latency_s = best_uniform_point(cascadia.CascadeSearch(tables, gpus), asked)
        return (point, np.full(llms, gpus // llms)) if np.isfinite(latency_s) else None

    return plan


def cascadeserve_planner(tables: cascadia.LatencyByGpus, quality: float) -> Callable[[int], PointAndGpus]:
    """CascadeServe's planner: by load alone, all requests taken for mean ones."""
    most = tables.latency_s.shape[2] - 1
    return cascadia_planner(mean_length_tables(tables, most), quality)


def best_uniform_point(search: cascadia.CascadeSearch, quality: float) -> tuple[int, float]:
    """Point and latency where each llm has as many GPUs as the others."""
    llms = search.offer.shares.shape[1]
    latency_s = search.tables.latency_s[:, :, search.gpus // llms].max(axis=1)
    return best_point(search.offer, latency_s, quality)


def mean_length_tables(tables: cascadia.LatencyByGpus, gpus: int) -> cascadia.LatencyByGpus:
    """The tables on up to so many GPUs as if all requests were mean ones: CascadeServe's."""
    offer = tables.offer
    everything = offer.mix[offer.shares.sum(axis=1).argmax()]
    alike = offer._replace(mix=np.broadcast_to(everything, offer.mix.shape))
    return cascadia.latency_by_gpus(alike, tables.demand, gpus)


def best_point(offer: QualityOffer, latency_s: Floats, quality: float) -> tuple[int, float]:
    """The point with the least latency among those with the quality; inf where there is none."""
    allowed_s = np.where(offer.quality >= quality, latency_s, np.inf)
    point = int(allowed_s.argmin())
    return point, float(allowed_s[point])
