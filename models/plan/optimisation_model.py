"""How a programme is written: PuLP variables by their indices, and weighted sums of them."""

from collections.abc import Iterable
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.problem import Problem

VariableKey = tuple[int, ...]
VariablesByKey = dict[VariableKey, Any]  # PuLP variables by their indices
LinearTerms = list[tuple[Any, float]]  # variables with their coefficients


class OptimisationModel(NamedTuple):
    """A PuLP problem, its cost without penalties, and its integer decisions by name."""

    lp: Any
    cost: Any
    integers: dict[str, VariablesByKey]


def add_variables(
    lp: Any,
    name: str,
    keys: Iterable[VariableKey],
    lower: Ints | None = None,
    upper: Ints | Floats | None = None,
    integer: bool = False,
) -> VariablesByKey:
    """Variables name_i_j.., one per key, from `lower[key]` (else 0) to `upper[key]` (else any)."""
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
    """The sum of variable times coefficient; no variable twice."""
    import pulp

    return pulp.LpAffineExpression(terms)


def add_instance_limits(
    lp: Any, p: Problem, delta: dict[VariableKey, LinearTerms], q: VariablesByKey
) -> None:
    """(cap), (least) and (most), which both programmes share: x = n + delta, delta[i,j,k] given as terms.

    An option's own limits get a line where they ask for more than those of all options together.
    """
    services, regions, options = (range(size) for size in p.instances_now.shape)
    for j, g in product(regions, range(len(p.gpus))):
        here = [(i, k, int(n)) for i, k in product(services, options) if (n := p.uses[i, k, g])]
        here = [(i, k, size) for i, k, size in here if (i, j, k) in delta]
        room = p.cap_gpus[j, g] - sum(size * p.instances_now[i, j, k] for i, k, size in here)
        used = linear_sum((x, size * sign) for i, k, size in here for x, sign in delta[i, j, k])
        lp += used <= room, f"cap_{j}_{g}"
    for i, j in product(services, regions):
        own = {k: delta[i, j, k] for k in options if (i, j, k) in delta}
        change = [term for terms in own.values() for term in terms]
        now = p.instances_now[i, j].sum()
        lp += linear_sum([*change, (q[i, j], 1)]) >= p.min_instances[i, j] - now, f"least_{i}_{j}"
        lp += linear_sum(change) <= p.max_instances[i, j] - now, f"most_{i}_{j}"
        for k, terms in own.items():
            least, most, now = (int(limits[i, j, k]) for limits in _option_limits(p))
            if least > (p.min_instances[i, j] if len(own) == 1 else 0):
                lp += linear_sum([*terms, (q[i, j], 1)]) >= least - now, f"least_{i}_{j}_{k}"
            if most < p.max_instances[i, j]:
                lp += linear_sum(terms) <= most - now, f"most_{i}_{j}_{k}"


def _option_limits(p: Problem) -> tuple[Ints, Ints, Ints]:
    return p.min_option_instances, p.max_option_instances, p.instances_now


def counts_array(shape: tuple[int, ...], values: dict[VariableKey, int]) -> Ints:
    """Ints by their indices as an array, 0 where there is none."""
    array = np.zeros(shape, np.int64)
    for key, value in values.items():
        array[key] = value
    return array
