"""What both programmes answer in hours made by hand, and the re-check that names each broken line."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from plan_cases import a_problem, of_own_type

from fleetcast.assets.lake.settings import load_settings
from fleetcast.assets.plans import plans
from fleetcast.assets.plans.plans import checked_solver
from fleetcast.models.plan.corrected_plan import net_changes, solve_corrected
from fleetcast.models.plan.plan_violations import find_violations
from fleetcast.models.plan.problem import HourPlan
from fleetcast.models.plan.sageserve_plan import solve_sageserve
from fleetcast.models.plan.solver import SolverOptions
from fleetcast.models.plan.window_flows import cheapest_flows

BOTH = pytest.mark.parametrize("solve", [solve_sageserve, solve_corrected], ids=["paper", "corrected"])
exactly = {
    solve: partial(solve, options=SolverOptions(gap_share=0.0))
    for solve in (solve_sageserve, solve_corrected)
}


@pytest.mark.parametrize(
    ("solve", "line", "change"),
    [
        (solve_sageserve, "cost", {"objective_usd": 0.0}),
        (solve_sageserve, "balance", {"started": 7}),
        (solve_sageserve, "own", {"donated": 2}),
        (solve_sageserve, "sign", {"started": -1}),
        (solve_sageserve, "cap", {"instances": 9}),
        (solve_sageserve, "most", {"instances": 9}),
        (solve_sageserve, "local", {"instances": 0}),
        (solve_sageserve, "global", {"short_llm_tokens_per_s": 5.0}),
        (solve_sageserve, "local", {"short_tokens_per_s": 5.0}),
        (solve_sageserve, "least", {"missing_instances": 1}),
        (solve_corrected, "cost", {"objective_usd": 0.0}),
        (solve_corrected, "spot", {"reclaimed": 1}),
        (solve_corrected, "balance", {"started": 7}),
        (solve_corrected, "unserved", {"short_tokens_per_s": 5.0}),
        (solve_corrected, "pool", {"imports": 30.0}),
        (solve_corrected, "home", {"unserved": -500.0}),
        (solve_corrected, "locality", {"exports": 90.0, "imports": 90.0}),
        (solve_corrected, "buffer", {"buffer_short": 1.0}),
        (solve_corrected, "capacity", {"capacity": 900.0}),
        (solve_corrected, "sign", {"remote": -1.0}),
    ],
)
def test_each_broken_line_is_named(solve, line: str, change: dict[str, float]) -> None:
    problem = a_problem()
    plan = exactly[solve](problem)
    assert find_violations(problem, plan) == []
    for field, value in change.items():
        if field in HourPlan._fields:
            plan = plan._replace(**{field: value + 0 * getattr(plan, field)})
        else:
            flows = plan.windows
            plan = plan._replace(windows=flows._replace(**{field: value + 0 * flows.capacity}))
    assert line in {found.split(":")[0] for found in find_violations(problem, plan)}


def test_a_plan_that_breaks_its_programme_is_no_plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings, problem = load_settings("office", tmp_path), a_problem()
    solved: list[int] = []
    assert checked_solver(settings, "corrected", solved.append)(problem).instances.any()
    assert solved == [1]
    cheaper = {
        "corrected": lambda problem, options: solve_corrected(problem, options)._replace(objective_usd=0.0)
    }
    monkeypatch.setattr(plans, "PLAN_SOLVERS", cheaper)
    with pytest.raises(RuntimeError, match="violates its optimisation model: cost: "):
        checked_solver(settings, "corrected")(problem)


@BOTH
def test_an_option_beyond_its_own_limits_is_named(solve) -> None:
    problem = a_problem(g=2)
    plan = exactly[solve](problem)
    held = plan.instances[0, 0]
    fewer = problem._replace(max_option_instances=np.minimum(plan.instances, 0 * held + held.max() - 1))
    assert any(
        f"has {held.max()} on gpu0, maximum {held.max() - 1}" in x for x in find_violations(fewer, plan)
    )
    more = problem._replace(min_option_instances=plan.instances + 1)
    assert {line.split(":")[0] for line in find_violations(more, plan)} == {"least"}


@BOTH
def test_an_instance_where_it_cannot_run_is_named(solve) -> None:
    problem = a_problem(g=2, tokens_per_s=np.array([[100.0, np.nan], [200.0, 200.0]]))
    problem = problem._replace(instances_now=np.zeros((2, 2, 2), dtype=np.int64))
    plan = exactly[solve](problem)
    assert find_violations(problem, plan) == []
    assert not plan.instances[0, :, 1].any()
    elsewhere = plan._replace(instances=plan.instances[:, :, ::-1].copy())
    assert any(
        line.startswith("runs: llm0 in region0 on gpu1") for line in find_violations(problem, elsewhere)
    )


@BOTH
def test_the_shortage_of_a_small_fleet_is_reported(solve) -> None:
    """Two regions of 12 GPUs for one llm of 100 tokens/s per GPU: 2,400 of the 3,000 requested."""
    problem = a_problem(
        l=1,
        demand_tokens_per_s=np.full((1, 2, 2), 1500.0),
        max_instances=np.full((1, 2), 99),
        boot_cold_s=np.zeros((1, 2, 1)),
    )
    plan = solve(problem)
    assert plan.instances.sum() == 24
    assert plan.short_llm_tokens_per_s == pytest.approx([600.0])
    assert find_violations(problem, plan) == []


@BOTH
def test_no_shortage_is_bought_off_however_small(solve) -> None:
    problem = a_problem(
        l=1, r=1, demand_tokens_per_s=np.full((1, 1, 1), 100.001), boot_cold_s=np.zeros((1, 1, 1))
    )
    assert solve(problem).instances.sum() == 2
    assert solve(problem._replace(demand_tokens_per_s=np.full((1, 1, 1), 100.0))).instances.sum() == 1


@BOTH
def test_minima_are_kept_or_their_shortage_is_reported(solve) -> None:
    """Both llms run on gpu0 alone, whose cap of 3 has room for either minimum of 2, but not for both."""
    at_least = a_problem(min_instances=np.array([[3, 0], [0, 2]]))
    assert (exactly[solve](at_least).instances.sum(axis=2) >= at_least.min_instances).all()
    problem = a_problem(
        r=1,
        g=2,
        tokens_per_s=np.array([[100.0, np.nan], [100.0, np.nan]]),
        instances_now=np.zeros((2, 1, 2), dtype=np.int64),
        uses=of_own_type(np.ones((2, 2), dtype=np.int64)),
        demand_tokens_per_s=np.full((2, 1, 1), 100.0),
        cap_gpus=np.array([[3, 9]]),
        min_instances=np.full((2, 1), 2),
        boot_cold_s=np.zeros((2, 1, 2)),
    )
    plan = exactly[solve](problem)
    assert plan.missing_instances.sum() == 1
    assert not plan.short_llm_tokens_per_s.any()
    assert find_violations(problem, plan) == []


@BOTH
def test_traffic_that_peaks_at_different_times_shares_the_capacity(solve) -> None:
    """Peaks of 1,000 in different windows: 16 instances at epsilon 0.8, 20 at 1; coverage is per window."""
    demand = np.array([[[1000.0, 200.0], [200.0, 1000.0]]])
    problem = a_problem(
        l=1, demand_tokens_per_s=demand, max_instances=np.full((1, 2), 99), boot_cold_s=np.zeros((1, 2, 1))
    )
    plan = exactly[solve](problem)
    assert plan.instances.sum() == 16
    if plan.windows:
        assert plan.windows.exports[0] == pytest.approx(np.array([[200.0, 0.0], [0.0, 200.0]]))
    assert exactly[solve](problem._replace(epsilon=1.0)).instances.sum() == 20


def test_donated_instances_come_back_before_cold_ones_and_count_sooner() -> None:
    """100 tokens/s serve, 300 are requested: the donated is back at once, a cold start half an hour later."""
    problem = a_problem(
        l=1,
        r=1,
        spot=np.array([[[1]]]),
        demand_tokens_per_s=np.array([[[300.0, 300.0]]]),
        boot_spot_s=np.array([[600.0]]),
        boot_cold_s=np.array([[[1200.0]]]),
    )
    plan = exactly[solve_corrected](problem)
    assert (plan.reclaimed.sum(), plan.started.sum()) == (1, 1)
    assert plan.windows is not None
    assert plan.windows.capacity.tolist() == [[[200.0, 300.0]]]
    assert plan.short_llm_tokens_per_s == pytest.approx([100.0])  # in the first window no instance can help
    too_late = problem._replace(boot_cold_s=np.array([[[7200.0]]]))
    assert exactly[solve_corrected](too_late).started.sum() == 0


def test_a_budget_reports_the_requests_it_leaves_unserved() -> None:
    """Four instances of 2 USD serve 400 of the 600 tokens/s when 8 USD an hour are all there is."""
    problem = a_problem(l=1, demand_tokens_per_s=np.full((1, 2, 2), 300.0), boot_cold_s=np.zeros((1, 2, 1)))
    assert exactly[solve_corrected](problem).instances.sum() == 6
    poor = problem._replace(budget_usd=8.0)
    plan = exactly[solve_corrected](poor)
    assert plan.instances.sum() == 4
    assert plan.short_llm_tokens_per_s == pytest.approx([200.0])
    assert find_violations(poor, plan) == []
    assert find_violations(poor._replace(budget_usd=7.0), plan) == [
        "budget: the instances cost 8 USD, the budget is 7"
    ]


def test_whoever_would_be_served_too_far_from_home_is_left_unserved_first() -> None:
    """Half may leave: region 0 lacks 40 of 100, region 1 all of 100, region 2 has 100 for them."""
    problem = a_problem(l=1, r=3, w=1, demand_tokens_per_s=np.full((1, 3, 1), 100.0), epsilon=0.5)
    flows = cheapest_flows(problem, np.array([[[60.0], [0.0], [200.0]]]))
    assert flows.exports.ravel().tolist() == [40, 60, 0]
    assert flows.unserved.ravel().tolist() == [0, 40, 0]
    assert flows.remote.ravel().tolist() == [0, 10, 0]
    assert flows.imports.ravel().tolist() == [0, 0, 100]


def test_nothing_is_given_up_and_got_back_in_one_hour() -> None:
    reclaimed, cold, donated = (np.array(values) for values in ([2, 0, 1], [1, 3, 0], [2, 2, 0]))
    kept = net_changes(reclaimed, cold, donated)
    assert [values.tolist() for values in kept] == [[1, 0, 1], [0, 1, 0], [0, 0, 0]]


def test_hysteresis_keeps_what_hardly_saves() -> None:
    """Moving the instance to the GPU type that is 5 % cheaper pays, unless giving one up costs 10 %."""
    problem = a_problem(
        l=1,
        r=1,
        g=2,
        instances_now=np.array([[[1, 0]]]),
        usd_per_hour=np.array([[2.0, 1.9]]),
        tokens_per_s=np.full((1, 2), 100.0),
        uses=of_own_type(np.ones((1, 2), dtype=np.int64)),
        demand_tokens_per_s=np.full((1, 1, 2), 100.0),
        boot_cold_s=np.zeros((1, 1, 2)),
    )
    assert exactly[solve_corrected](problem).instances.tolist() == [[[0, 1]]]
    assert exactly[solve_corrected](problem._replace(hysteresis_share=0.1)).instances.tolist() == [[[1, 0]]]
