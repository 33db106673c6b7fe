"""What if something were different: the corrected plan and its replay for each case of data/whatif.toml.

Of their plans and outcomes nothing enters the lake but a row per case: the table whatifs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from assets.figures import draw_cost_against_misses, save
from assets.plan_inputs import Load, day_loads, hour_problems, problem_template
from assets.plans import Day, checked_solve, open_loop, sustained_tokens_per_s
from assets.schemas import SCHEMAS
from assets.settings import Progress, Settings
from assets.trials import Trial, score
from models.catalogue import ROOT
from models.plan.problem import Problem
from models.reading import build, read_toml, require_known

CASES = ROOT / "data" / "whatif.toml"


@dataclass(frozen=True)
class Case:
    """What differs from the config; data/whatif.toml says what each key means."""

    what: str
    usd_per_gpu_hour: Mapping[str, float] | None = None
    gpu: str | None = None
    down: tuple[str, ...] = ()
    epsilon: float | None = None
    instances_at_start: int | None = None
    budget_usd_per_hour: float | None = None


def load_cases(settings: Settings, path: Path = CASES) -> dict[str, Case]:
    """Read the cases; ConfigError names a GPU type or a region that the catalogue does not have."""
    cases: dict[str, Case] = {
        name: build(Case, value, f"{path.name} [{name}]") for name, value in read_toml(path).items()
    }
    for name, case in cases.items():
        where = f"{path.name} [{name}]"
        for gpu in (*(case.usd_per_gpu_hour or {}), *([case.gpu] if case.gpu else [])):
            require_known(gpu, settings.catalogue.gpus, "gpu", where)
        for region in case.down:
            require_known(region, settings.catalogue.regions, "region", where)
    return cases


def changed(settings: Settings, case: Case) -> Settings:
    """The settings of a case: prices, GPU types, epsilon and the fleet at the start."""
    catalogue, config = settings.catalogue, settings.config
    prices = case.usd_per_gpu_hour or {}
    gpus = {
        name: replace(gpu, usd_per_hour=prices.get(name, gpu.usd_per_hour))
        for name, gpu in catalogue.gpus.items()
    }
    regions, deployments = dict(catalogue.regions), dict(config.fleet.deployments)
    if case.gpu is not None:
        deployments = {llm: replace(one, gpu=case.gpu) for llm, one in deployments.items()}
        regions = {
            name: replace(region, cap_gpus={case.gpu: sum(region.cap_gpus.values())})
            for name, region in regions.items()
        }
    start = config.fleet.instances_at_start if case.instances_at_start is None else case.instances_at_start
    epsilon = config.plan.epsilon if case.epsilon is None else case.epsilon
    fleet = replace(config.fleet, deployments=deployments, instances_at_start=start)
    config = replace(config, fleet=fleet, plan=replace(config.plan, epsilon=epsilon))
    return replace(settings, catalogue=replace(catalogue, gpus=gpus, regions=regions), config=config)


def without(settings: Settings, down: Sequence[str]) -> Settings:
    """The settings for the replay: no GPU in the regions that are down, so no instance at all."""
    regions = {
        name: replace(region, cap_gpus={}) if name in down else region
        for name, region in settings.catalogue.regions.items()
    }
    return replace(settings, catalogue=replace(settings.catalogue, regions=regions))


def limited(problem: Problem, case: Case) -> Problem:
    """An hour of a case: nothing may run in the regions that are down, and the budget holds."""
    is_down = np.isin(problem.regions, case.down)
    return problem._replace(
        min_instances=np.where(is_down, 0, problem.min_instances),
        max_instances=np.where(is_down, 0, problem.max_instances),
        instances_now=np.where(is_down[:, None], 0, problem.instances_now),
        budget_usd=np.inf if case.budget_usd_per_hour is None else case.budget_usd_per_hour,
    )


def case_names() -> list[str]:
    """The cases there are."""
    return list(read_toml(CASES))


def what_if(settings: Settings, day: date, names: Sequence[str], progress: Progress) -> pa.Table:
    """Plan and replay a day that has forecasts under each case; a row of cost and attainment per case."""
    cases = load_cases(settings)
    for name in names:
        require_known(name, cases, "case", CASES.name)
    chosen = {name: cases[name] for name in names or cases}
    load = day_loads(settings, day)["corrected"]
    sustained = sustained_tokens_per_s(settings, day, progress)

    def trials() -> Iterator[Trial]:
        for name, case in chosen.items():
            own = changed(settings, case)
            theta = sustained if case.gpu is None else sustained_tokens_per_s(own, day, progress)
            hours = plan_case(own, case, theta, load)
            yield Trial(name, without(own, case.down), hours, hours[0][1].instances.sum(axis=2))

    table = score(settings, day, trials(), len(chosen), progress)
    told = table.assign(what=[case.what for case in chosen.values()])
    rows = [
        pa.Table.from_pandas(told.loc[[name]], SCHEMAS["whatifs"], preserve_index=False) for name in chosen
    ]
    for name, row in zip(chosen, rows, strict=True):
        settings.lake.write("whatifs", row, trace=settings.trace, day=day, case_name=name)
    return pa.concat_tables(rows).add_column(0, "case_name", pa.array(list(chosen)))


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
