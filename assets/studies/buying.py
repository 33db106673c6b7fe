"""Write a buying list: which GPUs to reserve, to buy on demand and to take from spot, by past weeks' needs.

Interactive demand of an hour needs the GPUs that its largest bucket fills, on the cheapest instance type of
each llm; deferrable demand needs those that its mean fills. The table lost_pools then removes one region's
GPUs of a type: the other regions take over their load, on the day of the largest need.
"""

from datetime import date, timedelta
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fleetcast.assets.demand.demand import INTERACTIVE, read_demand_matrix
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import HOURS_OF_DAY, Progress, RunSettings
from fleetcast.assets.plans import measured_capacity
from fleetcast.models.aliases import Floats
from fleetcast.models.plan.commitments import (
    CommitmentCosts,
    CommitmentPrices,
    commitment_costs,
    commitment_regrets,
)
from fleetcast.models.world.plan_grid import Grid, ServiceOption

BUYING_WEEK_DAYS = 7


class PurchaseTerms(NamedTuple):
    """Prices of a reserved and of a spot GPU-hour, as shares of the price on demand."""

    reserved_share: float
    spot_share: float


class GpuNeeds(NamedTuple):
    """GPUs of a type that are needed in a region, each of shape (days, 24)."""

    interactive: Floats
    batch_tier: Floats


def write_buying_list(
    settings: RunSettings, terms: PurchaseTerms, weeks: int, progress: Progress
) -> tuple[date, pa.Table]:
    """Write commitments and lost_pools from the last whole weeks of demand, at most `weeks`.

    Returns the last day of these weeks, and commitments. ValueError for terms outside 0 to 1, LakeError
    without a whole week of demand.
    """
    for name, share in zip(("reserved", "spot"), terms, strict=True):
        if not 0 < share <= 1:
            raise ValueError(
                f"--{name}: got {share:g}, needed a share of the price on demand, above 0 and at most 1."
            )
    days = whole_weeks(settings, weeks)
    needs = gpu_needs(settings, days, measured_capacity.measure_capacities(settings, days[-1], progress))
    prices = {
        gpu: CommitmentPrices(
            entry.usd_per_hour * terms.reserved_share,
            entry.usd_per_hour,
            entry.usd_per_hour * terms.spot_share,
        )
        for gpu, entry in settings.catalogue.gpus.items()
    }
    rows, chosen = [], dict[tuple[str, str], int]()
    for (region, gpu), need in needs.items():
        found = commitment_costs(need.interactive, need.batch_tier, prices[gpu])
        best = int(found.usd.sum(axis=1).argmin())
        chosen[region, gpu] = best
        place = {
            "served_region": region,
            "gpu": gpu,
            "weeks": len(days) // BUYING_WEEK_DAYS,
            **{f"{name}_usd": usd for name, usd in prices[gpu]._asdict().items()},
        }
        rows += [
            {**place, "is_best": row["reserved_gpus"] == best, **row} for row in _commitment_rows(need, found)
        ]
    lost = _lost_pool_rows(settings, needs, chosen, prices)
    tables = (
        pa.Table.from_pylist(rows, schema=SCHEMAS["commitments"]),
        pa.Table.from_pylist(lost, schema=SCHEMAS["lost_pools"]),
    )
    for name, table in zip(("commitments", "lost_pools"), tables, strict=True):
        settings.lake.write(name, table, trace=settings.trace, day=days[-1])
    return days[-1], tables[0]


