"""Re-check of every constraint of both hourly models, in plain Python and independent of the solver."""

from collections.abc import Iterator
from itertools import product

from fleetcast.models.plan.problem import TOLERANCE, HourPlan, Problem, WindowFlows


def find_violations(problem: Problem, plan: HourPlan) -> list[str]:
    """Return one line for every constraint of its model that the plan violates; empty if there is none."""
    of_model = (
        _broken_corrected(problem, plan, plan.windows) if plan.windows else _broken_paper(problem, plan)
    )
    both = (_broken_instances(problem, plan), _broken_limits(problem, plan), _broken_cost(problem, plan))
    return [line for lines in (*both, of_model) for line in lines]


# --- constraints of both models -------------------------------------------------------------------------


def _broken_instances(p: Problem, plan: HourPlan) -> Iterator[str]:
    for i, j, k in product(range(len(p.llms)), range(len(p.regions)), range(len(p.options))):
        where = f"{p.services[i]} in {p.regions[j]} on {p.options[k]}"
        now, planned = int(p.instances_now[i, j, k]), int(plan.instances[i, j, k])
        reclaimed, cold, donated = (int(a[i, j, k]) for a in (plan.reclaimed, plan.started, plan.donated))
        if min(reclaimed, cold, donated) < 0:
            yield f"sign: {where} reclaims {reclaimed}, starts {cold}, donates {donated}"
        if donated > now:
            yield f"own: {where} releases {donated} of {now} instances"
        if reclaimed > p.spot[i, j, k]:
            yield f"spot: {where} reclaims {reclaimed} of {p.spot[i, j, k]} donated instances"
        if planned != now + reclaimed + cold - donated:
            yield f"balance: {where} has {planned}, not {now} + {reclaimed} + {cold} - {donated}"
        if planned != 0 and not p.runs[i, k]:
            yield f"runs: {where} has {planned} but cannot run there"


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
            total = int(plan.instances[i, j].sum())
            below = [int(p.min_instances[i, j]) - total]
            for k, option in enumerate(p.options):
                on_option, most = int(plan.instances[i, j, k]), p.max_option_instances[i, j, k]
                below.append(int(p.min_option_instances[i, j, k]) - on_option)
                if on_option > most:
                    yield f"most: {llm} in {region} has {on_option} on {option}, maximum {most}"
            if max(*below, 0) != plan.missing_instances[i, j]:
                least, reported = p.min_instances[i, j], plan.missing_instances[i, j]
                yield f"least: {llm} in {region} has {total}, minimum {least}, and reports {reported} missing"
            if total > p.max_instances[i, j]:
                yield f"most: {llm} in {region} has {total}, maximum {p.max_instances[i, j]}"


def _broken_budget(p: Problem, plan: HourPlan) -> Iterator[str]:
    ijk = ((i, j, k) for i, j, k in product(*map(range, plan.instances.shape)) if p.runs[i, k])
    usd = sum(float(p.usd_per_hour[i, k]) * int(plan.instances[i, j, k]) for i, j, k in ijk)
    if usd > p.budget_usd * (1 + TOLERANCE):
        yield f"budget: the instances cost {usd:.6g} USD, the budget is {p.budget_usd:.6g}"


def _broken_cost(p: Problem, plan: HourPlan) -> Iterator[str]:
    usd = 0.0
    for i, j, k in product(range(len(p.llms)), range(len(p.regions)), range(len(p.options))):
        if not p.runs[i, k]:
            continue
        alpha, planned = float(p.usd_per_hour[i, k]), int(plan.instances[i, j, k])
        reclaimed, cold, donated = (int(a[i, j, k]) for a in (plan.reclaimed, plan.started, plan.donated))
        if plan.windows is None:
            usd += alpha * (planned + p.boot_spot_s[i, k] / 3600 * cold)
            continue
        spot = int(p.spot[i, j, k]) + donated - reclaimed
        usd += p.hours * alpha * (planned + (1 - p.spot_earning_share) * spot)
        usd += alpha * (p.boot_spot_s[i, k] * reclaimed + p.boot_cold_s[i, j, k] * cold) / 3600
        usd += p.hysteresis_share * alpha * donated
    if plan.windows is not None:
        usd += sum(float(p.export_usd[i] * e.sum()) for i, e in enumerate(plan.windows.exports))
    if abs(usd - plan.objective_usd) > TOLERANCE * max(usd, 1.0):
        yield f"cost: the instances cost {usd:.6g} USD, the plan reports {plan.objective_usd:.6g}"


