"""Say what would keep the target where no fleet of the given kind does."""

from collections.abc import Mapping, Sequence
from datetime import date

import pandas as pd
import pyarrow as pa

from fleetcast.assets.advice.advice_config import SizedDeployment
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.studies import try_fleet
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.toml_dataclasses import ConfigError

AMPLE_INSTANCES = 32  # so many that nothing waits: what a request misses then, its instance is too slow for
MORE_GPUS = (1, 2, 4, 8)  # per instance


def read_requests_of_day(settings: RunSettings, day: date | None) -> pd.DataFrame:
    """Read the requests of a day, of the whole trace for None, with arrivals from the first one on."""
    rows = settings.lake.sql("reads/advice_replayed_requests.sql", trace=settings.trace, day=day).to_pandas(
        types_mapper=lambda of: pd.ArrowDtype(of) if pa.types.is_list(of) else None
    )
    rows["arrival_s"] -= rows["arrival_s"].iloc[0]
    return rows


def describe_remedy(
    settings: RunSettings,
    day: date | None,
    deployments: Mapping[str, SizedDeployment],
    gpus: Mapping[str, Sequence[str]],
    catalogue: Catalogue,
    office: RunConfig,
) -> str:
    """Return a sentence for each llm whose own instances miss a target even if nothing waits.

    `day`: whose requests are replayed; None: the whole trace.
    Each GPU type of `gpus` is replayed with 1 to 8 GPUs per instance; the cheapest that attains is named.
    """
    rows, sentences = read_requests_of_day(settings, day), []
    for llm, sized in deployments.items():
        own = rows[rows["llm"] == llm]
        share = ample_share(own, llm, sized.deployment, catalogue, office) if len(own) else None
        if share is None or share >= 1.0:
            continue
        fleet = f"{llm} on {sized.deployment.gpus} x {sized.deployment.gpu}"
        wanted = [
            (degree * catalogue.gpus[gpu].usd_per_hour, gpu, degree)
            for gpu in dict.fromkeys(gpus[llm])
            for degree in MORE_GPUS
        ]
        found = next(
            (
                f"{degree} x {gpu} per instance would ({usd:,.2f} USD per instance and hour)"
                for usd, gpu, degree in sorted(wanted)
                if (ample_share(own, llm, Deployment(gpu, degree), catalogue, office) or 0.0) >= 1.0
            ),
            "no GPU type here would; use a smaller llm, shorter prompts or a looser target",
        )
        sentences.append(
            f"{fleet} attains {100 * share:.0f} % of its target even with {AMPLE_INSTANCES} instances: "
            f"{found}."
        )
    if sentences:
        return " ".join(sentences)
    more = "name a larger --fleet" if day is None else "raise max_instances in advice.toml"
    return (
        f"At the latencies of the profiles {AMPLE_INSTANCES} instances of each llm attain "
        f"the requests of {day or 'the trace'}: {more}. If that does not help, the errors of the profiles "
        "are what misses: fleetcast calibrate on a log of your engine, or another GPU type."
    )


def ample_share(
    rows: pd.DataFrame, llm: str, deployment: Deployment, catalogue: Catalogue, office: RunConfig
) -> float | None:
    """Return attainment over its target, of the worst tier, with AMPLE_INSTANCES; None without a profile."""
    pools = [try_fleet.TryPool(AMPLE_INSTANCES, llm, deployment)]
    try:
        row = try_fleet.run_fleet_trial(llm, pools, rows, catalogue, office).row
    except ConfigError:
        return None
    keys = {f"{name}_attainment_share": catalogue.tiers[name] for name in catalogue.interactive_tiers}
    found = [row[key] / tier.attainment_target_share for key, tier in keys.items() if key in row]
    return min(found, default=None)
