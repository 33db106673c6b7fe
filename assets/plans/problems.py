"""Build the planning problems of hours: capacities, prices, limits, boot times, and the load of each hour."""

from collections.abc import Iterable, Sequence
from datetime import date

import numpy as np

from fleetcast.assets.lake.settings import HOURS_OF_DAY, RunSettings
from fleetcast.assets.plans import measured_capacity
from fleetcast.assets.plans.plan_loads import PlanLoad
from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.pool_capacity import LARGE, size_shares
from fleetcast.models.plan.problem import Problem
from fleetcast.models.replay.session.fleet_arrays import boot_cold_s
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import PAPER_PLAN_KINDS, RunConfig
from fleetcast.models.world.plan_grid import Grid, Option
from fleetcast.models.world.replay_config import ReplayConfig


def problem_template(
    grid: Grid, config: RunConfig, sustained_tokens_per_s: Sequence[float], kind: str
) -> Problem:
    """Return an hour's problem without its load: capacities, prices, limits and the fleet at the start.

    `sustained_tokens_per_s` is the capacity (input tokens/s) of one instance of each of
    `grid.service_options`; the plan uses its utilisation target of it ([plan]). The boot time of paired pools
    is that of their slowest instance.
    """
    catalogue, plan = grid.catalogue, config.plan
    start, least, most = instance_counts(grid, plan.together)
    share = plan.capacity_share_of(kind)
    tokens_per_s, uses = instance_capacity_and_gpus(
        grid, [share * capacity for capacity in sustained_tokens_per_s]
    )
    prices = [option_usd_per_hour(catalogue, option) for option in grid.options]
    from_spot_s, cold_s = boot_times_s(grid, config.replay)
    sites, gpus = catalogue.regions.values(), tuple(catalogue.gpus)
    return Problem(
        llms=tuple(llm for llm, _ in grid.services),
        roles=tuple(role for _, role in grid.services),
        regions=tuple(catalogue.regions),
        options=tuple(option.title for option in grid.options),
        gpus=gpus,
        instances_now=start,
        spot=np.zeros_like(start),
        tokens_per_s=tokens_per_s,
        size_shares=np.ones((LARGE, *tokens_per_s.shape)),
        usd_per_hour=np.where(uses.any(axis=2), prices, 0.0),
        demand_tokens_per_s=np.zeros((*start.shape[:2], 1)),
        buffer_tokens_per_s=np.zeros(start.shape[:2]),
        uses=uses,
        cap_gpus=np.array([[site.cap_gpus.get(gpu, 0) for gpu in gpus] for site in sites]),
        min_instances=least.sum(axis=2),
        max_instances=most.sum(axis=2),
        min_option_instances=least,
        max_option_instances=most,
        budget_usd=np.inf,
        epsilon=plan.epsilon,
        window_s=60.0 * config.forecast.bucket_minutes,
        hours=1.0,
        boot_spot_s=from_spot_s,
        boot_cold_s=cold_s,
        spot_earning_share=plan.spot_earning_share,
        hysteresis_share=plan.hysteresis_share,
        export_share=plan.export_share,
    )


def with_size_shares(problem: Problem, settings: RunSettings, day: date, kind: str) -> Problem:
    """Return a `problem_template` that knows what pools of one to three instances sustain.

    It is unchanged in the paper's kinds of plan and without [plan] capacity_by_size.
    """
    plan = settings.config.plan
    if kind in PAPER_PLAN_KINDS or not plan.capacity_by_size:
        return problem
    measured = measured_capacity.measure_small_pools(settings, day)
    of_one, of_two = (instance_capacity_and_gpus(settings.grid, each)[0] for each in measured)
    shares = size_shares(of_one, of_two, problem.tokens_per_s / plan.capacity_share_of(kind))
    return problem._replace(size_shares=np.where(problem.runs, shares, 1.0))


def instance_capacity_and_gpus(grid: Grid, planned_tokens_per_s: Iterable[float]) -> tuple[Floats, Ints]:
    """Return capacity and GPUs of one instance of each service on each option.

    planned_tokens_per_s : capacity that a plan uses, of each of `grid.service_options`, tokens/s

    Returns
    -------
    capacity : (services, options) tokens/s, NaN where the service does not run on the option
    uses : (services, options, GPU types) number of GPUs
    """
    gpus = list(grid.catalogue.gpus)
    capacity = np.full((len(grid.services), len(grid.options)), np.nan)
    uses = np.zeros((*capacity.shape, len(gpus)), np.int64)
    for each, tokens_per_s in zip(grid.service_options, planned_tokens_per_s, strict=True):
        i, k = grid.services.index(each.service), grid.options.index(each.option)
        capacity[i, k] = tokens_per_s
        for part in each.option.parts:
            uses[i, k, gpus.index(part.gpu)] += part.gpus * part.instances
    return capacity, uses


def instance_counts(grid: Grid, together: bool) -> tuple[Ints, Ints, Ints]:
    """Return instances at the start, at least and at most, each of shape (services, regions, options).

    `together`: an llm that can run instances for whole requests has no paired pools.
    """
    start, least, most = (
        grid.to_cells(np.array([getattr(pool, name) for pool in grid.pools]))
        for name in ("instances_at_start", "min_instances", "max_instances")
    )
    if together:
        is_team = np.array([option.is_team for option in grid.options])
        has_whole = most[..., ~is_team].any(axis=(1, 2), keepdims=True)
        least, most = (np.where(has_whole & is_team, 0, limit) for limit in (least, most))
    return start, least, most


def boot_times_s(grid: Grid, replay: ReplayConfig) -> tuple[Floats, Floats]:
    """Return boot seconds: from spot, (services, options), and cold, (services, regions, options)."""
    catalogue = grid.catalogue
    spot_s = [
        replay.boot_spot_s * max(catalogue.gpus[part.gpu].boot_factor for part in option.parts)
        for option in grid.options
    ]
    cold_s = [
        [
            [
                max(boot_cold_s(catalogue, replay, llm, site, part.gpu) for part in option.parts)
                for option in grid.options
            ]
            for site in grid.regions
        ]
        for llm, _ in grid.services
    ]
    return np.tile(spot_s, (len(grid.services), 1)), np.array(cold_s)


def option_usd_per_hour(catalogue: Catalogue, option: Option) -> float:
    """Return the price of all GPUs of an option."""
    return sum(catalogue.gpus[part.gpu].usd_per_hour * part.gpus * part.instances for part in option.parts)


def minimum_usd_by_llm(settings: RunSettings) -> dict[str, float]:
    """Return what the minimum of instances of each llm costs in a day."""
    usd = dict.fromkeys(settings.catalogue.llms, 0.0)
    for row in settings.grid.pools:
        usd_per_hour = row.kind.gpus * settings.catalogue.gpus[row.kind.gpu].usd_per_hour
        usd[row.kind.llm] += HOURS_OF_DAY * row.min_instances * usd_per_hour
    return usd


def hour_problems(template: Problem, load: PlanLoad) -> list[Problem]:
    """Return the problems of a load's hours, in order; every service of an llm gets all of its requests."""
    llms = list(dict.fromkeys(template.llms))
    rows = [llms.index(llm) for llm in template.llms]
    return [
        template._replace(demand_tokens_per_s=demand[rows], buffer_tokens_per_s=buffer[rows])
        for demand, buffer in zip(*load, strict=True)
    ]
