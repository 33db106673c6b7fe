"""Errors of latency profiles, and catalogues sampled with such errors.

A profile's seconds times exp(bias + sigma * z), z standard normal, are those of the engine. For a computed
profile bias and sigma are those of its kind (data/catalogue/engine.toml): the bias is the median of
log(measured / replayed) over runs of its engine, and 90 % of them are within NINETY_SIGMAS * sigma of it. For
a profile of latency.toml the bias is 0 and sigma is e / MEDIAN_SIGMAS, where e is the median of
|predicted - measured| / measured on points that were not fitted. `python tests/bench/wall_fit.py` fits the
kinds, and prints how many runs lie inside the intervals that other llms, or other GPU types, give.

All knots of a part get the same factor, as if the whole error were a bias. This is the cautious assumption:
errors that differ between sizes average out over a day. A profile has two factors, one for prefill and one
for decode. They were measured separately; prefill depends on compute, decode on bandwidth; prefill changes
the first token, decode changes how long a request fills memory. Errors of deployments are independent.
"""

import functools
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from scipy.special import chndtrix

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.aiconfigurator_package import CORE_PACKAGE
from fleetcast.models.latency.composed_profiles import PARTLY_COMPOSED
from fleetcast.models.latency.roofline import context_token_s
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import VLLM, ErrorLaw, LatencyProfile, PhaseErrors
from fleetcast.models.world.fleet_config import Deployment

MEDIAN_SIGMAS = NormalDist().inv_cdf(0.75)  # the median of |z|, 0.6745
NINETY_SIGMAS = NormalDist().inv_cdf(0.95)  # half the width of a 90 % interval, 1.645
LEAST_ERROR_DRAWS, MOST_ERROR_DRAWS = 2, 1000
DIGITS = 7  # of the seconds of a calibrated profile
ESTIMATED, COMPOSED = "estimated", "composed"


class ProfileError(NamedTuple):
    """Origin of a profile, and the laws of the errors of its phases."""

    profile: LatencyProfile
    kind: str  # measured, calibrated, composed (in part) from kernels or stages, estimated by the roofline
    prefill: ErrorLaw
    decode: ErrorLaw

    @property
    def prefill_share(self) -> float:
        """Median error of prefill."""
        return median_error_share(self.prefill)

    @property
    def decode_share(self) -> float:
        """Median error of a decode step."""
        return median_error_share(self.decode)

    @property
    def worst(self) -> ErrorLaw:
        """Law of the phase whose 90 % interval reaches further from no error."""
        return max(self.prefill, self.decode, key=ninety_reach)


def unbiased_law(share: float) -> ErrorLaw:
    """Return the law without bias whose median error is `share`."""
    return ErrorLaw(0.0, share / MEDIAN_SIGMAS)


def median_error_share(law: ErrorLaw) -> float:
    """Return the median of |bias + sigma * z|: its square over sigma^2 is a noncentral chi-squared number."""
    if law.sigma == 0:
        return abs(law.bias)
    return law.sigma * math.sqrt(chndtrix(0.5, 1, (law.bias / law.sigma) ** 2))


def ninety_reach(law: ErrorLaw) -> float:
    """Return how far the 90 % interval of a law reaches from no error, as a logarithm."""
    return abs(law.bias) + NINETY_SIGMAS * law.sigma


@functools.cache
def normal_middles(count: int) -> Floats:
    """Return the standard normal quantiles at the middles of `count` equal parts, shape (count,)."""
    return np.array([NormalDist().inv_cdf((n + 0.5) / count) for n in range(count)])


def errors_in_use(
    catalogue: Catalogue, deployments: Iterable[tuple[str, Sequence[Deployment]]]
) -> list[ProfileError]:
    """Return the error of every profile that the pools of these llms use, each once.

    A computed profile has the error of its kind; one composed of pipeline stages, and one whose kernels were
    not all timed, that of the roofline.
    """
    found: dict[LatencyProfile, tuple[Catalogue, int]] = {}
    for llm, pools in deployments:
        for pool in pools:
            served = catalogue.as_served(llm, pool.llm_changes)
            profile = served.profile(llm, pool.gpu, pool.tensor_parallel)
            stages = max(pool.pipeline_parallel, found[profile][1] if profile in found else 1)
            found[profile] = served, stages
    return [_profile_error(served, profile, stages) for profile, (served, stages) in found.items()]


