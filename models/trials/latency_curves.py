"""Latency curves of a replica: P95 latency by load, as input of the plans for quality.

A shape is a possible replica: an llm on a number of GPUs of one type, in a number of pipeline stages. Its
curve is the P95 from arrival to last token, of Poisson arrivals with the lengths of a mix, at fractions of
its saturation rate. All curves use the same random numbers, so differences are not due to sampling. Loads
above the last fraction count as too high: there a percentile depends on the length of the trace.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.latency.pipeline_stages import deployment_profile
from fleetcast.models.latency.roofline import roofline_profile
from fleetcast.models.replay.session.trace_rows import single_tier_trace
from fleetcast.models.trials.capacity import LoadTrial, flood_endpoint, trial_fleet, trial_rules
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.instance_kv_memory import longest_request_tokens
from fleetcast.models.world.toml_dataclasses import ConfigError

CURVE_REQUESTS = 8_000  # per load
WARM_UP_REQUESTS = CURVE_REQUESTS // 4  # at the start, while the replica fills
LOAD_SHARES = (0.02, 0.15, 0.3, 0.45, 0.55, 0.63, 0.69, 0.74, 0.78)  # of the saturation rate
CURVE_SEED = 0x9E4F


class ReplicaShape(NamedTuple):
    """A possible replica of an llm."""

    llm: str
    gpu: str
    tensor_parallel: int
    pipeline_parallel: int

    @property
    def gpus(self) -> int:
        """GPUs of a replica."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def deployment(self) -> Deployment:
        """The shape as a deployment of a config."""
        return Deployment(self.gpu, self.tensor_parallel, pipeline_parallel=self.pipeline_parallel)

    def __str__(self) -> str:
        """Return it as `fleetcast try` reads it, like llama3.1-70b@4xh100-80gb, plus its pipeline stages."""
        stages = f" in {self.pipeline_parallel} stages" if self.pipeline_parallel > 1 else ""
        return f"{self.llm}@{self.gpus}x{self.gpu}{stages}"


class LengthMix(NamedTuple):
    """Lengths of an llm's requests."""

    input_tokens: Ints  # (N,) tokens
    output_tokens: Ints  # (N,) tokens


class LatencyCurve(NamedTuple):
    """Latency from arrival to last token by load; both columns rise."""

    load_per_s: Floats  # (K,) requests/s of one replica
    p95_s: Floats  # (K,) seconds


def feasible_shapes(
    llms: Iterable[str],
    gpus: Iterable[str],
    catalogue: Catalogue,
    config: RunConfig,
    longest_tokens: int,
    tensor_parallel: Sequence[int] = (1, 2, 4, 8),
    pipeline_parallel: Sequence[int] = (1, 2),
) -> list[ReplicaShape]:
    """Return all shapes that can hold the weights and the longest request.

    Pipeline stages need a known link. ConfigError for an llm without any such shape.
    """
    shapes = []
    for llm in llms:
        feasible = [
            shape
            for gpu in gpus
            for pp in pipeline_parallel
            for tp in tensor_parallel
            if (shape := ReplicaShape(llm, gpu, tp, pp))
            and is_feasible_shape(shape, catalogue, config, longest_tokens)
        ]
        if not feasible:
            raise ConfigError(
                f"{llm} and a request of {longest_tokens:,} tokens fit on none of {', '.join(gpus)} at these "
                "tensor_parallel degrees. Name larger GPUs, or more of them."
            )
        shapes += feasible
    return shapes


def is_feasible_shape(
    shape: ReplicaShape, catalogue: Catalogue, config: RunConfig, longest_tokens: int
) -> bool:
    """Return whether the shape has enough memory, divisible KV heads, and known links."""
    llm, gpu = catalogue.llms[shape.llm], catalogue.gpus[shape.gpu]
    if llm.kv_heads % shape.tensor_parallel or (shape.tensor_parallel > 1 and gpu.peer_gb_per_s is None):
        return False
    if shape.pipeline_parallel > 1 and (gpu.link_gbit_per_s is None or llm.hidden is None):
        return False
    try:
        room = longest_request_tokens(
            catalogue, config.fleet, shape.llm, shape.gpu, shape.gpus, shape.pipeline_parallel
        )
    except ConfigError:
        return False
    return room >= longest_tokens


def add_roofline_profiles(catalogue: Catalogue, shapes: Iterable[ReplicaShape]) -> Catalogue:
    """Return the catalogue with a roofline profile for each shape without a measured one."""
    known = {(p.llm, p.gpu, p.tensor_parallel) for p in catalogue.latency}
    missing = {(s.llm, s.gpu, s.tensor_parallel) for s in shapes} - known
    estimated = [roofline_profile(catalogue, *each) for each in sorted(missing)]
    return dataclasses.replace(catalogue, latency=(*catalogue.latency, *estimated))


def measure_latency_curve(
    shape: ReplicaShape, mix: LengthMix, catalogue: Catalogue, config: RunConfig
) -> LatencyCurve:
    """Measure the P95 of one replica by load; ValueError for an empty mix."""
    if not mix.input_tokens.size:
        raise ValueError(f"No request of {shape.llm} to measure {shape} with. Give some history.")
    deployment_profile(catalogue, *shape)
    rng = np.random.default_rng(CURVE_SEED)
    picks = (rng.random(CURVE_REQUESTS) * mix.input_tokens.size).astype(np.int64)
    gaps = rng.exponential(1.0, CURVE_REQUESTS)
    sample = single_tier_trace(np.cumsum(gaps), *(column[picks] for column in mix))
    fleet = trial_fleet(shape.llm, shape.deployment, catalogue, config, instances=1)
    trial = LoadTrial(sample, fleet, trial_rules(shape.llm, catalogue, config))
    requests, seconds = flood_endpoint(trial, shape.llm)
    load_per_s = np.array(LOAD_SHARES) * (requests.size / seconds)  # that end while others always wait
    return LatencyCurve(
        load_per_s, np.maximum.accumulate([p95_latency_s(trial, load) for load in load_per_s])
    )


def p95_latency_s(trial: LoadTrial, load_per_s: float) -> float:
    """Return the P95 seconds from arrival to last token at this rate; inf: more than 5 % never end."""
    trace, outcome = trial.replay_at_rate(load_per_s)
    e2e_s = (outcome.finish_s - trace.arrival_s)[WARM_UP_REQUESTS:]
    return float(np.quantile(np.where(np.isnan(e2e_s), np.inf, e2e_s), 0.95, method="higher"))
