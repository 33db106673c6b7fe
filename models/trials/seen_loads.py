"""The loads that a log of an engine has, and what stands in a profile for larger batches.

A log shows nothing of batches that it never had. A curve that is fitted to it would continue by chance. So
the fitted knots end with the largest batch of the log, and above it the profile is the computed one times the
median factor of the fitted knots. Further knots with the median leave it as it is, so that the profile
corrects other degrees (profile_order.py) by what was measured only.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.latency_errors import catalogue_errors
from fleetcast.models.latency.profile_order import (
    FACTOR_CONTEXT,
    compute_profile,
    context_step_s,
    correction_factors,
)
from fleetcast.models.trials.engine_fit import CURVE_KNOTS, LoggedRequests
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile


class SeenLoad(NamedTuple):
    """The largest loads of a log."""

    batch: int  # requests of an instance between first and last token at one time
    prompt_tokens: int  # of the longest prompt
    waiting_tokens: int  # prompt tokens of all requests without their first token at one time


def find_seen_load(requests: LoggedRequests, instances: int) -> SeenLoad:
    """Return the largest loads of a log that so many instances share."""
    waiting = most_at_once(requests.input_tokens, requests.arrival_s, requests.arrival_s + requests.ttft_s)
    return SeenLoad(
        -(-max_concurrency(requests) // instances), int(requests.input_tokens.max()), int(waiting)
    )


def max_concurrency(requests: LoggedRequests) -> int:
    """Return the largest number of requests between their first and last token at the same time."""
    first, last = requests.arrival_s + requests.ttft_s, requests.arrival_s + requests.e2e_s
    return max(1, int(most_at_once(np.ones(first.size), first, last)))


def most_at_once(amounts: npt.NDArray[Any], begin_s: Floats, end_s: Floats) -> float:
    """Return the largest sum of amounts at one time, each from its begin to its end; (n,) each."""
    times, change = np.concatenate([begin_s, end_s]), np.concatenate([amounts, -1.0 * amounts])
    order = np.lexsort((change, times))  # at equal times, those that end come first
    return float(np.cumsum(change[order]).max())


def complete_profile(
    catalogue: Catalogue, profile: LatencyProfile, seen_batch: int, max_batch: int
) -> LatencyProfile:
    """Return a fitted profile with the computed one, times the median factor, above `seen_batch`.

    Its error is that of the computed profile where most doublings up to `max_batch` were not seen: the square
    of `seen_batch` is then below it. Else it has none. Unchanged without knots above `seen_batch`.
    """
    batch = np.array(profile.decode_batch)
    if batch[-1] <= seen_batch:
        return profile
    count = int((batch <= seen_batch).sum())
    seen = replace(profile, decode_batch=profile.decode_batch[:count], decode_s=profile.decode_s[:count])
    computed = compute_profile(catalogue, profile.llm, profile.gpu, profile.tensor_parallel)
    _, factor = correction_factors(seen, computed)
    beyond = np.unique(np.geomspace(seen_batch, max_batch, CURVE_KNOTS).astype(int))[1:]
    beyond_s = factor * context_step_s(computed, beyond)
    beyond_s -= profile.decode_per_kv_token_s * beyond * FACTOR_CONTEXT
    [error] = catalogue_errors(replace(catalogue, latency=(computed,)))
    return replace(
        seen,
        decode_batch=(*seen.decode_batch, *beyond.tolist()),
        decode_s=(*seen.decode_s, *np.maximum(beyond_s, seen.decode_s[-1]).round(6).tolist()),
        median_error_share=round(error.decode_share, 4) if seen_batch**2 < max_batch else None,
    )
