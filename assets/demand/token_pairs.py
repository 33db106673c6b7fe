"""The tokens of a trace's requests: pairs of input and output by client and hour."""

from bisect import bisect
from collections.abc import Sequence
from datetime import date

import numpy as np
import pandas as pd

from fleetcast.assets.demand.arrival_spacings import CLIENT_KEYS
from fleetcast.assets.lake.warehouse import Lake

MOST_PAIRS = 2_000_000  # kept in total
ALIKE_F_RATIO = 2.0  # clients of an app with an F ratio (scatter of means over chance) up to this share pairs


def read_token_pairs(
    lake: Lake, trace: str, clients: pd.DataFrame, days: Sequence[date]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Read the pairs of tokens of the requests of each client and hour: all, or MOST_PAIRS in total.

    If there are more, those kept are evenly spread over the requests of an hour in the order of their tokens,
    so that the mean of the hour is preserved.

    Returns
    -------
    pool
        Pool of pairs of each client, shape (clients,).
    first_pair
        Position of the first pair of each pool, shape (pools + 1,).
    pairs
        Input and output tokens, by pool and in order of time, shape (pairs, 2).
    hour
        24 x place of the day in `days` + hour of each pair, shape (pairs,).
    """
    pool = _pools(lake, trace, clients)
    of_hours = lake.sql(
        "select count(*) as n from requests where trace = $trace "
        "group by app, region, llm, tier, date_trunc('hour', arrived_at)",
        trace=trace,
    )["n"].to_numpy()
    rows = lake.sql("reads/token_pairs.sql", trace=trace, most=_most_of_an_hour(of_hours)).to_pandas()
    of = rows.merge(clients.assign(pool=pool), on=CLIENT_KEYS, how="left")["pool"].to_numpy()
    order = np.argsort(of, kind="stable")
    hour = 24 * rows["day"].map({day: n for n, day in enumerate(days)}).to_numpy(np.int64) + rows["hour"]
    first_pair = np.searchsorted(of[order], np.arange(pool.max() + 2))
    pairs = rows[["input_tokens", "output_tokens"]].to_numpy(np.int32)[order]
    return pool, first_pair, pairs, hour.to_numpy(np.int64)[order]


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
