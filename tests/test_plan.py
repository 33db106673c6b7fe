"""Both hourly programmes against brute force, their laws, their re-check, and what they say when short."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import a_problem, naive_corrected_usd, naive_flow_usd, naive_paper_usd, problems, roomy

from models.plan import corrected, paper, solver
from models.plan.contradictions import contradictions
from models.plan.flows import flowing
from models.plan.problem import Plan, PlanError, Problem
from models.plan.solver import Options
from models.plan.violations import violations

BOTH = pytest.mark.parametrize("programme", [paper, corrected], ids=["paper", "corrected"])
EXACT = Options(gap_share=0.0)
exactly = {module: partial(module.solve, options=EXACT) for module in (paper, corrected)}


@settings(max_examples=40, deadline=None)
@given(problems())
def test_no_allocation_is_better_than_the_papers_plan(problem: Problem) -> None:
    """SageServe counts alpha delta where a plan tells alpha x: they differ by alpha n, whatever the plan."""
    plan = exactly[paper](problem)
    assert violations(problem, plan) == []
    held_usd = float((problem.usd_per_hour[:, None, :] * problem.instances_now).sum())
    assert plan.full_usd - held_usd == pytest.approx(naive_paper_usd(problem), rel=1e-6, abs=1e-6)


@settings(max_examples=12, deadline=None)
@given(problems().filter(lambda p: p.instances_now.size == 2))
def test_no_reclaim_start_or_donation_is_better_than_the_corrected_plan(problem: Problem) -> None:
    plan = exactly[corrected](problem)
    assert violations(problem, plan) == []
    assert plan.full_usd == pytest.approx(naive_corrected_usd(problem), rel=1e-6, abs=1e-6)


@settings(max_examples=60, deadline=None)
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
    e, m, z, v, y = flowing(problem, capacity)[1:]
    per_token = problem.penalty_usd[0][0]
    for w in range(problem.windows):
        usd = problem.export_usd[0] * e[0, :, w].sum()
        usd += per_token * (1e5 * z + 1e3 * v + 4 * y)[0, :, w].sum()
        assert usd == pytest.approx(
            naive_flow_usd(problem, 0, w, tuple(capacity[0, :, w])), rel=1e-6, abs=1e-6
        )
    assert (m <= np.maximum(capacity + e + z + y - problem.need_tokens_per_s, 0) + 1e-9).all()


@BOTH
@settings(max_examples=12, deadline=None)
@given(problem=problems(), more=st.integers(1, 3))
def test_what_makes_a_plan_dearer_and_what_cheaper(programme, problem: Problem, more: int) -> None:
    usd = exactly[programme](problem).full_usd
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
    if programme is corrected:
        cheaper += [
            problem._replace(export_share=0.0),
            problem._replace(spot_earning_share=1.0),
            problem._replace(hysteresis_share=0.0),
            problem._replace(budget_usd=problem.budget_usd + more),
        ]
    for other in (one for one in dearer if contradictions(one) == []):  # a minimum may not fit
        assert exactly[programme](other).full_usd >= usd - 1e-6 * max(usd, 1)
    for other in cheaper:
        assert exactly[programme](other).full_usd <= usd + 1e-6 * max(usd, 1)


@BOTH
@settings(max_examples=15, deadline=None)
@given(problem=problems())
def test_lower_prices_are_never_dearer_where_nothing_is_short(programme, problem: Problem) -> None:
    """What a shortage weighs goes by the dearest price, so that the law holds for plans that serve all."""
    problem = roomy(problem)._replace(
        boot_cold_s=problem.boot_cold_s * 0, boot_spot_s=problem.boot_spot_s * 0
    )
    plan = exactly[programme](problem)
    half = exactly[programme](problem._replace(usd_per_hour=problem.usd_per_hour / 2))
    assert not plan.short_llm_tokens_per_s.any()
    assert half.objective_usd <= plan.objective_usd + 1e-6


@BOTH
@settings(max_examples=10, deadline=None)
@given(problem=problems())
def test_highs_and_cbc_agree_and_bound_each_other(programme, problem: Problem) -> None:
    plans = [programme.solve(problem, Options(name, gap_share=0.0)) for name in ("highs", "cbc")]
    assert [plan.solver for plan in plans] == ["highs", "cbc"]
    assert plans[0].full_usd == pytest.approx(plans[1].full_usd, rel=1e-6, abs=1e-5)
    for plan in plans:
        assert violations(problem, plan) == []
        assert plan.lp_bound_usd <= plan.bound_usd <= plan.full_usd
        assert plan.status == "optimal"


@pytest.mark.parametrize(
    ("programme", "line", "change"),
    [
        (paper, "cost", {"objective_usd": 0.0}),
        (paper, "balance", {"started": 7}),
        (paper, "own", {"donated": 2}),
        (paper, "sign", {"started": -1}),
        (paper, "cap", {"instances": 9}),
        (paper, "most", {"instances": 9}),
        (paper, "local", {"instances": 0}),
        (paper, "global", {"short_llm_tokens_per_s": 5.0}),
        (paper, "local", {"short_tokens_per_s": 5.0}),
        (paper, "least", {"missing_instances": 1}),
        (corrected, "cost", {"objective_usd": 0.0}),
        (corrected, "spot", {"reclaimed": 1}),
        (corrected, "balance", {"started": 7}),
        (corrected, "unserved", {"short_tokens_per_s": 5.0}),
        (corrected, "pool", {"imports": 30.0}),
        (corrected, "home", {"unserved": -500.0}),
        (corrected, "locality", {"exports": 90.0, "imports": 90.0}),
        (corrected, "buffer", {"buffer_short": 1.0}),
        (corrected, "capacity", {"capacity": 900.0}),
        (corrected, "sign", {"remote": -1.0}),
    ],
)
def test_each_broken_line_is_named(programme, line: str, change: dict[str, float]) -> None:
    problem = a_problem()
    plan = exactly[programme](problem)
    assert violations(problem, plan) == []
    for field, value in change.items():
        if field in Plan._fields:
            plan = plan._replace(**{field: value + 0 * getattr(plan, field)})
        else:
            flows = plan.windows
            plan = plan._replace(windows=flows._replace(**{field: value + 0 * flows.capacity}))
    assert line in {found.split(":")[0] for found in violations(problem, plan)}


@BOTH
def test_an_instance_where_it_cannot_run_is_named(programme) -> None:
    problem = a_problem(g=2, tokens_per_s=np.array([[100.0, np.nan], [200.0, 200.0]]))
    problem = problem._replace(instances_now=np.zeros((2, 2, 2), dtype=np.int64))
    plan = exactly[programme](problem)
    assert violations(problem, plan) == []
    assert not plan.instances[0, :, 1].any()
    elsewhere = plan._replace(instances=plan.instances[:, :, ::-1].copy())
    assert any(line.startswith("runs: llm0 in region0 on gpu1") for line in violations(problem, elsewhere))


@BOTH
def test_a_fleet_that_is_too_small_says_by_how_much(programme) -> None:
    """Two regions of 12 GPUs for one llm of 100 tokens/s per GPU: 2,400 of the 3,000 that are asked."""
    problem = a_problem(
        l=1,
        demand_tokens_per_s=np.full((1, 2, 2), 1500.0),
        max_instances=np.full((1, 2), 99),
        boot_cold_s=np.zeros((1, 2)),
    )
    plan = programme.solve(problem)
    assert plan.instances.sum() == 24
    assert plan.short_llm_tokens_per_s == pytest.approx([600.0])
    assert violations(problem, plan) == []


@BOTH
def test_no_shortage_is_bought_off_however_small(programme) -> None:
    problem = a_problem(
        l=1, r=1, demand_tokens_per_s=np.full((1, 1, 1), 100.001), boot_cold_s=np.zeros((1, 1))
    )
    assert programme.solve(problem).instances.sum() == 2
    assert (
        programme.solve(problem._replace(demand_tokens_per_s=np.full((1, 1, 1), 100.0))).instances.sum() == 1
    )


@BOTH
def test_minima_are_kept_and_where_they_cannot_be_the_plan_says_so(programme) -> None:
    """Both llms run on gpu0 alone, whose cap of 3 has room for either minimum of 2, but not for both."""
    at_least = a_problem(min_instances=np.array([[3, 0], [0, 2]]))
    assert (exactly[programme](at_least).instances.sum(axis=2) >= at_least.min_instances).all()
    problem = a_problem(
        r=1,
        g=2,
        tokens_per_s=np.array([[100.0, np.nan], [100.0, np.nan]]),
        instances_now=np.zeros((2, 1, 2), dtype=np.int64),
        gpus_per_instance=np.ones((2, 2), dtype=np.int64),
        demand_tokens_per_s=np.full((2, 1, 1), 100.0),
        cap_gpus=np.array([[3, 9]]),
        min_instances=np.full((2, 1), 2),
        boot_cold_s=np.zeros((2, 1)),
    )
    plan = exactly[programme](problem)
    assert plan.missing_instances.sum() == 1
    assert not plan.short_llm_tokens_per_s.any()
    assert violations(problem, plan) == []


@BOTH
def test_traffic_that_peaks_at_different_times_shares_the_capacity(programme) -> None:
    """Peaks of 1,000 in different windows: 16 instances at epsilon 0.8, 20 at 1; coverage is per window."""
    demand = np.array([[[1000.0, 200.0], [200.0, 1000.0]]])
    problem = a_problem(
        l=1, demand_tokens_per_s=demand, max_instances=np.full((1, 2), 99), boot_cold_s=np.zeros((1, 2))
    )
    plan = exactly[programme](problem)
    assert plan.instances.sum() == 16
    if plan.windows:
        assert plan.windows.exports[0] == pytest.approx(np.array([[200.0, 0.0], [0.0, 200.0]]))
    assert exactly[programme](problem._replace(epsilon=1.0)).instances.sum() == 20


def test_donated_instances_come_back_before_cold_ones_and_count_sooner() -> None:
    """100 tokens/s serve, 300 are asked: the donated is back at once, a cold start half an hour later."""
    problem = a_problem(
        l=1,
        r=1,
        spot=np.array([[[1]]]),
        demand_tokens_per_s=np.array([[[300.0, 300.0]]]),
        boot_spot_s=np.array([[600.0]]),
        boot_cold_s=np.array([[1200.0]]),
    )
    plan = exactly[corrected](problem)
    assert (plan.reclaimed.sum(), plan.started.sum()) == (1, 1)
    assert plan.windows is not None
    assert plan.windows.capacity.tolist() == [[[200.0, 300.0]]]
    assert plan.short_llm_tokens_per_s == pytest.approx([100.0])  # in the first window nobody can help
    too_late = problem._replace(boot_cold_s=np.array([[7200.0]]))
    assert exactly[corrected](too_late).started.sum() == 0


def test_a_budget_leaves_requests_unserved_and_says_how_many() -> None:
    """Four instances of 2 USD serve 400 of the 600 tokens/s when 8 USD an hour are all there is."""
    problem = a_problem(l=1, demand_tokens_per_s=np.full((1, 2, 2), 300.0), boot_cold_s=np.zeros((1, 2)))
    assert exactly[corrected](problem).instances.sum() == 6
    poor = problem._replace(budget_usd=8.0)
    plan = exactly[corrected](poor)
    assert plan.instances.sum() == 4
    assert plan.short_llm_tokens_per_s == pytest.approx([200.0])
    assert violations(poor, plan) == []
    assert violations(poor._replace(budget_usd=7.0), plan) == [
        "budget: the instances cost 8 USD, the budget is 7"
    ]


def test_hysteresis_keeps_what_hardly_saves() -> None:
    """Moving the instance to the GPU type that is 5 % cheaper pays, unless giving one up costs 10 %."""
    problem = a_problem(
        l=1,
        r=1,
        g=2,
        instances_now=np.array([[[1, 0]]]),
        usd_per_hour=np.array([[2.0, 1.9]]),
        tokens_per_s=np.full((1, 2), 100.0),
        gpus_per_instance=np.ones((1, 2), dtype=np.int64),
        demand_tokens_per_s=np.full((1, 1, 2), 100.0),
        boot_cold_s=np.zeros((1, 1)),
    )
    assert exactly[corrected](problem).instances.tolist() == [[[0, 1]]]
    assert exactly[corrected](problem._replace(hysteresis_share=0.1)).instances.tolist() == [[[1, 0]]]


@BOTH
def test_a_repeated_solve_gives_the_same_plan_within_the_gap(programme) -> None:
    generator = np.random.default_rng(3)
    problem = a_problem(4, 3, 2, 4, demand_tokens_per_s=generator.uniform(100, 500, (4, 3, 4)))
    first, second = (programme.solve(problem)._replace(seconds=0.0) for _ in range(2))
    assert str(first) == str(second)
    assert first.gap_share <= 0.005
    assert first.lp_bound_usd <= first.bound_usd <= first.full_usd


@BOTH
def test_a_search_cut_short_gives_what_it_found_with_its_gap(
    programme, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if no step proved anything: the plan stands, its status says so, its bound is the relaxed one."""
    problem = a_problem()
    whole = programme.solve(problem, EXACT)
    monkeypatch.setattr(solver._Search, "is_proven", lambda self: False)
    honest = solver._Search.run
    monkeypatch.setattr(solver._Search, "run", lambda self, *bounds: honest(self, *bounds) and -np.inf)
    cut = programme.solve(problem, EXACT)
    assert cut.full_usd == whole.full_usd
    assert (cut.status, cut.bound_usd) == ("time_limit", cut.lp_bound_usd)
    assert 0 < cut.gap_share < 1
    monkeypatch.setattr(solver, "_by_highs", lambda *_: None)
    with pytest.raises(PlanError, match=r"highs found no plan within 8 s\. Raise \[plan\] time_limit_s"):
        programme.solve(problem, Options(time_limit_s=8.0))


def test_without_highs_cbc_answers_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "find_spec", lambda name: None)
    assert corrected.solve(a_problem()).solver == "cbc"


def test_an_unknown_solver_is_refused() -> None:
    with pytest.raises(PlanError, match=r"Unknown solver 'gurobi'\. Known: highs, cbc"):
        corrected.solve(a_problem(), Options("gurobi"))
