"""Size each hour of a trace of less than two days by replay, as no forecast is possible.

For each hour a search finds the fewest instances that attain the tier's target, if any do; deferrable
requests are left out. An hour that the trace does not have is taken to be like its largest hour.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fleetcast.assets.advice.advice_config import (
    GROWTH_FACTOR,
    MIN_INSTANCE_LIMIT,
    SizedDeployment,
    small_deployments,
)
from fleetcast.assets.lake.settings import Progress, RunSettings, StepCounter, run_parallel
from fleetcast.assets.studies.rent_hour import BusiestHour, replay_hour
from fleetcast.models.latency.profile_order import complete_catalogue
from fleetcast.models.replay.session.trace_rows import single_tier_trace
from fleetcast.models.trials.target_search import find_least_sufficient
from fleetcast.models.world.calendar import HOUR_S, QUARTER_S
from fleetcast.models.world.fleet_config import Deployment


class HourSize(NamedTuple):
    """An hour of an endpoint, and the fewest instances that attain its target.

    If none attains it, these are the fewest of those that attain most.
    """

    hour_start: datetime
    region: str
    llm: str
    requests: int
    tokens_per_s: float  # input tokens/s, mean of the hour
    instances: int
    attainment_share: float  # attainment with these instances


def read_requests_by_hour(settings: RunSettings) -> pd.DataFrame:
    """Read the interactive requests of the trace by hour; all requests if none is interactive."""
    scope = {"trace": settings.trace, "tiers": list(settings.catalogue.interactive_tiers)}
    return settings.lake.sql("reads/advice_requests_by_hour.sql", **scope).to_pandas()


def peak_tokens_per_s_by_llm(settings: RunSettings) -> dict[str, float]:
    """Return input tokens/s of each llm in its largest quarter of an hour, all regions together."""
    rows = read_requests_by_hour(settings)
    quarter = rows["arrival_s"] // QUARTER_S
    rates = rows.groupby(["llm", "hour_start", quarter])["input_tokens"].sum() / QUARTER_S
    return {str(llm): float(rate) for llm, rate in rates.groupby("llm").max().items()}


def cheapest_sized_deployments(
    settings: RunSettings, llms: Sequence[str], gpus: Mapping[str, Sequence[str]], progress: Progress
) -> dict[str, SizedDeployment]:
    """Return each llm's cheapest deployment that attains the target in its largest hour, of these GPUs."""
    catalogue, rows = settings.catalogue, read_requests_by_hour(settings)
    deployments = dict[str, SizedDeployment]()
    for llm in progress.each("cheapest GPUs for the largest hour", llms):
        llm_rows = rows[rows["llm"] == llm]
        tokens = llm_rows.groupby("hour_start")["input_tokens"].sum()
        hour = hour_of_rows(llm_rows[llm_rows["hour_start"] == tokens.idxmax()])
        pools = [
            pool for gpu in gpus[llm] for pool in small_deployments(llm, gpu, catalogue, settings.config)
        ]
        least = settings.config.fleet.min_instances
        deployments[llm] = rank_by_cost(settings, llm, hour, pools, least)[0]
    return deployments


def rank_by_cost(
    settings: RunSettings,
    llm: str,
    hour: BusiestHour,
    pools: Iterable[Deployment],
    least: int,
    below_share: float = 0.0,
) -> list[SizedDeployment]:
    """Return deployments with their fewest instances for an hour, the cheapest first; last those that miss.

    `least`: of instances. `below_share`: what may lack to the strictest target.
    """
    tier = settings.catalogue.tiers[settings.catalogue.strictest]
    needed_share = tier.attainment_target_share - below_share
    found = list[tuple[bool, float, SizedDeployment]]()
    for pool in pools:
        count, attained = size_hour(settings, SizedDeployment(pool, least), llm, hour, least)
        usd = count * pool.gpus * settings.catalogue.gpus[pool.gpu].usd_per_hour
        found.append((attained < needed_share, usd, SizedDeployment(pool, count)))
    return [sized for _, _, sized in sorted(found, key=lambda row: row[:2])]


def size_hours(
    settings: RunSettings, deployments: Mapping[str, SizedDeployment], progress: Progress
) -> list[HourSize]:
    """Size every hour of every endpoint, in order of time."""
    parts = list(read_requests_by_hour(settings).groupby(["hour_start", "region", "llm"]))
    least = settings.config.fleet.min_instances  # which may be there to survive the loss of one
    with progress.bar("size the hours by replay", len(parts)) as done:
        counter = StepCounter(done)

        def size_part(part: tuple[Any, pd.DataFrame]) -> HourSize:
            (hour_start, region, llm), rows = part
            count, attained = size_hour(settings, deployments[llm], llm, hour_of_rows(rows), least)
            counter.count_step()
            tokens_per_s = float(rows["input_tokens"].sum() / HOUR_S)
            start = hour_start.to_pydatetime()
            return HourSize(start, region, llm, len(rows), tokens_per_s, count, attained)

        return run_parallel(size_part, parts)


def hour_of_rows(rows: pd.DataFrame) -> BusiestHour:
    """Return the requests of an hour as they are replayed."""
    columns = (rows[name] for name in ("arrival_s", "input_tokens", "output_tokens", "cached_tokens"))
    trace = single_tier_trace(*columns)
    return BusiestHour(date.min, trace, HOUR_S, np.zeros(len(rows)))


def size_hour(
    settings: RunSettings, deployment: SizedDeployment, llm: str, hour: BusiestHour, least: int
) -> tuple[int, float]:
    """Return the fewest instances from `least` on that attain the target in an hour; attainment.

    If none attains it, these are the fewest of those that attain most.
    """
    tier, attained = settings.catalogue.tiers[settings.catalogue.strictest], dict[int, float]()
    fleet = replace(settings.config.fleet, deployments={llm: (deployment.deployment,)})
    config = replace(settings.config, fleet=fleet)
    llm_catalogue = complete_catalogue(settings.catalogue.serving([llm]), config)

    def is_attained(count: int) -> bool:
        if count < least:
            return False
        pools = [(deployment.deployment, count)]
        attained[count] = replay_hour(llm_catalogue, config, tier, pools, hour).attainment_share
        return attained[count] >= tier.attainment_target_share

    guess = max(least, deployment.peak_instances)
    found = find_least_sufficient(is_attained, guess, max(MIN_INSTANCE_LIMIT, GROWTH_FACTOR * guess))
    most = max(attained, key=lambda count: (attained[count], -count))
    count = most if found is None else found
    return count, attained[count]
