"""Hashes of the blocks that answers fill, from what a trace says of prompts and sessions.

An engine keeps the blocks of an answer as it keeps those of a prompt: the next turn of a conversation finds
them, and until then they fill memory. A trace has hashes of prompts alone. But the prompt of the next turn
holds the answer: its blocks after those of the earlier prompt are the blocks of that answer. So the trace
must say which requests are turns of one session (`session_id`). Where it does not, or the next turn does not
continue the prompt, an answer gets hashes of its own, which no prompt has.
"""

from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Bools, Ints


class RequestBlocks(NamedTuple):
    """Hashes of the blocks of requests: those of request r are hashes[first_hash[r] : first_hash[r + 1]]."""

    first_hash: Ints  # (R + 1,)
    hashes: Ints  # (blocks,) of a block and all before it


def append_answer_blocks(
    prompts: RequestBlocks, session: Ints, input_tokens: Ints, output_tokens: Ints, block_tokens: int
) -> RequestBlocks:
    """Return the whole blocks of prompt and answer of each request, in order of arrival.

    prompts : hashes of the prompts' blocks
    session : shape (R,), a number of the session, or -1 where it is not known
    input_tokens, output_tokens : shape (R,)
    block_tokens : tokens of a block

    The last token of an answer is never cached. A request without hashes of all whole blocks of its prompt
    gets none of its answer.
    """
    known = np.minimum(np.diff(prompts.first_hash), input_tokens // block_tokens)
    whole = (input_tokens.astype(np.int64) + output_tokens - 1) // block_tokens
    blocks = np.where(known == input_tokens // block_tokens, whole, known)
    behind = next_turns(session)
    is_continued = holds_turn(prompts, known, behind, input_tokens, output_tokens)
    first = np.concatenate([[0], np.cumsum(blocks)])
    row = np.repeat(np.arange(blocks.size), blocks)
    place = np.arange(first[-1]) - first[row]
    source = np.where(place < known[row], row, behind[row])
    is_known = (place < known[row]) | (is_continued[row] & (place < known[behind[row]]))
    own = np.arange(row.size) + (prompts.hashes.max(initial=-1) + 1)
    hashes = own.astype(np.int64)
    hashes[is_known] = prompts.hashes[prompts.first_hash[source[is_known]] + place[is_known]]
    return RequestBlocks(first, hashes)


def next_turns(session: Ints) -> Ints:
    """Return the row of the next request of each request's session, shape (R,); -1 where there is none."""
    order = np.argsort(session, kind="stable")
    behind = np.full(session.size, -1)
    is_same = (session[order[:-1]] == session[order[1:]]) & (session[order[:-1]] >= 0)
    behind[order[:-1][is_same]] = order[1:][is_same]
    return behind


def holds_turn(
    prompts: RequestBlocks, known: Ints, behind: Ints, input_tokens: Ints, output_tokens: Ints
) -> Bools:
    """Return whether the next turn's prompt begins with the request's prompt and has room for its answer.

    All arrays have the shape (R,). The hash of a prompt's last whole block stands for all blocks before it.
    """
    last = known - 1
    is_comparable = (behind >= 0) & (last >= 0) & (known[behind] > last)
    own = prompts.hashes[(prompts.first_hash[:-1] + last)[is_comparable]]
    others = prompts.hashes[(prompts.first_hash[behind] + last)[is_comparable]]
    is_held = is_comparable.copy()
    is_held[is_comparable] = own == others
    return is_held & (input_tokens[behind] >= input_tokens + output_tokens)
