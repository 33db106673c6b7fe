"""Requests as a benchmark tool sends them: by clients that wait for their answers, or at a rate.

In a closed loop each of C clients sends its next request when its last one has ended (vllm bench serve
--max-concurrency, aiperf, guidellm). The replay plays it as C chains of legs: the front end is the time
between two legs, and no score is good enough to end a chain. Rows of the trace are the order of the queue, so
they must be in the order of sending. That order is known only after a replay: the rows are sorted by it, and
the replay is repeated, until nothing moves. All that happens before the first wrong row is right, so each
repetition mends at least one row.
"""

from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.run import Schedule, Session
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.trace_rows import single_tier_trace

MAX_CLIENT_REQUESTS = 127  # a leg is a number of one byte
ACCOUNTED_S = 1.0  # a session plays this long by its plan, then to the end
ENDLESS_S = 1e9
POISSON_SEED = 0xB3C4


class SentRequests(NamedTuple):
    """Requests in order of sending, and their times at the client; each column has shape (R,)."""

    output_tokens: Ints
    client: Ints  # number of its client; 0 for all if they are sent at a rate
    sent_s: Floats  # seconds from the first request
    ttft_s: Floats
    e2e_s: Floats


def replay_equal_requests(
    clients: int | None,
    requests_per_s: float,
    requests: int,
    lengths: tuple[int, int],
    fleet: FleetArrays,
    rules: Rules,
) -> SentRequests:
    """Replay requests of equal lengths, input and output tokens, by clients or else (None) at a rate.

    ValueError as for `replay_client_loop` and `replay_poisson_load`.
    """
    input_tokens, output_tokens = (np.full(requests, tokens) for tokens in lengths)
    if clients is None:
        return replay_poisson_load(requests_per_s, input_tokens, output_tokens, fleet, rules)
    return replay_client_loop(clients, input_tokens, output_tokens, fleet, rules)


def replay_client_loop(
    clients: int, input_tokens: Ints, output_tokens: Ints, fleet: FleetArrays, rules: Rules
) -> SentRequests:
    """Replay clients that send one request after another, without a pause.

    clients : requests that run or wait at any time; they all begin at 0 s
    input_tokens, output_tokens : shape (R,), of the requests; client c sends the rows c, c + clients, ...

    ValueError for fewer requests than clients, too many for a client, or a request that does not fit.
    """
    check_client_load(clients, input_tokens.size)
    frontend_s = float(fleet.network_s[0, 0])
    rules = rules._replace(
        go_on_below=np.ones_like(rules.go_on_below), judge_s=np.full_like(rules.judge_s, frontend_s)
    )
    order = np.arange(input_tokens.size)
    for _ in range(input_tokens.size):
        trace = closed_loop_trace(clients, order, input_tokens, output_tokens)
        outcome = replay_to_the_end(trace, fleet._replace(has_transfers=True), rules)
        sent_s = client_send_s(trace, outcome)
        if (np.diff(sent_s) >= 0).all():
            break
        order = order[np.argsort(sent_s, kind="stable")]
    return SentRequests(
        output_tokens[order],
        order % clients,
        sent_s,
        outcome.first_token_s - sent_s,
        outcome.finish_s - sent_s,
    )


def check_client_load(clients: int, requests: int) -> None:
    """Raise ValueError for numbers of clients and requests that no closed loop can have."""
    if clients < 1:
        raise ValueError(
            f"The concurrency is {clients}, must be at least 1. Name how many requests run at once."
        )
    if requests < clients:
        raise ValueError(
            f"{requests:,} requests at a concurrency of {clients:,} leave {clients - requests:,} clients "
            "without any. Raise the requests or lower the concurrency."
        )
    if requests > MAX_CLIENT_REQUESTS * clients:
        raise ValueError(
            f"{requests:,} requests at a concurrency of {clients:,} are more than {MAX_CLIENT_REQUESTS} for "
            f"a client. Lower the requests to {MAX_CLIENT_REQUESTS * clients:,}."
        )


def closed_loop_trace(clients: int, order: Ints, input_tokens: Ints, output_tokens: Ints) -> TraceArrays:
    """Return the requests as chains, one per client, with the rows in this order, shape (R,)."""
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    following = order + clients
    has_next = following < order.size
    then = np.where(has_next, place[np.where(has_next, following, 0)], NO_INDEX)
    return single_tier_trace(np.zeros(order.size), input_tokens[order], output_tokens[order])._replace(
        then=then.astype(np.int32),
        leg=(order // clients).astype(np.int8),
        score=np.zeros(order.size, np.float32),
    )


def client_send_s(trace: TraceArrays, outcome: Outcome) -> Floats:
    """Return when the client sends each row, shape (R,), s: at 0, then when it has its last answer."""
    sent_s = trace.arrival_s.copy()
    before = np.flatnonzero(trace.then != NO_INDEX)
    sent_s[trace.then[before]] = outcome.finish_s[before]
    return sent_s


def replay_poisson_load(
    requests_per_s: float, input_tokens: Ints, output_tokens: Ints, fleet: FleetArrays, rules: Rules
) -> SentRequests:
    """Replay requests with Poisson arrivals at a rate; tokens: shape (R,). ValueError if one does not fit."""
    if not 0 < requests_per_s < np.inf:
        raise ValueError(f"The rate is {requests_per_s:g} requests/s, must be above 0. Name a rate.")
    size = input_tokens.size
    gaps_s = np.random.default_rng(POISSON_SEED).exponential(1 / requests_per_s, size)
    sent_s = np.cumsum(gaps_s) - gaps_s[0]
    outcome = replay_to_the_end(single_tier_trace(sent_s, input_tokens, output_tokens), fleet, rules)
    return SentRequests(
        output_tokens,
        np.zeros(size, np.int64),
        sent_s,
        outcome.first_token_s - sent_s,
        outcome.finish_s - sent_s,
    )


def replay_to_the_end(trace: TraceArrays, fleet: FleetArrays, rules: Rules) -> Outcome:
    """Replay until all requests have ended; ValueError for a request that does not fit on an instance."""
    tokens, room = trace.input_tokens + trace.output_tokens, int(fleet.llm_max_request_tokens[0])
    if tokens.max() > room:
        at = int(np.argmax(tokens))
        raise ValueError(
            f"A request of {trace.input_tokens[at]:,} input and {trace.output_tokens[at]:,} output tokens "
            f"does not fit: an instance has room for {room:,}. Shorten it, or give an instance more GPUs."
        )
    session = Session(fleet, rules, np.diff(fleet.slots))
    session.append_trace(trace)
    usage = session.play(Schedule(np.diff(fleet.slots), hour_s=ACCOUNTED_S), ACCOUNTED_S)
    session.finish(ENDLESS_S)
    return session.outcome(*usage)
