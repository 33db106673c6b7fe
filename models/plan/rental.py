"""What may be rented and what was chosen: the common part of programmes that pick GPUs for a standing load.

Axes: n options (a deployment, or a combo of some), g GPU types, b buckets of requests (a workload, or those
of like input and output).
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


class RentalOffer(NamedTuple):
    """What may be rented."""

    options: tuple[str, ...]  # (n)
    gpus: tuple[str, ...]  # (g)
    usd_per_hour: Floats  # (n,) [P] of one option, all its GPUs
    uses: Ints  # (n, g) GPUs of each type that one holds
    cap_gpus: Ints  # (g,) [G] that there are


class RentalPlan(NamedTuple):
    """What a programme chose."""

    programme: str
    counts: Ints  # (n,), or (b, n) where each bucket has a fleet of its own [x]
    shares: Floats  # (b, n) of a bucket's requests that an option serves [y]
    unserved_per_s: Floats  # (b,) requests/s for which no GPU is left [z]
    usd_per_hour: float
    gap_share: float  # that the objective may lie above the best one
    seconds: float

    @property
    def counts_by_option(self) -> Ints:
        """How many of each option, shape (n,)."""
        return self.counts.sum(axis=0) if self.counts.ndim == 2 else self.counts


def require_valid_offer(offer: RentalOffer, goodput: Floats, rates: Floats) -> None:
    """PlanError for a price that is none, a bucket without traffic, and one that no option can serve."""
    for name, usd in zip(offer.options, offer.usd_per_hour, strict=True):
        if not (np.isfinite(usd) and usd >= 0):
            raise PlanError(f"{name}: got a price of {usd} USD an hour, needed one >= 0. Mend the prices.")
    for b, rate in enumerate(rates):
        if not (np.isfinite(rate) and rate > 0):
            raise PlanError(f"Bucket {b + 1} has {rate:g} requests/s: nothing to rent for. Leave it out.")
        if not (goodput[b] > 0).any():
            raise PlanError(
                f"Bucket {b + 1}: none of {', '.join(offer.options) or 'no option'} serves it within its "
                "targets. Loosen them, or offer larger GPUs."
            )


def add_gpu_limits(lp: Any, offer: RentalOffer, counts: Iterable[tuple[int, Any]]) -> None:
    """(cap) The GPUs of each type that all chosen options hold; `counts`: option and variable."""
    held = list(counts)
    for g, cap in enumerate(offer.cap_gpus):
        terms: LinearTerms = [(x, int(offer.uses[n, g])) for n, x in held if offer.uses[n, g]]
        if terms and cap < NO_GPU_CAP:
            lp += linear_sum(terms) <= int(cap), f"cap_{g}"


def limit_offer(offer: RentalOffer, most: Ints) -> RentalOffer:
    """The same offer, with no more of each option than `most`, shape (n,)."""
    own = tuple(f"places for {name}" for name in offer.options)
    uses = np.hstack([offer.uses, np.eye(len(own), dtype=np.int64)])
    return offer._replace(
        gpus=(*offer.gpus, *own), uses=uses, cap_gpus=np.concatenate([offer.cap_gpus, most])
    )


def option_prices(offer: RentalOffer, goodput: Floats) -> Floats:
    """The price of an option in every bucket, shape (b, n)."""
    return np.broadcast_to(offer.usd_per_hour, goodput.shape)


def unserved_penalty_usd(usd: Floats, goodput: Floats) -> Floats:
    """What a request/s that is not served weighs, shape (b,): far above the dearest capacity for it."""
    each = np.divide(1.0 + np.abs(usd), goodput, out=np.zeros_like(goodput), where=goodput > 0)
    return UNSERVED_PENALTY * each.max(axis=1)


def describe_shortage(offer: RentalOffer, rented: RentalPlan, rates: Floats, names: Iterable[str]) -> str:
    """Who is short and by how much, in a line; "" where nobody is."""
    short = [
        f"{name} of {missing:.3g} of {rate:.3g} requests/s"
        for name, missing, rate in zip(names, rented.unserved_per_s, rates, strict=True)
        if missing > TOLERANCE * rate
    ]
    caps = ", ".join(
        f"{cap} {gpu}" for gpu, cap in zip(offer.gpus, offer.cap_gpus, strict=True) if cap < NO_GPU_CAP
    )
    return f"The caps ({caps}) are short: {'; '.join(short)}. Raise them." if short else ""