# --- (local) and (global) of the paper's model -----------------------------------------------------------


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
        for name, where, served, needed, short in rows:
            if abs(max(needed - served, 0.0) - short) > 2 * TOLERANCE * max(needed, 1.0):
                yield (
                    f"{name}: {llm} in {where} serves {served:.6g} of {needed:.6g} tokens/s "
                    f"and reports {short:.6g} short"
                )


# --- the windows of the corrected model ------------------------------------------------------------------


def _broken_corrected(p: Problem, plan: HourPlan, flows: WindowFlows) -> Iterator[str]:
    yield from _broken_budget(p, plan)
    for i, w in product(range(len(p.llms)), range(p.windows)):
        tolerance = 2 * TOLERANCE * max(float(p.need_tokens_per_s[i, :, w].sum()), 1.0)
        out, into = float(flows.exports[i, :, w].sum()), float(flows.imports[i, :, w].sum())
        if abs(out - into) > tolerance:
            yield f"pool: {p.services[i]} exports {out:.6g} and imports {into:.6g} tokens/s in window {w}"
        for j in range(len(p.regions)):
            where = f"{p.services[i]} in {p.regions[j]}, window {w}"
            yield from (f"{line} of {where}" for line in _broken_window(p, plan, flows, (i, j, w), tolerance))
    unserved = flows.unserved
    for i, llm in enumerate(p.services):
        rows = [
            (p.regions[j], plan.short_tokens_per_s[i, j], max(unserved[i, j])) for j in range(len(p.regions))
        ]
        rows.append(("all regions", plan.short_llm_tokens_per_s[i], max(unserved[i].sum(axis=0))))
        for where, reported, short in rows:
            if abs(reported - short) > 2 * TOLERANCE * max(float(p.need_tokens_per_s[i].sum()), 1.0):
                yield f"unserved: {llm} in {where} lacks {short:.6g} tokens/s and reports {reported:.6g}"


def _broken_window(
    p: Problem, plan: HourPlan, flows: WindowFlows, at: tuple[int, int, int], tolerance: float
) -> Iterator[str]:
    """Yield the violations of one service, region and window, beyond a tolerance in tokens/s."""
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
            share = float(p.size_shares[min(count, len(p.size_shares)) - 1, i, k]) if count else 1.0
            up += count * share * float(p.tokens_per_s[i, k])
    rho, b = float(p.demand_tokens_per_s[at]), float(p.buffer_tokens_per_s[i, j])
    if abs(up - capacity) > tolerance:
        yield f"capacity: {up:.6g} tokens/s are up, the plan reports {capacity:.6g}"
    if min(e, m, z, v, y) < -tolerance:
        yield "sign: a negative flow or shortage"
    if capacity + e - m + z + y < rho + b - tolerance:
        served = f"{capacity:.6g} + {e:.6g} - {m:.6g} + {z:.6g} + {y:.6g}"
        yield f"home: {served} is less than the needed {rho + b:.6g} tokens/s"
    if e > (1 - p.epsilon) * rho + v + tolerance:
        yield f"locality: {e:.6g} tokens/s are exported, the limit is {(1 - p.epsilon) * rho:.6g} + {v:.6g}"
    if y > b + tolerance:
        yield f"buffer: {y:.6g} tokens/s are not kept, the buffer has {b:.6g}"
