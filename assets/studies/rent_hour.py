"""The busiest hour that is known of an llm, as fast as a peak to come, on a fleet that stands."""

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
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.trials.capacity import fixed_fleet
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import Tier
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.mechanisms import Ending

TAIL_S = 600.0  # after the last request, in which the last ones are served


APP_OUTPUTS_SQL = """
select app, output_tokens from requests
where trace = $trace and day = $day and llm = $llm and list_contains($tiers, tier)
"""


class BusiestHour(NamedTuple):
    """The requests of an hour, at the pace at which they are to come."""

    day: date
    trace: TraceArrays
    until_s: float  # when the last one comes
    expected_tokens: Floats  # (n,) that their apps answered on the day before, in the mean


class HourResult(NamedTuple):
    """What a fleet met in the hour."""

    attainment_share: float  # of requests: all targets
    ttft_attainment_share: float
    tpot_attainment_share: float | None  # None where there is no such target
    ttft_p95_s: float
    tpot_p95_s: float
    served_per_s: float  # requests/s that ended
    tokens_per_usd: float  # of these requests, input and output


def busiest_hour(settings: RunSettings, day: date, llm: str, tier: str, tokens_per_s: float) -> BusiestHour:
    """The requests of the hour with most input tokens of the last day before `day` that has some.

    Interactive ones; stretched or pressed so that they come with `tokens_per_s` of input in the mean.
    ValueError where no day has any.
    """
    there = set(settings.lake.days("requests", settings.trace))
    tiers = list(settings.catalogue.interactive_tiers)
    for past in reversed(settings.history(day)):
        if past not in there:
            continue
        rows = settings.lake.sql(
            "reads/busiest_hour_of_llm.sql", trace=settings.trace, day=past, llm=llm, tiers=tiers
        ).to_pandas()
        if len(rows):
            came_s = rows["arrival_s"].to_numpy(float)
            start_s = came_s[0] // HOUR_S * HOUR_S
            pace = rows["input_tokens"].sum() / HOUR_S / tokens_per_s
            nobody = np.zeros(len(rows), np.int16)
            # copies: the kernel is compiled for arrays that may be written, and those of a frame may not
            trace = TraceArrays(
                (came_s - start_s) * pace, nobody, nobody, nobody,
                np.array(rows["input_tokens"], np.int32), np.array(rows["output_tokens"], np.int32),
            )  # fmt: skip
            before = max((one for one in there if one < past), default=past)  # of the first day: that day
            told = settings.lake.sql(APP_OUTPUTS_SQL, trace=settings.trace, day=before, llm=llm, tiers=tiers)
            answered = told.to_pandas() if told.num_rows else rows
            apps = list(dict.fromkeys([*rows["app"], *answered["app"]]))
            app, earlier = (frame["app"].map(apps.index).to_numpy() for frame in (rows, answered))
            expected = expected_output_tokens(app, earlier, answered["output_tokens"].to_numpy())
            return BusiestHour(past, trace, HOUR_S * pace, expected)
    raise ValueError(f"No interactive request of {llm} came before {day}. Land or make some history.")


def replay_hour(
    catalogue: Catalogue,
    config: RunConfig,
    tier: Tier,
    pools: Sequence[tuple[Deployment, int]],
    hour: BusiestHour,
    dealt: Ints | None = None,
) -> HourResult:
    """Replay the hour on these pools; requests are dealt in proportion to the pools' weights.

    Where `dealt` is given, shape (n,), it says which pool serves each request.
    """
    [llm] = catalogue.llms
    trace, names = hour.trace, ["asked"]
    if dealt is not None:  # a tier for each pool, which takes it alone
        names, trace = [f"pool{n}" for n in range(len(pools))], trace._replace(tier=dealt.astype(np.int16))
    alone = replace(catalogue, tiers=dict.fromkeys(names, tier))
    fleet = fixed_fleet({llm: pools}, alone, config)
    if dealt is not None:
        fleet = fleet._replace(takes=fleet.takes & np.eye(len(pools), dtype=bool))
    rules = make_rules(alone, replace(config.replay, spread="weights"), "follow")
    until_s = hour.until_s + TAIL_S
    outcome = replay_trace(trace, fleet, Schedule(np.diff(fleet.slots), hour_s=until_s), rules, until_s)
    outputs = hour.trace.output_tokens
    ttft_s, e2e_s = outcome.first_token_s - hour.trace.arrival_s, outcome.finish_s - hour.trace.arrival_s
    pace_s, done = tpot_s(ttft_s, e2e_s, outputs), outcome.status == Ending.FINISHED
    in_time = is_tier_slo_met(replace(tier, tpot_slo_s=None), ttft_s, e2e_s, outputs)
    usd = sum(count * pool.gpus * catalogue.gpus[pool.gpu].usd_per_hour for pool, count in pools)
    tokens = float((hour.trace.input_tokens + outputs)[done].sum())
    return HourResult(
        float(is_tier_slo_met(tier, ttft_s, e2e_s, outputs).mean()),
        float(in_time.mean()),
        float(is_tpot_met(pace_s, e2e_s, tier.tpot_slo_s).mean()) if tier.tpot_slo_s else None,
        float(np.nanquantile(ttft_s, 0.95)) if done.any() else float("nan"),
        float(np.nanquantile(pace_s, 0.95)) if np.isfinite(pace_s).any() else float("nan"),
        float(done.sum() / hour.until_s),
        tokens / (usd * hour.until_s / HOUR_S),
    )
