"""The load of each hour of a day, as each kind of plan sees it.

forecast   the maximum of the hour's mean forecast, and SageServe's buffer for the batch tier niw (6.3)
corrected  a quantile of the forecast, window by window, and the same buffer
day_ahead  a quantile of the forecast of the whole day, made when it begins, and the buffer of the day before
truth      the actual load: no policy can know it, every policy is compared with it
peak       the largest hours of the history, for an allocation that stays all day
"""

from datetime import date, timedelta
from typing import NamedTuple

import numpy as np

from fleetcast.assets.demand.demand import INTERACTIVE, read_demand_matrix
from fleetcast.assets.lake.lake_preconditions import column_codes
from fleetcast.assets.lake.settings import HOURS_OF_DAY, RunSettings, midnight
from fleetcast.models.aliases import Floats


class PlanLoad(NamedTuple):
    """The load that a plan has to serve, input tokens/s."""

    demand: Floats  # (hours, llms, regions, windows) interactive requests
    buffer: Floats  # (hours, llms, regions) capacity that is kept free for deferrable requests


def day_loads(settings: RunSettings, day: date) -> dict[str, PlanLoad]:
    """Return the load of each hour as each plan sees it; `peak` has the hours of the whole history."""
    config = settings.config.forecast
    first = settings.history(day)[0]
    demand = read_demand_matrix(
        settings.lake, settings.trace, first, day, config.bucket_minutes, settings.catalogue
    )
    interactive, deferrable = demand.tier_series(INTERACTIVE), demand.held()
    for rates in (interactive, deferrable):  # in a gap of the day's data nothing is replayed
        np.nan_to_num(rates[..., -HOURS_OF_DAY * 60 // config.bucket_minutes :], copy=False)
    windows, deferrable_windows = (
        settings.serving_load(_by_hour(rates, config.bucket_minutes), axis=1)
        for rates in (interactive, deferrable)
    )
    buffer = deferrable_windows.mean(axis=-1) * config.niw_buffer_share
    past = ~np.isnan(windows[:-HOURS_OF_DAY]).any(axis=(1, 2, 3))
    last_hour = np.nan_to_num(buffer[-HOURS_OF_DAY - 1 : -1])
    mean, _ = read_forecast_windows(settings, day, config.paper_method)
    _, quantile = read_forecast_windows(settings, day, config.method)
    return {
        "forecast": PlanLoad(mean.max(axis=-1, keepdims=True), last_hour),
        "corrected": PlanLoad(quantile, last_hour),
        "truth": PlanLoad(windows[-HOURS_OF_DAY:], buffer[-HOURS_OF_DAY:]),
        "peak": PlanLoad(
            windows[:-HOURS_OF_DAY][past].max(axis=-1, keepdims=True), buffer[:-HOURS_OF_DAY][past]
        ),
    }


def day_ahead_load(settings: RunSettings, day: date, known_until: date | None = None) -> PlanLoad:
    """Return the load of each hour of a day as forecast when the day begins; no data of it are needed.

    `known_until`: the day at whose midnight the forecast is made, where that is an earlier one.
    """
    _, quantile = read_forecast_windows(settings, day, settings.config.forecast.method, "day_ahead_forecasts")
    return PlanLoad(quantile, latest_batch_buffer(settings, known_until or day))


def latest_batch_buffer(settings: RunSettings, begins: date) -> Floats:
    """Return the batch buffer by hour of the day, from the days before `begins`.

    The result has shape (24, llms, regions), input tokens/s.
    """
    past = settings.history(begins)
    demand = read_demand_matrix(settings.lake, settings.trace, past[0], past[-1], 60, settings.catalogue)
    deferrable = np.moveaxis(latest_value_by_hour(demand.held()), -1, 0)
    return settings.serving_load(deferrable, axis=1) * settings.config.forecast.niw_buffer_share


def latest_value_by_hour(hourly: Floats) -> Floats:
    """Return the latest known value of each hour of the day, else 0: (..., 24 x days) -> (..., 24)."""
    days = hourly.reshape(*hourly.shape[:-1], -1, HOURS_OF_DAY)
    latest = np.zeros_like(days[..., 0, :])
    for day in np.moveaxis(days, -2, 0):
        latest = np.where(np.isnan(day), latest, day)
    return latest


def read_forecast_windows(
    settings: RunSettings, day: date, method: str, table: str = "forecasts"
) -> tuple[Floats, Floats]:
    """Read a method's forecast: mean and quantile, tokens/s, each (hours, llms, regions, windows).

    The quantile path is the mean's path, scaled so that its maximum is the [plan] quantile of the hour's
    maximum, but at most `most_headroom_share` above the mean's: rare and far larger peaks are left to the
    reactive correction. ValueError names a bucket without forecast.
    """
    config, catalogue = settings.config, settings.catalogue
    rows = settings.lake.sql(
        f"select * from {table} where trace = $trace and day = $day and method = $method "
        "and measure = 'input_tokens' and tier = $tier",
        trace=settings.trace,
        day=day,
        method=method,
        tier=INTERACTIVE,
    )
    per_hour = 60 // config.forecast.bucket_minutes
    minutes = (rows["bucket_start"].to_numpy() - np.datetime64(day, "us")) // np.timedelta64(1, "m")
    where = (
        minutes // 60,
        column_codes(rows, "llm", catalogue.llms),
        column_codes(rows, "region", catalogue.regions),
        minutes % 60 // config.forecast.bucket_minutes,
    )
    peak_column = f"peak_p{round(100 * config.plan.quantile)}_per_s"
    mean, peak = np.full((2, HOURS_OF_DAY, len(catalogue.llms), len(catalogue.regions), per_hour), np.nan)
    mean[where] = rows["forecast_per_s"].to_numpy()
    _require_all(settings, day, method, mean)
    peak[where] = rows[peak_column].to_numpy()
    quantile = quantile_path(mean, peak, config.plan.most_headroom_share)
    return settings.serving_load(mean, axis=1), settings.serving_load(quantile, axis=1)


def quantile_path(mean: Floats, peak: Floats, most_headroom_share: float) -> Floats:
    """Return the mean's path through the windows of hours (last axis), scaled so that its maximum is `peak`.

    The result is at most `most_headroom_share` above the mean's maximum; it is `peak` where that is 0.

    mean : (..., windows) tokens/s
    peak : the quantile of the maximum, tokens/s, of the mean's shape
    most_headroom_share : largest share above the mean's maximum

    Returns
    -------
    (..., windows) tokens/s
    """
    largest = mean.max(axis=-1, keepdims=True)
    scale = np.divide(peak, largest, out=np.zeros_like(peak), where=largest > 0)
    return np.where(largest > 0, mean * np.minimum(scale, 1.0 + most_headroom_share), peak)


def _require_all(settings: RunSettings, day: date, method: str, mean: Floats) -> None:
    missing = np.argwhere(np.isnan(mean))
    if len(missing):
        hour, llm, region, window = (int(n) for n in missing[0])
        at = midnight(day) + timedelta(hours=hour, minutes=window * settings.config.forecast.bucket_minutes)
        raise ValueError(
            f"The forecasts of {settings.trace} by {method} lack "
            f"{list(settings.catalogue.llms)[llm]} in {list(settings.catalogue.regions)[region]} at "
            f"{at:%Y-%m-%d %H:%M} and {len(missing) - 1} more. "
            f"Forecast the day again: {settings.command(f'nightly --date {day}')}"
        )


def _by_hour(per_bucket: Floats, bucket_minutes: int) -> Floats:
    """Reshape (llms, regions, buckets) -> (hours, llms, regions, buckets of the hour)."""
    llms, regions, _ = per_bucket.shape
    return np.moveaxis(per_bucket.reshape(llms, regions, -1, 60 // bucket_minutes), 2, 0)


def split_load_into_slots(load: PlanLoad, per_hour: int) -> PlanLoad:
    """Split hours into slots: demand (hours * per_hour, llms, regions, windows / per_hour), tokens/s."""
    slots = np.stack(np.split(load.demand, per_hour, axis=3), axis=1)
    return PlanLoad(slots.reshape(-1, *slots.shape[2:]), np.repeat(load.buffer, per_hour, axis=0))
