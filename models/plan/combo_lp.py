"""How many of which combo: Cauchy's programme (eq. 16), and the two that it is held against.

Sets       b workloads, n options, g GPU types
Data       g[b,n] goodput of one option in requests/s, D[b] requests/s asked for, P[n] USD per hour,
           C[b,n] tokens per USD, uses[n,g], G[g]
Decisions  x[b,n] integer >= 0, z[b] >= 0 unserved

CO-LP      min sum P/C x + penalty z          (16): cheap and efficient options first
MC-LP      min sum P x + penalty z            what it costs, and nothing else
MCE-LP     max sum C x - penalty z            as it is written: it fills the caps with efficient options
 (serve)   sum_n g x + z >= D                                                                for b
 (cap)     sum_bn uses x <= G                                                                for g

The text's way out of a fleet that is too small ("relaxing the objective") cannot mend it: here the shortage
is a figure. At equal served demand the least cost is the most tokens per USD: CO-LP can be better than MC-LP
only where the goodputs are not true.
"""

from time import perf_counter

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.plan.optimisation_model import OptimisationModel, add_variables, linear_sum
from fleetcast.models.plan.problem import TOLERANCE, PlanError
from fleetcast.models.plan.rental import (
    EXACT_SOLVER,
    NO_GPU_CAP,
    RentalOffer,
    RentalPlan,
    add_gpu_limits,
    option_prices,
    require_valid_offer,
    unserved_penalty_usd,
)
from fleetcast.models.plan.solver import SolverOptions, solve_model

COMBO_LPS = ("co_lp", "mc_lp", "mce_lp")


def solve_combo_lp(
    programme: str,
    offer: RentalOffer,
    rates: Floats,
    goodput: Floats,
    tokens_per_usd: Floats,
    options: SolverOptions = EXACT_SOLVER,
) -> RentalPlan:
    """The best counts by one of PROGRAMMES; `rates` (b,), `goodput` and `tokens_per_usd` (b, n).

    Raises PlanError for an unknown programme, an offer that is none, and MCE-LP without a cap on every GPU.
    """
    started = perf_counter()
    if programme not in COMBO_LPS:
        raise PlanError(f"Unknown programme {programme!r}. Known: {', '.join(COMBO_LPS)}.")
    require_valid_offer(offer, goodput, rates)
    if programme == "mce_lp" and (offer.cap_gpus >= NO_GPU_CAP).any():
        raise PlanError("mce_lp rents all that there is: it needs a cap on every GPU type. Give --cap.")
    wanted = combo_lp_weights(programme, offer, tokens_per_usd)
    found = solve_model(build_combo_lp(offer, rates, goodput, wanted), options)
    counts = np.zeros(goodput.shape, np.int64)
    for key, count in found.values["x"].items():
        counts[key] = count
    served = goodput * counts
    unserved = np.maximum(rates - served.sum(axis=1), 0.0)
    whole = (wanted * counts).sum() + unserved @ unserved_penalty_usd(wanted, goodput)
    return RentalPlan(
        programme,
        counts,
        served / np.maximum(served.sum(axis=1, keepdims=True), rates[:, None]),
        unserved,
        float(counts.sum(axis=0) @ offer.usd_per_hour),
        float(max(whole - max(found.bound_usd, found.lp_bound_usd), 0.0) / max(abs(whole), TOLERANCE)),
        perf_counter() - started,
    )


def combo_lp_weights(programme: str, offer: RentalOffer, tokens_per_usd: Floats) -> Floats:
    """What one option weighs in the objective, shape (b, n)."""
    usd = option_prices(offer, tokens_per_usd)
    if programme == "mc_lp":
        return usd
    if programme == "mce_lp":
        return -tokens_per_usd / tokens_per_usd.max()  # of the best, so that penalties stay penalties
    efficiency = np.where(tokens_per_usd > 0, tokens_per_usd, np.nan)
    relative = np.nanmax(efficiency) / efficiency
    return np.nan_to_num(usd * relative, nan=0.0)  # where nothing is served, nothing may be rented


def build_combo_lp(offer: RentalOffer, rates: Floats, goodput: Floats, wanted: Floats) -> OptimisationModel:
    """The programme of this file's docstring, line by line."""
    import pulp

    lp = pulp.LpProblem("combos", pulp.LpMinimize)
    buckets, options = (range(size) for size in goodput.shape)
    serving = [(b, n) for b in buckets for n in options if goodput[b, n] > 0]
    x = add_variables(lp, "x", serving, integer=True)
    z = add_variables(lp, "z", [(b,) for b in buckets])
    penalty = unserved_penalty_usd(wanted, goodput)
    cost = linear_sum((x[key], wanted[key]) for key in x)
    lp += cost + linear_sum((z[b,], penalty[b]) for b in buckets)
    for b in buckets:
        served = [(x[b, n], goodput[b, n]) for n in options if (b, n) in x]
        lp += linear_sum([*served, (z[b,], 1.0)]) >= rates[b], f"serve_{b}"
    add_gpu_limits(lp, offer, ((n, x[b, n]) for b, n in x))
    return OptimisationModel(lp, cost, {"x": x})
