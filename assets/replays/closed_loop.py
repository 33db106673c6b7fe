"""The closed loop: each hour is planned when it begins, from the fleet that the replay has then.

The plans of the lineage are open loop: every hour starts from what the hour before it planned. Where
instances die, boot late or follow a rule of their own, the fleet is another one.
"""

from datetime import date

import numpy as np
import pandas as pd

from fleetcast.assets.lake.settings import RunSettings, Step
from fleetcast.assets.plans.plan_loads import day_loads
from fleetcast.assets.plans.plan_tables import PlannedHours, plan_table
from fleetcast.assets.plans.plans import checked_solver
from fleetcast.assets.plans.problems import hour_problems, problem_template
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
    """Play a policy's next day as Session.play, planning as it goes; the plans go to `closed_plans`."""
    rows = read_day_plans(settings, day)
    begin_s = float(session.state.progress.now_s)
    own = settings.under(policy)
    solve = checked_solver(own, str(settings.config.rules[policy].plan))
    hours: PlannedHours = []
    spent = []
    for hour, problem in enumerate(closed_loop_problems(own, day, policy, rows)):
        held, donated = current_fleet(settings.grid, session)
        asked = problem._replace(instances_now=held, spot=donated)
        hours.append((asked, solve(asked)))
        targets = settings.grid.by_pool(hours[-1][1].instances)
        forecast = settings.grid.services_to_llms(asked.demand_tokens_per_s.max(axis=2))
        drive = Schedule(targets, forecast, hour_s=HOUR_S)
        spent.append(session.play(drive, begin_s + (hour + 1) * HOUR_S, step))
    planned = plan_table(day, {policy: hours}).drop_columns("policy")
    settings.lake.write("closed_plans", planned, trace=settings.trace, day=day, policy=policy)
    return FleetUsage(*(np.concatenate(columns) for columns in zip(*spent, strict=True)))


def closed_loop_problems(settings: RunSettings, day: date, policy: str, rows: pd.DataFrame) -> list[Problem]:
    """The hours of the policy's kind of plan, on the capacities that its open-loop plan counted on."""
    rules = settings.config.rules
    kind = str(rules[policy].plan)
    ahead = next(name for name, rule in rules.items() if rule.plan == kind and not rule.is_closed)
    own = rows[rows["policy"] == ahead]
    grid = settings.grid
    counted = grid.hourly_cells(own, "capacity_tokens_per_s")[0].max(axis=1)  # the same in all regions
    template = problem_template(grid, settings.config, [1.0] * len(grid.service_options), kind)
    deployed = np.where(template.runs, counted, np.nan)
    return hour_problems(template._replace(tokens_per_s=deployed), day_loads(settings, day)[kind])


def current_fleet(grid: Grid, session: Session) -> tuple[Ints, Ints]:
    """What a plan starts from: instances that serve or boot, and donated ones, each of shape (i, j, k)."""
    there = session.instances()
    return (
        grid.to_cells(there[:, _SERVING] + there[:, _BOOTING]),
        grid.to_cells(there[:, _DONATED]),
    )
