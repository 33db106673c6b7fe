"""Small hours to plan, and the slow twin of the planner that tries every allocation."""

from functools import partial
from itertools import product

import numpy as np
from hypothesis import strategies as st

from models.plan.ilp import penalty_usd
from models.plan.problem import Problem


def a_problem(l: int = 2, r: int = 2, g: int = 1, w: int = 2, **changes: object) -> Problem:  # noqa: E741
    """A sound small hour: an instance of llm i serves 100 (i + 1) tokens/s; GPU type 1 is twice as dear."""
    size = 1 + np.arange(l)[:, None] + np.zeros((l, g), dtype=np.int64)
    usd = 2.0 * size * (1 + np.arange(g))
    problem = Problem(
        llms=tuple(f"llm{i}" for i in range(l)),
        regions=tuple(f"region{j}" for j in range(r)),
        gpus=tuple(f"gpu{k}" for k in range(g)),
        instances_now=np.ones((l, r, g), dtype=np.int64),
        tokens_per_s=100.0 * size,
        usd_per_hour=usd,
        start_usd=usd / 6,
        demand_tokens_per_s=np.full((l, r, w), 150.0),
        buffer_tokens_per_s=np.zeros((l, r)),
        gpus_per_instance=size,
        cap_gpus=np.full((r, g), 12),
        min_instances=np.zeros((l, r), dtype=np.int64),
        max_instances=np.full((l, r), 4),
        epsilon=0.8,
    )
    return problem._replace(**changes)  # type: ignore[arg-type]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Hours of at most four counts, on grids that floats hold exactly; half of them with caps that bind."""
    l, r, g = draw(st.sampled_from([(1, 2, 1), (2, 1, 1), (2, 2, 1), (1, 2, 2), (2, 1, 2)]))  # noqa: E741
    grid = partial(_grid, draw)
    base = a_problem(l, r, g)
    return base._replace(
        instances_now=grid((l, r, g), 0, 3).astype(np.int64),
        tokens_per_s=grid((l, g), 2, 12) * 16.0,
        usd_per_hour=grid((l, g), 0, 8) / 4,
        start_usd=grid((l, g), 0, 4) / 8,
        demand_tokens_per_s=grid((l, r, 2), 0, 24) * 16.0,
        buffer_tokens_per_s=grid((l, r), 0, 2) * 16.0,
        gpus_per_instance=grid((l, g), 1, 2).astype(np.int64),
        cap_gpus=grid((r, g), 2, draw(st.sampled_from([4, 12]))).astype(np.int64),
        max_instances=grid((l, r), 2, 4).astype(np.int64),
        epsilon=draw(st.sampled_from([0.5, 0.75, 1.0])),
    )


def _grid(draw: st.DrawFn, shape: tuple[int, ...], least: int, most: int) -> np.ndarray:
    size = int(np.prod(shape))
    return np.array(draw(st.lists(st.integers(least, most), min_size=size, max_size=size))).reshape(shape)


def naive_best(p: Problem) -> tuple[bool, float]:
    """Try every allocation: can the demand be met, and the least cost (with penalties where it cannot)."""
    (l, r, g), best, best_short = p.instances_now.shape, np.inf, np.inf  # noqa: E741
    per_token, _ = penalty_usd(p)
    for counts in product(range(int(p.max_instances.max()) + 1), repeat=l * r * g):
        x = np.array(counts).reshape(l, r, g)
        gpus = np.einsum("ijk,ik->jk", x, p.gpus_per_instance)
        if (gpus > p.cap_gpus).any() or (x.sum(axis=2) > p.max_instances).any():
            continue
        usd = sum(
            p.usd_per_hour[i, k] * x[i, j, k]
            + p.start_usd[i, k] * max(0, x[i, j, k] - p.instances_now[i, j, k])
            for i, j, k in np.ndindex(l, r, g)
        )
        short_usd = 0.0
        for i in range(l):
            serves = [sum(p.tokens_per_s[i, k] * x[i, j, k] for k in range(g)) for j in range(r)]
            need = p.demand_tokens_per_s[i] + p.buffer_tokens_per_s[i][:, None]
            short_usd += 1000 * per_token[i] * max(0.0, need.sum(axis=0).max() - sum(serves))
            for j in range(r):
                short_usd += 100 * per_token[i] * max(0.0, p.epsilon * need[j].max() - serves[j])
        best = min(best, usd) if short_usd == 0 else best
        best_short = min(best_short, usd + short_usd)
    return bool(np.isfinite(best)), float(best if np.isfinite(best) else best_short)
