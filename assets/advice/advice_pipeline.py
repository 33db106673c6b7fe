"""Run the pipeline of a page: forecasts, fleets to rent, a day under each policy, and the next day's plan.

All steps use the code of nightly runs and studies, and write into the page's own lake.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta

from fleetcast.assets.advice.advice_config import SizedDeployment, cheapest_deployment, small_deployments
from fleetcast.assets.advice.imported_trace import ImportedTrace
from fleetcast.assets.advice.short_trace import rank_by_cost
from fleetcast.assets.demand import demand_history
from fleetcast.assets.forecasts.forecasts import forecast_day
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans.day_ahead import plan_ahead
from fleetcast.assets.plans.plans import plan_day
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.replays.scorecards import score_day
from fleetcast.assets.studies import rent_answer
from fleetcast.assets.studies.level_search import LevelsQuery as Levels
from fleetcast.assets.studies.level_search import try_levels
from fleetcast.assets.studies.rent_hour import busiest_hour
from fleetcast.assets.studies.rent_query import RentQuery
from fleetcast.models.latency.profile_order import profiled_gpus
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.toml_dataclasses import ConfigError

MOST_CHOICES = 3  # GPU types whose promise is computed, if those before do not keep theirs
BELOW_TARGET_SHARE = 0.05  # what a type may lack in the busiest hour: the promise is of the whole day
MAX_LLMS_RENTED_FOR = 2  # the other llms get the cheapest instance that holds them
MOST_PAST_DAYS = 5  # planned at their midnight and replayed, to choose a rule
LEVEL_TRIAL_STACKS = ("jsq",)  # the simplest stack that uses levels
LEVEL_TRIAL_LEVELS = (1, 2, 3)


def default_gpus(llm: str, catalogue: Catalogue) -> tuple[str, ...]:
    """Return GPU types with a price and a latency profile of the llm, and timed kernels if any type has."""
    priced = [gpu for gpu in profiled_gpus(catalogue, llm) if catalogue.gpus[gpu].usd_per_hour > 0]
    timed = [gpu for gpu in priced if catalogue.gpus[gpu].system is not None]
    return tuple(timed or priced)


def find_fleets_to_rent(
    settings: RunSettings,
    day: date,
    llms: Sequence[str],
    gpus: Mapping[str, Sequence[str]],
    peaks: Mapping[str, float] | None,
    progress: Progress,
) -> dict[str, rent_answer.RentAnswer]:
    """Find the fleets to rent for the llms with most requests; an llm that no fleet serves in time has none.

    `gpus`: the types to choose from, by llm. `peaks`: input tokens/s by llm; None: the largest forecast load
    of the day.
    """
    answers = {}
    for llm in llms[:MAX_LLMS_RENTED_FOR]:
        query = RentQuery(llm, tuple(gpus[llm]), {})
        try:
            peak = peaks[llm] if peaks is not None else None
            answer = rent_answer.answer_rent_query(settings, day, query, progress, peak)
        except ValueError as error:
            progress.say(str(error))
            continue
        rent_answer.write_rent_tables(settings, day, answer)
        answers[llm] = answer
    return answers


def choose_deployments(
    settings: RunSettings,
    day: date,
    answers: Mapping[str, rent_answer.RentAnswer],
    llms: Sequence[str],
    gpus: Mapping[str, Sequence[str]],
    progress: Progress,
) -> list[dict[str, SizedDeployment]]:
    """Return deployments for all llms, the cheapest first, then those to take if these miss their promise.

    Of an llm these are the deployment of its fleet to rent and small ones of each GPU type, in the order of
    their cost in the busiest hour; those that attain far less than the target there come last. A fleet has
    the instances that must survive, so a cheaper and slower type may cost less than that of the fleet to
    rent. An llm without a fleet to rent has its cheapest deployment alone.
    """
    ranked = list[list[SizedDeployment]]()
    for llm in progress.each("choose GPU types", llms):
        if llm in answers:
            ranked.append(_rank_in_busiest_hour(settings, day, answers[llm], llm, gpus[llm]))
        else:
            ranked.append([SizedDeployment(cheapest_deployment(llm, settings.catalogue, settings.config), 2)])
    places = range(min(MOST_CHOICES, max(map(len, ranked))))
    return [
        {llm: found[min(place, len(found) - 1)] for llm, found in zip(llms, ranked, strict=True)}
        for place in places
    ]


def _rank_in_busiest_hour(
    settings: RunSettings, day: date, answer: rent_answer.RentAnswer, llm: str, gpus: Sequence[str]
) -> list[SizedDeployment]:
    scenario = answer.setting
    tokens_per_s = scenario.per_s * scenario.load.input_tokens
    hour = busiest_hour(settings, day, llm, tokens_per_s)
    [pool, *_] = settings.config.fleet.deployments[llm]
    least = settings.config.fleet.min_instances * len(pool.regions or settings.catalogue.regions)
    pools = deployments_to_compare(answer, settings, llm, gpus)
    return rank_by_cost(settings, llm, hour, pools, least, BELOW_TARGET_SHARE)


def deployments_to_compare(
    answer: rent_answer.RentAnswer, settings: RunSettings, llm: str, gpus: Sequence[str]
) -> list[Deployment]:
    """Return the deployment of the best fleet of one type, then small ones of each GPU type, each once.

    The smallest that holds the llm, and one of twice as many GPUs: few large instances may survive a loss for
    less than many small ones, and serve a long prompt in time.
    """
    found = list[Deployment]()
    if fleet := answer.fleets.get("one_type"):
        price = max(fleet.held, key=lambda item: item[1])[0].decode.price
        found.append(Deployment(price.gpu, price.gpus))
    for gpu in gpus:
        with suppress(ConfigError):  # no instance of this type holds the llm
            found += small_deployments(llm, gpu, settings.catalogue, settings.config)
    return list(dict.fromkeys(found))


def plan_past_days(settings: RunSettings, last: date, progress: Progress) -> list[date]:
    """Plan the latest days up to `last` as their midnight would have; return them, oldest first.

    The plans of `last` that other deployments have made are removed: a planned day is not planned ahead.
    """
    for file in settings.lake.files("plans", trace=settings.trace, day=last):
        settings.lake.remove(file)
    next_day = last + timedelta(days=1)
    for _ in demand_history.make_demand(settings, demand_history.past_days(settings, next_day), progress):
        pass
    known = settings.lake.days("demand", settings.trace)
    planned = []
    for back in range(MOST_PAST_DAYS - 1, -1, -1):
        day = last - timedelta(days=back)
        before = settings.history(day)
        if before and before[0] in known and day - timedelta(days=1) in known:
            plan_ahead(settings, day, progress)
            planned.append(day)
    return planned


def whole_days_until(settings: RunSettings, last: date) -> list[date]:
    """Return the days of the trace to resample, oldest first."""
    return [day for day in settings.lake.days("demand", settings.trace) if day <= last]


def run_day_pipeline(settings: RunSettings, day: date, progress: Progress) -> None:
    """Forecast, plan, replay and score a day from the days before it."""
    forecast_day(settings, day, progress)
    plan_day(settings, day, progress)
    replay_day(settings, day, settings.config.replay.policies, progress)
    score_day(settings, day, progress)


def run_level_trials(settings: RunSettings, day: date, imported: ImportedTrace, progress: Progress) -> bool:
    """Run level trials in the busiest hour; return whether the trace has several tiers, each llm one engine.

    Levels are tested on one pool, and engines of answers are pools of their own.
    """
    pools = settings.config.fleet.deployments.values()
    if len(imported.tiers) < 2 or max(map(len, pools)) > 1:
        return False
    try_levels(
        settings,
        day,
        Levels(levels=LEVEL_TRIAL_LEVELS, by="tier", stacks=LEVEL_TRIAL_STACKS, hours=1),
        progress,
    )
    return True
