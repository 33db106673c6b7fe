"""Replay a benchmark's load on fleets from the command line: equal requests, by clients or at a rate.

The figures are those of vllm bench serve: percentiles over all requests, the first ones included, and
throughput from the first request sent to the last one ended. The engine is vLLM's: prompts in chunks, a step
scheduled while the one before it runs, first come, first served.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fleetcast.assets.studies.try_fleet import TryPool, parse_fleet
from fleetcast.models.latency.batch_extension import extend_profile
from fleetcast.models.metrics import tpot_s
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.trials.capacity import fixed_fleet
from fleetcast.models.trials.client_load import SentRequests, check_client_load, replay_equal_requests
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known

CLIENT_REQUESTS, LEAST_LOAD_REQUESTS = 16, 100  # requests of a trial without --requests: per client, in all
LOAD_GPU = "h100-80gb"  # of the fleet of a trial without --fleet
MAX_COUNT = 1_000_000  # tokens of a request, tokens of a step, requests, requests/s
LEAST_RATE_PER_S = 1e-3
LOAD_PERCENTILES = (50, 90, 99)


class TryLoad(NamedTuple):
    """A benchmark: equal requests for an llm, for each concurrency or each rate a trial."""

    llm: str
    input_tokens: int
    output_tokens: int
    concurrency: Sequence[int] = ()
    rate_per_s: Sequence[float] = ()
    requests: int | None = None  # None: CLIENT_REQUESTS per client, at least LEAST_LOAD_REQUESTS
    max_batch: int = 256
    max_prefill_tokens: int = 2048

    def trials(self) -> Iterator[tuple[str, int | None, float, int]]:
        """Yield each trial's name, clients (None: at a rate), rate (0: in a loop) and number of requests."""
        for clients in self.concurrency:
            requests = self.requests or max(LEAST_LOAD_REQUESTS, CLIENT_REQUESTS * clients)
            yield f"{clients:,} at once", clients, 0.0, requests
        for rate_per_s in self.rate_per_s:
            requests = self.requests or LEAST_LOAD_REQUESTS * CLIENT_REQUESTS
            yield f"{rate_per_s:g}/s", None, rate_per_s, requests


class LoadTrialResult(NamedTuple):
    """A trial of a fleet under a load."""

    fleet: str
    load: str
    row: dict[str, float]  # metrics by name


def check_load(load: TryLoad, catalogue: Catalogue) -> None:
    """Raise ConfigError for a load that contradicts itself or that no benchmark can have."""
    require_known(load.llm, catalogue.llms, "llm", "fleetcast try")
    if load.concurrency and load.rate_per_s:
        raise ConfigError(
            "--concurrency and --rate are both given: a benchmark sends requests in a closed loop or at a "
            "rate. Drop one."
        )
    for option, value, (least, most) in (
        ("--input", load.input_tokens, (1, MAX_COUNT)),
        ("--output", load.output_tokens, (1, MAX_COUNT)),
        ("--requests", load.requests, (1, MAX_COUNT)),
        ("--max-batch", load.max_batch, (1, 4096)),
        ("--max-prefill-tokens", load.max_prefill_tokens, (2, MAX_COUNT)),
    ):
        if value is not None and not least <= value <= most:
            raise ConfigError(f"{option} is {value:,}, must be from {least} to {most:,}. Change it.")
    for _, clients, rate_per_s, requests in load.trials():
        if clients is not None:
            check_client_load(clients, requests)
        elif not LEAST_RATE_PER_S <= rate_per_s <= MAX_COUNT:
            raise ConfigError(
                f"--rate is {rate_per_s:g} requests/s, must be from {LEAST_RATE_PER_S:g} to {MAX_COUNT:,}. "
                "Change it."
            )


def parse_load_fleets(
    load: TryLoad, texts: Sequence[str], catalogue: Catalogue, config: RunConfig
) -> dict[str, TryPool]:
    """Return the pool of each fleet by its text; ConfigError for a fleet that has another llm."""
    pools = {}
    for text in texts or (f"1 x {load.llm}@{LOAD_GPU}",):
        parsed = parse_fleet(text, catalogue, config)
        if [pool.llm for pool in parsed] != [load.llm]:
            raise ConfigError(
                f"--fleet {text!r} has {', '.join(pool.llm for pool in parsed)}, the load is for {load.llm}. "
                "Give it one pool of this llm."
            )
        pools[text] = parsed[0]
    return pools


def run_load_trials(
    load: TryLoad, text: str, pool: TryPool, catalogue: Catalogue, config: RunConfig
) -> Iterator[LoadTrialResult]:
    """Replay each trial of a load on a fleet; ValueError if a request does not fit on an instance."""
    config = vllm_engine_config(load, config)
    profile = catalogue.profile(pool.llm, pool.deployment.gpu, pool.deployment.tensor_parallel)
    extended = extend_profile(catalogue, profile, config.fleet.max_batch)
    only = dataclasses.replace(catalogue.serving([pool.llm]), latency=(extended,))
    fleet = fixed_fleet({pool.llm: [(pool.deployment, pool.instances)]}, only, config)
    rules = make_rules(only, config.replay, "follow")
    for name, clients, rate_per_s, requests in load.trials():
        lengths = load.input_tokens, load.output_tokens
        sent = replay_equal_requests(clients, rate_per_s, requests, lengths, fleet, rules)
        yield LoadTrialResult(text, name, load_row(sent, pool.instances * pool.deployment.gpus))


def vllm_engine_config(load: TryLoad, config: RunConfig) -> RunConfig:
    """Return the config with vLLM's engine. A batch has no more places than the load can fill."""
    most = max([load.max_batch] if load.rate_per_s else [min(load.max_batch, max(load.concurrency))])
    fleet = dataclasses.replace(
        config.fleet,
        batching="chunked",
        async_scheduling=True,
        max_batch=most,
        max_prefill_tokens=load.max_prefill_tokens,
        prefix="none",
    )
    replay = dataclasses.replace(config.replay, order="fcfs", is_balanced=False, cascades={})
    return dataclasses.replace(config, fleet=fleet, replay=replay)


def load_row(sent: SentRequests, gpus: int) -> dict[str, float]:
    """Return percentiles in s, throughput, and requests at once in the mean, by name."""
    duration_s = float((sent.sent_s + sent.e2e_s).max())
    decode_s, later = (sent.e2e_s - sent.ttft_s).sum(), (sent.output_tokens - 1).sum()
    times = {
        "ttft": sent.ttft_s,
        "tpot": tpot_s(sent.ttft_s, sent.e2e_s, sent.output_tokens),
        "e2e": sent.e2e_s,
    }
    output_per_s = float(sent.output_tokens.sum()) / duration_s
    return {
        "requests": float(sent.sent_s.size),
        "duration_s": duration_s,
        "requests_per_s": sent.sent_s.size / duration_s,
        "output_tokens_per_s": output_per_s,
        "output_tokens_per_s_gpu": output_per_s / gpus,
        "gpus": float(gpus),
        "mean_concurrency": float(sent.e2e_s.sum()) / duration_s,
        "itl_mean_s": float(decode_s / later) if later else np.nan,
        **{
            f"{name}_p{level}_s": float(np.quantile(seconds, level / 100))
            for name, seconds in times.items()
            for level in LOAD_PERCENTILES
        },
    }
