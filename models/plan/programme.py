"""How a programme is written: PuLP variables by their indices, and weighted sums of them."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from models.plan.problem import Floats, Ints

Key = tuple[int, ...]
Cells = dict[Key, Any]  # PuLP variables by their indices


class Programme(NamedTuple):
    """A PuLP problem, its cost without penalties, and its integer decisions by name."""

    lp: Any
    cost: Any
    integers: dict[str, Cells]


def cells(
    lp: Any,
    name: str,
    keys: Iterable[Key],
    lower: Ints | None = None,
    upper: Ints | Floats | None = None,
    integer: bool = False,
) -> Cells:
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


def weighted(terms: Iterable[tuple[Any, float]]) -> Any:
    """The sum of variable times coefficient; no variable twice."""
    import pulp

    return pulp.LpAffineExpression(terms)


def counts(shape: tuple[int, ...], values: dict[Key, int]) -> Ints:
    """Integers by their indices as an array, 0 where there is none."""
    array = np.zeros(shape, np.int64)
    for key, value in values.items():
        array[key] = value
    return array
