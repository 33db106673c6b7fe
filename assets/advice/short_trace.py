"""Size each hour of a trace of less than two days by replay, as no forecast is possible.

For each hour a search finds the fewest instances that attain the tier's target, if any do; deferrable
requests are left out. An hour that the trace does not have is taken to be like its largest hour.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fleetcast.assets.advice.advice_config import (
    GROWTH_FACTOR,
    MIN_INSTANCE_LIMIT,
    SizedDeployment,
    cheapest_deployment,
)
from fleetcast.assets.lake.settings import Progress, RunSettings, StepCounter, run_parallel
from fleetcast.assets.studies.rent_hour import BusiestHour, replay_hour
from fleetcast.models.latency.profile_order import complete_catalogue
from fleetcast.models.plan.target_search import find_least_sufficient
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.world.calendar import HOUR_S, QUARTER_S
from fleetcast.models.world.catalogue_entries import Tier


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
    tier = require_strictest_tier(settings)
    deployments = dict[str, SizedDeployment]()
    with progress.bar("cheapest GPUs for the largest hour", len(llms)) as done:
        for n, llm in enumerate(llms, start=1):
            llm_rows = rows[rows["llm"] == llm]
            tokens = llm_rows.groupby("hour_start")["input_tokens"].sum()
            hour = llm_rows[llm_rows["hour_start"] == tokens.idxmax()]
            found = list[tuple[bool, float, int, SizedDeployment]]()
            for rank, gpu in enumerate(gpus[llm]):
                pool = cheapest_deployment(llm, catalogue, settings.config, [gpu])
                count, attained = fewest_instances(settings, SizedDeployment(pool, 1), llm, hour)
                usd = count * pool.gpus * catalogue.gpus[gpu].usd_per_hour
                misses = attained < tier.attainment_target_share
                found.append((misses, usd, rank, SizedDeployment(pool, count)))
            deployments[llm] = min(found)[-1]
            done(n)
    return deployments


def require_strictest_tier(settings: RunSettings) -> Tier:
    """Return the strictest tier of the catalogue."""
    name = settings.catalogue.strictest_tier(settings.catalogue.tiers)
    assert name is not None  # check_tiers guarantees it
    return settings.catalogue.tiers[name]


def size_hours(
    settings: RunSettings, deployments: Mapping[str, SizedDeployment], progress: Progress
) -> list[HourSize]:
    """Size every hour of every endpoint, in order of time."""
    parts = list(read_requests_by_hour(settings).groupby(["hour_start", "region", "llm"]))
    with progress.bar("size the hours by replay", len(parts)) as done:
        counter = StepCounter(done)

        def size_part(part: tuple[Any, pd.DataFrame]) -> HourSize:
            (hour_start, region, llm), rows = part
            count, attained = fewest_instances(settings, deployments[llm], llm, rows)
            counter.count_step()
            tokens_per_s = float(rows["input_tokens"].sum() / HOUR_S)
            start = hour_start.to_pydatetime()
            return HourSize(start, region, llm, len(rows), tokens_per_s, count, attained)

        return run_parallel(size_part, parts)


def fewest_instances(
    settings: RunSettings, deployment: SizedDeployment, llm: str, rows: pd.DataFrame
) -> tuple[int, float]:
    """Return the fewest instances that attain the strictest target, else that attain most; attainment.

    They are no fewer than [fleet] min_instances, which may be there to survive the loss of one.
    """
    zeros = np.zeros(len(rows), np.int16)
    trace = TraceArrays(
        rows["arrival_s"].to_numpy(float).copy(), zeros, zeros, zeros,
        np.array(rows["input_tokens"], np.int32), np.array(rows["output_tokens"], np.int32),
    )  # fmt: skip
    hour = BusiestHour(date.min, trace, HOUR_S, np.zeros(len(rows)))
    return size_hour(settings, deployment, llm, hour, settings.config.fleet.min_instances)


def size_hour(
    settings: RunSettings, deployment: SizedDeployment, llm: str, hour: BusiestHour, least: int
) -> tuple[int, float]:
    """Return the fewest instances from `least` on that attain the target in an hour; attainment.

    If none attains it, these are the fewest of those that attain most.
    """
    tier, attained = require_strictest_tier(settings), dict[int, float]()
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
    count = most if found is None else found.number
    return count, attained[count]
