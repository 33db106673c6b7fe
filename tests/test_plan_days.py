"""Plans of a day, what a fleet needs at least, and questions that contradict themselves."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from plan_cases import a_problem, problems, roomy

from fleetcast.models.plan.corrected_plan import solve_corrected
from fleetcast.models.plan.cost_bounds import hour_cost_bounds
from fleetcast.models.plan.day_plans import hourly_plans, peak_plan, spot_after, spot_that_fits
from fleetcast.models.plan.problem import PlanError, Problem
from fleetcast.models.plan.problem_checks import find_contradictions
from fleetcast.models.plan.sageserve_plan import plan_from_instances, solve_sageserve
from fleetcast.models.plan.solver import SolverOptions

EXACT = SolverOptions(gap_share=0.0)
by_paper, by_corrected = (partial(solve, options=EXACT) for solve in (solve_sageserve, solve_corrected))


@pytest.mark.parametrize("solve", [by_paper, by_corrected], ids=["paper", "corrected"])
def test_the_chain_starts_each_hour_from_the_last(solve) -> None:
    hours = [a_problem(demand_tokens_per_s=np.full((2, 2, 2), level)) for level in (150.0, 300.0, 50.0)]
    start = np.full((2, 2, 1), 2)
    plans = hourly_plans(hours, start, np.zeros_like(start), solve)
    before = [plan.instances - plan.delta for plan in plans]
    assert (before[0] == start).all()
    assert all((now == last.instances).all() for now, last in zip(before[1:], plans, strict=False))
    assert plans[2].delta.min() < 0 < plans[1].delta.max()


def test_what_one_hour_donates_the_next_takes_back() -> None:
    levels = (400.0, 50.0, 400.0)
    hours = [a_problem(l=1, demand_tokens_per_s=np.full((1, 2, 2), level)) for level in levels]
    start = np.full((1, 2, 1), 4)
    first, low, high = hourly_plans(hours, start, np.zeros_like(start), by_corrected)
    assert low.donated.sum() == first.instances.sum() - low.instances.sum() > 0
    assert (high.reclaimed == low.donated).all()
    assert not high.started.any()
    again = hours[2]._replace(instances_now=low.instances, spot=low.donated)
    assert not spot_after(again, high).any()


def test_a_cold_start_takes_the_vm_of_whoever_donated_most() -> None:
    """12 GPUs: 4 serve, 4 + 3 are donated, one is free; starting 3 takes that and two donated ones."""
    problem = a_problem(
        r=1,
        uses=np.ones((2, 1, 1), dtype=np.int64),
        instances_now=np.full((2, 1, 1), 2),
        spot=np.array([[[4]], [[3]]]),
    )
    plan = by_corrected(problem)
    plan = plan._replace(instances=np.array([[[2]], [[5]]]), started=np.array([[[0]], [[3]]]))
    plan = plan._replace(reclaimed=plan.started * 0, donated=plan.started * 0)
    assert spot_after(problem, plan).ravel().tolist() == [2, 3]


def test_only_who_holds_gpus_of_a_type_makes_room_for_it() -> None:
    """Four serve on gpu0, which has 5: of three donated there one fits; on gpu1 there is room for eight."""
    problem = a_problem(
        l=1, r=1, g=2, cap_gpus=np.array([[5, 20]]), instances_now=np.array([[[4, 0]]]),
        uses=np.array([[[1, 0], [0, 2]]]),
    )  # fmt: skip
    assert spot_that_fits(problem, problem.instances_now, np.array([[[3, 8]]])).tolist() == [[[1, 8]]]


def test_the_peak_covers_every_hour() -> None:
    hours = [a_problem(demand_tokens_per_s=np.full((2, 2, 2), level)) for level in (150.0, 300.0, 50.0)]
    peak = peak_plan(hours, by_paper)
    for hour in hours:
        assert not plan_from_instances(hour, peak.instances).short_llm_tokens_per_s.any()
        assert not plan_from_instances(hour, peak.instances).short_tokens_per_s.any()


def test_the_peak_counts_buffers_and_the_worst_capacity_and_starts_for_nothing() -> None:
    """750 tokens/s are 8 instances of 100, or 10 of 75; 100 more in the buffer are one instance more."""
    hour = a_problem(l=1, r=1, demand_tokens_per_s=np.full((1, 1, 1), 750.0), max_instances=np.array([[20]]))
    count = [
        int(peak_plan(hours, by_paper).instances.sum())
        for hours in (
            [hour, hour],
            [hour._replace(buffer_tokens_per_s=np.array([[100.0]])), hour],
            [hour, hour._replace(tokens_per_s=np.array([[75.0]]))],
        )
    ]
    assert count == [8, 9, 10]
    start_is_dear = hour._replace(boot_spot_s=np.array([[1e6]]))
    assert peak_plan([start_is_dear], by_paper).objective_usd == 8 * 2.0


@settings(max_examples=40)
@given(problems())
def test_no_plan_that_serves_all_holds_less_than_the_bounds(problem: Problem) -> None:
    problem = roomy(problem)._replace(
        min_instances=problem.min_instances + 1,
        boot_cold_s=problem.boot_cold_s * 0,
        boot_spot_s=problem.boot_spot_s * 0,
    )
    least = hour_cost_bounds(problem)
    assert list(least) == sorted(least)
    for solve in (by_paper, by_corrected):
        plan = solve(problem)
        held_usd = float((plan.instances * problem.usd_per_hour[:, None, :]).sum())
        assert not plan.short_llm_tokens_per_s.any()
        assert least.whole_hours_usd <= held_usd + 1e-6


def test_the_bounds_of_an_hour_by_hand() -> None:
    """Regions ask 150 and 150, then 50 and 40 tokens/s; an instance serves 100 for 2 USD an hour."""
    problem = a_problem(l=1, demand_tokens_per_s=np.array([[[150.0, 50.0], [150.0, 40.0]]]))
    assert hour_cost_bounds(problem) == pytest.approx(
        (2 * (3.0 + 0.9) / 2, 2 * (3 + 1) / 2, 2 * (3 + 1) / 2, 2 * 3)
    )
    wanted = problem._replace(min_instances=np.full((1, 2), 2))
    assert hour_cost_bounds(wanted)[2:] == pytest.approx((2 * 4, 2 * 4))


@pytest.mark.parametrize("of_all", [0, 7])
@pytest.mark.parametrize("of_each", [(0, 0), (3, 0), (0, 2)])
@pytest.mark.parametrize("theta", [(100.0, 260.0), (100.0, 190.0)])  # of 2 and of 5 USD: either may pay
def test_the_bounds_of_two_options_are_those_of_going_through_all(theta, of_each, of_all) -> None:
    needs = np.array([30.0, 500.0, 790.0])
    hour = a_problem(
        l=1, r=1, g=2, w=3, demand_tokens_per_s=needs[None, None], min_instances=np.array([[of_all]]),
        tokens_per_s=np.array([theta]), usd_per_hour=np.array([[2.0, 5.0]]),
        min_option_instances=np.array([[of_each]]),
    )  # fmt: skip

    def least(need: float, of_all: int, of_each: tuple[int, int]) -> float:
        counts = product(range(of_each[0], 12), range(of_each[1], 12))
        serve = ((a, b) for a, b in counts if a * theta[0] + b * theta[1] >= need and a + b >= of_all)
        return min(2 * a + 5 * b for a, b in serve)

    fluid = min(2 / theta[0], 5 / theta[1]) * needs.mean()
    whole, minimum = (
        np.mean([least(need, *limits) for need in needs]) for limits in ((0, (0, 0)), (of_all, of_each))
    )
    assert hour_cost_bounds(hour) == pytest.approx(
        (fluid, whole, minimum, least(needs.max(), of_all, of_each))
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_instances": np.full((2, 2), 5)}, "llm0 in region0: min_instances 5 is not between 0 and max"),
        (
            {"min_instances": np.full((2, 2), 13), "max_instances": np.full((2, 2), 20)},
            "llm1 in region1: min_instances 13 is above the 6 that fit in cap_gpus",
        ),
        (
            {"min_instances": np.full((2, 2), 4), "cap_gpus": np.full((2, 1), 11)},
            "region0: min_instances of all llms take 12 GPUs, cap_gpus has 11",
        ),
        ({"tokens_per_s": np.array([[100.0], [0.0]])}, "llm1 fits on no GPU type: it serves 0.0 on gpu0"),
        ({"usd_per_hour": np.array([[-1.0], [1.0]])}, "price of llm0 on gpu0: got -1.0 USD"),
        ({"demand_tokens_per_s": np.full((2, 2, 2), np.nan)}, "demand of llm0 in region0, window 0: got nan"),
        ({"cap_gpus": np.array([[12], [0]])}, "region1 has no GPUs: its cap_gpus is 0 for gpu0"),
        ({"cap_gpus": np.full((2, 1), -1)}, "cap of region0 on gpu0: got -1 GPUs"),
        ({"epsilon": 0.0}, "epsilon: got 0.0"),
        ({"budget_usd": -1.0}, "budget_usd: got -1.0"),
        ({"spot_earning_share": 1.5}, r"spot_earning_share: got 1.5, needed 0 to 1"),
        ({"spot": np.full((2, 2, 1), -1)}, "spot of llm0 in region0 on gpu0: got -1"),
        ({"boot_cold_s": np.full((2, 2, 1), np.inf)}, "cold boot of llm0 in region0 on gpu0: got inf"),
        ({"boot_spot_s": np.full((2, 1), -1.0)}, "boot from spot of llm0 on gpu0: got -1.0"),
        ({"window_s": 0.0}, "window_s: got 0.0"),
        (
            {"min_option_instances": np.full((2, 2, 1), 1001)},
            "llm0 in region0 on gpu0: minimum 1001 is not between 0 and 1000",
        ),
        ({"buffer_tokens_per_s": np.zeros(3)}, r"buffer_tokens_per_s has the shape \(3,\), needed \(2, 2\)"),
        ({"uses": np.zeros((2, 1, 1))}, "GPUs per instance of llm0 on gpu0: got 0.0"),
        ({"size_shares": np.ones((3, 2, 1))}, r"size_shares has the shape \(3, 2, 1\), needed \(4, 2, 1\)"),
        *(
            (
                {"size_shares": np.tile(np.reshape(shares, (4, 1, 1)), (1, 2, 1))},
                "size_shares: got .*, needed above 0, rising to 1 with the instances",
            )
            for shares in ([0.0, 0.5, 0.5, 1.0], [0.5, 0.4, 0.5, 1.0], [0.5, 0.5, 0.5, 0.9])
        ),
    ],
)
def test_contradictions_are_named_before_solving(changes: dict[str, object], message: str) -> None:
    for solve in (solve_sageserve, solve_corrected):
        with pytest.raises(PlanError, match=message):
            solve(a_problem(**changes))
    assert find_contradictions(a_problem()) == []
