"""Prompts that begin like earlier ones: block hashes for the requests of a made trace.

A hash stands for a block and all before it, so prompts form trees. Each request of the original is a
template: how many blocks its prompt has, how many of them an earlier request had already, how many requests
ago the latest of these was, and how long and how often shared it was. A made request takes the template
whose input is nearest to its own, goes as far back among its like as that one did, shares as many blocks, and
goes on with new ones: the share of blocks that repeat is that of the original by construction, and sessions
grow as there.

The like of a request are those of its stream (an llm and an app); where a hundredth of a stream or more
begins with the same block, as with a system prompt, those that begin with it, and they all do. What lies
before the first request of a day is taken from the original itself, so that a day depends on no other.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.traffic.drawing import Floats, Integers

Hashes = NDArray[np.uint64]
COMMON_SHARE = 0.01  # of a stream's requests, from which on a first block is a family of its own
NEAR_SHARE = 0.125  # of the lag: among so many to each side the one most alike in length is taken


class Prefixes(NamedTuple):
    """The templates, by stream and in it by input tokens."""

    first_template: Integers  # (streams + 1,)
    input_tokens: Integers  # (templates,), as all but the last
    blocks: Integers
    shared: Integers  # of these, with an earlier request
    lag: Integers  # requests back to the latest that shares them, among its like
    rest: Integers  # blocks that that one had beyond them
    uses: Integers  # requests that shared the last of them before
    family: Integers  # whose like it is
    first_hash: Integers  # (templates + 1,)
    hashes: Hashes  # of the original


class Lines(NamedTuple):
    """The requests of a day so far, each of shape (requests,)."""

    blocks: Integers
    uses: Integers  # how many share the prompt, itself included
    is_shared: NDArray[np.bool_]  # with a later one, which holds the blocks from then on


def fit(stream: Integers, input_tokens: Integers, first_hash: Integers, hashes: Hashes) -> Prefixes:
    """Templates of requests in the order of their arrival.

    Parameters
    ----------
    stream : Integers
        0, 1, ... of each request, shape (requests,).
    first_hash, hashes : Integers, Hashes
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
        family=family[order],
        first_hash=begins,
        hashes=hashes[at],
    )


def draw(
    prefixes: Prefixes, stream: Integers, input_tokens: Integers, ids: Hashes, rng: np.random.Generator
) -> tuple[Integers, Hashes]:
    """Where the hashes of each request begin, shape (requests + 1,), and all of them; in order of arrival.

    A request of the stream -1, or whose template has no hash, has none.
    """
    template = _templates(prefixes, stream, input_tokens, rng.random(stream.size))
    of = np.maximum(template, 0)
    scale = input_tokens / np.maximum(prefixes.input_tokens[of], 1)
    blocks = np.where(prefixes.blocks[of] > 0, np.maximum(np.rint(prefixes.blocks[of] * scale), 1), 0)
    blocks = np.where(template < 0, 0, blocks).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(blocks)])
    place = np.arange(first[-1]) - np.repeat(first[:-1], blocks)
    made = _mixed(_mixed(np.repeat(ids, blocks)) + place.astype(np.uint64))
    lines = Lines(blocks, np.ones(blocks.size, np.int64), np.zeros(blocks.size, bool))
    went: dict[int, list[int]] = {}  # the requests so far, by family
    for request in np.flatnonzero(blocks).tolist():
        one = template[request]
        shared = min(int(prefixes.shared[one]), int(blocks[request]))
        like = went.setdefault(int(prefixes.family[one]), [])
        if shared:
            wanted = shared + int(prefixes.rest[one]), max(int(prefixes.uses[one]), 1)
            sharer = _sharer(lines, like, int(prefixes.lag[one]), shared, wanted)
            if sharer < 0:
                source, begin = prefixes.hashes, prefixes.first_hash[one]
            else:
                source, begin = made, first[sharer]
                if 2 * shared > blocks[sharer]:  # it goes on where that one stood
                    lines.uses[request] = lines.uses[sharer] + 1
                    lines.is_shared[sharer] = True
            made[first[request] : first[request] + shared] = source[begin : begin + shared]
        like.append(request)
    return first, made


def _families(stream: Integers, first_hash: Integers, hashes: Hashes) -> Integers:
    """Of each request: its stream, or a number above those of the streams where its first block is common."""
    family, number = stream.copy(), int(stream.max(initial=-1)) + 1
    has = np.flatnonzero(np.diff(first_hash))
    for of in np.unique(stream):
        own = has[stream[has] == of]
        _, which, counts = np.unique(hashes[first_hash[own]], return_inverse=True, return_counts=True)
        common = np.flatnonzero(counts >= max(COMMON_SHARE * own.size, 10))
        for root in common:
            family[own[which == root]] = number
            number += 1
    return family


def _templates(prefixes: Prefixes, stream: Integers, input_tokens: Integers, level: Floats) -> Integers:
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


def _sharer(lines: Lines, like: list[int], lag: int, shared: int, wanted: tuple[int, int]) -> int:
    """The request about `lag` back with the blocks to share, of those not shared yet; -1 for none.

    Of several the one that is most like the wanted in blocks and in requests that share its prompt.
    """
    middle, near = len(like) - max(lag, 1), int(NEAR_SHARE * lag)
    while middle >= 0:
        low, high = max(middle - near, 0), min(middle + near + 1, len(like))
        there = np.array(like[low:high])
        there = there[(lines.blocks[there] >= shared) & ~lines.is_shared[there]]
        if there.size:
            longer = np.log(lines.blocks[there] / wanted[0])
            oftener = np.log(lines.uses[there] / wanted[1])
            return int(there[np.argmin(np.abs(longer) + np.abs(oftener))])
        if low == 0 and high == len(like):
            break
        near = 4 * near + 1
    return -1


def _mixed(numbers: Hashes) -> Hashes:
    """Numbers that look random, one for one (the finaliser of SplitMix64)."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
