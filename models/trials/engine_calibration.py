"""Calibrate a deployment to a log of its requests: which engine it was, its seconds, and whether they hold.

Three of ten requests, and the first ones of the log, are left out of the fit. The whole timeline is replayed
all the same, since every request has its part in what the others meet. What the log's engine does not say of
itself is a hypothesis: each is fitted, and the best is named with its margin over the next.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.latency.profile_tables import ProfileFit
from fleetcast.models.latency.roofline import deployment_work, roofline_profile
from fleetcast.models.metrics import tpot_s
from fleetcast.models.trials.engine_fit import (
    FitProblem,
    FittedCurves,
    LoggedRequests,
    fit_bent_curves,
    fit_straight_curves,
    latency_fit,
    place_knots,
    refine_straight_curves,
    roofline_parameters,
)
from fleetcast.models.trials.log_replay import make_log_player
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import Deployment

HELD_OUT_SHARE = 0.3
WARM_UP = 10  # requests, the first of the log
LEAST_REQUESTS = 100
MAX_FIT_REQUESTS = 2_000  # requests that are replayed over and over; all are for the verdict
SEVERAL_INSTANCES = 2  # instances of the hypothesis that it was not one
CHECKED_PERCENTILES = (50, 90, 99)
LIMITS = {"TTFT": 0.15, "TPOT": 0.07, "E2E": 0.07}  # of the verdict


class Hypothesis(NamedTuple):
    """What an engine may have been, where its log does not say."""

    batching: str
    async_scheduling: bool
    instances: int

    def __str__(self) -> str:
        step = "one step behind" if self.async_scheduling else "synchronous"
        return f"{self.batching}, {step}" + (f", {self.instances} instances" if self.instances > 1 else "")


class CalibrationCheck(NamedTuple):
    """A line of the verdict: one figure of the requests left out of the fit, measured and replayed."""

    metric: str  # TTFT, TPOT or E2E
    of: str  # "P50" ..., or "a request": the median of the error of each
    measured_s: float
    replayed_s: float  # NaN for "a request"
    signed_error_share: float
    limit_share: float

    @property
    def passes(self) -> bool:
        """Whether it is within its limit; what never ended is not."""
        return abs(self.signed_error_share) <= self.limit_share


class Calibration(NamedTuple):
    """The profile, the engine that fits best, what the others miss by, and the verdict."""

    profile: LatencyProfile
    deployment: Deployment
    hypotheses: Mapping[Hypothesis, float]  # error of each, the best first
    verdict: list[CalibrationCheck]
    fitted: int
    held_out: int


def calibrate_profile(
    requests: LoggedRequests,
    llm: str,
    deployment: Deployment,
    catalogue: Catalogue,
    config: RunConfig,
    source: str,
    limits: Mapping[str, float] = LIMITS,
    done: Callable[[int], None] = lambda count: None,
) -> Calibration:
    """Find the profile with which the replay meets what was measured, and judge it by what was left out.

    `deployment` says what is known of the engine; its batching and its scheduling are hypotheses where they
    are None. `config` has the other limits ([fleet]).

    Raises ValueError for fewer than LEAST_REQUESTS requests, or one that the deployment has no room for.
    """
    require_enough_requests(requests, source)
    scored, held_out = split_log(requests.arrival_s.size)
    short = LoggedRequests._make(column[:MAX_FIT_REQUESTS] for column in requests)
    engine = config.fleet.engine(deployment)
    shape = place_knots(requests, engine.max_batch, engine.max_prefill_tokens)
    work = deployment_work(catalogue.llms[llm], catalogue.gpus[deployment.gpu], deployment.tensor_parallel)
    found: dict[Hypothesis, tuple[FitProblem, FittedCurves]] = {}
    start: FittedCurves | None = None
    for tried in engine_hypotheses(deployment):
        own = dataclasses.replace(
            deployment, batching=tried.batching, async_scheduling=tried.async_scheduling
        )
        play = make_log_player(short, llm, own, catalogue, config, tried.instances, source)
        search = FitProblem(play, short, scored[:MAX_FIT_REQUESTS], shape)
        if start is None:
            start = fit_straight_curves(search, roofline_parameters(work, catalogue.efficiency, shape))
            found[tried] = search, start
        else:
            found[tried] = (
                search,
                refine_straight_curves(search, start.log_parameters[np.cumsum([0, *shape.parts[:-1]])]),
            )
        done(len(found))
    ranked = sorted(found, key=lambda one: found[one][1].error)
    best = fit_bent_curves(*found[ranked[0]])
    profile = LatencyProfile(
        llm,
        deployment.gpu,
        deployment.tensor_parallel,
        *latency_fit(best.log_parameters, shape),
        None,
        f"calibrated: {requests.arrival_s.size} requests of {source}",
    )
    chosen = dataclasses.replace(
        deployment, batching=ranked[0].batching, async_scheduling=ranked[0].async_scheduling
    )
    verdict = validate_profile(requests, profile, chosen, catalogue, config, limits, ranked[0].instances)
    per_request = next(line for line in verdict if (line.metric, line.of) == ("E2E", "a request"))
    told = dataclasses.replace(profile, median_error_share=round(per_request.signed_error_share, 4))
    misses = {one: found[one][1].error for one in ranked}
    return Calibration(told, chosen, misses, verdict, int(scored.sum()), int(held_out.sum()))


def require_enough_requests(requests: LoggedRequests, source: str) -> None:
    """Refuse a log that is too short to judge a fit by."""
    count = requests.arrival_s.size
    if count < LEAST_REQUESTS:
        raise ValueError(
            f"{source} has {count} requests, needs at least {LEAST_REQUESTS}: {100 * HELD_OUT_SHARE:.0f} % "
            "are left out of the fit. Measure for longer."
        )


def split_log(count: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which requests are fitted, and which are judged, both of shape (count,); the first ones neither."""
    is_warm = np.arange(count) >= WARM_UP
    is_fitted = np.random.default_rng(0xCA1).random(count) >= HELD_OUT_SHARE
    return is_warm & is_fitted, is_warm & ~is_fitted


