"""Forecasts of small series a day ahead, and of sums."""

import numpy as np
from forecast import DEFAULT
from forecast_scores import covered_share, wape
from measure import Figures, Skipped, Target
from real_series import DEMAND, FRIDAY, NAIVE, Held, large_clients, predicted, real_series, servegen_clients

from fleetcast.models.forecast import ENSEMBLE_MEMBERS
from fleetcast.models.forecast.backtest import actual_demand

SUMS = ("servegen", "azure_code_tuesday", "burstgpt_api", "burstgpt_conversation")
MOST_CLIENTS, HOURS_BETWEEN = 100, 1  # clients; hours from a forecast to the next
DAY_NAIVE = "seasonal_naive_day"
TIE = 1e-6  # relative difference of two errors that are equal
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
}  # fmt: skip


def clients() -> Figures:
    """Each client a day ahead, from every hour and from midnight, against its better naive method."""
    if not DEMAND.exists():
        raise Skipped(f"{DEMAND} is not here")
    demand = servegen_clients()
    demand = np.where(demand.sum(axis=0) == 0, np.nan, demand)  # no data was collected
    clock = real_series()["servegen"].clock._replace(every=6 * HOURS_BETWEEN, horizon=144)
    weeks = demand[:, : clock.first_cutoff], demand[:, clock.first_cutoff :]
    demand = demand[np.all([np.nansum(week, axis=1) > 0 for week in weeks], axis=0)][:MOST_CLIENTS]
    found = predicted(Held(demand, clock), (DEFAULT, *NAIVE, DAY_NAIVE))
    came, p90 = actual_demand(demand, clock), found[DEFAULT].quantiles[..., 1]
    error = {name: np.nansum(np.abs(came - each.mean), axis=2) for name, each in found.items()}
    ratio, midnight, of_three = (
        error[DEFAULT][:, at].sum(axis=1) / np.min([error[name][:, at].sum(axis=1) for name in names], axis=0)
        for names, at in (
            (NAIVE, slice(None)),
            (NAIVE, slice(None, None, 24 // HOURS_BETWEEN)),
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
        clock = clock._replace(every=clock.hour * HOURS_BETWEEN, horizon=clock.season)
        names, parts = (DEFAULT, *ENSEMBLE_MEMBERS), None
        if name == "servegen":  # as the nightly run forecasts an endpoint with its apps
            clients = np.where(np.isnan(demand), np.nan, servegen_clients())
            parts = large_clients(clients, clock.first_cutoff)
        found = predicted(Held(demand, clock), names, weekday, parts)
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


FUNCTIONS = (clients, sums)
SMOKE = {
    "clients": {"MOST_CLIENTS": 2, "HOURS_BETWEEN": 24},
    "sums": {"SUMS": ("azure_code_tuesday",), "HOURS_BETWEEN": 24},
}
