"""Forecasts: the default method over a day of hourly cutoffs."""

from datetime import timedelta

import numpy as np
from measure import Figures, Target, cpu_seconds
from workloads import setting

from models.arrivals import office_rate
from models.forecast.backtest import walk
from models.replay.state import NIW, Floats
from models.traffic import MINUTES, Names

DAYS, BUCKET_MINUTES = 15, 15
TARGETS = {
    "forecast_arima_day_seconds": Target(
        "s", "12 series x 24 hourly cutoffs, 14 days of quarter hours before them; CPU"
    )
}


def arima_day() -> Figures:
    """Walk ARIMA through a day: 12 series, 24 cutoffs."""
    demand = office_demand()
    per_day, per_hour = MINUTES // BUCKET_MINUTES, 60 // BUCKET_MINUTES
    walk(demand[:1, : 2 * per_day], "arima", 2 * per_day - per_hour, per_hour, per_hour, per_day)  # imports
    spent = cpu_seconds(lambda: walk(demand, "arima", 14 * per_day, per_hour, per_hour, per_day))
    return {"forecast_arima_day_seconds": spent}


def office_demand() -> Floats:
    """Expected interactive requests per bucket of each llm and region, shape (series, buckets)."""
    catalogue, config = setting()
    office = config.trace.office
    if office is None:
        raise ValueError("data/config/office.toml has no [trace.office]; put it back.")
    names = Names(tuple(catalogue.llms), tuple(catalogue.regions), tuple(catalogue.tiers))
    dates = [config.trace.first_day + timedelta(days=n) for n in range(DAYS)]
    rates = [office_rate(office, day, config.trace.seed, names)[:NIW].sum(axis=0) for day in dates]
    minutes = np.concatenate(rates, axis=-1).reshape(len(names.llms) * len(names.regions), -1)
    return minutes.reshape(len(minutes), -1, BUCKET_MINUTES).sum(axis=-1)


FUNCTIONS = (arima_day,)
