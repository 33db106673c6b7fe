"""Size the promise of tomorrow on GPUs that could be rented, to compare today's GPUs with."""

from collections.abc import Callable, Sequence
from datetime import date

from fleetcast.assets.advice.advice_config import SizedDeployment
from fleetcast.assets.advice.advice_pipeline import plan_past_days, whole_days_until
from fleetcast.assets.advice.advised_days import describe_largest_fleet
from fleetcast.assets.advice.promise import RentedPromise
from fleetcast.assets.advice.promise_sections import search_promise
from fleetcast.assets.advice.rule_replays import sized_targets
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans.day_ahead import plan_ahead

Deployments = dict[str, SizedDeployment]  # by llm


def search_rented_promise(
    choices: Sequence[Deployments],
    current: Deployments,
    settings_of: Callable[[Deployments], RunSettings],
    last: date,
    next_day: date,
    survive: str,
    progress: Progress,
) -> RentedPromise | None:
    """Return the promise of the first of `choices` that keeps it; None if today's GPUs come before it.

    `choices`: the cheapest first, of `choose_deployments`. The plans in the lake are then of these GPUs: plan
    again. The versions of tomorrow are those of today's GPUs too, as their seed does not depend on GPUs.
    """
    for choice in choices:
        if all(current[llm].deployment == sized.deployment for llm, sized in choice.items()):
            return None
        settings = settings_of({**current, **choice})  # a fleet may have llms that no request needs
        days = plan_past_days(settings, last, progress)
        plan_ahead(settings, next_day, progress)
        whole = whole_days_until(settings, days[-1])
        search, found = search_promise(settings, days, whole, next_day, survive, progress)
        if found.is_kept:
            targets = sized_targets(settings, search.plan, found.advised.sized)
            return RentedPromise(describe_largest_fleet(settings, targets), found.advised)
    return None
