"""Plans of cascades on GPUs of one type, as their papers make them: Cascadia's, uniform ones, CascadeServe's.

Each says what to do with so many GPUs; from the fewest on they are plans by rising cost.

Algorithm 1     GPUs and thresholds by Cascadia's search
uniform         as many GPUs for each llm, the best thresholds for that
CascadeServe    as Algorithm 1's tables, but all requests are taken for mean ones; and gears: for a fleet that
                stands, the thresholds of the best quality that it keeps in time, load by load
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from fleetcast.models.plan import cascadia
from fleetcast.models.plan.cascadia_baselines import tables_of_mean_lengths, uniform_gpus
from fleetcast.models.plan.quality import Answer, Demand, Floats, Ints, Offer, carries, splits

Found = tuple[int, Ints] | None  # a point, and the GPUs of each llm


class Gear(NamedTuple):
    """What thresholds hold from a load on."""

    from_per_s: float
    point: int


def answers(tables: cascadia.Tables, latency_s: float, plan: Callable[[int], Found]) -> Iterator[Answer]:
    """What a planner says for rising numbers of GPUs, where no stage takes longer than the latency.

    The tables are of one GPU type; `plan` is called with the number of GPUs.
    """
    last: Answer | None = None
    for gpus in range(1, tables.latency_s.shape[2]):
        found = plan(gpus)
        if found is None:
            continue
        one = answer_of(tables, *found)
        is_new = last is None or one.point != last.point or (one.instances != last.instances).any()
        if is_new and one.latency_s <= latency_s and one.usd_per_hour <= tables.demand.budget_usd_per_hour:
            yield one
            last = one


def answer_of(tables: cascadia.Tables, point: int, gpus: Ints) -> Answer:
    """The replicas with which each llm is quickest on its GPUs."""
    offer, demand = tables.offer, tables.demand
    stages_s = np.array([tables.latency_s[point, llm, count] for llm, count in enumerate(gpus)])
    instances = sum(
        (cascadia.replicas(tables, point, llm, int(count)) for llm, count in enumerate(gpus)),
        np.zeros(offer.llm.size, np.int64),
    )
    usd = float(instances @ offer.usd_per_hour) + offer.judging_usd(point, demand.requests_per_s)
    longest_s = float(offer.p95_s[np.isfinite(offer.p95_s)].max())  # the tables' end: all carry something
    return Answer(point, instances, usd, float(stages_s.max()), np.full(len(gpus), longest_s))


def by_algorithm1(tables: cascadia.Tables, quality: float) -> Callable[[int], Found]:
    """Cascadia's planner; it is asked for a standard error of quality on top, like the others here."""
    asked = quality + float(tables.offer.error.max())

    def plan(gpus: int) -> Found:
        found = cascadia.algorithm1(cascadia.Search(tables, gpus), asked)
        return (found.point, found.gpus) if np.isfinite(found.latency_s) else None

    return plan


def by_equal_parts(tables: cascadia.Tables, quality: float) -> Callable[[int], Found]:
    """As many GPUs for each llm."""
    asked, llms = quality + float(tables.offer.error.max()), tables.offer.shares.shape[1]

    def plan(gpus: int) -> Found:
        point, latency_s = uniform_gpus(cascadia.Search(tables, gpus), asked)
        return (point, np.full(llms, gpus // llms)) if np.isfinite(latency_s) else None

    return plan


def by_mean_lengths(tables: cascadia.Tables, quality: float) -> Callable[[int], Found]:
    """CascadeServe's planner: by load alone, all requests taken for mean ones."""
    most = tables.latency_s.shape[2] - 1
    return by_algorithm1(tables_of_mean_lengths(tables, most), quality)


def keeps_up(offer: Offer, demand: Demand, point: int, instances: Ints, latency_s: float) -> bool:
    """Whether replicas that stand carry a point's load within a latency."""
    load = demand.requests_per_s * offer.shares[point]
    for within_s in splits(offer, point, latency_s):
        carried = np.bincount(offer.llm, instances * carries(offer, point, within_s), load.size)
        if (carried >= load - 1e-9).all():
            return True
    return False


def gears(offer: Offer, demand: Demand, instances: Ints, latency_s: float, loads: Floats) -> list[Gear]:
    """For each load, requests/s, rising: the best quality that these replicas carry in time.

    Where they carry nothing in time, the least work for the last llm.
    """
    found: list[Gear] = []
    order = np.argsort(-offer.quality, kind="stable").tolist()
    least = int(offer.shares[:, 1:].sum(axis=1).argmin())
    for load in loads.tolist():
        now = demand._replace(requests_per_s=load)
        point = next((p for p in order if keeps_up(offer, now, p, instances, latency_s)), least)
        if not found or point != found[-1].point:
            found.append(Gear(load, point))
    return found
