"""Capacity of one instance of each option, measured on the requests that the day's plans know."""

import hashlib
from datetime import date

import numpy as np

from fleetcast.assets.lake.settings import Progress, RunSettings, StepCounter, run_parallel
from fleetcast.assets.plans.request_mixes import token_mixes
from fleetcast.models.aliases import Floats
from fleetcast.models.replay.session import background_compile
from fleetcast.models.trials.capacity import INSTANCES, measure_capacity_tokens_per_s
from fleetcast.models.world.plan_grid import ServiceOption
from fleetcast.models.world.pool_pairing import partner_pool

SMALL_POOLS = (1, 2)  # instances
MEASURED_SIZES: dict[str, list[Floats]] = {}  # capacities with SMALL_POOLS, by what they depend on


def measure_capacities(
    settings: RunSettings, day: date, progress: Progress, instances: int = INSTANCES
) -> list[float]:
    """Measure the capacity of one instance of each service option within its SLO, input tokens/s.

    It is measured with so many `instances`, on the requests of the last day before `day` that has any.
    """
    mixes, config, options = token_mixes(settings, day), settings.config, settings.grid.service_options
    if background_compile.is_compiling():
        with progress.bar("compile the replay, once", 0) as passed:
            background_compile.wait_for_compilation(passed)
    with progress.replay_bar("measure capacity", len(options)) as done:
        counter = StepCounter(done)

        def measure(kind: ServiceOption) -> float:
            pools = config.fleet.deployments[kind.llm]
            pool = next(pool for pool in pools if settings.grid.option_of(kind.llm, pool) == kind)
            mix = mixes[kind.llm]
            capacity = measure_capacity_tokens_per_s(
                kind.llm,
                pool,
                settings.catalogue.with_tiers(mix.tiers),
                config,
                mix.input_tokens,
                mix.output_tokens,
                partner_pool(config.fleet, kind.llm, pool),
                mix.cached_tokens,
                instances,
            )
            counter.count_step()
            return capacity * mix.prompt_token_ratio

        return run_parallel(measure, options)


def measure_small_pools(settings: RunSettings, day: date) -> list[Floats]:
    """Measure the capacity of an instance alone, and of one of two, each (service options,) tokens/s.

    It is measured once for the same requests, fleet and mechanisms.
    """
    key = capacity_key(settings, day)
    if key not in MEASURED_SIZES:
        MEASURED_SIZES[key] = [
            np.array(measure_capacities(settings, day, Progress(), count)) for count in SMALL_POOLS
        ]
    return MEASURED_SIZES[key]


def capacity_key(settings: RunSettings, day: date) -> str:
    """Return a digest of what the capacities depend on."""
    config = settings.config
    of_trials = (config.fleet, config.replay, config.plan.capacity, settings.catalogue)
    digest = hashlib.sha256(repr(of_trials).encode())
    for llm, mix in sorted(token_mixes(settings, day).items()):
        digest.update(llm.encode())
        for tokens in (mix.input_tokens, mix.output_tokens, mix.cached_tokens):
            digest.update(b"" if tokens is None else tokens.tobytes())
    return digest.hexdigest()
