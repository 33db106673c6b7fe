"""What `fleetcast gpus` is asked, and the world in which it is answered: load, targets, profiles, prices."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans.day_ahead import forecast_plan_day
from fleetcast.assets.plans.plan_loads import read_forecast_windows
from fleetcast.assets.plans.request_mixes import RequestMix, token_mixes
from fleetcast.models.latency.composed_profiles import comparable_profiles
from fleetcast.models.latency.profile_tables import BATCH_REACH
from fleetcast.models.plan import phase_costs
from fleetcast.models.plan.phase_costs import MeanRequest, PhasePrice
from fleetcast.models.plan.request_buckets import BucketEdges
from fleetcast.models.replay.session.fleet_arrays import link_token_s
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile, Tier
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.instance_kv_memory import kv_capacity_tokens
from fleetcast.models.world.toml_dataclasses import ConfigError, read_toml, require_known

TENSOR_PARALLEL = (1, 2, 4, 8)  # GPUs of an instance that are tried
MAX_BATCH = 256  # requests: vLLM's default, as far as composed profiles reach


class RentQuery(NamedTuple):
    """What is asked."""

    llm: str
    gpus: Sequence[str]
    caps: Mapping[str, int]  # GPUs by type; one that is not named has no cap
    way: str = "any"  # whether phases may run apart: any, together, apart
    ttft_slo_s: float | None = None  # else that of the strictest tier; likewise:
    tpot_slo_s: float | None = None
    edges: BucketEdges | None = None  # of buckets, where they are to be planned too


class RentScenario(NamedTuple):
    """The world in which it is answered."""

    catalogue: Catalogue  # of the llm alone, with the profiles that are compared
    config: RunConfig
    tier: Tier  # whose targets count
    tier_name: str
    mix: RequestMix
    load: MeanRequest
    per_s: float  # requests/s to carry


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
    """A question as the command line says it: types joined by commas, caps as TYPE=COUNT.

    Without an llm the one with most input tokens to come; without types those whose kernels were all timed.
    ConfigError for a cap that is none.
    """
    if day not in settings.lake.days("day_ahead_forecasts", settings.trace):
        forecast_plan_day(settings, day, progress)
    if llm is None:
        method = settings.config.forecast.method
        _, quantile = read_forecast_windows(settings, day, method, "day_ahead_forecasts")
        llm = list(settings.catalogue.llms)[int(quantile.sum(axis=(0, 2, 3)).argmax())]
    timed = [gpu for gpu, kernels in settings.catalogue.kernels.items() if kernels.lacks is None]
    types = [one.strip() for one in gpus.split(",")] if gpus else timed
    numbers = {}
    for text in caps:
        gpu, _, count = text.partition("=")
        if not count.isdecimal():
            raise ConfigError(f"--cap {text}: it must be TYPE=COUNT, like --cap a100-80gb=16.")
        numbers[gpu.strip()] = int(count)
    return RentQuery(llm, tuple(dict.fromkeys(types)), numbers, way, ttft_slo_s, tpot_slo_s)


def with_prices(settings: RunSettings, path: Path, gpus: Iterable[str]) -> RunSettings:
    """The settings with the prices of a file."""
    return dataclasses.replace(settings, catalogue=catalogue_with_prices(path, settings.catalogue, gpus))


def catalogue_with_prices(path: Path, catalogue: Catalogue, gpus: Iterable[str]) -> Catalogue:
    """The catalogue with the prices of a TOML file, USD per GPU-hour by type; ConfigError for a bad one."""
    told = read_toml(path)
    for gpu, usd in told.items():
        require_known(gpu, catalogue.gpus, "gpu", path.name)
        is_number = isinstance(usd, int | float) and not isinstance(usd, bool)
        if not is_number or not 0 < usd < float("inf"):
            raise ConfigError(f"{path.name} {gpu}: got {usd!r}, needed USD per GPU-hour above 0. Mend it.")
    if lacking := [gpu for gpu in gpus if gpu not in told]:
        raise ConfigError(
            f"{path.name} has no price of {', '.join(lacking)}. Add it, or leave that type out of --gpus."
        )
    priced = {
        name: dataclasses.replace(gpu, usd_per_hour=float(told.get(name, gpu.usd_per_hour)))
        for name, gpu in catalogue.gpus.items()
    }
    return dataclasses.replace(catalogue, gpus=priced)


def build_rent_scenario(
    settings: RunSettings, day: date, asked: RentQuery, tokens_per_s: float | None = None
) -> RentScenario:
    """The world of a question; ConfigError where it names what is not known, ValueError without traffic.

    `tokens_per_s` of input is the load; None: the largest that is foreseen.
    """
    catalogue = settings.catalogue
    require_known(asked.llm, catalogue.llms, "llm", f"{settings.config.file.name} deploys")
    for gpu in (*asked.gpus, *asked.caps):
        require_known(gpu, catalogue.gpus, "gpu", "--gpus and --cap")
    for gpu in asked.gpus:
        if catalogue.gpus[gpu].usd_per_hour <= 0:
            raise ConfigError(f"{gpu} has no price above 0. Give one: --prices FILE, or gpus.toml.")
    mix = token_mixes(settings, day)[asked.llm]
    if tokens_per_s is None:
        method = settings.config.forecast.method
        _, quantile = read_forecast_windows(settings, day, method, "day_ahead_forecasts")
        tokens_per_s = float(quantile[:, list(catalogue.llms).index(asked.llm)].sum(axis=1).max())
    load = MeanRequest(float(mix.input_tokens.mean()), float(mix.output_tokens.mean()))
    if not tokens_per_s > 0:
        raise ValueError(
            f"No interactive traffic of {asked.llm} is foreseen on {day}: there is nothing to rent for. "
            "Name another --llm."
        )
    name = catalogue.strictest_tier(catalogue.tiers)
    assert name is not None  # check_tiers has seen to it
    tier = catalogue.tiers[name]
    tier = dataclasses.replace(
        tier,
        ttft_slo_s=asked.ttft_slo_s or tier.ttft_slo_s,
        tpot_slo_s=asked.tpot_slo_s or tier.tpot_slo_s,
    )
    pairs = [(gpu, tp) for gpu in asked.gpus for tp in TENSOR_PARALLEL]
    profiles = comparable_profiles(catalogue, asked.llm, pairs)
    own = dataclasses.replace(catalogue.serving([asked.llm]), latency=tuple(profiles.values()))
    fleet = dataclasses.replace(settings.config.fleet, max_batch=MAX_BATCH, prefix="none")
    config = dataclasses.replace(settings.config, fleet=fleet)
    return RentScenario(own, config, tier, name, mix, load, tokens_per_s / load.input_tokens)


def deployment_prices(setting: RentScenario) -> list[PhasePrice]:
    """The prices of a token on every deployment; ConfigError where none holds the llm and keeps the pace."""
    [llm] = setting.catalogue.llms
    found, reasons = [], dict[tuple[str, str], list[str]]()
    for profile in setting.catalogue.latency:
        degree = str(profile.tensor_parallel)
        try:
            kv_tokens = kv_capacity_tokens(
                setting.catalogue, setting.config.fleet, llm, profile.gpu, profile.tensor_parallel
            )
        except ConfigError:
            reasons.setdefault((profile.gpu, "too small"), []).append(degree)
            continue
        price = phase_costs.phase_price(
            profile,
            setting.catalogue.gpus[profile.gpu].usd_per_hour,
            setting.load,
            kv_tokens,
            setting.tier.tpot_slo_s,
            largest_batch(profile),
            setting.config.fleet.max_prefill_tokens,
        )
        if price is None:
            slow = profile.gpu, "too slow, or without room for a request"
            reasons.setdefault(slow, []).append(degree)
        else:
            sent_s = link_token_s(
                setting.catalogue, setting.config.fleet, llm, profile.gpu, profile.tensor_parallel
            )
            found.append(price._replace(link_token_s=sent_s))
    if not found:
        weight = setting.catalogue.llms[llm].weight_bytes / 2**30
        why = [f"{', '.join(degrees)} x {gpu} {reason}" for (gpu, reason), degrees in reasons.items()]
        raise ConfigError(
            f"No instance of these GPU types holds {llm} ({weight:,.0f} GiB of weights): "
            f"{'; '.join(why) or 'nothing is known of it there'}. Name others with --gpus."
        )
    return found


def largest_batch(profile: LatencyProfile) -> int:
    """Requests of a decode batch, as far as the profile reaches."""
    return min(MAX_BATCH, BATCH_REACH * profile.decode_batch[-1])


def describe_targets(tier: Tier) -> str:
    """The targets of a tier, in words."""
    told = [f"first token in {tier.ttft_slo_s:g} s"] if tier.ttft_slo_s else []
    told += [f"{1e3 * tier.tpot_slo_s:g} ms a token"] if tier.tpot_slo_s else []
    return ", ".join(told)
