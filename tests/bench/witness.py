"""The witness: engines whose seconds change at a known hour, and nights on which nothing changes.

Each site is one endpoint with its own load, fleet, prefix cache and error of the profile. Its engines count
as vLLM does; fleetcast has their counters by the minute, their histograms by the hour, and the replicas.
"""

import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from engines import LOGS
from measure import SHARED, Figures, Skipped, Target
from witness_nights import FIRST_DAY, TRACE, Night, profile_error, run_days
from workloads import setting

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.studies.engine_logs import read_engine_limits, read_log
from fleetcast.assets.studies.measured_latencies import FINE_BOUNDS
from fleetcast.assets.studies.witness import PHASE_PROBES, witness_day
from fleetcast.models.latency.latency_errors import error_factors, scale_profile
from fleetcast.models.latency.profile_order import complete_catalogue
from fleetcast.models.latency.profile_tables import ProfileFit
from fleetcast.models.metrics import tpot_s
from fleetcast.models.trials.drift_causes import DriftCause, DriftVerdict
from fleetcast.models.trials.engine_calibration import calibrate_profile
from fleetcast.models.trials.engine_fit import LoggedRequests
from fleetcast.models.trials.latency_drift import (
    SPEED_PARTS,
    TIMED_MEASURES,
    MeasuredHours,
    ReplayedTimes,
    hourly_speed_ratios,
)
from fleetcast.models.trials.log_replay import MeasuredEngine, make_log_player
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile
from fleetcast.models.world.fleet_config import Deployment

SITES = 6
CLEAN_NIGHTS = 5  # of each site, before what is planted there
LOADS = ((30_000.0, 2), (100_000.0, 1), (60_000.0, 2), (15_000.0, 1), (120_000.0, 2), (45_000.0, 1))
CACHED_SHARES = (0.0, 0.5, 0.3, 0.0, 0.4, 0.5)
HOUR_TOLERANCE = 2
SLOWER = 1.2  # of all instants and seconds of a real log
Player = Callable[[ProfileFit], tuple[np.ndarray, np.ndarray]]


class World(NamedTuple):
    """What the nights of all sites have in common."""

    seed: int
    night_sigma: float  # of ln(factor) of each phase from night to night: nothing runs equally fast each day
    jitter: float = 0.0  # of ln(seconds) of a request, which the replay does not know
    sparse_factor: float = 1.0  # of the requests of every other site
    limits: Mapping[str, int] = MappingProxyType({})  # of the engines, where the config has others


EXACT = World(41, 0.02)
ROUGH = World(44, 0.04, 0.25, 0.2, {"max_batch": 64, "max_prefill_tokens": 1024})
PLANTED = (  # site, hour, factors of prefill and decode, whether the cache stays; its cause
    (0, 13, 1.0, 1.15, True, DriftCause.DECODE_SETTING),
    (0, 9, 1.2, 1.2, True, DriftCause.SLOWER_GPU),
    (1, 18, 1.0, 1.3, True, DriftCause.DECODE_SETTING),
    (1, 11, 1.0, 1.0, False, DriftCause.CACHE_GONE),
    (2, 0, 1.0, 1.2, True, DriftCause.DECODE_SETTING),
    (2, 6, 1.3, 1.0, True, DriftCause.PREFILL_SETTING),
    (3, 15, 1.25, 1.25, True, DriftCause.SLOWER_GPU),
    (3, 10, 0.85, 0.8, True, DriftCause.ENGINE_UPGRADED),
    (4, 20, 1.0, 1.0, False, DriftCause.CACHE_GONE),
    (4, 14, 1.15, 1.15, True, DriftCause.SLOWER_GPU),
)
COUNTED = {
    "planted": "on which the engines of a site changed at a known hour",
    "planted_found": "of these, with an alarm",
    "hour_right": f"of these, with the hour of the change within {HOUR_TOLERANCE} hours",
    "cause_right": "of these, with the cause that was planted",
    "clean": "on which no engine changed",
    "false_alarms": "of these, with an alarm",
}
WORLDS = {"": "as the replay is", "_rough": "with jitter, other limits than the config and few requests"}
BOUNDS = {"planted_found": {"at_least": 9}, "false_alarms": {"at_most": 1}}
TARGETS = {
    **{
        f"witness_{name}{world}": Target("nights", f"{what}; engines {kind}", **BOUNDS.get(name, {}))
        for world, kind in WORLDS.items()
        for name, what in COUNTED.items()
    },
    **{
        f"witness_{name}{world}": Target("share", f"{what}; engines {kind}")
        for world, kind in WORLDS.items()
        for name, what in (
            ("decode_error", "decode factor of a clean night against the true one, median"),
            ("prefill_error", "the same of prefill, sites without a prefix cache"),
            ("prefill_error_cached", "the same of prefill, sites with one"),
        )
    },
    "witness_log": Target("factor", "engine of two real vLLM logs, their calibrated profiles; the worse"),
    "witness_log_slower": Target("factor", f"the same, all instants and seconds times {SLOWER}"),
    "witness_log_estimated": Target("factor", "the same logs, the profiles that are estimated without them"),
}


