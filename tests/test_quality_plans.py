"""Plans for quality on tables: exact ones against brute force, those of the papers against them; fronts."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quality_oracles import busy_share, enumerated, exhaustive, front, hypervolume, min_max_programme

from fleetcast.models.plan import boute, cascadia
from fleetcast.models.plan.pareto_front import not_dominated
from fleetcast.models.plan.quality_milp import (
    JUDGE_PARTS,
    PointPlan,
    QualityDemand,
    QualityOffer,
    cheapest_point_plan,
    compositions,
    replica_capacity_per_s,
    replica_loads,
    table_end_loads,
)
from fleetcast.models.plan.quality_objectives import (
    best_quality_plan,
    cost_front,
    least_cost_plan,
    least_latency_plan,
)
from fleetcast.models.plan.quality_regions import (
    MultiRegionPlan,
    RegionalDemand,
    cheapest_regional_plan,
    points_without_longer_mix,
    reference_work,
)

SEEDS = st.integers(0, 10_000)
FEW = settings(max_examples=25)


def some_offer(
    seed: int, llms: int = 2, gpu_types: int = 2, rule: str = "route", points: int = 5
) -> QualityOffer:
    """Random curves of two shapes of each llm on each GPU type; larger llms are better and slower."""
    rng = np.random.default_rng(seed)
    llm, gpu, size = np.array(list(product(range(llms), range(gpu_types), (1, 2)))).T
    shares = np.sort(rng.random((points, llms)), axis=1)[:, ::-1] if rule == "cascade" else None
    if shares is None:
        shares = rng.dirichlet(np.ones(llms), points)
        shares[0], shares[-1] = np.eye(llms)[0], np.eye(llms)[-1]
    else:
        shares[:, 0] = 1.0
        shares[0, 1:], shares[-1] = 0.0, 1.0
    levels = np.linspace(0, 1, 6)
    peak = rng.uniform(4, 12, llm.size)[:, None, None] * size[:, None, None] ** 0.8 / (1 + llm[:, None, None])
    idle = rng.uniform(1, 3, llm.size)[:, None, None] * (1 + llm[:, None, None]) / size[:, None, None] ** 0.5
    mixes = np.linspace(1, 1.5, 3)[None, :, None]
    return QualityOffer(
        rule,
        np.sort(rng.random((points, llms - 1)), axis=1),
        0.4 + 0.2 * shares[:, -1],
        np.full(points, 0.001),
        shares,
        rng.uniform(0, 2, (points, llms)),
        llm,
        gpu,
        size,
        size * np.array([2.5, 0.9, 1.7])[gpu],
        peak / mixes * np.maximum(levels, 0.02),
        idle * mixes * (1 + levels**2 * 3),
        shares[:, :-1].sum(axis=1) if rule == "cascade" else np.zeros(points),
        0.25,
    )


def best_split(p95_s: np.ndarray, units: int) -> float:
    """By search (BoUTE 5.1): the least largest P95 of replicas that share a load; p95_s (replicas, units+1).

    p95_s[i,u] is what replica i takes with u units of the load.
    """
    best = np.where(np.arange(units + 1) == 0, 0.0, np.inf)
    for own in p95_s:
        best = np.array([np.maximum(best[: u + 1], own[u::-1]).min() for u in range(units + 1)])
    return float(best[units])


def some_demand(offer: QualityOffer, cap: int = 3) -> QualityDemand:
    return QualityDemand(8.0, np.full(int(offer.gpu.max()) + 1, cap))


def by_brute_force(offer: QualityOffer, demand: QualityDemand, point: int, within_s: np.ndarray) -> float:
    """The least cost over all numbers of replicas that the GPUs allow."""
    carry = replica_capacity_per_s(offer, point, within_s)
    load = demand.requests_per_s * offer.shares[point] * (offer.shares[point] > 1e-4)
    most = [int(demand.cap_gpus[g]) // int(size) for g, size in zip(offer.gpu, offer.gpus, strict=True)]
    best = np.inf
    for numbers in product(*(range(m + 1) for m in most)):
        n = np.array(numbers)
        carried = np.bincount(offer.llm, n * carry, load.size)
        used = np.bincount(offer.gpu, n * offer.gpus, demand.cap_gpus.size)
        if (carried >= load - 1e-9).all() and (used <= demand.cap_gpus).all():
            best = min(best, float(n @ offer.usd_per_hour))
    return best


@FEW
@given(SEEDS, st.floats(4, 20))
def test_no_combination_of_candidates_is_cheaper_than_the_exact_plan(seed: int, latency_s: float) -> None:
    offer = some_offer(seed)
    demand = some_demand(offer)
    said = list(boute.boute_plans(offer, demand, 0.45, latency_s))
    assert [one.usd_per_hour for one in said] == sorted(one.usd_per_hour for one in said)
    least = usd(least_cost_plan(offer, demand, 0.45, latency_s))
    assert all(one.usd_per_hour >= least - 1e-9 and one.latency_s <= latency_s for one in said)
    for point, llm in product(range(5), range(2)):  # no number of replicas of a shape beats the candidates
        carry = replica_capacity_per_s(offer, point, np.full(2, latency_s))
        found = boute.deployment_candidates(offer, demand, point, llm)
        for s in np.flatnonzero(offer.llm == llm):
            for count in range(1, int(demand.cap_gpus[offer.gpu[s]]) // int(offer.gpus[s]) + 1):
                if count * carry[s] >= demand.requests_per_s * offer.shares[point, llm]:
                    most = count * offer.usd_per_hour[s] + 1e-9, 1.1 * latency_s  # its latencies are a grid
                    assert any(
                        (c.usd_per_hour, c.latency_s) <= most and c.latency_s <= most[1] for c in found
                    )


@FEW
@given(SEEDS, st.floats(2, 12))
def test_regions_carry_their_load_together_for_no_more_than_apart(seed: int, latency_s: float) -> None:
    """Nor for more than one region alone; each request has a replica that carries it; moves balance."""
    offer, rng = some_offer(seed, points=9), np.random.default_rng(seed)
    offer = offer._replace(
        mix=np.where(offer.shares > 1e-4, offer.mix, 2.0),  # the longest one where no request is
        p95_s=offer.p95_s * rng.uniform(0.5, 1.5, (8, 3, 1)),  # a longer mix may be quicker
    )
    regions = RegionalDemand(rng.uniform(2, 10, 3), rng.integers(2, 9, (3, 2)))
    rates = regions.requests_per_s
    whole = cheapest_regional_plan(offer, regions, 0.48, latency_s, gap_share=0.0)
    by_reference = [
        usd(cheapest_regional_plan(offer, regions, 0.48, latency_s, gap_share=0.0, references=[p]))
        for p in range(9)
    ]
    assert usd(whole) == pytest.approx(min(by_reference))
    for cap_gpus in regions.cap_gpus:
        alone = least_cost_plan(offer, QualityDemand(rates.sum(), cap_gpus), 0.48, latency_s)
        assert alone is None or by_reference[alone.point] <= alone.usd_per_hour + 1e-6
    if whole is None:
        return
    assert whole.bound_usd == pytest.approx(whole.usd_per_hour, rel=1e-5)
    apart = [
        cheapest_regional_plan(
            offer,
            RegionalDemand(*(of[j : j + 1] for of in regions)),
            0.48,
            latency_s,
            gap_share=0.0,
            references=[whole.reference],
        )
        for j in range(3)
    ]
    assert whole.usd_per_hour <= sum(usd(one) for one in apart) + 1e-6
    assert whole.shares.sum(axis=1) == pytest.approx(1.0)
    assert rates @ whole.shares @ offer.quality >= (0.48 - 1e-6) * rates.sum()
    load = (rates @ whole.shares)[:, None] * offer.shares
    assert busy_share(offer, whole.instances.sum(axis=1), load, latency_s) <= 1 + 1e-6
    for j in range(3):
        used = np.bincount(offer.gpu, whole.instances[:, j] * offer.gpus, 2)
        assert (used <= regions.cap_gpus[j]).all()
    kept = points_without_longer_mix(offer, whole.reference)
    carry, works = reference_work(offer.only(points=kept), latency_s)
    is_served = np.isfinite(works).all(axis=1)
    for point in np.flatnonzero(is_served):
        own = replica_capacity_per_s(offer.only(points=kept), int(point), np.full(2, latency_s))
        share = np.where(offer.shares > 1e-4, offer.shares, 0.0)[kept][point, offer.llm]
        assert (own * works[point, offer.llm] >= share * carry - 1e-9).all(), "in the time of the reference"
    assert (whole.shares[:, kept][:, ~is_served] == 0).all()
    work = rates * (whole.shares[:, kept][:, is_served] @ works[is_served]).T
    requests, moved = rates * (whole.shares @ offer.shares).T, whole.moved_per_s
    assert moved.sum(axis=1) == pytest.approx(0.0, abs=1e-6), "requests of an llm"
    assert (moved <= requests + 1e-6).all()
    for m in range(2):
        gone = work[m] * np.maximum(moved[m], 0.0) / np.maximum(requests[m], 1e-12)
        come = gone.sum() * np.maximum(-moved[m], 0.0) / max(-moved[m].clip(max=0.0).sum(), 1e-12)
        carried = (carry * (offer.llm == m)) @ whole.instances
        assert (work[m] - gone + come <= carried + 1e-5).all()
    turned = cheapest_regional_plan(
        offer, RegionalDemand(*(of[::-1] for of in regions)), 0.48, latency_s, gap_share=0.0
    )
    assert usd(turned) == pytest.approx(whole.usd_per_hour)  # whatever the order of the regions
    one = offer.only(points=np.arange(9) == 2)._replace(mix=np.ones((1, 2)))
    there = QualityDemand(6.0, regions.cap_gpus[0])
    alike = cheapest_regional_plan(
        one, RegionalDemand(np.array([6.0]), regions.cap_gpus[:1]), 0.0, latency_s, gap_share=0.0
    )
    assert usd(cheapest_point_plan(one, there, 0, latency_s)) == pytest.approx(usd(alike))


def usd(found: PointPlan | MultiRegionPlan | None) -> float:
    return np.inf if found is None else found.usd_per_hour


@FEW
@given(SEEDS, st.floats(2, 12))
def test_the_programme_finds_what_brute_force_finds(seed: int, latency_s: float) -> None:
    offer = some_offer(seed, gpu_types=1)
    demand = some_demand(offer, cap=4)
    for point in range(2):
        expected = by_brute_force(offer, demand, point, np.full(2, latency_s))
        assert usd(cheapest_point_plan(offer, demand, point, latency_s)) == pytest.approx(expected)
    legs = some_offer(seed, gpu_types=1, rule="cascade")
    split = min(
        by_brute_force(legs, demand, 1, (latency_s - 0.25) * np.array(parts) / 8)
        for parts in compositions(8, 2)
    )
    assert usd(cheapest_point_plan(legs, demand, 1, latency_s)) == pytest.approx(split)


@settings(max_examples=8)
@given(SEEDS, st.floats(20, 60))
def test_a_judge_of_the_catalogue_is_covered_and_its_legs_share_the_latency(
    seed: int, latency_s: float
) -> None:
    """The first of three llms judges the drafts of the second, of which the third answers some anew."""
    three = some_offer(seed, llms=3, gpu_types=1)
    gone = np.array([0.0, 0.2, 0.5, 0.8, 1.0])
    offer = three._replace(
        rule="cascade",
        thresholds=gone[:, None],
        shares=np.column_stack([gone > 0, np.ones(5), gone]),
        judged=(gone > 0).astype(float),
        judge_s=0.0,
        p95_s=np.where((three.llm == 0)[:, None, None], 0.05, 1.0) * three.p95_s,
    )
    demand, parts = QualityDemand(1.0, np.array([3])), list(compositions(8, 2))
    expected = np.inf
    for part in JUDGE_PARTS:
        rest_s = latency_s * (1 - part)
        splits = [np.array([part * latency_s, rest_s * a / 8, rest_s * b / 8]) for a, b in parts]
        expected = min(expected, *(by_brute_force(offer, demand, 2, within_s) for within_s in splits))
    found = cheapest_point_plan(offer, demand, 2, latency_s)
    assert usd(found) == pytest.approx(expected)
    if found is not None:
        assert (np.bincount(offer.llm, found.instances) > 0).all()
        assert found.within_s.sum() <= latency_s * (1 + 1e-9)
    assert found is not None or latency_s < 40
    alone = cheapest_point_plan(offer, demand, 0, latency_s)
    assert alone is None or alone.instances[offer.llm != 1].sum() == 0, "without a judge no request goes on"


@FEW
@given(SEEDS)
def test_no_enumerated_plan_dominates_the_exact_front(seed: int) -> None:
    offer = some_offer(seed)
    demand = some_demand(offer)._replace(budget_usd_per_hour=9.0)
    exact, searched = front(offer, demand), enumerated(offer, demand)
    for one in searched:
        better = [e for e in exact if offer.quality[e.point] >= offer.quality[one.point]]
        assert min(e.latency_s for e in better) <= one.latency_s * 1.006
    for found in (exact, searched):
        printed = np.array([(one.latency_s, -offer.quality[one.point]) for one in found]).reshape(-1, 2)
        assert not_dominated(printed).all()
        assert all(one.usd_per_hour <= 9.0 + 1e-9 for one in found)


@FEW
@given(SEEDS)
def test_the_three_questions_agree(seed: int) -> None:
    """What is least cost for (q, t) is no more than any budget for which (q, t) can be had, and so on."""
    offer = some_offer(seed)
    demand = some_demand(offer)
    quickest = least_latency_plan(offer, demand._replace(budget_usd_per_hour=12.0), 0.45)
    if quickest is None:
        return
    cheap = least_cost_plan(offer, demand, 0.45, quickest.latency_s)
    assert cheap is not None
    assert cheap.usd_per_hour <= 12.0 + 1e-6
    best = best_quality_plan(
        offer, demand._replace(budget_usd_per_hour=cheap.usd_per_hour + 1e-6), quickest.latency_s
    )
    assert best is not None
    assert offer.quality[best.point] >= offer.quality[cheap.point]
    costs = [one.usd_per_hour for one in cost_front(offer, demand, quickest.latency_s)]
    assert costs == sorted(costs, reverse=True)


@FEW
@given(SEEDS, st.integers(1, 5), st.integers(1, 12))
def test_the_best_split_of_a_load_is_that_of_capacities_that_add(
    seed: int, replicas: int, units: int
) -> None:
    rng = np.random.default_rng(seed)
    p95_s = np.cumsum(rng.uniform(0.1, 1, (replicas, units + 1)), axis=1)
    p95_s[:, 0] = 0.0  # who has no load makes no request wait
    found = best_split(p95_s, units)
    enough = [t for t in np.unique(p95_s) if ((p95_s <= t).sum(axis=1) - 1).sum() >= units]
    assert found == pytest.approx(min(enough))


@FEW
@given(SEEDS, st.integers(1, 4))
def test_the_knapsack_is_that_of_brute_force(seed: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, classes)
    costs, values = ([rng.integers(1, 9, n).astype(float) for n in sizes] for _ in range(2))
    chosen = boute.solve_knapsack(costs, values, 10.0)
    assert chosen is not None

    def worth(picked: tuple[int, ...]) -> float:
        cost, value = (sum(float(of[c][n]) for c, n in enumerate(picked) if n >= 0) for of in (costs, values))
        return value if cost <= 10.0 else -1.0

    assert worth(tuple(chosen)) == max(worth(picked) for picked in product(*(range(-1, n) for n in sizes)))


@FEW
@given(SEEDS)
def test_the_min_max_programme_is_bisection_is_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = np.sort(rng.uniform(1, 30, (3, 9)), axis=1)[:, ::-1]
    table[:, : int(rng.integers(0, 3))] = np.inf
    expected = min(
        (max(table[i, f] for i, f in enumerate(fs)) for fs in product(range(9), repeat=3) if sum(fs) <= 8),
        default=np.inf,
    )
    gpus, latency_s = cascadia.allocate_min_max(table, 8)
    assert latency_s == expected
    if np.isfinite(expected):
        assert gpus.sum() <= 8
        assert max(table[i, f] for i, f in enumerate(gpus)) == expected
        assert min_max_programme(table, 8)[1] == pytest.approx(expected)


@FEW
@given(SEEDS)
def test_the_search_never_beats_going_through_all(seed: int) -> None:
    offer = some_offer(seed, llms=3, gpu_types=1, rule="cascade", points=12)
    tables = cascadia.latency_by_gpus(offer, some_demand(offer), 12)
    search = cascadia.CascadeSearch(tables, 12)
    percent = cascadia.CascadeSearch(tables._replace(offer=offer._replace(quality=100 * offer.quality)), 12)
    percent.known = search.known
    for quality in (0.42, 0.5, 0.58):
        whole, found = exhaustive(search, quality), cascadia.search_cascade(search, quality)
        for point in range(12):  # whatever the unit of quality
            assert percent.score(point, 100 * quality) == pytest.approx(search.score(point, quality))
        assert search.score(found.point, quality) >= search.score(whole.point, quality)
        assert found.gpus.sum() <= 12
    for llm, gpus in product(range(3), range(13)):
        counts = cascadia.replicas_by_shape(tables, whole.point, llm, gpus)
        assert counts @ offer.gpus <= gpus
        assert (counts[offer.llm != llm] == 0).all()
        latency_s = tables.latency_s[whole.point, llm, gpus]
        if 0 < latency_s < np.inf:
            carried = counts @ replica_capacity_per_s(offer, whole.point, np.full(3, latency_s))
            assert carried >= 8.0 * offer.shares[whole.point, llm] * (1 - 1e-9)


@FEW
@given(SEEDS)
def test_baselines_are_plans_of_the_same_space(seed: int) -> None:
    offer = some_offer(seed)
    demand = some_demand(offer, cap=6)
    for latency_s in (4.0, 8.0):
        best = usd(least_cost_plan(offer, demand, 0.45, latency_s))
        equal = boute.cheapest_equal_spend_plan(offer, demand, 0.45, latency_s)
        assert best <= usd(boute.cheapest_last_llm_plan(offer, demand, latency_s)) + 1e-9
        # each llm's part is bought as if the GPUs were its own; where they are, the whole is a plan
        used = np.zeros(2) if equal is None else np.bincount(offer.gpu, equal.instances * offer.gpus, 2)
        if (used <= demand.cap_gpus).all():
            assert best <= usd(equal) + 1e-9
        assert best <= usd(least_cost_plan(offer.only(shapes=offer.gpu == 0), demand, 0.45, latency_s)) + 1e-9


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12))
def test_fronts_and_their_area_are_as_defined(points: list[tuple[int, int]]) -> None:
    costs = np.array(points, float)
    kept = not_dominated(costs)
    for n, one in enumerate(costs):
        beaten = any((o <= one).all() and (o < one).any() for o in costs)
        twin = any((o == one).all() for o in costs[:n])
        assert kept[n] == (not beaten and not twin)
    cells = [(x + 0.5, y + 0.5) for x in range(7) for y in range(7)]
    area = sum(any(x > a and y > b for a, b in points) for x, y in cells)
    assert hypervolume(costs, np.array([7.0, 7.0])) == area
    assert hypervolume(costs[kept], np.array([7.0, 7.0])) == area


def test_a_mix_between_two_counts_as_the_longer_one() -> None:
    offer = some_offer(3)._replace(mix=np.full((5, 2), 0.25))
    within = np.full(2, 6.0)
    between = replica_capacity_per_s(offer, 1, within)
    np.testing.assert_array_equal(
        between, replica_capacity_per_s(offer._replace(mix=np.ones((5, 2))), 1, within)
    )
    assert (between <= replica_capacity_per_s(offer._replace(mix=np.zeros((5, 2))), 1, within)).all()
    assert (between < replica_capacity_per_s(offer._replace(mix=np.zeros((5, 2))), 1, within)).any()


def test_a_judge_that_is_paid_counts_in_cost_and_budget() -> None:
    """Of a cascade every answer but the last llm's is judged; a router looks at every request, once."""
    offer = some_offer(3, gpu_types=1, rule="cascade")
    demand = some_demand(offer, cap=8)
    free, paid = (
        cheapest_point_plan(o, demand, 2, 12.0) for o in (offer, offer._replace(judge_usd_per_1000=0.5))
    )
    assert free is not None
    assert paid is not None
    assert paid.usd_per_hour - free.usd_per_hour == pytest.approx(8.0 * 3.6 * 0.5)
    dear = offer._replace(judge_usd_per_1000=0.5)
    assert (
        cheapest_point_plan(dear, demand._replace(budget_usd_per_hour=free.usd_per_hour + 1), 2, 12.0) is None
    )
    routed = some_offer(3)._replace(judged=np.array([0.0, 1.0, 1.0, 1.0, 0.0]))
    routed, roomy = routed._replace(mix=np.zeros((5, 2))), some_demand(routed, cap=8)
    sold = routed._replace(judge_usd_per_1000=0.5)
    of_free, of_sold = (
        {
            (one.point, one.instances.tobytes()): one.usd_per_hour
            for one in boute.boute_plans(o, roomy, 0.4, 15.0)
        }
        for o in (routed, sold)
    )
    assert {point for point, _ in of_free} >= {1, 2, 3}
    for (point, instances), usd_per_hour in of_free.items():
        more = of_sold[point, instances] - usd_per_hour
        assert more == pytest.approx(8.0 * 3.6 * 0.5 * routed.judged[point])
    once = usd(boute.cheapest_equal_spend_plan(sold, roomy, 0.4, 15.0)) - usd(
        boute.cheapest_equal_spend_plan(routed, roomy, 0.4, 15.0)
    )
    assert once == pytest.approx(8.0 * 3.6 * 0.5)


@FEW
@given(SEEDS)
def test_replicas_share_a_load_by_what_they_carry(seed: int) -> None:
    offer = some_offer(seed)
    plan = cheapest_point_plan(offer, some_demand(offer), 2, 12.0)
    if plan is not None:
        each = replica_loads(offer, some_demand(offer), plan)
        np.testing.assert_allclose(np.bincount(offer.llm, each * plan.instances), 8.0 * offer.shares[2])
        assert (each <= replica_capacity_per_s(offer, 2, plan.within_s) * (1 + 1e-9)).all()
        assert (each <= table_end_loads(offer, 2) * (1 + 1e-9)).all()