def engine_hypotheses(deployment: Deployment) -> list[Hypothesis]:
    """What the engine may have been, as far as nobody says; the last one is that there were several."""
    batchings = (deployment.batching,) if deployment.batching else ("chunked", "whole")
    is_async = deployment.async_scheduling
    schedulings = (False, True) if is_async is None else (is_async,)
    alone = [Hypothesis(*both, 1) for both in itertools.product(batchings, schedulings)]
    return [*alone, alone[0]._replace(instances=SEVERAL_INSTANCES)]


def validate_profile(
    requests: LoggedRequests,
    profile: LatencyProfile,
    deployment: Deployment,
    catalogue: Catalogue,
    config: RunConfig,
    limits: Mapping[str, float] = LIMITS,
    instances: int = 1,
) -> list[CalibrationCheck]:
    """How far the replay of a profile is off on the requests that no fit has seen, and within which limits.

    Percentiles of TTFT, of the time per output token and of E2E; and the median of the error of each request,
    which a profile that is right by chance does not meet.
    """
    _, held_out = split_log(requests.arrival_s.size)
    fit = ProfileFit(*(getattr(profile, name) for name in ProfileFit._fields))
    play = make_log_player(requests, profile.llm, deployment, catalogue, config, instances, profile.source)
    ttft_s, e2e_s = play(fit)
    columns = {
        "TTFT": (requests.ttft_s, ttft_s, held_out),
        "TPOT": (
            tpot_s(requests.ttft_s, requests.e2e_s, requests.output_tokens),
            tpot_s(ttft_s, e2e_s, requests.output_tokens),
            held_out & (requests.output_tokens > 1),
        ),
        "E2E": (requests.e2e_s, e2e_s, held_out),
    }
    lines = []
    for metric, (measured, replayed, rows) in columns.items():
        if not rows.any():
            continue
        own, found = measured[rows], np.where(np.isnan(replayed), np.inf, replayed)[rows]
        for percent in CHECKED_PERCENTILES:
            # the inverted distribution is one of the values: what never ended stays infinite
            was, now = (float(np.percentile(of, percent, method="inverted_cdf")) for of in (own, found))
            lines.append(CalibrationCheck(metric, f"P{percent}", was, now, now / was - 1, limits[metric]))
        each = float(np.median(np.abs(found / own - 1)))
        lines.append(
            CalibrationCheck(metric, "a request", float(np.median(own)), float("nan"), each, limits[metric])
        )
    return lines


def estimate_profile(llm: str, deployment: Deployment, catalogue: Catalogue) -> LatencyProfile:
    """The roofline's profile of a deployment that nobody measured."""
    return roofline_profile(catalogue, llm, deployment.gpu, deployment.tensor_parallel)
