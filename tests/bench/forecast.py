"""Forecasts: what the default method costs, how far it is ahead of others, whether its quantiles hold."""

import csv
import io
import tarfile
from datetime import timedelta

import numpy as np
from measure import SHARED, Figures, Skipped, Target, cpu_seconds
from workloads import setting

from models.arrivals import office_day
from models.forecast.backtest import Clock, actuals, walk
from models.forecast.losses import covered_share, wape
from models.forecast.method import Floats
from models.forecast.predict import Prediction, predictions, walked, warm
from models.replay.state import NIW
from models.traffic import MINUTES, Names

DEFAULT, NAIVE = "weighted", ("last_value", "seasonal_naive")
BUCKET_MINUTES = 15
OFFICE = "office trace, 12 series of quarter hours, an hour ahead every hour"
TARGETS = {
    "forecast_arima_day_seconds": Target("s", f"{OFFICE}, 24 cutoffs after 14 days; one fit; CPU"),
    "forecast_400_series_seconds": Target(
        "s", "400 such series, one hour by the default method, its week of errors included; CPU", at_most=60
    ),
    "forecast_wape_ratio_to_arima": Target(
        "", "WAPE of the default over that of plain ARIMA by AIC: the larger of office (Friday to Sunday "
        "after 17 days) and the Azure code week (72 h after 96 h)", at_most=0.8,
    ),
    "forecast_wape_ratio_to_last_value": Target("", "the same over that of the last value", at_most=0.8),
    "forecast_p90_coverage": Target(
        "", "share of the buckets of seven office days after 14 that came out at or below P90",
        at_least=0.87, at_most=0.93,
    ),
    "forecast_peak_p90_coverage": Target(
        "", "the same of the largest bucket of each hour", at_least=0.87, at_most=0.93
    ),
    "forecast_wape_ratio_to_naive": Target(
        "", "WAPE of the default over the better of last value and seasonal naive: the largest of ServeGen "
        "m-small (sum of clients, after 7 days), BurstGPT api and conversation (by the hour, after 14 days)",
        at_most=1.02,
    ),
}  # fmt: skip
SETS = {
    "office": ("arima", "last_value"),
    "azure_code": ("arima", "last_value"),
    **dict.fromkeys(("servegen", "burstgpt_api", "burstgpt_conversation"), NAIVE),
}
TARGETS |= {
    f"forecast_wape_{name}_{method}": Target("", "absolute error in what came, an hour ahead, the same days")
    for name, others in SETS.items()
    for method in (DEFAULT, *others)
}


def arima_day() -> Figures:
    """Walk ARIMA through a day: 12 series, 24 cutoffs."""
    demand, clock = office_tokens(15), office_clock(14)
    walk(demand[:1, :192], "arima", Clock(188, 4, 4, 96))  # imports
    return {"forecast_arima_day_seconds": cpu_seconds(lambda: walk(demand, "arima", clock))}


def four_hundred_series() -> Figures:
    """Forecast the next hour of 400 series from nothing but their past."""
    fortnight = office_tokens(14)
    scale = np.random.default_rng(0).uniform(0.2, 5.0, (400, 1))
    demand = scale * fortnight[np.arange(400) % len(fortnight)]
    demand = np.pad(demand, ((0, 0), (0, 4)), constant_values=np.nan)  # the hour that nobody knows yet
    clock = Clock(demand.shape[1] - 4, 4, 4, 96)
    return {"forecast_400_series_seconds": cpu_seconds(lambda: predicted(demand, clock, (DEFAULT,)))}


def against_arima() -> Figures:
    """The default beside plain ARIMA and the last value, on three office days and the Azure code week."""
    names = (DEFAULT, "arima", "last_value")
    sets = {
        "office": errors(office_tokens(20), office_clock(17), names),
        "azure_code": errors(azure_hours(), Clock(96, 1, 1, 24), names),
    }
    ratios = {
        f"forecast_wape_ratio_to_{other}": max(found[DEFAULT] / found[other] for found in sets.values())
        for other in names[1:]
    }
    return ratios | each_wape(sets)


def coverage() -> Figures:
    """How often what came was at or below the P90, over a whole week."""
    demand, clock = office_tokens(21), office_clock(14)
    found, actual = predicted(demand, clock, (DEFAULT,))[DEFAULT], actuals(demand, clock)
    return {
        "forecast_p90_coverage": covered_share(actual, found.quantiles[..., 1]),
        "forecast_peak_p90_coverage": covered_share(actual.max(axis=-1), found.peak_quantiles[..., 1]),
    }