def whole_weeks(settings: RunSettings, weeks: int) -> list[date]:
    """Return the last days of demand without a gap, as whole weeks; LakeError without one."""
    days = settings.lake.days("demand", settings.trace)
    run = [day for n, day in enumerate(reversed(days)) if (days[-1] - day).days == n]
    count = min(len(run) // BUYING_WEEK_DAYS, weeks) * BUYING_WEEK_DAYS
    if not count:
        raise LakeError(
            f"The trace {settings.trace!r} has {len(run)} days of demand in a row, needed "
            f"{BUYING_WEEK_DAYS} or more. Make or land the days before: {settings.command('nightly')}, "
            "fleetcast ingest."
        )
    return [days[-1] - timedelta(days=n) for n in range(count - 1, -1, -1)]


def gpu_needs(
    settings: RunSettings, days: list[date], sustained: list[float]
) -> dict[tuple[str, str], GpuNeeds]:
    """Return the GPUs needed by region and type; `sustained`: tokens/s of an instance by service option."""
    minutes, regions = settings.config.forecast.bucket_minutes, list(settings.catalogue.regions)
    found = read_demand_matrix(settings.lake, settings.trace, days[0], days[-1], minutes, settings.catalogue)
    loads = (
        np.nan_to_num(settings.serving_load(rate, axis=0))
        for rate in (found.tier_series(INTERACTIVE), found.held())
    )
    shape = len(settings.catalogue.llms), len(regions), len(days), HOURS_OF_DAY, -1
    interactive, batch_tier = (load.reshape(shape) for load in loads)
    needs: dict[tuple[str, str], GpuNeeds] = {}
    for service_option, per_s in _cheapest_options(settings.grid, sustained):
        llm = list(settings.catalogue.llms).index(service_option.llm)
        for (j, region), gpu_part in product(enumerate(regions), service_option.option.parts):
            gpus = gpu_part.gpus * gpu_part.instances
            option_needs = GpuNeeds(
                gpus * np.ceil(interactive[llm, j].max(axis=-1) / per_s),
                gpus * batch_tier[llm, j].mean(axis=-1) / per_s,
            )
            before = needs.get((region, gpu_part.gpu), GpuNeeds(np.zeros(1), np.zeros(1)))
            needs[region, gpu_part.gpu] = GpuNeeds(before[0] + option_needs[0], before[1] + option_needs[1])
    return needs


def _cheapest_options(grid: Grid, sustained: list[float]) -> list[tuple[ServiceOption, float]]:
    """Return each service's option with the least USD per token, and an instance's tokens/s."""
    cheapest: dict[tuple[str, str], tuple[float, ServiceOption, float]] = {}
    for service_option, per_s in zip(grid.service_options, sustained, strict=True):
        gpus, parts = grid.catalogue.gpus, service_option.option.parts
        usd = sum(gpus[part.gpu].usd_per_hour * part.gpus * part.instances for part in parts) / per_s
        if service_option.service not in cheapest or usd < cheapest[service_option.service][0]:
            cheapest[service_option.service] = usd, service_option, per_s
    return [(service_option, per_s) for _, service_option, per_s in cheapest.values()]


def _commitment_rows(need: GpuNeeds, found: CommitmentCosts) -> list[dict[str, Any]]:
    """Return a row for each commitment level of a region and GPU type, with means per week."""
    weeks = need.interactive.shape[0] / BUYING_WEEK_DAYS
    regret = commitment_regrets(found.usd)
    return [
        {
            "reserved_gpus": level,
            "exceeded_share": float((need.interactive > level).mean()),
            "on_demand_gpu_hours": float(found.on_demand_gpu_hours[level].sum() / weeks),
            "spot_gpu_hours": float(found.spot_gpu_hours[level].sum() / weeks),
            "usd_per_week": float(found.usd[level].sum() / weeks),
            "regret_usd": float(regret[level].mean()),
            "worst_regret_usd": float(regret[level].max()),
        }
        for level in range(found.usd.shape[0])
    ]


def _lost_pool_rows(
    settings: RunSettings,
    needs: dict[tuple[str, str], GpuNeeds],
    chosen: dict[tuple[str, str], int],
    prices: dict[str, CommitmentPrices],
) -> list[dict[str, Any]]:
    """Return rows of lost_pools: what other regions lack without one region's GPUs, on the peak day."""
    rows = []
    for region, gpu in needs:
        others = [place for place in needs if place[1] == gpu and place[0] != region]
        together = sum(need.interactive for place, need in needs.items() if place[1] == gpu)
        day = int(np.asarray(together).max(axis=1).argmax())
        peak_need = np.asarray(together)[day]
        reserved = sum(chosen[place] for place in others)
        before = sum(np.maximum(needs[place].interactive[day] - chosen[place], 0.0) for place in others)
        extra = np.maximum(np.maximum(peak_need - reserved, 0.0) - before, 0.0)
        cap = sum(settings.catalogue.regions[place[0]].cap_gpus.get(gpu, 0) for place in others)
        rows.append(
            {
                "served_region": region,
                "gpu": gpu,
                "needed_gpus": float(peak_need.max()),
                "reserved_elsewhere_gpus": reserved,
                "more_on_demand_gpus": float(extra.max()),
                "more_usd_per_day": float(extra.sum() * prices[gpu].on_demand),
                "room_elsewhere_gpus": cap,
                "short_gpus": float(max(peak_need.max() - cap, 0.0)),
            }
        )
    return rows
