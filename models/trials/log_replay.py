"""A log of requests played by an engine's curves: what a calibration compares with what was measured."""

import dataclasses
from collections.abc import Callable

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.profile_tables import ProfileFit, build_latency_tables
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.trials.capacity import trial_fleet, trial_rules
from fleetcast.models.trials.engine_fit import LoggedRequests
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import Deployment

LOG_TIMEOUT_FACTOR = 2  # times as long as the log: what has not ended then never does


def make_log_player(
    requests: LoggedRequests,
    llm: str,
    deployment: Deployment,
    catalogue: Catalogue,
    config: RunConfig,
    instances: int,
    source: str,
) -> Callable[[ProfileFit], tuple[Floats, Floats]]:
    """What the requests meet on so many instances by their curves: TTFT and E2E; NaN if they never end."""
    engine = config.fleet.engine(deployment)

    def profile_of(fit: ProfileFit) -> LatencyProfile:
        return LatencyProfile(llm, deployment.gpu, deployment.tensor_parallel, *fit, None, source)

    flat = ProfileFit((1, 2), (1e-3, 1e-3), (1, engine.max_batch + 1), (1e-3, 1e-3), 0.0)
    only = dataclasses.replace(catalogue, latency=(profile_of(flat),))
    fleet = trial_fleet(llm, deployment, only, config, instances=instances)
    tokens = requests.input_tokens + requests.output_tokens
    if tokens.max() > fleet.llm_max_request_tokens[0]:
        at = int(np.argmax(tokens))
        raise ValueError(
            f"{source}: one has {requests.input_tokens[at]} input and {requests.output_tokens[at]} "
            f"output tokens; {deployment.tensor_parallel} x {deployment.gpu} have no room for them "
            f"beside {llm}. Name the deployment that was measured."
        )
    context_s = fleet.latency.prefill_context_s
    rules = trial_rules(llm, catalogue, config)
    arrival_s = requests.arrival_s - requests.arrival_s[0]
    nobody = np.zeros(arrival_s.size, np.int16)
    trace = TraceArrays(arrival_s, nobody, nobody, nobody, requests.input_tokens, requests.output_tokens)
    until_s = LOG_TIMEOUT_FACTOR * float(np.max(arrival_s + requests.e2e_s)) + 1.0
    drive = Schedule([[instances]], hour_s=until_s)

    def play(fit: ProfileFit) -> tuple[Floats, Floats]:
        laid_out = build_latency_tables([profile_of(fit)], [engine.max_batch])
        outcome = replay_trace(
            trace,
            fleet._replace(latency=laid_out._replace(prefill_context_s=context_s)),
            drive,
            rules,
            until_s,
        )
        return outcome.first_token_s - arrival_s, outcome.finish_s - arrival_s

    return play
