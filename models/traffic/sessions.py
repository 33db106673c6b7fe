"""Sessions: requests that continue an earlier request, some time after it, with its context and more.

A request of the original trace continues another one if the source gives both the same session, or if its
prompt begins with all blocks of the other's prompt but the last, which is seldom full. Each request has at
most one successor: a branch begins a new session. A generated request is the next turn of a session as soon
as one is due, else the first turn of a new session, sampled from the first turns of the original at that hour
of the day. So a generated session has the turns of a recorded session, their tokens and the times between
them, and each turn occurs as often as in the original. Turns that are due after midnight are dropped: a day
does not depend on another.
"""

import heapq
import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints

TurnHashes = NDArray[np.uint64]
LEAST_FOLLOWING = 0.02  # of the requests of a stream are later turns; with fewer it has no sessions
LEAST_OPENINGS = 50  # first turns of a stream at an hour of the day; with fewer, all hours are used


class Sessions(NamedTuple):
    """The sessions of the original; a stream (llm and app, or client) contains whole sessions."""

    first_opening: Ints  # (streams + 1,) position of a stream's first opening
    openings: Ints  # (openings,) requests that are first turns, by stream and hour of the day
    opening_hour: Ints  # (openings,) 0 to 23
    following: Ints  # (requests,) the next turn; -1: none
    after_us: Ints  # (requests,) time from the previous turn to this one
    kept: Ints  # (requests,) blocks of the previous turn with which this one begins


class Turns(NamedTuple):
    """Generated requests as turns of sessions, both of shape (requests,)."""

    template: Ints  # corresponding request of the original; -1: of a stream without sessions
    previous: Ints  # the generated request that this one continues; -1: none


def fit_sessions(
    stream: Ints, session: Ints, arrived_us: Ints, first_hash: Ints, hashes: TurnHashes
) -> Sessions:
    """Find the sessions of requests in the order of their arrival.

    stream : 0, 1, ... of each request, shape (requests,).
    session : session of each request in the source, 0, 1, ..., shape (requests,); -1 where the source has
        none
    arrived_us : microseconds since a midnight, ascending, shape (requests,)
    first_hash, hashes : position of the first block of each request, shape (requests + 1,), and the hashes of
        all blocks; a request may have none
    """
    previous, kept = _previous(stream, session, first_hash, hashes)
    follows = previous >= 0
    following = np.full(stream.size, -1)
    following[previous[follows]] = np.flatnonzero(follows)
    streams = int(stream.max(initial=-1)) + 1
    requests, turns = np.bincount(stream, minlength=streams), np.bincount(stream[follows], minlength=streams)
    has_sessions = turns >= np.maximum(LEAST_FOLLOWING * requests, 1)
    openings = np.flatnonzero(~follows & has_sessions[stream])
    hour = arrived_us[openings] // 3_600_000_000 % 24
    order = np.lexsort((hour, stream[openings]))
    openings, hour = openings[order], hour[order]
    after_us = np.where(follows, arrived_us - arrived_us[previous], 0)
    first_opening = np.searchsorted(stream[openings], np.arange(streams + 1))
    return Sessions(first_opening, openings, hour, following, after_us, kept)


def draw_turns(sessions: Sessions, stream: Ints, arrived_us: Ints, rng: np.random.Generator) -> Turns:
    """Sample the turn that each request of a day is, in order of arrival; the stream -1 has no sessions.

    `stream` and `arrived_us`, microseconds since midnight, have the shape (requests,).
    """
    template = _openings(sessions, stream, arrived_us // 3_600_000_000 % 24, rng.random(stream.size))
    previous = np.full(stream.size, -1)
    due: dict[int, list[tuple[int, int, int]]] = {}  # by stream: time, previous request, turn
    for request in np.flatnonzero(template >= 0).tolist():
        now, waiting = int(arrived_us[request]), due.setdefault(int(stream[request]), [])
        if waiting and waiting[0][0] <= now:
            _, previous[request], template[request] = heapq.heappop(waiting)
        turn = int(sessions.following[template[request]])
        if turn >= 0:
            heapq.heappush(waiting, (now + int(sessions.after_us[turn]), request, turn))
    return Turns(template, previous)


def session_roots(previous: Ints) -> Ints:
    """Return the first turn of the session of each request; both (requests,)."""
    root = np.arange(previous.size)
    for request in np.flatnonzero(previous >= 0):
        root[request] = root[previous[request]]
    return root


def _previous(stream: Ints, session: Ints, first_hash: Ints, hashes: TurnHashes) -> tuple[Ints, Ints]:
    """Return the turn before each request, -1 where there is none, and the number of common first blocks.

    Both have the shape (requests,).
    """
    previous, kept = np.full(stream.size, -1), np.zeros(stream.size, np.int64)
    is_continued = np.zeros(stream.size, np.bool_)
    latest_turn: dict[int, int] = {}
    latest: dict[int, dict[int, int]] = {}  # by stream: the last request with a block
    chains = [hashes[begin:end].tolist() for begin, end in itertools.pairwise(first_hash)]
    for request, (of, given) in enumerate(zip(stream.tolist(), session.tolist(), strict=True)):
        chain, common, before = chains[request], 0, -1
        if given >= 0:
            before = latest_turn.get(given, -1)
            latest_turn[given] = request
            pairs = zip(chain, chains[before], strict=False)
            common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        else:
            seen = latest.setdefault(of, {})
            while common < len(chain) and chain[common] in seen:
                common += 1
            before = seen[chain[common - 1]] if common else -1
            if common < len(chains[before]) - 1:
                before = -1
            seen.update(dict.fromkeys(chain, request))
        if before >= 0 and not is_continued[before]:
            previous[request], kept[request], is_continued[before] = before, common, True
    return previous, kept


def _openings(sessions: Sessions, stream: Ints, hour: Ints, place: Floats) -> Ints:
    """Return a first turn of its stream and hour of the day for each request; -1 where there is none.

    `place`, 0 to 1, selects among the first turns; all arrays have the shape (requests,).
    """
    first, opening = sessions.first_opening, np.full(stream.size, -1)
    of_opening = np.repeat(np.arange(first.size - 1), np.diff(first))
    cells = np.arange(24 * (first.size - 1))
    key = 24 * of_opening + sessions.opening_hour
    low, high = (np.searchsorted(key, cells, side=side) for side in ("left", "right"))
    is_few = high - low < LEAST_OPENINGS
    low, high = np.where(is_few, first[cells // 24], low), np.where(is_few, first[cells // 24 + 1], high)
    cell = 24 * stream + hour
    has_any = (stream >= 0) & (high > low)[cell]
    cell = cell[has_any]
    opening[has_any] = sessions.openings[low[cell] + (place[has_any] * (high - low)[cell]).astype(np.int64)]
    return opening
