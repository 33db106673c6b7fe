"""The hours that a plan solves: capacities, prices, limits and boots of the fleet, and the load of each."""

from collections.abc import Sequence

import numpy as np

from fleetcast.assets.plans.plan_loads import PlanLoad
from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.problem import Problem
from fleetcast.models.replay.session.fleet_arrays import boot_cold_s
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import PlanConfig, RunConfig
from fleetcast.models.world.plan_grid import Grid, Option
from fleetcast.models.world.replay_config import ReplayConfig

PAPER_PLAN_KINDS = ("forecast", "peak", "melange")  # plans that count on [plan] capacity_share


def plan_capacity_share(figures: PlanConfig, programme: str | None) -> float:
    """How much of what an instance sustains a plan counts on."""
    return figures.capacity_share if programme in PAPER_PLAN_KINDS else figures.corrected_capacity_share


def problem_template(
    grid: Grid, config: RunConfig, sustained_tokens_per_s: Sequence[float], programme: str
) -> Problem:
    """All of an hour but its load: capacities, prices, limits and the fleet at the start.

    `sustained_tokens_per_s` is that of each of `grid.service_options`; a plan counts on its own share of it
    ([plan]). A team boots as long as the slowest of its instances.
    """
    catalogue, asked = grid.catalogue, config.plan
    start, least, most = instance_counts(grid, asked.together)
    share = plan_capacity_share(asked, programme)
    tokens_per_s, uses = instance_capacity_and_gpus(
        grid, [share * sustained for sustained in sustained_tokens_per_s]
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
        epsilon=asked.epsilon,
        window_s=60.0 * config.forecast.bucket_minutes,
        hours=1.0,
        boot_spot_s=from_spot_s,
        boot_cold_s=cold_s,
        spot_earning_share=asked.spot_earning_share,
        hysteresis_share=asked.hysteresis_share,
        export_share=asked.export_share,
    )


def instance_capacity_and_gpus(grid: Grid, counted_tokens_per_s: Sequence[float]) -> tuple[Floats, Ints]:
    """Of one each: tokens/s that a plan counts on, (i, k), NaN where none runs; GPUs by type, (i, k, n)."""
    gpus = list(grid.catalogue.gpus)
    theta = np.full((len(grid.services), len(grid.options)), np.nan)
    uses = np.zeros((*theta.shape, len(gpus)), np.int64)
    for each, counted in zip(grid.service_options, counted_tokens_per_s, strict=True):
        i, k = grid.services.index(each.service), grid.options.index(each.option)
        theta[i, k] = counted
        for part in each.option.parts:
            uses[i, k, gpus.index(part.gpu)] += part.gpus * part.instances
    return theta, uses


def instance_counts(grid: Grid, together: bool) -> tuple[Ints, Ints, Ints]:
    """Instances at the start, at least and at most, each of shape (i, j, k).

    `together`: no team of an llm that has an instance for whole requests.
    """
    start, least, most = (
        grid.to_cells(np.array([getattr(pool, name) for pool in grid.pools]))
        for name in ("instances_at_start", "min_instances", "max_instances")
    )
    if together:
        is_team = np.array([option.is_team for option in grid.options])
        has_whole = most[..., ~is_team].any(axis=(1, 2), keepdims=True)
        least, most = (np.where(has_whole & is_team, 0, held) for held in (least, most))
    return start, least, most


def boot_times_s(grid: Grid, replay: ReplayConfig) -> tuple[Floats, Floats]:
    """Seconds of a boot from spot, (i, k), and of a cold one, (i, j, k)."""
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
    """Of all the GPUs of an option."""
    return sum(catalogue.gpus[part.gpu].usd_per_hour * part.gpus * part.instances for part in option.parts)


def hour_problems(template: Problem, load: PlanLoad) -> list[Problem]:
    """The hours of a load, in order; every service of an llm carries all of its requests."""
    llms = list(dict.fromkeys(template.llms))
    of = [llms.index(llm) for llm in template.llms]
    return [
        template._replace(demand_tokens_per_s=demand[of], buffer_tokens_per_s=buffer[of])
        for demand, buffer in zip(*load, strict=True)
    ]
