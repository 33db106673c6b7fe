"""Closed loops: Little's law, closed forms, and the order of sending; `fleetcast try LLM --concurrency`."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from typer.testing import CliRunner

from fleetcast.assets.studies.try_fleet import FRONTEND_S, parse_fleet, with_frontend
from fleetcast.assets.studies.try_load import TryLoad, load_row, parse_load_fleets, run_load_trials
from fleetcast.models.latency.profile_tables import profile_prefill_s
from fleetcast.models.replay.kernel_inputs import FleetArrays, Rules
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.replay.session.trace_rows import single_tier_trace
from fleetcast.models.trials.capacity import fixed_fleet
from fleetcast.models.trials.client_load import (
    MAX_CLIENT_REQUESTS,
    SentRequests,
    closed_loop_trace,
    replay_client_loop,
    replay_poisson_load,
    replay_to_the_end,
)
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.pipelines.cli import cli_app

CATALOGUE = load_catalogue().of_era("2023", "here")
OFFICE = load_config("sageserve", CATALOGUE)
LLM, GPU = "llama3.1-8b", "h100-80gb"
PROFILE = CATALOGUE.profile(LLM, GPU, 1)
INPUT, OUTPUT = 1024, 256


def a_fleet(
    instances: int = 1, max_batch: int = 64, frontend_s: float = 0.0, **engine: object
) -> tuple[FleetArrays, Rules]:
    fleet = dataclasses.replace(
        OFFICE.fleet,
        **{"batching": "chunked", "async_scheduling": True, "max_prefill_tokens": 2048} | engine,  # type: ignore[arg-type]
        max_batch=max_batch,
        frontend_s=frontend_s,
    )
    config = dataclasses.replace(
        OFFICE, fleet=fleet, replay=dataclasses.replace(OFFICE.replay, order="fcfs", cascades={})
    )
    alone = CATALOGUE.serving([LLM])
    arrays = fixed_fleet({LLM: [(Deployment(GPU, 1), instances)]}, alone, config)
    return arrays, make_rules(alone, config.replay, "follow")


def equal_load(clients: int, rounds: int, **fleet: object) -> SentRequests:
    tokens = (np.full(clients * rounds, count) for count in (INPUT, OUTPUT))
    return replay_client_loop(clients, *tokens, *a_fleet(**fleet))  # type: ignore[arg-type]


def lengths(requests: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens that differ by request."""
    rng = np.random.default_rng(2)
    return rng.integers(100, 3000, requests), rng.integers(20, 400, requests)


@pytest.mark.parametrize("frontend_s", [0.0, 0.25])
def test_a_client_alone_takes_the_prefill_and_the_steps_of_the_profile(frontend_s: float) -> None:
    sent = equal_load(1, 5, frontend_s=frontend_s)
    kv = INPUT + np.arange(OUTPUT - 1)
    prefill_s = float(profile_prefill_s(PROFILE, INPUT))
    steps_s = float((PROFILE.decode_s[0] + PROFILE.decode_per_kv_token_s * kv).sum())
    np.testing.assert_allclose(sent.ttft_s, frontend_s + prefill_s, rtol=1e-12)
    np.testing.assert_allclose(sent.e2e_s, frontend_s + prefill_s + steps_s, rtol=1e-12)
    np.testing.assert_allclose(sent.sent_s, np.arange(5) * sent.e2e_s[0], rtol=1e-12)


@pytest.mark.parametrize(("instances", "max_batch"), [(1, 64), (1, 8), (3, 8)])
def test_as_many_requests_are_there_at_any_time_as_clients(instances: int, max_batch: int) -> None:
    """Little's law, exactly: until a client has its last answer, C requests are sent and not ended."""
    clients, requests = 32, 640
    fleet = a_fleet(instances, max_batch, frontend_s=0.02)
    sent = replay_client_loop(clients, *lengths(requests), *fleet)
    end_s = sent.sent_s + sent.e2e_s
    until_s = min(end_s[sent.client == client].max() for client in range(clients))
    overlap_s = np.minimum(end_s, until_s) - np.minimum(sent.sent_s, until_s)
    assert overlap_s.sum() / until_s == pytest.approx(clients, rel=1e-12)
    row = load_row(sent, instances)
    mean_e2e_s = float(sent.e2e_s.mean())
    assert row["requests_per_s"] * mean_e2e_s == pytest.approx(row["mean_concurrency"], rel=1e-12)
    steady = equal_load(clients, 40, instances=instances, max_batch=max_batch)
    steady_row = load_row(steady, instances)
    assert steady_row["requests_per_s"] * float(steady.e2e_s.mean()) == pytest.approx(clients, rel=0.02)


