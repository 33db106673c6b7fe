"""The tokens of a trace's requests: pairs of input and output by client and hour."""

from bisect import bisect
from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

import numpy as np
import pandas as pd

from fleetcast.assets.demand.arrival_spacings import CLIENT_KEYS
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.traffic.length_scores import LengthScores, PoolMinutes, fit_length_scores

MOST_PAIRS = 2_000_000  # kept in total
ALIKE_F_RATIO = 2.0  # clients of an app with an F ratio (scatter of means over chance) up to this share pairs


class TokenPairs(NamedTuple):
    """Pairs of input and output tokens of a trace's requests, in pools of clients with alike requests."""

    pool: np.ndarray  # (clients,) of each client
    first: np.ndarray  # (pools + 1,) position of the first pair of each pool
    pairs: np.ndarray  # (pairs, 2) input and output tokens, by pool and in order of time
    hour: np.ndarray  # (pairs,) 24 x place of the day + hour
    lengths: LengthScores  # of each pool


def read_token_pairs(lake: Lake, trace: str, clients: pd.DataFrame, days: Sequence[date]) -> TokenPairs:
    """Read the pairs of tokens of the requests of each client and hour: all, or MOST_PAIRS in total.

    If there are more, those kept are evenly spread over the requests of an hour in the order of their tokens,
    so that the mean of the hour is preserved. `days` are the recorded ones, in order.
    """
    clients = clients.assign(pool=_pools(lake, trace, clients))
    of_hours = lake.sql(
        "select count(*) as n from requests where trace = $trace "
        "group by app, region, llm, tier, date_trunc('hour', arrived_at)",
        trace=trace,
    )["n"].to_numpy()
    rows = lake.sql("reads/token_pairs.sql", trace=trace, most=_most_of_an_hour(of_hours)).to_pandas()
    of = rows.merge(clients, on=CLIENT_KEYS, how="left")["pool"].to_numpy()
    order = np.argsort(of, kind="stable")
    of, hour = of[order], _hours(rows, days)[order]
    pairs = rows[["input_tokens", "output_tokens"]].to_numpy(np.int32)[order]
    pools = clients["pool"].max() + 1
    return TokenPairs(
        clients["pool"].to_numpy(),
        np.searchsorted(of, np.arange(pools + 1)),
        pairs,
        hour,
        _length_scores(lake, trace, clients, days, of * 24 * len(days) + hour, pairs[:, 0]),
    )


def _hours(rows: pd.DataFrame, days: Sequence[date]) -> np.ndarray:
    """Return 24 x place of the day in `days` + hour of each row, shape (rows,)."""
    place = rows["day"].map({day: n for n, day in enumerate(days)}).to_numpy(np.int64)
    return 24 * place + rows["hour"].to_numpy(np.int64)


def _length_scores(
    lake: Lake,
    trace: str,
    clients: pd.DataFrame,
    days: Sequence[date],
    pair_key: np.ndarray,
    pair_input: np.ndarray,
) -> LengthScores:
    """Fit the length scores of each pool; `pair_key`, of each pair, is hours of all days x pool + hour."""
    columns = {f"{name}s": clients[name].tolist() for name in (*CLIENT_KEYS, "pool")}
    minutes = lake.sql("reads/pool_minutes.sql", trace=trace, **columns).to_pandas()
    hours = 24 * len(days)
    key = minutes["pool"].to_numpy() * hours + _hours(minutes, days)
    cells, cell = np.unique(np.concatenate([key, pair_key]), return_inverse=True)
    seen = (minutes[name].to_numpy() for name in ("minute", "requests", "input_tokens"))
    return fit_length_scores(
        PoolMinutes(cell[: key.size], *seen),
        cell[key.size :],
        pair_input,
        cells // hours,
    )


def _most_of_an_hour(requests: np.ndarray) -> int:
    """Return the most requests kept per client and hour so that MOST_PAIRS remain in total, at least 1.

    `requests`, the number per client and hour, has the shape (cells,).
    """
    return 1 + bisect(range(2, requests.max() + 1), MOST_PAIRS, key=lambda n: np.minimum(requests, n).sum())


def _pools(lake: Lake, trace: str, clients: pd.DataFrame) -> np.ndarray:
    """Return the pool of pairs of each client, (clients,): its app's if the app's clients are alike."""
    rows = lake.sql("reads/token_moments.sql", trace=trace).to_pandas()
    alike = {app for app, part in rows.groupby("app") if len(part) > 1 and _are_alike(part)}
    single = clients.index.astype(str) + "/" + clients["app"]
    return pd.factorize(clients["app"].where(clients["app"].isin(alike), single))[0].astype(np.int64)


def _are_alike(part: pd.DataFrame) -> bool:
    """Whether the means of an app's clients differ little (ALIKE_F_RATIO): one-way analysis of variance."""
    n = part["n"]
    if n.sum() <= len(part):
        return True
    for kind in ("input", "output"):
        mean, square = part[f"{kind}_mean"], part[f"{kind}_square"]
        within = (n * (square - mean**2)).sum() / (n.sum() - len(part))
        between = (n * (mean - (n * mean).sum() / n.sum()) ** 2).sum() / (len(part) - 1)
        if between > ALIKE_F_RATIO * within:
            return False
    return True
