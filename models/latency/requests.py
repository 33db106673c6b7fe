"""A profile from the measured requests of one instance: regression on who shared the engine with whom.

First and last tokens of all requests tell how many were decoding at any time (B) and what they cached (kv).
Between its first and its last token, a request sees its own steps and the prompts j prefilled meanwhile:

    last - first = steps*(f[B] + g*kv) + sum_j prefill(tokens_j)       B and kv in the mean over that time

Where a pass carries prompts beside decode, each of those prompts took the place of one step. A request that
waits behind no other's prefill sees, in the mean, half of a step under way and then its own prefill:

    ttft = (f[B] + g*kv)/2 + prefill(tokens)

Both are linear in the seconds at the knots of f and prefill and in g, so least squares finds them all.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from models.latency.measured import KV_CEILING, Fit
from models.latency.roofline import Work, decode_s, kv_token_s, prefill_s
from models.latency.tables import Floats
from models.world.catalogue import Efficiency

PREFILL_KNOTS = 4
GROWTH = 4  # from one decode knot to the next
ROBUST_SHARE = 0.1  # errors above it count less than their square
ROUNDS = 8  # of reweighting
BELIEF = 0.01  # weight of the roofline, in requests: it decides only what no request tells
LEAST_SHARE = 1e-3  # of the roofline's seconds, at the first knots


class Requests(NamedTuple):
    """Requests that one instance has served, by arrival; each column of shape (requests,)."""

    arrival_s: Floats  # on any clock
    input_tokens: npt.NDArray[np.int32]
    output_tokens: npt.NDArray[np.int32]
    ttft_s: Floats
    e2e_s: Floats


class Timeline(NamedTuple):
    """What the instance decoded: constant from each time on, until the next."""

    time_s: Floats  # (events,) rising
    batch: Floats  # (events,) requests between their first and their last token
    kv: Floats  # (events,) their cached tokens, each counted at its mean


def timeline(requests: Requests) -> Timeline:
    """The instance's decode batch over time."""
    first, last = requests.arrival_s + requests.ttft_s, requests.arrival_s + requests.e2e_s
    cached = requests.input_tokens + requests.output_tokens / 2
    order = np.argsort(np.concatenate([first, last]), kind="stable")
    ones = np.ones(first.size)
    return Timeline(
        np.concatenate([first, last])[order],
        np.cumsum(np.concatenate([ones, -ones])[order]),
        np.cumsum(np.concatenate([cached, -cached])[order]),
    )


def fit_requests(requests: Requests, work: Work, efficiency: Efficiency, is_mixed: bool) -> Fit:
    """Knots over the prompts that came and the batches that were, where least squares puts them.

    Parameters
    ----------
    work, efficiency : the deployment's roofline, where no request tells otherwise
    is_mixed : whether a pass carries prompts beside decode (chunked prefill, orca)
    """
    past = timeline(requests)
    shortest, longest = int(requests.input_tokens.min()), int(requests.input_tokens.max())
    prompts = np.unique(np.geomspace(shortest, max(longest, 2 * shortest), PREFILL_KNOTS).astype(int))
    largest = max(2, round(past.batch.max()))
    batches = np.array([*(b for b in GROWTH ** np.arange(10) if b < largest), largest])
    load = np.column_stack([hats(past.batch, batches) * (past.batch > 0)[:, None], past.kv])
    rows = [decode_rows(requests, past, load, prompts, is_mixed), prefill_rows(requests, past, load, prompts)]
    curves = [prefill_s(work, prompts, efficiency), decode_s(work, batches, efficiency)]
    g = kv_token_s(work, efficiency)
    unit = np.concatenate([*(np.full(curve.size, curve[0]) for curve in curves), [g]])
    believed = np.concatenate([*(np.diff(curve, prepend=0.0) for curve in curves), [g]]) / unit
    low, high = np.zeros(unit.size), np.full(unit.size, np.inf)
    low[[0, prompts.size]] = LEAST_SHARE
    low[-1], high[-1] = np.array([1, KV_CEILING]) * work.kv_floor_s / g
    matrix = np.concatenate(rows) @ summing(prompts.size, batches.size) * unit
    found = unit * robust_least_squares(matrix, believed, low, high)
    prefill, decode, kv = np.split(found, [prompts.size, -1])
    return Fit(
        tuple(int(t) for t in prompts),
        tuple(float(s) for s in np.cumsum(prefill).round(6)),
        tuple(int(b) for b in batches),
        tuple(float(s) for s in np.cumsum(decode).round(6)),
        float(f"{kv[0]:.3e}"),
    )


