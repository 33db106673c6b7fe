"""Replay the busiest recorded hour of an llm, scaled to the rate of a coming peak, on a fixed fleet."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import NamedTuple

import numpy as np

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.metrics import is_tier_slo_met, is_tpot_met, tpot_s
from fleetcast.models.plan.request_buckets import expected_output_tokens
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.replay.session.trace_rows import single_tier_trace
from fleetcast.models.trials.capacity import fixed_fleet, replay_fixed_fleet
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import Tier
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.mechanisms import Ending

TAIL_S = 600.0  # time after the last arrival in which the last requests finish


APP_OUTPUTS_SQL = """
select app, output_tokens from requests
where trace = $trace and day = $day and llm = $llm and list_contains($tiers, tier)
"""


class BusiestHour(NamedTuple):
    """The requests of an hour, with arrivals scaled to a given rate."""

    day: date
    trace: TraceArrays
    until_s: float  # end of the scaled hour
    expected_tokens: Floats  # (R,) mean output tokens of each request's app on the day before


class HourResult(NamedTuple):
    """Service metrics of a fleet in the hour."""

    attainment_share: float  # share of requests that meet all targets
    ttft_attainment_share: float
    tpot_attainment_share: float | None  # None without a TPOT target
    ttft_p95_s: float
    tpot_p95_s: float
    served_per_s: float  # finished requests/s
    tokens_per_usd: float  # input and output tokens of finished requests


def busiest_hour(settings: RunSettings, day: date, llm: str, tokens_per_s: float) -> BusiestHour:
    """Return the interactive requests of the busiest hour, by input tokens, of the last day before `day`.

    Arrival times are scaled so that the mean rate is `tokens_per_s` input tokens/s. ValueError if no day of
    the history has such a request.
    """
    recorded = set(settings.lake.days("requests", settings.trace))
    tiers = list(settings.catalogue.interactive_tiers)
    for past in reversed(settings.history(day)):
        if past not in recorded:
            continue
        rows = settings.lake.sql(
            "reads/busiest_hour_of_llm.sql", trace=settings.trace, day=past, llm=llm, tiers=tiers
        ).to_pandas()
        if len(rows):
            arrival_s = rows["arrival_s"].to_numpy(float)
            start_s = arrival_s[0] // HOUR_S * HOUR_S
            pace = rows["input_tokens"].sum() / HOUR_S / tokens_per_s
            tokens = (rows[name] for name in ("input_tokens", "output_tokens", "cached_tokens"))
            trace = single_tier_trace((arrival_s - start_s) * pace, *tokens)
            # The first recorded day has no day before it: its own answers are used.
            before = max((d for d in recorded if d < past), default=past)
            table = settings.lake.sql(APP_OUTPUTS_SQL, trace=settings.trace, day=before, llm=llm, tiers=tiers)
            earlier = table.to_pandas() if table.num_rows else rows
            apps = list(dict.fromkeys([*rows["app"], *earlier["app"]]))
            app, earlier_app = (frame["app"].map(apps.index).to_numpy() for frame in (rows, earlier))
            expected = expected_output_tokens(app, earlier_app, earlier["output_tokens"].to_numpy())
            return BusiestHour(past, trace, HOUR_S * pace, expected)
    raise ValueError(f"{llm} has no interactive request before {day}. Land or make some history.")


def replay_hour(
    catalogue: Catalogue,
    config: RunConfig,
    tier: Tier,
    pools: Sequence[tuple[Deployment, int]],
    hour: BusiestHour,
    pool_of_request: Ints | None = None,
) -> HourResult:
    """Replay the hour on these pools.

    `pool_of_request`, shape (R,): index of the pool that serves each request; None: requests are distributed
    in proportion to the pools' weights.
    """
    [llm] = catalogue.llms
    trace, names = hour.trace, ["all"]
    if pool_of_request is not None:  # one tier per pool, which serves this tier alone
        names = [f"pool{n}" for n in range(len(pools))]
        trace = trace._replace(tier=pool_of_request.astype(np.int16))
    tier_catalogue = replace(catalogue, tiers=dict.fromkeys(names, tier))
    fleet = fixed_fleet({llm: pools}, tier_catalogue, config)
    if pool_of_request is not None:
        fleet = fleet._replace(takes=fleet.takes & np.eye(len(pools), dtype=bool))
    rules = make_rules(tier_catalogue, replace(config.replay, spread="weights"), "follow")
    until_s = hour.until_s + TAIL_S
    outcome = replay_fixed_fleet(trace, fleet, rules, until_s)
    outputs = hour.trace.output_tokens
    ttft_s, e2e_s = outcome.first_token_s - hour.trace.arrival_s, outcome.finish_s - hour.trace.arrival_s
    tpots_s, is_finished = tpot_s(ttft_s, e2e_s, outputs), outcome.status == Ending.FINISHED
    is_ttft_met = is_tier_slo_met(replace(tier, tpot_slo_s=None), ttft_s, e2e_s, outputs)
    usd = sum(count * pool.gpus * catalogue.gpus[pool.gpu].usd_per_hour for pool, count in pools)
    tokens = float((hour.trace.input_tokens + outputs)[is_finished].sum())
    return HourResult(
        float(is_tier_slo_met(tier, ttft_s, e2e_s, outputs).mean()),
        float(is_ttft_met.mean()),
        float(is_tpot_met(tpots_s, e2e_s, tier.tpot_slo_s).mean()) if tier.tpot_slo_s else None,
        float(np.nanquantile(ttft_s, 0.95)) if is_finished.any() else float("nan"),
        float(np.nanquantile(tpots_s, 0.95)) if np.isfinite(tpots_s).any() else float("nan"),
        float(is_finished.sum() / hour.until_s),
        tokens / (usd * hour.until_s / HOUR_S),
    )