class Witnessed(NamedTuple):
    """A night: what its engines did, and the rows of the table."""

    site: int
    night: Night
    parts: dict[str, dict]  # the row of each part

    @property
    def has_alarm(self) -> bool:
        """Whether the alarm of the night has a row."""
        alarms = (DriftVerdict.CHANGED, DriftVerdict.OFF_PROFILE)
        return any(row["verdict"] in alarms for row in self.parts.values())


def planted() -> Figures:
    """Nights that change at a known hour, and nights that do not: found, hour, cause, false alarms."""
    return watch(EXACT, "")


def rough() -> Figures:
    """The same of engines that the replay does not know exactly; seeds that no rule was chosen on."""
    return watch(ROUGH, "_rough")


def watch(world: World, suffix: str) -> Figures:
    """All figures of the nights of a world."""
    nights = [night for site in range(SITES) for night in witness_site(site, world)]
    clean = [one for one in nights if one.night.hour == 24]
    changed = [one for one in nights if one.night.hour < 24]
    causes = {(site, hour): cause for site, hour, *_, cause in PLANTED}
    found = [one for one in changed if one.has_alarm]
    for one in nights:
        tell(one)
    figures = {
        "planted": len(changed),
        "planted_found": len(found),
        "hour_right": sum(is_hour_right(one) for one in found),
        "cause_right": sum(one.parts["decode"]["cause"] == causes[one.site, one.night.hour] for one in found),
        "clean": len(clean),
        "false_alarms": sum(one.has_alarm for one in clean),
        "decode_error": median_error(clean, "decode"),
        "prefill_error": median_error([one for one in clean if not CACHED_SHARES[one.site]], "prefill"),
        "prefill_error_cached": median_error([one for one in clean if CACHED_SHARES[one.site]], "prefill"),
    }
    return {f"witness_{name}{suffix}": value for name, value in figures.items()}


def witness_site(site: int, world: World) -> Iterator[Witnessed]:
    """The nights of a site in order; what was planted is forgotten before the next is."""
    rng = np.random.default_rng([world.seed, site])
    own = error_factors(profile_error(), SITES, world.seed)[site]
    changes = [(24, 1.0, 1.0, True)] * CLEAN_NIGHTS
    changes += [(hour, *rest) for at, hour, *rest, _ in PLANTED if at == site]
    nights = [
        Night(*(own * rng.lognormal(0.0, world.night_sigma, 2)).tolist(), hour, prefill, decode, stays)
        for hour, prefill, decode, stays in changes
    ]
    per_day, replicas = LOADS[site]
    per_day *= world.sparse_factor if site % 2 else 1.0
    with tempfile.TemporaryDirectory() as folder:
        traffic = (world.seed + site, per_day, replicas, CACHED_SHARES[site])
        settings = run_days(Path(folder), nights, *traffic, world.jitter, **world.limits)
        for number, night in enumerate(nights):
            yield Witnessed(site, night, rows_of(settings, number))
            if night.hour < 24:
                day = FIRST_DAY + timedelta(days=number)
                settings.lake.path("witnessed", trace=TRACE, day=day).unlink()


def rows_of(settings: RunSettings, number: int) -> dict[str, dict]:
    """The rows of a night, by part."""
    table = witness_day(settings, FIRST_DAY + timedelta(days=number), Progress())
    return {row["part"]: row for row in table.to_pylist()}


def median_error(nights: Sequence[Witnessed], phase: str) -> float:
    """Median relative error of the factor of a phase, on nights without a change."""
    return float(
        np.median([abs(one.parts[phase]["ratio"] / getattr(one.night, phase) - 1.0) for one in nights])
    )


