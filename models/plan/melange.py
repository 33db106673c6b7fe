"""Melange: the cheapest GPUs for slices of the requests, as a MILP (Griggs et al., 2024, section 5).

It is the model of share_program.py, whose buckets are slices: each bucket's requests in `slice_factor` equal
parts, each served by one option. The unserved share z is not in the paper; it is for caps
that are too low.
"""

from time import perf_counter

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.plan import sageserve_plan
from fleetcast.models.plan.problem import TOLERANCE, HourPlan, Problem
from fleetcast.models.plan.rental import (
    EXACT_SOLVER,
    RentalOffer,
    RentalPlan,
    limit_goodput,
    limit_offer,
    option_prices,
    require_valid_offer,
    unserved_penalty_usd,
)
from fleetcast.models.plan.share_program import build_shares_model
from fleetcast.models.plan.solver import SolverOptions, solve_model

SLICE_FACTOR = 4  # slices of a bucket, as published


def solve_melange(
    offer: RentalOffer,
    rates: Floats,
    tput: Floats,
    slice_factor: int = SLICE_FACTOR,
    options: SolverOptions = EXACT_SOLVER,
) -> RentalPlan:
    """Return the cheapest options that serve all slices; PlanError for an invalid offer.

    Parameters
    ----------
    rates : shape (b,), requests/s
    tput : shape (b, n), requests/s of one option
    """
    started = perf_counter()
    require_valid_offer(offer, tput, rates)
    tput = limit_goodput(tput, rates)
    of_slices = np.repeat(rates / slice_factor, slice_factor), np.repeat(tput, slice_factor, axis=0)
    found = solve_model(build_shares_model(offer, *of_slices, 1.0, is_whole=True), options)
    shares = np.zeros(tput.shape)
    for (s, n), is_served in found.values["y"].items():
        shares[s // slice_factor, n] += is_served / slice_factor
    counts = np.array([found.values["x"][n, 0] for n in range(len(offer.options))])
    usd, unserved = float(counts @ offer.usd_per_hour), np.maximum(1 - shares.sum(axis=1), 0.0) * rates
    full_usd = usd + float(unserved @ unserved_penalty_usd(option_prices(offer, tput), tput))
    seconds = perf_counter() - started
    return RentalPlan("melange", counts, shares, unserved, usd, found.gap_share(full_usd), seconds)


def plan_melange_hour(problem: Problem, options: SolverOptions = EXACT_SOLVER) -> HourPlan:
    """Plan an hour with Melange: each service and region in turn, for its largest load of the hour.

    A load is one bucket. Options with a `max_option_instances` of 0 are not offered. The model has no cost of
    starting, no spot and no minimum.
    """
    started, p, gap_share = perf_counter(), problem, 0.0
    counts = np.zeros_like(p.instances_now)
    for i, j in np.ndindex(*p.instances_now.shape[:2]):
        most = np.where(p.runs[i], p.max_option_instances[i, j], 0)
        tput = np.where(most > 0, p.tokens_per_s[i], 0.0)
        rate = float(p.need_tokens_per_s[i, j].max())
        if rate > 0 and most.any():
            left = p.cap_gpus[j] - np.einsum("ik,ikg->g", counts[:, j], p.uses)
            offer = limit_offer(RentalOffer(p.options, p.gpus, p.usd_per_hour[i], p.uses[i], left), most)
            rented = solve_melange(offer, np.array([rate]), tput[None], options=options)
            counts[i, j], gap_share = rented.counts, max(gap_share, rented.gap_share)
    plan = sageserve_plan.plan_from_instances(p, counts)
    return plan._replace(
        programme="melange",
        bound_usd=plan.full_usd * (1 - gap_share),
        gap_share=gap_share,
        status="optimal" if gap_share <= max(options.gap_share, TOLERANCE) else "time_limit",
        solver=options.solver,
        seconds=perf_counter() - started,
    )
