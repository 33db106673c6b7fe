"""The hourly programme against brute force, its laws, its re-check, and what it says when it is short."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import a_problem, naive_best, problems

from models.plan import ilp
from models.plan.contradictions import contradictions
from models.plan.ilp import answer, build, lp_bound_usd, solve
from models.plan.policies import hourly_plans, peak_plan
from models.plan.problem import Plan, PlanError, Problem, shortages, violations

exactly = partial(solve, gap_share=0.0)


def full_usd(plan: Plan) -> float:
    """What the programme minimised: the cost and the penalties, from the bound and the gap."""
    return plan.bound_usd / (1 - plan.gap_share) if plan.gap_share < 1 else plan.objective_usd


@settings(max_examples=60, deadline=None)
@given(problems())
def test_no_allocation_is_cheaper_and_no_shortage_avoidable(problem: Problem) -> None:
    feasible, usd = naive_best(problem)
    plan = exactly(problem)
    assert violations(problem, plan) == []
    is_short = bool(plan.short_tokens_per_s.any() or plan.short_llm_tokens_per_s.any())
    assert is_short != feasible
    assert is_short == bool(shortages(problem, plan))
    assert (full_usd(plan) if is_short else plan.objective_usd) == pytest.approx(usd, rel=1e-6, abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(problems(), st.integers(0, 3))
def test_cost_rises_with_demand_prices_and_epsilon_and_falls_with_room(problem: Problem, more: int) -> None:
    roomy = problem._replace(cap_gpus=problem.cap_gpus * 20, max_instances=problem.max_instances * 20)
    usd = exactly(roomy).objective_usd
    harder = [
        roomy._replace(demand_tokens_per_s=roomy.demand_tokens_per_s + 16 * more),
        roomy._replace(usd_per_hour=roomy.usd_per_hour * (1 + more / 4)),
        roomy._replace(epsilon=1.0),
        roomy._replace(min_instances=roomy.min_instances + more),
    ]
    for other in harder:
        assert exactly(other).objective_usd >= usd - 1e-6
    relaxed = lp_bound_usd(build(roomy, may_be_short=False))
    assert relaxed <= usd + 1e-6


@settings(max_examples=25, deadline=None)
@given(problems())
def test_highs_and_cbc_agree(problem: Problem) -> None:
    plans = [exactly(problem, solver=name) for name in ("highs", "cbc")]
    assert [plan.solver for plan in plans] == ["highs", "cbc"]
    assert full_usd(plans[0]) == pytest.approx(full_usd(plans[1]), rel=1e-6, abs=1e-6)
    assert violations(problem, plans[1]) == []


@settings(max_examples=20, deadline=None)
@given(problems())
def test_the_papers_objective_has_the_same_best_plans(problem: Problem) -> None:
    """SageServe counts alpha delta where we count alpha x: they differ by alpha n, whatever the plan."""
    roomy = problem._replace(cap_gpus=problem.cap_gpus * 20, max_instances=problem.max_instances * 20)
    plan = exactly(roomy)
    alpha, sigma = roomy.usd_per_hour[:, None, :], roomy.start_usd[:, None, :]
    paper = float((alpha * plan.delta + sigma * np.maximum(plan.delta, 0)).sum())
    assert paper == pytest.approx(plan.objective_usd - float((alpha * roomy.instances_now).sum()))


@pytest.mark.parametrize(
    ("line", "change"),
    [
        ("cost", {"objective_usd": 0.0}),
        ("balance", {"delta": 7}),
        ("remove", {"delta": -2}),
        ("cap", {"instances": 9}),
        ("most", {"instances": 9}),
        ("local", {"instances": 0}),
        ("global", {"short_llm_tokens_per_s": 5.0}),
        ("local", {"short_tokens_per_s": 5.0}),
        ("least", {"missing_instances": 1}),
    ],
)
def test_each_broken_line_is_named(line: str, change: dict[str, float]) -> None:
    problem = a_problem()
    plan = exactly(problem)
    assert violations(problem, plan) == []
    (field, value), *_ = change.items()
    broken = plan._replace(**{field: value + 0 * getattr(plan, field)})
    assert line in {found.split(":")[0] for found in violations(problem, broken)}


def test_an_instance_where_it_cannot_run_is_named() -> None:
    problem = a_problem(g=2, tokens_per_s=np.array([[100.0, np.nan], [200.0, 200.0]]))
    problem = problem._replace(instances_now=np.zeros((2, 2, 2), dtype=np.int64))
    plan = exactly(problem)
    assert violations(problem, plan) == []
    assert not plan.instances[0, :, 1].any()
    elsewhere = answer(problem, plan.instances[:, :, ::-1].copy())
    assert any(line.startswith("runs: llm0 in region0 on gpu1") for line in violations(problem, elsewhere))


def test_a_fleet_that_is_too_small_says_by_how_much() -> None:
    """Two regions of 12 GPUs for one llm of 100 tokens/s per GPU: 2,400 of the 3,000 that are asked."""
    problem = a_problem(
        l=1, demand_tokens_per_s=np.full((1, 2, 2), 1500.0), max_instances=np.full((1, 2), 99)
    )
    plan = solve(problem)
    assert plan.instances.sum() == 24
    assert plan.short_llm_tokens_per_s == pytest.approx([600.0])
    assert plan.short_tokens_per_s == pytest.approx(np.zeros((1, 2)))  # 0.8 of 1,500 is served at home
    (line,) = shortages(problem, plan)
    assert line.startswith("llm0 in all regions is short of 600 input tokens/s, 6 instances. Raise cap")


def test_no_shortage_is_bought_off_however_small() -> None:
    problem = a_problem(l=1, r=1, demand_tokens_per_s=np.full((1, 1, 1), 100.001))
    assert solve(problem).instances.sum() == 2
    assert solve(problem._replace(demand_tokens_per_s=np.full((1, 1, 1), 100.0))).instances.sum() == 1


def test_minima_are_kept_and_where_they_cannot_be_the_plan_says_so() -> None:
    """Both llms run on gpu0 alone, whose cap of 3 has room for either minimum of 2, but not for both."""
    at_least = a_problem(min_instances=np.array([[3, 0], [0, 2]]))
    assert (exactly(at_least).instances.sum(axis=2) >= at_least.min_instances).all()
    problem = a_problem(
        r=1,
        g=2,
        tokens_per_s=np.array([[100.0, np.nan], [100.0, np.nan]]),
        instances_now=np.zeros((2, 1, 2), dtype=np.int64),
        gpus_per_instance=np.ones((2, 2), dtype=np.int64),
        demand_tokens_per_s=np.full((2, 1, 1), 100.0),
        cap_gpus=np.array([[3, 9]]),
        min_instances=np.full((2, 1), 2),
    )
    plan = exactly(problem)
    assert plan.missing_instances.sum() == 1
    assert not plan.short_llm_tokens_per_s.any()
    assert violations(problem, plan) == []
    assert "is 1 instances below min_instances" in shortages(problem, plan)[0]


def test_traffic_that_peaks_at_different_times_shares_the_capacity() -> None:
    """Peaks of 1,000 in different windows: 16 instances at epsilon 0.8, 20 at 1; (global) is per window."""
    demand = np.array([[[1000.0, 200.0], [200.0, 1000.0]]])
    problem = a_problem(l=1, demand_tokens_per_s=demand, max_instances=np.full((1, 2), 99))
    assert exactly(problem).instances.sum() == 16
    assert exactly(problem._replace(epsilon=1.0)).instances.sum() == 20


def test_the_chain_starts_each_hour_from_the_last_and_the_peak_covers_all() -> None:
    hours = [a_problem(demand_tokens_per_s=np.full((2, 2, 2), level)) for level in (150.0, 300.0, 50.0)]
    start = np.full((2, 2, 1), 2)
    plans = hourly_plans(hours, start, exactly)
    before = [plan.instances - plan.delta for plan in plans]
    assert (before[0] == start).all()
    assert all((now == last.instances).all() for now, last in zip(before[1:], plans, strict=False))
    assert plans[2].delta.min() < 0 < plans[1].delta.max()
    peak = peak_plan(hours, exactly)
    for hour in hours:
        assert not answer(hour, peak.instances).short_llm_tokens_per_s.any()
        assert not answer(hour, peak.instances).short_tokens_per_s.any()
    assert (peak.instances == plans[1].instances).all()


def test_the_peak_counts_buffers_and_the_worst_capacity_and_starts_for_nothing() -> None:
    """750 tokens/s are 8 instances of 100, or 10 of 75; 100 more in the buffer are one instance more."""
    hour = a_problem(l=1, r=1, demand_tokens_per_s=np.full((1, 1, 1), 750.0), max_instances=np.array([[20]]))
    count = [
        int(peak_plan(hours, exactly).instances.sum())
        for hours in (
            [hour, hour],
            [hour._replace(buffer_tokens_per_s=np.array([[100.0]])), hour],
            [hour, hour._replace(tokens_per_s=np.array([[75.0]]))],
        )
    ]
    assert count == [8, 9, 10]
    start_is_dear = hour._replace(start_usd=np.array([[1e3]]))
    assert peak_plan([start_is_dear], exactly).objective_usd == 8 * 2.0


def test_a_repeated_solve_gives_the_same_plan() -> None:
    generator = np.random.default_rng(3)
    problem = a_problem(4, 3, 2, 4, demand_tokens_per_s=generator.uniform(100, 500, (4, 3, 4)))
    first, second = (solve(problem)._replace(seconds=0.0) for _ in range(2))
    assert str(first) == str(second)
    assert first.gap_share <= 0.005
    assert first.bound_usd <= first.objective_usd


def test_a_search_cut_short_gives_what_it_found_or_says_that_it_found_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    really, limits = ilp._run, []

    def cut_short(program: ilp.Program, solver: str, gap_share: float, time_limit_s: float) -> str:
        limits.append(time_limit_s)
        really(program, solver, gap_share, time_limit_s)
        return "time_limit"

    monkeypatch.setattr(ilp, "_run", cut_short)
    for solver in ("highs", "cbc"):
        plan = solve(a_problem(), solver, time_limit_s=8.0)
        assert plan.status == "time_limit"
        assert 0 < plan.bound_usd <= plan.objective_usd
    monkeypatch.setattr(ilp, "_run", lambda *_: "none")
    with pytest.raises(PlanError, match=r"highs found no plan within 8 s\. Raise \[plan\] time_limit_s"):
        solve(a_problem(), time_limit_s=8.0)
    assert all(4.0 <= limit <= 8.0 for limit in limits)


def test_without_highs_cbc_answers_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ilp, "find_spec", lambda name: None)
    assert solve(a_problem()).solver == "cbc"


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
        ({"cap_gpus": np.full((2, 1), -1)}, "cap of region0 on gpu0: got -1 GPUs"),
        ({"epsilon": 0.0}, "epsilon: got 0.0"),
        ({"buffer_tokens_per_s": np.zeros(3)}, r"buffer_tokens_per_s has the shape \(3,\), needed \(2, 2\)"),
        ({"gpus_per_instance": np.zeros((2, 1))}, "GPUs per instance of llm0 on gpu0: got 0.0"),
    ],
)
def test_contradictions_are_named_before_solving(changes: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        solve(a_problem(**changes))  # type: ignore[arg-type]
    assert contradictions(a_problem()) == []


def test_an_unknown_solver_is_refused() -> None:
    with pytest.raises(PlanError, match=r"Unknown solver 'gurobi'\. Known: highs, cbc"):
        solve(a_problem(), solver="gurobi")
