"""A buying list: which GPUs to reserve, to buy on demand and to take from spot, from the need of past weeks.

The need of an hour is what its largest bucket of interactive demand fills, by the cheapest kind of instance
that each llm runs on; of what may wait it is the mean. Then a place is lost: its load comes to the others of
the same GPU type, on the day of the largest need.
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
from fleetcast.assets.plans.plans import measure_capacities
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
    """What is paid of the price on demand: for a reserved GPU-hour, and for one of spot."""

    reserved_share: float
    spot_share: float


class GpuNeeds(NamedTuple):
    """GPUs of a type that are needed in a region, each of shape (days, hours)."""

    interactive: Floats
    held: Floats


def write_buying_list(
    settings: RunSettings, terms: PurchaseTerms, weeks: int, progress: Progress
) -> tuple[date, pa.Table]:
    """Write commitments and lost_pools from as many whole weeks as there are, at most `weeks`.

    Returns the last day of these weeks, and commitments. ValueError for terms that no one has, LakeError
    without a whole week of demand.
    """
    for name, share in zip(("reserved", "spot"), terms, strict=True):
        if not 0 < share <= 1:
            raise ValueError(
                f"--{name}: got {share:g}, needed what such a GPU-hour costs of one on demand, above 0 to 1."
            )
    days = whole_weeks(settings, weeks)
    needs = gpu_needs(settings, days, measure_capacities(settings, days[-1], progress))
    prices = {
        gpu: CommitmentPrices(
            one.usd_per_hour * terms.reserved_share, one.usd_per_hour, one.usd_per_hour * terms.spot_share
        )
        for gpu, one in settings.catalogue.gpus.items()
    }
    rows, chosen = [], dict[tuple[str, str], int]()
    for (region, gpu), need in needs.items():
        found = commitment_costs(need.interactive, need.held, prices[gpu])
        best = int(found.usd.sum(axis=1).argmin())
        chosen[region, gpu] = best
        place = {
            "region": region,
            "gpu": gpu,
            "weeks": len(days) // BUYING_WEEK_DAYS,
            **prices[gpu]._asdict(),
        }
        rows += [{**place, "is_best": row["reserved_gpus"] == best, **row} for row in _rows(need, found)]
    lost = _lost(settings, needs, chosen, prices)
    tables = (
        pa.Table.from_pylist([_renamed(row) for row in rows], schema=SCHEMAS["commitments"]),
        pa.Table.from_pylist(lost, schema=SCHEMAS["lost_pools"]),
    )
    for name, table in zip(("commitments", "lost_pools"), tables, strict=True):
        settings.lake.write(name, table, trace=settings.trace, day=days[-1])
    return days[-1], tables[0]


def whole_weeks(settings: RunSettings, weeks: int) -> list[date]:
    """The last days with demand without a gap, a whole number of weeks of them."""
    there = settings.lake.days("demand", settings.trace)
    run = [day for n, day in enumerate(reversed(there)) if (there[-1] - day).days == n]
    count = min(len(run) // BUYING_WEEK_DAYS, weeks) * BUYING_WEEK_DAYS
    if not count:
        raise LakeError(
            f"The trace {settings.trace!r} has {len(run)} days of demand in a row, needed "
            f"{BUYING_WEEK_DAYS} or more. "
            "Make or land the days before: fleetcast nightly, fleetcast ingest."
        )
    return [there[-1] - timedelta(days=n) for n in range(count - 1, -1, -1)]


def gpu_needs(
    settings: RunSettings, days: list[date], sustained: list[float]
) -> dict[tuple[str, str], GpuNeeds]:
    """GPUs that each region needs of each type; `sustained` tokens/s of an instance of each of `kinds`."""
    minutes, regions = settings.config.forecast.bucket_minutes, list(settings.catalogue.regions)
    found = read_demand_matrix(settings.lake, settings.trace, days[0], days[-1], minutes, settings.catalogue)
    loads = (
        np.nan_to_num(settings.serving_load(rate, axis=0))
        for rate in (found.tier_series(INTERACTIVE), found.held())
    )
    shape = len(settings.catalogue.llms), len(regions), len(days), HOURS_OF_DAY, -1
    interactive, held = (load.reshape(shape) for load in loads)
    needs: dict[tuple[str, str], GpuNeeds] = {}
    for kind, per_s in _cheapest(settings.grid, sustained):
        llm = list(settings.catalogue.llms).index(kind.llm)
        for (j, region), part in product(enumerate(regions), kind.option.parts):
            gpus = part.gpus * part.instances
            own = GpuNeeds(
                gpus * np.ceil(interactive[llm, j].max(axis=-1) / per_s),
                gpus * held[llm, j].mean(axis=-1) / per_s,
            )
            before = needs.get((region, part.gpu))
            needs[region, part.gpu] = (
                own if before is None else GpuNeeds(before[0] + own[0], before[1] + own[1])
            )
    return needs


def _cheapest(grid: Grid, sustained: list[float]) -> list[tuple[ServiceOption, float]]:
    """Of each service the kind with the least USD per token, and what an instance of it sustains."""
    found: dict[tuple[str, str], tuple[float, ServiceOption, float]] = {}
    for kind, per_s in zip(grid.service_options, sustained, strict=True):
        gpus, parts = grid.catalogue.gpus, kind.option.parts
        usd = sum(gpus[part.gpu].usd_per_hour * part.gpus * part.instances for part in parts) / per_s
        if kind.service not in found or usd < found[kind.service][0]:
            found[kind.service] = usd, kind, per_s
    return [(kind, per_s) for _, kind, per_s in found.values()]


def _rows(need: GpuNeeds, found: CommitmentCosts) -> list[dict[str, Any]]:
    """A row for each commitment of a place, the means by week."""
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


def _lost(
    settings: RunSettings,
    needs: dict[tuple[str, str], GpuNeeds],
    chosen: dict[tuple[str, str], int],
    prices: dict[str, CommitmentPrices],
) -> list[dict[str, Any]]:
    """What the others lack when a region has no GPU of a type any more, on the day of the largest need."""
    rows = []
    for region, gpu in needs:
        others = [place for place in needs if place[1] == gpu and place[0] != region]
        together = sum(need.interactive for place, need in needs.items() if place[1] == gpu)
        day = int(np.asarray(together).max(axis=1).argmax())
        whole = np.asarray(together)[day]
        reserved = sum(chosen[place] for place in others)
        before = sum(np.maximum(needs[place].interactive[day] - chosen[place], 0.0) for place in others)
        on_top = np.maximum(np.maximum(whole - reserved, 0.0) - before, 0.0)
        cap = sum(settings.catalogue.regions[place[0]].cap_gpus.get(gpu, 0) for place in others)
        rows.append(
            {
                "region": region,
                "gpu": gpu,
                "needed_gpus": float(whole.max()),
                "reserved_elsewhere_gpus": reserved,
                "more_on_demand_gpus": float(on_top.max()),
                "more_usd_per_day": float(on_top.sum() * prices[gpu].on_demand),
                "room_elsewhere_gpus": cap,
                "short_gpus": float(max(whole.max() - cap, 0.0)),
            }
        )
    return rows


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    """The prices under the names that they have in the lake."""
    return {f"{name}_usd" if name in CommitmentPrices._fields else name: value for name, value in row.items()}
