"""Replays of a fleet of an engine point on windows of the user's traffic."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Bools, Floats
from fleetcast.models.configure.cost_bound import TokenWork
from fleetcast.models.configure.engine_points import EngineMarket, EnginePoint
from fleetcast.models.metrics import is_tier_slo_met, tpot_s
from fleetcast.models.replay.kernel_inputs import FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.run import TAIL_PERIODS, Schedule, Session, replay_trace
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.trials.capacity import fixed_fleet
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.catalogue_entries import Tier
from fleetcast.models.world.mechanisms import Ending

MILLION = 1e6
PERCENTILES = (50, 95, 99)
THIN_SEED = 0x7419
WATCHED_REQUESTS, WATCHED_PARTS = 50_000, 12  # replays of longer windows are watched, in so many parts


class TrafficWindow(NamedTuple):
    """Requests of a part of the traffic, by the prefix mode of the fleet; arrivals begin at 0 s."""

    traces: Mapping[str, TraceArrays]  # by [fleet] prefix
    prompt_tokens: Mapping[str, float]  # least prompt tokens to compute, by [fleet] prefix

    @property
    def trace(self) -> TraceArrays:
        """Requests without a prefix cache."""
        return self.traces["none"]

    @property
    def until_s(self) -> float:
        """Seconds from the first arrival to the end of the window."""
        return float(self.trace.arrival_s[-1]) + 1.0

    @property
    def tokens(self) -> float:
        """Input and output tokens of the requests."""
        return float(self.trace.input_tokens.sum(dtype=float) + self.trace.output_tokens.sum(dtype=float))

    def token_work(self, prefix: str, tiers: Mapping[str, Tier]) -> TokenWork:
        """Return the work of the requests that must meet their targets at the least."""
        names = list(tiers)
        present = [tiers[names[code]] for code in np.unique(self.trace.tier)]
        share = min(tier.attainment_target_share for tier in present)
        prompt, later = self.trace.input_tokens.astype(float), self.trace.output_tokens - 1.0
        in_time_s = max(tier.allowance_s for tier in present)
        return TokenWork(
            share * self.prompt_tokens[prefix],
            share * float(later.sum()),
            share * float((later * (prompt + 1 + later / 2)).sum()),
            self.until_s + min(in_time_s, self.until_s),
        )


class FleetScore(NamedTuple):
    """A point at so many instances of each shape, on some windows."""

    point: EnginePoint
    counts: tuple[int, ...]
    usd_per_hour: float
    usd_per_million_tokens: float
    attained: Mapping[str, float]  # share of the requests of a tier that met its targets, the worst window
    is_attained: bool  # every tier in every window
    slack: float  # least attainment, and share that ends by the deadline, above the target of a tier
    seconds: Mapping[str, float]  # of interactive requests of all windows, percentiles, like ttft_p95_s


def cut_trace(trace: TraceArrays, first: int, end: int) -> TraceArrays:
    """Return the rows from `first` to before `end`, with arrivals from 0 s."""
    columns = {
        name: column[first:end].copy()
        for name, column in trace._asdict().items()
        if name not in ("first_hash", "hashes") and column.size
    }
    columns["arrival_s"] -= columns["arrival_s"][0]
    if trace.hashes.size:
        blocks = trace.first_hash[first : end + 1]
        columns |= {"first_hash": blocks - blocks[0], "hashes": trace.hashes[blocks[0] : blocks[-1]].copy()}
    return trace._replace(**columns)


def cut_window(window: TrafficWindow, first: int, end: int) -> TrafficWindow:
    """Return the rows from `first` to before `end` of a window."""
    share = (end - first) / window.trace.arrival_s.size
    return TrafficWindow(
        {prefix: cut_trace(trace, first, end) for prefix, trace in window.traces.items()},
        {  # reuse in a part of the traffic is not known without looking; the bound may only be low
            prefix: float(window.trace.input_tokens[first:end].sum()) if prefix == "none" else share * tokens
            for prefix, tokens in window.prompt_tokens.items()
        },
    )


def busiest_windows(window: TrafficWindow, length_s: float, count: int) -> list[TrafficWindow]:
    """Return the `count` busiest parts of `length_s` seconds, by tokens, in order of time."""
    arrival_s = window.trace.arrival_s
    parts = max(1, round(window.until_s / length_s))
    edges = np.searchsorted(arrival_s, np.arange(parts + 1) * length_s)
    edges[-1] = arrival_s.size
    tokens = np.concatenate(
        [[0], np.cumsum(window.trace.input_tokens + window.trace.output_tokens, dtype=float)]
    )
    load = tokens[edges[1:]] - tokens[edges[:-1]]
    chosen = sorted(int(part) for part in np.argsort(-load, kind="stable")[:count])
    return [cut_window(window, edges[n], edges[n + 1]) for n in chosen if edges[n + 1] > edges[n]]


def thin_window(window: TrafficWindow, most_requests: int) -> TrafficWindow:
    """Return a random part of the requests of a window, at most so many; prefixes keep their sharing.

    Requests with blocks are kept whole or not at all.
    """
    size = window.trace.arrival_s.size
    if size <= most_requests:
        return window
    keep = np.sort(np.random.default_rng(THIN_SEED).choice(size, most_requests, replace=False))
    traces = {prefix: select_rows(trace, keep) for prefix, trace in window.traces.items()}
    share = most_requests / size
    return TrafficWindow(traces, {prefix: share * n for prefix, n in window.prompt_tokens.items()})


def change_window(window: TrafficWindow, rate: float, prompts: float) -> TrafficWindow:
    """Return the window with requests that come faster, and prompts that are longer, by these factors.

    Of a longer prompt, the part that was in a cache stays as long.
    """
    traces = {
        prefix: trace._replace(
            arrival_s=trace.arrival_s / rate,
            input_tokens=np.ceil(trace.input_tokens * prompts).astype(np.int32),
        )
        for prefix, trace in window.traces.items()
    }
    more = float(traces["none"].input_tokens.sum(dtype=float) - window.trace.input_tokens.sum(dtype=float))
    return TrafficWindow(traces, {prefix: tokens + more for prefix, tokens in window.prompt_tokens.items()})


def select_rows(trace: TraceArrays, keep: np.ndarray) -> TraceArrays:
    """Return the rows `keep`, shape (n,), ascending, with arrivals from 0 s."""
    columns = {
        name: column[keep]
        for name, column in trace._asdict().items()
        if name not in ("first_hash", "hashes") and column.size
    }
    columns["arrival_s"] = columns["arrival_s"] - columns["arrival_s"][0]
    if trace.hashes.size:
        counts = np.diff(trace.first_hash)[keep]
        starts = np.concatenate([[0], np.cumsum(counts)])
        rows = np.repeat(trace.first_hash[:-1][keep] - starts[:-1], counts) + np.arange(starts[-1])
        columns |= {"first_hash": starts, "hashes": trace.hashes[rows]}
    return trace._replace(**columns)


def score_fleet(
    market: EngineMarket, point: EnginePoint, counts: Sequence[int], windows: Sequence[TrafficWindow]
) -> FleetScore:
    """Replay a fleet of a point on each window; stop at the first window in which a tier is not attained.

    The target share of each tier must also end by its deadline. Else decode instances could fall behind for
    the whole hour where only first tokens have a target.
    """
    catalogue, config = market.catalogue_of(point), market.config_of(point)
    fleet = fixed_fleet({market.llm: point.pools(counts)}, catalogue, config)
    rules = make_rules(catalogue, config.replay, "follow")
    attained, times, slack = dict[str, float](), dict[str, list[Floats]](), 1.0
    for window in windows:
        trace, until_s = window.traces[point.settings.prefix], window.until_s
        outcome = replay_window(trace, fleet, rules, list(catalogue.tiers.values()), until_s)
        ttft_s, e2e_s = outcome.first_token_s - trace.arrival_s, outcome.finish_s - trace.arrival_s
        done: Bools = outcome.status == Ending.FINISHED
        if (waited := fleet.is_interactive[trace.tier]).any():
            done &= waited
        for name, seconds in (("ttft", ttft_s), ("tpot", tpot_s(ttft_s, e2e_s, trace.output_tokens))):
            times.setdefault(name, []).append(seconds[done])
        for code, (name, tier) in enumerate(catalogue.tiers.items()):
            if (rows := trace.tier == code).any():
                met = is_tier_slo_met(tier, ttft_s[rows], e2e_s[rows], trace.output_tokens[rows])
                attained[name] = min(attained.get(name, 1.0), float(met.mean()))
                ended_share = float((e2e_s[rows] <= tier.deadline_s).mean())
                slack = min(slack, min(attained[name], ended_share) - tier.attainment_target_share)
        if slack < 0:
            break
    usd_per_hour = point.usd_per_hour(catalogue, counts)
    usd = usd_per_hour * sum(window.until_s for window in windows) / HOUR_S
    return FleetScore(
        point,
        tuple(counts),
        usd_per_hour,
        MILLION * usd / sum(window.tokens for window in windows),
        attained,
        slack >= 0,
        slack,
        time_percentiles(times),
    )


class AttainingSession(Session):
    """A replay that stops when so many requests are late that a tier cannot be attained any more.

    A fleet with too few instances takes much longer to replay than one with enough.
    """

    def __init__(self, fleet: FleetArrays, rules: Rules, start: np.ndarray, tiers: Sequence[Tier]) -> None:
        """Set up the fleet; `start`: shape (E,), instances of each pool."""
        super().__init__(fleet, rules, start)
        self.tiers, self.is_hopeless = tiers, False

    def run_until(self, end_s: float) -> None:
        """Run in parts; stop after one in which a tier was lost."""
        begin_s = float(self.state.progress.now_s)
        for moment_s in np.linspace(begin_s, end_s, WATCHED_PARTS + 1)[1:]:
            self._advance(float(moment_s), False)
            self.is_hopeless = self.is_hopeless or self.has_lost_tier(float(moment_s))
            if self.is_hopeless:
                return

    def has_lost_tier(self, now_s: float) -> bool:
        """Return whether a tier has more late requests than its target allows, network delays apart."""
        trace, request = self.trace, self.state.request
        first_s, finish_s = request["first_token_s"], request["finish_s"]
        for code, tier in enumerate(self.tiers):
            rows = np.flatnonzero(trace.tier == code)
            waited_s = now_s - trace.arrival_s[rows]
            ttft_s, e2e_s = first_s[rows] - trace.arrival_s[rows], finish_s[rows] - trace.arrival_s[rows]
            answered_s = e2e_s if tier.ttft_slo_s is None else ttft_s
            late = (waited_s > tier.allowance_s) & ~(answered_s <= tier.allowance_s)
            late |= ~np.isnan(e2e_s) & ~is_tier_slo_met(tier, ttft_s, e2e_s, trace.output_tokens[rows])
            unended = (waited_s > tier.deadline_s) & ~(e2e_s <= tier.deadline_s)
            if max(late.sum(), unended.sum()) > (1 - tier.attainment_target_share) * rows.size:
                return True
        return False


def replay_window(
    trace: TraceArrays, fleet: FleetArrays, rules: Rules, tiers: Sequence[Tier], until_s: float
) -> Outcome:
    """Return the outcome of a window on a fleet of fixed size.

    A long window ends early when a tier cannot be attained any more: its other requests stay unfinished.
    """
    counts = np.diff(fleet.slots)
    schedule = Schedule(counts, hour_s=until_s)
    if trace.arrival_s.size < WATCHED_REQUESTS:
        return replay_trace(trace, fleet, schedule, rules, until_s)
    session = AttainingSession(fleet, rules, counts, tiers)
    session.append_trace(trace)
    usage = session.play(schedule, until_s)
    if not session.is_hopeless:
        session.finish(until_s + TAIL_PERIODS * until_s)
    return session.outcome(*usage)


def time_percentiles(times: Mapping[str, Sequence[Floats]]) -> dict[str, float]:
    """Return percentiles in seconds, like ttft_p95_s; each value of `times` has arrays of shape (n,)."""
    found = {}
    for name, parts in times.items():
        seconds = np.concatenate(parts)
        seconds = seconds[~np.isnan(seconds)]
        for level in PERCENTILES:
            value = float(np.quantile(seconds, level / 100)) if seconds.size else float("nan")
            found[f"{name}_p{level}_s"] = value
    return found
