"""Build the query of `fleetcast gpus` and its scenario: load, targets, latency profiles and prices."""

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import date
from typing import NamedTuple

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans.day_ahead import forecast_plan_day
from fleetcast.assets.plans.plan_loads import read_forecast_windows
from fleetcast.assets.plans.request_mixes import RequestMix, token_mixes
from fleetcast.models.latency.pipeline_stages import deployment_profile
from fleetcast.models.latency.profile_order import comparable_profiles
from fleetcast.models.latency.profile_tables import BATCH_REACH
from fleetcast.models.plan import phase_costs
from fleetcast.models.plan.phase_costs import MeanRequest, PhasePrice
from fleetcast.models.plan.request_buckets import BucketEdges
from fleetcast.models.replay.session.fleet_arrays import link_token_s
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile, Tier
from fleetcast.models.world.config import RunConfig, replace_given
from fleetcast.models.world.instance_kv_memory import fixed_kv_tokens, kv_capacity_tokens
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known

TENSOR_PARALLEL = (1, 2, 4, 8)  # GPUs per instance to compare
MAX_BATCH = 256  # requests: vLLM's default, and the limit of composed profiles


class RentQuery(NamedTuple):
    """Which GPUs to rent: the llm, GPU types, caps and targets to compare under."""

    llm: str
    gpus: Sequence[str]
    caps: Mapping[str, int]  # GPUs by type; a type without an entry has no cap
    way: str = "any"  # phases on the same instances (together), on their own (apart), or any
    ttft_slo_s: float | None = None  # None: that of the strictest tier
    tpot_slo_s: float | None = None
    edges: BucketEdges | None = None  # bucket edges; None: no fleet by bucket


class RentScenario(NamedTuple):
    """The catalogue, config, targets and load under which fleets are compared."""

    catalogue: Catalogue  # of this llm alone, with the compared profiles
    config: RunConfig
    tier: Tier  # with the targets to meet
    tier_name: str
    mix: RequestMix
    load: MeanRequest
    per_s: float  # requests/s to serve


def build_rent_query(
    settings: RunSettings,
    day: date,
    llm: str | None,
    gpus: str | None,
    caps: Sequence[str],
    way: str,
    ttft_slo_s: float | None,
    tpot_slo_s: float | None,
    progress: Progress,
) -> RentQuery:
    """Build the query from command-line values: GPU types joined by commas, caps as TYPE=COUNT.

    Default llm: the one with most forecast input tokens. Default types: those with a price whose
    kernels were all timed. ConfigError for a malformed cap.
    """
    if day not in settings.lake.days("day_ahead_forecasts", settings.trace):
        forecast_plan_day(settings, day, progress)
    if llm is None:
        method = settings.config.forecast.method
        _, quantile = read_forecast_windows(settings, day, method, "day_ahead_forecasts")
        llm = list(settings.catalogue.llms)[int(quantile.sum(axis=(0, 2, 3)).argmax())]
    types = parse_gpu_types(gpus) or timed_gpus(settings.catalogue)
    numbers = {}
    for text in caps:
        gpu, _, count = text.partition("=")
        if not count.isdecimal():
            raise ConfigError(f"--cap {text}: it must be TYPE=COUNT, like --cap a100-80gb=16.")
        if gpu.strip() not in types:
            raise ConfigError(
                f"--cap {text}: {gpu.strip()} is not compared. Add it to --gpus, or drop the cap."
            )
        numbers[gpu.strip()] = int(count)
    return RentQuery(llm, types, numbers, way, ttft_slo_s, tpot_slo_s)


def parse_gpu_types(gpus: str | None) -> list[str]:
    """Return the GPU types of a list with commas, each once; none without a list."""
    return list(dict.fromkeys(gpu.strip() for gpu in gpus.split(","))) if gpus else []


def timed_gpus(catalogue: Catalogue) -> list[str]:
    """Return the GPU types with a price whose kernels were all timed."""
    return [gpu for gpu, one in catalogue.gpus.items() if one.system is not None and one.usd_per_hour > 0]


