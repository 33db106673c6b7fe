"""How a cascade's thresholds move while its fleet stays: by CascadeServe's gears, or by a valve."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from quality_shift import Plan, Service

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.quality_milp import (
    PointPlan,
    QualityDemand,
    QualityOffer,
    latency_splits,
    replica_capacity_per_s,
)
from fleetcast.models.replay.kernel_inputs import NO_INDEX, Rules
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.world.mechanisms import GearTrigger

VALVE = ((0.6, 2 / 3), (0.8, 1 / 3), (1.0, 0.0))  # load of the llm behind, and what is left of the threshold
Table = Sequence[tuple[float, Floats]]  # from what level on which thresholds hold


def rules_of(service: Service, plan: Plan, table: Table = (), by: int = GearTrigger.RATE) -> Rules:
    """The plan's thresholds; with a table of (least, thresholds) those of the gear."""
    llms = len(service.shapes)
    world = service.catalogue.serving([shape.llm for shape in service.shapes])
    rules = make_rules(world, service.config.replay, "follow")
    below, judge_s = np.zeros(llms), np.full(llms, service.judge.seconds)
    below[:-1] = plan.thresholds
    rules = rules._replace(go_on_below=below, judge_s=judge_s, route_utilisation_share=1.0)
    if not table:
        return rules
    seen = np.append(np.arange(1, llms) if by == GearTrigger.LOAD else np.zeros(llms - 1, np.int64), NO_INDEX)
    least = np.tile([at for at, _ in table], (llms, 1))
    shifted = np.stack([np.append(thresholds, 0.0) for _, thresholds in table], axis=1)
    return rules._replace(gears_by=int(by), gear_llm=seen, gear_from=least, gear_below=shifted)


def geared(service: Service, offer: QualityOffer, answer: PointPlan, most_per_s: float) -> Table:
    """CascadeServe's table: by measured rate what the fleet of the plan carries in time."""
    caps = np.full(len(service.catalogue.gpus), service.gpus)
    loads = np.linspace(most_per_s / 24, most_per_s, 24)
    found = gears(offer, QualityDemand(1.0, caps), answer.instances, service.latency_s, loads)
    first = [(0.0, offer.thresholds[found[0].point])]
    return [*first, *((gear.from_per_s, offer.thresholds[gear.point]) for gear in found[1:])]


def valve(plan: Plan) -> Table:
    """Lower thresholds while the llm behind is full."""
    return [(0.0, plan.thresholds), *((least, left * plan.thresholds) for least, left in VALVE)]


class Gear(NamedTuple):
    """What thresholds hold from a load on."""

    from_per_s: float
    point: int


def keeps_up(
    offer: QualityOffer, demand: QualityDemand, point: int, instances: Ints, latency_s: float
) -> bool:
    """Whether replicas that stand carry a point's load within a latency."""
    load = demand.requests_per_s * offer.shares[point]
    for within_s in latency_splits(offer, point, latency_s):
        carried = np.bincount(
            offer.llm, instances * replica_capacity_per_s(offer, point, within_s), load.size
        )
        if (carried >= load - 1e-9).all():
            return True
    return False


def gears(
    offer: QualityOffer, demand: QualityDemand, instances: Ints, latency_s: float, loads: Floats
) -> list[Gear]:
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
