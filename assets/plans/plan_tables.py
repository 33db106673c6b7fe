"""Write the plans of a day to the tables plans, plan_windows and plan_bounds."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import HOURS_OF_DAY, RunSettings, midnight
from fleetcast.assets.plans.plan_loads import PlanLoad
from fleetcast.assets.plans.problems import hour_problems, problem_template
from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.change_reasons import explain_changes
from fleetcast.models.plan.cost_bounds import hour_cost_bounds
from fleetcast.models.plan.problem import HourPlan, Problem

# By hour: the problem, which starts from the fleet of the hour before, and its plan.
PlannedHours = list[tuple[Problem, HourPlan]]
FLOWS = ("capacity", "exports", "imports", "unserved", "remote", "buffer_short")  # of plan_windows


def write_plan_bounds(settings: RunSettings, day: date, capacities: Sequence[float], truth: PlanLoad) -> None:
    """Write the table plan_bounds of a day.

    capacities : input tokens/s of one instance of each of `grid.service_options`
    truth : the actual load
    """
    bounds = pa.Table.from_pylist(
        _bound_rows(settings, day, capacities, truth), schema=SCHEMAS["plan_bounds"]
    )
    settings.lake.write("plan_bounds", bounds, trace=settings.trace, day=day)


def write_plans(settings: RunSettings, day: date, plans: Mapping[str, PlannedHours]) -> pa.Table:
    """Write the tables plan_windows and plans of a day, from the plans by policy; return plans."""
    rows = [row for policy, hours in plans.items() for row in _window_rows(day, policy, hours)]
    windows = pa.Table.from_pylist(rows, schema=SCHEMAS["plan_windows"])
    settings.lake.write("plan_windows", windows, trace=settings.trace, day=day)
    table = plan_table(day, plans)
    settings.lake.write("plans", table, trace=settings.trace, day=day)
    return table


def plan_table(day: date, plans: Mapping[str, PlannedHours]) -> pa.Table:
    """Return the plans by policy as rows of the table `plans`."""
    rows = [row for policy, hours in plans.items() for row in plan_table_rows(midnight(day), policy, hours)]
    return pa.Table.from_pylist(rows, schema=SCHEMAS["plans"])


def plan_table_rows(start: datetime, policy: str, hours: PlannedHours) -> Iterator[dict[str, Any]]:
    """Yield a row for every slot from `start` on, service, region and option that the service runs on."""
    for slot, (problem, plan) in enumerate(hours):
        why = explain_changes(problem, plan, (start.hour + slot * problem.hours) % HOURS_OF_DAY)
        sustained_tokens_per_s = sustained_by_option(problem, plan.instances)
        for i, k in np.argwhere(problem.runs).tolist():
            gpus = int(problem.gpus_per_instance[i, k])
            for j, region in enumerate(problem.regions):
                instances, delta = int(plan.instances[i, j, k]), int(plan.delta[i, j, k])
                yield {
                    "policy": policy,
                    "programme": plan.programme,
                    "hour_start": start + timedelta(hours=slot * problem.hours),
                    "llm": problem.llms[i],
                    "role": problem.roles[i],
                    "served_region": region,
                    "gpu": problem.options[k].removeprefix(f"{gpus} x "),  # of paired pools, the number stays
                    "demand_tokens_per_s": problem.demand_tokens_per_s[i, j].max(),
                    "buffer_tokens_per_s": problem.buffer_tokens_per_s[i, j],
                    "capacity_tokens_per_s": problem.tokens_per_s[i, k],
                    "sustained_tokens_per_s": sustained_tokens_per_s[i, j, k],
                    "gpus_per_instance": gpus,
                    "instances_before": instances - delta,
                    "instances": instances,
                    "delta": delta,
                    "reclaimed": int(plan.reclaimed[i, j, k]),
                    "started": int(plan.started[i, j, k]),
                    "donated": int(plan.donated[i, j, k]),
                    "why": why.get((i, j, k)),
                    "short_tokens_per_s": plan.short_tokens_per_s[i, j],
                    "short_llm_tokens_per_s": plan.short_llm_tokens_per_s[i],
                    "solver_status": plan.status,
                    "gap_share": plan.gap_share,
                    "usd": instances * problem.hours * problem.usd_per_hour[i, k],
                    "plan_usd": plan.objective_usd,
                    "plan_bound_usd": plan.bound_usd,
                    "plan_lp_bound_usd": plan.lp_bound_usd,
                }


def sustained_by_option(problem: Problem, instances: Ints) -> Floats:
    """Return the tokens/s that the instances of each option sustain, both of shape (i, j, k)."""
    options = np.eye(len(problem.options), dtype=np.int64)
    return np.stack([problem.sustained_tokens_per_s(instances * only) for only in options], axis=2)


def _bound_rows(
    settings: RunSettings, day: date, capacities: Sequence[float], truth: PlanLoad
) -> list[dict[str, Any]]:
    """Return lower bounds of the cost of each hour of the actual load, at full capacity of each instance."""
    template = problem_template(settings.grid, settings.config, capacities, "truth")
    share = settings.config.plan.corrected_capacity_share
    whole_capacity = template._replace(tokens_per_s=template.tokens_per_s / share)
    return [
        {"hour_start": midnight(day) + timedelta(hours=hour), **hour_cost_bounds(problem)._asdict()}
        for hour, problem in enumerate(hour_problems(whole_capacity, truth))
    ]


def _window_rows(day: date, policy: str, hours: PlannedHours) -> Iterator[dict[str, Any]]:
    """Yield a row for every window, service and region; none for the paper's plans, which have no windows."""
    for slot, (problem, plan) in enumerate(hours):
        if plan.windows is None:
            continue
        start = midnight(day) + timedelta(hours=slot * problem.hours)
        for i, j, w in np.ndindex(*problem.demand_tokens_per_s.shape):
            yield {
                "policy": policy,
                "hour_start": start,
                "window_start": start + w * timedelta(seconds=problem.window_s),
                "llm": problem.llms[i],
                "role": problem.roles[i],
                "region": problem.regions[j],
                "demand_tokens_per_s": problem.demand_tokens_per_s[i, j, w],
                "buffer_tokens_per_s": problem.buffer_tokens_per_s[i, j],
                **{f"{name}_tokens_per_s": getattr(plan.windows, name)[i, j, w] for name in FLOWS},
            }