def without_a_season() -> Figures:
    """The default beside the naive methods where there is little to forecast."""
    names = (DEFAULT, *NAIVE)
    weeks, fortnight = Clock(7 * 144, 6, 6, 144), Clock(14 * 24, 1, 1, 24)
    sets = {
        "servegen": errors(servegen_sum(), weeks, names),
        "burstgpt_api": errors(hourly("burstgpt1_hourly.csv", "api"), fortnight, names),
        "burstgpt_conversation": errors(hourly("burstgpt1_hourly.csv", "conversation"), fortnight, names),
    }
    ratio = max(found[DEFAULT] / min(found[name] for name in NAIVE) for found in sets.values())
    return {"forecast_wape_ratio_to_naive": ratio, **each_wape(sets)}


def each_wape(sets: dict[str, dict[str, float]]) -> Figures:
    """The errors behind the ratios, by their key."""
    return {f"forecast_wape_{name}_{m}": error for name, found in sets.items() for m, error in found.items()}


FUNCTIONS = (arima_day, four_hundred_series, against_arima, coverage, without_a_season)


# --- series --------------------------------------------------------------------------------------------


def office_clock(days: int) -> Clock:
    """Every hour after so many days of quarter hours."""
    return Clock(days * 96, 4, 4, 96)


def office_tokens(days: int) -> Floats:
    """Interactive input tokens/s per quarter hour of each llm and region, shape (series, buckets)."""
    catalogue, config = setting()
    office = config.trace.office
    if office is None:
        raise ValueError("data/config/office.toml has no [trace.office]; put it back.")
    names = Names(tuple(catalogue.llms), tuple(catalogue.regions), tuple(catalogue.tiers))
    series, buckets = len(names.llms) * len(names.regions), MINUTES // BUCKET_MINUTES
    tokens = []
    for day in (config.trace.first_day + timedelta(days=n) for n in range(days)):
        drawn = office_day(office, day, config.trace.seed, names)
        asked = drawn.tier < NIW
        bucket = drawn.arrived_us[asked] // (BUCKET_MINUTES * 60_000_000)
        cell = (
            drawn.llm[asked].astype(np.int64) * len(names.regions) + drawn.region[asked]
        ) * buckets + bucket
        tokens.append(np.bincount(cell, drawn.input_tokens[asked], series * buckets).reshape(series, buckets))
    return np.concatenate(tokens, axis=1) / (60 * BUCKET_MINUTES)


def azure_hours() -> Floats:
    """Input tokens/s of the Azure 2024 code week by the hour, shape (1, 168)."""
    return hourly("azure2024_code_hourly.csv", "processed_context_tokens")


def hourly(file: str, column: str) -> Floats:
    """One column of an hourly table, per second."""
    path = SHARED / "demand" / file
    if not path.exists():
        raise Skipped(f"{path.name} is not in {path.parent}")
    with path.open(newline="") as rows:
        return np.array([[float(row[column]) for row in csv.DictReader(rows)]]) / 3600


def servegen_sum() -> Floats:
    """Requests/s of all ServeGen m-small clients by ten minutes, shape (1, 2016); all-zero slots are gaps."""
    path = SHARED / "demand" / "servegen_m-small.traces.tar.gz"
    if not path.exists():
        raise Skipped(f"{path.name} is not in {path.parent}")
    with tarfile.open(path) as archive:
        files = [archive.extractfile(member) for member in archive if member.name.endswith(".csv")]
        texts = [io.TextIOWrapper(file) for file in files if file is not None]
        total = np.sum([[float(row[1] or 0) for row in csv.reader(text)] for text in texts], axis=0)
    return np.where(total > 0, total, np.nan)[None]


# --- forecasts -----------------------------------------------------------------------------------------


def predicted(demand: Floats, clock: Clock, names: tuple[str, ...]) -> dict[str, Prediction]:
    """Walk what the names need, then calibrate and combine."""
    walks = {name: walk(demand, name, warm(clock, name)) for name in walked(names)}
    return predictions(demand, walks, clock, names)


def errors(demand: Floats, clock: Clock, names: tuple[str, ...]) -> dict[str, float]:
    """WAPE of each method over all cutoffs."""
    found = predicted(demand, clock, names)
    return {name: wape(actuals(demand, clock), found[name].mean) for name in names}
