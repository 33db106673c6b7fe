"""A trace like another one: fitted client by client (client_fit.py), written to the lake day by day."""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from assets.demand import prefix_hashes
from assets.demand.characterise import MINUTE, read_day, recorded_minutes
from assets.lake.lookups import days_there, positions
from assets.lake.settings import Progress
from assets.lake.warehouse import Lake, LakeError
from assets.traces.traces import to_requests, write_tiers
from models.traffic.changes import Changes
from models.traffic.client_fit import fit_noise, weekly_rates
from models.traffic.clients import ClientTraffic, altered, client_day
from models.traffic.parameters import Names
from models.world.calendar import require_in_years
from models.world.catalogue import Catalogue
from models.world.reading import TRACE_NAME

CLIENT = ["app", "region", "llm", "tier"]
GROUP = ["region", "llm", "tier"]  # whose clients share their noise
MOST_CLIENTS = 20_000  # their rates by minute fill memory
MOST_PAIRS = 2000  # of input and output tokens that are kept of a client
CV_LIMITS = (0.2, 10.0)
FAMILIES = ("gamma", "weibull")


class Order(NamedTuple):
    """What to generate."""

    like: str
    name: str
    first_day: date | None  # None: the first day of the original
    days: int
    scale: float
    seed: int
    changes: Changes


def generate(lake: Lake, catalogue: Catalogue, order: Order, progress: Progress) -> int:
    """Write a trace like another one and return its requests.

    An order that was interrupted goes on where it stopped: its days are the same whenever they are drawn.

    Raises
    ------
    LakeError
        The original is not there, or another trace has the name already.
    ValueError
        A change that the trace cannot have.
    """
    days = lake.days("requests", order.like)
    if not days:
        raise LakeError(
            f"The trace {order.like!r} has no requests. {days_there(lake, 'requests', order.like)}"
        )
    TRACE_NAME.check(order.name, "--name")
    if order.days < 1:
        raise ValueError(f"days is {order.days}, needs 1 or more.")
    first = order.first_day or days[0]
    require_in_years(first, order.days, "--first-day, --days")
    stamp = lake.made_from(order.name)
    recipe = repr(order._replace(first_day=first, days=0))
    if lake.days("requests", order.name) and not (stamp.is_file() and stamp.read_text() == recipe):
        raise LakeError(
            f"The lake has another trace {order.name!r} already. Give another --name, or remove that one: "
            f"rm -r {lake.root}/*/trace={order.name}"
        )
    names = Names.of(catalogue)
    traffic, apps = fit_clients(lake, order.like, names, progress)
    traffic, apps = altered(traffic, order.changes, order.scale, names, apps)
    prefixes = prefix_hashes.fit_prefixes(lake, order.like)
    _drop_other_days(lake, order.name, first, order.days)
    write_tiers(lake, order.name, catalogue)
    requests = 0
    with progress.bar(f"days of {order.name}", order.days) as done:
        for number in range(order.days):
            day = first + timedelta(days=number)
            columns = client_day(traffic, order.changes, day, first, order.seed, names)
            rows = to_requests(columns, day, f"like {order.like}", catalogue, apps)
            rows = prefix_hashes.with_prefixes(rows, prefixes, day, order.seed)
            lake.write("requests", rows, trace=order.name, day=day)
            stamp.write_text(recipe)
            requests += rows.num_rows
            done(number + 1)
    return requests


def _drop_other_days(lake: Lake, trace: str, first: date, days: int) -> None:
    """Take out what an earlier order made beyond the days of this one."""
    ordered = {first + timedelta(days=number) for number in range(days)}
    for day in set(lake.days("requests", trace)) - ordered:
        lake.drop_day(trace, day)


def fit_clients(lake: Lake, trace: str, names: Names, progress: Progress) -> tuple[ClientTraffic, list[str]]:
    """Fit every client of a trace: rate by hour of the week, gaps, tokens; with the names of the apps."""
    days = lake.days("requests", trace)
    with progress.bar(f"days of {trace}", len(days)) as done:
        for count, day in enumerate(days, start=1):
            read_day(lake, trace, day)
            done(count)
    record = _read(lake, trace)
    group_rates, rates = _rates(record)
    family, gap_cv = _gaps(lake, trace, record.clients)
    sent = record.per_hour.sum(axis=1)
    chance = np.bincount(record.group, sent * gap_cv**2) / np.bincount(record.group, sent)
    first_pair, pairs = _pairs(lake, trace, record.clients)
    apps = sorted(record.clients["app"].unique())
    table = pa.Table.from_pandas(record.clients, preserve_index=False)
    traffic = ClientTraffic(
        region=positions(table, "region", names.regions),
        llm=positions(table, "llm", names.llms),
        tier=positions(table, "tier", names.tiers),
        app=positions(table, "app", apps),
        requests_per_hour=rates,
        gap_cv=gap_cv,
        group=record.group,
        noise=fit_noise(record.per_minute, group_rates, record.first_hour, chance),
        family=family,
        first_pair=first_pair,
        pairs=pairs,
    )
    return traffic, apps


