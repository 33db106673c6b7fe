"""Prompts that begin like earlier ones: block hashes for the requests of a made trace.

A hash stands for a block and all before it, so prompts form trees. Each request of the original is a
template: how many blocks its prompt has, how many of them an earlier request had already, how many requests
ago the latest of these was, and how long and how often shared it was. A made request takes the template
whose input is nearest to its own, goes as far back among its like as that one did, shares as many blocks, and
goes on with new ones: the share of blocks that repeat is that of the original by construction, and sessions
grow as there.

The like of a request are those of its stream (an llm and an app); where a hundredth of a stream or more
begins anew with the same block, as with a system prompt, those that begin with it, and they all do. The turns
of one long session begin with the same block too, but each goes on where the one before it stood. What lies
before the first request of a day is taken from the original itself, so that a day depends on no other.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.traffic.sessions import Turns

BlockHashes = NDArray[np.uint64]
COMMON_SHARE = (
    0.01  # of a stream's requests that begin anew, from which on a first block is a family of its own
)
NEAR_LAG_SHARE = 0.125  # of the lag: among so many to each side the one most alike is taken
LIKE = (
    0.5  # sum of the logarithms of the ratios of blocks and uses, up to which nobody more alike is looked for
)
BRANCH = 2  # blocks that a prompt has beyond what another one shares with it, which is then not its next turn
MOST_NEAR = 1000  # to each side, within which somebody more alike is looked for


class Prefixes(NamedTuple):
    """The templates, by stream and in it by input tokens."""

    first_template: Ints  # (streams + 1,)
    input_tokens: Ints  # (templates,), as all but the last
    blocks: Ints
    shared: Ints  # of these, with an earlier request
    lag: Ints  # requests back to the latest that shares them, among its like
    rest: Ints  # blocks that that one had beyond them
    uses: Ints  # requests that shared the last of them before
    place: Ints  # (requests,) which template each request of the original is
    family: Ints  # whose like it is
    first_hash: Ints  # (templates + 1,)
    hashes: BlockHashes  # of the original


class Blocks(NamedTuple):
    """The blocks of a day so far. A place is where one stands in the array of all; one that is shared is
    known by the place at which it stood first."""

    first: Ints  # (requests + 1,) places of the blocks of each request
    known_by: Ints  # (blocks,)
    uses: Ints  # requests that have it, by the place it is known by
    latest: Ints  # of these, likewise


def fit_prefixes(stream: Ints, input_tokens: Ints, first_hash: Ints, hashes: BlockHashes) -> Prefixes:
    """Templates of requests in the order of their arrival.

    Parameters
    ----------
    stream : Ints
        0, 1, ... of each request, shape (requests,).
    first_hash, hashes : Ints, Hashes
        Where the blocks of each request begin, shape (requests + 1,), and all of them; none is allowed.
    """
    blocks = np.diff(first_hash)
    family = _families(stream, first_hash, hashes)
    shared, lag, rest, uses = (np.zeros(stream.size, np.int64) for _ in range(4))
    rank = np.zeros(stream.size, np.int64)  # among its like
    like: dict[int, int] = {}
    latest: dict[tuple[int, int], int] = {}
    used = Counter[tuple[int, int]]()
    for request, of in enumerate(stream.tolist()):
        chain = hashes[first_hash[request] : first_hash[request + 1]].tolist()
        rank[request] = like.get(int(family[request]), 0)
        like[int(family[request])] = int(rank[request]) + 1
        had = 0
        while had < len(chain) and (of, chain[had]) in latest:
            had += 1
        if had:
            sharer = latest[of, chain[had - 1]]
            shared[request], rest[request] = had, blocks[sharer] - had
            uses[request] = used[of, chain[had - 1]]
            lag[request] = max(rank[request] - rank[sharer], 1)
        own = [(of, block) for block in chain]
        latest.update(dict.fromkeys(own, request))
        used.update(own)
    is_common = (family > stream.max(initial=-1)) & (blocks > 0)
    shared = np.where(is_common, np.maximum(shared, 1), shared)
    order = np.lexsort((input_tokens, stream))
    begins = np.concatenate([[0], np.cumsum(blocks[order])])
    at = np.repeat(first_hash[order] - begins[:-1], blocks[order]) + np.arange(begins[-1])
    return Prefixes(
        first_template=np.searchsorted(stream[order], np.arange(stream.max(initial=-1) + 2)),
        input_tokens=input_tokens[order],
        blocks=blocks[order],
        shared=shared[order],
        lag=lag[order],
        rest=rest[order],
        uses=uses[order],
        place=np.argsort(order),
        family=family[order],
        first_hash=begins,
        hashes=hashes[at],
    )


def draw_prefixes(
    prefixes: Prefixes,
    stream: Ints,
    input_tokens: Ints,
    ids: BlockHashes,
    rng: np.random.Generator,
    turns: Turns,
    kept: Ints,
) -> tuple[Ints, BlockHashes]:
    """Where the hashes of each request begin, shape (requests + 1,), and all of them; in order of arrival.

    A request of the stream -1, or whose template has no hash, has none. The turns of a session have templates
    of their own; those after the first begin with the `kept` blocks of the one before, by request of the
    original.
    """
    template = _templates(prefixes, stream, input_tokens, rng.random(stream.size))
    is_turn = turns.template >= 0
    template[is_turn] = prefixes.place[turns.template[is_turn]]
    of = np.maximum(template, 0)
    scale = input_tokens / np.maximum(prefixes.input_tokens[of], 1)
    blocks = np.where(prefixes.blocks[of] > 0, np.maximum(np.rint(prefixes.blocks[of] * scale), 1), 0)
    blocks = np.where(template < 0, 0, blocks).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(blocks)])
    place = np.arange(first[-1]) - np.repeat(first[:-1], blocks)
    made = _mixed(_mixed(np.repeat(ids, blocks)) + place.astype(np.uint64))
    places = np.arange(first[-1])
    there = Blocks(first, places, np.zeros_like(places), np.zeros_like(places))
    went: dict[int, list[int]] = {}  # the requests so far, by family
    taken: dict[int, int] = {}  # who took a block from the original first
    for request in np.flatnonzero(blocks).tolist():
        one, begin = template[request], first[request]
        shared = min(int(prefixes.shared[one]), int(blocks[request]))
        like = went.setdefault(int(prefixes.family[one]), [])
        before = int(turns.previous[request])
        if before >= 0:
            shared = int(min(kept[turns.template[request]], blocks[request], blocks[before]))
            made[begin : begin + shared] = made[first[before] : first[before] + shared]
            places[begin : begin + shared] = places[first[before] : first[before] + shared]
        elif shared:
            wanted = shared + int(prefixes.rest[one]), max(int(prefixes.uses[one]), 1)
            sharer = _sharer(there, like, int(prefixes.lag[one]), shared, wanted)
            if sharer < 0:
                seen = prefixes.first_hash[one]
                made[begin : begin + shared] = prefixes.hashes[seen : seen + shared]
                sharer = taken.setdefault(int(made[begin + shared - 1]), request)
            made[begin : begin + shared] = made[first[sharer] : first[sharer] + shared]
            places[begin : begin + shared] = places[first[sharer] : first[sharer] + shared]
        own = places[begin : first[request + 1]]
        there.uses[own] += 1
        there.latest[own] = request
        like.append(request)
    return first, made


def _families(stream: Ints, first_hash: Ints, hashes: BlockHashes) -> Ints:
    """Of each request: its stream, or a number above those of the streams where its first block is common."""
    family, number = stream.copy(), int(stream.max(initial=-1)) + 1
    has = np.flatnonzero(np.diff(first_hash))
    for of in np.unique(stream):
        own = has[stream[has] == of]
        _, which, counts = np.unique(hashes[first_hash[own]], return_inverse=True, return_counts=True)
        common = np.flatnonzero(counts >= max(COMMON_SHARE * own.size, 10))
        for root in common:
            alike = own[which == root]
            if _begun(first_hash, hashes, alike) >= max(COMMON_SHARE * own.size, 10):
                family[alike] = number
                number += 1
    return family


def _begun(first_hash: Ints, hashes: BlockHashes, alike: Ints) -> int:
    """How many of the requests that begin alike begin anew: they share no more than all of them do."""
    seen, shared = set[int](), []
    for request in alike.tolist():
        chain = hashes[first_hash[request] : first_hash[request + 1]].tolist()
        shared.append(next((had for had, block in enumerate(chain) if block not in seen), len(chain)))
        seen.update(chain)
    return 1 + shared[1:].count(min(shared[1:], default=0))


def _templates(prefixes: Prefixes, stream: Ints, input_tokens: Ints, level: Floats) -> Ints:
    """A template of each request's stream with an input as near as there is, -1 where there is none."""
    template = np.full(stream.size, -1)
    for of in range(prefixes.first_template.size - 1):
        begin, end = prefixes.first_template[of : of + 2]
        own = np.flatnonzero(stream == of)
        if begin == end or not own.size:
            continue
        known, wanted = prefixes.input_tokens[begin:end], input_tokens[own]
        above = np.minimum(np.searchsorted(known, wanted), known.size - 1)
        below = np.maximum(above - 1, 0)
        nearest = np.where(wanted - known[below] < known[above] - wanted, known[below], known[above])
        low, high = (np.searchsorted(known, nearest, side) for side in ("left", "right"))
        template[own] = begin + low + (level[own] * (high - low)).astype(np.int64)
    return template


