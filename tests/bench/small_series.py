"""Forecasts of small series a day ahead, of sums, and by the minute."""

import numpy as np
from forecast import DEFAULT
from forecast_scores import covered_share, wape
from measure import Figures, Skipped, Target, cpu_seconds
from real_series import DEMAND, FRIDAY, NAIVE, Held, predicted, real_series, servegen_clients
from workloads import setting

from fleetcast.models.aliases import Floats
from fleetcast.models.forecast import ENSEMBLE_MEMBERS
from fleetcast.models.forecast.backtest import actual_demand
from fleetcast.models.forecast.minutes import MinuteForecaster
from fleetcast.models.traffic.synthetic_days import office_day
from fleetcast.models.traffic.trace_columns import TraceNames

SUMS = ("servegen", "azure_code_tuesday", "burstgpt_api", "burstgpt_conversation")
DAY_NAIVE = "seasonal_naive_day"
TIE = 1e-6  # relative difference of two errors that are equal
FLEET_POOLS, BOOT_MINUTES, MINUTES = 400, 10, 240
P90_LIMITS = (0.85, 0.95)
CLIENTS = "ServeGen m-small clients that send in both weeks, the second week, a day ahead from every hour"
TARGETS = {
    "forecast_clients_day_behind": Target("", f"{CLIENTS}: share with a better naive method", at_most=0.15),
    "forecast_clients_day_worst": Target("", "the same: largest error over that method", at_most=1.2),
    "forecast_clients_day_behind_midnight": Target("", "the same share, of the seven forecasts at midnight"),
    "forecast_clients_day_behind_of_three": Target("", "the same share, the day before is naive too"),
    "forecast_clients_day_wape": Target("", "the same clients: WAPE of all together"),
    "forecast_clients_day_p90_within": Target(
        "", "the same clients: share with 85 to 95 % of the buckets at or below P90", at_least=0.8
    ),
    "forecast_clients_day_p90_consistent": Target(
        "", "the same, where a bucket equal to P90 may count as below or above (mostly empty clients)"
    ),
    "forecast_day_ahead_over_best_single": Target(
        "", "sums a day ahead from every hour: error of the default over the best single quick method in "
        "hindsight, the largest", at_most=1.03,
    ),
    **{f"forecast_day_ahead_over_best_single_{name}": Target("", f"the same of {name}") for name in SUMS},
    "forecast_over_last_value_10_minutes": Target(
        "", "the sum of ServeGen, the first ten minutes: error over the last value", at_most=1.0
    ),
    "forecast_over_last_value_60_minutes": Target(
        "", "sums an hour ahead: error over the last value, the largest", at_most=1.0
    ),
    "forecast_minutes_seconds": Target(
        "s", "400 pools, ten minutes ahead, a step of a minute; CPU", at_most=1.0
    ),
    "forecast_minutes_over_last_value": Target(
        "", "12 office pools by the minute, half a day after half a day, ten minutes ahead: error over "
        "the last minute",
        at_most=1.0,
    ),
    **{
        f"forecast_minutes_p90_coverage_{lead}": Target(
            "", f"the same: minutes at or below P90, {lead} ahead", at_least=0.87, at_most=0.93
        )
        for lead in (1, 5, BOOT_MINUTES)
    },
}  # fmt: skip
SMOKE = {"minutes": {"FLEET_POOLS": 4, "MINUTES": 30}}


def clients() -> Figures:
    """Each client a day ahead, from every hour and from midnight, against its better naive method."""
    if not DEMAND.exists():
        raise Skipped(f"{DEMAND} is not here")
    demand = servegen_clients()
    demand = np.where(demand.sum(axis=0) == 0, np.nan, demand)  # no data was collected
    clock = real_series()["servegen"].clock._replace(horizon=144)
    weeks = demand[:, : clock.first_cutoff], demand[:, clock.first_cutoff :]
    demand = demand[np.all([np.nansum(week, axis=1) > 0 for week in weeks], axis=0)]
    found = predicted(Held(demand, clock), (DEFAULT, *NAIVE, DAY_NAIVE))
    came, p90 = actual_demand(demand, clock), found[DEFAULT].quantiles[..., 1]
    error = {name: np.nansum(np.abs(came - each.mean), axis=2) for name, each in found.items()}
    ratio, midnight, of_three = (
        error[DEFAULT][:, at].sum(axis=1) / np.min([error[name][:, at].sum(axis=1) for name in names], axis=0)
        for names, at in (
            (NAIVE, slice(None)),
            (NAIVE, slice(None, None, 24)),
            ((*NAIVE, DAY_NAIVE), slice(None)),
        )
    )
    least, most = P90_LIMITS
    below, at_or_below = (
        np.array([covered_share(*pair) for pair in zip(came, limit, strict=True)])
        for limit in (np.nextafter(p90, -1.0), p90)
    )
    return {
        "forecast_clients_day_behind": float((ratio > 1 + TIE).mean()),
        "forecast_clients_day_worst": float(ratio.max()),
        "forecast_clients_day_behind_midnight": float((midnight > 1 + TIE).mean()),
        "forecast_clients_day_behind_of_three": float((of_three > 1 + TIE).mean()),
        "forecast_clients_day_wape": wape(came, found[DEFAULT].mean),
        "forecast_clients_day_p90_within": float(((at_or_below >= least) & (at_or_below <= most)).mean()),
        "forecast_clients_day_p90_consistent": float(((at_or_below >= least) & (below <= most)).mean()),
    }


