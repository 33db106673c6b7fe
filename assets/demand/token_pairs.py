"""The tokens of a trace as its clients sent them: pairs of input and output, hour by hour."""

from bisect import bisect
from collections.abc import Sequence
from datetime import date

import numpy as np
import pandas as pd

from fleetcast.assets.demand.arrival_spacings import CLIENT_KEYS
from fleetcast.assets.lake.warehouse import Lake

MOST_PAIRS = 2_000_000  # that are kept in all
ALIKE_F_RATIO = (
    2.0  # the clients of an app share their pairs where their means scatter less beyond chance (F ratio)
)


def read_token_pairs(
    lake: Lake, trace: str, clients: pd.DataFrame, days: Sequence[date]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of tokens of the requests of each client and hour: all, or as many as leave MOST_PAIRS in all.

    Of more they are evenly spread over the hour's requests in the order of their tokens, so that the mean of
    an hour is its own.

    Returns
    -------
    tuple of arrays
        Whose pairs each client has, shape (clients,); where those of each pool begin, shape (pools + 1,); the
        pairs in order of time, shape (pairs, 2); their hours, 24 x number of the day + hour, shape (pairs,).
    """
    pool = _pools(lake, trace, clients)
    of_hours = lake.sql(
        "select count(*) as n from requests where trace = $trace "
        "group by app, region, llm, tier, date_trunc('hour', arrived_at)",
        trace=trace,
    )["n"].to_numpy()
    rows = lake.sql(
        "reads/token_pairs.sql",
        trace=trace,
        most=_most_of_an_hour(of_hours),
    ).to_pandas()
    of = rows.merge(clients.assign(pool=pool), on=CLIENT_KEYS, how="left")["pool"].to_numpy()
    order = np.argsort(of, kind="stable")
    hour = 24 * rows["day"].map({day: n for n, day in enumerate(days)}).to_numpy(np.int64) + rows["hour"]
    first_pair = np.searchsorted(of[order], np.arange(pool.max() + 2))
    pairs = rows[["input_tokens", "output_tokens"]].to_numpy(np.int32)[order]
    return pool, first_pair, pairs, hour.to_numpy(np.int64)[order]


def _most_of_an_hour(requests: np.ndarray) -> int:
    """How many requests of each client and hour leave MOST_PAIRS in all, 1 at least."""
    return 1 + bisect(range(2, requests.max() + 1), MOST_PAIRS, key=lambda n: np.minimum(requests, n).sum())


def _pools(lake: Lake, trace: str, clients: pd.DataFrame) -> np.ndarray:
    """Whose pairs each client has: its app's where the clients of it are alike, else its own."""
    rows = lake.sql(
        "reads/token_moments.sql",
        trace=trace,
    ).to_pandas()
    alike = {app for app, part in rows.groupby("app") if len(part) > 1 and _are_alike(part)}
    own = clients.index.astype(str) + "/" + clients["app"]
    return pd.factorize(clients["app"].where(clients["app"].isin(alike), own))[0].astype(np.int64)


def _are_alike(part: pd.DataFrame) -> bool:
    """Whether the clients of an app differ by no more than chance: one-way analysis of variance."""
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