def is_hour_right(one: Witnessed) -> bool:
    """Whether a part changed within the tolerance of the planted hour."""
    at = [row["changed_at"] for row in one.parts.values() if row["changed_at"] is not None]
    return any(abs(instant.hour - one.night.hour) <= HOUR_TOLERANCE for instant in at)


def tell(one: Witnessed) -> None:
    """Print a night in a line."""
    parts = ", ".join(
        f"{name} {row['ratio'] or np.nan:.2f} {row['verdict']}"
        + (f" from {row['changed_at']:%H} h" if row["changed_at"] else "")
        for name, row in one.parts.items()
    )
    print(f"site {one.site}, {tuple(one.night)}: {parts}; cause {one.parts['decode']['cause']}")


def real_logs() -> Figures:
    """Two real vLLM logs against their replay: with the calibrated profile, an estimate, and 20 % slower.

    A log whose instants and seconds are all 20 % longer is that of an engine that is slower in both phases.
    """
    if not (SHARED / "engines").exists():
        raise Skipped("no engine logs in ../shared/data/engines")
    catalogue, (_, config) = load_catalogue(), setting()
    found: dict[str, list[np.ndarray]] = {"": [], "_slower": [], "_estimated": []}
    for folder, (llm, gpu, degree) in LOGS.items():
        log = read_log(SHARED / "engines" / folder / "requests.jsonl").requests
        limits = read_engine_limits(SHARED / "engines" / folder / "meta.json")
        del limits["tensor_parallel"], limits["has_prefix_cache"]
        measured = MeasuredEngine(llm, Deployment(gpu, degree, **limits), catalogue, config, folder)
        best = calibrate_profile(log, measured)
        deployments = {llm: (best.deployment,)}
        fleet = dataclasses.replace(config.fleet, deployments=deployments)
        world = complete_catalogue(catalogue.serving([llm]), dataclasses.replace(config, fleet=fleet))
        slower = log._replace(
            arrival_s=SLOWER * log.arrival_s, ttft_s=SLOWER * log.ttft_s, e2e_s=SLOWER * log.e2e_s
        )
        estimated = world.profile(llm, gpu, degree)
        for name, requests, profile in (
            ("", log, best.profile),
            ("_slower", slower, best.profile),
            ("_estimated", log, estimated),
        ):
            play = make_log_player(requests, measured._replace(deployment=best.deployment))
            found[name].append(log_factors(requests, profile, play, catalogue))
            print(folder, name or "calibrated", "prefill, decode, engine:", found[name][-1].round(3))
    engine = {
        name: [factors[SPEED_PARTS.index("engine")] for factors in each] for name, each in found.items()
    }
    worst = {name: max(each, key=lambda factor: abs(np.log(factor / (SLOWER if name == "_slower" else 1.0))))
             for name, each in engine.items()}  # fmt: skip
    return {f"witness_log{name}": float(factor) for name, factor in worst.items()}


def log_factors(requests: LoggedRequests, profile: LatencyProfile, play: Player, catalogue: Catalogue):
    """Factors of SPEED_PARTS of a log of less than an hour, (3,)."""

    def measures(ttft_s, e2e_s):
        seconds = (ttft_s, tpot_s(ttft_s, e2e_s, requests.output_tokens), e2e_s)
        known = [each[np.isfinite(each)] for each in seconds]
        return {
            name: ReplayedTimes(np.zeros(each.size, np.int64), each)
            for name, each in zip(TIMED_MEASURES, known, strict=True)
        }

    replays = []
    for factors in PHASE_PROBES:
        probe = scale_profile(catalogue, profile, *factors)
        replays.append(measures(*play(ProfileFit(*(getattr(probe, name) for name in ProfileFit._fields)))))
    measured = {
        name: MeasuredHours(FINE_BOUNDS, times.counts(FINE_BOUNDS))
        for name, times in measures(requests.ttft_s, requests.e2e_s).items()
    }
    return np.exp(hourly_speed_ratios(measured, replays).ratios[0])


FUNCTIONS = (planted, rough, real_logs)
SMALL = {"SITES": 2, "CLEAN_NIGHTS": 2, "LOADS": ((4000.0, 1),) * 2, "PLANTED": PLANTED[:1]}
SMOKE = {"planted": SMALL}
