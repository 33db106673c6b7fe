"""Shared prompt prefixes: block hashes for the requests of a generated trace.

A hash identifies a block and all blocks before it, so prompts form trees. Each request of the original trace
is a template: the number of its blocks, how many of them an earlier request had, how many requests ago the
latest such request was, and the length and number of uses of that prefix. A generated request takes the
template with the nearest input length. It goes back among its family as far as the template did, shares as
many blocks, and continues with new ones. So the share of repeated blocks is that of the original by
construction, and sessions grow as there.

The family of a request is its stream (an llm and an app). Where at least a hundredth of a stream starts new
prompts with the same block, as with a system prompt, the requests that begin with this block are a family,
and they all share it. The turns of one long session begin with the same block too, but each continues the
turn before it. Prefixes from before the first request of a day are those of the original, so that a day does
not depend on another.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.traffic.sessions import Turns

BlockHashes = NDArray[np.uint64]
COMMON_SHARE = 0.01  # of a stream's requests that start a new prompt: a block with as many is a family
NEAR_LAG_SHARE = 0.125  # of the lag: the most similar request within this distance to each side is taken
LIKE = 0.5  # sum of |log ratio| of blocks and of uses up to which a request is similar enough
BRANCH = 2  # blocks beyond the shared ones from which on a prompt is no next turn of the other
MOST_NEAR = 1000  # requests to each side up to which the search for a similar one is widened


class Prefixes(NamedTuple):
    """The templates by stream, and by input tokens within a stream; shape (templates,) unless noted."""

    first_template: Ints  # (streams + 1,)
    input_tokens: Ints
    blocks: Ints
    shared: Ints  # blocks shared with an earlier request
    lag: Ints  # requests back to the latest one that shares them, within the family
    rest: Ints  # blocks of that request beyond the shared ones
    uses: Ints  # earlier requests that have the last shared block
    place: Ints  # (requests,) template of each request of the original
    family: Ints
    first_hash: Ints  # (templates + 1,)
    hashes: BlockHashes  # (blocks of the original,)


class Blocks(NamedTuple):
    """The blocks of a day so far.

    A place is the position of a block in the array of all; a shared block is identified by its first place.
    """

    first: Ints  # (requests + 1,) place of the first block of each request
    known_by: Ints  # (blocks,) first place of the same block
    uses: Ints  # (blocks,) number of requests that have the block, at its first place
    latest: Ints  # (blocks,) the latest of these requests, likewise


def fit_prefixes(stream: Ints, input_tokens: Ints, first_hash: Ints, hashes: BlockHashes) -> Prefixes:
    """Make templates of requests in the order of their arrival.

    stream, input_tokens : of each request, shape (requests,); streams are numbered 0, 1, ...
    first_hash, hashes : position of the first block of each request, shape (requests + 1,), and the hashes of
        all blocks; a request may have none
    """
    blocks = np.diff(first_hash)
    family = _families(stream, first_hash, hashes)
    shared, lag, rest, uses = (np.zeros(stream.size, np.int64) for _ in range(4))
    rank = np.zeros(stream.size, np.int64)  # within the family
    family_size: dict[int, int] = {}
    latest: dict[tuple[int, int], int] = {}
    used = Counter[tuple[int, int]]()
    for request, of in enumerate(stream.tolist()):
        chain = hashes[first_hash[request] : first_hash[request + 1]].tolist()
        rank[request] = family_size.get(int(family[request]), 0)
        family_size[int(family[request])] = int(rank[request]) + 1
        known = 0
        while known < len(chain) and (of, chain[known]) in latest:
            known += 1
        if known:
            sharer = latest[of, chain[known - 1]]
            shared[request], rest[request] = known, blocks[sharer] - known
            uses[request] = used[of, chain[known - 1]]
            lag[request] = max(rank[request] - rank[sharer], 1)
        keys = [(of, block) for block in chain]
        latest.update(dict.fromkeys(keys, request))
        used.update(keys)
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
    """Generate the block hashes of requests in order of arrival.

    stream, input_tokens : of each request, shape (requests,). Requests of the stream -1 have no hashes, as
        have those whose template has none.
    ids : a number of each request from which its new hashes are made, shape (requests,)
    turns : requests that are turns of sessions: these use the templates given there, and turns after the
        first begin with blocks of the turn before
    kept : number of these blocks, by request of the original, shape (requests of the original,)

    Returns
    -------
    first : position of the first hash of each request, shape (requests + 1,)
    made : all hashes, shape (blocks,)
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
    so_far = Blocks(first, places, np.zeros_like(places), np.zeros_like(places))
    by_family: dict[int, list[int]] = {}  # the requests so far
    taken: dict[int, int] = {}  # the first request that took a block from the original
    for request in np.flatnonzero(blocks).tolist():
        like, begin = template[request], first[request]
        shared = min(int(prefixes.shared[like]), int(blocks[request]))
        family = by_family.setdefault(int(prefixes.family[like]), [])
        before = int(turns.previous[request])
        if before >= 0:
            shared = int(min(kept[turns.template[request]], blocks[request], blocks[before]))
            made[begin : begin + shared] = made[first[before] : first[before] + shared]
            places[begin : begin + shared] = places[first[before] : first[before] + shared]
        elif shared:
            wanted = shared + int(prefixes.rest[like]), max(int(prefixes.uses[like]), 1)
            sharer = _find_sharer(so_far, family, int(prefixes.lag[like]), shared, wanted)
            if sharer < 0:
                seen = prefixes.first_hash[like]
                made[begin : begin + shared] = prefixes.hashes[seen : seen + shared]
                sharer = taken.setdefault(int(made[begin + shared - 1]), request)
            made[begin : begin + shared] = made[first[sharer] : first[sharer] + shared]
            places[begin : begin + shared] = places[first[sharer] : first[sharer] + shared]
        first_places = places[begin : first[request + 1]]
        so_far.uses[first_places] += 1
        so_far.latest[first_places] = request
        family.append(request)
    return first, made


