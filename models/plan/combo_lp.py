"""Cauchy's MILP for the number of each combo (eq. 16), and the two models that the paper compares it with.

Sets       b workloads, n options, g GPU types
Data       g[b,n] goodput of one option in requests/s, D[b] demand in requests/s, P[n] USD per hour,
           C[b,n] tokens per USD, uses[n,g] GPUs, G[g] available GPUs
Decisions  x[b,n] integer >= 0, z[b] >= 0 the unserved share

CO-LP      min sum P/C x + penalty D z        (16): cheap and efficient options first
MC-LP      min sum P x + penalty D z          cost alone
MCE-LP     max sum C x - penalty D z          as published: it fills the caps with efficient options
 (serve)   sum_n g / D x + z >= 1                                                            for b
 (cap)     sum_bn uses x <= G                                                                for g

The paper's remedy for a fleet that is too small ("relaxing the objective") cannot make it feasible; here the
shortage z is part of the solution. At equal served demand the least cost gives the most tokens per USD. So
CO-LP can be better than MC-LP only where the goodputs are wrong.
"""

from time import perf_counter

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.plan.optimisation_model import OptimisationModel, add_variables, linear_sum
from fleetcast.models.plan.problem import PlanError
from fleetcast.models.plan.rental import (
    EXACT_SOLVER,
    NO_GPU_CAP,
    RentalOffer,
    RentalPlan,
    add_gpu_limits,
    limit_goodput,
    option_prices,
    require_valid_offer,
    unserved_penalty_usd,
)
from fleetcast.models.plan.solver import SolverOptions, solve_model

COMBO_LPS = ("co_lp", "mc_lp", "mce_lp")


def solve_combo_lp(
    model: str,
    offer: RentalOffer,
    rates: Floats,
    goodput: Floats,
    tokens_per_usd: Floats,
    options: SolverOptions = EXACT_SOLVER,
) -> RentalPlan:
    """Return the best number of each option by one of COMBO_LPS.

    Parameters
    ----------
    rates : shape (b,), requests/s
    goodput : shape (b, n), requests/s of one option
    tokens_per_usd : shape (b, n)

    Raises
    ------
    PlanError : an unknown model, an invalid offer, or MCE-LP without a cap on every GPU type
    """
    started = perf_counter()
    if model not in COMBO_LPS:
        raise PlanError(f"Unknown model {model!r}. Known: {', '.join(COMBO_LPS)}.")
    require_valid_offer(offer, goodput, rates)
    goodput = limit_goodput(goodput, rates)
    if model == "mce_lp" and (offer.cap_gpus >= NO_GPU_CAP).any():
        raise PlanError("mce_lp rents all available GPUs: it needs a cap on every GPU type. Give --cap.")
    weights = combo_lp_weights(model, offer, tokens_per_usd)
    found = solve_model(build_combo_lp(offer, rates, goodput, weights), options)
    counts = np.zeros(goodput.shape, np.int64)
    for key, count in found.values["x"].items():
        counts[key] = count
    served = goodput * counts
    unserved = np.maximum(rates - served.sum(axis=1), 0.0)
    objective = (weights * counts).sum() + unserved @ unserved_penalty_usd(weights, goodput)
    return RentalPlan(
        model,
        counts,
        served / np.maximum(served.sum(axis=1, keepdims=True), rates[:, None]),
        unserved,
        float(counts.sum(axis=0) @ offer.usd_per_hour),
        found.gap_share(float(objective)),
        perf_counter() - started,
    )


def combo_lp_weights(model: str, offer: RentalOffer, tokens_per_usd: Floats) -> Floats:
    """Return the weight of one option in a model's objective, shape (b, n) of `tokens_per_usd`."""
    usd = option_prices(offer, tokens_per_usd)
    if model == "mc_lp":
        return usd
    if model == "mce_lp":
        return -tokens_per_usd / tokens_per_usd.max()  # relative to the best, small against the penalties
    efficiency = np.where(tokens_per_usd > 0, tokens_per_usd, np.nan)
    relative = np.nanmax(efficiency) / efficiency
    return np.nan_to_num(usd * relative, nan=0.0)  # build_combo_lp has no x for an option that serves nothing


def build_combo_lp(offer: RentalOffer, rates: Floats, goodput: Floats, weights: Floats) -> OptimisationModel:
    """Build the MILP of this file's docstring.

    Parameters
    ----------
    rates : shape (b,), requests/s
    goodput : shape (b, n), requests/s of one option
    weights : shape (b, n), of the options in the objective
    """
    import pulp

    lp = pulp.LpProblem("combos", pulp.LpMinimize)
    buckets, options = (range(size) for size in goodput.shape)
    serving = [(b, n) for b in buckets for n in options if goodput[b, n] > 0]
    x = add_variables(lp, "x", serving, integer=True)
    z = add_variables(lp, "z", [(b,) for b in buckets])
    penalty = rates * unserved_penalty_usd(weights, goodput)
    cost = linear_sum((x[key], weights[key]) for key in x)
    lp += cost + linear_sum((z[b,], penalty[b]) for b in buckets)
    for b in buckets:
        served = [(x[b, n], goodput[b, n] / rates[b]) for n in options if (b, n) in x]
        lp += linear_sum([*served, (z[b,], 1.0)]) >= 1, f"serve_{b}"
    add_gpu_limits(lp, offer, ((n, x[b, n]) for b, n in x))
    return OptimisationModel(lp, cost, {"x": x})
