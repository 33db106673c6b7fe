"""Decide whether engines left their latency profile or changed, and name the likely cause.

Two comparisons are made of each phase (models/trials/latency_drift.py). The first is with the past nights: a
profile that is off by the same factor each night cancels out, so a change of ALARM_CHANGE is visible however
inexact the profile is. The second is with the profile's own error: a factor that lies outside its interval
means that the profile does not describe this engine.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.latency_errors import ProfileError
from fleetcast.models.trials.engine_calibration import LIMITS
from fleetcast.models.trials.latency_drift import (
    HOURS,
    LEAST_LEVEL_HOURS,
    PHASES,
    LevelEstimate,
    change_at,
    estimate_level,
    find_change,
    has_values,
)

ALARM_CHANGE = 0.10  # change of a phase's factor that is worth an alarm
FIRST_NIGHT_CHANGE = 0.25  # the same without past nights: load moves the error of a profile within a day
CHANGE_SIGMAS = 5.0  # a change is that many standard errors; an hour of 24 is chosen, each night
PART_SIGMAS = 3.0  # of the other phase, once one phase has changed
PROFILE_SIGMAS = 2.6  # half width of the profile's interval: 99 %
LEVEL_SIGMAS = 2.5  # of the day's level, which a sample has by chance
SAME_FACTOR_SHARE = 0.4  # two log factors are one if they differ by less than this share of the larger
LEAST_CACHED_SHARE = 0.05  # of prompt tokens: below, a cache hardly matters
CACHE_LOSS = np.log(2.0)  # hits fell to half
CACHE_ERROR = 0.15  # of an hour's log share of hits
SHOWN_SIGMAS = 1.645  # half width of the 90 % interval that is shown
CACHE_HITS = "cache hits"
LATENCY_LIMITS = {"prefill": LIMITS["TTFT"], "decode": LIMITS["TPOT"]}  # what `calibrate` accepts


class DriftVerdict(StrEnum):
    """What a night says about a phase of an llm's engines."""

    FITS = "fits"  # no change, and within the bounds of the profile
    CHANGED = "changed"  # within the day, or since the nights before
    OFF_PROFILE = "off profile"  # no change, and outside the bounds of the profile
    UNKNOWN = "unknown"  # too few hours with enough samples


ALARM_VERDICTS = (DriftVerdict.CHANGED, DriftVerdict.OFF_PROFILE)


class DriftCause(StrEnum):
    """The likely cause of a drift."""

    CACHE_GONE = "cache gone"
    SLOWER_GPU = "slower GPU"
    DECODE_SETTING = "decode setting"
    PREFILL_SETTING = "prefill setting"
    ENGINE_UPGRADED = "engine upgraded"
    ENGINE_SPEED = "engine speed"
    PROFILE_OLD = "profile old"


CAUSE_SENTENCES: Mapping[DriftCause, str] = {
    DriftCause.CACHE_GONE: "the prefix cache finds less than half of what it found: was it switched off, "
    "made smaller, or are requests routed without regard to it?",
    DriftCause.SLOWER_GPU: "prefill and decode are slower by one factor: a throttled GPU (power, "
    "temperature, clocks), another GPU type, or a neighbour on it",
    DriftCause.DECODE_SETTING: "only decode is slower: an engine setting (max_num_seqs, CUDA graphs, "
    "speculative decoding, quantisation) or an engine version",
    DriftCause.PREFILL_SETTING: "only prefill is slower: a power cap, max_num_batched_tokens, the attention "
    "backend, or a slower front end",
    DriftCause.ENGINE_UPGRADED: "an engine version, setting or GPU changed: at least one phase is faster, or "
    "both are slower by different factors",
    DriftCause.ENGINE_SPEED: "the engine's speed changed, and under this load its latencies do not show "
    "in which phase: a throttled or other GPU, an engine version or a setting",
    DriftCause.PROFILE_OLD: "nothing changed, and the engine is off its profile: an old or never fitted one",
}


class PartDrift(NamedTuple):
    """Result of a night for a part of an engine's speed, or for its share of cache hits.

    Ratios are factors, not logarithms.
    """

    verdict: DriftVerdict
    ratio: float  # measured over profile since the change, else of the night; for cache hits their share
    low: float  # 90 % interval of the ratio
    high: float
    usual: float  # the same before the change; NaN without a past and without a change
    allowed: float  # largest factor to either side that fits the profile; NaN: not compared with it
    changed_hour: int | None  # hour of the day


class NightDrift(NamedTuple):
    """Result of a night for the engines of one llm."""

    parts: Mapping[str, PartDrift]  # SPEED_PARTS and cache hits
    cause: DriftCause | None  # None: nothing drifted


class NightHours(NamedTuple):
    """Log values of a part by hour: tonight, their errors, and the usual ones; (24,), NaN where unknown."""

    ratios: Floats
    errors: Floats
    usual: Floats

    @property
    def has_past(self) -> bool:
        """Whether past nights are known."""
        return has_values(self.usual)


def allowed_factor(error: ProfileError, part: str) -> float:
    """Return the largest factor between engine and profile that the profile's error explains.

    It is the 99 % interval of the law of models/latency/latency_errors.py; for the whole engine, that of the
    less exact phase. No profile is held to be more exact than the limits with which `fleetcast calibrate`
    accepts it.
    """
    if part not in PHASES:
        return max(allowed_factor(error, phase) for phase in PHASES)
    law = error.prefill if part == "prefill" else error.decode
    reach = abs(law.bias) + PROFILE_SIGMAS * law.sigma
    return float(np.exp(max(reach, np.log1p(LATENCY_LIMITS[part]))))


