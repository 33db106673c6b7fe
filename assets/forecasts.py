"""Forecasts of a day: every hour the next hour, per llm and region, by every configured method.

Each row carries its cutoff: the instant from which on the demand was unknown to it.
"""

from datetime import date

import numpy as np
import pyarrow as pa

from assets.history import require_history
from assets.settings import HOURS, Progress, Settings
from assets.walks import pieces_of, read_panel, walk_all
from models.forecast.backtest import Clock, actuals
from models.forecast.conformal import LEVELS
from models.forecast.method import Floats
from models.forecast.predict import Prediction, predictions, walked

QUANTILES = tuple(f"p{round(100 * level)}_tokens_per_s" for level in LEVELS)
_RATE = pa.float64()
SCHEMA = pa.schema(
    [
        ("llm", pa.string()),
        ("region", pa.string()),
        ("method", pa.string()),
        ("cutoff", pa.timestamp("us", "UTC")),
        ("bucket_start", pa.timestamp("us", "UTC")),
        ("bucket_minutes", pa.int32()),
        ("input_tokens_per_s", _RATE),  # the mean that is expected
        ("actual_input_tokens_per_s", _RATE),
        *((name, _RATE) for name in QUANTILES),  # of the bucket
        *(
            (f"peak_{name}", _RATE) for name in QUANTILES
        ),  # of the largest bucket of the hour, on each of its rows
        ("fallback", pa.string()),  # what forecast instead and why, null where the method itself did
        ("reason", pa.string()),  # whom an ensemble listened to, null for a single method
    ]
)


def forecast_day(settings: Settings, day: date, progress: Progress) -> pa.Table:
    """Forecast the interactive input tokens/s of each hour of `day` from what was known when it began."""
    config = settings.config.forecast
    require_history(settings, day)
    per_hour = 60 // config.bucket_minutes
    panel = read_panel(settings, settings.history(day)[0], day, per_hour)
    per_day = HOURS * per_hour
    clock = Clock(panel.demand.shape[1] - per_day, per_hour, per_hour, per_day)
    pieces = pieces_of(walked(config.methods), len(panel.demand))
    with progress.bar(f"forecast {day}", len(pieces)) as done:
        walks = walk_all(panel, clock, pieces, done)
    found = predictions(panel.demand, walks, clock, config.methods)
    actual = actuals(panel.demand, clock)
    table = pa.concat_tables(
        rows(settings, day, clock, method, found[method], actual) for method in config.methods
    )
    settings.lake.write("forecasts", table, trace=settings.trace, day=day)
    return table


def rows(
    settings: Settings, first: date, clock: Clock, method: str, found: Prediction, actual: Floats
) -> pa.Table:
    """Long rows of one method; `first` is the day of the first cutoff, `actual` has the shape of the mean."""
    llms, regions = np.array(list(settings.catalogue.llms)), np.array(list(settings.catalogue.regions))
    minutes = settings.config.forecast.bucket_minutes
    series, at, ahead = (axis.ravel() for axis in np.indices(found.mean.shape))
    start, step = np.datetime64(first, "us"), np.timedelta64(minutes, "m")
    cutoff = start + at * clock.every * step
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
    return pa.Table.from_arrays(arrays, names=SCHEMA.names).cast(SCHEMA)