def _sharer(there: Blocks, like: list[int], lag: int, shared: int, wanted: tuple[int, int]) -> int:
    """The request about `lag` back that is the latest to have the blocks to share; -1 for none.

    Of several the one that is most like the wanted in blocks and in requests that have those blocks; it is
    looked for further away while none is LIKE them.
    """
    middle, near, best, chosen = len(like) - max(lag, 1), int(NEAR_LAG_SHARE * lag), np.inf, -1
    while middle >= 0:
        low, high = max(middle - near, 0), min(middle + near + 1, len(like))
        found = np.array(like[low:high])
        blocks = there.first[found + 1] - there.first[found]
        goes_further = blocks >= min(wanted[0], shared + BRANCH)
        found, blocks = found[goes_further], blocks[goes_further]
        last = there.known_by[there.first[found] + shared - 1]
        is_latest = there.latest[last] == found
        if is_latest.any():
            longer = np.log(blocks[is_latest] / wanted[0])
            oftener = np.log(there.uses[last[is_latest]] / wanted[1])
            unlike = np.abs(longer) + np.abs(oftener)
            if unlike.min() < best:
                best, chosen = unlike.min(), int(found[is_latest][unlike.argmin()])
        if best <= LIKE or (low == 0 and high == len(like)) or (chosen >= 0 and near > MOST_NEAR):
            break
        near = 4 * near + 1
    return chosen


def _mixed(numbers: BlockHashes) -> BlockHashes:
    """Numbers that look random, one for one (the finaliser of SplitMix64)."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
