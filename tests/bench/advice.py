"""Advice against what came: advise on what precedes a cut of a real trace, replay the day that follows it.

    python tests/bench advice

Volumes are real, by hour (Azure 2024, BurstGPT) or by ten minutes (ServeGen), scaled to REQUESTS a day. The
minutes within are Poisson with a lognormal rate, as the traces have no single requests; lengths are Azure's.
"""

import csv
import itertools
import sys
import tarfile
import tempfile
import time
from collections import Counter
from dataclasses import replace
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd
from measure import SHARED, Figures, Skipped, Target, cpu_seconds

from fleetcast.assets.advice import (
    advice_config,
    advice_pipeline,
    import_trace,
    promise_sections,
    rule_replays,
    tomorrow_draws,
)
from fleetcast.assets.advice.advised_days import grade_advised_day
from fleetcast.assets.advice.imported_trace import ImportedTrace
from fleetcast.assets.advice.nightly_promise import promise_next_day
from fleetcast.assets.advice.promise import RULE_HEADROOMS, Promise, PromiseSearch
from fleetcast.assets.advice.promise_sections import is_inside
from fleetcast.assets.advice.rule_replays import DayDraw, MidnightPlan, SizedRule
from fleetcast.assets.demand import demand_history
from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.forecasts.forecasts import forecast_day, forecast_measure
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans import plans
from fleetcast.assets.plans.day_ahead import plan_ahead
from fleetcast.assets.studies import try_fleet
from fleetcast.models.aliases import Floats
from fleetcast.models.plan.target_search import find_least_sufficient
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config

REQUESTS = {"azure": 30_000, "servegen": 70_000, "burstgpt": 30_000}  # a mean day
RULES = ("static", "day_ahead", "reflex")  # compact takes more CPU time than all else together
DRAWS = 16  # versions of tomorrow; a page has up to 40
MOST_HISTORY_DAYS = 8
NIGHTS = 20  # consecutive days of BurstGPT, after its first MOST_HISTORY_DAYS
FIRST_DAY = date(2024, 5, 10)  # a Friday, as in Azure's trace
SURVIVE = "none"  # with two instances at least, these loads would need no sizing
LLM, FLEET = "llama3.1-70b", "3 x llama3.1-70b@4xa100-80gb"
CUTS = {  # days before the advised one: at least three, then at equal distances to the end of the trace
    "azure": range(3, 7),
    "servegen": range(3, 14, 2),
    "burstgpt": range(8, 61, 8),
}
HINDSIGHT_HEADROOMS = (-0.6, -0.5, -0.4, -0.3, -0.2, -0.1, *RULE_HEADROOMS)
TARGETS = {
    "advise_kept": Target(
        "share", "advised days whose attainment and cost lay in their intervals", at_least=0.85, at_most=0.97
    ),
    "advise_kept_in_time": Target("share", "the same, attainment alone"),
    "advise_kept_usd": Target("share", "the same, cost alone"),
    "advise_on_target": Target("share", "advised days on which every tier attained its target", at_least=0.9),
    "advise_over_clairvoyant": Target(
        "ratio", "cost over that of the cheapest rule that knows the day; median", at_most=1.15
    ),
    "advise_days": Target("days", "advised days of real traces"),
}
TARGETS |= {f"{key}_at_twice": target for key, target in TARGETS.items()}
TARGETS |= {
    "promise_kept": Target(
        "share", "nights whose attainment and cost lay in their intervals", at_least=0.85, at_most=0.97
    ),
    "promise_kept_in_time": Target("share", "the same, attainment alone"),
    "promise_kept_usd": Target("share", "the same, cost alone"),
    "promise_on_target": Target("share", "nights on which every tier attained its target"),
    "promise_said_on_target": Target("share", "versions of these nights that did; mean"),
    "promise_nights": Target("nights", "graded nights of BurstGPT"),
    "promise_cpu_seconds": Target("s", "CPU of one promise"),
    "advise_version_seconds": Target("s", "one version of a day of BurstGPT under day_ahead; CPU"),
    "advise_corrected_version_seconds": Target("s", "the same under corrected, with its forecasts and plans"),
}


class AdvisedDay(NamedTuple):
    """What was promised of a day, and what came."""

    trace: str
    cut: int
    rule: str
    headroom_share: float
    is_promised: bool
    promised_share: float
    in_time: tuple[float, float, float]  # low, came, high
    usd: tuple[float, float, float]
    is_on_target: bool
    clairvoyant_usd: float | None


def advice() -> Figures:
    """Advise on the days before each cut of three real traces, and replay the day after it."""
    return figures_of(advised_days(1))


