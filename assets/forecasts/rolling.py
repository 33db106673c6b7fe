"""The forecast that is made now: hours ahead from an instant of a day that has begun."""

from datetime import datetime, timedelta
from typing import NamedTuple

from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.forecasts.forecasts import PLANNED_MEASURE, found_by
from fleetcast.assets.forecasts.walks import read_panel
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.settings import HOURS, Progress, Settings, midnight
from fleetcast.models.aliases import Floats
from fleetcast.models.forecast.backtest import Clock
from fleetcast.models.world.config import QUANTILES


class Foreseen(NamedTuple):
    """Interactive input tokens/s of each endpoint around an instant."""

    known: Floats  # (llms, regions, buckets) of the hour so far and of the hour before it
    mean: Floats  # (llms, regions, hours, buckets of an hour) from the instant on
    peak: Floats  # (llms, regions, hours, 1) the [plan] quantile of each hour's largest bucket


def known_until(settings: Settings) -> datetime:
    """The end of the last whole bucket with demand in the lake; LakeError where there is none."""
    days = settings.lake.days("demand", settings.trace)
    if not days:
        raise LakeError(
            f"The trace {settings.trace!r} has no demand to plan from. "
            "Run fleetcast nightly or fleetcast ingest first."
        )
    minutes = settings.config.forecast.bucket_minutes
    [last] = settings.lake.sql(
        "select max(bucket_start) as at from demand where trace = $trace and day = $day",
        trace=settings.trace,
        day=days[-1],
    ).to_pylist()
    since = (last["at"] - midnight(days[-1])) // timedelta(minutes=1) + 1
    return midnight(days[-1]) + timedelta(minutes=max(since - since % minutes, 0))


def foresee_from(settings: Settings, at: datetime, hours: int, progress: Progress) -> Foreseen:
    """Forecast whole hours from `at` on, the beginning of a bucket; nothing from then on is looked at."""
    config, minutes = settings.config.forecast, settings.config.forecast.bucket_minutes
    per_hour, per_day = 60 // minutes, HOURS * 60 // minutes
    first = settings.history(at.date())[0]
    known = (at - midnight(first)) // timedelta(minutes=minutes)
    days = first, (at + timedelta(hours=hours)).date()
    panel = read_panel(settings, days, minutes, 0, (INTERACTIVE,), PLANNED_MEASURE, known)
    panel = panel._replace(demand=panel.demand[:, : known + 1])  # one column unknown: the one cutoff
    clock = Clock(known, per_hour, hours * per_hour, per_day)
    label = f"forecast {hours} hours from {at:%Y-%m-%d %H:%M}"
    found = found_by(panel, clock, (config.method,), label, progress)[config.method]
    llms, regions = len(settings.catalogue.llms), len(settings.catalogue.regions)
    shape = (llms, regions, hours)
    peak = found.peak_quantiles[:, 0, :, QUANTILES.index(settings.config.plan.quantile)]
    return Foreseen(
        panel.demand[:, :known].reshape(llms, regions, -1)[..., -2 * per_hour :],
        found.mean[:, 0].reshape(*shape, per_hour),
        peak.reshape(*shape, 1),
    )
