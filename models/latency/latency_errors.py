"""Errors of latency profiles, and catalogues sampled with such errors.

The error of a profile is the median of |predicted - measured| / measured on points that were not fitted. A
factor exp(e / MEDIAN_SIGMAS * z), z standard normal, has a median error of e. For the roofline its 90th
percentile is 26 %, that of the measurements is 38 %: the measured errors have heavier tails than the law.

All knots of a part get the same factor, as if the whole error were a bias. This is the cautious assumption:
errors that differ between sizes average out over a day. A profile has two factors, one for prefill and one
for decode. They were measured separately; prefill depends on compute, decode on bandwidth; prefill changes
the first token, decode changes how long a request fills memory. Errors of deployments are independent.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.composed_profiles import PARTLY_COMPOSED
from fleetcast.models.latency.roofline import context_token_s
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile
from fleetcast.models.world.fleet_config import Deployment

MEDIAN_SIGMAS = NormalDist().inv_cdf(0.75)  # the median of |z|, 0.6745
LEAST_ERROR_DRAWS, MOST_ERROR_DRAWS = 2, 1000
DIGITS = 7  # of the seconds of a calibrated profile
ESTIMATED, COMPOSED = "estimated", "composed"


class ProfileError(NamedTuple):
    """Origin of a profile, and the median relative error of each of its parts."""

    profile: LatencyProfile
    kind: str  # measured, calibrated, composed (in part) from kernels or stages, estimated by the roofline
    prefill_share: float
    decode_share: float


def errors_in_use(
    catalogue: Catalogue, deployments: Iterable[tuple[str, Sequence[Deployment]]]
) -> list[ProfileError]:
    """Return the error of every profile that the pools of these llms use, each once.

    A profile without a measured error, and one composed of pipeline stages, has the error of the roofline.
    """
    stages: dict[LatencyProfile, int] = {}
    for llm, pools in deployments:
        for pool in pools:
            served = catalogue.as_served(llm, pool.llm_changes)
            profile = served.profile(llm, pool.gpu, pool.tensor_parallel)
            stages[profile] = max(pool.pipeline_parallel, stages.get(profile, 1))
    return [_profile_error(catalogue, profile, depth) for profile, depth in stages.items()]


def catalogue_errors(catalogue: Catalogue) -> list[ProfileError]:
    """Return the error of every profile of a catalogue, each with one stage."""
    return [_profile_error(catalogue, profile, 1) for profile in catalogue.latency]


def _profile_error(catalogue: Catalogue, profile: LatencyProfile, stages: int) -> ProfileError:
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
    """Return factors of a profile's seconds, shape (draws, 2): prefill, decode.

    The draws are the quantiles of the law at the middles of equal parts, shuffled. So a dozen draws already
    have its spread, and their logarithms sum to 0. The factors of a deployment do not depend on the others.

    Raises ValueError for fewer draws than LEAST_ERROR_DRAWS, which have no spread, or more than
    MOST_ERROR_DRAWS.
    """
    if not LEAST_ERROR_DRAWS <= draws <= MOST_ERROR_DRAWS:
        raise ValueError(
            f"draws is {draws}, must be {LEAST_ERROR_DRAWS} to {MOST_ERROR_DRAWS}. A dozen is enough."
        )
    profile = error.profile
    name = zlib.crc32(f"{profile.llm} {profile.gpu} {profile.tensor_parallel}".encode())
    rng = np.random.default_rng([seed, name, 0xE44])
    z = np.array([NormalDist().inv_cdf((n + 0.5) / draws) for n in range(draws)])
    shuffled = np.stack([rng.permutation(z), rng.permutation(z)], axis=1)
    return np.exp(np.array([error.prefill_share, error.decode_share]) / MEDIAN_SIGMAS * shuffled)


def sample_catalogues(
    catalogue: Catalogue, errors: Sequence[ProfileError], draws: int, seed: int
) -> list[Catalogue]:
    """Return one catalogue per draw, in which only the seconds of the profiles with errors differ."""
    factors = [error_factors(error, draws, seed) for error in errors]
    catalogues = []
    for draw in range(draws):
        scaled = {
            error.profile: scale_profile(catalogue, error.profile, *by_draw[draw])
            for error, by_draw in zip(errors, factors, strict=True)
        }
        changed = {
            key: tuple(scaled.get(p, p) for p in profiles)
            for key, profiles in catalogue.changed_latency.items()
        }
        latency = tuple(scaled.get(p, p) for p in catalogue.latency)
        catalogues.append(replace(catalogue, latency=latency, changed_latency=changed))
    return catalogues


def scale_profile(
    catalogue: Catalogue, profile: LatencyProfile, prefill: float, decode: float
) -> LatencyProfile:
    """Return the profile with its seconds times the factors of prefill (with its context) and decode."""
    return replace(
        profile,
        prefill_s=tuple(prefill * s for s in profile.prefill_s),
        prefill_per_context_token_s=prefill * context_token_s(catalogue, profile),
        expert_s=tuple(prefill * s for s in profile.expert_s),
        decode_s=tuple(decode * s for s in profile.decode_s),
        decode_per_kv_token_s=decode * profile.decode_per_kv_token_s,
    )


def calibrated_copy(
    catalogue: Catalogue,
    profile: LatencyProfile,
    prefill: float,
    decode: float,
    error_shares: Mapping[str, float],
    source: str,
) -> LatencyProfile:
    """Return `scale_profile` as a calibrated profile: seconds rounded, errors by metric, TTFT and TPOT."""
    scaled = scale_profile(catalogue, profile, prefill, decode)
    return replace(
        scaled,
        prefill_s=tuple(round(seconds, DIGITS) for seconds in scaled.prefill_s),
        decode_s=tuple(round(seconds, DIGITS) for seconds in scaled.decode_s),
        prefill_median_error_share=error_shares.get("TTFT", profile.prefill_median_error_share),
        median_error_share=error_shares.get("TPOT"),
        source=source,
    )


def describe_profile_errors(errors: Sequence[ProfileError]) -> str:
    """Return half a line with the kinds of the profiles in use, and the median errors of each kind."""
    parts = []
    for kind in dict.fromkeys(error.kind for error in errors):
        of_kind = [error for error in errors if error.kind == kind]
        shares = [share for error in of_kind for share in (error.decode_share, error.prefill_share)]
        low, high = f"{100 * min(shares):.0f}", f"{100 * max(shares):.0f}"
        names = ", ".join(dict.fromkeys(error.profile.llm for error in of_kind))
        parts.append(f"{names} {kind}, {low if low == high else f'{low} to {high}'} % off")
    return "; ".join(parts)
