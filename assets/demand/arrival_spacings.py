"""How the arrivals of a trace follow one another: who sends, the family of the gaps, batches, the grid."""

from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

import numpy as np
import pandas as pd

from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.characterise.gap_families import GAP_FAMILIES as KNOWN
from fleetcast.models.characterise.gap_fit import LEAST_GAPS, WINDOW_US, first_gaps, ks_distance
from fleetcast.models.traffic.random_streams import MINUTE_US
from fleetcast.models.traffic.renewal_arrivals import (
    SECOND_US,
    Spacing,
    coarsest_grid_us,
    count_cumulants,
    draw_arrivals,
    fit_batch_sizes,
)
from fleetcast.models.world.traffic_config import TRAFFIC_DAY_MINUTES

SPACING_FAMILIES = list(KNOWN)
CLIENT_KEYS = ["app", "region", "llm", "tier"]
CV_LIMITS = (0.2, 25.0)
ONE_SENDER_CV_RATIO = 1.02  # an app sends as one where its gaps vary so much more than those of its clients
BATCH_DISPERSION_RATIO = 1.15  # an index of dispersion so far above that of the gaps alone tells of batches
LEAST_DISPERSION = 1.05
TESTED_WINDOWS_PER_SENDER = 24  # of a sender, whose gaps are held against the families
TESTED_SENDERS = 100  # the ones with the most requests on that day; the others are taken to be like them
TESTED_FAMILIES = ("gamma", "weibull", "lognormal", "hyperexponential")


class SenderSpacings(NamedTuple):
    """The senders of a trace."""

    sender: np.ndarray  # (clients,)
    spacing: Spacing
    cv: np.ndarray  # (senders,) of the gaps, in the mean
    cv_by_window: np.ndarray  # (senders, days, 144)
    grid_us: int
    grid_first_us: int


def fit_spacings(lake: Lake, trace: str, clients: pd.DataFrame, days: Sequence[date]) -> SenderSpacings:
    """Fit the spacing of arrivals of the clients of a trace (app, region, llm, tier)."""
    windows = lake.sql(
        "select level, app, region, llm, tier, cv, gaps::double as gaps, "
        "day, (epoch(window_start) / 600)::bigint % 144 as slot "
        "from arrival_windows where trace = $trace and (level = 'client' or app <> 'all')",
        trace=trace,
    ).to_pandas()
    windows["place"] = 144 * windows["day"].map({day: n for n, day in enumerate(days)}) + windows["slot"]
    sender = _senders(windows, clients)
    cv, cv_by_window = _variation(windows, clients, sender, len(days))
    midnight_us, arrived_us, of, day = _arrivals(lake, trace, clients, sender, days)
    grid_us = coarsest_grid_us(arrived_us)
    count = sender.max() + 1
    family = np.full(count, SPACING_FAMILIES.index("gamma"))
    share, size = np.zeros(count), np.ones(count)
    sent = np.bincount(of, minlength=count)
    largest = np.argsort(-sent, kind="stable")[: min(TESTED_SENDERS, np.count_nonzero(sent))]
    by_sender = {int(one): arrived_us[of == one] for one in largest}
    distances = np.array([_distances(np.unique(mine)) for mine in by_sender.values()])
    known = ~np.isnan(distances[:, 0])
    if known.any():
        best = np.array([SPACING_FAMILIES.index(name) for name in TESTED_FAMILIES])
        family[:] = best[distances[known].mean(axis=0).argmin()]
        family[largest[known]] = best[distances[known].argmin(axis=1)]
    cell_us = max(grid_us, SECOND_US)
    seen = np.array([_cumulants(mine, cell_us) for mine in by_sender.values()])
    spacing = Spacing(family[largest], share[largest], size[largest])
    made = _cumulants_made(by_sender, cv_by_window[largest, day], spacing, cell_us)
    batched = (seen[:, 0] > BATCH_DISPERSION_RATIO * made[:, 0]) | (grid_us >= SECOND_US)
    batched &= seen[:, 0] > LEAST_DISPERSION
    share[largest[batched]], size[largest[batched]] = fit_batch_sizes(*seen[batched].T)
    cv[largest[batched]] = cv_by_window[largest[batched]] = 1.0
    if grid_us >= SECOND_US:  # whose gaps are the grid's
        cv[:] = cv_by_window[:] = 1.0
    return SenderSpacings(
        sender, Spacing(family, share, size), cv, cv_by_window, grid_us, midnight_us + int(arrived_us[0])
    )


def _senders(windows: pd.DataFrame, clients: pd.DataFrame) -> np.ndarray:
    """Who sends, by client: its app where that is burstier than its clients, else the client itself.

    Requests that are dealt out over clients take the clumps of a sender apart; senders that are put together
    hide each other's. So the burstier side is the one that sends.
    """
    weighted = windows.assign(cv=windows["cv"] * windows["gaps"])
    summed = weighted.groupby(["level", "app"])[["cv", "gaps"]].sum()
    cv = (summed["cv"] / summed["gaps"]).unstack("level").reindex(columns=["pooled", "client"])
    pooled, own = cv["pooled"], cv["client"]
    together = clients["app"].map(pooled > ONE_SENDER_CV_RATIO * own.fillna(1.0))
    names = clients["app"].where(together.eq(True), clients.index.astype(str) + "/" + clients["app"])
    return pd.factorize(names)[0].astype(np.int64)


