"""Arrivals of requests: a Poisson number in each ten minutes, spaced by gaps, single or in batches.

The gaps of a window lie on a circle that is cut at a random place and stretched over the window, so that
bursts have no preferred instant. Operational time, the share of the window's expected requests so far, turns
places into instants. A batch arrives within one second, or at one instant where the clock of the source is
coarser.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.characterise.gap_families import GAP_FAMILIES, draw_gaps, shape_of_cv
from fleetcast.models.traffic.random_streams import MINUTE_US
from fleetcast.models.world.traffic_config import TRAFFIC_DAY_MINUTES

WINDOW_MINUTES = 10
WINDOWS = TRAFFIC_DAY_MINUTES // WINDOW_MINUTES
LEAST_GAP = 1e-12  # in units of the mean gap: gaps of a very small shape underflow
LEAST_INSTANTS = 100  # arrivals needed to detect a grid
SECOND_US = 1_000_000


class Spacing(NamedTuple):
    """Gaps and batches of the arrivals of each sender; all of shape (senders,)."""

    family: Ints  # of the gaps between batches: position in GAP_FAMILIES
    batch_share: Floats  # share of batches of geometric size; the others are single requests
    batch_size: Floats  # mean of the geometric sizes

    def mean_size(self) -> Floats:
        """Return the mean number of requests in a batch, shape (senders,)."""
        return 1 + self.batch_share * (self.batch_size - 1)

    def batch_cv(self) -> Floats:
        """Return the coefficient of variation of all gaps if batches come at random, shape (senders,).

        Of mean size s, one gap in s is exponential with mean s, and the others are 0: 2 s - 1 is the square.
        """
        return np.sqrt(2 * self.mean_size() - 1)


def draw_arrivals(
    rng: np.random.Generator, per_minute: Floats, gap_cv: Floats, spacing: Spacing, cell_us: int = SECOND_US
) -> tuple[Floats, NDArray[np.int64]]:
    """Sample the arrivals of a day.

    per_minute : expected requests, shape (senders, 1440)
    gap_cv : coefficient of variation of the gaps between batches in each ten minutes, shape (senders, 144)
    cell_us : time cell within which a batch arrives, a divisor of a minute

    Returns
    -------
    minute : of each request, in minutes of the day, ordered by sender and window, shape (requests,)
    sender : of each request, ascending, shape (requests,)
    """
    so_far = np.zeros((len(per_minute) * WINDOWS, WINDOW_MINUTES + 1))
    np.cumsum(per_minute.reshape(-1, WINDOW_MINUTES), axis=1, out=so_far[:, 1:])
    batches = rng.poisson(so_far[:, -1] / np.repeat(spacing.mean_size(), WINDOWS))
    row = np.repeat(np.arange(batches.size), batches)
    place = _places(rng, batches, _gaps(rng, row, gap_cv.ravel(), spacing.family))
    minute, sender = _instants(so_far, row, place), row // WINDOWS
    if not (spacing.batch_share > 0).any():
        return minute, sender
    size = np.where(
        rng.random(sender.size) < spacing.batch_share[sender],
        rng.geometric(1 / spacing.batch_size[sender]),
        1,
    )
    cells = MINUTE_US / cell_us
    minute, is_batch = np.repeat(minute, size), np.repeat(size > 1, size)
    in_cell = (np.floor(minute * cells) + rng.random(minute.size)) / cells
    return np.where(is_batch, in_cell, minute), np.repeat(sender, size)


def _gaps(rng: np.random.Generator, row: Ints, gap_cv: Floats, family: Ints) -> Floats:
    """Sample a gap after each arrival, (arrivals,), relative to the mean of its row (sender and window).

    `row` has the shape (arrivals,), `gap_cv` (rows,), `family` (senders,).
    """
    gaps = np.empty(row.size)
    family_of = family[row // WINDOWS]
    for number, name in enumerate(GAP_FAMILIES):
        of_family = family_of == number
        if of_family.any():
            shape = shape_of_cv(name, gap_cv)[row[of_family]]
            gaps[of_family] = draw_gaps(rng, name, shape, (shape.size,))
    return np.maximum(gaps, LEAST_GAP)


def _places(rng: np.random.Generator, batches: Ints, gaps: Floats) -> Floats:
    """Return the place of each arrival in its window, 0 to 1, (arrivals,): gaps on a circle, turned randomly.

    `batches` has the shape (rows,), `gaps` (arrivals,).
    """
    ends = np.concatenate([[0.0], np.cumsum(gaps)])
    last = np.cumsum(batches)
    before, total = ends[last - batches], ends[last] - ends[last - batches]
    turn = rng.random(batches.size)
    place = (ends[1:] - np.repeat(before, batches)) / np.repeat(np.maximum(total, LEAST_GAP), batches)
    place += np.repeat(turn, batches)
    return place - np.floor(place)


def _instants(so_far: Floats, row: Ints, place: Floats) -> Floats:
    """Turn places in operational time, 0 to 1, into minutes of the day, linear within a minute.

    `so_far`, expected requests of a window so far, has the shape (rows, WINDOW_MINUTES + 1); the other arrays
    have the shape (arrivals,).
    """
    wanted = place * so_far[row, -1]
    minute = np.zeros(row.size, np.int64)
    for step in range(1, WINDOW_MINUTES):
        minute += wanted >= so_far[row, step]
    before, after = so_far[row, minute], so_far[row, minute + 1]
    within = np.divide(wanted - before, after - before, out=np.zeros(row.size), where=after > before)
    at = WINDOW_MINUTES * (row % WINDOWS) + minute + np.minimum(within, 1 - 1e-9)
    return np.minimum(at, np.nextafter(TRAFFIC_DAY_MINUTES, 0))


def snap_to_grid(arrived_us: Ints, grid_us: int, first_us: int) -> Ints:
    """Move instants, (requests,), back onto the grid through `first_us`; forward where that is yesterday."""
    back = (arrived_us - first_us) % grid_us
    return np.where(arrived_us >= back, arrived_us - back, arrived_us - back + grid_us)


def coarsest_grid_us(arrived_us: Ints) -> int:
    """Return the coarsest grid, microseconds, of ascending instants, (requests,); 1 where there are few."""
    if arrived_us.size < LEAST_INSTANTS:
        return 1
    grid_us = int(np.gcd.reduce(np.diff(arrived_us)))
    return grid_us if 0 < grid_us <= MINUTE_US else 1


def fit_batch_sizes(dispersion: Floats, third: Floats) -> tuple[Floats, Floats]:
    """Return share and mean size of the batches, both (senders,), whose counts have these cumulants.

    The second and third cumulant of a compound Poisson process, relative to the mean, are E[s^2] / E[s] and
    E[s^3] / E[s]. For sizes s that are 1, or geometric of mean g with probability p, the two equations give
    g = (third - 1) / (3 (dispersion - 1)). Where no p below 1 solves them, all sizes are geometric.

    dispersion, third : cumulants relative to the mean, shape (senders,); both 1 for a Poisson process
    """
    more = np.maximum(dispersion - 1, 1e-9)
    size = (third - 1) / (3 * more)
    below = (size - 1) * (2 * size - more)
    share = np.divide(more, below, out=np.full_like(more, 2.0), where=below > 0)
    is_mixed = (share <= 1) & (size > 1)
    return np.where(is_mixed, share, 1.0), np.where(is_mixed, size, 1 + more / 2)


def count_cumulants(counts: Floats) -> tuple[float, float]:
    """Return the second and third cumulant of counts, (rows, cells), about the mean of each row.

    Both are relative to the mean of all counts.
    """
    rest = counts - counts.mean(axis=1, keepdims=True)
    cells, total = counts.shape[1], max(float(counts.sum()), 1e-300)
    second = float((rest**2).sum()) * cells / (cells - 1) / total
    return second, float((rest**3).sum()) * cells**2 / ((cells - 1) * (cells - 2)) / total
