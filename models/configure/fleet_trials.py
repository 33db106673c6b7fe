"""Replays of a fleet of an engine point on windows of the user's traffic."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.configure.cost_bound import TokenWork
from fleetcast.models.configure.engine_points import EngineMarket, EnginePoint
from fleetcast.models.metrics import is_tier_slo_met, known_percentile_s, tpot_s, waited_percentile_s
from fleetcast.models.replay.kernel_inputs import FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.run import TAIL_PERIODS, Schedule, Session, replay_trace
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.trials.capacity import fixed_fleet
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.catalogue_entries import Tier

MILLION = 1e6
PERCENTILES = (50, 95, 99)
THIN_SEED = 0x7419
ROUNDING = 1e-6  # of a request: 0.95 of 100 requests are 95
WATCHED_REQUESTS, WATCHED_PARTS = 50_000, 12  # replays of longer windows are watched, in so many parts


class TrafficWindow(NamedTuple):
    """Requests of a part of the traffic, by the prefix mode of the fleet; arrivals begin at 0 s."""

    traces: Mapping[str, TraceArrays]  # by [fleet] prefix
    block_tokens: int = 0  # of a block with a hash

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

    @property
    def later_tokens(self) -> Floats:
        """Tokens of each answer after the first, shape (R,)."""
        return self.trace.output_tokens.astype(float) - 1.0

    @property
    def read_tokens(self) -> Floats:
        """Cached tokens that each request reads, summed over its decode steps, shape (R,)."""
        return self.later_tokens * (self.trace.input_tokens + 1.0 + self.later_tokens / 2)

    def prompt_tokens(self, prefix: str) -> float:
        """Return the prompt tokens to compute if a cache that begins empty keeps all that it can.

        Each block is computed once, by a prompt or by an answer before it.
        """
        trace = self.traces[prefix]
        repeated = (trace.hashes.size - np.unique(trace.hashes).size) * self.block_tokens
        reused = float(trace.cached_tokens.sum(dtype=float)) + repeated
        return max(0.0, float(trace.input_tokens.sum(dtype=float)) - reused)

    def steady_work(self, prefix: str) -> TokenWork:
        """Return the work of all requests, in the time of their arrivals: an estimate, no bound."""
        return TokenWork(
            self.prompt_tokens(prefix), self.later_tokens.sum(), self.read_tokens.sum(), self.until_s
        )

    def due_works(self, prefix: str, tiers: Mapping[str, Tier]) -> list[TokenWork]:
        """Return the least work that is done by each due moment, if every tier is attained.

        Of a tier with n requests and the target share a, ceil(a n) have their first token by its target, and
        ceil(a n) end by its deadline. They may be the lightest ones in each kind of tokens. What a cache
        saves may be all of theirs.
        """
        prompt = self.trace.input_tokens.astype(float)
        computed, total = self.prompt_tokens(prefix), float(prompt.sum())
        dues = list[tuple[float, float, TokenWork]]()
        for code, tier in enumerate(tiers.values()):
            rows = np.flatnonzero(self.trace.tier == code)
            if rows.size:
                parts = (prompt, self.later_tokens, self.read_tokens)
                share = tier.attainment_target_share
                first, later, read = (lightest_sum(part[rows], share) for part in parts)
                last_s = float(self.trace.arrival_s[rows[-1]])
                dues.append(
                    (last_s + tier.allowance_s, self.end_s(tier, rows), TokenWork(first, later, read, 0.0))
                )
        works = []
        for moment_s in sorted({due_s for *pair, _ in dues for due_s in pair}):
            begun = [work for first_s, _, work in dues if first_s <= moment_s]
            ended = [work for _, end_s, work in dues if end_s <= moment_s]
            left = total - sum(work.prompt_tokens for work in begun)
            works.append(
                TokenWork(
                    max(0.0, computed - left),
                    sum(work.decode_tokens for work in ended),
                    sum(work.cached_tokens for work in ended),
                    moment_s,
                )
            )
        return works

    def end_s(self, tier: Tier, rows: Ints) -> float:
        """Return when the last request of a tier that attains ends; `rows`: shape (n,), of the tier."""
        arrival_s = self.trace.arrival_s[rows]
        latest_s = float(arrival_s[-1]) + tier.deadline_s
        if tier.ttft_slo_s is None or tier.tpot_slo_s is None:
            return latest_s
        answer_s = tier.ttft_slo_s + tier.tpot_slo_s * self.later_tokens[rows]
        return min(latest_s, float((arrival_s + answer_s).max()))


def lightest_sum(tokens: Floats, share: float) -> float:
    """Return the sum of the lightest requests that make up a share of them; `tokens`: shape (n,)."""
    count = int(np.ceil(share * tokens.size - ROUNDING))
    return float(np.sort(tokens)[:count].sum())


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


def select_requests_of(window: TrafficWindow, keep: np.ndarray) -> TrafficWindow:
    """Return a window with its requests `keep`, shape (n,), ascending, from 0 s."""
    traces = {prefix: select_rows(trace, keep) for prefix, trace in window.traces.items()}
    return window._replace(traces=traces)


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


def cut_window(window: TrafficWindow, first: int, end: int) -> TrafficWindow:
    """Return the rows from `first` to before `end` of a window."""
    return select_requests_of(window, np.arange(first, end))


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
    return select_requests_of(window, keep)


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
    return window._replace(traces=traces)


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
        waited = fleet.is_interactive[trace.tier]
        counted = waited if waited.any() else np.ones_like(waited)
        for name, seconds in (("ttft", ttft_s), ("tpot", tpot_s(ttft_s, e2e_s, trace.output_tokens))):
            times.setdefault(name, []).append(seconds[counted])
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
    """Return percentiles of TTFT and TPOT in seconds, like ttft_p95_s; `times`: arrays of shape (n,)."""
    percentiles = {"ttft": waited_percentile_s, "tpot": known_percentile_s}
    return {
        f"{name}_p{level}_s": percentiles[name](np.concatenate(parts), level)
        for name, parts in times.items()
        for level in PERCENTILES
    }
