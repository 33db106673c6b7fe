"""Fit the spacing of the arrivals of a trace: senders, families of gaps, batches, grid of instants."""

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
ONE_SENDER_CV_RATIO = 1.02  # above this ratio of its gaps' CV to that of its clients', an app is one sender
BATCH_DISPERSION_RATIO = 1.15  # a ratio to the dispersion of single requests above this means batches
LEAST_DISPERSION = 1.05  # of a sender with batches
TESTED_WINDOWS_PER_SENDER = 24  # windows of a sender whose gaps are compared with the families
TESTED_SENDERS = 100  # those with the most requests on that day; others get the family that fits these best
TESTED_FAMILIES = ("gamma", "weibull", "lognormal", "hyperexponential")


class SenderSpacings(NamedTuple):
    """The senders of a trace and the spacing of their arrivals."""

    sender: np.ndarray  # (clients,) number of the sender of each client
    spacing: Spacing
    cv: np.ndarray  # (senders,) mean coefficient of variation of the gaps
    cv_by_window: np.ndarray  # (senders, days, 144) by ten minutes
    grid_us: int  # all instants lie on this grid
    grid_first_us: int  # an instant of the grid, since 1970


def fit_spacings(lake: Lake, trace: str, clients: pd.DataFrame, days: Sequence[date]) -> SenderSpacings:
    """Fit the spacing of arrivals of the clients of a trace; `clients` has app, region, llm, tier."""
    windows = lake.sql(
        "select stream_kind, app, region, llm, tier, cv, gaps::double as gaps, "
        "day, (epoch(window_start) / 600)::bigint % 144 as slot "
        "from arrival_windows where trace = $trace and (stream_kind = 'client' or app <> 'all')",
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
    by_sender = {int(each): arrived_us[of == each] for each in largest}
    distances = np.array([_distances(np.unique(instants)) for instants in by_sender.values()])
    known = ~np.isnan(distances[:, 0])
    if known.any():
        best = np.array([SPACING_FAMILIES.index(name) for name in TESTED_FAMILIES])
        family[:] = best[distances[known].mean(axis=0).argmin()]
        family[largest[known]] = best[distances[known].argmin(axis=1)]
    cell_us = max(grid_us, SECOND_US)
    seen = np.array([_cumulants(instants, cell_us) for instants in by_sender.values()])
    spacing = Spacing(family[largest], share[largest], size[largest])
    single = _cumulants_of_single(by_sender, cv_by_window[largest, day], spacing, cell_us)
    batched = (seen[:, 0] > BATCH_DISPERSION_RATIO * single[:, 0]) | (grid_us >= SECOND_US)
    batched &= seen[:, 0] > LEAST_DISPERSION
    share[largest[batched]], size[largest[batched]] = fit_batch_sizes(*seen[batched].T)
    spacing = Spacing(family, share, size)
    if grid_us >= SECOND_US:  # the gaps are those of the grid
        cv[:] = cv_by_window[:] = 1.0
    batched, explained = share > 0, spacing.batch_cv()
    cv[batched] = np.maximum(cv[batched] / explained[batched], 1.0)
    cv_by_window[batched] = np.maximum(cv_by_window[batched] / explained[batched, None, None], 1.0)
    return SenderSpacings(sender, spacing, cv, cv_by_window, grid_us, midnight_us + int(arrived_us[0]))


def _senders(windows: pd.DataFrame, clients: pd.DataFrame) -> np.ndarray:
    """Return the sender of each client, (clients,): its app where that is burstier, else the client.

    Distributing the requests of one sender over clients breaks up its bursts; pooling several senders hides
    theirs. So the burstier side is taken as the sender.
    """
    weighted = windows.assign(cv=windows["cv"] * windows["gaps"])
    summed = weighted.groupby(["stream_kind", "app"])[["cv", "gaps"]].sum()
    cv = (summed["cv"] / summed["gaps"]).unstack("stream_kind").reindex(columns=["pooled", "client"])
    is_one_sender = clients["app"].map(cv["pooled"] > ONE_SENDER_CV_RATIO * cv["client"].fillna(1.0))
    names = clients["app"].where(is_one_sender.eq(True), clients.index.astype(str) + "/" + clients["app"])
    return pd.factorize(names)[0].astype(np.int64)


def _variation(
    windows: pd.DataFrame, clients: pd.DataFrame, sender: np.ndarray, days: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the variation of each sender's gaps.

    Returns
    -------
    mean : coefficient of variation, (senders,); 1 where no window has enough gaps
    by_window : the same by ten minutes, (senders, days, 144); the mean where a window has too few gaps
    """
    count = sender.max() + 1
    senders = clients.assign(sender=sender)
    pooled = senders.groupby("app")["sender"].nunique().eq(1) & senders.groupby("app").size().gt(1)
    shared = senders[senders["app"].map(pooled)].drop_duplicates("app")[["app", "sender"]]
    of_clients, of_pooled = (windows[windows["stream_kind"] == kind] for kind in ("client", "pooled"))
    of_clients = of_clients.merge(senders[~senders["app"].map(pooled)], on=CLIENT_KEYS)
    rows = pd.concat([of_clients, of_pooled.merge(shared, on="app")])
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
    """Read the arrivals of the day with the most requests.

    Returns
    -------
    midnight_us : of the day, since 1970
    arrived_us : since midnight, in order, (requests,)
    of : sender of each request, (requests,)
    day : place of the day in `days`
    """
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
    """Return the mean distance of a sender's gaps from each of TESTED_FAMILIES; nan without windows.

    `instants_us`, (requests,), are distinct and ascend.
    """
    windows = np.unique(instants_us // WINDOW_US)
    if windows.size:
        windows = windows[np.unique(np.linspace(0, windows.size - 1, TESTED_WINDOWS_PER_SENDER).astype(int))]
    gaps = [first_gaps(instants_us, int(window)) for window in windows]
    tested = [
        [ks_distance(of_window, family) for family in TESTED_FAMILIES]
        for of_window in gaps
        if of_window.size >= LEAST_GAPS
    ]
    return np.mean(tested, axis=0) if tested else np.full(len(TESTED_FAMILIES), np.nan)


def _per_cell(arrived_us: np.ndarray, cell_us: int) -> np.ndarray:
    """Count the requests per cell of each minute from the first to the last, shape (minutes, cells)."""
    cells = max(MINUTE_US // cell_us, 3)
    length = cells * cell_us
    first, last = arrived_us[0] // length, arrived_us[-1] // length + 1
    counts = np.bincount(arrived_us // cell_us - first * cells, minlength=(last - first) * cells)
    return counts.reshape(-1, cells).astype(float)


def _cumulants(arrived_us: np.ndarray, cell_us: int) -> tuple[float, float]:
    """Return the second and third cumulant of requests per cell, relative to the mean."""
    return count_cumulants(_per_cell(arrived_us, cell_us))


def _cumulants_of_single(
    by_sender: dict[int, np.ndarray], gap_cv: np.ndarray, spacing: Spacing, cell_us: int
) -> np.ndarray:
    """Return the cumulants of the same load without batches, shape (senders, 2)."""
    load = [np.bincount(seen // MINUTE_US, minlength=TRAFFIC_DAY_MINUTES) for seen in by_sender.values()]
    minute, sender = draw_arrivals(np.random.default_rng(0), np.array(load, dtype=float), gap_cv, spacing)
    generated = [np.sort((minute[sender == n] * MINUTE_US).astype(np.int64)) for n in range(len(load))]
    return np.array([_cumulants(seen, cell_us) if seen.size else (1.0, 1.0) for seen in generated])