def catalogue_errors(catalogue: Catalogue) -> list[ProfileError]:
    """Return the error of every profile of a catalogue, each with one stage."""
    return [_profile_error(catalogue, profile, 1) for profile in catalogue.latency]


def _profile_error(catalogue: Catalogue, profile: LatencyProfile, stages: int) -> ProfileError:
    kind = profile_kind(profile)
    if stages == 1 and (decode := profile.median_error_share) is not None:
        prefill = profile.prefill_median_error_share
        shares = decode if prefill is None else prefill, decode
        return ProfileError(profile, kind, *map(unbiased_law, shares))
    name = kind if has_timed_kernels(profile) or kind == PARTLY_COMPOSED else ESTIMATED
    laws = _computed_errors(catalogue, profile, stages)
    return ProfileError(profile, COMPOSED if stages > 1 else name, laws.prefill, laws.decode)


def _computed_errors(catalogue: Catalogue, profile: LatencyProfile, stages: int) -> PhaseErrors:
    """Return the laws that measured runs gave computed profiles of this kind."""
    engine, arch = catalogue.engine, catalogue.llms[profile.llm]
    is_dense = arch.experts is None
    if stages > 1 or not has_timed_kernels(profile):
        return engine.roofline_dense if is_dense else engine.roofline_mixture
    if profile_kind(profile) == COMPOSED:
        return engine.composed
    if arch.backend != VLLM:
        laws: PhaseErrors = getattr(engine, f"{arch.backend}_{'dense' if is_dense else 'mixture'}")
        return laws
    return engine.package_dense if is_dense else engine.package_mixture


def profile_kind(profile: LatencyProfile) -> str:
    """Return the first words of a profile's source, up to the colon."""
    return profile.source.partition(":")[0]


def has_timed_kernels(profile: LatencyProfile) -> bool:
    """Whether all kernels of a computed profile were timed on its GPU type."""
    return profile_kind(profile) in (COMPOSED, CORE_PACKAGE)


def error_factors(error: ProfileError, draws: int, seed: int) -> Floats:
    """Return factors of a profile's seconds, shape (draws, 2): prefill, decode.

    The draws are the quantiles of the law at the middles of equal parts, shuffled. So a dozen draws already
    have its spread, and the mean of their logarithms is its bias. The factors of a deployment do not depend
    on the others.

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
    z = normal_middles(draws)
    shuffled = np.stack([rng.permutation(z), rng.permutation(z)], axis=1)
    bias, sigma = np.array([(law.bias, law.sigma) for law in (error.prefill, error.decode)]).T
    return np.exp(bias + sigma * shuffled)


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
    """Return half a line with the kinds of the profiles in use: median errors, and biases of 1 % or more."""
    parts = []
    for kind in dict.fromkeys(error.kind for error in errors):
        of_kind = [error for error in errors if error.kind == kind]
        shares = [share for error in of_kind for share in (error.decode_share, error.prefill_share)]
        names = ", ".join(dict.fromkeys(error.profile.llm for error in of_kind))
        biases = dict.fromkeys(_describe_bias(error.decode) for error in of_kind)
        parts.append(f"{names} {kind}, {_percent_range(shares)} % off{'; '.join(biases)}")
    return "; ".join(parts)


def _describe_bias(law: ErrorLaw) -> str:
    """Say how far the profile's decode steps are off in the median of engines; "" for less than 1 %."""
    percent = 100 * abs(np.expm1(-law.bias))
    return "" if percent < 1 else f" (steps {percent:.0f} % too {'short' if law.bias > 0 else 'long'})"


def _percent_range(shares: Sequence[float]) -> str:
    """Return the least and the largest share in percent, once if they read alike."""
    low, high = f"{100 * min(shares):.0f}", f"{100 * max(shares):.0f}"
    return low if low == high else f"{low} to {high}"
