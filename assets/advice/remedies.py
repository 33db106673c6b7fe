"""Say what would keep the target where no fleet of the given kind does."""

import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import NamedTuple

import pandas as pd

from fleetcast.assets.advice.advice_config import SizedDeployment
from fleetcast.assets.advice.promise import PROMISE_SHARE
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.studies import try_fleet
from fleetcast.models.latency.latency_errors import errors_in_use, sample_catalogues
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.toml_dataclasses import ConfigError

AMPLE_INSTANCES = 32  # so many that nothing waits: what a request misses then, its instance is too slow for
MORE_GPUS = (1, 2, 4, 8)  # per instance


def read_requests_of_day(settings: RunSettings, day: date | None) -> pd.DataFrame:
    """Read the requests of a day, of the whole trace for None, with arrivals from the first one on."""
    return try_fleet.frame_requests(
        settings.lake.sql("reads/advice_replayed_requests.sql", trace=settings.trace, day=day)
    )


def describe_remedy(
    settings: RunSettings,
    day: date | None,
    deployments: Mapping[str, SizedDeployment],
    gpus: Mapping[str, Sequence[str]],
    catalogue: Catalogue,
    office: RunConfig,
    draws: int,
) -> str:
    """Return a sentence for each llm whose own instances miss a target even if nothing waits.

    `day`: whose requests are replayed; None: the whole trace. `draws`: versions with errors of the latency
    profiles, as in the promise; 0: none. Each GPU type of `gpus` is replayed with 1 to 8 GPUs per instance;
    the cheapest that attains is named.
    """
    rows, sentences = read_requests_of_day(settings, day), []
    for llm, sized in deployments.items():
        own = AmpleFleet(rows[rows["llm"] == llm], llm, sized.deployment, catalogue, office)
        share = own.least_share() if len(own.rows) else None
        if share is None or own.is_enough(draws):
            continue
        others = [Deployment(gpu, degree) for gpu in dict.fromkeys(gpus[llm]) for degree in MORE_GPUS]
        fleet = f"{llm} on {sized.deployment.gpus} x {sized.deployment.gpu}"
        sentences.append(f"{fleet} {describe_miss(share)}: {_describe_other(own, others, draws)}.")
    if sentences:
        return " ".join(sentences)
    more = "name a larger --fleet" if day is None else "raise max_instances in advice.toml"
    fleet = f"With {AMPLE_INSTANCES} instances of each llm"
    return f"{fleet} the requests of {day or 'the trace'} attain it: {more}."


def describe_miss(share: float) -> str:
    """Return that instances do not help; `share`: attainment over its target, without errors."""
    if share < 1.0:
        return f"attains {math.floor(100 * share)} % of its target even with {AMPLE_INSTANCES} instances"
    return (
        "attains its target with the latencies of its profile, but not with the error of the profile, "
        f"even with {AMPLE_INSTANCES} instances"
    )


def _describe_other(own: "AmpleFleet", others: Sequence[Deployment], draws: int) -> str:
    """Return the cheapest of other deployments that attains, or what to do without one."""
    usd = {one: one.gpus * own.catalogue.gpus[one.gpu].usd_per_hour for one in others}
    for one in sorted(usd, key=lambda one: (usd[one], one.gpu, one.gpus)):
        if own._replace(deployment=one).is_enough(draws):
            return f"{one.gpus} x {one.gpu} per instance would ({usd[one]:,.2f} USD per instance and hour)"
    log = "run fleetcast calibrate on a log of your engine, or " if draws else ""
    return f"no GPU type here would; {log}use a smaller llm, shorter prompts or a looser target"


class AmpleFleet(NamedTuple):
    """AMPLE_INSTANCES of a deployment, and the requests that they serve."""

    rows: pd.DataFrame
    llm: str
    deployment: Deployment
    catalogue: Catalogue
    office: RunConfig

    def least_share(self) -> float | None:
        """Return attainment over its target, of the worst tier; None without a profile."""
        pools = [try_fleet.TryPool(AMPLE_INSTANCES, self.llm, self.deployment)]
        try:
            row = try_fleet.run_fleet_trial(self.llm, pools, self.rows, self.catalogue, self.office).row
        except ConfigError:
            return None
        tiers = {name: self.catalogue.tiers[name] for name in self.catalogue.interactive_tiers}
        keys = {f"{name}_attainment_share": tier for name, tier in tiers.items()}
        found = [row[key] / tier.attainment_target_share for key, tier in keys.items() if key in row]
        return min(found, default=None)

    def is_enough(self, draws: int) -> bool:
        """Whether the targets are attained, and in PROMISE_SHARE of `draws` versions of the latencies."""
        if (self.least_share() or 0.0) < 1.0:
            return False
        if not draws:
            return True
        pool = try_fleet.TryPool(AMPLE_INSTANCES, self.llm, self.deployment)
        catalogue = try_fleet.complete_for_fleets(self.catalogue, [[pool]], self.office)
        errors = errors_in_use(catalogue, [(self.llm, [self.deployment])])
        may_miss = draws - math.ceil(PROMISE_SHARE * draws)
        for version in sample_catalogues(catalogue, errors, draws, self.office.trace.seed):
            may_miss -= (self._replace(catalogue=version).least_share() or 0.0) < 1.0
            if may_miss < 0:
                return False
        return True
