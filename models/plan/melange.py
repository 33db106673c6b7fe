"""Melange: the cheapest GPUs for slices of the requests, as a MILP (Griggs et al., 2024, section 5).

Sets       s slices of a bucket's requests, each a slice_factor-th of it, n options (GPU types), g GPU types
Data       rate[s] requests/s, tput[s,n] requests/s of an option that serves nothing else (0: none), P[n] USD
           per hour, uses[n,g] GPUs, G[g] available GPUs
Decisions  y[s,n] binary: the option serves the slice, x[n] integer >= 0, z[s] >= 0 the unserved share

min  sum P x + penalty z                    (z is added here: it is the shortage where caps are too low)
 (whole)   sum_n y + z = 1                                                                      for s
 (load)    sum_s y rate / tput <= x                                                          for n
 (cap)     sum_n uses x <= G                                                                 for g
"""

from time import perf_counter

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.plan import sageserve_plan
from fleetcast.models.plan.optimisation_model import LinearTerms, OptimisationModel, add_variables, linear_sum
from fleetcast.models.plan.problem import TOLERANCE, HourPlan, Problem
from fleetcast.models.plan.rental import (
    EXACT_SOLVER,
    RentalOffer,
    RentalPlan,
    add_gpu_limits,
    limit_offer,
    option_prices,
    require_valid_offer,
    unserved_penalty_usd,
)
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
    found = solve_model(build_melange_model(offer, rates, tput, slice_factor), options)
    shares = np.zeros(tput.shape)
    for (s, n), is_served in found.values["y"].items():
        shares[s // slice_factor, n] += is_served / slice_factor
    counts = np.array([found.values["x"][n, 0] for n in range(len(offer.options))])
    usd, unserved = float(counts @ offer.usd_per_hour), np.maximum(1 - shares.sum(axis=1), 0.0) * rates
    full_usd = usd + float(unserved @ unserved_penalty_usd(option_prices(offer, tput), tput))
    return RentalPlan(
        "melange", counts, shares, unserved, usd,
        max(full_usd - max(found.bound_usd, found.lp_bound_usd), 0.0) / max(full_usd, TOLERANCE),
        perf_counter() - started,
    )  # fmt: skip


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


def build_melange_model(
    offer: RentalOffer, rates: Floats, tput: Floats, slice_factor: int
) -> OptimisationModel:
    """Build the MILP of this file's docstring; `rates` (b,) and `tput` (b, n) in requests/s."""
    import pulp

    lp = pulp.LpProblem("melange", pulp.LpMinimize)
    slices, options = range(rates.size * slice_factor), range(len(offer.options))
    bucket = [s // slice_factor for s in slices]
    able = [(s, n) for s in slices for n in options if tput[bucket[s], n] > 0]
    y = add_variables(lp, "y", able, upper=np.ones((len(slices), len(options)), np.int64), integer=True)
    x = add_variables(lp, "x", [(n, 0) for n in options], integer=True)
    cost = linear_sum((x[n, 0], offer.usd_per_hour[n]) for n in options)
    z = add_variables(lp, "z", [(s,) for s in slices])
    penalty = unserved_penalty_usd(option_prices(offer, tput), tput)
    lp += cost + linear_sum((z[s,], penalty[bucket[s]] * rates[bucket[s]] / slice_factor) for s in slices)
    for s in slices:
        served: LinearTerms = [(y[s, n], 1) for n in options if (s, n) in y]
        lp += linear_sum([*served, (z[s,], 1)]) == 1, f"whole_{s}"
    for n in options:
        load = [
            (y[s, n], rates[bucket[s]] / slice_factor / tput[bucket[s], n]) for s in slices if (s, n) in y
        ]
        lp += linear_sum([*load, (x[n, 0], -1)]) <= 0, f"load_{n}"
    add_gpu_limits(lp, offer, ((n, x[n, 0]) for n in options))
    return OptimisationModel(lp, cost, {"y": y, "x": x})
