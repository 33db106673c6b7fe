"""The replay: leaping = stepping = the naive twin, the invariants of models/replay/run.py, and its errors."""

from typing import Any

import naive
import numpy as np
import pytest
import strategies
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.replay.batch import BATCHINGS
from models.replay.queue import ORDERS
from models.replay.route import ROUTINGS
from models.replay.run import FINISHED, QUEUED, REFUSED, TAIL_PERIODS, Drive, Outcome, Session, replay
from models.replay.scale import SCALINGS
from models.replay.state import Fleet, Rules, Trace

HOUR_S = strategies.HOUR_S
HORIZON_S = strategies.HOURS * HOUR_S
settings.register_profile("replay", deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("replay")


@st.composite
def cases(draw: st.DrawFn) -> tuple[Trace, Fleet, Rules, Any]:
    rules = draw(strategies.rules())
    fleet, (targets, forecasts, start) = draw(strategies.fleets()), draw(strategies.plans())
    start = [int(np.clip(n, fleet.min_instances, fleet.instances_at_start)) for n in start]
    return draw(strategies.traces()), fleet, rules, (targets, forecasts, start)


def run(trace: Trace, fleet: Fleet, rules: Rules, plan: Any) -> Outcome:
    targets, forecasts, start = plan
    return replay(trace, fleet, Drive(targets, forecasts, start, HOUR_S), rules, HORIZON_S)


def assert_same(a: Outcome, b: Outcome) -> None:
    for name in Outcome._fields:
        if name != "events":
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


@settings(max_examples=1500)
@given(cases())
def test_leaping_equals_stepping_equals_the_naive_twin(case: tuple[Trace, Fleet, Rules, Any]) -> None:
    """Invariant 7, and with it every mechanism: same events, same order, same numbers."""
    trace, fleet, rules, plan = case
    leapt = run(trace, fleet, rules, plan)
    assert_same(leapt, run(trace, fleet, rules._replace(steps_per_event=1), plan))

    targets, forecasts, start = plan
    rows = zip(*(column.tolist() for column in trace), strict=True)
    requests, spent = naive.replay(
        rows,
        fleet,
        rules,
        (SCALINGS[rules.scaling], ORDERS[rules.order], BATCHINGS[fleet.batching], ROUTINGS[rules.routing]),
        (targets, forecasts, start),
        HORIZON_S,
        TAIL_PERIODS * HOUR_S,
        HOUR_S,
    )
    none = np.nan
    for n, request in enumerate(requests):
        region = -1 if request.served_by is None else fleet.endpoint[request.served_by] % strategies.REGIONS
        network_s = 0.0 if region < 0 else fleet.network_s[request.region, region]
        expected = (
            none if request.first_token_s is None else request.first_token_s + network_s,
            none if request.finish_s is None else request.finish_s + network_s,
            region,
            request.preemptions,
            REFUSED if request.refused else QUEUED if request.finish_s is None else FINISHED,
        )
        got = (
            leapt.first_token_s[n],
            leapt.finish_s[n],
            leapt.served_region[n],
            leapt.preemptions[n],
            leapt.status[n],
        )
        np.testing.assert_array_equal(got, expected, err_msg=f"request {n}: {request}")
    endpoints = leapt.instance_s.sum(axis=0).reshape(strategies.ENDPOINTS, 4)
    np.testing.assert_array_equal(endpoints, spent)


@settings(max_examples=300)
@given(cases())
def test_invariants_of_any_replay(case: tuple[Trace, Fleet, Rules, Any]) -> None:
    trace, fleet, rules, plan = case
    outcome = run(trace, fleet, rules, plan)
    done = outcome.status == FINISHED
    # 1. every request ends exactly once, or is said to be queued still
    assert (np.isfinite(outcome.finish_s) == done).all()
    too_large = trace.input_tokens + trace.output_tokens > fleet.kv_capacity[trace.llm]
    assert ((outcome.status == REFUSED) == too_large).all()
    # 2. arrival <= first token <= finish
    assert (outcome.first_token_s[done] >= trace.arrival_s[done]).all()
    assert (outcome.finish_s[done] >= outcome.first_token_s[done]).all()
    # what a wait is made of: held, queued, prefilled
    assert (outcome.dispatched_s[done] >= trace.arrival_s[done]).all()
    assert (outcome.admitted_s[done] >= outcome.dispatched_s[done]).all()
    assert (outcome.first_token_s[done] > outcome.admitted_s[done]).all()
    # 5. time by state adds up to the time of the VMs: none is lost or in two states
    assert (outcome.instance_s >= 0).all()
    assert (outcome.instance_s.sum(axis=3) <= fleet.max_instances * HOUR_S).all()
    # 6. bit-identical when repeated
    assert_same(outcome, run(trace, fleet, rules, plan))
    # utilisation is a share
    assert ((outcome.kv_share >= 0) & (outcome.kv_share <= 1) | np.isnan(outcome.kv_share)).all()


@settings(max_examples=300)
@given(cases(), st.sampled_from([0.25, 16.0, 64.0, 90.0]))
def test_feeding_in_parts_and_saving_between_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[Trace, Fleet, Rules, Any], cut_s: float
) -> None:
    """Part 1, saved and loaded, then part 2 = both at once: bit by bit, request by request."""
    trace, fleet, rules, (targets, forecasts, start) = case
    one_row = Drive(targets[:1], forecasts[:1], hour_s=2 * HORIZON_S)
    whole = Session(fleet, rules, start)
    whole.feed(trace)
    whole.play(one_row, cut_s)
    whole.play(one_row, HORIZON_S)
    path = tmp_path_factory.mktemp("session") / "saved.npz"
    first = Session(fleet, rules, start)
    early = trace.arrival_s < cut_s
    first.feed(Trace(*(column[early] for column in trace)))
    spent = first.play(one_row, cut_s)
    ended = dict(zip(first.row, first.outcome(*spent).finish_s, strict=True))
    first.save(path)
    second = Session.load(path, fleet, rules)
    second.feed(Trace(*(column[~early] for column in trace)))
    spent = second.play(one_row, HORIZON_S)
    ended |= dict(zip(second.row, second.outcome(*spent).finish_s, strict=True))
    expected = whole.outcome(*spent)
    np.testing.assert_array_equal([ended[row] for row in range(trace.arrival_s.size)], expected.finish_s)
    np.testing.assert_array_equal(whole.state.instance_s, second.state.instance_s)
