"""Both hourly programmes against brute force, their laws, and how their solvers end."""

from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plan_cases import (
    a_problem,
    growing,
    naive_corrected_usd,
    naive_flow_usd,
    naive_paper_usd,
    problems,
    roomy,
    sharing,
)

from fleetcast.models.plan import solver
from fleetcast.models.plan.corrected_plan import solve_corrected
from fleetcast.models.plan.plan_violations import find_violations
from fleetcast.models.plan.problem import PlanError, Problem
from fleetcast.models.plan.problem_checks import find_contradictions
from fleetcast.models.plan.sageserve_plan import solve_sageserve
from fleetcast.models.plan.solver import SolverOptions
from fleetcast.models.plan.window_flows import cheapest_flows

BOTH = pytest.mark.parametrize("solve", [solve_sageserve, solve_corrected], ids=["paper", "corrected"])
EXACT = SolverOptions(gap_share=0.0)
exactly = {solve: partial(solve, options=EXACT) for solve in (solve_sageserve, solve_corrected)}


@settings(max_examples=40)
@given(problems())
def test_no_allocation_is_better_than_the_papers_plan(problem: Problem) -> None:
    """SageServe counts alpha delta where a plan reports alpha x: they differ by alpha n for every plan."""
    plan = exactly[solve_sageserve](problem)
    assert find_violations(problem, plan) == []
    held_usd = float((problem.usd_per_hour[:, None, :] * problem.instances_now).sum())
    assert plan.full_usd - held_usd == pytest.approx(naive_paper_usd(problem), rel=1e-6, abs=1e-6)


