"""Run the pipeline of a page: forecasts, fleets to rent, a day under each policy, and the next day's plan.

All steps use the code of nightly runs and studies, and write into the page's own lake.
"""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta

from fleetcast.assets.advice.advice_config import SizedDeployment, cheapest_deployment
from fleetcast.assets.advice.imported_trace import ImportedTrace
from fleetcast.assets.demand import demand_history
from fleetcast.assets.forecasts.forecasts import forecast_day
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans.day_ahead import forecast_plan_day, plan_ahead
from fleetcast.assets.plans.plans import plan_day
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.replays.scorecards import score_day
from fleetcast.assets.studies import rent_answer
from fleetcast.assets.studies.level_search import LevelsQuery as Levels
from fleetcast.assets.studies.level_search import try_levels
from fleetcast.assets.studies.rent_query import RentQuery
from fleetcast.models.latency.profile_order import profiled_gpus
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import Deployment

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
    gpus: Sequence[str],
    peaks: Mapping[str, float] | None,
    progress: Progress,
) -> dict[str, rent_answer.RentAnswer]:
    """Find the fleets to rent for the llms with most requests; an llm that no fleet serves in time has none.

    `peaks`: input tokens/s by llm; None: the largest forecast load of the day.
    """
    answers = {}
    for llm in llms[:MAX_LLMS_RENTED_FOR]:
        query = RentQuery(llm, tuple(gpus) or default_gpus(llm, settings.catalogue), {})
        try:
            peak = peaks[llm] if peaks is not None else None
            answer = rent_answer.answer_rent_query(settings, day, query, progress, peak)
        except ValueError as error:
            progress.say(str(error))
            continue
        rent_answer.write_rent_tables(settings, day, answer)
        answers[llm] = answer
    return answers


def rented_sized_deployments(
    answers: Mapping[str, rent_answer.RentAnswer],
    llms: Sequence[str],
    catalogue: Catalogue,
    config: RunConfig,
) -> dict[str, SizedDeployment]:
    """Return each llm's deployment and peak instances: from its best fleet of one type, else the cheapest."""
    deployments = {}
    for llm in llms:
        fleet = answers[llm].fleets.get("one_type") if llm in answers else None
        if fleet is None:
            deployments[llm] = SizedDeployment(cheapest_deployment(llm, catalogue, config), 2)
            continue
        combo, _ = max(fleet.held, key=lambda item: item[1])
        price = combo.decode.price
        peak = sum(count * held.decode.instances for held, count in fleet.held)
        deployments[llm] = SizedDeployment(Deployment(price.gpu, price.gpus), peak)
    return deployments


def plan_past_days(settings: RunSettings, last: date, progress: Progress) -> list[date]:
    """Plan the latest days up to `last` as their midnight would have; return them, oldest first."""
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


def forecast_next_day(settings: RunSettings, day: date, progress: Progress) -> None:
    """Forecast a coming day; this needs no deployment."""
    forecast_plan_day(settings, day, progress)
