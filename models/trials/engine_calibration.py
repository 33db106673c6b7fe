"""Calibrate a deployment to a log of its requests: find its engine settings and latencies, and validate them.

The fit leaves out three of ten requests, and the first ones of the log. The replay always plays the whole
log, because each request affects the others. Unknown settings of the engine are hypotheses: each of them is
fitted, and the best one is reported with the errors of the others.

A log shows nothing of batches that it never had. A curve that is fitted to it would continue by chance. So
the fitted knots end with the largest batch of the log, and above it the profile is the computed one times the
median factor of the fitted knots. Further knots with the median leave it as it is, so that the profile
corrects other degrees (profile_order.py) by what was measured only.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.latency_errors import catalogue_errors
from fleetcast.models.latency.profile_order import (
    FACTOR_CONTEXT,
    compute_profile,
    context_step_s,
    correction_factors,
)
from fleetcast.models.latency.profile_tables import ProfileFit
from fleetcast.models.latency.roofline import deployment_work
from fleetcast.models.metrics import tpot_s
from fleetcast.models.trials.engine_fit import (
    CURVE_KNOTS,
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
from fleetcast.models.trials.log_replay import MeasuredEngine, make_log_player
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile
from fleetcast.models.world.fleet_config import Deployment

HELD_OUT_SHARE = 0.3
WARM_UP = 10  # requests at the start of the log
LEAST_REQUESTS = 100
MAX_FIT_REQUESTS = 2_000  # requests of the replays in the fit; the validation uses all
SEVERAL_INSTANCES = 2  # times as many, of the hypothesis that there were more instances than is known
CHECKED_PERCENTILES = (50, 90, 99)
LIMITS = {"TTFT": 0.08, "TPOT": 0.07, "E2E": 0.07}  # largest relative error that passes the validation


class SeenLoad(NamedTuple):
    """The largest loads of a log."""

    batch: int  # requests of an instance between first and last token at one time
    prompt_tokens: int  # of the longest prompt
    waiting_tokens: int  # prompt tokens of all requests without their first token at one time


def find_seen_load(requests: LoggedRequests, instances: int) -> SeenLoad:
    """Return the largest loads of a log that so many instances share."""
    waiting = most_at_once(requests.input_tokens, requests.arrival_s, requests.arrival_s + requests.ttft_s)
    return SeenLoad(
        -(-max_concurrency(requests) // instances), int(requests.input_tokens.max()), int(waiting)
    )


def max_concurrency(requests: LoggedRequests) -> int:
    """Return the largest number of requests between their first and last token at the same time."""
    first, last = requests.arrival_s + requests.ttft_s, requests.arrival_s + requests.e2e_s
    return max(1, int(most_at_once(np.ones(first.size), first, last)))


def most_at_once(amounts: npt.NDArray[Any], begin_s: Floats, end_s: Floats) -> float:
    """Return the largest sum of amounts at one time, each from its begin to its end; (n,) each."""
    times, change = np.concatenate([begin_s, end_s]), np.concatenate([amounts, -1.0 * amounts])
    order = np.lexsort((change, times))  # at equal times, those that end come first
    return float(np.cumsum(change[order]).max())


def complete_profile(
    catalogue: Catalogue, profile: LatencyProfile, seen_batch: int, max_batch: int
) -> LatencyProfile:
    """Return a fitted profile with the computed one, times the median factor, above `seen_batch`.

    Its error is that of the computed profile where most doublings up to `max_batch` were not seen: the square
    of `seen_batch` is then below it. Else it has none. Unchanged without knots above `seen_batch`.
    """
    batch = np.array(profile.decode_batch)
    if batch[-1] <= seen_batch:
        return profile
    count = int((batch <= seen_batch).sum())
    seen = replace(profile, decode_batch=profile.decode_batch[:count], decode_s=profile.decode_s[:count])
    computed = compute_profile(catalogue, profile.llm, profile.gpu, profile.tensor_parallel)
    _, factor = correction_factors(seen, computed)
    beyond = np.unique(np.geomspace(seen_batch, max_batch, CURVE_KNOTS).astype(int))[1:]
    beyond_s = factor * context_step_s(computed, beyond)
    beyond_s -= profile.decode_per_kv_token_s * beyond * FACTOR_CONTEXT
    [error] = catalogue_errors(replace(catalogue, latency=(computed,)))
    return replace(
        seen,
        decode_batch=(*seen.decode_batch, *beyond.tolist()),
        decode_s=(*seen.decode_s, *np.maximum(beyond_s, seen.decode_s[-1]).round(6).tolist()),
        median_error_share=round(error.decode_share, 4) if seen_batch**2 < max_batch else None,
    )


class Hypothesis(NamedTuple):
    """Possible settings of an engine, where its log does not have them."""

    batching: str
    async_scheduling: bool
    instances: int

    def __str__(self) -> str:
        step = "one step behind" if self.async_scheduling else "synchronous"
        return f"{self.batching}, {step}" + (f", {self.instances} instances" if self.instances > 1 else "")


class CalibrationCheck(NamedTuple):
    """A line of the validation: one statistic of the held-out requests, measured and replayed."""

    metric: str  # TTFT, TPOT or E2E
    of: str  # "P50" ..., or "a request", "a load": the median of the errors of single ones
    measured_s: float
    replayed_s: float  # NaN for the errors of single ones
    signed_error_share: float
    limit_share: float

    @property
    def passes(self) -> bool:
        """Whether the error is within its limit; that of requests that never ended is not."""
        return abs(self.signed_error_share) <= self.limit_share


class Calibration(NamedTuple):
    """The profile, the engine settings that fit best, the error of each hypothesis, and the validation."""

    profile: LatencyProfile
    deployment: Deployment
    hypotheses: Mapping[Hypothesis, float]  # mean log error of each, the best first
    verdict: list[CalibrationCheck]
    fitted: int  # requests
    held_out: int  # requests
    seen: SeenLoad


def calibrate_profile(
    requests: LoggedRequests,
    engine: MeasuredEngine,
    limits: Mapping[str, float] = LIMITS,
    done: Callable[[int], None] = lambda count: None,
    run_starts: Sequence[int] = (0,),
) -> Calibration:
    """Fit a profile so that the replay matches the log, and validate it on the held-out requests.

    Where the engine's batching or scheduling is None, they are hypotheses. `done` is called with the number
    of fitted ones. `run_starts` has the index of the first request of each run, where the log is of several.

    Raises ValueError for fewer than LEAST_REQUESTS requests, or for one that does not fit on the deployment.
    """
    require_enough_requests(requests, engine.source)
    deployment, catalogue = engine.deployment, engine.catalogue
    scored, held_out = split_log(requests.arrival_s.size)
    replayed = requests_to_fit(requests.arrival_s.size, run_starts)
    short = LoggedRequests._make(column[replayed] for column in requests)
    known = engine.config.fleet.engine(deployment)
    seen = find_seen_load(requests, engine.instances)
    longest = min(seen.waiting_tokens, known.max_prefill_tokens)
    shape = place_knots(int(requests.input_tokens.min()), longest, seen.batch, known.max_batch)
    llm, gpu = catalogue.llms[engine.llm], catalogue.gpus[deployment.gpu]
    work = deployment_work(llm, gpu, deployment.tensor_parallel)
    fits: dict[Hypothesis, tuple[FitProblem, FittedCurves]] = {}
    start: FittedCurves | None = None
    for hypothesis in engine_hypotheses(engine):
        play = make_log_player(short, _with_hypothesis(engine, hypothesis))
        problem = FitProblem(play, short, scored[replayed], shape)
        if start is None:
            start = fit_straight_curves(problem, roofline_parameters(work, catalogue.efficiency, shape))
            fits[hypothesis] = problem, start
        else:
            five = start.log_parameters[np.cumsum([0, *shape.parts[:-1]])]
            fits[hypothesis] = problem, refine_straight_curves(problem, five)
        done(len(fits))
    ranked = sorted(fits, key=lambda hypothesis: fits[hypothesis][1].error)
    best = fit_bent_curves(*fits[ranked[0]])
    fitted = LatencyProfile(
        engine.llm,
        deployment.gpu,
        deployment.tensor_parallel,
        *latency_fit(best.log_parameters, shape),
        source=f"calibrated: {requests.arrival_s.size} requests of {engine.source}",
    )
    profile = complete_profile(catalogue, fitted, seen.batch, known.max_batch)
    chosen = _with_hypothesis(engine, ranked[0])
    verdict = validate_profile(requests, profile, chosen, limits)
    per_request = next(line for line in verdict if (line.metric, line.of) == ("E2E", "a request"))
    error_share = max(round(per_request.signed_error_share, 4), profile.median_error_share or 0.0)
    profile = dataclasses.replace(profile, median_error_share=error_share)
    errors = {hypothesis: fits[hypothesis][1].error for hypothesis in ranked}
    counts = int(scored[replayed].sum()), int(held_out.sum())
    return Calibration(profile, chosen.deployment, errors, verdict, *counts, seen)


def _with_hypothesis(engine: MeasuredEngine, hypothesis: Hypothesis) -> MeasuredEngine:
    """Return the engine with the settings of the hypothesis."""
    batching, async_scheduling, instances = hypothesis
    deployment = dataclasses.replace(engine.deployment, batching=batching, async_scheduling=async_scheduling)
    return engine._replace(deployment=deployment, instances=instances)


def require_enough_requests(requests: LoggedRequests, source: str) -> None:
    """Raise ValueError for a log that is too short to validate a fit."""
    count = requests.arrival_s.size
    if count < LEAST_REQUESTS:
        raise ValueError(
            f"{source} has {count} requests, needs at least {LEAST_REQUESTS}: {100 * HELD_OUT_SHARE:.0f} % "
            "are left out of the fit. Measure for longer."
        )


def split_log(count: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return which requests are fitted and which held out, shape (count,) each; the first are neither."""
    is_warm = np.arange(count) >= WARM_UP
    is_fitted = np.random.default_rng(0xCA1).random(count) >= HELD_OUT_SHARE
    return is_warm & is_fitted, is_warm & ~is_fitted


