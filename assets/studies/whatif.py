"""Answer what-ifs: plan and replay a policy under each case of data/whatif.toml.

Only the trials of the cases are written to the lake (mart whatifs), not their plans and outcomes.
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
from fleetcast.assets.plans import measured_capacity
from fleetcast.assets.plans.plan_loads import PlanLoad, split_load_into_slots
from fleetcast.assets.plans.plan_tables import PlannedHours
from fleetcast.assets.plans.plans import (
    checked_solver,
    loads_by_plan_kind,
    plan_open_loop,
)
from fleetcast.assets.plans.problems import hour_problems, problem_template, with_size_shares
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
    without_regions,
)
from fleetcast.models.plan.problem import PlanError
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known


def run_whatif_cases(
    settings: RunSettings, day: date, names: Sequence[str], progress: Progress, policy: str = "corrected"
) -> pa.Table:
    """Plan and replay a forecast day under each case, and return its rows of the mart whatifs.

    All cases are checked and planned before the first replay, and each is written as soon as it is replayed.
    ConfigError names an impossible case, or a policy that plans during the day.
    """
    require_known(policy, settings.config.rules, "policy", "whatif")
    rule = settings.config.rules[policy]
    is_hourly = rule.plan is None or rule.programme not in (None, "peak", "melange")
    if rule.is_closed or rule.answers or not is_hourly:
        raise ConfigError(
            f"What if under {policy}: its plan is not made hour by hour before the day. Name a policy with a "
            "forecast plan, a corrected plan or no plan, such as lt_ua, corrected or reactive."
        )
    chosen = resolve_cases(settings, names)
    trials = plan_whatif_cases(chosen, day, progress, policy)
    workload = read_workload(settings, day)
    for trial, rows in zip(
        trials, replay_trials(trials, len(trials), workload, "plan and replay", progress), strict=True
    ):
        write_trials(settings, "whatif", day, rows, trial.variant.name)
    names = [trial.variant.name for trial in trials]
    return settings.lake.sql("reads/whatifs_in_order.sql", trace=settings.trace, day=day, names=names)


def list_made_cases(table: pa.Table, day: date) -> list[AssetRows]:
    """Return the row of each case, as the asset's page shows it."""
    rows = enumerate(table.select(["case_name", "policy"]).to_pylist())
    return [
        AssetRows(
            table.slice(n, 1), {"day": day, "case": row["case_name"], "case_name": case_file_name(**row)}
        )
        for n, row in rows
    ]


def case_file_name(case_name: str, policy: str) -> str:
    """Return the name that a case under a policy has in the lake."""
    return case_name if policy == "corrected" else f"{case_name}@{policy}"


def plan_whatif_cases(
    chosen: Mapping[str, tuple[WhatIfCase, RunSettings]], day: date, progress: Progress, policy: str
) -> list[ReplayTrial]:
    """Plan each case by the policy; cases with the same capacities or forecasts share them.

    A policy without a plan starts with the fleet of SageServe's forecast plan, as in a nightly run.
    """
    trials = []
    capacities: dict[object, Sequence[float]] = {}
    loads: dict[float, dict[str, PlanLoad]] = {}
    for name, (case, case_settings) in chosen.items():
        rule, slots = case_settings.config.rules[policy], case_settings.config.slots(policy)
        case_settings = case_settings.under(policy)
        deployments = tuple(case_settings.config.fleet.deployments.items())
        quantile = case_settings.config.plan.quantile
        if quantile not in loads:
            loads[quantile] = loads_by_plan_kind(case_settings, day)
        if deployments not in capacities:
            capacities[deployments] = measured_capacity.measure_capacities(case_settings, day, progress)
        kind = rule.plan or "forecast"
        load, factor = loads[quantile][kind], case.demand_factor
        case_load = PlanLoad(load.demand * factor, load.buffer * factor)
        try:
            in_slots = split_load_into_slots(case_load, slots)
            hours = plan_case(case_settings, day, case, capacities[deployments], in_slots, kind, slots)
        except PlanError as error:
            raise ConfigError(f"{WHATIF_CASES.name} [{name}]: {error}") from error
        planned = case_settings.grid.by_pool(hours[0][1].instances)
        replay_settings = without_regions(case_settings, case.down)
        start = (
            instances_at_start(replay_settings.grid, rule.pooling)
            if case_settings.config.replay.start == "whole"
            else split_instances_by_tier(replay_settings.grid, planned, rule.pooling)
        )
        tokens_per_s = problem_template(
            case_settings.grid, case_settings.config, capacities[deployments], "truth"
        ).tokens_per_s
        file = case_file_name(name, policy)
        variant = Variant(file, replay_settings, day, policy, labels={"what": case.what})
        trials.append(build_plan_trial(variant, hours, start, factor, tokens_per_s))
    return trials


def plan_case(
    settings: RunSettings,
    day: date,
    case: WhatIfCase,
    sustained: Sequence[float],
    load: PlanLoad,
    kind: str,
    slots: int,
) -> PlannedHours:
    """Plan a case slot by slot, from its initial fleet; `sustained`: tokens/s by service option."""
    template = problem_template(settings.grid, settings.config, sustained, kind)
    template = with_size_shares(template, settings, day, kind)
    hours = hour_problems(template._replace(hours=1 / slots), load)
    hours = [limit_problem(problem, case) for problem in hours]
    start = hours[0].instances_now
    return plan_open_loop(hours, start, np.zeros_like(start), checked_solver(settings, kind))


def draw_whatif_cases(settings: RunSettings, day: date, table: pd.DataFrame) -> LakePath:
    """Draw cost against missed requests, one point per case, into the folder of the day's figures."""
    frame = table.drop(columns="policy").rename(columns={"case_name": "policy"})
    return save_day_figure(settings, day, "whatif", lambda: draw_cost_against_misses(frame))
