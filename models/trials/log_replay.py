"""Replay a log of requests with given latency curves, for comparison with its measured times."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.profile_order import find_profile
from fleetcast.models.latency.profile_tables import ProfileFit, build_latency_tables
from fleetcast.models.replay.run import TAIL_PERIODS, Schedule, Session
from fleetcast.models.replay.session.trace_rows import single_tier_trace
from fleetcast.models.replay.state import State
from fleetcast.models.trials.capacity import trial_fleet, trial_rules
from fleetcast.models.trials.engine_fit import LoggedRequests
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import Deployment

LOG_TIMEOUT_FACTOR = 2  # times the length of the log; a request that has not ended by then never does


class MeasuredEngine(NamedTuple):
    """An engine that was measured, and what its replay needs.

    deployment : what is known of the engine
    config : has its other limits, in [fleet]
    source : name of the log or benchmark
    instances : that share what was measured: the data-parallel ranks of a dense llm
    """

    llm: str
    deployment: Deployment
    catalogue: Catalogue
    config: RunConfig
    source: str
    instances: int = 1

    def known_profile(self) -> LatencyProfile:
        """Return the profile of the deployment from the best source of the catalogue."""
        return find_profile(self.catalogue, self.llm, self.deployment.gpu, self.deployment.tensor_parallel)


def make_log_player(
    requests: LoggedRequests, engine: MeasuredEngine
) -> Callable[[ProfileFit], tuple[Floats, Floats]]:
    """Return a function that replays the log on the engine with given latency curves.

    The function returns TTFT and E2E of the requests, shape (requests,), seconds; NaN if they never end.
    ValueError for a request that does not fit on the deployment.
    """
    llm, deployment, catalogue, config, source, instances = engine
    max_batch = config.fleet.engine(deployment).max_batch

    def profile_of(fit: ProfileFit) -> LatencyProfile:
        return LatencyProfile(llm, deployment.gpu, deployment.tensor_parallel, *fit, source=source)

    flat = ProfileFit((1, 2), (1e-3, 1e-3), (1, max_batch + 1), (1e-3, 1e-3), 0.0)
    only = dataclasses.replace(catalogue, latency=(profile_of(flat),))
    fleet = trial_fleet(llm, deployment, only, config, instances=instances)
    tokens = requests.input_tokens + requests.output_tokens
    if tokens.max() > fleet.llm_max_request_tokens[0]:
        at = int(np.argmax(tokens))
        raise ValueError(
            f"{source}: one has {requests.input_tokens[at]} input and {requests.output_tokens[at]} "
            f"output tokens; {deployment.tensor_parallel} x {deployment.gpu} have no room for them "
            f"with the weights of {llm}. Name the deployment that was measured."
        )
    context_s = fleet.latency.prefill_context_s
    rules = trial_rules(llm, catalogue, config)
    arrival_s = requests.arrival_s - requests.arrival_s[0]
    trace = single_tier_trace(arrival_s, requests.input_tokens, requests.output_tokens)
    until_s = LOG_TIMEOUT_FACTOR * float(np.max(arrival_s + requests.e2e_s)) + 1.0
    schedule = Schedule([[instances]], hour_s=until_s)
    session = Session(fleet, rules, [instances])
    session.append_trace(trace)
    begin = session.state

    def play(fit: ProfileFit) -> tuple[Floats, Floats]:
        tables = build_latency_tables([profile_of(fit)], [max_batch])
        session.fleet = fleet._replace(latency=tables._replace(prefill_context_s=context_s))
        # A session takes longer to set up than a short log to replay, so all replays begin from one.
        session.state = State._make(column.copy() for column in begin)
        usage = session.play(schedule, until_s)
        session.finish(until_s + TAIL_PERIODS * schedule.hour_s)
        outcome = session.outcome(*usage)
        return outcome.first_token_s - arrival_s, outcome.finish_s - arrival_s

    return play
