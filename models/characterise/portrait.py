"""Everything that is said of one load, in one call."""

from typing import NamedTuple

from fleetcast.models.aliases import Floats
from fleetcast.models.characterise.level_changes import Change, changes
from fleetcast.models.characterise.load import (
    DAY,
    FORECAST_MINUTES,
    HOUR,
    WEEK,
    Burst,
    Skill,
    autocorrelation,
    bursts,
    dispersion,
    rebin,
    season_strengths,
    skills,
)


class Portrait(NamedTuple):
    """How a load moves; nan where the record is too short to say."""

    dispersion: float
    daily_strength: float
    weekly_strength: float
    acf_10min: float
    acf_1h: float
    acf_1d: float
    acf_1w: float
    bursts: list[Burst]
    changes: list[Change]
    skills: dict[int, Skill]


def portray(per_minute: Floats, first_week_hour: int) -> Portrait:
    """Describe requests per minute, shape (minutes,), nan where nobody recorded.

    Parameters
    ----------
    first_week_hour : int
        Hour of the week (Monday 00:00 is 0) in which the first minute lies.
    """
    hourly = rebin(per_minute, 60)
    daily_strength, weekly_strength = season_strengths(hourly)
    return Portrait(
        dispersion(per_minute),
        daily_strength,
        weekly_strength,
        autocorrelation(rebin(per_minute, FORECAST_MINUTES), 1),
        autocorrelation(hourly, HOUR),
        autocorrelation(hourly, DAY),
        autocorrelation(hourly, WEEK),
        bursts(per_minute),
        changes(hourly, first_week_hour),
        skills(per_minute),
    )
