"""Explain the changes of a plan: one sentence per service, region and option."""

import numpy as np

from fleetcast.models.plan.pool_capacity import LARGE
from fleetcast.models.plan.problem import TOLERANCE, HourPlan, Problem

PlanCell = tuple[int, int, int]  # (i, j, k): service, region, option


def explain_changes(problem: Problem, plan: HourPlan, hour: float) -> dict[PlanCell, str]:
    """Return the reason of each change by (i, j, k): the change, its load, and the binding constraint.

    A change is where the plan reclaims, starts or donates. `hour` is the hour of the day at which the plan
    begins; the reasons name windows by their clock time.
    """
    changes = plan.reclaimed + plan.started + plan.donated
    return {
        (i, j, k): _explain_cell(problem, plan, (i, j, k), hour) for i, j, k in np.argwhere(changes).tolist()
    }


def _explain_cell(p: Problem, plan: HourPlan, at: PlanCell, hour: float) -> str:
    i, j, _k = at
    parts = [
        f"{_describe_change(plan, at)}: {_describe_load(p, i, j, hour)}",
        _describe_flow(p, plan, i, j),
        _describe_size(p, plan, at),
        _describe_limit(p, plan, at),
    ]
    moved = [name for k, name in enumerate(p.options) if plan.delta[i, j, k] * plan.delta[at] < 0]
    if moved:
        parts.append(f"in exchange for {' and '.join(moved)}")
    if plan.short_tokens_per_s[i, j] >= 0.5:  # less is printed as 0
        parts.append(f"still short of {plan.short_tokens_per_s[i, j]:,.0f} tokens/s")
    return "; ".join(part for part in parts if part)


def _describe_change(plan: HourPlan, at: PlanCell) -> str:
    """Describe how many instances are reclaimed, started and donated."""
    counts = ((plan.reclaimed, "back from spot"), (plan.started, "started"), (plan.donated, "to spot"))
    return ", ".join(f"{values[at]} {what}" for values, what in counts if values[at])


def _describe_load(p: Problem, i: int, j: int, hour: float) -> str:
    """Compare the region's peak with the capacity that serves when the hour begins."""
    need = p.need_tokens_per_s[i, j]
    peak, minute = float(need.max()), round(60 * hour + need.argmax() * p.window_s / 60)
    serving = float(p.sustained_tokens_per_s(p.instances_now)[i, j])
    clock = f" at {minute // 60:02d}:{minute % 60:02d}" if p.windows > 1 else ""
    than = f", {peak / serving - 1:+.0%} on what serves" if serving > 0 else ""
    return f"peak{clock} of {peak:,.0f} tokens/s{than}"


def _describe_flow(p: Problem, plan: HourPlan, i: int, j: int) -> str:
    """Describe the largest flow to or from another region, in the window in which it is largest."""
    need = p.need_tokens_per_s[i]
    if plan.windows is None:
        home = p.epsilon * need[j].max()
        serves = float(np.nan_to_num(p.tokens_per_s[i]) @ plan.instances[i, j])
        spare = float(np.nanmin(np.where(p.runs[i], p.tokens_per_s[i], np.nan)))
        return f"epsilon {p.epsilon:g} binds" if home <= serves < home + spare else ""
    e, m, far = plan.windows.exports[i], plan.windows.imports[i], (1 - p.epsilon) * p.demand_tokens_per_s[i]
    w = int(e[j].argmax())
    if e[j, w] > TOLERANCE * need[j].max():
        helper = p.regions[int(m[:, w].argmax())]
        binds = ", epsilon binds" if e[j, w] >= far[j, w] * (1 - TOLERANCE) else ""
        binds = ", more than epsilon allows" if e[j, w] > far[j, w] * (1 + TOLERANCE) else binds
        return f"{e[j, w] / need[j, w]:.0%} flow to {helper}{binds}"
    w = int(m[j].argmax())
    if m[j, w] > TOLERANCE * max(need[j].max(), 1.0):
        return f"serves {m[j, w]:,.0f} tokens/s of {p.regions[int(e[:, w].argmax())]}"
    return ""


def _describe_size(p: Problem, plan: HourPlan, at: PlanCell) -> str:
    """Describe what an instance of a small pool sustains; empty if it is as much as in a large pool."""
    i, _, k = at
    count = int(plan.instances[at])
    if count == 0 or (share := p.size_shares[min(count, LARGE) - 1, i, k]) == 1:
        return ""
    return f"each of {count} sustains {share:.0%} of what each of {LARGE} would"


def _describe_limit(p: Problem, plan: HourPlan, at: PlanCell) -> str:
    """Describe the limit that the plan has reached; empty if there is none."""
    i, j, k = at
    total, on_option = plan.instances[i, j].sum(), plan.instances[at]
    used = np.einsum("ik,ikg->g", plan.instances[:, j], p.uses)
    if total == p.max_instances[i, j]:
        return f"maximum of {total}"
    if on_option == p.max_option_instances[at]:
        return f"maximum of {on_option} on {p.options[k]}"
    for g in np.flatnonzero(used + p.uses[i, k] > p.cap_gpus[j]):
        if p.uses[i, k, g]:
            return f"cap of {p.cap_gpus[j, g]} {p.gpus[g]} reached"
    if total == p.min_instances[i, j]:
        return f"minimum of {total}"
    if on_option == p.min_option_instances[at] > 0:
        return f"minimum of {on_option} on {p.options[k]}"
    if plan.started[at] and plan.reclaimed[at] == p.spot[at] > 0:
        return "spot used up"
    return ""
