"""`fleetcast configure`: choose engine settings for a traffic."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.studies.configure_limits import InstanceLimit, find_limits
from fleetcast.assets.studies.configure_traffic import ConfigureTraffic
from fleetcast.assets.studies.try_fleet import FRONTEND_S
from fleetcast.models.configure.engine_points import EngineMarket, EnginePoint, list_kinds, price_engines
from fleetcast.models.configure.fleet_trials import (
    MILLION,
    FleetScore,
    TrafficWindow,
    busiest_windows,
    change_window,
    thin_window,
)
from fleetcast.models.configure.point_search import (
    NO_LIMIT,
    EngineSearch,
    FleetTrials,
    fewest_attaining,
    race_points,
    rank_score,
    scaled_guess,
    search_backends,
    search_engines,
)
from fleetcast.models.configure.vllm_defaults import default_points, with_default_batches
from fleetcast.models.latency.latency_errors import errors_in_use
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import BACKENDS, VLLM
from fleetcast.models.world.config import RunConfig, replace_given
from fleetcast.models.world.fleet_config import are_acceptance_rates
from fleetcast.models.world.quality_floor import FLOOR_BITS
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known

# Windows of the busiest hour: their requests at most, and their seconds at the least.
WHOLE_UP_TO = 2  # a part is taken where the hour has more requests than so many times those of the part
SHORT, MIDDLE = (10_000, 40.0), (60_000, 180.0)
CHANGES: Mapping[str, tuple[float, float]] = {  # factors of the rate and of the prompts
    "traffic doubles": (2.0, 1.0),
    "prompts grow by half": (1.0, 1.5),
}


class ConfigureQuery(NamedTuple):
    """What to choose engine settings for."""

    llm: str
    gpus: Sequence[str]
    floor: str | None = None  # name in FLOOR_BITS; None: the bits of the llm
    way: str = "any"  # of prefill and decode: together, apart, or any
    ttft_slo_s: float | None = None  # of the strictest tier; None: its own
    tpot_slo_s: float | None = None
    backends: Sequence[str] = (VLLM,)


class ChangedTraffic(NamedTuple):
    """The answer for a changed traffic, on the middle windows."""

    change: str
    best: FleetScore | None
    kept: FleetScore | None  # of the present point, with the fewest instances that attain
    present_usd_per_hour: float | None  # of the present point for the present traffic, there too


class EngineAnswer(NamedTuple):
    """The engine settings to run, and what is known of them."""

    query: ConfigureQuery
    market: EngineMarket
    search: EngineSearch
    bounds: Sequence[float]  # USD per million tokens of steady work, of each finalist
    interval: tuple[float, float]  # USD per million tokens with faster and slower engines
    error_share: float  # median error of the profiles, by which they are faster and slower
    changes: Sequence[ChangedTraffic]
    limits: Sequence[InstanceLimit]  # of the best fleet, by role
    defaults: FleetScore | None  # vLLM's defaults on the best GPU type; None: no number of instances attains

    @property
    def best(self) -> FleetScore:
        """The cheapest fleet."""
        return self.search.finalists[0]

    @property
    def second(self) -> FleetScore | None:
        """The cheapest fleet of another kind, None without one."""
        return self.search.finalists[1] if len(self.search.finalists) > 1 else None


def with_targets(catalogue: Catalogue, query: ConfigureQuery) -> Catalogue:
    """Return the catalogue with the query's targets of the strictest tier; ConfigError for unknown names."""
    require_known(query.llm, catalogue.llms, "llm", "configure")
    for backend in query.backends:
        require_known(backend, BACKENDS, "backend", "--backends")
    for gpu in query.gpus:
        require_known(gpu, catalogue.gpus, "gpu", "--gpus")
        if catalogue.gpus[gpu].usd_per_hour <= 0:
            raise ConfigError(
                f"{gpu} has no price above 0. Give one in gpus.toml, or leave it out of --gpus."
            )
    if query.floor is not None:
        require_known(query.floor, FLOOR_BITS, "quality floor", "--quality-floor")
    name = catalogue.strictest
    tier = replace_given(catalogue.tiers[name], ttft_slo_s=query.ttft_slo_s, tpot_slo_s=query.tpot_slo_s)
    return dataclasses.replace(catalogue, tiers={**catalogue.tiers, name: tier})