def at_twice_the_load() -> Figures:
    """The same with twice the requests."""
    return {f"{key}_at_twice": value for key, value in figures_of(advised_days(2)).items()}


def advised_days(load: int) -> list[AdvisedDay]:
    """The advised day of each cut; `load`: times REQUESTS."""
    if not (SHARED / "demand").is_dir():
        raise Skipped(f"{SHARED / 'demand'} is not there; it comes with the shared data.")
    lengths = pd.read_csv(SHARED / "traces/AzureLLMInferenceTrace_conv.csv.gz")
    found = []
    less = (
        patch.object(tomorrow_draws, "MOST_DRAWS", DRAWS),
        patch.object(rule_replays, "ADVISED_RULES", RULES),
    )
    with less[0], less[1]:
        for name, cuts in CUTS.items():
            rates = {"azure": azure_rates, "servegen": servegen_rates, "burstgpt": burstgpt_rates}[name]()
            for cut in cuts:
                days = range(max(0, cut - MOST_HISTORY_DAYS), cut + 1)
                rows = sample_requests(rates, days, load * REQUESTS[name], lengths)
                with tempfile.TemporaryDirectory() as folder:
                    found.append(advised_day(name, cut, rows, Path(folder)))
                print(found[-1], file=sys.stderr, flush=True)
    return found


def figures_of(found: list[AdvisedDay]) -> Figures:
    """Shares over the advised days."""
    in_time = [is_inside(day.in_time[1], day.in_time[0], day.in_time[2]) for day in found]
    usd = [is_inside(day.usd[1], day.usd[0], day.usd[2]) for day in found]
    over = [day.usd[1] / day.clairvoyant_usd for day in found if day.clairvoyant_usd]
    return {
        "advise_kept": float(np.mean(np.array(in_time) & usd)),
        "advise_kept_in_time": float(np.mean(in_time)),
        "advise_kept_usd": float(np.mean(usd)),
        "advise_on_target": float(np.mean([day.is_on_target for day in found])),
        "advise_days": len(found),
        **({"advise_over_clairvoyant": float(np.median(over))} if over else {}),
    }


def advised_day(name: str, cut: int, rows: pd.DataFrame, folder: Path) -> AdvisedDay:
    """Promise the last day of these requests from the others, and replay the promised fleet on it."""
    day, begun_s = FIRST_DAY + timedelta(days=cut), time.process_time()
    is_known = rows["TIMESTAMP"] < str(day)
    history = land(rows[is_known], folder / "known" / f"{name}.csv")
    search, found = promise_day(history, day, folder / "advice.toml")
    promise = promise_sections.promise_section(search.settings, search, found, SURVIVE)
    came = land(rows[~is_known], folder / "came" / f"{name}.csv")
    settings = search.settings  # compact measures capacities on the history
    draw = tomorrow_draws.recorded_draw(RunSettings(came.lake, settings.catalogue, settings.config), day)
    figures = rule_replays.replay_rule(settings, search.plan, found.advised.sized, draw)
    plans = [search.plan, plan_of_true_load(settings, search.plan, draw)]
    print(f"{time.process_time() - begun_s:.0f} CPU-s", file=sys.stderr)
    return AdvisedDay(
        name, cut, *found.advised.sized, found.is_kept, promise["kept_share"],
        (promise["in_time_low_share"], figures.in_time_share, promise["in_time_high_share"]),
        (promise["usd_low"], figures.usd, promise["usd_high"]),
        figures.is_on_target(settings.catalogue), hindsight_usd(settings, plans, draw),
    )  # fmt: skip


def nightly_promises() -> Figures:
    """Plan and promise each of the nights of BurstGPT from the days before it, and grade what came."""
    if not (SHARED / "demand").is_dir():
        raise Skipped(f"{SHARED / 'demand'} is not there; it comes with the shared data.")
    lengths, spent_s = pd.read_csv(SHARED / "traces/AzureLLMInferenceTrace_conv.csv.gz"), 0.0
    days = range(MOST_HISTORY_DAYS + NIGHTS)
    rows = sample_requests(burstgpt_rates(), days, 2 * REQUESTS["burstgpt"], lengths)
    with tempfile.TemporaryDirectory() as folder:
        settings = advice_settings(land(rows, Path(folder) / "known" / "nights.csv"), Path(folder) / "a.toml")
        whole = replace(settings.config.trace, first_day=FIRST_DAY)  # a page has the last two weeks
        settings = replace(settings, config=replace(settings.config, trace=whole))
        dates = [FIRST_DAY + timedelta(days=number) for number in days]
        for _ in demand_history.make_demand(settings, dates, Progress()):
            pass  # so that forecasts are stored with what came, as the nightly run stores them
        for day in dates[MOST_HISTORY_DAYS:]:
            plan_ahead(settings, day, Progress())
            spent_s += cpu_seconds(lambda day=day: promise_next_day(settings, day, Progress()))  # type: ignore[misc]
            print(grade_advised_day(settings.lake, settings.trace, day), file=sys.stderr, flush=True)
        graded = settings.lake.sql("from graded_advice").to_pandas()
    return {
        "promise_kept": float(graded["is_inside"].mean()),
        "promise_kept_in_time": float(graded["is_inside_in_time"].mean()),
        "promise_kept_usd": float(graded["is_inside_usd"].mean()),
        "promise_on_target": float(graded["is_on_target"].mean()),
        "promise_said_on_target": float(graded["promised_share"].mean()),
        "promise_nights": len(graded),
        "promise_cpu_seconds": spent_s / len(graded),
    }


