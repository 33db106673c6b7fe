"""One llm on one GPU type, priced, and made traffic for it."""

import dataclasses
from functools import cache

import numpy as np
import pytest

from fleetcast.assets.studies import configure_answer
from fleetcast.models.configure import engine_points, fleet_trials, point_search
from fleetcast.models.configure.engine_points import EnginePoint
from fleetcast.models.configure.fleet_trials import TrafficWindow
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config

CATALOGUE = load_catalogue()
OFFICE = load_config("office", CATALOGUE)
pytest.importorskip("aiconfigurator_core", reason="without the package no engine is priced")
GPUS = ("h100-80gb",)


def window(requests: int, seconds: float, seed: int = 1) -> TrafficWindow:
    """Requests of two interactive tiers in bursts."""
    rng = np.random.default_rng(seed)
    arrival_s = np.sort(rng.uniform(0, seconds, requests) ** 1.1)
    zeros = np.zeros(requests, np.int16)
    trace = TraceArrays(
        arrival_s - arrival_s[0], zeros, zeros, (np.arange(requests) % 2).astype(np.int16),
        rng.integers(200, 4000, requests).astype(np.int32), rng.integers(1, 400, requests).astype(np.int32),
    )  # fmt: skip
    return TrafficWindow({"none": trace})


@cache
def priced(floor: str | None = None, backend: str = "vllm") -> engine_points.EngineMarket:
    """The market of one llm on one GPU type and one engine."""
    return engine_points.price_engines(CATALOGUE, "llama3.1-8b", GPUS, floor, OFFICE, 8000, [backend])


def traffic_of(
    arrival_s: np.ndarray, inputs: np.ndarray, outputs: np.ndarray, tier: int = 0
) -> TrafficWindow:
    """Requests of one tier; the cache of the prefix mode given has a part of every second prompt."""
    zeros = np.zeros(arrival_s.size, np.int16)
    trace = TraceArrays(
        np.sort(arrival_s - arrival_s.min()), zeros, zeros, zeros + np.int16(tier),
        inputs.astype(np.int32), outputs.astype(np.int32),
    )  # fmt: skip
    cached = np.where(np.arange(inputs.size) % 2, 0.9 * trace.input_tokens, 0).astype(np.int32)
    return TrafficWindow({"none": trace, "given": trace._replace(cached_tokens=cached)})


def fewest_by_counting(trials: point_search.FleetTrials, point: EnginePoint, most: int = 40) -> int | None:
    """The fewest instances that attain, by every count from one on."""
    return next((n for n in range(1, most) if trials.score(point, (n,)).is_attained), None)


def score_of(point: EnginePoint, *counts: int) -> fleet_trials.FleetScore:
    """A score that attains."""
    return fleet_trials.FleetScore(point, counts, 1.0, 1.0, {}, True, 0.0, {})


def with_tpot_target(
    market: engine_points.EngineMarket, tpot_slo_s: float | None
) -> engine_points.EngineMarket:
    """The market with a TPOT target of the strictest tier."""
    query = configure_answer.ConfigureQuery("llama3.1-8b", GPUS, tpot_slo_s=tpot_slo_s)
    tiers = configure_answer.with_targets(CATALOGUE, query).tiers
    return market._replace(
        catalogues={
            variant: dataclasses.replace(catalogue, tiers=tiers)
            for variant, catalogue in market.catalogues.items()
        }
    )
