"""Tables of speculative decoding: how many tokens each step of a cycle makes (engine/draft_tokens.py).

The rates of acceptance are those that vLLM reports by position: the i-th is the share of steps whose drafts 1
to i were all accepted. So a step makes more than i tokens at the i-th rate, and 1 plus their sum on average.
"""

from collections.abc import Sequence

import numpy as np

from fleetcast.models.aliases import Ints
from fleetcast.models.latency.profile_tables import LatencyTables, drafted_step_s
from fleetcast.models.replay.kernel_inputs import DRAFT_CYCLE, DraftTables
from fleetcast.models.world.catalogue_entries import LatencyProfile

CYCLE_SEED = 0x5BEC


def make_draft_tables(acceptance: Sequence[Sequence[float]], draft_s: Sequence[float]) -> DraftTables:
    """Return the tables of some kinds of instance.

    acceptance: for each kind the rate of each draft token, not rising; empty: no speculation.
    draft_s: seconds in which the drafter makes one token of each request.
    """
    tokens = np.array([len(rates) for rates in acceptance])
    made = np.array([np.concatenate([[0], np.cumsum(draw_tokens_made(rates))]) for rates in acceptance])
    summed = np.concatenate([np.zeros((len(made), 1), np.int64), np.cumsum(made[:, :-1], axis=1)], axis=1)
    steps = np.array([np.searchsorted(row, np.arange(made[:, -1].max() + 1)) for row in made])
    return DraftTables(tokens, made, summed, steps, tokens * np.array(draft_s, float))


def draw_tokens_made(rates: Sequence[float]) -> Ints:
    """Return the tokens that each step of the cycle makes, shape (DRAFT_CYCLE,), at exactly these rates."""
    quantile = np.random.default_rng(CYCLE_SEED).permutation(DRAFT_CYCLE) + 0.5
    return 1 + np.sum(quantile[:, None] < DRAFT_CYCLE * np.array(rates, float).reshape(1, -1), axis=1)


def with_drafts(
    latency: LatencyTables, profiles: Sequence[LatencyProfile], drafts: DraftTables
) -> LatencyTables:
    """Return the latency tables of steps that draft, and check 1 + k tokens of each decoding request."""
    decode_s = latency.decode_s.copy()
    for kind in np.flatnonzero(drafts.tokens).tolist():
        batch = np.arange(decode_s.shape[1])
        decode_s[kind] = drafted_step_s(profiles[kind], batch, drafts.tokens[kind], drafts.draft_s[kind])
    return latency._replace(decode_s=decode_s)
