"""What if something were different: the corrected plan and its replay for each case of data/whatif.toml.

Of their plans and outcomes nothing enters the lake but a row per case: the table whatifs.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from assets.lake.schemas import SCHEMAS
from assets.lake.settings import Progress, Settings
from assets.pages.pictures import save
from assets.plans.inputs import Load, day_loads, hour_problems, problem_template
from assets.plans.kinds import by_pool
from assets.plans.plans import Day, checked_solve, open_loop, sustained_tokens_per_s
from assets.replays.figures import draw_cost_against_misses
from assets.studies.cases import CASES, Case, limited, multiplied_load, possible_cases, without
from assets.studies.trials import Trial, scores
from models.plan.problem import PlanError
from models.world.reading import ConfigError


def what_if(settings: Settings, day: date, names: Sequence[str], progress: Progress) -> pa.Table:
    """Plan and replay a day that has forecasts under each case; a row of cost and attainment per case.

    Every case is checked and planned before the first is replayed, and each row is written as soon as it is
    known. ConfigError names the case that cannot be.
    """
    chosen = possible_cases(settings, names)
    trials = planned_cases(chosen, day, progress)
    rows = []
    for told in scores(settings, day, trials, len(trials), progress):
        name = str(told.index[0])
        told = told.assign(what=chosen[name][0].what)
        rows.append(pa.Table.from_pandas(told, SCHEMAS["whatifs"], preserve_index=False))
        settings.lake.write("whatifs", rows[-1], trace=settings.trace, day=day, case_name=name)
    return pa.concat_tables(rows).add_column(0, "case_name", pa.array(list(chosen)))


def planned_cases(chosen: Mapping[str, tuple[Case, Settings]], day: date, progress: Progress) -> list[Trial]:
    """The corrected plan of each case; capacities and forecasts are found once for all that share them."""
    trials = []
    sustained: dict[object, Sequence[float]] = {}
    loads: dict[float, Load] = {}
    for name, (case, own) in chosen.items():
        deployed, quantile = tuple(own.config.fleet.deployments.items()), own.config.plan.quantile
        if quantile not in loads:
            loads[quantile] = day_loads(own, day)["corrected"]
        if deployed not in sustained:
            sustained[deployed] = sustained_tokens_per_s(own, day, progress)
        load = multiplied_load(loads[quantile], case.demand_factor)
        try:
            hours = plan_case(own, case, sustained[deployed], load)
        except PlanError as error:
            raise ConfigError(f"{CASES.name} [{name}]: {error}") from error
        start = by_pool(own, hours[0][1].instances)
        trials.append(Trial(name, without(own, case.down), hours, start, case.demand_factor))
    return trials


def plan_case(settings: Settings, case: Case, sustained: Sequence[float], load: Load) -> Day:
    """The corrected plan of a case, hour by hour, from the fleet that the case begins with."""
    hours = hour_problems(problem_template(settings, sustained, "corrected"), load)
    hours = [limited(problem, case) for problem in hours]
    start = hours[0].instances_now
    return open_loop(hours, start, np.zeros_like(start), checked_solve(settings, "corrected"))


def draw(settings: Settings, day: date, table: pd.DataFrame) -> Path:
    """The cases as points of cost against missed requests, beside the day's figures."""
    frame = table.rename(columns={"case_name": "policy"})
    return save(settings, day, "whatif", lambda: draw_cost_against_misses(frame))
