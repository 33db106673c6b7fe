"""When requests arrive: as many in ten minutes as a Poisson draw says, spaced by gaps, alone or in batches.

The gaps of a window lie on a circle that is cut at a random place and stretched over it, so that clumps have
no favourite instant. Operational time, the share of the window's expected requests so far, turns places into
instants. A batch comes within one second, or at one instant where the clock of the source is coarser.
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
LEAST_GAP = 1e-12  # in the mean: gaps of a very small shape underflow
LEAST_INSTANTS = 100  # from which a grid is read
SECOND_US = 1_000_000


class Spacing(NamedTuple):
    """How the arrivals of each sender follow one another; all of shape (senders,)."""

    family: Ints  # of the gaps between batches: position in FAMILIES
    batch_share: Floats  # of the batches, those that are more than one request
    batch_size: Floats  # their mean size; sizes are geometric

    def mean_size(self) -> Floats:
        """Requests of a batch in the mean."""
        return 1 + self.batch_share * (self.batch_size - 1)


def draw_arrivals(
    rng: np.random.Generator, per_minute: Floats, gap_cv: Floats, spacing: Spacing, cell_us: int = SECOND_US
) -> tuple[Floats, NDArray[np.int64]]:
    """Minutes of the day at which each sender sends, by sender and window, and the sender; shape (requests,).

    Parameters
    ----------
    per_minute : Floats
        Requests expected, shape (senders, 1440).
    gap_cv : Floats
        Variation of the gaps between batches in each ten minutes, shape (senders, 144).
    cell_us : int
        The stretch within which a batch comes; a part of a minute.
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
    together = (np.floor(minute * cells) + rng.random(minute.size)) / cells
    return np.where(is_batch, together, minute), np.repeat(sender, size)


def _gaps(rng: np.random.Generator, row: Ints, gap_cv: Floats, family: Ints) -> Floats:
    """A gap after each arrival, in the mean of its row (sender and window)."""
    gaps = np.empty(row.size)
    of = family[row // WINDOWS]
    for number, name in enumerate(GAP_FAMILIES):
        mine = of == number
        if mine.any():
            shape = shape_of_cv(name, gap_cv)[row[mine]]
            gaps[mine] = draw_gaps(rng, name, shape, (shape.size,))
    return np.maximum(gaps, LEAST_GAP)


def _places(rng: np.random.Generator, batches: Ints, gaps: Floats) -> Floats:
    """Where each arrival lies in its window, 0 to 1: gaps on a circle, turned at random."""
    ends = np.concatenate([[0.0], np.cumsum(gaps)])
    last = np.cumsum(batches)
    before, total = ends[last - batches], ends[last] - ends[last - batches]
    turn = rng.random(batches.size)
    place = (ends[1:] - np.repeat(before, batches)) / np.repeat(np.maximum(total, LEAST_GAP), batches)
    place += np.repeat(turn, batches)
    return place - np.floor(place)


def _instants(so_far: Floats, row: Ints, place: Floats) -> Floats:
    """Minutes of the day; straight between the minutes of the window."""
    wanted = place * so_far[row, -1]
    minute = np.zeros(row.size, np.int64)
    for step in range(1, WINDOW_MINUTES):
        minute += wanted >= so_far[row, step]
    before, after = so_far[row, minute], so_far[row, minute + 1]
    within = np.divide(wanted - before, after - before, out=np.zeros(row.size), where=after > before)
    at = WINDOW_MINUTES * (row % WINDOWS) + minute + np.minimum(within, 1 - 1e-9)
    return np.minimum(at, np.nextafter(TRAFFIC_DAY_MINUTES, 0))


def snap_to_grid(arrived_us: Ints, grid_us: int, first_us: int) -> Ints:
    """The instants moved back onto the grid through `first_us`; onward where its last point was yesterday."""
    back = (arrived_us - first_us) % grid_us
    return np.where(arrived_us >= back, arrived_us - back, arrived_us - back + grid_us)


def coarsest_grid_us(arrived_us: Ints) -> int:
    """The coarsest grid that all instants lie on, microseconds; 1 where few of them say nothing about it."""
    if arrived_us.size < LEAST_INSTANTS:
        return 1
    grid_us = int(np.gcd.reduce(np.diff(arrived_us)))
    return grid_us if 0 < grid_us <= MINUTE_US else 1


def fit_batch_sizes(dispersion: Floats, third: Floats) -> tuple[Floats, Floats]:
    """Share and mean size of the batches that give counts these cumulants.

    The counts of a compound Poisson process have the second and third cumulant E[s^2] / E[s] and
    E[s^3] / E[s] in their mean. With sizes of 1, or geometric of mean g with probability p, both equations
    together say g = (third - 1) / (3 (dispersion - 1)). Where no p below 1 does it, all
    are geometric.

    Parameters
    ----------
    dispersion, third : Floats
        Cumulants in the mean; both 1 for a Poisson process.
    """
    more = np.maximum(dispersion - 1, 1e-9)
    size = (third - 1) / (3 * more)
    below = (size - 1) * (2 * size - more)
    share = np.divide(more, below, out=np.full_like(more, 2.0), where=below > 0)
    is_mixed = (share <= 1) & (size > 1)
    return np.where(is_mixed, share, 1.0), np.where(is_mixed, size, 1 + more / 2)


def count_cumulants(counts: Floats) -> tuple[float, float]:
    """Second and third cumulant of counts in their mean, about the mean of each row, shape (rows, cells)."""
    rest = counts - counts.mean(axis=1, keepdims=True)
    cells, total = counts.shape[1], max(float(counts.sum()), 1e-300)
    second = float((rest**2).sum()) * cells / (cells - 1) / total
    return second, float((rest**3).sum()) * cells**2 / ((cells - 1) * (cells - 2)) / total
