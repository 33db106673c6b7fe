"""Trials of levels at one endpoint: what its requests want, and what becomes of them on a stack."""

from dataclasses import replace
from datetime import date
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.replays.fleet_hours import MOVES
from fleetcast.assets.replays.outcomes import moved_live, stopped_s
from fleetcast.assets.replays.workloads import app_codes
from fleetcast.assets.studies.endpoint import Endpoint, gpu_hours, play
from fleetcast.models.aliases import Bools, Floats, Ints
from fleetcast.models.metrics import meets_targets
from fleetcast.models.replay.inputs import Fleet, Trace
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.requests import rows_of
from fleetcast.models.traffic.arrivals import multiplied
from fleetcast.models.traffic.needs import Needs, drawn_needs, levels_of_needs, own_needs
from fleetcast.models.world.config import stacked
from fleetcast.models.world.mechanisms import Ending
from fleetcast.models.world.names import LEVELS_BY_APP, LEVELS_BY_TIER
from fleetcast.models.world.reading import ConfigError
from fleetcast.models.world.replay_config import ReplayConfig
from fleetcast.models.world.stacks import STACKS

LIMIT = "edf"  # the stack that looks at needs themselves
ALONE = "jsq"  # on which a request is served that meets no other
APART_S = 100.0  # between requests that never meet
ALL = "all"  # levels together
PERCENTILES = (("ttft", (50, 95, 99)), ("e2e", (50, 99)))


class Key(NamedTuple):
    """A trial."""

    stack: str
    levels: int
    headroom_share: float
    load_factor: float
    instances: int


class Wanted(NamedTuple):
    """What an endpoint's requests want."""

    by: str
    needs: Needs
    idle_share: (
        Floats  # (S,) of the requests of a step, that an idle instance serves in time; NaN: none is there
    )


class Bench:
    """Trials of one endpoint, each played once."""

    def __init__(self, endpoint: Endpoint, day: date, ends_s: tuple[float, float] | None = None) -> None:
        """Needs that are drawn go from the one of `ends_s` to the other; else as far as those of the tiers.

        The day seeds what is drawn.
        """
        self.endpoint, self.day = endpoint, day
        self.ends_s = ends_of(endpoint) if ends_s is None else ends_s
        self.seed = endpoint.settings.config.trace.seed + day.toordinal()
        self.of_way: dict[str, Wanted] = {}
        self.of_load: dict[float, tuple[Trace, Ints]] = {}
        self.frames: dict[tuple[str, Key], pd.DataFrame] = {}

    def is_met(self, by: str, key: Key) -> bool:
        """Whether every need is met in a trial."""
        if (by, key) not in self.frames:
            self.frames[by, key] = self.trial(self.wanted(by), key)
        return bool(self.frames[by, key]["is_met"].iloc[0])

    def rows(self) -> pd.DataFrame:
        """The rows of all trials so far, as in the table level_trials."""
        return pd.concat(self.frames.values())

    def wanted(self, by: str) -> Wanted:
        """What the requests want; ConfigError for a need that is met by no request on an idle instance."""
        if by not in self.of_way:
            trace, tiers = self.endpoint.trace, self.endpoint.settings.catalogue.tiers
            if by in (LEVELS_BY_TIER, LEVELS_BY_APP):
                needs = own_needs(tiers, trace.tier)
            else:
                strictest = self.endpoint.settings.catalogue.strictest_tier(tiers)
                target = tiers[strictest or next(iter(tiers))].attainment_target_share
                needs = drawn_needs(by, trace.arrival_s.size, self.seed, self.ends_s, target)
            self.of_way[by] = Wanted(by, needs, self.idle_shares(needs))
        return self.of_way[by]

    def idle_shares(self, needs: Needs) -> Floats:
        """Of each step's requests, those that are served in time where none meets another."""
        trace = self.endpoint.trace
        arrival_s = APART_S * np.arange(trace.arrival_s.size, dtype=np.float64)
        alone = trace._replace(arrival_s=arrival_s, tier=needs.step)
        outcome, _ = play(self.endpoint, needs.tiers, under(self.endpoint, ALONE, 1), alone, 1)
        share = shares_of_steps(in_time(needs, alone, outcome), needs)
        if (never := np.flatnonzero(share == 0)).size:
            pool = self.endpoint.deployment
            raise ConfigError(
                f"No request of {self.endpoint.llm} that wants its first token within "
                f"{list(needs.tiers)[never[0]]} gets it on an idle {pool.gpus} x {pool.gpu}. Loosen the "
                "needs: --needs STRICTEST,LOOSEST."
            )
        return share

    def multiplied(self, load: float) -> tuple[Trace, Ints]:
        """So many requests for each one of the endpoint's, and which of them each repeats."""
        if load not in self.of_load:
            trace, rows = self.endpoint.trace, np.arange(self.endpoint.trace.arrival_s.size)
            if load != 1.0:
                once_us = np.rint(1e6 * trace.arrival_s).astype(np.int64)
                arrived_us, rows = multiplied(once_us, load, self.day, self.seed)
                trace = rows_of(trace, rows)._replace(arrival_s=arrived_us / 1e6)
            self.of_load[load] = trace, rows
        return self.of_load[load]

    def trial(self, wanted: Wanted, key: Key) -> pd.DataFrame:
        """Play a trial: a row for all its requests, then one for each level."""
        endpoint = self.endpoint
        trace, rows = self.multiplied(key.load_factor)
        needs = wanted.needs._replace(step=wanted.needs.step[rows])
        app = None
        if wanted.by == LEVELS_BY_APP and key.levels > 1:
            app = app_codes(endpoint.requests, endpoint.settings.trace)[rows]
        level = levels_of_needs(needs, wanted.by, key.levels, app)
        asked = trace._replace(tier=needs.step, level=level)
        config = under(endpoint, key.stack, key.levels, key.headroom_share)
        outcome, fleet = play(endpoint, needs.tiers, config, asked, key.instances)
        told = by_request(needs, asked, fleet, outcome)
        share = shares_of_steps(told["met"].to_numpy(), needs) / wanted.idle_share
        target = np.array([tier.attainment_target_share for tier in needs.tiers.values()])
        spent, usd = gpu_hours(endpoint, key.instances)
        common = {
            **{"llm": endpoint.llm, "region": endpoint.region, "dealt_by": wanted.by, **key._asdict()},
            **{"headroom_decay": config.levels.headroom_decay, "hours": endpoint.hours, "seed": self.seed},
            **{"is_today": key.instances == endpoint.instances, "worst_need_share": float(np.nanmin(share))},
            "is_met": not (share < target).any(),
        }
        whole = {
            **dict(zip(MOVES, outcome.moved.sum(axis=(0, 1)).tolist(), strict=True)),
            **{"recomputed_tokens": outcome.recomputed_tokens, "gpu_hours": spent, "usd": usd},
        }
        lines = [common | {"level": ALL} | figures(told) | whole]
        lines += [common | {"level": str(code)} | figures(own) for code, own in told.groupby("level")]
        return pd.DataFrame(lines).reindex(columns=SCHEMAS["level_trials"].names)


