"""Forecasts: what the default method costs, how far it is ahead of others, whether its quantiles hold."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
from forecast_scores import covered_share, wape
from measure import Figures, Skipped, Target, cpu_seconds, peak_gb
from real_series import (
    DEMAND,
    FRIDAY,
    NAIVE,
    Held,
    azure_code_columns,
    predicted,
    ratio_to_naive,
    real_series,
    servegen_clients,
)
from workloads import setting

from fleetcast.models.aliases import Floats
from fleetcast.models.forecast.backtest import BacktestClock, actual_demand, walk_forward
from fleetcast.models.forecast.conformal import EMPTY_HOUR_SHARE, hourly_peaks
from fleetcast.models.forecast.intermittent import is_intermittent
from fleetcast.models.forecast.walk_predictions import Prediction
from fleetcast.models.traffic.synthetic_days import office_day
from fleetcast.models.traffic.trace_columns import TraceNames
from fleetcast.models.world.traffic_config import TRAFFIC_DAY_MINUTES

DEFAULT = "weighted"
BUCKET_MINUTES = 15
KEPT_DAYS = None  # of the held-out days; None: all
OFFICE_PER_DAY = None  # requests of a weekday of the office trace; None: those of its config
FLEETS = (400, 4000)  # series
ARIMA_SERIES, MOST_CLIENTS = 12, None  # series of ARIMA; clients of ServeGen, None: all
OFFICE = "office trace, 12 series of quarter hours, an hour ahead every hour"
HELD_OUT = {
    "office": "seven office days after 14",
    "office_iw_fast": "the same days, iw_fast alone",
    "office_iw_normal": "the same days, iw_normal alone",
    "office_niw": "the same days, niw alone",
    "azure_code": "Azure 2024 code, Saturday to Thursday by the hour after one Friday",
    "servegen": "ServeGen m-small, all clients, 7 days by ten minutes after 7",
    "servegen_clients": "the 17 clients with 0.5 % of the requests or more",
    "burstgpt_api": "BurstGPT api, 47 days by the hour after 14",
    "burstgpt_conversation": "BurstGPT conversation, the same days",
}
LEADS = {"next_hours": slice(0, 2), "day": slice(2, 24), "two_days": slice(24, 48)}  # hours ahead
DEALS = 1000  # of days among series
LEAST_BUSY_SHARE = 0.1  # of the hours of a series, for its busy ones to be judged by themselves
DAY_AHEAD = ("office", "azure_code_tuesday", "burstgpt_conversation")
NO_SEASON = ("servegen", "servegen_clients", "burstgpt_api", "burstgpt_conversation")
TARGETS = {
    "forecast_arima_day_seconds": Target("s", f"{OFFICE}, 24 cutoffs after 14 days; one fit; CPU"),
    "forecast_400_series_seconds": Target(
        "s", "400 such series, one hour by the default method, its week of errors included; CPU", at_most=60
    ),
    "forecast_4000_series_seconds": Target("s", "4,000 of them; CPU", at_most=30),
    "forecast_milliseconds_per_series": Target("ms", "the same, of one of the 4,000"),
    "forecast_4000_series_gb": Target("GB", "the most memory held meanwhile, with Python"),
    "forecast_wape_ratio_to_arima": Target(
        "", "WAPE of the default over that of plain ARIMA by AIC: the larger of office (Friday to Sunday "
        "after 17 days) and the Azure code week (72 h after 96 h)", at_most=0.8,
    ),
    "forecast_wape_ratio_to_last_value": Target("", "the same over that of the last value", at_most=0.8),
    "forecast_p90_coverage": Target(
        "", "buckets that came out at or below P90, a share: office or Azure, whichever is further from 0.9",
        at_least=0.87, at_most=0.93,
    ),
    "forecast_peak_p90_coverage": Target(
        "", "the same of the largest bucket of each hour", at_least=0.87, at_most=0.93
    ),
    "forecast_wape_ratio_to_naive": Target(
        "", "absolute error of the default over that of last value or seasonal naive, the better for each "
        "series: the largest of ServeGen (sum, clients) and BurstGPT (api, conversation)", at_most=1.02,
    ),
    "forecast_peak_p90_worst": Target(
        "", "hours whose largest bucket came out at or below P90, foreseen from every hour: the least of "
        "every single series and lead, one and two hours, 3 to 24 and 25 to 48; Azure after four days",
        at_least=0.85,
    ),
    "forecast_recovery_hours": Target(
        "h", "after a level halves or doubles, until the error of the next hour is at most twice that "
        "without, and stays there for a day: office and BurstGPT conversation", at_most=3,
    ),
    "forecast_intermittent_wape_ratio_to_naive": Target(
        "", "error over that of the better naive method: the most of ServeGen's mostly empty clients",
        at_most=1.02,
    ),
    "forecast_clients_behind_naive": Target("", "of the ServeGen clients, those with a better naive method"),
    "forecast_clients": Target("", "of them there are"),
    "forecast_day_ahead_short_history": Target(
        "", "whole days foreseen at midnight after four days, error over that of seasonal naive: the most of "
        "requests, input and output tokens of the Azure code week", at_most=0.85,
    ),
    "forecast_day_ahead_seconds": Target(
        "s", "12 office series, a whole day by the default method, its week of errors included; CPU",
        at_most=20,
    ),
    "forecast_day_ahead_peak_p90_coverage": Target(
        "", "seven office days after 14, foreseen at midnight: hours whose largest bucket came out at or "
        "below P90",
        at_least=0.87, at_most=0.93,
    ),
}  # fmt: skip
TARGETS |= {
    f"forecast_peak_p90_{figure}_{lead}": Target("", f"{what}: {hours.start + 1} to {hours.stop} hours ahead")
    for lead, hours in LEADS.items()
    for figure, what in {
        "worst": "the same, the least of every single series",
        "mean": "their mean",
        "within": "share of the series with 87 to 93 %",
        "busy_worst": "the least of the hours alone that are forecast to bring a tenth of the mean or more",
        "chance": "the worst, were the days dealt out among the series: what chance alone makes of it",
    }.items()
}
TARGETS |= {
    f"forecast_day_ahead_{figure}_{name}": Target("", f"{name}, whole days foreseen at midnight: {what}")
    for name in DAY_AHEAD
    for figure, what in {
        "wape": "WAPE of the default method",
        "wape_seasonal_naive": "WAPE of seasonal naive",
        "peak_wape": "error of the P50 of each hour's largest bucket, in what came",
        "peak_p90_coverage": "hours whose largest bucket came out at or below its P90",
    }.items()
}
TARGETS |= {
    f"forecast_{figure}_{name}": Target("", f"{what}: {days}")
    for name, days in HELD_OUT.items()
    for figure, what in {
        **{f"wape_{method}": "WAPE" for method in (DEFAULT, *NAIVE)},
        "p90_coverage": "buckets at or below P90",
    }.items()
}


def arima_day() -> Figures:
    """Walk ARIMA through a day: 12 series, 24 cutoffs."""
    demand, clock = office_tokens(15)[:ARIMA_SERIES], office_clock(14)
    walk_forward(demand[:1, :192], "arima", BacktestClock(188, 4, 4, 96))  # imports
    return {"forecast_arima_day_seconds": cpu_seconds(lambda: walk_forward(demand, "arima", clock))}


def many_series() -> Figures:
    """Forecast the next hour of 400 and of 4,000 series from nothing but their past."""
    few, many = (cpu_seconds(lambda held=held: predicted(held, (DEFAULT,))) for held in map(fleet, FLEETS))
    return {
        "forecast_400_series_seconds": few,
        "forecast_4000_series_seconds": many,
        "forecast_milliseconds_per_series": 1000 * many / FLEETS[1],
        "forecast_4000_series_gb": peak_gb(),
    }


def fleet(series: int) -> Held:
    """The office series at so many levels, and the hour that is not known yet."""
    fortnight = office_tokens(14)
    scale = np.random.default_rng(0).uniform(0.2, 5.0, (series, 1))
    demand = scale * fortnight[np.arange(series) % len(fortnight)]
    demand = np.pad(demand, ((0, 0), (0, 4)), constant_values=np.nan)
    return Held(demand, BacktestClock(demand.shape[1] - 4, 4, 4, 96))


def against_arima() -> Figures:
    """The default compared with plain ARIMA and the last value, on three office days and the Azure code
    week.
    """
    names = (DEFAULT, "arima", "last_value")
    office, azure = Held(office_tokens(20), office_clock(17)), real("azure_code_tuesday")
    error = [errors(held, predicted(held, names)) for held in (office, azure)]
    return {
        f"forecast_wape_ratio_to_{other}": max(found[DEFAULT] / found[other] for found in error)
        for other in names[1:]
    }


def held_out() -> Figures:
    """Error and coverage on every series, also where the last value is hard to beat."""
    figures, of_peak, to_naive = Figures(), Figures(), Figures()
    for name, held in all_series().items():
        found, came = predicted(held, (DEFAULT, *NAIVE)), actual_demand(*held)
        own, hour = found[DEFAULT], held.clock.hour
        figures |= {f"forecast_wape_{method}_{name}": error for method, error in errors(held, found).items()}
        figures[f"forecast_p90_coverage_{name}"] = covered_share(came, own.quantiles[..., 1])
        of_peak[name] = covered_share(hourly_peaks(came, hour), own.peak_quantiles[..., 1])
        to_naive[name] = ratio_to_naive(held, found, DEFAULT)
    of_bucket = {name: figures[f"forecast_p90_coverage_{name}"] for name in HELD_OUT}
    return {
        "forecast_p90_coverage": furthest(of_bucket),
        "forecast_peak_p90_coverage": furthest(of_peak),
        "forecast_wape_ratio_to_naive": max(to_naive[name] for name in NO_SEASON),
        **figures,
    }


def tails() -> Figures:
    """The P90 of each hour's largest bucket up to two days ahead, from every hour, series by series."""
    series = {
        **all_series(),
        "azure_code": real("azure_code_tuesday"),
    }  # after a day there is no day ahead yet
    of_series = [p90_by_lead(held) for held in series.values()]
    every, busy = (np.concatenate([each[kind] for each in of_series], axis=1) for kind in (0, 1))
    by_day = [days for each in of_series for days in each[2]]
    figures = Figures()
    for number, (lead, shares, of_busy) in enumerate(zip(LEADS, every, busy, strict=True)):
        figures |= {
            f"forecast_peak_p90_chance_{lead}": worst_by_chance([days[number] for days in by_day]),
            f"forecast_peak_p90_worst_{lead}": shares.min(),
            f"forecast_peak_p90_mean_{lead}": shares.mean(),
            f"forecast_peak_p90_within_{lead}": ((shares >= 0.87) & (shares <= 0.93)).mean(),
            f"forecast_peak_p90_busy_worst_{lead}": np.nanmin(of_busy),
        }
    return {"forecast_peak_p90_worst": every.min(), **figures}


