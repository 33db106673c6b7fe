"""What if something were different: a policy planned and replayed under each case of data/whatif.toml.

Of their plans and outcomes nothing enters the lake but the trials of each case: the mart whatifs.
"""

from collections.abc import Mapping, Sequence
from datetime import date

import numpy as np
import pandas as pd
import pyarrow as pa

from fleetcast.assets.lake.settings import Progress, Settings
from fleetcast.assets.lake.store import Place
from fleetcast.assets.pages.on_demand import Made
from fleetcast.assets.pages.pictures import save
from fleetcast.assets.plans.inputs import Load, in_slots
from fleetcast.assets.plans.plan_tables import Day
from fleetcast.assets.plans.plans import all_loads, checked_solve, open_loop, sustained_tokens_per_s
from fleetcast.assets.plans.problems import hour_problems, problem_template
from fleetcast.assets.replays.drives import instances_at_start, split_by_tier
from fleetcast.assets.replays.figures import draw_cost_against_misses
from fleetcast.assets.replays.workloads import read_workload
from fleetcast.assets.studies.cases import CASES, Case, limited, multiplied_load, possible_cases, without
from fleetcast.assets.studies.experiment import Trial, Variant, play_all, write
from fleetcast.assets.studies.planned_trials import trial_of_plan
from fleetcast.models.plan.problem import PlanError
from fleetcast.models.world.reading import ConfigError, require_known


def what_if(
    settings: Settings, day: date, names: Sequence[str], progress: Progress, policy: str = "corrected"
) -> pa.Table:
    """Plan and replay a day that has forecasts under each case; its rows of the mart whatifs.

    Every case is checked and planned before the first is replayed, and each is written as soon as it is
    known. ConfigError names the case that cannot be, or a policy whose plans are made as the day goes.
    """
    require_known(policy, settings.config.rules, "policy", "whatif")
    rule = settings.config.rules[policy]
    if rule.is_closed or rule.answers or rule.plan in ("recent", "autoscaler", "peak", "melange"):
        raise ConfigError(
            f"What if under {policy}: its plan is not made hour by hour before the day. Name a policy with a "
            "forecast, a corrected or no plan, such as corrected, lt_ua or reactive."
        )
    chosen = possible_cases(settings, names)
    trials = planned_cases(chosen, day, progress, policy)
    workload = read_workload(settings, day)
    for trial, rows in zip(
        trials, play_all(trials, len(trials), workload, "plan and replay", progress), strict=True
    ):
        write(settings, "whatif", day, rows, trial.variant.name)
    return rows_of_cases(settings, day, [trial.variant.name for trial in trials])


def rows_of_cases(settings: Settings, day: date, names: Sequence[str]) -> pa.Table:
    """The rows of the mart whatifs of these cases, in their order."""
    return settings.lake.sql("reads/whatifs_in_order.sql", trace=settings.trace, day=day, names=list(names))


def made_of_cases(table: pa.Table, day: date) -> list[Made]:
    """The row of each case, as the asset's page shows it."""
    found = enumerate(table.select(["case_name", "policy"]).to_pylist())
    return [
        Made(table.slice(n, 1), {"day": day, "case": row["case_name"], "case_name": place_of(**row)})
        for n, row in found
    ]


def place_of(case_name: str, policy: str) -> str:
    """What a case under a policy is called in the lake."""
    return case_name if policy == "corrected" else f"{case_name}@{policy}"


def planned_cases(
    chosen: Mapping[str, tuple[Case, Settings]], day: date, progress: Progress, policy: str
) -> list[Trial]:
    """The policy's plan of each case; capacities and forecasts are found once for all that share them.

    One without a plan begins with the fleet of SageServe's forecast plan, as in a night.
    """
    trials = []
    sustained: dict[object, Sequence[float]] = {}
    loads: dict[float, dict[str, Load]] = {}
    for name, (case, own) in chosen.items():
        rule, slots, own = own.config.rules[policy], own.config.slots(policy), own.under(policy)
        deployed, quantile = tuple(own.config.fleet.deployments.items()), own.config.plan.quantile
        if quantile not in loads:
            loads[quantile] = all_loads(own, day)
        if deployed not in sustained:
            sustained[deployed] = sustained_tokens_per_s(own, day, progress)
        kind = rule.plan or "forecast"
        load = multiplied_load(loads[quantile][kind], case.demand_factor)
        try:
            hours = plan_case(own, case, sustained[deployed], in_slots(load, slots), kind, slots)
        except PlanError as error:
            raise ConfigError(f"{CASES.name} [{name}]: {error}") from error
        first = own.grid.by_pool(hours[0][1].instances)
        there = without(own, case.down)
        start = (
            instances_at_start(there.grid, rule.pooling)
            if own.config.replay.start == "whole"
            else split_by_tier(there.grid, first, rule.pooling)
        )
        theta = problem_template(own.grid, own.config, sustained[deployed], "truth").tokens_per_s
        variant = Variant(place_of(name, policy), there, day, policy, labels={"what": case.what})
        trials.append(trial_of_plan(variant, hours, start, case.demand_factor, theta))
    return trials


def plan_case(
    settings: Settings, case: Case, sustained: Sequence[float], load: Load, kind: str, slots: int
) -> Day:
    """The plan of a case, slot by slot, from the fleet that the case begins with."""
    template = problem_template(settings.grid, settings.config, sustained, kind)
    hours = hour_problems(template._replace(hours=1 / slots), load)
    hours = [limited(problem, case) for problem in hours]
    start = hours[0].instances_now
    return open_loop(hours, start, np.zeros_like(start), checked_solve(settings, kind))


def draw(settings: Settings, day: date, table: pd.DataFrame) -> Place:
    """The cases as points of cost against missed requests, beside the day's figures."""
    frame = table.drop(columns="policy").rename(columns={"case_name": "policy"})
    return save(settings, day, "whatif", lambda: draw_cost_against_misses(frame))