def build_rent_scenario(
    settings: RunSettings, day: date, query: RentQuery, tokens_per_s: float | None = None
) -> RentScenario:
    """Build the scenario of a query; ConfigError for an unknown name, ValueError without traffic.

    `tokens_per_s`: the load in input tokens/s; None: the largest forecast load of the day.
    """
    catalogue = settings.catalogue
    require_known(query.llm, catalogue.llms, "llm", f"{settings.config.file.name} deploys")
    for gpu in (*query.gpus, *query.caps):
        require_known(gpu, catalogue.gpus, "gpu", "--gpus and --cap")
    for gpu in query.gpus:
        if catalogue.gpus[gpu].usd_per_hour <= 0:
            raise ConfigError(f"{gpu} has no price above 0. Give one: --prices FILE, or gpus.toml.")
    mix = token_mixes(settings, day)[query.llm]
    if tokens_per_s is None:
        method = settings.config.forecast.method
        _, quantile = read_forecast_windows(settings, day, method, "day_ahead_forecasts")
        tokens_per_s = float(quantile[:, list(catalogue.llms).index(query.llm)].sum(axis=1).max())
    load = MeanRequest(float(mix.input_tokens.mean()), float(mix.output_tokens.mean()))
    if not tokens_per_s * HOUR_S >= load.input_tokens:  # its busiest hour is replayed at this rate
        raise ValueError(
            f"Less than one interactive request of {query.llm} an hour is forecast on {day}: there is "
            "nothing to rent for. Name another --llm, or another --date."
        )
    tier_name = catalogue.strictest
    slos_s = {"ttft_slo_s": query.ttft_slo_s, "tpot_slo_s": query.tpot_slo_s}
    tier: Tier = replace_given(catalogue.tiers[tier_name], **slos_s)
    pairs = [(gpu, tp) for gpu in query.gpus for tp in TENSOR_PARALLEL]
    profiles = comparable_profiles(catalogue, query.llm, pairs)
    llm_catalogue = dataclasses.replace(catalogue.serving([query.llm]), latency=tuple(profiles.values()))
    fleet = dataclasses.replace(settings.config.fleet, max_batch=MAX_BATCH, prefix="none")
    config = dataclasses.replace(settings.config, fleet=fleet)
    return RentScenario(llm_catalogue, config, tier, tier_name, mix, load, tokens_per_s / load.input_tokens)


def deployment_prices(scenario: RentScenario) -> list[PhasePrice]:
    """Return token prices of each deployment that holds the llm and meets its TPOT; ConfigError if none."""
    [llm] = scenario.catalogue.llms
    prices, reasons = [], dict[tuple[str, str], list[str]]()
    for profile in scenario.catalogue.latency:
        degree = str(profile.tensor_parallel)
        try:
            kv_tokens = kv_capacity_tokens(
                scenario.catalogue, scenario.config.fleet, llm, profile.gpu, profile.tensor_parallel
            )
        except ConfigError:
            reasons.setdefault((profile.gpu, "too small"), []).append(degree)
            continue
        price = phase_costs.phase_price(
            profile,
            scenario.catalogue.gpus[profile.gpu].usd_per_hour,
            scenario.load,
            kv_tokens,
            scenario.tier.tpot_slo_s,
            largest_batch(profile),
            scenario.config.fleet.max_prefill_tokens,
            fixed_kv_tokens(scenario.catalogue.llms[llm], scenario.config.fleet, profile.tensor_parallel),
        )
        if price is None:
            slow = profile.gpu, "too slow, or without room for a request"
            reasons.setdefault(slow, []).append(degree)
        else:
            sent_s = link_token_s(
                scenario.catalogue, scenario.config.fleet, llm, profile.gpu, profile.tensor_parallel
            )
            prices.append(price._replace(link_token_s=sent_s))
    if not prices:
        weight = scenario.catalogue.llms[llm].weight_bytes / 2**30
        why = [f"{', '.join(degrees)} x {gpu} {reason}" for (gpu, reason), degrees in reasons.items()]
        raise ConfigError(
            f"No instance of these GPU types holds {llm} ({weight:,.0f} GiB of weights): "
            f"{'; '.join(why) or 'it has no latency profile there'}. Name others with --gpus."
        )
    return prices


def engine_prices(scenario: RentScenario) -> list[PhasePrice]:
    """Return token prices of the named engines that the config deploys on the compared GPU types.

    Those for whole requests that meet the TPOT target; their batch and token budget are their own.
    """
    [llm] = scenario.catalogue.llms
    fleet, types = scenario.config.fleet, {profile.gpu for profile in scenario.catalogue.latency}
    prices = []
    for pool in fleet.deployments[llm]:
        if pool.engine is None or pool.role != "whole" or pool.gpu not in types:
            continue
        served = scenario.catalogue.as_served(llm, pool.llm_changes)
        stages = pool.pipeline_parallel
        profile = deployment_profile(served, llm, pool.gpu, pool.tensor_parallel, stages)
        price = phase_costs.phase_price(
            dataclasses.replace(profile, tensor_parallel=pool.rank_gpus),  # all GPUs have a price
            served.gpus[pool.gpu].usd_per_hour,
            scenario.load,
            kv_capacity_tokens(served, fleet, llm, pool.gpu, pool.rank_gpus, stages),
            scenario.tier.tpot_slo_s,
            fleet.engine(pool).max_batch,
            fleet.engine(pool).max_prefill_tokens,
            fixed_kv_tokens(served.llms[llm], fleet, pool.rank_gpus / stages),
        )
        prices += [] if price is None else [price._replace(engine_pool=pool)]
    return prices


def largest_batch(profile: LatencyProfile) -> int:
    """Return the largest decode batch, in requests, that the profile covers."""
    return min(MAX_BATCH, BATCH_REACH * profile.decode_batch[-1])


def describe_targets(tier: Tier) -> str:
    """Return the targets of a tier, in words."""
    targets = [f"first token in {tier.ttft_slo_s:g} s"] if tier.ttft_slo_s else []
    targets += [f"{1e3 * tier.tpot_slo_s:g} ms a token"] if tier.tpot_slo_s else []
    return ", ".join(targets)