def judge_night(
    speeds: Mapping[str, NightHours], cached: NightHours, allowed: Mapping[str, float]
) -> NightDrift:
    """Return the drift of a night, and its likely cause.

    `speeds`: by SPEED_PARTS. `cached`: log share of prompt tokens found in the cache. `allowed`: factor by
    part.
    """
    hour, cache_hour = _changed_hour(speeds), _lost_cache_hour(cached)
    changes = {} if hour is None else {name: change_at(*part, hour) for name, part in speeds.items()}
    changed = {
        name: change
        for name, change in changes.items()
        if abs(change.ratio) >= max(_least(speeds[name]), PART_SIGMAS * change.error)
    }
    results = {
        name: _against_profile(_drift(part, hour if name in changed else None), part, allowed[name])
        for name, part in speeds.items()
    }
    results[CACHE_HITS] = _drift(cached, cache_hour)
    cause = None
    if cache_hour is not None:
        cause = DriftCause.CACHE_GONE
    elif changed:
        cause = likely_cause(changed)
    elif any(result.verdict is DriftVerdict.OFF_PROFILE for result in results.values()):
        cause = DriftCause.PROFILE_OLD
    return NightDrift(results, cause)


def likely_cause(changed: Mapping[str, LevelEstimate]) -> DriftCause:
    """Return the likely cause of the changes of those SPEED_PARTS that changed.

    Both slower by one factor: a slower GPU. Decode reads memory and prefill computes, and a throttled or
    other GPU does both less fast. A mild power cap slows prefill alone (Splitwise, section 3, figure 9).
    One slower: a setting of that phase. Any faster, or two factors: the engine or its GPU was replaced.
    Neither phase, but the whole: the load hides the phase.
    """
    phases = {name: change for name, change in changed.items() if name in PHASES}
    if not phases:
        return DriftCause.ENGINE_SPEED
    if min(change.ratio for change in phases.values()) < 0.0:
        return DriftCause.ENGINE_UPGRADED
    if len(phases) == 1:
        return DriftCause.PREFILL_SETTING if "prefill" in phases else DriftCause.DECODE_SETTING
    prefill, decode = phases["prefill"], phases["decode"]
    share = SAME_FACTOR_SHARE * max(prefill.ratio, decode.ratio)
    tolerance = max(share, 2.0 * float(np.hypot(prefill.error, decode.error)))
    is_one = abs(prefill.ratio - decode.ratio) <= tolerance
    return DriftCause.SLOWER_GPU if is_one else DriftCause.ENGINE_UPGRADED


def _changed_hour(speeds: Mapping[str, NightHours]) -> int | None:
    """Return the hour of the most certain change of a part that is worth an alarm."""
    found: dict[int, float] = {}
    for part in speeds.values():
        hour = find_change(*part)
        if hour is None:
            continue
        change = change_at(*part, hour)
        sigmas = abs(change.ratio) / change.error
        if abs(change.ratio) >= _least(part) and sigmas >= CHANGE_SIGMAS:
            found[hour] = max(sigmas, found.get(hour, 0.0))
    return max(found, key=lambda hour: found[hour]) if found else None


def _least(part: NightHours) -> float:
    """Return the least log change that is worth an alarm."""
    return float(np.log1p(ALARM_CHANGE if part.has_past else FIRST_NIGHT_CHANGE))


def _lost_cache_hour(cached: NightHours) -> int | None:
    """Return the hour from which the cache finds less than half; None where it never found much."""
    hour = find_change(*cached)
    if hour is None:
        return None
    before = np.nanmedian(cached.usual if cached.has_past else cached.ratios[:hour])
    has_mattered = before >= np.log(LEAST_CACHED_SHARE)
    return hour if has_mattered and change_at(*cached, hour).ratio <= -CACHE_LOSS else None


def _drift(part: NightHours, hour: int | None) -> PartDrift:
    """Return the result of a part, without regard to the profile."""
    since = np.arange(HOURS) >= (hour or 0)
    now = estimate_level(part.ratios[since], part.errors[since])
    before = part.usual if part.has_past else part.ratios[: hour or 0]
    usual = float(np.exp(np.nanmedian(before))) if np.isfinite(before).any() else np.nan
    ends = np.exp(now.ratio + SHOWN_SIGMAS * now.error * np.array([-1.0, 0.0, 1.0]))
    few = np.isfinite(part.ratios).sum() < LEAST_LEVEL_HOURS
    verdict = DriftVerdict.UNKNOWN if few else DriftVerdict.FITS if hour is None else DriftVerdict.CHANGED
    return PartDrift(verdict, ends[1], ends[0], ends[2], usual, np.nan, hour)


def _against_profile(drift: PartDrift, part: NightHours, allowed: float) -> PartDrift:
    """Return the result with the bounds of the profile: its interval, and LEVEL_SIGMAS of the day's level.

    A day outside them, without a change, is off.
    """
    level = estimate_level(part.ratios, part.errors)
    bound = np.log(allowed) + LEVEL_SIGMAS * level.error
    if drift.verdict is DriftVerdict.FITS and abs(level.ratio) > bound:
        drift = drift._replace(verdict=DriftVerdict.OFF_PROFILE)
    return drift._replace(allowed=float(np.exp(bound)))
