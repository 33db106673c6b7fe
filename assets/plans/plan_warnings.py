"""Say before a day is planned which SLO targets no number of instances keeps, and which llms stand idle."""

import math
import warnings
from datetime import date

import numpy as np

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.plans.problems import minimum_usd_by_llm
from fleetcast.assets.plans.request_mixes import RequestMix, token_mixes
from fleetcast.models.trials.capacity import measure_idle_share
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.pool_pairing import partner_pool
from fleetcast.models.world.toml_dataclasses import ConfigWarning


def warn_before_plan(settings: RunSettings, day: date) -> None:
    """Warn of targets that are missed whatever the plan, and of the cost of llms without requests."""
    warn_of_missed_idle_targets(settings, day)
    warn_of_unrequested_llms(settings, day)


def warn_of_unrequested_llms(settings: RunSettings, day: date) -> None:
    """Warn of each llm that no request before `day` names, if its minimum of instances costs something."""
    query = "select distinct llm from demand where trace = $trace and day < $day"
    requested = settings.lake.sql(query, trace=settings.trace, day=day)["llm"].to_pylist()
    usd_by_llm = minimum_usd_by_llm(settings)
    served = settings.serving_load(np.isin(list(usd_by_llm), requested).astype(float), axis=0)
    for (llm, usd), load in zip(usd_by_llm.items(), served, strict=True):
        if requested and not load and usd > 0:
            warnings.warn(
                f"{settings.config.file.name}: no request so far names {llm}, and its minimum "
                f"of instances costs {usd:,.0f} USD a day. If you do not need it, leave it out of "
                "[fleet.deployments].",
                ConfigWarning,
                stacklevel=2,
            )


def warn_of_missed_idle_targets(settings: RunSettings, day: date) -> None:
    """Warn of each deployment that misses the target of a tier even where each request is alone on it.

    A plan counts such a deployment as if that share were the target (models/trials/capacity.py). Llms in a
    cascade are left out, its judge too, since a target is for all its stages together.
    """
    cascades = settings.config.replay.cascades
    staged = {llm for cascade in cascades.values() for llm in (*cascade.llms, cascade.judge_llm)}
    for llm, mix in token_mixes(settings, day).items():
        for pool in () if llm in staged else settings.config.fleet.deployments[llm]:
            for tier in settings.catalogue.interactive_tiers:
                warn_of_missed_idle_target(settings, llm, pool, mix, tier)


def warn_of_missed_idle_target(
    settings: RunSettings, llm: str, pool: Deployment, mix: RequestMix, name: str
) -> None:
    """Warn if too few of a tier's requests are in time where each is alone on an instance of the pool."""
    tier, of_tier = settings.catalogue.tiers[name], np.flatnonzero(mix.tier_names == name)
    if not of_tier.size:
        return
    share = measure_idle_share(
        llm,
        pool,
        settings.catalogue,
        settings.config,
        tier,
        mix.input_tokens[of_tier],
        mix.output_tokens[of_tier],
        partner_pool(settings.config.fleet, llm, pool),
        None if mix.cached_tokens is None else mix.cached_tokens[of_tier],
    )
    if share < tier.attainment_target_share:
        phase = "" if pool.role == "whole" else f" ({pool.role})"
        warnings.warn(
            f"{settings.config.file.name}: {llm} on {pool.gpus} x {pool.gpu}{phase} serves only "
            f"{math.floor(100 * share)} % of the {name} requests in time even where each is alone on an "
            f"instance; the target is {100 * tier.attainment_target_share:g} %. More instances do not mend "
            "that: give it faster GPUs, or loosen the tier in tiers.toml.",
            ConfigWarning,
            stacklevel=2,
        )
