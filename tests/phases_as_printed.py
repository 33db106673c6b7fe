"""The work of prefill and decode, and what a USD does of it, as Cauchy (SoCC '25) prints it in section 3.2.

An llm has l layers of width h, an inner width i, a vocabulary v, k heads that keep keys and values of s
numbers, d bytes each; a request has R_in and R_out tokens, a batch B requests. A GPU does f FLOP/s, reads b
bytes/s and costs p USD an hour; an instance has n of them.

    (1, 2)    C1 = 4lh                 C2 = 8lh^2 + 6lhi                   FLOP of a token: in pairs, alone
    (6, 7)    C3 = d(2vh + (4h^2 + 3hi + 2h)l)        C4 = 2dlks           bytes: weights, cache of a token
    (3, 4)    prefill_s = B (C1 R_in^2 + C2 R_in) / (n f)
    (8)       bytes = sum of C3 + B C4 (R_in + j) over the steps j = 0 .. R_out - 1
    (9, 10)   decode_s = ((C3 + B C4 R_in) R_out + B C4 R_out^2 / 2) / (n b)
    (12, 13)  A1 = 1 / (C1 R_in + C2)                 A2 = 1 / (C4 R_out / 2 + C4 R_in + C3 / B)
    (5, 11)   S_prefill = n f A1                      S_decode = n b A2     tokens/s
    (14, 15)  CE = A1 f/p + A2 b/p                                          of the GPUs of each phase

Two things of the text are put right next to it: (9) is above the sum (8) by B C4 R_out / 2, and (18) divides
the bandwidth that hides a hand-over by B, although a batch has B caches to hand over. That (14) adds
efficiencies, where costs add, is put right in phases.py.
"""

from typing import NamedTuple

from fleetcast.models.plan.phase_costs import MeanRequest
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.catalogue_entries import Gpu, Llm


class Shape(NamedTuple):
    """What an llm's work is computed from (Cauchy, Table 2)."""

    layers: int  # l
    hidden: int  # h
    intermediate: int  # i
    vocabulary: int  # v
    kv_heads: int  # k
    head_dim: int  # s
    number_bytes: float = 2.0  # d


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


def coefficients(shape: Shape) -> Coefficients:
    """(1), (2), (6), (7)."""
    layers, h, i, d = shape.layers, shape.hidden, shape.intermediate, shape.number_bytes
    return Coefficients(
        4.0 * layers * h,
        8.0 * layers * h**2 + 6.0 * layers * h * i,
        d * (2.0 * shape.vocabulary * h + (4.0 * h**2 + 3.0 * h * i + 2.0 * h) * layers),
        2.0 * d * layers * shape.kv_heads * shape.head_dim,
    )


def peak_prefill_s(c: Coefficients, load: MeanRequest, batch: float, gpu: Gpu, gpus: int = 1) -> float:
    """(4): seconds of a batch's prefill at the peak."""
    flop = batch * (c.c1 * load.input_tokens**2 + c.c2 * load.input_tokens)
    return flop / (gpus * gpu.peak_tflops * 1e12)


def decode_bytes(c: Coefficients, load: MeanRequest, batch: float) -> float:
    """(9): bytes that a batch's decode reads, as printed; more than (8) by B C4 R_out / 2."""
    out = load.output_tokens
    return (c.c3 + batch * c.c4 * load.input_tokens) * out + batch * c.c4 * out**2 / 2


def summed_decode_bytes(c: Coefficients, load: MeanRequest, batch: float) -> float:
    """(8), summed: bytes that a batch's decode reads."""
    return decode_bytes(c, load, batch) - batch * c.c4 * load.output_tokens / 2


def peak_decode_s(c: Coefficients, load: MeanRequest, batch: float, gpu: Gpu, gpus: int = 1) -> float:
    """(10): seconds of a batch's decode at the peak."""
    return decode_bytes(c, load, batch) / (gpus * gpu.bandwidth_tb_per_s * 1e12)


def patterns(c: Coefficients, load: MeanRequest, batch: float) -> tuple[float, float]:
    """(12), (13): A1 in tokens per FLOP, A2 in tokens per byte."""
    a2 = 1 / (c.c4 * load.output_tokens / 2 + c.c4 * load.input_tokens + c.c3 / batch)
    return 1 / (c.c1 * load.input_tokens + c.c2), a2


def paper_tokens_per_usd(
    c: Coefficients, load: MeanRequest, batch: float, prefill: Gpu, decode: Gpu
) -> float:
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
