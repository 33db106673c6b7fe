"""Forecasts of a day: every hour the next hour, per llm and region, by every configured method.

Each row carries its cutoff: the instant from which on the demand was unknown to it.
"""

from collections.abc import Sequence
from datetime import date

import numpy as np
import pyarrow as pa

from assets.history import require_history
from assets.schemas import VIEWS
from assets.settings import HOURS, Progress, Settings
from assets.walks import pieces_of, read_panel, walk_all
from models.forecast.backtest import Clock, actuals
from models.forecast.method import Floats
from models.forecast.predict import Prediction, predictions, walked

OTHER_MEASURES = ("output_tokens", "requests")


def forecast_day(settings: Settings, day: date, progress: Progress) -> pa.Table:
    """Forecast each hour of `day` from what was known when it began.

    The interactive input tokens by every configured method, into the table forecasts, which is returned; the
    output tokens and requests by the one that plans read, into traffic_forecasts.
    """
    config = settings.config.forecast
    require_history(settings, day)
    table = predicted(settings, day, "input_tokens", config.methods, progress)
    settings.lake.write("forecasts", table, trace=settings.trace, day=day)
    others = [
        _as_traffic(predicted(settings, day, measure, (config.method,), progress), measure)
        for measure in OTHER_MEASURES
    ]
    settings.lake.write("traffic_forecasts", pa.concat_tables(others), trace=settings.trace, day=day)
    return table


def predicted(
    settings: Settings, day: date, measure: str, methods: Sequence[str], progress: Progress
) -> pa.Table:
    """The forecasts of one measure, in the columns of the table forecasts."""
    minutes = settings.config.forecast.bucket_minutes
    per_hour, per_day = 60 // minutes, HOURS * 60 // minutes
    panel = read_panel(settings, settings.history(day)[0], day, minutes, per_hour, measure)
    clock = Clock(panel.demand.shape[1] - per_day, per_hour, per_hour, per_day)
    pieces = pieces_of(walked(methods), len(panel.demand))
    with progress.bar(f"forecast {measure.replace('_', ' ')} of {day}", len(pieces)) as done:
        walks, _ = walk_all(panel, clock, pieces, done)
    found, actual = predictions(panel.demand, walks, clock, methods), actuals(panel.demand, clock)
    return pa.concat_tables(rows(settings, day, minutes, name, found[name], actual) for name in methods)


def _as_traffic(table: pa.Table, measure: str) -> pa.Table:
    """The same rows under the names of traffic_forecasts."""
    names = [name.replace("input_tokens_", "").replace("tokens_", "") for name in table.column_names]
    named = table.rename_columns(names)
    return named.append_column("measure", pa.array([measure] * named.num_rows))


def errors(settings: Settings, day: date) -> pa.Table:
    """How good each method's forecasts of the day were, per llm (the mart forecast_errors)."""
    query = "select * from forecast_errors where trace = $trace and day = $day order by llm, wape_share"
    return settings.lake.sql(query, trace=settings.trace, day=day)


def predicted_peaks(settings: Settings, day: date) -> np.ndarray:
    """What the paper's policies plan for: the largest bucket of the hour's mean forecast (SageServe 6.3).

    In tokens/s, shape (hours, llms, regions).
    """
    rows = settings.lake.sql(
        "select hour(bucket_start) as hour, llm, region, max(input_tokens_per_s) as peak from forecasts "
        "where trace = $trace and day = $day and method = $method group by hour, llm, region",
        trace=settings.trace,
        day=day,
        method=settings.config.forecast.paper_method,
    ).to_pandas()
    llms, regions = list(settings.catalogue.llms), list(settings.catalogue.regions)
    peaks = np.zeros((HOURS, len(llms), len(regions)))
    for hour, llm, region, peak in rows.itertuples(index=False):
        peaks[hour, llms.index(llm), regions.index(region)] = peak
    return peaks


def rows(
    settings: Settings, first: date, minutes: int, method: str, found: Prediction, actual: Floats
) -> pa.Table:
    """Long rows of one method, a cutoff an hour from `first` on; `actual` has the shape of the mean."""
    llms, regions = np.array(list(settings.catalogue.llms)), np.array(list(settings.catalogue.regions))
    series, at, ahead = (axis.ravel() for axis in np.indices(found.mean.shape))
    start, step = np.datetime64(first, "us"), np.timedelta64(minutes, "m")
    cutoff = start + at * np.timedelta64(1, "h")
    columns = [
        llms[series // len(regions)],
        regions[series % len(regions)],
        np.full(series.size, method),
        cutoff,
        cutoff + ahead * step,
        np.full(series.size, minutes, np.int32),
        found.mean.ravel(),
        actual.ravel(),
        *found.quantiles.reshape(series.size, -1).T,
        *found.peak_quantiles[series, at].T,
        *(
            [text or None for text in texts[series, at].tolist()]
            for texts in (found.fallbacks, found.reasons)
        ),
    ]
    arrays = [pa.array(column, from_pandas=True) for column in columns]
    return pa.Table.from_arrays(arrays, names=VIEWS["forecasts"].names).cast(VIEWS["forecasts"])
