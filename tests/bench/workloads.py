"""What the replay is measured on: one endpoint, and a week of office traffic over the whole fleet."""

import dataclasses
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from fleetcast.models.replay.kernel_inputs import FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.traffic.synthetic_days import office_day, weekly_shape
from fleetcast.models.traffic.trace_columns import DayColumns, TraceNames
from fleetcast.models.trials.capacity import trial_fleet
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.config_loading import load_config

INPUT_TOKENS, OUTPUT_TOKENS = 1097, 300  # means
INPUT_SIGMA, OUTPUT_SIGMA = 0.53, 0.80  # of the logarithms, as in data/config/office.toml
LLM = "llama2-70b"
INSTANCES = 60
DAY_S, HOUR_S = 86_400.0, 3600.0


def setting() -> tuple[Catalogue, RunConfig]:
    """What the shipped catalogue has of the default run, and that run."""
    catalogue = load_catalogue().of_era("2023", "here")
    config = load_config("sageserve", catalogue)
    return catalogue.serving(config.fleet.deployments), config


def endpoint_fleet(instances: int, llm: str = LLM, **changes: Any) -> FleetArrays:
    """One endpoint whose instances all serve, always; `changes` are those to the [fleet] table."""
    catalogue, config = setting()
    changed = dataclasses.replace(config, fleet=dataclasses.replace(config.fleet, **changes))
    return trial_fleet(llm, *config.fleet.deployments[llm], catalogue, changed, instances)


def endpoint_trace(requests: int, requests_per_s: float, output_tokens: float = OUTPUT_TOKENS) -> TraceArrays:
    """Poisson arrivals of iw_fast requests with lognormal tokens."""
    rng = np.random.default_rng(1)
    arrival_s = np.cumsum(rng.exponential(1 / requests_per_s, requests))
    zero_ids = np.zeros(requests, np.int16)

    def tokens(mean: float, sigma: float) -> np.ndarray:
        return np.maximum(rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, requests), 1).astype(np.int32)

    inputs, outputs = tokens(INPUT_TOKENS, INPUT_SIGMA), tokens(output_tokens, OUTPUT_SIGMA)
    return TraceArrays(arrival_s, zero_ids, zero_ids, zero_ids, inputs, outputs)


def play_endpoint(trace: TraceArrays, fleet: FleetArrays, rules: Rules) -> Outcome:
    """Replay at an endpoint that does not scale."""
    until_s = float(trace.arrival_s[-1]) + 1.0
    return replay_trace(
        trace, fleet, Schedule(np.full((1, 1), fleet.pool.size), hour_s=until_s), rules, until_s
    )


def office_week(requests: int) -> Iterator[DayColumns]:
    """The seven days of a week that is expected to have so many office requests."""
    catalogue, config = setting()
    office = config.trace.office
    if office is None:
        raise ValueError("data/config/office.toml has no [trace.office]; put it back.")
    on_weekdays = sum(tier.share * weekly_shape(tier)[:5].sum() for tier in office.tiers.values())
    params = dataclasses.replace(office, requests_per_day=requests * on_weekdays / 5)
    names = TraceNames.of(catalogue)
    for n in range(7):
        yield office_day(params, config.trace.first_day + timedelta(days=n), config.trace.seed, names)


def to_trace(days: Sequence[DayColumns]) -> TraceArrays:
    """Days of requests as one trace."""
    arrival_s = np.concatenate([DAY_S * n + day.arrived_us / 1e6 for n, day in enumerate(days)])
    names = ("region", "llm", "tier", "input_tokens", "output_tokens")
    return TraceArrays(arrival_s, *(np.concatenate([getattr(day, name) for day in days]) for name in names))
