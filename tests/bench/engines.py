"""Calibration: real engines' logs, logs of our own replay, and profiles that must not pass."""

import dataclasses
import json
import time
from pathlib import Path

import numpy as np
from measure import SHARED, Figures, Skipped, Target
from workloads import setting

from fleetcast.assets.studies.engine_logs import read_engine_limits, read_log
from fleetcast.models.latency.profile_tables import ProfileFit
from fleetcast.models.trials.engine_calibration import calibrate_profile, validate_profile
from fleetcast.models.trials.engine_fit import LoggedRequests
from fleetcast.models.trials.log_replay import MeasuredEngine, make_log_player
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile
from fleetcast.models.world.fleet_config import Deployment

LOGS = {  # folder, and what was measured there
    "rtx4090_llama-3.1-8b": ("llama3.1-8b", "rtx4090-24gb", 1),
    "rtxpro6000_qwen3-32b_tp2": ("qwen3-32b", "rtxpro6000-96gb", 2),
}
MADE = ("llama2-70b", "h100-80gb", 4)  # the deployment of our own logs, by its profile of the catalogue
RATES = (0.5, 2.0, 4.0)  # requests per second
REQUESTS = 400
OFF = (0.6, 0.75, 1.35, 1.7)  # what makes a profile bad, times each of its three figures
TARGETS = {
    "engines_e2e_error": Target(
        "share", "E2E of a request left out, median; the worse of two real vLLM logs", at_most=0.01
    ),
    "engines_ttft_error": Target("share", "the same of TTFT", at_most=0.05),
    "engines_unqueued_ttft_error": Target("share", "the same of the requests that did not wait"),
    "engines_calibrate_seconds": Target("s", "the longer of both; CPU, the kernel compiled", at_most=15.0),
    "engines_self_error": Target(
        "share",
        "E2E of a request left out, median: noise-free logs of our own replay at 0.5, 2 and 4 requests/s and "
        "at the real logs' arrivals, whole and chunked; the worst",
        at_most=0.02,
    ),
    "engines_bad_profiles": Target("profiles", "calibrated ones with one figure off", at_least=10),
    "engines_bad_profiles_refused": Target("profiles", "of these, what the verdict does not let pass"),
}


def real_logs() -> Figures:
    """Two vLLM engines, calibrated as the command does it; their profiles made worse, which must not pass."""
    if not (SHARED / "engines").exists():
        raise Skipped("no engine logs in ../shared/data/engines")
    catalogue, (_, config) = load_catalogue(), setting()
    e2e, ttft, unqueued, seconds, profiles, refused = [], [], [], [], 0, 0
    for folder, (llm, gpu, degree) in LOGS.items():
        log = read_log(SHARED / "engines" / folder / "requests.jsonl").requests
        limits = read_engine_limits(SHARED / "engines" / folder / "meta.json")
        del limits["tensor_parallel"], limits["has_prefix_cache"]
        engine = Deployment(gpu, degree, **limits)
        before = time.process_time()
        measured = MeasuredEngine(llm, engine, catalogue, config, folder)
        best = calibrate_profile(log, measured)
        seconds.append(time.process_time() - before)
        off = {line.metric: line.signed_error_share for line in best.verdict if line.of == "a request"}
        e2e.append(off["E2E"])
        ttft.append(off["TTFT"])
        unqueued.append(unqueued_ttft_error(folder, log, best.profile, best.deployment))
        for worse in made_worse(best.profile):
            verdict = validate_profile(log, worse, measured._replace(deployment=best.deployment))
            profiles += 1
            refused += not all(line.passes for line in verdict)
    return {
        "engines_e2e_error": max(e2e),
        "engines_ttft_error": max(ttft),
        "engines_unqueued_ttft_error": max(unqueued),
        "engines_calibrate_seconds": max(seconds),
        "engines_bad_profiles": profiles,
        "engines_bad_profiles_refused": refused,
    }


def unqueued_ttft_error(
    folder: str, log: LoggedRequests, profile: LatencyProfile, deployment: Deployment
) -> float:
    """Median error of TTFT over those that the engine took in within a step, warm-up left out."""
    catalogue, (_, config) = load_catalogue(), setting()
    lines = (SHARED / "engines" / folder / "requests.jsonl").read_text().splitlines()
    rows = sorted(map(json.loads, lines), key=lambda row: row["arrival_time"])
    waited_s = np.array([row["scheduled_ts"] - row["queued_ts"] for row in rows])
    fit = ProfileFit(*(getattr(profile, name) for name in ProfileFit._fields))
    engine = MeasuredEngine(profile.llm, deployment, catalogue, config, folder)
    ttft_s, _ = make_log_player(log, engine)(fit)
    alone = (waited_s < 0.2) & (np.arange(waited_s.size) >= 10)
    return float(np.median(np.abs(ttft_s / log.ttft_s - 1)[alone]))


def made_worse(profile: LatencyProfile) -> list[LatencyProfile]:
    """The same profile with its prefill, its decode steps or its reading of the cache off."""
    worse = []
    for times in OFF:
        slower = {
            "prefill_s": tuple(times * s for s in profile.prefill_s),
            "decode_s": tuple(times * s for s in profile.decode_s),
            "decode_per_kv_token_s": times**2 * profile.decode_per_kv_token_s,
        }
        worse += [dataclasses.replace(profile, **{name: value}) for name, value in slower.items()]
    return worse


def own_logs() -> Figures:
    """Logs of our own replay, without noise: what the calibration makes of an engine that is exactly the
    kernel's.
    """
    catalogue, config = setting()
    llm, gpu, degree = MADE
    truth = catalogue.profile(*MADE)
    fit = ProfileFit(*(getattr(truth, name) for name in ProfileFit._fields))
    worst = 0.0
    for batching, budget in (("whole", 8192), ("chunked", 2048)):
        engine = Deployment(
            gpu, degree, batching=batching, max_batch=64, max_prefill_tokens=budget, async_scheduling=False
        )
        for made in [*(drawn(rate) for rate in RATES), *real_arrivals()]:
            measured = MeasuredEngine(llm, engine, catalogue, config, "made")
            play = make_log_player(made, measured)
            ttft_s, e2e_s = play(fit)
            log = made._replace(ttft_s=ttft_s, e2e_s=e2e_s)
            found = calibrate_profile(log, measured)
            worst = max(worst, found.profile.median_error_share or 0.0)
    return {"engines_self_error": worst}


def drawn(requests_per_s: float) -> LoggedRequests:
    """Poisson arrivals of lognormal prompts and answers; times that are not known yet."""
    rng = np.random.default_rng(17)
    inputs = np.clip(rng.lognormal(6.8, 0.8, REQUESTS), 16, 8000).astype(np.int32)
    outputs = np.clip(rng.lognormal(5.0, 0.8, REQUESTS), 1, 1500).astype(np.int32)
    arrival_s = np.cumsum(rng.exponential(1 / requests_per_s, REQUESTS))
    return LoggedRequests(arrival_s, inputs, outputs, np.ones(REQUESTS), np.full(REQUESTS, 36_000.0))


def real_arrivals() -> list[LoggedRequests]:
    """The arrivals and tokens of a real log, where there is one."""
    path = Path(SHARED / "engines" / next(iter(LOGS)) / "requests.jsonl")
    return [read_log(path).requests._replace(e2e_s=np.full(300, 36_000.0))] if path.exists() else []


FUNCTIONS = (real_logs, own_logs)
