"""A trace of less than two days: nothing can be foreseen, so each hour that it has is sized by replay.

The fewest instances with which as many requests of the hour are in time as the tier asks, hour by hour; what
is held back may wait and is left out. An hour that the trace does not have is taken to be like its largest.
"""

from collections.abc import Mapping, Sequence
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
from fleetcast.models.plan.target_search import find_least_sufficient
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.world.calendar import HOUR_S, QUARTER_S


class HourSize(NamedTuple):
    """An hour of an endpoint, and the fewest instances that serve it in time."""

    hour_start: datetime
    region: str
    llm: str
    requests: int
    tokens_per_s: float  # of input, in the mean of the hour
    instances: int
    attainment_share: float  # of these instances


def read_requests_by_hour(settings: RunSettings) -> pd.DataFrame:
    """The interactive requests of the trace by hour; all of them where it has no others."""
    asked = {"trace": settings.trace, "tiers": list(settings.catalogue.interactive_tiers)}
    return settings.lake.sql("reads/advice_requests_by_hour.sql", **asked).to_pandas()


def peak_tokens_per_s_by_llm(settings: RunSettings) -> dict[str, float]:
    """Input tokens/s of each llm in its largest quarter of an hour, all regions together."""
    rows = read_requests_by_hour(settings)
    quarter = rows["arrival_s"] // QUARTER_S
    rates = rows.groupby(["llm", "hour_start", quarter])["input_tokens"].sum() / QUARTER_S
    return {str(llm): float(rate) for llm, rate in rates.groupby("llm").max().items()}


def cheapest_sized_deployments(
    settings: RunSettings, llms: Sequence[str], gpus: Mapping[str, Sequence[str]], progress: Progress
) -> dict[str, SizedDeployment]:
    """For each llm the instance, of these GPU types, that serves its largest hour in time for least."""
    catalogue, rows, stands = (
        settings.catalogue,
        read_requests_by_hour(settings),
        dict[str, SizedDeployment](),
    )
    with progress.bar("cheapest GPUs for the largest hour", len(llms)) as done:
        for n, llm in enumerate(llms, start=1):
            own = rows[rows["llm"] == llm]
            tokens = own.groupby("hour_start")["input_tokens"].sum()
            hour, found = (
                own[own["hour_start"] == tokens.idxmax()],
                list[tuple[bool, float, int, SizedDeployment]](),
            )
            for place, gpu in enumerate(gpus[llm]):
                pool = cheapest_deployment(llm, catalogue, settings.config, [gpu])
                count, attained = fewest_instances(settings, SizedDeployment(pool, 1), llm, hour)
                usd = count * pool.gpus * catalogue.gpus[gpu].usd_per_hour
                found.append(
                    (attained < strictest_target_share(settings), usd, place, SizedDeployment(pool, count))
                )
            stands[llm] = min(found)[-1]
            done(n)
    return stands


def strictest_target_share(settings: RunSettings) -> float:
    """Of the strictest tier: how many of its requests are to be in time."""
    name = settings.catalogue.strictest_tier(settings.catalogue.tiers)
    assert name is not None  # check_tiers has seen to it
    return settings.catalogue.tiers[name].attainment_target_share


def size_hours(
    settings: RunSettings, stands: Mapping[str, SizedDeployment], progress: Progress
) -> list[HourSize]:
    """Size every hour of every endpoint; the hours in their order."""
    parts = list(read_requests_by_hour(settings).groupby(["hour_start", "region", "llm"]))
    with progress.bar("size the hours by replay", len(parts)) as done:
        counted = StepCounter(done)

        def one(part: tuple[Any, pd.DataFrame]) -> HourSize:
            (hour_start, region, llm), rows = part
            count, attained = fewest_instances(settings, stands[llm], llm, rows)
            counted.count_step()
            tokens_per_s = float(rows["input_tokens"].sum() / HOUR_S)
            begun = hour_start.to_pydatetime()
            return HourSize(begun, region, llm, len(rows), tokens_per_s, count, attained)

        return run_parallel(one, parts)


def fewest_instances(
    settings: RunSettings, stand: SizedDeployment, llm: str, rows: pd.DataFrame
) -> tuple[int, float]:
    """The fewest that attain the strictest tier's target, else the most that were tried; what they attain."""
    catalogue = settings.catalogue
    name = catalogue.strictest_tier(catalogue.tiers)
    assert name is not None  # check_tiers has seen to it
    tier, nobody = catalogue.tiers[name], np.zeros(len(rows), np.int16)
    trace = TraceArrays(
        rows["arrival_s"].to_numpy(float).copy(), nobody, nobody, nobody,
        np.array(rows["input_tokens"], np.int32), np.array(rows["output_tokens"], np.int32),
    )  # fmt: skip
    hour = BusiestHour(date.min, trace, HOUR_S, np.zeros(len(rows)))
    alone, met = catalogue.serving([llm]), dict[int, float]()

    def does(count: int) -> bool:
        pools = [(stand.deployment, count)]
        met[count] = replay_hour(alone, settings.config, tier, pools, hour).attainment_share
        return met[count] >= tier.attainment_target_share

    guess = max(1, stand.peak_instances)
    found = find_least_sufficient(does, guess, max(MIN_INSTANCE_LIMIT, GROWTH_FACTOR * guess))
    count = max(met) if found is None else found.number
    return count, met[count] if count in met else met[max(met)]