def _families(stream: Ints, first_hash: Ints, hashes: BlockHashes) -> Ints:
    """Return the family of each request, shape (requests,).

    It is the stream, or a number above those of the streams where the first block is common.
    """
    family, number = stream.copy(), int(stream.max(initial=-1)) + 1
    has_blocks = np.flatnonzero(np.diff(first_hash))
    for of in np.unique(stream):
        in_stream = has_blocks[stream[has_blocks] == of]
        _, which, counts = np.unique(hashes[first_hash[in_stream]], return_inverse=True, return_counts=True)
        least = max(COMMON_SHARE * in_stream.size, 10)
        for root in np.flatnonzero(counts >= least):
            alike = in_stream[which == root]
            if _new_prompts(first_hash, hashes, alike) >= least:
                family[alike] = number
                number += 1
    return family


def _new_prompts(first_hash: Ints, hashes: BlockHashes, alike: Ints) -> int:
    """Count the requests `alike`, (K,), of one first block that start a new prompt.

    These share no more blocks with earlier requests than all of them do.
    """
    seen, shared = set[int](), []
    for request in alike.tolist():
        chain = hashes[first_hash[request] : first_hash[request + 1]].tolist()
        shared.append(next((known for known, block in enumerate(chain) if block not in seen), len(chain)))
        seen.update(chain)
    return 1 + shared[1:].count(min(shared[1:], default=0))


def _templates(prefixes: Prefixes, stream: Ints, input_tokens: Ints, level: Floats) -> Ints:
    """Return a template of each request's stream with the nearest input, -1 where the stream has none.

    `level`, 0 to 1, selects among templates of equal input. All arrays have the shape (requests,).
    """
    template = np.full(stream.size, -1)
    for of in range(prefixes.first_template.size - 1):
        begin, end = prefixes.first_template[of : of + 2]
        in_stream = np.flatnonzero(stream == of)
        if begin == end or not in_stream.size:
            continue
        known, wanted = prefixes.input_tokens[begin:end], input_tokens[in_stream]
        above = np.minimum(np.searchsorted(known, wanted), known.size - 1)
        below = np.maximum(above - 1, 0)
        nearest = np.where(wanted - known[below] < known[above] - wanted, known[below], known[above])
        low, high = (np.searchsorted(known, nearest, side) for side in ("left", "right"))
        template[in_stream] = begin + low + (level[in_stream] * (high - low)).astype(np.int64)
    return template


def _find_sharer(so_far: Blocks, family: list[int], lag: int, shared: int, wanted: tuple[int, int]) -> int:
    """Find a request about `lag` back in the family that is the latest to have its first `shared` blocks.

    Of several, the one most similar to the `wanted` number of blocks and of requests with the shared blocks.
    The search is widened to MOST_NEAR while none is similar enough (LIKE). Return -1 where there is none.
    """
    middle, near, best, chosen = len(family) - max(lag, 1), int(NEAR_LAG_SHARE * lag), np.inf, -1
    while middle >= 0:
        low, high = max(middle - near, 0), min(middle + near + 1, len(family))
        found = np.array(family[low:high])
        blocks = so_far.first[found + 1] - so_far.first[found]
        goes_further = blocks >= min(wanted[0], shared + BRANCH)
        found, blocks = found[goes_further], blocks[goes_further]
        last = so_far.known_by[so_far.first[found] + shared - 1]
        is_latest = so_far.latest[last] == found
        if is_latest.any():
            longer = np.log(blocks[is_latest] / wanted[0])
            more_used = np.log(so_far.uses[last[is_latest]] / wanted[1])
            difference = np.abs(longer) + np.abs(more_used)
            if difference.min() < best:
                best, chosen = difference.min(), int(found[is_latest][difference.argmin()])
        if best <= LIKE or (low == 0 and high == len(family)) or near > MOST_NEAR:
            break
        near = 4 * near + 1
    return chosen


def _mixed(numbers: BlockHashes) -> BlockHashes:
    """Hash numbers one to one (the finaliser of SplitMix64), same shape."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
