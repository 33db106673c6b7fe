"""Speculative decoding: its tables against counting step by step, and laws of what it is worth."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_endpoint import DECODE_S, KV_S, a_fleet, a_pair, a_trace, run, some_rules
from vllm_cases import GPU, LLM, case_setting

from fleetcast.models.latency.profile_tables import drafted_step_s, profile_prefill_s
from fleetcast.models.replay.kernel_inputs import ALL_STEPS, DRAFT_CYCLE, FleetArrays
from fleetcast.models.replay.session.draft_tables import make_draft_tables
from fleetcast.models.trials.capacity import trial_fleet
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.mechanisms import Batching

RATES = (0.875, 0.5, 0.125)
ACCEPTANCES = st.lists(st.integers(0, 16), max_size=4).map(lambda ks: [k / 16 for k in sorted(ks)[::-1]])


def chunked_fleet(rates: tuple[float, ...], instances: int = 1, max_batch: int = 4) -> FleetArrays:
    """Instances whose steps make the tokens that these rates accept."""
    tables = make_draft_tables([rates], [0.0])
    return a_fleet(instances, max_batch, batching=np.array([Batching.CHUNKED]), drafts=tables)


def steps_of(made: Any, tokens: int) -> int:
    """The fewest steps, from the first of the cycle on, that make so many tokens."""
    return int(np.searchsorted(np.cumsum(np.resize(made, tokens)), tokens)) + 1


@settings(max_examples=30, deadline=None)
@given(ACCEPTANCES, st.integers(2, 3 * DRAFT_CYCLE), st.integers(0, 40))
def test_stretches_equal_counting_step_by_step(rates, output: int, later_s: int) -> None:
    """Over the end of the cycle too, leapt and stepped; a second request cuts the first one's stretches."""
    fleet, rules = chunked_fleet(tuple(rates)), some_rules()
    made = np.diff(fleet.drafts.made[0])
    assert [np.mean(made > draft) for draft in range(1, len(rates) + 1)] == rates
    alone = run(a_trace([0.0], 16, output), fleet, horizon_s=36_000.0)
    steps = steps_of(made, output - 1)
    before = np.concatenate([[0], np.cumsum(np.resize(made, steps))])[:-1]
    seconds = steps * DECODE_S + (16 + before).sum() * KV_S
    assert float(alone.finish_s[0] - alone.first_token_s[0]) == pytest.approx(seconds, rel=1e-12)
    both = a_trace([0.0, later_s + 1 / 64], 16, output)
    leapt, stepped = (
        run(both, fleet, rules=rules._replace(steps_per_event=most), horizon_s=36_000.0)
        for most in (ALL_STEPS, 1)
    )
    np.testing.assert_allclose(leapt.finish_s, stepped.finish_s, rtol=1e-12)


def test_steps_take_the_seconds_of_a_step_and_make_the_tokens_of_the_rates() -> None:
    """One request after the other: seconds of decoding are those of 1 / (1 + sum of rates) as many steps."""
    output = 1 + 2 * DRAFT_CYCLE
    found = [
        run(a_trace([0.0], 16, output), chunked_fleet(rates), horizon_s=36_000.0)
        for rates in ((), RATES, (1.0, 1.0))
    ]
    decode_s = [float(one.finish_s[0] - one.first_token_s[0]) for one in found]
    assert found[0].first_token_s == found[1].first_token_s
    # Only the reading of the cache depends on when tokens are made.
    assert decode_s[0] / decode_s[1] == pytest.approx(1 + sum(RATES), rel=0.01)
    assert decode_s[0] / decode_s[2] == pytest.approx(3.0, rel=0.01)
    assert decode_s[0] > 2 * DRAFT_CYCLE * DECODE_S


