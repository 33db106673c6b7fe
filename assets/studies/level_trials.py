"""Run level trials at one endpoint: the needs of its requests, and their outcomes on a stack."""

from dataclasses import replace
from datetime import date
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.replays.fleet_hours import MOVE_COLUMNS
from fleetcast.assets.replays.outcomes import is_live_migrated, migration_pause_s
from fleetcast.assets.replays.replay_workloads import app_codes
from fleetcast.assets.studies.level_endpoint import Endpoint, endpoint_cost, replay_endpoint
from fleetcast.models.aliases import Bools, Floats, Ints
from fleetcast.models.metrics import is_tier_slo_met
from fleetcast.models.replay.kernel_inputs import FleetArrays, TraceArrays
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.trace_rows import select_requests
from fleetcast.models.traffic.request_needs import NeedsByRequest, draw_needs, levels_of_needs, needs_of_tiers
from fleetcast.models.traffic.synthetic_days import multiply_day
from fleetcast.models.world.config import apply_stack
from fleetcast.models.world.mechanisms import Ending
from fleetcast.models.world.option_names import LEVELS_BY_APP, LEVELS_BY_TIER
from fleetcast.models.world.replay_config import ReplayConfig
from fleetcast.models.world.stacks import REPLAY_STACKS
from fleetcast.models.world.toml_dataclasses import ConfigError

LIMIT_STACK = "edf"  # the stack that orders by needs, not by levels
ALONE = "jsq"  # the stack of the trial in which each request is alone
APART_S = 100.0  # between arrivals of that trial
ALL_LEVELS = "all"  # value of the column level for all levels together
LEVEL_PERCENTILES = (("ttft", (50, 95, 99)), ("e2e", (50, 99)))


class LevelTrialKey(NamedTuple):
    """Identity of a trial."""

    stack: str
    levels: int
    headroom_share: float
    load_factor: float
    instances: int


class EndpointNeeds(NamedTuple):
    """The needs of an endpoint's requests.

    `idle_share`, shape (S,): share of each step's requests that an idle instance serves in time; NaN for a
    step without requests.
    """

    by: str
    needs: NeedsByRequest
    idle_share: Floats


class LevelBench:
    """Trials of one endpoint; each is replayed once."""

    def __init__(self, endpoint: Endpoint, day: date, ends_s: tuple[float, float] | None = None) -> None:
        """Set up trials; generated needs lie within `ends_s`, seconds, else within those of the tiers.

        The day is part of the seed.
        """
        self.endpoint, self.day = endpoint, day
        self.ends_s = tier_ttft_range(endpoint) if ends_s is None else ends_s
        self.seed = endpoint.settings.config.trace.seed + day.toordinal()
        self.needs_by_way: dict[str, EndpointNeeds] = {}
        self.traces_by_load: dict[float, tuple[TraceArrays, Ints]] = {}
        self.frames: dict[tuple[str, LevelTrialKey], pd.DataFrame] = {}

    def is_met(self, by: str, key: LevelTrialKey) -> bool:
        """Whether every need is met in a trial; replay it if it is new."""
        if (by, key) not in self.frames:
            self.frames[by, key] = self.trial(self.request_needs(by), key)
        return bool(self.frames[by, key]["is_met"].iloc[0])

    def rows(self) -> pd.DataFrame:
        """Return the rows of all trials so far, as in the table level_trials."""
        return pd.concat(self.frames.values())

    def request_needs(self, by: str) -> EndpointNeeds:
        """Return the requests' needs; ConfigError for a need that no request meets on an idle instance."""
        if by not in self.needs_by_way:
            trace, tiers = self.endpoint.trace, self.endpoint.settings.catalogue.tiers
            if by in (LEVELS_BY_TIER, LEVELS_BY_APP):
                needs = needs_of_tiers(tiers, trace.tier)
            else:
                target = tiers[self.endpoint.settings.catalogue.strictest].attainment_target_share
                needs = draw_needs(by, trace.arrival_s.size, self.seed, self.ends_s, target)
            self.needs_by_way[by] = EndpointNeeds(by, needs, self.idle_shares(needs))
        return self.needs_by_way[by]

    def idle_shares(self, needs: NeedsByRequest) -> Floats:
        """Return the share of each step's requests served in time on an idle instance, shape (S,)."""
        trace = self.endpoint.trace
        arrival_s = APART_S * np.arange(trace.arrival_s.size, dtype=np.float64)
        spread_trace = trace._replace(arrival_s=arrival_s, tier=needs.step)
        outcome, _ = replay_endpoint(
            self.endpoint, needs.tiers, config_under_stack(self.endpoint, ALONE, 1), spread_trace, 1
        )
        share = met_share_by_step(needs_met(needs, spread_trace, outcome), needs)
        if (impossible := np.flatnonzero(share == 0)).size:
            pool = self.endpoint.deployment
            raise ConfigError(
                f"No request of {self.endpoint.llm} that needs its first token within "
                f"{list(needs.tiers)[impossible[0]]} gets it on an idle {pool.gpus} x {pool.gpu}. Loosen the "
                "needs: --needs STRICTEST,LOOSEST."
            )
        return share

    def scaled_trace(self, load: float) -> tuple[TraceArrays, Ints]:
        """Return the trace with `load` requests per request, and the row that each repeats, shape (R,)."""
        if load not in self.traces_by_load:
            trace, rows = self.endpoint.trace, np.arange(self.endpoint.trace.arrival_s.size)
            if load != 1.0:
                recorded_us = np.rint(1e6 * trace.arrival_s).astype(np.int64)
                arrived_us, rows = multiply_day(recorded_us, load, self.day, self.seed)
                trace = select_requests(trace, rows)._replace(arrival_s=arrived_us / 1e6)
            self.traces_by_load[load] = trace, rows
        return self.traces_by_load[load]

    def trial(self, endpoint_needs: EndpointNeeds, key: LevelTrialKey) -> pd.DataFrame:
        """Replay a trial; return a row for all its requests, then one for each level."""
        endpoint = self.endpoint
        trace, rows = self.scaled_trace(key.load_factor)
        needs = endpoint_needs.needs._replace(step=endpoint_needs.needs.step[rows])
        app = None
        if endpoint_needs.by == LEVELS_BY_APP and key.levels > 1:
            app = app_codes(endpoint.requests, endpoint.settings.trace)[rows]
        level = levels_of_needs(needs, endpoint_needs.by, key.levels, app)
        trace = trace._replace(tier=needs.step, level=level)
        config = config_under_stack(endpoint, key.stack, key.levels, key.headroom_share)
        outcome, fleet = replay_endpoint(endpoint, needs.tiers, config, trace, key.instances)
        outcomes = request_outcomes(needs, trace, fleet, outcome)
        share = met_share_by_step(outcomes["met"].to_numpy(), needs) / endpoint_needs.idle_share
        target = np.array([tier.attainment_target_share for tier in needs.tiers.values()])
        gpu_hours, usd = endpoint_cost(endpoint, key.instances)
        common = key._asdict() | {
            "llm": endpoint.llm,
            "region": endpoint.region,
            "needs_by": endpoint_needs.by,
            "hours": endpoint.hours,
            "seed": self.seed,
            "is_today": key.instances == endpoint.instances,
            "worst_need_share": float(np.nanmin(share)),
            "is_met": not (share < target).any(),
        }
        totals = dict(zip(MOVE_COLUMNS, outcome.moved.sum(axis=(0, 1)).tolist(), strict=True))
        totals |= {"recomputed_tokens": outcome.recomputed_tokens, "gpu_hours": gpu_hours, "usd": usd}
        table = [common | {"level": ALL_LEVELS} | level_metrics(outcomes) | totals]
        table += [
            common | {"level": str(n)} | level_metrics(of_level) for n, of_level in outcomes.groupby("level")
        ]
        return pd.DataFrame(table).reindex(columns=SCHEMAS["level_trials"].names)


