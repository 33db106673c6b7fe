"""Closed-loop planning: each hour is planned when it begins, from the fleet of the replay at that time.

The plans of the lineage are open loop: every hour starts from the plan of the hour before. The real fleet
differs from it where instances fail, boot late or follow another scaling rule.
"""

from datetime import date

import numpy as np
import pandas as pd

from fleetcast.assets.lake.settings import RunSettings, Step
from fleetcast.assets.plans.plan_loads import day_loads
from fleetcast.assets.plans.plan_tables import PlannedHours, plan_table
from fleetcast.assets.plans.plans import checked_solver
from fleetcast.assets.plans.problems import hour_problems, problem_template, with_size_shares
from fleetcast.assets.replays.policy_inputs import read_day_plans
from fleetcast.models.aliases import Ints
from fleetcast.models.plan.problem import Problem
from fleetcast.models.replay.run import Schedule, Session
from fleetcast.models.replay.session.outcome import FleetUsage
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.mechanisms import STATES
from fleetcast.models.world.plan_grid import Grid

_SERVING, _BOOTING, _DONATED = (STATES.index(name) for name in ("serving", "booting", "donated"))


def replay_closed_loop(
    settings: RunSettings, day: date, policy: str, session: Session, step: Step
) -> FleetUsage:
    """Replay a policy's next day, and plan each hour when it begins; write the plans to `closed_plans`."""
    rows = read_day_plans(settings, day)
    begin_s = float(session.state.progress.now_s)
    policy_settings = settings.under(policy)
    solve = checked_solver(policy_settings, str(settings.config.rules[policy].plan))
    hours: PlannedHours = []
    usage = []
    for hour, template in enumerate(closed_loop_problems(policy_settings, day, policy, rows)):
        running, donated = current_fleet(settings.grid, session)
        problem = template._replace(instances_now=running, spot=donated)
        hours.append((problem, solve(problem)))
        targets = settings.grid.by_pool(hours[-1][1].instances)
        forecast = settings.grid.services_to_llms(problem.demand_tokens_per_s.max(axis=2))
        schedule = Schedule(targets, forecast, hour_s=HOUR_S)
        usage.append(session.play(schedule, begin_s + (hour + 1) * HOUR_S, step))
    plans = plan_table(day, {policy: hours}).drop_columns("policy")
    settings.lake.write("closed_plans", plans, trace=settings.trace, day=day, policy=policy)
    return FleetUsage(*(np.concatenate(columns) for columns in zip(*usage, strict=True)))


def closed_loop_problems(settings: RunSettings, day: date, policy: str, rows: pd.DataFrame) -> list[Problem]:
    """Return the problems of the policy's hours, with the capacities of the open-loop plan of its kind."""
    rules = settings.config.rules
    kind = str(rules[policy].plan)
    open_loop = next(name for name, rule in rules.items() if rule.plan == kind and not rule.is_closed)
    plan_rows = rows[rows["policy"] == open_loop]
    grid = settings.grid
    capacity = grid.hourly_cells(plan_rows, "capacity_tokens_per_s")[0].max(axis=1)  # equal in all regions
    template = problem_template(grid, settings.config, [1.0] * len(grid.service_options), kind)
    deployed = np.where(template.runs, capacity, np.nan)
    template = with_size_shares(template._replace(tokens_per_s=deployed), settings, day, kind)
    return hour_problems(template, day_loads(settings, day)[kind])


def current_fleet(grid: Grid, session: Session) -> tuple[Ints, Ints]:
    """Return serving or booting instances, and donated ones, each of shape (services, regions, options)."""
    states = session.instances()
    return (grid.to_cells(states[:, _SERVING] + states[:, _BOOTING]), grid.to_cells(states[:, _DONATED]))
