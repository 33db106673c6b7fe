"""Fit the clients of a trace to the lake's tables: rates, levels, gaps and tokens."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from fleetcast.assets.demand.arrival_spacings import CLIENT_KEYS as CLIENT
from fleetcast.assets.demand.arrival_spacings import fit_spacings
from fleetcast.assets.demand.characterise import MINUTE, recorded_minutes, refresh_days
from fleetcast.assets.demand.token_pairs import read_token_pairs
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.lake_preconditions import column_codes
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.traffic.app_level_fit import fit_app_levels
from fleetcast.models.traffic.app_levels import AppLevels
from fleetcast.models.traffic.client_fit import fit_noise, has_own_levels, weekly_rates
from fleetcast.models.traffic.clients import ClientTraffic, minute_rates
from fleetcast.models.traffic.recorded_days import RecordedDays
from fleetcast.models.traffic.trace_columns import TraceNames

NOISE_GROUP_KEYS = ["region", "llm", "tier"]  # clients of equal keys have common noise
LEAST_WHOLE_HOUR = 0.99  # of an hour: its requests count as those of a whole one
MOST_CLIENTS = 20_000  # bounds the memory of their rates by minute


def fit_clients(
    lake: Lake, trace: str, names: TraceNames, progress: Progress
) -> tuple[ClientTraffic, list[str]]:
    """Fit every client of a trace; return the traffic and the names of its apps.

    LakeError where the trace has no requests or more than MOST_CLIENTS clients.
    """
    days = refresh_days(lake, trace, progress)
    record = _read_record(lake, trace)
    apps = sorted(record.clients["app"].unique())
    table = pa.Table.from_pandas(record.clients, preserve_index=False)
    app = column_codes(table, "app", apps)
    spaced = fit_spacings(lake, trace, record.clients, days)
    rates = _weekly_rates_of_clients(record)
    level, expected, rates, levels, by_hour = _fit_app_levels(record, rates, app.astype(np.int64))
    sent = record.per_hour.sum(axis=1)
    chance = np.bincount(record.group, sent * spaced.cv[spaced.sender] ** 2) / np.bincount(record.group, sent)
    tokens = read_token_pairs(lake, trace, record.clients, days)
    traffic = ClientTraffic(
        region=column_codes(table, "region", names.regions),
        llm=column_codes(table, "llm", names.llms),
        tier=column_codes(table, "tier", names.tiers),
        app=app,
        requests_per_hour=rates,
        group=record.group,
        sender=spaced.sender,
        level=level,
        pool=tokens.pool,
        noise=fit_noise(record.per_minute, expected, chance),
        levels=levels,
        spacing=spaced.spacing,
        history=RecordedDays(
            np.array([day.weekday() for day in days]),
            spaced.cv_by_window,
            tokens.hour,
            by_hour[:, [(day - days[0]).days for day in days]].reshape(-1, 24 * len(days)),
            _input_shares(lake, trace, apps)[np.unique(app[level >= 0])],
        ),
        first_pair=tokens.first,
        pairs=tokens.pairs,
        lengths=tokens.lengths,
        grid_us=spaced.grid_us,
        grid_first_us=spaced.grid_first_us,
    )
    return traffic, apps


class ClientRecord(NamedTuple):
    """Recorded requests of the clients of a trace, from the hour of the first request on."""

    clients: pd.DataFrame  # app, region, llm, tier
    group: np.ndarray  # (clients,) of clients with common noise
    per_hour: np.ndarray  # (clients, hours) requests
    per_minute: np.ndarray  # (groups, minutes) requests; nan where a minute was not recorded in full
    minute_share: np.ndarray  # (minutes,) recorded share of each minute, 0 to 1
    first_hour: int  # hour of the week of the first hour, Monday 00:00 UTC is 0

    def hour_of_week(self) -> np.ndarray:
        """Return the hour of the week of each hour of the record, shape (hours,)."""
        return (self.first_hour + np.arange(self.per_hour.shape[1])) % 168

    def recorded_share(self) -> np.ndarray:
        """Return the recorded share of each hour, 0 to 1, shape (hours,)."""
        rest = 60 * self.per_hour.shape[1] - self.minute_share.size
        return np.pad(self.minute_share, (0, rest)).reshape(-1, 60).mean(axis=1)


def _read_record(lake: Lake, trace: str) -> ClientRecord:
    rows = lake.sql(
        "select app, region, llm, tier, bucket_start::timestamp as minute, requests::double as requests "
        "from demand where trace = $trace",
        trace=trace,
    ).to_pandas()
    start, share = _recorded_shares(lake, trace)
    clients = rows[CLIENT].drop_duplicates().sort_values(CLIENT).reset_index(drop=True)
    if len(clients) > MOST_CLIENTS:
        raise LakeError(
            f"The trace {trace!r} has {len(clients):,} clients (app, region, llm, tier), at most "
            f"{MOST_CLIENTS:,} are allowed. Give it fewer apps in its mapping file and ingest it again."
        )
    group = clients.groupby(NOISE_GROUP_KEYS, sort=True).ngroup().to_numpy()
    rows = rows.merge(clients.assign(client=clients.index, group=group), on=CLIENT)
    minute = (rows["minute"].to_numpy() - start) // MINUTE
    per_hour = np.zeros((len(clients), -(-share.size // 60)))
    np.add.at(per_hour, (rows["client"], minute // 60), rows["requests"])
    per_minute = np.tile(np.where(share < 1, np.nan, 0.0), (group.max() + 1, 1))
    np.add.at(per_minute, (rows["group"], minute), rows["requests"])
    first_hour = int((start - np.datetime64("1970-01-05", "h")) // np.timedelta64(1, "h")) % 168  # a Monday
    return ClientRecord(clients, group, per_hour, per_minute, share, first_hour)


def _recorded_shares(lake: Lake, trace: str) -> tuple[np.datetime64, np.ndarray]:
    """Return the hour of the first request, and the recorded share of each minute from then on, (minutes,).

    The record begins at the first request and ends at the last one, so these minutes are recorded in part. If
    no minute lies between them, they count as whole.
    """
    first, recorded = recorded_minutes(lake, trace)
    ends = lake.sql(
        "select extract(microseconds from min(arrived_at)) / 6e7 as first, "
        "extract(microseconds from max(arrived_at)) / 6e7 as last from requests where trace = $trace",
        trace=trace,
    )
    start = first.astype("datetime64[h]")
    share = np.where(np.isnan(recorded), 0.0, 1.0)
    if share.size > 2:
        share[[0, -1]] = 1 - ends["first"][0].as_py(), ends["last"][0].as_py()
    return start, np.concatenate([np.zeros((first - start) // MINUTE), share])


def _weekly_rates_of_clients(record: ClientRecord) -> np.ndarray:
    """Return the requests per hour of the week, shape (clients, 168), with the rate of the group as prior."""
    counts, group, share = record.per_hour, record.group, record.recorded_share()
    of_group = sum_by_code(counts, group)
    flat = np.repeat(of_group.sum(axis=1, keepdims=True) / share.sum(), 168, axis=1)
    group_rates = weekly_rates(of_group, share, record.hour_of_week(), flat)
    part = counts.sum(axis=1) / of_group.sum(axis=1)[group]
    return weekly_rates(counts, share, record.hour_of_week(), part[:, None] * group_rates[group])


def _input_shares(lake: Lake, trace: str, apps: list[str]) -> np.ndarray:
    """Return the share of each app in the input tokens, shape (apps,)."""
    rows = lake.sql(
        "select app, sum(input_tokens)::double as tokens from demand where trace = $trace group by app",
        trace=trace,
    ).to_pandas()
    tokens = rows.set_index("app")["tokens"].reindex(apps).to_numpy()
    return tokens / tokens.sum()


def _fit_app_levels(
    record: ClientRecord, rates: np.ndarray, app: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, AppLevels, np.ndarray]:
    """Fit the levels of the apps that need them.

    The rate of a client whose app has a level is the client's share of the app, by hour of the week, times
    the app's mean rate; the level then scales it.

    rates : requests per hour of the week, shape (clients, 168)
    app : app of each client, shape (clients,)

    Returns
    -------
    level : row of each client in the levels, shape (clients,); -1: none
    expected : requests by minute, shape (groups, minutes)
    rates : with the levels taken out, shape (clients, 168)
    levels : of the apps that need them
    by_hour : the recorded level of each hour, relative to the mean, shape (apps with levels, days, 24); nan
        where it was not recorded in full
    """
    hour_of_week, is_whole = record.hour_of_week(), record.recorded_share() > LEAST_WHOLE_HOUR
    counts, weekly = (sum_by_code(values, app) for values in (record.per_hour, rates))
    whole = np.where(is_whole, counts, np.nan)
    needs_levels = has_own_levels(whole, np.where(is_whole, weekly[:, hour_of_week], np.nan))
    level = np.where(needs_levels, np.cumsum(needs_levels) - 1, -1)[app]
    share = np.divide(rates, weekly[app], out=np.zeros_like(rates), where=weekly[app] > 0)
    expected = minute_rates(rates, record.first_hour, record.per_minute.shape[1])
    has_level = level >= 0
    recorded = share[has_level][:, hour_of_week] * counts[app[has_level]] / 60
    expected[has_level] = np.repeat(recorded, 60, axis=1)[:, : expected.shape[1]]
    mean = np.nanmean(whole, axis=1, where=~np.isnan(whole)) if is_whole.any() else weekly.mean(axis=1)
    rates = np.where(has_level[:, None], share * mean[app][:, None], rates)
    relative = whole[needs_levels] / np.maximum(mean[needs_levels], 1e-300)[:, None]
    before = record.first_hour % 24
    days = -(-(before + relative.shape[1]) // 24)
    after = 24 * days - before - relative.shape[1]
    by_hour = np.pad(relative, ((0, 0), (before, after)), constant_values=np.nan).reshape(-1, days, 24)
    return (
        level,
        sum_by_code(expected, record.group),
        rates,
        fit_app_levels(whole[needs_levels], hour_of_week),
        by_hour,
    )


def sum_by_code(values: np.ndarray, code: np.ndarray) -> np.ndarray:
    """Sum the rows of `values`, (rows, ...), by `code`, (rows,); shape (codes, ...)."""
    sums = np.zeros((code.max() + 1, *values.shape[1:]))
    np.add.at(sums, code, values)
    return sums
