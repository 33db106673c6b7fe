"""What a plan is asked (Problem), what it answers (Plan), and a re-check of every line of its mathematics.

Nothing here knows how a plan is found: `violations` reads it line by line in plain Python, apart from the
solver. Axes, everywhere: i llms, j regions, k GPU types, w windows of the hour.
"""

from collections.abc import Iterator
from itertools import product
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TOLERANCE = 1e-6  # relative; a violation smaller than this is the solver's arithmetic


class PlanError(ValueError):
    """A Problem that contradicts itself, or a solver that cannot answer it."""


class Problem(NamedTuple):
    """One hour to plan. Symbols in brackets are those of SageServe, Table 2."""

    llms: tuple[str, ...]
    regions: tuple[str, ...]
    gpus: tuple[str, ...]
    instances_now: Ints  # (i, j, k) [n]
    tokens_per_s: Floats  # (i, k) [theta] input tokens/s of one instance; nan or <= 0: does not run there
    usd_per_hour: Floats  # (i, k) [alpha] of one instance, all its GPUs
    start_usd: Floats  # (i, k) [sigma] price of the hours that an instance loses in booting
    demand_tokens_per_s: Floats  # (i, j, w) [rho] forecast interactive input tokens/s
    buffer_tokens_per_s: Floats  # (i, j) [beta] added to every window, for bursts and niw
    gpus_per_instance: Ints  # (i, k)
    cap_gpus: Ints  # (j, k) GPUs that the region has
    min_instances: Ints  # (i, j) over all GPU types
    max_instances: Ints  # (i, j)
    epsilon: float  # share of its own peak that a region must be able to serve

    @property
    def runs(self) -> NDArray[np.bool_]:
        """Which llm runs on which GPU type, shape (i, k)."""
        return np.isfinite(self.tokens_per_s) & (self.tokens_per_s > 0)

    @property
    def windows(self) -> int:
        """Windows of the hour."""
        return self.demand_tokens_per_s.shape[2]

    @property
    def need_tokens_per_s(self) -> Floats:
        """Forecast plus buffer, shape (i, j, w)."""
        return self.demand_tokens_per_s + self.buffer_tokens_per_s[:, :, None]


class Plan(NamedTuple):
    """The answer. `delta` is SageServe's decision; a shortage is a figure here, never a failure."""

    delta: Ints  # (i, j, k) instances to add or to give up
    instances: Ints  # (i, j, k) = instances_now + delta
    status: str  # optimal (within the asked gap) | time_limit (the best that was found) | given
    objective_usd: float  # holding every instance for the hour, and starting the new ones
    bound_usd: float  # no plan costs less (penalties for shortage included)
    gap_share: float  # (cost with penalties - bound) / cost with penalties
    short_tokens_per_s: Floats  # (i, j) missing below epsilon of the region's own peak
    short_llm_tokens_per_s: Floats  # (i,) missing for the llm's traffic of all regions together
    missing_instances: Ints  # (i, j) below min_instances
    seconds: float  # building and solving
    solver: str  # which one answered


def violations(problem: Problem, plan: Plan) -> list[str]:
    """Every line of the programme that the plan breaks, in words; empty when it keeps them all."""
    return [
        *_broken_instances(problem, plan),
        *_broken_coverage(problem, plan),
        *_broken_limits(problem, plan),
        *_broken_cost(problem, plan),
    ]


def shortages(problem: Problem, plan: Plan) -> list[str]:
    """By how much the fleet is too small, one line per llm and region that is short."""
    lines = []
    for i, llm in enumerate(problem.llms):
        best = float(np.max(problem.tokens_per_s[i][problem.runs[i]]))
        rows = [("all regions", plan.short_llm_tokens_per_s[i])]
        rows += [(region, plan.short_tokens_per_s[i, j]) for j, region in enumerate(problem.regions)]
        lines += [
            f"{llm} in {where} is short of {short:,.0f} input tokens/s, {ceil(short / best)} instances"
            for where, short in rows
            if short > 0
        ]
        lines += [
            f"{llm} in {problem.regions[j]} is {missing} instances below min_instances"
            for j, missing in enumerate(plan.missing_instances[i])
            if missing > 0
        ]
    return [f"{line}. Raise cap_gpus or max_instances." for line in lines]