def worst_by_chance(covered: list[Floats]) -> float:
    """The least coverage of any series, its days assigned to it from those of all: the median of DEALS
    deals.
    """
    days, rng = np.concatenate(covered), np.random.default_rng(0)
    coverages = [min(rng.choice(days, own.size).mean() for own in covered) for _ in range(DEALS)]
    return float(np.median(coverages))


def p90_by_lead(held: Held) -> tuple[Floats, Floats, list[list[Floats]]]:
    """Covered shares by lead and series: of all hours, and of those forecast busy, nan where few are.

    And of the hours of each day, by series and lead. Series without demand, of which any quantile holds, are
    left out.
    """
    held = held._replace(demand=held.demand[np.nanmax(held.demand, axis=1) > 0])
    hour = held.clock.hour
    clock = held.clock._replace(every=hour, horizon=48 * hour)
    found = predicted(Held(held.demand, clock), (DEFAULT,))[DEFAULT]
    peak, p90 = hourly_peaks(actual_demand(held.demand, clock), hour), found.peak_quantiles[..., 1]
    level = np.nanmean(held.demand, axis=1)[:, None, None]
    is_known, is_busy = ~np.isnan(peak), hourly_peaks(found.mean, hour) > EMPTY_HOUR_SHARE * level
    shares = []
    for counts in (is_known, is_known & is_busy):
        hits, count, known = (
            np.array([of[:, :, hours].sum(axis=(1, 2)) for hours in LEADS.values()])
            for of in ((peak <= p90) & counts, counts, is_known)
        )
        shares.append(np.where(count > LEAST_BUSY_SHARE * known, hits / np.maximum(count, 1), np.nan))
    at = np.arange(peak.shape[1])[:, None] + np.arange(peak.shape[2])
    by_day = []
    for below, known in zip(peak <= p90, is_known, strict=True):
        by_day.append(
            [day_shares(*(of[:, hours] for of in (below, known, at // 24))) for hours in LEADS.values()]
        )
    return shares[0], shares[1], by_day


def day_shares(below: Floats, known: Floats, day: Floats) -> Floats:
    """The covered share of each day of which half of the forecasts or more are known, shape (days,)."""
    hits, count = (np.bincount(day.ravel(), of.ravel()) for of in (below & known, known))
    is_whole = count > count.max() / 2
    shares: Floats = hits[is_whole] / count[is_whole]
    return shares


def recovery() -> Figures:
    """How long a level that halves or doubles makes forecasts worse."""
    office, talk = office_tokens(21), real("burstgpt_conversation").demand
    cases = [
        *(Held(office[[series]], office_clock(14)) for series in (0, 4, 8)),
        Held(talk, BacktestClock(14 * 24, 1, 1, 24)),
    ]
    worse = np.mean([worse_after(held, factor) for held in cases for factor in (0.5, 2.0)], axis=0)
    is_bad = np.flatnonzero(worse[:24] > 2)
    return {"forecast_recovery_hours": float(is_bad[-1] + 1 if is_bad.size else 0)}


def worse_after(held: Held, factor: float) -> Floats:
    """Error of each hour after a break over that without it, on average over breaks, shape (24,).

    The breaks lie 37 hours apart, each after 14 days of the series.
    """
    season, hour = held.clock.season, held.clock.hour
    before, after = 14 * season, season
    ends = range(before, held.demand.shape[1] - after, 37 * hour)
    plain = np.array([held.demand[0, end - before : end + after] for end in ends])
    broken = plain * np.where(np.arange(before + after) < before, 1.0, factor)
    clock = BacktestClock(before, hour, hour, season)
    off = []
    for demand in (plain, broken):
        mean = predicted(Held(demand, clock), (DEFAULT,))[DEFAULT].mean
        off.append(np.nansum(np.abs(mean - actual_demand(demand, clock)), axis=(0, 2)))
    worse: Floats = off[1] / (factor * off[0])
    return worse


def clients() -> Figures:
    """Every ServeGen client that sends in both weeks, compared with the naive methods."""
    demand = servegen_clients()
    demand = np.where(demand.sum(axis=0) == 0, np.nan, demand)  # no data was collected
    clock = real("servegen").clock
    weeks = demand[:, : clock.first_cutoff], demand[:, clock.first_cutoff :]
    demand = demand[np.all([np.nansum(week, axis=1) > 0 for week in weeks], axis=0)]
    ratio = []
    demand = demand[:MOST_CLIENTS]
    for row in demand:
        held = Held(row[None], clock)
        ratio.append(ratio_to_naive(held, predicted(held, (DEFAULT, *NAIVE)), DEFAULT))
    is_empty = is_intermittent(demand, clock.season)[:, clock.first_cutoff]
    return {
        "forecast_clients": float(len(demand)),
        "forecast_clients_behind_naive": float((np.array(ratio) > 1).sum()),
        "forecast_intermittent_wape_ratio_to_naive": float(np.array(ratio)[is_empty].max()),
    }


def day_ahead() -> Figures:
    """Whole days, foreseen at midnight: what that costs, its error, and whether every hour's P90 holds."""
    demand = office_tokens(21)
    one_day = np.pad(demand[:, : 14 * 96], ((0, 0), (0, 1)), constant_values=np.nan)
    once = Held(one_day, office_clock(14)._replace(horizon=96))
    figures = {"forecast_day_ahead_seconds": cpu_seconds(lambda: predicted(once, (DEFAULT,)))}
    for name in DAY_AHEAD:
        held = Held(demand, office_clock(14)) if name == "office" else real(name)
        found = foreseen(held, FRIDAY if name.startswith("azure") else 0)
        figures |= {f"forecast_day_ahead_{key}_{name}": value for key, value in found.items()}
    clock = real("azure_code_tuesday").clock
    short = [foreseen(Held(column[None], clock), FRIDAY) for column in azure_code_columns()]
    ratio = max(found["wape"] / found["wape_seasonal_naive"] for found in short)
    figures["forecast_day_ahead_short_history"] = ratio
    of_office = figures["forecast_day_ahead_peak_p90_coverage_office"]
    return {"forecast_day_ahead_peak_p90_coverage": of_office, **figures}


def foreseen(held: Held, weekday: int) -> Figures:
    """Walk a day ahead from every hour, for the errors, and judge the forecasts of midnight."""
    hour, season = held.clock.hour, held.clock.season
    clock = held.clock._replace(every=hour, horizon=season)
    found = predicted(Held(held.demand, clock), (DEFAULT, "seasonal_naive"), weekday)
    came = actual_demand(held.demand, clock)[:, :: season // hour]
    own, naive = (found[name].mean[:, :: season // hour] for name in (DEFAULT, "seasonal_naive"))
    of_peaks, peak = found[DEFAULT].peak_quantiles[:, :: season // hour], hourly_peaks(came, hour)
    return {
        "wape": wape(came, own),
        "wape_seasonal_naive": wape(came, naive),
        "peak_wape": wape(peak, of_peaks[..., 0]),
        "peak_p90_coverage": covered_share(peak, of_peaks[..., 1]),
    }


def furthest(coverage: Figures) -> float:
    """The coverage of the office or the Azure trace, whichever is further from nine in ten."""
    return max((coverage["office"], coverage["azure_code"]), key=lambda share: abs(share - 0.9))


FUNCTIONS = (arima_day, many_series, against_arima, held_out, tails, recovery, clients, day_ahead)
SMALL = {
    "KEPT_DAYS": 1,
    "OFFICE_PER_DAY": 5000.0,
    "FLEETS": (2, 3),
    "DEALS": 3,
    "MOST_CLIENTS": 2,
    "ARIMA_SERIES": 1,
}
SMOKE = dict.fromkeys(("arima_day", "many_series", "held_out", "clients"), SMALL)


# --- series --------------------------------------------------------------------------------------------


def office_clock(days: int) -> BacktestClock:
    """Every hour after so many days of quarter hours."""
    return BacktestClock(days * 96, 4, 4, 96)


def office_tokens(days: int) -> Floats:
    """Interactive input tokens/s per quarter hour of each llm and region, shape (series, buckets)."""
    return of_interactive(office_tiers(days))


def of_interactive(tiers: Floats) -> Floats:
    """The interactive tiers together, (series, tiers, buckets) -> (series, buckets)."""
    return tiers[:, [not tier.is_held for tier in setting()[0].tiers.values()]].sum(axis=1)


def office_tiers(days: int) -> Floats:
    """Input tokens/s per quarter hour of each llm and region, shape (series, tiers, buckets)."""
    catalogue, config = setting()
    office = config.trace.office
    if office is None:
        raise ValueError("data/config/office.toml has no [trace.office]; put it back.")
    office = replace(office, requests_per_day=OFFICE_PER_DAY or office.requests_per_day)
    names = TraceNames.of(catalogue)
    shape = len(names.llms) * len(names.regions), len(names.tiers), TRAFFIC_DAY_MINUTES // BUCKET_MINUTES
    tokens = []
    for day in (config.trace.first_day + timedelta(days=n) for n in range(days)):
        drawn = office_day(office, day, config.trace.seed, names)
        endpoint = drawn.llm.astype(np.int64) * len(names.regions) + drawn.region
        bucket = drawn.arrived_us // (BUCKET_MINUTES * 60_000_000)
        cell = np.ravel_multi_index((endpoint, drawn.tier, bucket), shape)
        tokens.append(np.bincount(cell, drawn.input_tokens, np.prod(shape)).reshape(shape))
    return np.concatenate(tokens, axis=-1) / (60 * BUCKET_MINUTES)


def real(name: str) -> Held:
    """A real series with its held-out days."""
    if not DEMAND.exists():
        raise Skipped(f"{DEMAND} is not here")
    return shortened(real_series()[name])


def shortened(held: Held) -> Held:
    """The series with KEPT_DAYS of its held-out days."""
    until = None if KEPT_DAYS is None else held.clock.first_cutoff + KEPT_DAYS * held.clock.season
    return held._replace(demand=held.demand[:, :until])


def all_series() -> dict[str, Held]:
    """The series of HELD_OUT."""
    tiers, clock = office_tiers(21), office_clock(14)
    office = {
        "office": Held(of_interactive(tiers), clock),
        **{f"office_{tier}": Held(tiers[:, n], clock) for n, tier in enumerate(setting()[0].tiers)},
    }
    office = {name: shortened(held) for name, held in office.items()}
    return office | {name: real(name) for name in HELD_OUT if name not in office}


def errors(held: Held, found: dict[str, Prediction]) -> Figures:
    """WAPE of each method over all cutoffs."""
    return {name: wape(actual_demand(*held), one.mean) for name, one in found.items()}
