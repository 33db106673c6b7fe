"""All statistics of one load in one call."""

from typing import NamedTuple

from fleetcast.models.aliases import Floats
from fleetcast.models.characterise.level_changes import LevelChange, find_level_changes
from fleetcast.models.characterise.load_statistics import (
    DAY_BUCKETS,
    FORECAST_MINUTES,
    HOUR_BUCKETS,
    WEEK_BUCKETS,
    ForecastSkill,
    LoadBurst,
    autocorrelation,
    dispersion_index,
    find_bursts,
    forecast_skills,
    rebin,
    season_strengths,
)


class LoadSummary(NamedTuple):
    """The statistics of a load; nan where the record is too short."""

    dispersion: float
    daily_strength: float
    weekly_strength: float
    acf_10min: float
    acf_1h: float
    acf_1d: float
    acf_1w: float
    bursts: list[LoadBurst]
    changes: list[LevelChange]
    skills: dict[int, ForecastSkill]


def summarise_load(per_minute: Floats, first_week_hour: int) -> LoadSummary:
    """Summarise requests per minute, shape (minutes,), nan where nothing was recorded.

    first_week_hour : hour of the week (Monday 00:00 is 0) of the first minute
    """
    hourly = rebin(per_minute, 60)
    daily_strength, weekly_strength = season_strengths(hourly)
    return LoadSummary(
        dispersion_index(per_minute),
        daily_strength,
        weekly_strength,
        autocorrelation(rebin(per_minute, FORECAST_MINUTES), 1),
        autocorrelation(hourly, HOUR_BUCKETS),
        autocorrelation(hourly, DAY_BUCKETS),
        autocorrelation(hourly, WEEK_BUCKETS),
        find_bursts(per_minute),
        find_level_changes(hourly, first_week_hour),
        forecast_skills(per_minute),
    )
