"""Run the pipeline of a page: forecasts, fleets to rent, a day under each policy, and the next day's plan.

All steps use the code of nightly runs and studies, and write into the page's own lake.
"""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta

from fleetcast.assets.advice.advice_config import SizedDeployment, cheapest_deployment
from fleetcast.assets.advice.imported_trace import ImportedTrace
from fleetcast.assets.demand import demand_history
from fleetcast.assets.forecasts.forecasts import forecast_day, forecast_day_ahead
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans.day_ahead import forecast_plan_day
from fleetcast.assets.plans.plans import plan_day
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.replays.scorecards import score_day
from fleetcast.assets.studies import rent_answer
from fleetcast.assets.studies.latency_error import replay_latency_draws
from fleetcast.assets.studies.level_search import LevelsQuery as Levels
from fleetcast.assets.studies.level_search import try_levels
from fleetcast.assets.studies.rent_query import RentQuery
from fleetcast.models.latency.profile_order import profiled_gpus
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import Deployment

MAX_LLMS_RENTED_FOR = 2  # the other llms get the cheapest instance that holds them
ADVICE_RESAMPLES = 12  # draws of the latencies
MAX_REQUESTS_TO_RESAMPLE = 300_000  # requests of a day above which latency draws are not replayed
SCORED_FORECAST_DAYS = 3  # days forecast at their midnight, to measure the forecast error
RESAMPLED_POLICIES = ("static", "day_ahead")  # the policies replayed in each latency draw
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


def run_day_pipeline(settings: RunSettings, day: date, progress: Progress) -> None:
    """Forecast, plan, replay and score a day from the days before it, and forecast some earlier days."""
    for _ in demand_history.make_demand(
        settings, demand_history.past_days(settings, day + timedelta(days=1)), progress
    ):
        pass
    for back in range(SCORED_FORECAST_DAYS - 1, 0, -1):
        before = day - timedelta(days=back)
        if settings.history(before) and settings.history(before)[0] in settings.lake.days(
            "demand", settings.trace
        ):
            forecast_day_ahead(settings, before, progress)
    forecast_day(settings, day, progress)
    plan_day(settings, day, progress)
    replay_day(settings, day, settings.config.replay.policies, progress)
    score_day(settings, day, progress)
    if settings.lake.count("requests", trace=settings.trace, day=day) <= MAX_REQUESTS_TO_RESAMPLE:
        replay_latency_draws(settings, day, RESAMPLED_POLICIES, ADVICE_RESAMPLES, progress)


def run_level_trials(settings: RunSettings, day: date, imported: ImportedTrace, progress: Progress) -> bool:
    """Run level trials in the busiest hour if the trace has several tiers; return whether it has."""
    if len(imported.tiers) < 2:
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
