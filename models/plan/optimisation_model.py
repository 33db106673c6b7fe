"""Parts of an optimisation model: PuLP variables by their indices, and weighted sums of them."""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.problem import Problem

VariableKey = tuple[int, ...]
VariablesByKey = dict[VariableKey, Any]  # PuLP variables by their indices
LinearTerms = list[tuple[Any, float]]  # variables with their coefficients


class OptimisationModel(NamedTuple):
    """A MILP as a PuLP problem, its cost without penalties, and its integer decisions by name.

    `binaries` follow from the decisions: they select a piece of a capacity that is no straight line.
    """

    lp: Any
    cost: Any
    integers: dict[str, VariablesByKey]
    binaries: Sequence[Any] = ()


def add_variables(
    lp: Any,
    name: str,
    keys: Iterable[VariableKey],
    lower: Ints | None = None,
    upper: Ints | Floats | None = None,
    integer: bool = False,
) -> VariablesByKey:
    """Add one variable name_i_j.. per key, and return the variables by key.

    Parameters
    ----------
    lower, upper : shape (i, j, ...)
        Bounds, one axis per index of a key; by default 0 and none.
    """
    import pulp

    kind = pulp.LpInteger if integer else pulp.LpContinuous
    return {
        key: lp.add_variable(
            f"{name}_{'_'.join(map(str, key))}",
            0 if lower is None else lower[key].item(),
            None if upper is None else upper[key].item(),
            kind,
        )
        for key in keys
    }


def linear_sum(terms: Iterable[tuple[Any, float]]) -> Any:
    """Return the sum of variable times coefficient; each variable at most once."""
    import pulp

    return pulp.LpAffineExpression(terms)


def add_instance_limits(
    lp: Any, p: Problem, delta: dict[VariableKey, LinearTerms], q: VariablesByKey
) -> None:
    """Add the constraints (cap), (least) and (most) of both hourly models: x = n + delta.

    `delta` holds the terms of each (i, j, k), `q` the missing instances of each (i, j). An option's own
    limits get a constraint only where they are stricter than those of all options together, and a GPU type
    only where a service uses it. All limits are ints: PuLP copies an expression to compare it with a number
    of numpy.
    """
    services, regions, options = (range(size) for size in p.instances_now.shape)
    for j, g in product(regions, np.flatnonzero(p.uses.any(axis=(0, 1)))):
        here = [(i, k, int(n)) for i, k in product(services, options) if (n := p.uses[i, k, g])]
        here = [(i, k, size) for i, k, size in here if (i, j, k) in delta]
        room = int(p.cap_gpus[j, g]) - sum(size * int(p.instances_now[i, j, k]) for i, k, size in here)
        used = linear_sum((x, size * sign) for i, k, size in here for x, sign in delta[i, j, k])
        lp += used <= room, f"cap_{j}_{g}"
    for i, j in product(services, regions):
        by_option = {k: delta[i, j, k] for k in options if (i, j, k) in delta}
        change = [term for terms in by_option.values() for term in terms]
        now = int(p.instances_now[i, j].sum())
        lp += linear_sum([*change, (q[i, j], 1)]) >= int(p.min_instances[i, j]) - now, f"least_{i}_{j}"
        lp += linear_sum(change) <= int(p.max_instances[i, j]) - now, f"most_{i}_{j}"
        for k, terms in by_option.items():
            limits = (p.min_option_instances, p.max_option_instances, p.instances_now)
            least, most, now = (int(values[i, j, k]) for values in limits)
            if least > (p.min_instances[i, j] if len(by_option) == 1 else 0):
                lp += linear_sum([*terms, (q[i, j], 1)]) >= least - now, f"least_{i}_{j}_{k}"
            if most < p.max_instances[i, j]:
                lp += linear_sum(terms) <= most - now, f"most_{i}_{j}_{k}"


def counts_array(shape: tuple[int, ...], values: dict[VariableKey, int]) -> Ints:
    """Return integers by their indices as an array of a shape, 0 where there is none."""
    array = np.zeros(shape, np.int64)
    for key, value in values.items():
        array[key] = value
    return array
