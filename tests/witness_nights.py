"""Days of one endpoint whose engines are known: they count as vLLM does, and change at a known hour.

Requests are replayed with the true seconds of the engines. Only their counters and the number of replicas
reach fleetcast, as from a Prometheus server.
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
from engine_counters import E2E_S, TTFT_S, Served, answer, counters, results

from fleetcast.assets.lake.settings import RunSettings, load_settings, midnight
from fleetcast.assets.plans.observed_fleet import ReplicaSample, known_workloads, write_observed_fleet
from fleetcast.assets.studies.experiment import Variant
from fleetcast.assets.studies.planned_trials import FOLLOW_POLICY
from fleetcast.assets.studies.shadow_grading import fixed_fleet_trial, read_ran_targets
from fleetcast.assets.traces.metrics_ingest import land_metrics
from fleetcast.models.latency.latency_errors import ProfileError, errors_in_use, scale_profile
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.replay.run import TAIL_PERIODS, Schedule, Session

TRACE, LLM, REGION, FIRST_DAY = "watched", "llama3.1-8b", "east", date(2025, 7, 1)
CONFIG = f"""
based_on = "office"
[trace]
name = "{TRACE}"
first_day = {FIRST_DAY}
days = 14
seed = 7
[fleet]
max_instances = 8
min_instances = 0
instances_at_start = 1
prefix = "PREFIX"
[fleet.deployments]
"{LLM}" = [{{ gpu = "h100-80gb", tensor_parallel = 1 }}]
[replay]
policies = ["day_ahead"]
"""


class Night(NamedTuple):
    """What the engines do on a day: factors of the profile's seconds, and what changes from an hour on."""

    prefill: float = 1.0
    decode: float = 1.0
    hour: int = 24
    prefill_change: float = 1.0
    decode_change: float = 1.0
    has_cache_after: bool = True


class DayRequests(NamedTuple):
    """Requests of a day, in order of arrival: seconds since midnight, tokens."""

    arrival_s: np.ndarray
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    cached_tokens: np.ndarray


