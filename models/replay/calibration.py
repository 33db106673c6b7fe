"""Calibrate a deployment to the measured requests of one instance, and replay those left out of the fit."""

import dataclasses
from typing import NamedTuple

import numpy as np

from models.latency.requests import Requests, fit_requests
from models.latency.roofline import roofline, work_of
from models.latency.tables import REACH, Floats
from models.replay.capacity import trial_fleet
from models.replay.fleet import make_rules
from models.replay.run import FINISHED, REFUSED, Drive, replay
from models.replay.state import Trace
from models.world.catalogue import Catalogue, LatencyProfile
from models.world.config import Config, Deployment

HELD_OUT_SHARE = 0.3  # the last of the requests
LEAST_REQUESTS = 100


class Calibration(NamedTuple):
    """The fitted profile, and how its replay differs from the requests left out of the fit."""

    profile: LatencyProfile
    fitted: int
    held_out: int
    ttft_error_share: float  # mean of |replayed - measured| / measured
    e2e_error_share: float
    mean_ttft_error_share: float  # of the mean: when a step ends beside an arrival is chance, its mean is not
    mean_e2e_error_share: float


def calibrate(
    requests: Requests, llm: str, deployment: Deployment, catalogue: Catalogue, config: Config, source: str
) -> Calibration:
    """Fit a profile to the earlier requests and tell its error on the later ones.

    `config` says how the instance batches ([fleet]) and orders its queue ([replay]).

    Raises ValueError for fewer than LEAST_REQUESTS requests, or one that the deployment has no room for.
    """
    count = requests.arrival_s.size
    if count < LEAST_REQUESTS:
        raise ValueError(
            f"{source} has {count} requests, needs at least {LEAST_REQUESTS}: the last "
            f"{100 * HELD_OUT_SHARE:.0f} % are left out of the fit. Measure for longer."
        )
    early = round((1 - HELD_OUT_SHARE) * count)
    work = work_of(catalogue.llms[llm], catalogue.gpus[deployment.gpu], deployment.tensor_parallel)
    is_mixed = config.fleet.batching != "whole"
    earlier = Requests._make(column[:early] for column in requests)
    fitted = fit_requests(earlier, work, catalogue.efficiency, is_mixed)
    told_by = f"calibrated: {count} requests of {source}"
    profile = LatencyProfile(llm, deployment.gpu, deployment.tensor_parallel, *fitted, None, told_by)
    replayed = np.stack(replayed_s(requests, profile, catalogue, config))[:, early:]
    measured = np.stack([requests.ttft_s, requests.e2e_s])[:, early:]
    errors = np.abs(replayed / measured - 1)
    told = dataclasses.replace(profile, median_error_share=round(float(np.median(errors[1])), 4))
    of_means = replayed.mean(axis=1) / measured.mean(axis=1) - 1
    return Calibration(told, early, count - early, *errors.mean(axis=1).tolist(), *of_means.tolist())


def estimate(llm: str, deployment: Deployment, catalogue: Catalogue) -> LatencyProfile:
    """The roofline's profile of a deployment that nobody measured."""
    gpu, gpus = deployment.gpu, deployment.tensor_parallel
    knots = roofline(catalogue.llms[llm], catalogue.gpus[gpu], gpus, catalogue.efficiency)
    return LatencyProfile(llm, gpu, gpus, *knots, None, "estimated: roofline.toml")


def replayed_s(
    requests: Requests, profile: LatencyProfile, catalogue: Catalogue, config: Config
) -> tuple[Floats, Floats]:
    """TTFT and E2E of the requests on one instance with that profile; NaN for what never ends."""
    max_batch = min(config.fleet.max_batch, REACH * profile.decode_batch[-1])
    sized = dataclasses.replace(config, fleet=dataclasses.replace(config.fleet, max_batch=max_batch))
    only = dataclasses.replace(catalogue, latency=(profile,))
    deployment = Deployment(profile.gpu, profile.tensor_parallel)
    fleet = trial_fleet(profile.llm, deployment, only, sized, instances=1)
    rules = make_rules(catalogue, config.replay, "follow")
    arrival_s = requests.arrival_s - requests.arrival_s[0]
    nobody = np.zeros(arrival_s.size, np.int16)
    trace = Trace(arrival_s, nobody, nobody, nobody, requests.input_tokens, requests.output_tokens)
    until_s = float(np.max(arrival_s + requests.e2e_s)) + 1.0
    outcome = replay(trace, fleet, Drive([[1]], hour_s=until_s), rules, until_s)
    if (outcome.status == REFUSED).any():
        at = int(np.argmax(outcome.status == REFUSED))
        raise ValueError(
            f"{profile.source}: one has {requests.input_tokens[at]} input and {requests.output_tokens[at]} "
            f"output tokens; {profile.tensor_parallel} x {profile.gpu} have no room for them beside "
            f"{profile.llm}. Name the deployment that was measured."
        )
    if (outcome.status != FINISHED).any():
        raise ValueError(
            f"{profile.source}: replayed, {np.sum(outcome.status != FINISHED)} of them never end, as more "
            "come than the instance can serve. Are they the requests of one instance, and all of them?"
        )
    return outcome.first_token_s - arrival_s, outcome.finish_s - arrival_s
