"""Sample versions of tomorrow for the promise of a page: load, requests, latencies and failures.

Load and requests: models/traffic/future_days.py, at the forecast of midnight, with the errors of past
forecasts. Latencies: the errors of the profiles in use, by kind. Failures: FAILURES_PER_GPU_DAY.
"""

from collections.abc import Sequence
from datetime import date

import numpy as np
import pandas as pd

from fleetcast.assets.advice.rule_replays import DayDraw
from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.lake.settings import HOURS_OF_DAY, RunSettings
from fleetcast.assets.replays.replay_workloads import read_workload
from fleetcast.assets.studies.latency_error import profile_errors
from fleetcast.models.aliases import Floats
from fleetcast.models.latency.latency_errors import sample_catalogues
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.traffic.future_days import (
    ForecastErrors,
    gather_past_requests,
    measure_errors,
    sample_future_day,
    sample_load_factors,
)
from fleetcast.models.world.calendar import HOUR_S

MOST_DRAWS = 40
LEAST_DRAWS = 8
REQUESTS_OF_DRAWS = 4_000_000  # of all draws together; a large day has fewer draws
MOST_PAST_REQUESTS = 4_000_000  # of the past days that are resampled
RESAMPLED_DAYS = 7
REQUEST_FIELDS = ("region", "llm", "tier", "input_tokens", "output_tokens", "level", "cached_tokens")


def can_sample_days(settings: RunSettings) -> bool:
    """Whether requests can be resampled: not with cascades or hashes of prompts, which link requests."""
    config = settings.config
    return config.fleet.prefix != "blocks" and not config.replay.cascades and config.quality is None


def sample_tomorrow(
    settings: RunSettings,
    day: date,
    past: Sequence[date],
    most_draws: int | None = None,
    least_draws: int | None = None,
) -> list[DayDraw]:
    """Return versions of a day that has a midnight forecast; `past`: whole days before it, oldest first.

    ValueError if no past day has a request.
    """
    days, requests = read_past_days(settings, past)
    if not requests:
        raise ValueError(f"No day before {day} has requests to resample. Advise on a longer trace.")
    seed, regions = settings.config.trace.seed, len(settings.catalogue.regions)
    series = len(settings.catalogue.llms) * regions
    forecast, errors = read_forecast_errors(settings, day, past, series)
    is_forecast = np.array([not tier.is_held for tier in settings.catalogue.tiers.values()])
    resampled = gather_past_requests(
        [np.rint(1e6 * trace.arrival_s).astype(np.int64) for trace in requests],
        [trace.llm.astype(np.int64) * regions + trace.region for trace in requests],
        [np.where(is_forecast[trace.tier], trace.input_tokens, 0).astype(float) for trace in requests],
        series,
    )
    mean = max(1, len(resampled.series) // len(days))
    draws = int(np.clip(REQUESTS_OF_DRAWS // mean, least_draws or LEAST_DRAWS, most_draws or MOST_DRAWS))
    rng = np.random.default_rng([seed, day.toordinal(), 0xAD1])
    factors = sample_load_factors(errors, series, draws, rng)
    catalogues = sample_catalogues(settings.catalogue, profile_errors(settings), draws, seed)
    columns = _concatenate(requests)
    found = []
    for draw in range(draws):
        target = forecast * factors[draw] * HOUR_S
        rows, at_us = sample_future_day(resampled, target, rng)
        trace = TraceArrays(at_us / 1e6, **{name: column[rows] for name, column in columns.items()})
        found.append(DayDraw(trace, catalogues[draw], int(rng.integers(1 << 31))))
    return found


def as_profiled(settings: RunSettings, draws: Sequence[DayDraw]) -> list[DayDraw]:
    """Return these versions with the latencies of the profiles, which are the same every day."""
    return [draw._replace(catalogue=settings.catalogue) for draw in draws]


def recorded_draw(settings: RunSettings, day: date) -> DayDraw:
    """Return a recorded day, with the latencies of the profiles and without failures."""
    return DayDraw(read_workload(settings, day).trace, settings.catalogue)


def read_past_days(settings: RunSettings, past: Sequence[date]) -> tuple[list[date], list[TraceArrays]]:
    """Return the latest of these days, at most RESAMPLED_DAYS and MOST_PAST_REQUESTS, with their requests."""
    days, requests, total = list[date](), list[TraceArrays](), 0
    for day in reversed(past[-RESAMPLED_DAYS:]):
        count = settings.lake.count("requests", trace=settings.trace, day=day)
        if count and (not days or total + count <= MOST_PAST_REQUESTS):
            days.append(day)
            requests.append(read_workload(settings, day).trace)
            total += count
    return days, requests


def read_forecast_errors(
    settings: RunSettings, day: date, past: Sequence[date], series: int
) -> tuple[Floats, ForecastErrors]:
    """Return the forecast of a day, (24, series) tokens/s, and the errors of those of the past days."""
    rows = settings.lake.sql(
        "reads/advice_midnight_forecasts.sql",
        trace=settings.trace,
        days=[*past, day],
        method=settings.config.forecast.method,
        tier=INTERACTIVE,
    ).to_pandas()
    llms, regions = list(settings.catalogue.llms), list(settings.catalogue.regions)
    code = rows["llm"].map(llms.index) * len(regions) + rows["region"].map(regions.index)
    names = ("actual", "forecast", "peak_p50", "peak_p90")
    by_day = dict[date, Floats]()
    for key, of_day in rows.groupby("day"):
        table = np.full((len(names), HOURS_OF_DAY, series), np.nan)
        for n, name in enumerate(names):
            table[n, of_day["hour"], code[of_day.index]] = of_day[f"{name}_tokens_per_s"]
        by_day[pd.Timestamp(key).date()] = table
    forecast = np.nan_to_num(by_day[day][1])
    by_day[day][0] = np.nan  # the load of a day that has come is not known the night before
    # Without a scored day the quantiles of the coming day are all that is known.
    known = [by_day[one] for one in past if one in by_day] or [by_day[day]]
    return forecast, measure_errors(*np.stack(known, axis=1))


def _concatenate(requests: Sequence[TraceArrays]) -> dict[str, np.ndarray]:
    """Return the columns of all requests that a replay reads; empty ones are left out."""
    columns = {name: np.concatenate([getattr(trace, name) for trace in requests]) for name in REQUEST_FIELDS}
    return {name: column for name, column in columns.items() if column.size}
