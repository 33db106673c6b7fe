"""What runs today, as somebody told: a fleet by name, replayed, or the one that ran."""

from collections.abc import Sequence
from datetime import date

import pandas as pd
import pyarrow as pa

from fleetcast.assets.lake.settings import HOURS_OF_DAY, RunSettings
from fleetcast.assets.studies import try_fleet
from fleetcast.models.aliases import Numbers
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import RunConfig


def evaluate_current_fleet(
    settings: RunSettings,
    day: date | None,
    pools: Sequence[try_fleet.TryPool],
    on: str | None,
    catalogue: Catalogue,
    office: RunConfig,
) -> Numbers | None:
    """What runs today, and what it costs in a day and attains on the last whole one; None where nobody told.

    Where there is no whole day, on the trace.

    As --fleet names it, replayed; else the fleet that ran, with what `fleetcast plan grade` found of it.
    """
    if not pools or on is None:
        return None if day is None else read_recorded_fleet(settings, day)
    rows = settings.lake.sql("reads/advice_replayed_requests.sql", trace=settings.trace, day=day).to_pandas(
        types_mapper=lambda of: pd.ArrowDtype(of) if pa.types.is_list(of) else None
    )
    rows["arrival_s"] -= rows["arrival_s"].iloc[0]
    row = try_fleet.run_fleet_trial(on, pools, rows, catalogue, office).row
    usd = sum(p.instances * p.deployment.gpus * catalogue.gpus[p.deployment.gpu].usd_per_hour for p in pools)
    counts = rows["tier"].value_counts()
    own = [tier for tier in catalogue.interactive_tiers if tier in counts.index]
    met = sum(row[f"{tier}_attainment_share"] * counts[tier] for tier in own)
    asked = sum(counts[tier] for tier in own)
    gpus = sum(pool.instances * pool.deployment.gpus for pool in pools)
    share = float(met / asked) if asked else None
    return {
        "fleet": on,
        "usd": HOURS_OF_DAY * usd,
        "gpu_hours": float(HOURS_OF_DAY * gpus),
        "in_time_share": share,
    }


def read_recorded_fleet(settings: RunSettings, day: date) -> Numbers | None:
    """The fleet that ran on a day; None where the lake does not know it."""
    rows = settings.lake.sql("reads/advice_ran_fleet.sql", trace=settings.trace, day=day).to_pylist()
    if not rows:
        return None
    gpus = settings.catalogue.gpus
    hours = [row["instance_hours"] * row["gpus_per_instance"] for row in rows]
    usd = sum(hour * gpus[row["gpu"]].usd_per_hour for hour, row in zip(hours, rows, strict=True))
    [graded] = settings.lake.sql("reads/advice_ran_attainment.sql", trace=settings.trace, day=day).to_pylist()
    told = {"usd": usd, "gpu_hours": sum(hours), "in_time_share": graded["share"]}
    return {"fleet": "the fleet that ran", **told}