def decode_rows(
    requests: Requests, past: Timeline, load: Floats, prompts: npt.NDArray[np.int64], is_mixed: bool
) -> Floats:
    """A row for every request of two tokens or more: weights of all knots and g over its measured seconds."""
    first, last = requests.arrival_s + requests.ttft_s, requests.arrival_s + requests.e2e_s
    area = np.zeros_like(load)
    area[1:] = np.cumsum(load[:-1] * np.diff(past.time_s)[:, None], axis=0)

    def until(moment: Floats) -> Floats:
        return area[np.searchsorted(past.time_s, moment, side="right") - 1]

    order = np.argsort(first)
    prefilled = np.zeros((first.size + 1, prompts.size))
    prefilled[1:] = np.cumsum(hats(requests.input_tokens, prompts)[order], axis=0)
    own = np.searchsorted(first[order], first, side="right")
    others = np.maximum(np.searchsorted(first[order], last, side="left"), own)
    steps = requests.output_tokens - 1.0
    if is_mixed:
        steps = np.maximum(steps - (others - own), 0.0)
    decoding = last > first
    seconds = (last - first)[decoding, None]
    mean_load = (until(last) - until(first))[decoding] / seconds
    pauses = (prefilled[others] - prefilled[own])[decoding]
    return np.column_stack([pauses, steps[decoding, None] * mean_load]) / seconds


def prefill_rows(requests: Requests, past: Timeline, load: Floats, prompts: npt.NDArray[np.int64]) -> Floats:
    """A row for every request that was alone in waiting for its first token, like those of `decode_rows`."""
    arrival, first = requests.arrival_s, requests.arrival_s + requests.ttft_s
    waiting = np.arange(arrival.size) - np.searchsorted(np.sort(first), arrival, side="right")
    alone = (waiting == 0) & (np.append(arrival[1:], np.inf) >= first)
    at = np.searchsorted(past.time_s, arrival, side="right") - 1
    under_way = np.where(at[:, None] >= 0, load[at], 0.0)
    rows = np.column_stack([hats(requests.input_tokens, prompts), under_way / 2])
    return (rows / requests.ttft_s[:, None])[alone]


def hats(at: npt.ArrayLike, knots: npt.NDArray[np.int64]) -> Floats:
    """Weights of the knots in `interpolate`, shape (at, knots): hats(at, x) @ y = interpolate(at, x, y)."""
    x = knots.astype(np.float64)
    points = np.maximum(np.asarray(at, dtype=np.float64), x[0])
    left = np.clip(np.searchsorted(x, points, side="right") - 1, 0, x.size - 2)
    share = (points - x[left]) / (x[left + 1] - x[left])
    weights = np.zeros((points.size, x.size))
    each = np.arange(points.size)
    weights[each, left], weights[each, left + 1] = 1 - share, share
    return weights


def summing(prompts: int, batches: int) -> Floats:
    """The matrix from rises between knots to seconds at knots, g unchanged: so none ever falls."""
    sums = np.eye(prompts + batches + 1)
    sums[:prompts, :prompts] = np.tril(np.ones((prompts, prompts)))
    sums[prompts:-1, prompts:-1] = np.tril(np.ones((batches, batches)))
    return sums


def robust_least_squares(rows: Floats, believed: Floats, low: Floats, high: Floats) -> Floats:
    """x in [low, high], rows @ x about 1, x faintly about `believed`; outliers weigh less each round."""
    from scipy.optimize import lsq_linear

    weight = np.ones(rows.shape[0])
    for _ in range(ROUNDS):
        matrix = np.concatenate([rows * weight[:, None], BELIEF * np.eye(believed.size)])
        found = lsq_linear(matrix, np.concatenate([weight, BELIEF * believed]), bounds=(low, high)).x
        weight = (1 + ((rows @ found - 1) / ROBUST_SHARE) ** 2) ** -0.25
    return np.asarray(found)
