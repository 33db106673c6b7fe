"""What a token costs by phase and GPU type, and what it can save at most to part the phases.

After Cauchy (SoCC '25), section 3.2, put right in two things. Its (14) adds what a USD prefills and what a
USD decodes, although a request needs both: its costs add, not its efficiencies. And peaks are not reached: u
is what profiles take. A request has R_in and R_out tokens; a GPU costs p USD an hour, an instance has n.

    u_p, u_d        = USD per token of an instance busy with one phase: n p s / tokens
    usd_per_request = R_in u_p + R_out u_d            CE = (R_in + R_out) / usd_per_request
    saving          <= 1 - (R_in min u_p + R_out min u_d) / min (R_in u_p + R_out u_d)

The minima are over deployments: GPU types at each tensor-parallel degree. Whoever is cheapest in both phases
makes the bound nothing: parting them is then of use to latency alone. A GPU type is cheapest in prefill below
one price and in decode below another (`turns`): between them it pays to part.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fleetcast.models.latency.profile_tables import interpolate_knots, profile_prefill_s
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.catalogue_entries import LatencyProfile


class MeanRequest(NamedTuple):
    """The mean request."""

    input_tokens: float  # R_in
    output_tokens: float  # R_out

    @property
    def cached_tokens(self) -> float:
        """What it has cached in the mean of its decode steps."""
        return self.input_tokens + self.output_tokens / 2


class PhasePrice(NamedTuple):
    """What a token costs on an instance of so many GPUs that does nothing but its phase."""

    gpu: str
    gpus: int
    usd_per_hour: float  # of the instance
    usd_per_input_token: float
    usd_per_output_token: float
    batch: int  # of its decode: the largest within memory and the pace wanted
    tpot_s: float
    link_token_s: float = 0.0  # in which it hands on or takes one token's cache; 0: it has no link

    def usd_per_request(self, load: MeanRequest) -> float:
        """USD of a request whose phases both run here."""
        return load.input_tokens * self.usd_per_input_token + load.output_tokens * self.usd_per_output_token


def phase_price(
    profile: LatencyProfile,
    usd_per_gpu_hour: float,
    load: MeanRequest,
    kv_tokens: int,
    tpot_slo_s: float | None,
    max_batch: int,
    max_prefill_tokens: int,
) -> PhasePrice | None:
    """The prices of a deployment's phases; None where no request fits, or none keeps the pace wanted.

    Prompts are prefilled as many together as a step takes. The decode batch is the largest whose caches fit
    into `kv_tokens`, in the mean of their lives, and whose step keeps `tpot_slo_s`.
    """
    together = max(1, int(max_prefill_tokens / load.input_tokens))
    tokens = together * load.input_tokens
    fits = [
        (batch, step)
        for batch in range(1, min(max_batch, int(kv_tokens / load.cached_tokens)) + 1)
        if (step := mean_decode_step_s(profile, load, batch)) <= (tpot_slo_s or float("inf"))
    ]
    if not fits:
        return None
    batch, step = min(fits, key=lambda one: one[1] / one[0])
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
    """Seconds of a decode step of so many requests, in the mean of their lives."""
    alone = float(interpolate_knots(batch, profile.decode_batch, profile.decode_s))
    return alone + profile.decode_per_kv_token_s * batch * load.cached_tokens


def cheapest_price_per_gpu(prices: Iterable[PhasePrice], load: MeanRequest) -> list[PhasePrice]:
    """Of the deployments on each GPU type the one on which a whole request costs least, in their order."""
    best: dict[str, PhasePrice] = {}
    for price in prices:
        known = best.get(price.gpu)
        if known is None or price.usd_per_request(load) < known.usd_per_request(load):
            best[price.gpu] = price
    return list(best.values())


def disaggregated_request_usd(prefill: PhasePrice, decode: PhasePrice, load: MeanRequest) -> float:
    """USD of a request that is prefilled on one instance and decoded on another."""
    return load.input_tokens * prefill.usd_per_input_token + load.output_tokens * decode.usd_per_output_token


class SavingBound(NamedTuple):
    """What parting the phases saves at most, and between whom."""

    together: PhasePrice  # where a whole request costs least
    prefill: PhasePrice
    decode: PhasePrice
    saving_share: float  # of the cost of `together`


def saving_bound(prices: Sequence[PhasePrice], load: MeanRequest) -> SavingBound:
    """The bound of this file's docstring; ValueError where there is no price."""
    if not prices:
        raise ValueError("No GPU type can hold the llm at the pace wanted. Loosen it, or add a larger GPU.")
    together = min(prices, key=lambda price: price.usd_per_request(load))
    prefill = min(prices, key=lambda price: price.usd_per_input_token)
    decode = min(prices, key=lambda price: price.usd_per_output_token)
    apart = disaggregated_request_usd(prefill, decode, load)
    return SavingBound(together, prefill, decode, max(0.0, 1 - apart / together.usd_per_request(load)))


class PriceCrossover(NamedTuple):
    """Below which USD per GPU-hour a GPU type is the cheapest of all in a phase; the others' prices stay."""

    gpu: str
    prefill_usd: float
    decode_usd: float

    @property
    def between(self) -> tuple[float, float]:
        """The prices between which it is cheapest in one phase only, so that parting the phases pays."""
        return min(self[1:]), max(self[1:])


def price_crossovers(prices: Sequence[PhasePrice]) -> list[PriceCrossover]:
    """For each GPU type, the prices at which it takes over a phase; none where it stands alone."""
    found = []
    for gpu in dict.fromkeys(price.gpu for price in prices):
        own = [price for price in prices if price.gpu == gpu]
        rest = [price for price in prices if price.gpu != gpu]
        if rest:
            of_phases = [
                min(getattr(price, phase) for price in rest)
                * max(price.usd_per_hour / price.gpus / getattr(price, phase) for price in own)
                for phase in ("usd_per_input_token", "usd_per_output_token")
            ]
            found.append(PriceCrossover(gpu, *of_phases))
    return found
