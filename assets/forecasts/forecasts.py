"""Forecasts of a day: at every hour the next hour, per llm, region and tier; at midnight the whole day.

Interactive input tokens, which plans cover, are forecast by every configured method. Single tiers and other
measures are forecast by the fast methods and by the planned method (the one that plans use). Each row has its
cutoff, the instant from which on the demand was unknown to the forecast. The day-ahead forecast covers only
interactive input tokens, by the planned method; the days before are walked from every hour, so that its
errors are known.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fleetcast.assets.demand.demand import INTERACTIVE, MEASURES
from fleetcast.assets.demand.demand_history import require_history
from fleetcast.assets.forecasts.walks import Panel, forecast_parts, read_panel, split_into_pieces, walk_pieces
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import HOURS_OF_DAY, Progress, RunSettings, midnight
from fleetcast.models.aliases import Floats
from fleetcast.models.forecast import is_slow
from fleetcast.models.forecast.backtest import BacktestClock, actual_demand
from fleetcast.models.forecast.walk_predictions import Prediction, methods_to_walk, predict_from_walks

PLANNED_MEASURE = "input_tokens"


def forecast_day(settings: RunSettings, day: date, progress: Progress) -> pa.Table:
    """Forecast each hour of `day` from what was known at its start; write forecasts, day_ahead_forecasts.

    ValueError for a day without history.
    """
    methods, planned = settings.config.forecast.methods, settings.config.forecast.method
    quick = [method for method in methods if not is_slow(method) or method == planned]
    require_history(settings, day)
    single = tuple(settings.catalogue.tiers)
    tiers_of = {
        measure: single if measure == PLANNED_MEASURE else (INTERACTIVE, *single) for measure in MEASURES
    }
    with ThreadPoolExecutor(1) as background:  # slow methods run in worker processes and leave this one idle
        try:
            others = [
                background.submit(forecast_measure, settings, day, measure, tiers, quick, Progress())
                for measure, tiers in tiers_of.items()
            ]
            first = forecast_measure(settings, day, PLANNED_MEASURE, (INTERACTIVE,), methods, progress)
            table = pa.concat_tables([first, *(other.result() for other in others)])
        except BaseException:  # also for an interruption: pending work is cancelled
            background.shutdown(cancel_futures=True)
            raise
    settings.lake.write("forecasts", table, trace=settings.trace, day=day)
    forecast_day_ahead(settings, day, progress)
    return table


def forecast_day_ahead(
    settings: RunSettings, day: date, progress: Progress, known_until: date | None = None
) -> pa.Table:
    """Forecast `day` from what is known when it begins, and write the table day_ahead_forecasts.

    The day itself needs no data.

    known_until : earlier day at whose midnight the forecast is made; None: `day`
    """
    minutes, method = settings.config.forecast.bucket_minutes, settings.config.forecast.method
    per_hour, per_day = 60 // minutes, HOURS_OF_DAY * 60 // minutes
    begins = known_until or day
    horizon = ((day - begins).days + 1) * per_day
    days = settings.history(begins)[0], day
    cutoff = ((day - days[0]).days + 1) * per_day - horizon
    panel = read_panel(settings, days, minutes, 0, (INTERACTIVE,), PLANNED_MEASURE, parts_until=cutoff)
    actual = panel.demand[:, cutoff:]
    if day not in settings.lake.days("demand", settings.trace):
        actual = np.full(actual.shape, np.nan)  # also for a landed trace, whose other empty days are zero
    panel = panel.end_at(cutoff)
    clock = BacktestClock(cutoff, per_hour, horizon, per_day)
    found = run_forecast_methods(panel, clock, (method,), f"forecast the whole of {day}", progress)[method]
    table = forecast_rows(panel, begins, minutes, method, found, actual[:, None])
    table = table.filter(pc.field("bucket_start") >= midnight(day))
    table = table.append_column("measure", pa.repeat(PLANNED_MEASURE, table.num_rows))
    table = table.select(SCHEMAS["day_ahead_forecasts"].names)
    settings.lake.write("day_ahead_forecasts", table, trace=settings.trace, day=day)
    return table


def forecast_measure(
    settings: RunSettings,
    day: date,
    measure: str,
    tiers: Sequence[str],
    methods: Sequence[str],
    progress: Progress,
) -> pa.Table:
    """Forecast one measure of some tiers by these methods; return rows of the table forecasts."""
    minutes = settings.config.forecast.bucket_minutes
    per_hour, per_day = 60 // minutes, HOURS_OF_DAY * 60 // minutes
    first = settings.history(day)[0]
    cutoff = (day - first).days * per_day
    parts_until = cutoff if (measure, *tiers) == (PLANNED_MEASURE, INTERACTIVE) else None
    panel = read_panel(settings, (first, day), minutes, per_hour, tiers, measure, parts_until=parts_until)
    clock = BacktestClock(cutoff, per_hour, per_hour, per_day)
    found = run_forecast_methods(
        panel, clock, methods, f"forecast {measure.replace('_', ' ')} of {day}", progress
    )
    actual = actual_demand(panel.demand, clock)
    table = pa.concat_tables(
        forecast_rows(panel, day, minutes, name, found[name], actual) for name in methods
    )
    table = table.append_column("measure", pa.repeat(measure, table.num_rows))
    return table.select(SCHEMAS["forecasts"].names)


def run_forecast_methods(
    panel: Panel, clock: BacktestClock, methods: Sequence[str], label: str, progress: Progress
) -> dict[str, Prediction]:
    """Walk the methods and the members of ensembles, then calibrate and combine; predictions by method."""
    pieces = split_into_pieces(methods_to_walk(methods), len(panel.demand))
    with progress.bar(label, len(pieces)) as done:
        walks, _ = walk_pieces(panel, clock, pieces, done)
    return predict_from_walks(panel.demand, walks, clock, methods, forecast_parts(panel, clock, methods))


def read_day_forecast_errors(settings: RunSettings, day: date) -> pa.Table:
    """Read the errors of each method's forecasts of the day's input tokens (the mart forecast_errors)."""
    query = (
        "select * exclude (trace, day, measure) from forecast_errors where trace = $trace and day = $day "
        "and measure = $measure order by tier = $first desc, tier, llm, wape_share"
    )
    return settings.lake.sql(query, trace=settings.trace, day=day, measure=PLANNED_MEASURE, first=INTERACTIVE)


def forecast_rows(
    panel: Panel, first: date, minutes: int, method: str, found: Prediction, actual: Floats
) -> pa.Table:
    """Return the predictions of one method as rows, one per series, cutoff and bucket.

    first : day of the first cutoff; cutoffs follow every hour
    minutes : length of a bucket
    actual : actual rates, shape as `found.mean`: (series, cutoffs, horizon)
    """
    tier, llm, region = np.array(panel.names).T
    series, at, ahead = (axis.ravel() for axis in np.indices(found.mean.shape))
    peaks = found.peak_quantiles[series, at, ahead // (60 // minutes)]
    cutoff = np.datetime64(first, "us") + at * np.timedelta64(1, "h")
    levels = ("p50", "p90", "p95")
    columns = {
        "method": np.full(series.size, method),
        "tier": tier[series],
        "llm": llm[series],
        "region": region[series],
        "cutoff": cutoff,
        "bucket_start": cutoff + ahead * np.timedelta64(minutes, "m"),
        "bucket_minutes": np.full(series.size, minutes, np.int32),
        "forecast_per_s": found.mean.ravel(),
        "actual_per_s": actual.ravel(),
        **{f"{level}_per_s": found.quantiles[..., n].ravel() for n, level in enumerate(levels)},
        **{f"peak_{level}_per_s": peaks[:, n] for n, level in enumerate(levels)},
        "fallback": [text or None for text in found.fallbacks[series, at].tolist()],
        "ensemble_weights": [text or None for text in found.reasons[series, at].tolist()],
    }
    types = {name: SCHEMAS["forecasts"].field(name).type for name in columns}
    return pa.table(
        {name: pa.array(values, types[name], from_pandas=True) for name, values in columns.items()}
    )