def with_drafts_of(config: RunConfig, rates: str | None, draft_s: float | None) -> RunConfig:
    """Return the config with these rates of acceptance, with commas between, and seconds of the drafter.

    None: those of the config. ConfigError where one is no share, the rates rise, or there are none.
    """
    fleet = config.fleet
    if rates is not None:
        try:
            acceptance = tuple(float(rate) for rate in rates.split(","))
        except ValueError:
            acceptance = (float("nan"),)
        if not are_acceptance_rates(acceptance):
            raise ConfigError(
                f"--speculative-acceptance {rates[:60]}: needed shares from 0 to 1 that do not rise, with "
                "commas between, like 0.7,0.5,0.3: a draft is accepted only after the one before it."
            )
        fleet = dataclasses.replace(fleet, speculative_acceptance=acceptance)
    if draft_s is not None:
        if not fleet.speculative_acceptance:
            raise ConfigError("--speculative-draft-s needs --speculative-acceptance. Give both.")
        fleet = dataclasses.replace(fleet, speculative_draft_s=draft_s)
    return dataclasses.replace(config, fleet=fleet)


def choose_engine(
    query: ConfigureQuery,
    traffic: ConfigureTraffic,
    catalogue: Catalogue,
    config: RunConfig,
    progress: Progress,
) -> EngineAnswer:
    """Choose the cheapest engine settings that attain every tier; ConfigError where none do."""
    fleet = dataclasses.replace(config.fleet, frontend_s=config.fleet.frontend_s or FRONTEND_S)
    config = dataclasses.replace(config, fleet=fleet)  # as `fleetcast try` has it for these profiles
    with progress.bar("price engines", 1) as done:
        market = price_engines(
            catalogue, query.llm, query.gpus, query.floor, config, traffic.longest, query.backends
        )
        done(1)
    kinds = list_kinds(market, traffic.longest, traffic.prefixes, query.way)
    if not kinds:
        raise ConfigError(
            f"No GPU type of {', '.join(query.gpus)} has links to send caches over. Drop --disaggregated."
        )
    short, middle, whole = nest_trials(market, traffic.hours)
    with progress.replay_bar("replay engines", 0) as done:
        steps = [0]

        def note(stage: str) -> None:
            steps[0] += 1
            done(steps[0] // 50)

        found = search_backends(kinds, lambda some: search_engines(short, middle, whole, some, note))
        if found is None:
            raise ConfigError(describe_failure(query, kinds, whole))
        best = found.finalists[0]
        share, interval = error_interval(middle, best)
        changes = [
            try_change(middle, found.runners, best.point, name, *factors) for name, factors in CHANGES.items()
        ]
        limits = find_limits(whole, best)
        defaults = try_defaults(whole, best.point, traffic)
    bounds = [steady_usd_per_million_tokens(whole, score.point) for score in found.finalists]
    return EngineAnswer(query, market, found, bounds, interval, share, changes, limits, defaults)


def nest_trials(
    market: EngineMarket, hours: Sequence[TrafficWindow]
) -> tuple[FleetTrials, FleetTrials, FleetTrials]:
    """Return the trials on the short, the middle and the whole windows; equal ones are the same.

    The first two windows are the busiest parts of the busiest hour. They are cut in time, and thinned only
    where that is not enough: a thinned traffic needs so few instances that whole numbers decide.
    """
    busiest, whole = max(hours, key=lambda window: window.tokens), FleetTrials(market, hours)
    nested, size = [], busiest.trace.arrival_s.size
    for most, least_s in (SHORT, MIDDLE):
        if size <= WHOLE_UP_TO * most:
            nested.append(whole if len(hours) == 1 else FleetTrials(market, [busiest]))
            continue
        length_s = max(least_s, busiest.until_s * most / size)
        parts = [thin_window(window, most) for window in busiest_windows(busiest, length_s, 1)]
        nested.append(FleetTrials(market, parts))
    return nested[0], nested[1], whole


def describe_failure(query: ConfigureQuery, kinds: Sequence[EnginePoint], whole: FleetTrials) -> str:
    """Return a line that says why no point attains every tier."""
    targets = [
        f"{name} within {tier.ttft_slo_s or tier.deadline_s:g} s"
        + (f" and {1e3 * tier.tpot_slo_s:g} ms a token" if tier.tpot_slo_s else "")
        for name, tier in whole.tiers.items()
        if not tier.is_held
    ]
    return (
        f"None of {len(kinds)} deployments of {query.llm} attains every tier ({'; '.join(targets)}), however "
        "many instances it has. Loosen --ttft-slo-s or --tpot-slo-s, or name faster --gpus."
    )


def steady_usd_per_million_tokens(trials: FleetTrials, point: EnginePoint) -> float:
    """Return USD per million tokens of engines that are always busy with the tokens of all requests.

    It is no bound of the cost: late requests are in it too.
    """
    seconds = sum(window.until_s for window in trials.windows)
    tokens = sum(window.tokens for window in trials.windows)
    return MILLION * trials.steady_usd(point) * seconds / HOUR_S / tokens


def error_interval(middle: FleetTrials, best: FleetScore) -> tuple[float, tuple[float, float]]:
    """Return the median error of the profiles of a point, and its cost with faster and slower engines.

    The cost is in USD per million tokens of the whole windows: its change on the middle windows is applied.
    """
    market, point = middle.market, best.point
    pools = [pool for pool, _ in point.pools(best.counts)]
    errors = errors_in_use(market.catalogue_of(point), [(market.llm, pools)])
    share = max(max(error.prefill_share, error.decode_share) for error in errors)
    base = fewest_attaining(middle, point, guess=scaled_guess(middle, middle, point))
    costs = []
    for factor in (1 / (1 + share), 1 + share):
        other = FleetTrials(market.with_slower_engines(factor, factor), middle.windows)
        score = fewest_attaining(other, point, guess=base and sum(base.counts))
        costs.append(float("inf") if score is None else score.usd_per_hour)
    scale = best.usd_per_million_tokens / (base.usd_per_hour if base else best.usd_per_hour)
    return share, (scale * costs[0], scale * costs[1])


def try_change(
    middle: FleetTrials,
    runners: Sequence[EnginePoint],
    present: EnginePoint,
    change: str,
    rate: float,
    prompts: float,
) -> ChangedTraffic:
    """Return the best of the points for a changed traffic, and the present point's cost there."""
    changed = FleetTrials(middle.market, [change_window(w, rate, prompts) for w in middle.windows])
    guesses: Callable[[EnginePoint], int | None] = lambda point: scaled_guess(middle, changed, point)  # noqa: E731
    kept = fewest_attaining(changed, present, guess=guesses(present))
    base = fewest_attaining(middle, present, guess=scaled_guess(middle, middle, present))
    most_usd = NO_LIMIT if kept is None else kept.usd_per_hour
    scores = race_points(changed, [p for p in runners if p != present], 0.0, guesses, best_usd=most_usd)
    cheaper = [score for score in scores if kept is None or score.usd_per_hour < kept.usd_per_hour]
    best = cheaper[0] if cheaper else kept
    return ChangedTraffic(change, best, kept, base and base.usd_per_hour)


def try_defaults(whole: FleetTrials, best: EnginePoint, traffic: ConfigureTraffic) -> FleetScore | None:
    """Return the cheapest fleet with vLLM's defaults on the GPU types of the best one; None: none attains."""
    market = with_default_batches(whole.market)
    kinds = list_kinds(market, traffic.longest, traffic.prefixes, "together")
    points = default_points(market, kinds, list(dict.fromkeys(shape.gpu for shape in best.shapes)))
    trials = FleetTrials(market, whole.windows)
    scores = [score for point in points if (score := fewest_attaining(trials, point)) is not None]
    return min(scores, key=rank_score, default=None)
