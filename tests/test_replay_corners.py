"""Corners of the replay that the property tests pass by: each of these caught a break made on purpose."""

import numpy as np
import pytest
from one_endpoint import a_fleet, a_trace, run, some_rules

from fleetcast.models.replay.event_queue import drop_key, push_key
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.world.mechanisms import PoolSpread


@pytest.mark.parametrize("seed", range(20))
def test_a_key_may_leave_the_heap_from_anywhere(seed: int) -> None:
    """Preemption takes a request out of the middle of the batch; the earliest finish must stay on top."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 99, 64)
    heap = np.zeros(keys.size, np.int64)
    for size, key in enumerate(keys):
        push_key.py_func(heap, size, key)
    for size in range(keys.size, 0, -1):
        left = sorted(heap[:size])
        at = int(rng.integers(size))
        left.remove(heap[at])
        drop_key.py_func(heap, size, at)
        assert sorted(heap[: size - 1]) == left
        assert all(heap[child] >= heap[(child - 1) // 2] for child in range(1, size - 1))


def test_utilisation_is_the_time_mean_of_the_tokens_held() -> None:
    """One prompt of 100 tokens and one output token holds 100 of 1,000 tokens while it is prefilled."""
    outcome = run(a_trace([0.0], 100, 1), a_fleet(1, kv_capacity=np.array([1000])), horizon_s=1.0)
    assert outcome.kv_share[0, 0] == pytest.approx(0.1 * 100 / 1024)


def test_a_code_is_a_plain_integer() -> None:
    """Numba would look up the types of a member of an enum anew at each call."""
    rules = some_rules()._replace(spread=PoolSpread.WEIGHTS)
    with pytest.raises(TypeError, match="The kernel got a member of PoolSpread, needs its integer"):
        run(a_trace([0.0], 1, 1), a_fleet(1), rules)


def test_the_last_hour_may_be_a_part_of_one() -> None:
    fleet = a_fleet(2)
    outcome = replay_trace(a_trace([0.0], 1, 1), fleet, Schedule([[2], [2]], hour_s=64.0), some_rules(), 96.0)
    assert outcome.instance_s[:, 0, 0].tolist() == [128.0, 64.0]


def test_requests_join_batches_only_after_arrival() -> None:
    """On times that binary numbers cannot hold: a request that comes a hair after a boundary waits a step."""
    step_s, kv_s = 0.0371, 7.3e-8
    fleet = a_fleet(1, 8)
    tables = fleet.latency
    fleet = fleet._replace(
        latency=tables._replace(
            decode_s=np.full_like(tables.decode_s, step_s), decode_kv_s=np.full_like(tables.decode_kv_s, kv_s)
        )
    )
    base_s = run(a_trace([0.1], 700, 400), fleet).first_token_s[0]
    late = 0
    for steps in range(1, 390):
        boundary_s = base_s + steps * (step_s + kv_s * 700) + kv_s * (steps * (steps - 1) // 2)
        for arrival_s in (boundary_s, np.nextafter(boundary_s, np.inf)):
            trace = a_trace([0.1, arrival_s], [700, 1], [400, 1])
            leapt = run(trace, fleet)
            late += leapt.first_token_s[1] - 1 / 1024 < arrival_s
    assert late == 0
