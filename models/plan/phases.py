"""What a token costs by phase and GPU type, and what it can save at most to part the phases.

Cauchy (SoCC '25), section 3.2. An llm has l layers of width h, an inner width i, a vocabulary v, k heads
that keep keys and values of s numbers, d bytes each; a request has R_in and R_out tokens, a batch B requests.
A GPU does f FLOP/s, reads b bytes/s and costs p USD an hour; an instance has n of them.

    (1, 2)    C1 = 4lh                 C2 = 8lh^2 + 6lhi                   FLOP of a token: in pairs, alone
    (6, 7)    C3 = d(2vh + (4h^2 + 3hi + 2h)l)        C4 = 2dlks           bytes: weights, cache of a token
    (3, 4)    prefill_s = B (C1 R_in^2 + C2 R_in) / (n f)
    (8)       bytes = sum of C3 + B C4 (R_in + j) over the steps j = 0 .. R_out - 1
    (9, 10)   decode_s = ((C3 + B C4 R_in) R_out + B C4 R_out^2 / 2) / (n b)
    (12, 13)  A1 = 1 / (C1 R_in + C2)                 A2 = 1 / (C4 R_out / 2 + C4 R_in + C3 / B)
    (5, 11)   S_prefill = n f A1                      S_decode = n b A2     tokens/s
    (14, 15)  CE = A1 f/p + A2 b/p                                          of the GPUs of each phase

Three things of the text are put right beside it. (9) is above the sum (8) by B C4 R_out / 2. (14) adds what a
USD prefills and what a USD decodes, although a request needs both: its costs add, not its efficiencies. (18)
divides the bandwidth that hides a hand-over by B, although a batch has B caches to hand over. And peaks are
not reached: u is what profiles take.

    u_p, u_d        = USD per token of an instance busy with one phase: n p s / tokens
    usd_per_request = R_in u_p + R_out u_d            CE = (R_in + R_out) / usd_per_request
    saving          <= 1 - (R_in min u_p + R_out min u_d) / min (R_in u_p + R_out u_d)

The minima are over deployments: GPU types at each tensor-parallel degree. Whoever is cheapest in both phases
makes the bound nothing: parting them is then of use to latency alone. A GPU type is cheapest in prefill below
one price and in decode below another (`turns`): between them it pays to part.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from models.latency.tables import interpolate, prefill_s
from models.world.entries import Gpu, LatencyProfile, Llm

HOUR_S = 3600.0


class Shape(NamedTuple):
    """What an llm's work is computed from (Cauchy, Table 2)."""

    layers: int  # l
    hidden: int  # h
    intermediate: int  # i
    vocabulary: int  # v
    kv_heads: int  # k
    head_dim: int  # s
    number_bytes: float = 2.0  # d


class Load(NamedTuple):
    """The mean request."""

    input_tokens: float  # R_in
    output_tokens: float  # R_out

    @property
    def cached_tokens(self) -> float:
        """What it has cached in the mean of its decode steps."""
        return self.input_tokens + self.output_tokens / 2


class Coefficients(NamedTuple):
    """C1 to C4: FLOP per pair of tokens, FLOP per token, bytes of weights, bytes of a token's cache."""

    c1: float
    c2: float
    c3: float
    c4: float


def shape_of(name: str, llm: Llm) -> Shape:
    """The sizes of an llm of the catalogue; ConfigError where it does not tell them all."""
    hidden, intermediate, vocabulary = llm.widths(name)
    return Shape(
        llm.layers, hidden, intermediate, vocabulary, llm.kv_heads, llm.head_dim, llm.weight_bits / 8
    )


# --- as printed ------------------------------------------------------------------------------------------


def coefficients(shape: Shape) -> Coefficients:
    """(1), (2), (6), (7)."""
    layers, h, i, d = shape.layers, shape.hidden, shape.intermediate, shape.number_bytes
    return Coefficients(
        4.0 * layers * h,
        8.0 * layers * h**2 + 6.0 * layers * h * i,
        d * (2.0 * shape.vocabulary * h + (4.0 * h**2 + 3.0 * h * i + 2.0 * h) * layers),
        2.0 * d * layers * shape.kv_heads * shape.head_dim,
    )


def peak_prefill_s(c: Coefficients, load: Load, batch: float, gpu: Gpu, gpus: int = 1) -> float:
    """(4): seconds of a batch's prefill at the peak."""
    flop = batch * (c.c1 * load.input_tokens**2 + c.c2 * load.input_tokens)
    return flop / (gpus * gpu.peak_tflops * 1e12)


def decode_bytes(c: Coefficients, load: Load, batch: float) -> float:
    """(9): bytes that a batch's decode reads, as printed; more than (8) by B C4 R_out / 2."""
    out = load.output_tokens
    return (c.c3 + batch * c.c4 * load.input_tokens) * out + batch * c.c4 * out**2 / 2


def summed_decode_bytes(c: Coefficients, load: Load, batch: float) -> float:
    """(8), summed: bytes that a batch's decode reads."""
    return decode_bytes(c, load, batch) - batch * c.c4 * load.output_tokens / 2


