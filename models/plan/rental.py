"""Offer and plan of a GPU rental: the common part of the models that choose GPUs for a constant load.

Axes: n options (a deployment, or a combo of deployments), g GPU types, b buckets of requests (a workload, or
requests of similar input and output lengths).
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.optimisation_model import LinearTerms, linear_sum
from fleetcast.models.plan.problem import TOLERANCE, UNSERVED_PENALTY, PlanError
from fleetcast.models.plan.solver import SolverOptions

EXACT_SOLVER = SolverOptions(gap_share=0.0)
NO_GPU_CAP = 10**6  # GPUs of a type without a cap
LEAST_USED_SHARE = 1e-4  # of an option; a solver takes much smaller loads for none


class RentalOffer(NamedTuple):
    """Options that can be rented, their prices, and the available GPUs."""

    options: tuple[str, ...]  # (n)
    gpus: tuple[str, ...]  # (g)
    usd_per_hour: Floats  # (n,) [P] of one option, all its GPUs
    uses: Ints  # (n, g) GPUs of each type in one option
    cap_gpus: Ints  # (g,) [G] available GPUs


class RentalPlan(NamedTuple):
    """Options that a model chose to rent."""

    programme: str  # name of the optimisation model
    counts: Ints  # (n,), or (b, n) where each bucket has its own fleet [x]
    shares: Floats  # (b, n) of a bucket's requests that an option serves [y]
    unserved_per_s: Floats  # (b,) requests/s for which no GPU is left [z]
    usd_per_hour: float
    gap_share: float  # largest distance of the objective to the optimum
    seconds: float  # building and solving


def require_valid_offer(offer: RentalOffer, goodput: Floats, rates: Floats) -> None:
    """Check the prices of an offer and that it can serve all buckets.

    Parameters
    ----------
    goodput : shape (b, n), requests/s of one option
    rates : shape (b,), requests/s

    Raises
    ------
    PlanError : an invalid price, a bucket without traffic, or a bucket that no option can serve
    """
    for name, usd in zip(offer.options, offer.usd_per_hour, strict=True):
        if not (np.isfinite(usd) and usd >= 0):
            raise PlanError(f"{name}: got a price of {usd} USD an hour, needed >= 0. Correct the prices.")
    for b, rate in enumerate(rates):
        if not (np.isfinite(rate) and rate > 0):
            raise PlanError(f"Bucket {b + 1}: got {rate:g} requests/s, needed more than 0. Leave it out.")
        if not (goodput[b] > 0).any():
            raise PlanError(
                f"Bucket {b + 1}: none of {', '.join(offer.options) or 'no option'} serves it within its "
                "targets. Loosen them, or offer larger GPUs."
            )


def limit_goodput(goodput: Floats, rates: Floats) -> Floats:
    """Return the goodput, (b, n), at which no bucket uses less than LEAST_USED_SHARE; `rates` (b,)."""
    limited: Floats = np.minimum(goodput, rates[:, None] / LEAST_USED_SHARE)
    return limited


def add_gpu_limits(lp: Any, offer: RentalOffer, counts: Iterable[tuple[int, Any]]) -> None:
    """Add the constraint (cap): GPUs of each type in all chosen options; `counts`: option and variable."""
    variables = list(counts)
    for g, cap in enumerate(offer.cap_gpus):
        terms: LinearTerms = [(x, int(offer.uses[n, g])) for n, x in variables if offer.uses[n, g]]
        if terms and cap < NO_GPU_CAP:
            lp += linear_sum(terms) <= int(cap), f"cap_{g}"


def limit_offer(offer: RentalOffer, most: Ints) -> RentalOffer:
    """Return the offer with at most `most` of each option, shape (n,).

    Each option gets an additional GPU type of its own, of which there are `most`.
    """
    slots = tuple(f"places for {name}" for name in offer.options)
    uses = np.hstack([offer.uses, np.eye(len(slots), dtype=np.int64)])
    return offer._replace(
        gpus=(*offer.gpus, *slots), uses=uses, cap_gpus=np.concatenate([offer.cap_gpus, most])
    )


def option_prices(offer: RentalOffer, goodput: Floats) -> Floats:
    """Return USD per hour of each option for every bucket, shape (b, n) of `goodput`."""
    return np.broadcast_to(offer.usd_per_hour, goodput.shape)


def unserved_penalty_usd(usd: Floats, goodput: Floats) -> Floats:
    """Return the penalty of 1 unserved request/s, shape (b,): far above the most expensive capacity for it.

    Parameters
    ----------
    usd : shape (b, n), USD per hour of one option
    goodput : shape (b, n), requests/s of one option
    """
    each = np.divide(1.0 + np.abs(usd), goodput, out=np.zeros_like(goodput), where=goodput > 0)
    return UNSERVED_PENALTY * each.max(axis=1)


def describe_shortage(offer: RentalOffer, rented: RentalPlan, rates: Floats, names: Iterable[str]) -> str:
    """Return one line with the unserved requests/s of each bucket, empty if all are served; `rates` (b,)."""
    short = [
        f"{name} of {missing:.3g} of {rate:.3g} requests/s"
        for name, missing, rate in zip(names, rented.unserved_per_s, rates, strict=True)
        if missing > TOLERANCE * rate
    ]
    caps = ", ".join(
        f"{cap} {gpu}" for gpu, cap in zip(offer.gpus, offer.cap_gpus, strict=True) if cap < NO_GPU_CAP
    )
    return f"The caps ({caps}) are short: {'; '.join(short)}. Raise them." if short else ""