def sums() -> Figures:
    """Sums a day ahead against the best single method, and an hour ahead against the last value."""
    if not DEMAND.exists():
        raise Skipped(f"{DEMAND} is not here")
    day, hour, figures = {}, {}, Figures()
    for name in SUMS:
        demand, clock = real_series()[name]
        weekday = FRIDAY if name.startswith("azure") else 0
        clock = clock._replace(every=clock.hour, horizon=clock.season)
        found = predicted(Held(demand, clock), (DEFAULT, *ENSEMBLE_MEMBERS), weekday)
        came = actual_demand(demand, clock)
        single = min(wape(came, found[method].mean) for method in ENSEMBLE_MEMBERS)
        day[name] = wape(came, found[DEFAULT].mean) / single
        figures[f"forecast_day_ahead_over_best_single_{name}"] = day[name]
        own, last = (found[method].mean for method in (DEFAULT, "last_value"))
        next_hour = slice(0, clock.hour)
        hour[name] = wape(came[..., next_hour], own[..., next_hour]) / wape(
            came[..., next_hour], last[..., next_hour]
        )
        if name == "servegen":
            first = wape(came[..., 0], own[..., 0]) / wape(came[..., 0], last[..., 0])
            figures["forecast_over_last_value_10_minutes"] = first
    return figures | {
        "forecast_day_ahead_over_best_single": max(day.values()),
        "forecast_over_last_value_60_minutes": max(hour.values()),
    }


def minutes() -> Figures:
    """By the minute: what a step of a fleet costs, and an office day against its last minute."""
    rng = np.random.default_rng(0)
    fleet = rng.poisson(rng.uniform(2, 200, (FLEET_POOLS, 1)), (FLEET_POOLS, MINUTES)).astype(np.float64)
    seconds = cpu_seconds(lambda: walk_minutes(fleet)) / MINUTES
    demand = office_minutes()
    mean, p90 = walk_minutes(demand)
    late = range(demand.shape[1] // 2, demand.shape[1] - BOOT_MINUTES)
    came = np.array([demand[:, at + 1 : at + 1 + BOOT_MINUTES] for at in late])
    last = np.array([demand[:, at : at + 1] for at in late])
    ten = BOOT_MINUTES - 1
    return {
        "forecast_minutes_seconds": seconds,
        "forecast_minutes_over_last_value": wape(came[..., ten], mean[late][..., ten])
        / wape(came[..., ten], last[..., 0]),
        **{
            f"forecast_minutes_p90_coverage_{lead}": covered_share(
                came[..., lead - 1], p90[late][..., lead - 1]
            )
            for lead in (1, 5, BOOT_MINUTES)
        },
    }


def walk_minutes(demand: Floats) -> tuple[Floats, Floats]:
    """Mean and P90 after each minute, (minutes, pools, ahead), of demand (pools, minutes); no season."""
    forecaster, season = MinuteForecaster(len(demand), BOOT_MINUTES), np.ones((len(demand), BOOT_MINUTES))
    found = [forecaster.step(now, season[:, 0], season) for now in demand.T]
    return np.array([each.mean for each in found]), np.array([each.quantiles[..., 1] for each in found])


def office_minutes() -> Floats:
    """Input tokens by the minute of each llm and region on the first office day, shape (12, 1440)."""
    catalogue, config = setting()
    office, names = config.trace.office, TraceNames.of(catalogue)
    if office is None:
        raise ValueError("data/config/office.toml has no [trace.office]; put it back.")
    drawn = office_day(office, config.trace.first_day, config.trace.seed, names)
    endpoint = drawn.llm.astype(np.int64) * len(names.regions) + drawn.region
    minute = np.minimum(drawn.arrived_us // 60_000_000, 1439)
    shape = len(names.llms) * len(names.regions), 1440
    cell = np.ravel_multi_index((endpoint, minute), shape)
    return np.bincount(cell, drawn.input_tokens, np.prod(shape)).reshape(shape)


FUNCTIONS = (clients, sums, minutes)
