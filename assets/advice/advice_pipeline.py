"""What is computed for a page: forecasts, the fleet to rent, a day under each policy, the plan of the next.

All of it by the machinery of the night and of the studies, into the lake beside the page; nothing is copied.
"""

import math
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
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import RunConfig

MAX_LLMS_RENTED_FOR = 2  # that GPUs are sought for; the others stand on the cheapest instance that holds them
ADVICE_RESAMPLES = 12  # of the latencies
MAX_REQUESTS_TO_RESAMPLE = 300_000  # requests of a day, above which fewer policies and no draws are replayed
SCORED_FORECAST_DAYS = 3  # that were forecast at their midnight, to know how good that is
RESAMPLED_POLICIES = ("static", "day_ahead")  # whose difference the draws are of
LEVEL_TRIAL_STACKS = ("jsq",)  # on which levels are tried: the plainest that looks at them
LEVEL_TRIAL_LEVELS = (1, 2, 3)


def default_gpus(llm: str, catalogue: Catalogue) -> tuple[str, ...]:
    """GPU types with a price, timed kernels, and a profile that a config may name."""
    own = dict.fromkeys(p.gpu for p in catalogue.latency if p.llm == llm)
    priced = [gpu for gpu in own if catalogue.gpus[gpu].usd_per_hour > 0]
    timed = [gpu for gpu in priced if (k := catalogue.kernels.get(gpu)) is not None and k.lacks is None]
    return tuple(timed or priced)


def profiled_gpus(llm: str, gpus: Sequence[str], catalogue: Catalogue) -> tuple[str, ...]:
    """Of these GPU types, else of the default ones, those on which a config may put an llm."""
    known = {p.gpu for p in catalogue.latency if p.llm == llm}
    return tuple(gpu for gpu in gpus if gpu in known) or default_gpus(llm, catalogue)


def find_fleets_to_rent(
    settings: RunSettings,
    day: date,
    llms: Sequence[str],
    gpus: Sequence[str],
    peaks: Mapping[str, float] | None,
    progress: Progress,
) -> dict[str, rent_answer.RentAnswer]:
    """The fleets to rent for the llms with most requests; an llm that nothing serves in time has none.

    `peaks` in input tokens/s by llm; None: the largest that are foreseen for the day.
    """
    found = {}
    for llm in llms[:MAX_LLMS_RENTED_FOR]:
        asked = RentQuery(llm, tuple(gpus) or default_gpus(llm, settings.catalogue), {})
        try:
            peak = peaks[llm] if peaks is not None else None
            answer = rent_answer.answer_rent_query(settings, day, asked, progress, peak)
        except ValueError as error:
            progress.say(str(error))
            continue
        rent_answer.write_rent_tables(settings, day, answer)
        found[llm] = answer
    return found


def rented_sized_deployments(
    answers: Mapping[str, rent_answer.RentAnswer],
    llms: Sequence[str],
    catalogue: Catalogue,
    config: RunConfig,
) -> dict[str, SizedDeployment]:
    """What each llm's instances stand on: of the best fleet of one type, as a config may name it."""
    stands = {}
    for llm in llms:
        fleet = answers[llm].fleets.get("one_type") if llm in answers else None
        if fleet is None:
            stands[llm] = SizedDeployment(cheapest_deployment(llm, catalogue, config), 2)
            continue
        combo, _ = max(fleet.held, key=lambda one: one[1])
        price = combo.decode.price
        known = {(p.gpu, p.tensor_parallel) for p in catalogue.latency if p.llm == llm}
        own = cheapest_deployment(
            llm, catalogue, config, [price.gpu] if any(g == price.gpu for g, _ in known) else []
        )
        if (price.gpu, price.gpus) in known:
            own = type(own)(price.gpu, price.gpus)
        peak = sum(count * one.decode.instances for one, count in fleet.held)
        stands[llm] = SizedDeployment(own, math.ceil(peak * price.gpus / own.tensor_parallel))
    return stands


def run_day_pipeline(settings: RunSettings, day: date, progress: Progress) -> None:
    """Forecast, plan, replay and score a day from what came before it; foresee some days before too."""
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


def run_level_trials(settings: RunSettings, day: date, brought: ImportedTrace, progress: Progress) -> bool:
    """Try levels of priority in the busiest hour, where the trace has several tiers; whether they were."""
    if len(brought.tiers) < 2:
        return False
    try_levels(
        settings,
        day,
        Levels(levels=LEVEL_TRIAL_LEVELS, by="tier", stacks=LEVEL_TRIAL_STACKS, hours=1),
        progress,
    )
    return True


def forecast_next_day(settings: RunSettings, day: date, progress: Progress) -> None:
    """Forecast a day to come, whatever it will run on."""
    forecast_plan_day(settings, day, progress)