def test_each_client_sends_when_it_has_its_last_answer_and_the_queue_is_by_sending() -> None:
    """Whether or not requests wait, with lengths that differ."""
    clients, requests = 24, 480
    inputs, outputs = lengths(requests)
    fleet, rules = a_fleet(max_batch=4, frontend_s=0.01)
    sent = replay_client_loop(clients, inputs, outputs, fleet, rules)
    assert (np.diff(sent.sent_s) >= 0).all()
    end_s = sent.sent_s + sent.e2e_s
    for client in range(clients):
        own = sent.client == client
        np.testing.assert_allclose(sent.sent_s[own][1:], end_s[own][:-1], rtol=1e-12)
        assert sent.output_tokens[own].tolist() == outputs[client::clients].tolist()
    assert (sent.ttft_s > 0.01).all()
    # The same requests, sent at these times by users who wait for nothing, have the same outcome.
    order = np.argsort(sent.sent_s, kind="stable")
    assert (order == np.arange(requests)).all()
    by_client = {client: iter(inputs[client::clients]) for client in range(clients)}
    in_order = np.array([next(by_client[client]) for client in sent.client])
    opened = replay_to_the_end(single_tier_trace(sent.sent_s, in_order, sent.output_tokens), fleet, rules)
    np.testing.assert_allclose(opened.first_token_s - sent.sent_s, sent.ttft_s, rtol=1e-6)
    np.testing.assert_allclose(opened.finish_s - sent.sent_s, sent.e2e_s, rtol=1e-6)


def test_throughput_rises_with_the_concurrency_until_the_batch_is_full() -> None:
    rows = [load_row(equal_load(clients, 10, max_batch=64), 1) for clients in (1, 2, 4, 8, 16, 32, 64)]
    assert all(less["requests_per_s"] < more["requests_per_s"] for less, more in pairwise(rows))
    full = load_row(equal_load(128, 10, max_batch=64), 1)
    assert full["requests_per_s"] == pytest.approx(rows[-1]["requests_per_s"], rel=0.05)
    assert full["ttft_p50_s"] > 5 * rows[-1]["ttft_p50_s"]


def test_which_client_sends_what_changes_nothing_where_requests_are_equal() -> None:
    """Chains in another order of clients: the same times, in every round."""
    clients, rounds = 12, 6
    fleet, rules = a_fleet(max_batch=4)
    fleet = fleet._replace(has_transfers=True)
    rules = rules._replace(go_on_below=np.ones_like(rules.go_on_below))
    tokens = np.full(clients * rounds, INPUT), np.full(clients * rounds, OUTPUT)
    shuffled = np.random.default_rng(4).permutation(clients)
    order = (np.arange(rounds)[:, None] * clients + shuffled).ravel()
    plain, other = (
        replay_to_the_end(closed_loop_trace(clients, rows, *tokens), fleet, rules)
        for rows in (np.arange(order.size), order)
    )
    for name in ("first_token_s", "finish_s"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(other, name))


def test_a_rate_that_never_overlaps_is_a_client_alone() -> None:
    tokens = np.full(50, INPUT), np.full(50, OUTPUT)
    alone = equal_load(1, 1)
    sent = replay_poisson_load(1e-3, *tokens, *a_fleet())
    np.testing.assert_allclose(sent.e2e_s, alone.e2e_s[0], rtol=1e-6)
    assert 50 / sent.sent_s[-1] == pytest.approx(1e-3, rel=0.3)


def test_figures_per_gpu_and_the_front_end_of_an_estimate() -> None:
    load = TryLoad(LLM, INPUT, OUTPUT, concurrency=(4, 16))
    (text, pool), *_ = parse_load_fleets(load, [f"2 x {LLM}@{GPU}"], CATALOGUE, OFFICE).items()
    config = with_frontend(OFFICE, [pool], CATALOGUE, None)
    assert config.fleet.frontend_s == FRONTEND_S
    small, large = run_load_trials(load, text, pool, CATALOGUE, config)
    assert (small.load, large.row["requests"], small.row["requests"]) == ("4 at once", 256, 100)
    assert large.row["gpus"] == 2
    assert large.row["output_tokens_per_s_gpu"] == large.row["output_tokens_per_s"] / 2
    assert large.row["output_tokens_per_s"] == pytest.approx(OUTPUT * large.row["requests_per_s"])
    measured = parse_fleet("1 x llama2-70b@4xh100-80gb", CATALOGUE, OFFICE)
    assert with_frontend(OFFICE, measured, CATALOGUE, None).fleet.frontend_s == 0.0
    assert with_frontend(OFFICE, measured, CATALOGUE, 0.5).fleet.frontend_s == 0.5


