"""Advice against what came: advise on what precedes a cut of a real trace, replay the day that follows it.

    python tests/bench advice

Volumes are real, by hour (Azure 2024, BurstGPT) or by ten minutes (ServeGen), scaled to REQUESTS a day. The
minutes within are Poisson with a lognormal rate, as the traces have no single requests; lengths are Azure's.
A trace is landed once; each cut reads what lies before its midnight.
"""

import itertools
import sys
import tarfile
import tempfile
import time
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
from fleetcast.assets.advice.promise import RULE_HEADROOMS
from fleetcast.assets.advice.promise_sections import is_inside
from fleetcast.assets.advice.rule_replays import DayDraw, DayFigures, MidnightPlan, SizedRule
from fleetcast.assets.demand import demand_history
from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.forecasts.forecasts import forecast_day, forecast_measure
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans import plans
from fleetcast.assets.plans.day_ahead import forecast_plan_day, plan_ahead
from fleetcast.assets.studies import try_fleet
from fleetcast.models.aliases import Floats
from fleetcast.models.traffic.future_days import sample_load_factors
from fleetcast.models.trials.target_search import find_least_sufficient
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config

# Of a mean day. With half of these most fleets are one instance all day, whose cost cannot miss.
REQUESTS = {"azure": 60_000, "servegen": 140_000, "burstgpt": 60_000}
RULES = ("static", "day_ahead", "reflex")  # compact takes more CPU time than all else together
DRAWS = 16  # versions of tomorrow; a page has up to 40
MOST_HISTORY_DAYS = 8  # to resample
CORRECTED_CUTS = {"azure": (4, 6), "servegen": (3, 9, 13), "burstgpt": (12, 22)}
FORESEEN = {"burstgpt_all": 61, **{f"servegen{number}": 14 for number in range(1, 9)}}  # days
FORESEEN_REQUESTS, LOAD_DRAWS = 8_000, 400
NIGHTS = 20  # consecutive days of BurstGPT, after its first MOST_HISTORY_DAYS
FIRST_DAY = date(2024, 5, 10)  # a Friday, as in Azure's trace
SURVIVE = "none"  # with two instances at least, these loads would need no sizing
LLM, FLEET = "llama3.1-70b", "3 x llama3.1-70b@4xa100-80gb"
CUTS = {  # days before the advised one; BurstGPT's first 28 days were used to choose the intervals
    "azure": range(3, 7),
    "servegen": range(4, 14, 2),
    "burstgpt": range(28, 61, 3),
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
    "advise_known_over_clairvoyant": Target(
        "ratio", "the same of the promise if engines are known to be as fast as their profiles", at_most=1.15
    ),
    "advise_known_on_target": Target("share", "days on which that fleet attained every target"),
    "advise_days": Target("days", "advised days of real traces"),
    "advise_free_days": Target("days", "those whose cost differs between versions, so that it can miss"),
}
TARGETS |= {
    "promise_kept": Target(
        "share", "nights whose attainment and cost lay in their intervals", at_least=0.85, at_most=0.97
    ),
    "promise_kept_in_time": Target("share", "the same, attainment alone"),
    "promise_kept_usd": Target("share", "the same, cost alone"),
    "promise_on_target": Target("share", "nights on which every tier attained its target"),
    "promise_said_on_target": Target("share", "versions of these nights that did; mean"),
    "advise_load_kept": Target("share", "days whose load lay in its interval", at_least=0.85, at_most=0.97),
    "advise_load_days": Target("days", "of clients of ServeGen and of all requests of BurstGPT"),
    "promise_nights": Target("nights", "graded nights of BurstGPT"),
    "promise_cpu_seconds": Target("s", "CPU of one promise"),
    "advise_version_seconds": Target("s", "one version of a day of BurstGPT under day_ahead; CPU"),
    "advise_corrected_version_seconds": Target("s", "the same under corrected, with its forecasts and plans"),
    "advise_corrected_over_rules": Target("ratio", "cost over the cheaper of day_ahead and reflex; median"),
    "advise_corrected_cheaper_days": Target("days", "of seven"),
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
    known_usd: float  # at the headroom that the promise needs if engines are known to be as profiled
    known_is_on_target: bool


def advice() -> Figures:
    """Advise on the days before each cut of three real traces, and replay the day after it."""
    return figures_of(advised_days())


def advised_days() -> list[AdvisedDay]:
    """The advised day of each cut."""
    found = []
    less = (
        patch.object(tomorrow_draws, "MOST_DRAWS", DRAWS),
        patch.object(rule_replays, "ADVISED_RULES", RULES),
    )
    with less[0], less[1], tempfile.TemporaryDirectory() as folder:
        for name, cuts in CUTS.items():
            settings, dates = land_service(name, cuts[-1] + 1, Path(folder))
            for cut in cuts:
                found.append(advised_day(settings, dates[: cut + 1]))
                print(found[-1], file=sys.stderr, flush=True)
    return found


def land_service(name: str, days: int, folder: Path) -> tuple[RunSettings, list[date]]:
    """Land the first days of a trace as `fleetcast advise` does; settings of FLEET on them, and the days."""
    if not (SHARED / "demand").is_dir():
        raise Skipped(f"{SHARED / 'demand'} is not there; it comes with the shared data.")
    rates = read_rates(name)
    lengths = pd.read_csv(SHARED / "traces/AzureLLMInferenceTrace_conv.csv.gz")
    file = folder / name / f"{name}.csv"
    file.parent.mkdir()
    requests = REQUESTS.get(name, FORESEEN_REQUESTS)
    sample_requests(rates[:days], requests, lengths).to_csv(file, index=False)
    page = file.parent / "page"
    landed = import_trace.import_trace_file(file, page, load_catalogue(), LLM, Progress())
    settings = advice_settings(landed, page / "advice.toml")
    whole = replace(settings.config.trace, first_day=FIRST_DAY)  # a page has the last two weeks
    settings = settings.with_config(trace=whole)
    dates = [FIRST_DAY + timedelta(days=number) for number in range(days)]
    for _ in demand_history.make_demand(settings, dates, Progress()):
        pass  # so that forecasts are stored with what came, as the nightly run stores them
    return settings, dates


def figures_of(found: list[AdvisedDay]) -> Figures:
    """Shares over the advised days."""
    in_time = [is_inside(day.in_time[1], day.in_time[0], day.in_time[2]) for day in found]
    usd = [is_inside(day.usd[1], day.usd[0], day.usd[2]) for day in found]
    over = [
        (day.usd[1] / day.clairvoyant_usd, day.known_usd / day.clairvoyant_usd)
        for day in found
        if day.clairvoyant_usd
    ]
    ratios = ("advise_over_clairvoyant", "advise_known_over_clairvoyant")
    return {
        "advise_kept": float(np.mean(np.array(in_time) & usd)),
        "advise_kept_in_time": float(np.mean(in_time)),
        "advise_kept_usd": float(np.mean(usd)),
        "advise_on_target": float(np.mean([day.is_on_target for day in found])),
        "advise_days": len(found),
        "advise_free_days": sum(not is_inside(day.usd[2], day.usd[0], day.usd[0]) for day in found),
        "advise_known_on_target": float(np.mean([day.known_is_on_target for day in found])),
        **(dict(zip(ratios, np.median(over, axis=0).tolist(), strict=True)) if over else {}),
    }


def advised_day(settings: RunSettings, dates: list[date]) -> AdvisedDay:
    """Promise the last of these days from those before it, and replay the promised fleet on it."""
    *before, day = dates
    begun_s = time.process_time()
    past = before[2:][-advice_pipeline.MOST_PAST_DAYS :]  # a forecast needs two days
    for one in [*past, day]:
        if not settings.lake.files("day_ahead_plans", trace=settings.trace, day=one):
            plan_ahead(settings, one, Progress())
    whole = before[-MOST_HISTORY_DAYS:]
    search, found = promise_sections.search_promise(settings, past, whole, day, SURVIVE, Progress())
    promise = promise_sections.promise_section(settings, search, found, SURVIVE)
    draw = tomorrow_draws.recorded_draw(settings, day)
    advised = found.advised.sized
    figures = rule_replays.replay_rule(settings, search.plan, advised, draw)
    profiled = search.with_draws(tomorrow_draws.as_profiled(settings, search.draws))
    known = rule_replays.replay_rule(settings, search.plan, profiled.least_size(advised), draw)
    plans = [search.plan, plan_of_true_load(settings, search.plan, draw)]
    print(f"{time.process_time() - begun_s:.0f} CPU-s", file=sys.stderr)
    return AdvisedDay(
        settings.trace, len(before), *advised, found.is_kept, promise["kept_share"],
        (promise["in_time_low_share"], figures.in_time_share, promise["in_time_high_share"]),
        (promise["usd_low"], figures.usd, promise["usd_high"]),
        figures.is_on_target(settings.catalogue), hindsight_usd(settings, plans, draw),
        known.usd, known.is_on_target(settings.catalogue),
    )  # fmt: skip


def nightly_promises() -> Figures:
    """Plan and promise each of the nights of BurstGPT from the days before it, and grade what came."""
    spent_s = 0.0
    with tempfile.TemporaryDirectory() as folder:
        settings, dates = land_service("burstgpt", MOST_HISTORY_DAYS + NIGHTS, Path(folder))
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


def foreseen_loads() -> Figures:
    """The load of each day of FORESEEN against nine in ten versions of it; no fleet is replayed."""
    inside = list[bool]()
    for name, count in FORESEEN.items():
        with tempfile.TemporaryDirectory() as folder:
            settings, dates = land_service(name, count, Path(folder))
            for day in dates[2:]:
                forecast_plan_day(settings, day, Progress())
            for number in range(3, count):
                past = dates[max(2, number - advice_pipeline.MOST_PAST_DAYS) : number]
                inside.append(is_load_foreseen(settings, dates[number], past))
        print(name, count, np.mean(inside), file=sys.stderr, flush=True)
    return {"advise_load_kept": float(np.mean(inside)), "advise_load_days": len(inside)}


def is_load_foreseen(settings: RunSettings, day: date, past: list[date]) -> bool:
    """Whether the tokens of a day lie in the 90 % interval of its versions."""
    series = len(settings.catalogue.llms) * len(settings.catalogue.regions)
    forecast, errors = tomorrow_draws.read_forecast_errors(settings, day, past, series)
    rng = np.random.default_rng([day.toordinal(), 38])
    factors = sample_load_factors(errors, series, LOAD_DRAWS, rng)
    low, high = np.quantile((forecast * factors).sum(axis=(1, 2)), (0.05, 0.95))
    came = settings.lake.sql(
        "select sum(input_tokens) / 3600 as load from requests where trace = $trace and day = $day",
        trace=settings.trace,
        day=day,
    )["load"][0].as_py()
    return bool(low <= came <= high)


def corrected_version() -> Figures:
    """CPU of a version of a day under `day_ahead`, and under `corrected`, whose plans follow the version."""
    with tempfile.TemporaryDirectory() as folder:
        settings, dates = land_service("burstgpt", MOST_HISTORY_DAYS + 1, Path(folder))
        day = dates[-1]
        plan_ahead(settings, day, Progress())
        plan_corrected(settings, day)  # once more for what is computed once
        plan_s = cpu_seconds(lambda: plan_corrected(settings, day), 2)
        plan, draw = (
            rule_replays.read_midnight_plan(settings, day),
            tomorrow_draws.recorded_draw(settings, day),
        )
        sized = SizedRule("day_ahead")
        replay_s = cpu_seconds(lambda: rule_replays.replay_rule(settings, plan, sized, draw), 2)
    return {"advise_version_seconds": replay_s, "advise_corrected_version_seconds": plan_s + replay_s}


def corrected_in_hindsight() -> Figures:
    """Cost of `corrected` over the cheaper of day_ahead and reflex, at the headroom that a day needs."""
    over = list[float]()
    for name, cuts in CORRECTED_CUTS.items():
        with tempfile.TemporaryDirectory() as folder:
            settings, dates = land_service(name, cuts[-1] + 1, Path(folder))
            for day in (dates[cut] for cut in cuts):
                plan_ahead(settings, day, Progress())
                plan_corrected(settings, day)
                plan, draw = (
                    rule_replays.read_midnight_plan(settings, day),
                    tomorrow_draws.recorded_draw(settings, day),
                )
                others = min(least_usd(settings, plan, rule, draw) for rule in ("day_ahead", "reflex"))
                own = rule_replays.read_midnight_plan(settings, day, "plans", "corrected")
                over.append(least_usd(settings, own, "day_ahead", draw) / others)
                print(name, day, over[-1], file=sys.stderr, flush=True)
    return {
        "advise_corrected_over_rules": float(np.median(over)),
        "advise_corrected_cheaper_days": sum(share < 1 for share in over),
    }


def plan_corrected(settings: RunSettings, day: date) -> None:
    """Forecast each hour of a day from the hours before it, and plan it as `corrected` does."""
    methods = (settings.config.forecast.method,)
    forecast_measure(settings, day, "input_tokens", (INTERACTIVE,), methods, Progress())
    forecast_day(settings, day, Progress())
    requests = {"corrected": plans.plan_request_of_policy(settings, "corrected")}
    inputs = plans.gather_plan_inputs(settings, day, requests, Progress())
    planned = plans.plan_policies(settings, day, requests, inputs, Progress())
    plans.write_plans(settings, day, planned)


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
    ample = np.full(plan.instances.shape, 1e9)
    true = plan._replace(demand=plan.demand * share[:, None, None], instances=ample)
    return rule_replays.without_spare(settings, true)


def hindsight_usd(settings: RunSettings, plans: list[MidnightPlan], draw: DayDraw) -> float | None:
    """Cost of the cheapest rule, plan and headroom that attain the targets on the day itself."""
    ample = SizedRule("static", RULE_HEADROOMS[-1])
    if not rule_replays.replay_rule(settings, plans[0], ample, draw).is_on_target(settings.catalogue):
        return None
    found = [least_usd(settings, plan, rule, draw) for plan, rule in itertools.product(plans, RULES)]
    return min(found)


def least_usd(settings: RunSettings, plan: MidnightPlan, rule: str, draw: DayDraw) -> float:
    """Cost of a rule with the least headroom that attains the targets on the day itself; inf if none does."""

    @cache
    def replay(number: int) -> DayFigures:
        return rule_replays.replay_rule(
            settings, plan, SizedRule(rule, HINDSIGHT_HEADROOMS[number - 1]), draw
        )

    least = find_least_sufficient(
        lambda number: replay(number).is_on_target(settings.catalogue), 1, len(HINDSIGHT_HEADROOMS)
    )
    return np.inf if least is None else replay(least).usd


def sample_requests(rates: Floats, requests: int, lengths: pd.DataFrame) -> pd.DataFrame:
    """A CSV of these days as Azure writes it; `rates`: (days, slots), any scale; `requests`: a mean day."""
    rng = np.random.default_rng([len(rates), requests, 38])
    minutes = np.repeat(rates.ravel(), 24 * 60 // rates.shape[1]) * rates.shape[1] / (24 * 60)
    minutes = (
        minutes * requests / rates.sum(axis=1).mean() * rng.lognormal(-(0.25**2) / 2, 0.25, minutes.size)
    )
    counts = rng.poisson(minutes)
    at_s = np.repeat(60.0 * np.arange(minutes.size), counts) + 60.0 * rng.random(counts.sum())
    picked = lengths.iloc[rng.integers(0, len(lengths), at_s.size)]
    rows = picked[["ContextTokens", "GeneratedTokens"]].reset_index(drop=True).clip(lower=1)
    at = pd.Timestamp(FIRST_DAY) + pd.to_timedelta(np.sort(at_s), unit="s")
    rows.insert(0, "TIMESTAMP", at.strftime("%Y-%m-%d %H:%M:%S.%f"))
    return rows


def read_rates(name: str) -> Floats:
    """Requests of a trace by day and slot: (7, 24), (61, 24), or (14, 144) with gaps filled.

    `servegen`: the model m-small; `servegen3`: its third largest client. `burstgpt`: conversations of
    BurstGPT; `burstgpt_all`: with its API calls.
    """
    if name == "azure":
        rows = pd.read_csv(SHARED / "demand/azure2024_code_hourly.csv")
        return rows["request_count"].to_numpy(float).reshape(-1, 24)
    if name.startswith("burstgpt"):
        rows = pd.read_csv(SHARED / "demand/burstgpt1_hourly.csv")
        column = "all" if name == "burstgpt_all" else "conversation"
        return rows.pivot(index="day", columns="hour", values=column).to_numpy(float)
    clients = list[Floats]()
    with tarfile.open(SHARED / "demand/servegen_m-small.traces.tar.gz") as archive:
        for member in archive.getmembers():
            if member.name.endswith("-trace.csv") and (file := archive.extractfile(member)):
                table = np.loadtxt(file, delimiter=",", usecols=(0, 1))
                clients.append(np.bincount((table[:, 0] // 600).astype(int), table[:, 1], 14 * 144))
    total = np.sum(clients, axis=0)
    clients.sort(key=lambda rates: -rates.sum())
    known = np.flatnonzero(total > 0)
    number = name.removeprefix("servegen")
    rates = clients[int(number) - 1] if number else total
    return np.interp(np.arange(rates.size), known, rates[known]).reshape(-1, 144)


FUNCTIONS = (
    advice,
    foreseen_loads,
    nightly_promises,
    corrected_version,
    corrected_in_hindsight,
)
FEW = {"CUTS": {"azure": (3,)}, "REQUESTS": {"azure": 3_000}, "DRAWS": 8}
SMOKE = {
    "advice": FEW,
    "foreseen_loads": {"FORESEEN": {"servegen1": 4}, "FORESEEN_REQUESTS": 1_000},
    "nightly_promises": {"NIGHTS": 1, "MOST_HISTORY_DAYS": 3, "REQUESTS": {"burstgpt": 1_000}},
    "corrected_version": {"MOST_HISTORY_DAYS": 3, "REQUESTS": {"burstgpt": 1_000}},
    "corrected_in_hindsight": {"CORRECTED_CUTS": {"azure": (3,)}, "REQUESTS": {"azure": 2_000}},
}
