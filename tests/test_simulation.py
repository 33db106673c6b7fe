"""The replay from Python: the page's ten lines, what a policy sees, and what comes out."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fleetcast import Fleet, Observation, Trace, replay
from fleetcast.models.world.catalogue_entries import LatencyProfile
from fleetcast.models.world.toml_dataclasses import ConfigError

PAGE = Path(__file__).parents[1] / "models" / "replay" / "README.md"
LLM, GPU = "llama3.1-8b", "h100-80gb"


def test_the_lines_of_the_page_run() -> None:
    (block,) = re.findall(r"```python\n(from fleetcast.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict = {}
    exec(block, names)
    requests = names["requests"]
    assert (requests["status"] == "finished").all()
    assert len(requests) == len(names["trace"].requests)
    assert requests.attrs["usd"] > 0


def test_a_policy_sees_every_arrival_once_and_gets_what_it_wants() -> None:
    trace = Trace.poisson(4.0, 1800.0, seed=3)
    seen: list[Observation] = []

    def one_more(now: Observation) -> int:
        seen.append(now)
        return 1 + len(seen) // 10

    requests = replay(trace, Fleet(LLM, GPU, max_instances=4, boot_s=30.0), one_more, every_s=60.0)
    assert (requests["status"] == "finished").all()
    assert [now.now_s for now in seen] == [60.0 * call for call in range(len(seen))]
    last = seen[-1].now_s
    arrived = trace.requests["arrival_s"] < last
    assert sum(now.arrived for now in seen) == arrived.sum()
    tokens = trace.requests["input_tokens"] + trace.requests["output_tokens"]
    assert sum(now.arrived_tokens for now in seen) == tokens[arrived].sum()
    assert seen[0].serving == 1
    assert max(now.serving for now in seen) == 1 + (len(seen) - 1) // 10
    # an hour's bill: the integral of what served or booted
    assert 0 < requests.attrs["gpu_hours"] <= 4 * (seen[-1].now_s + 60.0) / 3600.0


def test_a_policy_that_wants_what_there_is_changes_nothing() -> None:
    trace = Trace.poisson(10.0, 600.0, seed=5)
    fixed = replay(trace, Fleet(LLM, GPU, instances=2))
    pd.testing.assert_frame_equal(fixed, replay(trace, Fleet(LLM, GPU, instances=2), lambda seen: 2))
    assert fixed.attrs["gpu_hours"] == pytest.approx(2 * 600.0 / 3600.0, rel=0.11)  # whole intervals


def test_more_instances_never_make_the_mean_first_token_later() -> None:
    trace = Trace.poisson(60.0, 240.0, seed=7)
    waits = [replay(trace, Fleet(LLM, GPU, instances=count))["ttft_s"].mean() for count in (1, 2, 4)]
    assert waits == sorted(waits, reverse=True)


def test_a_trace_may_have_timestamps_columns_of_its_own_and_any_order() -> None:
    table = Trace.poisson(5.0, 60.0, seed=1).requests.assign(app="chat")
    stamps = pd.Timestamp("2025-07-15", tz="UTC") + pd.to_timedelta(table["arrival_s"].round(6), unit="s")
    shuffled = table.drop(columns="arrival_s").assign(arrived_at=stamps).sample(frac=1.0, random_state=0)
    requests = replay(Trace(shuffled), Fleet(LLM, GPU))
    pd.testing.assert_index_equal(requests.index, shuffled.index)
    pd.testing.assert_series_equal(requests["arrived_at"], shuffled["arrived_at"])
    sorted_s = replay(Trace(table), Fleet(LLM, GPU))["ttft_s"]
    np.testing.assert_allclose(requests["ttft_s"].sort_index(), sorted_s, atol=1e-5)
    assert (requests["app"] == "chat").all()
    single = requests["output_tokens"] == 1
    assert requests.loc[single, "tpot_s"].isna().all()
    assert np.isfinite(requests.loc[~single, "tpot_s"]).all()


def trace_of(**values: object) -> Trace:
    """A single request."""
    return Trace(pd.DataFrame({"arrival_s": 0.0, "input_tokens": 9, "output_tokens": 9} | values, index=[0]))


def trace_at(text: str) -> Trace:
    """Two requests, the second at a time in text."""
    return Trace(pd.DataFrame({"arrived_at": ["2025-07-15", text], "input_tokens": 9, "output_tokens": 9}))


def test_a_fleet_may_begin_without_instances() -> None:
    found = replay(trace_of(), Fleet(LLM, GPU, instances=0, max_instances=1, boot_s=5.0), lambda seen: 1)
    assert found["status"].tolist() == ["finished"]
    assert found["ttft_s"].min() > 5.0


def test_a_profile_of_an_estimate_needs_no_error() -> None:
    """As in latency.toml. Keys after the curves have names: an old call by place is refused, not misread."""
    curves = (LLM, GPU, 1, (256, 2048), (0.02, 0.13), (1, 64), (0.01, 0.02), 1e-7)
    fleets = [
        Fleet(LLM, GPU, profile=LatencyProfile(*curves, source="mine", **error))
        for error in ({}, {"median_error_share": None}, {"median_error_share": 0.07})
    ]
    trace = Trace.poisson(4.0, 60.0, seed=3)
    first, *others = (replay(trace, fleet) for fleet in fleets)
    for other in others:
        pd.testing.assert_frame_equal(first, other)
    by_place: tuple = (*curves, None, "mine")
    with pytest.raises(TypeError, match="positional"):
        LatencyProfile(*by_place)


def test_numbers_in_arrived_at_are_seconds_since_1970() -> None:
    rows = pd.DataFrame({"arrived_at": [1_750_000_060, 1_750_000_000], "input_tokens": 9, "output_tokens": 9})
    assert Trace(rows).requests["arrival_s"].tolist() == [60.0, 0.0]


def test_texts_in_arrived_at_may_differ_in_offset_and_decimals() -> None:
    texts = ["2025-07-15 10:00:01.5", "2025-07-15T12:00:00+02:00", "2025-07-15 10:00:02Z"]
    rows = pd.DataFrame({"arrived_at": texts, "input_tokens": 9, "output_tokens": 9})
    assert Trace(rows).requests["arrival_s"].tolist() == [1.5, 0.0, 2.0]


@pytest.mark.parametrize("wanted", [None, np.nan, "3", 2.7, -3, True, np.inf])
def test_a_policy_must_return_a_number_of_instances(wanted) -> None:
    def decide(seen: Observation) -> object:
        return 1.0 if seen.now_s < 60.0 else wanted  # a whole number of any type

    with pytest.raises(ValueError, match=r"^policy decide at 60 s: got .*needed a whole number of instances"):
        replay(trace_of(arrival_s=90.0), Fleet(LLM, GPU), decide)


def test_more_instances_than_the_fleet_s_maximum_stand_for_these() -> None:
    trace, fleet = Trace.poisson(10.0, 200.0, seed=5), Fleet(LLM, GPU, instances=2)
    pd.testing.assert_frame_equal(replay(trace, fleet), replay(trace, fleet, lambda seen: 10**30))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Trace(pd.DataFrame({"arrival_s": [0.0]})), ValueError, "lacks input_tokens, output_tokens"),
        (lambda: Trace(Trace.poisson(1, 9).requests.head(0)), ValueError, "lacks requests"),
        (lambda: replay(Trace.poisson(1, 9), Fleet("lama3.1-8b", GPU)), ConfigError, "llama3.1-8b"),
        (lambda: replay(Trace.poisson(1, 9), Fleet(LLM, "h100")), ConfigError, "h100-80gb"),
        (lambda: trace_of(arrival_s=pd.Timestamp("2025-01-01")), ValueError, "Name timestamps arrived_at"),
        (lambda: trace_of(arrival_s=np.nan), ValueError, "arrival_s must be finite and not negative"),
        (lambda: Trace.poisson(0, 9), ValueError, "requests_per_s: got 0, needed a number"),
        (lambda: Trace.poisson(1, -9), ValueError, "duration_s: got -9, needed a number above 0"),
        (lambda: trace_at("noon"), ValueError, "arrived_at of row 1: got 'noon', needed a timestamp in ISO"),
        (lambda: trace_at("15/07/2025"), ValueError, "arrived_at of row 1: got '15/07/2025'"),
        (lambda: trace_of(input_tokens=2**32 + 100), ValueError, "row 0: got 4294967396, needed a whole"),
        (lambda: trace_of(output_tokens=np.nan), ValueError, "output_tokens of row 0: got nan"),
        (lambda: trace_of(output_tokens=0), ValueError, "output_tokens of row 0: got 0"),
        (lambda: replay(trace_of(), Fleet(LLM, GPU), every_s=-1), ValueError, "every_s: got -1"),
        (lambda: replay(trace_of(arrival_s=1.75e9), Fleet(LLM, GPU)), ValueError, "from the first arrival"),
        (lambda: Fleet(LLM, GPU, instances=0), ValueError, "instances: got 0, needed a whole number from 1"),
        (lambda: Fleet(LLM, GPU, instances=1.5), ValueError, "instances: got 1.5"),
        (lambda: Fleet(LLM, GPU, instances=4, max_instances=2), ValueError, "max_instances: got 2, needed"),
        (lambda: Fleet(LLM, GPU, tensor_parallel=0), ValueError, "tensor_parallel: got 0"),
        (lambda: Fleet(LLM, GPU, max_batch=0), ValueError, "max_batch: got 0"),
        (lambda: Fleet(LLM, GPU, boot_s=-1), ValueError, "boot_s: got -1"),
        (lambda: replay(trace_of(), Fleet("llama3.1-405b-fp8", "l40s-48gb")), ConfigError, "have 43 GiB"),
    ],
)
def test_what_cannot_be_played_is_refused(make, error, message) -> None:
    with pytest.raises(error, match=re.escape(message)) as raised:
        make()
    assert "\n" not in str(raised.value)