def corrected_version() -> Figures:
    """CPU of a version of a day under `day_ahead`, and under `corrected`, whose plans follow the version."""
    if not (SHARED / "demand").is_dir():
        raise Skipped(f"{SHARED / 'demand'} is not there; it comes with the shared data.")
    lengths = pd.read_csv(SHARED / "traces/AzureLLMInferenceTrace_conv.csv.gz")
    dates = [FIRST_DAY + timedelta(days=number) for number in range(MOST_HISTORY_DAYS + 1)]
    rows = sample_requests(burstgpt_rates(), range(len(dates)), REQUESTS["burstgpt"], lengths)
    with tempfile.TemporaryDirectory() as folder:
        settings = advice_settings(land(rows, Path(folder) / "known" / "c.csv"), Path(folder) / "a.toml")
        for _ in demand_history.make_demand(settings, dates, Progress()):
            pass
        day, methods = dates[-1], (settings.config.forecast.method,)
        measured = "input_tokens", (INTERACTIVE,), methods, Progress()
        forecasts_s = cpu_seconds(lambda: forecast_measure(settings, day, *measured), 2)
        forecast_day(settings, day, Progress())
        plan_ahead(settings, day, Progress())
        requests = {"corrected": plans.plan_request_of_policy(settings, "corrected")}
        inputs = plans.gather_plan_inputs(settings, day, requests, Progress())
        plans_s = cpu_seconds(lambda: plans.plan_policies(settings, day, requests, inputs, Progress()), 2)
        plan, draw = (
            rule_replays.read_midnight_plan(settings, day),
            tomorrow_draws.recorded_draw(settings, day),
        )
        sized = SizedRule("day_ahead")
        replay_s = cpu_seconds(lambda: rule_replays.replay_rule(settings, plan, sized, draw), 2)
    return {
        "advise_version_seconds": replay_s,
        "advise_corrected_version_seconds": forecasts_s + plans_s + replay_s,
    }


def land(rows: pd.DataFrame, file: Path) -> ImportedTrace:
    """Land requests as `fleetcast advise` does."""
    file.parent.mkdir()
    rows.to_csv(file, index=False)
    return import_trace.import_trace_file(file, file.parent / "page", load_catalogue(), LLM, Progress())


def promise_day(history: ImportedTrace, day: date, config: Path) -> tuple[PromiseSearch, Promise]:
    """Choose and size the rule of a day as `fleetcast advise` does; the rest of its page is not made."""
    settings = advice_settings(history, config)
    advice_pipeline.forecast_next_day(settings, day, Progress())
    days = advice_pipeline.plan_past_days(settings, day - timedelta(days=1), Progress())
    plan_ahead(settings, day, Progress())
    whole = [one for one in settings.lake.days("demand", settings.trace) if one < day]
    return promise_sections.search_promise(settings, days, whole, day, SURVIVE, Progress())


def advice_settings(history: ImportedTrace, config: Path) -> RunSettings:
    """The settings of FLEET on these days; writes the config."""
    catalogue = load_catalogue()
    pools = try_fleet.parse_fleet(FLEET, catalogue, load_config("office", catalogue))
    deployments = advice_config.current_deployments(pools)
    return advice_config.write_advice_config(history, deployments, catalogue, SURVIVE, config)


