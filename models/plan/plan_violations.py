"""A re-check of every line of both programmes, in plain Python and apart from the solver."""

from collections.abc import Iterator
from itertools import product

from fleetcast.models.plan.problem import TOLERANCE, HourPlan, Problem, WindowFlows


def find_violations(problem: Problem, plan: HourPlan) -> list[str]:
    """Every line of its programme that the plan breaks, in words; empty when it keeps them all."""
    own = _broken_corrected(problem, plan, plan.windows) if plan.windows else _broken_paper(problem, plan)
    both = (_broken_instances(problem, plan), _broken_limits(problem, plan), _broken_cost(problem, plan))
    return [line for lines in (*both, own) for line in lines]


# --- what both programmes say ---------------------------------------------------------------------------


def _broken_instances(p: Problem, plan: HourPlan) -> Iterator[str]:
    for i, j, k in product(range(len(p.llms)), range(len(p.regions)), range(len(p.options))):
        where = f"{p.services[i]} in {p.regions[j]} on {p.options[k]}"
        now, held = int(p.instances_now[i, j, k]), int(plan.instances[i, j, k])
        back, cold, gone = (int(a[i, j, k]) for a in (plan.reclaimed, plan.started, plan.donated))
        if min(back, cold, gone) < 0:
            yield f"sign: {where} reclaims {back}, starts {cold}, donates {gone}"
        if gone > now:
            yield f"own: {where} gives up {gone} of {now} instances"
        if back > p.spot[i, j, k]:
            yield f"spot: {where} reclaims {back} of {p.spot[i, j, k]} donated instances"
        if held != now + back + cold - gone:
            yield f"balance: {where} holds {held}, not {now} + {back} + {cold} - {gone}"
        if held != 0 and not p.runs[i, k]:
            yield f"runs: {where} holds {held} but cannot run there"


def _broken_limits(p: Problem, plan: HourPlan) -> Iterator[str]:
    for j, region in enumerate(p.regions):
        for g, gpu in enumerate(p.gpus):
            used = sum(
                int(plan.instances[i, j, k] * p.uses[i, k, g])
                for i, k in product(range(len(p.llms)), range(len(p.options)))
            )
            if used > p.cap_gpus[j, g]:
                yield f"cap: {region} uses {used} of {p.cap_gpus[j, g]} {gpu}"
        for i, llm in enumerate(p.services):
            held = int(plan.instances[i, j].sum())
            lacking = [int(p.min_instances[i, j]) - held]
            for k, option in enumerate(p.options):
                own, most = int(plan.instances[i, j, k]), p.max_option_instances[i, j, k]
                lacking.append(int(p.min_option_instances[i, j, k]) - own)
                if own > most:
                    yield f"most: {llm} in {region} holds {own} on {option}, maximum {most}"
            if max(*lacking, 0) != plan.missing_instances[i, j]:
                least, says = p.min_instances[i, j], plan.missing_instances[i, j]
                yield f"least: {llm} in {region} holds {held} of at least {least} and says {says} missing"
            if held > p.max_instances[i, j]:
                yield f"most: {llm} in {region} holds {held}, maximum {p.max_instances[i, j]}"


def _broken_budget(p: Problem, plan: HourPlan) -> Iterator[str]:
    held = ((i, j, k) for i, j, k in product(*map(range, plan.instances.shape)) if p.runs[i, k])
    usd = sum(float(p.usd_per_hour[i, k]) * int(plan.instances[i, j, k]) for i, j, k in held)
    if usd > p.budget_usd * (1 + TOLERANCE):
        yield f"budget: the instances cost {usd:.6g} USD, the budget is {p.budget_usd:.6g}"