def _variation(
    windows: pd.DataFrame, clients: pd.DataFrame, sender: np.ndarray, days: int
) -> tuple[np.ndarray, np.ndarray]:
    """Variation of each sender's gaps, in the mean and by ten minutes: the mean where
    there are few gaps, 1 where there are never enough of them."""
    count = sender.max() + 1
    alone = clients.assign(sender=sender)
    pooled = alone.groupby("app")["sender"].nunique().eq(1) & alone.groupby("app").size().gt(1)
    shared = alone[alone["app"].map(pooled)].drop_duplicates("app")[["app", "sender"]]
    client = windows[windows["level"] == "client"].merge(alone[~alone["app"].map(pooled)], on=CLIENT_KEYS)
    rows = pd.concat([client, windows[windows["level"] == "pooled"].merge(shared, on="app")])
    place = rows["sender"].to_numpy(np.int64) * days * 144 + rows["place"].to_numpy(np.int64)
    summed, gaps = (
        np.bincount(place, values, minlength=count * days * 144).reshape(count, -1)
        for values in (rows["cv"] * rows["gaps"], rows["gaps"])
    )
    mean = np.divide(summed.sum(axis=1), gaps.sum(axis=1), out=np.ones(count), where=gaps.any(axis=1))
    by_window = np.divide(summed, gaps, out=np.repeat(mean[:, None], days * 144, axis=1), where=gaps > 0)
    by_window = np.clip(by_window, *CV_LIMITS).astype(np.float32).reshape(count, days, 144)
    return np.clip(mean, *CV_LIMITS), by_window


def _arrivals(
    lake: Lake, trace: str, clients: pd.DataFrame, sender: np.ndarray, days: Sequence[date]
) -> tuple[int, np.ndarray, np.ndarray, int]:
    """The day with the most requests: its midnight, the instants in order, who sent each, which day it is."""
    day = lake.sql(
        "select day from requests where trace = $trace group by day order by count(*) desc, day limit 1",
        trace=trace,
    )["day"][0].as_py()
    rows = lake.sql(
        "select epoch_us(arrived_at) as at, app, region, llm, tier from requests "
        "where trace = $trace and day = $day order by arrived_at, app, region, llm, tier",
        trace=trace,
        day=day,
    ).to_pandas()
    of = rows.merge(clients.assign(sender=sender), on=CLIENT_KEYS, how="left")["sender"].to_numpy(np.int64)
    midnight_us = int(np.datetime64(day, "us").astype(np.int64))
    return midnight_us, rows["at"].to_numpy(np.int64) - midnight_us, of, days.index(day)


def _distances(instants_us: np.ndarray) -> np.ndarray:
    """Distance of a sender's gaps from each of TESTED_FAMILIES, mean over its windows; nan without any."""
    found = np.unique(instants_us // WINDOW_US)
    spread = (
        found[np.unique(np.linspace(0, found.size - 1, TESTED_WINDOWS_PER_SENDER).astype(int))]
        if found.size
        else found
    )
    gaps = [first_gaps(instants_us, int(window)) for window in spread]
    tested = [
        [ks_distance(one, family) for family in TESTED_FAMILIES] for one in gaps if one.size >= LEAST_GAPS
    ]
    return np.mean(tested, axis=0) if tested else np.full(len(TESTED_FAMILIES), np.nan)


def _per_cell(arrived_us: np.ndarray, cell_us: int) -> np.ndarray:
    """Requests per cell of each whole minute between the first and the last, shape (minutes, cells)."""
    cells = max(MINUTE_US // cell_us, 3)
    length = cells * cell_us
    first, last = arrived_us[0] // length, arrived_us[-1] // length + 1
    counts = np.bincount(arrived_us // cell_us - first * cells, minlength=(last - first) * cells)
    return counts.reshape(-1, cells).astype(float)


def _cumulants(arrived_us: np.ndarray, cell_us: int) -> tuple[float, float]:
    return count_cumulants(_per_cell(arrived_us, cell_us))


def _cumulants_made(
    by_sender: dict[int, np.ndarray], gap_cv: np.ndarray, spacing: Spacing, cell_us: int
) -> np.ndarray:
    """What gaps alone make of the same load, shape (senders, 2)."""
    load = [np.bincount(mine // MINUTE_US, minlength=TRAFFIC_DAY_MINUTES) for mine in by_sender.values()]
    minute, sender = draw_arrivals(np.random.default_rng(0), np.array(load, dtype=float), gap_cv, spacing)
    made = [np.sort((minute[sender == one] * MINUTE_US).astype(np.int64)) for one in range(len(load))]
    return np.array([_cumulants(one, cell_us) if one.size else (1.0, 1.0) for one in made])
