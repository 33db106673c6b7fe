"""Small hours to plan, and the slow twins of the planners that try every allocation."""

from collections.abc import Iterator
from functools import cache, partial
from itertools import product

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import linprog

from fleetcast.models.plan.problem import Problem

WINDOW_S = 1800.0


def a_problem(l: int = 2, r: int = 2, g: int = 1, w: int = 2, **changes: object) -> Problem:  # noqa: E741
    """A sound small hour: an instance of llm i serves 100 (i + 1) tokens/s; GPU type 1 is twice as dear.

    Each of the `g` options is so many GPUs of a type of its own.
    """
    size = 1 + np.arange(l)[:, None] + np.zeros((l, g), dtype=np.int64)
    problem = Problem(
        llms=tuple(f"llm{i}" for i in range(l)),
        roles=("whole",) * l,
        regions=tuple(f"region{j}" for j in range(r)),
        options=tuple(f"gpu{k}" for k in range(g)),
        gpus=tuple(f"gpu{k}" for k in range(g)),
        instances_now=np.ones((l, r, g), dtype=np.int64),
        spot=np.zeros((l, r, g), dtype=np.int64),
        tokens_per_s=100.0 * size,
        size_shares=np.ones((4, l, g)),
        usd_per_hour=2.0 * size * (1 + np.arange(g)),
        demand_tokens_per_s=np.full((l, r, w), 150.0),
        buffer_tokens_per_s=np.zeros((l, r)),
        uses=of_own_type(size),
        cap_gpus=np.full((r, g), 12),
        min_instances=np.zeros((l, r), dtype=np.int64),
        max_instances=np.full((l, r), 4),
        min_option_instances=np.zeros((l, r, g), dtype=np.int64),
        max_option_instances=np.full((l, r, g), 1000),
        budget_usd=np.inf,
        epsilon=0.8,
        window_s=WINDOW_S,
        hours=1.0,
        boot_spot_s=np.full((l, g), 600.0),
        boot_cold_s=np.full((l, r, g), 900.0),
        spot_earning_share=1.0,
        hysteresis_share=0.0,
        export_share=0.0625,
    )
    return problem._replace(**changes)  # type: ignore[arg-type]


