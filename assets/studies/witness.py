"""Compare the latencies that engines measured on a day with the replay of its requests on the fleet that ran.

Measured latencies are the engines' histograms by hour (the table engine_histograms, of traces from metrics),
or else the times of single requests in the trace. The day is replayed hour by hour on the imported fleet,
with the profile and with two probes; models/trials/latency_drift.py says why, and how both are compared.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import HOURS_OF_DAY, Progress, RunSettings, midnight, run_parallel
from fleetcast.assets.replays.replay_workloads import read_workload
from fleetcast.assets.studies.experiment import Variant
from fleetcast.assets.studies.latency_error import profile_errors
from fleetcast.assets.studies.measured_latencies import (
    Engines,
    MeasuredDay,
    is_of_engines,
    read_measured_day,
    samples_by_measure,
)
from fleetcast.assets.studies.planned_trials import FOLLOW_POLICY
from fleetcast.assets.studies.shadow_grading import fixed_fleet_trial, read_ran_targets
from fleetcast.models.aliases import Floats
from fleetcast.models.latency.latency_errors import ProfileError, scale_profile
from fleetcast.models.metrics import tpot_s
from fleetcast.models.replay.run import replay_trace
from fleetcast.models.trials.drift_causes import (
    ALARM_VERDICTS,
    CACHE_ERROR,
    CACHE_HITS,
    LEAST_CACHED_SHARE,
    DriftVerdict,
    NightDrift,
    NightHours,
    PartDrift,
    allowed_factor,
    judge_night,
)
from fleetcast.models.trials.latency_drift import (
    LEAST_SAMPLES,
    PHASES,
    PROBE_FACTOR,
    SPEED_PARTS,
    TIMED_MEASURES,
    ReplayedTimes,
    hourly_speed_ratios,
    usual_ratios,
)
from fleetcast.models.world.calendar import DAY_S

PAST_NIGHTS = 7
PARTS = (*SPEED_PARTS, CACHE_HITS)
PHASE_PROBES = ((1.0, 1.0), (PROBE_FACTOR, 1.0), (1.0, PROBE_FACTOR))  # factors of prefill and decode
WITNESS_BOARD_SQL = """
select llm, served_region, part, ratio, low, high, usual_ratio, allowed_factor, changed_at, verdict, cause
from witnessed where trace = $trace and day = $day order by all
"""


def witness_day(settings: RunSettings, day: date, progress: Progress) -> pa.Table:
    """Compare a day's measured latencies with its replay, and return the day's rows of `witnessed`.

    LakeError without the day's requests, measured latencies or the fleet that ran; ValueError for cascades.
    """
    settings.require_day("requests", day)
    if settings.config.replay.cascades:
        raise ValueError(
            f"{settings.config.file.name} has [replay.cascades]: a request has answers of several llms, its "
            "measured times have not. Witness a trace of the engines' requests, with a config without them."
        )
    measured = read_measured_day(settings, day)
    replays = _replay_probes(settings, day, measured.by_engines, progress)
    cached = settings.lake.sql("reads/cached_shares.sql", trace=settings.trace, day=day).to_pandas()
    rows = list[dict[str, Any]]()
    for engines in sorted(measured.latencies, key=str):
        times = [_replayed_times(replayed, engines, day) for replayed in replays]
        rows += _witness_rows(settings, day, engines, measured, times, cached)
    table = pa.Table.from_pylist(rows, SCHEMAS["witnessed"])
    settings.lake.write("witnessed", table, trace=settings.trace, day=day)
    return settings.day_rows("witnessed", day)


def drifted_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of `witnessed` that are an alarm (sql/alarms/engines_run_as_before.sql)."""
    return [row for row in table.to_pylist() if DriftVerdict(row["verdict"]) in ALARM_VERDICTS]


def largest_drifts(settings: RunSettings, day: date) -> dict[str, float]:
    """Return for Dagster's plots a day's alarms, and the factors of prefill and decode farthest from 1."""
    rows = settings.lake.sql(WITNESS_BOARD_SQL, trace=settings.trace, day=day)
    drifts = {"alarms": float(len(drifted_rows(rows)))}
    for part in PHASES:
        ratios = [row["ratio"] for row in rows.to_pylist() if row["part"] == part and row["ratio"]]
        if ratios:
            drifts[f"{part}_factor"] = max(ratios, key=lambda ratio: abs(np.log(ratio)))
    return drifts


def _replay_probes(
    settings: RunSettings, day: date, by_engines: bool, progress: Progress
) -> list[pd.DataFrame]:
    """Replay the day with the profiles and with each probe; return llm, region and times of its requests.

    By engine, they are without what is spent outside of it.
    """
    targets, workload = read_ran_targets(settings, day), read_workload(settings, day)
    world, trace = settings.catalogue, workload.trace
    profiles = [error.profile for error in profile_errors(settings)]
    has_plans = day in settings.lake.days("plans", settings.trace)

    def replay_probe(factors: tuple[float, float]) -> pd.DataFrame:
        scaled = {profile: scale_profile(world, profile, *factors) for profile in profiles}
        latency = tuple(scaled.get(profile, profile) for profile in world.latency)
        probed = replace(settings, catalogue=replace(world, latency=latency))
        trial = fixed_fleet_trial(Variant("ran", probed, day, FOLLOW_POLICY), targets, has_plans)
        outcome = replay_trace(trace, trial.fleet, trial.schedule, trial.rules, DAY_S)
        away_s = outcome.network_s if by_engines else 0.0
        ttft_s, e2e_s = (at - trace.arrival_s - away_s for at in (outcome.first_token_s, outcome.finish_s))
        return pd.DataFrame(
            {
                **{name: workload.requests[name].to_pandas() for name in ("llm", "region")},
                **{"arrival_s": trace.arrival_s, "ttft_s": ttft_s, "e2e_s": e2e_s},
                "tpot_s": tpot_s(ttft_s, e2e_s, trace.output_tokens),
            }
        )

    with progress.replay_bar(f"witness {day}", 0):
        return run_parallel(replay_probe, PHASE_PROBES)