def plan_of_true_load(settings: RunSettings, plan: MidnightPlan, draw: DayDraw) -> MidnightPlan:
    """The instances that the largest five minutes of each hour fill at the capacity of the plan."""
    slots = np.bincount((draw.trace.arrival_s // 300).astype(int), draw.trace.input_tokens / 300, 288)
    load = slots[:288].reshape(24, 12).max(axis=1)
    share = np.divide(
        load, plan.demand.sum(axis=(1, 2)), out=np.ones(24), where=plan.demand.sum(axis=(1, 2)) > 0
    )
    ample = np.full(plan.instances.shape, np.inf)
    true = plan._replace(demand=plan.demand * share[:, None, None], instances=ample)
    return rule_replays.without_spare(settings, true)


def hindsight_usd(settings: RunSettings, plans: list[MidnightPlan], draw: DayDraw) -> float | None:
    """Cost of the cheapest rule, plan and headroom that attain the targets on the day itself."""
    ample = SizedRule("static", RULE_HEADROOMS[-1])
    if not rule_replays.replay_rule(settings, plans[0], ample, draw).is_on_target(settings.catalogue):
        return None
    found = list[float]()

    @cache
    def costs_on_target(plan_number: int, rule: str, number: int) -> float | None:
        sized = SizedRule(rule, HINDSIGHT_HEADROOMS[number - 1])
        figures = rule_replays.replay_rule(settings, plans[plan_number], sized, draw)
        return figures.usd if figures.is_on_target(settings.catalogue) else None

    for plan, rule in itertools.product(range(len(plans)), RULES):
        least = find_least_sufficient(
            lambda number, plan=plan, rule=rule: costs_on_target(plan, rule, number) is not None,  # type: ignore[misc]
            1,
            len(HINDSIGHT_HEADROOMS),
        )
        if least is not None and (usd := costs_on_target(plan, rule, least.number)) is not None:
            found.append(usd)
    return min(found, default=None)


def sample_requests(rates: Floats, days: range, requests: int, lengths: pd.DataFrame) -> pd.DataFrame:
    """A CSV of these days as Azure writes it; `rates`: (days, slots), any scale; `requests`: a mean day."""
    rng = np.random.default_rng([days.start, days.stop, 38])
    chosen = rates[days.start : days.stop]
    minutes = np.repeat(chosen.ravel(), 24 * 60 // rates.shape[1]) * rates.shape[1] / (24 * 60)
    minutes = (
        minutes * requests / rates.sum(axis=1).mean() * rng.lognormal(-(0.25**2) / 2, 0.25, minutes.size)
    )
    counts = rng.poisson(minutes)
    at_s = np.repeat(60.0 * np.arange(minutes.size), counts) + 60.0 * rng.random(counts.sum())
    picked = lengths.iloc[rng.integers(0, len(lengths), at_s.size)]
    rows = picked[["ContextTokens", "GeneratedTokens"]].reset_index(drop=True).clip(lower=1)
    at = pd.Timestamp(FIRST_DAY + timedelta(days=days.start)) + pd.to_timedelta(np.sort(at_s), unit="s")
    rows.insert(0, "TIMESTAMP", at.strftime("%Y-%m-%d %H:%M:%S.%f"))
    return rows


def azure_rates() -> Floats:
    """Requests of Azure's code service by day and hour, shape (7, 24)."""
    rows = pd.read_csv(SHARED / "demand/azure2024_code_hourly.csv")
    return rows["request_count"].to_numpy(float).reshape(-1, 24)


def burstgpt_rates() -> Floats:
    """Conversations of BurstGPT by day and hour, shape (61, 24)."""
    rows = pd.read_csv(SHARED / "demand/burstgpt1_hourly.csv")
    return rows.pivot(index="day", columns="hour", values="conversation").to_numpy(float)


def servegen_rates() -> Floats:
    """Requests of the model m-small of ServeGen by day and ten minutes, shape (14, 144); gaps are filled."""
    by_slot = Counter[int]()
    with tarfile.open(SHARED / "demand/servegen_m-small.traces.tar.gz") as archive:
        for member in archive.getmembers():
            if member.name.endswith("-trace.csv") and (file := archive.extractfile(member)):
                for row in csv.reader(file.read().decode().splitlines()):
                    by_slot[int(float(row[0]) // 600)] += float(row[1])
    rates = np.array([by_slot[slot] for slot in range(max(by_slot) + 1)])
    known = np.flatnonzero(rates > 0)
    return np.interp(np.arange(rates.size), known, rates[known]).reshape(-1, 144)


FUNCTIONS = (advice, at_twice_the_load, nightly_promises, corrected_version)
FEW = {"CUTS": {"azure": (3,)}, "REQUESTS": {"azure": 3_000}, "DRAWS": 8}
SMOKE = {
    "advice": FEW,
    "at_twice_the_load": FEW,
    "nightly_promises": {"NIGHTS": 1, "MOST_HISTORY_DAYS": 3, "REQUESTS": {"burstgpt": 1_000}},
    "corrected_version": {"MOST_HISTORY_DAYS": 3, "REQUESTS": {"burstgpt": 1_000}},
}
