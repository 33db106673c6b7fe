"""Evaluate the current fleet: replay the one that --fleet names, or read the one that was recorded."""

from collections.abc import Sequence
from datetime import date

from fleetcast.assets.advice.remedies import read_requests_of_day
from fleetcast.assets.lake.settings import HOURS_OF_DAY, RunSettings
from fleetcast.assets.studies import try_fleet
from fleetcast.models.aliases import Numbers
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import gpu_type


def evaluate_current_fleet(
    settings: RunSettings,
    day: date | None,
    pools: Sequence[try_fleet.TryPool],
    current_fleet: str | None,
    catalogue: Catalogue,
    office: RunConfig,
) -> Numbers | None:
    """Return the current fleet with its cost per day and its attainment; None if it is not known.

    The fleet of --fleet is replayed on the last whole day, or, without one, on the whole trace. Without
    --fleet it is the recorded fleet of the day, with the attainment that `fleetcast plan grade` measured.
    """
    if not pools or current_fleet is None:
        return None if day is None else read_recorded_fleet(settings, day)
    rows = read_requests_of_day(settings, day)
    row = try_fleet.run_fleet_trial(current_fleet, pools, rows, catalogue, office).row
    usd = sum(p.instances * p.deployment.gpus * catalogue.gpus[p.deployment.gpu].usd_per_hour for p in pools)
    counts = rows["tier"].value_counts()
    tiers = [tier for tier in catalogue.interactive_tiers if tier in counts.index]
    met = sum(row[f"{tier}_attainment_share"] * counts[tier] for tier in tiers)
    interactive = sum(counts[tier] for tier in tiers)
    gpus = sum(pool.instances * pool.deployment.gpus for pool in pools)
    share = float(met / interactive) if interactive else None
    return {
        "fleet": current_fleet,
        "usd": HOURS_OF_DAY * usd,
        "gpu_hours": float(HOURS_OF_DAY * gpus),
        "in_time_share": share,
    }


def read_recorded_fleet(settings: RunSettings, day: date) -> Numbers | None:
    """Return the recorded fleet of a day; None if the lake has none."""
    rows = settings.lake.sql("reads/advice_ran_fleet.sql", trace=settings.trace, day=day).to_pylist()
    if not rows:
        return None
    gpus = settings.catalogue.gpus
    hours = [row["instance_hours"] * row["gpus_per_instance"] for row in rows]
    usd = sum(hour * gpus[gpu_type(row["gpu"])].usd_per_hour for hour, row in zip(hours, rows, strict=True))
    [graded] = settings.lake.sql("reads/advice_ran_attainment.sql", trace=settings.trace, day=day).to_pylist()
    totals = {"usd": usd, "gpu_hours": sum(hours), "in_time_share": graded["share"]}
    return {"fleet": "the fleet that ran", **totals}
