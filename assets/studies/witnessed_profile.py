"""Calibrate a latency profile to a night that `fleetcast witness` has compared with its replay."""

from collections.abc import Mapping
from datetime import date
from typing import Any

import numpy as np

from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.studies.latency_error import profile_errors
from fleetcast.assets.studies.witness import name_profiles
from fleetcast.models.latency.latency_errors import ProfileError, calibrated_copy
from fleetcast.models.trials.point_fit import LEAST_FIT_HOURS, PHASE_METRICS, HoursFit, fit_hours
from fleetcast.models.world.catalogue_entries import LatencyProfile

WITNESSED_SQL = "select * from witnessed where trace = $trace and day = $day and llm = $llm order by all"


def fit_witnessed_profile(
    settings: RunSettings,
    day: date,
    llm: str,
    gpu: str,
    tensor_parallel: int,
    limits: Mapping[str, float],
) -> tuple[LatencyProfile, HoursFit]:
    """Return the profile of a deployment, scaled to the hours of a witnessed day, and the fit.

    LakeError for a day that was not witnessed, ValueError if the llm runs on several deployments or another
    one, the night is of another profile, or too few hours show a phase.
    """
    error = _only_profile(settings, llm, gpu, tensor_parallel)
    rows = _witnessed_rows(settings, day, llm, error)
    factors = {phase: _known_hours(rows, phase) for phase in PHASE_METRICS}
    fit = fit_hours(factors, limits)
    if fit is None:
        raise ValueError(
            f"{day}: fewer than {LEAST_FIT_HOURS} hours show prefill or decode of {llm}. Take a busier day."
        )
    shares = {check.metric: round(check.signed_error_share, 4) for check in fit.checks}
    source = f"calibrated: {fit.hours} hours of {settings.trace}, {day}"
    profile = calibrated_copy(
        settings.catalogue, error.profile, fit.prefill_factor, fit.decode_factor, shares, source
    )
    return profile, fit


def _only_profile(settings: RunSettings, llm: str, gpu: str, tensor_parallel: int) -> ProfileError:
    """Return the profile of the llm's one deployment; ValueError if it has others."""
    found = [error for error in profile_errors(settings) if error.profile.llm == llm]
    places = [f"{error.profile.tensor_parallel} x {error.profile.gpu}" for error in found]
    if places != [f"{tensor_parallel} x {gpu}"]:
        raise ValueError(
            f"{settings.config.file.name} runs {llm} on {', '.join(places) or 'nothing'}: a night fits the "
            f"profile of one deployment, and {tensor_parallel} x {gpu} is wanted. Give --gpu and "
            "--tensor-parallel of that one, or a log of one instance."
        )
    return found[0]


def _witnessed_rows(settings: RunSettings, day: date, llm: str, error: ProfileError) -> list[dict[str, Any]]:
    """Return the night's rows of an llm; LakeError without any, ValueError if they are of another profile."""
    lake, trace = settings.lake, settings.trace
    has_night = day in lake.days("witnessed", trace)
    rows = lake.sql(WITNESSED_SQL, trace=trace, day=day, llm=llm).to_pylist() if has_night else []
    command = settings.command(f"witness --date {day}")
    if not rows:
        raise LakeError(f"{llm} of {trace!r} was not witnessed on {day}. Compare the day first: {command}")
    name = name_profiles([error])
    if other := {row["profile"] for row in rows} - {name}:
        raise ValueError(
            f"{day} was witnessed with the profile {min(other)}, and now it is {name}. Compare the day "
            f"again: {command}"
        )
    return rows


def _known_hours(rows: list[dict[str, Any]], phase: str) -> np.ndarray:
    """Return the factors of a phase by hour, of all regions, shape (hours,).

    Empty where the level is unknown: metrics do not say which prompts were cached.
    """
    hours = [row["hour_ratios"] for row in rows if row["part"] == phase and row["allowed_factor"] is not None]
    return np.array(hours, np.float64).reshape(-1)