def _replayed_times(replayed: pd.DataFrame, engines: Engines, day: date) -> dict[str, ReplayedTimes]:
    """Return the replayed times by measure; LakeError if the day has no request of these engines."""
    samples = samples_by_measure(replayed[is_of_engines(replayed, engines)])
    if not samples:
        raise LakeError(
            f"No request of {' in '.join(filter(None, engines))} on {day} ends in the replay, but engines "
            "measured some. Import the fleet that ran anew (fleetcast plan ran), or the trace."
        )
    return samples


def _witness_rows(
    settings: RunSettings,
    day: date,
    engines: Engines,
    measured_day: MeasuredDay,
    replays: list[dict[str, ReplayedTimes]],
    cached: pd.DataFrame,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of `witnessed` of an llm in a region."""
    measured = measured_day.latencies[engines]
    errors = [error for error in profile_errors(settings) if error.profile.llm == engines[0]]
    profile = name_profiles(errors)
    known = [name for name in TIMED_MEASURES if name in measured and all(name in times for times in replays)]
    found = hourly_speed_ratios({name: measured[name] for name in known}, replays)
    parts = dict(zip(PARTS, [*found.ratios.T, _log_hits(cached, engines)], strict=True))
    sigmas = dict(zip(PARTS, [*found.errors.T, np.full(HOURS_OF_DAY, CACHE_ERROR)], strict=True))
    past = _past_ratios(settings, day, engines, profile)
    hours = {
        name: NightHours(ratios, sigmas[name], usual_ratios(past[name])) for name, ratios in parts.items()
    }
    allowed = {part: max(allowed_factor(error, part) for error in errors) for part in SPEED_PARTS}
    if measured_day.by_engines and _has_cache_hits(parts[CACHE_HITS]):
        # Metrics do not say which prompts were cached: the level of prefill is unknown, its changes are not.
        allowed |= dict.fromkeys(("prefill", "engine"), np.nan)
    drift = judge_night({part: hours[part] for part in SPEED_PARTS}, hours[CACHE_HITS], allowed)
    samples = int(measured["ttft_s"].counts.sum()) if "ttft_s" in measured else 0
    for part, result in drift.parts.items():
        yield {
            **{"llm": engines[0], "served_region": engines[1], "part": part, "profile": profile},
            **_result_columns(day, result, drift),
            **{"hour_ratios": np.exp(parts[part]).tolist(), "samples": samples},
        }


def _result_columns(day: date, result: PartDrift, drift: NightDrift) -> dict[str, Any]:
    """Return the columns of `witnessed` of a result; a number that is unknown is null."""
    figures = {
        **{"ratio": result.ratio, "low": result.low, "high": result.high},
        **{"usual_ratio": result.usual, "allowed_factor": result.allowed},
    }
    hour = result.changed_hour
    return {
        **{name: value if np.isfinite(value) else None for name, value in figures.items()},
        "verdict": result.verdict.value,
        "cause": None if drift.cause is None else drift.cause.value,
        "changed_at": None if hour is None else midnight(day) + timedelta(hours=hour),
    }


def name_profiles(errors: Sequence[ProfileError]) -> str:
    """Return GPU and source of an llm's profiles, with digests of their seconds: another fit has another."""
    names = []
    for error in errors:
        profile = error.profile
        seconds = (*profile.prefill_s, *profile.decode_s, profile.decode_per_kv_token_s)
        digest = zlib.crc32(repr(seconds).encode())
        names.append(f"{profile.tensor_parallel} x {profile.gpu}, {error.kind} {digest:08x}")
    return "; ".join(names)


def _log_hits(cached: pd.DataFrame, engines: Engines) -> Floats:
    """Return the log share of cache hits by hour, (24,); NaN with few requests or none that has them."""
    rows = cached[is_of_engines(cached, engines)]
    rows = rows[rows["requests"] >= LEAST_SAMPLES]
    result = np.full(HOURS_OF_DAY, np.nan)
    found = (rows["share"] * rows["requests"]).groupby(rows["hour"]).sum()
    shares = found / rows["requests"].groupby(rows["hour"]).sum()
    result[shares.index.to_numpy(np.int64)] = np.log(np.maximum(shares, LEAST_CACHED_SHARE / 10))
    return result


def _has_cache_hits(log_hits: Floats) -> bool:
    """Return whether a cache finds a share of the prompt tokens that matters; log shares (24,)."""
    return bool(np.isfinite(log_hits).any() and np.nanmedian(log_hits) >= np.log(LEAST_CACHED_SHARE))


def _past_ratios(settings: RunSettings, day: date, engines: Engines, profile: str) -> dict[str, Floats]:
    """Return the log ratios of past nights with the same profile, (nights, 24) by part."""
    past = {part: np.full((1, HOURS_OF_DAY), np.nan) for part in PARTS}
    if not settings.lake.files("witnessed", trace=settings.trace):
        return past
    rows = settings.lake.sql(
        "select part, hour_ratios from witnessed where trace = $trace and day < $day and day >= $since "
        "and llm = $llm and served_region is not distinct from $region and profile = $profile order by day",
        trace=settings.trace, day=day, since=day - timedelta(days=PAST_NIGHTS),
        llm=engines[0], region=engines[1], profile=profile,
    ).to_pandas()  # fmt: skip
    for part, of_part in rows.groupby("part"):
        past[str(part)] = np.log(np.stack(of_part["hour_ratios"].to_list()))
    return past
