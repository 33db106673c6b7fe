"""Rolling forecasts: the hours after an instant of the current day."""

from datetime import datetime, timedelta
from typing import NamedTuple

from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.forecasts.forecasts import PLANNED_MEASURE, run_forecast_methods
from fleetcast.assets.forecasts.walks import read_panel
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.settings import HOURS_OF_DAY, Progress, RunSettings, midnight
from fleetcast.models.aliases import Floats
from fleetcast.models.forecast.backtest import BacktestClock
from fleetcast.models.world.config import FORECAST_QUANTILES


class RollingForecast(NamedTuple):
    """Interactive input tokens/s of each endpoint around an instant."""

    known: Floats  # (llms, regions, buckets) actual rates of the two hours before the instant
    mean: Floats  # (llms, regions, hours, buckets of an hour) forecast from the instant on
    peak: Floats  # (llms, regions, hours, 1) the [plan] quantile of each hour's largest bucket


def last_known_instant(settings: RunSettings) -> datetime:
    """Return the end of the last whole bucket with demand in the lake; LakeError where there is none."""
    days = settings.lake.days("demand", settings.trace)
    if not days:
        raise LakeError(
            f"The trace {settings.trace!r} has no demand to plan from. "
            f"Run {settings.command('nightly')} or fleetcast ingest first."
        )
    minutes = settings.config.forecast.bucket_minutes
    [last] = settings.lake.sql(
        "select max(bucket_start) as at from demand where trace = $trace and day = $day",
        trace=settings.trace,
        day=days[-1],
    ).to_pylist()
    since = (last["at"] - midnight(days[-1])) // timedelta(minutes=1) + 1
    return midnight(days[-1]) + timedelta(minutes=max(since - since % minutes, 0))


def forecast_hours_from(
    settings: RunSettings, at: datetime, hours: int, progress: Progress
) -> RollingForecast:
    """Forecast whole hours from `at`, the start of a bucket, on; data from then on is not used."""
    config, minutes = settings.config.forecast, settings.config.forecast.bucket_minutes
    per_hour, per_day = 60 // minutes, HOURS_OF_DAY * 60 // minutes
    first = settings.history(at.date())[0]
    known = (at - midnight(first)) // timedelta(minutes=minutes)
    days = first, (at + timedelta(hours=hours)).date()
    panel = read_panel(settings, days, minutes, 0, (INTERACTIVE,), PLANNED_MEASURE, known, known).end_at(
        known
    )
    clock = BacktestClock(known, per_hour, hours * per_hour, per_day)
    label = f"forecast {hours} hours from {at:%Y-%m-%d %H:%M}"
    found = run_forecast_methods(panel, clock, (config.method,), label, progress)[config.method]
    llms, regions = len(settings.catalogue.llms), len(settings.catalogue.regions)
    shape = (llms, regions, hours)
    peak = found.peak_quantiles[:, 0, :, FORECAST_QUANTILES.index(settings.config.plan.quantile)]
    return RollingForecast(
        panel.demand[:, :known].reshape(llms, regions, -1)[..., -2 * per_hour :],
        found.mean[:, 0].reshape(*shape, per_hour),
        peak.reshape(*shape, 1),
    )
