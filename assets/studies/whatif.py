"""What if something were different: a policy planned and replayed under each case of data/whatif.toml.

Of their plans and outcomes nothing enters the lake but the trials of each case: the mart whatifs.
"""

from collections.abc import Mapping, Sequence
from datetime import date

import numpy as np
import pandas as pd
import pyarrow as pa

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.pages.figure_files import save_day_figure
from fleetcast.assets.pages.on_demand_asset import AssetRows
from fleetcast.assets.plans.plan_loads import PlanLoad, split_load_into_slots
from fleetcast.assets.plans.plan_tables import PlannedHours
from fleetcast.assets.plans.plans import (
    checked_solver,
    loads_by_plan_kind,
    measure_capacities,
    plan_open_loop,
)
from fleetcast.assets.plans.problems import hour_problems, problem_template
from fleetcast.assets.replays.policy_inputs import instances_at_start, split_instances_by_tier
from fleetcast.assets.replays.replay_figures import draw_cost_against_misses
from fleetcast.assets.replays.replay_workloads import read_workload
from fleetcast.assets.studies.experiment import ReplayTrial, Variant, replay_trials, write_trials
from fleetcast.assets.studies.planned_trials import build_plan_trial
from fleetcast.assets.studies.whatif_cases import (
    WHATIF_CASES,
    WhatIfCase,
    limit_problem,
    resolve_cases,
    scale_load,
    without_regions,
)
from fleetcast.models.plan.problem import PlanError
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known


def run_whatif_cases(
    settings: RunSettings, day: date, names: Sequence[str], progress: Progress, policy: str = "corrected"
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
    chosen = resolve_cases(settings, names)
    trials = plan_whatif_cases(chosen, day, progress, policy)
    workload = read_workload(settings, day)
    for trial, rows in zip(
        trials, replay_trials(trials, len(trials), workload, "plan and replay", progress), strict=True
    ):
        write_trials(settings, "whatif", day, rows, trial.variant.name)
    return read_whatif_rows(settings, day, [trial.variant.name for trial in trials])


def read_whatif_rows(settings: RunSettings, day: date, names: Sequence[str]) -> pa.Table:
    """The rows of the mart whatifs of these cases, in their order."""
    return settings.lake.sql("reads/whatifs_in_order.sql", trace=settings.trace, day=day, names=list(names))


def list_made_cases(table: pa.Table, day: date) -> list[AssetRows]:
    """The row of each case, as the asset's page shows it."""
    found = enumerate(table.select(["case_name", "policy"]).to_pylist())
    return [
        AssetRows(
            table.slice(n, 1), {"day": day, "case": row["case_name"], "case_name": case_file_name(**row)}
        )
        for n, row in found
    ]


def case_file_name(case_name: str, policy: str) -> str:
    """What a case under a policy is called in the lake."""
    return case_name if policy == "corrected" else f"{case_name}@{policy}"


def plan_whatif_cases(
    chosen: Mapping[str, tuple[WhatIfCase, RunSettings]], day: date, progress: Progress, policy: str
) -> list[ReplayTrial]:
    """The policy's plan of each case; capacities and forecasts are found once for all that share them.

    One without a plan begins with the fleet of SageServe's forecast plan, as in a night.
    """
    trials = []
    sustained: dict[object, Sequence[float]] = {}
    loads: dict[float, dict[str, PlanLoad]] = {}
    for name, (case, own) in chosen.items():
        rule, slots, own = own.config.rules[policy], own.config.slots(policy), own.under(policy)
        deployed, quantile = tuple(own.config.fleet.deployments.items()), own.config.plan.quantile
        if quantile not in loads:
            loads[quantile] = loads_by_plan_kind(own, day)
        if deployed not in sustained:
            sustained[deployed] = measure_capacities(own, day, progress)
        kind = rule.plan or "forecast"
        load = scale_load(loads[quantile][kind], case.demand_factor)
        try:
            hours = plan_case(own, case, sustained[deployed], split_load_into_slots(load, slots), kind, slots)
        except PlanError as error:
            raise ConfigError(f"{WHATIF_CASES.name} [{name}]: {error}") from error
        first = own.grid.by_pool(hours[0][1].instances)
        there = without_regions(own, case.down)
        start = (
            instances_at_start(there.grid, rule.pooling)
            if own.config.replay.start == "whole"
            else split_instances_by_tier(there.grid, first, rule.pooling)
        )
        theta = problem_template(own.grid, own.config, sustained[deployed], "truth").tokens_per_s
        variant = Variant(case_file_name(name, policy), there, day, policy, labels={"what": case.what})
        trials.append(build_plan_trial(variant, hours, start, case.demand_factor, theta))
    return trials


def plan_case(
    settings: RunSettings, case: WhatIfCase, sustained: Sequence[float], load: PlanLoad, kind: str, slots: int
) -> PlannedHours:
    """The plan of a case, slot by slot, from the fleet that the case begins with."""
    template = problem_template(settings.grid, settings.config, sustained, kind)
    hours = hour_problems(template._replace(hours=1 / slots), load)
    hours = [limit_problem(problem, case) for problem in hours]
    start = hours[0].instances_now
    return plan_open_loop(hours, start, np.zeros_like(start), checked_solver(settings, kind))


def draw_whatif_cases(settings: RunSettings, day: date, table: pd.DataFrame) -> LakePath:
    """The cases as points of cost against missed requests, beside the day's figures."""
    frame = table.drop(columns="policy").rename(columns={"case_name": "policy"})
    return save_day_figure(settings, day, "whatif", lambda: draw_cost_against_misses(frame))
