"""How far latency profiles may be off, and draws of profiles that are off by so much.

The error of a profile is a median of |predicted - measured| / measured where nothing was fitted. A factor
exp(e / MEDIAN_SIGMAS * z), z standard normal, is off by e in the median; for the roofline that makes 26 % at
the 90th percentile, where the measurements have 38 %: its tails are heavier than those of the law.

All knots of a part move by one factor, as if the whole error were a bias. That is the cautious reading: what
differs from one size to the next averages out over a day. A profile has two factors, one for prefill and one
for decode: they were measured apart, one hangs on compute and the other on bandwidth, and they do different
things, to the first token and to how long a request fills memory. Deployments err apart from each other.
"""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.composed_profiles import PARTLY_COMPOSED
from fleetcast.models.latency.roofline import roofline_context_token_s
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile
from fleetcast.models.world.fleet_config import Deployment

MEDIAN_SIGMAS = NormalDist().inv_cdf(0.75)  # the median of |z|, 0.6745
LEAST_ERROR_DRAWS, MOST_ERROR_DRAWS = 2, 1000
ESTIMATED, COMPOSED = "estimated", "composed"


class ProfileError(NamedTuple):
    """How a profile in use came about, and the median error of each of its parts."""

    profile: LatencyProfile
    kind: str  # measured, calibrated, composed (in part) of kernels or stages, estimated by the roofline
    prefill_share: float
    decode_share: float


def errors_in_use(
    catalogue: Catalogue, deployments: Iterable[tuple[str, Sequence[Deployment]]]
) -> list[ProfileError]:
    """The error of every profile that the pools of these llms run on, each once.

    Where a profile does not tell its error, and where one is composed of stages that nobody measured
    together, it is that of the roofline.
    """
    stages: dict[LatencyProfile, int] = {}
    for llm, pools in deployments:
        for pool in pools:
            profile = catalogue.profile(llm, pool.gpu, pool.tensor_parallel)
            stages[profile] = max(pool.pipeline_parallel, stages.get(profile, 1))
    return [_error(catalogue, profile, depth) for profile, depth in stages.items()]


def catalogue_errors(catalogue: Catalogue) -> list[ProfileError]:
    """The error of every profile of a catalogue, each of one stage."""
    return [_error(catalogue, profile, 1) for profile in catalogue.latency]


def _error(catalogue: Catalogue, profile: LatencyProfile, stages: int) -> ProfileError:
    roofline = catalogue.efficiency.median_error_share
    if stages > 1:
        return ProfileError(profile, COMPOSED, roofline, roofline)
    if profile.median_error_share is None:
        kind = PARTLY_COMPOSED if profile.source.startswith(PARTLY_COMPOSED) else ESTIMATED
        return ProfileError(profile, kind, roofline, roofline)
    decode, prefill = profile.median_error_share, profile.prefill_median_error_share
    kind = profile.source.partition(":")[0]
    return ProfileError(profile, kind, decode if prefill is None else prefill, decode)


def error_factors(error: ProfileError, draws: int, seed: int) -> Floats:
    """What a profile's seconds are multiplied by, shape (draws, 2): prefill, decode.

    The draws are the quantiles of the law in the middles of as many equal parts, shuffled: even a dozen have
    its spread, and their logarithms add up to nothing. A deployment has the same whatever else is deployed.

    Raises ValueError for fewer than LEAST_DRAWS, which have no spread, or more than MOST_DRAWS.
    """
    if not LEAST_ERROR_DRAWS <= draws <= MOST_ERROR_DRAWS:
        raise ValueError(
            f"draws is {draws}, must be {LEAST_ERROR_DRAWS} to {MOST_ERROR_DRAWS}. A dozen will do."
        )
    of = error.profile
    name = zlib.crc32(f"{of.llm} {of.gpu} {of.tensor_parallel}".encode())
    rng = np.random.default_rng([seed, name, 0xE44])
    z = np.array([NormalDist().inv_cdf((n + 0.5) / draws) for n in range(draws)])
    shuffled = np.stack([rng.permutation(z), rng.permutation(z)], axis=1)
    return np.exp(np.array([error.prefill_share, error.decode_share]) / MEDIAN_SIGMAS * shuffled)


def sample_catalogues(
    catalogue: Catalogue, errors: Sequence[ProfileError], draws: int, seed: int
) -> list[Catalogue]:
    """The catalogue in each draw: other seconds in the profiles in use, all else the same."""
    of_draws = [error_factors(error, draws, seed) for error in errors]
    worlds = []
    for draw in range(draws):
        moved = {
            error.profile: scale_profile(catalogue, error.profile, *of[draw])
            for error, of in zip(errors, of_draws, strict=True)
        }
        worlds.append(replace(catalogue, latency=tuple(moved.get(p, p) for p in catalogue.latency)))
    return worlds


def scale_profile(
    catalogue: Catalogue, profile: LatencyProfile, prefill: float, decode: float
) -> LatencyProfile:
    """The profile with its prefill and its decode so many times as slow; context is a part of prefill."""
    context_s = profile.prefill_per_context_token_s
    if context_s is None:  # it would be estimated without the factor
        llm, gpu = catalogue.llms[profile.llm], catalogue.gpus[profile.gpu]
        context_s = roofline_context_token_s(llm, gpu, profile.tensor_parallel, catalogue.efficiency)
    return replace(
        profile,
        prefill_s=tuple(prefill * s for s in profile.prefill_s),
        prefill_per_context_token_s=prefill * context_s,
        decode_s=tuple(decode * s for s in profile.decode_s),
        decode_per_kv_token_s=decode * profile.decode_per_kv_token_s,
    )


def describe_profile_errors(errors: Sequence[ProfileError]) -> str:
    """In half a line: how the profiles in use came about, and how far each kind is off in the median."""
    parts = []
    for kind in dict.fromkeys(error.kind for error in errors):
        own = [error for error in errors if error.kind == kind]
        shares = [share for error in own for share in (error.decode_share, error.prefill_share)]
        low, high = f"{100 * min(shares):.0f}", f"{100 * max(shares):.0f}"
        names = ", ".join(dict.fromkeys(error.profile.llm for error in own))
        parts.append(f"{names} {kind}, {low if low == high else f'{low} to {high}'} % off")
    return "; ".join(parts)
