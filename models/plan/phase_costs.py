"""Cost of a token by phase and GPU type, and an upper bound of the saving by disaggregating the phases.

The formulas follow Cauchy (SoCC '25), section 3.2, with two corrections. Its (14) adds the tokens that a USD
prefills and the tokens that a USD decodes. But a request needs both phases: its costs add, not its
efficiencies. And engines do not reach the peak FLOPs: u comes from the latency profiles. A request has R_in
and R_out tokens; a GPU costs p USD per hour, an instance has n GPUs.

    u_p, u_d        = USD per token of an instance that runs one phase for s seconds: n p s / tokens
    usd_per_request = R_in u_p + R_out u_d            CE = (R_in + R_out) / usd_per_request
    saving          <= 1 - (R_in min u_p + R_out min u_d) / min (R_in u_p + R_out u_d)

The minima are over deployments: GPU types at each tensor-parallel degree. If one deployment is the cheapest
in both phases, the bound is 0, and disaggregation can only improve latency. A GPU type is the cheapest in
prefill below one price and in decode below another (`price_crossovers`): between them disaggregation saves.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fleetcast.models.latency.profile_tables import interpolate_knots, profile_prefill_s
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.catalogue_entries import LatencyProfile
from fleetcast.models.world.fleet_config import Deployment


class MeanRequest(NamedTuple):
    """Lengths of the mean request."""

    input_tokens: float  # R_in
    output_tokens: float  # R_out

    @property
    def cached_tokens(self) -> float:
        """KV tokens in its cache, in the mean of its decode steps."""
        return self.input_tokens + self.output_tokens / 2


class PhasePrice(NamedTuple):
    """Cost of a token of each phase on an instance that runs only this phase."""

    gpu: str
    gpus: int  # of the instance
    usd_per_hour: float  # of the instance
    usd_per_input_token: float
    usd_per_output_token: float
    batch: int  # decode batch of the least cost within memory and the TPOT target
    tpot_s: float  # of a decode step of this batch
    link_token_s: float = 0.0  # seconds to send or receive the KV cache of one token; 0: no link
    engine_pool: Deployment | None = None  # the deployment of a named engine; None: the llm in its own bits

    @property
    def gpu_title(self) -> str:
        """GPU type, with the engine if it has a name."""
        return self.gpu if self.engine_pool is None else self.engine_pool.gpu_title

    def usd_per_request(self, load: MeanRequest) -> float:
        """Return USD of a request that runs both phases here."""
        return load.input_tokens * self.usd_per_input_token + load.output_tokens * self.usd_per_output_token


def phase_price(
    profile: LatencyProfile,
    usd_per_gpu_hour: float,
    load: MeanRequest,
    kv_tokens: int,
    tpot_slo_s: float | None,
    max_batch: int,
    max_prefill_tokens: int,
    fixed_tokens: int = 0,
) -> PhasePrice | None:
    """Return the prices of a deployment's phases; None where no batch fits memory and the TPOT target.

    A prefill step takes as many prompts as fit into `max_prefill_tokens`. The decode batch is the one of the
    least cost among those whose caches fit into `kv_tokens`, in the mean of their decode steps, with
    `fixed_tokens` more of each, and whose step keeps `tpot_slo_s`.
    """
    prompts = max(1, int(max_prefill_tokens / load.input_tokens))
    tokens = prompts * load.input_tokens
    fits = [
        (batch, step)
        for batch in range(1, min(max_batch, int(kv_tokens / (load.cached_tokens + fixed_tokens))) + 1)
        if (step := mean_decode_step_s(profile, load, batch)) <= (tpot_slo_s or float("inf"))
    ]
    if not fits:
        return None
    batch, step = min(fits, key=lambda fit: fit[1] / fit[0])
    usd_per_s = usd_per_gpu_hour * profile.tensor_parallel / HOUR_S
    return PhasePrice(
        profile.gpu,
        profile.tensor_parallel,
        usd_per_s * HOUR_S,
        usd_per_s * float(profile_prefill_s(profile, tokens)) / tokens,
        usd_per_s * step / batch,
        batch,
        step,
    )


def mean_decode_step_s(profile: LatencyProfile, load: MeanRequest, batch: int) -> float:
    """Return seconds of a decode step of a batch, with the mean cache of its requests."""
    uncached_s = float(interpolate_knots(batch, profile.decode_batch, profile.decode_s))
    return uncached_s + profile.decode_per_kv_token_s * batch * load.cached_tokens


def cheapest_price_per_gpu(prices: Iterable[PhasePrice], load: MeanRequest) -> list[PhasePrice]:
    """Return each GPU type's deployment of the least USD per request, GPU types in order of appearance."""
    best: dict[str, PhasePrice] = {}
    for price in prices:
        known = best.get(price.gpu)
        if known is None or price.usd_per_request(load) < known.usd_per_request(load):
            best[price.gpu] = price
    return list(best.values())


def disaggregated_request_usd(prefill: PhasePrice, decode: PhasePrice, load: MeanRequest) -> float:
    """Return USD of a request that is prefilled on one instance and decoded on another."""
    return load.input_tokens * prefill.usd_per_input_token + load.output_tokens * decode.usd_per_output_token


class SavingBound(NamedTuple):
    """Upper bound of the saving by disaggregation, and the deployments that reach it."""

    together: PhasePrice  # of the least USD per request with both phases
    prefill: PhasePrice  # cheapest in prefill
    decode: PhasePrice  # cheapest in decode
    saving_share: float  # of the cost of `together`


def saving_bound(prices: Sequence[PhasePrice], load: MeanRequest) -> SavingBound:
    """Return the bound of this file's docstring; ValueError without any price."""
    if not prices:
        raise ValueError(
            "No GPU type can run the llm within its TPOT target. Loosen the target, or add a larger GPU."
        )
    together = min(prices, key=lambda price: price.usd_per_request(load))
    prefill = min(prices, key=lambda price: price.usd_per_input_token)
    decode = min(prices, key=lambda price: price.usd_per_output_token)
    apart = disaggregated_request_usd(prefill, decode, load)
    return SavingBound(together, prefill, decode, max(0.0, 1 - apart / together.usd_per_request(load)))


class PriceCrossover(NamedTuple):
    """USD per GPU-hour below which a GPU type is the cheapest in each phase, at constant other prices."""

    gpu: str
    prefill_usd: float
    decode_usd: float

    @property
    def between(self) -> tuple[float, float]:
        """The price range in which it is the cheapest in one phase only: disaggregation saves there."""
        return min(self[1:]), max(self[1:])


def price_crossovers(prices: Sequence[PhasePrice]) -> list[PriceCrossover]:
    """Return for each GPU type the prices below which it is the cheapest; empty for a single GPU type."""
    found = []
    for gpu in dict.fromkeys(price.gpu for price in prices):
        of_gpu = [price for price in prices if price.gpu == gpu]
        others = [price for price in prices if price.gpu != gpu]
        if others:
            by_phase = [
                min(getattr(price, phase) for price in others)
                * max(price.usd_per_hour / price.gpus / getattr(price, phase) for price in of_gpu)
                for phase in ("usd_per_input_token", "usd_per_output_token")
            ]
            found.append(PriceCrossover(gpu, *by_phase))
    return found
