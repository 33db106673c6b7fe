"""Find what a plan expects to be sent from a region to others; no object of a cluster does that."""

from collections.abc import Sequence
from itertools import groupby

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.models.aliases import Row


def describe_region_exports(settings: RunSettings, rows: Sequence[Row]) -> str:
    """Return one line about the hours in which regions serve less than their own demand; "" for none.

    `rows` are in order of region and llm. An endpoint's demand is that of its hour's largest window.
    """
    hours, sent, demanded = set(), 0.0, 0.0
    ordered = sorted(rows, key=lambda row: (row["region"], row["llm"], row["role"], row["hour_start"]))
    for key, group in groupby(
        ordered, key=lambda row: (row["region"], row["llm"], row["role"], row["hour_start"])
    ):
        endpoint = list(group)
        demand = endpoint[0]["demand_tokens_per_s"]
        capacity = sum(row["sustained_tokens_per_s"] for row in endpoint if row["instances"])
        demanded += demand
        if demand > capacity * (1 + 1e-9):
            hours.add(key[-1])
            sent += demand - capacity
    if not hours:
        return ""
    hours_serve = "hour serves" if len(hours) == 1 else "hours serve"
    regions = ", ".join(dict.fromkeys(row["region"] for row in ordered))
    return (
        f"flows    {len(hours)} {hours_serve} less than the demand of {regions}: "
        f"{100 * sent / demanded:.2g} % of it goes to other regions, by your gateway. Without: "
        f"{settings.command('plan ahead --local')}"
    )