def requests_to_fit(count: int, run_starts: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Return which requests the fit replays, shape (count,): the first of each run, as many of each."""
    of_run = np.arange(count) - np.repeat(run_starts, np.diff([*run_starts, count]))
    return np.asarray(of_run < MAX_FIT_REQUESTS // len(run_starts))


def engine_hypotheses(engine: MeasuredEngine) -> list[Hypothesis]:
    """Return the hypotheses on the engine's unknown settings; the last one has twice the instances."""
    deployment, instances = engine.deployment, engine.instances
    batchings = (deployment.batching,) if deployment.batching else ("chunked", "whole")
    is_async = deployment.async_scheduling
    schedulings = (False, True) if is_async is None else (is_async,)
    alone = [Hypothesis(*both, instances) for both in itertools.product(batchings, schedulings)]
    return [*alone, alone[0]._replace(instances=SEVERAL_INSTANCES * instances)]


def validate_profile(
    requests: LoggedRequests,
    profile: LatencyProfile,
    engine: MeasuredEngine,
    limits: Mapping[str, float] = LIMITS,
) -> list[CalibrationCheck]:
    """Compare the replay of a profile with the held-out requests; return one check for each statistic.

    The statistics are percentiles of TTFT, TPOT and E2E, and the median of the errors of single requests. A
    profile that matches the percentiles by chance fails the last one.
    """
    _, held_out = split_log(requests.arrival_s.size)
    fit = ProfileFit(*(getattr(profile, name) for name in ProfileFit._fields))
    ttft_s, e2e_s = make_log_player(requests, engine._replace(source=profile.source))(fit)
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
        log_s, replay_s = measured[rows], np.where(np.isnan(replayed), np.inf, replayed)[rows]
        for percent in CHECKED_PERCENTILES:
            # inverted_cdf returns one of the values, so a request that never ended stays infinite.
            was, now = (float(np.percentile(of, percent, method="inverted_cdf")) for of in (log_s, replay_s))
            lines.append(CalibrationCheck(metric, f"P{percent}", was, now, now / was - 1, limits[metric]))
        median_s, error = float(np.median(log_s)), float(np.median(np.abs(replay_s / log_s - 1)))
        lines.append(CalibrationCheck(metric, "a request", median_s, float("nan"), error, limits[metric]))
    return lines