def of_own_type(gpus_per_instance: np.ndarray) -> np.ndarray:
    """GPUs of each type that an instance holds, shape (i, k, g), where option k is of GPU type k alone."""
    return gpus_per_instance[:, :, None] * np.eye(gpus_per_instance.shape[1], dtype=np.int64)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Hours of at most four counts, on grids that floats hold exactly; half of them with caps that bind.

    In half of them pools of one to three instances sustain less per instance.
    """
    l, r, g = draw(st.sampled_from([(1, 2, 1), (2, 1, 1), (2, 2, 1), (1, 2, 2), (2, 1, 2)]))  # noqa: E741
    grid = partial(_grid, draw)
    base = a_problem(l, r, g)
    size_shares = np.ones((4, l, g))
    if draw(st.booleans()):  # each of one to three instances sustains less than each of four
        size_shares[:3] = np.sort(grid((3, l, g), 4, 16) / 16, axis=0)
    return base._replace(
        instances_now=grid((l, r, g), 0, 3).astype(np.int64),
        spot=grid((l, r, g), 0, 1).astype(np.int64),
        tokens_per_s=grid((l, g), 2, 12) * 16.0,
        size_shares=size_shares,
        usd_per_hour=grid((l, g), 0, 8) / 4,
        boot_spot_s=grid((l, g), 0, 4) * 450.0,
        boot_cold_s=grid((l, r, g), 1, 9) * 900.0,
        demand_tokens_per_s=grid((l, r, 2), 0, 24) * 16.0,
        buffer_tokens_per_s=grid((l, r), 0, 2) * 16.0,
        uses=of_own_type(grid((l, g), 1, 2).astype(np.int64)),
        cap_gpus=grid((r, g), 2, draw(st.sampled_from([4, 12]))).astype(np.int64),
        max_instances=grid((l, r), 2, 4).astype(np.int64),
        budget_usd=draw(st.sampled_from([np.inf, np.inf, 2.0, 4.0])),
        epsilon=draw(st.sampled_from([0.5, 0.75, 1.0])),
        spot_earning_share=draw(st.sampled_from([0.25, 1.0])),
        hysteresis_share=draw(st.sampled_from([0.0, 0.5])),
        hours=draw(st.sampled_from([0.25, 1.0])),
    )


@st.composite
def sharing(draw: st.DrawFn) -> Problem:
    """The same of one llm in one region, whose options hold GPUs of one type and have limits of their own."""
    base = draw(problems().filter(lambda p: p.instances_now.shape == (1, 2, 2)))
    most = _grid(draw, (1, 1, 2), 0, 3).astype(np.int64)
    here = _in_first_region(base)._replace(
        gpus=base.gpus[:1],
        uses=_grid(draw, (1, 2, 1), 1, 3).astype(np.int64),
        cap_gpus=base.cap_gpus[:1, :1],
        min_option_instances=np.minimum(most, _grid(draw, (1, 1, 2), 0, 2)).astype(np.int64),
        max_option_instances=most,
    )
    return here._replace(instances_now=np.minimum(here.instances_now, most))


@st.composite
def growing(draw: st.DrawFn) -> Problem:
    """The same of one llm in one region, whose pool may grow from none to eight and shrink again."""
    base = draw(problems().filter(lambda p: p.instances_now.shape == (1, 2, 1)))
    return _in_first_region(base)._replace(
        instances_now=_grid(draw, (1, 1, 1), 0, 8),
        max_instances=_grid(draw, (1, 1), 3, 8),
        cap_gpus=base.cap_gpus[:1] * 4,
        demand_tokens_per_s=_grid(draw, (1, 1, 2), 0, 80) * 16.0,
    )


def _in_first_region(p: Problem) -> Problem:
    of_regions = ("instances_now", "spot", "demand_tokens_per_s", "buffer_tokens_per_s", "min_instances")
    of_regions = (*of_regions, "max_instances", "boot_cold_s", "min_option_instances", "max_option_instances")
    here = {name: getattr(p, name)[:, :1] for name in of_regions}
    return p._replace(regions=p.regions[:1], cap_gpus=p.cap_gpus[:1], **here)


def _grid(draw: st.DrawFn, shape: tuple[int, ...], least: int, most: int) -> np.ndarray:
    size = int(np.prod(shape))
    return np.array(draw(st.lists(st.integers(least, most), min_size=size, max_size=size))).reshape(shape)


def roomy(p: Problem) -> Problem:
    """The same hour in a fleet that nothing limits."""
    return p._replace(cap_gpus=p.cap_gpus * 20, max_instances=p.max_instances * 20, budget_usd=np.inf)


def prices(p: Problem) -> tuple[list[float], list[float]]:
    """What the dearest token/s and the dearest instance of each llm cost, a dollar an instance added."""
    tokens, instances = [], []
    for i in range(len(p.llms)):
        usd = [
            p.usd_per_hour[i, k] * (1 + p.boot_cold_s[i, :, k].max() / 3600) + 1
            for k in range(len(p.options))
        ]
        instances.append(max(usd))
        tokens.append(max(u / t for u, t in zip(usd, p.tokens_per_s[i], strict=True)))
    return tokens, instances


def allocations(p: Problem, most: int) -> Iterator[np.ndarray]:
    """Every allocation of up to `most` instances anywhere that keeps caps and maxima."""
    for counts in product(range(most + 1), repeat=p.instances_now.size):
        x = np.array(counts).reshape(p.instances_now.shape)
        gpus = np.einsum("ijk,ikg->jg", x, p.uses)
        is_within = (x.sum(axis=2) <= p.max_instances).all() and (x <= p.max_option_instances).all()
        if is_within and (gpus <= p.cap_gpus).all():
            yield x


def naive_paper_usd(p: Problem) -> float:
    """SageServe's objective and, what is short, at its price, of the best of all allocations."""
    per_token, per_instance = prices(p)
    best = np.inf
    for x in allocations(p, int(p.max_instances.max())):
        usd = 0.0
        for i, j, k in np.ndindex(x.shape):
            delta = x[i, j, k] - p.instances_now[i, j, k]
            usd += p.usd_per_hour[i, k] * (delta + max(0, delta) * p.boot_spot_s[i, k] / 3600)
        for i in range(len(p.llms)):
            serves = x[i] @ p.tokens_per_s[i]
            need = p.demand_tokens_per_s[i] + p.buffer_tokens_per_s[i][:, None]
            usd += 1e5 * per_token[i] * max(0.0, need.sum(axis=0).max() - serves.sum())
            for j in range(len(p.regions)):
                usd += 1e3 * per_token[i] * max(0.0, p.epsilon * need[j].max() - serves[j])
                usd += 100 * per_instance[i] * lacking(p, x, i, j)
        best = min(best, usd)
    return float(best)


