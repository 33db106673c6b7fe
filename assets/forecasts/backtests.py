"""Backtests: every method on past days, ten minutes to two hours ahead, from what was known at each cutoff.

Backtests cover the input tokens of one tier. One walk covers all requested days; results are written by day.
The marts forecast_losses and forecast_leaderboard score them. Backtests are not part of the nightly run,
because fitting every method takes minutes.
"""

from datetime import date, timedelta

import numpy as np
import pyarrow as pa

from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.demand.demand_history import require_day_demand, require_history
from fleetcast.assets.forecasts.forecasts import PLANNED_MEASURE, forecast_rows
from fleetcast.assets.forecasts.walks import forecast_parts, read_panel, split_into_pieces, walk_pieces
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import HOURS_OF_DAY, Progress, RunSettings
from fleetcast.models.aliases import Floats
from fleetcast.models.forecast import FORECAST_METHODS
from fleetcast.models.forecast.backtest import BacktestClock, actual_demand
from fleetcast.models.forecast.walk_predictions import methods_to_walk, predict_from_walks
from fleetcast.models.forecast.wape_bootstrap import bootstrap_difference
from fleetcast.models.world.option_names import ENSEMBLES
from fleetcast.models.world.own_forecasts import installed_forecasts
from fleetcast.models.world.toml_dataclasses import require_known

BUCKET_MINUTES = 10
HORIZON_MINUTES = 120  # scored at 10 (weights in the region), 60 (the hourly plan), 120 (weights elsewhere)
BACKTESTED_METHODS = (*FORECAST_METHODS, *ENSEMBLES)


def backtest_methods(
    settings: RunSettings, first: date, last: date, tier: str, progress: Progress
) -> pa.Table:
    """Forecast every hour of these days by every method, and write backtests and backtest_intervals.

    Raises
    ------
    LakeError
        The last day has no demand.
    ValueError
        Unknown tier, or a first day without history.
    """
    require_known(tier, (INTERACTIVE, *settings.catalogue.tiers), "tier", "--tier")
    require_history(settings, first)
    require_day_demand(settings, last)
    methods = (*BACKTESTED_METHODS, *installed_forecasts())
    per_hour, per_day = 60 // BUCKET_MINUTES, HOURS_OF_DAY * 60 // BUCKET_MINUTES
    days, horizon = (last - first).days + 1, HORIZON_MINUTES // BUCKET_MINUTES
    history = settings.history(first)[0], last
    cutoff = (first - history[0]).days * per_day
    parts_until = cutoff if tier == INTERACTIVE else None
    panel = read_panel(
        settings, history, BUCKET_MINUTES, horizon, (tier,), PLANNED_MEASURE, parts_until=parts_until
    )
    clock = BacktestClock(cutoff, per_hour, horizon, per_day)
    pieces = split_into_pieces(methods_to_walk(methods), len(panel.demand))
    with progress.bar(f"backtest {tier}, {first} to {last}", len(pieces)) as done:
        walks, cpu_s = walk_pieces(panel, clock, pieces, done)
    by_parts = forecast_parts(panel, clock, methods)
    found = predict_from_walks(panel.demand, walks, clock, methods, by_parts)
    actual = actual_demand(panel.demand, clock)
    step = np.nanmean(np.abs(np.diff(panel.demand[:, : clock.first_cutoff])), axis=1)
    tables = []
    for method in methods:
        table = forecast_rows(panel, first, BUCKET_MINUTES, method, found[method], actual)
        spent_s = sum(cpu_s[single] for single in methods_to_walk([method])) / found[method].fallbacks.size
        extra = {
            "cpu_s": np.full(table.num_rows, spent_s),
            "naive_step_per_s": np.repeat(step, table.num_rows // len(step)),
        }
        tables.append(pa.table({**dict(zip(table.column_names, table.columns, strict=True)), **extra}))
    table = pa.concat_tables(tables).select(SCHEMAS["backtests"].names)
    number = (table["cutoff"].to_numpy().astype("datetime64[D]") - np.datetime64(first)).astype(np.int64)
    for n in range(days):
        part = table.filter(pa.array(number == n))
        settings.lake.write("backtests", part, trace=settings.trace, tier=tier, day=first + timedelta(days=n))
    settings.lake.write(
        "backtest_intervals", error_difference_intervals(settings, tier), trace=settings.trace, tier=tier
    )
    return table


def error_difference_intervals(settings: RunSettings, tier: str) -> pa.Table:
    """Return how much lower the planned method's error is than every other's, over all backtested days."""
    sums = settings.lake.sql("staging/errors_by_cutoff.sql", trace=settings.trace, tier=tier).to_pandas()
    planned = settings.config.forecast.method
    rows = []
    for minutes, group in sums.groupby("horizon_minutes"):
        errors: dict[str, Floats] = {
            str(method): part.sort_values("cutoff")["error"].to_numpy()
            for method, part in group.groupby("method")
        }
        for other in errors:
            if other != planned and errors[other].size == errors[planned].size:
                difference = bootstrap_difference(errors[planned], errors[other], HOURS_OF_DAY)
                values = (None if np.isnan(value) else value for value in difference)
                rows.append((planned, other, minutes, errors[planned].size, *values))
    schema = SCHEMAS["backtest_intervals"]
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


FORECAST_LEADERBOARD_QUERY = """
select * from forecast_leaderboard
where trace = $trace and tier = $tier
order by horizon_minutes, wape_share
"""


def read_forecast_leaderboard(settings: RunSettings, tier: str) -> pa.Table:
    """Read the mart forecast_leaderboard of the config's trace and a tier, the best method first."""
    return settings.lake.sql(FORECAST_LEADERBOARD_QUERY, trace=settings.trace, tier=tier)