class Record(NamedTuple):
    """What a trace says of its clients' rates; it begins with the hour of its first request."""

    clients: pd.DataFrame  # app, region, llm, tier
    group: np.ndarray  # (clients,) whose noise each shares
    per_hour: np.ndarray  # (clients, hours) requests
    per_minute: np.ndarray  # (groups, minutes) requests; nan where nobody recorded
    first_hour: int  # of the week, Monday 00:00 UTC is 0


def _read(lake: Lake, trace: str) -> Record:
    rows = lake.sql(
        "select app, region, llm, tier, bucket_start::timestamp as minute, requests::double as requests "
        "from demand where trace = $trace",
        trace=trace,
    ).to_pandas()
    first, recorded = recorded_minutes(lake, trace)
    start = first.astype("datetime64[h]")
    recorded = np.concatenate([np.full((first - start) // MINUTE, np.nan), recorded])
    clients = rows[CLIENT].drop_duplicates().sort_values(CLIENT).reset_index(drop=True)
    if len(clients) > MOST_CLIENTS:
        raise LakeError(
            f"The trace {trace!r} has {len(clients):,} clients (app, region, llm, tier), more "
            f"than {MOST_CLIENTS:,}. Give it fewer apps in its mapping file and ingest it again."
        )
    group = clients.groupby(GROUP, sort=True).ngroup().to_numpy()
    rows = rows.merge(clients.assign(client=clients.index, group=group), on=CLIENT)
    minute = (rows["minute"].to_numpy() - start) // MINUTE
    per_hour = np.zeros((len(clients), -(-recorded.size // 60)))
    np.add.at(per_hour, (rows["client"], minute // 60), rows["requests"])
    per_minute = np.tile(recorded, (group.max() + 1, 1))
    np.add.at(per_minute, (rows["group"], minute), rows["requests"])
    first_hour = int((start - np.datetime64("1970-01-05", "h")) // np.timedelta64(1, "h")) % 168  # a Monday
    return Record(clients, group, per_hour, per_minute, first_hour)


def _rates(record: Record) -> tuple[np.ndarray, np.ndarray]:
    """Requests per hour of the week of the groups, and of the clients: their prior is a part of the group."""
    counts, group = record.per_hour, record.group
    hours = counts.shape[1]
    hour_of_week = (record.first_hour + np.arange(hours)) % 168
    known = ~np.isnan(record.per_minute[0])
    share = np.pad(known.astype(float), (0, 60 * hours - known.size)).reshape(-1, 60).mean(axis=1)
    of_group = np.zeros((group.max() + 1, hours))
    np.add.at(of_group, group, counts)
    flat = np.repeat(of_group.sum(axis=1, keepdims=True) / share.sum(), 168, axis=1)
    group_rates = weekly_rates(of_group, share, hour_of_week, flat)
    part = counts.sum(axis=1) / of_group.sum(axis=1)[group]
    return group_rates, weekly_rates(counts, share, hour_of_week, part[:, None] * group_rates[group])


def _gaps(lake: Lake, trace: str, clients: pd.DataFrame) -> tuple[str, np.ndarray]:
    """The family that the tested gaps are nearest to, and each client's CV; of its tier where it has none."""
    distances = lake.sql(
        "select avg(gamma_distance) as gamma, avg(weibull_distance) as weibull from arrival_windows "
        "where trace = $trace and level = 'client'",
        trace=trace,
    ).to_pylist()[0]
    family = min(FAMILIES, key=lambda name: distances[name] if distances[name] is not None else 1.0)
    rows = lake.sql(
        "select app, region, llm, tier, sum((cv * gaps)::decimal(28, 9))::double as weighted, "
        "sum(gaps)::double as gaps from arrival_windows where trace = $trace and level = 'client' "
        "group by all",
        trace=trace,
    ).to_pandas()
    of_tier = rows.groupby("tier")[["weighted", "gaps"]].sum()
    cv = clients.merge(rows.assign(cv=rows["weighted"] / rows["gaps"]), on=CLIENT, how="left")["cv"]
    usual = clients["tier"].map(of_tier["weighted"] / of_tier["gaps"]).astype(float)
    return family, cv.fillna(usual).fillna(1.0).clip(*CV_LIMITS).to_numpy(float)


def _pairs(lake: Lake, trace: str, clients: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Up to MOST_PAIRS input and output tokens of each client, chosen by the hash of their request."""
    rows = lake.sql(
        "select app, region, llm, tier, "
        "min_by([input_tokens, output_tokens], hash(request_id), $most) as pairs "
        "from requests where trace = $trace group by all",
        trace=trace,
        most=MOST_PAIRS,
    ).to_pandas()
    of: Sequence[np.ndarray] = clients.merge(rows, on=CLIENT, how="left")["pairs"].tolist()
    first = np.concatenate([[0], np.cumsum([len(pairs) for pairs in of])])
    return first, np.array([pair for pairs in of for pair in pairs], dtype=np.int32).reshape(-1, 2)
