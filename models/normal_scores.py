"""Normal scores: the normal quantile of a value's rank within its group."""

import numpy as np

from fleetcast.models.aliases import Floats, Ints


def normal_scores(group: Ints, value: Floats | Ints, weight: Floats | None = None) -> Floats:
    """Return the normal score of each value within its group, (values,); equal values share their mean rank.

    `group`, `value` and `weight`, how often a value counts (once by default), have the shape (values,).
    """
    from scipy.special import ndtri

    order = np.lexsort((value, group))
    is_new_group, is_new_value = (np.diff(of[order], prepend=np.nan) != 0 for of in (group, value))
    first_of_group, first = np.flatnonzero(is_new_group), np.flatnonzero(is_new_group | is_new_value)
    below = np.concatenate([[0.0], np.cumsum(np.ones(order.size) if weight is None else weight[order])])
    last = np.append(first[1:], order.size)
    within = np.cumsum(is_new_group)[first] - 1
    before, total = below[first_of_group], np.diff(below[np.append(first_of_group, order.size)])
    rank = ((below[first] + below[last]) / 2 - before[within]) / total[within]
    scores = np.empty(order.size)
    scores[order] = np.repeat(ndtri(rank), last - first)
    return scores
