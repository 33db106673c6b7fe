"""A lower bound of the time that engines need for a window of requests, without a replay.

A step with c prompt tokens and B decoding requests, whose caches have k tokens, takes (models/replay)

    T(c, B, k) = T0(c, B) + g k        T0(c, B) = max(prefill(c + B), f[B]), f[B] without prompt tokens

The requests have C prompt tokens to compute, D tokens to decode, and K cached tokens, summed over the decode
steps. Whatever the steps are, they take at least the value of the linear program

    min sum_t y_t T0(c_t, B_t) + g K    with  sum y c >= C,  sum y B >= D,  sum y k >= K,  k <= M

over numbers of steps y_t, with c + B within the token budget, B within the batch, and M the tokens that fit
into memory. With k draft tokens in a step of a request, of which a are accepted on average, B requests
compute B (1 + k) tokens; D and K are then a (1 + a)-th, which holds over many steps. Each feasible point of
its dual is a bound, so a grid of duals (mu, w) is enough:

    mu C + nu D + w K + g K    with  nu = min over (c, B >= 1) of (T0(c, B) - mu c - w M) / B >= 0
                               and   mu <= min over c of prefill(c) / c

The bound of a fleet has all its instances busy from the first arrival to the moment when the work is due
(fleet_trials.py, due_works).
"""

from math import ceil
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.configure.engine_points import EngineMarket, EnginePoint, EngineShape
from fleetcast.models.latency.pipeline_stages import deployment_profile
from fleetcast.models.latency.profile_tables import drafted_step_s, profile_prefill_s
from fleetcast.models.world.catalogue_entries import LatencyProfile

DUALS = 12  # of prompt tokens
MEMORY_DUALS = (0.0, 0.3, 0.6, 0.9)  # of cached tokens, as shares of a step of one request
GRID_SHARE = 0.99  # the steps of the grid may miss the cheapest one by a little


class TokenWork(NamedTuple):
    """The tokens of a window of requests."""

    prompt_tokens: float  # C, to compute
    decode_tokens: float  # D
    cached_tokens: float  # K, summed over decode steps
    busy_s: float  # seconds in which the work is done at the latest


class StepGrid(NamedTuple):
    """Steps of an engine; all arrays have shape (steps,)."""

    prompt_tokens: Floats
    batch: Floats
    seconds: Floats  # T0


def list_steps(
    profile: LatencyProfile, max_batch: int, token_budget: int, drafts: int, draft_s: float
) -> StepGrid:
    """Return steps at the knots of a profile, within the batch and the budget.

    `drafts`: draft tokens of each decoding request, made in `draft_s` seconds each.
    """
    knots = (*profile.decode_batch, *(profile.prefill_tokens if drafts else ()))  # of f, in tokens
    batches = np.unique([0.0, *np.clip(np.array(knots) / (1 + drafts), 1, max_batch), max_batch])
    tokens = np.unique(np.minimum([0, *profile.prefill_tokens, token_budget], token_budget)).astype(float)
    batch, total = (axis.ravel() for axis in np.meshgrid(batches, tokens))
    decoded = batch * (1 + drafts)
    chunk = np.maximum(total - decoded, 0.0)
    passes_s = np.where(chunk > 0, profile_prefill_s(profile, chunk + decoded), 0.0)
    decode_s = drafted_step_s(profile, batch, drafts, drafts * draft_s)
    seconds = np.maximum(passes_s, np.where(batch > 0, decode_s, 0.0))
    is_step = seconds > 0
    return StepGrid(chunk[is_step], batch[is_step], seconds[is_step])


def busy_bound_s(steps: StepGrid, work: TokenWork, kv_token_s: float, kv_tokens: int) -> float:
    """Return the least seconds in which one engine does the work; `kv_token_s` is g, `kv_tokens` M."""
    chunk, batch, seconds = steps
    alone, decodes = (batch == 0) & (chunk > 0), batch > 0
    highest = float((seconds[alone] / chunk[alone]).min()) if alone.any() else np.inf
    if work.prompt_tokens == 0 or not np.isfinite(highest):
        highest = 0.0
    best_s = highest * work.prompt_tokens
    if work.decode_tokens > 0 and decodes.any():
        mu = np.linspace(0.0, highest, DUALS)[:, None, None]
        w = np.array(MEMORY_DUALS)[None, :, None] * seconds[decodes].min() / kv_tokens
        left_s = seconds[decodes] - mu * chunk[decodes] - w * kv_tokens
        nu = (left_s / batch[decodes]).min(axis=2)
        values = mu[..., 0] * work.prompt_tokens + nu * work.decode_tokens + w[..., 0] * work.cached_tokens
        best_s = max(best_s, float(np.where(nu >= 0, values, 0.0).max()))
    return GRID_SHARE * best_s + kv_token_s * work.cached_tokens


def shape_busy_s(market: EngineMarket, point: EnginePoint, shape: EngineShape, work: TokenWork) -> float:
    """Return the least busy seconds of instances of a shape with a point's settings.

    Data-parallel ranks share the work at best evenly, and never wait for one another.
    """
    served, degrees = market.served_catalogue(point, shape), (shape.tensor_parallel, shape.pipeline_parallel)
    profile = deployment_profile(served, market.llm, shape.gpu, *degrees)
    settings, rates = point.settings, point.settings.speculative_acceptance
    steps = list_steps(
        profile,
        settings.max_batch,
        settings.token_budget,
        len(rates),
        settings.speculative_draft_s,
    )
    made = 1 + sum(rates)
    work = work._replace(decode_tokens=work.decode_tokens / made, cached_tokens=work.cached_tokens / made)
    kv_tokens = market.kv_tokens(point, shape)
    if point.settings.prefix == "blocks":  # requests share memory: a step may read more than fits
        kv_tokens = max(kv_tokens, ceil(work.cached_tokens))
    busy_s = busy_bound_s(steps, work, profile.decode_per_kv_token_s, kv_tokens)
    return busy_s / shape.data_parallel_size