def test_the_figures_of_two_requests() -> None:
    times_s = np.array([[0.0, 1.0], [0.5, 0.25], [2.5, 4.25]])  # sent, TTFT, E2E
    row = load_row(SentRequests(np.array([5, 3]), np.arange(2), *times_s), gpus=4)
    assert (row["duration_s"], row["requests_per_s"]) == (5.25, 2 / 5.25)
    assert (row["output_tokens_per_s"], row["output_tokens_per_s_gpu"]) == (8 / 5.25, 2 / 5.25)
    assert row["mean_concurrency"] == 6.75 / 5.25
    assert row["itl_mean_s"] == 6.0 / 6, "all gaps of both count alike"
    assert row["tpot_p50_s"] == (0.5 + 2.0) / 2, "requests count alike"
    assert (row["ttft_p50_s"], row["e2e_p50_s"]) == (0.375, 3.375)


LENGTHS = ("--input", "1024", "--output", "256")
FILE_OPTIONS = ("--prices", "a.toml", "--provider", "a", "--prefix", "none", "--columns", "a=b")


@pytest.mark.parametrize(
    ("llm", "options", "message"),
    [
        (LLM, ("--concurrency", "0", *LENGTHS), "The concurrency is 0, must be at least 1."),
        (LLM, ("--concurrency", "4", "--rate", "2", *LENGTHS), "--concurrency and --rate are both given"),
        (LLM, ("--concurrency", "4", "--input", "9"), "A load needs --output: the tokens of each request."),
        (
            LLM,
            ("--concurrency", "4", "--input", "900000", "--output", "9"),
            "does not fit: an instance has room",
        ),
        (LLM, ("--concurrency", "4", "--input", "0", "--output", "9"), "--input is 0, must be from 1 to"),
        (LLM, ("--concurrency", "4", "--max-batch", "0", *LENGTHS), "--max-batch is 0, must be from 1 to"),
        (LLM, ("--concurrency", "9", "--requests", "5", *LENGTHS), "leave 4 clients without any. Raise"),
        (
            LLM,
            ("--concurrency", "2", "--requests", "999", *LENGTHS),
            f"more than {MAX_CLIENT_REQUESTS} for a client",
        ),
        (LLM, ("--rate", "0", *LENGTHS), "--rate is 0 requests/s, must be from"),
        (LLM, LENGTHS, "without --concurrency or --rate: a file has its own requests,"),
        (
            "a.csv",
            ("--max-batch", "9", "--max-prefill-tokens", "9"),
            "--max-batch and --max-prefill-tokens without --concurrency or --rate: a file has its own",
        ),
        (
            LLM,
            ("--rate", "4", *LENGTHS, *FILE_OPTIONS),
            "--provider and --prices and --prefix and --columns with --concurrency or --rate: a",
        ),
        (LLM, (), "llama3.1-8b is an llm, not a trace file. Add --concurrency"),
        ("llama3.1-9b", ("--concurrency", "4", *LENGTHS), "unknown llm 'llama3.1-9b'. Did you mean"),
        (LLM, ("--concurrency", "4", *LENGTHS, "--frontend-s", "-1"), "--frontend-s is -1 s, must be from 0"),
        (
            LLM,
            ("--concurrency", "4", *LENGTHS, "--fleet", "1 x llama2-70b@h100-80gb"),
            "has llama2-70b, the load is for llama3.1-8b.",
        ),
    ],
)
def test_a_load_that_cannot_be_is_refused_in_one_line(
    llm: str, options: tuple[str, ...], message: str
) -> None:
    result = CliRunner().invoke(cli_app, ["try", llm, *options, "--quiet"])
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_the_command_prints_what_a_benchmark_tool_prints() -> None:
    arguments = [
        "try",
        LLM,
        "--concurrency",
        "1",
        "--concurrency",
        "8",
        *LENGTHS,
        "--frontend-s",
        "0",
        "--quiet",
    ]
    result = CliRunner().invoke(cli_app, arguments)
    assert result.exit_code == 0, result.output
    assert "1,024 input and 256 output tokens per request" in result.output
    alone = load_row(equal_load(1, 100), 1)
    line = next(line for line in result.output.splitlines() if line.startswith("1 at once"))
    assert f"{alone['requests_per_s']:.2f}" in line
    assert "front end" not in result.output
    assert "estimated" not in result.output


def test_the_command_says_why_a_profile_is_only_estimated() -> None:
    fleet = ("--fleet", "1 x qwen3-8b@rtx4090-24gb")
    result = CliRunner().invoke(cli_app, ["try", "qwen3-8b", "--concurrency", "2", *LENGTHS, *fleet, "-q"])
    assert result.exit_code == 0, result.output
    assert "1 x rtx4090-24gb for qwen3-8b: estimated: roofline.toml, because aiconfig" in result.output