def peak_decode_s(c: Coefficients, load: Load, batch: float, gpu: Gpu, gpus: int = 1) -> float:
    """(10): seconds of a batch's decode at the peak."""
    return decode_bytes(c, load, batch) / (gpus * gpu.bandwidth_tb_per_s * 1e12)


def patterns(c: Coefficients, load: Load, batch: float) -> tuple[float, float]:
    """(12), (13): A1 in tokens per FLOP, A2 in tokens per byte."""
    a2 = 1 / (c.c4 * load.output_tokens / 2 + c.c4 * load.input_tokens + c.c3 / batch)
    return 1 / (c.c1 * load.input_tokens + c.c2), a2


def paper_tokens_per_usd(c: Coefficients, load: Load, batch: float, prefill: Gpu, decode: Gpu) -> float:
    """(15), per second times 3,600: the sum of what a USD prefills and what another USD decodes."""
    a1, a2 = patterns(c, load, batch)
    flop_per_usd = prefill.peak_tflops * 1e12 / prefill.usd_per_hour
    bytes_per_usd = decode.bandwidth_tb_per_s * 1e12 / decode.usd_per_hour
    return HOUR_S * (a1 * flop_per_usd + a2 * bytes_per_usd)


def hiding_bytes_per_s(c: Coefficients, input_tokens: float, gpu: Gpu, flops_share: float = 1.0) -> float:
    """(17), (18) put right: bytes/s of a link that hides a prompt's hand-over behind its prefill.

    The prefill runs at a share of the peak. A batch has as many caches as prompts, so its size cancels.
    """
    return c.c4 * gpu.peak_tflops * 1e12 * flops_share / (c.c1 * input_tokens + c.c2)


# --- corrected, from profiles ----------------------------------------------------------------------------


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

    def usd_per_request(self, load: Load) -> float:
        """USD of a request whose phases both run here."""
        return load.input_tokens * self.usd_per_input_token + load.output_tokens * self.usd_per_output_token


def phase_price(
    profile: LatencyProfile,
    usd_per_gpu_hour: float,
    load: Load,
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
        if (step := mean_step_s(profile, load, batch)) <= (tpot_slo_s or float("inf"))
    ]
    if not fits:
        return None
    batch, step = min(fits, key=lambda one: one[1] / one[0])
    usd_per_s = usd_per_gpu_hour * profile.tensor_parallel / HOUR_S
    return PhasePrice(
        profile.gpu,
        profile.tensor_parallel,
        usd_per_s * HOUR_S,
        usd_per_s * float(prefill_s(profile, tokens)) / tokens,
        usd_per_s * step / batch,
        batch,
        step,
    )


def mean_step_s(profile: LatencyProfile, load: Load, batch: int) -> float:
    """Seconds of a decode step of so many requests, in the mean of their lives."""
    alone = float(interpolate(batch, profile.decode_batch, profile.decode_s))
    return alone + profile.decode_per_kv_token_s * batch * load.cached_tokens


def best_of_each_gpu(prices: Iterable[PhasePrice], load: Load) -> list[PhasePrice]:
    """Of the deployments on each GPU type the one on which a whole request costs least, in their order."""
    best: dict[str, PhasePrice] = {}
    for price in prices:
        known = best.get(price.gpu)
        if known is None or price.usd_per_request(load) < known.usd_per_request(load):
            best[price.gpu] = price
    return list(best.values())


def usd_per_request(prefill: PhasePrice, decode: PhasePrice, load: Load) -> float:
    """USD of a request that is prefilled on one instance and decoded on another."""
    return load.input_tokens * prefill.usd_per_input_token + load.output_tokens * decode.usd_per_output_token


def tokens_per_usd(prefill: PhasePrice, decode: PhasePrice, load: Load) -> float:
    """The corrected (14): tokens of a request over its USD."""
    return (load.input_tokens + load.output_tokens) / usd_per_request(prefill, decode, load)


class Bound(NamedTuple):
    """What parting the phases saves at most, and between whom."""

    together: PhasePrice  # where a whole request costs least
    prefill: PhasePrice
    decode: PhasePrice
    saving_share: float  # of the cost of `together`


def saving_bound(prices: Sequence[PhasePrice], load: Load) -> Bound:
    """The bound of this file's docstring; ValueError where there is no price."""
    if not prices:
        raise ValueError("No GPU type can hold the llm at the pace wanted. Loosen it, or add a larger GPU.")
    together = min(prices, key=lambda price: price.usd_per_request(load))
    prefill = min(prices, key=lambda price: price.usd_per_input_token)
    decode = min(prices, key=lambda price: price.usd_per_output_token)
    apart = usd_per_request(prefill, decode, load)
    return Bound(together, prefill, decode, max(0.0, 1 - apart / together.usd_per_request(load)))


class Turn(NamedTuple):
    """Below which USD per GPU-hour a GPU type is the cheapest of all in a phase; the others' prices stay."""

    gpu: str
    prefill_usd: float
    decode_usd: float

    @property
    def between(self) -> tuple[float, float]:
        """The prices between which it is cheapest in one phase only, so that parting the phases pays."""
        return min(self[1:]), max(self[1:])


def turns(prices: Sequence[PhasePrice]) -> list[Turn]:
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
            found.append(Turn(gpu, *of_phases))
    return found
