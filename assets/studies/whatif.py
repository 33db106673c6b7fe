"""Answer what-ifs: plan and replay a policy under each case of data/whatif.toml.

Only the trials of the cases are written to the lake (mart whatifs), not their plans and outcomes.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from functools import partial

import pandas as pd
import pyarrow as pa

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.pages.figure_files import save_day_figure
from fleetcast.assets.pages.on_demand_asset import AssetRows
from fleetcast.assets.plans import measured_capacity
from fleetcast.assets.plans.plan_loads import PlanLoad
from fleetcast.assets.plans.plan_tables import PlannedHours
from fleetcast.assets.plans.plans import (
    FIRST_POLICY,
    PlanInputs,
    loads_by_plan_kind,
    plan_policies,
    plan_request_of_policy,
    with_plan_config,
)
from fleetcast.assets.plans.problems import problem_template
from fleetcast.assets.replays.policy_inputs import (
    instances_at_start,
    prompt_token_ratios,
    reactive_capacity_share,
    split_instances_by_tier,
)
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
    Without names: those that the config can have. ConfigError names an impossible case, or a policy that
    plans during the day.
    """
    require_known(policy, settings.config.rules, "policy", "whatif")
    rule = settings.config.rules[policy]
    is_hourly = rule.plan is None or rule.programme not in (None, "peak", "melange")
    if rule.is_closed or rule.answers or not is_hourly:
        raise ConfigError(
            f"What if under {policy}: its plan is not made hour by hour before the day. Name a policy with a "
            "forecast plan, a corrected plan or no plan, such as lt_ua, corrected or reactive."
        )
    chosen = resolve_cases(settings, names, policy)
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

    Plans and replays start as in a nightly run of the case: from the first hour of SageServe's plan for the
    case's own fleet and demand. A case that changes nothing thus costs what the policy costs in the night.
    """
    trials = []
    capacities: dict[object, Sequence[float]] = {}
    loads: dict[float, dict[str, PlanLoad]] = {}
    for name, (case, settings) in chosen.items():
        planned = (FIRST_POLICY, policy) if settings.config.rules[policy].plan else (FIRST_POLICY,)
        requests = {each: plan_request_of_policy(settings, each) for each in planned}
        for request in requests.values():
            if (quantile := request.plan_config.quantile) not in loads:
                loads[quantile] = loads_by_plan_kind(with_plan_config(settings, request.plan_config), day)
        deployments = tuple(settings.config.fleet.deployments.items())
        if deployments not in capacities:
            capacities[deployments] = measured_capacity.measure_capacities(settings, day, progress)
        inputs = PlanInputs(settings, capacities[deployments], scale_loads(loads, case.demand_factor))
        limit = partial(limit_problem, case)
        try:
            plans = plan_policies(settings, day, requests, {None: inputs}, Progress(), limit=limit)
        except PlanError as error:
            raise ConfigError(f"{WHATIF_CASES.name} [{name}]: {error}") from error
        variant = Variant(
            case_file_name(name, policy),
            without_regions(settings.under(policy), case.down),
            day,
            policy,
            labels={"what": case.what},
        )
        trials.append(build_case_trial(variant, case, inputs, plans[FIRST_POLICY], plans[planned[-1]]))
    return trials


def scale_loads(
    loads: Mapping[float, Mapping[str, PlanLoad]], factor: float
) -> dict[float, dict[str, PlanLoad]]:
    """Return these loads, by quantile and kind of plan, times a factor."""
    return {
        quantile: {kind: PlanLoad(load.demand * factor, load.buffer * factor) for kind, load in kinds.items()}
        for quantile, kinds in loads.items()
    }


def build_case_trial(
    variant: Variant, case: WhatIfCase, inputs: PlanInputs, first: PlannedHours, planned: PlannedHours
) -> ReplayTrial:
    """Return the trial of a planned case; `first`: SageServe's plan, with whose first hour it starts."""
    settings, day, policy = inputs.settings, variant.day, variant.policy
    grid, pooling = variant.settings.grid, settings.config.rules[policy].pooling
    start = (
        instances_at_start(grid, pooling)
        if variant.settings.config.replay.start == "whole"
        else split_instances_by_tier(grid, settings.grid.by_pool(first[0][1].instances), pooling)
    )
    tokens_per_s = problem_template(settings.grid, settings.config, inputs.capacities, "truth").tokens_per_s
    read = tokens_per_s / prompt_token_ratios(settings, day)[:, None]
    reacted = read * reactive_capacity_share(settings.config, policy)
    return build_plan_trial(variant, planned, start, case.demand_factor, reacted)


def draw_whatif_cases(settings: RunSettings, day: date, table: pd.DataFrame) -> LakePath:
    """Draw cost against missed requests, one point per case, into the folder of the day's figures."""
    frame = table.drop(columns="policy").rename(columns={"case_name": "policy"})
    return save_day_figure(settings, day, "whatif", lambda: draw_cost_against_misses(frame))