def settings_of(root: Path, has_cache: bool) -> RunSettings:
    """A lake with nothing in it, and the config of the endpoint."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "watched.toml").write_text(CONFIG.replace("PREFIX", "given" if has_cache else "none"))
    return load_settings(str(root / "watched.toml"), root / "lake")


def draw_requests(seed: int, number: int, per_day: float, cached_share: float) -> DayRequests:
    """A day with a busy afternoon and a quiet night; each minute has its own rate, each day its own level.

    `cached_share` of the prompts are found in the cache, but for their last quarter.
    """
    rng = np.random.default_rng([seed, number])
    hours = 1.0 + 0.8 * np.sin((np.arange(1440) / 1440 - 0.35) * 2 * np.pi)
    rate = hours * rng.lognormal(0.0, 0.3, 1440) * rng.lognormal(0.0, 0.1)
    counts = rng.poisson(per_day * rate / hours.sum())
    minute = np.repeat(np.arange(1440), counts)
    arrival_s = np.sort(60.0 * (minute + rng.random(minute.size)))
    inputs, outputs = (
        np.clip(np.ceil(rng.lognormal(np.log(middle), 0.9, minute.size)), 1, 8000).astype(np.int32)
        for middle in (1500, 200)
    )
    cached = np.where(rng.random(minute.size) < cached_share, inputs - inputs // 4 - 1, 0)
    return DayRequests(arrival_s, inputs, outputs, cached.astype(np.int32))


def serve_day(
    settings: RunSettings, day: date, drawn: DayRequests, night: Night
) -> tuple[Served, np.ndarray]:
    """What the engines of the day measured, and the cached tokens of each request."""
    zeros = np.zeros(drawn.arrival_s.size, np.int16)
    place = [list(names).index(name) for names, name in ((settings.catalogue.regions, REGION), ([LLM], LLM))]
    cached = drawn.cached_tokens * (night.has_cache_after | (drawn.arrival_s < 3600 * night.hour))
    cached = cached.astype(np.int32)
    tokens = (drawn.input_tokens, drawn.output_tokens)
    trace = TraceArrays(
        drawn.arrival_s, zeros + np.int16(place[0]), zeros, zeros, *tokens, cached_tokens=cached
    )
    targets = read_ran_targets(settings, day)
    before = _trial(settings, day, targets, night.prefill, night.decode)
    after = _trial(
        settings, day, targets, night.prefill * night.prefill_change, night.decode * night.decode_change
    )
    session = Session(before.fleet, before.rules, before.schedule.start)
    session.append_trace(trace)
    if night.hour > 0:
        usage = session.play(Schedule(targets[: night.hour], hour_s=3600.0), 3600.0 * night.hour)
    session.fleet = session.fleet._replace(latency=after.fleet.latency)
    if night.hour < 24:
        usage = session.play(Schedule(targets[night.hour :], hour_s=3600.0), 86_400.0)
    session.finish(86_400.0 + TAIL_PERIODS * 3600.0)
    outcome = session.outcome(*usage)
    ttft_s, e2e_s = (
        at - trace.arrival_s - outcome.network_s for at in (outcome.first_token_s, outcome.finish_s)
    )
    arrived = midnight(day).timestamp() + trace.arrival_s
    return Served(arrived, *(column.astype(float) for column in tokens), ttft_s, e2e_s), cached


def _trial(settings: RunSettings, day: date, targets: np.ndarray, prefill: float, decode: float):
    catalogue = settings.catalogue
    scaled = tuple(scale_profile(catalogue, profile, prefill, decode) for profile in catalogue.latency)
    world = replace(settings, catalogue=replace(catalogue, latency=scaled))
    variant = Variant("ran", world, day, FOLLOW_POLICY)
    return fixed_fleet_trial(variant, targets, has_plans=False)


def run_days(
    root: Path,
    nights: Sequence[Night],
    seed: int,
    per_day: float,
    replicas: int = 2,
    cached_share: float = 0.5,
    jitter: float = 0.0,
    **limits: int,
) -> RunSettings:
    """The settings over a lake that has these days from the counters of their engines.

    `jitter`: sigma of ln(seconds) of each request that the replay does not know. `limits`: those of the
    engines, where the config has others.
    """
    settings = settings_of(root, cached_share > 0.0)
    workload = next(iter(known_workloads(settings.grid)))
    days = [FIRST_DAY + timedelta(days=number) for number in range(len(nights))]
    samples = [
        ReplicaSample(midnight(day) + timedelta(hours=hour), REGION, workload, replicas)
        for day in days
        for hour in range(24)
    ]
    write_observed_fleet(settings, samples, "replicas")
    fleet = replace(settings.config.fleet, **limits)
    true_settings = settings.with_config(fleet=fleet)
    parts, hits = [], []
    for number, (day, night) in enumerate(zip(days, nights, strict=True)):
        drawn = draw_requests(seed, number, per_day, cached_share)
        served, cached = serve_day(true_settings, day, drawn, night)
        own = np.random.default_rng([seed, number, 1]).lognormal(0.0, jitter, (2, cached.size))
        ttft_s = own[0] * served.ttft_s
        parts.append(served._replace(ttft_s=ttft_s, e2e_s=ttft_s + own[1] * (served.e2e_s - served.ttft_s)))
        hits.append(cached)
    served = Served(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    folder = root / f"{TRACE}.metrics"
    folder.mkdir()
    (root / f"{TRACE}.toml").write_text(f'tier = "iw_fast"\nregion = "{REGION}"\n')
    labels = {"model_name": LLM, "instance": "a"}
    t = midnight(FIRST_DAY).timestamp() + np.arange(0.0, 86_400.0 * len(nights) + 3601.0, 60.0)
    found = [
        *counters(served, t, t[::60], TTFT_S, E2E_S),
        *_cache_counters(served, np.concatenate(hits), t),
    ]
    rows = [results(labels, name, le, at, value) for name, le, at, value in found]
    (folder / "answers.json").write_text(json.dumps(answer(rows)))
    land_metrics(folder, settings.lake, settings.catalogue)
    return settings


def _cache_counters(served: Served, cached: np.ndarray, t: np.ndarray):
    """The prompt tokens that were found in the cache, and those that were looked up."""
    first = served.arrived + served.ttft_s
    order = np.argsort(first)
    at = np.searchsorted(first[order], t, side="right")
    for name, tokens in (("hits", cached), ("queries", served.input_tokens)):
        total = np.concatenate([[0.0], np.cumsum(tokens[order])])
        yield f"vllm:prefix_cache_{name}_total", None, t, total[at]


def profile_error() -> ProfileError:
    """The error of the endpoint's profile."""
    with tempfile.TemporaryDirectory() as folder:
        settings = settings_of(Path(folder), has_cache=False)
        (error,) = errors_in_use(settings.catalogue, settings.config.fleet.deployments.items())
    return error
