"""Real demand, read from the shared data next to the project, with the days that forecasts are held out
on.
"""

import csv
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fleetcast.assets.demand.demand import LEAST_PART_SHARE
from fleetcast.models.aliases import Floats
from fleetcast.models.forecast.backtest import BacktestClock, actual_demand, walk_forward
from fleetcast.models.forecast.walk_predictions import (
    Parts,
    Prediction,
    methods_to_walk,
    predict_from_walks,
    sum_part_forecasts,
    warm_up_clock,
)

DEMAND = Path(__file__).parents[2] / "shared" / "data" / "demand"
LEAST_SHARE = 0.005  # of all requests, for a client to be looked at by itself: 17 clients with 98 % of them
FRIDAY = 4
NAIVE = ("last_value", "seasonal_naive")


class Held(NamedTuple):
    """Series, and the hours of them to be forecast an hour ahead."""

    demand: Floats  # (series, buckets)
    clock: BacktestClock


def real_series() -> dict[str, Held]:
    """Every real series by name; FileNotFoundError where the data are not there."""
    clients = servegen_clients()
    total = clients.sum(axis=0, keepdims=True)
    is_gap = total[0] == 0  # no data was collected
    is_large = clients.sum(axis=1) >= LEAST_SHARE * total.sum()
    ten_minutes, weeks = BacktestClock(7 * 144, 6, 6, 144), BacktestClock(14 * 24, 1, 1, 24)
    azure = _hourly("azure2024_code_hourly.csv", "processed_context_tokens")
    return {
        "azure_code": Held(azure, BacktestClock(24, 1, 1, 24)),  # Saturday to Thursday after a single Friday
        "azure_code_tuesday": Held(azure, BacktestClock(96, 1, 1, 24)),  # to Thursday, after four days
        "servegen": Held(np.where(is_gap, np.nan, total), ten_minutes),
        "servegen_clients": Held(np.where(is_gap, np.nan, clients[is_large]), ten_minutes),
        "burstgpt_api": Held(_hourly("burstgpt1_hourly.csv", "api"), weeks),
        "burstgpt_conversation": Held(_hourly("burstgpt1_hourly.csv", "conversation"), weeks),
    }


def servegen_clients() -> Floats:
    """Requests/s of each ServeGen m-small client by ten minutes of 14 days, shape (43, 2016)."""
    with tarfile.open(DEMAND / "servegen_m-small.traces.tar.gz") as archive:
        files = [archive.extractfile(member) for member in archive if member.name.endswith(".csv")]
        texts = [io.TextIOWrapper(file) for file in files if file is not None]
        return np.array([[float(row[1] or 0) for row in csv.reader(text)] for text in texts])


def large_clients(clients: Floats, known: int) -> Parts:
    """The large clients of their sum, by the buckets that are known, and all others as one part."""
    of_client = np.nansum(clients[:, :known], axis=1)
    is_large = of_client >= LEAST_PART_SHARE * of_client.sum()
    parts = np.concatenate([clients[is_large], clients[~is_large].sum(axis=0, keepdims=True)])
    return Parts(parts, np.zeros(len(parts), np.int64))


def predicted(
    held: Held, names: tuple[str, ...], weekday: int = 0, parts: Parts | None = None
) -> dict[str, Prediction]:
    """Walk what the names need, then calibrate and combine; the series begin on that day of the week."""
    demand, clock = held
    buckets = demand.shape[1] + clock.horizon
    phase = np.tile((weekday * clock.season + np.arange(buckets)) % (7 * clock.season), (len(demand), 1))
    walks = {
        name: walk_forward(demand, name, warm_up_clock(clock, name), phase) for name in methods_to_walk(names)
    }
    by_parts = sum_part_forecasts(parts, phase, np.ones(phase.shape), clock, names) if parts else None
    return predict_from_walks(demand, walks, clock, names, by_parts)


def ratio_to_naive(held: Held, found: Mapping[str, Prediction], method: str) -> float:
    """Absolute error of the method in that of the naive ones: for each series the better of the two."""
    came = actual_demand(*held)
    error = {name: np.nansum(np.abs(came - one.mean), axis=(1, 2)) for name, one in found.items()}
    return float(error[method].sum() / np.minimum(*(error[name] for name in NAIVE)).sum())


def azure_code_columns() -> Floats:
    """Requests, input and output tokens per second of the Azure code week, from a Friday, shape (3, 168)."""
    names = ("request_count", "processed_context_tokens", "processed_generated_tokens")
    return np.concatenate([_hourly("azure2024_code_hourly.csv", name) for name in names])


def _hourly(file: str, column: str) -> Floats:
    """One column of an hourly table, per second, shape (1, hours)."""
    with (DEMAND / file).open(newline="") as rows:
        return np.array([[float(row[column]) for row in csv.DictReader(rows)]]) / 3600