def lacking(p: Problem, x: np.ndarray, i: int, j: int) -> int:
    """Instances below the minimum of the endpoint, or below that of one of its options if that is more."""
    of_options = [int(p.min_option_instances[i, j, k] - x[i, j, k]) for k in range(len(p.options))]
    return max(0, int(p.min_instances[i, j] - x[i, j].sum()), *of_options)


def naive_corrected_usd(p: Problem) -> float:
    """The corrected programme's objective of the best of all reclaims, starts and donations."""
    _, per_instance = prices(p)

    @cache
    def flow_usd(i: int, w: int, capacity: tuple[float, ...]) -> float:
        return naive_flow_usd(p, i, w, capacity)

    best = np.inf
    for x in allocations(p, int(p.max_instances.max())):
        if (x * p.usd_per_hour[:, None, :]).sum() > p.budget_usd:
            continue
        options = [list(_ways(p, (i, j, k), int(x[i, j, k]))) for i, j, k in np.ndindex(x.shape)]
        for ways in product(*options):
            way = np.array(ways).reshape(*x.shape, 3)
            usd = sum(
                _usd(p, i, j, k, int(x[i, j, k]), *(int(n) for n in way[i, j, k]))
                for i, j, k in np.ndindex(x.shape)
            )
            for i, w in np.ndindex(len(p.llms), p.windows):
                usd += flow_usd(i, w, tuple(_capacity(p, way[i, j], i, j, w) for j in range(len(p.regions))))
            for i, j in np.ndindex(x.shape[:2]):
                usd += 100 * per_instance[i] * lacking(p, x, i, j)
            best = min(best, usd)
    return float(best)


def _ways(p: Problem, at: tuple[int, int, int], x: int) -> Iterator[tuple[int, int, int]]:
    """Every (reclaimed, cold, donated) that leads to x; to donate and to start at once is allowed."""
    n, s = int(p.instances_now[at]), int(p.spot[at])
    for donated in range(n + 1):
        for reclaimed in range(s + 1):
            if x - n + donated - reclaimed >= 0:
                yield reclaimed, x - n + donated - reclaimed, donated


def _usd(p: Problem, i: int, j: int, k: int, x: int, reclaimed: int, cold: int, donated: int) -> float:
    alpha = p.usd_per_hour[i, k]
    spot = p.spot[i, j, k] + donated - reclaimed
    lost_h = (p.boot_spot_s[i, k] * reclaimed + p.boot_cold_s[i, j, k] * cold) / 3600
    return float(
        alpha * (p.hours * (x + (1 - p.spot_earning_share) * spot) + lost_h + p.hysteresis_share * donated)
    )


def _capacity(p: Problem, way: np.ndarray, i: int, j: int, w: int) -> float:
    total = 0.0
    for k, (reclaimed, cold, donated) in enumerate(way.tolist()):
        up = p.instances_now[i, j, k] - donated
        up += reclaimed * (w + 0.5 >= p.boot_spot_s[i, k] / p.window_s)
        up += cold * (w + 0.5 >= p.boot_cold_s[i, j, k] / p.window_s)
        each = p.tokens_per_s[i, k] * p.size_shares[min(up, 4) - 1, i, k] if up else 0.0
        total += up * each
    return float(total)


def naive_flow_usd(p: Problem, i: int, w: int, capacity: tuple[float, ...]) -> float:
    """The cheapest e, m, z, v, y of one llm and window, by a linear programme with every line spelled out."""
    r, per_token = len(capacity), prices(p)[0][i]
    kappa = p.export_share * p.hours * min(p.usd_per_hour[i] / p.tokens_per_s[i]) / p.windows
    rho, b = p.demand_tokens_per_s[i, :, w], p.buffer_tokens_per_s[i]
    one, none = np.eye(r), np.zeros((r, r))
    home = np.hstack([-one, one, -one, none, -one])  # -(e - m + z + y) <= capacity - rho - b
    local = np.hstack([one, none, none, -one, none])
    cost = np.repeat([kappa, 0.0, 1e5 * per_token, 1e3 * per_token, 4.0 * per_token], r)
    found = linprog(
        cost,
        A_ub=np.vstack([home, local]),
        b_ub=np.concatenate([np.array(capacity) - rho - b, (1 - p.epsilon) * rho]),
        A_eq=np.concatenate([np.ones(r), -np.ones(r), np.zeros(3 * r)])[None],
        b_eq=[0.0],
        bounds=[(0, None)] * (4 * r) + [(0, limit) for limit in b],
    )
    return float(found.fun)