def _broken_cost(p: Problem, plan: HourPlan) -> Iterator[str]:
    usd = 0.0
    for i, j, k in product(range(len(p.llms)), range(len(p.regions)), range(len(p.options))):
        if not p.runs[i, k]:
            continue
        alpha, held = float(p.usd_per_hour[i, k]), int(plan.instances[i, j, k])
        back, cold, gone = (int(a[i, j, k]) for a in (plan.reclaimed, plan.started, plan.donated))
        if plan.windows is None:
            usd += alpha * (held + p.boot_spot_s[i, k] / 3600 * cold)
            continue
        spot = int(p.spot[i, j, k]) + gone - back
        usd += p.hours * alpha * (held + (1 - p.spot_earning_share) * spot)
        usd += alpha * (p.boot_spot_s[i, k] * back + p.boot_cold_s[i, j, k] * cold) / 3600
        usd += p.hysteresis_share * alpha * gone
    if plan.windows is not None:
        usd += sum(float(p.export_usd[i] * e.sum()) for i, e in enumerate(plan.windows.exports))
    if abs(usd - plan.objective_usd) > TOLERANCE * max(usd, 1.0):
        yield f"cost: the instances cost {usd:.6g} USD, the plan says {plan.objective_usd:.6g}"


# --- the paper's coverage --------------------------------------------------------------------------------


def _broken_paper(p: Problem, plan: HourPlan) -> Iterator[str]:
    regions, windows = range(len(p.regions)), range(p.windows)
    for i, llm in enumerate(p.services):
        on = [k for k in range(len(p.options)) if p.runs[i, k]]
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


# --- the corrected programme's windows -------------------------------------------------------------------


def _broken_corrected(p: Problem, plan: HourPlan, flows: WindowFlows) -> Iterator[str]:
    yield from _broken_budget(p, plan)
    for i, w in product(range(len(p.llms)), range(p.windows)):
        dust = 2 * TOLERANCE * max(float(p.need_tokens_per_s[i, :, w].sum()), 1.0)
        out, into = float(flows.exports[i, :, w].sum()), float(flows.imports[i, :, w].sum())
        if abs(out - into) > dust:
            yield f"pool: {p.services[i]} exports {out:.6g} and imports {into:.6g} tokens/s in window {w}"
        for j in range(len(p.regions)):
            where = f"{p.services[i]} in {p.regions[j]}, window {w}"
            yield from (f"{line} of {where}" for line in _broken_window(p, plan, flows, (i, j, w), dust))
    unserved = flows.unserved
    for i, llm in enumerate(p.services):
        told = [
            (p.regions[j], plan.short_tokens_per_s[i, j], max(unserved[i, j])) for j in range(len(p.regions))
        ]
        told.append(("all regions", plan.short_llm_tokens_per_s[i], max(unserved[i].sum(axis=0))))
        for where, says, is_short in told:
            if abs(says - is_short) > 2 * TOLERANCE * max(float(p.need_tokens_per_s[i].sum()), 1.0):
                yield f"unserved: {llm} in {where} is short of {is_short:.6g} tokens/s and says {says:.6g}"


def _broken_window(
    p: Problem, plan: HourPlan, flows: WindowFlows, at: tuple[int, int, int], dust: float
) -> Iterator[str]:
    """The lines of one llm, region and window, each broken by more than the dust of floats."""
    i, j, w = at
    capacity, e, m, z, v, y = (float(values[at]) for values in flows)
    up = 0.0
    for k in range(len(p.options)):
        if p.runs[i, k]:
            count = int(p.instances_now[i, j, k]) - int(plan.donated[i, j, k])
            if w >= p.boot_spot_s[i, k] / p.window_s - 0.5:
                count += int(plan.reclaimed[i, j, k])
            if w >= p.boot_cold_s[i, j, k] / p.window_s - 0.5:
                count += int(plan.started[i, j, k])
            up += count * float(p.tokens_per_s[i, k])
    rho, b = float(p.demand_tokens_per_s[at]), float(p.buffer_tokens_per_s[i, j])
    if abs(up - capacity) > dust:
        yield f"capacity: {up:.6g} tokens/s are up, not the {capacity:.6g}"
    if min(e, m, z, v, y) < -dust:
        yield "sign: a negative flow or shortage"
    if capacity + e - m + z + y < rho + b - dust:
        reached = f"{capacity:.6g} + {e:.6g} - {m:.6g} + {z:.6g} + {y:.6g}"
        yield f"home: {reached} do not reach the {rho + b:.6g} tokens/s"
    if e > (1 - p.epsilon) * rho + v + dust:
        yield f"locality: {e:.6g} tokens/s leave, {(1 - p.epsilon) * rho:.6g} + {v:.6g} may"
    if y > b + dust:
        yield f"buffer: {y:.6g} of {b:.6g} tokens/s are given up"
