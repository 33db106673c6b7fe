"""The GPU types that advice chooses, against all that it could have: the day that came on each of them.

    python tests/bench gpu_choice

Each deployment of an llm gets its own promise from the days before a cut, and its rule is replayed on the day
after it. Traces and their volumes: advice.py.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd
from advice import FIRST_DAY, read_rates, sample_requests
from measure import SHARED, Figures, Skipped, Target

from fleetcast.assets.advice import (
    advice_config,
    advice_pipeline,
    import_trace,
    promise_sections,
    rule_replays,
    tomorrow_draws,
)
from fleetcast.assets.advice.advise import plan_cheapest_kept
from fleetcast.assets.advice.rented_gpus import Deployments
from fleetcast.assets.demand import demand_history
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans.day_ahead import forecast_plan_day, plan_ahead
from fleetcast.assets.studies.unseen_days import minimum_fleet_usd
from fleetcast.models.aliases import Numbers
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config

SURVIVE = "instance"
RULES = ("static", "day_ahead", "reflex")  # as in advice.py


class Case(NamedTuple):
    """A trace of advice.py, its llm, requests of a mean day, and days before the advised one."""

    trace: str
    llm: str
    requests: int
    cut: int


CASES = (
    Case("burstgpt", "qwen3-32b", 60_000, 9),
    Case("burstgpt", "llama3.1-70b", 120_000, 20),
    Case("azure", "llama3.1-70b", 120_000, 6),
    Case("azure", "gpt-oss-120b", 500_000, 5),
    Case("servegen", "llama3.1-8b", 400_000, 9),
    Case("servegen3", "qwen3-32b", 100_000, 10),
)
TARGETS = {
    "gpu_choice_over_cheapest": Target(
        "ratio", "cost of the day on the advised GPUs over the cheapest that attained the target; median"
    ),
    "gpu_choice_over_cheapest_worst": Target("ratio", "the same, largest"),
    "gpu_choice_on_target": Target("share", "advised GPUs on which every tier attained its target"),
    "gpu_choice_deployments": Target("deployments", "kinds of instances compared, all cases together"),
    "gpu_choice_seconds": Target("CPU-s", "to promise and replay one of them, mean"),
}


class Promised(NamedTuple):
    """The promise of a deployment, and what came."""

    choice: Deployments
    promise: Numbers  # what plan_cheapest_kept reads
    least_usd: float
    usd: float
    is_on_target: bool
    cpu_s: float


def gpu_choice() -> Figures:
    """Advise on GPU types for each of CASES, and replay the next day on every type."""
    over, on_target, seconds = list[float](), list[bool](), list[float]()
    with patch.object(rule_replays, "ADVISED_RULES", RULES):
        for case in CASES:
            with tempfile.TemporaryDirectory() as folder:
                found = promise_every_deployment(case, Path(folder))
            advised = find_advised(found)
            kept = [one.usd for one in found if one.promise["is_kept"] and one.is_on_target]
            on_target.append(advised.is_on_target)
            seconds += [one.cpu_s for one in found]
            if advised.is_on_target:
                over.append(advised.usd / min(kept, default=advised.usd))
            print(
                f"{case}: {advised.usd:.0f} USD, cheapest {min(kept, default=0):.0f}",
                file=sys.stderr,
                flush=True,
            )
    return {
        "gpu_choice_over_cheapest": float(np.median(over)),
        "gpu_choice_over_cheapest_worst": max(over),
        "gpu_choice_on_target": float(np.mean(on_target)),
        "gpu_choice_deployments": len(seconds),
        "gpu_choice_seconds": float(np.mean(seconds)),
    }


def find_advised(found: Sequence[Promised]) -> Promised:
    """The one that a page advises, of the first MOST_CHOICES."""
    first = found[: advice_pipeline.MOST_CHOICES]
    by_id = {id(one.choice): one for one in first}
    choice, _ = plan_cheapest_kept(
        [one.choice for one in first],
        [one.least_usd for one in first],
        lambda choice: {"promise": by_id[id(choice)].promise},
    )
    return by_id[id(choice)]


def promise_every_deployment(case: Case, folder: Path) -> list[Promised]:
    """The promise of every deployment, in the order in which a page would compute them."""
    if not (SHARED / "demand").is_dir():
        raise Skipped(f"{SHARED / 'demand'} is not there; it comes with the shared data.")
    catalogue = load_catalogue()
    lengths = pd.read_csv(SHARED / "traces/AzureLLMInferenceTrace_conv.csv.gz")
    file, page = folder / f"{case.trace}.csv", folder / "page"
    sample_requests(read_rates(case.trace)[: case.cut + 1], case.requests, lengths).to_csv(file, index=False)
    landed = import_trace.import_trace_file(file, page, catalogue, case.llm, Progress())
    dates = [FIRST_DAY + timedelta(days=number) for number in range(case.cut + 1)]
    *before, day = dates

    def settings_of(choice: Deployments) -> RunSettings:
        settings = advice_config.write_advice_config(landed, choice, catalogue, SURVIVE, page / "advice.toml")
        trace = replace(settings.config.trace, first_day=FIRST_DAY)  # a page has the last two weeks
        return settings.with_config(trace=trace)

    office = load_config("office", catalogue)
    settings = settings_of(advice_config.default_deployments([case.llm], catalogue, office))
    for _ in demand_history.make_demand(settings, dates, Progress()):
        pass
    forecast_plan_day(settings, day, Progress())
    types = {case.llm: advice_pipeline.default_gpus(case.llm, catalogue)}
    whole = replace(settings, catalogue=catalogue)
    answers = advice_pipeline.find_fleets_to_rent(settings, day, [case.llm], types, None, Progress())
    with patch.object(advice_pipeline, "MOST_CHOICES", 100):
        choices = advice_pipeline.choose_deployments(whole, day, answers, [case.llm], types, Progress())
    return [promise_deployment(settings_of(choice), choice, before, day) for choice in choices]


def promise_deployment(
    settings: RunSettings, choice: Deployments, before: Sequence[date], day: date
) -> Promised:
    """The promise of a deployment for a day, and the day as it came."""
    begun_s = time.process_time()
    past = advice_pipeline.plan_past_days(settings, before[-1], Progress())
    plan_ahead(settings, day, Progress())
    search, found = promise_sections.search_promise(settings, past, before, day, SURVIVE, Progress())
    sized = found.advised.sized
    shares = [version.in_time_share for version in found.advised.future]
    promise = {
        "is_kept": found.is_kept,
        "usd_mean": float(np.mean([version.usd for version in found.advised.future])),
        "kept_share": search.kept_share(sized),
        "in_time_low_share": min(shares),
    }
    came = rule_replays.replay_rule(settings, search.plan, sized, tomorrow_draws.recorded_draw(settings, day))
    [(llm, one)] = choice.items()
    row = Promised(
        choice, promise, minimum_fleet_usd(settings), came.usd, came.is_on_target(settings.catalogue),
        time.process_time() - begun_s,
    )  # fmt: skip
    print(
        f"{llm} on {one.deployment.gpus} {one.deployment.gpu}: {sized}, promise {promise}, "
        f"came {came.usd:.0f} USD, {came.in_time_share:.3f} in time, {row.cpu_s:.0f} CPU-s",
        file=sys.stderr,
        flush=True,
    )
    return row


FUNCTIONS = (gpu_choice,)
SMOKE = {"gpu_choice": {"CASES": (Case("azure", "llama3.1-8b", 3_000, 3),)}}
