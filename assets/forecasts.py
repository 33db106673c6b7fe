"""Forecasts of a day: every hour the next hour, per llm and region, by every configured method.

Each row carries its cutoff: the instant from which on the demand was unknown to it.
"""

from datetime import date

import numpy as np
import pyarrow as pa

from assets.demand import demand_matrix
from assets.history import require_history
from assets.settings import HOURS, Progress, Settings
from models.forecast.backtest import walk

SCHEMA = pa.schema(
    [
        ("llm", pa.string()),
        ("region", pa.string()),
        ("method", pa.string()),
        ("cutoff", pa.timestamp("us", "UTC")),
        ("bucket_start", pa.timestamp("us", "UTC")),
        ("bucket_minutes", pa.int32()),
        ("input_tokens_per_s", pa.float64()),
        ("actual_input_tokens_per_s", pa.float64()),
        ("fallback", pa.string()),  # what forecast instead and why, null where the method itself did
    ]
)


def forecast_day(settings: Settings, day: date, progress: Progress) -> pa.Table:
    """Forecast the interactive input tokens/s of each hour of `day` from what was known when it began."""
    config = settings.config.forecast
    require_history(settings, day)
    history = settings.history(day)
    _, interactive, _ = demand_matrix(
        settings.lake, settings.trace, history[0], day, config.bucket_minutes, settings.catalogue
    )
    series = interactive.reshape(-1, interactive.shape[-1])
    per_hour, per_day = 60 // config.bucket_minutes, HOURS * 60 // config.bucket_minutes
    first_cutoff = series.shape[1] - per_day
    tables, steps = [], 0
    with progress.bar(f"forecast {day}", len(config.methods) * len(series)) as done:
        for method in config.methods:
            walks = []
            for one in series:
                walks.append(walk(one[None], method, first_cutoff, per_hour, per_hour, per_day))
                done(steps := steps + 1)
            predicted = np.concatenate([each.predicted for each in walks])
            fallbacks = np.concatenate([each.fallbacks for each in walks])
            tables.append(_rows(settings, day, method, predicted, fallbacks, series[:, first_cutoff:]))
    table = pa.concat_tables(tables)
    settings.lake.write("forecasts", table, trace=settings.trace, day=day)
    return table


def predicted_peaks(settings: Settings, day: date) -> np.ndarray:
    """The plan's forecast: the largest bucket of each hour, tokens/s, shape (hours, llms, regions)."""
    rows = settings.lake.sql(
        "select hour(bucket_start) as hour, llm, region, max(input_tokens_per_s) as peak from forecasts "
        "where trace = $trace and day = $day and method = $method group by hour, llm, region",
        trace=settings.trace,
        day=day,
        method=settings.config.forecast.method,
    ).to_pandas()
    llms, regions = list(settings.catalogue.llms), list(settings.catalogue.regions)
    peaks = np.zeros((HOURS, len(llms), len(regions)))
    for hour, llm, region, peak in rows.itertuples(index=False):
        peaks[hour, llms.index(llm), regions.index(region)] = peak
    return peaks


def _rows(
    settings: Settings,
    day: date,
    method: str,
    predicted: np.ndarray,
    fallbacks: np.ndarray,
    actual: np.ndarray,
) -> pa.Table:
    """Long rows of one method.

    Shapes: `predicted` (series, cutoffs, horizon), `fallbacks` (series, cutoffs), `actual` (series, buckets).
    """
    llms, regions = list(settings.catalogue.llms), list(settings.catalogue.regions)
    minutes = settings.config.forecast.bucket_minutes
    of_series, of_cutoff, ahead = (axis.ravel() for axis in np.indices(predicted.shape))
    start, step = np.datetime64(day, "us"), np.timedelta64(minutes, "m")
    cutoff = start + of_cutoff * predicted.shape[2] * step
    reasons = [reason or None for reason in fallbacks[of_series, of_cutoff].tolist()]
    columns = [
        np.array(llms)[of_series // len(regions)],
        np.array(regions)[of_series % len(regions)],
        np.full(predicted.size, method),
        cutoff,
        cutoff + ahead * step,
        np.full(predicted.size, minutes, np.int32),
        predicted.ravel(),
        actual.ravel(),
        reasons,
    ]
    arrays = [pa.array(column, from_pandas=True) for column in columns]
    return pa.Table.from_arrays(arrays, names=SCHEMA.names).cast(SCHEMA)
