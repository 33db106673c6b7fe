"""MILP for GPUs and the share of each bucket that they serve; Melange and Cauchy are special cases.

Sets       b buckets of requests by input and output, n options (deployments and combos), g GPU types
Data       rate[b] requests/s, g[b,n] goodput in requests/s of an option that serves nothing else (0: none),
           P[n] USD per hour, uses[n,g] GPUs, G[g] available GPUs, eta utilisation target (share of goodput)
Decisions  x[n] integer >= 0, y[b,n] >= 0 shares, z[b] >= 0 the unserved share

min  sum P x + penalty z
 (whole)   sum_n y + z = 1                                                                   for b
 (load)    sum_b rate y / g <= eta x                                                         for n
 (cap)     sum_n uses x <= G                                                                 for g

With GPU types as options and binary y of slices it is Melange's model (melange.py); with one bucket it is
MC-LP. An option that serves several buckets divides its time between them. Once x is known, y and z are the
solution of an LP (`bucket_shares`).
"""

from time import perf_counter
from typing import Any

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.optimisation_model import (
    OptimisationModel,
    VariablesByKey,
    add_variables,
    linear_sum,
)
from fleetcast.models.plan.problem import TOLERANCE
from fleetcast.models.plan.rental import (
    RentalOffer,
    RentalPlan,
    add_gpu_limits,
    limit_goodput,
    option_prices,
    require_valid_offer,
    unserved_penalty_usd,
)
from fleetcast.models.plan.solver import DEFAULT_SOLVER, SOLVER_SEED, SolverOptions, solve_model


def solve_shares(
    offer: RentalOffer,
    rates: Floats,
    goodput: Floats,
    eta: float = 1.0,
    options: SolverOptions = DEFAULT_SOLVER,
) -> RentalPlan:
    """Return the cheapest options that serve all buckets; PlanError for an invalid offer.

    Parameters
    ----------
    rates : shape (b,), requests/s
    goodput : shape (b, n), requests/s of one option
    """
    started = perf_counter()
    require_valid_offer(offer, goodput, rates)
    goodput = limit_goodput(goodput, rates)
    found = solve_model(build_shares_model(offer, rates, goodput, eta), options)
    counts = np.array([found.values["x"][n, 0] for n in range(len(offer.options))])
    shares, missing = bucket_shares(offer, rates, goodput, eta, counts)
    usd = float(counts @ offer.usd_per_hour)
    full_usd = usd + float(missing @ bucket_penalty_usd(offer, rates, goodput))
    seconds = perf_counter() - started
    return RentalPlan("shares", counts, shares, missing * rates, usd, found.gap_share(full_usd), seconds)


def bucket_penalty_usd(offer: RentalOffer, rates: Floats, goodput: Floats) -> Floats:
    """Return the penalty of leaving a bucket unserved, shape (b,); `rates` (b,), `goodput` (b, n)."""
    return rates * unserved_penalty_usd(option_prices(offer, goodput), goodput)


def build_shares_model(
    offer: RentalOffer,
    rates: Floats,
    goodput: Floats,
    eta: float,
    counts: Ints | None = None,
    is_whole: bool = False,
) -> OptimisationModel:
    """Build the MILP of this file's docstring; with fixed `counts`, the LP of y and z.

    `is_whole`: one option serves all of a bucket, so y is binary.

    Parameters
    ----------
    rates : shape (b,), requests/s
    goodput : shape (b, n), requests/s of one option
    counts : shape (n,), number of each option
    """
    import pulp

    lp = pulp.LpProblem("shares", pulp.LpMinimize)
    buckets, options = (range(size) for size in goodput.shape)
    able = [(b, n) for b in buckets for n in options if goodput[b, n] > 0]
    most = np.ones(goodput.shape, np.int64) if is_whole else None
    y = add_variables(lp, "y", able, upper=most, integer=is_whole)
    z = add_variables(lp, "z", [(b, 0) for b in buckets])
    penalty = bucket_penalty_usd(offer, rates, goodput)
    short = linear_sum((z[b, 0], penalty[b]) for b in buckets)
    x: VariablesByKey = {}
    if counts is None:
        x = add_variables(lp, "x", [(n, 0) for n in options], integer=True)
        lp += linear_sum((x[n, 0], offer.usd_per_hour[n]) for n in options) + short
        add_gpu_limits(lp, offer, ((n, x[n, 0]) for n in options))
    else:
        lp += short
    for b in buckets:
        served: list[tuple[Any, float]] = [(y[b, n], 1.0) for n in options if (b, n) in y]
        lp += linear_sum([*served, (z[b, 0], 1.0)]) == 1, f"whole_{b}"
    for n in options:
        load = [(y[b, n], rates[b] / goodput[b, n]) for b in buckets if (b, n) in y]
        capacity = [] if counts is not None else [(x[n, 0], -eta)]
        lp += linear_sum([*load, *capacity]) <= (0 if counts is None else eta * int(counts[n])), f"load_{n}"
    usd = linear_sum((x[n, 0], offer.usd_per_hour[n]) for n, _ in x)
    return OptimisationModel(lp, usd, {"x": x} | ({"y": y} if is_whole else {}))


def bucket_shares(
    offer: RentalOffer, rates: Floats, goodput: Floats, eta: float, counts: Ints
) -> tuple[Floats, Floats]:
    """Distribute the buckets over given options, by the LP of y and z.

    Parameters
    ----------
    rates : shape (b,), requests/s
    goodput : shape (b, n), requests/s of one option
    counts : shape (n,), number of each option

    Returns
    -------
    shares : shape (b, n), of a bucket's requests that an option serves
    missing : shape (b,), the unserved share
    """
    import pulp

    lp = build_shares_model(offer, rates, goodput, eta, counts).lp
    lp.solve(pulp.HiGHS(msg=False, threads=1, random_seed=SOLVER_SEED))
    shares, missing = np.zeros(goodput.shape), np.zeros(rates.size)
    for variable in lp.variables():
        name, b, n = variable.name.split("_")
        if name == "y":
            shares[int(b), int(n)] = max(variable.varValue, 0.0)
        else:
            missing[int(b)] = max(variable.varValue, 0.0)
    missing[missing < TOLERANCE] = 0.0
    return shares, missing