@settings(max_examples=20)
@given(problems().filter(lambda p: p.instances_now.size == 2 and len(p.llms) == 1))
def test_without_limits_it_is_the_papers_programme_to_the_letter(problem: Problem) -> None:
    """Only (remove), (local), (global) and alpha delta + sigma max(0, delta), by trying every delta."""
    problem = roomy(problem)._replace(min_instances=problem.min_instances * 0)
    n, theta = problem.instances_now[0, :, 0], problem.tokens_per_s[0, 0]
    alpha, sigma = problem.usd_per_hour[0, 0], problem.usd_per_hour[0, 0] * problem.boot_spot_s[0, 0] / 3600
    need = problem.demand_tokens_per_s[0] + problem.buffer_tokens_per_s[0][:, None]
    best = min(
        sum(alpha * delta + sigma * max(0, delta) for delta in x - n)
        for x in (np.array(pair) for pair in np.ndindex(*([int(need.sum() // theta) + 2] * len(n))))
        if (theta * x >= problem.epsilon * need.max(axis=1)).all()
        and theta * x.sum() >= need.sum(axis=0).max()
    )
    plan = exactly[solve_sageserve](problem)
    usd = float((alpha * plan.delta + sigma * np.maximum(plan.delta, 0)).sum())
    assert usd == pytest.approx(best, abs=1e-6)


@settings(max_examples=40)
@given(problems().filter(lambda p: p.instances_now.size == 2))
def test_no_reclaim_start_or_donation_is_better_than_the_corrected_plan(problem: Problem) -> None:
    plan = exactly[solve_corrected](problem)
    assert find_violations(problem, plan) == []
    assert plan.full_usd == pytest.approx(naive_corrected_usd(problem), rel=1e-6, abs=1e-6)


@settings(max_examples=60)
@given(growing())
def test_a_pool_that_grows_past_four_or_shrinks_below_is_planned_best(problem: Problem) -> None:
    plan = exactly[solve_corrected](problem)
    assert find_violations(problem, plan) == []
    assert plan.full_usd == pytest.approx(naive_corrected_usd(problem), rel=1e-6, abs=1e-6)


@BOTH
@settings(max_examples=30)
@given(problem=sharing())
def test_options_that_share_gpus_and_have_their_own_limits_are_planned_best(solve, problem: Problem) -> None:
    assume(find_contradictions(problem) == [])
    plan = exactly[solve](problem)
    assert find_violations(problem, plan) == []
    best = naive_corrected_usd(problem)
    if solve is solve_sageserve:
        best = naive_paper_usd(problem) + float((problem.usd_per_hour[:, None] * problem.instances_now).sum())
    assert plan.full_usd == pytest.approx(best, rel=1e-6, abs=1e-6)


@settings(max_examples=60)
@given(problems(), st.data())
def test_no_flows_are_cheaper_than_those_of_the_closed_form(problem: Problem, data: st.DataObject) -> None:
    capacity = (
        np.array(data.draw(st.lists(st.integers(0, 30), min_size=problem.instances_now[0, :, 0].size * 2)))[
            : len(problem.regions) * 2
        ].reshape(1, -1, 2)
        * 16.0
    )
    problem = problem._replace(
        **{
            name: getattr(problem, name)[:1]
            for name in ("tokens_per_s", "usd_per_hour", "demand_tokens_per_s", "buffer_tokens_per_s")
        },
        boot_cold_s=problem.boot_cold_s[:1],
        llms=problem.llms[:1],
    )
    e, m, z, v, y = cheapest_flows(problem, capacity)[1:]
    per_token = problem.penalty_usd[0][0]
    for w in range(problem.windows):
        usd = problem.export_usd[0] * e[0, :, w].sum()
        usd += per_token * (1e5 * z + 1e3 * v + 4 * y)[0, :, w].sum()
        assert usd == pytest.approx(
            naive_flow_usd(problem, 0, w, tuple(capacity[0, :, w])), rel=1e-6, abs=1e-6
        )
    assert (m <= np.maximum(capacity + e + z + y - problem.need_tokens_per_s, 0) + 1e-9).all()


@BOTH
@settings(max_examples=12)
@given(problem=problems(), more=st.integers(1, 3))
def test_what_makes_a_plan_dearer_and_what_cheaper(solve, problem: Problem, more: int) -> None:
    usd = exactly[solve](problem).full_usd
    dearer = [
        problem._replace(demand_tokens_per_s=problem.demand_tokens_per_s + 16 * more),
        problem._replace(min_instances=np.minimum(problem.min_instances + 1, problem.max_instances)),
        problem._replace(epsilon=1.0),
    ]
    cheaper = [
        problem._replace(cap_gpus=problem.cap_gpus + more),
        problem._replace(max_instances=problem.max_instances + more),
        problem._replace(boot_spot_s=problem.boot_spot_s / 2),
    ]
    if solve is solve_corrected:
        cheaper += [
            problem._replace(export_share=0.0),
            problem._replace(spot_earning_share=1.0),
            problem._replace(hysteresis_share=0.0),
            problem._replace(budget_usd=problem.budget_usd + more),
        ]
    for other in (one for one in dearer if find_contradictions(one) == []):  # a minimum may not fit
        assert exactly[solve](other).full_usd >= usd - 1e-6 * max(usd, 1)
    for other in cheaper:
        assert exactly[solve](other).full_usd <= usd + 1e-6 * max(usd, 1)


@BOTH
@settings(max_examples=15)
@given(problem=problems())
def test_lower_prices_are_never_dearer_where_nothing_is_short(solve, problem: Problem) -> None:
    """What a shortage weighs goes by the dearest price, so that the law holds for plans that serve all."""
    problem = roomy(problem)._replace(
        boot_cold_s=problem.boot_cold_s * 0, boot_spot_s=problem.boot_spot_s * 0
    )
    plan = exactly[solve](problem)
    half = exactly[solve](problem._replace(usd_per_hour=problem.usd_per_hour / 2))
    assert not plan.short_llm_tokens_per_s.any()
    assert half.objective_usd <= plan.objective_usd + 1e-6


@BOTH
@settings(max_examples=10)
@given(problem=problems())
def test_highs_and_cbc_agree_and_bound_each_other(solve, problem: Problem) -> None:
    plans = [solve(problem, SolverOptions(name, gap_share=0.0)) for name in ("highs", "cbc")]
    assert [plan.solver for plan in plans] == ["highs", "cbc"]
    assert plans[0].full_usd == pytest.approx(plans[1].full_usd, rel=1e-6, abs=1e-5)
    for plan in plans:
        assert find_violations(problem, plan) == []
        assert plan.lp_bound_usd <= plan.bound_usd <= plan.full_usd
        assert plan.status == "optimal"


@BOTH
def test_a_repeated_solve_gives_the_same_plan_within_the_gap(solve) -> None:
    generator = np.random.default_rng(3)
    problem = a_problem(4, 3, 2, 4, demand_tokens_per_s=generator.uniform(100, 500, (4, 3, 4)))
    first, second = (solve(problem)._replace(seconds=0.0) for _ in range(2))
    assert str(first) == str(second)
    assert first.gap_share <= 0.005
    assert first.lp_bound_usd <= first.bound_usd <= first.full_usd


@BOTH
def test_a_search_cut_short_gives_what_it_found_with_its_gap(solve, monkeypatch: pytest.MonkeyPatch) -> None:
    """No step proves anything: the plan is returned, its status reports it, its bound the relaxed one."""
    problem = a_problem()
    whole = solve(problem, EXACT)
    monkeypatch.setattr(solver._Search, "is_proven", lambda self: False)
    honest = solver._Search.run
    monkeypatch.setattr(solver._Search, "run", lambda self, *bounds: honest(self, *bounds) and -np.inf)
    cut = solve(problem, EXACT)
    assert cut.full_usd == whole.full_usd
    assert (cut.status, cut.bound_usd) == ("time_limit", cut.lp_bound_usd)
    assert 0 < cut.gap_share < 1
    monkeypatch.setattr(solver, "_solve_with_highs", lambda *_: None)
    with pytest.raises(PlanError, match=r"highs found no plan within 8 s\. Raise \[plan\] time_limit_s"):
        solve(problem, SolverOptions(time_limit_s=8.0))


def test_without_highs_cbc_solves_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "find_spec", lambda name: None)
    assert solve_corrected(a_problem()).solver == "cbc"


def test_an_unknown_solver_is_refused() -> None:
    with pytest.raises(PlanError, match=r"Unknown solver 'gurobi'\. Known: highs, cbc"):
        solve_corrected(a_problem(), SolverOptions("gurobi"))