def ends_of(endpoint: Endpoint) -> tuple[float, float]:
    """The strictest and the loosest time to a first token that a tier wants."""
    wanted = [tier.ttft_slo_s for tier in endpoint.settings.catalogue.tiers.values() if tier.ttft_slo_s]
    return (min(wanted), max(wanted)) if wanted else (0.0, 0.0)


def under(endpoint: Endpoint, stack: str, levels: int, headroom_share: float | None = None) -> ReplayConfig:
    """The config's replay under a stack, with so many levels."""
    config = stacked(endpoint.settings.config.replay, STACKS[stack], headroom_share)
    return replace(config, levels=replace(config.levels, count=levels))


def in_time(needs: Needs, trace: Trace, outcome: Outcome) -> Bools:
    """Which requests got what they wanted, shape (R,)."""
    ttft_s, e2e_s = outcome.first_token_s - trace.arrival_s, outcome.finish_s - trace.arrival_s
    met = np.zeros(needs.step.size, bool)
    for code, tier in enumerate(needs.tiers.values()):
        own = needs.step == code
        met[own] = meets_targets(tier, ttft_s[own], e2e_s[own], trace.output_tokens[own])
    return met


def shares_of_steps(met: Bools, needs: Needs) -> Floats:
    """The share of each step's requests that got what they wanted, shape (S,); NaN where nobody wants it."""
    steps = len(needs.tiers)
    with np.errstate(invalid="ignore"):
        return np.bincount(needs.step, met, steps) / np.bincount(needs.step, minlength=steps)


def by_request(needs: Needs, trace: Trace, fleet: Fleet, outcome: Outcome) -> pd.DataFrame:
    """What became of each request of a trial."""
    return pd.DataFrame(
        {
            "level": trace.level,
            "met": in_time(needs, trace, outcome),
            "finished": outcome.status == Ending.FINISHED,
            "ttft_s": outcome.first_token_s - trace.arrival_s,
            "e2e_s": outcome.finish_s - trace.arrival_s,
            "preemptions": outcome.preemptions,
            "moved_live": moved_live(trace, fleet, outcome),
            "stopped_s": stopped_s(trace, fleet, outcome),
        }
    )


def figures(told: pd.DataFrame) -> dict[str, Any]:
    """Counts and percentiles of some requests of a trial; one without a first token waits longer than all."""
    stopped = told["stopped_s"].dropna()
    return {
        "requests": len(told),
        **{name: int(told[name].sum()) for name in ("finished", "met", "preemptions", "moved_live")},
        **{
            f"{name}_p{level}_s": percentile(told[f"{name}_s"].to_numpy(), level)
            for name, levels in PERCENTILES
            for level in levels
        },
        "stopped_p99_s": percentile(stopped.to_numpy(), 99) if len(stopped) else np.nan,
    }


def percentile(seconds: Floats, level: int) -> float:
    """The least time within which so many per cent came; NaN where so many never did."""
    known = np.sort(seconds[~np.isnan(seconds)])
    at = int(np.ceil(level / 100 * seconds.size)) - 1
    return float(known[at]) if at < known.size else np.nan
