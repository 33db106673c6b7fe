"""The kernel, leaping and stepping, against the naive twin: many more random cases than the tests have."""

import sys
import time
from typing import Any

import numpy as np
import test_replay
from hypothesis import HealthCheck, Phase, given, seed, settings
from measure import Figures, Target

CASES = 6000
TARGETS = {
    "twin_cases": Target("cases", "random fleets, rules and traces that both play, with a fresh seed"),
    "twin_ranked_cases": Target("cases", "of them, with data-parallel ranks"),
    "twin_differences": Target("cases", "in which one request or one second differs", at_most=0),
}


def twin() -> Figures:
    """Play the cases of test_replay.py; each that differs is printed, without making it smaller."""
    drawn, differing, ranked = int(time.time()), 0, 0

    @seed(drawn)
    @settings(
        max_examples=CASES,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(test_replay.cases())
    def play(case: tuple[Any, ...]) -> None:
        nonlocal differing, ranked
        trace, fleet, rules, plan = case
        ranked += int(fleet.ranks.max() > 1)
        try:
            leapt = test_replay.run(trace, fleet, rules, plan)
            stepped = test_replay.run(trace, fleet, rules._replace(steps_per_event=1), plan)
            test_replay.assert_invariants(leapt, case)
            test_replay.assert_same(leapt, stepped)
            _, spent = test_replay.assert_twin_agrees(leapt, case, plan, test_replay.HOUR_S, ())
            np.testing.assert_array_equal(leapt.instance_s.sum(axis=0), spent)
        except AssertionError as error:
            differing += 1
            print(f"seed {drawn}: {fleet}\n{rules}\n{error}", file=sys.stderr)

    play()
    return {"twin_cases": CASES, "twin_ranked_cases": ranked, "twin_differences": differing}


FUNCTIONS = (twin,)
SMOKE = {"twin": {"CASES": 5}}