@pytest.mark.parametrize("rates", [(0.0,), (0.0, 0.0, 0.0)])
def test_drafts_that_are_never_accepted_cost_and_bring_nothing(rates: tuple[float, ...]) -> None:
    """Requests one at a time meet the same, to the last bit; where they meet each other, all are later."""
    for gap_s, is_later in ((64.0, False), (1 / 8, True)):
        trace = a_trace(gap_s * np.arange(12), 64, 40)
        none, idle = (run(trace, chunked_fleet(one), horizon_s=3600.0) for one in ((), rates))
        assert (idle.finish_s >= none.finish_s).all()
        assert (idle.finish_s > none.finish_s).any() == is_later


def test_a_step_with_drafts_costs_as_a_batch_of_as_many_tokens() -> None:
    catalogue, config = case_setting()
    plain = Deployment(GPU, 1, batching="chunked", max_batch=64, max_prefill_tokens=8192)
    drafted = dataclasses.replace(plain, speculative_acceptance=(0.5, 0.25), speculative_draft_s=0.001)
    fleets = [trial_fleet(LLM, pool, catalogue, config, 1) for pool in (plain, drafted)]
    usual, checked = (fleet.latency.decode_s[0] for fleet in fleets)
    np.testing.assert_allclose(checked[1:20], usual[3:60:3] + 0.002)
    assert (np.diff(checked[1:]) >= 0).all()
    assert fleets[0].max_request_tokens[0] - fleets[1].max_request_tokens[0] == 2


def test_beyond_the_batches_of_its_profile_a_step_with_drafts_is_at_least_a_prefill() -> None:
    """Up to them it is a step of as many requests, though a prefill of nine times the time is longer."""
    known = case_setting()[0].profile(LLM, GPU, 1)
    profile = dataclasses.replace(known, prefill_s=tuple(9 * each for each in known.prefill_s))
    most = profile.decode_batch[-1]
    within, beyond = np.arange(1, most // 3 + 1), np.arange(most // 3 + 1, most + 1)
    as_batch_s = drafted_step_s(profile, 3 * within, 0, 0.0)
    np.testing.assert_allclose(drafted_step_s(profile, within, 2, 0.5) - 0.5, as_batch_s)
    assert (drafted_step_s(profile, beyond, 2, 0.0) >= profile_prefill_s(profile, 3 * beyond)).all()


def test_drafts_go_on_where_a_failed_instance_stopped() -> None:
    """The steps before a failure count in the cycle, leapt or stepped: it comes amid a stretch."""
    fleet, found = chunked_fleet((0.5, 0.25)), []
    for most in (ALL_STEPS, 1):
        rules = some_rules(steps_per_event=most, failure_s=np.array([2.0]), failure_slot=np.array([0]))
        found.append(run(a_trace([0.0], 16, 400), fleet, rules=rules, horizon_s=3600.0))
    assert found[0].preemptions.tolist() == [1]
    np.testing.assert_allclose(found[0].finish_s, found[1].finish_s, rtol=1e-12)


def test_a_request_with_a_sent_cache_has_memory_for_its_first_drafts() -> None:
    """It waits until the other one has ended; admitted before, it would lose its cache at once."""
    fleet = a_pair(1, 1, 0.0, batching=np.array([Batching.CHUNKED]), max_batch=4)
    fleet = fleet._replace(
        drafts=make_draft_tables([(1.0, 1.0, 1.0)], [0.0]), kv_capacity=np.array([40]),
        kv_block_tokens=8, max_request_tokens=np.full(2, 37), llm_max_request_tokens=np.array([37]),
        latency=fleet.latency._replace(decode_s=np.full((1, 5), DECODE_S), decode_kv_s=np.zeros((1, 5))),
    )  # fmt: skip
    for length in range(4, 25):
        outcome = run(a_trace([0.0, 1 / 64], [length, 13], [9, 14]), fleet, horizon_s=3600.0)
        assert outcome.preemptions.tolist() == [0, 0], length
        assert np.isfinite(outcome.finish_s).all()