def tier_ttft_range(endpoint: Endpoint) -> tuple[float, float]:
    """Return the strictest and the loosest TTFT target of the tiers, in seconds; zeros without any."""
    targets_s = [tier.ttft_slo_s for tier in endpoint.settings.catalogue.tiers.values() if tier.ttft_slo_s]
    return (min(targets_s), max(targets_s)) if targets_s else (0.0, 0.0)


def config_under_stack(
    endpoint: Endpoint, stack: str, levels: int, headroom_share: float | None = None
) -> ReplayConfig:
    """Return the config's replay settings under a stack, with this number of levels."""
    config = apply_stack(endpoint.settings.config.replay, REPLAY_STACKS[stack], headroom_share)
    return replace(config, levels=replace(config.levels, count=levels))


def needs_met(needs: NeedsByRequest, trace: TraceArrays, outcome: Outcome) -> Bools:
    """Return whether each request's need was met, shape (R,)."""
    ttft_s, e2e_s = outcome.first_token_s - trace.arrival_s, outcome.finish_s - trace.arrival_s
    met = np.zeros(needs.step.size, bool)
    for code, tier in enumerate(needs.tiers.values()):
        of_step = needs.step == code
        met[of_step] = is_tier_slo_met(tier, ttft_s[of_step], e2e_s[of_step], trace.output_tokens[of_step])
    return met


def met_share_by_step(met: Bools, needs: NeedsByRequest) -> Floats:
    """Return the share of each step's requests with `met`, (R,), true: shape (S,), NaN for an empty step."""
    steps = len(needs.tiers)
    with np.errstate(invalid="ignore"):
        return np.bincount(needs.step, met, steps) / np.bincount(needs.step, minlength=steps)


def request_outcomes(
    needs: NeedsByRequest, trace: TraceArrays, fleet: FleetArrays, outcome: Outcome
) -> pd.DataFrame:
    """Return the outcome of each request of a trial, a row per request."""
    return pd.DataFrame(
        {
            "level": trace.level,
            "met": needs_met(needs, trace, outcome),
            "finished": outcome.status == Ending.FINISHED,
            "ttft_s": outcome.first_token_s - trace.arrival_s,
            "e2e_s": outcome.finish_s - trace.arrival_s,
            "preemptions": outcome.preemptions,
            "moved_live": is_live_migrated(trace, fleet, outcome),
            "stopped_s": migration_pause_s(trace, fleet, outcome),
        }
    )


def level_metrics(outcomes: pd.DataFrame) -> dict[str, Any]:
    """Return counts and percentiles of some requests; one without a first token counts as the slowest."""
    pauses = outcomes["stopped_s"].dropna()
    return {
        "requests": len(outcomes),
        **{name: int(outcomes[name].sum()) for name in ("finished", "met", "preemptions", "moved_live")},
        **{
            f"{name}_p{level}_s": percentile_s(outcomes[f"{name}_s"].to_numpy(), level)
            for name, levels in LEVEL_PERCENTILES
            for level in levels
        },
        "stopped_p99_s": percentile_s(pauses.to_numpy(), 99) if len(pauses) else np.nan,
    }


def percentile_s(seconds: Floats, level: int) -> float:
    """Return a percentile of `seconds`, (R,), NaN counted as longest; NaN if it falls on one."""
    known = np.sort(seconds[~np.isnan(seconds)])
    index = int(np.ceil(level / 100 * seconds.size)) - 1
    return float(known[index]) if index < known.size else np.nan
