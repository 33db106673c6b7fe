"""Requests of clients from their rates and distributions of tokens (ServeGen, section 3).

A slot of a client has a rate, and a Gamma or Weibull pattern of gaps. The gaps are stretched to fill the slot
and rotated at random: the counts are the measured ones, the bursts inside a slot are kept, and no request is
always at its edge.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints

SLOT_S = 600.0
BLOCK_REQUESTS = 500_000  # sampled at a time, so that memory stays bounded
GAMMA, WEIBULL = 0, 1  # patterns of gaps; any other is a Weibull of shape 1, which is exponential


class RateSlots(NamedTuple):
    """Slots of a client in the order of its file, each of shape (slots,)."""

    slot_s: Floats  # begin, seconds
    requests: Ints  # number of requests
    pattern: Ints  # GAMMA or WEIBULL
    shape: Floats  # of the gaps


class TokenLadder(NamedTuple):
    """A distribution of tokens: entry n holds from the cumulated share below[n] on; shapes (entries,)."""

    tokens: Ints
    below: Floats


def sample_counts(rate_per_s: Floats, scale: float, rng: np.random.Generator) -> Ints:
    """Return the number of requests of each slot, rounded at random; rates in 1/s, shape (slots,)."""
    return np.floor(rate_per_s * SLOT_S * scale + rng.random(rate_per_s.size)).astype(np.int64)


def slot_blocks(slots: RateSlots) -> Iterator[RateSlots]:
    """Yield runs of slots with some BLOCK_REQUESTS requests each; slots without a request are left out."""
    used = _take_slots(slots, np.flatnonzero(slots.requests > 0))
    block = np.cumsum(used.requests) // BLOCK_REQUESTS
    for first, last in zip(*_runs(block), strict=True):
        yield _take_slots(used, np.arange(first, last))


def _take_slots(slots: RateSlots, chosen: Ints) -> RateSlots:
    """Return the slots of these indices, shape (chosen,)."""
    return RateSlots(slots.slot_s[chosen], slots.requests[chosen], slots.pattern[chosen], slots.shape[chosen])


def sample_arrivals(slots: RateSlots, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Sample the arrivals of some slots, each with a request.

    Returns
    -------
    slot : index of the slot of each request, shape (requests,)
    arrival_s : seconds, in the order of the gaps, which is rotated in each slot; shape (requests,)
    """
    gaps_of = slots.requests + 1  # one more, before the end of the slot
    slot = np.repeat(np.arange(gaps_of.size), gaps_of)
    shape = slots.shape[slot]
    is_gamma = slots.pattern[slot] == GAMMA
    gaps = np.empty(slot.size)
    gaps[is_gamma] = rng.standard_gamma(shape[is_gamma])
    gaps[~is_gamma] = rng.weibull(shape[~is_gamma])
    ends = np.cumsum(gaps_of)
    so_far = np.cumsum(gaps)
    before = np.concatenate([[0.0], so_far[ends[:-1] - 1]])
    total = np.maximum(so_far[ends - 1] - before, np.finfo(float).tiny)
    share = (rng.random(gaps_of.size)[slot] + (so_far - before[slot]) / total[slot]) % 1.0
    is_request = np.ones(slot.size, bool)
    is_request[ends - 1] = False
    slot = slot[is_request]
    return slot, slots.slot_s[slot] + SLOT_S * share[is_request]


def make_ladder(tokens: Ints, mass: Floats) -> TokenLadder:
    """Return the ladder of a distribution; counts of tokens and their masses, shapes (entries,)."""
    order = np.argsort(tokens, kind="stable")
    cumulated = np.cumsum(mass[order])
    return TokenLadder(tokens[order], (cumulated - mass[order]) / cumulated[-1])


def sample_ladder(ladder: TokenLadder, count: int, rng: np.random.Generator) -> Ints:
    """Sample `count` numbers of tokens; shape (count,)."""
    return ladder.tokens[np.searchsorted(ladder.below, rng.random(count), side="right") - 1]


def find_windows(slot_s: Floats, windows_s: Floats) -> Ints:
    """Return the index of the last window that has begun in each slot, else the first; shape (slots,)."""
    return np.maximum(np.searchsorted(windows_s, slot_s, side="right") - 1, 0)


def sum_items(ladder: TokenLadder, counts: Ints, rng: np.random.Generator) -> Ints:
    """Return the tokens of all items of each request; counts of items and result of shape (requests,)."""
    items = sample_ladder(ladder, int(counts.sum()), rng)
    return np.bincount(np.repeat(np.arange(counts.size), counts), items, counts.size).astype(np.int64)


def _runs(labels: Ints) -> tuple[Ints, Ints]:
    """Return begin and end of each run of equal labels; labels of shape (n,), results of shape (runs,)."""
    if not labels.size:
        return labels, labels
    begins = np.flatnonzero(np.diff(labels, prepend=labels[0] - 1))
    return begins, np.append(begins[1:], labels.size)