# --- does the answer keep every line? ------------------------------------------------------------------


def _broken_instances(p: Problem, plan: Plan) -> Iterator[str]:
    for i, j, k in product(range(len(p.llms)), range(len(p.regions)), range(len(p.gpus))):
        where = f"{p.llms[i]} in {p.regions[j]} on {p.gpus[k]}"
        now, delta, held = int(p.instances_now[i, j, k]), plan.delta[i, j, k], plan.instances[i, j, k]
        if delta < -now:
            yield f"remove: {where} gives up {-delta} of {now} instances"
        if held != now + delta:
            yield f"balance: {where} holds {held}, not {now} {delta:+}"
        if held != 0 and not p.runs[i, k]:
            yield f"runs: {where} holds {held} but cannot run there"


def _broken_coverage(p: Problem, plan: Plan) -> Iterator[str]:
    regions, windows = range(len(p.regions)), range(p.windows)
    for i, llm in enumerate(p.llms):
        on = [k for k in range(len(p.gpus)) if p.runs[i, k]]
        serves = [sum(float(plan.instances[i, j, k] * p.tokens_per_s[i, k]) for k in on) for j in regions]
        need = p.need_tokens_per_s[i].tolist()
        peak = max(sum(need[j][w] for j in regions) for w in windows)
        rows = [("global", "all regions", sum(serves), peak, plan.short_llm_tokens_per_s[i])]
        for j in regions:
            home = p.epsilon * max(need[j])
            rows.append(("local", p.regions[j], serves[j], home, plan.short_tokens_per_s[i, j]))
        for name, where, served, wanted, short in rows:
            if abs(max(wanted - served, 0.0) - short) > 2 * TOLERANCE * max(wanted, 1.0):
                yield (
                    f"{name}: {llm} in {where} serves {served:.6g} of {wanted:.6g} tokens/s "
                    f"and says {short:.6g} short"
                )


def _broken_limits(p: Problem, plan: Plan) -> Iterator[str]:
    for j, region in enumerate(p.regions):
        for k, gpu in enumerate(p.gpus):
            used = sum(int(plan.instances[i, j, k] * p.gpus_per_instance[i, k]) for i in range(len(p.llms)))
            if used > p.cap_gpus[j, k]:
                yield f"cap: {region} uses {used} of {p.cap_gpus[j, k]} {gpu}"
        for i, llm in enumerate(p.llms):
            held = int(plan.instances[i, j].sum())
            if max(p.min_instances[i, j] - held, 0) != plan.missing_instances[i, j]:
                least, says = p.min_instances[i, j], plan.missing_instances[i, j]
                yield f"least: {llm} in {region} holds {held} of at least {least} and says {says} missing"
            if held > p.max_instances[i, j]:
                yield f"most: {llm} in {region} holds {held}, maximum {p.max_instances[i, j]}"


def _broken_cost(p: Problem, plan: Plan) -> Iterator[str]:
    usd = 0.0
    for i, j, k in product(range(len(p.llms)), range(len(p.regions)), range(len(p.gpus))):
        if p.runs[i, k]:
            usd += float(p.usd_per_hour[i, k]) * int(plan.instances[i, j, k])
            usd += float(p.start_usd[i, k]) * max(int(plan.delta[i, j, k]), 0)
    if abs(usd - plan.objective_usd) > TOLERANCE * max(usd, 1.0):
        yield f"cost: holding and starting cost {usd:.6g} USD, the plan says {plan.objective_usd:.6g}"
